from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, WALL, Instant
from tidegate.reactive.checks.laws import orphans as laws
from tidegate.reactive.checks.strategies.orphans import clean_up_verdicts, clean_ups
from tidegate.reactive.checks.strategies.tasks import records, times
from tidegate.reactive.record import orphans
from tidegate.reactive.record.orphans import (
    DAY,
    ORPHANED,
    CleanUp,
    DeleteWhen,
    KeepRecord,
    RemoveRecord,
    Source,
    SweepVerdict,
    WhyKept,
    clean_up,
    last_touched,
)
from tidegate.reactive.record.task_records import TaskRecord, TaskStatus


def at(milliseconds: int) -> Instant:
    return Instant(milliseconds * MILLISECOND)


COMPLETED: Final = TaskRecord(
    id="r1",
    version=7,
    status=TaskStatus.COMPLETED,
    snapshot=None,
    next_run_at=None,
    due_at=at(0),
    changed_at=at(100),
    waiting_since=None,
    created_at=at(0),
    token=2,
    finalised_at=at(200),
)
HELD: Final = attrs.evolve(
    COMPLETED, status=TaskStatus.PROCESSING, next_run_at=at(1_000), owner="w1", claimed_at=at(100), finalised_at=None
)
NOT_NOTED: Final = attrs.evolve(COMPLETED, snapshot=Document())
AT_ONCE: Final = CleanUp(keep_for=0)
IF_LEFT: Final = CleanUp(delete_when=DeleteWhen.SOURCE_GONE_OR_LEFT, keep_for=100 * MILLISECOND)

Judge: TypeAlias = Callable[[TaskRecord, Source, CleanUp, Instant, SweepVerdict], bool]
LAWS: Final[dict[str, Judge]] = {
    "RE41": laws.removes_orphans_only,
    "RE42": lambda record, _, __, now, verdict: laws.leaves_what_is_held(record, now, verdict),
    "RE43": lambda _, source, __, ___, verdict: laws.leaves_what_is_unknown(source, verdict),
    "RE44": laws.removes_every_orphan,
    "RE45": lambda record, _, __, ___, verdict: laws.removes_what_was_noted(record, verdict),
}


@pytest.mark.parametrize("law", LAWS)
@given(records(), st.sampled_from(Source), clean_ups(), times())
@example(HELD, Source.GONE, AT_ONCE, at(999))
@example(COMPLETED, Source.GONE, AT_ONCE, at(200))
@example(COMPLETED, Source.GONE, AT_ONCE, at(201))
@example(NOT_NOTED, Source.GONE, AT_ONCE, at(201))
@example(COMPLETED, Source.UNKNOWN, AT_ONCE, at(201))
@example(COMPLETED, Source.NOT_MATCHING, AT_ONCE, at(201))
def test_cleaning_up_keeps(law: str, record: TaskRecord, source: Source, policy: CleanUp, now: Instant) -> None:
    """Laws RE41 to RE45."""
    assert LAWS[law](record, source, policy, now, clean_up(record, source, policy, now))


RE41, RE42, RE43, RE44, RE45 = (partial(test_cleaning_up_keeps, law) for law in LAWS)
UNKNOWN = "    if source is Source.UNKNOWN:\n"

test_a_planted_bug_is_found = planted(
    orphans,
    bug("what is recent goes as well", ("if now - last_touched(record) <= policy.keep_for", "if False"), RE41),
    bug("what has happened since it was made does not count", ("now - last_touched(record)", "now - record.created_at"), RE41),
    # mongodash: the status is ignored.
    bug("whatever runs", ("record.status in PROCESSED and record.next_run_at is not None and now - record.next_run_at < 0", "False"), RE42),
    bug("what nobody could read is taken for gone", (f"{UNKNOWN}        return KeepRecord(WhyKept.UNKNOWN)", f"{UNKNOWN}        source = Source.GONE"), RE43),
    # mongodash: ids are listed first and deleted later without a new check, or the clean-up
    # never began.
    bug("by id", ("RemoveRecord(record.guard)", "RemoveRecord(Guard(record.id, 1, None, 0))"), RE44),
    bug("never", (UNKNOWN, f"    return KeepRecord(WhyKept.WANTED)\n{UNKNOWN}"), RE44),
    # Our bug: a look at a document that came back unchanged finds no change and writes nothing that
    # fences the removal.
    bug("whatever was noted", ("if record.snapshot is not None", "if False"), RE45),
)  # fmt: skip


@pytest.mark.parametrize(
    ("record", "source", "policy", "now", "expected"),
    [
        (COMPLETED, Source.GONE, AT_ONCE, at(201), RemoveRecord(COMPLETED.guard)),
        (COMPLETED, Source.GONE, AT_ONCE, at(200), KeepRecord(WhyKept.RECENT)),
        (NOT_NOTED, Source.GONE, AT_ONCE, at(201), KeepRecord(WhyKept.NOT_NOTED)),
        (COMPLETED, Source.NOT_MATCHING, AT_ONCE, at(201), KeepRecord(WhyKept.WANTED)),
        (COMPLETED, Source.NOT_MATCHING, IF_LEFT, at(301), RemoveRecord(COMPLETED.guard)),
        (COMPLETED, Source.NOT_MATCHING, IF_LEFT, at(300), KeepRecord(WhyKept.RECENT)),
        (COMPLETED, Source.GONE, IF_LEFT, at(301), RemoveRecord(COMPLETED.guard)),
        (COMPLETED, Source.MATCHING, IF_LEFT, at(10**9), KeepRecord(WhyKept.WANTED)),
        (COMPLETED, Source.GONE, CleanUp(delete_when=DeleteWhen.NEVER), at(10**9), KeepRecord(WhyKept.WANTED)),
        (COMPLETED, Source.GONE, CleanUp(), Instant(200 * MILLISECOND + DAY), KeepRecord(WhyKept.RECENT)),
        (COMPLETED, Source.GONE, CleanUp(), Instant(201 * MILLISECOND + DAY), RemoveRecord(COMPLETED.guard)),
        (COMPLETED, Source.UNKNOWN, IF_LEFT, at(10**9), KeepRecord(WhyKept.UNKNOWN)),
        (HELD, Source.GONE, AT_ONCE, at(999), KeepRecord(WhyKept.HELD)),
        (HELD, Source.GONE, AT_ONCE, at(1_000), RemoveRecord(HELD.guard)),
    ],
)
def test_a_record_goes_when_it_is_of_no_use(
    record: TaskRecord, source: Source, policy: CleanUp, now: Instant, expected: SweepVerdict
) -> None:
    """mongodash, 37 and 38: gone or not matching, within the time and after; running ones stay."""
    assert clean_up(record, source, policy, now) == expected


def test_every_mode_has_its_orphans() -> None:
    assert set(ORPHANED) == set(DeleteWhen)
    assert all({Source.MATCHING, Source.UNKNOWN}.isdisjoint(sources) for sources in ORPHANED.values())


@given(records())
def test_the_last_touch_is_the_latest(record: TaskRecord) -> None:
    """A record that never ended a run counts from its change or its creation."""
    latest = last_touched(record)

    assert latest in (record.created_at, record.changed_at, record.finalised_at)
    assert latest - record.created_at >= 0
    assert latest - record.changed_at >= 0


ORPHANS: Final[Any] = orphans


@pytest.mark.parametrize(
    "construct",
    [
        lambda: ORPHANS.CleanUp(delete_when="never"),
        lambda: ORPHANS.CleanUp(keep_for=-1),
        lambda: ORPHANS.CleanUp(keep_for="24h"),
        lambda: ORPHANS.CleanUp(keep_for=True),
        lambda: ORPHANS.last_touched(None),
        lambda: ORPHANS.clean_up(None, Source.GONE, AT_ONCE, at(0)),
        lambda: ORPHANS.clean_up(COMPLETED, "gone", AT_ONCE, at(0)),
        lambda: ORPHANS.clean_up(COMPLETED, Source.GONE, None, at(0)),
        lambda: ORPHANS.clean_up(COMPLETED, Source.GONE, AT_ONCE, 0),
        lambda: ORPHANS.clean_up(COMPLETED, Source.GONE, AT_ONCE, Instant(10**9, WALL)),
    ],
)
def test_what_means_nothing_is_refused(construct: Callable[[], object]) -> None:
    """mongodash: the range of a number is not checked."""
    with pytest.raises(Misuse):
        construct()


@given(clean_up_verdicts())
def test_verdicts_print_on_one_line(verdict: SweepVerdict) -> None:
    assert str(verdict).startswith(("remove 'r", "keep: "))
    assert hash(verdict) == hash(verdict)
