"""The one-time import of mongodash's task records: laws MD1 to MD3."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.on_documents import is_read_or_misuse, run

from tidegate.model.documents import Document, Foreign, Value
from tidegate.model.effects import Ambiguous, Effect, Failure, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND, Instant
from tidegate.model.operations import InsertMany, InsertOne
from tidegate.reactive.admin.mongodash_records import (
    GLOBALS,
    Imported,
    ImportedBefore,
    MongodashImport,
    StillWritten,
    check_not_theirs,
    translated,
)
from tidegate.reactive.admin.pausing import CONTROL
from tidegate.reactive.record.snapshot import Computed, Digest, Projection, snapshot
from tidegate.reactive.record.task_documents import loaded, record_id
from tidegate.reactive.record.task_records import FINISHED, Ended, RunEnd, TaskStatus
from tidegate.reactive.record.tasks import Leave, Matching, TaskRules, UpdateRecord, plan
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate.sim.world.world import CLOCK, World, contents, document, perform, world_with

NOW: Final = Instant(10_000 * SECOND)
TASK: Final = ReactiveTask(name="bill", source="orders", records="orders_records", watched=Projection(("total",)))
IMPORT: Final = MongodashImport(task=TASK, theirs="orders_tasks", quiet=0, batch=2)
TIMES: Final = st.one_of(st.none(), st.integers(0, 20_000).map(lambda at: Instant(at * SECOND)))
COUNTS: Final = st.one_of(st.integers(0, 9), st.floats(0, 9), st.none())


def at(seconds: float) -> Instant:
    return Instant(round(seconds * SECOND))


def oid(number: int) -> Foreign:
    return Foreign("objectId", number.to_bytes(12))


def their(number: int, key: Value, **fields: Any) -> Document:
    first = {"_id": oid(number), "task": "bill", "sourceDocId": key, "status": "pending", "attempts": 0}
    times = {"nextRunAt": at(5_000), "dueAt": at(5_000), "createdAt": at(4_000), "updatedAt": at(4_500)}
    return Document.of({**first, **times, "lastObservedValues": {"total": number}, **fields})


FAILING: Final[dict[str, Any]] = {"firstErrorAt": at(6_000), "lastError": "no answer", "attempts": 2.0}
RUNS: Final = (
    {"at": at(5_500), "status": "completed", "durationMs": 20},
    {"at": at(6_000), "status": "failed", "durationMs": 1.5, "error": "no answer"},
)


@st.composite
def theirs(draw: st.DrawFn) -> Document:
    fields = {
        name: draw(TIMES) for name in ("nextRunAt", "dueAt", "createdAt", "updatedAt", "startedAt", "firstErrorAt")
    }
    runs = draw(st.lists(st.sampled_from((*RUNS, {"at": "then"}, {"status": "lost"})), max_size=7).map(tuple))
    return Document.of(
        {
            "_id": oid(7),
            "task": "bill",
            "sourceDocId": draw(st.sampled_from(("x", 7, oid(1)))),
            **fields,
            "status": draw(st.sampled_from([status.value for status in TaskStatus])),
            "attempts": draw(COUNTS),
            "lastError": draw(st.sampled_from((None, "no answer", 7))),
            "executionHistory": draw(st.sampled_from((runs, None))),
            "lastObservedValues": draw(st.sampled_from(({"total": 1}, {"total": 1, "other": 2}, {}, None))),
        }
    )


@given(theirs())
def test_what_was_to_run_runs_and_what_is_finished_is_finished(doc: Document) -> None:
    """Law MD1: due no later than in mongodash; processed records at once."""
    record = translated(doc, TASK, NOW)
    status, due = dict(doc.items)["status"], dict(doc.items)["nextRunAt"]

    if status in {each.value for each in FINISHED}:
        assert (record.status.value, record.next_run_at) == (status, None)
    else:
        assert record.status is TaskStatus.PENDING
        assert record.next_run_at == (due if status == "pending" and due is not None else NOW)
    assert record.owner is None
    assert len(record.history) <= TASK.rules.history_max
    assert record.token >= max((run.token for run in record.history), default=0)


@pytest.mark.parametrize(
    ("observed", "watched", "seen", "is_same"),
    [
        ({"total": 1}, ("total",), {"_id": "x", "total": 1.0, "note": "n"}, True),
        ({"total": 1}, ("total",), {"_id": "x", "total": 2}, False),
        ({"total": 1, "note": "n"}, ("total",), {"_id": "x", "total": 1}, True),
        ({"total": 1}, ("note", "total"), {"_id": "x", "total": 1, "note": "n"}, False),
        ({"b": {"y": 1}, "a": 2}, ("a", "b.y"), {"_id": "x", "a": 2, "b": {"y": 1, "z": 3}}, True),
        ({"_id": "x", "total": 1}, (), {"_id": "x", "total": 1}, True),
        ({"lines": {"n": (1, 2)}}, ("lines.n",), {"_id": "x", "lines": ({"n": 1}, {"n": 2})}, True),
        (None, ("total",), {"_id": "x", "total": 1}, False),
    ],
    ids=[
        "the same",
        "another",
        "watched less",
        "watched more",
        "in another order",
        "whole",
        "through an array",
        "nothing",
    ],
)
def test_what_was_observed_is_compared_with_what_is_there(
    observed: Any,
    watched: tuple[str, ...],
    seen: dict[str, Value],
    is_same: bool,
) -> None:
    """Law MD1: a finished record runs again exactly if the watched values differ."""
    task = attrs.evolve(TASK, watched=Projection(watched))
    record = translated(their(1, "x", status="completed", lastObservedValues=observed), task, NOW)
    now = snapshot(Document.of(seen), task.watched)
    assert isinstance(now, Document)
    verdict = plan(record, Matching(now), rules=TaskRules(), now=NOW, new_id="new")
    assert isinstance(verdict, Leave if is_same else UpdateRecord)


def test_what_nobody_can_compute_from_what_was_observed_is_looked_at_anew() -> None:
    computed = attrs.evolve(TASK, watched=Projection((), (("sum", Computed(lambda doc: doc)),)))
    assert translated(their(1, "x"), computed, NOW).snapshot is None
    small = attrs.evolve(TASK, rules=TaskRules(snapshot_bytes_max=0))
    assert isinstance(translated(their(1, "x"), small, NOW).snapshot, Digest)


def test_a_record_that_fails_keeps_its_streak_and_its_runs() -> None:
    doc = their(1, "x", **FAILING, executionHistory=RUNS, lastSuccess={"at": at(5_500), "durationMs": 20})
    record = translated(doc, TASK, NOW)
    assert (record.attempts, record.token, record.retry_at, record.waiting_since) == (2, 2, at(5_000), None)
    assert (record.first_error_at, record.last_error, record.due_at) == (at(6_000), "no answer", at(5_000))
    assert record.history == (
        RunEnd(1, Ended.SUCCEEDED, at(5_500), 20 * MILLISECOND),
        RunEnd(2, Ended.FAILED, at(6_000), MILLISECOND, "no answer"),
    )
    assert record.last_success == RunEnd(2, Ended.SUCCEEDED, at(5_500), 20 * MILLISECOND)
    none = translated(doc, attrs.evolve(TASK, rules=TaskRules(history_max=0)), NOW)
    assert none.history == ()


def test_whatever_stands_there_is_a_record_or_is_said_to_be_none() -> None:
    """Law MD2."""
    assert is_read_or_misuse(lambda doc: translated(doc, TASK, NOW), their(1, "x", **FAILING, executionHistory=RUNS))


# --- a whole import -----------------------------------------------------------------------------------------------------

MATCHED: Final[tuple[Value, ...]] = ("a", 7, oid(9), "b")
THEIRS: Final = (
    *(their(number, key) for number, key in enumerate(MATCHED, start=1)),
    their(5, "c", status="processing", nextRunAt=at(9_000)),
    their(6, "d", status="odd"),
    their(7, "x", task="mail"),
)


def world(*more: Document, lock: Instant | None = None) -> World:
    meta = {
        "_id": "_mongodash_planner_meta",
        **({} if lock is None else {"lock": {"expiresAt": lock, "instanceId": "i"}}),
    }
    return world_with({"orders_tasks": (*THEIRS, *more), GLOBALS: (Document.of(meta),)}).write(CLOCK, NOW)


def test_all_are_taken_over_once_and_stay_as_they_are() -> None:
    """Laws MD2 and MD3; a dry run reports the same and writes nothing."""
    begun = world(lock=at(9_999))
    dry, untouched = run(IMPORT.take_over(is_dry=True), begun)
    done, after = run(IMPORT.take_over(), begun)
    again, same = run(IMPORT.take_over(), after)

    assert isinstance(dry, Imported)
    assert attrs.evolve(dry, is_dry=False) == done
    assert untouched == begun
    assert isinstance(done, Imported)
    assert (done.taken, done.there, done.unreadable) == (5, 0, 1)
    assert "odd" in done.reasons[0]
    assert {doc.items[0][1] for doc in contents(after, TASK.records)} == {
        record_id("bill", key) for key in ("a", 7, oid(9), "b", "c")
    }
    assert all(loaded(doc).version == 1 for doc in contents(after, TASK.records))
    assert contents(after, "orders_tasks") == THEIRS
    assert isinstance(again, ImportedBefore)
    assert again.at == NOW
    assert same == after


def test_a_name_of_which_there_is_nothing_is_not_the_end_of_it() -> None:
    """Law MD3: a missing or mistyped name is reported, and the import can be repeated."""
    nothing, after = run(attrs.evolve(IMPORT, named="bil").take_over(), world())
    done, _ = run(IMPORT.take_over(), after)

    assert nothing == Imported(0, 0, 0, (), is_dry=False)
    assert contents(after, CONTROL) == ()
    assert isinstance(done, Imported)
    assert done.taken == 5


def test_whoever_got_no_answer_begins_again() -> None:
    """Laws MD2 and MD3: existing records stay, also those that our workers have changed since."""
    once, begun = attrs.evolve(IMPORT, attempts=1), world()
    fails: Any = iter([None, Ambiguous("no reply")])
    with pytest.raises(Ambiguous):
        run(once.take_over(), begun, lambda effect: next(fails, None) if isinstance(effect, InsertMany) else None)

    def lost(effect: Effect[object]) -> Failure | None:
        return Ambiguous("no reply") if isinstance(effect, InsertOne) and effect.collection == CONTROL else None

    with pytest.raises(Ambiguous):
        run(once.take_over(), begun, lost)
    _, first = run(attrs.evolve(IMPORT, batch=1_000).take_over(), begun)
    without = first.write(*no_marker(first))
    done, _ = run(IMPORT.take_over(), without)
    assert isinstance(done, Imported)
    assert (done.taken, done.there) == (0, 5)


@pytest.mark.parametrize("nth", range(20))
def test_a_request_that_has_no_answer_is_sent_again(nth: int) -> None:
    insisting = attrs.evolve(IMPORT, pauses=Pauses(Fixed(0)))
    for is_dry in (True, False):
        numbers = count()
        done, after = run(insisting.take_over(is_dry=is_dry), world(), partial(_nth_fails, numbers, nth))
        assert isinstance(done, Imported)
        assert (done.taken + done.there, done.unreadable) == (5, 1)
        assert len(contents(after, TASK.records)) == (0 if is_dry else 5)


def _nth_fails(numbers: Iterator[int], nth: int, _: Effect[object]) -> Failure | None:
    return Ambiguous("no reply") if next(numbers) == nth else None


def no_marker(there: World) -> Any:
    (marker,) = contents(there, CONTROL)
    return document(CONTROL, str(marker.items[0][1])), None


@pytest.mark.parametrize(
    ("begun", "why"),
    [
        (world(lock=at(10_001)), StillWritten.LED),
        (world(their(8, "y", status="processing", nextRunAt=at(10_001))), StillWritten.RUN),
        (world(their(8, "y", status="processing_dirty", nextRunAt=at(10_001))), StillWritten.RUN),
    ],
    ids=["led", "run", "run and changed"],
)
def test_where_mongodash_is_at_work_nothing_is_taken_over(begun: World, why: StillWritten) -> None:
    for is_dry in (False, True):
        said, after = run(IMPORT.take_over(is_dry=is_dry), begun)
        assert (said, after) == (why, begun)


@pytest.mark.parametrize("name", ["updatedAt", "startedAt", "lastFinalizedAt"])
@pytest.mark.parametrize("when", ["while it waits", "while it reads"])
def test_what_is_written_in_between_is_noticed(name: str, when: str) -> None:
    def means(effect: Effect[object], there: World, who: str) -> Any:
        is_then = isinstance(effect, Sleep) if when == "while it waits" else isinstance(effect, InsertMany)
        for after, reply in [(there, None)] if isinstance(effect, Sleep) else perform(effect, there, who):
            changed = their(1, "a", **{name: at(9_999)}) if is_then else None
            yield (after if changed is None else after.write(document("orders_tasks", oid(1)), changed)), reply

    said, after = run(attrs.evolve(IMPORT, quiet=SECOND).take_over(), world(), means=means)
    assert said is StillWritten.CHANGED
    assert contents(after, CONTROL) == ()


def test_records_of_both_in_one_collection_are_refused() -> None:
    with pytest.raises(Misuse, match="rename theirs"):
        _ = MongodashImport(task=ReactiveTask(name="bill", source="orders"), theirs="orders_tasks")
    with pytest.raises(Misuse, match="rename theirs"):
        check_not_theirs("orders_tasks", ("email", "sourceDocId", "task"))
    check_not_theirs("orders_tasks", ("email",))
