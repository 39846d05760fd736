"""TIME-STRATIFIED and CONTROL: two training sets of one size for one test set, and their leaks.

TIME-STRATIFIED trains on what was written before a cut-off, CONTROL on documents of the test
months as well: their difference on the shared test set is what staleness costs. A document is in
one part of a split or in none; so is a group, where documents are grouped (an edition, a source).

Source: Lazaridou et al. 2021 (1,000 test documents a month; three months of validation between
training and test; CONTROL from the end of the evaluation period backwards, the same number from
each test month, equal size; test years shifted back, training ends pushed back).
Choice: a capped training set keeps its latest documents; validation months follow on training.
Choice: CONTROL's validation set has the size of the other's, but at most a tenth of what the test
leaves of the evaluation period; where the test months hold too little for the equal size, CONTROL
goes on backwards from before them.
Choice: within a bin, and among documents of one date, the draw is random, whatever their order.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from triaxial.errors import InputError
from triaxial.stats import generator
from triaxial.temporal.corpus import Bin, Document, bin_of, month_name, month_of
from triaxial.temporal.dedup import DedupOptions, near_duplicates_between

__all__ = [
    "CONTROL",
    "TIME_STRATIFIED",
    "Entry",
    "PartCount",
    "Split",
    "SplitOptions",
    "cutoff",
    "evaluation_bins",
    "gap_series",
    "make_splits",
    "part_counts",
    "shifted",
    "time_stratified",
    "validate_splits",
]

TIME_STRATIFIED = "time-stratified"
CONTROL = "control"
_SHARE = 10  # a tenth


@dataclass(frozen=True, slots=True)
class Entry:
    """What a split needs of a document: no text; the group where groups are not divided."""

    id: str
    date: str
    words: int
    group: str = ""


@dataclass(frozen=True, slots=True)
class Split:
    """Document ids of the parts, each in the order of (date, id)."""

    name: str
    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """Which months are tested, and what is trained on.

    Args:
        test_from: First month of the test, "YYYY-MM".
        test_to: Last month of the test.
        per_month: Test documents of each bin (a month, by default), or `None` for all: then
            nothing is left for CONTROL. Source: 1,000.
        gap: Months between the end of training and the test. Source: 3.
        valid_months: Months of validation, the first of the gap. Source: 3.
        size: Most documents or words in training; `None` is all.
        size_in: What `size` counts.
        valid: Most documents of a validation set; `None` is all.
        bin: Span of time that gets the same number of documents; a wider one for corpora whose
            months are uneven.
        unit: Whether groups may be divided between parts ("document") or not ("group").
        seed: Of the draws.
    """

    test_from: str
    test_to: str
    per_month: int | None = 1000
    gap: int = 3
    valid_months: int = 3
    size: int | None = None
    size_in: Literal["documents", "words"] = "documents"
    valid: int | None = None
    bin: Bin = "month"
    unit: Literal["document", "group"] = "document"
    seed: int = 1


@dataclass(frozen=True, slots=True)
class PartCount:
    """Documents and words of a part of a split in one bin."""

    split: str
    part: str
    bin: str
    documents: int
    words: int


def make_splits(entries: Iterable[Entry], options: SplitOptions) -> tuple[Split, Split]:
    """TIME-STRATIFIED and CONTROL: the same test set, training sets of as many documents.

    Args:
        entries: Of the whole corpus, in any order.
        options: Of both.

    Raises:
        InputError: The options contradict each other or the corpus does not reach.
    """
    found = _Pool(entries, options)
    test = found.test()
    stratified = found.stratified(test)
    return stratified, found.control(test, stratified)


def time_stratified(entries: Iterable[Entry], options: SplitOptions) -> Split:
    """TIME-STRATIFIED alone; arguments and errors as for `make_splits`."""
    found = _Pool(entries, options)
    return found.stratified(found.test())


def shifted(options: SplitOptions, years: int) -> SplitOptions:
    """The same test years earlier, training ending as much earlier."""
    first, last = month_of(options.test_from), month_of(options.test_to)
    back = 12 * years
    return replace(options, test_from=month_name(first - back), test_to=month_name(last - back))


def gap_series(
    entries: Iterable[Entry], options: SplitOptions, *, step: int = 6, times: int = 11
) -> tuple[SplitOptions, ...]:
    """The options themselves, then with training ending earlier and earlier, of one size.

    The size is what the earliest end leaves. Test set and CONTROL are the same for all.

    Args:
        entries: Of the whole corpus.
        options: With `size` in documents, if any.
        step: Months between two ends.
        times: How often training ends earlier.

    Raises:
        InputError: No document is left before the earliest end, or the size counts words.
    """
    if options.size_in != "documents":
        raise InputError("sets of one size in words have no one size; pass the size in documents")
    known = list(entries)
    series = [replace(options, gap=options.gap + step * n) for n in range(times + 1)]
    parts = [time_stratified(known, one) for one in series]
    size = min(len(part.train) for part in parts)
    valid = min(len(part.valid) for part in parts)
    return tuple(replace(one, size=size, valid=valid or None) for one in series)


def cutoff(options: SplitOptions) -> int:
    """The first month, as of `month_of`, that TIME-STRATIFIED does not train on."""
    return month_of(options.test_from) - options.gap


def evaluation_bins(options: SplitOptions) -> tuple[str, ...]:
    """The bins of the test period in order, whether they hold documents or not."""
    months = range(month_of(options.test_from), month_of(options.test_to) + 1)
    return tuple(dict.fromkeys(bin_of(month_name(month), options.bin) for month in months))


def part_counts(
    entries: Iterable[Entry], splits: Sequence[Split], options: SplitOptions
) -> tuple[PartCount, ...]:
    """Documents and words of every part by bin; a test bin without documents stands there with 0.

    The arguments are those of `validate_splits`.
    """
    of = {entry.id: entry for entry in entries}
    rows = []
    for split in splits:
        for part in ("train", "valid", "test"):
            held: dict[str, list[int]] = defaultdict(list)
            for name in getattr(split, part):
                held[bin_of(of[name].date, options.bin)].append(of[name].words)
            shown = evaluation_bins(options) if part == "test" else sorted(held)
            rows += [PartCount(split.name, part, b, len(held[b]), sum(held[b])) for b in shown]
    return tuple(rows)


def validate_splits(
    entries: Iterable[Entry],
    splits: Sequence[Split],
    options: SplitOptions,
    *,
    documents: Iterable[Document] | None = None,
    vocabulary: Mapping[str, Collection[str]] | None = None,
    dedup: DedupOptions | None = None,
    refuse_empty: bool = False,
) -> tuple[str, ...]:
    """Looks for every leak; an error names the first one found.

    Args:
        entries: Of the whole corpus.
        splits: TIME-STRATIFIED and CONTROL, or the first alone.
        options: The same as for making them.
        documents: Of the whole corpus, read four times; without them texts are not compared.
        vocabulary: Ids of the documents that a split's tokenizer was trained on, by name of split.
        dedup: What a near-duplicate is.
        refuse_empty: Whether a test bin without documents is an error.

    Returns:
        The test bins without documents.

    Raises:
        InputError: A training document after the cut-off; a test document (by id, group, text or
            near-duplicate) in training or validation; test sets or sizes that differ; a tokenizer
            that saw anything but training documents; an id that is not in the corpus.
    """
    of = {entry.id: entry for entry in entries}
    for split in splits:
        _check_split(split, of, options)
        _check_vocabulary(split, of, (vocabulary or {}).get(split.name, ()))
    for other in splits[1:]:
        if set(other.test) != set(splits[0].test):
            message = f"its test set is not that of {splits[0].name}; make both in one call"
            raise InputError(message, where=other.name)
        if len(other.train) != len(splits[0].train):
            seen = f"{len(other.train)} training documents, not {len(splits[0].train)} as in"
            message = f"{seen} {splits[0].name}; make both in one call"
            raise InputError(message, where=other.name)
    if documents is not None:
        _check_texts(splits, documents, dedup)
    filled = {bin_of(of[name].date, options.bin) for name in splits[0].test}
    empty = tuple(b for b in evaluation_bins(options) if b not in filled)
    if empty and refuse_empty:
        message = f"no test document in {', '.join(empty)}; move the test period or widen --bin"
        raise InputError(message)
    return empty


class _Pool:
    """The documents of a corpus in order, and what may be drawn from them."""

    def __init__(self, entries: Iterable[Entry], options: SplitOptions) -> None:
        _check_options(options)
        self.options = options
        self.entries = sorted(entries, key=_place)
        if not self.entries:
            raise InputError("the corpus has no document; check how it was read and filtered")
        (name, times), *_ = Counter(entry.id for entry in self.entries).most_common(1)
        if times > 1:
            raise InputError(f"the id {name!r} stands {times} times; give each document its own")
        lone = next((entry.id for entry in self.entries if not entry.group), None)
        if options.unit == "group" and lone is not None:
            message = f"the document {lone!r} has no group; name one, or split by document"
            raise InputError(message, where="--unit")
        self.first, self.last = month_of(options.test_from), month_of(options.test_to)
        begin, end = (month_of(self.entries[n].date) for n in (0, -1))
        if end < self.last or begin >= self.first - options.gap:
            wanted = (
                f"a test to {options.test_to} and training before {month_name(cutoff(options))}"
            )
            seen = f"the corpus is of {month_name(begin)} to {month_name(end)}; wanted {wanted}"
            raise InputError(f"{seen}: move the test period", where="--test-from, --test-to")

    def test(self) -> list[Entry]:
        """The test set: as many as asked from each bin, or what a smaller bin holds."""
        drawn: list[Entry] = []
        for name, found in self._binned(self.first, self.last + 1, ()).items():
            most = len(found) if self.options.per_month is None else self.options.per_month
            drawn += self._draw(found, most, "test", name)
        if not drawn:
            message = "no document in the test months; move the test period"
            raise InputError(message, where="--test-from, --test-to")
        return drawn

    def stratified(self, test: list[Entry]) -> Split:
        """TIME-STRATIFIED around a test set."""
        end = self.first - self.options.gap
        after = end + self.options.valid_months
        seen = self._between(end, after, test)
        most = len(seen) if self.options.valid is None else self.options.valid
        valid = self._draw(seen, most, "valid", TIME_STRATIFIED)
        if self.options.valid_months and not valid:
            months = f"{month_name(end)} to {month_name(after - 1)}"
            message = f"no document of the validation months {months}"
            raise InputError(f"{message}; choose other ones with --gap, --valid-months or 0")
        train = self._latest(self._between(0, end, [*test, *valid]))
        if not train:
            message = f"no training document before {month_name(end)}"
            raise InputError(f"{message}; choose a smaller --gap, a larger --size or a later test")
        return _split(TIME_STRATIFIED, train, valid, test)

    def control(self, test: list[Entry], other: Split) -> Split:
        """CONTROL around the same test set, of the other's size."""
        rest = self._between(self.first, self.last + 1, test)
        share = max(1, len(rest) // _SHARE)
        valid = self._draw(rest, min(len(other.valid), share), "valid", CONTROL)
        used = [*test, *valid]
        bins = self._binned(self.first, self.last + 1, used)
        tested = sorted({bin_of(entry.date, self.options.bin) for entry in test})
        for name in tested:
            if name not in bins:
                message = f"no document of {name} is left for CONTROL; lower it or widen --bin"
                raise InputError(message, where="--per-month")
        size = len(other.train)
        each = min(size // len(tested), *(len(bins[name]) for name in tested))
        train = [entry for n in tested for entry in self._draw(bins[n], each, "train", n)]
        missing = size - len(train)
        if missing:
            train += self._backwards(self._between(0, self.first, used))[:missing]
        if len(train) < size:
            message = f"CONTROL has {len(train)} training documents, wanted {size}; lower --size"
            raise InputError(message, where="--size")
        return _split(CONTROL, train, valid, test)

    def _between(self, start: int, stop: int, used: Iterable[Entry]) -> list[Entry]:
        """Documents of the months that are in no other part, nor their groups."""
        taken = {self._key(entry) for entry in used}
        inside = (entry for entry in self.entries if start <= month_of(entry.date) < stop)
        return [entry for entry in inside if self._key(entry) not in taken]

    def _binned(self, start: int, stop: int, used: Iterable[Entry]) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in self._between(start, stop, used):
            found[bin_of(entry.date, self.options.bin)].append(entry)
        return found

    def _draw(self, found: list[Entry], most: int, *purpose: str) -> list[Entry]:
        """So many at random, group by group; of the last group perhaps only some."""
        groups: dict[str, list[Entry]] = defaultdict(list)
        for entry in found:
            groups[self._key(entry)].append(entry)
        names = list(groups)
        rng = generator("temporal.splits", self.options.seed, *purpose)
        drawn = (entry for n in rng.permutation(len(names)) for entry in groups[names[n]])
        return [entry for entry, _ in zip(drawn, range(most), strict=False)]

    def _latest(self, found: list[Entry]) -> list[Entry]:
        """The latest that fit into the size."""
        most, in_words = self.options.size, self.options.size_in == "words"
        if most is None:
            return found
        kept, held = [], 0
        for entry in self._backwards(found):
            held += entry.words if in_words else 1
            if held > most:
                break
            kept.append(entry)
        return kept

    def _backwards(self, found: list[Entry]) -> list[Entry]:
        """The latest first."""
        rng = generator("temporal.splits", self.options.seed, "ties")
        mixed = [found[n] for n in rng.permutation(len(found))]
        return sorted(mixed, key=lambda entry: entry.date, reverse=True)

    def _key(self, entry: Entry) -> str:
        return entry.group if self.options.unit == "group" else entry.id


def _split(name: str, train: list[Entry], valid: list[Entry], test: list[Entry]) -> Split:
    ordered = [sorted(part, key=_place) for part in (train, valid, test)]
    return Split(name, *(tuple(entry.id for entry in part) for part in ordered))


def _place(entry: Entry) -> tuple[str, str]:
    return entry.date, entry.id


def _check_options(options: SplitOptions) -> None:
    period = f"{options.test_from} {options.test_to}"
    form = re.fullmatch(r"(\d{4}-(?:0[1-9]|1[0-2])) (\d{4}-(?:0[1-9]|1[0-2]))", period, re.ASCII)
    if form is None or form[1] > form[2]:
        message = f"{period!r} are not two months in order; write them as 2018-01 and 2019-12"
        raise InputError(message, where="--test-from, --test-to")
    if not 0 <= options.valid_months <= options.gap:
        message = f"{options.valid_months} months of validation in a gap of {options.gap}; wanted"
        raise InputError(f"{message} 0 to {options.gap}", where="--valid-months")
    counts = {"per-month": options.per_month, "size": options.size, "valid": options.valid}
    for name, count in counts.items():
        if count is not None and count < 1:
            raise InputError(f"{count}; wanted at least 1", where=f"--{name}")


def _check_split(split: Split, of: Mapping[str, Entry], options: SplitOptions) -> None:
    end = cutoff(options) if split.name == TIME_STRATIFIED else month_of(options.test_to) + 1
    place: dict[str, str] = {}
    group: dict[str, tuple[str, str]] = {}
    parts = {"training": split.train, "validation": split.valid, "test": split.test}
    for part, names in parts.items():
        for name in names:
            seen = ""
            if name not in of:
                seen = "is not in the corpus"
            elif name in place:
                seen = f"is a {place[name]} document too"
            elif part == "training" and month_of(of[name].date) >= end:
                seen = f"is of {of[name].date}, not before the cut-off {month_name(end)}"
            elif part == "test" and not (options.test_from <= of[name].date[:7] <= options.test_to):
                seen = f"is of {of[name].date}, not of {options.test_from} to {options.test_to}"
            elif options.unit == "group":
                other, there = group.setdefault(of[name].group, (name, part))
                if there != part:
                    seen = f"is of the group {of[name].group!r} of the {there} document {other!r}"
            if seen:
                message = f"the {part} document {name!r} {seen}; make the splits again"
                raise InputError(message, where=split.name)
            place[name] = part


def _check_vocabulary(split: Split, of: Mapping[str, Entry], names: Collection[str]) -> None:
    for name in sorted(set(names) - set(split.train)):
        when = f" of {of[name].date}" if name in of else ""
        seen = f"its tokenizer was trained on {name!r}{when}, which is no training document"
        raise InputError(f"{seen}; train it on the training documents alone", where=split.name)


def _check_texts(
    splits: Sequence[Split], documents: Iterable[Document], dedup: DedupOptions | None
) -> None:
    owner = {name: split.name for split in splits for name in (*split.train, *split.valid)}
    test = _Only(documents, frozenset(splits[0].test))
    for one in near_duplicates_between(test, _Only(documents, owner.keys()), dedup):
        alike = "near-duplicate" if one.similarity < 1 else "copy"
        seen = f"the test document {one.id!r} is a {alike} of {one.of!r}"
        wanted = f"(similarity {one.similarity:.2f}); remove duplicates before splitting"
        raise InputError(f"{seen} {wanted}", where=owner[one.of])


@dataclass(frozen=True, slots=True)
class _Only:
    """The documents with some ids, as often as they are read."""

    documents: Iterable[Document]
    ids: Collection[str]

    def __iter__(self) -> Iterator[Document]:
        return (document for document in self.documents if document.id in self.ids)
