"""Part-of-speech taggers behind one small vocabulary: a coarse class, a form and a lemma per word.

Words come in already split and are never split again, so that tags, targets and offsets speak of
the same words. Every tagger's own tag set is mapped by a table; a tag that is not in the table is
an error, as a changed tag set must not look like a sentence without candidates. The default is
HanTa (BNC C5 tags, model inside its package); `spacy:NAME_OR_DIRECTORY` takes any spaCy pipeline.

Source: MERGE, section "open-class words" (the tagger is not named).
Choice: the tagger (HanTa), the coarse classes, and "fine" as coarse class plus form.
Choice: be, have, do and modals are AUX under HanTa, as C5 does not tell main verbs apart.
Choice: ordinals are NUM: they are numbers to a reader, and so never targets.
Choice: a word without letter or digit is PUNCT, or X where it holds no punctuation mark (emoji).
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from triaxial.errors import InputError
from triaxial.text import fold

if TYPE_CHECKING:
    from spacy.tokens import Token

__all__ = ["COARSE", "FORMS", "Tag", "Tagger", "load_tagger"]

T = TypeVar("T")

COARSE = frozenset(["NOUN", "PROPN", "VERB", "AUX", "ADJ", "ADV", "NUM", "INTJ"]) | frozenset(
    ["PRON", "DET", "ADP", "CONJ", "PART", "PUNCT", "X"]
)
FORMS = frozenset(["sing", "plur", "base", "past", "ing", "part", "3sg", "pos", "comp", "sup", ""])

_VERB_FORMS = {"B": "base", "D": "past", "G": "ing", "I": "base", "N": "part", "Z": "3sg"}

# Source: BNC C5 ("basic") tag set; "!!!", "IN" and "NN" are strays in HanTa's English model.
_C5 = {
    "NN0": ("NOUN", ""),
    "NN1": ("NOUN", "sing"),
    "NN2": ("NOUN", "plur"),
    "NN": ("NOUN", ""),
    "NP0": ("PROPN", ""),
    "AJ0": ("ADJ", "pos"),
    "AJC": ("ADJ", "comp"),
    "AJS": ("ADJ", "sup"),
    "VM0": ("AUX", ""),
    **{f"VV{letter}": ("VERB", form) for letter, form in _VERB_FORMS.items()},
    **{f"V{aux}{letter}": ("AUX", f) for aux in "BDH" for letter, f in _VERB_FORMS.items()},
    **dict.fromkeys(["AV0", "AVQ"], ("ADV", "")),
    **dict.fromkeys(["CRD", "ORD"], ("NUM", "")),
    **dict.fromkeys(["PNI", "PNP", "PNQ", "PNX", "EX0"], ("PRON", "")),
    **dict.fromkeys(["AT0", "DPS", "DT0", "DTQ"], ("DET", "")),
    **dict.fromkeys(["PRP", "PRF", "AVP", "IN"], ("ADP", "")),
    **dict.fromkeys(["CJC", "CJS", "CJT"], ("CONJ", "")),
    **dict.fromkeys(["TO0", "XX0", "POS"], ("PART", "")),
    **dict.fromkeys(["PUL", "PUN", "PUQ", "PUR", "!!!"], ("PUNCT", "")),
    "ITJ": ("INTJ", ""),
    **dict.fromkeys(["UNC", "ZZ0"], ("X", "")),
}

# Source: Universal POS tags, the values of spaCy's `token.pos_`.
_UNIVERSAL = {
    **{pos: pos for pos in sorted(COARSE - {"CONJ"})},
    **dict.fromkeys(["CONJ", "CCONJ", "SCONJ"], "CONJ"),
    **dict.fromkeys(["SYM", "SPACE"], "X"),
}

# A URL of thousands of letters would take HanTa, quadratic in the length, minutes.
_LONGEST = 64
_QUOTES = str.maketrans({"\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"', "\u201e": '"'})
# Who acts in captions; the noun right before "-ing" then is its subject, not part of a compound.
_ACTORS = frozenset(["man", "woman", "boy", "girl", "person", "guy", "lady", "kid", "child"]) | {
    *("men", "women", "boys", "girls", "people", "guys", "ladies", "kids", "children", "couple"),
}
_BE = frozenset(["VBB", "VBD", "VBI", "VBN", "VBZ"])
_RARE = -14.0  # log p(word, tag) in HanTa's lexicon: seen less than about ten times


@dataclass(frozen=True, slots=True)
class Tag:
    """What a word is: coarse class (of `COARSE`), form (of `FORMS`) and lemma."""

    pos: str
    form: str
    lemma: str


class Tagger(Protocol):
    """Tags words that are already split.

    Args:
        name: The specification that loads it again, "hanta" or "spacy:NAME_OR_DIRECTORY".
        fingerprint: What decides its output: name, version, digest of the model.
    """

    name: str
    fingerprint: dict[str, str]

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[tuple[Tag, ...]]:
        """One tag per word; a sentence's tags do not depend on the other sentences."""
        ...


@cache
def load_tagger(spec: str = "hanta") -> Tagger:
    """The tagger of a specification, loaded once per process.

    Raises:
        InputError: Unknown specification, missing package or pipeline, or an unknown tag set.
    """
    if spec == "hanta":
        return _Hanta()
    if spec.startswith("spacy:") and len(spec) > len("spacy:"):
        return _Spacy(spec)
    raise InputError(f"tagger {spec!r} is unknown; give hanta or spacy:NAME_OR_DIRECTORY")


class _Hanta:
    """HanTa's English model, with our own loop over the sentence: same tags, several times faster.

    HanTa's model is a pickle; it is trusted as code is, being part of the installed package.
    """

    def __init__(self) -> None:
        from HanTa import HanoverTagger as hanta

        self._model: Any = hanta.HanoverTagger("morphmodel_en.pgz")
        self._start, self._end = (hanta.EMPTY, hanta.START), hanta.END
        self._names: dict[int, str] = {t: self._model.int2tag[t] for t in self._model.LP_wtag}
        for tag in sorted(self._names.values()):
            _look_up(_C5, tag, "hanta")
        data = Path(hanta.__file__).with_name("morphmodel_en.pgz").read_bytes()
        self.name = "hanta"
        self.fingerprint = {
            "name": self.name,
            "version": version("HanTa"),
            "digest": hashlib.sha256(data).hexdigest(),
        }
        self._candidates = lru_cache(1 << 16)(self._candidates_of)
        self._tag_of = lru_cache(1 << 16)(self._make_tag)

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[tuple[Tag, ...]]:
        return [self._tag_sentence(sentence) for sentence in sentences]

    def _tag_sentence(self, sentence: Sequence[str]) -> tuple[Tag, ...]:
        views = _views(sentence)
        kept = [view for view in views if view]
        found = iter(zip(kept, self._expect_verbs(kept, self._c5(kept)), strict=True))
        return tuple(
            self._tag_of(*next(found)) if view else Tag("X", "", word.strip())
            for word, view in zip(sentence, views, strict=True)
        )

    def _c5(self, sentence: Sequence[str]) -> list[str]:
        """C5 tags of a sentence without empty words: what `tag_sent(…, taglevel=0)` returns.

        Trigram Viterbi over (last tag, tag) states. It visits only the few tags that a word can
        have, where HanTa visits all, and in the same order, so that ties fall the same way.
        """
        row: dict[tuple[int, int], float] = {self._start: 0.0}
        back: list[dict[tuple[int, int], tuple[int, int]]] = []
        for place, word in enumerate(sentence):
            candidates = self._candidates(word, place > 0)
            bound = sorted(row.values(), reverse=True)[5] - 1 if len(row) > 5 else -math.inf
            following: dict[tuple[int, int], float] = {}
            came: dict[tuple[int, int], tuple[int, int]] = {}
            for state, before in row.items():
                if before < bound:
                    continue
                step = self._model.LP_trans_word[state]
                last = state[1]
                for tag, own in candidates:
                    score = before + step[tag] + own
                    new = (last, tag)
                    if new not in following or score > following[new]:
                        following[new] = score
                        came[new] = state
            back.append(came)
            row = following
        if not back:
            return []
        state = max(row, key=lambda s: row[s] + self._model.LP_trans_word[s][self._end])
        tags = []
        for came in reversed(back):
            tags.append(self._names[state[1]])
            state = came[state]
        return tags[::-1]

    def _candidates_of(self, word: str, cased: bool) -> tuple[tuple[int, float], ...]:
        """Tags that a word can have with log p(word | tag); all tags where nothing is known."""
        known = dict(
            self._model._tag_word(word, cutoff=5, casesensitive=cased, conditional=True),
        )
        order = (t for t in self._model.LP_trans_word[self._start] if t != self._end)
        if not any(t in self._names for t in known):
            return tuple((t, 0.0) for t in order)
        return tuple((t, float(known[t])) for t in order if t in known)

    def _expect_verbs(self, sentence: Sequence[str], tags: list[str]) -> list[str]:
        """Tags with the "-ing" words after a form of be, or after a caption's actor, made verbs.

        Choice: HanTa reads "is surfing", "is cutting", "Man cutting" as adjective or noun. They
        become VVG unless the lexicon says otherwise: 141 words of SICK, each rightly. Known to
        stay nouns: verbs that the lexicon knows as nouns alone ("is typing", "is coating").
        """
        mended = list(tags)
        for place, (word, tag) in enumerate(zip(sentence, tags, strict=True)):
            if place == 0 or tag not in ("NN1", "AJ0") or not word.lower().endswith("ing"):
                continue
            left = place - 1
            if sentence[left].lower() not in _ACTORS:
                while left > 0 and tags[left] in ("XX0", "AV0"):
                    left -= 1
                # "There is parking": existential, a noun follows.
                if tags[left] not in _BE or (left > 0 and tags[left - 1] == "EX0"):
                    continue
            if self._may_be_ing(word.lower(), tag):
                mended[place] = "VVG"
        return mended

    def _may_be_ing(self, word: str, tag: str) -> bool:
        """Whether the lexicon is silent about an "-ing" word, hardly knows it, or knows the verb.

        "interesting" and "boring" stay adjectives: their verb is less than half as frequent.
        """
        known = {self._names[t]: p for t, p in self._model.cache.get(word, []) if t in self._names}
        if not known or max(known.values()) < _RARE:
            return len(word) > 5
        margin = 0.7 if tag == "AJ0" else 3.0
        return "VVG" in known and bool(known["VVG"] >= known.get(tag, -1e6) - margin)

    def _make_tag(self, word: str, c5: str) -> Tag:
        if not any(c.isalnum() for c in word):
            mark = any(unicodedata.category(c).startswith("P") for c in word)
            return Tag("PUNCT" if mark else "X", "", word)
        lemma, _ = self._model._analyze(word, self._model.tag2int[c5], taglevel=1)
        return Tag(*_C5[c5], lemma or fold(word))


class _Spacy:
    """Any spaCy pipeline that sets `pos_`; forms are read from `morph`, where it sets that."""

    def __init__(self, spec: str) -> None:
        place = spec.removeprefix("spacy:")
        try:
            import spacy
        except ImportError as error:
            raise InputError(
                f"spaCy is not installed ({error}); pip install 'triaxial[spacy]'", where=spec
            ) from error
        try:
            # Named entities are not needed; the rest may feed the tags (rulers read parses).
            self._pipeline: Any = spacy.load(place, exclude=["ner"])
        except (OSError, ValueError, ImportError) as error:
            raise InputError(
                f"spaCy cannot load {place!r} ({str(error).splitlines()[0]}); "
                f"install it with `python -m spacy download {place}` or give its directory",
                where=spec,
            ) from error
        self.name = spec
        meta = self._pipeline.meta
        self.fingerprint = {
            "name": f"spacy:{meta['lang']}_{meta['name']}",
            "version": f"{meta['version']} spacy-{spacy.__version__}",
            "digest": _tree_digest(Path(self._pipeline.path)),
        }

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[tuple[Tag, ...]]:
        from spacy.tokens import Doc

        kept = [[word for word in sentence if word.strip()] for sentence in sentences]
        docs = self._pipeline.pipe(Doc(self._pipeline.vocab, words=k) for k in kept if k)
        result = []
        for sentence, k in zip(sentences, kept, strict=True):
            found = iter(next(docs)) if k else iter(())
            result.append(
                tuple(
                    self._make_tag(next(found)) if word.strip() else Tag("X", "", word.strip())
                    for word in sentence
                )
            )
        return result

    def _make_tag(self, token: Token) -> Tag:
        pos = _look_up(_UNIVERSAL, token.pos_, self.name)
        features: dict[str, str] = token.morph.to_dict()
        if features.get("NumType") == "Ord":
            pos = "NUM"
        return Tag(pos, _form(pos, features), token.lemma_ or fold(token.text))


def _look_up(table: dict[str, T], tag: str, where: str) -> T:
    if tag not in table:
        raise InputError(
            f"tag {tag!r} is not in the table of known tags; choose another tagger with --tagger "
            "or another version of this one",
            where=where,
        )
    return table[tag]


def _views(sentence: Sequence[str]) -> list[str]:
    """The words as HanTa's training text wrote them, one for one; "" for a blank word.

    Straight quotes; the Moses split "don 't" is "do n't", and an unsplit "don't" is "do".
    """
    views = [word.strip().translate(_QUOTES)[-_LONGEST:] for word in sentence]
    for place, view in enumerate(views):
        if view.lower() == "'t" and place and views[place - 1][-1:] in ("n", "N"):
            views[place - 1] = views[place - 1][:-1] or "n"
            views[place] = "n't"
        elif view.lower().endswith("n't") and len(view) > 3:
            views[place] = view[:-3]
    return views


def _form(pos: str, features: dict[str, str]) -> str:
    """The form of `FORMS` for Universal morphological features; "" where they do not say."""
    if pos in ("NOUN", "PROPN"):
        return {"Sing": "sing", "Plur": "plur"}.get(features.get("Number", ""), "")
    if pos in ("ADJ", "ADV"):
        return {"Pos": "pos", "Cmp": "comp", "Sup": "sup"}.get(features.get("Degree", ""), "")
    if pos not in ("VERB", "AUX"):
        return ""
    kind, tense = features.get("VerbForm", ""), features.get("Tense", "")
    if kind == "Fin" and tense == "Pres":
        third = features.get("Person") == "3" and features.get("Number") == "Sing"
        return "3sg" if third else "base"
    forms = {"Inf": "base", "Ger": "ing", "FinPast": "past", "PartPast": "part", "PartPres": "ing"}
    return forms.get(kind, forms.get(kind + tense, ""))


def _tree_digest(root: Path) -> str:
    """SHA-256 over names and contents of all files under a directory."""
    total = hashlib.sha256()
    for file in sorted(p for p in root.rglob("*") if p.is_file()):
        with file.open("rb") as stream:
            own = hashlib.file_digest(stream, "sha256").hexdigest()
        total.update(f"{file.relative_to(root).as_posix()}\0{own}\n".encode())
    return total.hexdigest()
