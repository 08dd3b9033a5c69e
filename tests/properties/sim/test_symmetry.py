"""A search up to names agrees with a naive one, in fewer states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import pairwise
from random import Random  # noqa: TID251  seeded
from typing import NamedTuple, cast

import attrs
import pytest
from tests.properties.plain_search import Found, Key, plain_search

from tidegate.model.documents import ID, Add, AddToSet, Document, Eq, Exists, Field, Pull, Put, exactly
from tidegate.model.effects import Ambiguous, Call, Effect, Failure, Note, Program
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND
from tidegate.model.operations import delete_one, find_one, find_one_and_update, insert_one, update_many, update_one
from tidegate.model.reducer import Step
from tidegate.model.transactions import CommitTransaction, InTransaction, Transaction
from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.replay import Reproduced, replay
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.runs.sample import Plan, portfolio
from tidegate.sim.scenario import Actor, Clock, Scenario, State
from tidegate.sim.search.attempts import attempt
from tidegate.sim.search.search import ALL, PLAIN, Bounds, Explored, Reductions, Search, go_on
from tidegate.sim.search.symmetry import Renaming, Symmetry
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.servers.failover import Failover
from tidegate.sim.servers.reducers import ReducerProcess
from tidegate.sim.trace.trace import Breach
from tidegate.sim.world.clocks import Host
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.packing import Looked, Packed
from tidegate.sim.world.world import IDS, calling, contents, document, inbox, notes, world_with

COUNT = Field[int]("count")
LEADERS = Field[tuple[str, ...]]("leaders")


def reduced(scenario: Scenario, reductions: Reductions = ALL) -> Explored:
    return attempt(scenario, lambda search: search.run(Bounds(), go_on), reductions)


def key_of(found: Explored, state: Packed) -> Key:
    slots = found.search.space.packing.slots.values()
    held = ((slot.name, slot.get(state)) for slot in slots if slot.get(state) is not slot.values[0])
    return frozenset(
        (name, exactly(tuple(map(str, cast("tuple[str, ...]", each))) if name[0] == IDS else each))
        for name, each in held
    )


def is_a_run(found: Explored, path: tuple[Packed, ...]) -> bool:
    follows = all(
        any(to == after for stepper in found.search.steppers for _, to in stepper.steps(before))
        for before, after in pairwise(path)
    )
    return path[0] == found.search.first and follows


def is_broken_at_the_end(found: Explored, scenario: Scenario) -> bool:
    assert found.broken is not None
    last = found.search.space.view(found.broken.path[-1], Looked())
    laws = {**scenario.always, **scenario.eventually}
    holds = laws.get(found.broken.law, ())
    parts = holds if isinstance(holds, tuple) else (holds,)
    return not parts or not all(part(last) for part in parts)


def agree_reduced(scenario: Scenario, reductions: Reductions = ALL) -> tuple[Explored, Found]:
    """Laws SY2 and SY3: compares with the naive search."""
    found, plain = reduced(scenario, reductions), plain_search(scenario)
    if not plain.broken:
        assert (found.broken is None) == (not plain.livelocked(scenario))
        if found.broken is not None:
            assert found.broken.breach is Breach.LIVELOCK
            assert found.broken.law in plain.livelocked(scenario)
            assert is_a_run(found, found.broken.path)
            return found, plain
    assert (found.broken is None) == (not plain.broken)
    assert found.states <= len(plain.states)
    if found.broken is not None:
        assert found.broken.law in plain.broken
        assert len(found.broken.path) - 1 == plain.broken[found.broken.law]
        assert is_a_run(found, found.broken.path)
        assert is_broken_at_the_end(found, scenario)
        return found, plain
    assert found.goals == plain.goals
    assert set(found.faults) <= set(plain.faults)
    if not (reductions.symmetry and scenario.symmetric):
        assert {key_of(found, state) for state in found.search.seen} <= plain.states.keys()
        assert (found.resting, found.cut_short) == (plain.resting, plain.cut_short)
    return found, plain


# --- interchangeable processes ------------------------------------------------------------------------------------------


async def work(me: str, pieces: int) -> int:
    await update_one("shared", Eq(ID, "leaders"), AddToSet(LEADERS, me))
    done = 0
    for _ in range(pieces):
        after = await find_one_and_update("own", Eq(ID, me), Add(COUNT, 1))
        done = after[COUNT] if after else -1
    await update_one("shared", Eq(ID, "leaders"), Pull(LEADERS, me))
    return done


NAMES = ("a", "b", "c")


def workers(pieces: int = 2, who: tuple[str, ...] = NAMES, faults: Faults | None = None) -> Scenario:
    return Scenario(
        name="workers",
        summary="",
        world=world_with(
            {
                "shared": (Document.of({"_id": "leaders", "leaders": ()}),),
                "own": tuple(Document.of({"_id": name, "count": 0}) for name in who),
            }
        ),
        actors=tuple(Process(name, factory(work, name, pieces), faults or Faults()) for name in who),
        symmetric=(who,),
    )


def counted(state: State, name: str) -> int:
    own = state.read(document("own", name))
    assert own is not None
    return own[COUNT]


LEADER = Field[str]("leader")


async def contends(me: str, rounds: int) -> str:
    result = ""
    for number in range(rounds):
        try:
            taken = await find_one_and_update("locks", Eq(LEADER, ""), Put(LEADER, me))
        except Ambiguous:
            taken = await find_one("locks", Eq(ID, "lock"))
        if taken is not None and taken[LEADER] == me:
            await Note("holds", f"{me}.{number}")
            await update_one("log", Eq(ID, me), Put(LEADER, f"{me}.{number}"))
            await update_one("locks", Eq(LEADER, me), Put(LEADER, ""))
            result = f"{me} was first"
    return result


def contenders(who: tuple[str, ...] = NAMES, budget: int = 0, **changes: object) -> Scenario:
    faults = Faults.of(Fault.CRASH_BEFORE, Fault.LOST_REPLY, Fault.LATE) if budget else Faults()
    log = tuple(Document.of({"_id": name, "leader": ""}) for name in who)
    actors = (*(Process(name, factory(contends, name, 2), faults) for name in who), Network())
    world = world_with({"locks": (Document.of({"_id": "lock", "leader": ""}),), "log": log})
    made: dict[str, object] = {"name": "contenders", "summary": "", "world": world, "actors": actors, "budget": budget,
                               "symmetric": (who,)}  # fmt: skip
    return Scenario(**{**made, **changes})  # type: ignore[arg-type]


async def looks_on() -> str:
    found = await find_one("locks", Eq(ID, "lock"))
    return "" if found is None else f"it was {found[LEADER]}"


async def opens(me: str) -> None:
    mine = Transaction(f"{me}-0", 1)
    await InTransaction(mine, find_one("locks", Eq(ID, "lock")), begins=True)
    await Note(me, Named(me))
    await Note("last", 1)
    await InTransaction(mine, find_one("locks", Eq(ID, "lock")))


class Named(NamedTuple):
    name: str


def looked_on() -> Scenario:
    scenario = contenders(("a", "b"))
    return attrs.evolve(scenario, actors=(*scenario.actors, Process("c", factory(looks_on))))


def leads_now(name: str, state: State) -> bool:
    lock = state.read(document("locks", "lock"))
    return lock is not None and lock[LEADER] == name


def leads_not(name: str, state: State) -> bool:
    return not leads_now(name, state)


def noted_last(name: str, state: State) -> bool:
    return ("holds", f"{name}.1") in state.read(notes(name))


SYMMETRIC: Mapping[str, Callable[[], Scenario]] = {
    "three": contenders,
    "two, with faults": partial(contenders, ("a", "b"), 1),
    "two of three": partial(contenders, symmetric=(("a", "c"),)),
    "one in no group learns of those who are": looked_on,
    "one is cancelled": partial(workers, 1, ("a", "b"), Faults.of(Fault.CANCELLED)),
    "open transactions, notes and named tuples": lambda: contenders(
        ("a", "b"), actors=tuple(Process(name, factory(opens, name)) for name in ("a", "b"))
    ),
    "a clock": partial(contenders, ("a", "b"), clock=Clock(SECOND, moves=1)),
    "workers": partial(workers, 1),
    **{
        f"a law that singles out {name}": partial(
            contenders, always={f"{name} does not lead": partial(leads_not, name)}
        )
        for name in "ac"
    },
    **{
        f"a law at rest that singles out {name}": partial(
            contenders, ("a", "b"), 1, eventually={f"{name} was last": partial(noted_last, name)}
        )
        for name in "ab"
    },
    **{
        f"a goal that singles out {name}": partial(contenders, sometimes={f"{name} leads": partial(leads_now, name)})
        for name in "ac"
    },
}


def test_a_law_over_steps_that_singles_somebody_out_is_kept_without_symmetry() -> None:
    """A step is judged for one naming only."""

    def leader(state: State) -> str:
        doc = state.read(document("locks", "lock"))
        assert doc is not None
        return doc[LEADER]

    report = explore(
        contenders(step={"b does not take it": lambda before, after: leader(after) != "b" or leader(before) == "b"})
    )
    assert (report.verdict, report.reductions) == (Verdict.VIOLATED, ())


@pytest.mark.parametrize("name", SYMMETRIC)
def test_a_search_up_to_names_agrees(name: str) -> None:
    """Laws SY2 and SY3."""
    agree_reduced(SYMMETRIC[name]())


@pytest.mark.parametrize("name", ["three", "two, with faults", "two of three", "workers"])
def test_the_states_up_to_names_are_the_orbits_of_the_plain_ones(name: str) -> None:
    """Law SY1."""
    scenario = SYMMETRIC[name]()
    found, whole = reduced(scenario), reduced(scenario, PLAIN)
    symmetry = found.search.symmetry
    assert symmetry is not None
    seen = {key_of(found, state) for state in found.search.seen}
    everything = {key_of(found, each) for state in found.search.seen for each in (state, *symmetry.images(state))}
    assert len(seen) == found.states < whole.states
    assert everything == {key_of(whole, state) for state in whole.search.seen} == set(plain_search(scenario).states)
    orbits = {
        frozenset({key_of(found, each) for each in (state, *symmetry.images(state))}) for state in found.search.seen
    }
    assert len(orbits) == found.states


async def favours(me: str) -> None:
    await update_one("log", Eq(ID, me), Put(LEADER, me))
    if me == "b":
        await update_one("log", Eq(ID, me), Put(LEADER, ""))


def asks(name: str, who: str, effect: Effect[object]) -> bool:  # noqa: ARG001  whatever it asks
    return name == who


def differs(me: str) -> Document:
    return Document.of({"_id": me, "leader": "x" if me == "b" else ""})


NOT_ALIKE: Mapping[str, Callable[[], Scenario]] = {
    "a program that favours one": lambda: contenders(
        ("a", "b"), actors=tuple(Process(name, factory(favours, name)) for name in ("a", "b"))
    ),
    "faults that strike one": lambda: contenders(
        ("a", "b"),
        1,
        actors=tuple(
            Process(name, factory(contends, name, 2), Faults.of(Fault.UNSENT, on=partial(asks, name, "a")))
            for name in ("a", "b")
        ),
    ),
    "a world that favours one": lambda: contenders(
        ("a", "b"), world=world_with({"locks": (), "log": (differs("a"), differs("b"))})
    ),
}


@pytest.mark.parametrize("name", NOT_ALIKE)
def test_whoever_is_not_interchangeable_is_reported(name: str) -> None:
    scenario = NOT_ALIKE[name]()
    with pytest.raises(Misuse, match=r"[ab] and [ab] are not interchangeable"):
        _ = reduced(scenario)
    assert reduced(scenario, PLAIN).states > 1


@pytest.mark.parametrize(
    ("names", "word", "there"),
    [
        (("owner", "b"), "owner", "log/x holds"),
        (("1", "2"), "1", "log/x holds"),
        (("said", "b"), "said", "one is about to note said"),
        (("a", "b", "said"), "said", "a tells them apart: it is about to note said"),
    ],
)
def test_a_name_that_something_else_has_is_told(names: tuple[str, ...], word: str, there: str) -> None:
    async def notes_it() -> None:
        await Note("said", 1)

    world = world_with({"log": (Document.of({"_id": "x", "owner": "chapter 1"}),)})
    actors = tuple(Process(name, factory(notes_it)) for name in names)
    with pytest.raises(Misuse, match="are not interchangeable") as raised:
        _ = reduced(Scenario("s", "", world, actors, symmetric=(names,)))
    one, other = raised.value.what.removesuffix(" are not interchangeable").split(" and ")
    assert one != other
    assert there in raised.value.why
    assert f"call the process otherwise if '{word}' names something else" in raised.value.todo


def test_groups_name_actors_once() -> None:
    for groups in ((("a", "x"),), (("a", "a"),), (("a", "b"), ("b", "c"))):
        with pytest.raises(Misuse, match="groups of processes"):
            _ = contenders(symmetric=groups)


def test_a_group_of_one_changes_nothing() -> None:
    alone = reduced(contenders(symmetric=(("a",), ())))
    assert alone.states == reduced(contenders(symmetric=())).states


def test_processes_that_differ_are_not_interchangeable() -> None:
    usual = Process("b", factory(contends, "b", 2))
    others: tuple[tuple[Actor, str], ...] = (
        (Process("a", factory(contends, "a", 2), Faults.of(Fault.LATE)), "they differ in faults"),
        (Process("a", factory(contends, "a", 2), meaning=calling({})), "they differ in meaning"),
        (Process("a", factory(contends, "a", 2), host=Host(skew=1)), "they differ in host"),
        (Process("a", factory(contends, "a", 2), comes_back=True), "they differ in comes_back"),
        (ReducerProcess("a", 0, lambda state, _: Step(state), lambda *_: None), "the other a Process"),
        (Network(name="a"), "processes are interchangeable, and nothing else is"),
    )
    for other, why in others:
        with pytest.raises(Misuse) as raised:
            _ = contenders(("a", "b"), actors=(other, usual))
        assert why in str(raised.value)


# --- planted bugs -------------------------------------------------------------------------------------------------------


PLANTED: Mapping[str, tuple[object, str, object, str]] = {
    "laws are judged for one naming": (Search, "named", lambda _, states: states, "a law that singles out c"),
    "a node is not renamed": (Renaming, "node", lambda *names: names[-1], "two, with faults"),
    "a run keeps the names of its states": (Symmetry, "renamed", lambda *runs: runs[1], "a law that singles out c"),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_in_a_reduction_is_noticed(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, attribute, instead, name = PLANTED[bug]
    monkeypatch.setattr(where, attribute, instead)
    with pytest.raises((AssertionError, Misuse)):
        _ = agree_reduced(SYMMETRIC[name]())


def test_whoever_is_alike_is_not_taken_on_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the comparison, faults that strike only one are missed."""
    monkeypatch.setattr(Symmetry, "check", lambda *_: None)
    assert reduced(NOT_ALIKE["faults that strike one"]()).states > 1


# --- reports ------------------------------------------------------------------------------------------------------------


def test_runs_that_go_on_from_a_reduced_search_are_runs() -> None:
    unfinished = {"not all finish": lambda state: any(counted(state, name) < 3 for name in NAMES)}
    scenario = attrs.evolve(workers(3), always=unfinished)
    onward = portfolio(Plan("1"), 20, seeding=Random)
    report = explore(scenario, Exploration(states_max=5), onward=onward)
    assert (report.verdict, report.reductions) == (Verdict.VIOLATED, ("symmetry",))
    assert report.trace is not None
    assert isinstance(replay(report.trace, scenario), Reproduced)


def test_symmetry_is_chosen() -> None:
    with_it, without = explore(workers(1)), explore(workers(1), Exploration(reductions=PLAIN))
    assert (with_it.reductions, without.reductions) == (("symmetry",), ())
    assert with_it.states < without.states == len(plain_search(workers(1)).states)


@pytest.mark.parametrize("there", [(), ("x",), ("p-", "x", "q-"), ("x", "q-", "p-")])
def test_documents_named_after_interchangeable_processes_are_those_of_the_others(there: tuple[str, ...]) -> None:
    """Scan order: existing documents keep theirs; new ones follow who came first."""

    async def inserts(me: str) -> None:
        await insert_one("c", Document.of({"_id": me, "v": 1}))
        await insert_one("c", Document.of({"_id": f"{me}+", "v": 1}))

    names = ("p", "q")
    scenario = Scenario(
        name="named after processes",
        summary="",
        world=world_with({"c": tuple(Document.of({"_id": each}) for each in there)}),
        actors=tuple(Process(name, factory(inserts, name)) for name in names),
        always={"L": lambda _: True},
        symmetric=(names,),
    )
    found, plain = agree_reduced(scenario)
    assert found.states < len(plain.states)


OWN_NOT_DURABLE = Faults.of(Fault.NOT_DURABLE, Fault.ROLLED_BACK)


async def comes_again(me: str) -> None:
    with suppress(Failure):
        await delete_one("c", Eq(ID, me))
        await insert_one("c", Document.of({"_id": me, "v": 1}))


async def comes_again_at_once(me: str) -> None:
    both = Transaction(f"of {me}", 1)
    with suppress(Failure):
        await InTransaction(both, delete_one("c", Eq(ID, me)), begins=True)
        await InTransaction(both, insert_one("c", Document.of({"_id": f"new {me}", "v": 1})))
        await CommitTransaction(both)


async def writes_all(me: str) -> None:
    with suppress(Failure):
        await update_many("c", Exists(ID), Put(Field("v"), me))


@pytest.mark.parametrize("last", "pq")
@pytest.mark.parametrize("program", [comes_again, comes_again_at_once, writes_all])
@pytest.mark.parametrize("faults", [Faults(), OWN_NOT_DURABLE], ids=["no faults", "taken back"])
def test_documents_that_come_again_are_in_the_order_of_who_came_first(
    program: Callable[[str], Program[object]], faults: Faults, last: str
) -> None:
    names = ("p", "q")
    scenario = Scenario(
        name="come again",
        summary="",
        world=world_with({"c": tuple(Document.of({"_id": each, "v": 0}) for each in names)}),
        actors=(*(Process(name, factory(program, name), faults) for name in names), Failover()),
        budget=len(faults.kinds),
        sometimes={"it is last": lambda state: contents(state, "c")[-1][ID] == last},
        symmetric=(names,),
    )
    found, plain = agree_reduced(scenario)
    assert found.states < len(plain.states)


def test_a_reducer_that_is_told_names_stands_where_it_would_with_the_others() -> None:
    by = Field[object]("by")

    async def takes(me: str) -> None:
        await find_one_and_update("c", Eq(ID, "x"), Put(by, me))

    async def looks() -> None:
        for name in ("first", "then"):
            found = await find_one("c", Eq(ID, "x"))
            await Note(name, None if found is None else found[by])

    names = ("p", "q")
    asked: tuple[Effect[object], ...] = (
        Call("looks"),
        *(insert_one("c", Document.of({"_id": name})) for name in names),
    )
    reducer = ReducerProcess(
        "r", (), lambda state, event: Step((*state, event), asked if event == "go" else ()), lambda *_: "done",
        carried_out=lambda command: looks() if isinstance(command, Call) else None,
    )  # fmt: skip
    scenario = Scenario(
        name="a reducer beside them",
        summary="",
        world=world_with({"c": (Document.of({"_id": "x", "by": None}),)}).write(inbox("r"), ("go",)),
        actors=(*(Process(name, factory(takes, name)) for name in names), reducer),
        always={"L": lambda _: True},
        sometimes={"p, then q": lambda state: state.read(notes("r")) == (("first", "p"), ("then", "q"))},
        symmetric=(names,),
    )
    found, plain = agree_reduced(scenario)
    assert found.states < len(plain.states)
