"""Encodes the offsets done beyond the committed position as a string that is committed with it.

Kafka keeps one number per group and partition, so the next owner would repeat all records done
behind an unfinished one. Beside it, Kafka keeps a string of up to 4,096 characters. It holds the
rest: a selective acknowledgement (RFC 2018) that survives a restart. The idea comes from
Confluent's Parallel Consumer. This encoding covers 2.5 to 3.8 times as many offsets where the open
ones are random, and no fewer where they are regular.

    "tg1" | checksum, 40 bits | layout, 2 bits | Rice parameters, 5 bits each | the set, in one of
    four layouts
    "tg2" | checksum, 40 bits | period, 12 bits | Rice parameter, 5 bits      | the set, where it
                                                                              repeats

    BITMAP     a bit for each offset from the position on; 1 is done
    RUNS       the length of each run, open and done alternately
    OPEN_GAPS  the number of done offsets before each open one, and after the last
    DONE_GAPS  the number of open offsets before each done one
    PERIODIC   the number before each offset that differs from the one a period earlier, and after
               the last (`_periods`)

The numbers use Rice code (Golomb 1966, "Run-length encodings"; Rice 1979), within a few percent of
optimal for gaps and runs of random length: (x >> k) ones, a zero, and the k lowest bits of x. A
random 10 % takes 0.475 bits per offset, of which 0.469 are information. The encoder takes the
shortest layout and parameters, and tries PERIODIC only above 2^13 bits. A version of tidegate that
reads only "tg1" ignores "tg2" and repeats its records. No code is all ones, and a bitmap ends with
a one. So the padding (ones after numbers, zeros after a bitmap) marks the end.

Kafka's limit counts UTF-16 units. A unit carries 15 bits with `Alphabet.WIDE` (32,768 letters of
the Basic Multilingual Plane). It carries 6 with `Alphabet.ASCII`, for systems before the broker
that count or require bytes.

The length is known without the string: `surveyed` keeps sums of runs along the tracker's tree
(`tidegate.consumer.offsets._run_statistics`), and updates only the changed parts.

Laws
    ME1  Decoding inverts encoding: the result is the `successor` of the tracker, with all done
         offsets, or with those that fit.
    ME2  No text is longer than the limit, in UTF-16 units.
    ME3  No offset is skipped wrongly: a text that was changed, cut, made for another position or by
         another program is ignored, as is one with offsets beyond the end of the log. Every text
         has a verdict.
    ME4  The size is exact: `units` is the length of the whole text.
    ME5  A partial text holds as much as fits: one more done offset would exceed the limit.
    ME6  No other layout or parameters give a shorter text; the period is the one that the first
         offsets show.
    ME7  A survey reads only what has changed: trackers that share nodes share their surveys.

Things that do not work
    Runs of variable-length integers: they cover less than compressed runs of fixed width, 17,000
    offsets at 10 %.
    A checksum of the text alone: tools that copy commits between clusters translate the position
    and keep the string. So the checksum covers both.
    To read the position and the set at different times: offsets done in between are missing or
    doubled. Here both come from one value.

Known not to work
    A topic deleted and recreated while the group's commits stay, or a log that was truncated and
    has grown again: the old text fits the position, and skips new records.
    More than `watermark.KNOWN_DONE_MAX` offsets are written, but ignored when they are read.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum, unique
from hashlib import blake2b
from itertools import chain, cycle, pairwise, repeat
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.consumer.offsets._pages import PAGE, Pages
from tidegate.consumer.offsets._periods import (
    PERIOD_BITS,
    SPAN_MAX,
    WINDOW,
    bits_between,
    differences,
    period_of,
    repeated,
)
from tidegate.consumer.offsets._run_statistics import (
    LANE,
    NOTHING,
    RunTally,
    Stretch,
    length_of,
    parts_of,
    rice,
    stretch_of,
    sum_of,
    sums,
    tally_from,
    tally_of,
)
from tidegate.consumer.offsets.watermark import (
    KNOWN_DONE_MAX,
    OFFSET_MAX,
    OffsetTracker,
    Run,
    done_runs,
    low_watermark,
    restored,
    successor,
)
from tidegate.model.errors import Misuse, shown
from tidegate.model.values import check_int, check_type

LIMIT: Final = 4096
"""Kafka's default for `offset.metadata.max.bytes`, which in fact counts UTF-16 units."""

MARK: Final = "tg"
VERSION: Final = "1"
_PERIODIC_VERSION: Final = "2"


@final
@unique
class Alphabet(Enum):
    """The letters of a text; the value is the bits per letter. Each letter is one UTF-16 unit."""

    WIDE = 15
    """U+3400 to U+B3FF: CJK, Yi, Hangul and the blocks between. Three bytes each in UTF-8."""
    ASCII = 6
    """Those of base64url. One byte each."""


FIRST: Final = 0x3400
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

_CHECKSUM: Final = 40
"""Bits. One of 10^12 damaged texts passes."""

_PARAMETER: Final = 5
"""Bits of a Rice parameter, which is below 32 (`_run_tallies.RICE`)."""

_LONG: Final = 1 << 13
"""The size in bits above which a period is tried; such a set spans more offsets than a `WINDOW`."""

_ONES: Final = re.compile("1+")


@final
@unique
class Layout(Enum):
    """The encoding of the set; the value is its number in the text, except PERIODIC, which has its
    own version.
    """

    BITMAP = 0
    RUNS = 1
    OPEN_GAPS = 2
    DONE_GAPS = 3
    PERIODIC = 4


# --- verdicts -------------------------------------------------------------------------------------


@final
@attrs.frozen
class Whole:
    """The text holds all offsets done beyond the position.

    Attributes:
        position: The position to commit with it.
        text: The metadata to commit; empty where no offset is done beyond the position.
    """

    position: int
    text: str

    @property
    def stop(self) -> int:
        """The text holds the done offsets below this one."""
        return OFFSET_MAX + 1

    def __str__(self) -> str:
        return f"{self.position}, and all that is done beyond it, in {len(self.text)} characters"


@final
@attrs.frozen
class Partial:
    """The text holds only some of the offsets done beyond the position.

    Attributes:
        position: The position to commit with it.
        text: The metadata to commit; empty where the limit leaves no room.
        stop: The text holds the done offsets below this one, which is itself done and left out.
        left_out: The number of done offsets left out, which the next owner would repeat.
    """

    position: int
    text: str
    stop: int
    left_out: int

    def __str__(self) -> str:
        return f"{self.position}, and what is done below {self.stop}; {self.left_out} beyond it are left out"


Encoded: TypeAlias = Whole | Partial


@final
@attrs.frozen
class MetadataRead:
    """The text was read; begin with this tracker."""

    tracker: OffsetTracker

    def __str__(self) -> str:
        return f"read: {self.tracker}"


@final
@unique
class IgnoredBecause(Enum):
    """Why a text is ignored."""

    FOREIGN = "it was written by something else"
    OTHER_VERSION = "it was written by another version"
    DAMAGED = "it is damaged, or was written for another position"
    OVERREACHING = "it speaks of offsets that the log does not have"
    TOO_MANY = "it speaks of more offsets than a tracker can be restored with"


@final
@attrs.frozen
class MetadataIgnored:
    """The text was ignored; begin with this tracker, which has only the position."""

    reason: IgnoredBecause
    tracker: OffsetTracker

    def __str__(self) -> str:
        return f"ignored: {self.reason.value}"


Decoded: TypeAlias = MetadataRead | MetadataIgnored


# --- the survey -----------------------------------------------------------------------------------


@final
@attrs.frozen
class Survey:
    """A tracker, and the sums from which the length of its text follows."""

    tracker: OffsetTracker
    stretch: Stretch = attrs.field(repr=False)


def surveyed(tracker: OffsetTracker, before: Survey | None = None) -> Survey:
    """Survey a tracker for the size of its text.

    Args:
        tracker: The delivered and the done offsets.
        before: The survey of an earlier tracker of the same partition; its unchanged parts are
            reused.

    Raises:
        Misuse: An argument has a wrong type, or the tracker does not begin at a position.
    """
    _ = low_watermark(tracker)  # it checks where the tracker begins
    check_type(before, (Survey, NoneType), "a survey")
    return Survey(tracker, stretch_of(tracker.pages or NOTHING, None if before is None else before.stretch))


def units(survey: Survey, alphabet: Alphabet = Alphabet.WIDE) -> int:
    """The length of the whole text in UTF-16 units, whatever the limit.

    Raises:
        Misuse: An argument has a wrong type.
    """
    _check(survey, alphabet)
    position = low_watermark(survey.tracker)
    return _units(tally_from(survey.stretch, position), position, survey.tracker.pages, alphabet)


# --- encoding -------------------------------------------------------------------------------------


def encoded(survey: Survey, *, limit: int = LIMIT, alphabet: Alphabet = Alphabet.WIDE) -> Encoded:
    """The position to commit, and the text to commit with it.

    Args:
        survey: Of the tracker; `surveyed(tracker)`.
        limit: The UTF-16 units that the broker accepts.
        alphabet: The letters; `ASCII` where a broker has refused `WIDE` ones.

    Returns:
        `Whole`, or `Partial` where not all offsets fit.

    Raises:
        Misuse: An argument has a wrong type, or the limit is negative.
    """
    _check(survey, alphabet)
    check_int(limit, "a limit of characters", 0)
    position = low_watermark(survey.tracker)
    tally = tally_from(survey.stretch, position)
    if tally is None:
        return Whole(position, "")
    pages = survey.tracker.pages
    form = _shortest(tally, position, pages)
    if _length(form, alphabet) <= limit:
        return Whole(position, _text(successor(survey.tracker), form, alphabet))
    fitting, stop = _fitting(survey, position, limit, alphabet)
    if fitting is None:
        return Partial(position, "", stop, tally.done)
    text = _text(successor(survey.tracker, stop), _shortest(fitting, position, pages), alphabet)
    return Partial(position, text, stop, tally.done - fitting.done)


def _text(heir: OffsetTracker, form: _Form, alphabet: Alphabet) -> str:
    if form.layout is Layout.PERIODIC:
        period, k = form.parameters
        head = f"{period - 1:0{PERIOD_BITS}b}{k:0{_PARAMETER}b}"
        *_, (_, stop) = done_runs(heir)
        gaps = differences(bits_between(heir.pages, heir.floor, stop), stop - heir.floor, period)
        return _sealed(head + _coded(gaps, (k,)), heir.floor, alphabet, _PERIODIC_VERSION)
    head = f"{form.layout.value:02b}{''.join(f'{k:0{_PARAMETER}b}' for k in form.parameters)}"
    if form.layout is Layout.BITMAP:
        edges = pairwise((heir.floor, *chain.from_iterable(done_runs(heir))))
        return _sealed(
            head + "".join(bit * length_of(run) for bit, run in zip(cycle("01"), edges)), heir.floor, alphabet
        )
    return _sealed(head + _coded(_numbers(form.layout, heir), form.parameters), heir.floor, alphabet)


def _coded(numbers: Iterable[int], parameters: tuple[int, ...]) -> str:
    codes: dict[tuple[int, int], str] = {}
    written: list[str] = []
    for each in zip(numbers, cycle(parameters)):
        code = codes.get(each)
        if code is None:
            number, k = each
            code = codes[each] = "1" * (number >> k) + f"{number & (1 << k) - 1:0{k + 1}b}"
        written.append(code)
    return "".join(written)


def _sealed(content: str, position: int, alphabet: Alphabet, version: str = VERSION) -> str:
    """Zeros and ones as letters, padded, after the mark and a checksum."""
    padding = "0" if version == VERSION and content.startswith(f"{Layout.BITMAP.value:02b}") else "1"
    content += padding * (-(_CHECKSUM + len(content)) % alphabet.value)
    bits = _checksum(content, position, version) + content
    values = (int(bits[at : at + alphabet.value], 2) for at in range(0, len(bits), alphabet.value))
    return (
        MARK
        + version
        + "".join(chr(FIRST + value) if alphabet is Alphabet.WIDE else LETTERS[value] for value in values)
    )


def _checksum(content: str, position: int, version: str) -> str:
    # It covers the version too, because each content is valid in both; version 1 had none.
    said = f"{position} {content}" if version == VERSION else f"{version} {position} {content}"
    digest = blake2b(said.encode(), digest_size=_CHECKSUM // 8).digest()
    return f"{int.from_bytes(digest):0{_CHECKSUM}b}"


def _numbers(layout: Layout, heir: OffsetTracker) -> Iterator[int]:
    before, run = heir.floor, 0
    for start, stop in done_runs(heir):
        gap, last, run = start - before, run, stop - start
        match layout:
            case Layout.RUNS:
                yield gap - bool(last)  # only the first gap may be empty
                yield run - 1
            case Layout.DONE_GAPS:
                yield gap
                yield from repeat(0, run - 1)
            case _:
                yield from (last, *repeat(0, gap - 1))[:gap]
        before = stop
    if layout is Layout.OPEN_GAPS:
        yield run


# --- decoding -------------------------------------------------------------------------------------


def decoded(text: str, *, position: int, end: int) -> Decoded:
    """The tracker to begin with after an assignment.

    Args:
        text: The group's committed metadata; empty for none.
        position: The position committed with it.
        end: The end of the partition's log: one past its last record.

    Returns:
        `MetadataRead`, or `MetadataIgnored` with the reason; either has a tracker.

    Raises:
        Misuse: An argument has a wrong type, or is out of range.
    """
    if not isinstance(text, str):
        raise Misuse(
            f"{shown(text)} is not text", todo="pass the metadata as the broker gave it, and an empty text for none"
        )
    check_int(position, "a position", 0, OFFSET_MAX + 1)
    check_int(end, "the end of a log", 0)
    nothing = OffsetTracker(position)
    mark, version, letters = text[: len(MARK)], text[len(MARK) : len(MARK + VERSION)], text[len(MARK + VERSION) :]
    if not text:
        return MetadataRead(nothing)
    if mark != MARK:
        return MetadataIgnored(IgnoredBecause.FOREIGN, nothing)
    if version not in (VERSION, _PERIODIC_VERSION):
        return MetadataIgnored(IgnoredBecause.OTHER_VERSION, nothing)
    content = _content(letters, position, version)
    runs = _runs_in(content, position) if version == VERSION else _repeated_in(content, position)
    if not runs:
        return MetadataIgnored(IgnoredBecause.DAMAGED, nothing)
    if runs[-1][1] > min(end, OFFSET_MAX + 1):
        return MetadataIgnored(IgnoredBecause.OVERREACHING, nothing)
    if sum(map(length_of, runs)) > KNOWN_DONE_MAX:
        return MetadataIgnored(IgnoredBecause.TOO_MANY, nothing)
    return MetadataRead(restored(position, runs))


def _content(letters: str, position: int, version: str) -> str:
    """The sealed content; empty if the checksum fails."""
    # WIDE letters are above all ASCII ones, so the first letter decides the alphabet. A letter of
    # the other alphabet then has no value in range.
    alphabet = Alphabet.WIDE if letters[:1] >= chr(FIRST) else Alphabet.ASCII
    values = [ord(letter) - FIRST if alphabet is Alphabet.WIDE else LETTERS.find(letter) for letter in letters]
    if not values or min(values) < 0 or max(values) >> alphabet.value:
        return ""
    bits = "".join(f"{value:0{alphabet.value}b}" for value in values)
    content = bits[_CHECKSUM:]
    return content if bits[:_CHECKSUM] == _checksum(content, position, version) else ""


def _runs_in(content: str, position: int) -> list[Run]:
    """The runs of a content, as far as they can be read."""
    # Empty content, from a failed checksum, reads as a bitmap without runs, so `decoded` returns
    # DAMAGED. Truncated parameters read as 0, and no numbers follow them.
    layout = Layout(int(content[:2] or "0", 2))
    if layout is Layout.BITMAP:
        return _ones_in(content[2:], position)
    body = 2 + _PARAMETER * (2 if layout is Layout.RUNS else 1)
    parameters = [int(content[at : at + _PARAMETER] or "0", 2) for at in range(2, body, _PARAMETER)]
    numbers = _read(content[body:], parameters)
    runs: list[Run] = []
    at = position
    match layout:
        case Layout.RUNS:
            for gap, run in zip(numbers, numbers, strict=False):
                at += gap + bool(runs)
                runs.append((at, at + run + 1))
                at += run + 1
        case Layout.OPEN_GAPS:
            for run in numbers:
                runs += [(at, at + run)] * bool(run)
                at += run + 1
        case _:
            for gap in numbers:
                start = runs.pop()[0] if runs and not gap else at + gap
                at += gap + 1
                runs.append((start, at))
    return runs


def _repeated_in(content: str, position: int) -> list[Run]:
    """The runs of a periodic content; none if it spans more than is ever written."""
    body = PERIOD_BITS + _PARAMETER
    if len(content) < body:
        return []
    gaps: list[int] = []
    span = -1
    for gap in _read(content[body:], [int(content[PERIOD_BITS:body], 2)]):
        gaps.append(gap)
        span += gap + 1
        if span > SPAN_MAX:
            return []
    return _ones_in(repeated(gaps, int(content[:PERIOD_BITS], 2) + 1), position) if gaps else []


def _ones_in(bits: str, position: int) -> list[Run]:
    return [(position + run.start(), position + run.end()) for run in _ONES.finditer(bits)]


def _read(bits: str, parameters: list[int]) -> Iterator[int]:
    at, turns = 0, cycle(parameters)
    while (zero := bits.find("0", at)) >= 0 and zero + (k := next(turns)) < len(bits):
        yield zero - at << k | int(bits[zero : zero + k + 1], 2)
        at = zero + k + 1


# --- size -----------------------------------------------------------------------------------------


@final
@attrs.frozen
class _Form:
    """A way to write a set, and its size in bits without the checksum."""

    bits: int
    layout: Layout
    parameters: tuple[int, ...] = ()


def _units(tally: RunTally | None, position: int, pages: Pages, alphabet: Alphabet) -> int:
    return 0 if tally is None else _length(_shortest(tally, position, pages), alphabet)


def _length(form: _Form, alphabet: Alphabet) -> int:
    return len(MARK + VERSION) - (-(_CHECKSUM + form.bits) // alphabet.value)


def _shortest(tally: RunTally, position: int, pages: Pages) -> _Form:
    """The shortest form of the done offsets from the position to the end of the tally."""
    before, span = tally.first[0] - position, tally.last[1] - position
    # One lane up are the sums of `number - 1`: runs, and all gaps but the first, are written minus
    # one (`_numbers`).
    apart, apart_k = rice(tally.runs, tally.open_sums >> LANE, before)
    runs, runs_k = rice(tally.runs, tally.done_sums >> LANE)
    open_gaps, open_k = rice(span - tally.done + 1, tally.done_sums)
    done_gaps, done_k = rice(tally.done, tally.open_sums, before)
    shortest = min(
        _Form(2 + span, Layout.BITMAP),
        _Form(2 + 2 * _PARAMETER + apart + runs, Layout.RUNS, (apart_k, runs_k)),
        _Form(2 + _PARAMETER + open_gaps, Layout.OPEN_GAPS, (open_k,)),
        _Form(2 + _PARAMETER + done_gaps, Layout.DONE_GAPS, (done_k,)),
        key=lambda form: form.bits,
    )
    if not shortest.bits > _LONG or span > SPAN_MAX:
        return shortest
    period = period_of(bits_between(pages, position, position + WINDOW))
    if period is None:
        return shortest
    gaps = Counter(differences(bits_between(pages, position, tally.last[1]), span, period))
    repeats, repeats_k = rice(gaps.total(), sum(count * sums(gap) for gap, count in gaps.items()))
    periodic = _Form(PERIOD_BITS + _PARAMETER + repeats, Layout.PERIODIC, (period, repeats_k))
    return periodic if periodic.bits < shortest.bits else shortest


def _fitting(survey: Survey, position: int, limit: int, alphabet: Alphabet) -> tuple[RunTally | None, int]:
    """The tally of the part that fits, and the first done offset left out."""
    pages, stretch = survey.tracker.pages, survey.stretch
    fitting: RunTally | None = None
    while parts := parts_of(stretch):
        stretch, high = parts
        more = sum_of(fitting, tally_from(stretch, position))
        if _units(more, position, pages, alphabet) <= limit:
            fitting, stretch = more, high
    page, done = stretch.pages[0], stretch.pages[2]
    at = max(0, position - page * PAGE)
    done = done >> at << at

    def fitting_below(bit: int) -> RunTally | None:
        return sum_of(fitting, tally_of(page, done & (1 << bit) - 1))

    fits = bisect_right(range(PAGE), limit, key=lambda bit: _units(fitting_below(bit), position, pages, alphabet)) - 1
    left = done >> fits << fits  # clears the lowest bits, which fit
    return fitting_below(fits), page * PAGE + (left & -left).bit_length() - 1


def _check(survey: Survey, alphabet: Alphabet = Alphabet.WIDE) -> None:
    if not isinstance(survey, Survey):
        raise Misuse(f"{shown(survey)} is not a survey", todo="pass surveyed(tracker)")
    if not isinstance(alphabet, Alphabet):
        raise Misuse(f"{shown(alphabet)} is not an alphabet", todo="pass Alphabet.WIDE or Alphabet.ASCII")
