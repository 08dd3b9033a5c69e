from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

import attrs
import pytest

from tidegate.invocations.queue.bulk_transition import RecordMove, Settling
from tidegate.invocations.record.invocation import INVOCATION, PENDING, RUNNING
from tidegate.invocations.record.record_documents import new_record
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import Transition
from tidegate.model.documents import ID, Document, Eq
from tidegate.model.effects import (
    Ambiguous,
    Call,
    Effect,
    Failure,
    NotApplied,
    NotDurable,
    Note,
    Now,
    Program,
    Refused,
    Sleep,
)
from tidegate.model.errors import Misuse, UnknownEffect
from tidegate.model.instants import MILLISECOND, PPM, SECOND, WALL, Instant
from tidegate.model.operations import BulkUpdate, InsertOne, UpdateOne, find_one, insert_one
from tidegate.model.transactions import CommitTransaction, InTransaction
from tidegate.retries import retrying
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed, Policy
from tidegate.retries.failures import Duplicate
from tidegate.transactions.transacting import in_transaction
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.runtime import driver
from tidegate_adapters.runtime.driver import (
    CLOSINGS_MAX,
    Handle,
    choosing,
    documents,
    local,
    local_async,
    run,
    run_async,
)

FAILURES: Final = (Refused("no"), NotApplied("not yet"), Ambiguous("who knows"), NotDurable("not by many"))

Drive: TypeAlias = Callable[[Program[Any], Handle], Any]


def in_loop(program: Program[Any], handle: Handle) -> Any:
    async def awaited(effect: Effect[object]) -> object:
        reply = handle(effect)
        return await reply if inspect.isawaitable(reply) else reply

    return asyncio.run(run_async(program, awaited))


def here(drive: Drive, **calls: Callable[..., object]) -> Handle:
    def awaited(call: Callable[..., object]) -> Callable[..., Any]:
        async def answer(*arguments: object) -> object:
            return call(*arguments)

        return answer

    if drive is in_loop:
        return choosing(local_async({name: awaited(call) for name, call in calls.items()}))
    return choosing(local(calls))


both = pytest.mark.parametrize("drive", [run, in_loop], ids=["sync", "async"])


async def ask(*questions: str) -> tuple[object, ...]:
    replies: tuple[object, ...] = ()
    for question in questions:
        try:
            reply = await Call(question)
        except Failure as failure:
            reply = failure.fresh()
        replies = (*replies, reply)
    return replies


async def ask_twice() -> object:
    return await ask("a"), await ask("b")


# The loop


@both
def test_a_program_receives_the_replies_and_its_result_is_returned(drive: Drive) -> None:
    asked: list[Effect[object]] = []

    def handle(effect: Effect[object]) -> object:
        asked.append(effect)
        return len(asked)

    assert drive(ask_twice(), handle) == ((1,), (2,))
    assert asked == [Call("a"), Call("b")]


def test_a_handler_of_an_event_loop_is_not_taken_for_one_of_a_thread() -> None:
    """Otherwise the program would continue as if the handler had run. The reverse is misuse too."""
    done: list[Effect[object]] = []

    async def carried_out(effect: Effect[object]) -> None:
        done.append(effect)

    with pytest.raises(Misuse, match="event loop"):
        run(ask("a"), carried_out)

    assert not done

    with pytest.raises(Misuse, match="event loop"):
        asyncio.run(run_async(ask("a"), done.append))  # type: ignore[arg-type]  # the mistake under test


@both
@pytest.mark.parametrize("failure", FAILURES, ids=str)
def test_a_failure_is_raised_into_the_program(drive: Drive, failure: Failure) -> None:
    def handle(effect: Effect[object]) -> object:
        if effect == Call("returned"):
            return failure
        raise failure

    replies = drive(ask("returned", "raised"), handle)

    assert replies == (failure, failure)
    assert all(each is not failure for each in replies)


@both
@pytest.mark.parametrize("failure", FAILURES, ids=str)
def test_a_failure_that_is_not_caught_is_raised_to_the_caller(drive: Drive, failure: Failure) -> None:
    async def careless() -> object:
        return await Call("it")

    with pytest.raises(type(failure)) as raised:
        drive(careless(), lambda _: failure)

    assert raised.value == failure


@both
def test_what_a_program_raises_is_raised_to_the_caller(drive: Drive) -> None:
    async def broken() -> object:
        await Call("it")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        drive(broken(), lambda _: None)


class NoEffect:
    def __await__(self) -> Any:
        yield "not an effect"


@both
@pytest.mark.parametrize("awaitable", [lambda: asyncio.sleep(0), NoEffect], ids=["a pause of the loop", "a generator"])
def test_awaiting_what_is_not_an_effect_is_an_error(drive: Drive, awaitable: Callable[[], Any]) -> None:
    async def mistaken() -> object:
        return await awaitable()

    with pytest.raises(UnknownEffect, match="is not an effect"):
        drive(mistaken(), lambda _: None)


def test_awaiting_a_future_is_an_error() -> None:
    """`asyncio.sleep` belongs to an event loop; a program awaits `Sleep`."""

    async def mistaken() -> object:
        await asyncio.sleep(1)
        return None

    with pytest.raises(UnknownEffect, match="awaited a Future, which is not an effect"):
        in_loop(mistaken(), lambda _: None)


@both
def test_an_id_that_is_a_dictionary_is_an_error(drive: Drive) -> None:
    """Effects are deeply immutable; the driver raises before the store gets a request."""

    async def injected() -> object:
        return await find_one("users", Eq(ID, {"$gt": ""}))

    asked: list[Effect[object]] = []
    with pytest.raises(Misuse, match="a dict cannot stand in a document"):
        drive(injected(), asked.append)

    assert asked == []


# Logging


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == driver.__name__]


async def persistent(attempts: int) -> object:
    for _ in range(attempts):
        with suppress(NotApplied, Ambiguous):
            return await Call("it", ("secret",))
        await Sleep(1)
    return None


@both
def test_attempts_that_fail_are_logged_by_how_many_there_were(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", driver.__name__)
    replies = iter([NotApplied("a"), None, Ambiguous("b"), None, "at last", *[NotApplied("c"), None] * 2])

    assert drive(persistent(3), lambda _: next(replies)) == "at last"
    assert logged(caplog) == [
        ("DEBUG", "persistent: Call has failed (1): NotApplied(a)"),
        ("DEBUG", "persistent: goes on after a sleep 1 us"),
        ("WARNING", "persistent: Call has failed (2): Ambiguous(b)"),
        ("WARNING", "persistent: goes on after a sleep 1 us"),
    ]

    caplog.clear()

    assert drive(persistent(2), lambda _: next(replies)) is None
    assert logged(caplog)[-1] == ("ERROR", "persistent: given up; 2 attempts have failed")


@both
def test_an_effect_that_is_never_awaited_is_a_warning(
    drive: Drive, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_CHECKED", set())

    async def forgets() -> str:
        insert_one("c", Document.of({"_id": "x"}))  # type: ignore[unused-awaitable]  # the mistake
        return "done"

    async def awaits() -> str:
        effect = Sleep(1)
        await effect
        return "done"

    where = f"tests/integration/test_driver.py:{forgets.__code__.co_firstlineno + 1} {forgets.__qualname__}"
    text = f"forgets: insert_one(...) at {where} makes an effect that is never awaited: its result is dropped"
    assert [drive(program(), lambda _: None) for program in (forgets, forgets, awaits)] == ["done"] * 3
    assert logged(caplog) == [("WARNING", f"{text}; write `await insert_one(...)`")]


@both
def test_what_cannot_be_read_runs_all_the_same(
    drive: Drive, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of the check must not break the program."""

    async def done() -> str:
        return "done"

    monkeypatch.setattr(driver, "forgotten", lambda _: 1 // 0)
    assert drive(done(), lambda _: None) == "done"
    assert logged(caplog) == []


@both
def test_a_failure_that_ends_a_program_is_a_copy_and_is_logged(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    """The reply is a value: it collects no tracebacks of its receivers."""
    failure = Ambiguous("no reply")

    async def hasty() -> object:
        return await Call("it")

    for _ in range(2):
        with pytest.raises(Ambiguous) as raised:
            drive(hasty(), lambda _: failure)
        assert raised.value == failure
        assert failure.__traceback__ is None
    assert logged(caplog) == [("ERROR", "hasty: given up; 1 attempts have failed")] * 2
    assert "secret" not in caplog.text


@both
def test_neither_a_refusal_nor_an_interruption_is_logged_as_giving_up(
    drive: Drive, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", driver.__name__)
    replies = iter([Refused("no"), NotApplied("a"), KeyboardInterrupt()])

    def handle(_: Effect[object]) -> object:
        if isinstance(reply := next(replies), KeyboardInterrupt):
            raise reply
        return reply

    with pytest.raises(Refused):
        drive(persistent(1), handle)
    assert logged(caplog) == []

    with pytest.raises(KeyboardInterrupt):
        drive(persistent(2), handle)
    assert [level for level, _ in logged(caplog)] == ["DEBUG"]


@both
def test_a_failure_that_is_returned_is_not_given_up(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    """The caller decides, as a candidate for a lease does, which retries."""
    caplog.set_level("DEBUG", driver.__name__)

    async def tells() -> object:
        try:
            return await Call("it")
        except Ambiguous as failure:
            return failure.fresh()

    assert drive(tells(), lambda _: Ambiguous("no reply")) == Ambiguous("no reply")
    assert logged(caplog) == [("DEBUG", "tells: Call has failed (1): Ambiguous(no reply)")]


BRIEF: Final = Pauses(Fixed(1))
RECORD: Final = StatusRecord(PENDING, "runner", 1)
MOVE: Final = RecordMove("x", RECORD, RUNNING, "r1")


THREE: Final = Policy(backoff=Fixed(1), attempts_max=3)


async def looks() -> Duplicate:
    return Duplicate.GONE if await find_one("records", Eq(ID, "y")) is None else Duplicate.OWN


async def writes() -> None:
    await insert_one("records", Document.of({"_id": "y"}))


PERSISTENT: Final[dict[str, tuple[Callable[[], Program[Any]], type[Effect[Any]]]]] = {
    "transition": (
        lambda: Transition("records", INVOCATION, "x", RUNNING, "runner", "r1", attempts=3, pauses=BRIEF).run(),
        UpdateOne,
    ),
    "settling": (
        lambda: Settling("records", INVOCATION, (MOVE,), "runner", attempts=3, pauses=BRIEF).run(),
        BulkUpdate,
    ),
    "insert": (
        lambda: retrying.insert(insert_one("records", Document.of({"_id": "y"})), looks, THREE),
        InsertOne,
    ),
    "a statement": (lambda: in_transaction("s", writes, THREE), InTransaction),
    "a commit": (lambda: in_transaction("s", writes, THREE), CommitTransaction),
}


@both
@pytest.mark.parametrize("failure", FAILURES[1:], ids=str)
@pytest.mark.parametrize("name", PERSISTENT)
def test_who_looks_or_clears_away_after_a_failure_has_given_up_all_the_same(
    drive: Drive, caplog: pytest.LogCaptureFixture, name: str, failure: Failure
) -> None:
    """A successful read or abort is no success. Each attempt after the first follows a pause."""
    caplog.set_level("DEBUG", driver.__name__)
    made, struck = PERSISTENT[name]
    store = Embedded({"records": (new_record("x", RECORD, "made", Instant(0)),)})
    handle = choosing(documents(lambda effect: failure if type(effect) is struck else store(effect)), local())

    drive(made(), handle)

    told = [text.split(": ")[1].split()[0] for _, text in logged(caplog)]
    assert told[:5] == [struck.__name__, "goes", struck.__name__, "goes", struck.__name__]
    level, text = logged(caplog)[-1]
    assert (level, text.split(": ")[1]) == ("ERROR", "given up; 3 attempts have failed")


# Errors outside the program


async def clinging() -> object:
    try:
        try:
            return await Call("work")
        except (Failure, Exception):  # noqa: BLE001  it catches what it can
            return "swallowed"
        finally:
            await Call("clean up")
    finally:
        await Call("clean up again")


@both
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_whatever_else_a_handler_raises_closes_the_program_and_is_raised(
    drive: Drive, error: type[BaseException]
) -> None:
    asked: list[Effect[object]] = []

    def handle(effect: Effect[object]) -> object:
        asked.append(effect)
        raise error

    program = clinging()
    with pytest.raises(error):
        drive(program, handle)

    assert asked == [Call("work")]
    assert inspect.getcoroutinestate(program) == inspect.CORO_CLOSED


def test_a_program_that_cannot_be_closed_does_not_hold_up_the_error() -> None:
    async def stubborn() -> None:
        for _ in range(CLOSINGS_MAX + 1):
            with suppress(BaseException):  # no program should do this
                await Call("again")

    def interrupted(_: Effect[object]) -> object:
        raise KeyboardInterrupt

    program = stubborn()
    with pytest.raises(KeyboardInterrupt):
        run(program, interrupted)

    assert inspect.getcoroutinestate(program) == inspect.CORO_SUSPENDED

    program.close()


def test_a_stop_iteration_of_user_code_is_not_the_end_of_the_program() -> None:
    def exhausted(_: Effect[object]) -> object:
        return next(iter(()))

    with pytest.raises(StopIteration):
        run(ask("it"), exhausted)


def test_a_cancelled_task_closes_its_program_and_stays_cancelled() -> None:
    asked: list[Effect[object]] = []

    async def handle(effect: Effect[object]) -> object:
        asked.append(effect)
        await asyncio.sleep(60)
        return None

    async def cancel() -> bool:
        program = clinging()
        task = asyncio.create_task(run_async(program, handle))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return inspect.getcoroutinestate(program) == inspect.CORO_CLOSED

    assert asyncio.run(cancel())
    assert asked == [Call("work")]


# Handlers


@pytest.mark.parametrize(
    "make",
    [Embedded, lambda: documents(Embedded()), lambda: choosing(documents(Embedded()))],
    ids=["a store", "a table", "a choice"],
)
def test_a_store_or_a_table_is_completed_by_this_machine(make: Callable[[], Any]) -> None:
    """So a program that waits before a retry meets no unknown effect."""

    async def program() -> object:
        await Sleep(1)
        await insert_one("rows", Document.of({"_id": 1}))
        await Note("done", 1)
        return await find_one("rows", Eq(ID, 1)) is not None and (await Now()).at > 0

    assert run(program(), make()) is True

    class Asynchronous:
        is_store = True

        def __init__(self) -> None:
            self.store = Embedded()

        async def __call__(self, effect: Any) -> object:
            return self.store(effect)

    assert asyncio.run(run_async(program(), Asynchronous())) is True


def test_handlers_are_chosen_by_the_type_of_the_effect() -> None:
    @attrs.frozen
    class Own(Effect[str]):
        pass

    def own(_: Own) -> object:
        return "own"

    async def both_kinds() -> object:
        return await Own(), await Now()

    handle = choosing(local(), {Own: own, Now: lambda _: "replaced"})

    assert run(both_kinds(), handle) == ("own", "replaced")


@both
def test_an_effect_that_no_handler_knows_is_an_error(drive: Drive) -> None:
    async def searching() -> object:
        return await find_one("jobs", Eq(ID, "x"))

    with pytest.raises(UnknownEffect, match="FindOne") as raised:
        drive(searching(), here(drive))

    assert "Call, Note, Now, Sleep" in str(raised.value)


@both
def test_local_handlers_use_this_machine(drive: Drive) -> None:
    async def nap() -> object:
        before = await Now()
        await Note("holds", value=True)
        await Sleep(30 * MILLISECOND)
        return before, await Now()

    before, after = drive(nap(), here(drive))

    assert abs(before - Instant(time.time_ns() // 1_000, WALL)) < 5 * SECOND
    assert after - before >= 29 * MILLISECOND


@both
@pytest.mark.parametrize("draw", [0, PPM])
def test_what_is_left_out_of_a_sleep_is_drawn_here(drive: Drive, draw: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the driver, because programs have no random numbers."""

    async def nap() -> object:
        before = await Now()
        await Sleep(30 * MILLISECOND, PPM // 3)
        return await Now() - before

    monkeypatch.setattr(driver, "randint", lambda *bounds: draw if bounds == (0, PPM) else None)
    assert drive(nap(), here(drive)) >= (19 if draw else 29) * MILLISECOND


@both
def test_user_code_is_called_by_name(drive: Drive) -> None:
    def refuse() -> object:
        raise FAILURES[0]

    async def calling() -> object:
        return await Call("add", (2, 3)), await ask("refuse")

    assert drive(calling(), here(drive, add=lambda left, right: left + right, refuse=refuse)) == (5, (FAILURES[0],))


@both
def test_an_error_in_user_code_is_raised_to_the_caller(drive: Drive) -> None:
    def broken() -> object:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        drive(ask("broken"), here(drive, broken=broken))


@both
def test_a_program_may_ask_for_the_errors_of_user_code(drive: Drive) -> None:
    def broken() -> object:
        raise ValueError("card declined")

    def refuse() -> object:
        raise FAILURES[0]

    def interrupted() -> object:
        raise KeyboardInterrupt

    async def asking(name: str) -> object:
        try:
            return await Call(name, catches=True)
        except Failure as failure:
            return failure

    handle = here(drive, broken=broken, refuse=refuse, interrupted=interrupted, names=lambda: ["a"], good=lambda: 1)
    assert drive(asking("broken"), handle) == Refused("ValueError: card declined")
    assert drive(asking("refuse"), handle) == FAILURES[0]
    assert drive(asking("good"), handle) == 1
    assert "what names answered is a list" in str(drive(asking("names"), handle))
    with pytest.raises(KeyboardInterrupt):
        drive(asking("interrupted"), handle)
    with pytest.raises(UnknownEffect):
        drive(asking("unknown"), handle)


@both
def test_user_code_that_is_not_registered_is_named(drive: Drive) -> None:
    with pytest.raises(UnknownEffect, match="'pay'") as raised:
        drive(ask("pay"), here(drive, send=print))

    assert "there are: send" in str(raised.value)


@both
def test_user_code_answers_immutable_values(drive: Drive) -> None:
    """A list could change under a waiting program, so it is an error, as in the simulator."""
    with pytest.raises(Misuse, match="what names answered is a list"):
        drive(ask("names"), here(drive, names=lambda: ["a"]))
