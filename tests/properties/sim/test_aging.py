"""Relative time is an exact, finite quotient of absolute time, abandoned where it does not fit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from operator import index
from random import Random  # noqa: TID251  seeded by Hypothesis
from typing import Final, NamedTuple

import attrs
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.properties.plain_search import explored

from tidegate.model.documents import (
    ID,
    Add,
    AllOf,
    AnyOf,
    Ascending,
    Document,
    Eq,
    Exists,
    Field,
    Gt,
    Lt,
    OlderThan,
    Put,
    PutServerTime,
    equal,
    exactly,
    show,
    sort_key,
)
from tidegate.model.effects import Call, Effect, Note, Now, Refused, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, STORE, WALL, Duration, Instant
from tidegate.model.operations import StoreTime, find_all, find_one, find_one_and_update, update_one
from tidegate.model.reducer import Step
from tidegate.model.transactions import InTransaction, Transaction
from tidegate.sim.program.automaton import Returned
from tidegate.sim.program.relative_time import aged, holds_instant
from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.replay import Reproduced, replay
from tidegate.sim.runs.report import Report, Verdict, explore
from tidegate.sim.scenario import Clock, Scenario, State
from tidegate.sim.search.search import Explored
from tidegate.sim.search.steppers import UNAGED
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.servers.reducers import ReducerProcess
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import (
    CLOCK,
    MOVES,
    Cell,
    Outcomes,
    Plain,
    World,
    calling,
    contents,
    document,
    inbox,
    perform,
    world_with,
)

HOLDER = Field[str]("holder")
AT = Field[Instant]("at")
TOKEN = Field[int]("token")
FENCE = Field[int]("fence")
LEASE, THING = Eq(ID, "lease"), Eq(ID, "thing")
LEASES = "leases"


# --- a lease ------------------------------------------------------------------------------------------------------------


async def worker(me: str, ttl: Duration) -> str:
    token: int | None = None
    for attempt in range(2):
        if attempt:
            await Sleep(ttl)
        free = AllOf((LEASE, AnyOf((Eq(HOLDER, ""), OlderThan(AT, ttl)))))
        lease = await find_one_and_update(LEASES, free, Put(HOLDER, me), PutServerTime(AT), Add(TOKEN, 1))
        if lease is not None:
            token = lease[TOKEN]
            break
    if token is None:
        return "no lease"
    mine = AllOf((LEASE, Eq(HOLDER, me), Eq(TOKEN, token)))
    for _ in range(2):
        if await find_one_and_update(LEASES, AllOf((THING, Lt(FENCE, token + 1))), Put(FENCE, token)) is None:
            return "fenced off"
        if not await update_one(LEASES, mine, PutServerTime(AT)):
            return "lost it"
    await update_one(LEASES, mine, Put(HOLDER, ""))
    return "done"


def leases(workers: int, ttl: Duration, *kinds: Fault) -> Scenario:
    lease = Document.of({"_id": "lease", "holder": "", "at": Instant(0), "token": 0})
    thing = Document.of({"_id": "thing", "fence": 0})
    names = [f"w{number}" for number in range(workers)]
    return Scenario(
        name="lease",
        summary="",
        world=world_with({LEASES: (lease, thing)}),
        actors=(*(Process(name, factory(worker, name, ttl), Faults.of(*kinds)) for name in names), Network()),
        budget=1 if kinds else 0,
        clock=Clock(SECOND, horizon=ttl),
        step={"the fence never falls": lambda before, after: fence(before) <= fence(after)},
        sometimes={"one is done": lambda state: any(state.status(name) == Returned("done") for name in names)},
    )


def fence(state: State) -> int:
    thing = state.read(document(LEASES, "thing"))
    assert thing is not None
    return thing[FENCE]


def with_clock(scenario: Scenario, moves: int) -> Scenario:
    assert scenario.clock is not None
    return attrs.evolve(scenario, clock=Clock(scenario.clock.quantum, moves=moves))


def forms(found: Explored, horizon: Duration) -> set[object]:
    packing = found.search.space.packing
    slots = [slot for slot in packing.slots.values() if slot.name not in (CLOCK.name, MOVES.name)]
    now = packing.slot(CLOCK)
    seen: set[object] = set()
    for state in found.search.seen:
        at = now.get(state)
        assert isinstance(at, Instant)
        form = []
        for slot in slots:
            value = slot.get(state)
            older = value if slot.name[0] in UNAGED else aged(value, at.at, horizon)
            if exactly(older) != exactly(slot.values[0]):
                form.append((slot.name, exactly(older)))
        seen.add(frozenset(form))
    return seen


def check_quotient(scenario: Scenario, moves: int) -> Explored:
    assert scenario.clock is not None
    horizon = scenario.clock.horizon
    assert horizon is not None
    relative = explored(scenario)
    assert relative.search.space.relative
    for few in (1, moves // 2):
        assert forms(explored(with_clock(scenario, few)), horizon) <= forms(relative, horizon)
    assert forms(explored(with_clock(scenario, moves)), horizon) == forms(relative, horizon)
    assert len(forms(relative, horizon)) == relative.states
    return relative


@pytest.mark.parametrize(
    ("workers", "ttl", "kinds", "moves"),
    [
        (1, SECOND, (), 8),
        (2, SECOND, (), 8),
        (2, 2 * SECOND, (), 16),
        (2, SECOND, (Fault.CRASH_BEFORE,), 8),
        (2, SECOND, (Fault.LATE,), 8),
    ],
)
def test_relative_states_are_the_forms_of_absolute_ones(
    workers: int, ttl: Duration, kinds: tuple[Fault, ...], moves: int
) -> None:
    check_quotient(leases(workers, ttl, *kinds), moves)


def test_time_without_bounds_has_finitely_many_states() -> None:
    report = explore(leases(3, 2 * SECOND))
    assert report.verdict is Verdict.COMPLETE
    assert report.time == "relative time, quantum 1 s"


ROW = Eq(ID, "x")


async def little(words: tuple[str, ...]) -> tuple[object, ...]:
    seen: tuple[object, ...] = ()
    for word in words:
        match word:
            case "touch":
                await update_one("rows", ROW, PutServerTime(AT))
            case "sleep":
                await Sleep(SECOND)
            case "sleep long":
                await Sleep(3 * SECOND)
            case "old":
                count = await update_one("rows", AllOf((ROW, OlderThan(AT, SECOND))), Put(HOLDER, "old"))
                seen = (*seen, count)
            case _:
                row = await find_one("rows", AnyOf((OlderThan(AT, 2 * SECOND), Eq(HOLDER, "old"))))
                seen = (*seen, row is not None)
    return seen


def little_scenario(random: Random) -> Scenario:
    words = ("touch", "sleep", "sleep long", "old", "older")
    programs = (tuple(random.choice(words) for _ in range(random.randint(1, 3))) for _ in range(random.randint(1, 2)))
    row = Document.of({"_id": "x", "holder": "", "at": Instant(-SECOND * random.randint(0, 2))})
    return Scenario(
        name="little",
        summary="",
        world=world_with({"rows": (row,)}),
        actors=tuple(Process(f"p{number}", factory(little, words)) for number, words in enumerate(programs)),
        clock=Clock(SECOND, horizon=2 * SECOND),
    )


def check_random_programs() -> None:
    @settings(max_examples=40, phases=[Phase.generate])
    @given(st.integers(0, 2**32))
    def is_quotient(seed: int) -> None:
        check_quotient(little_scenario(Random(seed)), 16)

    is_quotient()


def test_relative_states_are_the_forms_of_absolute_ones_for_random_programs() -> None:
    check_random_programs()


def aged_too_far(value: object, by: Duration, horizon: Duration) -> object:
    return aged(value, by, horizon - SECOND)


def never_saturated(value: object, by: Duration, horizon: Duration) -> object:
    return aged(value, by, horizon + SECOND)


def documents_only(value: object, by: Duration, horizon: Duration) -> object:
    return value if isinstance(value, Instant) else aged(value, by, horizon)


@pytest.mark.parametrize("bug", [aged_too_far, never_saturated, documents_only])
def test_a_planted_bug_in_aging_is_not_a_quotient(bug: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Saturating too early merges too much, too late too little; alarms must come nearer."""
    monkeypatch.setattr(sys.modules["tidegate.sim.search.steppers"], "aged", bug)
    with pytest.raises(AssertionError):
        check_random_programs()


# --- laws and rest in relative time -------------------------------------------------------------------------------------


def since(state: State) -> Duration:
    row = state.read(document("rows", "x"))
    assert row is not None
    return state.read(CLOCK) - row[AT]


async def touches() -> None:
    await update_one("rows", ROW, PutServerTime(AT))
    await Sleep(SECOND)
    await update_one("rows", ROW, PutServerTime(AT))


def touching() -> Scenario:
    row = Document.of({"_id": "x", "at": Instant(0)})
    return Scenario(
        name="touching",
        summary="",
        world=world_with({"rows": (row,)}),
        actors=(Process("p", factory(touches)),),
        clock=Clock(SECOND, horizon=3 * SECOND, moves=4),
    )


LAWS: dict[str, Callable[[Scenario], Scenario]] = {
    "always": lambda scenario: attrs.evolve(scenario, always={"young": lambda state: since(state) < 3 * SECOND}),
    "step": lambda scenario: attrs.evolve(
        scenario, step={"young": lambda before, after: since(before) == since(after) or since(after) < 2 * SECOND}
    ),
}


@pytest.mark.parametrize("law", LAWS)
def test_time_that_passes_can_break_a_law(law: str) -> None:
    relative = explore(LAWS[law](touching()))
    absolute = explore(LAWS[law](with_clock(touching(), 4)))
    assert relative.trace is not None
    assert absolute.trace is not None
    assert len(relative.trace.steps) == len(absolute.trace.steps) == (3 if law == "always" else 2)
    assert relative.trace.steps[-1].event == absolute.trace.steps[-1].event == "1 s pass"


@pytest.mark.parametrize("law", LAWS)
def test_a_run_in_relative_time_is_replayed(law: str) -> None:
    trace = explore(LAWS[law](touching())).trace
    assert trace is not None
    assert replay(trace, LAWS[law](touching())) == Reproduced(len(trace.steps))
    standing_still = attrs.evolve(
        touching(),
        world=Plain(),
        actors=(Process("p", factory(finds)),),
        always={"never": lambda state: not is_done(state)},
    )
    trace = explore(standing_still).trace
    assert trace is not None
    assert replay(trace, standing_still) == Reproduced(1)


async def finds() -> str:
    await find_one("rows", ROW)
    return "done"


def is_done(state: State) -> bool:
    return state.status("p") == Returned("done")


def test_a_reducer_ages_as_cells_do() -> None:
    reducer = ReducerProcess("r", (), lambda _, event: Step((event,)), lambda *_: None)
    scenario = Scenario(
        name="reducer",
        summary="",
        world=Plain().write(inbox("r"), (Instant(0), Instant(-SECOND))),
        actors=(reducer,),
        clock=Clock(SECOND, horizon=2 * SECOND),
    )
    found = check_quotient(scenario, 6)
    assert found.resting == 1


def test_rest_comes_when_time_changes_nothing_any_more() -> None:
    found = explored(attrs.evolve(touching(), eventually={"it is old": lambda state: since(state) >= 3 * SECOND}))
    assert (found.broken, found.resting, found.cut_short) == (None, 1, 0)
    assert found.search.space.relative


def test_time_cut_short_is_not_a_rest() -> None:
    cut = attrs.evolve(with_clock(touching(), 0), eventually={"it never rests": lambda _: False})
    found = explored(cut)
    assert (found.broken, found.resting, found.cut_short) == (None, 0, 1)
    report = explore(cut)
    assert (report.verdict, report.reason) == (
        Verdict.INCONCLUSIVE,
        "nothing comes to rest, so the laws about rest say nothing",
    )


LOCK = Cell[int](("lock",), 0)


def locking(effect: Effect[object], world: World, who: str) -> Outcomes:
    if effect != Call("lock"):
        yield from perform(effect, world, who)
    elif world.read(LOCK) == 0:
        yield world.write(LOCK, 1), None


async def locks() -> str:
    await Call("lock")
    return "locked"


@pytest.mark.parametrize(
    "clock", [None, Clock(SECOND, moves=1), Clock(SECOND, horizon=SECOND)], ids=["none", "absolute", "relative"]
)
def test_a_deadlock_is_rest_whatever_the_clock(clock: Clock | None) -> None:
    report = explore(
        Scenario(
            name="deadlock",
            summary="",
            world=Plain(),
            actors=tuple(Process(name, factory(locks), meaning=locking) for name in ("a", "b")),
            clock=clock,
            eventually={"both lock": lambda state: state.status("a") == state.status("b")},
        )
    )
    assert (report.verdict, report.law) == (Verdict.VIOLATED, "both lock")


def test_a_reducer_that_waits_is_at_rest_in_absolute_time() -> None:
    waits = ReducerProcess(
        "r", 0, lambda state, _: Step(state, (Call("lock"),)), lambda *_: None, meaning=lambda *_: iter(())
    )
    found = explored(
        Scenario(
            name="reducer",
            summary="",
            world=Plain().write(inbox("r"), ("go",)),
            actors=(waits,),
            clock=Clock(SECOND, moves=1),
        )
    )
    assert (found.resting, found.cut_short) == (1, 0)


# --- where it does not fit ----------------------------------------------------------------------------------------------


async def keeps_an_instant() -> object:
    row = await find_one("rows", ROW)
    await Sleep(SECOND)
    again = await find_one("rows", ROW)
    return again[AT] - row[AT] if row and again else None


async def keeps_a_list() -> object:
    ages: list[int] = []
    row = await find_one("rows", ROW)
    del row
    await Sleep(SECOND)
    return len(ages)


async def reads_its_clock() -> object:
    await Now()
    return None


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (keeps_an_instant, "p holds an instant in `row` at "),
        (keeps_a_list, "p may hold the instant that it was given "),
        (reads_its_clock, "p uses an instant as a number, "),
    ],
)
def test_a_program_with_an_instant_falls_back_to_absolute_time_and_the_report_says_why(
    program: Callable[[], Coroutine[Effect[object], object, object]], why: str
) -> None:
    scenario = attrs.evolve(
        touching(),
        actors=(Process("p", factory(program)),),
        always={"no time has passed": lambda state: state.status("p") in (Returned(0), Returned(None)) or True},
    )
    report = explore(scenario)
    assert report.verdict is Verdict.COMPLETE
    assert report.time.startswith(f"absolute time, 4 moves of 1 s, for {why}")
    assert f" {program.__name__}" in report.time
    with pytest.raises(Misuse, match=f"relative time does not fit: {why}"):
        explore(attrs.evolve(scenario, clock=Clock(SECOND, horizon=SECOND)))


async def awaits_in_two_excepts() -> object:
    """The inner error has the outer one as context, so it is no value."""
    try:
        await Call("ask")
    except Refused:
        try:
            await Call("ask")
        except Refused:
            row = await find_one("rows", ROW)
            del row
            await find_one("rows", ROW)
    return None


def test_who_awaits_while_it_handles_an_error_is_told_to_do_so_after_it() -> None:
    process = Process("p", factory(awaits_in_two_excepts), meaning=calling({"ask": (Refused("no"),)}))
    scenario = attrs.evolve(touching(), actors=(process,), clock=Clock(SECOND, horizon=SECOND))
    with pytest.raises(Misuse) as raised:
        explore(scenario)
    assert raised.value.todo.startswith("await after the `except`, not in it; or ")


STAMP: Final = Field[Instant]("stamp")
STAMPED: Final = {"stamps": (Document.of({"_id": "x"}), Document.of({"_id": "y"}))}


async def stamps() -> None:
    await update_one("stamps", Eq(ID, "x"), PutServerTime(STAMP))
    await update_one("stamps", Eq(ID, "y"), PutServerTime(STAMP))


async def apart() -> int | None:
    found = await find_all("stamps", limit=2)
    return found[1][STAMP] - found[0][STAMP] if all(doc.has(STAMP) for doc in found) else None


async def compares_two_stamps_beyond_the_horizon() -> object:
    between = await apart()
    return "bad" if between is not None and between >= 5 * SECOND else None


async def compares_two_stamps_exactly() -> object:
    return "bad" if await apart() == 3 * SECOND else None


async def takes_a_remainder() -> object:
    return "bad" if (await StoreTime()).at // SECOND % 3 == 1 else None


async def keeps_the_number_of_an_instant() -> object:
    first = (await StoreTime()).at
    second = (await StoreTime()).at
    return "bad" if second - first >= SECOND else None


async def keeps_the_text_of_an_instant() -> object:
    first = str(await StoreTime())
    await Note("between", 0)
    return None if first == str(await StoreTime()) else "bad"


LOOKS_AT_MORE: Final = (
    compares_two_stamps_beyond_the_horizon,
    compares_two_stamps_exactly,
    takes_a_remainder,
    keeps_the_number_of_an_instant,
    keeps_the_text_of_an_instant,
)


def looking(program: Callable[[], Coroutine[Effect[object], object, object]], clock: Clock) -> Scenario:
    return Scenario(
        name="looking",
        summary="",
        world=world_with(STAMPED),
        actors=(Process("w", factory(stamps)), Process("p", factory(program))),
        clock=clock,
        always={"nothing is bad": lambda state: state.status("p") != Returned("bad")},
    )


@pytest.mark.parametrize("runs", [False, True], ids=["whole", "random runs"])
@pytest.mark.parametrize("program", LOOKS_AT_MORE)
def test_whoever_looks_at_more_than_ages_is_noticed(
    program: Callable[[], Coroutine[Effect[object], object, object]], *, runs: bool
) -> None:
    how = Exploration(seed="1", runs=1_000) if runs else Exploration()
    absolute = explore(looking(program, Clock(SECOND, moves=7)), how, seeding=Random)
    assert absolute.verdict is Verdict.VIOLATED
    fallen_back = explore(looking(program, Clock(SECOND, horizon=2 * SECOND, moves=7)), how, seeding=Random)
    assert fallen_back.verdict is Verdict.VIOLATED
    assert fallen_back.time.startswith("absolute time, 7 moves of 1 s, for p ")
    assert f" {program.__name__}" in fallen_back.time or " apart" in fallen_back.time
    with pytest.raises(Misuse, match=r"relative time does not fit: p (uses|compares|subtracts)"):
        explore(looking(program, Clock(SECOND, horizon=2 * SECOND)), how, seeding=Random)


def test_a_law_that_compares_stamps_beyond_the_horizon_is_noticed() -> None:
    def within(longest: Duration) -> Callable[[State], bool]:
        def holds(state: State) -> bool:
            x, y = contents(state, "stamps")
            return not (x.has(STAMP) and y.has(STAMP)) or y[STAMP] - x[STAMP] <= longest

        return holds

    def judged(longest: Duration, clock: Clock) -> Report:
        scenario = looking(stamps, clock)
        return explore(attrs.evolve(scenario, actors=scenario.actors[:1], always={"L": within(longest)}))

    far = Clock(SECOND, horizon=2 * SECOND, moves=6)
    assert judged(4 * SECOND, far).verdict is Verdict.VIOLATED
    assert judged(4 * SECOND, far).time.startswith(
        "absolute time, 6 moves of 1 s, for the law 'L' subtracts two instants"
    )
    with pytest.raises(Misuse, match="the law 'L' subtracts two instants that lie 2 s back or more at "):
        judged(4 * SECOND, attrs.evolve(far, moves=0))


@attrs.frozen
class Seen:
    at: Instant


def test_a_reducer_that_looks_at_more_than_ages_is_noticed() -> None:
    def step(state: int, event: Seen) -> Step[object, Effect[object]]:
        return Step(event.at.at // SECOND % 3 + state, ())

    tells = ReducerProcess("r", 0, step, lambda _, __: None)
    scenario = Scenario(
        name="remainders",
        summary="",
        world=Plain().write(inbox("r"), (Seen(Instant(0, STORE)),)),
        actors=(tells,),
        clock=Clock(SECOND, horizon=2 * SECOND),
        always={"L": lambda _: True},
    )
    with pytest.raises(Misuse, match="r uses an instant as a number, "):
        explore(scenario)


SEEN: Final = Field[Instant]("seen")
JOBS: Final = {"jobs": tuple(Document.of({"_id": key}) for key in "ab")}
A_JOB, B_JOB = Eq(ID, "a"), Eq(ID, "b")


class Stamped(NamedTuple):
    at: Instant


def stamping(*asks: Effect[object], clock: Clock, **changes: object) -> Scenario:
    async def stamps_both() -> None:
        await update_one("jobs", A_JOB, PutServerTime(SEEN))
        await update_one("jobs", B_JOB, PutServerTime(SEEN))

    async def asks_all() -> None:
        for each in asks:
            await each

    actors = (Process("w", factory(stamps_both)), Process("p", factory(asks_all)))
    return Scenario(name="stamping", summary="", world=world_with(JOBS), actors=actors, clock=clock, **changes)  # type: ignore[arg-type]


NEAR: Final = Clock(SECOND, horizon=2 * SECOND)


def job(state: State, key: str) -> Document:
    doc = state.read(document("jobs", key))
    assert doc is not None
    return doc


def both(use: Callable[[Instant, Instant, Instant], bool]) -> Callable[[State], bool]:
    def law(state: State) -> bool:
        stamps = [job(state, key).held(SEEN) for key in "ab"]
        return not all(isinstance(each, Instant) for each in stamps) or use(state.read(CLOCK), *stamps)  # type: ignore[arg-type]

    return law


PERMITTED: Final[dict[str, Callable[[Instant, Instant, Instant], bool]]] = {
    "an age within the horizon": lambda now, a, _: (now - a <= 2 * SECOND - 1) in (True, False),
    "an age at the horizon": lambda now, a, _: (now - a >= 2 * SECOND) in (True, False),
    "the least of an age and the horizon": lambda now, a, _: min(2 * SECOND, now - a) <= 2 * SECOND,
    "now itself": lambda now, *_: now - now == 0 and now == now,  # noqa: PLR0124
    "a deadline": lambda now, *_: now + SECOND - now == SECOND,
    "itself": lambda _, a, __: a == a,  # noqa: PLR0124
    "its type": lambda _, a, b: all(isinstance(each, Instant) for each in (a, b)),
}
REFUSED: Final[dict[str, Callable[[Instant, Instant, Instant], object]]] = {
    "its number": lambda _, a, __: a.at,
    "its text": lambda _, a, __: str(a),
    "its text in a text": lambda _, a, __: f"{a}",
    "its repr": lambda _, a, __: repr(a),
    "a pattern": lambda _, a, __: matched(a),
    "a field of it": lambda _, a, __: attrs.astuple(a),
    "a constant": lambda _, a, __: a - Instant(0),
    "a constant before": lambda _, a, __: Instant(0) - a,
    "equal to a constant": lambda _, a, __: a == Instant(0),
    "an age beyond the horizon": lambda now, a, _: now - a > 3 * SECOND,
    "an age just at the horizon": lambda now, a, _: now - a > 2 * SECOND,
    "an age that equals": lambda now, a, _: now - a == 2 * SECOND,
    "an age as a number": lambda now, a, _: (now - a) % SECOND,
    "an age in a sum": lambda now, a, _: now - a + 1,
    "an age as a key": lambda now, a, _: {now - a: 1},
    "an age that is true": lambda now, a, _: bool(now - a),
    "an age as an index": lambda now, a, _: index(now - a),
    "an age in a text": lambda now, a, _: f"{now - a}",
    "a negative age": lambda now, a, _: a - now < -3 * SECOND,
    "two that are far": lambda _, a, b: a - b,
    "two that are equal": lambda _, a, b: a == b,
    "a far one and a duration": lambda _, a, __: a + SECOND,
    "an order": lambda _, a, b: sorted((Document.of({"_id": "x", "at": a}), Document.of({"_id": "y", "at": b})), key=lambda doc: sort_key(doc, (Ascending(AT),)) or ()),
    "documents that are equal": lambda _, a, b: Document.of({"at": a}) == Document.of({"at": b}),
    "what MongoDB takes for equal": lambda _, a, b: equal(a, b),
    "a text of a document": lambda _, a, __: show(Document.of({"at": a})),
}  # fmt: skip


def matched(at: object) -> int:
    match at:
        case Instant(number):
            return number
        case _:
            return 0


@pytest.mark.parametrize("use", PERMITTED)
def test_what_relative_time_permits_is_judged(use: str) -> None:
    """Law AG1; each of these laws holds in absolute time."""
    law = {"L": both(PERMITTED[use])}
    assert explore(stamping(clock=NEAR, always=law)).verdict is Verdict.COMPLETE
    assert explore(stamping(clock=Clock(SECOND, moves=6), always=law)).verdict is Verdict.COMPLETE


@pytest.mark.parametrize("use", REFUSED)
@pytest.mark.parametrize("caught", [False, True], ids=["", "caught"])
def test_every_other_use_is_refused_where_it_happens(use: str, *, caught: bool) -> None:
    def uses(*instants: Instant) -> bool:
        try:
            REFUSED[use](*instants)
        except BaseException:
            if not caught:
                raise
        return True

    with pytest.raises(Misuse, match=r"relative time does not fit: the law 'L' .* at .*test_aging.py:"):
        explore(stamping(clock=NEAR, always={"L": both(uses)}))
    assert explore(stamping(clock=attrs.evolve(NEAR, moves=3), always={"L": both(uses)})).time.startswith("absolute")


EFFECTS: Final[dict[str, Effect[object]]] = {
    "a sort": find_one("jobs", Exists(SEEN), sort=(Ascending(SEEN),)),
    "a sort of an update": find_one_and_update("jobs", Exists(SEEN), Put(HOLDER, "p"), sort=(Ascending(SEEN),)),
    "a cursor": find_all("jobs", limit=1, sort=(Ascending(SEEN), Ascending(ID)), after=(Instant(0), "a")),
    "a constant in a filter": find_one("jobs", Lt(SEEN, Instant(0))),
    "a constant that is written": update_one("jobs", A_JOB, Put(SEEN, Instant(0))),
    "an age beyond the horizon": find_one("jobs", OlderThan(SEEN, 3 * SECOND)),
    "a late request": InTransaction(Transaction("t", 1), find_one("jobs", Gt(SEEN, Instant(0))), begins=True),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_an_effect_that_uses_an_instant_otherwise_is_refused_with_its_line(name: str) -> None:
    with pytest.raises(Misuse, match=r"p (uses|compares) .* at .*test_aging.py:.*asks_all, where it is about to "):
        explore(stamping(EFFECTS[name], clock=NEAR))
    commands = ReducerProcess("r", 0, lambda state, _: Step(state, (EFFECTS[name],)), lambda *_: None)
    world = world_with(JOBS).write(inbox("r"), ("go",))
    scenario = attrs.evolve(stamping(clock=NEAR), world=world)
    with pytest.raises(Misuse, match=r"relative time does not fit: r (uses|compares) "):
        explore(attrs.evolve(scenario, actors=(scenario.actors[0], commands)))


def test_a_unique_index_over_instants_is_refused() -> None:
    scenario = stamping(clock=NEAR)
    with pytest.raises(Misuse, match="w uses an instant as a number"):
        explore(attrs.evolve(scenario, world=world_with(JOBS, {"jobs": ((SEEN,),)})))


def test_event_for_and_meanings_are_refused_as_well() -> None:
    def tells(_: Effect[object], reply: object) -> object:
        return reply.at if isinstance(reply, Instant) else None

    def counts(effect: Effect[object], world: World, who: str) -> Outcomes:
        assert world.read(CLOCK).at >= 0
        yield from perform(effect, world, who)

    telling = ReducerProcess("r", 0, lambda state, _: Step(state, (StoreTime(),)), tells)
    counting = ReducerProcess("r", 0, lambda state, _: Step(state, (StoreTime(),)), lambda *_: None, meaning=counts)
    for reducer, where in ((telling, "tells"), (counting, "counts")):
        world = Plain().write(inbox("r"), ("go",))
        scenario = attrs.evolve(stamping(clock=NEAR), world=world, actors=(reducer,))
        with pytest.raises(Misuse, match=f"r uses an instant as a number, .* at .*{where}"):
            explore(scenario)


def test_a_step_law_sees_instants_stay_while_time_passes() -> None:
    unchanged = {"a stamp stays": lambda before, after: not job(before, "a").has(SEEN) or job(before, "a") == job(after, "a")}  # fmt: skip
    for clock in (NEAR, Clock(SECOND, moves=4)):
        assert explore(stamping(clock=clock, step=unchanged)).verdict is Verdict.COMPLETE
        stands = {"time stands": lambda before, after: after.read(CLOCK) - before.read(CLOCK) == 0}
        with pytest.raises(Misuse, match="the law 'time stands' looks at how time passes") if clock is NEAR else nullcontext():  # fmt: skip
            assert explore(stamping(clock=clock, step=stands)).law == "time stands"


def test_a_set_of_instants_that_would_shrink_is_refused() -> None:
    """Beyond the horizon two of its instants are one."""
    keeps = ReducerProcess("r", frozenset[object](), lambda state, event: Step(state | event), lambda *_: None)
    world = Plain().write(inbox("r"), tuple(frozenset({Instant(-at * SECOND)}) for at in (0, 1)))
    scenario = attrs.evolve(stamping(clock=NEAR), world=world, actors=(keeps,))
    with pytest.raises(Misuse, match="the cell process/r keeps a set of instants"):
        explore(scenario)


def test_a_value_keeps_its_type_as_time_passes() -> None:
    """Law AG3: named tuples in a note, an event and a state."""

    def step(state: object, event: object) -> Step[object, Effect[object]]:
        return Step((*state, event), ()) if isinstance(state, tuple) else Step(state)

    keeps = ReducerProcess("r", (), step, lambda *_: None)
    found = explore(
        Scenario(
            name="named",
            summary="",
            world=Plain().write(inbox("r"), (Stamped(Instant(0)), Stamped(Instant(-SECOND)))),
            actors=(keeps,),
            clock=NEAR,
            always={"L": lambda state: all(isinstance(each, Stamped) for each in state.status("r").state)},  # type: ignore[attr-defined]
            sometimes={"both": lambda state: len(state.status("r").state) == 2},  # type: ignore[attr-defined]
        )
    )
    assert (found.verdict, found.goals) == (Verdict.COMPLETE, {"both": True})


def test_absolute_time_that_is_asked_for_is_said_to_be() -> None:
    assert explore(with_clock(touching(), 2)).time == "absolute time, 2 moves of 1 s"
    assert explore(attrs.evolve(touching(), clock=None)).time == "time stands"


# --- values -------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Deadline:
    _at: Instant
    name: str = "d"
    made: int = attrs.field(init=False, default=7)


INSTANTS = st.builds(
    Instant, st.integers(-20, 20).map(lambda number: number * SECOND), st.sampled_from(["store", WALL])
)
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(0, 3), st.just("a"), INSTANTS, st.builds(Deadline, INSTANTS)),
    lambda items: st.one_of(
        st.lists(items, max_size=3).map(tuple),
        st.frozensets(items, max_size=3),
        st.builds(Deadline, INSTANTS),
        INSTANTS.filter(lambda at: at.clock != WALL).map(lambda at: Document.of({"at": at, "in": {"at": (at,)}})),
    ),
    max_leaves=6,
)
AGES = st.integers(0, 9).map(lambda number: number * SECOND)


@given(VALUES, AGES, AGES, AGES)
def test_aging_twice_is_aging_once_by_the_sum(
    value: object, first: Duration, second: Duration, horizon: Duration
) -> None:
    """Law AG2, for any quanta and with saturation on the way."""
    assert exactly(aged(aged(value, first, horizon), second, horizon)) == exactly(aged(value, first + second, horizon))


@given(VALUES, AGES)
def test_only_what_holds_an_instant_ages(value: object, by: Duration) -> None:
    older = aged(value, by, 1_000 * SECOND)
    assert (exactly(older) == exactly(value)) == (by == 0 or not holds_instant(value))


def test_an_instant_ages_wherever_it_is() -> None:
    at, older = Instant(0), Instant(-SECOND)
    assert aged(Deadline(at), SECOND, 2 * SECOND) == Deadline(older)
    assert aged((1, frozenset({at})), SECOND, 2 * SECOND) == (1, frozenset({older}))
    assert aged(Document.of({"at": at}), SECOND, 2 * SECOND) == Document.of({"at": older})
    assert aged(at, 5 * SECOND, 2 * SECOND) == Instant(-2 * SECOND)


@pytest.mark.parametrize("held", [[Instant(0)], {Instant(0)}, {"at": Instant(0)}], ids=["list", "set", "dict"])
def test_an_instant_is_found_also_in_what_is_not_a_value(held: object) -> None:
    assert holds_instant(held)
    assert not holds_instant(type(held)())
