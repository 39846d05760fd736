"""Topics of documents by LDA, fitted on training text and on nothing else.

Source: Lazaridou et al. 2021 (documents clustered with LDA, each given to its likeliest topic).
Choice: their number, scikit-learn's online LDA with its default priors, and the words: lower-cased
Moses words of letters, three or more, in at least 5 and at most half of the documents, without
scikit-learn's list of English stop words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from triaxial.errors import InputError
from triaxial.temporal.corpus import Document, moses_words

if TYPE_CHECKING:
    import polars as pl

__all__ = ["TopicModel", "TopicOptions", "assign_topics", "fit_topics"]

Array = npt.NDArray[Any]

BATCH = 1024  # documents that are assigned at a time
UPDATES, SETTLED = 100, 1e-3  # Source: scikit-learn's defaults


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """How topics are fitted.

    Args:
        topics: How many.
        vocabulary: Most words, the most frequent.
        least: Documents that a word must be in.
        most: Share of the documents that a word may be in.
        passes: Over the training documents.
        described: Words that describe a topic.
        seed: Of the fit.
    """

    topics: int = 20
    vocabulary: int = 20_000
    least: int = 5
    most: float = 0.5
    passes: int = 10
    described: int = 10
    seed: int = 1


@dataclass(frozen=True, slots=True)
class TopicModel:
    """Fitted topics.

    Args:
        words: Vocabulary, in the order of the columns.
        weights: Pseudo-counts of words by topic, shape (topics, words).
        top: The words that describe each topic: those of highest probability.
        seed: Of the fit.
    """

    words: tuple[str, ...]
    weights: Array
    top: tuple[tuple[str, ...], ...]
    seed: int


def fit_topics(
    training: Iterable[Document],
    options: TopicOptions | None = None,
    *,
    test: Collection[str] = (),
) -> TopicModel:
    """Fits topics.

    Args:
        training: Training documents.
        options: See `TopicOptions`.
        test: Ids of the test documents, none of which may be among them.

    Raises:
        InputError: A test document is among the training documents, or too little is left to fit.
    """
    from sklearn.decomposition import LatentDirichletAllocation
    from sklearn.feature_extraction.text import CountVectorizer

    options = options or TopicOptions()
    if options.topics < 2 or options.passes < 1:
        raise InputError(
            f"{options.topics} topics in {options.passes} passes; wanted at least 2 and 1"
        )
    barred = frozenset(test)

    def texts() -> Iterator[str]:
        for document in training:
            if document.id in barred:
                raise InputError(
                    f"the test document {document.id!r} is among those that topics are fitted on; "
                    "wanted training documents only: pass the training part of the split"
                )
            yield document.text

    counter = CountVectorizer(
        analyzer=_terms,
        min_df=options.least,
        max_df=options.most,
        max_features=options.vocabulary,
    )
    try:
        counts = counter.fit_transform(texts())
    except ValueError:  # scikit-learn's "no terms remain" and "max_df < min_df"
        raise InputError(
            f"no word is in {options.least} and at most {options.most:.0%} of the training "
            "documents; fit on more documents"
        ) from None
    model = LatentDirichletAllocation(
        options.topics,
        learning_method="online",
        max_iter=options.passes,
        batch_size=256,
        total_samples=counts.shape[0],
        random_state=options.seed,
    )
    model.fit(counts)
    words = tuple(str(word) for word in counter.get_feature_names_out())
    weights = np.asarray(model.components_, np.float64)
    top = tuple(
        tuple(words[at] for at in np.argsort(-row, kind="stable")[: options.described])
        for row in weights
    )
    return TopicModel(words, weights, top, options.seed)


def assign_topics(model: TopicModel, documents: Iterable[Document]) -> pl.DataFrame:
    """The likeliest topic of each document, to be joined to the documents table.

    Returns:
        `document`, `topic` (i32; null where no word of the document is known) and `share` of the
        document that the topic holds.
    """
    import polars as pl
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(analyzer=_terms, vocabulary={w: n for n, w in enumerate(model.words)})
    expected = _expected(model.weights)
    rows: list[tuple[str, int | None, float | None]] = []
    for batch in _batches(documents):
        counts = counter.transform(document.text for document in batch)
        shares = _shares(counts.tocsr(), expected)
        known = np.asarray(counts.sum(axis=1)).ravel() > 0
        best = shares.argmax(axis=1)
        rows += [
            (document.id, int(best[n]), float(shares[n, best[n]]))
            if known[n]
            else (document.id, None, None)
            for n, document in enumerate(batch)
        ]
    schema = {"document": pl.String, "topic": pl.Int32, "share": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _terms(text: str) -> list[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    low = (word.text.lower() for word in moses_words(text))
    return [w for w in low if len(w) > 2 and w.isalpha() and w not in ENGLISH_STOP_WORDS]


def _expected(weights: Array) -> Array:
    """exp(E[log p(word | topic)]) of Dirichlet pseudo-counts."""
    from scipy.special import psi

    found: Array = np.exp(psi(weights) - psi(weights.sum(axis=1, keepdims=True)))
    return found


def _shares(counts: Any, expected: Array) -> Array:
    """Topic shares of documents: scikit-learn's variational step, all documents at once.

    Args:
        counts: Sparse, shape (N, words).
        expected: From `_expected`, shape (topics, words).

    Returns:
        Shape (N, topics), rows adding up to 1.
    """
    from scipy.sparse import csr_array
    from scipy.special import psi

    doc = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    of_word = expected.T[counts.indices]  # (pairs of document and word, topics)
    prior = 1 / len(expected)
    gamma = np.ones((counts.shape[0], len(expected)))
    for _ in range(UPDATES):
        theta = np.exp(psi(gamma) - psi(gamma.sum(axis=1, keepdims=True)))
        norm = (theta[doc] * of_word).sum(axis=1) + np.finfo(np.float64).eps
        share = csr_array((counts.data / norm, counts.indices, counts.indptr), counts.shape)
        new = prior + theta * (share @ expected.T)
        moved = np.abs(new - gamma).mean(axis=1).max(initial=0.0)
        gamma = new
        if moved < SETTLED:
            break
    found: Array = gamma / gamma.sum(axis=1, keepdims=True)
    return found


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    for document in documents:
        batch.append(document)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
