"""The taggers: same tags as HanTa itself, one tag a word, captions, clitics, spaCy, errors."""

from __future__ import annotations

import hashlib
import string
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial.errors import InputError
from triaxial.models import tagger
from triaxial.models.tagger import COARSE, FORMS, Tag, load_tagger
from triaxial.text import words

LIMIT = 1500  # sentences of real data


def tags_of(sentence: str) -> dict[str, Tag]:
    split = [word.text for word in words(sentence)]
    return dict(zip(split, load_tagger().tag([split])[0], strict=True))


def coarse(sentence: str) -> str:
    return " ".join(tag.pos for tag in load_tagger().tag([sentence.split()])[0])


@pytest.fixture(scope="module")
def captions(shared: Path) -> list[list[str]]:
    rows = (shared / "data/nli/SICK.txt").read_text().splitlines()[1:]
    sentences = {field for row in rows for field in row.split("\t")[1:3]}
    return [[w.text for w in words(s)] for s in sorted(sentences)[::4][:LIMIT]]


def test_classes_forms_and_lemmas() -> None:
    found = tags_of("The two smaller dogs ran and a man who plays will have been eating slowly.")
    assert found == {
        "The": Tag("DET", "", "the"),
        "two": Tag("NUM", "", "two"),
        "smaller": Tag("ADJ", "comp", "small"),
        "dogs": Tag("NOUN", "plur", "dog"),
        "ran": Tag("VERB", "past", "run"),
        "and": Tag("CONJ", "", "and"),
        "a": Tag("DET", "", "a"),
        "man": Tag("NOUN", "sing", "man"),
        "who": Tag("PRON", "", "who"),
        "plays": Tag("VERB", "3sg", "play"),
        "will": Tag("AUX", "", "will"),
        "have": Tag("AUX", "base", "have"),
        "been": Tag("AUX", "part", "be"),
        "eating": Tag("VERB", "ing", "eat"),
        "slowly": Tag("ADV", "", "slowly"),
        ".": Tag("PUNCT", "", "."),
    }


@pytest.mark.parametrize(
    ("sentence", "verb"),
    [
        ("A boy in a red shirt playing near the water.", "playing"),
        ("A man standing.", "standing"),
        ("Two dogs running on the beach.", "running"),
        ("A woman in a hat smiling at the camera", "smiling"),
        ("Children jumping into a pool.", "jumping"),
        # HanTa alone says noun or adjective:
        ("Man cutting tomatoes", "cutting"),
        ("People walking", "walking"),
        ("A girl is surfing", "surfing"),
        ("A woman is cutting broccoli", "cutting"),
        ("The man is not frying fish", "frying"),
        ("There is no man eating cereal", "eating"),
    ],
)
def test_ing_forms_of_captions_are_verbs(sentence: str, verb: str) -> None:
    tag = tags_of(sentence)[verb]
    assert (tag.pos, tag.form) == ("VERB", "ing")


@pytest.mark.parametrize(
    ("sentence", "word", "pos"),
    [
        ("The film is interesting", "interesting", "ADJ"),
        ("The film is boring", "boring", "ADJ"),
        ("He is king", "king", "NOUN"),
        ("There is parking behind the house", "parking", "NOUN"),
        ("The building is tall", "building", "NOUN"),
    ],
)
def test_other_words_in_ing_stay(sentence: str, word: str, pos: str) -> None:
    assert tags_of(sentence)[word].pos == pos


def test_words_are_never_split() -> None:
    # TextAttack PR 293, and the Moses words "don 't", "can 't".
    assert coarse("He KO'ed it by e-mail and doesn't know").split()[-2:] == ["AUX", "VERB"]
    assert coarse("He don 't go") == "PRON AUX PART VERB"
    assert coarse("He can 't go") == "PRON AUX PART VERB"
    curly = "I can\u2019t , \u201c said \u201d the man \u2019s dog"
    assert coarse(curly) == "PRON AUX PUNCT PUNCT VERB PUNCT DET NOUN PART NOUN"
    assert coarse("5 $ % 😀 … 1.1 2,000 first") == "NUM X PUNCT X PUNCT NUM NUM NUM"


def test_empty_words_and_sentences() -> None:
    blank = Tag("X", "", "")
    with_blanks = load_tagger().tag([[], [""], ["", "A", " ", "dog"]])
    assert with_blanks[:2] == [(), (blank,)]
    a, dog = load_tagger().tag([["A", "dog"]])[0]
    assert with_blanks[2] == (blank, a, blank, dog)
    assert load_tagger().tag([]) == []


def test_a_word_of_any_length_is_tagged_at_once() -> None:
    assert len(load_tagger().tag([["see", "http://x.org/" + "z" * 100_000]])[0]) == 2
    assert len(load_tagger().tag([["x9q"] * 20_000])[0]) == 20_000


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(string.printable + "éß漢\u2019\u201c😀", max_size=12), max_size=8))
def test_every_word_gets_one_tag_of_the_vocabulary(sentence: list[str]) -> None:
    single = load_tagger().tag([sentence])[0]
    assert len(single) == len(sentence)
    assert all(tag.pos in COARSE and tag.form in FORMS for tag in single)
    assert load_tagger().tag([["A", "dog"], sentence])[1] == single


def test_tags_are_those_of_hanta_itself(captions: list[list[str]]) -> None:
    from HanTa.HanoverTagger import HanoverTagger

    plain, ours = HanoverTagger("morphmodel_en.pgz"), load_tagger()
    assert isinstance(ours, tagger._Hanta)
    strange = [["x9q", "Zzyzx", "!!", "'", "«", "a" * 40, "I"], ["Ms.", "O'Neil", "K.O."]]
    for sentence in [*captions[:400], *strange]:
        view = tagger._views(sentence)
        expected = plain.tag_sent(view, taglevel=1)
        c5 = ours._c5(view)
        assert c5 == [tag for _, _, tag in expected]
        lemmas = [(w, lemma) for w, lemma, _ in expected if any(c.isalnum() for c in w)]
        made = [(w, ours._make_tag(w, tag).lemma) for w, tag in zip(view, c5, strict=True)]
        assert [pair for pair in made if any(c.isalnum() for c in pair[0])] == lemmas


def test_a_batch_is_its_sentences(captions: list[list[str]]) -> None:
    ours = load_tagger()
    assert ours.tag(captions[:200]) == [ours.tag([sentence])[0] for sentence in captions[:200]]


def test_few_ing_words_of_captions_are_not_verbs(captions: list[list[str]]) -> None:
    # After "is" and "are" 99.3 % are verbs; HanTa alone gives 97.7 %.
    found = [
        tags[at].pos == "VERB"
        for sentence, tags in zip(captions, load_tagger().tag(captions), strict=True)
        for at, word in enumerate(sentence)
        if at and sentence[at - 1] in ("is", "are") and word.endswith("ing")
        if tags[at].pos != "AUX" and word != "nothing"
    ]
    assert len(found) > 1000
    assert sum(found) >= 0.99 * len(found)


def test_fingerprint() -> None:
    import HanTa

    ours = load_tagger()
    assert ours.name == "hanta"
    assert set(ours.fingerprint) == {"name", "version", "digest"}
    assert ours.fingerprint["name"] == "hanta"
    model = Path(HanTa.__file__).with_name("morphmodel_en.pgz").read_bytes()
    assert ours.fingerprint["digest"] == hashlib.sha256(model).hexdigest()
    assert load_tagger("hanta") is load_tagger("hanta")


def test_an_unknown_tag_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # TextAttack 713, 727: a changed tag set gave no candidates, silently.
    monkeypatch.delitem(tagger._C5, "NN2")
    with pytest.raises(InputError, match="hanta: tag 'NN2' is not in the table of known tags"):
        tagger._Hanta()


@pytest.mark.parametrize("spec", ["", "spacy", "spacy:", "nltk", "HanTa"])
def test_an_unknown_tagger_is_an_error(spec: str) -> None:
    with pytest.raises(InputError, match=f"tagger '{spec}' is unknown; give hanta or spacy:NAME"):
        load_tagger(spec)


def test_missing_spacy_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(
        InputError, match=r"spaCy is not installed .*pip install 'triaxial\[spacy\]'"
    ):
        load_tagger("spacy:en_core_web_none")


@pytest.mark.parametrize(
    ("pos", "features", "form"),
    [
        ("VERB", "VerbForm=Inf", "base"),
        ("VERB", "Tense=Pres|VerbForm=Fin", "base"),
        ("VERB", "Number=Sing|Person=3|Tense=Pres|VerbForm=Fin", "3sg"),
        ("VERB", "Tense=Past|VerbForm=Fin", "past"),
        ("VERB", "Aspect=Perf|Tense=Past|VerbForm=Part", "part"),
        ("VERB", "Aspect=Prog|Tense=Pres|VerbForm=Part", "ing"),
        ("VERB", "VerbForm=Ger", "ing"),
        ("AUX", "VerbForm=Fin", ""),
        ("NOUN", "Number=Plur", "plur"),
        ("PROPN", "Number=Sing", "sing"),
        ("PRON", "Number=Sing", ""),
        ("ADJ", "Degree=Sup", "sup"),
        ("ADV", "Degree=Cmp", "comp"),
        ("NOUN", "Case=Nom", ""),
    ],
)
def test_forms_of_universal_features(pos: str, features: str, form: str) -> None:
    parsed = dict(feature.split("=") for feature in features.split("|"))
    assert tagger._form(pos, parsed) == form


def test_a_spacy_directory(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    made = spacy.blank("en")
    ruler = made.add_pipe("attribute_ruler")
    for word, pos, morph, lemma in [
        ("dogs", "NOUN", "Number=Plur", "dog"),
        ("ran", "VERB", "Tense=Past|VerbForm=Fin", "run"),
        ("first", "ADJ", "NumType=Ord", "first"),
        ("and", "CCONJ", "", ""),
        ("don't", "AUX", "", "do"),
    ]:
        ruler.add([[{"LOWER": word}]], {"POS": pos, "MORPH": morph, "LEMMA": lemma})
    made.to_disk(tmp_path / "tiny")
    ours = load_tagger(f"spacy:{tmp_path / 'tiny'}")
    blank = Tag("X", "", "")
    dogs, ran = Tag("NOUN", "plur", "dog"), Tag("VERB", "past", "run")
    assert ours.tag([["Dogs", "", "ran"], [], [""], ["and", "don't", "first"]]) == [
        (dogs, blank, ran),
        (),
        (blank,),
        (Tag("CONJ", "", "and"), Tag("AUX", "", "do"), Tag("NUM", "", "first")),
    ]
    assert ours.fingerprint["name"] == "spacy:en_pipeline"
    assert len(ours.fingerprint["digest"]) == 64
    with pytest.raises(InputError, match="tag '' is not in the table"):
        ours.tag([["unseen"]])
    with pytest.raises(InputError, match=r"spaCy cannot load 'en_core_web_none' .*spacy download"):
        load_tagger("spacy:en_core_web_none")
