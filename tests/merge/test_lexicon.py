"""Articles, adjectives that bend logic, WordNet relations: a small dictionary and the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from triaxial.errors import InputError
from triaxial.merge.lexicon import (
    PRIVATIVE_OR_LOGICAL,
    WordNet,
    article_clash,
    find_wordnet,
    indefinite_article,
)

LICENCE = "  1 A licence line, indented by two blanks.  \n"


def write_class(
    directory: Path, name: str, kind: str, synsets: list[tuple[str, str, list[tuple[str, int]]]]
) -> None:
    """Writes index and data of one word class: (type, words, [(pointer symbol, synset number)])."""
    # Offsets have 8 digits, so lengths do not depend on them: one pass measures, one writes.
    offsets = [0] * len(synsets)
    for _ in range(2):
        text = LICENCE
        for number, (kind_of, words, pointers) in enumerate(synsets):
            offsets[number] = len(text.encode())
            listed = words.split()
            text += (
                f"{offsets[number]:08d} 00 {kind_of} {len(listed):02x} "
                + " ".join(f"{word} 0" for word in listed)
                + f" {len(pointers):03d} "
                + "".join(f"{symbol} {offsets[to]:08d} {kind} 0000 " for symbol, to in pointers)
                + "| a gloss\n"
            )
    (directory / f"data.{name}").write_text(text)
    senses: dict[str, list[int]] = {}
    for offset, (_, words, _) in zip(offsets, synsets, strict=True):
        for word in words.split():
            senses.setdefault(word.lower(), []).append(offset)
    lines = [
        f"{word} {kind} {len(at)} 1 @ {len(at)} 0 " + " ".join(f"{o:08d}" for o in at) + "  \n"
        for word, at in sorted(senses.items())
    ]
    (directory / f"index.{name}").write_text(LICENCE + "".join(lines))


@pytest.fixture
def dictionary(tmp_path: Path) -> Path:
    up, opposite, similar = "@", "!", "&"
    nouns = [
        ("n", "entity", []),
        ("n", "organism", [(up, 0)]),
        ("n", "animal beast", [(up, 1)]),
        ("n", "dog domestic_dog", [(up, 2)]),
        ("n", "terrier", [(up, 3)]),
        ("n", "guy dog", [(up, 1)]),
        ("n", "Rex", [("@i", 3)]),
    ]
    adjectives = [
        ("a", "hot", [(opposite, 1), (similar, 2)]),
        ("a", "cold", [(opposite, 0), (similar, 3)]),
        ("s", "scorching", [(similar, 0)]),
        ("s", "icy", [(similar, 1)]),
        ("a", "big large", [(opposite, 5)]),
        ("a", "small little", [(opposite, 4)]),
    ]
    verbs = [("v", "sleep", []), ("v", "snore", [("*", 0)])]
    write_class(tmp_path, "noun", "n", nouns)
    write_class(tmp_path, "verb", "v", verbs)
    write_class(tmp_path, "adj", "a", adjectives)
    write_class(tmp_path, "adv", "r", [("r", "fast quickly", [])])
    return tmp_path


A = "dog university European one-eyed unicorn user NATO UFO 7 1 110 1,100"
AN = "hour honest heir apple MP FBI x-ray umbrella 8 80 11 18 11,000 18,000"


@pytest.mark.parametrize(("article", "following"), [("a", A), ("an", AN)])
def test_the_article_goes_by_sound(article: str, following: str) -> None:
    for word in following.split():
        assert f"{indefinite_article(word)} {word}" == f"{article} {word}"


def test_article_clash() -> None:
    assert article_clash("a", "apple")
    assert article_clash("A", "hour")
    assert article_clash("An", "university")
    assert not article_clash("AN", "apple")
    assert not article_clash("a", "guitar")
    assert not article_clash("the", "apple")
    assert not article_clash(None, "apple")
    assert article_clash("a", "“old”")  # marks before the first letter are skipped
    assert not article_clash("an", "…")
    assert not article_clash("an", "")


def test_adjectives_that_bend_logic() -> None:
    assert {"fake", "former", "alleged", "certain"} <= PRIVATIVE_OR_LOGICAL
    assert {"other", "same", "many", "few", "several", "only"} <= PRIVATIVE_OR_LOGICAL
    assert not {"red", "big", "young", "happy", "wooden"} & PRIVATIVE_OR_LOGICAL
    assert all(word == word.lower().strip() for word in PRIVATIVE_OR_LOGICAL)


@pytest.mark.parametrize(
    ("lemma", "other", "pos", "relation"),
    [
        ("animal", "beast", "NOUN", "synonym"),
        ("dog", "dog", "NOUN", "synonym"),
        ("DOG", "domestic dog", "NOUN", "synonym"),
        ("dog", "animal", "NOUN", "hypernym"),
        ("animal", "dog", "NOUN", "hyponym"),
        ("terrier", "organism", "NOUN", "hypernym"),  # 3 steps: dog, animal, organism
        ("terrier", "entity", "NOUN", None),  # 4 steps
        ("rex", "dog", "NOUN", "hypernym"),  # an instance
        ("terrier", "guy", "NOUN", None),  # sisters under organism
        ("snore", "sleep", "VERB", "hypernym"),
        ("sleep", "snore", "VERB", "hyponym"),
        ("hot", "cold", "ADJ", "antonym"),
        ("scorching", "cold", "ADJ", "antonym"),
        ("icy", "scorching", "ADJ", "antonym"),
        ("scorching", "hot", "ADJ", "hypernym"),
        ("hot", "scorching", "ADJ", "hyponym"),
        ("big", "little", "ADJ", "antonym"),
        ("hot", "big", "ADJ", None),
        ("fast", "quickly", "ADV", "synonym"),
        ("dog", "animal", "VERB", None),
        ("dog", "animal", "PROPN", None),
        ("dog", "unheard-of", "NOUN", None),
    ],
)
def test_relations(
    dictionary: Path, lemma: str, other: str, pos: str, relation: str | None
) -> None:
    assert WordNet(dictionary).related(lemma, other, pos) == relation


def test_the_digest_is_of_the_content(dictionary: Path) -> None:
    before = WordNet(dictionary).digest
    assert before == WordNet(dictionary).digest
    with (dictionary / "data.adv").open("a") as file:
        file.write("\n")
    assert WordNet(dictionary).digest != before


def test_find_wordnet(dictionary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_wordnet(str(dictionary)) == dictionary
    nested = tmp_path / "WordNet-3.0"
    nested.mkdir()
    (nested / "dict").symlink_to(dictionary)
    assert find_wordnet(str(nested)) == nested / "dict"
    found = tmp_path / "home/nltk_data/corpora/wordnet"
    found.parent.mkdir(parents=True)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.setattr(
        Path, "is_file", lambda file: not str(file).startswith("/usr") and file.exists()
    )
    assert find_wordnet() is None
    found.symlink_to(dictionary)
    assert find_wordnet() == found


def test_a_given_directory_without_the_files(dictionary: Path) -> None:
    (dictionary / "data.verb").unlink()
    with pytest.raises(InputError, match=r"data\.verb is not there, wanted WordNet's index and"):
        find_wordnet(str(dictionary))


def test_damaged_files(dictionary: Path) -> None:
    data = dictionary / "data.noun"
    data.write_bytes(data.read_bytes()[:300])
    with pytest.raises(InputError, match=r"data\.noun: synset \d{8} is not in the WNDB format"):
        WordNet(dictionary).related("dog", "terrier", "NOUN")
    index = dictionary / "index.verb"
    index.write_text("sleep v 4 1 @ 4 0 00000000\nsnore v x\n")
    with pytest.raises(InputError, match=r"index\.verb: the entry of 'sleep' is not in the WNDB"):
        WordNet(dictionary).related("sleep", "snore", "VERB")


def test_the_real_dictionary() -> None:
    directory = find_wordnet()
    if directory is None:
        pytest.skip("no WordNet on this machine; install Debian's wordnet-base")
    wordnet = WordNet(directory)
    assert wordnet.related("dog", "animal", "NOUN") == "hypernym"
    assert wordnet.related("instrument", "guitar", "NOUN") == "hyponym"
    assert wordnet.related("man", "woman", "NOUN") == "antonym"
    assert wordnet.related("kid", "child", "NOUN") == "synonym"
    assert wordnet.related("scorching", "cold", "ADJ") == "antonym"
    assert wordnet.related("big", "small", "ADJ") == "antonym"
    assert wordnet.related("snore", "sleep", "VERB") == "hypernym"
    assert wordnet.related("quickly", "slowly", "ADV") == "antonym"
    assert wordnet.related("dog", "guitar", "NOUN") is None
    # Entries with several pointer symbols, whose count is not the number of senses.
    assert all(wordnet.related(w, "entity", "NOUN") != "synonym" for w in ["set", "head", "line"])
