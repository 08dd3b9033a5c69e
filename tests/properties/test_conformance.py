"""The conformance checks of a store and of a log accept a correct one and reject faulty ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias, cast, get_args

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate import strategies
from tidegate.conformance import PROBED, Breach, agreement, breaches, probes
from tidegate.consumer.protocol.commands import Assigned, Committed, CommitUnknown, Event, Fetched, Revoked
from tidegate.model.documents import ID, AddToSet, AllOf, Document, Eq, Field, Push, PutServerTime, equalities
from tidegate.model.effects import Ambiguous, Failure, Refused
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import (
    BulkUpdate,
    DeleteMany,
    DeleteOne,
    FindOne,
    FindOneAndUpdate,
    InsertMany,
    InsertOne,
    Operation,
    UpdateMany,
    UpdateOne,
    UpsertOne,
    insert_one,
)
from tidegate.model.records import TopicPartition
from tidegate.sim.world.world import CLOCK, Plain, World, document, ids, perform

X = PROBED[0]
AT = Field[Instant]("at")

Store: TypeAlias = Callable[[Operation, World], tuple[World, object]]


def right(operation: Operation, world: World) -> tuple[World, object]:
    ((after, reply),) = perform(operation, world, "store")
    return after, reply


def asked(operations: tuple[Operation, ...], store: Store) -> tuple[tuple[object, ...], World]:
    program, reply = agreement(operations), None
    world: World = Plain().write(CLOCK, Instant(10**6 * SECOND))
    while True:
        try:
            asks = program.throw(reply) if isinstance(reply, Failure) else program.send(reply)
        except StopIteration as stop:
            return stop.value, world
        assert isinstance(asks, get_args(Operation))
        asks = cast("Operation", asks)
        world, reply = store(asks, world.write(CLOCK, world.read(CLOCK) + SECOND))


def check_k1(store: Store, *phases: Phase) -> None:
    @settings(phases=phases or tuple(Phase))
    @given(st.lists(strategies.operations("c"), max_size=8).map(tuple))
    @example((InsertMany("c", (Document.of({"_id": "x"}),)), FindOneAndUpdate("c", Eq(ID, "x"), (PutServerTime(AT),))))
    def law(operations: tuple[Operation, ...]) -> None:
        disagreements, _ = asked(operations, store)
        assert disagreements == ()

    law()


def test_a_store_that_does_what_operations_mean_agrees() -> None:
    """Law K1."""
    check_k1(right)
    assert asked(probes("c"), right)[0] == ()


def test_nothing_is_left_behind() -> None:
    left = Plain().write(ids("c"), (X,)).write(document("c", X), Document.of({"_id": X, "n": "left"}))
    assert asked(probes("c"), right)[1].read(ids("c")) == ()
    assert right(insert_one("c", Document.of({"_id": X})), left)[1] == Refused("duplicate key")


# --- faulty stores ------------------------------------------------------------------------------------------------------


def overwrites(operation: Operation, world: World) -> tuple[World, object]:
    if isinstance(operation, InsertOne):
        world = right(DeleteOne(operation.collection, Eq(ID, operation.doc[ID])), world)[0]
    return right(operation, world)


def forgets_the_version(operation: Operation, world: World) -> tuple[World, object]:
    """An update looks only at the id in a composite filter."""
    if isinstance(operation, (UpdateOne, FindOneAndUpdate)) and isinstance(operation.where, AllOf):
        operation = attrs.evolve(operation, where=operation.where.parts[0])
    return right(operation, world)


def answers_before(operation: Operation, world: World) -> tuple[World, object]:
    """The store returns the document before the update, as some drivers do by default."""
    after, reply = right(operation, world)
    if isinstance(operation, FindOneAndUpdate) and isinstance(reply, Document):
        reply = world.read(document(operation.collection, reply[ID]))
    return after, reply


def half_done(operation: Operation, world: World) -> tuple[World, object]:
    """A refused update leaves half of its changes."""
    after, reply = right(operation, world)
    if isinstance(operation, UpdateOne) and isinstance(reply, Refused):
        for update in operation.updates:
            after, _ = right(attrs.evolve(operation, updates=(update,)), after)
    return after, reply


def refuses_nothing(operation: Operation, world: World) -> tuple[World, object]:
    """A type error is reported as no match."""
    after, reply = right(operation, world)
    return after, 0 if isinstance(reply, Refused) and isinstance(operation, UpdateOne) else reply


def always_deletes(operation: Operation, world: World) -> tuple[World, object]:
    after, reply = right(operation, world)
    return after, 1 if isinstance(operation, DeleteOne) else reply


def upserts(operation: Operation, world: World) -> tuple[World, object]:
    if isinstance(operation, UpdateOne) and isinstance(operation.where, Eq):
        world = right(InsertOne(operation.collection, Document.of({"_id": operation.where.value})), world)[0]
    return right(operation, world)


def inserts_the_bare_id(operation: Operation, world: World) -> tuple[World, object]:
    """An upsert inserts the update without the equalities of its filter."""
    after, reply = right(operation, world)
    here, there = (len([*each.read(ids(operation.collection))]) for each in (world, after))
    if isinstance(operation, UpsertOne) and there > here:
        return right(attrs.evolve(operation, where=equalities(operation.where)[0]), world)
    return after, reply


def loose(operation: Operation, world: World) -> tuple[World, object]:
    after, reply = right(operation, world)
    if isinstance(reply, Document):
        reply = Document(tuple((k, int(v) if isinstance(v, float) and v.is_integer() else v) for k, v in reply.items))
    return after, reply


def unbounded(operation: Operation, world: World) -> tuple[World, object]:
    if isinstance(operation, FindOneAndUpdate):
        updates = tuple(attrs.evolve(each, last=None) if isinstance(each, Push) else each for each in operation.updates)
        operation = attrs.evolve(operation, updates=updates)
    return right(operation, world)


def adds_again(operation: Operation, world: World) -> tuple[World, object]:
    if isinstance(operation, FindOneAndUpdate):
        updates = tuple(
            Push(each.field, each.value) if isinstance(each, AddToSet) else each for each in operation.updates
        )
        operation = attrs.evolve(operation, updates=updates)
    return right(operation, world)


def in_the_given_order(operation: Operation, world: World) -> tuple[World, object]:
    if isinstance(operation, UpdateOne) and len(operation.updates) > 1:
        first, *rest = operation.updates
        world, reply = right(attrs.evolve(operation, updates=(first,)), world)
        return (right(attrs.evolve(operation, updates=tuple(rest)), world)[0], reply) if reply == 1 else (world, reply)
    return right(operation, world)


def null_is_not_missing(operation: Operation, world: World) -> tuple[World, object]:
    after, reply = right(operation, world)
    if isinstance(operation, FindOne) and isinstance(reply, Document) and isinstance(operation.where, AllOf):
        nulls = [each.field for each in operation.where.parts if isinstance(each, Eq) and each.value is None]
        reply = None if any(reply.get(field) is None for field in nulls) else reply
    return after, reply


def a_clock_that_stands(operation: Operation, world: World) -> tuple[World, object]:
    """Expiry is judged by a frozen clock, not the one that the store writes."""
    if isinstance(operation, (UpdateOne, FindOneAndUpdate)) and any(
        isinstance(u, PutServerTime) for u in operation.updates
    ):
        return right(operation, world)
    after, reply = right(operation, world.write(CLOCK, Instant(0)))
    return after.write(CLOCK, world.read(CLOCK)), reply


def updates_the_first(operation: Operation, world: World) -> tuple[World, object]:
    if isinstance(operation, UpdateMany):
        operation = UpdateOne(operation.collection, operation.where, operation.updates)
    return right(operation, world)


def does_not_count(operation: Operation, world: World) -> tuple[World, object]:
    if isinstance(operation, DeleteMany):
        world, _ = right(operation, world)
        return world, 0
    return right(operation, world)


def keeps_an_order(operation: Operation, world: World) -> tuple[World, object]:
    if isinstance(operation, BulkUpdate):
        for update in operation.updates:
            world, reply = right(update, world)
            if isinstance(reply, Failure):
                return world, reply
        return world, len(operation.updates)
    return right(operation, world)


WRONG: tuple[Store, ...] = (
    overwrites, forgets_the_version, answers_before, half_done, refuses_nothing, always_deletes, upserts,
    inserts_the_bare_id, loose, unbounded, adds_again, in_the_given_order, null_is_not_missing, a_clock_that_stands,
    updates_the_first, does_not_count, keeps_an_order,
)  # fmt: skip


@pytest.mark.parametrize("store", WRONG)
def test_the_probes_find_a_store_out(store: Store) -> None:
    disagreements, _ = asked(probes("c"), store)
    assert len(disagreements) == 1
    assert " is " in str(disagreements[0])
    assert "should be" in str(disagreements[0])


@pytest.mark.parametrize("store", [overwrites, always_deletes, answers_before])
def test_a_planted_bug_breaks_k1(store: Store) -> None:
    with pytest.raises(AssertionError):
        check_k1(store, Phase.generate)


def test_trouble_says_nothing_of_the_store() -> None:
    """An ambiguous reply is passed on: there is nothing to compare."""

    def lost(operation: Operation, world: World) -> tuple[World, object]:
        return world, Ambiguous("no reply") if isinstance(operation, InsertOne) else right(operation, world)[1]

    with pytest.raises(Ambiguous):
        asked(probes("c"), lost)


def test_a_disagreement_names_the_operation_and_both_answers() -> None:
    ((disagreement,), _) = asked((insert_one("c", Document.of({"_id": X, "n": 1.0})), FindOne("c", Eq(ID, X))), loose)
    assert str(disagreement) == (
        f'insert into c: {{_id: "{X}", n: 1.0}}: what c holds as "{X}" is {{_id: "{X}", n: 1}},'
        f' and should be {{_id: "{X}", n: 1.0}}'
    )


# --- a log --------------------------------------------------------------------------------------------------------------

HERE = TopicPartition("topic", 0)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Event, ...]:
    log = draw(strategies.batches())
    events: list[Event] = []
    committed, generation = 0, 0
    for _ in range(draw(st.integers(0, 4))):
        generation += draw(st.integers(1, 2))
        events.append(Assigned(HERE, generation, committed))
        ahead = [offset for offset in log if offset >= committed]
        while draw(st.booleans()) and ahead:
            taken = draw(st.integers(1, len(ahead)))
            events.append(Fetched(HERE, generation, tuple(ahead[:taken])))
            position, ahead = ahead[taken - 1] + 1, ahead[taken:]
            happens, is_answered = draw(st.booleans()), draw(st.booleans())
            committed = position if happens or is_answered else committed
            events.append((Committed if is_answered else CommitUnknown)(HERE, generation, position))
        if draw(st.booleans()):
            events += (Revoked(HERE), Committed(TopicPartition("topic", 1), -1, 0))
    return tuple(events)


Judge: TypeAlias = Callable[[tuple[Event, ...]], tuple[Breach, ...]]


def check_k2(judge: Judge) -> None:
    @given(histories())
    def law(history: tuple[Event, ...]) -> None:
        assert judge(history) == ()

    law()


def test_a_log_that_keeps_its_promises_has_no_breach() -> None:
    """Law K2: gaps between offsets, lost commit replies, and repeats after a rebalance."""
    check_k2(breaches)


def test_a_planted_bug_breaks_k2() -> None:
    """Without unsure commits a lost reply is a breach; without generations a repeat is."""

    def is_sure(history: tuple[Event, ...]) -> tuple[Breach, ...]:
        return breaches([each for each in history if not isinstance(each, CommitUnknown)])

    def of_one_generation(history: tuple[Event, ...]) -> tuple[Breach, ...]:
        fetched = [offset for each in history if isinstance(each, Fetched) for offset in each.offsets]
        return tuple(Breach(history[0], "again") for before, after in pairwise(fetched) if after <= before)

    for judge in (is_sure, of_one_generation):
        with pytest.raises(AssertionError):
            check_k2(judge)


BROKEN: dict[str, tuple[tuple[Event, ...], str]] = {
    "an offset comes before the position": ((Assigned(HERE, 1, 0), Fetched(HERE, 1, (0, 1)), Fetched(HERE, 1, (1,))), "increase"),
    "offsets out of order": ((Assigned(HERE, 1, 0), Fetched(HERE, 1, (2, 1))), "increase"),
    "a record is gone": (
        (Assigned(HERE, 1, 0), Fetched(HERE, 1, (0, 1, 2)), Assigned(HERE, 2, 0), Fetched(HERE, 2, (0, 2))),
        r"\[1\] were there before",
    ),
    "a commit is forgotten": (
        (Assigned(HERE, 1, 0), Fetched(HERE, 1, (0,)), Committed(HERE, 1, 1), Assigned(HERE, 2, 0)),
        r"one of \[1\]",
    ),
    "an old generation commits": ((Assigned(HERE, 1, 0), Assigned(HERE, 2, 0), Committed(HERE, 1, 1)), "2 is in force"),
    "a generation comes again": ((Assigned(HERE, 1, 0), Assigned(HERE, 1, 0)), "1 was before it"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_log_that_breaks_a_promise_is_found_out(name: str) -> None:
    events, why = BROKEN[name]
    (breach,) = breaches(events)
    assert breach.event == events[-1]
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(str(breach))


def test_what_an_older_generation_fetched_says_nothing() -> None:
    assert (
        breaches((Assigned(HERE, 2, 5), Fetched(HERE, 1, (9, 3)), Fetched(HERE, 2, ()), Fetched(HERE, 2, (5,)))) == ()
    )
