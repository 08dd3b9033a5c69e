"""A program in a transaction: its requests step by step, and the truth of its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tidegate.model import effects
from tidegate.model.documents import ID, Add, Eq, Field
from tidegate.model.errors import Misuse, UnknownEffect
from tidegate.model.instants import PPM, SECOND, WALL, Instant
from tidegate.model.operations import find_one, update_one
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction, Transaction
from tidegate.retries.backoff import Fixed, Policy
from tidegate.retries.retrying import Done, NotDone, Unknown
from tidegate.sim import explore
from tidegate.sim.program.automaton import Asking, Raised, Returned, resume
from tidegate.transactions.checks.scenarios.transfers import POLICY, transferring
from tidegate.transactions.transacting import CONTENDING, in_transaction

READ, WRITE = find_one("rows", Eq(ID, "a")), update_one("rows", Eq(ID, "a"), Add(Field[int]("n"), 1))
NOW: Final = Instant(0, WALL)
T, AGAIN = Transaction("s", 1), Transaction("s", 2)
TWICE: Final = Policy(backoff=Fixed(0), attempts_max=2)
PAUSE: Final = effects.Sleep(0)
LOST, CONFLICT, UNSENT = (
    effects.Ambiguous("no reply"),
    effects.NotApplied("write conflict"),
    effects.NotApplied("not sent"),
)
BEGUN: Final = InTransaction(T, READ, begins=True)
NEXT: Final = InTransaction(T, WRITE)


async def body() -> int:
    await READ
    return await WRITE


def course(program: effects.Program[Any], *replies: object) -> tuple[list[effects.Effect[object]], object]:
    asked: list[effects.Effect[object]] = []
    left = list(replies)
    status = resume(program, None)
    while isinstance(status, Asking):
        if isinstance(status.effect, effects.Now):
            status = resume(program, NOW)
            continue
        asked.append(status.effect)
        if not left:
            program.close()
            return asked, None
        status = resume(program, left.pop(0))
    assert isinstance(status, Returned), status
    assert not left
    return asked, status.value


AGAIN_WHOLE: Final = [InTransaction(AGAIN, READ, begins=True), InTransaction(AGAIN, WRITE), CommitTransaction(AGAIN)]
COURSES: Final[dict[str, tuple[list[object], list[effects.Effect[object]], object]]] = {
    "all is well": ([None, 1, True], [BEGUN, NEXT, CommitTransaction(T)], Done(1, 1)),
    "a write conflict: the whole anew": (
        [None, CONFLICT, None, None, None, 1, True],
        [BEGUN, NEXT, AbortTransaction(T), PAUSE, *AGAIN_WHOLE],
        Done(1, 2),
    ),
    "a statement without an answer: the whole anew, also where nobody hears of its end": (
        [LOST, LOST, None, None, 1, True],
        [BEGUN, AbortTransaction(T), PAUSE, *AGAIN_WHOLE],
        Done(1, 2),
    ),
    "refused: at once": (
        [None, effects.Refused("no"), None],
        [BEGUN, NEXT, AbortTransaction(T)],
        NotDone(effects.Refused("no"), 1),
    ),
    "a commit without an answer: that alone": (
        [None, 1, LOST, None, True],
        [BEGUN, NEXT, CommitTransaction(T), PAUSE, CommitTransaction(T)],
        Done(1, 1),
    ),
    "a commit that no majority has": (
        [None, 1, effects.NotDurable(""), None, effects.NotDurable("")],
        [BEGUN, NEXT, CommitTransaction(T), PAUSE, CommitTransaction(T)],
        Unknown(effects.NotDurable(""), 1),
    ),
    "a commit that is never answered": (
        [None, 1, LOST, None, UNSENT],
        [BEGUN, NEXT, CommitTransaction(T), PAUSE, CommitTransaction(T)],
        Unknown(UNSENT, 1),
    ),
    "a commit that could not be sent": (
        [None, 1, UNSENT, None, UNSENT, None],
        [BEGUN, NEXT, CommitTransaction(T), PAUSE, CommitTransaction(T), AbortTransaction(T)],
        NotDone(UNSENT, 1),
    ),
    "a commit without an answer, and it never was": (
        [None, 1, LOST, None, False, None, None, 1, True],
        [BEGUN, NEXT, CommitTransaction(T), PAUSE, CommitTransaction(T), PAUSE, *AGAIN_WHOLE],
        Done(1, 2),
    ),
    "given up": (
        [CONFLICT, None, None, CONFLICT, None],
        [BEGUN, AbortTransaction(T), PAUSE, InTransaction(AGAIN, READ, begins=True), AbortTransaction(AGAIN)],
        NotDone(CONFLICT, 2),
    ),
}


@pytest.mark.parametrize("what", COURSES)
def test_it_asks_for_this_and_says_that(what: str) -> None:
    """Laws TN1, TN2 and TN3."""
    replies, asked, answer = COURSES[what]
    assert course(in_transaction("s", body, TWICE), *replies) == (asked, answer)


@pytest.mark.parametrize("fails", [CONFLICT, LOST, effects.Refused("no")])
def test_a_body_hears_nothing_of_a_failure(fails: effects.Failure) -> None:
    """Law TN4, even if the body catches every error."""
    heard: list[object] = []

    async def catches() -> str:
        try:
            await WRITE
        except effects.Failure as failure:
            heard.append(failure)
        return "went on"

    asked, answer = course(in_transaction("s", catches, Policy(backoff=Fixed(0), attempts_max=1)), fails, None)
    assert (heard, answer) == ([], NotDone(fails, 1))
    assert asked[-1] == AbortTransaction(T)


def test_a_body_that_asks_for_no_operation_needs_no_transaction() -> None:
    async def calls() -> object:
        try:
            return await effects.Call("user code")
        except effects.Refused as refused:
            return refused.reason

    assert course(in_transaction("s", calls), effects.Refused("no")) == ([effects.Call("user code")], Done("no", 1))


def test_a_body_gives_up_by_a_failure_of_its_own() -> None:
    async def refuses() -> None:
        await READ
        raise effects.Refused("there is nothing")

    async def contends() -> None:
        raise effects.NotApplied("not now")

    asked = [BEGUN, AbortTransaction(T)]
    assert course(in_transaction("s", refuses), None, None) == (asked, NotDone(effects.Refused("there is nothing"), 1))
    assert course(in_transaction("s", contends, TWICE), None) == ([PAUSE], NotDone(effects.NotApplied("not now"), 2))


def test_an_error_of_the_body_is_passed_on() -> None:
    async def fails() -> None:
        await READ
        raise ZeroDivisionError

    program = in_transaction("s", fails)
    resume(program, None)
    resume(program, NOW)
    assert isinstance(resume(program, None), Raised)


async def nested() -> object:
    return await InTransaction(T, READ)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: in_transaction("", body),
        lambda: in_transaction("s", "body"),  # type: ignore[arg-type]
        lambda: in_transaction("s", body, "often"),  # type: ignore[arg-type]
        lambda: in_transaction("s", lambda: 1),  # type: ignore[arg-type,return-value]
        lambda: in_transaction("s", nested),
    ],
)
def test_what_cannot_be_carried_is_misuse(wrong: Callable[[], effects.Program[Any]]) -> None:
    with pytest.raises(Misuse):
        course(wrong())


def test_a_body_awaits_effects() -> None:
    class Something:
        def __await__(self) -> Any:
            yield 1

    async def awaits() -> None:
        await Something()

    program = in_transaction("s", awaits)
    resume(program, None)
    with pytest.raises(UnknownEffect):
        resume(program, NOW)


def test_it_pauses_as_the_drivers_do() -> None:
    """From 5 ms by a factor of 1.5 to 0.5 s, full jitter, two minutes in all."""
    assert CONTENDING.jitter_ppm == PPM
    assert CONTENDING.elapsed_max == 120 * SECOND
    asked, _ = course(in_transaction("s", body), *[CONFLICT, None, None] * 20)
    pauses = [each.duration for each in asked if isinstance(each, effects.Sleep)]
    assert pauses[:3] == [5_000, 7_500, 11_250]
    assert pauses[-1] == SECOND // 2


def test_a_program_and_its_body_are_merged() -> None:
    report = explore(transferring(policy=POLICY))
    assert report.ok
    assert report.unmerged == ()
