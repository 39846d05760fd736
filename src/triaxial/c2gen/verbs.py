"""The verbs that embed a sentence, what they say about it, and the rules of composition.

"x manages to S" says that S holds (signature positive, here `entailment`), "x hopes to S" leaves it
open (neutral), "x refuses to S" says that it does not (negative, here `contradiction`). With the
natural label of S against S' the signature gives the label of "x verbs to S" against S'.

Source: Fu and Frank, TACL 12, 2024, pp. 912-932 (verbs, rules, the nine types, pseudo-words); Ross
and Pavlick, EMNLP 2019 (signatures; `agreement` is the mean of `turker_pos_ratings` over the items
of the verb with task `to` in their table: positive environment, infinitive complement).

The second half inflects English verbs: the base form behind "-ing" and the third person. The tagger
guesses a fifth of the base forms of captions wrongly ("biking" as "biki"), so the spelling rules
and their exceptions are written out here.

Choice: the paper's labels are the default, `sound_label` is ours: with one-way entailment, not-S
and S |= S' leave S' open, where the paper says contradiction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from triaxial.nli import LABELS, Label

__all__ = [
    "FUNCTIONS",
    "NATURAL",
    "TYPES",
    "VERBS",
    "VERIDICAL",
    "Verb",
    "base_of",
    "composed_label",
    "ing_of",
    "sound_label",
    "third_of",
    "type_of",
    "verb_of",
]

_E, _N, _C = LABELS

TYPES: Mapping[int, tuple[Label, Label]] = MappingProxyType(
    {3 * v + n + 1: (LABELS[v], LABELS[n]) for v in range(3) for n in range(3)}
)
"""Veridical and natural label of each type, 1..9."""

FUNCTIONS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"f_ve": (1, 2, 3), "f_vn": (4, 5, 6), "f_vc": (7, 8, 9)}
)
"""Types by what the composition does: copy the natural label, say neutral, swap e and c."""

NATURAL: Mapping[str, Label] = MappingProxyType(
    {name: label for label in LABELS for name in (label.value, label.value[0])}
)
"""Names of a natural or composed label in files."""

VERIDICAL: Mapping[str, Label] = MappingProxyType({**NATURAL, "positive": _E, "negative": _C})
"""Names of a veridical label in files."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb with an infinitive complement.

    Args:
        lemma: "manage".
        third: Third person singular, "manages".
        signature: What it says about its complement.
        agreement: Mean human rating, -2..2, that the complement holds.
        pseudo: The invented word that stands for the lemma in the data-leak control.
    """

    lemma: str
    third: str
    signature: Label
    agreement: float
    pseudo: str


# Source: see above; tests/real recomputes the ratings from the table.
VERBS: tuple[Verb, ...] = (
    Verb("manage", "manages", _E, 1.7778, "blicke"),
    Verb("begin", "begins", _E, 1.5556, "dmaop"),
    Verb("serve", "serves", _E, 1.4545, "fanuo"),
    Verb("start", "starts", _E, 1.3333, "dqpor"),
    Verb("dare", "dares", _E, 1.5000, "dnje"),
    Verb("use", "uses", _E, 1.1905, "aol"),
    Verb("get", "gets", _E, 0.4444, "dew"),
    Verb("come", "comes", _E, 1.2000, "fqoo"),
    Verb("hope", "hopes", _N, 0.2778, "lugi"),
    Verb("wish", "wishes", _N, 0.9630, "fepo"),
    Verb("expect", "expects", _N, -0.0417, "kikioa"),
    Verb("try", "tries", _N, 0.1176, "zup"),
    Verb("plan", "plans", _N, 0.5455, "wifr"),
    Verb("want", "wants", _N, 0.0667, "nvru"),
    Verb("intend", "intends", _N, 0.4242, "fajwiw"),
    Verb("appear", "appears", _N, 0.8667, "askjei"),
    Verb("forget", "forgets", _C, -1.2222, "qbhdua"),
    Verb("fail", "fails", _C, -1.8000, "mfkd"),
    Verb("refuse", "refuses", _C, -1.6111, "qneopl"),
    Verb("decline", "declines", _C, -1.3333, "qnreiui"),
    Verb("remain", "remains", _C, -0.6667, "qmaoip"),
)
"""The 21 verbs of the paper, by signature."""

_VOWELS = "aeiouy"
# Base forms that the spelling rules below would miss, by what stands before "-ing": a doubled
# consonant that falls, a silent e that returns, and bases that stay as they are.
_DOUBLED = """
cancell channell compell controll corrall counsell dispell duell excell expell fuell gass impell
labell levell marvell modell parallell patroll pedall propell quarrell quizz rebell refuell repell
shovell signall spirall swivell totall travell tunnell unravell whizz
"""
_WITH_E = """
ach adher ador aton attun bast bath becom breath cloth cloy compet compil complet concil condon
connot conven creat cring debon delet demot denot deplet deplor devot dissuad enthron excit exhal
exil explor fring guid hast hing ignit ignor imp impal implor incit inhal interfer interven invit
loath misquot overcom ow past persever persuad phon postpon profil promot quot recit reconcil
recreat restor reunit rewrit scath secret seeth sheath silhouett sooth styl swath tast teeth
telephon telescop ting underscor underwrit unit unsheath wast welcom wreath writh
"""
_AS_IS = """
accustom add augur bias blossom bottom boycott butt canvas chorus collar combat debut ebb egg err
fathom focus format kayak mortar murmur purr ransom sugar target
"""
_BASES = {
    "dy": "die",
    **{f"{stem}y": f"{stem}ie" for stem in ("l", "t", "v", "unt", "ret", "bel", "underl")},
    **{f"{stem}ck": f"{stem}c" for stem in ("froli", "picni", "pani", "mimi", "traffi")},
    **{stem: stem[:-1] for stem in _DOUBLED.split()},
    **{stem: stem + "e" for stem in _WITH_E.split()},
    **{stem: stem for stem in _AS_IS.split()},
}
# What a longer stem ends in when its base ends in a silent e ("operat", "measur").
_SILENT = (
    *("at", "ur", "ar", "ir", "ut", "in", "an", "um", "ul", "ap", "im", "ad", "id", "od", "ud"),
    *("ak", "ik", "ok", "uk", "ek", "ib", "ab", "ob", "am", "as", "os", "us", "is", "es", "ced"),
)

_BY_LEMMA = {verb.lemma: verb for verb in VERBS}


def verb_of(lemma: str) -> Verb | None:
    """The verb of a lemma, or `None`."""
    return _BY_LEMMA.get(lemma)


def composed_label(veridical: Label, natural: Label) -> Label:
    """The paper's label of "x verbs to S" against S'.

    Args:
        veridical: "x verbs to S" against S, the verb's signature.
        natural: S against S'.

    >>> composed_label(Label.CONTRADICTION, Label.ENTAILMENT).value
    'contradiction'
    """
    if veridical == _E:
        return natural
    if veridical == _N or natural == _N:
        return _N
    return _C if natural == _E else _E


def sound_label(veridical: Label, forward: Label, backward: Label, exhaustive: bool) -> Label:
    """The label that logic gives for "x verbs to S" against S'.

    Args:
        veridical: "x verbs to S" against S.
        forward: S against S'.
        backward: S' against S.
        exhaustive: Whether one of S and S' must hold, as of a sentence and its negation.
    """
    if veridical == _E:
        return forward
    if veridical == _N:
        return _N
    if backward == _E:
        return _C  # S' would make S true, and S is not
    return _E if exhaustive and forward == _C else _N


def type_of(veridical: Label, natural: Label) -> int:
    """The type, 1..9, of a pair of labels."""
    return 3 * LABELS.index(veridical) + LABELS.index(natural) + 1


def base_of(ing: str) -> str | None:
    """The base form of an "-ing" form ("running" -> "run"), or `None` where it cannot be one.

    Args:
        ing: Lower case.
    """
    stem = ing.removesuffix("ing")
    if stem == ing or not any(letter in _VOWELS for letter in stem):
        return None
    if stem in _BASES:
        return _BASES[stem]
    last, before = stem[-1], stem[-2:-1]
    if last == before:
        # "hitting", but "falling", "missing", "buzzing", "seeing".
        return stem if last in "lszfeo" else stem[:-1]
    if last in "cvzu" or (last == "g" and before in "dlraeiou"):
        return stem if stem.endswith(("tz", "menu")) else stem + "e"
    if last == "s" or (last == "l" and before in "bcdfgkptz"):
        return stem + "e"
    if len(stem) > 3 and stem.endswith(("stl", "ung", "eng", "iat", "uat", "chang", "rang")):
        return stem + "e"
    return stem + "e" if _short(stem) else stem


def ing_of(lemma: str) -> frozenset[str]:
    """The "-ing" forms that a base form may have; two where doubling depends on the stress."""
    if lemma.endswith("ie"):
        return frozenset([lemma[:-2] + "ying"])
    if lemma.endswith("e") and lemma[-2:-1] not in ("e", "o", "y") and len(lemma) > 2:
        return frozenset([lemma[:-1] + "ing"])
    if lemma.endswith("c"):
        return frozenset([lemma + "king"])
    doubled = lemma[-1] not in "aeiouwxy" and lemma[-2:-1] in (*_VOWELS, "")
    return frozenset([lemma + "ing", lemma + lemma[-1] + "ing"] if doubled else [lemma + "ing"])


def third_of(lemma: str) -> str:
    """The third person singular of a base form: "watch" -> "watches"."""
    if lemma in ("be", "have"):
        return {"be": "is", "have": "has"}[lemma]
    if lemma.endswith("y") and lemma[-2:-1] not in tuple("aeiou"):
        return lemma[:-1] + "ies"
    if lemma.endswith(("s", "x", "z", "ch", "sh")) or (
        lemma.endswith("o") and lemma[-2:-1] not in tuple("aeiou")
    ):
        return lemma + ("zes" if lemma == "quiz" else "es")
    return lemma + "s"


def _short(stem: str) -> bool:
    """Whether a stem would have doubled its last consonant, were it the base form."""
    consonants = stem.replace("qu", "kw")
    last, before, third = consonants[-1], consonants[-2:-1], consonants[-3:-2]
    if last in "aeiouwxy" or before not in tuple(_VOWELS):
        return False
    if third and third in _VOWELS and not (before == "y" or third == "y"):
        return False  # two vowels: "eat", "rain"
    groups = sum(
        letter in _VOWELS and (place == 0 or consonants[place - 1] not in _VOWELS)
        for place, letter in enumerate(consonants)
    )
    return groups == 1 or consonants.endswith(_SILENT)
