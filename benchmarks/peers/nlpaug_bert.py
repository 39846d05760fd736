"""nlpaug's masked LM, `nlpaug.model.lang_models.Bert`: batches of 32, the head on every token.

`ContextualWordEmbsAug` chooses the words to mask by chance, so what it asks is asked of its model
directly; that leaves out everything that the augmenter does around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from nlpaug.model.lang_models import Bert
from serve import Answer, Query, serve


class Nlpaug:
    """Its `predict` with `top_k`, on lists of masked texts.

    Its attention mask is all ones, over its own padding too, so that a query's answer depends on
    what shares its batch. The way `given` takes the texts as they come; the way `equal` hands over
    texts of one length at a time, where nothing is padded and the answers are the model's.
    """

    packages = ("nlpaug", "transformers", "tokenizers")

    def __init__(self, model: str, queries: Sequence[Query], k: int, _: dict[str, Any]) -> None:
        self._bert = Bert(model_path=model, device="cpu", top_k=k)
        self.model = self._bert.model
        mask = self._bert.get_mask_token()
        self._texts = [text[:start] + mask + text[end:] for text, start, end in queries]
        self.usable = [True] * len(queries)

    def run(self, rows: Sequence[int], way: str) -> None:
        """Fill some queries."""
        for group in self._groups(rows, way):
            self._bert.predict([self._texts[row] for row in group])

    def answers(self, rows: Sequence[int], way: str) -> list[Answer]:
        """The entries that its `filtering` selects.

        What `predict` returns is ten words drawn from these by chance.
        """
        seen: list[Answer] = []
        filtering = self._bert.filtering

        def record(logits: torch.Tensor, seed: dict[str, Any]) -> Any:
            kept, ids = filtering(logits, seed)
            seen.append((list(ids), logits.clone(), []))
            return kept, ids

        self._bert.filtering = record
        order = []
        try:
            for group in self._groups(rows, way):
                self._bert.predict([self._texts[row] for row in group])
                order += group
        finally:
            self._bert.filtering = filtering
        by_row = dict(zip(order, seen, strict=True))
        return [by_row[row] for row in rows]

    def _groups(self, rows: Sequence[int], way: str) -> list[list[int]]:
        if way == "given":
            return [list(rows)]
        by_length: dict[int, list[int]] = {}
        for row in rows:
            length = len(self._bert.tokenizer.encode(self._texts[row]))
            by_length.setdefault(length, []).append(row)
        return list(by_length.values())


if __name__ == "__main__":
    serve(Nlpaug)
