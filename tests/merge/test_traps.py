"""What public reports say goes wrong in word replacement: sixteen kinds, each over all pairs.

The pairs are small and mean; a scripted masked LM proposes the same good and bad words everywhere,
and tiny real ones of each tokenizer family propose all they know.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from triaxial.errors import InputError
from triaxial.merge.filters import Replacement, variant_texts
from triaxial.merge.lexicon import article_clash
from triaxial.merge.propose import ProposeOptions
from triaxial.merge.queries import MaskedSource, ask
from triaxial.merge.score import DrawOptions, drawn
from triaxial.merge.stages import refuse_marks
from triaxial.merge.targets import CLASSES, Seed, shared_slots, tagged_seeds
from triaxial.merge.variants import PRESETS, Preset, slots_of, variants_of
from triaxial.models import tagger as tagger_module
from triaxial.models.classifier import label_columns, load_classifier
from triaxial.models.masked import Query
from triaxial.models.tagger import load_tagger
from triaxial.nli import LABELS, Label, Pair, read_pairs
from triaxial.text import case_pattern, fold, match_case, words

Tiny = Callable[..., Path]

# Id, premise, hypothesis; the label is neutral throughout.
TEXTS = [
    ("separator", "A dog >>>> a cat </s/> runs || here.", "The dog || a cat >>>> there."),
    ("first", "Dogs run in the park.", "Dogs run outside."),
    ("last", "A man plays the guitar", "Nobody plays the guitar"),
    ("stop", "The man is playing a guitar.", "A woman has a guitar."),
    ("abbreviation", "The U.S. team don't win the game.", "The U.S. team won't lose the game."),
    ("group", "A man (group) rides a horse (brown).", "The horse (brown) and a man."),
    ("decimal", "The dog ate 1.1 pounds of meat.", "A dog ate 2.50 pounds of meat, i.e. meat."),
    ("name", "Bob Smith-Jones met a dog near O'Hare.", "Bob Smith-Jones met the dog."),
    ("rare name", "Xochitl plays a flute.", "Xochitl has a flute."),
    ("possessive", "A man's dog sleeps.", "The man's dog is old."),
    ("plural possessive", "The dogs' owner sleeps.", "The dogs' owner is here."),
    ("hyphen", "A well-known man has a dog-walker.", "The well-known man meets a dog-walker."),
    ("shirt", "A boy in a T-shirt smiles.", "The boy wears a T-shirt."),
    ("quotes", 'The "big" dog barks.', "A 'big' dog."),
    ("curly", "The “big” dog isn\u2019t here.", "A \u2018big\u2019 dog\u2019s bone."),
    ("nbsp", "A\u00a0dog\u00a0runs in the\u00a0park.", "The\u00a0dog runs."),
    ("blanks", "  A  dog   runs  in the park . ", "The   dog  runs ."),
    ("tab", "A\tdog runs", "The dog\truns"),
    ("combining", "A cafe\u0301 with a dog.", "The caf\u00e9 has a dog."),
    ("mark before", "The\u0301 dog runs.", "A dog runs\u0301."),
    ("article a", "A dog eats a pear.", "The dog eats the pear."),
    ("article an", "An old man eats an apple.", "An old man has the apple."),
    ("article both", "An orange cat sleeps.", "A cat, an orange cat."),
    ("twice", "A dog chases a dog past the dog.", "The dog and a dog."),
    ("upper", "A DOG BARKS AT A MAN", "The dog sees a man"),
    ("title", "The Big Dog Runs", "the big dog"),
    ("mixed", "An iPhone lies here.", "The iPhone is new."),
    ("ing 1", "A boy in a red shirt playing near the water.", "A boy playing."),
    ("ing 2", "A man standing.", "The man standing there."),
    ("ing 3", "Two dogs running on the beach.", "Some dogs running."),
    ("ing 4", "A woman in a hat smiling at the camera", "The woman smiling"),
    ("ing 5", "Children jumping into a pool.", "Two children jumping."),
    ("clitics", "The man can't, won't and shouldn't run.", "A man cannot run."),
    ("odd words", "The boxer KO'ed the man by e-mail.", "A boxer KO'ed a man."),
    ("unicode", "A naïve man — 猫 — met a dog…", "The naïve dog met a man 🙂."),
    ("dots", "A dog ... runs... away", "The dog runs . . ."),
    ("url", "A man at http://a.b/c?d=dog&e likes a dog.", "A dog and a man @ dog.com"),
    ("percent", "50% of a cake, $3.20 a cake!", "The cake costs 3%?!"),
    ("nothing", "It is so.", "They were there."),
    ("long", "A man " + "and a man " * 40 + "sing.", "The man sings."),
]
PAIRS = [Pair(name, p, h, Label.NEUTRAL) for name, p, h in TEXTS]

SCRIPT = (
    "cat horse owl apple dog men violin girl table cats horses children "
    "dancing sitting running eats sees jumps jump dance "
    "blue tall old orange green is two quickly Bob London TV ##s [MASK] . 1"
)


@dataclass(frozen=True)
class Made:
    seeds: list[Seed]
    kept: list[Replacement]
    funnel: Counter[tuple[str, str, str, str]]

    def of(self, *names: str) -> list[Replacement]:
        return [r for r in self.kept if r.seed in names]

    def texts(self, record: Replacement) -> tuple[str, str]:
        (pair,) = [s.pair for s in self.seeds if s.pair.id == record.seed]
        spans = record.premise_spans, record.hypothesis_spans
        return variant_texts(pair, record.replacement, *spans)

    def words(self, name: str) -> set[str]:
        return {r.word for r in self.of(name)}


def make(pairs: Sequence[Pair], lms: Sequence[Any], preset: Preset = PRESETS["faithful"]) -> Made:
    seeds = tagged_seeds(pairs, load_tagger())
    slots, funnel = slots_of(seeds, preset.targets)
    for lm in lms:
        if isinstance(lm, MaskedSource):
            rows = ask(seeds, slots, lm, preset.propose)
            lm.compute([query for row in rows for one in row for query in one.queries])
    kept, more = variants_of(seeds, slots, lms, preset, load_tagger())
    return Made(seeds, kept, funnel + more)


@pytest.fixture(scope="module")
def made(toy: SimpleNamespace) -> Made:
    found = make(PAIRS, [toy.lm("scripted", toy.says(SCRIPT))])
    assert len(found.kept) > 300
    return found


FAMILIES = [
    ("bert", False),
    ("bert", True),
    ("roberta", True),
    ("modernbert", True),
    ("xlm-roberta", True),
    ("albert", False),
    ("deberta-v2", True),
]


@pytest.fixture(scope="module")
def sources(tiny: Tiny, toy: SimpleNamespace) -> Callable[..., MaskedSource]:
    def load(family: str, cased: bool = False, without: str = "", **options: Any) -> MaskedSource:
        known = [w.text for _, p, h in TEXTS for s in (p, h) for w in words(s)] + SCRIPT.split()
        known = [w for w in dict.fromkeys(known) if w.lower() not in without.split()]
        name = str(tiny("masked", family, " ".join(known[:400]), cased=cased))

        def open_cache(fingerprint: Any, k: int, schema: Any) -> Any:
            cache = toy.cache()
            cache.schema = schema
            return cache

        return MaskedSource(name, family, "fp32", 10_000, open_cache, device="cpu", **options)

    return load


@pytest.fixture(
    scope="module", params=FAMILIES, ids=lambda f: f"{f[0]}-{'' if f[1] else 'un'}cased"
)
def tiny_made(request: pytest.FixtureRequest, sources: Callable[..., MaskedSource]) -> Made:
    found = make(PAIRS, [sources(*request.param)])
    assert len({r.seed for r in found.kept}) > 12
    return found


def sound(made: Made) -> None:
    """What holds for every variant of every masked LM."""
    by_id = {seed.pair.id: seed for seed in made.seeds}
    for record in made.kept:
        seed = by_id[record.seed]
        assert record.pos in CLASSES
        assert re.fullmatch(r"[^\W\d_]+(-[^\W\d_]+)*", record.replacement)
        assert record.replacement == record.replacement.lower()
        everything = {fold(w.text) for _, tokens, _ in seed.sides() for w in tokens}
        assert fold(record.replacement) not in everything
        spans = (record.premise_spans, record.hypothesis_spans)
        for (text, tokens, _), mine, after in zip(
            seed.sides(), spans, made.texts(record), strict=True
        ):
            # All occurrences, whole words each, and nothing else.
            assert list(mine) == [(w.start, w.end) for w in tokens if fold(w.text) == record.word]
            at, rest = 0, after
            for start, end in mine:
                assert rest.startswith(text[at:start])
                rest = rest[start - at :]
                written = match_case(case_pattern(text[start:end]), record.replacement)
                assert written is not None
                assert rest.startswith(written)
                assert case_pattern(written) == case_pattern(text[start:end])
                rest, at = rest[len(written) :], end
            assert rest == text[at:]
            for before, word in pairwise(tokens):
                if (word.start, word.end) in mine:
                    assert not article_clash(before.text, record.replacement)


def test_every_variant_is_sound(made: Made) -> None:
    sound(made)


def test_every_variant_of_every_tokenizer_family_is_sound(tiny_made: Made) -> None:
    sound(tiny_made)
    # Kind 3: a mark, a piece or a special token in a text that had none.
    for record in tiny_made.kept:
        both = "".join(tiny_made.texts(record))
        assert not re.search(r"Ġ|▁|##|\[MASK\]|<mask>|\[UNK\]|<unk>|�", both)


def test_01_each_side_is_edited_by_its_own_offsets(made: Made) -> None:
    dogs = [r for r in made.of("separator") if r.word == "dog" and r.replacement == "horse"]
    assert [made.texts(r) for r in dogs] == [
        ("A horse >>>> a cat </s/> runs || here.", "The horse || a cat >>>> there.")
    ]


def test_02_first_last_and_before_the_full_stop(made: Made) -> None:
    assert ("Cats run in the park.", "Cats run outside.") in map(made.texts, made.of("first"))
    assert ("A man plays the violin", "Nobody plays the violin") in map(made.texts, made.of("last"))
    assert ("The man is playing a violin.", "A woman has a violin.") in map(
        made.texts, made.of("stop")
    )


def test_02_first_words_of_every_family(tiny_made: Made) -> None:
    assert "dogs" in tiny_made.words("first")
    assert tiny_made.words("last") | tiny_made.words("stop")


def test_04_a_target_that_splits_is_skipped_with_its_reason(
    sources: Callable[..., MaskedSource],
) -> None:
    for family, cased in FAMILIES:
        lm = sources(family, cased, without="guitar")
        found = make([p for p in PAIRS if p.id in ("last", "stop")], [lm])
        assert "guitar" not in found.words("last") | found.words("stop")
        assert found.funnel["slot", family, "NOUN", "split"] >= 2


def test_05_work_is_bounded_by_the_occurrences(sources: Callable[..., MaskedSource]) -> None:
    lm = sources("roberta")
    seeds = tagged_seeds(PAIRS, load_tagger())
    slots = [shared_slots(seed, PRESETS["faithful"].targets)[0] for seed in seeds]
    rows = ask(seeds, slots, lm, ProposeOptions())
    places = sum(len(slot.places()) for mine in slots for slot in mine)
    assert sum(len(one.queries) for row in rows for one in row) <= places
    # Kind 15: one mask in each.
    mask = lm.tokenizer.tokenizer.mask_token_id
    for row in rows:
        for one in row:
            assert all(query.ids.count(mask) == 1 for query in one.queries)
            assert all(isinstance(query, Query) for query in one.queries)


def test_06_an_unknown_tag_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = {tag: value for tag, value in tagger_module._C5.items() if tag != "NN1"}
    monkeypatch.setattr(tagger_module, "_C5", fewer)
    with pytest.raises(InputError, match=r"^hanta: tag 'NN1' is not in the table of known tags"):
        tagger_module._Hanta()


def test_06_zero_yield_has_a_funnel(made: Made, toy: SimpleNamespace) -> None:
    assert made.of("nothing") == []
    found = make(PAIRS[:5], [toy.lm("dull", toy.says("quickly two is ##s"))])
    assert found.kept == []
    reasons = Counter(fate for (unit, *_, fate) in found.funnel.elements() if unit == "variant")
    assert set(reasons) <= {"word_class", "article"}
    assert reasons["word_class"] > 5


def test_07_one_tokenization_feeds_everything(made: Made) -> None:
    for seed in made.seeds:
        for text, tokens, tags in seed.sides():
            assert len(tokens) == len(tags)
            assert all(fold(text[w.start : w.end]) == fold(w.text) for w in tokens)
    assert {"boxer", "man"} <= made.words("odd words")
    assert not made.words("odd words") & {"ko", "ed", "e", "mail"}
    assert not made.words("clitics") & {"can", "won", "shouldn", "t", "not"}


def test_08_nothing_but_the_span_changes(made: Made) -> None:
    expected = {
        "abbreviation": (
            "The U.S. team don't win the table.",
            "The U.S. team won't lose the table.",
        ),
        "group": ("A girl (group) rides a horse (brown).", "The horse (brown) and a girl."),
        "decimal": ("The cat ate 1.1 pounds of meat.", "A cat ate 2.50 pounds of meat, i.e. meat."),
        "nbsp": ("A\u00a0cat\u00a0runs in the\u00a0park.", "The\u00a0cat runs."),
        "blanks": ("  A  cat   runs  in the park . ", "The   cat  runs ."),
        "tab": ("A\tcat runs", "The cat\truns"),
        "possessive": ("A man's cat sleeps.", "The man's cat is old."),
        "plural possessive": ("The cats' owner sleeps.", "The cats' owner is here."),
        "quotes": ('The "tall" dog barks.', "A 'tall' dog."),
        "curly": (
            "The “big” cat isn\u2019t here.",
            "A \u2018big\u2019 cat\u2019s bone.",
        ),
        "combining": ("A table with a dog.", "The table has a dog."),
        "upper": ("A CAT BARKS AT A MAN", "The cat sees a man"),
        "title": ("The Tall Dog Runs", "the tall dog"),
        "dots": ("A cat ... runs... away", "The cat runs . . ."),
        "unicode": ("A naïve girl — 猫 — met a dog…", "The naïve dog met a girl 🙂."),
        "url": ("A girl at http://a.b/c?d=dog&e likes a dog.", "A dog and a girl @ dog.com"),
        "percent": ("50% of a table, $3.20 a table!", "The table costs 3%?!"),
        "hyphen": (
            "A well-known girl has a dog-walker.",
            "The well-known girl meets a dog-walker.",
        ),
        "shirt": ("A girl in a T-shirt smiles.", "The girl wears a T-shirt."),
    }
    for name, texts in expected.items():
        assert texts in map(made.texts, made.of(name)), name


def test_08_hyphenated_words_are_replaced_whole(made: Made) -> None:
    assert {"well-known", "man", "dog-walker"} == made.words("hyphen")
    assert made.words("shirt") == {"boy", "t-shirt"}
    assert "mixed_case" in {fate for (unit, *_, fate) in made.funnel if unit == "word"}


def test_09_a_mask_token_is_never_emitted_and_refused_in_an_input(
    made: Made, sources: Callable[..., MaskedSource]
) -> None:
    for record in made.kept:
        assert "[" not in "".join(made.texts(record))
    bad = [
        Pair("a", "A [MASK] runs", "The man", Label.NEUTRAL),
        Pair("b", "A man runs", "The <mask>", Label.NEUTRAL),
        Pair("c", "A man</s>runs", "The man", Label.NEUTRAL),
        Pair("d", "A man [SEP] runs", "The man", Label.NEUTRAL),
    ]
    bert, roberta = sources("bert"), sources("roberta")
    every = [*PAIRS, *bad]
    assert [pair.id for pair in refuse_marks(every, [bert])] == ["a", "b", "d"]
    assert [pair.id for pair in refuse_marks(every, [roberta])] == ["a", "b", "c"]
    assert [pair.id for pair in refuse_marks(every, [bert, roberta])] == ["a", "b", "c", "d"]


def test_10_names_are_not_touched(made: Made, tiny_made: Made) -> None:
    for found in (made, tiny_made):
        for record in found.of("name"):
            premise, hypothesis = found.texts(record)
            assert "Bob Smith-Jones met a" in premise or record.word == "met"
            assert "O'Hare" in premise
            assert hypothesis.startswith("Bob Smith-Jones ")
        for record in found.of("rare name"):
            assert all(text.startswith("Xochitl ") for text in found.texts(record))


def test_11_batches_are_under_a_budget(sources: Callable[..., MaskedSource]) -> None:
    small, large = sources("bert", token_budget=64), sources("bert")
    one, other = make(PAIRS[:20], [small]), make(PAIRS[:20], [large])
    assert small.work["forwards"] > 3 * large.work["forwards"]
    assert small.work["rows"] == large.work["rows"]
    assert [(r.seed, r.word, r.replacement) for r in one.kept] == [
        (r.seed, r.word, r.replacement) for r in other.kept
    ]


def test_12_nothing_depends_on_the_order_of_the_seeds(made: Made, toy: SimpleNamespace) -> None:
    turned = make(PAIRS[::-1], [toy.lm("scripted", toy.says(SCRIPT))])
    assert turned.funnel == made.funnel
    for name, *_ in TEXTS:
        mine, its = made.of(name), turned.of(name)
        assert [(r.variant, r.word, r.replacement) for r in mine] == [
            (r.variant, r.word, r.replacement) for r in its
        ]
        if len(mine) >= 4:
            draws = DrawOptions(n=4, draws=3)
            np.testing.assert_array_equal(
                drawn(name, "all", len(mine), draws), drawn(name, "all", len(its), draws)
            )


def test_13_no_gold_label_is_dropped_with_a_count(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": p.id, "premise": p.premise, "hypothesis": p.hypothesis, "label": "neutral"}
        for p in PAIRS
    ]
    rows += [{**rows[0], "id": f"no gold {n}", "label": label} for n, label in enumerate((-1, "-"))]
    path = tmp_path / "traps.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    reading = read_pairs(str(path))
    assert reading.pairs == tuple(PAIRS)
    assert reading.dropped == {"no gold label": 2}


def test_14_label_order_is_by_name(tiny: Tiny) -> None:
    text = "A man is playing"
    straight = load_classifier(str(tiny("classifier", "bert", text)), device="cpu")
    turned = load_classifier(
        str(tiny("classifier", "bert", text, labels=("CONTRADICTION", "Entailment", "neutral"))),
        device="cpu",
    )
    assert (straight.columns, turned.columns) == ([0, 1, 2], [1, 2, 0])
    with pytest.raises(InputError, match="pass --model-labels 0=entailment,1=neutral"):
        label_columns({n: f"LABEL_{n}" for n, _ in enumerate(LABELS)})


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("ing 1", "playing"),
        ("ing 2", "standing"),
        ("ing 3", "running"),
        ("ing 4", "smiling"),
        ("ing 5", "jumping"),
    ],
)
def test_16_ing_verbs_of_captions_are_verbs(made: Made, name: str, verb: str) -> None:
    (seed,) = [seed for seed in made.seeds if seed.pair.id == name]
    slots = {slot.word: slot.pos for slot in shared_slots(seed, PRESETS["faithful"].targets)[0]}
    assert slots[verb] == "VERB"
    mine = {r.replacement for r in made.of(name) if r.word == verb}
    assert "dancing" in mine
    assert not mine & {"cat", "table", "violin"}


def test_the_safe_preset_keeps_number_form_and_lemma(made: Made, toy: SimpleNamespace) -> None:
    safe = make(PAIRS, [toy.lm("scripted", toy.says(SCRIPT))], PRESETS["safe"])
    assert 0 < len(safe.kept) < len(made.kept)
    singular = {r.replacement for r in safe.kept if r.word in ("dog", "man", "guitar")}
    assert not singular & {"cats", "horses", "men", "children"}
    assert {r.replacement for r in safe.of("first") if r.word == "dogs"} >= {"cats", "horses"}
    # "men" is the plural of another word of these pairs.
    assert "men" in {r.replacement for r in made.of("upper", "stop", "group")}
    assert "men" not in {r.replacement for r in safe.of("upper", "stop", "group")}
    sound(safe)
