"""Enqueueing; the scenarios `enqueueing` explore every interleaving and fault."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.on_documents import run
from tests.properties.shipped import OF_DESIGNS, report_on

from tidegate.invocations.checks import laws
from tidegate.invocations.limits.registration import NotRegistered, Registered, RegistrationOutcome, Reused
from tidegate.invocations.queue.enqueueing import OF_ANOTHER_TASK, Enqueue, NewInvocation, arguments_name
from tidegate.invocations.record.jobs import Job, job_of
from tidegate.invocations.record.record_documents import CREATED_AT, DUE, TRIES, viewed
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.documents import Document
from tidegate.model.effects import Ambiguous, Effect, Failure, NotDurable, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, SECOND, Instant
from tidegate.model.operations import FindAll, FindOne, InsertMany, InsertOne, StoreTime
from tidegate.sim.world.world import CLOCK, Plain, World, document, perform, world_with

RECORDS: Final = "invocations"
JOB: Final = Job(task="send", priority=7, tenant="ann", arguments=Document.of({"to": '"ann"'}))
NOW: Final = Instant(100 * SECOND)


def wanted(*keys: str) -> tuple[NewInvocation, ...]:
    return tuple(NewInvocation(key, JOB) for key in keys)


def carried(
    command: Enqueue, world: Plain | None = None, fails: dict[int, Failure] | None = None
) -> tuple[tuple[RegistrationOutcome, ...], World, list[type[Effect[object]]]]:
    asked: list[type[Effect[object]]] = []

    def means(effect: Effect[object], at: World, who: str) -> object:
        asked.append(type(effect))
        return perform(effect, at, who)

    def failing(effect: Effect[object]) -> Failure | None:
        if isinstance(effect, Sleep):
            return None
        failure = (fails or {}).get(len(asked))
        if failure is not None:
            asked.append(type(effect))
        return failure

    start = world_with({RECORDS: ()}).write(CLOCK, NOW) if world is None else world
    answers, after = run(command.run(), start, failing, means)  # type: ignore[arg-type]
    return answers, after, asked


def test_an_invocation_is_registered_in_the_time_and_one_insert() -> None:
    """Law EQ3."""
    answers, world, asked = carried(Enqueue(wanted=wanted("x"), request="q"))

    assert answers == (Registered("x"),)
    assert asked == [StoreTime, InsertOne]
    record = world.read(document(RECORDS, "x"))
    assert record is not None
    assert viewed(record) == StatusRecord("registered", None, 1)
    assert (job_of(record), record[DUE], record[CREATED_AT], record[TRIES]) == (JOB, NOW, NOW, 0)


def test_a_hundred_are_as_many_requests() -> None:
    """Law EQ3: one insert."""
    answers, _, asked = carried(Enqueue(wanted=wanted(*map(str, range(100))), request="q"))

    assert answers == tuple(Registered(str(number)) for number in range(100))
    assert asked == [StoreTime, InsertMany]


def test_of_those_whose_ids_are_taken_one_look_tells() -> None:
    """Law EQ3: each caller gets its own answer, in order."""
    _, world, _ = carried(Enqueue(wanted=wanted("b"), request="other"))
    assert isinstance(world, Plain)
    answers, _, asked = carried(Enqueue(wanted=wanted("a", "b", "c"), request="q"), world)

    assert answers == (Registered("a"), Reused("b"), Registered("c"))
    assert asked == [StoreTime, InsertMany, FindAll]


@pytest.mark.parametrize("looks_first", [False, True], ids=["alone", "in a transaction"])
def test_an_invocation_of_another_task_answers_nobody(*, looks_first: bool) -> None:
    """Once a mail answered for an invoice of the same id, and the invoice was lost."""
    _, world, _ = carried(Enqueue(wanted=wanted("a"), request="other"))
    assert isinstance(world, Plain)
    both = (NewInvocation("a", Job(task="invoice")), NewInvocation("b", Job(task="invoice")))
    answers, after, _ = carried(Enqueue(wanted=both, request="q", looks_first=looks_first), world)

    assert answers == (OF_ANOTHER_TASK, Registered("b"))
    found = after.read(document(RECORDS, "a"))
    assert found is not None
    assert job_of(found) == JOB


@pytest.mark.parametrize("due", [MINUTE, NOW + MINUTE], ids=["a time from now", "an instant"])
def test_what_is_due_later_is(due: Instant | int) -> None:
    _, world, _ = carried(Enqueue(wanted=(NewInvocation("x", JOB, due),), request="q"))
    record = world.read(document(RECORDS, "x"))

    assert record is not None
    assert record[DUE] == NOW + MINUTE


@pytest.mark.parametrize("failure", [Ambiguous("lost"), NotDurable("no majority")], ids=["ambiguous", "not durable"])
def test_without_a_reply_it_is_asked_again_under_the_same_id(failure: Failure) -> None:
    answers, world, _ = carried(Enqueue(wanted=wanted("x"), request="q"), fails={1: failure})

    assert answers == (Registered("x"),)
    assert world.read(document(RECORDS, "x")) is not None


def test_who_is_never_answered_is_told_so() -> None:
    ((answer,), _, _) = carried(
        Enqueue(wanted=wanted("x"), request="q", attempts=2), fails=dict.fromkeys(range(9), Ambiguous("lost"))
    )

    assert isinstance(answer, NotRegistered)
    assert "may be there" in answer.reason


@given(st.lists(st.tuples(st.text(min_size=1), st.uuids()), unique_by=lambda each: each[1]))
def test_no_two_requests_upload_under_one_name(asked: list[tuple[str, UUID]]) -> None:
    """Law EQ5: with names from the id alone, two callers of one id overwrote each other."""
    assert laws.enqueueing.are_apart([arguments_name(key, request.hex) for key, request in asked])
    assert not laws.enqueueing.are_apart(["order-7", "order-7"])


def test_in_a_transaction_it_looks_first_and_tries_nothing_again() -> None:
    """Law EQ3: a duplicate key would end the transaction."""
    _, world, _ = carried(Enqueue(wanted=wanted("b"), request="other"))
    assert isinstance(world, Plain)
    command = Enqueue(wanted=wanted("a", "b"), request="q", looks_first=True)
    answers, _, asked = carried(command, world)

    assert answers == (Registered("a"), Reused("b"))
    assert asked == [StoreTime, FindOne, InsertOne, FindOne]
    with pytest.raises(Ambiguous):
        carried(command, world, {2: Ambiguous("lost")})


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lambda: Enqueue(wanted=(), request="q"), "number of invocations"),
        (lambda: Enqueue(wanted=wanted("x", "x"), request="q"), "two invocations of one id"),
        (lambda: NewInvocation("x", JOB, -1), "time in microseconds"),
        (lambda: NewInvocation("", JOB), "invocation"),
    ],
    ids=["none", "twice", "before now", "no id"],
)
def test_what_cannot_be_meant_is_refused(wrong: object, what: str) -> None:
    with pytest.raises(Misuse, match=what):
        wrong()  # type: ignore[operator]


@OF_DESIGNS
@pytest.mark.parametrize("name", ["enqueueing", "enqueueing.beside"])
def test_it_is_explored_completely(name: str) -> None:
    """Laws EQ1, EQ2 and EQ4 in every interleaving with two faults; specimens break each."""
    report = report_on(name)

    assert report.ok
    assert all(report.goals.values())


def test_arguments_are_not_shown() -> None:
    secret = Job(task="t", arguments=Document.of({"password": "geheim"}))

    assert "geheim" not in repr(Enqueue(wanted=(NewInvocation("x", secret),), request="q"))
