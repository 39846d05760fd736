"""What the dictionary says about words: a or an, adjectives that bend logic, WordNet relations.

A replacement must not break the article before it, should not touch adjectives whose meaning
decides the label ("fake", "other"), and carries a label risk where a word of the pair is related to
it. Sense is not resolved: a relation between any two senses counts, as this is a warning.

Source: MERGE, "not a subword … same word class" (nothing on articles, privatives or relations).
Choice: all three. WordNet data is read where found (Debian's `wordnet-base`, NLTK's
`corpora/wordnet`, or a given directory) and never fetched; without it there are no relations.
"""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from triaxial.errors import InputError

if TYPE_CHECKING:
    from inflect import engine

__all__ = [
    "PRIVATIVE_OR_LOGICAL",
    "Relation",
    "WordNet",
    "article_clash",
    "find_wordnet",
    "indefinite_article",
]

Relation = Literal["synonym", "antonym", "hypernym", "hyponym"]

# "A fake gun" is no gun. Source: the kinds of Kamp 1975 and Partee 2010; words after Nayak et al.
# 2014, "A Dictionary of Nonsubsective Adjectives". Choice: which of them.
_PRIVATIVE = """
    artificial bogus counterfeit deputy erstwhile ex fabricated fake false fictional fictitious
    former forged hypothetical imaginary imagined imitation invented mock mythical nonexistent
    onetime past phony pretend pseudo quasi sham simulated so-called spurious toy unreal virtual
    would-be
"""
# "An alleged thief" may be a thief. Source: as above, plain nonsubsective and modal adjectives.
_MODAL = """
    alleged apparent arguable assumed believed claimed debatable disputed doubtful dubious expected
    future impossible improbable intended likely necessary ostensible planned plausible possible
    potential predicted presumed probable proposed purported putative questionable reputed rumored
    rumoured seeming supposed suspected theoretical unconfirmed unlikely
"""
# Quantity, identity, order, exclusion, absence: what they change is the claim, not the picture.
# Choice: our list; it is what monotonicity and anaphora depend on.
_LOGICAL = """
    absent alike all another any both certain complete countless different distinct double each
    empty enough entire equal equivalent even every few fewer fewest final first following half
    identical innumerable joint last latter least less lone many missing more most much multiple
    mutual next no numerous odd only opposite other own particular previous preceding same second
    separate several similar single sole specific subsequent such sufficient third total triple
    unequal unique various whole
"""
PRIVATIVE_OR_LOGICAL = frozenset(f"{_PRIVATIVE} {_MODAL} {_LOGICAL}".split())

_FILES = {"NOUN": "noun", "VERB": "verb", "ADJ": "adj", "ADV": "adv"}
_STEPS = 3  # Choice: "terrier" to "domestic animal" is 3; above that, words say nothing of a pair


def indefinite_article(word: str) -> Literal["a", "an"]:
    """The article that a word takes when it comes next, by its sound: "an hour", "a union".

    Choice: the library `inflect` decides, numbers apart ("an 8", "an 11", "an 18,000"), which it
    reads by letter. Marks before the first letter or digit are skipped.
    """
    return _article(word)


def article_clash(previous: str | None, word: str) -> bool:
    """Whether the word before is "a" or "an", in any case, and `word` needs the other.

    Args:
        previous: The word before, or `None` at the start of a sentence.
        word: The word that would follow; without letter or digit it never clashes.
    """
    if previous is None or previous.lower() not in ("a", "an") or not _sounding(word):
        return False
    return indefinite_article(word) != previous.lower()


def find_wordnet(path: str | None = None) -> Path | None:
    """The directory of WordNet's `index.*` and `data.*` files, or `None` where there is none.

    Args:
        path: A directory to use (or one that has them under `dict`); else the standard places.

    Raises:
        InputError: The given directory lacks one of the files.
    """
    if path is not None:
        given = Path(path)
        for directory in (given, given / "dict"):
            if not _missing(directory):
                return directory
        raise InputError(
            f"{_missing(given)[0]} is not there, wanted WordNet's index and data files; "
            "install Debian's wordnet-base or give its directory",
            where=path,
        )
    shares = (
        Path("/usr/share"),
        Path("/usr/local/share"),
        Path("/usr/lib"),
        Path("/usr/local/lib"),
    )
    roots = (Path.home(), Path(sys.prefix), Path(sys.prefix, "share"), *shares)
    places = [Path("/usr/share/wordnet"), *(r / "nltk_data/corpora/wordnet" for r in roots)]
    return next((place for place in places if not _missing(place)), None)


class WordNet:
    """WordNet relations from a directory in the WNDB format; a word class is read when asked for.

    Source: the manual pages wndb(5WN) and wninput(5WN).
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._classes = cache(lambda pos: _WordClass(directory, _FILES[pos]))
        self._related = lru_cache(1 << 18)(self._find)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self.directory,)

    @property
    def digest(self) -> str:
        """SHA-256 over the files that relations are read from."""
        total = hashlib.sha256()
        for name in _file_names():
            total.update(hashlib.sha256((self.directory / name).read_bytes()).digest())
        return total.hexdigest()

    def related(self, lemma: str, other: str, pos: str) -> Relation | None:
        """What `other` is to `lemma` in some sense of both, the first of the four that holds.

        Args:
            lemma: A base form, any case, blanks or underscores between words.
            other: Likewise; a lemma is its own synonym.
            pos: A coarse class; only NOUN, VERB, ADJ and ADV have relations.

        Choice: hypernyms up to 3 steps; an entailed verb ("snore", "sleep") and the head of an
        adjective ("scorching", "hot") count as hypernyms. Antonyms by synset, so that "big" and
        "small" are, although WordNet opposes only "big", "little" and "large", "small"; and for
        adjectives by their heads ("scorching", "cold").
        """
        if pos not in _FILES:
            return None
        return self._related(_normal(lemma), _normal(other), pos)

    def _find(self, lemma: str, other: str, pos: str) -> Relation | None:
        if lemma == other:
            return "synonym"
        words: _WordClass = self._classes(pos)
        own, its = words.synsets(lemma), words.synsets(other)
        if not own or not its:
            return None
        if own & its:
            return "synonym"
        if words.opposites(own) & words.with_heads(its):
            return "antonym"
        if words.ancestors(own) & its:
            return "hypernym"
        return "hyponym" if words.ancestors(its) & own else None


@dataclass(frozen=True, slots=True)
class _Synset:
    """Where a synset's pointers lead, as offsets in the same file."""

    above: frozenset[int]
    head: frozenset[int]
    opposite: frozenset[int]


@lru_cache(2)
def _opened(directory: Path) -> WordNet:
    """One that came from another process: one here, however often it comes."""
    return WordNet(directory)


class _WordClass:
    """One pair of files, `index.noun` and `data.noun`, say; synsets are named by their offsets."""

    def __init__(self, directory: Path, name: str) -> None:
        self._index_file, self._data_file = directory / f"index.{name}", directory / f"data.{name}"
        # Lines of bytes, not parsed: 117k nouns are 20 MB so, and most are never asked for.
        self._lines: dict[bytes, bytes] = {}
        for line in self._index_file.read_bytes().splitlines():
            if not line.startswith(b" "):  # the licence
                self._lines[line.partition(b" ")[0]] = line
        self._data = self._data_file.read_bytes()
        self.synset = lru_cache(1 << 16)(self._read_synset)

    def synsets(self, lemma: str) -> frozenset[int]:
        line = self._lines.get(lemma.encode())
        if line is None:
            return frozenset()
        # lemma pos synset_cnt p_cnt [ptr_symbol…] sense_cnt tagsense_cnt synset_offset…
        fields = line.split()
        try:
            count = int(fields[2])
            if not 0 < count <= len(fields) - 6:
                raise ValueError
            return frozenset(map(int, fields[-count:]))
        except (ValueError, IndexError):
            raise _damaged(self._index_file, f"the entry of {lemma!r}") from None

    def with_heads(self, synsets: frozenset[int]) -> frozenset[int]:
        return synsets.union(*(self.synset(s).head for s in synsets))

    def opposites(self, synsets: frozenset[int]) -> frozenset[int]:
        return frozenset().union(*(self.synset(s).opposite for s in self.with_heads(synsets)))

    def ancestors(self, synsets: frozenset[int]) -> frozenset[int]:
        found: frozenset[int] = frozenset()
        for _ in range(_STEPS):
            synsets = frozenset().union(*(self.synset(s).above for s in synsets))
            found |= synsets
        return found

    def _read_synset(self, offset: int) -> _Synset:
        # synset_offset lex_filenum ss_type w_cnt word lex_id [word lex_id…] p_cnt [ptr…] | gloss
        # ptr: pointer_symbol synset_offset pos source/target; w_cnt is hexadecimal.
        end = self._data.find(b"\n", offset)
        fields = self._data[offset : end if end >= 0 else None].partition(b"|")[0].split()
        try:
            if int(fields[0]) != offset:
                raise ValueError
            kind, start = fields[2], 5 + 2 * int(fields[3], 16)
            pointers = fields[start : start + 4 * int(fields[start - 1])]
            # Adverbs point at adjectives (`\`): other files, never followed here.
            targets = list(zip(pointers[::4], map(int, pointers[1::4]), strict=True))
        except (ValueError, IndexError):
            raise _damaged(self._data_file, f"synset {offset:08d}") from None
        head = frozenset(t for symbol, t in targets if kind == b"s" and symbol == b"&")
        above = frozenset(t for symbol, t in targets if symbol in (b"@", b"@i", b"*"))
        opposite = frozenset(t for symbol, t in targets if symbol == b"!")
        return _Synset(above | head, head, opposite)


def _normal(lemma: str) -> str:
    return re.sub(r"\s+", "_", lemma.strip().lower())


def _file_names() -> list[str]:
    return [f"{kind}.{name}" for name in _FILES.values() for kind in ("index", "data")]


def _missing(directory: Path) -> list[str]:
    return [name for name in _file_names() if not (directory / name).is_file()]


def _damaged(file: Path, what: str) -> InputError:
    return InputError(
        f"{what} is not in the WNDB format; the file is cut off or was edited: install it again",
        where=file,
    )


def _sounding(word: str) -> str:
    return re.sub(r"^[\W_]+", "", word)


@lru_cache(1 << 16)
def _article(word: str) -> Literal["a", "an"]:
    word = _sounding(word)
    number = re.match(r"\d+(,\d{3})*", word)
    if number:
        digits = number[0].replace(",", "")
        eleven = digits[:2] in ("11", "18") and len(digits) % 3 == 2
        return "an" if digits[0] == "8" or eleven else "a"
    if not word:
        return "a"
    return "an" if str(_inflect().a(word)).startswith("an ") else "a"


@cache
def _inflect() -> engine:
    import inflect

    return inflect.engine()
