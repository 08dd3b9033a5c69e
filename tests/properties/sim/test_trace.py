"""A trace is a value: encoding, printing and replay are exact, and divergences are located."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random  # noqa: TID251  seeded
from typing import Final, cast

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.hostile_traces import hostile_traces
from tests.properties.shipped import OF_SAMPLE, SAMPLE, SPECIMENS, report_on

from tidegate.catalogue import shipped
from tidegate.consumer.checks.scenarios.partition import GIVES_UP, partition
from tidegate.invocations.checks.scenarios.transition import transition
from tidegate.model.documents import Document, Field
from tidegate.model.effects import Call, Effect, Failure, Note, Program, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.operations import insert_one
from tidegate.model.patches import Added, Removed, Replaced
from tidegate.sim.program.automaton import Crashed, Returned
from tidegate.sim.program.source_locations import decided_at
from tidegate.sim.runs.causes import commands_of
from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.nearest import NEAREST_STATES_MAX, nearest_passing
from tidegate.sim.runs.replay import (
    Diverged,
    ExploredOn,
    Replayed,
    Reproduced,
    explored_on,
    followed,
    replay,
    replaying,
)
from tidegate.sim.runs.report import explore
from tidegate.sim.runs.state_view import PICTURED_MAX, pictured
from tidegate.sim.runs.successors import event, ways
from tidegate.sim.runs.tracing import is_sound, steps_of
from tidegate.sim.scenario import ActorStep, Clock, Label, Scenario, State
from tidegate.sim.search.attempts import attempt
from tidegate.sim.search.search import Search, go_on
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.servers.reducers import Machine
from tidegate.sim.trace.compare import decision
from tidegate.sim.trace.rendering import render, sentence, state_lines
from tidegate.sim.trace.trace import (
    Breach,
    Choice,
    Lane,
    Mover,
    Option,
    Passing,
    PolicyName,
    StepKind,
    Trace,
    TraceStep,
    Truth,
    past,
)
from tidegate.sim.trace.trace_json import decoded, encoded
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import Cell, Outcomes, Plain, World, ids, notes, perform, world_with

pytestmark = OF_SAMPLE

GOLDEN = Path(__file__).parents[1] / "golden"


def trace_of(name: str) -> Trace:
    trace = report_on(name).trace
    assert trace is not None
    return trace


def text_of(trace: Trace) -> str:
    return json.dumps(encoded(trace))


# --- encoding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLE)
def test_decoding_an_encoded_trace_gives_the_same_trace(name: str) -> None:
    """Law TC1, for counterexamples of each protocol, whole and truncated."""
    whole = trace_of(name)
    half = whole.steps[: len(whole.steps) // 2]
    for trace in (whole, attrs.evolve(whole, steps=half, law="", loop=min(whole.loop, len(half)))):
        assert decoded(json.loads(text_of(trace))) == trace


@given(hostile_traces())
def test_decoding_an_encoded_hostile_trace_gives_the_same_trace(trace: Trace) -> None:
    """Law TC1, for hostile names, laws and values."""
    assert decoded(json.loads(text_of(trace))) == trace


@given(hostile_traces())
def test_nothing_in_a_trace_can_forge_a_line_of_its_story(trace: Trace) -> None:
    lines = render(trace).splitlines()
    patched = sum(any(True for _ in step.patch) for step in trace.steps)
    first = state_lines(trace.initial) if trace.law and not trace.steps else []
    assert len(lines) == 2 + len(trace.steps) + patched + len(first) + bool(trace.law)
    assert all(line.isprintable() for line in lines)


VALID = {
    "schema": "tidegate/trace@1",
    "meta": {
        "scenario": "s",
        "versions": {"tidegate": "1", "python": "3"},
        "seed": None,
        "time": "t",
        "policy": "exhaustive",
        "fingerprint": "f",
        "faults": {"late": 1},
    },
    "processes": [{"name": "p", "kind": "process"}],
    "laws": [{"name": "l", "kind": "always"}],
    "initial": {"n": 1},
    "steps": [
        {
            "i": 1,
            "t": 7,
            "process": "p",
            "event": "w",
            "kind": "write",
            "fault": "late",
            "choice": {"enabled": [{"process": "p", "event": "w", "fault": "late"}], "taken": 0},
            "effects": [{"what": "w", "on": ["n"], "reply": "1"}],
            "patch": [{"op": "replace", "path": "/n", "value": 2}],
            "properties": {"l": "broken"},
            "cause": [],
            "src": "m.py:1 f",
        },
        {"i": 2, "process": "p", "event": "r", "patch": [], "cause": [1]},
    ],
    "verdict": {"law": "l", "kind": "safety", "step": 1},
    "passing": {
        "differs_at": 1,
        "steps": [{"process": "p", "event": "x", "patch": [{"op": "remove", "path": "/n"}]}],
    },
    "original": {"steps": []},
}
OLDER = {
    "schema": "tidegate/trace@1",
    "meta": {"scenario": "s", "version": "1", "law": "l", "time": "t", "seed": "7"},
    "processes": ["p"],
    "initial": {"n": 1},
    "steps": [
        {"i": 1, "process": "p", "what": "w", "fault": "", "patch": [{"op": "replace", "path": "/n", "value": 2}]}
    ],
}


def damaged(*path: str | int, to: object = ...) -> object:
    copy = json.loads(json.dumps(VALID))
    at = copy
    for part in path[:-1]:
        at = at[part]
    if to is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return copy


DAMAGES: dict[str, tuple[object, str]] = {
    "no object": ([], "this is not a trace"),
    "a text": ("tidegate/trace@1", "this is not a trace"),
    "nothing": (None, "this is not a trace"),
    "no schema": (damaged("schema"), "this is not a trace"),
    "another schema": (damaged("schema", to="other/trace@1"), "this is not a trace"),
    "a schema that is not text": (damaged("schema", to=1), "this is not a trace"),
    "another version": (damaged("schema", to="tidegate/trace@2"), "a trace of version 'tidegate/trace@2'"),
    "no meta": (damaged("meta"), "damaged"),
    "meta is a list": (damaged("meta", to=[]), "damaged"),
    "no law": (damaged("verdict", "law"), "damaged"),
    "a law that is a number": (damaged("verdict", "law", to=1), "1 where a text belongs"),
    "a verdict that is a list": (damaged("verdict", to=[]), "damaged"),
    "a seed that is a number": (damaged("meta", "seed", to=1), "1 where a text belongs"),
    "no processes": (damaged("processes"), "damaged"),
    "a process that is null": (damaged("processes", 0, to=None), "damaged"),
    "a process without a name": (damaged("processes", 0, "name"), "damaged"),
    "processes that are a text": (damaged("processes", to="p"), "damaged"),
    "no steps": (damaged("steps"), "damaged"),
    "steps are a number": (damaged("steps", to=1), "damaged"),
    "a time before the beginning": (damaged("steps", 0, "t", to=-1), "damaged"),
    "a time that is true": (damaged("steps", 0, "t", to=True), "damaged"),
    "a choice that nobody had": (damaged("steps", 0, "choice", "taken", to=1), "damaged"),
    "an effect that is a text": (damaged("steps", 0, "effects", 0, to="w"), "damaged"),
    "a cause that is not an earlier step": (damaged("steps", 1, "cause", 0, to=2), "damaged"),
    "a cause that is true": (damaged("steps", 1, "cause", 0, to=True), "damaged"),
    "a passing run that differs beyond its end": (damaged("passing", "differs_at", to=3), "damaged"),
    "a passing run that does not fit": (damaged("passing", "steps", 0, "patch", 0, "path", to="/m"), "no such place"),
    "an unshrunk run without steps": (damaged("original", to={}), "damaged"),
    "a step that is a text": (damaged("steps", 0, to="x"), "damaged"),
    "a step without a patch": (damaged("steps", 0, "patch"), "damaged"),
    "a patch that is a text": (damaged("steps", 0, "patch", to="x"), "a patch is a list"),
    "a patch of an unknown operation": (damaged("steps", 0, "patch", 0, "op", to="move"), "operation of a patch"),
    "a patch whose path is not a pointer": (damaged("steps", 0, "patch", 0, "path", to="n"), "not a JSON pointer"),
    "a patch that does not fit": (damaged("steps", 0, "patch", 0, "path", to="/m/1"), "leads to no such place"),
    "a patch that replaces the state": (damaged("steps", 0, "patch", 0, "path", to=""), "damaged"),
    "no first state": (damaged("initial"), "damaged"),
    "a first state that is a list": (damaged("initial", to=[1]), "the first state of a trace is an object"),
    "a first state with an unknown tag": (damaged("initial", "n", to={"$instant": "x"}), "tags no value"),
    "a number beyond 64 bits": (damaged("initial", "n", to=2**70), "does not fit into 64 bits"),
    "a lone surrogate": (damaged("steps", 0, "event", to="\ud800"), "lone surrogate"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_trace_is_misuse(damage: str) -> None:
    broken, said = DAMAGES[damage]
    with pytest.raises(Misuse, match=said):
        decoded(broken)


def test_the_trace_that_was_damaged_is_a_trace() -> None:
    assert json.loads(text_of(decoded(VALID)))["steps"][0] == VALID["steps"][0]  # type: ignore[index]


def test_an_older_trace_is_read() -> None:
    older = decoded(OLDER)
    assert (older.version, older.law, older.seed, older.movers) == ("1", "l", "7", (Mover("p"),))
    assert older.steps == (TraceStep("p", "w", "", (Replaced("/n", 2),)),)
    assert (older.breach, older.policy, older.laws, older.passing) == (Breach.SAFETY, PolicyName.RANDOM, (), None)


def extended(value: object) -> object:
    match value:
        case {"op": _}:
            return value
        case dict():
            return {
                name: each if name in {"initial", "properties"} else extended(each) for name, each in value.items()
            } | ({"of a later version": {"a": [1]}})
        case list():
            return list(map(extended, value))
        case _:
            return value


def test_what_a_later_version_adds_is_kept_out_of_the_way() -> None:
    assert decoded(extended(VALID)) == decoded(VALID)
    assert decoded(damaged("steps", 0, "kind", to="teleport")).steps[0].kind is StepKind.OTHER
    assert decoded(damaged("processes", 0, "kind", to="oracle")).movers == (Mover("p", Lane.PROCESS),)


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.just(2**80)
    | st.text(max_size=3)
    | st.sampled_from(["/n", "add", "$bytes"]),
    lambda items: (
        st.lists(items, max_size=2)
        | st.dictionaries(st.sampled_from(["op", "path", "value", "$float", "i"]), items, max_size=3)
    ),
    max_leaves=4,
)


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


@given(st.sampled_from(list(places(VALID))), st.just(...) | JUNK)
def test_whatever_stands_in_a_trace_it_is_a_trace_or_misuse(path: tuple[str | int, ...], to: object) -> None:
    try:
        trace = decoded(damaged(*path, to=to))
    except Misuse:
        return
    assert decoded(json.loads(text_of(trace))) == trace


# --- replaying ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [each if each in SAMPLE else pytest.param(each, marks=pytest.mark.long) for each in SPECIMENS]
)
def test_replaying_a_trace_reproduces_it(name: str) -> None:
    """Law TC2, also after a round trip through text."""
    trace = decoded(json.loads(text_of(trace_of(name))))
    assert replay(trace, shipped(name)) == Reproduced(len(trace.steps))


def kinds_in(names: Iterable[str]) -> set[str]:
    traces = [trace_of(name) for name in names]
    steps = {kind for trace in traces for step in trace.steps for kind in (f"step {step.kind}", f"fault {step.fault}")}
    return steps | {f"breach {trace.breach}" for trace in traces}


@pytest.mark.long  # it explores all specimens
def test_the_sample_has_traces_of_every_kind() -> None:
    """`make test` need not replay all; only a large specimen's handler gives up."""
    assert kinds_in(SPECIMENS) - kinds_in(SAMPLE) == {"fault gave_up"}


@pytest.mark.parametrize("budgets", [{}, {Fault.CRASH_BEFORE: 1}], ids=["all kinds alike", "one kind with a bound"])
def test_a_run_that_could_have_fewer_faults_than_its_scenario_is_replayed_as_one(budgets: dict[Fault, int]) -> None:
    """Law TC2: the remaining budget is part of the state."""
    scenario = attrs.evolve(shipped("partition.queue_survives"), budget=3, budgets=budgets)
    initials: set[Document] = set()
    for faults_max in (1, 2, 3):
        trace = explore(scenario.at_most(faults_max)).trace
        assert trace is not None
        initials.add(trace.initial)
        assert replay(decoded(json.loads(text_of(trace))), scenario) == Reproduced(len(trace.steps))
    assert len(initials) == 3


KINDS = (Fault.CRASH_BEFORE, Fault.DROPPED, Fault.LOST_REPLY, Fault.UNSENT, Fault.RESTART)


@given(
    budget=st.integers(0, 3),
    budgets=st.dictionaries(st.sampled_from(KINDS), st.integers(0, 3)),
    faults=st.none() | st.lists(st.sampled_from(KINDS), unique=True).map(tuple),
    faults_max=st.none() | st.integers(0, 3),
)
@example(budget=2, budgets={Fault.CRASH_BEFORE: 1}, faults=(Fault.DROPPED,), faults_max=None)
def test_a_trace_is_replayed_whatever_the_exploration_was_bounded_to(
    budget: int, budgets: dict[Fault, int], faults: tuple[Fault, ...] | None, faults_max: int | None
) -> None:
    """Law TC2: the printed command replays by the scenario alone."""

    async def tries() -> str:
        for _ in range(3):
            try:
                await insert_one("c", Document.of({"_id": "x"}))
            except Failure:
                continue
            return "done"
        return "given up"

    scenario = Scenario(
        name="tries",
        summary="",
        world=world_with({}),
        actors=(Process("p", factory(tries), Faults.of(*KINDS)),),
        budget=budget,
        budgets=budgets,
        eventually={"it returns": lambda state: state.status("p") == Returned("nothing")},
    )
    trace = explore(scenario, Exploration(faults=faults, faults_max=faults_max)).trace
    assert trace is not None
    assert replay(trace, scenario) == Reproduced(len(trace.steps))
    sampled = explore(scenario, Exploration(faults=faults, faults_max=faults_max, runs=1), seeding=Random).trace
    assert sampled is not None
    assert replay(sampled, scenario) == Reproduced(len(sampled.steps))


CHANGED: dict[str, tuple[Callable[[], Scenario], int, str]] = {
    "transition.version_not_raised": (transition, 1, "version := 2"),
    "transition.request_id_ignored": (transition, 3, "changes something else"),
    "transition.ambiguous_is_refused": (transition, 2, "reply is lost"),
    "transition.not_read_again": (transition, 1, "version = 1"),
    "transition.history_in_a_second_write": (transition, 1, "history"),
    "partition.commits_the_highest": (lambda: partition(records=2, rebalances=1, kinds=GIVES_UP), 3, "done [1]"),
    "partition.two_commits_in_flight": (lambda: partition(records=2, rebalances=1, kinds=GIVES_UP), 4, "committing 1"),
    "partition.revokes_without_drain": (lambda: partition(records=2, rebalances=1, kinds=GIVES_UP), 5, "draining"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_program_diverges_at_the_first_step_that_differs(name: str) -> None:
    make, step, said = CHANGED[name]
    trace = trace_of(name)
    diverged = replay(trace, make())
    assert isinstance(diverged, Diverged)
    assert diverged.step == step
    assert said in diverged.reason
    before = attrs.evolve(trace, steps=trace.steps[: step - 1])
    assert replay(before, make()) == Reproduced(step - 1)


def test_another_beginning_is_step_0() -> None:
    diverged = replay(trace_of("transition.version_not_raised"), shipped("array_push_lock"))
    assert isinstance(diverged, Diverged)
    assert (diverged.step, diverged.reason.partition(":")[0]) == (0, "the first state differs")


def test_a_step_that_cannot_be_taken_names_those_that_can() -> None:
    trace = trace_of("array_push_lock.lost_reply")
    impossible = attrs.evolve(trace.steps[1], event="does what nobody can")
    diverged = replay(attrs.evolve(trace, steps=(trace.steps[0], impossible)), shipped("array_push_lock.lost_reply"))
    assert isinstance(diverged, Diverged)
    assert (diverged.step, diverged.reason) == (2, "a cannot: does what nobody can")
    assert diverged.recorded == "a: does what nobody can"
    assert "b: read the clock -> 0 s@wall" in diverged.enabled
    assert f"a: {trace.steps[1].event}" in diverged.enabled


async def inserts() -> None:
    await insert_one("rows", Document.of({"_id": "x"}))


def sometimes_lost(effect: Effect[object], world: World, who: str) -> Outcomes:
    yield world, None
    yield from perform(effect, world, who)


def test_of_steps_that_read_alike_the_recorded_one_is_taken() -> None:
    """The patch decides between outcomes with the same text."""

    def make() -> Scenario:
        return Scenario(
            name="alike",
            summary="",
            world=world_with({"rows": ()}),
            actors=(Process("p", factory(inserts), meaning=sometimes_lost),),
            always={"nothing is there": lambda state: state.read(ids("rows")) == ()},
        )

    trace = explore(make()).trace
    assert trace is not None
    assert replay(trace, make()) == Reproduced(1)


async def notes_why() -> None:
    why = await Call("why")
    await Note("why", why)


def answers_what_reads_alike(effect: Effect[object], world: World, who: str) -> Outcomes:
    if isinstance(effect, Call):
        yield world, ImportError("no", name="a")
        yield world, ImportError("no", name="b")
    else:
        yield from perform(effect, world, who)


def test_of_steps_that_cannot_be_told_apart_each_is_followed() -> None:
    """They read alike and change the same; only one leads to the end."""
    scenario = Scenario(
        name="alike",
        summary="",
        world=world_with({}),
        actors=(Process("p", factory(notes_why), meaning=answers_what_reads_alike),),
        always={
            "it is a": lambda state: all(cast("ImportError", why).name == "a" for _, why in state.read(notes("p")))
        },
    )
    trace = explore(scenario).trace
    assert trace is not None
    assert replay(trace, scenario) == Reproduced(2)


def test_a_law_that_was_mended_is_not_said_to_be_broken() -> None:
    def make(law: str, *, holds: bool) -> Scenario:
        return Scenario(
            name="mended",
            summary="",
            world=world_with({"rows": ()}),
            actors=(Process("p", factory(inserts)),),
            always={law: lambda state: holds or state.read(ids("rows")) == ()},
        )

    trace = explore(make("nothing is there", holds=False)).trace
    assert trace is not None
    was = "breaks the law: nothing is there"
    kept = Diverged(1, "it keeps the law: nothing is there", (), was)
    assert replay(trace, make("nothing is there", holds=True)) == kept
    gone = Diverged(1, "there is no such law any more: nothing is there", (), was)
    assert replay(trace, make("nothing at all", holds=False)) == gone
    assert replay(attrs.evolve(trace, law="", breach=Breach.NONE), make("nothing at all", holds=False)) == Reproduced(1)


# --- contents of a step ---------------------------------------------------------------------------------------------------


def only(trace: Trace, numbers: frozenset[int]) -> list[tuple[str, str]]:
    return [(step.process, step.event) for number, step in enumerate(trace.steps, 1) if number in numbers]


def taken(decisions: list[tuple[str, str]], search: Search) -> list[tuple[str, str]]:
    states, done = {search.first}, []
    for who, what in decisions:
        could = (way for state in states for way in ways(search, state))
        states = {way.after for way in could if (way.stepper.name, event(way.step)) == (who, what)}
        if not states:
            break
        done.append((who, what))
    return done


@pytest.mark.parametrize("name", SAMPLE)
def test_what_a_step_depends_on_is_enough_for_it_to_happen(name: str) -> None:
    """Law TC3: the past of a process's last step is a run that ends with it."""
    trace = trace_of(name)
    assert all(cause < number for number, step in enumerate(trace.steps, 1) for cause in step.causes)
    last = {step.process: number for number, step in enumerate(trace.steps, 1)}
    for number in last.values():
        decisions = only(trace, past(trace.steps, number))
        assert attempt(shipped(name), partial(taken, decisions)) == decisions


def test_leaving_out_a_cause_leaves_out_what_a_step_needs() -> None:
    """Without the push of b its claim is not found."""
    trace = trace_of("array_push_lock.stall.2")
    number = 7  # b finds its claim behind a's
    without = frozenset(past(trace.steps, number)) - {2}
    decisions = only(trace, without)
    assert attempt(shipped(trace.scenario), partial(taken, decisions)) != decisions


@pytest.mark.parametrize("name", SAMPLE)
def test_the_nearest_passing_run_follows_the_failing_one_and_breaks_no_law(name: str) -> None:
    """Law TC4."""
    trace = trace_of(name)
    passing = trace.passing
    if passing is None:  # none exists, or it lies further away
        return
    at = passing.differs_at - 1
    assert [*map(decision, passing.steps[:at])] == [*map(decision, trace.steps[:at])]
    assert [*map(decision, passing.steps[at : at + 1])] != [*map(decision, trace.steps[at : at + 1])]
    assert Truth.BROKEN not in [truth for step in passing.steps for _, truth in step.truths]
    found = attempt(shipped(name), lambda search: at_rest(attrs.evolve(trace, steps=passing.steps), search))
    assert found == (Reproduced(len(passing.steps)), True)


NO_RUN_PASSES: Final = ("transition.version_not_raised", "recovery.only_what_is_owned")


@pytest.mark.parametrize("name", NO_RUN_PASSES)
def test_where_no_passing_run_is_found_there_is_none(name: str) -> None:
    assert trace_of(name).passing is None
    assert not attempt(shipped(name), some_run_passes)


def test_most_counterexamples_have_a_passing_run_beside_them() -> None:
    """Law TC4 would also hold without any."""
    assert sum(trace_of(name).passing is not None for name in SAMPLE) > 0.8 * len(SAMPLE)


def some_run_passes(search: Search) -> bool:
    seen, todo = {search.first}, [search.first]
    while todo:
        assert len(seen) < NEAREST_STATES_MAX, "small enough to be seen whole"
        before = todo.pop()
        could = ways(search, before)
        rests = not any(way.step.must for way in could)
        if rests and is_sound(search, before, before, is_at_rest=not search.space.is_cut_short(before)):
            return True
        for way in could:
            if way.after not in seen and is_sound(search, before, way.after, is_at_rest=False):
                seen.add(way.after)
                todo.append(way.after)
    return False


def at_rest(trace: Trace, search: Search) -> tuple[Replayed, bool]:
    run = followed(trace, search)
    return run.outcome, not any(way.step.must for way in ways(search, run.path[-1]))


@pytest.mark.parametrize("name", SAMPLE)
def test_a_trace_says_at_which_step_its_law_breaks(name: str) -> None:
    trace = trace_of(name)
    broken = [number for number, step in enumerate(trace.steps, 1) if (trace.law, Truth.BROKEN) in step.truths]
    assert broken == [len(trace.steps)]
    assert [law for law, _ in trace.steps[0].truths] == [law.name for law in trace.laws]
    for step in trace.steps:
        option = step.choice.enabled[step.choice.taken]
        assert (option.process, option.event, option.fault) == (step.process, step.event, step.fault)


def test_a_step_says_what_it_did_and_which_line_asked_for_it() -> None:
    trace = trace_of("array_push_lock.late")
    late = next(step for step in trace.steps if step.fault)
    assert (late.kind, late.effects[0].on) == (StepKind.WRITE, ("documents", "invocations", "x"))
    assert late.effects[0].reply == "no reply: the request is still under way"
    file, function = late.src.split(" ")
    assert (file.rpartition(":")[0], function) == (
        "tidegate/invocations/record/array_push_lock.py",
        "ClaimedRecord._insist",
    )
    arrives = next(step for step in trace.steps if step.process == "network")
    assert (arrives.kind, arrives.effects[0].on) == (StepKind.DELIVER, ("documents", "invocations", "x"))
    assert trace.steps.index(late) + 1 in arrives.causes
    passed = [step.at for step in trace.steps if step.kind is StepKind.TIME]
    assert passed == [200_000 * number for number in range(1, len(passed) + 1)]
    assert passed
    assert {mover.name: mover.kind for mover in trace.movers} == {
        "a": Lane.PROCESS,
        "b": Lane.PROCESS,
        "network": Lane.NETWORK,
        "clock": Lane.CLOCK,
    }


def test_a_reducer_names_its_commands_and_where_it_was_decided() -> None:
    trace = trace_of("partition.two_commits_in_flight")
    assigned = next(step for step in trace.steps if step.event.startswith("receives assigned"))
    assert (assigned.kind, assigned.effects[0].what[:8]) == (StepKind.DELIVER, "fetch t-")
    assert assigned.src.startswith("tidegate/consumer/partition/partition.py:")
    assert {StepKind.FETCH, StepKind.CALL} <= {step.kind for step in trace.steps}


def test_whoever_is_dead_commands_nothing() -> None:
    command = Note("a", 1)
    assert commands_of(Machine(0, (command,))) == (command,)
    assert commands_of(Crashed()) == ()


def test_traces_of_one_scenario_have_one_fingerprint_and_others_another() -> None:
    names = ("array_push_lock.late", "array_push_lock.lost_reply", "transition.version_not_raised")
    assert len({trace_of(name).fingerprint for name in names}) == 3
    again = explore(shipped(names[1])).trace
    assert again is not None
    assert again.fingerprint == trace_of(names[1]).fingerprint


# --- beyond a replay ----------------------------------------------------------------------------------------------------


def beyond(trace: Trace, scenario: Scenario) -> ExploredOn:
    return replaying(trace, scenario, lambda search: explored_on(trace, search, 10_000, go_on))


def test_a_replay_goes_on_from_its_last_step() -> None:
    whole = trace_of("array_push_lock.lost_reply")
    found = beyond(attrs.evolve(whole, steps=whole.steps[:1], law=""), shipped(whole.scenario))
    assert (found.outcome, found.steps) == (Reproduced(1), 1)
    assert found.trace is not None
    assert (found.trace.steps[0], found.trace.law, found.trace.policy) == (
        whole.steps[0],
        whole.law,
        PolicyName.REPLAYED,
    )
    assert replay(found.trace, shipped(whole.scenario)) == Reproduced(len(found.trace.steps))


def test_a_replay_that_diverged_goes_on_from_the_step_before() -> None:
    found = beyond(trace_of("transition.version_not_raised"), shipped("transition"))
    assert isinstance(found.outcome, Diverged)
    assert (found.steps, found.trace, found.found.stopped) == (found.outcome.step - 1, None, "10,000 states were seen")


# --- other actors, other times ------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Breaks:
    name: str = "breaks"
    place: None = None
    blind: bool = False

    def steps(self, world: World) -> Iterator[ActorStep]:
        if not world.read(BROKEN):
            yield ActorStep(Label("breaks"), world.write(BROKEN, 1), must=False)


BROKEN: Final = Cell(("broken",), 0)


def test_a_run_that_could_have_rested_is_its_own_passing_run() -> None:
    async def says() -> None:
        await Note("said", 1)

    def takes_for_granted(state: State) -> bool:
        assert not state.read(BROKEN) or (NOTED, 1) not in state.read(notes("p")), "the law before it holds"
        return False

    scenario = Scenario(
        name="rests",
        summary="",
        world=Plain(),
        actors=(Process("p", factory(says)), Breaks()),
        always={"nothing breaks": lambda state: not state.read(BROKEN) or (NOTED, 1) not in state.read(notes("p"))},
        sometimes={"it is not judged where it would fail": takes_for_granted},
    )
    trace = explore(scenario).trace
    assert trace is not None
    assert [step.event for step in trace.steps] == ["note said: 1", "breaks"]
    assert trace.passing == Passing(2, tuple(attrs.evolve(step, choice=Choice()) for step in trace.steps[:1]))
    assert trace.movers[1] == Mover("breaks", Lane.PROCESS)
    assert (trace.steps[1].kind, trace.steps[1].causes) == (StepKind.OTHER, ())
    assert dict(trace.steps[1].truths) == {"nothing breaks": Truth.BROKEN}
    assert nearest_passing(attrs.evolve(trace, initial=Document.of({"a": 1})), scenario) is None


NOTED: Final = "said"


def test_relative_time_passes_by_quanta() -> None:
    async def waits() -> None:
        await Sleep(2_000)

    scenario = Scenario(
        name="waits",
        summary="",
        world=Plain(),
        actors=(Process("p", factory(waits)),),
        clock=Clock(quantum=1_000, horizon=5_000),
        always={"it never ends": lambda state: not isinstance(state.status("p"), Returned)},
    )
    trace = explore(scenario).trace
    assert trace is not None
    assert [(step.kind, step.at) for step in trace.steps] == [
        (StepKind.TIME, 1_000),
        (StepKind.TIME, 2_000),
        (StepKind.SLEEP, 2_000),
    ]
    assert trace.steps[-1].causes == (2,)


def test_a_counterexample_with_a_value_that_does_not_equal_itself_is_told() -> None:
    async def notes_nan() -> None:
        await Note("k", float("nan"))

    crashes = Process("p", factory(notes_nan), Faults.of(Fault.CRASH_BEFORE))
    law = {"it lives": lambda state: state.status("p") != Crashed()}
    trace = explore(Scenario("nan", "", world_with({}), (crashes,), always=law)).trace
    assert trace is not None
    assert [step.event for step in trace.steps] == ["crashes before it could note k: nan"]


def test_a_law_that_raises_is_an_error_unless_another_one_is_broken() -> None:
    async def says() -> None:
        await Note("said", 1)

    def raises(state: State) -> bool:
        raise ZeroDivisionError(str(state.read(notes("p"))))

    scenario = Scenario(
        name="bad", summary="", world=Plain(), actors=(Process("p", factory(says)),), sometimes={"x": raises}
    )
    with pytest.raises(ZeroDivisionError):
        attempt(scenario, lambda search: steps_of(search, (search.first, ways(search, search.first)[0].after)))


def test_a_state_is_printed_line_by_line() -> None:
    state = Document.of({"a": Document.of({"b/c": 1, "~": ()}), "empty": Document(), "x\n": "y\n"})
    assert state_lines(state) == ["/a/b~1c = 1", "/a/~0 = []", "/empty = {}", '/x\\u000a = "y\\u000a"']


def test_a_choice_that_nobody_had_is_misuse() -> None:
    with pytest.raises(Misuse, match="choice 1 of 1"):
        Choice((Option("p", "e"),), 1)


def test_a_decision_without_code_has_no_line() -> None:
    assert decided_at(len) == ""
    assert decided_at(Breaks().steps).endswith(" Breaks.steps")


# --- printing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["array_push_lock.lost_reply", "array_push_lock.stall.2"])
def test_the_story_of_a_counterexample_reads_as_it_always_did(name: str) -> None:
    """Golden transcripts; set TIDEGATE_REWRITE_GOLDEN to rewrite."""
    golden, story = GOLDEN / f"{name}.txt", render(trace_of(name))
    if os.environ.get("TIDEGATE_REWRITE_GOLDEN"):
        golden.write_text(story, encoding="utf-8")
    assert story == golden.read_text(encoding="utf-8")


def test_the_story_of_a_run_that_breaks_nothing_says_so() -> None:
    trace = attrs.evolve(trace_of("array_push_lock.lost_reply"), law="", seed="7.1", steps=())
    first, second = render(trace).splitlines()
    assert first == "array_push_lock.lost_reply: no law is broken"
    assert second.startswith("0 steps, absolute time")
    assert second.endswith(", seed 7.1")


async def raises_at_once() -> None:
    raise LookupError("what is not there")


async def raises_then() -> None:
    await insert_one("rows", Document.of({"_id": "x"}))
    looks_up()


def looks_up() -> None:
    raise LookupError("what is not there")


def test_the_story_of_an_error_says_what_was_raised_and_where() -> None:
    def story(program: Callable[[], Program[None]]) -> list[str]:
        actors = (Process("p", factory(program)),)
        trace = explore(Scenario(name="raises", summary="", world=world_with({"rows": ()}), actors=actors)).trace
        assert trace is not None
        return render(trace).splitlines()

    def line_of(function: Callable[[], object], below: int) -> str:
        return f"test_trace.py:{function.__code__.co_firstlineno + below} {function.__name__}"

    first = story(raises_at_once)
    error = "raised LookupError: what is not there at tests/properties/sim/"
    assert f'      /processes/p = "{error}{line_of(raises_at_once, 1)}"' in first
    assert first[-1].endswith("<- no program raises an error: broken here")
    last = story(raises_then)
    calls = f"{line_of(looks_up, 1)}, from tests/properties/sim/{line_of(raises_then, 2)}"
    assert f'/processes/p := "{error}{calls}"' in last[-2]
    assert last[-1].endswith(line_of(raises_then, 1))


def test_changes_read_as_sentences() -> None:
    changes = (Added("/a", 1), Removed("/b"), Replaced("/c", "x"))
    assert [sentence(change) for change in changes] == ["+ /a: 1", "- /b", '/c := "x"']


def test_the_states_of_a_trace_are_its_patches_applied() -> None:
    states = list(trace_of("array_push_lock.lost_reply").states())
    assert len(states) == 4
    claims = Field[object]("documents")
    assert "transition_lock" in str(states[-1].held(claims))
    assert "0.000000" in str(states[-1].held(claims))


N = Field[object]("n")
HOSTILE: dict[str, object] = {
    "a number beyond 64 bits": 2**70,
    "a lone surrogate": "a\ud800",
    "a NUL": "a\0b",
    "bytes": b"\0",
    "NaN": float("nan"),
    "a class": int,
    "a document": Document.of({"a": {"b": 1}}),
    "a frozen value": TraceStep("p", "w", "", ()),
    "a name of a closed set": Lane.CLOCK,
    "a sentence": Returned((1, "a")),
    "deep": ((((((1,),),),),),),
}  # fmt: skip


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = (value,)
    return value


@pytest.mark.parametrize("what", [*HOSTILE, "deeper"])
def test_a_run_with_hostile_values_can_be_printed_and_replayed(what: str) -> None:
    """Notes and results may be any values; a finding must not be lost over them."""
    value = HOSTILE[what] if what in HOSTILE else deep(3 * PICTURED_MAX)

    async def says() -> object:
        await Note("said", value)
        return value

    def make() -> Scenario:
        return Scenario(
            name="hostile",
            summary="",
            world=Plain(),
            actors=(Process("p", factory(says)),),
            always={"it never ends": lambda state: not isinstance(state.status("p"), Returned)},
        )

    trace = explore(make()).trace
    assert trace is not None
    assert replay(decoded(json.loads(text_of(trace))), make()) == Reproduced(len(trace.steps))
    assert all(line.isprintable() for line in render(trace).splitlines())


@pytest.mark.parametrize("name", ["p\0", "p\n", "p/~", ""])
def test_a_run_with_hostile_names_can_be_printed_and_replayed(name: str) -> None:
    async def says() -> object:
        await Note(name, 1)
        await insert_one("rows", Document.of({"_id": name}))
        return None

    def make() -> Scenario:
        return Scenario(
            name="hostile",
            summary="",
            world=world_with({"rows": ()}),
            actors=(Process(name, factory(says)),),
            always={"it never ends": lambda state: not isinstance(state.status(name), Returned)},
        )

    trace = explore(make()).trace
    assert trace is not None
    assert replay(decoded(json.loads(text_of(trace))), make()) == Reproduced(len(trace.steps))


@attrs.frozen(eq=False)
class Nested:
    name: str = "nested"
    place: None = None
    blind: bool = False

    def steps(self, world: World) -> Iterator[ActorStep]:
        for cell in (Cell(("a",), 0), Cell(("a", "b"), 0), Cell(("a", "b", "c"), 0)):
            yield ActorStep(Label("writes"), world.write(cell, 1))


def test_cells_whose_names_begin_alike_are_told_apart() -> None:
    """Also documents with the ids "int" and 1."""

    def make() -> Scenario:
        written = (Cell(("a",), 0), Cell(("a", "b"), 0), Cell(("a", "b", "c"), 0))
        return Scenario(
            name="nested",
            summary="",
            world=world_with({"rows": (Document.of({"_id": "int"}), Document.of({"_id": 1}))}),
            actors=(Nested(),),
            always={"not all": lambda state: [state.read(cell) for cell in written] != [1, 1, 1]},
        )

    trace = explore(make()).trace
    assert trace is not None
    *_, last = trace.states()
    assert last.held(Field[object]("a")) == Document.of({"": 1, "b": {"": 1, "c": 1}})
    assert replay(trace, make()) == Reproduced(3)


def test_values_are_pictured_by_field_unless_they_have_a_text_of_their_own() -> None:
    assert pictured(Mover("p", Lane.CLOCK)) == Document.of({"name": "p", "kind": "clock"})
    assert pictured((Returned(1), None, 2**63)) == ("finished: 1", None, str(2**63))
    assert pictured(int) == str(int)
