"""Reducers as actors: wishes come true in any order, are heard of in any order, and die with the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import permutations

import pytest
from tests.properties.plain_search import Found, agree, plain_search

from tidegate.effects import Ambiguous, Call, Cancel, Effect, NotApplied, Refused
from tidegate.errors import Misuse
from tidegate.sim.actors import Network
from tidegate.sim.behaviour import Crashed
from tidegate.sim.faults import Fault, Faults, Which, anything, nothing
from tidegate.sim.reducers import Crash, HeardAs, Machine, Reducer
from tidegate.sim.scenario import Actor, Scenario
from tidegate.sim.world import FLIGHT, Cell, Meaning, Outcomes, Plain, World, inbox

DEAD = Cell[bool](("dead", "r"), empty=False)
DONE = Cell[tuple[object, ...]](("done",), ())
A, B = Call("a"), Call("b")

Step = Callable[[object, object], tuple[object, tuple[Effect[object], ...]]]


def does(effect: Effect[object], world: World, who: str) -> Outcomes:
    """What comes true is written down."""
    del who
    assert isinstance(effect, Call)
    yield world.write(DONE, (*world.read(DONE), effect.name)), f"did {effect.name}"


def wishes(*effects: Effect[object]) -> Step:
    """To `go` it wishes for these; whatever else it hears of it remembers."""

    def step(state: object, event: object) -> tuple[object, tuple[Effect[object], ...]]:
        assert isinstance(state, tuple)
        return (state, effects) if event == "go" else ((*state, event), ())

    return step


def tells(wish: Effect[object], reply: object) -> object | None:
    return f"{wish}: {reply}"


def reducer(
    step: Step,
    *,
    faults: Faults = Faults(),
    split: Which = anything,
    is_timer: Which = nothing,
    at_once: Which = nothing,
    heard_as: HeardAs = tells,
    meaning: Meaning = does,
) -> Reducer:
    return Reducer("r", (), step, heard_as, faults, meaning, split, is_timer, at_once)


def found(*actors: Actor, events: tuple[object, ...] = ("go",), budget: int = 0) -> Found:
    """All that happens, once both searches agree on it."""
    scenario = Scenario(
        name="reducers", summary="", world=Plain().write(inbox("r"), events), actors=actors, budget=budget
    )
    agree(scenario)
    return plain_search(scenario)


def ends(found: Found) -> set[tuple[object, tuple[object, ...]]]:
    """What it has heard of when nothing is left to hear of, and what was done."""
    machines = ((here.standing("r"), here.read(DONE)) for here in found.states.values() if not here.read(inbox("r")))
    return {
        (machine.state, done)
        for machine, done in machines
        if isinstance(machine, Machine) and not machine.wishes and not machine.heard
    }


def test_wishes_come_true_and_are_heard_of_in_any_order() -> None:
    """Coming true and being heard of are two steps where others can see the wish: each has its own order."""
    orders = list(permutations(("a", "b")))
    assert ends(found(reducer(wishes(A, B)))) == {
        (tuple(f"call {name}(): did {name}" for name in heard), done) for heard in orders for done in orders
    }


def test_a_wish_that_nobody_sees_is_heard_of_as_it_comes_true() -> None:
    """One step less, and one order."""
    whole = found(reducer(wishes(A, B), split=nothing))
    assert ends(whole) == {
        (tuple(f"call {name}(): did {name}" for name in order), order) for order in permutations(("a", "b"))
    }
    assert len(whole.states) < len(found(reducer(wishes(A, B))).states)


def test_events_of_the_world_are_taken_in_their_order() -> None:
    """They come between anything else."""
    heard = {state for state, _ in ends(found(reducer(wishes(A)), events=("go", "x", "y")))}
    told = "call a(): did a"
    assert heard == {(told, "x", "y"), ("x", told, "y"), ("x", "y", told)}


def test_of_what_nothing_is_told_nothing_is_heard() -> None:
    """The wish comes true all the same."""
    assert ends(found(reducer(wishes(A), heard_as=lambda *_: None))) == {((), ("a",))}


@pytest.mark.parametrize("wish", [(A, A), (Call("a", (1,)), Call("a", (2,)))], ids=["equal wishes", "equal events"])
def test_each_of_two_equal_ones_comes_true_and_is_heard_of(wish: tuple[Effect[object], ...]) -> None:
    """Two wishes that are equal are two, and so are two events: also where they are one and the same object."""
    assert ends(found(reducer(wishes(*wish), heard_as=lambda *_: "one"))) == {(("one", "one"), ("a", "a"))}


def test_what_is_to_be_at_once_happens_with_the_event() -> None:
    """No other process comes between, and nothing is heard of it."""
    whole = found(reducer(wishes(A, B), at_once=lambda wish: wish == A))
    assert ends(whole) == {(("call b(): did b",), ("a", "b"))}
    assert not any(
        isinstance(machine := here.standing("r"), Machine) and A in machine.wishes for here in whole.states.values()
    )


def test_a_wish_can_be_taken_back_until_it_has_come_true() -> None:
    """Then it neither comes true nor is heard of; what has come true is still heard of."""

    def step(state: object, event: object) -> tuple[object, tuple[Effect[object], ...]]:
        assert isinstance(state, tuple)
        match event:
            case "go":
                return state, (A, B)
            case "stop":
                return state, (Cancel(A),)
            case _:
                return (*state, event), ()

    whole = ends(found(reducer(step), events=("go", "stop")))
    did_a, did_b = "call a(): did a", "call b(): did b"
    assert whole == {
        ((did_b,), ("b",)),
        *((heard, done) for heard in permutations((did_a, did_b)) for done in permutations("ab")),
    }


def test_a_wish_that_follows_its_own_cancellation_is_a_new_one() -> None:
    """In the order in which they are wished for; the other way round it is taken back."""
    assert ends(found(reducer(wishes(Cancel(A), A)))) == {(("call a(): did a",), ("a",))}
    assert ends(found(reducer(wishes(A, Cancel(A))))) == {((), ())}


# --- faults -------------------------------------------------------------------------------------------------------------

HEARD: Mapping[Fault, set[tuple[object, tuple[object, ...]]]] = {
    Fault.UNSENT: {((f"call a(): {NotApplied('not sent')}",), ())},
    Fault.DROPPED: {((f"call a(): {Ambiguous('no reply')}",), ())},
    Fault.LOST_REPLY: {((f"call a(): {Ambiguous('no reply')}",), ("a",))},
    Fault.LATE: {((f"call a(): {Ambiguous('no reply')}",), ()), ((f"call a(): {Ambiguous('no reply')}",), ("a",))},
    Fault.FAILED: {((f"call a(): {Refused('user code raised')}",), ())},
    Fault.GAVE_UP: set(),
    Fault.CRASH_BEFORE: set(),
    Fault.CRASH_AFTER: set(),
    Fault.RESTART: set(),
    Fault.EVICTED: set(),
}


@pytest.mark.parametrize("kind", HEARD)
def test_each_fault_does_what_the_table_says_and_nothing_else(kind: Fault) -> None:
    """What the reducer hears, and what the world knows."""
    right = (("call a(): did a",), ("a",))
    struck = reducer(wishes(A), faults=Faults.of(kind))
    assert ends(found(struck, Network(does), budget=1)) == {right, *HEARD[kind]}
    assert ends(found(struck, Network(does))) == {right}


def test_a_timer_comes_true_by_a_stall_only() -> None:
    """It spends a fault, needs no meaning, and who waits for it is at rest."""
    timer = reducer(wishes(A, B), faults=Faults.of(Fault.GAVE_UP), is_timer=lambda wish: wish == A)
    did_b = "call b(): did b"
    assert ends(found(timer)) == set()
    assert found(timer).resting == 1
    stalled = found(timer, budget=1)
    assert {heard for heard, _ in ends(stalled)} == {("call a(): None", did_b), (did_b, "call a(): None")}
    assert set(stalled.faults) == {Fault.GAVE_UP}


def test_a_crash_takes_all_that_is_in_memory() -> None:
    """Its reducers stand nowhere, their inboxes are empty, others can see that it is dead; it dies once."""
    alive = reducer(wishes(A, B))
    whole = found(alive, Crash("r's host", (alive,), DEAD), budget=2)
    dead = [here for here in whole.states.values() if here.read(DEAD)]
    assert dead
    assert all(here.standing("r") == Crashed() and here.read(inbox("r")) == () for here in dead)
    assert all(list(alive.steps(here.world)) == [] for here in dead)
    assert {here.read(DONE) for here in dead} == {(), ("a",), ("b",), ("a", "b"), ("b", "a")}
    assert whole.faults == {Fault.CRASH_BEFORE: len(whole.states) - len(dead)}


def test_a_late_wish_outlives_the_crash() -> None:
    """The request is under way, whoever sent it."""
    alive = reducer(wishes(A), faults=Faults.of(Fault.LATE))
    whole = found(alive, Network(does), Crash("r's host", (alive,), DEAD), budget=2)
    late = [here for here in whole.states.values() if here.read(DEAD) and here.read(FLIGHT)]
    assert late
    assert any(here.read(DEAD) and here.read(DONE) == ("a",) for here in whole.states.values())


def test_the_state_of_a_reducer_is_immutable() -> None:
    """It becomes part of states."""
    with pytest.raises(Misuse, match="the state of a reducer is a list"):
        found(reducer(lambda *_: ([], ())))
