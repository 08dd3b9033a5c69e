"""A recorded run is executed again: the same program reproduces it, another one is caught."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate import strategies
from tidegate.consumer import fanout
from tidegate.consumer.flow import drain
from tidegate.consumer.protocol import commands
from tidegate.consumer.protocol.commands import Assigned, Commit, Event, Fetched, Interrupt, Release, Revoked, Work
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.model import records
from tidegate.model.documents import ID, Document, Eq, Field, Put, exactly
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
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, WALL, Instant
from tidegate.model.operations import find_one, find_one_and_update
from tidegate.model.records import TopicPartition
from tidegate.sim.program import recording
from tidegate.sim.program.automaton import Asking, resume
from tidegate.sim.program.recording import NOTHING_MORE, Other, Recording, Same, executed, read, stepped
from tidegate.sim.program.tagged import FieldPath, matches, named_classes, nothing_hidden, tagged, untagged

# --- values -------------------------------------------------------------------------------------------------------------


class Colour(Enum):
    RED = 1
    BLUE = 2


@attrs.frozen
class Pair:
    left: object
    _right: object


@dataclass(frozen=True)
class Sum:
    parts: object
    count: int = field(default=0, init=False)


class Place(NamedTuple):
    x: object
    y: object


class Code(str):
    __slots__ = ()


MINE: Final = named_classes([Colour, Pair, Sum, Place, *vars(commands).values(), *vars(drain).values()])
PLAIN: Final = strategies.values() | st.integers(-(2**70), 2**70) | st.decimals()
FAILURES: Final = st.builds(
    lambda kind, reason: kind(reason),
    st.sampled_from([Refused, NotApplied, Ambiguous, NotDurable]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
ANY: Final = st.recursive(
    PLAIN | FAILURES | st.sampled_from(Colour),
    lambda items: (
        st.lists(items, max_size=3).map(tuple)
        | st.builds(Pair, items, items)
        | st.builds(Sum, items)
        | st.builds(Place, items, items)
        | st.frozensets(st.integers(0, 3) | st.text("ab", max_size=1), max_size=2)
    ),
    max_leaves=6,
)


def through_text(value: object) -> Any:
    return json.loads(json.dumps(tagged(value), allow_nan=False))


@given(ANY)
@example(Document.of({"$value": ("a.b", Document.of({}))}))
@example(Document.of({"$hidden": ("text", "x")}))
@example(Document.of({"$bytes": "00"}))
@example(Commit(TopicPartition("t", 0), 1, 5, "m"))
def test_a_value_whose_classes_are_known_is_read_back(value: object) -> None:
    """Law TV1."""
    assert exactly(untagged(through_text(value), MINE)) == exactly(value)


@given(ANY, ANY)
def test_a_value_matches_what_was_written_of_it_and_no_other(value: object, other: object) -> None:
    """Law TV3."""
    assert matches(through_text(value), tagged(value))
    assert matches(through_text(value), tagged(other)) == (exactly(value) == exactly(other))


@pytest.mark.parametrize(("one", "other"), [(Code("a"), "a"), (Place(1, 2), (1, 2))])
def test_a_value_of_a_kind_of_its_own_is_not_taken_for_its_base(one: object, other: object) -> None:
    """Law TV3."""
    assert matches(through_text(one), tagged(one))
    assert not matches(through_text(one), tagged(other))
    assert not matches(through_text(other), tagged(one))


def test_offsets_in_a_row_and_keys_are_written_in_short() -> None:
    """Only arithmetic rows of numbers are abbreviated."""
    assert tagged(tuple(range(40, 665))) == {"$run": [40, 665]}
    assert tagged((b"k", None)) == {"$byte_strings": ["6b", None]}
    assert tagged((4, 5, 6)) == [4, 5, 6]
    assert tagged((1, 2, 4, 4)) == [1, 2, 4, 4]
    assert tagged((True, 2, 3, 4)) == [True, 2, 3, 4]


@given(st.integers(0, 9), st.integers(4, 9), st.data())
def test_what_is_hidden_in_a_row_is_hidden_by_itself(start: int, count: int, data: st.DataObject) -> None:
    """Laws TV2 and TV3: the hiding function sees each number."""
    row = tuple(range(start, start + count))
    keys = tuple(str(each).encode() for each in row)
    secret = data.draw(st.sampled_from(row))

    def hides(_: FieldPath, value: object) -> str | None:
        hidden = {secret, str(secret).encode()}
        return "x" if (not hidden.isdisjoint(value) if isinstance(value, tuple) else value in hidden) else None

    for items, kind in ((row, "text"), (keys, "bytes")):
        written = json.loads(json.dumps(tagged(items, hides)))
        assert written == [
            {"$hidden": [kind, "x"]} if each == secret else tagged(at) for each, at in zip(row, items, strict=True)
        ]
        assert matches(written, tagged(items))
        assert not matches(written, tagged((*items[:-1], items[0]))) or secret == row[-1]
        assert not matches(written, tagged((*items, items[0])))


CANARY: Final = "c4nary"


def hides_canary(way: FieldPath, value: object) -> str | None:  # noqa: ARG001  known by what it says
    return "x" if CANARY in str(value) else None


SECRET: Final = st.text(max_size=2).map(lambda text: text + CANARY)


@given(ANY, SECRET | SECRET.map(str.encode) | st.builds(Pair, SECRET, PLAIN), ANY)
def test_what_is_hidden_is_not_written_and_matches_anything(value: object, secret: object, other: object) -> None:
    """Laws TV2 and TV3: a label replaces it; the rest is compared as usual."""
    written = json.dumps(tagged(Pair(value, secret), hides_canary))
    assert CANARY not in written
    assert CANARY.encode().hex() not in written
    assert matches(json.loads(written), tagged(Pair(value, secret)))
    if exactly(value) != exactly(other) and CANARY not in repr((value, other)):
        assert not matches(json.loads(written), tagged(Pair(other, secret)))


HOSTILE: Final[dict[str, tuple[object, str]]] = {
    "a class that nobody gave": ({"$value": ["os.system", {}]}, "not known here"),
    "a class of the standard library": ({"$value": ["pathlib.Path", {"a": 1}]}, "not known here"),
    "fields that it has not": ({"$value": [f"{__name__}.Pair", {"no": 1}]}, "cannot be made"),
    "fields that do not fit": (
        {"$value": ["model.TopicPartition", {"topic": "", "partition": -1}]},
        "the name of a topic must be",
    ),
    "an unknown name": ({"$name": [f"{__name__}.Colour", "mro"]}, "is not a Colour"),
    "a name of a class of values": ({"$name": [f"{__name__}.Pair", "left"]}, "is not a Pair"),
    "an unknown tag": ({"$eval": "1"}, "tags no value"),
    "an unknown failure": ({"$failure": ["SystemExit", "x"]}, "tags no value"),
    "a failure without a reason": ({"$failure": ["Refused", 1]}, "is not text"),
    "what is not a value": ({"$other": "builtins.list"}, "is not a value"),
    "a lone surrogate": ("\ud800", "lone surrogate"),
    "a run without end": ({"$run": [0, 2**62]}, "a run of"),
    "a run backwards": ({"$run": [4, 0]}, "a run of"),
    "a run of texts": ({"$run": ["a", "b"]}, "tags no value"),
    "a decimal number that is none": ({"$decimal": "one"}, "is not a number"),
    "byte strings that are none": ({"$byte_strings": ["no"]}, "not hexadecimal|tags no value"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_value_makes_nothing(what: str) -> None:
    plain, said = HOSTILE[what]
    with pytest.raises(Misuse, match=said):
        untagged(plain, MINE)


def test_what_is_nested_too_deep_is_misuse() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    with pytest.raises(Misuse, match="nested deeper"):
        untagged(deep, MINE)


# --- programs -----------------------------------------------------------------------------------------------------------

COUNT: Final = Field[int]("count")
C: Final = Eq(ID, "c")


async def counts(times: int, step: int = 1) -> int:
    for turn in range(times):
        found = await find_one("counters", C)
        try:
            await find_one_and_update("counters", C, Put(COUNT, (0 if found is None else found[COUNT]) + step))
        except Failure:
            await Note("failed", turn)
    answer = await Call("send", (times,))
    assert isinstance(answer, Pair)
    return await later(answer)


async def later(answer: Pair) -> int:
    now = await Now()
    return now.at + (answer.left if isinstance(answer.left, int) else 0)


def world(effect: Effect[object], number: int) -> object:
    match effect:
        case Call():
            return Pair(number, Colour.RED)
        case Now():
            return Instant(number * SECOND, WALL)
        case Note():
            return None
        case _ if number % 3 == 2:
            return Ambiguous("no reply")
        case _:
            return Document.of({"_id": "c", "count": number})


def run_of(program: Program[object], hide: Any = nothing_hidden) -> Iterator[str]:
    yield recording.header("counts", "program", "")
    standing, number = resume(program, None), 0
    while isinstance(standing, Asking):
        number += 1
        reply = world(standing.effect, number)
        yield recording.replied(number, standing.effect, reply, hide)
        standing = resume(program, reply)
    yield recording.last(number)


LINES: Final = list(run_of(counts(2)))
WHOLE: Final = read("".join(LINES))


def test_a_run_is_reproduced_by_the_program_that_made_it() -> None:
    """Law RD1."""
    assert executed(WHOLE, counts(2), MINE) == Same(8, "finished: 8000007")
    assert (WHOLE.is_whole, WHOLE.damage, WHOLE.program) == (True, "", "counts")


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("step", [1, 2])
def test_another_program_is_caught_at_the_first_step_that_differs(times: int, step: int) -> None:
    """Law RD2."""
    found = executed(WHOLE, counts(times, step), MINE)
    assert isinstance(found, Other)
    lines = [json.loads(line) for line in run_of(counts(times, step))]
    differs = next(
        number
        for number, (mine, theirs) in enumerate(zip(lines[1:], map(json.loads, LINES[1:]), strict=False), 1)
        if mine.get("effect") != theirs.get("effect")
    )
    assert found.step == differs
    assert found.src.startswith("tests/properties/sim/test_recording.py:") or found.src.startswith("test_recording.py:")
    assert found.src.endswith(" counts")
    assert found.recorded != found.now


def test_a_program_that_asks_for_less_or_more_is_caught() -> None:
    async def short() -> None:
        await find_one("counters", C)

    assert executed(WHOLE, short(), MINE) == Other(2, WHOLE.entries[1].what, "finished: null", "")

    async def longer() -> None:
        await counts(2)
        await Note("more", 1)

    found = executed(WHOLE, longer(), MINE)
    assert isinstance(found, Other)
    assert (found.step, found.recorded, found.now) == (9, NOTHING_MORE, "note more: 1")


@given(st.integers(0, len("".join(LINES))))
def test_of_a_recording_that_was_cut_all_whole_lines_are_used(length: int) -> None:
    """Law RD3: a truncated recording is reported and is no error, except in its first line."""
    text = "".join(LINES)[:length]
    whole = [line for line in text.split("\n")[:-1] if line]
    if not whole and length < len(LINES[0]) - 1:
        with pytest.raises(Misuse, match="line 1"):
            read(text)
        return
    found = read(text)
    entries = max(0, len(whole) - 1)
    assert len(found.entries) == min(entries, 8)
    assert bool(found.damage) == (bool(text) and not text.endswith("\n") and len(whole) > 0)
    assert isinstance(executed(found, counts(2), MINE), Same)


def changed(number: int, **changes: object) -> str:
    lines = [json.loads(line) for line in LINES]
    for name, value in changes.items():
        if value is ...:
            del lines[number][name]
        else:
            lines[number][name] = value
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


DAMAGED: Final = {
    "another version": (changed(0, schema="tidegate/recording@4"), "of version"),
    "neither a program nor a reducer": (changed(0, kind="x"), "of no program"),
    "a program that is a number": (changed(0, program=1), "where a text belongs"),
    "a line that is missing": ("".join(LINES[:2] + LINES[3:]), "line 3"),
    "a line twice": ("".join([*LINES[:3], LINES[2], *LINES[3:]]), "line 4"),
    "a line that is not JSON": ("".join([*LINES[:2], "no\n", *LINES[2:]]), "line 3"),
    "a line that is a list": ("".join([*LINES[:2], "[]\n", *LINES[2:]]), "line 3"),
    "a line without an effect": (changed(2, effect=...), "line 3"),
    "a line without a reply": (changed(2, reply=...), "line 3"),
    "an end that is too early": (changed(9, end=6), "ends after 6"),
    "lines after the end": ("".join([*LINES, LINES[1]]), "has ended before"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_other_damage_is_an_error_that_names_the_line(what: str) -> None:
    text, said = DAMAGED[what]
    with pytest.raises(Misuse, match=said):
        read(text)


def test_a_run_that_was_ended_is_executed_until_then() -> None:
    program = counts(2)
    standing = resume(program, None)
    program.close()
    assert isinstance(standing, Asking)
    lines = LINES[0] + recording.ended(1, standing.effect, KeyboardInterrupt(), nothing_hidden)
    assert executed(read(lines), counts(2), MINE) == Same(1, "the run was ended: KeyboardInterrupt")


def test_a_program_decides_alike_on_what_was_hidden() -> None:
    async def forwards() -> bool:
        one, two = await Call("look"), await Call("look")
        assert isinstance(one, str)
        await Call("send", (one, "own " + CANARY))
        return one == two

    def lines() -> Iterator[str]:
        yield recording.header("forwards", "program", "")
        program, reply = forwards(), None
        for number in (1, 2, 3):
            standing = resume(program, reply)
            assert isinstance(standing, Asking)
            reply = CANARY
            yield recording.replied(number, standing.effect, reply, hides_canary)
        assert str(resume(program, reply)) == "finished: true"
        yield recording.last(3)

    text = "".join(lines())
    assert CANARY not in text
    assert executed(read(text), forwards(), MINE) == Same(3, "finished: true")
    assert "call send(***x, ***x)" in text


# --- reducers -----------------------------------------------------------------------------------------------------------

T0: Final = TopicPartition("t", 0)
EVENTS: Final[tuple[Event, ...]] = (Assigned(T0, 1, 0), Fetched(T0, 1, (0, 1, 2), (b"k", None, b"k")), Revoked(T0))


def recorded_of(consumer: ConsumerRules) -> Recording:
    state, lines = ConsumerState(), [recording.header("orders", "reducer", "")]
    for number, event in enumerate(EVENTS, 1):
        step = consumer.step(state, event)
        state = step.state
        lines.append(recording.handled(number, event, step.commands, nothing_hidden))
    return read("".join([*lines, recording.last(len(EVENTS))]))


OURS: Final = named_classes(
    [*vars(records).values(), *vars(commands).values(), *vars(drain).values(), *vars(fanout).values()]
)


def test_a_reducer_that_gets_its_events_again_decides_alike() -> None:
    """Law RD1 for reducers."""
    recorded = recorded_of(ConsumerRules())
    assert stepped(recorded, ConsumerState(), ConsumerRules().step, OURS) == Same(3, "")
    found = stepped(recorded, ConsumerState(), ConsumerRules(executors=1).step, OURS)
    assert isinstance(found, Other)
    assert found.step == 2
    assert found.recorded != found.now
    assert "handle" in found.recorded
    assert found.src.endswith("ConsumerRules.step")


def test_a_recording_of_one_kind_is_not_executed_as_the_other() -> None:
    with pytest.raises(Misuse, match="recording of a reducer"):
        executed(recorded_of(ConsumerRules()), counts(1), OURS)
    with pytest.raises(Misuse, match="recording of a program"):
        stepped(WHOLE, ConsumerState(), ConsumerRules().step, MINE)


def test_commands_of_every_kind_are_read_back() -> None:
    work = Work(T0, 1, fanout.Start(1, (0,), 1), (0,))
    for command in (work, Interrupt(work), Release(T0), Commit(T0, 1, 1)):
        assert untagged(through_text(command), OURS) == command


def test_what_is_not_a_value_is_recorded_by_its_class_and_is_not_read_back() -> None:
    assert tagged([1]) == {"$other": "builtins.list"}
    assert matches(tagged([1]), tagged([2]))
    with pytest.raises(Misuse, match="nested deeper"):
        tagged(deep_tuple())


def deep_tuple() -> object:
    value: object = 1
    for _ in range(500):
        value = (value,)
    return value


def test_hidden_bytes_are_read_back_as_bytes() -> None:
    hidden = tagged((CANARY.encode(), CANARY), lambda _, value: "x" if value else None)
    assert untagged(hidden, {}) == (b"***x", "***x")


def test_an_effect_that_cannot_be_recorded_without_its_secret_is_recorded_by_its_kind() -> None:
    """A duration cannot be replaced by a label."""
    line = json.loads(recording.replied(1, Sleep(5), None, lambda way, _: "x" if "duration" in way else None))
    assert line["what"] == "Sleep"


def test_arguments_are_digested_without_what_is_hidden() -> None:
    """Otherwise the digest would allow guessing a secret."""
    digest = recording.digest_of(("a", CANARY), lambda _, value: "" if value == CANARY else None)
    assert CANARY not in digest
    assert digest != recording.digest_of(("b", CANARY), lambda _, value: "" if value == CANARY else None)
    assert recording.is_recording(LINES[0])
    assert not recording.is_recording("{}")
