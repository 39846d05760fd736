"""Training a masked LM further on other texts: masks of our own, the head at the masks alone.

M masked tokens, d width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from triaxial.errors import InputError
from triaxial.models.base import (
    Hardware,
    autocast,
    evaluation,
    hardware,
    load_pretrained,
    load_tokenizer,
    locate,
)
from triaxial.models.batching import TOKEN_BUDGET, length_batches
from triaxial.models.distributed import ALONE, Division, Team
from triaxial.models.fit import FitOptions, Parts, fit
from triaxial.models.tensors import fetched, on_device, one_behind
from triaxial.models.training import (
    CHECKPOINTS,
    Part,
    Rows,
    about_run,
    batches_of,
    check,
    digest,
    encode,
    finished,
    inputs_of,
    parts_of,
    publish,
    ratio_interval,
    told,
)
from triaxial.stats import generator

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerFast

__all__ = ["train_masked"]

# Logits of one evaluation batch hold at most so many numbers, as in `masked`.
_MOST_LOGITS = 32_000_000


def train_masked(
    model: str,
    texts: Sequence[str],
    out: Path,
    options: FitOptions | None = None,
    *,
    batch_size: int = 32,
    mask_share: float = 0.15,
    held_out: Sequence[str] = (),
    where: Hardware | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    team: Team = ALONE,
) -> dict[str, Any]:
    """Train a masked LM further on texts, and save it.

    New masks in every epoch: of the chosen tokens 80 % become the mask, 10 % another token and
    10 % stay. Every text has at least one (Choice). The head runs at the chosen tokens alone.

    Args:
        model: Directory or hub id of a masked LM.
        texts: Sentences or passages; each is one row, cut at what the model takes.
        out: Directory for the model; new, empty, or left by this very call.
        options: How to train.
        batch_size: Texts of an update.
        mask_share: Share of tokens to predict, 0..1.
        held_out: Texts on which the model is measured before and after, with the same masks.
        where: Device and precision; by default what `hardware()` finds.
        progress: As in `fit`.
        team: The processes that share the training; the first saves.

    Returns:
        The content of `training.json`; losses are in nats a token.

    Raises:
        InputError: The model cannot be used, there are no texts, or training diverges.
        StoreError: `out` holds something else, or cannot be written.
    """
    from transformers import AutoModelForMaskedLM

    options, where = options or FitOptions(), where or hardware()
    check(texts, "texts", batch_size)
    if not 0 < mask_share < 1:
        raise InputError(f"is {mask_share}; it must be a share, above 0 and below 1", where="mask")
    source = locate(model)
    about = about_run(
        "masked", source, digest(texts), digest(held_out), options, batch_size, where, mask_share
    )
    if (done := finished(out, about["run"])) is not None:
        return done
    tokenizer = load_tokenizer(source)
    if tokenizer.mask_token_id is None:
        raise InputError("its tokenizer has no mask token: not a masked LM", where=model)
    network = load_pretrained(AutoModelForMaskedLM, source)
    rows = encode(tokenizer, source, network.config, texts)
    tests = encode(tokenizer, source, network.config, held_out) if held_out else None
    for part in (rows, tests):
        empty = [] if part is None else [n for n, s in enumerate(part.special) if 0 not in s]
        if empty:
            raise InputError(f"text {empty[0] + 1} has no words; leave it out", where="texts")
    batches = batches_of(rows.lengths, batch_size, options, where)
    head = _HeadAtMasks(network)

    def masked_batches(epoch: int) -> list[Parts[tuple[_Masks, Part]]]:
        rng = generator("finetune.masks", options.seed, epoch)
        masks = _masks(rows, tokenizer, mask_share, rng)
        found: list[Parts[tuple[_Masks, Part]]] = []
        for batch in batches(epoch):
            counts = [masks.count(part.rows) for _, part in batch]
            found.append(
                [
                    (count / sum(counts), (masks, part))
                    for count, (_, part) in zip(counts, batch, strict=True)
                ]
            )
        return found

    def loss(_: torch.nn.Module, part: tuple[_Masks, Part]) -> torch.Tensor:
        return head.losses(rows, *part, where).mean()

    def take(both: tuple[_Masks, Part], some: slice) -> tuple[float, tuple[_Masks, Part]]:
        masks, part = both
        mine = part.take(some)
        return masks.count(mine.rows) / masks.count(part.rows), (masks, mine)

    def measure() -> NDArray[np.float64] | None:
        return None if tests is None else _masked_sums(head, tests, tokenizer, mask_share, where)

    before = measure()
    history = fit(
        network,
        masked_batches,
        loss,
        options,
        where,
        checkpoint=out / CHECKPOINTS,
        run=about["run"],
        progress=progress,
        team=team,
        division=Division(lambda both: len(both[1]), take),
    )
    after = measure()
    head.remove()
    facts = about | {
        "rows": len(texts),
        "truncated": rows.truncated,
        "tokens": int(rows.lengths.sum()),
        "history": told(history, -(-len(texts) // batch_size)),
        "held_out": None,
    }
    if tests is not None and before is not None and after is not None:
        facts["held_out"] = _masked_report(rows, tests, tokenizer, mask_share, before, after)
    return publish(out, network, tokenizer, facts, lambda _: {}, team)


@dataclass(frozen=True, slots=True)
class _Masks:
    """For every row: places to predict, and what stands there instead."""

    places: list[NDArray[np.intp]]
    shown: list[NDArray[np.int64]]

    def count(self, rows: NDArray[np.intp]) -> int:
        return sum(len(self.places[row]) for row in rows)


def _masks(
    rows: Rows, tokenizer: PreTrainedTokenizerFast, share: float, rng: np.random.Generator
) -> _Masks:
    ordinary = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
    assert tokenizer.mask_token_id is not None
    places, shown = [], []
    for ids, special in zip(rows.ids, rows.special, strict=True):
        tokens = np.asarray(ids)
        open_to = np.flatnonzero(np.asarray(special) == 0)
        chance = rng.random(len(open_to))
        chosen = open_to[(chance < share) | (chance == chance.min())]
        fate = rng.random(len(chosen))
        other = rng.choice(ordinary, len(chosen))
        places.append(chosen)
        shown.append(
            np.where(
                fate < 0.8,
                tokenizer.mask_token_id,
                np.where(fate < 0.9, other, tokens[chosen]),
            )
        )
    return _Masks(places, shown)


class _HeadAtMasks:
    """A masked LM whose head runs at the masked places alone, a seventh of the work of a head."""

    def __init__(self, model: Any) -> None:
        self.model = model
        body = getattr(model, model.base_model_prefix)
        self.at: tuple[torch.Tensor, torch.Tensor] | None = None
        self.handle = body.register_forward_hook(self._keep)

    def losses(self, rows: Rows, masks: _Masks, whole: Part, where: Hardware) -> torch.Tensor:
        """Loss of each masked token, shape (M,), row by row."""
        part = whole.rows
        ids = rows.padded(part, whole.width)
        line = np.repeat(np.arange(len(part)), [len(masks.places[row]) for row in part])
        column = np.concatenate([masks.places[row] for row in part])
        gold = on_device(ids[line, column], where.device)
        ids[line, column] = np.concatenate([masks.shown[row] for row in part])
        self.at = (on_device(line, where.device), on_device(column, where.device))
        logits = self.model(**inputs_of(rows, part, ids, where)).logits  # (1, M, V)
        if logits.shape[0] != 1 or logits.shape[1] != len(gold):
            # A head that does not read the body's last hidden state: slower, same numbers.
            logits = logits[self.at][None]
        return F.cross_entropy(logits[0].float(), gold, reduction="none")

    def remove(self) -> None:
        """Leave the model as it was."""
        self.handle.remove()

    def _keep(self, _body: Any, _inputs: Any, output: Any) -> Any:
        assert self.at is not None
        output.last_hidden_state = output[0][self.at][None]  # (1, M, d)
        return output


def _masked_sums(
    head: _HeadAtMasks,
    rows: Rows,
    tokenizer: PreTrainedTokenizerFast,
    share: float,
    where: Hardware,
) -> NDArray[np.float64]:
    """Sum of losses and number of masked tokens of each text, shape (N, 2)."""
    masks = _masks(rows, tokenizer, share, generator("finetune.held_out"))
    sums = np.zeros((len(rows.ids), 2))
    head.model.to(where.device)
    vocabulary = head.model.config.vocab_size
    budget = min(
        TOKEN_BUDGET[torch.device(where.device).type], int(_MOST_LOGITS / vocabulary / share)
    )
    with evaluation(head.model), autocast(where):
        made = (
            (part, fetched(head.losses(rows, masks, part, where)))
            for part in parts_of(rows.lengths, length_batches(rows.lengths, budget))
        )
        for part, get in one_behind(made):
            batch, losses = part.rows, get()[0].astype(np.float64)
            owner = np.repeat(batch, [len(masks.places[row]) for row in batch])
            np.add.at(sums, owner, np.column_stack([losses, np.ones_like(losses)]))
    return sums


def _masked_report(
    rows: Rows,
    tests: Rows,
    tokenizer: PreTrainedTokenizerFast,
    share: float,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
) -> dict[str, Any]:
    # The simplest guess: each token as often as in the training texts, one added to each count.
    size = len(tokenizer)
    seen = np.concatenate([np.asarray(row) for row in rows.ids])
    counts = np.bincount(seen, minlength=size) + 1.0
    surprise = -np.log(counts / counts.sum())
    masks = _masks(tests, tokenizer, share, generator("finetune.held_out"))
    hidden = np.concatenate(
        [np.asarray(ids)[at] for ids, at in zip(tests.ids, masks.places, strict=True)]
    )
    return {
        "n": len(tests.ids),
        "masked": len(hidden),
        "loss": ratio_interval(after),
        "loss_before": ratio_interval(before),
        "unigram_loss": float(surprise[hidden].mean()),
        "truncated": tests.truncated,
    }
