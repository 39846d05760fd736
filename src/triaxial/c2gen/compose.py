"""Sentences as the complements of verbs: "A man is singing" -> "A man manages to sing".

A clause "NP is/are V-ing …" is taken apart by words and tags and put together again by character
offsets, so that every other character stays as it was. Where a sentence is not surely such a
clause it is refused, with a reason that is counted.

Source: Fu and Frank, TACL 12, 2024 (their released sample is in the simple present throughout).
Choice: `aspect="simple"` embeds "to sing", the middle sentence is "A man sings", and hypotheses are
put in the simple present too where they parse by the same rules ("is not V-ing" -> "does not V",
"is being licked" -> "is licked"); the others stay as they are. `aspect="progressive"` embeds "to be
singing" and leaves middle sentence and hypothesis alone.
Choice: both of two coordinated verbs are embedded ("to sing and dance"); an adverb stays before its
verb ("to slowly walk"); the number is that of the finite be.
Choice: only what is animate may refuse or hope; `subjects` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from triaxial.c2gen.subjects import acts, animate, counts_others
from triaxial.c2gen.verbs import Verb, base_of, third_of
from triaxial.models.tagger import Tag
from triaxial.text import Word, fold, splice

__all__ = [
    "RELATIONS",
    "Aspect",
    "Clause",
    "Item",
    "clause_of",
    "composed",
    "exhaustive",
    "hypothesis_of",
    "middle",
    "negates",
    "relation_of",
]

Aspect = Literal["simple", "progressive"]

RELATIONS = ("substitution", "insertion-deletion", "active-passive", "negation", "other")
_BE = {"is": False, "are": True}  # whether plural
_NOT = "not no nobody none never nothing neither nor cannot n't 't \u2019t"
_NEGATIONS = frozenset(_NOT.split())
_RELATIVES = frozenset(["who", "which", "that", "whose", "whom", "where"])
_MODIFIERS = frozenset(["still", "also", "now", "just", "both", "together", "all"])
# "-ing" words that are adjectives or nouns where they stand after be.
_ADJECTIVES = "amusing appealing boring interesting exciting charming entertaining"
_NOUNS = "nothing something anything everything morning evening ceiling during youngling"
_NO_VERBS = frozenset((_ADJECTIVES + " " + _NOUNS).split())


@dataclass(frozen=True, slots=True)
class Item:
    """One composed instance: "x verbs to S" (`sent1`), S (`mid_sent`) and S' (`sent2`).

    Args:
        id: Of its natural primitive and its verb, "1043ab-manage".
        type: 1..9, see `verbs.TYPES`.
        verb: Lemma.
        pair_id: Of the pair of sentences that S and S' come from.
        direction: "ab" where S is the pair's first sentence, else "ba".
        relation: substitution, insertion-deletion, active-passive, negation or other.
        part: "seen" or "unseen": whether the natural primitive may be trained on.
        sent1: The composed premise.
        mid_sent: What the verb embeds.
        sent2: The hypothesis.
        veridical_label: `sent1` against `mid_sent`.
        sick_label: `mid_sent` against `sent2`.
        label: `sent1` against `sent2` by the paper's rule.
        sound: The same by logic.
        agreement: Mean human rating of the verb, -2..2.
    """

    id: str
    type: int
    verb: str
    pair_id: str
    direction: str
    relation: str
    part: str
    sent1: str
    mid_sent: str
    sent2: str
    veridical_label: str
    sick_label: str
    label: str
    sound: str
    agreement: float


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause "NP is/are V-ing …" with the places that an inflection changes.

    Args:
        text: The sentence.
        plural: Whether the finite be is "are".
        be: Start and end of the finite be, "not" included.
        after: Start of the word after it: an adverb or the first verb.
        verbs: Start, end and base form of every verb that depends on the be; empty in a passive.
        negated: Whether "not" stands with the be.
        dropped: Start and end of later "is", as in "is standing and is singing"; hypotheses only.
    """

    text: str
    plural: bool
    be: tuple[int, int]
    after: int
    verbs: tuple[tuple[int, int, str], ...]
    negated: bool = False
    dropped: tuple[tuple[int, int], ...] = ()


def clause_of(text: str, tokens: Sequence[Word], tags: Sequence[Tag]) -> Clause | str:
    """The clause of a premise, or why the sentence cannot be embedded (a reason for counting).

    Args:
        text: The sentence.
        tokens: Its words.
        tags: Their tags.
    """
    low = [fold(token.text) for token in tokens]
    if negates(tokens):
        return "negation"
    found = _parse(text, tokens, low, tags)
    if isinstance(found, str):
        return found
    if not found.verbs:
        return "passive"
    subject = range(next(i for i, token in enumerate(tokens) if token.start == found.be[0]))
    if low[0] in ("few", "only", "hardly"):
        return "quantifier"
    if tags[0].pos in ("ADP", "VERB", "ADV") and not counts_others(low[0]) and not animate(low[0]):
        return "unusual subject"
    if not acts(low, tags, subject, found.plural):
        return "inanimate subject"
    return found


def composed(clause: Clause, verb: Verb, aspect: Aspect = "simple") -> str:
    """The composed premise: "A man manages to sing", "Two men manage to sing"."""
    form = verb.lemma if clause.plural else verb.third
    if aspect == "progressive":
        return splice(clause.text, [(*clause.be, f"{form} to be")])
    bases = [(start, end, base) for start, end, base in clause.verbs]
    return splice(clause.text, [(*clause.be, f"{form} to"), *bases])


def middle(clause: Clause, aspect: Aspect = "simple") -> str:
    """What the verb embeds, as a sentence: "A man sings"; in the progressive as it was."""
    if aspect == "progressive":
        return clause.text
    if not clause.verbs:  # passive: "is being licked" without its "being"
        return splice(clause.text, [(clause.be[1], clause.after, " ")])
    if clause.negated:
        edits = [(*clause.be, "do not" if clause.plural else "does not")]
        return splice(clause.text, [*edits, *clause.verbs])
    edits = [(s, e, base if clause.plural else third_of(base)) for s, e, base in clause.verbs]
    gone = [(start, end, "") for start, end in clause.dropped]
    return splice(clause.text, [(clause.be[0], clause.after, ""), *gone, *edits])


def hypothesis_of(text: str, tokens: Sequence[Word], tags: Sequence[Tag]) -> tuple[str, str]:
    """A hypothesis in the simple present, and why it stays as it was ("" where it did not)."""
    low = [fold(token.text) for token in tokens]
    found = _parse(text, tokens, low, tags, later=True)
    return (text, found) if isinstance(found, str) else (middle(found), "")


def negates(tokens: Sequence[Word]) -> bool:
    """Whether a sentence holds a word of negation."""
    return any(fold(token.text) in _NEGATIONS for token in tokens)


def relation_of(premise: Sequence[str], hypothesis: Sequence[str]) -> str:
    """How S' differs from S: substitution, insertion-deletion, active-passive, negation or other.

    Args:
        premise: Words of S.
        hypothesis: Words of S'.
    Choice: by edit on words without articles; "other" where fewer than half of the content words
    of the shorter sentence are shared (first three letters, bases of "-ing" forms).
    """
    one, two = _plain(premise), _plain(hypothesis)
    if not _alike(one, two):
        return "other"
    if bool(_NEGATIONS & set(one)) != bool(_NEGATIONS & set(two)):
        return "negation"
    if _passive(one) != _passive(two):
        return "active-passive"
    steps = {step for step, *_ in SequenceMatcher(None, one, two, False).get_opcodes()} - {"equal"}
    if steps <= {"insert", "delete"}:
        return "insertion-deletion"
    return "substitution" if steps == {"replace"} else "other"


def exhaustive(premise: Sequence[str], hypothesis: Sequence[str]) -> bool:
    """Whether S' is S with a negation and nothing else, so that one of the two must hold.

    Choice: the two speak of the same event, as SICK's contradictions presuppose.
    """
    one, two = (
        _split_not([fold(w) for w in ws if w[-1:].isalnum()]) for ws in (premise, hypothesis)
    )
    if two[:2] == ["there", "is"] or two[:2] == ["there", "are"]:
        two = two[2:]
        one = [word for word in one if word not in _BE]
    if "not" in two:
        two.remove("not")
        articles = {"a": "the", "an": "the"}
        first = (articles.get(words[0], words[0]) for words in (one, two))
        return next(first) == next(first) and one[1:] == two[1:]
    if two[:1] == ["no"] and one[:1] and one[0] in ("a", "an", "some"):
        return one[1:] == two[1:]
    if two[:2] == ["no", "one"]:
        two = ["nobody", *two[2:]]
    if two[:1] == ["nobody"]:
        people = (["somebody"], ["someone"], ["a", "person"])
        return any(one == [*who, *two[1:]] for who in people)
    return two[:1] == ["no"] and one == two[1:]


def _parse(
    text: str, tokens: Sequence[Word], low: Sequence[str], tags: Sequence[Tag], later: bool = False
) -> Clause | str:
    """The clause of a sentence, negated or passive too, or why it is none.

    Args:
        text: The sentence.
        tokens: Its words.
        low: The same, case-folded.
        tags: Their tags.
        later: Allow a second be after the verb: in a relative clause, or before another verb.
    """
    finite = [i for i, word in enumerate(low) if word in (*_BE, "isn", "aren")]
    if not finite:
        return "no finite be"
    at = finite[0]
    joined = [
        i
        for i in finite[1:]
        if low[i] in _BE and low[i - 1] == "and" and _verb_at(low, tags, i + 1)
    ]
    relative = [i for i in finite[1:] if low[i] in _BE and low[i - 1] in _RELATIVES]
    if len(finite) > 1 + later * len(joined + relative):
        return "several finite be"
    if low[0] in ("there", "here"):
        return "existential"
    if at == 0:
        return "no subject"
    if any(low[i] in _RELATIVES and i > 0 for i in range(at)):
        return "relative clause in the subject"
    if any(tags[i].form == "3sg" and not animate(low[i]) for i in range(1, at)):
        return "several clauses"
    negated = low[at] not in _BE or low[at + 1 : at + 2] == ["not"]
    if joined and (negated or low[at + 1 : at + 2] == ["being"]):
        return "several finite be"
    end = at + 1 if negated else at
    first = end + 1
    while first < len(low) and (low[first] in _MODIFIERS or low[first].endswith("ly")):
        first += 1
    if first >= len(low):
        return "no verb"
    be, after = (tokens[at].start, tokens[end].end), tokens[end + 1].start
    plural = low[at] in ("are", "aren")
    rest = range(first + 1, len(low))
    if low[first] == "being":
        if tags[first + 1 :][:1] and tags[first + 1].pos not in (
            "VERB",
            "AUX",
            "ADV",
            "ADJ",
            "NOUN",
        ):
            return "copula"
        if any(low[i].endswith("ing") and low[i - 1] in ("and", "or") for i in rest):
            return "unsure coordination"
        if first > end + 1:
            return "adverb in a passive"
        return Clause(text, plural, be, tokens[first + 1].start, (), negated)
    if not _verb_at(low, tags, first):
        return "no verb in -ing"
    if (
        low[first] == "getting"
        and low[first + 1 : first + 2]
        and (tags[first + 1].form in ("part", "past") or low[first + 1].endswith("ed"))
    ):
        return "passive"
    if _finite(low, tags, [i for i in rest if i not in joined]):
        return "several clauses"
    more = _coordinated(low, tags, rest, joined)
    if isinstance(more, str):
        return more
    verbs = [(tokens[i].start, tokens[i].end, base_of(low[i]) or "") for i in (first, *more)]
    dropped = tuple((tokens[i].start, tokens[i + 1].start) for i in joined)
    return Clause(text, plural, be, after, tuple(verbs), negated, dropped)


def _verb_at(low: Sequence[str], tags: Sequence[Tag], place: int) -> bool:
    """Whether an "-ing" verb stands at a place."""
    return (
        place < len(low)
        and base_of(low[place]) is not None
        and low[place] not in _NO_VERBS
        and tags[place].pos in ("VERB", "AUX", "NOUN", "ADJ", "ADP")
    )


def _coordinated(
    low: Sequence[str], tags: Sequence[Tag], rest: range, be: Sequence[int]
) -> list[int] | str:
    """Later verbs that hang on the same be: "and dancing", ", jumping and kicking".

    `be` are the places of later finite be that belong to such a verb.
    """
    joined: list[tuple[int, str]] = []
    loose = False
    for i in rest:
        if not _verb_at(low, tags, i):
            continue
        before = i - 1
        while (tags[before].pos == "ADV" or before in be) and before > rest.start:
            before -= 1
        if low[before] in ("and", "or", "but", ","):
            if loose:
                return "unsure coordination"
            joined.append((i, low[before]))
            continue
        gapped = any(low[j] in ("and", "but", "while") for j in rest if j < i)
        if gapped and animate(low[i - 1]):
            return "unsure coordination"
        following = tags[i + 1].pos if i + 1 < len(tags) else ""
        inside = tags[i - 1].pos in ("DET", "ADJ", "NUM") and following in ("NOUN", "ADJ", "PROPN")
        loose = loose or not inside
    if joined and joined[-1][1] == ",":
        # ", looking at the camera" alone is an adjunct; after "and V-ing" nobody knows.
        return [] if all(by == "," for _, by in joined) else "unsure coordination"
    return [i for i, _ in joined]


def _finite(low: Sequence[str], tags: Sequence[Tag], rest: Sequence[int]) -> bool:
    """Whether another finite verb stands outside a relative clause."""
    for i in rest:
        if low[i] in _RELATIVES:
            return False
        if tags[i].pos not in ("VERB", "AUX") or low[i - 1] == "to":
            continue
        if tags[i].form == "3sg" and tags[i - 1].pos != "DET":
            return True
        if tags[i].form == "base" and tags[i - 1].pos in ("CONJ", "PRON"):
            return True
    return False


def _plain(words: Sequence[str]) -> list[str]:
    kept = [fold(word) for word in words if any(c.isalnum() for c in word)]
    return [word for word in _split_not(kept) if word not in ("a", "an", "the")]


def _split_not(words: list[str]) -> list[str]:
    """With "isn", "'t" as "is", "not"."""
    return [{"isn": "is", "aren": "are", "'t": "not", "\u2019t": "not"}.get(w, w) for w in words]


def _passive(words: Sequence[str]) -> bool:
    places = [i for i, word in enumerate(words) if word == "being"]
    return bool(places) or (
        "by" in words
        and bool({"is", "are"} & set(words))
        and not any(word.endswith("ing") for word in words)
    )


def _alike(one: Sequence[str], two: Sequence[str]) -> bool:
    small = {*_BE, *_NEGATIONS, "there", "being", "by", "in", "on", "of", "and", "at", "with", "to"}
    first, second = ({(base_of(w) or w)[:3] for w in ws if w not in small} for ws in (one, two))
    return 2 * len(first & second) >= min(len(first), len(second)) > 0
