"""One encoder under several three-way heads, over pairs of texts, and losses as weighted terms.

A task gives every pair of texts to one head. What is minimized is a sum of terms, each a pair with
a weight for its cross-entropy and one for its squared distance to given logits; so a batch, replay,
distillation and whatever else is a matter of which terms there are, and all of them go through one
encoder call, in parts of similar length. Each distinct pair is tokenized once.

Any Hugging Face encoder will do, and any decoder, with LoRA where its weights are to stay.
R terms, D width, T tokens, H heads.

Source: C²Gen NLI, section "model" (one shared encoder, a three-way classifier for each task).
Choice: a head is dropout, dense, tanh, dropout, dense, as on RoBERTa's first token; a decoder is
read at its last token, from both texts with a line break between.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from triaxial.errors import InputError
from triaxial.models.base import (
    Hardware,
    Work,
    autocast,
    evaluation,
    load_config,
    load_pretrained,
    load_tokenizer,
    locate,
    split_revision,
)
from triaxial.models.batching import TOKEN_BUDGET, length_batches, with_backoff
from triaxial.models.dropout import quick_dropout
from triaxial.models.fit import PART_COST, split
from triaxial.models.tensors import on_device
from triaxial.models.training import encode, inputs_of, shrink_embeddings

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["HeadedModel", "Learner", "LoraOptions", "Terms", "fingerprint_of", "load_learner"]

Pooling = Literal["auto", "first", "mean", "last"]
_CLASSES = 3


@dataclass(frozen=True, slots=True)
class LoraOptions:
    """Low-rank adapters in place of the encoder's own weights, through peft.

    Args:
        rank: Of the adapters, >= 1.
        alpha: Their scale; the adapters count alpha / rank times.
        dropout: On their input.
        targets: Names of the layers, comma-separated, or "all-linear".
    """

    rank: int = 8
    alpha: int = 16
    dropout: float = 0.05
    targets: str = "all-linear"

    def __post_init__(self) -> None:
        if self.rank < 1 or self.alpha < 1 or not 0 <= self.dropout < 1:
            raise InputError(
                f"rank {self.rank}, alpha {self.alpha}, dropout {self.dropout}: wanted both at "
                "least 1 and a share below 1",
                where="lora",
            )


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of a loss, arrays of shape (R,).

    Args:
        pair: Index of the pair in the learner's data.
        label: Gold class, 0..2.
        weight: Of the cross-entropy.
        pull: Of the mean squared distance of the logits to `target`.
        target: Logits, shape (R, 3); of no account where `pull` is 0.
    """

    pair: NDArray[np.intp]
    label: NDArray[np.intp]
    weight: NDArray[np.float32]
    pull: NDArray[np.float32]
    target: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.pair)

    def take(self, which: NDArray[np.intp]) -> Terms:
        """Some of the terms."""
        return Terms(
            self.pair[which],
            self.label[which],
            self.weight[which],
            self.pull[which],
            self.target[which],
        )

    @staticmethod
    def join(parts: Sequence[Terms]) -> Terms:
        """All terms of several."""
        return Terms(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("pair", "label", "weight", "pull", "target")
            )
        )


class HeadedModel(nn.Module):
    """An encoder with several three-way heads."""

    def __init__(
        self, encoder: nn.Module, heads: int, width: int, dropout: float, pooling: str
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.width = width
        self.heads = nn.ModuleList(
            nn.Sequential(
                nn.Dropout(dropout),
                nn.Linear(width, width),
                nn.Tanh(),
                nn.Dropout(dropout),
                nn.Linear(width, _CLASSES),
            )
            for _ in range(heads)
        )

    def pooled(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """One vector a pair, shape (R, D)."""
        hidden = self.encoder(**inputs).last_hidden_state  # (R, T, D)
        mask = inputs["attention_mask"]
        if self.pooling == "first":
            return cast("torch.Tensor", hidden[:, 0])
        if self.pooling == "mean":
            weights = (mask / mask.sum(dim=1, keepdim=True)).to(hidden.dtype)
            return torch.einsum("rtd,rt->rd", hidden, weights)
        last = mask.sum(dim=1) - 1  # padding stands on the right
        return cast("torch.Tensor", hidden[torch.arange(len(last), device=last.device), last])

    def forward(self, inputs: Mapping[str, torch.Tensor], counts: Sequence[int]) -> torch.Tensor:
        """Logits, shape (R, 3), of pairs that come sorted by head.

        Args:
            inputs: For the encoder, shapes (R, T).
            counts: How many of the pairs belong to each head, in order.
        """
        pieces = torch.split(self.pooled(inputs), list(counts))
        return torch.cat(
            [head(piece) for head, piece in zip(self.heads, pieces, strict=True) if len(piece)]
        )


class Learner:
    """A headed model with the pairs that it learns and judges; see `load_learner`."""

    def __init__(
        self,
        encoder: str,
        pairs: Sequence[tuple[str, str]],
        heads: Sequence[int] | NDArray[np.integer],
        where: Hardware,
        *,
        pooling: Pooling = "auto",
        dropout: float | None = None,
        lora: LoraOptions | None = None,
        token_budget: int | None = None,
        vocabulary: Sequence[str] = (),
    ) -> None:
        from transformers import AutoModel

        place, revision = split_revision(encoder)
        source = locate(place, revision)
        config = load_config(source)
        tokenizer = load_tokenizer(source)
        if getattr(config, "is_encoder_decoder", False):
            raise InputError("has encoder and decoder; wanted one of the two alone", where=encoder)
        decoder = _is_decoder(config)
        if tokenizer.pad_token_id is None and decoder:
            tokenizer.pad_token = tokenizer.eos_token
        if pooling == "auto":
            pooling = "last" if decoder else "first"
        body = load_pretrained(AutoModel, source, new_head=True)
        if getattr(body, "pooler", None) is not None:
            body.pooler.requires_grad_(False)  # nothing reads it
            body.pooler = None
        if decoder:
            joined = [f"{first}\n{second}" for first, second in pairs]
            self.rows = encode(tokenizer, source, config, joined)
            body.config.use_cache = False
        else:
            self.rows = encode(
                tokenizer, source, config, [a for a, _ in pairs], [b for _, b in pairs]
            )
        self.where = where
        self.head_of = np.asarray(heads, dtype=np.intp)
        self.budget = token_budget or TOKEN_BUDGET[torch.device(where.device).type]
        self.work = Work()
        if lora is None:
            more = tokenizer(list(vocabulary))["input_ids"] if vocabulary else []
            self.new_ids, _ = shrink_embeddings(body, [*self.rows.ids, *more], tokenizer)
        else:
            body = _with_adapters(body, lora)
            self.new_ids = np.arange(body.get_input_embeddings().weight.shape[0])
        if dropout is None:
            dropout = float(getattr(config, "hidden_dropout_prob", 0.1) or 0.1)
        self.model = HeadedModel(
            body, int(self.head_of.max()) + 1, config.hidden_size, dropout, pooling
        ).to(where.device)
        # With the decoder's weights fixed these are the adapters and the heads alone.
        self._start = self.weights()

    def restart(self, seed: int) -> None:
        """Bring the encoder back to its checkpoint, and draw new heads."""
        self.load(self._start)
        random = torch.Generator().manual_seed(seed)
        spread = getattr(self.model.encoder.config, "initializer_range", 0.02)
        with torch.no_grad():
            for name, weight in self.model.heads.named_parameters():
                if name.endswith("bias"):
                    weight.zero_()
                else:
                    weight.copy_(torch.randn(weight.shape, generator=random) * spread)

    def weights(self) -> dict[str, torch.Tensor]:
        """Copies, on the host, of the weights that are trained, by name."""
        return {
            name: weight.detach().to("cpu", copy=True).contiguous()
            for name, weight in self.model.named_parameters()
            if weight.requires_grad
        }

    def load(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Set the trained weights to copies of these."""
        trained = {n: w for n, w in self.model.named_parameters() if w.requires_grad}
        assert trained.keys() == weights.keys(), "weights of another model"
        with torch.no_grad():
            for name, weight in trained.items():
                weight.copy_(weights[name])

    def parts(self, terms: Terms) -> list[tuple[float, Terms]]:
        """Terms in parts of similar length, for `fit`; the loss of all is the sum over parts."""
        lengths = self.rows.lengths[terms.pair]
        cost = PART_COST[torch.device(self.where.device).type]
        return [(1.0, terms.take(part)) for part in split(lengths, np.arange(len(terms)), cost)]

    def loss(self, model: nn.Module, terms: Terms) -> torch.Tensor:
        """The weighted sum of some terms' losses."""
        order = np.argsort(self.head_of[terms.pair], kind="stable")
        terms = terms.take(order)
        device = self.where.device
        logits = self._logits(model, terms.pair)
        labels, weight = on_device(terms.label, device), on_device(terms.weight, device)
        total = (F.cross_entropy(logits, labels, reduction="none") * weight).sum()
        if terms.pull.any():
            away = (logits - on_device(terms.target, device)).square().mean(dim=1)
            total = total + (away * on_device(terms.pull, device)).sum()
        return total

    def backward(self, terms: Terms) -> None:
        """Add the gradient of some terms' loss to what the parameters hold, as `fit` does."""
        for _, part in self.parts(terms):
            with quick_dropout(torch.device(self.where.device)):
                with autocast(self.where):
                    value = self.loss(self.model, part)
                torch.autograd.backward(value)

    def logits(self, pairs: NDArray[np.intp]) -> NDArray[np.float32]:
        """Logits of pairs, shape (N, 3), in evaluation mode; each distinct pair once."""
        return self._evaluated(pairs, _CLASSES, self._logits)

    def vectors(self, pairs: NDArray[np.intp]) -> NDArray[np.float32]:
        """What the heads see of pairs, shape (N, D), in evaluation mode."""
        width = self.model.width

        def pooled(model: nn.Module, part: NDArray[np.intp]) -> torch.Tensor:
            return self.model.pooled(self._inputs(part)).float()

        return self._evaluated(pairs, width, pooled)

    def log_p(self, pairs: NDArray[np.intp]) -> NDArray[np.float64]:
        """Log-probabilities of pairs, shape (N, 3), in evaluation mode; each distinct pair once."""
        found = self.logits(pairs).astype(np.float64)
        found -= found.max(axis=1, keepdims=True)
        return np.asarray(found - np.log(np.exp(found).sum(axis=1, keepdims=True)))

    def losses(self, terms: Terms) -> NDArray[np.float64]:
        """Cross-entropy of every term in evaluation mode, unweighted, shape (R,)."""
        return np.asarray(-self.log_p(terms.pair)[np.arange(len(terms)), terms.label])

    def _evaluated(self, pairs: NDArray[np.intp], width: int, values: Any) -> NDArray[np.float32]:
        distinct, place = np.unique(pairs, return_inverse=True)
        out = torch.zeros((len(distinct), width), device=self.where.device)
        with evaluation(self.model), autocast(self.where):
            for batch in length_batches(self.rows.lengths[distinct], self.budget):
                # The forward pass wants its rows by head.
                batch = batch[np.argsort(self.head_of[distinct[batch]], kind="stable")]
                for part, found in with_backoff(lambda b: values(self.model, distinct[b]), batch):
                    out[on_device(part, out.device)] = found.float()
        return out.cpu().numpy()[place]

    def _logits(self, model: nn.Module, pairs: NDArray[np.intp]) -> torch.Tensor:
        counts = np.bincount(self.head_of[pairs], minlength=len(self.model.heads))
        found: torch.Tensor = model(self._inputs(pairs), counts.tolist())
        return found.float()

    def _inputs(self, pairs: NDArray[np.intp]) -> dict[str, torch.Tensor]:
        ids = self.new_ids[self.rows.padded(pairs)]
        self.work.count(len(pairs), int(self.rows.lengths[pairs].sum()), ids.size)
        return inputs_of(self.rows, pairs, ids, self.where)


def load_learner(
    encoder: str,
    pairs: Sequence[tuple[str, str]],
    heads: Sequence[int] | NDArray[np.integer],
    where: Hardware,
    **options: Any,
) -> Learner:
    """A model over pairs of texts, with new heads.

    Args:
        encoder: Directory or hub id of any encoder or decoder.
        pairs: Distinct pairs of texts, P of them: all that will be trained on or judged. Only the
            embeddings of their tokens are trained.
        heads: Which head judges each pair, shape (P,), 0-based.
        where: Device and precision.
        options: `pooling` (first token, mean, last token; by default what suits), `dropout` of the
            heads, `lora` (`LoraOptions`), `token_budget` of a batch in evaluation, `vocabulary`
            (texts whose tokens are trained too, so that learners of other pairs fit together).

    Raises:
        InputError: The model cannot be used, or peft is not installed.
    """
    if not pairs or len(pairs) != len(heads):
        raise InputError(f"{len(pairs)} pairs and {len(heads)} heads; wanted as many, at least one")
    return Learner(encoder, pairs, heads, where, **options)


def fingerprint_of(
    encoder: str, where: Hardware, pooling: Pooling, lora: LoraOptions | None
) -> dict[str, Any]:
    """What decides a learner's numbers, beside its data and its seed."""
    place, revision = split_revision(encoder)
    return {
        **locate(place, revision).fingerprint,
        "precision": where.precision,
        "pooling": pooling,
        "lora": None if lora is None else asdict(lora),
    }


def _is_decoder(config: Any) -> bool:
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    kind = config.model_type
    return (
        kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    )


def _with_adapters(body: Any, lora: LoraOptions) -> Any:
    try:
        from peft import LoraConfig, TaskType, get_peft_model
    except ImportError:
        raise InputError(
            "peft is not installed; pip install 'triaxial[llm]'", where="lora"
        ) from None
    names: Any = lora.targets if lora.targets == "all-linear" else lora.targets.split(",")
    settings = LoraConfig(
        task_type=TaskType.FEATURE_EXTRACTION,
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=names,
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            return get_peft_model(body, settings)
        except ValueError as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"no adapters can be put on it: {reason}", where="lora") from None
