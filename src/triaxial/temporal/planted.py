"""Dated documents whose language changes at a known rate, or not at all.

A document is a few sentences of one topic, from patterns with places for nouns, verbs, adjectives
and names. Planted are: the shares of a topic's words, which grow or fall exponentially, each at a
rate of its own; the topics' shares likewise; and new words, which do not exist before their month
and, where a document has one, come back in it. Function words come from the patterns alone, which
do not change: they must come out flat, and new words worst. A stationary corpus has the same words
at the same rates from its first month on: no drift must come out.

Choice: all of it; the paper has no such corpus.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from triaxial.errors import InputError
from triaxial.stats import generator
from triaxial.temporal.corpus import Document, month_name, month_of

__all__ = ["PlantOptions", "Truth", "plant"]

# N noun, V verb, A adjective, P name. No pattern asks for "a" or "an" before a word.
_PATTERNS = (
    "The A N V the N in P.",
    "In P, the N and the N V some A N.",
    "It was the N of P, but they V the A N.",
    "She V the N with P because the N was A.",
    "The N of the N V him at the A N, and he V P.",
    "They said that the A N had been V by P.",
)
_WORDS = {
    "politics": """
        N minister parliament election treaty law vote party campaign senator budget reform
        N coalition debate border embassy council candidate government president mayor
        V approved rejected debated signed opposed supported delayed announced blocked passed
        A liberal federal national foreign public royal secret local
        P Brussels Washington Geneva Westminster Strasbourg Ottawa
    """,
    "sports": """
        N team match coach goal league player stadium season champion trophy striker referee
        N defender tournament race medal captain fan squad record
        V defeated scored trained praised replaced injured tackled followed cheered selected
        A fast young strong tired unbeaten fierce loyal final
        P Barcelona Wimbledon Turin Dortmund Melbourne Chicago
    """,
    "economy": """
        N bank market price company investor factory wage loan trade profit customer export
        N shareholder tax merchant currency contract worker shop fund
        V raised lowered bought traded hired financed exported invested doubled closed
        A cheap global wealthy weak steady private rich industrial
        P Frankfurt London Tokyo Shanghai Zurich Boston
    """,
    "science": """
        N experiment theory planet laboratory telescope particle species professor robot gene
        N satellite engine computer signal method rocket journal sensor crystal student
        V measured observed discovered tested published launched computed proved detected designed
        A precise distant digital natural rare modern complex solar
        P Cambridge Houston Princeton Heidelberg Bangalore Stanford
    """,
    "health": """
        N doctor hospital patient vaccine disease nurse clinic virus drug surgeon infection
        N symptom trial diet therapy fever tablet heart injection epidemic
        V treated cured examined prescribed vaccinated infected visited warned protected released
        A sick healthy mild severe chronic medical elderly painful
        P Lyon Baltimore Toronto Edinburgh Vienna Lagos
    """,
    "culture": """
        N film novel painter museum concert singer actor poem theatre director album festival
        N gallery orchestra writer dancer stage story audience song
        V directed painted composed performed reviewed admired staged recorded celebrated translated
        A famous classical romantic strange beautiful popular ancient tragic
        P Paris Venice Hollywood Prague Dublin Salzburg
    """,
}
_SYLLABLES = ("bli", "cro", "dra", "fen", "gla", "jor", "kel", "lum", "mor", "nix", "pra", "quo")
_ENDINGS = {"N": ("ware", "phone", "cast", "bot"), "P": ("ville", "ania", "ford", "mere")}
_FADE = 24  # months after which a new word is half as likely as one that is just coming up
_SLOT = re.compile(r"\b[NVAP]\b")


@dataclass(frozen=True, slots=True)
class PlantOptions:
    """What is planted.

    Args:
        documents: How many, spread evenly over the months.
        first: First month, "YYYY-MM".
        months: How many.
        sentences: Of a document on average; between half and one and a half times as many.
        drift: Change of the log share of a topic's word a year, standard deviation over words.
        topic_drift: Change of the log share of a topic a year, from minus to plus this.
        new_words: How many appear, half nouns and half names, at equal distances of time after
            the first quarter.
        new_share: Share of documents with a new word, once their topic has one; the newest are
            the likeliest.
        stationary: No drift, and the new words are there from the first month on.
        seed: Of the generator.
    """

    documents: int = 20_000
    first: str = "2010-01"
    months: int = 96
    sentences: int = 6
    drift: float = 0.15
    topic_drift: float = 0.1
    new_words: int = 24
    new_share: float = 0.3
    stationary: bool = False
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Truth:
    """What was planted.

    Args:
        function: The function words, lower case.
        content: Topic by content word.
        rates: Change of a content word's log share a year, before its topic is normalised.
        new: First month by new word.
        mentions: How often each new word stands in the documents.
        topics: Topic by document id.
        topic_shares: By month, then by topic: what the topics were drawn with.
    """

    function: frozenset[str]
    content: dict[str, str]
    rates: dict[str, float]
    new: dict[str, str]
    mentions: dict[str, int]
    topics: dict[str, str]
    topic_shares: dict[str, dict[str, float]]


def plant(options: PlantOptions | None = None) -> tuple[tuple[Document, ...], Truth]:
    """Documents in the order of their dates, and what was planted in them.

    Args:
        options: See `PlantOptions`; the same give the same documents.

    Raises:
        InputError: A number is out of its range.
    """
    options = options or PlantOptions()
    _check(options)
    rng = generator("temporal.planted", options.seed)
    drift = 0.0 if options.stationary else options.drift
    vocabulary = {
        (topic, kind): _Vocabulary.drawn(words, drift, rng)
        for topic in _WORDS
        for kind, words in _kinds(topic).items()
    }
    names = list(_WORDS)
    spread = 0.0 if options.stationary else options.topic_drift
    topic_rates = rng.permutation(np.linspace(-spread, spread, len(names)))
    new = _new_words(options, rng)
    first = month_of(options.first)

    documents: list[Document] = []
    mentions: Counter[str] = Counter()
    topics: dict[str, str] = {}
    shares: dict[str, dict[str, float]] = {}
    for month in range(options.months):
        share = _softmax(topic_rates * month / 12)
        shares[month_name(first + month)] = dict(zip(names, share.tolist(), strict=True))
        begin, end = (options.documents * m // options.months for m in (month, month + 1))
        days = np.sort(rng.integers(1, 29, end - begin)).tolist()
        drawn = rng.choice(len(names), end - begin, p=share).tolist()
        words = {
            (topic, kind): _stream(vocabulary[topic, kind], month, rng)
            for topic, kind in vocabulary
        }
        for day, number in zip(days, drawn, strict=True):
            topic = names[number]
            known = [word for word in new if word.topic == topic and word.month <= month]
            text = _text(options, topic, month, words, known, mentions, rng)
            name = f"planted-{len(documents):07d}"
            date = f"{month_name(first + month)}-{day:02d}"
            documents.append(Document(name, date, text, "planted"))
            topics[name] = topic
    rates = {
        word: rate
        for each in vocabulary.values()
        for word, rate in zip(each.words, each.rates.tolist(), strict=True)
    }
    function = _SLOT.sub(" ", " ".join(_PATTERNS)).lower()
    truth = Truth(
        frozenset(re.findall(r"[a-z]+", function)),
        {word: topic for (topic, _), each in vocabulary.items() for word in each.words},
        rates,
        {word.text: month_name(first + word.month) for word in new},
        {word.text: mentions[word.text] for word in new},
        topics,
        shares,
    )
    return tuple(documents), truth


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """The words of a topic and a class: log share at the start, and its change a year."""

    words: tuple[str, ...]
    base: NDArray[np.float64]
    rates: NDArray[np.float64]

    @classmethod
    def drawn(cls, words: list[str], drift: float, rng: np.random.Generator) -> _Vocabulary:
        # Zipf's law with a flat head, in random order; a rate for every word.
        base = -np.log(2.0 + rng.permutation(len(words)))
        return cls(tuple(words), base, drift * rng.standard_normal(len(words)))


@dataclass(frozen=True, slots=True)
class _New:
    """A new word, its class, topic and first month, counted from the first of the corpus."""

    text: str
    kind: str
    topic: str
    month: int


def _new_words(options: PlantOptions, rng: np.random.Generator) -> list[_New]:
    start = options.months // 4
    found: dict[str, _New] = {}
    while len(found) < options.new_words:
        number = len(found)
        kind = "NP"[number % 2]
        month = start + number * (options.months - start) // options.new_words
        syllables = "".join(_SYLLABLES[n] for n in rng.integers(len(_SYLLABLES), size=2))
        text = syllables + _ENDINGS[kind][int(rng.integers(len(_ENDINGS[kind])))]
        text = text.title() if kind == "P" else text
        topic = list(_WORDS)[number // 2 % len(_WORDS)]
        found.setdefault(text, _New(text, kind, topic, 0 if options.stationary else month))
    return list(found.values())


def _text(
    options: PlantOptions,
    topic: str,
    month: int,
    words: dict[tuple[str, str], Iterator[str]],
    known: list[_New],
    mentions: Counter[str],
    rng: np.random.Generator,
) -> str:
    low = max(1, options.sentences // 2)
    count = int(rng.integers(low, max(low, options.sentences + options.sentences // 2) + 1))
    patterns = rng.integers(len(_PATTERNS), size=count).tolist()
    guest = None
    if known and rng.random() < options.new_share:
        weights = np.array([0.5 ** ((month - word.month) / _FADE) for word in known])
        guest = known[int(rng.choice(len(known), p=weights / weights.sum()))]
    again = rng.random(count).tolist()
    sentences = []
    for number, pattern in enumerate(patterns):
        # Once for certain, then in every second sentence.
        due = guest is not None and (number == 0 or again[number] < 0.5)

        def filled(slot: re.Match[str]) -> str:
            nonlocal due
            if due and guest is not None and slot[0] == guest.kind:
                due = False
                mentions[guest.text] += 1
                return guest.text
            return next(words[topic, slot[0]])

        sentences.append(_SLOT.sub(filled, _PATTERNS[pattern]))
    return " ".join(sentences)


def _stream(each: _Vocabulary, month: int, rng: np.random.Generator) -> Iterator[str]:
    """Words drawn with the shares of a month, many at a time."""
    share = _softmax(each.base + each.rates * month / 12)
    while True:
        yield from (each.words[n] for n in rng.choice(len(each.words), 256, p=share).tolist())


def _kinds(topic: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in _WORDS[topic].split("\n"):
        kind, *words = line.split() or [""]
        if words:
            found.setdefault(kind, []).extend(words)
    return found


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(logits - logits.max())
    share: NDArray[np.float64] = weights / weights.sum()
    return share


def _check(options: PlantOptions) -> None:
    if options.documents < 1 or options.months < 1 or options.sentences < 1:
        seen = f"{options.documents} documents of {options.sentences} sentences in"
        raise InputError(f"{seen} {options.months} months; wanted at least 1 of each")
    if not 0 <= options.new_share <= 1 or not 0 <= options.new_words <= 1000:
        seen = f"{options.new_words} new words in a share of {options.new_share} of the documents"
        raise InputError(f"{seen}; wanted 0 to 1000, and a share in 0..1")
    if not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", options.first, re.ASCII):
        raise InputError(f"{options.first!r} is not a month; write it as 2010-01")
