"""A history is linearizable exactly if some order explains it; checked by a naive search."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import permutations
from random import Random  # noqa: TID251  seeded

import attrs
import pytest

from tidegate.model.documents import ID, Document, Eq, Field, Put, exactly
from tidegate.model.effects import Ambiguous, Note
from tidegate.model.errors import Misuse
from tidegate.model.operations import find_one, find_one_and_update, insert_one
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.scenario import Scenario
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.servers.streams import Stream
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.linearizability import (
    BEGAN,
    ENDED,
    Began,
    Ended,
    History,
    Linearizable,
    Linearized,
    NotLinearizable,
    Operation,
    operations,
    recording,
)
from tidegate.sim.world.world import world_with


def register(state: Hashable, what: object) -> tuple[Hashable, object]:
    match what:
        case ("write", _, value):
            return value, None
        case ("swap", _, old, new):
            return (new, True) if state == old else (state, False)
        case _:
            return state, state


def key(what: object) -> Hashable:
    assert isinstance(what, tuple)
    return str(what[1])


LAW = Linearizable(0, register, key)


def explains(order: tuple[Operation, ...]) -> bool:
    """Whether the order respects real time and the model gives the same replies."""
    states: dict[Hashable, Hashable] = {}
    for number, operation in enumerate(order):
        if any(later.end is not None and later.end < operation.begin for later in order[number + 1 :]):
            return False
        at = key(operation.what)
        states[at], reply = register(states.get(at, 0), operation.what)
        if operation.end is not None and exactly(reply) != exactly(operation.reply):
            return False
    return True


def longest_by_force(history: History) -> tuple[bool, int]:
    every = operations(history)
    ended = {operation for operation in every if operation.end is not None}
    longest = 0
    for size in range(len(every), -1, -1):
        for order in permutations(every, size):
            within = len(ended.intersection(order))
            missing = ended.difference(order)
            is_prefix = not any(
                left.end is not None and left.end < operation.begin for left in missing for operation in order
            )
            if within > longest and is_prefix and explains(order):
                longest = within
    return longest == len(ended), longest


def random_history(random: Random, size: int = 5, keys: str = "x") -> History:
    events: list[Began | Ended] = []
    running: dict[str, object] = {}
    states: dict[Hashable, Hashable] = {}
    asked = 0
    while asked < size or (running and random.random() < 0.8):
        who = random.choice("abc")
        if who in running:
            what = running.pop(who)
            states[key(what)], reply = register(states.get(key(what), 0), what)
            wrong = random.random() < 0.15
            events.append(Ended(who, random.choice((0, 1, 2, True, False, None)) if wrong else reply))
        elif asked < size:
            asked += 1
            at, value = random.choice(keys), random.randrange(3)
            running[who] = random.choice((("write", at, value), ("read", at), ("swap", at, value, (value + 1) % 3)))
            events.append(Began(who, running[who]))
    return tuple(events)


def test_the_verdict_is_that_of_trying_all_orders() -> None:
    """Laws LI1, LI2 and LI3, on 400 histories of one key, linearizable or not."""
    verdicts = {True: 0, False: 0}
    for seed in range(400):
        history = random_history(Random(seed))
        verdict, (is_possible, longest) = LAW.judge(history), longest_by_force(history)
        verdicts[is_possible] += 1
        ended = {operation for operation in operations(history) if operation.end is not None}
        match verdict:
            case Linearized(order):
                assert is_possible
                assert ended <= set(order)
                assert len(set(order)) == len(order)
                assert explains(order)
            case NotLinearizable(_, order, left):
                assert not is_possible
                assert explains(order)
                assert len(ended.intersection(order)) == longest
                assert set(left) == ended.difference(order)
    assert min(verdicts.values()) > 50


def test_keys_do_not_concern_each_other() -> None:
    """Herlihy and Wing, locality."""

    def both(state: Hashable, what: object) -> tuple[Hashable, object]:
        assert isinstance(state, tuple)
        states = dict(state)
        states[key(what)], reply = register(states.get(key(what), 0), what)
        return tuple(sorted(states.items())), reply

    at_once = Linearizable((), both)
    for seed in range(300):
        history = random_history(Random(f"keys {seed}"), 8, "xyz")
        verdict = LAW.judge(history)
        assert isinstance(verdict, Linearized) == isinstance(at_once.judge(history), Linearized)
        if isinstance(verdict, Linearized):
            assert explains(verdict.order)


@pytest.mark.parametrize("hard_first", [True, False])
def test_a_key_that_fails_soon_does_not_wait_for_one_that_takes_long(*, hard_first: bool) -> None:
    """Thirty unended writes and an unexplained read have too many orders to try."""
    applied = 0

    def counted(state: Hashable, what: object) -> tuple[Hashable, object]:
        nonlocal applied
        applied += 1
        assert applied < 100_000, "it waits"
        return register(state, what)

    hard: History = (
        *(Began(f"p{number}", ("write", "hard", number)) for number in range(30)),
        *(Began("q", ("read", "hard")), Ended("q", -1)),
    )
    soon: History = (Began("r", ("read", "soon")), Ended("r", -1))
    verdict = Linearizable(0, counted, key).judge((*hard, *soon) if hard_first else (*soon, *hard))
    assert isinstance(verdict, NotLinearizable)
    assert verdict.key == "soon"


def test_a_long_history_is_judged_in_no_time() -> None:
    """2,000 operations of three processes; only memoisation avoids all orders."""
    history = tuple(
        event
        for number in range(700)
        for event in (
            Began("a", ("write", "x", number)),
            Began("b", ("read", "x")),
            Ended("a", None),
            Ended("b", number),
            Began("c", ("read", "x")),
            Ended("c", number),
        )
    )
    assert isinstance(LAW.judge(history), Linearized)
    assert isinstance(LAW.judge((*history, Began("c", ("read", "x")), Ended("c", 0))), NotLinearizable)


@pytest.mark.parametrize(
    "history",
    [(Began("a", ("read", "x")), Began("a", ("read", "x"))), (Ended("a", 1),)],
    ids=["two at once", "an end without a beginning"],
)
def test_a_process_does_one_thing_after_the_other(history: History) -> None:
    with pytest.raises(Misuse, match="operation"):
        _ = operations(history)


VALUE = Field[int]("value")


async def writes_then_reads(me: int, *, is_cached: bool) -> None:
    await Note(BEGAN, ("write", "x", me))
    try:
        await find_one_and_update("registers", Eq(ID, "x"), Put(VALUE, me))
    except Ambiguous:
        return
    await Note(ENDED, None)
    await Note(BEGAN, ("read", "x"))
    held = None if is_cached else await find_one("registers", Eq(ID, "x"))
    await Note(ENDED, held[VALUE] if held else me)


def registers(*, is_cached: bool) -> Scenario:
    lost = Faults.of(Fault.LOST_REPLY, Fault.DROPPED)
    return Scenario(
        name="registers",
        summary="",
        world=world_with({"registers": (Document.of({"_id": "x", "value": 0}),)}),
        actors=tuple(
            Process(name, factory(writes_then_reads, number, is_cached=is_cached), lost, recording())
            for number, name in enumerate("ab", 1)
        ),
        budget=1,
        always={"the register is linearizable": LAW},
        expect="the register is linearizable" if is_cached else None,
    )


def test_a_register_in_a_document_is_linearizable_and_a_cached_one_is_not() -> None:
    assert explore(registers(is_cached=False)).verdict is Verdict.COMPLETE
    assert explore(registers(is_cached=True)).ok


def test_a_process_that_starts_again_has_left_its_operation_open() -> None:
    crashing = attrs.evolve(
        registers(is_cached=False),
        actors=tuple(
            Process(name, factory(writes_then_reads, number, is_cached=False), CRASHES, recording())
            for number, name in enumerate("ab", 1)
        ),
        budget=2,
    )
    assert explore(crashing).verdict is Verdict.COMPLETE


CRASHES = Faults.of(Fault.CRASH_BEFORE, Fault.RESTART)


def test_one_is_not_true() -> None:
    def shows(state: Hashable, what: object) -> tuple[Hashable, object]:
        return (what, None) if what != "read" else (state, repr(state))

    writes: History = (Began("a", 1), Began("b", True), Ended("a", None), Ended("b", None))
    for read in ("1", "True"):
        verdict = Linearizable(0, shows).judge((*writes, Began("c", "read"), Ended("c", read)))
        assert isinstance(verdict, Linearized)
    wrong: History = (Began("a", ("read", 0)), Ended("a", False))
    assert isinstance(Linearizable(0, register).judge(wrong), NotLinearizable)
    apart: History = (Began("a", 1), Ended("a", 0), Began("b", True), Ended("b", 0))
    assert isinstance(
        Linearizable(0, lambda state, what: (what, state), lambda what: what).judge(apart),
        Linearized,
    )


def test_a_stream_keeps_what_was_written_besides() -> None:
    async def inserts() -> None:
        await Note(BEGAN, "write")
        await insert_one("jobs", Document.of({"_id": "a"}))
        await Note(ENDED, None)

    stream = Stream("s", ("jobs",))
    for meaning in (recording(stream.meaning()), stream.meaning(recording())):
        both = Scenario(
            name="both",
            summary="",
            world=stream.begun(world_with({})),
            actors=(Process("p", factory(inserts), Faults(), meaning),),
            always={"linearizable": Linearizable(None, lambda state, _: (state, None))},
        )
        assert explore(both).verdict is Verdict.COMPLETE
