"""Hugging Face's fill-mask pipeline, one query at a time: the way of its documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from serve import Answer, Query, serve
from transformers import pipeline


class FillMask:
    """The pipeline with `top_k`, in fp32."""

    packages = ("transformers", "tokenizers")

    def __init__(self, model: str, queries: Sequence[Query], k: int, _: dict[str, Any]) -> None:
        self._pipe = pipeline("fill-mask", model=model, top_k=k, device="cpu", dtype=torch.float32)
        self.model = self._pipe.model
        self._mask = self._pipe.tokenizer.mask_token
        self._queries = queries
        self.usable = [True] * len(queries)

    def run(self, rows: Sequence[int], way: str) -> None:
        """Fill some queries."""
        for row in rows:
            self._pipe(self._masked(row))

    def answers(self, rows: Sequence[int], way: str) -> list[Answer]:
        """Ids and scores as the pipeline returns them."""
        logits: list[torch.Tensor] = []
        tokenizer = self._pipe.tokenizer

        def record(_: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
            at = kwargs["input_ids"][0].tolist().index(tokenizer.mask_token_id)
            logits.append(output.logits[0, at].clone())

        hook = self.model.register_forward_hook(record, with_kwargs=True)
        found = [self._pipe(self._masked(row)) for row in rows]
        hook.remove()
        return [
            ([entry["token"] for entry in answer], at_mask, [entry["score"] for entry in answer])
            for answer, at_mask in zip(found, logits, strict=True)
        ]

    def _masked(self, row: int) -> str:
        text, start, end = self._queries[row]
        return text[:start] + self._mask + text[end:]


if __name__ == "__main__":
    serve(FillMask)
