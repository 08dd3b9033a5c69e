"""Reducers as actors: commands take effect and return in any order, and die with the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Any

import attrs
import pytest
from tests.properties.plain_search import Found, agree, plain_search

from tidegate.model.documents import ID, Document, Eq, Exists, Field, Put
from tidegate.model.effects import (
    Ambiguous,
    Call,
    Cancel,
    Effect,
    Failure,
    NotApplied,
    Note,
    Now,
    Program,
    Refused,
    Sleep,
)
from tidegate.model.errors import Misuse, Nondeterministic
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import update_many, update_one
from tidegate.model.reducer import Step
from tidegate.sim.program.automaton import Crashed, Returned
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.scenario import NO_ERROR, Actor, Clock, Scenario
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.servers.reducers import Crash, Machine, ReducerProcess, Restart
from tidegate.sim.trace.rendering import render
from tidegate.sim.world.faults import Fault, Faults, Which, all_effects, no_effects
from tidegate.sim.world.world import (
    FLIGHT,
    Cell,
    Meaning,
    Outcomes,
    Plain,
    World,
    contents,
    inbox,
    notes,
    perform,
    world_with,
)

DEAD = Cell[bool](("dead", "r"), empty=False)
DONE = Cell[tuple[object, ...]](("done",), ())
A, B = Call("a"), Call("b")

Stepping = Callable[[tuple[object, ...], object], Step[tuple[object, ...], Effect[object]]]


def does(effect: Effect[object], world: World, who: str) -> Outcomes:
    del who
    assert isinstance(effect, Call)
    yield world.write(DONE, (*world.read(DONE), effect.name)), f"did {effect.name}"


def commands(*effects: Effect[object]) -> Stepping:
    def step(state: tuple[object, ...], event: object) -> Step[tuple[object, ...], Effect[object]]:
        return Step(state, effects) if event == "go" else Step((*state, event))

    return step


def tells(command: Effect[object], reply: object) -> object | None:
    return f"{command}: {reply}"


def reducer(
    step: Stepping,
    *,
    faults: Faults = Faults(),
    split: Which = all_effects,
    is_timer: Which = no_effects,
    at_once: Which = no_effects,
    event_for: Callable[[Effect[object], object], object | None] = tells,
    meaning: Meaning = does,
) -> ReducerProcess:
    return ReducerProcess("r", (), step, event_for, faults, meaning, split, is_timer, at_once)


def found(*actors: Actor, events: tuple[object, ...] = ("go",), budget: int = 0) -> Found:
    scenario = Scenario(
        name="reducers", summary="", world=Plain().write(inbox("r"), events), actors=actors, budget=budget
    )
    agree(scenario)
    return plain_search(scenario)


def ends(found: Found) -> set[tuple[object, tuple[object, ...]]]:
    machines = ((here.status("r"), here.read(DONE)) for here in found.states.values() if not here.read(inbox("r")))
    return {
        (machine.state, done)
        for machine, done in machines
        if isinstance(machine, Machine) and not machine.commands and not machine.arrived and not machine.running
    }


def test_commands_come_true_and_their_events_are_received_in_any_order() -> None:
    """Taking effect and returning are two steps if others can see the command."""
    orders = list(permutations(("a", "b")))
    assert ends(found(reducer(commands(A, B)))) == {
        (tuple(f"call {name}(): did {name}" for name in received), done) for received in orders for done in orders
    }


def test_the_event_of_a_command_that_nobody_sees_is_received_as_it_comes_true() -> None:
    whole = found(reducer(commands(A, B), split=no_effects))
    assert ends(whole) == {
        (tuple(f"call {name}(): did {name}" for name in order), order) for order in permutations(("a", "b"))
    }
    assert len(whole.states) < len(found(reducer(commands(A, B))).states)


def test_events_of_the_world_are_taken_in_their_order() -> None:
    received = {state for state, _ in ends(found(reducer(commands(A)), events=("go", "x", "y")))}
    answer = "call a(): did a"
    assert received == {(answer, "x", "y"), ("x", answer, "y"), ("x", "y", answer)}


def test_of_a_command_without_an_event_nothing_is_received() -> None:
    assert ends(found(reducer(commands(A), event_for=lambda *_: None))) == {((), ("a",))}


@pytest.mark.parametrize(
    "command", [(A, A), (Call("a", (1,)), Call("a", (2,)))], ids=["equal commands", "equal events"]
)
def test_each_of_two_equal_ones_comes_true_and_comes_back(command: tuple[Effect[object], ...]) -> None:
    """Law RU1, even if both are the same object."""
    assert ends(found(reducer(commands(*command), event_for=lambda *_: "one"))) == {(("one", "one"), ("a", "a"))}


def test_what_is_to_be_at_once_happens_with_the_event() -> None:
    whole = found(reducer(commands(A, B), at_once=lambda command: command == A))
    assert ends(whole) == {(("call b(): did b",), ("a", "b"))}
    assert not any(
        isinstance(machine := here.status("r"), Machine) and A in machine.commands for here in whole.states.values()
    )


def test_a_wish_can_be_taken_back_until_it_has_come_true() -> None:
    def step(state: tuple[object, ...], event: object) -> Step[tuple[object, ...], Effect[object]]:
        match event:
            case "go":
                return Step(state, (A, B))
            case "stop":
                return Step(state, (Cancel(A),))
            case _:
                return Step((*state, event))

    whole = ends(found(reducer(step), events=("go", "stop")))
    did_a, did_b = "call a(): did a", "call b(): did b"
    assert whole == {
        ((did_b,), ("b",)),
        *((received, done) for received in permutations((did_a, did_b)) for done in permutations("ab")),
    }


def test_a_wish_that_follows_its_own_cancellation_is_a_new_one() -> None:
    assert ends(found(reducer(commands(Cancel(A), A)))) == {(("call a(): did a",), ("a",))}
    assert ends(found(reducer(commands(A, Cancel(A))))) == {((), ())}


async def asked(command: Effect[object]) -> object:
    return await command


@pytest.mark.parametrize(
    ("carried_out", "late"),
    [(lambda _: None, {(("go", "stop", "2"), (1, 1))}), (asked, set())],
    ids=["itself", "by a program"],
)
def test_others_look_in_between_the_documents_that_a_command_writes(
    carried_out: Callable[[Effect[object]], Program[object] | None], late: set[object]
) -> None:
    write = update_many("rows", Exists(ID), Put(Field[int]("n"), 1))

    def step(state: tuple[object, ...], event: object) -> Step[tuple[object, ...], Effect[object]]:
        return Step((*state, event), {"go": (write,), "stop": (Cancel(write),)}.get(str(event), ()))

    rows = world_with({"rows": tuple(Document.of({"_id": key, "n": 0}) for key in "xy")})
    made = Scenario(
        name="half",
        summary="",
        world=rows.write(inbox("r"), ("go", "stop")),
        actors=(ReducerProcess("r", (), step, lambda _, reply: str(reply), carried_out=carried_out),),
    )
    agree(made)
    rest = {
        (told, tuple(doc[Field[int]("n")] for doc in contents(here, "rows")))
        for here in plain_search(made).states.values()
        if isinstance(told := here.status("r"), Machine) and not here.read(inbox("r"))
    }
    ended = {(told.state, held) for told, held in rest if told == Machine(told.state)}
    assert ended == {
        (("go", "stop"), (0, 0)),
        (("go", "stop"), (1, 0)),
        (("go", "stop"), (0, 1)),
        (("go", "stop"), (1, 1)),
        (("go", "2", "stop"), (1, 1)),
        *late,
    }


# --- faults -------------------------------------------------------------------------------------------------------------

RECEIVED: Mapping[Fault, set[tuple[object, tuple[object, ...]]]] = {
    Fault.UNSENT: {((f"call a(): {NotApplied('not sent')}",), ())},
    Fault.DROPPED: {((f"call a(): {Ambiguous('no reply')}",), ())},
    Fault.LOST_REPLY: {((f"call a(): {Ambiguous('no reply')}",), ("a",))},
    Fault.LATE: {((f"call a(): {Ambiguous('no reply')}",), ()), ((f"call a(): {Ambiguous('no reply')}",), ("a",))},
    Fault.FAILED: {((f"call a(): {Refused('user code raised')}",), ())},
    Fault.SINK_FAILED: {((f"call a(): {Refused('the sink refused')}",), ())},
    Fault.DEAD_LETTER_FAILED: {((f"call a(): {Refused('the topic for dead letters refused')}",), ())},
    Fault.COMMIT_REFUSED: {((f"call a(): {Refused('the group has moved on')}",), ())},
    Fault.DUPLICATE: {(("call a(): did a",), ("a", "a"))},
    Fault.NEVER_RETURNS: {((), ())},
}


@pytest.mark.parametrize("kind", Fault)
def test_each_fault_does_what_the_table_says_and_nothing_else(kind: Fault) -> None:
    right = (("call a(): did a",), ("a",))
    struck = reducer(commands(A), faults=Faults.of(kind))
    assert ends(found(struck, Network(does), budget=1)) == {right, *RECEIVED.get(kind, set())}
    assert ends(found(struck, Network(does))) == {right}


def test_a_sleep_that_is_no_timer_is_refused() -> None:
    with pytest.raises(Misuse, match="r commands sleep 1 s, which is no timer of it"):
        found(reducer(commands(Sleep(SECOND))))


def test_a_timer_comes_true_by_a_stall_only() -> None:
    timer = reducer(commands(A, B), faults=Faults.of(Fault.GAVE_UP), is_timer=lambda command: command == A)
    did_b = "call b(): did b"
    assert ends(found(timer)) == set()
    assert found(timer).resting == 1
    stalled = found(timer, budget=1)
    assert {received for received, _ in ends(stalled)} == {("call a(): None", did_b), (did_b, "call a(): None")}
    assert set(stalled.faults) == {Fault.GAVE_UP}


def test_a_crash_takes_all_that_is_in_memory() -> None:
    alive = reducer(commands(A, B))
    whole = found(alive, Crash("r's host", (alive,), DEAD), budget=2)
    dead = [here for here in whole.states.values() if here.read(DEAD)]
    assert dead
    assert all(here.status("r") == Crashed() and here.read(inbox("r")) == () for here in dead)
    assert all(list(alive.steps(here.world)) == [] for here in dead)
    assert {here.read(DONE) for here in dead} == {(), ("a",), ("b",), ("a", "b"), ("b", "a")}
    assert whole.faults == {Fault.CRASH_BEFORE: len(whole.states) - len(dead)}


def test_a_late_wish_outlives_the_crash() -> None:
    alive = reducer(commands(A), faults=Faults.of(Fault.LATE))
    whole = found(alive, Network(does), Crash("r's host", (alive,), DEAD), budget=2)
    late = [here for here in whole.states.values() if here.read(DEAD) and here.read(FLIGHT)]
    assert late
    assert any(here.read(DEAD) and here.read(DONE) == ("a",) for here in whole.states.values())


def test_late_requests_may_hold_instants() -> None:
    event = (0, Instant(0))
    puts = attrs.evolve(
        reducer(lambda state, event: Step(state, (Call("a", (event,)),)), faults=Faults.of(Fault.LATE)),
        event_for=lambda *_: None,
        stamp=lambda event, now: (*event[:1], now),
    )
    world = Plain().write(inbox("r"), (event, event))
    clock = Clock(SECOND, horizon=2 * SECOND)
    scenario = Scenario(name="r", summary="", world=world, actors=(puts, Network(does)), budget=2, clock=clock)
    assert explore(scenario).time.startswith("relative time")


def test_the_state_of_a_reducer_is_immutable() -> None:
    with pytest.raises(Misuse, match="the state of a reducer is a list"):
        found(reducer(lambda *_: Step([])))


# --- commands that a program carries out ----------------------------------------------------------------------------------


async def does_both() -> object:
    said = []
    for effect in (A, B):
        try:
            said.append(str(await effect))
        except Failure as failure:
            said.append(type(failure).__name__)
    return " ".join(said)


PASS = Call("pass")
NETWORK = (Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.DUPLICATE, Fault.LATE)


def carrying(program: Callable[[], Program[object]], *asked: Effect[object], **more: Any) -> ReducerProcess:
    carried = attrs.evolve(
        reducer(commands(*asked or (PASS,)), **more), carried_out=lambda command: program() if command == PASS else None
    )
    assert carried.behaviours == {}
    return carried


@pytest.mark.parametrize("kind", [None, *NETWORK])
def test_a_wish_does_what_its_program_does_in_a_process_of_its_own(kind: Fault | None) -> None:
    """Law RU3: equal worlds and answers, with each network fault and any interleaving."""
    faults = Faults.of(kind) if kind else Faults()
    other = Process("other", factory(does_both), meaning=does)
    network = Network(does)
    alone = found_by_process(Process("p", factory(does_both), faults, does), other, network)
    carried = found(carrying(does_both, faults=faults), other, network, budget=1)
    here_too = {
        (machine.state[-1].removeprefix("call pass(): "), here.read(DONE), here.status("other"))
        for here in carried.states.values()
        if isinstance(machine := here.status("r"), Machine) and isinstance(machine.state, tuple) and machine.state
    }
    assert here_too == alone != set()


def found_by_process(*actors: Actor) -> set[tuple[object, ...]]:
    scenario = Scenario(name="process", summary="", world=Plain(), actors=actors, budget=1)
    agree(scenario)
    return {
        (standing.value, here.read(DONE), here.status("other"))
        for here in plain_search(scenario).states.values()
        if isinstance(standing := here.status("p"), Returned)
    }


def test_the_effects_of_two_wishes_come_one_by_one_in_any_order() -> None:
    whole = ends(found(carrying(does_both, PASS, PASS)))
    answer = "call pass(): did a did b"
    assert whole == {((answer, answer), done) for done in {*permutations("aabb")} if done[0] == "a" and done[-1] == "b"}


def test_a_program_dies_with_its_owner_and_its_requests_go_on() -> None:
    """Law RU2: only its requests in flight still happen."""
    carried = carrying(does_both, faults=Faults.of(Fault.LATE, on=lambda effect: effect == A))
    whole = found(carried, Network(does), Crash("r's host", (carried,), DEAD), budget=2)
    dead = [here for here in whole.states.values() if here.read(DEAD)]
    assert {(here.read(DONE), len(here.read(FLIGHT))) for here in dead} >= {
        ((), 0),
        (("a",), 0),
        ((), 1),
        (("a", "b"), 0),
    }
    assert all(list(carried.steps(here.world)) == [] for here in dead)


def test_a_dead_process_starts_again_with_nothing_in_memory() -> None:
    carried = carrying(does_both)

    def prepared(world: World) -> World:
        return world.write(inbox("r"), ("go",))

    actors = (carried, Crash("r's host", (carried,), DEAD), Restart("again", (carried,), DEAD, prepared))
    whole = found(*actors, budget=2)
    assert whole.faults.keys() == {Fault.CRASH_BEFORE, Fault.RESTART}
    assert {done for _, done in ends(whole)} >= {("a", "b"), ("a", "a", "b"), ("a", "b", "a", "b")}


@pytest.mark.parametrize(
    ("restarts", "advice"),
    [
        (True, "a Restart allows a restart and does not promise one; let the law allow for who is dead"),
        (False, "nothing restarts it; let a Restart be among the actors, or the law allow for who is dead"),
    ],
)
def test_a_law_about_rest_that_a_dead_reducer_breaks_says_what_a_restart_means(*, restarts: bool, advice: str) -> None:
    one = reducer(commands(A))
    actors = (one, Crash("r's host", (one,), DEAD), *((Restart("again", (one,), DEAD),) if restarts else ()))
    lives = {"it lives": lambda state: isinstance(state.status("r"), Machine)}
    report = explore(Scenario("s", "", Plain(), actors, budget=2, eventually=lives))
    assert report.why == f"r died at step 1 and never restarted: {advice}"


def test_a_wish_that_is_taken_back_has_no_program_any_more() -> None:
    def step(state: tuple[object, ...], event: object) -> Step[tuple[object, ...], Effect[object]]:
        match event:
            case "go":
                return Step(state, (PASS,))
            case "stop":
                return Step(state, (Cancel(PASS),))
            case _:
                return Step((*state, event))

    carried = attrs.evolve(carrying(does_both), step=step)
    assert ends(found(carried, events=("go", "stop"))) >= {((), ()), ((), ("a",))}
    assert all(done != ("b",) for _, done in ends(found(carried, events=("go", "stop"))))
    begun = attrs.evolve(carrying(does_both), step=commands(PASS, Cancel(PASS)))
    assert {done for _, done in ends(found(begun))} == {()}


async def fails() -> object:
    await A
    raise Refused("no")


async def raises() -> object:
    await A
    raise ValueError("a bug")


async def sleeps() -> object:
    await A
    await Sleep(SECOND)
    return await B


def test_a_failure_that_a_program_passes_on_is_the_reply() -> None:
    assert ends(found(carrying(fails))) == {((f"call pass(): {Refused('no')}",), ("a",))}


def test_an_error_that_a_program_raises_is_one_of_the_reducer() -> None:
    scenario = Scenario(name="r", summary="", world=Plain().write(inbox("r"), ("go",)), actors=(carrying(raises),))
    report = explore(scenario)
    assert report.law == NO_ERROR
    assert report.trace is not None
    assert [step.event for step in report.trace.steps] == ["receives go", 'call a() -> "did a"']


@pytest.mark.parametrize("error", [KeyError, SystemExit, BaseException])
def test_an_error_that_a_step_raises_is_one_of_the_reducer(error: type[BaseException]) -> None:
    def step(_: object, event: object) -> Step[object, Effect[object]]:
        if event == "breaks":
            raise error
        return Step(None)

    world = Plain().write(inbox("r"), ("go", "breaks"))
    reducer = ReducerProcess("r", None, step, lambda _, __: None)
    report = explore(Scenario(name="r", summary="", world=world, actors=(reducer,)))
    assert report.law == NO_ERROR
    assert report.trace is not None
    assert [each.event for each in report.trace.steps] == ["receives go", "receives breaks"]
    assert "test_reducers.py" in render(report.trace)


def raises_it(*_: object) -> object:
    raise KeyError("a bug")


def replaced(name: str) -> dict[str, Any]:
    return {name: raises_it}


@pytest.mark.parametrize(
    ("name", "makes"),
    [
        ("event_for", lambda: carrying(does_both)),
        *((name, lambda: reducer(commands(A, B))) for name in ("event_for", "merge", "stamp")),
    ],
)
def test_an_error_that_another_function_of_it_raises_is_one_of_the_reducer(
    name: str, makes: Callable[[], ReducerProcess]
) -> None:
    world = Plain().write(inbox("r"), ("go",))
    actors = (attrs.evolve(makes(), **replaced(name)),)
    report = explore(Scenario(name="r", summary="", world=world, actors=actors))
    assert report.law == NO_ERROR
    assert report.trace is not None
    assert "KeyError: 'a bug'" in render(report.trace)
    assert "test_reducers.py" in render(report.trace)


@pytest.mark.parametrize("name", ["split", "is_timer", "at_once", "carried_out", "meaning"])
def test_an_error_of_what_a_scenario_says_of_a_reducer_has_a_note_that_names_it(name: str) -> None:
    actors = (attrs.evolve(reducer(commands(A)), **replaced(name)),)
    with pytest.raises(KeyError) as raised:
        explore(Scenario(name="s", summary="", world=Plain().write(inbox("r"), ("go",)), actors=actors))
    assert raised.value.__notes__ == ["in the steps of r"]


async def raises_at_once() -> object:
    raise ValueError("a bug")


def test_an_error_of_a_program_that_events_received_together_begin_is_one_of_the_reducer() -> None:
    steps: Mapping[object, tuple[Effect[object], ...]] = {"go": (A, B), PASS: (PASS,)}
    carried = attrs.evolve(
        carrying(raises_at_once),
        step=lambda state, event: Step(state, steps.get(event, ())),
        merge=lambda _: (PASS, "go"),
    )
    world = Plain().write(inbox("r"), ("go",))
    assert explore(Scenario(name="r", summary="", world=world, actors=(carried,))).law == NO_ERROR


@pytest.mark.parametrize("clock", [Clock(SECOND, horizon=0), Clock(SECOND, moves=2)], ids=["relative", "absolute"])
def test_a_program_sleeps_while_others_go_on(clock: Clock) -> None:
    actors = (carrying(sleeps), Process("other", factory(does_both), meaning=does))
    scenario = Scenario(
        name="r",
        summary="",
        world=Plain().write(inbox("r"), ("go",)),
        actors=actors,
        clock=clock,
        eventually={"it wakes": lambda state: state.read(DONE).count("b") == 2},
        sometimes={"another one comes before": lambda state: state.read(DONE) == ("a", "a", "b")},
    )
    assert explore(scenario).verdict is Verdict.COMPLETE


async def remembers() -> object:
    now = await Now()
    await Sleep(SECOND)
    return now


def test_a_program_that_holds_an_instant_makes_time_absolute() -> None:
    def does_or_tells(effect: Effect[object], world: World, who: str) -> Outcomes:
        yield from (perform if isinstance(effect, Now) else does)(effect, world, who)

    held = carrying(remembers, meaning=does_or_tells)
    world = Plain().write(inbox("r"), ("go",))
    report = explore(
        Scenario(name="r", summary="", world=world, actors=(held,), clock=Clock(SECOND, horizon=0, moves=2))
    )
    assert report.time.startswith("absolute time, 2 moves of 1 s, for r uses an instant as a number, ")


def test_what_never_returns_does_not_come_back_and_can_be_cancelled() -> None:
    stuck = reducer(commands(A, B), faults=Faults({Fault.NEVER_RETURNS: lambda command: command == A}))
    whole = found(stuck, budget=1)
    machines = [machine for here in whole.states.values() if isinstance(machine := here.status("r"), Machine)]
    assert any(machine.stuck == (A,) and machine.state == ("call b(): did b",) for machine in machines)
    assert {done for _, done in ends(whole)} == {("a", "b"), ("b", "a"), ("b",)}


@pytest.mark.parametrize("kind", [Fault.SINK_FAILED, Fault.DEAD_LETTER_FAILED, Fault.COMMIT_REFUSED])
def test_what_is_refused_was_not_done(kind: Fault) -> None:
    refused = reducer(commands(A, B), faults=Faults({kind: lambda command: command == A}))
    assert {done for received, done in ends(found(refused, budget=1)) if "Refused" in str(received)} == {("b",)}


def test_an_answer_that_changes_nothing_need_not_come() -> None:
    """A reader that polls for missing data is at rest until it exists."""

    def asks_again(state: tuple[object, ...], event: object) -> Step[tuple[object, ...], Effect[object]]:
        return Step(state, (A,)) if event in {"go", None} else Step((event,))

    def looks(effect: Effect[object], world: World, who: str) -> Outcomes:
        yield from ((world, world.read(DONE) or None),) if effect == A else does(effect, world, who)

    asking = reducer(asks_again, meaning=looks, split=no_effects, event_for=lambda _, reply: reply)
    assert found(asking).resting == 1
    writer = Process("w", factory(does_both), meaning=does)
    whole = found(asking, writer)
    assert {here.status("r") for here in whole.states.values()} >= {Machine((("a",),)), Machine((("a", "b"),))}


@pytest.mark.parametrize("split", [all_effects, no_effects])
def test_a_write_of_what_is_there_need_not_come(split: Which) -> None:
    """If others may act before the reply, the reducer never rests, and the report says why."""

    def writes_again(state: tuple[object, ...], _: object) -> Step[tuple[object, ...], Effect[object]]:
        return Step(state, (update_one("c", Eq(ID, "x"), Put(Field[int]("n"), 1)),))

    asking = reducer(writes_again, meaning=perform, split=split, event_for=lambda _, __: "again")
    world = world_with({"c": (Document.of({"_id": "x", "n": 0}),)}).write(inbox("r"), ("go",))
    report = explore(Scenario("s", "", world, (asking,), eventually={"holds": lambda _: True}))
    assert report.verdict is (Verdict.COMPLETE if split is no_effects else Verdict.INCONCLUSIVE)
    assert ("give r split=no_effects" in report.reason) is (split is all_effects)


# --- found by the independent search ------------------------------------------------------------------------------------


def test_user_code_that_a_program_calls_may_never_return() -> None:
    """Law RU3: its earlier effects stay."""
    stuck = carrying(does_both, faults=Faults({Fault.NEVER_RETURNS: lambda effect: effect == B}))
    whole = found(stuck, budget=1)
    machines = [(here.status("r"), here.read(DONE)) for here in whole.states.values()]
    assert any(
        isinstance(machine, Machine) and machine.stuck == (PASS,) and done == ("a",) for machine, done in machines
    )
    assert whole.faults.keys() == {Fault.NEVER_RETURNS}


async def notes_it() -> None:
    await Note("n", 1)


def test_notes_of_a_reducer_die_with_it() -> None:
    carried = carrying(notes_it, meaning=perform)
    whole = found(carried, Crash("r's host", (carried,), DEAD), budget=1)
    said = {(here.read(DEAD), here.read(notes("r"))) for here in whole.states.values()}
    assert said == {(False, ()), (False, (("n", 1),)), (True, ())}


def test_a_program_may_not_carry_out_a_command_with_an_instant_in_relative_time() -> None:
    asked = Call("pass", (Instant(0),))
    carried = attrs.evolve(reducer(commands(asked)), carried_out=lambda command: sleeps() if command == asked else None)
    world = Plain().write(inbox("r"), ("go",))
    clock = Clock(SECOND, horizon=2 * SECOND, moves=2)
    report = explore(Scenario(name="r", summary="", world=world, actors=(carried,), clock=clock))
    assert report.time.startswith("absolute time, 2 moves of 1 s, for r uses a constant instant, 0 s@store")


def test_an_event_that_waits_is_immutable() -> None:
    process = attrs.evolve(reducer(commands(PASS)), event_for=lambda *_: [], split=all_effects)
    with pytest.raises(Misuse, match="not known to be immutable"):
        explore(Scenario(name="r", summary="", world=Plain().write(inbox("r"), ("go",)), actors=(process,)))


def test_what_carries_a_command_out_does_so_each_time() -> None:
    answers = iter([sleeps(), None])
    process = attrs.evolve(reducer(commands(PASS)), carried_out=lambda _: next(answers, None))
    with pytest.raises(Nondeterministic, match="first, and then None"):
        explore(Scenario(name="r", summary="", world=Plain().write(inbox("r"), ("go",)), actors=(process,)))


def test_what_carries_a_command_out_is_a_program_or_none() -> None:
    wrong = attrs.evolve(reducer(commands(PASS)), carried_out=lambda command: command == PASS)
    with pytest.raises(Misuse, match="carried_out returned True for"):
        explore(Scenario(name="r", summary="", world=Plain().write(inbox("r"), ("go",)), actors=(wrong,)))
