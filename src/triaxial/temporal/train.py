"""Training a language model on what one split may see: a Transformer-XL, or any causal LM anew.

The training documents of a split become one row of pieces, a mark before each: `<s> d1 <s> d2 …`.
The row is cut into parallel streams of equal length, which a Transformer-XL reads segment by
segment with its memory carried on; another model reads windows of the same row, drawn at random.
Every piece and every end of a document is a target exactly once an epoch, the tails of streams
included.  Where documents must not see each other (`borders="reset"`), every document begins a
segment of its own and the memory is emptied there; what is left of its last segment is padding.

The directory that is written holds configuration, weights, tokenizer, what its vocabulary was
learned from, and `training.json` with the cut-off: the last month that was trained on. A run that
was killed is taken up exactly.

Source: Lazaridou et al. 2021 (Transformer-XL; one model for each split); transformer-xl #25 (memory
across documents).
Choice: documents in a new order in every epoch, memory carried over their borders; streams begin
each epoch with nothing remembered.

B streams or windows of an update, T pieces of a segment.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from triaxial.errors import InputError
from triaxial.models.base import Hardware, hardware
from triaxial.models.causal import DocumentScore, load_causal, own_tokenizer
from triaxial.models.causal_readers import linear_head
from triaxial.models.cross_entropy import IGNORED, mean_loss
from triaxial.models.distributed import ALONE, Division, Team
from triaxial.models.fit import FitOptions, Parts, fit
from triaxial.models.tensors import on_device
from triaxial.models.training import (
    CHECKPOINTS,
    digest,
    finished,
    publish,
    ratio_interval,
    told,
)
from triaxial.models.transformer_xl import TransformerXL
from triaxial.models.xl_config import PRESETS, XLConfig
from triaxial.stats import generator
from triaxial.temporal.corpus import Document, month_name, month_of
from triaxial.temporal.segments import Borders, Cut, cut_streams, cut_windows
from triaxial.temporal.splits import Split
from triaxial.temporal.vocabulary import FACTS, trained_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerFast

__all__ = ["TrainOptions", "train_language_model"]

_ENCODED = 1_024  # documents at a time
_WINDOW = 512  # of a model that would take more


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """What is trained, and how.

    Args:
        model: A preset of `xl_config.PRESETS` or an `XLConfig`, whose vocabulary becomes that of
            the tokenizer; or, for any other causal LM from scratch, the configuration as a JSON
            file or the hub id of a model whose configuration is taken.
        rows: Streams, or windows of an update.
        borders: Whether a document may see the ones before it in its stream or window (`carry`),
            or begins anew (`reset`).
        window: Pieces of a window, or of a Transformer-XL's segment; by default the model's own,
            at most 512 where it has no segments.
        validation: Most validation documents that are scored at the end, drawn at random.
        fit: Steps, rates, seed.
    """

    model: str | XLConfig = "tiny"
    rows: int = 16
    borders: Borders = "carry"
    window: int | None = None
    validation: int = 500
    fit: FitOptions = field(default_factory=lambda: FitOptions(epochs=1, learning_rate=1e-3))

    def __post_init__(self) -> None:
        wanted = {
            "rows": (self.rows >= 1, "at least 1"),
            "borders": (self.borders in ("carry", "reset"), "one of carry, reset"),
            "window": (self.window is None or self.window >= 1, "at least 1"),
            "validation": (self.validation >= 0, "0 or more"),
        }
        for name, (good, rule) in wanted.items():
            if not good:
                raise InputError(f"is {getattr(self, name)!r}; it must be {rule}", where=name)


def train_language_model(
    documents: Iterable[Document],
    split: Split,
    vocabulary: Path,
    out: Path,
    options: TrainOptions | None = None,
    *,
    cutoff: str | None = None,
    foreign_vocabulary: bool = False,
    where: Hardware | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    team: Team = ALONE,
) -> dict[str, Any]:
    """Train a language model on a split's training documents, and save it.

    Args:
        documents: The corpus, read once, in any order; documents outside the split's training
            and validation parts are skipped.
        split: Of which the training part is trained on.
        vocabulary: Directory of the tokenizer.
        out: Directory for the model; new, empty, or left by this very call.
        options: What is trained, and how.
        cutoff: The month "YYYY-MM" after which no training document may be dated; by default the
            latest month among them.
        foreign_vocabulary: Whether a tokenizer that was learned from other documents may be used
            (the paper's test of the tokenizer's age); where it may not, it is checked.
        where: Device and precision; by default what `hardware()` finds.
        progress: As in `fit`.
        team: The processes that share the training; the first saves and measures. Each has as many
            streams as the others.

    Returns:
        The content of `training.json`; losses are in nats a piece.

    Raises:
        InputError: A document is missing or after the cut-off, the vocabulary was learned from
            others, the model cannot be made, or training diverges.
        StoreError: `out` holds something else, or cannot be written.
    """
    options, where = options or TrainOptions(), where or hardware()
    if not foreign_vocabulary:
        trained_ids(vocabulary, split)
    tokenizer = own_tokenizer(vocabulary, str(vocabulary))
    if tokenizer.bos_token_id is None:
        raise InputError(
            "its tokenizer has no mark to stand between documents (BOS); train a vocabulary",
            where=vocabulary,
        )
    corpus = _read(documents, split, tokenizer, options)
    latest = month_name(corpus.latest)
    if cutoff is not None and latest > cutoff:
        raise InputError(
            f"a training document is of {latest}, after the cut-off {cutoff}; make the split again "
            "or state the later cut-off",
            where=split.name,
        )
    config = _configuration(options, tokenizer)
    if isinstance(config, XLConfig) and options.rows % team.size:
        raise InputError(
            f"is {options.rows}, and {team.size} processes have as many streams each; choose a "
            f"multiple of {team.size}",
            where="rows",
        )
    about: dict[str, Any] = {
        "kind": "causal",
        "config": asdict(config) if isinstance(config, XLConfig) else config.to_diff_dict(),
        "split": split.name,
        "cutoff": cutoff or latest,
        "latest": latest,
        "data": corpus.digest,
        "tokenizer": digest(tokenizer.backend_tokenizer.to_str()),
        "foreign_vocabulary": foreign_vocabulary,
        "options": {
            **{name: getattr(options, name) for name in ("rows", "borders", "window")},
            "validation": options.validation,
            **asdict(options.fit),
        },
        "precision": where.precision,
    }
    about["config"].pop("transformers_version", None)
    about = json.loads(json.dumps(about))  # as it will be read again
    decides = about | {"options": {**about["options"], "checkpoint_every": None}}
    about = {"run": digest(decides), "device": where.device, **about}
    if (done := finished(out, about["run"])) is not None:
        return done
    model: Any
    loss: Callable[[Any, Cut], torch.Tensor]
    buffers: dict[str, int]
    if isinstance(config, XLConfig):
        model = TransformerXL(config, seed=options.fit.seed)
        width, cut = options.window or config.segment, cut_streams
        model.to(where.device)
        model.open_streams(team.rows(options.rows).count)
        loss, buffers = _stream_loss(where), {"stream_states": 1, "stream_valid": 0}
        saved: Any = _Saved(model)
    else:
        model = saved = _from_config(config, options.fit.seed)
        width, cut = _width(config, options), cut_windows
        loss, buffers = _window_loss(model, where), {}
    mark = tokenizer.bos_token_id

    def epoch_batches(epoch: int) -> list[Parts[Cut]]:
        rng = generator("temporal.train", options.fit.seed, epoch)
        cuts = cut(corpus.train, mark, options.rows, width, options.borders, rng)
        return [[(1.0, one)] for one in cuts]

    first = epoch_batches(0)
    shown = sum(int((part.targets != IGNORED).sum()) for ((_, part),) in first)
    places = sum(part.ids.size for ((_, part),) in first)
    history = fit(
        model,
        epoch_batches,
        loss,
        options.fit,
        where,
        checkpoint=out / CHECKPOINTS,
        run=about["run"],
        progress=progress,
        team=team,
        division=Division(lambda cut: len(cut.ids), _some_rows, buffers),
    )
    facts = about | {
        "documents": len(corpus.train),
        "targets": shown,
        "padding": 1 - shown / places,
        "width": width,
        "history": told(history, len(first)),
        "held_out": None,
    }

    def measure(directory: Path) -> dict[str, Any]:
        if (vocabulary / FACTS).is_file():
            shutil.copyfile(vocabulary / FACTS, directory / FACTS)
        if not corpus.valid:
            return {}
        tested = load_causal(str(directory), device=where.device, precision=where.precision)
        return {"held_out": _report(tested.score(corpus.valid), corpus.train, len(tokenizer))}

    return publish(out, saved, tokenizer, facts, measure, team)


@dataclass(frozen=True, slots=True)
class _Corpus:
    """Pieces of the training documents and texts of validation, in the split's order."""

    train: list[NDArray[np.int32]]
    valid: list[str]
    latest: int
    digest: str


class _Saved:
    """A Transformer-XL as `publish` saves models."""

    def __init__(self, model: TransformerXL) -> None:
        self.model = model

    def to(self, device: str) -> _Saved:
        self.model.to(device)
        return self

    def save_pretrained(self, directory: Path) -> None:
        self.model.save(directory)


def _read(
    documents: Iterable[Document],
    split: Split,
    tokenizer: PreTrainedTokenizerFast,
    options: TrainOptions,
) -> _Corpus:
    place = {name: n for n, name in enumerate(split.train)}
    if not place:
        raise InputError("has no training documents; make the split again", where=split.name)
    drawn = generator("temporal.validation", options.fit.seed).permutation(len(split.valid))
    valid = {split.valid[n]: "" for n in sorted(drawn[: options.validation].tolist())}
    missing = {*place, *valid}
    train: list[NDArray[np.int32]] = [np.zeros(0, dtype=np.int32)] * len(place)
    digests = [""] * len(place)
    latest = 0
    encoder = tokenizer.backend_tokenizer
    encoder.no_padding()
    encoder.no_truncation()
    encoder.encode_special_tokens = True  # text that looks like a mark is text
    waiting: list[Document] = []

    def encode() -> None:
        texts = [document.text for document in waiting]
        for document, encoding in zip(
            waiting, encoder.encode_batch_fast(texts, add_special_tokens=False), strict=True
        ):
            train[place[document.id]] = np.asarray(encoding.ids, dtype=np.int32)
        waiting.clear()

    for document in documents:
        if document.id not in place and document.id not in valid:
            continue
        if document.id not in missing:
            raise InputError(
                f"the document {document.id!r} stands twice in the corpus; remove one",
                where=split.name,
            )
        missing.remove(document.id)
        if document.id in valid:
            valid[document.id] = document.text
            continue
        latest = max(latest, month_of(document.date))
        text = document.text.encode("utf-8", "surrogatepass")
        digests[place[document.id]] = hashlib.blake2b(text, digest_size=16).hexdigest()
        waiting.append(document)
        if len(waiting) == _ENCODED:
            encode()
    encode()
    if missing:
        raise InputError(
            f"{len(missing)} of its documents are not in the corpus ({min(missing)!r}, …); read "
            "the corpus that the split was made from",
            where=split.name,
        )
    whole = digest([[*split.train], digests, valid])
    return _Corpus(train, [*valid.values()], latest, whole)


def _configuration(options: TrainOptions, tokenizer: PreTrainedTokenizerFast) -> Any:
    """The configuration with the tokenizer's vocabulary and marks."""
    model = PRESETS.get(options.model, options.model) if isinstance(options.model, str) else None
    model = options.model if model is None else model
    if isinstance(model, XLConfig):
        segment = options.window or model.segment
        return replace(model, vocab_size=len(tokenizer), segment=segment)
    from transformers import AutoConfig

    try:
        if model.endswith(".json"):
            config: Any = AutoConfig.for_model(**json.loads(Path(model).read_text("utf-8")))
        else:
            config = AutoConfig.from_pretrained(model, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{model!r} is no configuration of a causal LM ({reason}); name one of "
            f"{', '.join(PRESETS)}, a configuration with its model_type (*.json) or a hub id",
            where="model",
        ) from None
    config.vocab_size = len(tokenizer)
    config.bos_token_id, config.eos_token_id = tokenizer.bos_token_id, tokenizer.eos_token_id
    config.pad_token_id = None
    return config


def _from_config(config: Any, seed: int) -> Any:
    from transformers import AutoModelForCausalLM

    drawn = generator("temporal.weights", seed).integers(1 << 63)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(drawn))
        try:
            made: Any = AutoModelForCausalLM
            return made.from_config(config, dtype=torch.float32)
        except ValueError as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"no causal LM can be made from this configuration ({reason}); choose another",
                where="model",
            ) from None


def _width(config: Any, options: TrainOptions) -> int:
    most = getattr(config, "max_position_embeddings", None) or 1 << 30
    if options.window is not None and options.window > most:
        raise InputError(f"is {options.window}; the model takes {most} pieces", where="window")
    return options.window or min(most, _WINDOW)


def _some_rows(cut: Cut, some: slice) -> tuple[float, Cut]:
    """Some streams or windows, and their share of the targets."""
    mine = Cut(cut.ids[some], cut.targets[some], cut.reset[some])
    return float((mine.targets != IGNORED).sum() / max((cut.targets != IGNORED).sum(), 1)), mine


def _stream_loss(where: Hardware) -> Callable[[Any, Cut], torch.Tensor]:
    def loss(model: Any, cut: Cut) -> torch.Tensor:
        ids, targets = _on(cut.ids, where), _on(cut.targets, where)
        value: torch.Tensor = model.stream_loss(
            ids, targets, on_device(np.ascontiguousarray(cut.reset), where.device)
        )
        return value

    return loss


def _window_loss(model: Any, where: Hardware) -> Callable[[Any, Cut], torch.Tensor]:
    model.to(where.device)
    head = linear_head(model)
    kind = torch.bfloat16 if where.precision == "bf16" else None

    def loss(_: Any, cut: Cut) -> torch.Tensor:
        ids, targets = _on(cut.ids, where), _on(cut.targets, where).flatten()
        if head is None:  # an output layer of its own kind: all logits, as the model makes them
            logits = model(input_ids=ids, use_cache=False).logits.flatten(0, 1)
            return torch.nn.functional.cross_entropy(logits.float(), targets, ignore_index=IGNORED)
        hidden = model.base_model(input_ids=ids, use_cache=False)[0].flatten(0, 1)
        return mean_loss(hidden, head.weight, head.bias, targets, dtype=kind)[0]

    return loss


def _on(array: NDArray[np.int32], where: Hardware) -> torch.Tensor:
    return on_device(np.ascontiguousarray(array), where.device, torch.long)


def _report(
    scores: Sequence[DocumentScore], train: Sequence[NDArray[np.int32]], size: int
) -> dict[str, Any]:
    """Loss a piece on validation documents, beside the simplest guess: each piece's frequency."""
    counts = np.bincount(np.concatenate(train), minlength=size) + 1.0
    surprise = -np.log(counts / counts.sum())
    units = np.asarray([[-score.log_p.sum(dtype=np.float64), len(score.ids)] for score in scores])
    pieces = np.concatenate([score.ids for score in scores])
    return {
        "n": len(scores),
        "pieces": len(pieces),
        "loss": ratio_interval(units) if len(pieces) else None,
        "unigram_loss": float(surprise[pieces].mean()) if len(pieces) else None,
    }
