"""Two runners take from a queue of three and end their runs; each request may meet each network
fault.

Further scenarios: two invocations share one place, so the refused one runs later; an end wakes the
waiter for its place; a rate limits a set; many waiters for one place precede one that needs none;
many over their rate precede one without a rate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from tidegate.invocations.checks import laws
from tidegate.invocations.checks.laws.transition import Version
from tidegate.invocations.checks.scenarios.transition import FAULTS, RECORDS, seen, versions
from tidegate.invocations.limits.rate_limit import Rate
from tidegate.invocations.limits.rate_limiting import ADMITTED, new_meter
from tidegate.invocations.queue.bulk_transition import RecordMove, Settling
from tidegate.invocations.queue.completion import Ending, RunEnd, Succeeded
from tidegate.invocations.queue.fetching import Takeable, Taken, TakenRun, Taker
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.jobs import Job, new_invocation
from tidegate.invocations.record.record_documents import DUE, LATER, STATUS, WAITS
from tidegate.model.documents import Document
from tidegate.model.effects import Effect, Program
from tidegate.model.instants import SECOND, Instant
from tidegate.sim.program.automaton import Birth, Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Clock, Law, Scenario, State
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.world.faults import Fault, Faults, all_effects
from tidegate.sim.world.world import Meaning, document, journal, journaled, perform, world_with

ONCE: Final = "no version runs twice, and what runs is its runner's"
TOLD: Final = "what was taken is told"
AT_MOST: Final = "no more run than may"
WITHIN: Final = "no more begin than were admitted"
PATIENT: Final = "who is over its rate waits as it did"
ASLEEP: Final = "nobody sleeps while there is a place"
HELD_UP: Final = "who needs no place is not held up by those who wait for one"

KEYS: Final = ("a", "b", "c")
SET: Final = "running-1"
RUNNERS: Final = ("one", "two")
_KINDS: Final[dict[Fault, Callable[[Effect[object]], bool]]] = {**FAULTS.kinds, Fault.PARTLY_DONE: all_effects}
ALL_FAULTS: Final = attrs.evolve(FAULTS, kinds={kind: _KINDS[kind] for kind in _KINDS if kind != Fault.RESTART})
"""A restarted runner has a new name."""
WAKING_FAULTS: Final = Faults.of(Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY)
LIMITED_FAULTS: Final = Faults.of(Fault.CRASH_BEFORE, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY)
RATED_FAULTS: Final = Faults.of(Fault.CRASH_BEFORE, Fault.DROPPED, Fault.LOST_REPLY)
TASK: Final = Takeable("send", held_back=1_000)

Work = Callable[[Taker], Program[tuple[TakenRun, ...]]]


async def take(taker: Taker, looks: int, most: int, factor: int) -> tuple[TakenRun, ...]:
    """Poll some times; return the runs to begin."""
    runs: tuple[TakenRun, ...] = ()
    turn: str | None = None
    for _ in range(looks):
        taken: Taken = await taker.take(most, factor, turn)
        runs, turn = (*runs, *taken.runs), taken.turn
    return runs


async def take_and_end(taker: Taker, looks: int, most: int, factor: int) -> tuple[TakenRun, ...]:
    """The same, and each run succeeds before the next poll."""
    runs: tuple[TakenRun, ...] = ()
    for _ in range(looks):
        taken = await taker.take(most, factor)
        runs = (*runs, *taken.runs)
        ends = tuple(
            RecordMove(run.key, run.record, status.SUCCESS, f"{taker.runner}.{run.key}.{run.record.version}")
            for run in taken.runs
        )
        if ends:
            await Settling(RECORDS, INVOCATION, ends, taker.runner).run()
    return runs


async def take_and_wake(taker: Taker, ending: type[Ending], looks: int, most: int) -> tuple[TakenRun, ...]:
    """The same, and then a waiter for its place is woken."""
    runs: tuple[TakenRun, ...] = ()
    for _ in range(looks):
        taken = await taker.take(most)
        runs = (*runs, *taken.runs)
        ends = tuple(
            RunEnd(key=run.key, record=run.record, end=Succeeded(), limited_by=run.job.limited_by) for run in taken.runs
        )
        if ends:
            await ending(runs=ends, records=RECORDS).run()
    return runs


def made(state: State, key: str) -> tuple[Version, ...]:
    return versions(state.read(journal(RECORDS, key)))


def all_made(state: State, keys: tuple[str, ...]) -> dict[str, tuple[Version, ...]]:
    return {key: made(state, key) for key in keys}


def told(state: State, runner: str) -> tuple[tuple[str, int], ...]:
    """What it was told to run; nothing where it has not returned."""
    match state.status(runner):
        case Returned(tuple() as runs):
            return tuple((run.key, run.record.version) for run in runs)
        case _:
            return ()


def runs_once(keys: tuple[str, ...], state: State) -> bool:
    return laws.taking.no_version_runs_twice({each: told(state, each) for each in RUNNERS}, all_made(state, keys))


def tells(runner: str, keys: tuple[str, ...], state: State) -> bool:
    has_returned = isinstance(state.status(runner), Returned)
    return not has_returned or laws.taking.is_told(runner, told(state, runner), all_made(state, keys))


def count(state: State, which: str, keys: tuple[str, ...]) -> int:
    found = (state.read(document(RECORDS, key)) for key in keys)
    return sum(each is not None and each[STATUS] == which for each in found)


def taker_of(runner: str, made: type[Taker], task: Takeable = TASK) -> Taker:
    return made(runner=runner, queues=("default",), tasks=(task,), records=RECORDS, attempts=2)


def born_as(program: Callable[[], Program[object]]) -> Birth:
    return lambda _: program()


def scene(
    jobs: dict[str, Job],
    programs: dict[str, Callable[[], Program[object]]],
    faults: Faults,
    **more: tuple[Document, ...],
) -> Scenario:
    """The common part of all scenarios."""
    keys = tuple(jobs)
    meaning: Meaning = perform
    for key in keys:
        meaning = journaled(RECORDS, key, seen, meaning)
    records = {key: new_invocation(key, job, "made", Instant(0)) for key, job in jobs.items()}
    world = world_with({RECORDS: tuple(records.values()), "places": (), **more})
    for key, record in records.items():
        world = world.write(journal(RECORDS, key), (seen(record),))
    processes = (Process(each, born_as(program), faults, meaning) for each, program in programs.items())
    always: dict[str, Law | tuple[Law, ...]] = {
        ONCE: partial(runs_once, keys),
        TOLD: tuple(partial(tells, each, keys) for each in RUNNERS),
    }
    return Scenario(name="", summary="", world=world, actors=(*processes, Network(meaning)), always=always)


def taking(
    made: type[Taker] = Taker,
    *,
    summary: str = "two runners take from a queue at the same time: each run is one runner's, and each is told",
    looks: int = 2,
    most: int = 2,
    factor: int = 1,
    budget: int = 1,
    faults: Faults = ALL_FAULTS,
) -> Scenario:
    """The scenario.

    Args:
        made: The program or a faulty variant.
        summary: One line.
        looks: The polls of each runner.
        most: The limit of each poll.
        factor: Each chooses among `factor * most`.
        budget: The number of faults.
        faults: The possible faults.
    """
    takers = {each: taker_of(each, made) for each in RUNNERS}
    programs: dict[str, Callable[[], Program[object]]] = {
        each: partial(take, taker, looks, most, factor) for each, taker in takers.items()
    }
    jobs = {key: Job(task=TASK.name, tenant=tenant) for key, tenant in zip(KEYS, ("x", "x", "y"), strict=True)}
    return attrs.evolve(
        scene(jobs, programs, faults),
        name="taking",
        summary=summary,
        budget=budget,
        sometimes={
            "all run": lambda state: count(state, status.RUNNING, KEYS) == len(KEYS),
            "each runs one at least": lambda state: all(told(state, each) for each in RUNNERS),
        },
    )


def one_waits(keys: tuple[str, ...], state: State) -> bool:
    found = (state.read(document(RECORDS, key)) for key in keys)
    return any(each is not None and each.has(WAITS) for each in found)


def no_more_run(keys: tuple[str, ...], state: State) -> bool:
    """Law TA5, as AD1 has it."""
    current = [made(state, key)[-1].record for key in keys]
    return laws.admission.no_more_run(current, 1)


def limited(
    made: type[Taker] = Taker,
    *,
    summary: str = "two invocations of which one may run at a time: the other is due again, and runs later",
    looks: int = 2,
    budget: int = 1,
    faults: Faults = LIMITED_FAULTS,
) -> Scenario:
    """The scenario of places.

    Args:
        made: The program or a faulty variant.
        summary: One line.
        looks: The polls of each runner.
        budget: The number of faults.
        faults: The possible faults.
    """
    keys = KEYS[:2]
    takers = {each: taker_of(each, made) for each in RUNNERS}
    programs: dict[str, Callable[[], Program[object]]] = {
        each: partial(take_and_end, taker, looks, 2, 1) for each, taker in takers.items()
    }
    job = Job(task=TASK.name, limited_by=SET)
    both = scene(dict.fromkeys(keys, job), programs, faults)
    return attrs.evolve(
        both,
        name="taking.limited",
        summary=summary,
        budget=budget,
        always={**both.always, AT_MOST: partial(no_more_run, keys)},
        sometimes={
            "one waits": partial(one_waits, keys),
            "one succeeds": lambda state: count(state, status.SUCCESS, keys) > 0,
        },
    )


def nobody_sleeps(keys: tuple[str, ...], state: State) -> bool:
    """Law PL3: at rest who waits waits for one that runs, or that is due and needs the place as well."""
    is_at_rest = all(isinstance(state.status(each), Returned) for each in RUNNERS)
    found = tuple(state.read(document(RECORDS, key)) for key in keys)
    is_due = any(each is not None and each.has(DUE) and not each.has(WAITS) for each in found)
    return not is_at_rest or not one_waits(keys, state) or is_due or count(state, status.RUNNING, keys) > 0


def waking(
    made: type[Taker] = Taker,
    *,
    ending: type[Ending] = Ending,
    summary: str = "two invocations of which one may run at a time: whoever ends wakes the other",
    keys: tuple[str, ...] = KEYS[:2],
    looks: int = 2,
    budget: int = 1,
    faults: Faults = WAKING_FAULTS,
) -> Scenario:
    """The scenario of waiters for places.

    Args:
        made: The taking program or a faulty variant.
        ending: The ending program or a faulty variant.
        summary: One line.
        keys: The invocations.
        looks: The polls of each runner.
        budget: The number of faults.
        faults: The possible faults.
    """
    programs: dict[str, Callable[[], Program[object]]] = {
        each: partial(
            take_and_wake,
            taker_of(each, made),
            ending, looks, 1 if len(keys) > 2 else 2,
        )
        for each in RUNNERS
    }  # fmt: skip
    both = scene(dict.fromkeys(keys, Job(task=TASK.name, limited_by=SET)), programs, faults)
    return attrs.evolve(
        both,
        name="taking.waking",
        summary=summary,
        budget=budget,
        always={
            **both.always,
            AT_MOST: partial(no_more_run, keys),
            ASLEEP: partial(nobody_sleeps, keys),
        },
        sometimes={
            "one waits": partial(one_waits, keys),
            "all succeed": lambda state: count(state, status.SUCCESS, keys) == len(keys),
        },
    )


def not_held_up(key: str, state: State) -> bool:
    """Law TA10: it has begun when the looks of the second one are over."""
    return not isinstance(state.status(RUNNERS[1]), Returned) or begun(state, (key,)) > 0


def crowded(
    made: type[Taker] = Taker,
    *,
    summary: str = "three that wait for one place stand before one that needs none: it begins soon, and none of them sleeps",
    waiting: int = 3,
    looks: int = 5,
    budget: int = 1,
    faults: Faults = WAKING_FAULTS,
) -> Scenario:
    """The scenario of many who wait: one runner takes one and ends it, another one only takes, one at a time.

    Args:
        made: The program; a faulty variant of it, perhaps.
        summary: One line for people.
        waiting: How many are of a set of which one may run at a time.
        looks: How often the second one looks, beside a look for each fault: what is first may be another's; one begins, others
            are put off, one that the end of the first one woke is, too, and then `free` begins.
        budget: How many faults may strike.
        faults: Which.
    """
    one, two = (taker_of(each, made) for each in RUNNERS)
    keys = tuple(f"limited-{number}" for number in range(waiting))
    jobs = {each: Job(task=TASK.name, limited_by=SET, priority=1) for each in keys} | {"free": Job(task=TASK.name)}
    programs: dict[str, Callable[[], Program[object]]] = {
        one.runner: partial(take_and_wake, one, Ending, 1, 1),
        two.runner: partial(take, two, looks + budget, 1, 1),
    }
    all_of_them = scene(jobs, programs, faults)
    return attrs.evolve(
        all_of_them,
        name="taking.crowded",
        summary=summary,
        budget=budget,
        always={
            **all_of_them.always,
            AT_MOST: partial(no_more_run, keys),
            ASLEEP: partial(nobody_sleeps, keys),
            HELD_UP: partial(not_held_up, "free"),
        },
        sometimes={
            "one waits": partial(one_waits, keys),
            "two of them run": lambda state: begun(state, keys) > 1,
        },
    )


RATE: Final = Rate(1, SECOND)
METERS, RATED = "meters", "rate-1"


def begun(state: State, keys: tuple[str, ...]) -> int:
    """How many runs have begun."""
    return sum(each.record.status == status.RUNNING for key in keys for each in made(state, key))


def within_rate(keys: tuple[str, ...], state: State) -> bool:
    """Law TA9, of which law MT1 says how many are admitted in a time."""
    meter = state.read(document(METERS, RATED))
    return laws.rates.is_counted(begun(state, keys), 0 if meter is None else meter[ADMITTED])


def all_wait(keys: tuple[str, ...], state: State) -> bool:
    """Law TA9."""
    docs = [(key, state.read(document(RECORDS, key))) for key in keys]
    return all(doc is not None and laws.taking.waits_as_it_did(made(state, key), doc.has(DUE)) for key, doc in docs)


def rated(
    made: type[Taker] = Taker,
    *,
    summary: str = "two invocations of which one may begin in a second: the other is due later, and begins then",
    keys: tuple[str, ...] = KEYS[:2],
    looks: int = 2,
    moves: int = 1,
    budget: int = 1,
    faults: Faults = RATED_FAULTS,
) -> Scenario:
    """The scenario of rates.

    Args:
        made: The program; a faulty variant of it, perhaps.
        summary: One line for people.
        keys: The invocations.
        looks: How often one looks; the other does once less.
        moves: How often a second may pass.
        budget: How many faults may strike.
        faults: Which.
    """
    task = attrs.evolve(TASK, rate=RATE)
    takers = {each: taker_of(each, made, task) for each in RUNNERS}
    programs: dict[str, Callable[[], Program[object]]] = {
        each: partial(take, taker, number, 2, 1)
        for (each, taker), number in zip(takers.items(), (looks, looks - 1), strict=True)
    }
    both = scene(
        dict.fromkeys(keys, Job(task=TASK.name, rated_by=RATED)),
        programs,
        faults,
        meters=(new_meter(RATED, Instant(0)),),
    )
    return attrs.evolve(
        both,
        name="taking.rated",
        summary=summary,
        budget=budget,
        clock=Clock(SECOND, moves=moves),
        always={**both.always, WITHIN: partial(within_rate, keys), PATIENT: partial(all_wait, keys)},
        sometimes={
            "one waits": lambda state: any(
                doc is not None and doc.has(LATER) for doc in (state.read(document(RECORDS, key)) for key in keys)
            ),
            "all run": lambda state: count(state, status.RUNNING, keys) == len(keys),
        },
    )


def rushed(
    made: type[Taker] = Taker,
    *,
    summary: str = "many that are over their rate stand before one that has none: it begins soon",
    waiting: int = 4,
    looks: int = 4,
    moves: int = 0,
    budget: int = 0,
    faults: Faults = RATED_FAULTS,
) -> Scenario:
    """The scenario of many that are over their rate: one runner takes one, another one takes one at a time.

    Args:
        made: The program; a faulty variant of it, perhaps.
        summary: One line for people.
        waiting: How many are of a set of which one may begin in a second.
        looks: How often the second one looks, beside a look for each fault, and each second: what is first may be another's; one
            begins, the others are put off, and then `free` begins.
        moves: How often a second may pass, after which one more may begin.
        budget: How many faults may strike.
        faults: Which.
    """
    one, two = (taker_of(each, made, attrs.evolve(TASK, rate=RATE)) for each in RUNNERS)
    keys = tuple(f"rated-{number}" for number in range(waiting))
    jobs = {each: Job(task=TASK.name, rated_by=RATED, priority=1) for each in keys} | {"free": Job(task=TASK.name)}
    programs: dict[str, Callable[[], Program[object]]] = {
        one.runner: partial(take, one, 1, 1, 1),
        two.runner: partial(take, two, looks + budget + moves, 1, 1),
    }
    all_of_them = scene(jobs, programs, faults, meters=(new_meter(RATED, Instant(0)),))
    return attrs.evolve(
        all_of_them,
        name="taking.rushed",
        summary=summary,
        budget=budget,
        clock=Clock(SECOND, moves=moves),
        always={
            **all_of_them.always,
            WITHIN: partial(within_rate, keys),
            PATIENT: partial(all_wait, keys),
            HELD_UP: partial(not_held_up, "free"),
        },
        sometimes={"one begins": lambda state: begun(state, keys) > 0},
    )


SCENARIOS: Final = (
    Shipped("taking", taking, thorough=partial(taking, budget=2), large=partial(taking, budget=5, looks=3)),
    Shipped(
        "taking.spread",
        partial(taking, most=1, factor=2),
        thorough=partial(taking, most=1, factor=2, budget=2),
        large=partial(taking, most=1, factor=2, budget=5, looks=4),
    ),
    Shipped("taking.limited", limited, thorough=partial(limited, looks=3), large=partial(limited, budget=4, looks=4)),
    Shipped("taking.waking", waking, thorough=partial(waking, looks=3), large=partial(waking, budget=4, looks=4)),
    Shipped(
        "taking.crowded",
        crowded,
        thorough=partial(crowded, waiting=5),
        large=partial(crowded, waiting=9, looks=7),
    ),
    Shipped("taking.rated", rated, thorough=partial(rated, budget=2), large=partial(rated, budget=4, looks=3, moves=3)),
    Shipped(
        "taking.rushed",
        rushed,
        thorough=partial(rushed, budget=1),
        large=partial(rushed, waiting=9, moves=2, budget=2),
    ),
)
