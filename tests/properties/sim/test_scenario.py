from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import attrs
import pytest
from tests.properties.hostile import refuses_wrong_types

from tidegate.catalogue import shipped
from tidegate.model.documents import ID, Document, Eq, Field, Put, PutServerTime
from tidegate.model.effects import Call, Note, Refused, Sleep
from tidegate.model.errors import Misuse, UnknownEffect
from tidegate.model.instants import MILLISECOND, SECOND, Instant
from tidegate.model.operations import find_one, insert_one, update_one
from tidegate.model.reducer import Step
from tidegate.reactive.planning.change_stream import After, Read, ResetHistory, Save
from tidegate.sim.program.automaton import Returned
from tidegate.sim.runs.report import Report, Verdict, explore
from tidegate.sim.scenario import NO_ERROR, Clock, Label, NoLongerThan, Scenario, State, Trouble
from tidegate.sim.servers.actors import Network, Process, Ticks, factory, when_quiet
from tidegate.sim.servers.expiry import Expiry
from tidegate.sim.servers.group import GROUP, Coordinator, Group, broker, dead
from tidegate.sim.servers.log import begun
from tidegate.sim.servers.reducers import Crash, ReducerProcess, Restart
from tidegate.sim.servers.streams import Forgetful, Stream
from tidegate.sim.trace.trace import StepKind
from tidegate.sim.world.faults import FAULTS, REBALANCES, Fault, Faults, all_effects, bound
from tidegate.sim.world.world import Plain, contents, inbox, world_with


def scenario(**changes: object) -> Scenario:
    return Scenario(**{"name": "s", "summary": "", "world": Plain(), "actors": (), **changes})  # type: ignore[arg-type]


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "two actors of one name": (lambda: scenario(actors=(Network(), Network())), "two actors have one name"),
    "two laws of one name": (
        lambda: scenario(always={"law": all_effects}, eventually={"law": all_effects}),
        "two laws have one name",
    ),
    "an expectation that is not a law": (
        lambda: scenario(always={"law": all_effects}, expect="another"),
        "it expects to break 'another', which is not a law of it",
    ),
    "a negative budget": (lambda: scenario(budget=-1), "a number of faults must be an integer from 0 on, got -1"),
    "a budget that is a bool": (
        lambda: scenario(budget=True),
        "a number of faults must be an integer from 0 on, got True",
    ),
    "a bool of a kind": (
        lambda: scenario(budgets={Fault.LATE: True}),
        "a number of faults that are late must be an integer from 0 on, got True",
    ),
    "moves that are a bool": (
        lambda: Clock(SECOND, moves=True),
        "a number of moves of a clock must be an integer from 0 on, got True",
    ),
    "a horizon that is a bool": (
        lambda: Clock(SECOND, horizon=True),
        "a horizon in microseconds must be an integer from 0 on, got True",
    ),
    "a negative budget of a kind": (
        lambda: scenario(budgets={Fault.LATE: -1}),
        "a number of faults that are late must be an integer from 0 on, got -1",
    ),
    "no quantum": (lambda: Clock(0), "a quantum in microseconds must be an integer from 1 on, got 0"),
    "a quantum finer than documents": (lambda: Clock(1_500), "a quantum of 1500 us"),
    "a horizon in the future": (
        lambda: Clock(SECOND, horizon=-SECOND),
        "a horizon in microseconds must be an integer from 0 on, got -1000000",
    ),
    "a horizon finer than documents": (lambda: Clock(MILLISECOND, horizon=1_500), "a horizon of 1500 us"),
    "a law about longer than the horizon": (
        lambda: scenario(
            clock=Clock(SECOND, horizon=SECOND), always={"L": (all_effects, NoLongerThan(SECOND, lambda _: None))}
        ),
        "the law 'L' asks whether 1 s are over, and the horizon is 1 s",
    ),
    "a law about less than no time": (
        lambda: NoLongerThan(-1, lambda _: None),
        "a length of time in microseconds must be an integer from 0 on, got -1",
    ),
    "negative moves": (
        lambda: Clock(SECOND, moves=-1),
        "a number of moves of a clock must be an integer from 0 on, got -1",
    ),
    "a budget that fits nowhere": (lambda: scenario(budget=10**7), "a budget of 10000000 faults"),
    "moves that fit nowhere": (lambda: Clock(SECOND, moves=10**7), "10000000 moves"),
    "negative rebalances": (lambda: scenario(world=Plain().write(REBALANCES, -1)), "a budget of -1 rebalances"),
    "rebalances of text": (
        lambda: scenario(world=Plain().write(REBALANCES, cast("int", "x"))),
        "a number of rebalances must be",
    ),
    "an owner that is no member": (
        lambda: scenario(world=Plain().write(GROUP, Group(1, ("a",), ("c",)))),
        "'c' owns a partition, and is no member",
    ),
    "the owner of a transaction twice": (
        lambda: scenario(actors=(process("a"), Expiry((process("a"),)))),
        "expiry is about a process 'a' that is not among the actors",
    ),
    "who is waited for twice": (
        lambda: scenario(actors=(process("a"), process("b", meaning=when_quiet((process("a"),))))),
        "b is about a process 'a'",
    ),
    "a network with no meaning": (
        lambda: Network(cast("Any", "none")),
        "a meaning of effects must be callable, got str",
    ),
    "a crash of a process": (lambda: Crash("c", cast("Any", (process("a"),)), dead("a")), "a reducer that runs there"),
    "a crash that nobody sees": (lambda: Crash("c", (), cast("Any", dead)), "the cell that tells whether it is dead"),
    "a start that prepares nothing": (
        lambda: Restart("r", (), dead("a"), cast("Any", 3)),
        "what prepares the world for who starts again must be callable",
    ),
    "less than nothing kept": (lambda: Forgetful(keep=-1), "a number of changes must be an integer from 0 on, got -1"),
    "collections that are a text": (lambda: Stream("s", cast("Any", "rows")), "str is not a tuple"),
    "a stream of its own record": (lambda: Stream("s", ("streams",)), "the stream s watches streams"),
    "a key that is a text": (lambda: begun(0, cast("Any", "k")), "the key of a record must be"),
    "pages of nothing": (lambda: broker(most=0), "a number of records that a fetch answers at most must be"),
    "a group without lanes": (lambda: Coordinator("t", cast("Any", "x")), "what says which process has a partition"),
}


def process(name: str, **more: Any) -> Process:
    return Process(name, factory(returns), **more)


STEPS: dict[str, tuple[Callable[[Any], dict[str, object]], str]] = {
    "a meaning that returns nothing": (lambda any_: {"meaning": any_(lambda *_: None)}, "an outcome None"),
    "a meaning that yields no pair": (lambda any_: {"meaning": any_(lambda *_: (1,))}, "an outcome 1"),
    "a step that is none": (lambda any_: {"step": any_(lambda *_: None)}, "the step of a reducer returned None"),
    "a command that is alone": (
        lambda any_: {"step": any_(lambda state, _: Step(state, any_(Sleep(1))))},
        "the step of a reducer returned Step",
    ),
    "at once, and it waits": (
        lambda _: {"meaning": lambda *_: iter(()), "at_once": lambda _: True},
        "has 0 outcomes",
    ),
    "a merge of nothing": (lambda any_: {"merge": any_(lambda _: None), "split": all_effects}, "merge returned None"),
}


@pytest.mark.parametrize("what", STEPS)
def test_what_the_code_of_a_reducer_returns_is_told_apart(what: str) -> None:
    make, said = STEPS[what]
    asks = {"step": lambda state, event: Step(state, (Note("n", 1), Note("m", 1)) if event == "go" else ())}
    reducer = ReducerProcess("r", 0, event_for=lambda *_: "done", **{**asks, **make(lambda each: each)})  # type: ignore[arg-type]
    with pytest.raises(Misuse, match=said):
        explore(scenario(world=Plain().write(inbox("r"), ("go",)), actors=(reducer,)))


def test_a_restart_that_prepares_no_world_is_misuse() -> None:
    reducer = ReducerProcess("r", 0, lambda state, _: Step(state), lambda *_: None)
    again = Restart("again", (reducer,), dead("r"), cast("Any", lambda _: None))
    with pytest.raises(Misuse, match="prepared returned None"):
        explore(scenario(actors=(reducer, Crash("crash", (reducer,), dead("r")), again), budget=2))


async def notes_and_calls() -> None:
    await Note("n", 1)
    await Call("user")


def test_a_broker_leaves_to_others_what_is_none_of_its_own() -> None:
    with pytest.raises(UnknownEffect, match="call user"):
        explore(scenario(actors=(Process("a", factory(notes_and_calls), meaning=broker()),)))


def test_a_stream_without_its_record_or_a_position_is_misuse() -> None:
    stream = Stream("s", ("rows",))
    for effect in (ResetHistory(0, 1), Save(0, 0, After(3)), Read(0, After("x")), Read(0, cast("Any", None))):
        with pytest.raises(Misuse, match=r"there is no record of the stream s|must be an? "):
            list(stream.meaning()(effect, Plain(), "p"))


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_explored_is_refused_at_once(what: str) -> None:
    make, said = WRONG[what]
    with pytest.raises(Misuse, match=said):
        make()


def test_arguments_of_another_type_are_refused_at_once() -> None:
    right = scenario(actors=(Network(),), always={"law": all_effects})
    names = [field.name for field in attrs.fields(Scenario) if field.init]
    refuses_wrong_types(Scenario, {name: getattr(right, name) for name in names}, (Network(), 1), {"law": 1})
    refuses_wrong_types(Clock, {"quantum": SECOND, "horizon": None, "moves": 0})
    refuses_wrong_types(Faults, {"kinds": {Fault.LATE: all_effects}}, {Fault.LATE: 1})
    refuses_wrong_types(partial(Faults.of, Fault.LATE), {"on": all_effects})


async def returns() -> None: ...


INSTEAD: dict[str, tuple[Callable[[Any], object], str]] = {
    "a world of dicts": (lambda any_: scenario(world=any_({"rows": []})), "write world_with"),
    "documents in a list": (lambda any_: world_with(any_({"rows": [Document.of({"_id": 1})]})), "write a tuple"),
    "documents that are dicts": (lambda any_: world_with(any_({"rows": ({"_id": 1},)})), "Document.of"),
    "a document without an id": (lambda _: world_with({"rows": (Document.of({"n": 1}),)}), "needs an _id"),
    "actors in a list": (lambda any_: scenario(actors=any_([Network()])), 'Process\\("a", factory'),
    "a program that is no actor": (lambda any_: scenario(actors=any_((returns,))), 'Process\\("a", factory'),
    "a list of laws": (lambda any_: scenario(always=any_([all_effects])), 'write {"what holds"'),
    "a coroutine": (lambda any_: Process("a", any_(closed(returns()))), 'Process\\("a", factory'),
    "a bare fault": (lambda any_: Process("a", factory(returns), any_(Fault.LATE)), "write Faults.of"),
    "a list of faults": (lambda any_: Faults(any_([Fault.LATE])), "write Faults.of"),
    "no host": (
        lambda any_: Process("a", factory(returns), host=any_("h")),
        "the machine that it runs on must be a Host, got str",
    ),
    "no name": (lambda any_: Process(any_(1), factory(returns)), "the name of a process must be a string, got int 1"),
    "a filter of a dict": (lambda any_: find_one("rows", any_({"_id": 1})), "write a term, such as Eq"),
    "a field that is a text": (lambda any_: Document.of({"n": 1})[any_("n")], "as in Field"),
    "a time of Python": (lambda any_: Put(Field[Instant]("at"), any_(datetime.now(UTC))), "hand in frozen"),
}


def closed(program: Coroutine[object, object, object]) -> object:
    program.close()
    return program


@pytest.mark.parametrize("what", INSTEAD)
def test_what_a_newcomer_writes_is_told_what_to_write_instead(what: str) -> None:
    make, todo = INSTEAD[what]
    with pytest.raises(Misuse, match=todo):
        make(lambda value: value)


def test_what_can_be_explored_is_accepted() -> None:
    assert (
        scenario(actors=(Network(), Ticks(SECOND)), always={"law": all_effects}, expect="law", budget=1).expect == "law"
    )
    assert Clock(MILLISECOND, horizon=0).horizon == 0


def test_a_label_tells_what_was_answered_if_it_says_anything() -> None:
    found = Document.of({"_id": "x"})
    labels = [
        (Label("crashes"), "crashes"),
        (Label(Sleep(SECOND), None), "sleep 1 s"),
        (Label(Note("a", 1), None), "note a: 1"),
        (Label(insert_one("rows", found), None), 'insert into rows: {_id: "x"}'),
        (Label(find_one("rows", Eq(ID, "x")), None), 'find rows where _id = "x" -> null'),
        (Label(find_one("rows", Eq(ID, "x")), found), 'find rows where _id = "x" -> {_id: "x"}'),
        (Label(Sleep(SECOND), Trouble("no reply")), "sleep 1 s -> no reply"),
        (Label(Sleep(SECOND), Refused("no")), "sleep 1 s -> Refused(no)"),
    ]
    assert [str(label) for label, _ in labels] == [shown for _, shown in labels]


def test_only_a_kind_that_may_strike_less_often_than_all_has_a_budget_of_its_own() -> None:
    bounded = scenario(budget=2, budgets={Fault.LATE: 1, Fault.UNSENT: 2})
    assert bounded.allowance() == {FAULTS: 2, bound(Fault.LATE): 1}
    chosen = bounded.choosing([Fault.LATE]).allowance()
    assert chosen[bound(Fault.LATE)] == 1
    assert {kind for kind in Fault if chosen.get(bound(kind)) == 0} == set(Fault) - {Fault.LATE}


def test_a_run_is_bounded_to_fewer_faults_and_never_to_more() -> None:
    bounded = scenario(budget=3, budgets={Fault.LATE: 2})
    allowed = [bounded.bounded(None, faults_max).allowance() for faults_max in (None, 4, 3, 2, 0)]
    whole = {FAULTS: 3, bound(Fault.LATE): 2}
    assert allowed == [whole, whole, whole, {FAULTS: 2}, {FAULTS: 0}]
    with pytest.raises(Misuse, match="a number of faults must be an integer from 0 on, got -1"):
        bounded.at_most(-1)


def test_rebalances_have_a_bound_of_their_own_whatever_all_faults_have() -> None:
    """They do not count towards the total, so their bound always needs a cell."""
    group = shipped("group")
    assert all(explore(each).faults.get(Fault.REBALANCE, 0) == 0 for each in (
        attrs.evolve(group, budgets={Fault.REBALANCE: 0}), group.choosing([]), group.choosing([Fault.CRASH_BEFORE]), group.at_most(0),
    ))  # fmt: skip
    assert explore(group).faults[Fault.REBALANCE] > 0
    assert group.at_most(1).allowance()[bound(Fault.REBALANCE)] == 1


def test_names_of_the_simulator_are_refused() -> None:
    clock = Clock(SECOND, moves=1)
    named = scenario(actors=(Process("clock", factory(find_nothing)),))
    with pytest.raises(Misuse, match="an actor is called 'clock'"):
        attrs.evolve(named, clock=clock)
    for laws in ({"always": {NO_ERROR: bool}}, {"sometimes": {NO_ERROR: bool}}):
        with pytest.raises(Misuse, match="a law is called 'no program raises an error'"):
            attrs.evolve(scenario(), **laws)  # type: ignore[arg-type]


async def find_nothing() -> None:
    await find_one("rows", Eq(ID, "nothing"))


# --- time in laws -------------------------------------------------------------------------------------------------------

SINCE = Field[Instant | None]("since")


def held_since(state: State) -> Instant | None:
    return contents(state, "locks")[0][SINCE]


def locked(seconds_at_most: int, *, horizon: int | None, moves: int = 0) -> Report:
    async def holds() -> None:
        await update_one("locks", Eq(ID, "x"), PutServerTime(SINCE))
        await Sleep(2 * SECOND)
        await update_one("locks", Eq(ID, "x"), Put(SINCE, None))

    return explore(
        Scenario(
            "locks",
            "",
            world_with({"locks": (Document.of({"_id": "x", "since": None}),)}),
            (Process("p", factory(holds)),),
            clock=Clock(SECOND, horizon=horizon and horizon * SECOND, moves=moves),
            always={"not for long": NoLongerThan(seconds_at_most * SECOND, held_since)},
        )
    )


@pytest.mark.parametrize(("horizon", "moves"), [(10, 0), (None, 6)])
@pytest.mark.parametrize("length", [0, 1, 2, 4])
def test_a_law_says_how_long_something_lasts_at_most(length: int, horizon: int | None, moves: int) -> None:
    """In both kinds of time; a sleeper may oversleep, so no length is kept."""
    found = locked(length, horizon=horizon, moves=moves)
    assert (found.verdict, found.law) == (Verdict.VIOLATED, "not for long")
    assert found.trace is not None
    assert sum(step.kind is StepKind.TIME for step in found.trace.steps) == length + 1


def test_a_length_that_time_cannot_reach_is_kept() -> None:
    assert locked(6, horizon=None, moves=6).verdict is Verdict.COMPLETE
    nothing = scenario(always={"L": NoLongerThan(0, lambda _: None)}, actors=(Network(),))
    assert explore(nothing).verdict is Verdict.COMPLETE


# --- return values of laws ----------------------------------------------------------------------------------------------


async def awaits(state: State) -> bool:
    return state.status("p") != Returned("bad")


def yields(state: State) -> Iterator[bool]:
    yield state.status("p") != Returned("bad")


ALWAYS_TRUE: Mapping[str, Callable[[State], object]] = {
    "a coroutine": lambda state: awaits(state),  # noqa: PLW0108  a function that is no `async def`
    "a generator": lambda state: (holds for holds in (state.status("p") != Returned("bad"),)),
    "a function": lambda state: lambda: state.status("p") != Returned("bad"),
    "a tuple": lambda state: (state.status("p") != Returned("bad"),),
    "a text": lambda _: "no",
    "nothing": lambda _: None,
    "a number": lambda _: 1,
}


def judged(kind: str, law: Callable[..., object]) -> Verdict:
    laws = {kind: {"L": (lambda _, after: law(after)) if kind == "step" else law}}
    return explore(Scenario("s", "", Plain(), (Process("p", factory(says_bad)),), **laws)).verdict  # type: ignore[arg-type]


async def says_bad() -> str:
    await Note("m", 0)
    return "bad"


@pytest.mark.parametrize("answer", ALWAYS_TRUE)
@pytest.mark.parametrize("kind", ["always", "step", "eventually", "sometimes"])
def test_a_law_that_answers_no_bool_is_misuse_that_names_it(kind: str, answer: str) -> None:
    with pytest.raises(Misuse, match="the law 'L' answered"):
        judged(kind, ALWAYS_TRUE[answer])


@pytest.mark.parametrize("law", [awaits, yields])
def test_a_law_that_is_a_coroutine_function_or_a_generator_is_refused_at_once(law: Callable[..., object]) -> None:
    with pytest.raises(Misuse, match="the law 'L' is"):
        Scenario("s", "", Plain(), (), always={"L": law})  # type: ignore[dict-item]


def test_a_law_of_no_parts_is_refused() -> None:
    for kind in ("step", "eventually", "sometimes"):
        with pytest.raises(Misuse, match="has no parts"):
            scenario(**{kind: {"empty": ()}})
