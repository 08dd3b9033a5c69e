"""The admin commands; the scenarios `asking` explore interleavings and faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import attrs
import pytest
from tests.properties.invocations.test_settling import DROPPED, UNSENT, Store, Way, answered, fails, lost_reply, partly
from tests.properties.shipped import OF_DESIGNS, report_on

from tidegate.invocations.admin.commands import NEVER, Asked, Asking, Command, copy_id, order, possible
from tidegate.invocations.admin.invocation_queries import InvocationPage, InvocationQuery, InvocationRow, row
from tidegate.invocations.checks import laws
from tidegate.invocations.limits.slots import wake
from tidegate.invocations.queue.completion import RunError
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.jobs import Job, job_fields, job_of
from tidegate.invocations.record.record_documents import (
    ARGUMENTS,
    CREATED_AT,
    DUE,
    ERROR,
    HELD,
    STATUS,
    TRIES,
    WAITS,
    new_record,
    viewed,
)
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.documents import Document
from tidegate.model.effects import NotDurable, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import BulkUpdate, FindAll
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate.sim.world.world import contents, world_with

RECORDS: Final = "invocations"
DUE_THEN: Final = Instant(SECOND)
EARLIER: Final = Instant(SECOND // 2)
EVERY: Final = tuple(each.status for each in INVOCATION.definitions)


def record(key: str, which: str, *, made: int = 0, task: str = "mail", **more: Any) -> Document:
    owner = "r" if INVOCATION[which].requires_owner else None
    due = DUE_THEN if INVOCATION[which].available else None
    tenant = more.pop("tenant", "t")
    job = job_fields(Job(task=task, arguments=Document((("to", key),)), queue=f"of {task}", tenant=tenant))
    fields = Document((*job.items, (CREATED_AT.name, Instant(made * SECOND)), *more.items()))
    return new_record(key, StatusRecord(which, owner, 3), "made", Instant(0), due=due, more=fields)


def stored(*records: Document) -> Store:
    return Store(world_with({RECORDS: records}))


def asking(**more: Any) -> Asking:
    return attrs.evolve(Asking(request="ann", attempts=4, pauses=Pauses(Fixed(0))), **more)


def asked(store: Store, ask: Command, query: InvocationQuery | None = None, *ways: Way, **more: Any) -> Asked:
    program = asking(**more).ask(ask, query or InvocationQuery())
    return cast("Asked", store.run(cast("Any", program), *ways))


def found(store: Store) -> dict[str, Document]:
    return {cast("str", doc.items[0][1]): doc for doc in contents(store.world, RECORDS)}


EACH: Final = tuple(record(which, which) for which in EVERY)
FINAL: Final = {each.status for each in INVOCATION.definitions if each.final}
OWNED: Final = {each.status for each in INVOCATION.definitions if each.requires_owner}
AVAILABLE: Final = {each.status for each in INVOCATION.definitions if each.available}


def test_cancelling_does_what_each_status_allows() -> None:
    """Laws AK1 and AK2."""
    store = stored(*EACH)
    answer = asked(store, Command.CANCEL)

    assert answer == Asked(done=len(EVERY) - len(FINAL) - len(OWNED), told=len(OWNED), left=len(FINAL))
    assert store.kinds == [FindAll, BulkUpdate]
    for key, doc in found(store).items():
        if key in OWNED:
            assert (doc[STATUS], order(doc)) == (key, Command.CANCEL)
        else:
            assert doc[STATUS] == (key if key in FINAL else status.CANCELLED)
    assert asked(store, Command.CANCEL) == Asked(told=len(OWNED), left=len(EVERY) - len(OWNED))


def test_killing_asks_the_runner_of_that_run() -> None:
    """Law AK3: of no other version; a cancel request forbids later runs."""
    store = stored(*EACH, record("cancelled soon", status.RUNNING, asked="cancel"))

    assert asked(store, Command.KILL) == Asked(told=len(OWNED) + 1, left=len(EVERY) - len(OWNED))
    running = found(store)[status.RUNNING]
    assert order(running) is Command.KILL
    assert order(Document((*running.items[:3], ("version", 4), *running.items[4:]))) is None
    assert order(found(store)["cancelled soon"]) is Command.CANCEL
    assert order(EACH[0]) is None


def test_what_is_held_is_due_at_no_time_and_then_when_it_was() -> None:
    """Law AK4: each hold and release is a version of its own with the same status."""
    store = stored(*EACH)
    assert asked(store, Command.HOLD) == Asked(done=len(AVAILABLE), left=len(EVERY) - len(AVAILABLE))
    for key in AVAILABLE:
        held = found(store)[key]
        assert (held[DUE], held[HELD], viewed(held)) == (NEVER, DUE_THEN, StatusRecord(key, None, 4))
        assert laws.asking.held_is_not_due(held)
        assert row(held).is_held
        assert row(held).due is None
    assert asked(store, Command.HOLD) == Asked(left=len(EVERY))
    assert asked(store, Command.RELEASE, request="bob") == Asked(done=len(AVAILABLE), left=len(EVERY) - len(AVAILABLE))
    for key in AVAILABLE:
        released = found(store)[key]
        assert released[DUE] == DUE_THEN
        assert laws.asking.released_is_due_again(released)
    assert asked(store, Command.CANCEL).done >= len(AVAILABLE)


def check_what_is_possible(said: Callable[[str, bool], frozenset[Command]]) -> None:
    """Law AK6, in each status, held or not."""
    for which, is_held in ((each, is_held) for each in EVERY for is_held in (False, True)):
        if is_held and which not in AVAILABLE:
            continue
        stores = {ask: stored(record("x", which)) for ask in Command}
        if is_held:
            for store in stores.values():
                assert asked(store, Command.HOLD, request="bob").done == 1
        answers = {ask: asked(store, ask) for ask, store in stores.items()}
        assert laws.asking.what_is_possible_is_done(said(which, is_held), answers), (which, is_held)


def test_what_is_possible_is_done_and_nothing_else() -> None:
    """Law AK6."""
    check_what_is_possible(lambda which, is_held: possible(which, is_held=is_held))


@pytest.mark.parametrize("forgotten", Command)
def test_law_ak6_notices_what_is_forgotten(forgotten: Command) -> None:
    with pytest.raises(AssertionError):
        check_what_is_possible(lambda which, is_held: possible(which, is_held=is_held) - {forgotten})


def test_law_ak6_notices_that_what_is_held_is_thought_to_be_repeated() -> None:
    """The admin page once offered to retry a held invocation at once."""
    with pytest.raises(AssertionError):
        check_what_is_possible(lambda which, is_held: possible(which, is_held=is_held) | possible(which, is_held=False))


def test_what_sleeps_until_a_place_is_free_is_not_woken_while_it_is_held() -> None:
    """Law AK4: a freed slot wakes only others."""
    slept: dict[str, Any] = {"limited_by": "x", "waits": EARLIER}
    store = stored(record("a", status.RETRY, **slept))
    assert asked(store, Command.HOLD) == Asked(done=1)
    store.run(cast("Any", wake(RECORDS, (("x", 1),))))
    (held,) = found(store).values()

    assert laws.asking.held_is_not_due(held)
    assert held[HELD] == EARLIER
    assert asked(store, Command.RELEASE, request="bob") == Asked(done=1)
    (released,) = found(store).values()
    assert released[DUE] == EARLIER
    for ask in (Command.CANCEL, Command.REPEAT):
        store = stored(record("a", status.RETRY, **slept))
        assert asked(store, ask) == Asked(done=1)
        assert not found(store)["a"].has(WAITS)


def test_what_is_held_and_cancelled_is_no_longer_held() -> None:
    """Law AK2."""
    store = stored(record("a", status.RETRY))
    asked(store, Command.HOLD)
    asked(store, Command.CANCEL)
    (doc,) = found(store).values()

    assert doc[STATUS] == status.CANCELLED
    assert not doc.has(HELD)
    assert not doc.has(DUE)


def test_what_has_ended_is_copied_once_and_what_waits_for_its_next_try_is_due() -> None:
    """Law AK5: the copy has the job, a new id and the next number."""
    store = stored(*EACH)
    before = found(store)
    assert asked(store, Command.REPEAT) == Asked(done=len(FINAL) + 1, left=len(EVERY) - len(FINAL) - 1)
    assert asked(store, Command.REPEAT, InvocationQuery(ids=tuple(FINAL)), request="bob") == Asked(done=len(FINAL))

    after = found(store)
    copies = {key: after[copy_id(key)] for key in FINAL}
    assert len(after) == len(EVERY) + len(FINAL)
    for key, copy in copies.items():
        assert laws.asking.one_copy_at_most([copy], before[key], after[key])
        assert job_of(copy) == job_of(before[key])
        assert viewed(copy) == StatusRecord(status.REGISTERED, None, 1)
        assert copy[TRIES] == 0  # a record without it is none that a runner takes
        assert not copy.has(ERROR)
    assert after[status.RETRY][DUE] != DUE_THEN
    assert asked(stored(copies[status.FAILED]), Command.REPEAT) == Asked(left=1)
    assert [copy_id(each) for each in ("a", "a~2", "a~9", "a~b", "~2", "a~9999999999")] == [
        "a~2", "a~3", "a~10", "a~b~2", "~2~2", "a~9999999999~2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "ways",
    [
        (answered, lost_reply),
        (answered, DROPPED),
        (answered, partly(1)),
        (answered, UNSENT, lost_reply),
        (DROPPED, UNSENT, answered, fails(NotDurable("no majority yet"))),
        (answered, lost_reply, DROPPED),
    ],
    ids=["reply lost", "request lost", "done in part", "not sent", "not durable", "look lost"],
)
@pytest.mark.parametrize("ask", [Command.CANCEL, Command.HOLD])
def test_whatever_becomes_of_requests_each_is_counted_once(ask: Command, ways: tuple[Way, ...]) -> None:
    """Law AK1: an invocation at its goal is not written again."""
    store = stored(record("a", status.RETRY), record("b", status.REGISTERED), record("c", status.FAILED))

    assert asked(store, ask, None, *ways) == Asked(done=2, left=1)
    assert {viewed(doc).version for key, doc in found(store).items() if key != "c"} == {4}  # type: ignore[union-attr]


def test_where_nobody_answers_it_says_so() -> None:
    """Law AK1: unread invocations are not counted; a sent request may be done."""
    nobody = (DROPPED,) * 4
    assert asked(stored(record("a", status.RETRY)), Command.CANCEL, None, *nobody) == Asked(is_complete=False)
    silent = (answered, *(DROPPED,) * 4)
    assert asked(stored(record("a", status.RETRY)), Command.CANCEL, None, *silent) == Asked(
        unknown=1, is_complete=False
    )
    with pytest.raises(Refused):
        asked(stored(record("a", status.RETRY)), Command.CANCEL, None, answered, fails(Refused("not authorised")))


def test_batches_go_through_all_once_and_what_is_none_is_counted() -> None:
    """Law AK1: page by page, in the order of ids; an unreadable record does not stop the others."""
    spoiled = Document((("_id", "b"), ("status", 7)))
    store = stored(record("a", status.RETRY), spoiled, *(record(key, status.RETRY) for key in "cde"))

    assert asked(store, Command.CANCEL, batch=2) == Asked(done=4, unreadable=1)
    assert store.kinds == [FindAll, BulkUpdate, FindAll, BulkUpdate, FindAll, BulkUpdate]
    no_due = record("a", status.RETRY).without(DUE)
    assert asked(stored(no_due), Command.HOLD) == Asked(unreadable=1)
    no_arguments = record("a", status.FAILED).without(ARGUMENTS)
    assert asked(stored(no_arguments), Command.REPEAT) == Asked(unreadable=1)


def test_a_query_means_what_all_of_its_parts_say() -> None:
    """Law IQ1: each part alone, and several together."""
    store = stored(
        record("a", status.FAILED, made=1, error=RunError("ValueError", "No such MAIL").document()),
        record("b", status.RETRY, made=2, task="bill", parent="a", root="a"),
        record("c", status.RUNNING, made=3, tenant="u"),
    )

    def listed(**query: Any) -> str:
        page = store.run(cast("Any", asking().list_rows(InvocationQuery(**query))))
        return "".join(str(each.key) for each in cast("InvocationPage", cast("object", page)).rows)

    assert listed() == "cba"
    assert listed(ids=("a", "c")) == "ca"
    assert listed(tasks=("mail",)) == "ca"
    assert listed(queues=("of bill",)) == "b"
    assert listed(statuses=frozenset({status.RETRY, status.RUNNING})) == "cb"
    assert listed(tenant="u") == "c"
    assert listed(parent="a") == listed(root="a") == "b"
    assert listed(error="such mail") == listed(error="valueerror") == "a"
    assert listed(error="nothing") == ""
    assert listed(made_from=Instant(2 * SECOND)) == "cb"
    assert listed(made_before=Instant(2 * SECOND)) == "a"
    assert listed(tasks=("mail",), statuses=frozenset({status.FAILED})) == "a"
    assert asked(store, Command.CANCEL, InvocationQuery(error="nothing")) == Asked()


def test_pages_show_each_once_and_one_is_shown_whole() -> None:
    """Law IQ2."""
    spoiled = Document((("_id", "z"), ("status", 7), (CREATED_AT.name, Instant(0))))
    store = stored(*(record(f"{made}", status.FAILED, made=made) for made in (1, 2, 3, 4)), spoiled)
    pages: list[InvocationPage] = []
    after: tuple[Any, ...] = ()
    while not pages or after:
        page = store.run(cast("Any", asking().list_rows(InvocationQuery(), limit=2, after=after)))
        pages.append(cast("InvocationPage", cast("object", page)))
        after = pages[-1].after

    rows = [each for page in pages for each in page.rows]
    assert [each.key for each in rows] == ["4", "3", "2", "1", "z"]
    assert rows[-1].trouble
    assert rows[0].job is not None
    assert rows[0].job.arguments == Document()
    shown = cast("InvocationRow", cast("object", store.run(cast("Any", asking().show("4")))))
    assert shown.job is not None
    assert shown.job.arguments == Document((("to", "4"),))
    assert [each.by for each in shown.versions] == [""]
    assert shown.document is not None
    assert cast("object", store.run(cast("Any", asking().show("nobody")))) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: InvocationQuery(statuses=frozenset({"lost"})),
        lambda: InvocationQuery(ids=cast("Any", "abc")),
        lambda: InvocationQuery(tenant=""),
        lambda: Asking(request=""),
        lambda: Asking(request="a", batch=0),
        lambda: copy_id(""),
    ],
    ids=["no such status", "a text for ids", "no tenant", "no request", "no batch", "no id"],
)
def test_what_cannot_be_asked_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        make()


@OF_DESIGNS
@pytest.mark.parametrize("name", ["asking", "asking.kill", "asking.held", "asking.repeated"])
def test_every_fault_strikes_where_it_is_explored(name: str) -> None:
    """Laws AK1 to AK5."""
    report = report_on(name)

    assert report.ok
    assert {"late", "lost_reply", "dropped", "duplicate"} <= {*report.faults}
