"""TextAttack's masked-LM transformation, `WordSwapMaskedLM(method="bae")`.

All words of one sentence that are asked go to it together, which is its own batching. What is
timed is the part that asks the model, without the building of the texts behind it.
`min_confidence` is 0: its default stops where a probability falls below 5e-4, before 200 words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import nltk
import torch
from serve import Answer, Query, serve

# It fetches word lists when it is imported, none of which a masked LM needs.
nltk.download = lambda *_args, **_kwargs: False

from textattack.shared import AttackedText  # noqa: E402
from textattack.transformations import WordSwapMaskedLM  # noqa: E402


class Bae:
    """The transformation with `max_candidates`, padding to `max_length`."""

    packages = ("textattack", "transformers", "tokenizers")

    def __init__(
        self, model: str, queries: Sequence[Query], k: int, options: dict[str, Any]
    ) -> None:
        self._swap = WordSwapMaskedLM(
            method="bae",
            masked_language_model=model,
            max_length=options["max_length"],
            max_candidates=k,
            min_confidence=0.0,
        )
        self.model = self._swap._language_model
        self._k = k
        self._queries = queries
        self._index = [self._word_index(*query) for query in queries]
        self.usable = [index is not None for index in self._index]

    def run(self, rows: Sequence[int], way: str) -> None:
        """Fill some queries, sentence by sentence."""
        for text, indices in self._sentences(rows):
            self._swap._bae_replacement_words(AttackedText(text), indices)

    def answers(self, rows: Sequence[int], way: str) -> list[Answer]:
        """Its ranking of the vocabulary before it drops what it does not take for a word."""
        logits: list[torch.Tensor] = []
        ranked: list[tuple[torch.Tensor, torch.Tensor]] = []
        with _recorded(logits, ranked):
            self.run(rows, way)
        return [
            (order[: self._k].tolist(), at_mask, p[order[: self._k]].tolist())
            for at_mask, (p, order) in zip(logits, ranked, strict=True)
        ]

    def _sentences(self, rows: Sequence[int]) -> Iterator[tuple[str, list[int | None]]]:
        for text, members in groupby(rows, key=lambda row: self._queries[row][0]):
            yield text, [self._index[row] for row in members]

    def _word_index(self, text: str, start: int, end: int) -> int | None:
        """Which of its words the query masks; `None` where it cuts the text otherwise."""
        attacked = AttackedText(text)
        mask = self._swap._lm_tokenizer.mask_token
        at = 0
        for index, word in enumerate(attacked.words):
            at = text.find(word, at)
            if (at, at + len(word)) == (start, end):
                masked = attacked.replace_word_at_index(index, mask).text
                return index if masked == text[:start] + mask + text[end:] else None
            at += len(word)
        return None


@contextmanager
def _recorded(
    logits: list[torch.Tensor], ranked: list[tuple[torch.Tensor, torch.Tensor]]
) -> Iterator[None]:
    """Keep what it gives to `torch.softmax`, and what it ranks with `torch.argsort` and how."""
    softmax, argsort = torch.softmax, torch.argsort

    def record_softmax(values: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        logits.append(values.clone())
        return softmax(values, *args, **kwargs)

    def record_argsort(values: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        order = argsort(values, *args, **kwargs)
        ranked.append((values, order))
        return order

    torch.softmax, torch.argsort = record_softmax, record_argsort
    try:
        yield
    finally:
        torch.softmax, torch.argsort = softmax, argsort


if __name__ == "__main__":
    serve(Bae)
