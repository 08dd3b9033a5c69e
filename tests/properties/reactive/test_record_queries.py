from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.on_documents import run

from tidegate.model.checks.strategies.documents import values
from tidegate.model.documents import Document, Field, Value, in_order, matches
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Instant
from tidegate.reactive.admin.commands import Desk
from tidegate.reactive.checks.strategies.tasks import records
from tidegate.reactive.record.record_queries import Order, Query, RecordPage, RecordRow, begins_at, row
from tidegate.reactive.record.task_documents import CHANGED_AT, NEXT_RUN_AT, stored
from tidegate.reactive.record.task_records import TaskRecord, TaskStatus
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.sim.world.world import World, world_with

DESK: Final = Desk(tasks=(ReactiveTask(name="bill", source="orders"), ReactiveTask(name="mail", source="users")))
NEVER: Final = Instant(0)
TASKS: Final = {"bill": "orders_tasks", "mail": "users_tasks"}
Stock: TypeAlias = list[tuple[str, TaskRecord, Value, Value]]
STOCKS: Final = st.lists(
    st.tuples(
        st.sampled_from(("bill", "mail")),
        records(),
        *(st.one_of(st.just("as it is"), values().filter(lambda value: not isinstance(value, tuple))),) * 2,
    ),
    max_size=9,
)


def stock(drawn: Stock) -> dict[str, tuple[Document, ...]]:
    found: dict[str, tuple[Document, ...]] = dict.fromkeys(TASKS.values(), ())
    for number, (task, record, next_run, changed) in enumerate(drawn):
        doc = stored(record, task, number)
        doc = doc if next_run == "as it is" else doc.put(Field[Any](NEXT_RUN_AT.name), next_run)
        doc = doc if changed == "as it is" else doc.put(Field[Any](CHANGED_AT.name), changed)
        found[TASKS[task]] += (doc,)
    return found


def listed(world: World, query: Query, order: Order, limit: int) -> list[RecordRow]:
    rows: list[RecordRow] = []
    page, _ = run(DESK.list_records(query, order=order, limit=limit), world)
    rows += page.rows
    while page.after:
        page, _ = run(DESK.list_records(query, order=order, limit=limit, after=page.after), world)
        rows += page.rows
    return rows


@given(STOCKS, st.sampled_from(Order), st.integers(1, 4))
def test_page_by_page_each_record_is_listed_once_in_order(drawn: Stock, order: Order, limit: int) -> None:
    """Laws RQ1 and RQ2, over two collections, with any values in the dates."""
    there = stock(drawn)
    world = world_with(there)
    rows = listed(world, Query(), order, limit)

    assert sorted(row.document for row in rows if isinstance(row.document, int)) == [*range(len(drawn))]
    assert rows == listed(world, Query(), order, 999)
    dates = {row.document: number for number, row in enumerate(rows)}
    docs = [doc for each in there.values() for doc in each]
    in_dates = [doc for doc in docs if isinstance(doc.held(_by(order)), Instant)]
    expected = sorted(in_dates, key=lambda doc: in_order(doc.get(_by(order))), reverse=order is Order.CHANGED)
    found = sorted(in_dates, key=lambda doc: dates[doc[Field[int]("document")]])
    assert [doc.held(_by(order)) for doc in found] == [doc.held(_by(order)) for doc in expected]
    assert {*dates.values()} >= {*range(len(in_dates))}
    assert all(dates[doc[Field[int]("document")]] < len(in_dates) for doc in in_dates)


def _by(order: Order) -> Field[Any]:
    return NEXT_RUN_AT if order is Order.NEXT_RUN else CHANGED_AT


RECORD: Final = TaskRecord(
    id="r",
    version=1,
    status=TaskStatus.FAILED,
    snapshot=None,
    next_run_at=None,
    due_at=Instant(0),
    changed_at=Instant(0),
    waiting_since=None,
    created_at=Instant(0),
    last_error="Time-out of the BANK",
)
PENDING: Final = attrs.evolve(RECORD, status=TaskStatus.PENDING, next_run_at=Instant(5 * SECOND), last_error=None)


@pytest.mark.parametrize(
    ("query", "failed", "pending"),
    [
        (Query(), True, True),
        (Query(statuses=frozenset({TaskStatus.FAILED})), True, False),
        (Query(statuses=frozenset(TaskStatus)), True, True),
        (Query(documents=(7,)), True, False),
        (Query(documents=(7.0, "none")), True, False),
        (Query(documents=("7",)), False, True),
        (Query(has_error=True), True, False),
        (Query(has_error=False), False, True),
        (Query(error="time-out of"), True, False),
        (Query(error="$"), False, False),
        (Query(due_from=Instant(5 * SECOND)), False, True),
        (Query(due_from=Instant(5 * SECOND + 1_000)), False, False),
        (Query(due_before=Instant(5 * SECOND)), False, False),
        (Query(due_before=Instant(5 * SECOND + 1_000)), False, True),
    ],
    ids=[
        *(
            "all",
            "a status",
            "any status",
            "a number",
            "an equal number",
            "a text",
            "an error",
            "no error",
            "a text of it",
        ),
        *("no regular expression", "from", "after", "before", "until"),
    ],
)
def test_a_query_means_what_it_says(query: Query, failed: bool, pending: bool) -> None:
    for record, key, is_meant in ((RECORD, 7, failed), (PENDING, "7", pending)):
        doc = stored(record, "bill", key)
        found = matches(query.where(("bill",)), doc, lambda: NEVER) and query.wants(row(doc).record)
        assert found is is_meant
        assert not matches(query.where(("mail",)), doc, lambda: NEVER)


@given(st.lists(st.sampled_from(("time-out", "no")), max_size=30), st.integers(1, 3))
@example(["no"] * 30, 1)
def test_a_text_is_looked_for_page_by_page(errors: list[str], limit: int) -> None:
    """Law RQ2, where the store cannot search the text."""
    docs = tuple(stored(attrs.evolve(RECORD, last_error=text), "bill", n) for n, text in enumerate(errors))
    rows = listed(world_with({"orders_tasks": docs}), Query(error="TIME"), Order.CHANGED, limit)
    assert [row.document for row in rows] == sorted(
        (n for n, text in enumerate(errors) if text == "time-out"), key=lambda n: str(docs[n].items[0][1])
    )


def test_what_holds_no_record_is_listed_with_what_is_wrong() -> None:
    """It hides no other record, and its contents are not shown."""
    world = world_with({"orders_tasks": (Document.of({"_id": "bill/x", "task": "bill", "secret": "s3cret"}),)})
    page, _ = run(DESK.list_records(Query()), world)
    (found,) = page.rows
    assert (found.task, found.record) == ("bill", None)
    assert "record" in (found.trouble or "")
    assert "s3cret" not in repr(page)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Query(tasks="bill"),  # type: ignore[arg-type]
        lambda: Query(statuses=("failed",)),  # type: ignore[arg-type]
        lambda: Query(documents=((1, 2),)),
        lambda: Query(error=""),
        lambda: Query(error="x", has_error=False),
        lambda: Query(due_from=7),  # type: ignore[arg-type]
        lambda: Query(due_before=Instant(1)),
        lambda: begins_at(Order.CHANGED, (2,)),
        lambda: begins_at(Order.CHANGED, (0, NEVER)),
        lambda: begins_at(Order.NEXT_RUN, ("0", NEVER, "id")),
        lambda: begins_at(Order.NEXT_RUN, 7),
    ],
    ids=[
        "tasks",
        "statuses",
        "an array",
        "no text",
        "a contradiction",
        "a time",
        "a fine time",
        "no part",
        "short",
        "no number",
        "no cursor",
    ],
)
def test_what_nobody_can_mean_is_said_at_once(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()


def test_a_page_that_goes_on_nowhere_has_no_end() -> None:
    assert run(DESK.list_records(Query(), limit=5), world_with({}))[0] == RecordPage(())
