"""A trace is a value: it is encoded, decoded, told and replayed exactly, and a divergence is named where it begins."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.shipped import SPECIMENS, report_on

from tidegate.documents import Document, Field
from tidegate.effects import Effect, Note
from tidegate.errors import Misuse
from tidegate.operations import insert_one
from tidegate.patches import Added, Patch, Removed, Replaced
from tidegate.scenarios.catalogue import shipped
from tidegate.scenarios.partition import GIVES_UP, partition
from tidegate.scenarios.transition import transition
from tidegate.sim.actors import Process, born
from tidegate.sim.behaviour import Returned
from tidegate.sim.report import explore
from tidegate.sim.scenario import Label, Scenario, Step
from tidegate.sim.trace import (
    PICTURED_MAX,
    Diverged,
    Reproduced,
    Trace,
    TraceStep,
    decoded,
    encoded,
    pictured,
    replay,
    sentence,
    story,
)
from tidegate.sim.world import Cell, Outcomes, Plain, World, ids, perform, seeded

pytestmark = pytest.mark.xdist_group("scenarios")  # explored once, in one process

GOLDEN = Path(__file__).parent / "golden"


def trace_of(name: str) -> Trace:
    trace = report_on(name).trace
    assert trace is not None
    return trace


def text_of(trace: Trace) -> str:
    return json.dumps(encoded(trace))


# --- encoding -----------------------------------------------------------------------------------------------------------

TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ['"</script>', "a\nb", "\x1b[31m", "\u202e", "/a~1b~0", "$where", "", " ", "a" * 300, "\\u0000", "\0"]
    ),
).filter(lambda text: text.isprintable() or "\ud800" not in text)


@st.composite
def real_traces(draw: st.DrawFn) -> Trace:
    """A real one, cut anywhere."""
    whole = trace_of(draw(st.sampled_from(SPECIMENS)))
    return attrs.evolve(
        whole, steps=whole.steps[: draw(st.integers(0, len(whole.steps)))], law=draw(st.sampled_from([whole.law, ""]))
    )


@st.composite
def hostile_traces(draw: st.DrawFn) -> Trace:
    """Any texts anywhere."""
    initial = Document.of({"a": draw(TEXTS), "b": (1, True, 1.5, b"\0", None)})
    patches: list[Patch] = [
        (),
        (Replaced("/a", draw(TEXTS)),),
        (Removed("/b/0"),),
        (Added("/b/0", draw(TEXTS)), Replaced("/a", 1)),
    ]
    return Trace(
        scenario=draw(TEXTS),
        version=draw(TEXTS),
        law=draw(TEXTS),
        time=draw(TEXTS),
        seed=draw(st.none() | TEXTS),
        processes=tuple(draw(st.lists(TEXTS, max_size=3))),
        initial=initial,
        steps=tuple(
            TraceStep(draw(TEXTS), draw(TEXTS), draw(TEXTS), draw(st.sampled_from(patches)))
            for _ in range(draw(st.integers(0, 3)))
        ),
    )


@settings(max_examples=60)
@given(real_traces())
def test_decoding_an_encoded_trace_gives_the_same_trace(trace: Trace) -> None:
    """Law TC1, for every counterexample of the catalogue, cut anywhere."""
    assert decoded(json.loads(text_of(trace))) == trace


@given(hostile_traces())
def test_decoding_an_encoded_hostile_trace_gives_the_same_trace(trace: Trace) -> None:
    """Law TC1, whatever stands in names, laws and values: quotes, markup, control and direction characters."""
    assert decoded(json.loads(text_of(trace))) == trace


@given(hostile_traces())
def test_nothing_in_a_trace_can_forge_a_line_of_its_story(trace: Trace) -> None:
    """What is told stands on the line where it belongs, and is printable."""
    lines = story(trace).splitlines()
    patched = sum(any(True for _ in step.patch) for step in trace.steps)
    assert len(lines) == 2 + len(trace.steps) + patched + bool(trace.law)
    assert all(line.isprintable() for line in lines)


VALID = {
    "schema": "tidegate/trace@1",
    "meta": {"scenario": "s", "version": "1", "law": "l", "time": "t", "seed": None},
    "processes": ["p"],
    "initial": {"n": 1},
    "steps": [
        {"i": 1, "process": "p", "what": "w", "fault": "", "patch": [{"op": "replace", "path": "/n", "value": 2}]}
    ],
}


def damaged(*path: str | int, to: object = ...) -> object:
    """The valid trace with one thing replaced, or left out."""
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
    "no object": ([], "this is no trace"),
    "a text": ("tidegate/trace@1", "this is no trace"),
    "nothing": (None, "this is no trace"),
    "no schema": (damaged("schema"), "this is no trace"),
    "another schema": (damaged("schema", to="other/trace@1"), "this is no trace"),
    "a schema that is no text": (damaged("schema", to=1), "this is no trace"),
    "another version": (damaged("schema", to="tidegate/trace@2"), "a trace of version 'tidegate/trace@2'"),
    "no meta": (damaged("meta"), "damaged"),
    "meta is a list": (damaged("meta", to=[]), "damaged"),
    "no law": (damaged("meta", "law"), "damaged"),
    "a law that is a number": (damaged("meta", "law", to=1), "1 where a text belongs"),
    "a seed that is a number": (damaged("meta", "seed", to=1), "1 where a text belongs"),
    "no processes": (damaged("processes"), "damaged"),
    "a process that is null": (damaged("processes", 0, to=None), "None where a text belongs"),
    "no steps": (damaged("steps"), "damaged"),
    "steps are a number": (damaged("steps", to=1), "damaged"),
    "a step that is a text": (damaged("steps", 0, to="x"), "damaged"),
    "a step without a patch": (damaged("steps", 0, "patch"), "damaged"),
    "a patch that is a text": (damaged("steps", 0, "patch", to="x"), "a patch is a list"),
    "a patch of an unknown operation": (damaged("steps", 0, "patch", 0, "op", to="move"), "no operation of a patch"),
    "a patch whose path is no pointer": (damaged("steps", 0, "patch", 0, "path", to="n"), "no JSON pointer"),
    "a patch that does not fit": (damaged("steps", 0, "patch", 0, "path", to="/m/1"), "leads to no such place"),
    "a patch that replaces the state": (damaged("steps", 0, "patch", 0, "path", to=""), "damaged"),
    "no first state": (damaged("initial"), "damaged"),
    "a first state that is a list": (damaged("initial", to=[1]), "the first state of a trace is an object"),
    "a first state with an unknown tag": (damaged("initial", "n", to={"$instant": "x"}), "tags no value"),
    "a number beyond 64 bits": (damaged("initial", "n", to=2**70), "does not fit into 64 bits"),
    "a lone surrogate": (damaged("steps", 0, "what", to="\ud800"), "lone surrogate"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_trace_is_misuse(damage: str) -> None:
    """Never anything else, and never a trace; the message says what is wrong."""
    broken, said = DAMAGES[damage]
    with pytest.raises(Misuse, match=said):
        decoded(broken)


def test_the_trace_that_was_damaged_is_a_trace() -> None:
    """Undamaged."""
    assert decoded(VALID).steps == (TraceStep("p", "w", "", (Replaced("/n", 2),)),)


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
    """No other error, wherever the damage is."""
    try:
        trace = decoded(damaged(*path, to=to))
    except Misuse:
        return
    assert decoded(json.loads(text_of(trace))) == trace


# --- replaying ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECIMENS)
def test_replaying_a_trace_reproduces_it(name: str) -> None:
    """Law TC2, for every counterexample of the catalogue, also after it has been text in between."""
    trace = decoded(json.loads(text_of(trace_of(name))))
    assert replay(trace, shipped(name)) == Reproduced(len(trace.steps))


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
    """The trace of a specimen in the right program: all steps before are as recorded, and that one says what differs."""
    make, step, said = CHANGED[name]
    trace = trace_of(name)
    diverged = replay(trace, make())
    assert isinstance(diverged, Diverged)
    assert diverged.step == step
    assert said in diverged.reason
    before = attrs.evolve(trace, steps=trace.steps[: step - 1])
    assert replay(before, make()) == Reproduced(step - 1)


def test_another_beginning_is_step_0() -> None:
    """Before anything happens."""
    diverged = replay(trace_of("transition.version_not_raised"), shipped("array_push_lock"))
    assert isinstance(diverged, Diverged)
    assert (diverged.step, diverged.reason.partition(":")[0]) == (0, "the first state differs")


def test_a_step_that_cannot_be_taken_names_those_that_can() -> None:
    """As `process: what`."""
    trace = trace_of("array_push_lock.lost_reply")
    impossible = attrs.evolve(trace.steps[1], what="does what nobody can")
    diverged = replay(attrs.evolve(trace, steps=(trace.steps[0], impossible)), shipped("array_push_lock.lost_reply"))
    assert isinstance(diverged, Diverged)
    assert (diverged.step, diverged.reason) == (2, "a cannot: does what nobody can")
    assert "b: read the clock -> 0 s@wall" in diverged.enabled
    assert f"a: {trace.steps[1].what}" in diverged.enabled


async def inserts() -> None:
    await insert_one("rows", Document.of({"_id": "x"}))


def sometimes_lost(effect: Effect[object], world: World, who: str) -> Outcomes:
    """Two outcomes that sound the same."""
    yield world, None
    yield from perform(effect, world, who)


def test_of_steps_that_read_alike_the_recorded_one_is_taken() -> None:
    """What is decided is told in words, so what it changed decides between outcomes that sound the same."""

    def make() -> Scenario:
        return Scenario(
            name="alike",
            summary="",
            world=seeded({"rows": ()}),
            actors=(Process("p", born(inserts), meaning=sometimes_lost),),
            always={"nothing is there": lambda state: state.read(ids("rows")) == ()},
        )

    trace = explore(make()).trace
    assert trace is not None
    assert replay(trace, make()) == Reproduced(1)


# --- telling ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["array_push_lock.lost_reply", "array_push_lock.stall.2"])
def test_the_story_of_a_counterexample_reads_as_it_always_did(name: str) -> None:
    """Golden transcripts. To write them anew, set TIDEGATE_REWRITE_GOLDEN."""
    golden, told = GOLDEN / f"{name}.txt", story(trace_of(name))
    if os.environ.get("TIDEGATE_REWRITE_GOLDEN"):
        golden.write_text(told, encoding="utf-8")
    assert told == golden.read_text(encoding="utf-8")


def test_the_story_of_a_run_that_breaks_nothing_says_so() -> None:
    """And of which seed it is."""
    trace = attrs.evolve(trace_of("array_push_lock.lost_reply"), law="", seed="7.1", steps=())
    first, second = story(trace).splitlines()
    assert first == "array_push_lock.lost_reply: no law is broken"
    assert second.startswith("0 steps, absolute time")
    assert second.endswith(", seed 7.1")


def test_changes_read_as_sentences() -> None:
    """Added, removed, replaced."""
    changes = (Added("/a", 1), Removed("/b"), Replaced("/c", "x"))
    assert [sentence(change) for change in changes] == ["+ /a: 1", "- /b", '/c := "x"']


def test_the_states_of_a_trace_are_its_patches_applied() -> None:
    """The first in full, then one a step; the last one breaks the law."""
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
    "a sentence": Returned((1, "a")),
    "deep": ((((((1,),),),),),),
}  # fmt: skip


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = (value,)
    return value


@pytest.mark.parametrize("what", [*HOSTILE, "deeper"])
def test_a_run_with_hostile_values_can_be_told_and_replayed(what: str) -> None:
    """Notes and results are any values, not only those that documents hold; a finding must not be lost over them."""
    value = HOSTILE[what] if what in HOSTILE else deep(3 * PICTURED_MAX)

    async def says() -> object:
        await Note("said", value)
        return value

    def make() -> Scenario:
        return Scenario(
            name="hostile",
            summary="",
            world=Plain(),
            actors=(Process("p", born(says)),),
            always={"it never ends": lambda state: not isinstance(state.standing("p"), Returned)},
        )

    trace = explore(make()).trace
    assert trace is not None
    assert replay(decoded(json.loads(text_of(trace))), make()) == Reproduced(len(trace.steps))
    assert all(line.isprintable() for line in story(trace).splitlines())


@pytest.mark.parametrize("name", ["p\0", "p\n", "p/~", ""])
def test_a_run_with_hostile_names_can_be_told_and_replayed(name: str) -> None:
    """Of processes, notes and documents."""

    async def says() -> object:
        await Note(name, 1)
        await insert_one("rows", Document.of({"_id": name}))
        return None

    def make() -> Scenario:
        return Scenario(
            name="hostile",
            summary="",
            world=seeded({"rows": ()}),
            actors=(Process(name, born(says)),),
            always={"it never ends": lambda state: not isinstance(state.standing(name), Returned)},
        )

    trace = explore(make()).trace
    assert trace is not None
    assert replay(decoded(json.loads(text_of(trace))), make()) == Reproduced(len(trace.steps))


@attrs.frozen(eq=False)
class Nested:
    """Writes a cell whose name begins like the name of another one."""

    name: str = "nested"
    place: None = None
    blind: bool = False

    def steps(self, world: World) -> Iterator[Step]:
        for cell in (Cell(("a",), 0), Cell(("a", "b"), 0), Cell(("a", "b", "c"), 0)):
            yield Step(Label("writes"), world.write(cell, 1))


def test_cells_whose_names_begin_alike_are_told_apart() -> None:
    """Also documents with the ids "int" and 1, whose cells are so named."""

    def make() -> Scenario:
        written = (Cell(("a",), 0), Cell(("a", "b"), 0), Cell(("a", "b", "c"), 0))
        return Scenario(
            name="nested",
            summary="",
            world=seeded({"rows": (Document.of({"_id": "int"}), Document.of({"_id": 1}))}),
            actors=(Nested(),),
            always={"not all": lambda state: [state.read(cell) for cell in written] != [1, 1, 1]},
        )

    trace = explore(make()).trace
    assert trace is not None
    *_, last = trace.states()
    assert last.held(Field[object]("a")) == Document.of({"": 1, "b": {"": 1, "c": 1}})
    assert replay(trace, make()) == Reproduced(3)


def test_values_are_pictured_by_field_unless_they_have_a_text_of_their_own() -> None:
    """What a reader sees of a state."""
    assert pictured(TraceStep("p", "w", "", ())) == Document.of({"process": "p", "what": "w", "fault": "", "patch": ()})
    assert pictured((Returned(1), None, 2**63)) == ("finished: 1", None, str(2**63))
    assert pictured(int) == str(int)
