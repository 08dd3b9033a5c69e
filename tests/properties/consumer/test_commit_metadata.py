from __future__ import annotations

import gc
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import cycle, pairwise, product
from random import Random  # noqa: TID251  seeded: each row of the table has its data

import attrs
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.consumer.checks.laws import commit_metadata as laws
from tidegate.consumer.checks.strategies.commit_metadata import (
    alphabets,
    damaged,
    patterned,
    restored_trackers,
    surveys,
    texts,
)
from tidegate.consumer.checks.strategies.offsets import batches
from tidegate.consumer.checks.strategies.watermark import SPOTS
from tidegate.consumer.committing import commit_metadata
from tidegate.consumer.committing.commit_metadata import (
    FIRST,
    LETTERS,
    LIMIT,
    MARK,
    VERSION,
    Alphabet,
    Encoded,
    IgnoredBecause,
    Layout,
    MetadataIgnored,
    MetadataRead,
    Partial,
    Survey,
    Whole,
    encoded,
    surveyed,
    units,
)
from tidegate.consumer.offsets._pages import PAGE
from tidegate.consumer.offsets._periods import SPAN_MAX, WINDOW, period_of
from tidegate.consumer.offsets._run_statistics import RICE
from tidegate.consumer.offsets.explanation import duplicate_budget
from tidegate.consumer.offsets.watermark import (
    KNOWN_DONE_MAX,
    OFFSET_MAX,
    OffsetTracker,
    Run,
    acknowledged,
    completed,
    delivered,
    done_offsets,
    done_runs,
    low_watermark,
    open_offsets,
    restored,
    successor,
    undelivered,
)
from tidegate.model.errors import Misuse

END = OFFSET_MAX + 1
BOUNDLESS = 10**9


def stuck(*done: int, head: int = 0) -> OffsetTracker:
    return completed(delivered(OffsetTracker(head), (head, *done)), done)


# --- a dumb twin --------------------------------------------------------------------------------------------------------

FORMS = [
    (Layout.BITMAP, ()),
    *((Layout.RUNS, both) for both in product(range(RICE), repeat=2)),
    *((layout, (k,)) for layout in (Layout.OPEN_GAPS, Layout.DONE_GAPS) for k in range(RICE)),
]


def bits_of(position: int, runs: Sequence[Run]) -> str:
    """A character per offset; `1` is done, and the last one is `1`."""
    edges = [position, *(edge for run in runs for edge in run)]
    return "".join(bit * (stop - start) for bit, (start, stop) in zip(cycle("01"), pairwise(edges)))


def numbers_of(layout: Layout, bits: str) -> list[int]:
    if layout is Layout.OPEN_GAPS:
        return [len(gap) for gap in bits.split("0")]
    if layout is Layout.DONE_GAPS:
        return [len(gap) for gap in bits.split("1")[:-1]]
    gaps = [len(gap) for gap in bits.split("1") if gap]
    runs = [len(run) - 1 for run in bits.split("0") if run]
    gaps = [0, *gaps] if bits[0] == "1" else gaps
    return [number for each in zip([gaps[0], *(gap - 1 for gap in gaps[1:])], runs, strict=True) for number in each]


def written(layout: Layout, parameters: tuple[int, ...], bits: str) -> str:
    head = f"{layout.value:02b}{''.join(f'{k:05b}' for k in parameters)}"
    if layout is Layout.BITMAP:
        return head + bits
    numbers = zip(numbers_of(layout, bits), cycle(parameters))
    return head + "".join("1" * (number >> k) + f"{number % (1 << k):0{k + 1}b}" for number, k in numbers)


def differing(bits: str, period: int) -> list[int]:
    """The run lengths before each difference to one period earlier, and after the last."""
    before = "1" * period + bits
    return [*map(len, "".join("01"[bit != was] for was, bit in zip(before, bits, strict=False)).split("1"))]


def periodic(bits: str) -> tuple[int, str] | None:
    if min(sizes_of(bits).values()) <= 2**13 or len(bits) > SPAN_MAX:
        return None
    period = period_of(int(bits[WINDOW - 1 :: -1], 2))
    if period is None:
        return None
    numbers = differing(bits, period)
    k = min(range(RICE), key=lambda k: sum(1 + k + (each >> k) for each in numbers))
    coded = "".join("1" * (number >> k) + f"{number % (1 << k):0{k + 1}b}" for number in numbers)
    return period, f"{period - 1:012b}{k:05b}{coded}"


def sealed(content: str, position: int, alphabet: Alphabet, version: str = VERSION) -> str:
    """The version, then a checksum and the content in letters."""
    content += ("0" if content.startswith("00") and version == "1" else "1") * (-(40 + len(content)) % alphabet.value)
    of_version = "" if version == "1" else f"{version} "
    digest = blake2b(f"{of_version}{position} {content}".encode(), digest_size=5).hexdigest()
    bits = f"{int(digest, 16):040b}{content}"
    values = [int("".join(each), 2) for each in zip(*[iter(bits)] * alphabet.value, strict=True)]
    letters = {Alphabet.WIDE: [chr(FIRST + value) for value in range(2**15)], Alphabet.ASCII: LETTERS}[alphabet]
    return MARK + version + "".join(letters[value] for value in values)


def sizes_of(bits: str) -> dict[tuple[Layout, tuple[int, ...]], int]:
    sizes: dict[tuple[Layout, tuple[int, ...]], int] = {(Layout.BITMAP, ()): 2 + len(bits)}
    for layout in (Layout.RUNS, Layout.OPEN_GAPS, Layout.DONE_GAPS):
        numbers, ways = numbers_of(layout, bits), 2 if layout is Layout.RUNS else 1
        rice = [[sum(1 + k + (each >> k) for each in numbers[at::ways]) for k in range(RICE)] for at in range(ways)]
        for parameters in product(range(RICE), repeat=ways):
            numbered = sum(each[k] for each, k in zip(rice, parameters, strict=True))
            sizes[layout, parameters] = 2 + 5 * ways + numbered
    return sizes


def length_of(bits: int, alphabet: Alphabet) -> int:
    return len(MARK + VERSION) + math.ceil((40 + bits) / alphabet.value)


# --- the laws -----------------------------------------------------------------------------------------------------------

LIMITS = st.one_of(st.sampled_from((0, 3, 5, 6, LIMIT)), st.integers(5, 40))


@settings(max_examples=100)
@given(restored_trackers(), LIMITS, alphabets())
@example(stuck(1, 2, 5, PAGE, PAGE + 1), LIMIT, Alphabet.WIDE)
@example(delivered(restored(8, [(10, 11)]), (8,)), LIMIT, Alphabet.ASCII)
@example(completed(delivered(OffsetTracker(0), range(4)), (0, 1, 3)), LIMIT, Alphabet.WIDE)
def test_me1_what_is_decoded_was_encoded(tracker: OffsetTracker, limit: int, alphabet: Alphabet) -> None:
    made = encoded(surveyed(tracker), limit=limit, alphabet=alphabet)
    read = commit_metadata.decoded(made.text, position=made.position, end=END)

    assert laws.is_what_was_encoded(tracker, made, read)
    assert laws.says_what_is_left_out(tracker, made)
    assert read == MetadataRead(successor(tracker, made.stop))


@settings(max_examples=100)
@given(surveys(), LIMITS, alphabets())
def test_me2_the_limit_is_kept(survey: Survey, limit: int, alphabet: Alphabet) -> None:
    assert laws.keeps_the_limit(encoded(survey, limit=limit, alphabet=alphabet), limit)


@settings(max_examples=100)
@given(surveys(), alphabets(), st.data())
def test_me3_a_text_that_was_changed_is_ignored(survey: Survey, alphabet: Alphabet, data: st.DataObject) -> None:
    made = encoded(survey, limit=60, alphabet=alphabet)
    assume(made.text)
    changed = data.draw(damaged(made.text))

    assert not changed or laws.skips_nothing(
        made.position, commit_metadata.decoded(changed, position=made.position, end=END)
    )


@settings(max_examples=100)
@given(surveys(), alphabets(), st.one_of(st.integers(0, 12), SPOTS))
def test_me3_a_text_of_another_position_is_ignored(survey: Survey, alphabet: Alphabet, position: int) -> None:
    made = encoded(survey, alphabet=alphabet)
    assume(made.text and position != made.position)

    assert laws.skips_nothing(position, commit_metadata.decoded(made.text, position=position, end=END))


@settings(max_examples=100)
@given(surveys(), alphabets(), st.integers(0, 3))
def test_me3_a_text_that_reaches_beyond_the_log_is_ignored(survey: Survey, alphabet: Alphabet, beyond: int) -> None:
    made = encoded(survey, alphabet=alphabet)
    assume(made.text)
    end = done_offsets(successor(survey.tracker, made.stop))[-1] + 1
    within = commit_metadata.decoded(made.text, position=made.position, end=end + beyond)

    assert within == MetadataRead(successor(survey.tracker, made.stop))
    assert laws.skips_nothing(made.position, commit_metadata.decoded(made.text, position=made.position, end=end - 1))


@settings(max_examples=100)
@given(texts(), st.integers(0, 12), st.integers(0, 99))
@example("bzAAAAEAAAAA", 5, 99)
@example(MARK + VERSION, 5, 99)
def test_me3_any_text_has_a_verdict(text: str, position: int, end: int) -> None:
    read = commit_metadata.decoded(text, position=position, end=end)

    assert laws.stays_within_the_log(position, end, read)
    assert isinstance(read, MetadataRead) or read.tracker == OffsetTracker(position)
    assert not text.startswith("bz") or isinstance(read, MetadataIgnored)


@settings(max_examples=100)
@given(patterned(), st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 40), max_size=9)), max_size=4))
@example(OffsetTracker(0), [(True, [0, 1, 2]), (False, [1]), (False, [0, 2])])
def test_me4_the_size_is_known_as_it_changes(tracker: OffsetTracker, steps: list[tuple[bool, list[int]]]) -> None:
    survey = surveyed(tracker)
    for delivers, picks in steps:
        found = sorted({*open_offsets(tracker), *range(tracker.floor, tracker.floor + PAGE, 99)})
        offsets = [found[pick % len(found)] for pick in picks]
        tracker = delivered(tracker, offsets) if delivers else completed(tracker, offsets)
        tracker = acknowledged(tracker, low_watermark(tracker)) if len(picks) % 2 else tracker
        survey = surveyed(tracker, survey)
        for alphabet in Alphabet:
            whole = encoded(surveyed(tracker), limit=BOUNDLESS, alphabet=alphabet)

            assert laws.size_is_exact(units(survey, alphabet), whole.text)


@settings(max_examples=100)
@given(surveys(), LIMITS, alphabets())
@example(surveyed(stuck(*range(1, 3 * PAGE, 3))), 60, Alphabet.WIDE)
def test_me5_no_more_would_fit(survey: Survey, limit: int, alphabet: Alphabet) -> None:
    made = encoded(survey, limit=limit, alphabet=alphabet)
    if isinstance(made, Partial):
        one_more = successor(survey.tracker, made.stop + 1)

        assert laws.holds_as_much_as_fits(limit, units(surveyed(one_more), alphabet))


NEAR = restored_trackers().filter(lambda tracker: done_offsets(tracker)[-1:] < (tracker.floor + 20 * PAGE,))
"""The twin has a character per offset."""


@settings(max_examples=40)
@given(NEAR, alphabets())
@example(stuck(*range(1, 400, 2)), Alphabet.ASCII)
@example(stuck(*range(40, 4000, 40)), Alphabet.ASCII)
@example(stuck(*(at for at in range(1, 4000) if at % 40)), Alphabet.ASCII)
@example(stuck(*range(1, 9000, 2)), Alphabet.ASCII)
def test_me6_nothing_else_is_shorter(tracker: OffsetTracker, alphabet: Alphabet) -> None:
    made = encoded(surveyed(tracker), limit=BOUNDLESS, alphabet=alphabet)
    assume(made.text)
    bits = bits_of(made.position, tuple(done_runs(successor(tracker))))

    again = periodic(bits)
    sizes = [*sizes_of(bits).values(), *([] if again is None else [len(again[1])])]

    assert laws.is_the_shortest(made, (length_of(size, alphabet) for size in sizes))


@settings(max_examples=100)
@given(restored_trackers(), st.lists(SPOTS, max_size=5), st.booleans())
@example(stuck(*range(1, 9 * PAGE, 7)), [9 * PAGE, 9 * PAGE + 1], True)
def test_me7_what_did_not_change_is_shared(tracker: OffsetTracker, offsets: list[int], acknowledges: bool) -> None:
    before = surveyed(tracker)
    after = completed(delivered(tracker, offsets), offsets[::2])
    after = acknowledged(after, low_watermark(after)) if acknowledges else after

    assert laws.shares_what_did_not_change(before, surveyed(after, before))


# --- planted bugs -------------------------------------------------------------------------------------------------------

RIGHT = commit_metadata.encoded


def gaps_as_done(survey: Survey, *, limit: int = LIMIT, alphabet: Alphabet = Alphabet.WIDE) -> Encoded:
    """The Parallel Consumer: an undelivered offset counts as done once a later one is."""
    made = RIGHT(survey, limit=limit, alphabet=alphabet)
    done = done_offsets(survey.tracker)
    if not done or done[-1] - made.position > 9 * PAGE:
        return made
    opened = {*open_offsets(survey.tracker)}
    taken = [(at, at + 1) for at in range(made.position, done[-1] + 1) if at not in opened]
    heir = restored(made.position, taken)
    return attrs.evolve(made, text=RIGHT(surveyed(heir), limit=BOUNDLESS, alphabet=alphabet).text)


test_a_planted_bug_is_found = planted(
    commit_metadata,
    # The Parallel Consumer's race: it reads the set after the highest done offset.
    bug(
        "the head is taken for done",
        (
            "_text(successor(survey.tracker), form",
            "_text(restored(position, [(position, position + 1), *done_runs(successor(survey.tracker))]), form",
        ),
        test_me1_what_is_decoded_was_encoded,
    ),
    bug("a gap is taken for done", test_me1_what_is_decoded_was_encoded, encoded=gaps_as_done),
    # The Parallel Consumer's other race.
    bug(
        "the text is made for the position of before",
        (
            "_text(successor(survey.tracker), form",
            "_text(attrs.evolve(successor(survey.tracker), floor=max(survey.tracker.floor, position - PAGE)), form",
        ),
        test_me1_what_is_decoded_was_encoded,
    ),
    # The Parallel Consumer.
    bug(
        "a text that is too long is dropped", ("Partial(position, text, stop", 'Partial(position, "", stop'),
        test_me1_what_is_decoded_was_encoded,
    ),
    bug(
        "it is read one offset further",
        ("restored(position, runs)", "restored(position, [(start + 1, stop + 1) for start, stop in runs])"),
        test_me1_what_is_decoded_was_encoded,
    ),
    bug(
        "what was restored counts before it is delivered",
        ("    done_runs,\n", "    done_runs, completed, delivered,\n"),
        (
            "return MetadataRead(restored(position, runs))",
            "done = [at for run in runs for at in range(*run)]; return MetadataRead(completed(delivered(nothing, done), done))",
        ),
        test_me1_what_is_decoded_was_encoded,
    ),
    bug(
        "one too many", ("_length(form, alphabet) <= limit:", "_length(form, alphabet) <= limit + (limit > 5):"),
        test_me2_the_limit_is_kept,
    ),
    bug(
        "the checksum is not looked at",
        ('content if bits[:_CHECKSUM] == _checksum(content, position, version) else ""', "content"),
        test_me3_a_text_that_was_changed_is_ignored, test_me3_a_text_of_another_position_is_ignored,
    ),
    bug(
        "what is ignored means that the head is done",
        ("nothing = OffsetTracker(position)", "nothing = restored(position, [(position, position + 1)])"),
        test_me3_a_text_that_was_changed_is_ignored, test_me3_a_text_of_another_position_is_ignored,
        test_me3_a_text_that_reaches_beyond_the_log_is_ignored, test_me3_any_text_has_a_verdict,
    ),
    # The Parallel Consumer.
    bug(
        "the end of the log bounds nothing", ("min(end, OFFSET_MAX + 1)", "OFFSET_MAX + 1"),
        test_me3_a_text_that_reaches_beyond_the_log_is_ignored,
    ),
    bug(
        "what was surveyed once is not looked at again",
        (
            "NOTHING, None if before is None else before.stretch)",
            "NOTHING, None) if before is None else before.stretch",
        ),
        test_me4_the_size_is_known_as_it_changes,
    ),
    bug(
        "what may be committed is counted too",
        ("low_watermark(survey.tracker)\n    return _units(", "survey.tracker.floor\n    return _units("),
        test_me4_the_size_is_known_as_it_changes,
    ),
    bug(
        "the size is an upper bound",
        (
            "0 if tally is None else _length(_shortest(tally, position, pages)",
            "0 if tally is None else _length(_Form(2 + tally.last[1] - position, Layout.BITMAP)",
        ),
        test_me4_the_size_is_known_as_it_changes,
    ),
    bug(
        "the text is half full", ('"a limit of characters", 0)\n', '"a limit of characters", 0)\n    limit //= 2\n'),
        test_me5_no_more_would_fit,
    ),
    *(
        bug(
            f"always {layout.name}",
            ("key=lambda form: form.bits", f"key=lambda form: (form.layout is not Layout.{layout.name}, form.bits)"),
            test_me6_nothing_else_is_shorter,
        )
        for layout in Layout if layout is not Layout.PERIODIC
    ),
    bug(
        "what repeats is written like anything else, as every version before was",
        ("return periodic if periodic.bits < shortest.bits else shortest", "return shortest"),
        test_me6_nothing_else_is_shorter,
    ),
    bug(
        "all is surveyed anew", ("None if before is None else before.stretch", "None"),
        test_me7_what_did_not_change_is_shared,
    ),
)  # fmt: skip


# --- agreement ----------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(NEAR, alphabets(), st.data())
def test_every_form_is_read(tracker: OffsetTracker, alphabet: Alphabet, data: st.DataObject) -> None:
    heir = successor(tracker)
    assume(done_offsets(heir))
    layout, parameters = data.draw(st.sampled_from(FORMS))
    content = written(layout, parameters, bits_of(heir.floor, tuple(done_runs(heir))))
    text = sealed(content, heir.floor, alphabet)

    assert commit_metadata.decoded(text, position=heir.floor, end=END) == MetadataRead(heir)


@settings(max_examples=40)
@given(NEAR, alphabets())
def test_what_is_written_is_what_a_dumb_writer_writes(tracker: OffsetTracker, alphabet: Alphabet) -> None:
    heir = successor(tracker)
    assume(done_offsets(heir))
    bits = bits_of(heir.floor, tuple(done_runs(heir)))
    sizes = sizes_of(bits)
    least = min(sizes.values())
    shortest = {sealed(written(*form, bits), heir.floor, alphabet) for form, size in sizes.items() if size == least}
    again = periodic(bits)
    if again is not None and len(again[1]) < least:
        shortest = {sealed(again[1], heir.floor, alphabet, "2")}

    assert encoded(surveyed(tracker), limit=BOUNDLESS, alphabet=alphabet).text in shortest


@st.composite
def regular(draw: st.DrawFn) -> OffsetTracker:
    position, period = draw(st.sampled_from((0, 5, PAGE - 1, 2**40))), draw(st.integers(1, 700))
    opened = draw(st.sets(st.integers(0, period - 1), max_size=40))
    span = draw(st.integers(8_000, 20_000))
    noise = draw(st.sets(st.integers(0, span - 1), max_size=40))
    done = [position + at for at in range(1, span) if (at % period in opened) == (at in noise)]
    return restored(position, [(offset, offset + 1) for offset in done])


@settings(max_examples=25)
@given(regular(), alphabets(), st.sampled_from((LIMIT, 400, 60)))
@example(restored(7, [(at, at + 1) for at in range(8, 30_000) if at % 10]), Alphabet.ASCII, LIMIT)
@example(restored(7, [(at, at + 1) for at in range(8, 30_000) if at % 2]), Alphabet.ASCII, 24)
def test_what_repeats_is_read_as_it_was_written(tracker: OffsetTracker, alphabet: Alphabet, limit: int) -> None:
    """Laws ME1 to ME6 for periodic open offsets, letter by letter as the simple writer."""
    position, bits = tracker.floor, bits_of(tracker.floor, tuple(done_runs(tracker)))
    assume(bits)
    made = encoded(surveyed(tracker), limit=BOUNDLESS, alphabet=alphabet)
    again = periodic(bits)
    if again is not None and len(again[1]) < min(sizes_of(bits).values()):
        assert made.text == sealed(again[1], position, alphabet, "2")

    short = encoded(surveyed(tracker), limit=limit, alphabet=alphabet)
    read = commit_metadata.decoded(short.text, position=position, end=END)

    assert laws.size_is_exact(units(surveyed(tracker), alphabet), made.text)
    assert laws.keeps_the_limit(short, limit)
    assert laws.is_what_was_encoded(tracker, short, read)
    if isinstance(short, Partial):
        one_more = successor(tracker, short.stop + 1)

        assert laws.holds_as_much_as_fits(limit, units(surveyed(one_more), alphabet))


def test_a_period_that_is_one_too_long_is_caught() -> None:
    tracker = restored(7, [(at, at + 1) for at in range(8, 30_000) if at % 10])
    made = encoded(surveyed(tracker))
    bits = bits_of(7, tuple(done_runs(tracker)))
    found = periodic(bits)

    assert found is not None
    assert made.text == sealed(found[1], 7, Alphabet.WIDE, "2")

    wrong = sealed(f"{found[0]:012b}{found[1][12:]}", 7, Alphabet.WIDE, "2")

    assert not laws.is_what_was_encoded(tracker, made, commit_metadata.decoded(wrong, position=7, end=END))


@given(
    st.text("01", max_size=99),
    alphabets(),
    st.integers(0, 12),
    st.one_of(st.integers(0, 99), st.just(10**30)),
    st.sampled_from("12"),
)
@example("", Alphabet.WIDE, 5, 99, "1")
@example("", Alphabet.WIDE, 5, 99, "2")
@example("01" + "0" * 9, Alphabet.WIDE, 5, 99, "1")
@example("10111110", Alphabet.ASCII, 5, 10**30, "1")
@example("01" + "11111" * 2 + "1" * 45 + "0", Alphabet.ASCII, 5, 10**30, "1")
@example("1" * 17 + "1" * 30 + "0" * 32, Alphabet.ASCII, 5, 10**30, "2")
@example("0" * 17 + "0" * 30, Alphabet.ASCII, 5, 10**30, "2")
def test_whatever_is_sealed_has_a_verdict(
    content: str, alphabet: Alphabet, position: int, end: int, version: str
) -> None:
    """Totality. The reader accepts only offsets in the log."""
    read = commit_metadata.decoded(sealed(content, position, alphabet, version), position=position, end=end)

    assert laws.stays_within_the_log(position, end, read)
    assert isinstance(read, MetadataRead) or read.tracker == OffsetTracker(position)


@given(restored_trackers(), st.lists(SPOTS, max_size=9))
def test_a_survey_is_the_same_however_it_was_made(tracker: OffsetTracker, offsets: list[int]) -> None:
    survey = surveyed(tracker)
    for offset in offsets:
        tracker = completed(delivered(tracker, (offset,)), (offset,))
        survey = surveyed(tracker, survey)

    assert survey == surveyed(tracker)
    assert (survey.tracker, hash(survey)) == (tracker, hash(surveyed(tracker)))


# --- a consumer that dies -----------------------------------------------------------------------------------------------

ACTS = st.lists(st.tuples(st.sampled_from(("fetch", "begin", "end", "commit", "die")), st.integers(0, 40)), max_size=40)


class Life:
    def __init__(self, log: tuple[int, ...], limit: int, alphabet: Alphabet) -> None:
        self.log, self.limit, self.alphabet = log, limit, alphabet
        self.position, self.text = 0, ""
        self.begun: Counter[int] = Counter()
        self.processed: set[int] = set()
        self.be_born()

    def be_born(self) -> None:
        read = commit_metadata.decoded(self.text, position=self.position, end=self.log[-1] + 1)
        self.tracker = self.heir = read.tracker
        self.survey: Survey | None = None
        self.under_way: set[int] = set()

    def act(self, what: str, how: int) -> None:
        match what:
            case "fetch":
                upcoming = [offset for offset in self.log if offset >= self.tracker.frontier]
                self.tracker = delivered(self.tracker, upcoming[: how % 9])
            case "begin":
                waiting = [offset for offset in open_offsets(self.tracker) if offset not in self.under_way]
                self.under_way |= {*waiting[how : how + 1]}
                self.begun.update(waiting[how : how + 1])
            case "end":
                finished = sorted(self.under_way)[how % 5 : how % 5 + 1]
                self.under_way -= {*finished}
                self.processed |= {*finished}
                self.tracker = completed(self.tracker, finished)
            case "commit":
                self.commit()
            case _:
                self.die()

    def commit(self) -> None:
        self.survey = surveyed(self.tracker, self.survey)
        made = encoded(self.survey, limit=self.limit, alphabet=self.alphabet)
        self.position, self.text = made.position, made.text
        self.heir = successor(self.tracker, made.stop)
        self.tracker = acknowledged(self.tracker, made.position)

        assert self.processed >= {offset for offset in self.log if offset < made.position}
        assert self.processed >= {*done_offsets(self.heir)}

    def die(self) -> None:
        budget = duplicate_budget(self.tracker, self.heir, tuple(self.under_way))
        done, under_way = {*done_offsets(self.tracker)}, self.under_way
        self.be_born()

        assert self.tracker == self.heir

        again = {*undelivered(self.tracker, self.log)}
        assert (len(again & done), len(again & under_way)) == (budget.finished, budget.begun)

    def work_off(self) -> None:
        for what in ("fetch", "begin", "end"):
            for _ in self.log:
                self.act(what, 8 if what == "fetch" else 0)
        self.commit()


@given(batches(), ACTS, st.sampled_from((0, 6, 8, 12, LIMIT)), alphabets())
def test_a_consumer_that_dies_loses_nothing_and_repeats_what_the_budget_says(
    log: tuple[int, ...], acts: list[tuple[str, int]], limit: int, alphabet: Alphabet
) -> None:
    """At least once, for any schedule and limit; exactly the records in the budget repeat."""
    life = Life(log, limit, alphabet)
    for what, how in acts:
        life.act(what, how)
    life.work_off()

    assert life.processed == {*log}
    assert (life.position, life.text) == (log[-1] + 1, "")


def test_a_restart_repeats_nothing_that_was_committed() -> None:
    """Without metadata, 999 done records would repeat."""
    tracker = stuck(*range(1, 1000))
    made = encoded(surveyed(tracker))
    again = commit_metadata.decoded(made.text, position=made.position, end=1000).tracker

    assert (undelivered(again, range(1000)), len(undelivered(OffsetTracker(made.position), range(1000)))) == (
        (0,),
        1000,
    )
    assert len(made.text) == 8


# --- reach --------------------------------------------------------------------------------------------------------------


def at_random(open_ppm: int, span: int) -> Iterator[Run]:
    """The done runs; `open_ppm` is the probability of an open offset in parts per million."""
    draw, base = Random(open_ppm), math.log1p(-open_ppm / 10**6)  # a row has one seed
    at = 0
    while at < span:
        done = int(math.log(1 - draw.random()) / base)
        if done:
            yield at + 1, at + 1 + done
        at += 1 + done


def in_bursts(opened: int, done: int, span: int) -> Iterator[Run]:
    draw, at = Random(opened * done), 0
    while at < span:
        start = at + drawn(draw, opened)
        at = start + drawn(draw, done)
        yield start, at


def drawn(draw: Random, mean: int) -> int:
    return 1 + int(math.log(1 - draw.random()) / math.log1p(-1 / mean))


@pytest.mark.parametrize(
    ("runs", "theirs", "times_ten"),
    [
        pytest.param(at_random(1_000, 5_800_000), 1_445_888, 25, id="open at random, 0.1 %"),
        pytest.param(at_random(10_000, 900_000), 219_136, 25, id="open at random, 1 %"),
        pytest.param(at_random(100_000, 160_000), 44_416, 25, id="open at random, 10 %"),
        pytest.param(at_random(500_000, 80_000), 24_512, 24, id="open at random, 50 %"),
        pytest.param(in_bursts(5, 50, 400_000), 82_944, 25, id="bursts of 5 open and 50 done"),
        pytest.param(in_bursts(20, 20, 300_000), 60_416, 25, id="bursts of 20 open and 20 done"),
    ],
)
def test_it_reaches_two_and_a_half_times_as_far(runs: Iterator[Run], theirs: int, times_ten: int) -> None:
    """Compared with the Parallel Consumer and all its codecs, in 4,096 characters.

    At 50 %, no code needs less than a bit per offset, so the letters decide: 15 bits to 6.
    """
    tracker = restored(0, runs)
    made = encoded(surveyed(tracker))

    assert isinstance(made, Partial)
    assert laws.keeps_the_limit(made, LIMIT)
    assert MetadataRead(successor(tracker, made.stop)) == commit_metadata.decoded(made.text, position=0, end=made.stop)
    assert made.stop * 10 >= theirs * times_ten


REGULAR: dict[str, Callable[[int], bool]] = {
    "every 2nd open": lambda at: at % 2 == 1,
    "every 10th open": lambda at: at % 10 > 0,
    "every 100th open": lambda at: at % 100 > 0,
    "3 of 50 open": lambda at: at % 50 not in (0, 7, 31),
    "batches of 500, 20 of them open": lambda at: at % 500 >= 20,
}


@pytest.mark.parametrize("is_done", REGULAR.values(), ids=REGULAR)
def test_what_repeats_reaches_a_million(is_done: Callable[[int], bool]) -> None:
    """As far as the Parallel Consumer with Zstandard; here with ASCII letters."""
    ones = "".join("01"[is_done(at)] for at in range(SPAN_MAX))
    tracker = restored(0, [(run.start(), run.end()) for run in re.finditer("1+", ones)])
    made = encoded(surveyed(tracker), alphabet=Alphabet.ASCII)

    assert isinstance(made, Whole)
    assert laws.keeps_the_limit(made, LIMIT)
    assert MetadataRead(successor(tracker)) == commit_metadata.decoded(made.text, position=0, end=SPAN_MAX)


# --- facts --------------------------------------------------------------------------------------------------------------


def test_what_is_done_without_a_gap_takes_less_than_two_bits_an_offset() -> None:
    count = 100_000
    tracker = completed(delivered(OffsetTracker(0), range(count)), range(1, count))
    survey = surveyed(tracker)

    seen, left = {id(None)}, [survey]
    size = 0
    while left:
        each: object = left.pop()
        if id(each) not in seen and not isinstance(each, type):
            seen.add(id(each))
            size += sys.getsizeof(each)
            left += gc.get_referents(each)
    assert 8 * size < 2 * count


@pytest.mark.parametrize("limit", [LIMIT, 9, 7, 5, 0])
@pytest.mark.parametrize("stuck_at", [0, 7, PAGE - 1, PAGE, 3 * PAGE + 7])
def test_whole_pages_are_told_as_others_are(stuck_at: int, limit: int) -> None:
    count = 12 * PAGE
    opened = {stuck_at, stuck_at + 3, 5 * PAGE, 9 * PAGE + 1}
    tracker = completed(
        delivered(OffsetTracker(0), range(count)), [each for each in range(count) if each not in opened]
    )
    survey = surveyed(tracker)
    made = encoded(survey, limit=limit)

    assert laws.is_what_was_encoded(
        tracker, made, commit_metadata.decoded(made.text, position=made.position, end=count)
    )
    assert laws.says_what_is_left_out(tracker, made)
    if isinstance(made, Partial):
        assert laws.holds_as_much_as_fits(limit, units(surveyed(successor(tracker, made.stop + 1))))
    else:
        assert laws.size_is_exact(units(survey), made.text)


def test_every_letter_is_one_unit_and_survives() -> None:
    """Kafka counts UTF-16 units and stores UTF-8."""
    wide = [chr(FIRST + value) for value in range(2**15)]

    assert len({*wide}) == 2**15
    assert len({*LETTERS}) == 2**6
    assert all(len(letter.encode("utf-16-le")) == 2 for letter in (*wide, *LETTERS, *MARK, *VERSION))
    assert "".join(wide).encode().decode() == "".join(wide)


def test_texts_of_version_1_stay_readable() -> None:
    """Golden vectors: later versions must read the metadata of this one."""
    tracker = restored(100, [(102, 104), (105, 106), (900, 2000)])
    kept = {
        Alphabet.WIDE: "tg1\u91b2\u79de\u9089\u9c02\u3440\u340f\u973e\u59ff",
        Alphabet.ASCII: "tg1b3V0sOFOgCAIAAPxnyX",
    }

    for alphabet, text in kept.items():
        assert MetadataRead(tracker) == commit_metadata.decoded(text, position=100, end=2000)
        assert encoded(surveyed(tracker), alphabet=alphabet).text == text


def test_texts_of_version_2_stay_readable() -> None:
    """Golden vectors of periodic sets."""
    tracker = restored(100, [(at, at + 1) for at in range(101, 90_000) if at % 10])
    kept = {
        Alphabet.WIDE: "tg2\u8b34\u58b0\u4560\u3d78\u3403\u6395\ub3ff",
        Alphabet.ASCII: "tg2xla7DxEAl4AAa-V_",
    }

    for alphabet, text in kept.items():
        assert MetadataRead(tracker) == commit_metadata.decoded(text, position=100, end=90_000)
        assert encoded(surveyed(tracker), alphabet=alphabet).text == text


def test_nothing_to_tell_is_an_empty_text() -> None:
    """Kafka has an empty text where no metadata was committed."""
    assert encoded(surveyed(OffsetTracker(5))) == Whole(5, "")
    assert encoded(surveyed(completed(delivered(OffsetTracker(5), (5, 6)), (5, 6)))) == Whole(7, "")
    assert commit_metadata.decoded("", position=5, end=0) == MetadataRead(OffsetTracker(5))
    assert units(surveyed(OffsetTracker(5))) == 0


@pytest.mark.parametrize(
    ("why", "text"),
    [
        (IgnoredBecause.FOREIGN, "{}"),
        (IgnoredBecause.FOREIGN, "t"),
        (IgnoredBecause.FOREIGN, "bzAAAAEAAAAA"),
        (IgnoredBecause.OTHER_VERSION, "tg"),
        (IgnoredBecause.OTHER_VERSION, "tg3AAAAAAAA"),
        (IgnoredBecause.DAMAGED, "tg2AAAAAAAA"),
        (IgnoredBecause.DAMAGED, sealed("0010", 5, Alphabet.ASCII).replace("tg1", "tg2")),
        (IgnoredBecause.DAMAGED, sealed("", 5, Alphabet.ASCII, "2")),
        (IgnoredBecause.DAMAGED, sealed("0" * 12, 5, Alphabet.ASCII, "2")),
        (IgnoredBecause.DAMAGED, sealed(f"{0:017b}0", 6, Alphabet.ASCII, "2")),
        (IgnoredBecause.DAMAGED, "tg1"),
        (IgnoredBecause.DAMAGED, "tg1AAAAAAAA"),
        (IgnoredBecause.DAMAGED, "tg1AAAAAAA?"),
        (IgnoredBecause.DAMAGED, "tg1\ud800\udc00"),
        (IgnoredBecause.DAMAGED, "tg1" + "一" * 9 + "A"),
        (IgnoredBecause.DAMAGED, sealed("", 5, Alphabet.ASCII)),
        (IgnoredBecause.DAMAGED, sealed("", 5, Alphabet.WIDE)),
        (IgnoredBecause.DAMAGED, sealed("0000", 5, Alphabet.ASCII)),
        (IgnoredBecause.DAMAGED, sealed("001", 6, Alphabet.ASCII)),
        (IgnoredBecause.OVERREACHING, sealed("001", 5, Alphabet.ASCII)),
    ],
)
def test_what_is_ignored_says_why(why: IgnoredBecause, text: str) -> None:
    read = commit_metadata.decoded(text, position=5, end=5)

    assert read == MetadataIgnored(why, OffsetTracker(5))
    assert str(read) == f"ignored: {why.value}"


def test_a_claim_of_too_many_offsets_is_ignored() -> None:
    text = sealed(f"01{31:05b}{31:05b}{0:032b}{KNOWN_DONE_MAX:032b}", 5, Alphabet.WIDE)

    assert commit_metadata.decoded(text, position=5, end=END) == MetadataIgnored(
        IgnoredBecause.TOO_MANY, OffsetTracker(5)
    )
    assert commit_metadata.decoded(text, position=5, end=KNOWN_DONE_MAX) == MetadataIgnored(
        IgnoredBecause.OVERREACHING, OffsetTracker(5)
    )


def test_verdicts_read_as_one_line() -> None:
    tracker = stuck(*range(2, 400, 2))

    assert [str(encoded(surveyed(tracker), limit=limit)) for limit in (LIMIT, 12, 0)] == [
        "0, and all that is done beyond it, in 33 characters",
        "0, and what is done below 94; 153 beyond it are left out",
        "0, and what is done below 2; 199 beyond it are left out",
    ]
    assert str(commit_metadata.decoded("", position=5, end=9)) == "read: OffsetTracker(floor 5)"


# --- misuse -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [None, 5, True, 1.5, b"tg1", ["tg1"]])
def test_what_is_not_text_is_refused(bad: str) -> None:
    with pytest.raises(Misuse, match="is not text"):
        commit_metadata.decoded(bad, position=0, end=0)


@pytest.mark.parametrize("bad", [None, -1, True, 1.5, "5"])
def test_what_is_not_a_number_is_refused(bad: int) -> None:
    refused: list[Callable[[], object]] = [
        partial(commit_metadata.decoded, "", position=bad, end=0),
        partial(commit_metadata.decoded, "", position=0, end=bad),
        partial(encoded, surveyed(OffsetTracker(0)), limit=bad),
    ]
    for ask in refused:
        with pytest.raises(Misuse):
            ask()


@pytest.mark.parametrize("bad", [5, "tracker", (), OffsetTracker])
def test_what_is_of_another_type_is_refused(bad: object) -> None:
    survey = surveyed(OffsetTracker(0))
    refused: list[Callable[[], object]] = [
        partial(surveyed, bad),  # type: ignore[arg-type]
        partial(surveyed, OffsetTracker(0), bad),  # type: ignore[arg-type]
        partial(units, bad),  # type: ignore[arg-type]
        partial(units, survey, bad),  # type: ignore[arg-type]
        partial(encoded, bad),  # type: ignore[arg-type]
        partial(encoded, survey, alphabet=bad),  # type: ignore[arg-type]
    ]
    for ask in refused:
        with pytest.raises(Misuse, match=r"is no|must be"):
            ask()
