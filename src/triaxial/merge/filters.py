"""From proposals to replacements: the filters that read the variant itself.

What a masked LM validates is still rejected when it breaks a/an, changes the word class in the
full variant sentence or, in *safe*, the word's form, lemma or relation to the rest of the pair.
Every proposal gets exactly one verdict, and the counts of the verdicts are an output: the funnel.

Source: MERGE, condition (i); the article rule and everything in *safe* are ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from triaxial.merge.lexicon import WordNet, article_clash
from triaxial.merge.targets import Seed, Slot
from triaxial.models.tagger import Tag, Tagger
from triaxial.nli import Pair
from triaxial.text import case_pattern, match_case, splice

__all__ = [
    "VERDICTS",
    "FilterOptions",
    "Proposal",
    "Replacement",
    "judge",
    "replacement_of",
    "variant_texts",
]

KEPT = "kept"
# From cheap to dear; each proposal has the first that holds.
VERDICTS = ("article", "word_class", "word_form", "same_lemma", "label_risk", KEPT)

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """Which variants are rejected.

    Args:
        articles: Reject r when it disagrees with the "a" or "an" before it. Choice: on; the
            article itself is never rewritten.
        fine: Demand the same number, verb form and degree too. Choice: off, on in *safe*.
        same_lemma: Reject r that shares its lemma with a word of the pair. Choice: off, on in
            *safe*.
        label_risk: What happens to r when another word of the pair is its WordNet relative, or
            that of the word it replaces: `flag` or `drop`. Choice: flag, drop in *safe*.
    """

    articles: bool = True
    fine: bool = False
    same_lemma: bool = False
    label_risk: Literal["flag", "drop"] = "flag"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A word that at least one masked LM validates for a slot."""

    seed: Seed
    slot: Slot
    word: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """One masked LM on one replacement; occurrences in the order of the spans, premise first.

    Args:
        mlm: Name of the masked LM.
        log_p_word: log p(o) at each occurrence.
        log_p_replacement: log p(r) at each occurrence, `None` where r was not suggested.
        rank: Place of r among the suggestions from 1, `None` where it was not suggested.
    """

    mlm: str
    log_p_word: tuple[float, ...]
    log_p_replacement: tuple[float | None, ...]
    rank: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Replacement:
    """A variant: everything that makes its text from its seed's, and who vouches for it.

    Args:
        seed: Id of the seed.
        variant: Number of the variant within its seed, from 0, in the order of words and spelling.
        word: The replaced word *o*, case-folded.
        pos: Word class of *o*.
        replacement: The word *r*, in lower case; each place keeps its own case pattern.
        premise_spans: Character spans of *o* in the premise.
        hypothesis_spans: Character spans of *o* in the hypothesis.
        sources: Masked LMs that validate *r*.
        scores: Probabilities and ranks by masked LM.
        label_risk: Relation that puts the label at risk; "" for none, `None` where no WordNet data
            was found.
    """

    seed: str
    variant: int
    word: str
    pos: str
    replacement: str
    premise_spans: tuple[Span, ...]
    hypothesis_spans: tuple[Span, ...]
    sources: tuple[str, ...]
    scores: tuple[Score, ...]
    label_risk: str | None


def judge(
    proposals: Sequence[Proposal],
    tagger: Tagger,
    options: FilterOptions,
    wordnet: WordNet | None = None,
) -> list[tuple[str, str | None]]:
    """The verdict on each proposal, and the relation that puts its label at risk.

    Each distinct variant sentence is tagged once, after the cheap verdicts.
    """
    verdicts: list[tuple[str, str | None]] = [(KEPT, None)] * len(proposals)
    sentences: dict[tuple[str, ...], int] = {}
    open_rows: list[tuple[int, list[tuple[int, int, int]]]] = []
    for row, proposal in enumerate(proposals):
        if options.articles and _breaks_article(proposal):
            verdicts[row] = ("article", None)
            continue
        places = []
        for side, sentence in enumerate(_variant_words(proposal)):
            number = sentences.setdefault(sentence, len(sentences))
            places += [(side, i, number) for s, i in proposal.slot.places() if s == side]
        open_rows.append((row, places))
    tagged = tagger.tag(list(sentences))
    for row, places in open_rows:
        verdicts[row] = _read_tags(proposals[row], places, tagged, options, wordnet)
    return verdicts


def replacement_of(
    proposal: Proposal, variant: int, scores: Iterable[Score], risk: str | None
) -> Replacement:
    """The record of a kept proposal."""
    (_, premise, _), (_, hypothesis, _) = proposal.seed.sides()
    return Replacement(
        seed=proposal.slot.seed,
        variant=variant,
        word=proposal.slot.word,
        pos=proposal.slot.pos,
        replacement=proposal.word,
        premise_spans=tuple((premise[i].start, premise[i].end) for i in proposal.slot.premise),
        hypothesis_spans=tuple(
            (hypothesis[i].start, hypothesis[i].end) for i in proposal.slot.hypothesis
        ),
        sources=proposal.sources,
        scores=tuple(scores),
        label_risk=risk,
    )


def variant_texts(
    pair: Pair, replacement: str, premise_spans: Iterable[Span], hypothesis_spans: Iterable[Span]
) -> tuple[str, str]:
    """Premise and hypothesis of a variant; every character outside the spans is untouched."""
    return (
        _replaced(pair.premise, replacement, premise_spans),
        _replaced(pair.hypothesis, replacement, hypothesis_spans),
    )


def counted(
    proposals: Sequence[Proposal], verdicts: Sequence[tuple[str, str | None]]
) -> Counter[tuple[str, str, str]]:
    """Counts by (masked LM, class, verdict); "all" counts each proposal once."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for proposal, (verdict, _) in zip(proposals, verdicts, strict=True):
        for mlm in (*proposal.sources, "all"):
            counts[mlm, proposal.slot.pos, verdict] += 1
    return counts


def _replaced(text: str, replacement: str, spans: Iterable[Span]) -> str:
    return splice(text, [(a, b, _written(text[a:b], replacement)) for a, b in spans])


def _written(surface: str, replacement: str) -> str:
    word = match_case(case_pattern(surface), replacement)
    assert word is not None, "a lower-case word fits every case pattern"
    return word


def _variant_words(proposal: Proposal) -> list[tuple[str, ...]]:
    """The words of both sides with the replacement in place: no second tokenization."""
    out = []
    for side, (_, tokens, _) in enumerate(proposal.seed.sides()):
        texts = [token.text for token in tokens]
        for where, index in proposal.slot.places():
            if where == side:
                texts[index] = _written(texts[index], proposal.word)
        out.append(tuple(texts))
    return out


def _breaks_article(proposal: Proposal) -> bool:
    sides = proposal.seed.sides()
    for side, index in proposal.slot.places():
        previous = sides[side][1][index - 1].text if index else None
        if article_clash(previous, proposal.word):
            return True
    return False


def _read_tags(
    proposal: Proposal,
    places: Sequence[tuple[int, int, int]],
    tagged: Sequence[tuple[Tag, ...]],
    options: FilterOptions,
    wordnet: WordNet | None,
) -> tuple[str, str | None]:
    sides = proposal.seed.sides()
    pairs = [(sides[side][2][index], tagged[number][index]) for side, index, number in places]
    if any(new.pos != old.pos for old, new in pairs):
        return "word_class", None
    if options.fine and any(new.form != old.form for old, new in pairs):
        return "word_form", None
    lemma = pairs[0][1].lemma
    if options.same_lemma and lemma in {tag.lemma for _, _, tags in sides for tag in tags}:
        return "same_lemma", None
    risk = None if wordnet is None else _label_risk(proposal, pairs[0][0].lemma, lemma, wordnet)
    if risk and options.label_risk == "drop":
        return "label_risk", risk
    return KEPT, risk


def _label_risk(proposal: Proposal, old: str, new: str, wordnet: WordNet) -> str:
    """The first relation between another word of the pair and *o* or *r*; "" where none is."""
    slot = proposal.slot
    taken = set(slot.places())
    others: Mapping[str, None] = dict.fromkeys(
        tag.lemma
        for side, (_, _, tags) in enumerate(proposal.seed.sides())
        for index, tag in enumerate(tags)
        if tag.pos == slot.pos and (side, index) not in taken
    )
    for other in others:
        for name, lemma in (("word", old), ("replacement", new)):
            relation = wordnet.related(lemma, other, slot.pos)
            if relation:
                return f"{other}: {relation} of the {name}"
    return ""
