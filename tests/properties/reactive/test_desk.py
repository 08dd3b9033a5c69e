"""Commands of operators under lost requests. Scenarios explore how they meet workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

import attrs
import pytest
from tests.properties.on_documents import run

from tidegate.model.documents import Document
from tidegate.model.effects import Ambiguous, Effect, Failure, NotApplied, NotDurable, Program, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import BulkUpdate, FindAll, UpdateOne
from tidegate.reactive.admin.commands import Desk, Retried, TaskCounts
from tidegate.reactive.checks.laws import desk as laws
from tidegate.reactive.record.record_queries import Query, RecordRow
from tidegate.reactive.record.task_documents import loaded, record_id, stored
from tidegate.reactive.record.task_records import Ended, RunEnd, TaskRecord, TaskStatus
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate.sim.world.planners import planning
from tidegate.sim.world.world import CLOCK, Cell, World, contents, document, perform, world_with

NOW: Final = Instant(60 * SECOND)
BILL, MAIL = ReactiveTask(name="bill", source="orders"), ReactiveTask(name="mail", source="users")
DESK: Final = Desk(tasks=(BILL, MAIL), attempts=3, pauses=Pauses(Fixed(0)))
FAILED: Final = TaskRecord(
    id="r",
    version=3,
    status=TaskStatus.FAILED,
    snapshot=Document.of({"total": 1}),
    next_run_at=None,
    due_at=Instant(10 * SECOND),
    changed_at=Instant(0),
    waiting_since=None,
    created_at=Instant(0),
    attempts=5,
    token=5,
    first_error_at=Instant(0),
    last_error="it broke",
    history=(RunEnd(5, Ended.FAILED, Instant(0), 0, "it broke"),),
)
RECORDS: Final[Mapping[str, TaskRecord]] = {
    "failed": FAILED,
    "pending": attrs.evolve(FAILED, status=TaskStatus.PENDING, next_run_at=Instant(30 * SECOND)),
    "running": attrs.evolve(
        FAILED, status=TaskStatus.PROCESSING, next_run_at=Instant(90 * SECOND), owner="w", claimed_at=Instant(0)
    ),
    "done": attrs.evolve(FAILED, status=TaskStatus.COMPLETED, last_error=None, due_at=Instant(0)),
}
GARBAGE: Final = Document.of({"_id": "bill/odd", "task": "bill", "document": "odd", "status": 7})
OTHERS: Final = stored(FAILED, "other", "x")
WORLD: Final = world_with(
    {
        "orders_tasks": (*(stored(each, "bill", key) for key, each in RECORDS.items()), GARBAGE, OTHERS),
        "users_tasks": (stored(FAILED, "mail", "failed"),),
    }
).write(CLOCK, NOW)


def record(world: World, key: str) -> TaskRecord:
    found = world.read(cell(key))
    assert found is not None
    return loaded(found)


def cell(key: str) -> Cell[Document | None]:
    return document("orders_tasks", record_id("bill", key))


def test_a_retry_resets_what_it_means_and_nothing_else() -> None:
    """Law DK1: a processed record keeps its lease; invalid records are counted."""
    retried, world = run(attrs.evolve(DESK, batch=2).retry(Query()), WORLD)

    assert retried == Retried(reset=5, unreadable=1)
    assert {record(world, key).status for key in ("failed", "pending", "done")} == {TaskStatus.PENDING}
    assert record(world, "failed").next_run_at == NOW
    assert (record(world, "failed").attempts, record(world, "failed").history) == (0, FAILED.history)
    assert record(world, "failed").snapshot == FAILED.snapshot
    running = record(world, "running")
    assert (running.status, running.owner, running.next_run_at) == (
        TaskStatus.PROCESSING_DIRTY,
        "w",
        Instant(90 * SECOND),
    )
    assert OTHERS in contents(world, "orders_tasks")
    assert GARBAGE in contents(world, "orders_tasks")


@pytest.mark.parametrize(
    ("query", "reset"),
    [
        (Query(statuses=frozenset({TaskStatus.FAILED})), 2),
        (Query(statuses=frozenset({TaskStatus.FAILED, TaskStatus.PENDING})), 3),
        (Query(has_error=True), 4),
        (Query(tasks=("mail",)), 1),
        (Query(tasks=("bill",), documents=("failed", "none")), 1),
        (Query(error="BROKE"), 4),
        (Query(error="no such text"), 0),
        (Query(error="it.broke"), 0),
        (Query(has_error=False, statuses=frozenset({TaskStatus.FAILED})), 0),
        (Query(due_before=Instant(60 * SECOND)), 1),
    ],
    ids=[
        "failed",
        "two statuses",
        "an error",
        "a task",
        "a document",
        "a text",
        "no text",
        "no expression",
        "nothing",
        "due",
    ],
)
def test_a_retry_is_of_what_is_asked_for(query: Query, reset: int) -> None:
    retried, world = run(DESK.retry(query), WORLD)
    assert retried == Retried(reset=reset)
    assert reset or world == WORLD


def test_who_names_no_task_of_the_application_is_told_which_there_are() -> None:
    asked: tuple[Callable[[], Program[object]], ...] = (
        lambda: DESK.retry(Query(tasks=("bil",))),
        lambda: DESK.list_records(Query(tasks=("other",))),
        lambda: DESK.count(Query(tasks=("other",))),
        lambda: DESK.pause("other"),
        lambda: DESK.resume("other"),
        lambda: DESK.find("other", 7),
    )
    for each in asked:
        with pytest.raises(Misuse, match=r"no task .*(\n.*)*bill, mail"):
            run(each(), WORLD)
    with pytest.raises(Misuse, match="two tasks of one name"):
        _ = Desk(tasks=(BILL, BILL))


# --- request failures ---------------------------------------------------------------------------------------------------


def nth(wanted: int, failure: Failure, kind: type[Effect[object]] | tuple[type[Effect[object]], ...]) -> Any:
    numbers = count(1)
    return lambda effect: failure.fresh() if isinstance(effect, kind) and next(numbers) == wanted else None


@pytest.mark.parametrize("failure", [NotApplied("not now"), Ambiguous("no reply")], ids=["not applied", "dropped"])
@pytest.mark.parametrize("kind", [FindAll, BulkUpdate], ids=["a page", "a write"])
def test_what_was_not_done_is_asked_again(failure: Failure, kind: type[Effect[object]]) -> None:
    """Law DK1."""
    query = Query(tasks=("bill",))
    retried, world = run(DESK.retry(query), WORLD, nth(1, failure, kind))
    assert retried == Retried(reset=4, unreadable=1)
    assert record(world, "failed").version == 4


def replied_late(replies: int) -> Any:
    numbers = count()

    def means(effect: Effect[object], world: World, who: str) -> Any:
        for after, reply in perform(effect, world, who):
            is_lost = isinstance(effect, (BulkUpdate, UpdateOne)) and next(numbers) < replies
            yield after, (NotDurable if replies == 1 else Ambiguous)("no reply") if is_lost else reply

    return means


@pytest.mark.parametrize("replies", [1, 2])
def test_what_was_done_is_found_by_what_is_there(replies: int) -> None:
    """Law DK1: it is not repeated."""
    retried, world = run(DESK.retry(Query(tasks=("bill",))), WORLD, means=replied_late(replies))
    assert retried == Retried(reset=4, unreadable=1)
    assert [record(world, key).version for key in RECORDS] == [4] * 4


def test_what_another_has_written_since_is_left_to_him() -> None:
    """Law DK1: it was not reset, and the answer says so; whether it was before is unknown."""

    def meanwhile(lost: int) -> Any:
        numbers = count()

        def means(effect: Effect[object], world: World, who: str) -> Any:
            for after, reply in perform(effect, world, who):
                if isinstance(effect, FindAll) and next(numbers) == lost:
                    changed = attrs.evolve(RECORDS["pending"], version=9)
                    doc = stored(changed, "bill", "pending")
                    yield after.write(cell("pending"), doc), reply
                else:
                    yield after, reply

        return means

    retried, world = run(DESK.retry(Query(documents=tuple(RECORDS), tasks=("bill",))), WORLD, means=meanwhile(0))
    assert retried == Retried(reset=3, changed=1)
    assert record(world, "pending").version == 9
    fails = nth(1, Ambiguous("no reply"), BulkUpdate)
    retried, _ = run(DESK.retry(Query(documents=tuple(RECORDS), tasks=("bill",))), WORLD, fails, meanwhile(0))
    assert retried == Retried(reset=3, unknown=1)


def test_where_nobody_answers_it_says_so() -> None:
    never: Any = lambda effect: Ambiguous("no reply") if isinstance(effect, FindAll) else None  # noqa: E731
    assert run(DESK.retry(Query()), WORLD, never)[0] == Retried(is_complete=False)
    never = lambda effect: NotApplied("not now") if isinstance(effect, (BulkUpdate, UpdateOne)) else None  # noqa: E731
    assert run(DESK.retry(Query()), WORLD, never)[0] == Retried(unknown=5, unreadable=1, is_complete=False)
    refuses: Any = lambda effect: Refused("not authorised") if isinstance(effect, BulkUpdate) else None  # noqa: E731
    with pytest.raises(Refused, match="not authorised"):
        run(DESK.retry(Query()), WORLD, refuses)


# --- counts, one record -------------------------------------------------------------------------------------------------


def test_records_are_counted_by_task_and_status_with_the_lag() -> None:
    tally, _ = run(DESK.count(Query()), WORLD, means=planning())
    bill, mail = tally.tasks

    assert bill.counts == (
        (None, 1),
        *((each, 1) for each in (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.PENDING, TaskStatus.PROCESSING)),
    )
    assert (bill.task, bill.total, bill.oldest, bill.lag(tally.at)) == ("bill", 5, Instant(10 * SECOND), 50 * SECOND)
    assert mail == TaskCounts("mail", ((TaskStatus.FAILED, 1),), None)
    assert mail.lag(tally.at) == 0
    assert bill.lag(Instant(0)) == 0
    failed, _ = run(DESK.count(Query(statuses=frozenset({TaskStatus.FAILED}))), WORLD, means=planning())
    assert [each.total for each in failed.tasks] == [1, 1]
    with pytest.raises(Misuse, match="text of an error"):
        run(DESK.count(Query(error="broke")), WORLD, means=planning())


def test_one_record_is_found_with_its_history() -> None:
    assert run(DESK.find("bill", "failed"), WORLD)[0] == RecordRow("bill", "failed", FAILED)
    assert run(DESK.find("bill", 7), WORLD)[0] is None
    odd, _ = run(DESK.find("bill", "odd"), WORLD)
    assert odd is not None
    assert odd.record is None


# --- laws ---------------------------------------------------------------------------------------------------------------


def test_the_laws_tell_right_from_wrong() -> None:
    """Laws DK1, DK2 and DK3."""
    assert laws.reset_is_what_is_said(1, Retried(unknown=1), 1)
    assert not laws.reset_is_what_is_said(2, Retried(reset=1), 1)
    assert not laws.reset_is_what_is_said(0, Retried(reset=1), 1)
    assert not laws.reset_is_what_is_said(1, Retried(reset=1), 2)
    assert laws.what_was_reset_runs(Retried(reset=1), 1)
    assert not laws.what_was_reset_runs(Retried(reset=1), 0)
    running, pending = stored(RECORDS["running"], "bill", "x"), stored(RECORDS["pending"], "bill", "x")
    assert laws.a_reset_takes_nothing(pending, running)
    assert not laws.a_reset_takes_nothing(running, pending)
