"""A verdict lists its gaps: bounds, faults that never struck, goals, laws never judged."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from random import Random  # noqa: TID251  seeded
from typing import Final

import attrs
import pytest
from tests.properties.shipped import OF_DESIGNS, report_on

from tidegate.model.documents import ID, Add, AllOf, Document, Eq, Exists, Field, OlderThan, PutServerTime
from tidegate.model.effects import Ambiguous, Call, Effect, Note, Program, Refused, Sleep
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import (
    StoreTime,
    delete_one,
    find_one,
    insert_many,
    insert_one,
    update_many,
    update_one,
    upsert_one,
)
from tidegate.model.reducer import Step
from tidegate.model.transactions import InTransaction, Transaction
from tidegate.sim.program.automaton import Returned
from tidegate.sim.runs.exploration import EXHAUSTIVE, Exploration
from tidegate.sim.runs.report import Report, Verdict, explore
from tidegate.sim.scenario import Actor, Clock, Law, NoLongerThan, Scenario, State
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.servers.failover import Failover
from tidegate.sim.servers.group import Coordinator
from tidegate.sim.servers.reducers import Crash, ReducerProcess
from tidegate.sim.servers.streams import Forgetful
from tidegate.sim.world.cells import Reads
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import (
    Cell,
    Meaning,
    Outcomes,
    Plain,
    World,
    calling,
    contents,
    document,
    inbox,
    notes,
    perform,
    world_with,
)


async def says() -> str:
    await Note("at", 1)
    await Call("ask")
    return "done"


async def asks_nothing() -> None:
    pass


FINE: dict[str, object] = {"always": {"it says at most one thing": lambda state: len(state.read(notes("p"))) < 2}}


def scenario(**changes: object) -> Scenario:
    faults = Faults({Fault.LOST_REPLY: lambda effect: isinstance(effect, Call), Fault.LATE: lambda _: False})
    actors = (Process("p", factory(says), faults, calling({"ask": (1,)}), raises=True),)
    return Scenario(**{"name": "s", "summary": "", "world": Plain(), "actors": actors, "budget": 1, **FINE, **changes})  # type: ignore[arg-type]


LATE = "fault late never struck"
ASKED = {"it says one thing": lambda before, after: before.read(notes("p")) == () or after.read(notes("p")) != ()}
UNASKED = {"q is silent": lambda before, after: before.read(notes("q")) == after.read(notes("q"))}


def test_a_fault_that_could_strike_and_never_does_is_reported() -> None:
    assert (explore(scenario()).verdict, explore(scenario()).uncovered) == (Verdict.COMPLETE, (LATE,))
    required = explore(scenario(), Exploration(require_sometimes=True))
    assert (required.verdict, required.reason) == (Verdict.INCONCLUSIVE, LATE)
    for changes in ({"budgets": {Fault.LATE: 0}}, {"budget": 0}):
        report = explore(scenario(**changes), Exploration(require_sometimes=True))
        assert (report.verdict, report.uncovered) == (Verdict.COMPLETE, ())


def test_whoever_never_crashed_is_not_said_to_have_never_started_again() -> None:
    faults = Faults.of(Fault.CRASH_BEFORE, Fault.RESTART)
    once, alone = (
        Process("p", factory(says), each, calling({"ask": (1,)}), raises=True)
        for each in (faults, Faults.of(Fault.RESTART))
    )

    said = explore(scenario(actors=(once,)), Exploration(require_sometimes=True))
    assert said.verdict is Verdict.COMPLETE
    assert [line.partition(":")[0] for line in said.uncovered] == ["fault restart cannot strike"]
    assert explore(scenario(actors=(once,), budgets={Fault.RESTART: 0})).uncovered == ()
    (told,) = explore(Scenario("s", "", Plain(), (once,), **FINE)).uncovered  # type: ignore[arg-type]
    assert told.startswith("fault restart never struck: it strikes only after another fault")
    assert explore(scenario(actors=(once,), budget=2)).uncovered == ()
    assert explore(scenario(actors=(alone,), budget=2)).uncovered == ("fault restart never struck",)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        (Fault.ROLLED_BACK, "Failover()"),
        (Fault.STALE_READ, "recalling(perform)"),
        (Fault.STALL, "Host(stall=...)"),
        (Fault.SKEW, "Host(skew=...)"),
        (Fault.CLOCK_FORWARD, "Host(jump=...)"),
        (Fault.CLOCK_BACK, "Host(jump=...)"),
    ],
)
def test_what_a_fault_takes_that_never_struck_is_named(kind: Fault, missing: str) -> None:
    process = Process("p", factory(says), Faults.of(kind), calling({"ask": (1,)}))
    (told,) = explore(scenario(actors=(process,), budget=2)).uncovered
    assert told.startswith(f"fault {kind} never struck")
    assert missing in told


@pytest.mark.parametrize(
    "actor",
    [
        Failover(),
        Forgetful(),
        Crash("crash", (), Cell(("dead", "p"), empty=True)),
        Coordinator("t", lambda member, _: member, evicts=True),
    ],
    ids=lambda actor: actor.makes[0].value,
)
def test_a_fault_that_another_actor_makes_may_strike_once_and_is_reported_if_it_never_does(actor: Actor) -> None:
    """A rollback needs a write that was not durable, which is another fault."""
    process = Process("p", factory(says), meaning=calling({"ask": (1,)}), raises=True)
    made = Scenario("s", "", Plain(), (process, actor), **FINE)  # type: ignore[arg-type]
    assert made.budget == 1
    (kind,) = actor.makes  # type: ignore[attr-defined]
    assert explore(attrs.evolve(made, budget=2)).uncovered == (f"fault {kind} never struck",)


def test_without_a_network_what_is_late_is_said_to_be_lost() -> None:
    faults = Faults.of(Fault.LATE, Fault.DUPLICATE, on=lambda effect: isinstance(effect, Call))
    late = Process("p", factory(says), faults, calling({"ask": (1,)}), raises=True)
    told = explore(scenario(actors=(late,)), Exploration(require_sometimes=True))
    assert told.verdict is Verdict.INCONCLUSIVE
    assert [line.partition(" here:")[0] for line in told.uncovered] == [
        "fault late is a loss",
        "fault duplicate is a loss",
    ]
    assert explore(scenario(actors=(late, Network(calling({"ask": (1,)}))))).uncovered == ()


def test_a_fault_that_is_declared_may_strike_once_unless_another_budget_is_said() -> None:
    """Otherwise a scenario without a budget would be clean under any crash."""

    def crashing(**changes: object) -> Report:
        crashes = Process("p", factory(says), Faults.of(Fault.CRASH_BEFORE), calling({"ask": (1,)}))
        law = {"it says it is done": lambda state: state.status("p") == Returned("done")}
        made: dict[str, object] = {
            "name": "s",
            "summary": "",
            "world": Plain(),
            "actors": (crashes,),
            "eventually": law,
        }
        return explore(Scenario(**made, **changes))  # type: ignore[arg-type]

    assert (crashing().verdict, crashing().budget) == (Verdict.VIOLATED, 1)
    assert crashing(budget=0).verdict is Verdict.COMPLETE
    assert scenario(actors=(Process("p", factory(says)),)).budget == 1  # as stated
    assert Scenario("s", "", Plain(), (Process("p", factory(says)),)).budget == 0


def test_a_goal_that_is_never_reached_is_reported() -> None:
    never, late = {"it flies": lambda _: False}, {Fault.LATE: 0}
    uncovered = ("goal never reached: it flies",)
    default = explore(scenario(sometimes=never, budgets=late))
    assert (default.verdict, default.ok, default.uncovered) == (Verdict.COMPLETE, True, uncovered)
    required = explore(scenario(sometimes=never, budgets=late), Exploration(require_sometimes=True))
    assert (required.verdict, required.ok, required.reason) == (Verdict.INCONCLUSIVE, False, *uncovered)
    assert explore(scenario(sometimes=never, budgets=late), Exploration(runs=9), seeding=Random).uncovered == uncovered


def test_a_law_about_steps_that_nothing_touches_is_reported() -> None:
    asked = explore(scenario(step=ASKED, budgets={Fault.LATE: 0}), Exploration(require_sometimes=True))
    assert (asked.verdict, asked.uncovered) == (Verdict.COMPLETE, ())
    unasked = explore(scenario(step=UNASKED, budgets={Fault.LATE: 0}))
    assert unasked.uncovered == (
        "law 'q is silent' reads the notes of 'q', which no state has, so that it is always empty; there are: p",
        "no step touches what the law is about: q is silent",
    )
    assert (
        explore(scenario(step=UNASKED, budgets={Fault.LATE: 0}), Exploration(require_sometimes=True)).verdict
        is Verdict.INCONCLUSIVE
    )


def test_a_law_about_steps_in_parts_is_reported_once() -> None:
    unasked = tuple(UNASKED.values())
    report = explore(scenario(step={"in parts": (*unasked, *unasked)}, budgets={Fault.LATE: 0}))
    assert report.uncovered[1:] == ("no step touches what the law is about: in parts",)


JOBS: Final = world_with({"empty": ()})


async def fills() -> None:
    await insert_one("jobs", Document.of({"_id": "a"}))
    await delete_one("jobs", Eq(ID, "a"))
    await Note("at", 1)


def reading(cell: str) -> Callable[[Reads], bool]:
    if cell.startswith("of "):
        return lambda state: state.read(notes(cell[3:])) is not None
    if cell.startswith("in "):
        return lambda state: str(state.read(document(cell[3:], "a"))) != ""
    return lambda state: contents(state, cell) is not None


def uncovered(kind: str, cell: str) -> tuple[str, ...]:
    read = reading(cell)
    law: object = (lambda before, after: read(before) and read(after)) if kind == "step" else read
    law = NoLongerThan(SECOND, lambda state: None if read(state) else Instant(0)) if kind == "no longer" else law
    said = {"always": {}, "step": {}, {"no longer": "always"}.get(kind, kind): {"L": law}}
    actors = (Process("p", factory(fills)), Process("pp", factory(asks_nothing)))
    clock = Clock(SECOND, horizon=2 * SECOND) if kind == "no longer" else None
    found = explore(scenario(world=JOBS, actors=actors, clock=clock, **said)).uncovered
    return tuple(line for line in found if " reads " in line)


KINDS: Final = ("always", "step", "eventually", "sometimes", "no longer")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("cell", "what", "todo"),
    [
        ("job", "the collection 'job'", "did you mean 'jobs'?"),
        ("in job", "the collection 'job'", "did you mean 'jobs'?"),
        ("xyz", "the collection 'xyz'", "if it is meant to be empty, begin the world with it: world_with({'xyz': ()})"),
        ("of ppp", "the notes of 'ppp'", "did you mean 'pp'?"),
        ("of xyz", "the notes of 'xyz'", "there are: p, pp"),
    ],
)
def test_a_law_about_what_no_state_has_is_reported(kind: str, cell: str, what: str, todo: str) -> None:
    """A misspelt collection is empty, so the law holds; the report suggests the nearest name."""
    whose = "goal 'L'" if kind == "sometimes" else "law 'L'"
    assert uncovered(kind, cell) == (f"{whose} reads {what}, which no state has, so that it is always empty; {todo}",)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cell", ["jobs", "in jobs", "empty", "in empty", "of p", "of pp", "of p 1"])
def test_a_law_about_what_was_there_once_is_not_reported(kind: str, cell: str) -> None:
    assert uncovered(kind, cell) == ()


def test_the_notes_of_nobody_are_reported_where_nobody_has_notes() -> None:
    asked = scenario(actors=(Process("p", factory(asks_nothing)),), always={"L": reading("of q")}, budget=0)
    told = "a law, or a meaning, reads the notes of 'q', which no state has, so that it is always empty; there are: p"
    assert told in explore(asked).uncovered
    assert told in explore(asked, Exploration(require_sometimes=True)).reason


def test_what_a_bound_cuts_off_is_reported() -> None:
    done = {"it is done": lambda state: str(state.status("p")) == 'finished: "done"'}
    report = explore(scenario(sometimes=done, eventually=done), Exploration(depth_max=1))
    assert (report.verdict, report.reason) == (Verdict.INCONCLUSIVE, "1 step was taken from the beginning")
    assert report.uncovered == (
        "1 state from depth 1 on was not looked beyond",
        "goal never reached: it is done",
        "fault lost_reply never struck",
        LATE,
        "nothing came to rest for the law: it is done",
    )
    assert report.to_json()["uncovered"] == list(report.uncovered)


@pytest.mark.parametrize("how", [EXHAUSTIVE, Exploration(runs=9)], ids=["exhaustive", "random"])
@pytest.mark.parametrize(
    ("changes", "uncovered"),
    [
        ({"always": {}}, ("no law is stated, so none can be broken",)),
        ({"always": {"L": ()}}, ("law 'L' has no predicates, so it cannot be broken",)),
        (
            {"actors": (Process("p", factory(asks_nothing)),)},
            ("nothing ever happens: does the program forget an await?",),
        ),
        (
            {"actors": (Process("p", factory(asks_nothing)),), "clock": Clock(SECOND, moves=2)},
            ("nothing ever happens: does the program forget an await?",),
        ),
        ({}, ()),
    ],
    ids=["no law", "no predicate", "no step", "only time passes", "fine"],
)
def test_a_scenario_in_which_nothing_can_be_found_says_so(
    changes: dict[str, object], uncovered: tuple[str, ...], how: Exploration
) -> None:
    empty = scenario(**{"budget": 0, **changes})
    assert explore(empty, how, seeding=Random).uncovered == uncovered
    required = explore(empty, Exploration(require_sometimes=True))
    assert (required.verdict, required.reason) == (
        Verdict.INCONCLUSIVE if uncovered else Verdict.COMPLETE,
        "; ".join(uncovered),
    )


async def sleeps_and_looks() -> object:
    await Sleep(3 * SECOND)
    return await find_one("rows", OlderThan(Field[Instant]("since"), 5 * SECOND)) is None


@pytest.mark.parametrize(("moves", "lengths"), [(0, ("5 s",)), (2, ("10 s",)), (3, ())])
def test_a_sleep_that_ends_in_no_run_is_reported(moves: int, lengths: tuple[str, ...]) -> None:
    async def sleeps_twice() -> None:
        await Sleep(5 * SECOND)
        await Note("at", 1)
        await Sleep(10 * SECOND)

    timed = scenario(actors=(Process("p", factory(sleeps_twice)),), clock=Clock(5 * SECOND, moves=moves), budget=0)
    found = re.compile(r"test_coverage\.py:\d+ .*sleeps_twice: no run comes to the end of a sleep of (\d+ s), because ")
    told = [said[1] for line in explore(timed).uncovered if (said := found.search(line))]
    assert told == list(lengths)


@pytest.mark.parametrize(
    ("moves", "told"), [(0, "no run comes to the end of a sleep of 5 s"), (2, "some sleeps of 5 s end in no run")]
)
def test_a_sleep_in_a_loop_that_ends_in_no_run_is_reported(moves: int, told: str) -> None:
    """Other sleeps at the line end, but what follows the last was not explored."""

    async def pause() -> None:
        await Sleep(5 * SECOND)

    async def tries_three_times() -> str:
        for _ in range(3):
            await pause()
        return "gave up"

    async def keeps_what_it_tried() -> int:
        tried = list[int]()
        while len(tried) < 3:
            tried.append(len(tried))
            await pause()
        return len(tried)

    def timed(program: Callable[[], Coroutine[Effect[object], object, object]], moves: int) -> Scenario:
        return scenario(actors=(Process("p", factory(program)),), clock=Clock(5 * SECOND, moves=moves), budget=0)

    for program in (tries_three_times, keeps_what_it_tried):
        (said,) = [line for line in explore(timed(program, moves)).uncovered if "no run" in line]
        assert re.search(rf"test_coverage\.py:\d+ .*pause: {told}, because the clock has {moves} moves: ", said)
        assert ("keep immutable values" in said) == (moves > 0 and program is keeps_what_it_tried)
        assert explore(timed(program, 3)).uncovered == ()


def test_who_keeps_an_instant_does_not_sleep_elsewhere_each_time() -> None:
    async def waits() -> bool:
        began = await StoreTime()
        row = await find_one("rows", Eq(ID, "0"))
        await Sleep(5 * SECOND)
        return row is None or began == await StoreTime()

    aged = Document.of({"_id": "0", "since": Instant(0)})
    actors = (Process("p", factory(waits)), Process("q", factory(touches)))
    timed = scenario(world=world_with({"rows": (aged,)}), actors=actors, clock=Clock(5 * SECOND, moves=2), budget=0)
    assert [line for line in explore(timed).uncovered if "in no run" in line] == []


async def touches() -> None:
    await update_one("rows", Eq(ID, "0"), PutServerTime(Field[Instant]("since")))


@pytest.mark.parametrize(("quantum", "lengths"), [(1, ()), (2, ("3 s", "5 s", "7 s")), (6, ("7 s",))])
def test_a_length_of_time_that_the_quantum_does_not_divide_is_reported(quantum: int, lengths: tuple[str, ...]) -> None:
    """Two may end at one move, which otherwise would not. Shorter ones end at a move."""
    timed = scenario(
        world=world_with({"rows": ()}),
        actors=(Process("p", factory(sleeps_and_looks)),),
        clock=Clock(quantum * SECOND, horizon=12 * SECOND),
        always={"L": NoLongerThan(7 * SECOND, lambda _: None)},
        budget=0,
    )
    said = [each.partition(" are no multiple of the quantum of ")[0] for each in explore(timed).uncovered]
    assert said == list(lengths)


@pytest.mark.parametrize(
    ("clock", "began", "why"),
    [
        (None, 0, "time stands; give the scenario clock="),
        (Clock(SECOND), 0, "time stands; give its clock more moves, or a horizon"),
        (Clock(SECOND, moves=2), 0, "only 2 s pass; give its clock more moves"),
        (Clock(SECOND, moves=3), 0, ""),
        (Clock(SECOND, horizon=3 * SECOND), 0, ""),
        (None, -3 * SECOND, ""),
    ],
)
def test_an_age_that_nothing_reaches_is_reported(clock: Clock | None, began: int, why: str) -> None:
    async def takes() -> None:
        at = Field[Instant]("at")
        await update_one("rows", OlderThan(at, 3 * SECOND), PutServerTime(at))

    world = world_with({"rows": (Document.of({"_id": "x", "at": Instant(began)}),)})
    found = explore(scenario(world=world, actors=(Process("p", factory(takes)),), clock=clock)).uncovered
    assert len(found) == bool(why)
    for told in found:
        assert told.startswith(f"nothing ever becomes 3 s old, as a filter asks (OlderThan), because {why}")


N: Final = Field[int]("n")
ADD: Final = update_many("rows", Exists(ID), Add(N, 1))


def rows(number: int, held: object = 0) -> tuple[Document, ...]:
    return tuple(Document.of({"_id": str(each), "n": held}) for each in range(number))


async def adds_and_inserts(number: int) -> None:
    with suppress(Ambiguous):
        await ADD
    await insert_many("rows", *rows(number))


def commands(_: object, event: object) -> Step[object, Effect[object]]:
    return Step(event, (ADD,) if event == "go" else ())


def adding(number: int, *faults: Fault) -> tuple[Actor, ...]:
    return Process("p", factory(adds_and_inserts, number), Faults.of(*faults)), Network()


def commanding(carried_out: Callable[[Effect[object]], Program[object] | None] = lambda _: None) -> tuple[Actor, ...]:
    return (ReducerProcess("p", "", commands, lambda *_: None, carried_out=carried_out),)


@pytest.mark.parametrize(("number", "unique", "is_told"), [(7, "n", True), (6, "n", False), (7, "", False)])
def test_a_statement_of_too_many_documents_is_reported_where_their_order_matters(
    number: int, unique: str, *, is_told: bool
) -> None:
    async def states() -> None:
        await InTransaction(Transaction("p", 1), ADD, begins=True)

    docs = tuple(doc.put(N, n) for n, doc in enumerate(rows(number)))
    world = world_with({"rows": docs}, unique={"rows": ((Field(unique),),)} if unique else {})
    report = explore(scenario(world=world, actors=(Process("p", factory(states)),)))
    assert any("in a transaction: a unique index may refuse" in line for line in report.uncovered) == is_told


@pytest.mark.parametrize(
    ("actors", "there", "told"),
    [
        (adding(6), rows(6), []),
        (adding(1), rows(8), ["adds_and_inserts: UpdateMany of 8"]),
        (adding(1), rows(7, "no number"), ["adds_and_inserts: UpdateMany of 7"]),
        (adding(7), (), ["adds_and_inserts: InsertMany of 7"]),
        (adding(7), rows(6), ["adds_and_inserts: InsertMany of 7"]),
        (adding(7, Fault.LATE), rows(6), ["adds_and_inserts: UpdateMany of 7", "adds_and_inserts: InsertMany of 7"]),
        (commanding(), rows(6), []),
        (commanding(), rows(7), ["commands: UpdateMany of 7"]),
        (commanding(lambda _: adds_and_inserts(1)), rows(7), ["adds_and_inserts: UpdateMany of 7"]),
    ],
)
def test_a_write_of_too_many_documents_is_reported(
    actors: tuple[Actor, ...], there: tuple[Document, ...], told: list[str]
) -> None:
    world = world_with({"rows": there}).write(inbox("p"), ("go",))
    many = scenario(world=world, actors=actors)

    def said(how: Exploration) -> list[str]:
        found = [line for line in explore(many, how).uncovered if "all but the last 6 are written in one step" in line]
        return [line.partition(" ")[2].partition(" documents of rows: ")[0] for line in found]

    assert (said(EXHAUSTIVE), said(Exploration(depth_max=0))) == (told, [])


UPSERT: Final = upsert_one("rows", AllOf((Eq(ID, "2"), Eq(N, 0))), Add(N, 1))
WRITES: Final = Cell[int](("writes",), 0)


def counting(effect: Effect[object], world: World, who: str) -> Outcomes:
    return (
        (after.write(WRITES, world.read(WRITES) + (effect in (ADD, UPSERT))), it)
        for after, it in perform(effect, world, who)
    )


def failing(effect: Effect[object], world: World, who: str) -> Outcomes:
    yield from perform(effect, world, who)
    if effect in (ADD, UPSERT):
        yield world, Refused("full")


def plain(effect: Effect[object], world: World, who: str) -> Outcomes:
    return perform(effect, world, who)


@pytest.mark.parametrize("effect", [ADD, UPSERT], ids=["many", "upsert"])
@pytest.mark.parametrize(("meaning", "is_at_once"), [(counting, True), (failing, True), (plain, False)])
def test_a_meaning_that_does_more_for_many_than_for_each_does_it_at_once_and_that_is_reported(
    effect: Effect[object], meaning: Meaning, *, is_at_once: bool
) -> None:
    async def asks() -> None:
        await effect

    def is_counted(state: State) -> bool:
        return meaning is not counting or state.read(WRITES) == isinstance(state.status("p"), Returned)

    actors = (Process("p", factory(asks), meaning=meaning),)
    report = explore(scenario(world=world_with({"rows": rows(2)}), actors=actors, always={"counted": is_counted}))
    told = [line for line in report.uncovered if f"{type(effect).__name__} in rows is done at once" in line]
    assert (report.verdict, len(told)) == (Verdict.COMPLETE, is_at_once)


def refusing(effect: Effect[object], world: World, who: str) -> Outcomes:
    if effect == ADD:
        yield world, Refused("read only")
    else:
        yield from perform(effect, world, who)


def waiting(effect: Effect[object], world: World, who: str) -> Outcomes:
    if effect != ADD:
        yield from perform(effect, world, who)


@pytest.mark.parametrize("meaning", [refusing, waiting, counting, plain])
def test_what_a_meaning_does_at_once_is_not_done_in_part(meaning: Meaning) -> None:
    async def asks() -> None:
        await ADD

    def is_as_meant(state: State) -> bool:
        changed = sum(row[N] for row in contents(state, "rows"))
        return meaning is plain or changed == 0 or state.read(WRITES) == 1

    actors = (Process("p", factory(asks), Faults.of(Fault.PARTLY_DONE), meaning, raises=True),)
    report = explore(scenario(world=world_with({"rows": rows(2)}), actors=actors, always={"as meant": is_as_meant}))
    assert (report.verdict, bool(report.faults.get(Fault.PARTLY_DONE))) == (Verdict.COMPLETE, meaning is plain)


@pytest.mark.parametrize("require_sometimes", [False, True])
def test_where_only_time_ran_out_laws_about_rest_are_said_not_to_be_judged(*, require_sometimes: bool) -> None:
    async def sleeps() -> None:
        for _ in range(int(str(await Call("how often")))):
            await Sleep(SECOND)

    done: dict[str, Law] = {"it is done": lambda state: isinstance(state.status("p"), Returned)}
    uncovered = (
        "1 state rests or loops only because the clock has no moves left: laws about rest were not checked there; "
        "give the clock more moves"
    )
    for replies, expected in (((0,), ()), ((0, 1), (uncovered,))):
        actors = (Process("p", factory(sleeps), meaning=calling({"how often": replies})),)
        bounded = scenario(actors=actors, clock=Clock(SECOND, moves=1), eventually=done, budget=0)
        report = explore(bounded, Exploration(require_sometimes=require_sometimes))
        assert (report.verdict, report.uncovered) == (Verdict.COMPLETE, expected)
        assert (report.cut_short, report.to_json()["cut_short"]) == (len(expected), len(expected))


@pytest.mark.parametrize("require_sometimes", [False, True])
def test_a_counterexample_needs_no_coverage(*, require_sometimes: bool) -> None:
    never = {"never": lambda _: False}
    report = explore(scenario(always=never), Exploration(require_sometimes=require_sometimes))
    assert (report.verdict, report.uncovered) == (Verdict.VIOLATED, ())


async def says_anyway() -> str:
    try:
        return await says()
    except Ambiguous:
        return "perhaps"


@pytest.mark.parametrize("how", [EXHAUSTIVE, Exploration(runs=20, seed="1")], ids=["whole", "random runs"])
@pytest.mark.parametrize("kind", [Fault.LOST_REPLY, Fault.UNSENT])
def test_who_ends_without_knowing_what_was_done_is_told(kind: Fault, how: Exploration) -> None:
    def uncovered_of(program: Callable[[], Program[object]], *, raises: bool) -> tuple[str, ...]:
        processes = [
            Process(name, factory(program), Faults.of(kind), calling({"ask": (1,)}), raises=raises) for name in "pq"
        ]
        report = explore(scenario(actors=tuple(processes)), how, seeding=Random)
        assert report.verdict is (Verdict.INCONCLUSIVE if how.runs else Verdict.COMPLETE)
        return report.uncovered

    told = uncovered_of(says, raises=False)
    assert [each.partition(":")[0] for each in told] == ["p, q"] * (kind is Fault.LOST_REPLY)
    assert all("ends by an uncaught Ambiguous after the await at " in each and " says, so" in each for each in told)
    assert uncovered_of(says, raises=True) == uncovered_of(says_anyway, raises=False) == ()


@asynccontextmanager
async def asked() -> AsyncIterator[None]:
    await says()
    yield


async def enters() -> None:
    async with asked():
        pass


def test_the_line_of_who_ends_without_knowing_is_one_of_the_user() -> None:
    """An `async with` awaits in lines of the standard library."""
    process = Process("p", factory(enters), Faults.of(Fault.LOST_REPLY), calling({"ask": (1,)}))
    (told,) = explore(scenario(actors=(process,))).uncovered
    assert re.search(r"after the await at .*test_coverage\.py:\d+ enters, so nobody", told)


@OF_DESIGNS
@pytest.mark.parametrize("name", ["transition", "transition.stale"])
def test_what_ships_knows_what_was_done_or_says_that_its_caller_does(name: str) -> None:
    assert report_on(name).uncovered == ()
