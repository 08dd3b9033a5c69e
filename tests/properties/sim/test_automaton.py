"""A program as an automaton: legal awaits, results and errors, and signs of nondeterminism."""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from itertools import count
from random import Random  # noqa: TID251  seeded
from typing import Any, cast

import attrs
import pytest

from tidegate.model.documents import Document
from tidegate.model.effects import Ambiguous, Call, Effect, Failure, Note, Now, Program, Refused, Sleep
from tidegate.model.errors import Misuse, Nondeterministic, TidegateError, UnknownEffect
from tidegate.model.instants import SECOND, STORE, WALL, Instant
from tidegate.sim.program.automaton import Asking, Birth, Crashed, Failed, ProgramAutomaton, Raised, Returned
from tidegate.sim.program.relative_time import Horizon, InstantRefused
from tidegate.sim.program.rerun import case_of, planned
from tidegate.sim.runs.exploration import EXHAUSTIVE, Exploration
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.scenario import NO_ERROR, Scenario
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.world.world import calling, world_with

Coded = Callable[[], Coroutine[Effect[object], object, object]]


def scenario(program: Coded, *replies: object) -> Scenario:
    world = world_with({"rows": (Document.of({"_id": "x", "n": 0}),)})
    return Scenario(
        name="behaviour",
        summary="",
        world=world,
        actors=(Process("p", factory(program), meaning=calling({"ask": replies})),),
    )


# --- behaviour ----------------------------------------------------------------------------------------------------------


async def asks_twice() -> object:
    return await Call("ask"), await Call("ask")


def test_a_program_is_run_once_for_each_reply_and_its_nodes_are_reused() -> None:
    """1 and true are two replies."""
    born_at: list[int] = []

    def birth(life: int) -> Program[object]:
        born_at.append(life)
        return asks_twice()

    automaton = ProgramAutomaton(birth)
    first = automaton.start(0)
    assert automaton.start(0) == first
    assert automaton.after(first, 1) == automaton.after(first, 1) != automaton.after(first, True)
    assert automaton.status(automaton.after(automaton.after(first, 1), 2)) == Returned((1, 2))
    assert born_at == [0, 0]  # once, and once again for the second reply: the first run had gone on


@pytest.mark.parametrize("how", [EXHAUSTIVE, Exploration(runs=5)], ids=["whole", "random runs"])
def test_whoever_awaits_in_a_finally_is_dropped_without_a_complaint(
    how: Exploration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `-W error` a warning would fail the test that explores it."""
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: complaints.append(each.exc_value))

    async def asks_in_the_end() -> None:
        await Call("ask")
        try:
            await Note("at", 1)
        finally:
            await Note("at", 2)

    explore(scenario(asks_in_the_end, 1, 2), how, seeding=Random)
    gc.collect()
    assert complaints == []


def test_each_life_is_a_run_of_its_own() -> None:
    async def names_itself(life: int) -> object:
        await Call("ask", (life,))
        await Call("ask")
        return None

    automaton = ProgramAutomaton(names_itself)
    first, second = automaton.start(0), automaton.start(1)
    assert automaton.status(second) == Asking(Call("ask", (1,)))
    assert first != second
    assert automaton.after(first, 1) == automaton.after(second, 1)


def test_the_dead_stand_at_node_0() -> None:
    assert ProgramAutomaton(lambda _: asks_twice()).status(ProgramAutomaton.CRASHED) == Crashed()


def test_every_standing_reads_as_a_sentence() -> None:
    shown = [
        str(each) for each in (Asking(Sleep(SECOND)), Returned("a"), Failed(Refused("no")), Raised("E: x"), Crashed())
    ]
    assert shown == ["about to sleep 1 s", 'finished: "a"', "failed: Refused(no)", "raised E: x", "crashed"]


# --- how it ends --------------------------------------------------------------------------------------------------------


async def fails() -> object:
    await Call("ask")
    raise KeyError("lost")


async def asserts() -> object:
    reply = await Call("ask")
    assert reply == 2, "not two"
    return reply


async def recurses() -> object:
    return await recurses()


async def stops() -> object:
    raise StopAsyncIteration


@pytest.mark.parametrize("program", [fails, asserts, recurses, stops])
def test_an_error_of_the_program_is_a_broken_law(program: Coded) -> None:
    """Law `no program raises an error` applies without being listed."""
    report = explore(scenario(program, 1))
    assert (report.verdict, report.law) == (Verdict.VIOLATED, NO_ERROR)
    assert report.trace is not None
    assert len(report.trace.steps) == (0 if program in (recurses, stops) else 1)


async def passes_on() -> object:
    return await Call("ask")


@pytest.mark.parametrize("failure", [Refused("no"), Ambiguous("no reply")])
def test_a_failure_that_nobody_catches_is_an_end_and_no_error(failure: Failure) -> None:
    report = explore(
        attrs.evolve(
            scenario(passes_on, failure, 1),
            sometimes={"it fails": lambda state: state.status("p") == Failed(failure)},
            eventually={"it ends": lambda state: isinstance(state.status("p"), (Failed, Returned))},
        )
    )
    assert report.verdict is Verdict.COMPLETE


def test_a_failure_is_told_apart_by_its_reason() -> None:
    automaton = ProgramAutomaton(lambda _: passes_on())
    ends = {automaton.after(automaton.start(0), failure) for failure in (Refused("a"), Refused("b"), Ambiguous("a"))}
    assert len(ends) == 3
    assert automaton.after(automaton.start(0), Refused("a")) in ends


async def uses_it_wrongly() -> object:
    await Call("ask")
    return Instant(0, STORE) - Instant(0, WALL)


def test_a_program_that_uses_tidegate_wrongly_ends_the_search() -> None:
    with pytest.raises(TidegateError, match="cannot compare"):
        explore(scenario(uses_it_wrongly, 1))


# --- forbidden behaviour ------------------------------------------------------------------------------------------------


class Bare:
    def __await__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204  as strangers write it
        yield "a string"


async def awaits_no_effect() -> object:
    await Bare()
    return None


async def awaits_no_meaning() -> object:
    await Call("unknown")
    return None


async def awaits_an_unknown_kind() -> object:
    await Unknown()
    return None


@attrs.frozen
class Unknown(Effect[None]):
    pass


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (awaits_no_effect, "a str, which is not an effect"),
        (awaits_no_meaning, "has no outcomes"),
        (awaits_an_unknown_kind, "has no meaning in this world"),
    ],
)
def test_awaiting_what_is_not_an_effect_is_a_clear_error(program: Coded, said: str) -> None:
    with pytest.raises(UnknownEffect, match=said) as raised:
        explore(scenario(program, 1))
    assert raised.value.todo


async def awaits_a_mutable_effect() -> object:
    await Call("ask", (["a list"],))
    return None


async def awaits_a_mutable_object() -> object:
    await Call("ask", (object(),))
    return None


async def returns_a_list() -> object:
    return [1]


async def returns_an_object() -> object:
    return object()


@pytest.mark.parametrize(
    "program", [awaits_a_mutable_effect, awaits_a_mutable_object, returns_a_list, returns_an_object]
)
def test_a_program_that_asks_or_returns_what_may_change_is_misuse(program: Coded) -> None:
    with pytest.raises(Misuse, match="not known to be immutable"):
        explore(scenario(program, 1))


@pytest.mark.parametrize("reply", [[1], {"a": 1}, object()], ids=["list", "dict", "object"])
def test_a_reply_that_may_change_is_misuse(reply: object) -> None:
    with pytest.raises(Misuse, match=r"a reply is an? .*not known to be immutable"):
        explore(scenario(passes_on, reply))


class NoEffect:
    def __await__(self) -> Iterator[object]:
        yield None


async def sleeps_in_an_event_loop() -> None:
    await cast("Awaitable[None]", NoEffect())


async def asks_wrongly() -> None:
    await Sleep(-1)


@pytest.mark.parametrize("program", [sleeps_in_an_event_loop, asks_wrongly])
def test_misuse_inside_a_program_says_in_which_line(program: Coded) -> None:
    with pytest.raises(Misuse) as raised:
        explore(scenario(program))
    line = program.__code__.co_firstlineno + 1
    assert f"test_automaton.py:{line} {program.__name__}" in raised.value.where


def test_of_an_endless_recursion_the_last_calls_are_told() -> None:
    def calls_itself() -> None:
        calls_itself()

    async def recurses() -> None:
        calls_itself()

    automaton = ProgramAutomaton(lambda _: recurses())
    status = automaton.status(automaton.start(0))
    assert isinstance(status, Raised)
    assert status.error.startswith("RecursionError")
    assert status.where.endswith("calls_itself, from ...")
    assert status.where.count(", from ") == 8


async def awaits_itself() -> None:
    await Call("ask")
    await awaits_itself()


async def makes_a_class() -> None:
    @attrs.frozen
    class Local:
        n: int

    await Note("n", Local(1))


@pytest.mark.parametrize(
    ("program", "said"),
    [(awaits_itself, "a program calls itself without end"), (makes_a_class, "a program makes the class makes_a_class")],
)
def test_what_each_run_does_in_its_own_way_is_misuse_and_not_called_nondeterministic(program: Coded, said: str) -> None:
    """Recursion depth depends on the caller; a class made by a run differs each time."""
    with pytest.raises(Misuse, match=said) as raised:
        explore(scenario(program, 1))
    assert not isinstance(raised.value, Nondeterministic)
    assert program.__name__ in raised.value.where


class Mute(Exception):  # noqa: N818  as users name them
    def __str__(self) -> str:
        raise ValueError("no text")


async def raises_what_has_no_text() -> None:
    raise Mute


def test_an_error_whose_text_raises_is_a_broken_law() -> None:
    assert explore(scenario(raises_what_has_no_text)).law == NO_ERROR
    automaton = ProgramAutomaton(lambda _: raises_what_has_no_text())
    status = automaton.status(automaton.start(0))
    assert isinstance(status, Raised)
    assert status.error == "Mute: (its text raises ValueError)"


def nested() -> object:
    value: object = ()
    for _ in range(3_000):
        value = (value,)
    return value


async def notes_what_is_deep() -> None:
    await Note("deep", nested())


def test_a_value_that_is_nested_too_deep_is_misuse() -> None:
    with pytest.raises(Misuse, match="nested too deep") as raised:
        explore(scenario(notes_what_is_deep))
    assert "notes_what_is_deep" in raised.value.where
    with pytest.raises(Misuse, match="nested too deep") as raised:
        explore(scenario(fails, nested()))
    assert "a reply to process p" in raised.value.where
    with pytest.raises(Misuse, match="p is given a value that is nested too deep"):
        Scenario(name="s", summary="", world=world_with({}), actors=(Process("p", factory(asks, nested())),), budget=0)


async def asks(_: object) -> None:
    await Call("ask")


# --- hidden state -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [(1, 2, 3, 4), (1, True, 1, True)], ids=["numbers", "a number and a bool"])
def test_a_program_that_asks_for_something_else_in_a_replay_is_not_deterministic(values: tuple[object, ...]) -> None:
    hidden = iter(values).__next__  # its exhaustion is not visible

    async def depends() -> object:
        await Call("ask")
        await Call("ask", (hidden(),))
        await Call("ask")
        return None

    with pytest.raises(Nondeterministic, match="with the same replies a program was first about to call"):
        explore(scenario(depends, 1, 2))


def test_a_program_that_needs_no_replay_is_run_again_all_the_same() -> None:
    """Each node is reached once; its requests depend on the number of runs."""
    runs = count().__next__

    async def counts() -> object:
        await Call("ask")
        return runs()

    with pytest.raises(Nondeterministic, match="first finished: 0 and then stood at: finished: 1"):
        explore(scenario(counts, 1))


def test_a_program_that_ends_early_in_a_replay_is_not_deterministic() -> None:
    runs = iter(range(10)).__next__

    async def ends_early() -> object:
        if runs() > 0:
            return "early"
        await Call("ask")
        return "late"

    with pytest.raises(Nondeterministic, match='stood at: finished: "early"'):
        explore(scenario(ends_early, 1, 2))


def test_a_life_that_begins_where_another_one_came_to_is_no_hidden_state() -> None:
    """A reply led to its first node earlier; a fresh program of that life gets none."""

    async def from_where(life: int) -> object:
        while life < 3:
            await Note("tick", 0)
            life += 1
        return life

    automaton = ProgramAutomaton(from_where)
    first = automaton.start(0)
    second = automaton.after(first, None)
    assert automaton.start(1) == second
    third = automaton.after(second, None)
    assert automaton.status(automaton.after(third, None)) == Returned(3)
    assert case_of(automaton, planned(automaton)).execute() is None


# --- time ---------------------------------------------------------------------------------------------------------------


async def holds_nothing() -> object:
    await Sleep(SECOND)
    return None


async def reads_its_clock() -> object:
    await Now()
    return None


async def names_an_instant() -> object:
    await Note("at", Instant(0))
    return None


async def keeps_an_instant() -> object:
    kept = cast("Instant", await Call("ask"))
    await Call("ask")
    return kept - kept


async def keeps_a_set_of_instants() -> object:
    kept = frozenset({cast("Instant", await Call("ask"))})
    await Call("ask")
    return len(kept)


async def keeps_a_document() -> object:
    kept = Document.of({"at": cast("Instant", await Call("ask"))})
    await Call("ask")
    return kept.items == ()


@attrs.frozen
class Deadline:
    at: Instant

    def passed(self, now: Instant) -> bool:
        return now - self.at > 0


async def keeps_a_method() -> object:
    passed = Deadline(cast("Instant", await Call("ask"))).passed
    await Call("ask")
    return passed(Instant(0))


async def keeps_a_default() -> object:
    def passed(at: Instant = cast("Instant", await Call("ask"))) -> bool:  # noqa: B008  it is the case
        return at.at > 0

    await Call("ask")
    return passed()


async def keeps_one_in_a_list() -> object:
    kept = [await Call("ask")]
    await Call("ask")
    return len(kept)


async def returns_one() -> object:
    return await Call("ask")


@pytest.mark.parametrize(
    "program",
    [keeps_an_instant, keeps_a_set_of_instants, keeps_a_document, keeps_a_method, keeps_a_default, keeps_one_in_a_list,
     returns_one],
)  # fmt: skip
def test_a_program_that_holds_an_instant_is_noticed(program: Coded) -> None:
    automaton = ProgramAutomaton(lambda _: program())
    automaton.is_relative = True
    with pytest.raises(InstantRefused, match=r"(holds an|may hold the) instant"):
        automaton.after(automaton.start(0), Horizon(SECOND).now(Instant(0)))


async def sleeps_for_real() -> None:
    from asyncio import sleep  # noqa: TID251  as a user's program may

    await sleep(1)


@pytest.mark.parametrize(
    "birth", [cast("Birth", asks_twice), cast("Birth", lambda _: 3)], ids=["no factory", "no coroutine"]
)
def test_what_is_no_program_is_told_how_one_begins(birth: Birth) -> None:
    with pytest.raises(Misuse, match=r"factory\(program"):
        ProgramAutomaton(birth, "p").start(0)


def test_a_program_that_awaits_what_asyncio_has_is_told_what_to_await() -> None:
    automaton = ProgramAutomaton(factory(sleeps_for_real))
    assert "awaits effects and nothing of asyncio: write await Sleep(...)" in str(automaton.status(automaton.start(0)))


def test_a_program_that_calls_pymongo_is_told_which_effect_to_await() -> None:
    driver: dict[str, Any] = {"__name__": "pymongo.collection"}
    exec("def insert_one(): fail()\ndef fail(): raise OSError(id(object()))", driver)  # noqa: S102  as if it were there

    async def asks() -> None:
        driver["insert_one"]()

    automaton = ProgramAutomaton(factory(asks))
    said = "OSError: a program asks the database by effects: write await insert_one(...), and nothing of pymongo"
    assert said in str(automaton.status(automaton.start(0)))
