"""TIME-STRATIFIED and CONTROL: equal sizes, the same test set, and every kind of leak."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triaxial.errors import InputError
from triaxial.temporal.corpus import Bin, Document, bin_of, month_name, month_of
from triaxial.temporal.splits import (
    Entry,
    Split,
    SplitOptions,
    cutoff,
    evaluation_bins,
    gap_series,
    make_splits,
    part_counts,
    shifted,
    time_stratified,
    validate_splits,
)

OPTIONS = SplitOptions("2018-01", "2018-06", per_month=5)


def corpus(months: dict[str, int] | None = None, words: int = 10) -> list[Entry]:
    """So many documents in each month; by default 20 in each of 2016-01 to 2018-06."""
    first = month_of("2016-01")
    months = months or {month_name(first + n): 20 for n in range(30)}
    return [
        Entry(f"{month}/{n:03d}", f"{month}-{n % 28 + 1:02d}", words + n)
        for month, count in months.items()
        for n in range(count)
    ]


def months_of(ids: tuple[str, ...]) -> Counter[str]:
    return Counter(name[:7] for name in ids)


def refusal(call: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_the_papers_protocol_by_hand() -> None:
    stratified, control = make_splits(corpus(), OPTIONS)
    assert (stratified.name, control.name) == ("time-stratified", "control")
    # Training to 2017-09: 21 months of 20; validation 2017-10 to 2017-12; 5 of each test month.
    assert months_of(stratified.train) == {
        month_name(month_of("2016-01") + n): 20 for n in range(21)
    }
    assert months_of(stratified.valid) == {"2017-10": 20, "2017-11": 20, "2017-12": 20}
    assert months_of(stratified.test) == {f"2018-{m:02d}": 5 for m in range(1, 7)}
    assert control.test == stratified.test
    # The test leaves 15 x 6 = 90: a tenth of them, 9, for validation, and the month with the
    # fewest then has at most 15. The same number of each, and the rest of 420 from 2017-12 on.
    assert len(control.valid) == 9
    assert set(months_of(control.valid)) <= {f"2018-{m:02d}" for m in range(1, 7)}
    counts = months_of(control.train)
    each = 15 - max(months_of(control.valid).values())
    assert {counts[f"2018-{m:02d}"] for m in range(1, 7)} == {each}
    assert len(control.train) == 420
    missing = 420 - 6 * each
    before = {m: c for m, c in counts.items() if m < "2018"}
    assert before == {
        month_name(month_of("2017-12") - n): min(20, missing - 20 * n)
        for n in range(-(-missing // 20))
    }


# CONTROL on random corpora.

MONTHS = st.lists(st.integers(0, 9), min_size=14, max_size=14)


@settings(max_examples=150, deadline=None)
@given(
    MONTHS,
    st.sampled_from(["month", "quarter", "year"]),
    st.sampled_from(["document", "group"]),
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(1, 40)),
    st.randoms(use_true_random=False),
)
def test_control_is_equal_in_size_and_leaks_nothing(
    counts: list[int], kind: Bin, unit: Any, per_bin: int, size: int | None, order: random.Random
) -> None:
    first = month_of("2017-05")
    entries = [
        replace(entry, group=entry.date[:7] + str(order.randrange(3)))
        for entry in corpus({month_name(first + n): count for n, count in enumerate(counts)})
    ]
    options = SplitOptions(
        "2018-01", "2018-06", per_bin, gap=3, valid_months=2, size=size, bin=kind, unit=unit
    )
    try:
        splits = make_splits(entries, options)
    except InputError as error:
        seen = str(error)
        # Nothing to train on, nothing to validate on, or a bin that the test took whole.
        wanted = ["corpus ", "no document", "no training", "CONTROL has"]
        assert any(reason in seen for reason in wanted), seen
        return
    stratified, control = splits
    assert len(stratified.train) == len(control.train) == min(size or 999, len(stratified.train))
    assert stratified.test == control.test
    assert all(name[:7] < "2017-10" for name in stratified.train)
    assert all("2017-10" <= name[:7] < "2017-12" for name in stratified.valid)
    for split in splits:
        parts = [set(split.train), set(split.valid), set(split.test)]
        assert len(set.union(*parts)) == sum(map(len, parts))
        if unit == "group":
            of = {entry.id: entry.group for entry in entries}
            groups = [{of[name] for name in part} for part in parts]
            assert len(set.union(*groups)) == sum(map(len, groups))
    tested = {bin_of(name, kind) for name in control.test}
    held = Counter(bin_of(name, kind) for name in control.train if name >= "2018")
    assert len({held[b] for b in tested}) == 1
    assert set(held) <= tested
    assert all(name[:7] >= "2018-01" for name in control.valid)
    assert max(Counter(bin_of(name, kind) for name in control.test).values()) <= per_bin
    assert set(validate_splits(entries, splits, options)) == set(evaluation_bins(options)) - tested
    order.shuffle(entries)
    assert make_splits(entries, options) == splits


def test_the_draws_depend_on_the_seed_alone() -> None:
    other = make_splits(corpus(), replace(OPTIONS, seed=2))
    assert other != make_splits(corpus(), OPTIONS)
    assert other[0].train == make_splits(corpus(), OPTIONS)[0].train
    # More training months change neither the test nor CONTROL's share of the test months.
    more = [*corpus(), *corpus({"2015-12": 9})]
    assert make_splits(more, OPTIONS)[1].test == make_splits(corpus(), OPTIONS)[1].test


def test_a_cap_keeps_the_latest_documents() -> None:
    stratified, control = make_splits(corpus(), replace(OPTIONS, size=50))
    assert months_of(stratified.train) == {"2017-09": 20, "2017-08": 20, "2017-07": 10}
    # Of the oldest month the latest days; 50 // 6 = 8 of each test month and 2 of 2017-12.
    assert {name for name in stratified.train if name < "2017-08"} == {
        f"2017-07/{n:03d}" for n in range(10, 20)
    }
    assert sorted(months_of(control.train).values()) == [2, 8, 8, 8, 8, 8, 8]
    # 300 words: each has 100, and a fourth would not fit.
    entries = [Entry(f"{n:02d}", "2017-01", 100) for n in range(9)] + corpus({"2018-06": 20})
    entries += corpus({"2017-10": 1})
    words = SplitOptions("2018-06", "2018-06", 5, gap=8, valid_months=8, size=350, size_in="words")
    assert len(make_splits(entries, words)[0].train) == 3
    # Documents of one date are drawn: not always the first or the last ids.
    drawn = {make_splits(entries, replace(words, seed=seed))[0].train for seed in range(5)}
    assert len(drawn) > 1


def test_validation_is_drawn_up_to_a_cap() -> None:
    stratified, control = make_splits(corpus(), replace(OPTIONS, valid=4))
    assert (len(stratified.valid), len(control.valid)) == (4, 4)
    none = make_splits(corpus(), replace(OPTIONS, valid_months=0))
    assert [split.valid for split in none] == [(), ()]


def test_groups_are_not_divided_and_what_is_left_of_one_is_unused() -> None:
    # Three editions a month of 13 documents.
    entries = [
        Entry(f"2017-{m:02d}-{e}{n:02d}", f"2017-{m:02d}-0{e}", 5, f"2017-{m:02d}-0{e}")
        for m in range(1, 13)
        for e in (1, 2, 3)
        for n in range(13)
    ]
    options = SplitOptions("2017-11", "2017-12", 10, gap=1, valid_months=1, unit="group")
    splits = make_splits(entries, options)
    assert months_of(splits[0].test) == {"2017-11": 10, "2017-12": 10}
    assert len({name[:9] for name in splits[0].test}) == 2
    used = {name for split in splits for name in (*split.train, *split.valid)}
    editions = {name[:9] for name in splits[0].test}
    assert not [name for name in used if name[:9] in editions]
    assert validate_splits(entries, splits, options) == ()


def test_shifted_years_and_gaps() -> None:
    assert shifted(OPTIONS, 2) == replace(OPTIONS, test_from="2016-01", test_to="2016-06")
    assert cutoff(OPTIONS) == month_of("2017-10")
    assert cutoff(replace(OPTIONS, gap=13)) == month_of("2016-12")
    assert cutoff(shifted(OPTIONS, 1)) == month_of("2016-10")
    series = gap_series(corpus(), replace(OPTIONS, valid=30), step=6, times=3)
    assert [options.gap for options in series] == [3, 9, 15, 21]
    # Before 2016-04 there are 60 documents: the size of all. Validation has 60 in each case.
    assert {(options.size, options.valid) for options in series} == {(60, 30)}
    splits = [make_splits(corpus(), options) for options in series]
    assert len({control for _, control in splits}) == 1
    assert [max(months_of(one.train)) for one, _ in splits] == [
        "2017-09",
        "2017-03",
        "2016-09",
        "2016-03",
    ]
    seen = refusal(gap_series, corpus(), OPTIONS, step=6, times=4)
    assert seen.startswith("--test-from, --test-to: the corpus is of 2016-01 to 2018-06; wanted a")
    assert refusal(gap_series, corpus(), replace(OPTIONS, size=9, size_in="words")) == (
        "sets of one size in words have no one size; pass the size in documents"
    )


def test_counts_by_bin_and_a_month_without_documents() -> None:
    months = {f"2017-{m:02d}": 4 for m in range(1, 13)} | {"2018-01": 10, "2018-03": 9}
    options = replace(OPTIONS, test_to="2018-03", per_month=2)
    splits = make_splits(corpus(months), options)
    rows = part_counts(corpus(months), splits, options)
    test = [(r.split, r.bin, r.documents) for r in rows if r.part == "test"]
    counts = [("2018-01", 2), ("2018-02", 0), ("2018-03", 2)]
    assert test == [(name, *count) for name in ("time-stratified", "control") for count in counts]
    words = {entry.id: entry.words for entry in corpus(months)}
    for split in splits:
        mine = [row for row in rows if row.split == split.name and row.part == "train"]
        assert sum(row.documents for row in mine) == len(split.train)
        assert sum(row.words for row in mine) == sum(words[name] for name in split.train)
    assert validate_splits(corpus(months), splits, options) == ("2018-02",)
    assert refusal(validate_splits, corpus(months), splits, options, refuse_empty=True) == (
        "no test document in 2018-02; move the test period or widen --bin"
    )


# What cannot be split.


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ({"test_to": "2018-13"}, "--test-from, --test-to: '2018-01 2018-13' are not two months in"),
        ({"test_to": "2017-12"}, "--test-from, --test-to: '2018-01 2017-12' are not two months in"),
        ({"gap": 2}, "--valid-months: 3 months of validation in a gap of 2; wanted 0 to 2"),
        ({"valid_months": -1}, "--valid-months: -1 months of validation in a gap of 3; wanted 0"),
        ({"per_month": 0}, "--per-month: 0; wanted at least 1"),
        ({"size": 0}, "--size: 0; wanted at least 1"),
        ({"valid": 0}, "--valid: 0; wanted at least 1"),
        (
            {"test_to": "2018-07"},
            "--test-from, --test-to: the corpus is of 2016-01 to 2018-06; wanted a test to "
            "2018-07 and training before 2017-10: move the test period",
        ),
        ({"gap": 24}, "--test-from, --test-to: the corpus is of 2016-01 to 2018-06; wanted a"),
        ({"per_month": None}, "--per-month: no document of 2018-01 is left for CONTROL; lower it"),
        ({"unit": "group"}, "--unit: the document '2016-01/000' has no group; name one, or split"),
        ({"size": 1, "size_in": "words"}, "no training document before 2017-10; choose a smaller"),
    ],
)
def test_what_cannot_be_split_is_refused(change: dict[str, Any], seen: str) -> None:
    assert refusal(make_splits, corpus(), replace(OPTIONS, **change)).startswith(seen)


def test_corpora_that_do_not_reach() -> None:
    assert refusal(make_splits, [], OPTIONS).startswith("the corpus has no document; check how it")
    twice = [*corpus(), Entry("2016-01/007", "2016-05", 3)]
    assert refusal(make_splits, twice, OPTIONS) == (
        "the id '2016-01/007' stands 2 times; give each document its own"
    )
    months = {"2017-01": 9, "2017-10": 9, "2018-07": 9}
    assert refusal(make_splits, corpus(months), OPTIONS) == (
        "--test-from, --test-to: no document in the test months; move the test period"
    )
    months = {"2017-01": 9, "2018-01": 9, "2018-06": 9}
    assert refusal(make_splits, corpus(months), OPTIONS) == (
        "no document of the validation months 2017-10 to 2017-12; choose other ones with --gap, "
        "--valid-months or 0"
    )


def test_groups_of_the_test_may_leave_control_too_little() -> None:
    # "a" is tested in 2018-02: with it go its documents of 2018-01 and before.
    entries = [replace(e, group="a") for e in corpus({"2017-12": 20, "2018-02": 20})]
    entries += [replace(e, group="b") for e in corpus({"2017-11": 9})]
    entries += [replace(e, group=f"{e.id}") for e in corpus({"2018-01": 12})]
    options = SplitOptions("2018-01", "2018-02", 5, gap=1, valid_months=0, unit="group")
    one = time_stratified(entries, options)
    assert months_of(one.train) == {"2017-11": 9}
    seen = refusal(make_splits, entries, options)
    assert seen.startswith("--per-month: no document of 2018-02 is left for CONTROL; lower it")


def test_control_may_lack_what_the_other_trains_on() -> None:
    # "a" is drawn for CONTROL's validation, and so lost to its training.
    entries = [replace(e, group="a") for e in corpus({"2017-11": 60})]
    entries += [replace(e, group="b") for e in corpus({"2018-01": 10})]
    entries += [replace(e, group="a") for e in corpus({"2018-02": 3})]
    entries += [replace(e, group=e.id) for e in corpus({"2017-12": 2, "2018-03": 2})]
    options = SplitOptions("2018-01", "2018-03", 1, 1, 1, bin="quarter", unit="group")
    faults = [
        refusal(make_splits, entries, replace(options, seed=seed))
        for seed in range(60)
        if _fails(entries, replace(options, seed=seed))
    ]
    assert any("CONTROL has" in fault and fault.endswith("; lower --size") for fault in faults)


def _fails(entries: list[Entry], options: SplitOptions) -> bool:
    try:
        make_splits(entries, options)
    except InputError:
        return True
    return False


def test_all_of_the_test_months_without_control() -> None:
    one = time_stratified(corpus(), replace(OPTIONS, per_month=None))
    assert len(one.test) == 120
    assert one.train == make_splits(corpus(), OPTIONS)[0].train


# Leaks.


def texts() -> list[Document]:
    return [
        Document(e.id, e.date, " ".join(f"{e.id}w{k}" for k in range(40)), "s") for e in corpus()
    ]


def changed(splits: tuple[Split, Split], name: str, **parts: Any) -> list[Split]:
    return [replace(split, **parts) if split.name == name else split for split in splits]


def test_no_leak_in_what_was_made() -> None:
    splits = make_splits(corpus(), OPTIONS)
    vocabulary = {split.name: split.train[::2] for split in splits}
    found = validate_splits(corpus(), splits, OPTIONS, documents=texts(), vocabulary=vocabulary)
    assert found == ()


@pytest.mark.parametrize("name", ["time-stratified", "control"])
def test_every_leak_between_parts_is_one_line(name: str) -> None:
    splits = make_splits(corpus(), OPTIONS)
    mine = next(split for split in splits if split.name == name)
    again = "; make the splits again"
    test, valid, train = mine.test[0], mine.valid[0], mine.train[0]
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"train": (test, *mine.train[1:])},
            f"the test document {test!r} is a training document too{again}",
        ),
        (
            {"valid": (*mine.valid, train)},
            f"the validation document {train!r} is a training document too{again}",
        ),
        (
            {"test": (*mine.test, valid)},
            f"the test document {valid!r} is a validation document too{again}",
        ),
        (
            {"train": (*mine.train[:-1], "other")},
            f"the training document 'other' is not in the corpus{again}",
        ),
        (
            {"train": (*mine.train, train)},
            f"the training document {train!r} is a training document too{again}",
        ),
    ]
    for parts, message in cases:
        seen = refusal(validate_splits, corpus(), changed(splits, name, **parts), OPTIONS)
        # Of a training document in the test months, that TIME-STRATIFIED trains on it comes first.
        late = f"the training document {test!r} is of "
        assert seen == f"{name}: {message}" or seen.startswith(f"{name}: {late}")


def test_the_cut_off_is_a_month_and_training_ends_before_it() -> None:
    splits = make_splits(corpus(), OPTIONS)
    unused = {entry.id for entry in corpus({"2017-10": 20})} - {splits[0].valid[0]}
    valid = splits[0].valid[:1]
    for bad in (min(unused), valid[0]):
        parts = {"train": (*splits[0].train[1:], bad), "valid": ()}
        seen = refusal(validate_splits, corpus(), changed(splits, splits[0].name, **parts), OPTIONS)
        assert seen.startswith(f"time-stratified: the training document {bad!r} is of 2017-10-")
        assert seen.endswith(", not before the cut-off 2017-10; make the splits again")
    # CONTROL may train on the test months, and on nothing after them.
    later = [*corpus(), Entry("late", "2018-07", 5)]
    parts = {"train": (*splits[1].train[1:], "late")}
    seen = refusal(validate_splits, later, changed(splits, "control", **parts), OPTIONS)
    assert seen.startswith("control: the training document 'late' is of 2018-07, not before the")


def test_test_sets_and_sizes_must_be_the_same() -> None:
    splits = make_splits(corpus(), OPTIONS)
    fewer = changed(splits, "control", train=splits[1].train[1:])
    assert refusal(validate_splits, corpus(), fewer, OPTIONS) == (
        "control: 419 training documents, not 420 as in time-stratified; make both in one call"
    )
    other = changed(splits, "control", test=splits[1].test[1:])
    assert refusal(validate_splits, corpus(), other, OPTIONS) == (
        "control: its test set is not that of time-stratified; make both in one call"
    )
    early = splits[0].train[0]
    moved = changed(splits, "time-stratified", train=splits[0].train[1:], test=(early,))
    assert refusal(validate_splits, corpus(), moved, OPTIONS) == (
        f"time-stratified: the test document {early!r} is of 2016-01-01, not of 2018-01 to "
        "2018-06; make the splits again"
    )


def test_groups_in_two_parts_are_found() -> None:
    entries = [replace(entry, group=entry.date) for entry in corpus()]
    options = replace(OPTIONS, unit="group")
    splits = make_splits(entries, options)
    assert validate_splits(entries, splits, options) == ()
    test = splits[0].test[0]
    twin = next(e for e in entries if e.id == test)
    entries.append(Entry("twin", twin.date, 5, twin.group))
    bad = changed(splits, "control", train=("twin", *splits[1].train[1:]))
    assert refusal(validate_splits, entries, bad, options) == (
        f"control: the test document {test!r} is of the group {twin.group!r} of the training "
        "document 'twin'; make the splits again"
    )


@pytest.mark.parametrize("part", ["train", "valid"])
@pytest.mark.parametrize("name", ["time-stratified", "control"])
def test_copies_and_near_copies_of_test_documents_are_found(name: str, part: str) -> None:
    splits = make_splits(corpus(), OPTIONS)
    mine = next(split for split in splits if split.name == name)
    bad = getattr(mine, part)[-1]
    holder = [split.name for split in splits if bad in (*split.train, *split.valid)][-1]
    test = mine.test[3]
    documents = {document.id: document for document in texts()}
    documents[bad] = replace(documents[bad], text=documents[test].text)
    seen = refusal(validate_splits, corpus(), splits, OPTIONS, documents=list(documents.values()))
    assert seen == (
        f"{holder}: the test document {test!r} is a copy of {bad!r} (similarity 1.00); remove "
        "duplicates before splitting"
    )
    # Without the last of 40 words, 35 of 36 shingles are left: .97.
    near = documents[test].text.rsplit(" ", 1)[0]
    documents[bad] = replace(documents[bad], text=near)
    seen = refusal(validate_splits, corpus(), splits, OPTIONS, documents=list(documents.values()))
    assert f"is a near-duplicate of {bad!r} (similarity 0.9" in seen


def test_a_tokenizer_sees_the_training_documents_of_its_split_alone() -> None:
    splits = make_splits(corpus(), OPTIONS)
    for split, bad in [(splits[0], splits[0].test[0]), (splits[1], splits[1].test[0])]:
        seen = refusal(validate_splits, corpus(), splits, OPTIONS, vocabulary={split.name: [bad]})
        assert seen.startswith(f"{split.name}: its tokenizer was trained on {bad!r} of 2018-01-")
        assert seen.endswith(
            "which is no training document; train it on the training documents alone"
        )
    # CONTROL's training documents of the test months are not TIME-STRATIFIED's.
    late = next(name for name in splits[1].train if name > "2018")
    seen = refusal(validate_splits, corpus(), splits, OPTIONS, vocabulary={splits[0].name: [late]})
    assert seen.startswith(f"time-stratified: its tokenizer was trained on {late!r} of 2018-")
    unknown = refusal(validate_splits, corpus(), splits, OPTIONS, vocabulary={"control": ["wiki"]})
    assert unknown.startswith("control: its tokenizer was trained on 'wiki', which is no training")
