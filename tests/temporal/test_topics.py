"""Topics fitted on training text alone, and the assignment of documents."""

from __future__ import annotations

import numpy as np
import pytest

from triaxial.errors import InputError
from triaxial.temporal.corpus import Document
from triaxial.temporal.planted import PlantOptions, plant
from triaxial.temporal.topics import TopicOptions, _expected, _shares, assign_topics, fit_topics

OPTIONS = TopicOptions(topics=4, passes=5)


def corpus(n: int) -> list[Document]:
    words = {0: "goal match referee striker", 1: "vote party senator treaty"}
    return [
        Document(f"d{k}", "2017-01", f"The {words[k % 2]} with {words[k % 2]} number {k}.", "s")
        for k in range(n)
    ]


def test_two_plain_topics_are_told_apart() -> None:
    model = fit_topics(corpus(60), TopicOptions(topics=2, least=2, most=0.6, described=4))
    tops = {frozenset(top) for top in model.top}
    assert frozenset(["goal", "match", "referee", "striker"]) in tops
    found = assign_topics(model, [*corpus(4), Document("?", "2018-01", "Qwertz!", "s")])
    topics = found["topic"].to_list()
    assert topics[0] == topics[2] != topics[1] == topics[3]
    assert found.row(4) == ("?", None, None)  # nothing of it is known
    assert (found["share"].head(4) > 0.8).all()


def test_planted_topics_are_recovered_and_the_fit_is_repeatable() -> None:
    documents, truth = plant(PlantOptions(documents=400, months=12, new_words=0, seed=2))
    past, later = documents[:300], documents[300:]
    options = TopicOptions(topics=6, passes=8, least=3)
    model = fit_topics(past, options, test=[document.id for document in later])
    found = assign_topics(model, later)["topic"].to_numpy()
    real = np.asarray([truth.topics[document.id] for document in later])
    # Purity: each cluster counted as its commonest true topic; by chance about a third.
    pure = sum(max(np.sum(real[found == k] == t) for t in set(real)) for k in set(found))
    assert pure / len(real) > 0.8
    assert np.array_equal(model.weights, fit_topics(past, options).weights)


def test_shares_are_those_of_scikit_learn() -> None:
    from sklearn.decomposition import LatentDirichletAllocation

    rng = np.random.default_rng(3)
    from scipy.sparse import csr_array

    counts = csr_array(rng.poisson(0.7, (40, 30)))
    lda = LatentDirichletAllocation(3, random_state=1, mean_change_tol=1e-9).fit(counts)
    ours = _shares(counts, _expected(lda.components_))
    np.testing.assert_allclose(ours, lda.transform(counts), atol=0.01)
    assert ours.sum(axis=1) == pytest.approx(np.ones(40))


def test_what_is_refused() -> None:
    documents = corpus(20)
    with pytest.raises(InputError, match="the test document 'd7' is among those that topics"):
        fit_topics(documents, OPTIONS, test=["d7"])
    with pytest.raises(InputError, match="no word is in 50 and at most 50% of the training doc"):
        fit_topics(documents, TopicOptions(topics=2, least=50))
    with pytest.raises(InputError, match="1 topics in 10 passes; wanted at least 2 and 1"):
        fit_topics(documents, TopicOptions(topics=1))
