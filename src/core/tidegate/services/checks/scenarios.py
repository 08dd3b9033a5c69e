"""Two runners join, share a service by slots and a gate, stall, crash and leave.

A single runner has the whole cycle, so a runner that joins while the other works is cleared as
well: the gate must stop it. Time may pass beyond the silence that presumes death.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.leases.leader import FENCE, fenced
from tidegate.model.documents import Document, Put
from tidegate.model.effects import Now
from tidegate.model.instants import SECOND, Duration, Instant
from tidegate.model.operations import insert_one
from tidegate.services.atomic_service import AtomicService, AtomicServiceRun
from tidegate.services.executions import ExecutionStatus, Gate
from tidegate.services.members import begin, leave, membership_of, new_member
from tidegate.services.membership import Alive, liveness
from tidegate.services.service_runner import (
    REASON,
    RUN,
    STATUS,
    Abandoned,
    Completed,
    ServiceOutcome,
    ServiceRunner,
    Skipped,
    Work,
    gate_of,
    new_gate,
)
from tidegate.sim.program.automaton import Crashed, Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Clock, Law, Scenario, State, StepLaw
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.world.clocks import HOST, Host, ahead
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import CLOCK, contents, document, world_with

KEY: Final = "trigger"
MEMBERS: Final = "members"
GATES: Final = "gates"
HISTORY: Final = "executions"
WORK: Final = "work"

TOKENS: Final = "each run that is let in has the next token"
REPLACED: Final = "only who is gone is put out of the gate"
FENCED: Final = "nothing is written under an older token"
LEAVES: Final = "whoever leaves the gate is recorded"
LIVING: Final = "only the living block"
OVER: Final = "who says so is over"
RECORDED: Final = "whoever was skipped is recorded"
TURN: Final = "who asks in its turn is not turned away"
DEAD: Final = "who is presumed dead stays so"
EMPTY: Final = "at rest nobody stands in the gate who was gone"

SERVICE: Final = AtomicService(interval=4 * SECOND, spread=SECOND, start_fraction_ppm=500_000)
DEAD_AFTER: Final[Duration] = 2 * SECOND
CRASHES: Final = Faults.of(Fault.CRASH_BEFORE)
ALL_FAULTS: Final = Faults.of(Fault.CRASH_BEFORE, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY)


def gate(state: State) -> Gate:
    record = state.read(document(GATES, KEY))
    assert record is not None
    return gate_of(record)


def tokens_grow(before: State, after: State) -> bool:
    was, now = gate(before), gate(after)
    is_new = now.active is not None and (was.active is None or now.active.id != was.active.id)
    return now.token == was.token + is_new


def only_the_gone_are_replaced(before: State, after: State) -> bool:
    was, now = gate(before).active, gate(after).active
    if was is None or now is None or now.id == was.id:
        return True
    known = membership_of(contents(before, MEMBERS), DEAD_AFTER)
    return not isinstance(liveness(known, was.runner_id, before.read(CLOCK)), Alive)


def who_leaves_is_recorded(before: State, after: State) -> bool:
    was, now = gate(before).active, gate(after).active
    has_left = was is not None and (now is None or now.id != was.id)
    return not has_left or was is None or row(after, was.id) is not None


def row(state: State, run: str) -> Document | None:
    return state.read(document(HISTORY, run))


def blocked_by(state: State, run: str) -> str | None:
    """Return the runner in the gate that the row of a blocked run names."""
    found = row(state, run)
    if found is None or found[STATUS] != ExecutionStatus.BLOCKED.value:
        return None
    _, _, runner = found[REASON].partition("runner:")
    return runner or None


def only_the_living_block(run: str) -> StepLaw:
    """Law AP5, at the time of the blocked runner's own last beat."""

    def holds(before: State, after: State) -> bool:
        blocker = blocked_by(after, run)
        if blocker is None or row(before, run) is not None:
            return True
        members = {each.id: each for each in membership_of(contents(before, MEMBERS), DEAD_AFTER).members}
        return members[run.partition(".")[0]].seen - members[blocker].seen < DEAD_AFTER

    return holds


def the_dead_stay_dead(before: State, after: State) -> bool:
    """Law AP9, by the store's clock."""
    now = before.read(CLOCK)
    known, then = (membership_of(contents(each, MEMBERS), DEAD_AFTER).by_id for each in (before, after))
    return all(then[who].seen == member.seen for who, member in known.items() if now - member.seen >= DEAD_AFTER)


def fence(state: State) -> int:
    record = state.read(document(WORK, KEY))
    assert record is not None
    return record[FENCE]


def admits_no_older(before: State, after: State) -> bool:
    return fence(before) <= fence(after)


def outcomes(state: State, runner: str) -> tuple[ServiceOutcome, ...]:
    match state.status(runner):
        case Returned(tuple() as found):
            return found
        case _:
            return ()


def is_over(runner: str) -> Law:
    def holds(state: State) -> bool:
        over = [each.run for each in outcomes(state, runner) if isinstance(each, (Completed, Abandoned))]
        if not over:
            return True
        active = gate(state).active
        return all(row(state, run) is not None for run in over) and (active is None or active.id not in over)

    return holds


def skips_are_recorded(runner: str) -> Law:
    return lambda state: all(
        row(state, each.run) is not None
        for each in outcomes(state, runner)
        if isinstance(each, Skipped) and each.is_recorded
    )


async def writes(run: AtomicServiceRun, token: int) -> bool:
    """The work of each run: one write that refuses older tokens."""
    return await fenced(WORK, KEY, token, Put(RUN, run.run_id)) > 0


async def logged(program: ServiceRunner) -> tuple[ServiceOutcome, ...]:
    """Run, after reading the own clock as any log does; the program itself never reads it."""
    await Now()
    return await program.run()


def atomic_service(
    made: type[ServiceRunner] = ServiceRunner,
    *,
    work: Work = writes,
    summary: str = "two runners share a service: one at a time, in slots, behind a gate, and whoever dies is reaped",
    runners: int = 2,
    polls: int = 1,
    quantum: Duration = SECOND,
    moves: int = 2,
    budget: int = 1,
    faults: Faults = CRASHES,
    host: Host = HOST,
) -> Scenario:
    """Some runners share a service."""
    names = ("a", "b", "c")[:runners]
    programs = {
        name: made(
            me=name,
            service=SERVICE,
            key=KEY,
            work=work,
            least=0,
            polls=polls,
            pause=SECOND,
            dead_after=DEAD_AFTER,
        )
        for name in names
    }
    return Scenario(
        name="atomic_service",
        summary=summary,
        world=world_with({GATES: (new_gate(KEY),), WORK: (Document.of({"_id": KEY, "fence": 0}),)}),
        actors=(
            *(
                Process(name, factory(each.run) if host == HOST else factory(logged, each), faults, host=host)
                for name, each in programs.items()
            ),
            Network(),
        ),
        budget=budget,
        clock=Clock(quantum=quantum, moves=moves),
        always={OVER: tuple(map(is_over, names)), RECORDED: tuple(map(skips_are_recorded, names))},
        step={
            TOKENS: tokens_grow,
            REPLACED: only_the_gone_are_replaced,
            LEAVES: who_leaves_is_recorded,
            LIVING: lambda before, after: all(
                only_the_living_block(f"{name}.{poll}")(before, after) for name in names for poll in range(polls)
            ),
            FENCED: admits_no_older,
            DEAD: the_dead_stay_dead,
        },
        sometimes={
            "two run one after the other": lambda state: fence(state) == 2 and gate(state).active is None,
            "a run that is late is skipped": lambda state: any(
                isinstance(each, Skipped) and each.is_recorded for name in names for each in outcomes(state, name)
            ),
            "a dead runner is reaped": lambda state: (
                any(isinstance(state.status(name), Crashed) and row(state, f"{name}.0") is not None for name in names)
                and gate(state).active is None
                and fence(state) > 0
            ),
            **(
                {"a runner's clock is wrong": lambda state: any(is_wrong(state, name) for name in names)}
                if host.skew
                else {}
            ),
        },
    )


def is_wrong(state: State, name: str) -> bool:
    return bool(state.read(ahead(name))) and not isinstance(state.status(name), Crashed)


def in_its_turn(state: State) -> bool:
    """Return whether b was not turned away at 2 s, when the second of two windows begins."""
    match state.status("b"):
        case Returned((Skipped(reason=why),)) if why != "no reply":
            known = membership_of(contents(state, MEMBERS), DEAD_AFTER).by_id["b"]
            return known.seen != Instant(2 * SECOND)
        case _:
            return True


async def passes_by() -> None:
    await insert_one(MEMBERS, new_member("c"))
    await begin(MEMBERS, "c")
    await leave(MEMBERS, "c")


async def goes_away() -> None:
    await leave(MEMBERS, "a")


def newcomer(
    made: type[ServiceRunner] = ServiceRunner,
    *,
    summary: str = "somebody joins and somebody leaves in the middle of a cycle: who waits for its turn still has it",
    moves: int = 2,
    budget: int = 1,
) -> Scenario:
    """Runners a and b were present when a cycle of 4 s began; a leaves, and b's window begins at 2
    s.
    """
    zero, now = Instant(0), Instant(SECOND)
    there = (
        Document.of({"_id": name, "left": None, "created": zero, "joined": zero, "seen": now}) for name in ("a", "b")
    )
    work = Document.of({"_id": KEY, "fence": 0})
    world = world_with({MEMBERS: tuple(there), GATES: (new_gate(KEY),), WORK: (work,)})
    runner = made(me="b", service=SERVICE, key=KEY, work=writes, least=0, polls=1, dead_after=DEAD_AFTER)
    return Scenario(
        name="atomic_service.newcomer",
        summary=summary,
        world=world.write(CLOCK, now),
        actors=(
            Process("a", factory(goes_away), CRASHES),
            Process("b", factory(runner.run), ALL_FAULTS),
            Process("c", factory(passes_by), CRASHES),
            Network(),
        ),
        budget=budget,
        clock=Clock(quantum=SECOND, moves=moves),
        always={TURN: in_its_turn},
        sometimes={"it has its turn": lambda state: fence(state) > 0},
    )


def ghost(
    made: type[ServiceRunner] = ServiceRunner,
    *,
    summary: str = "whoever died in the gate is put out of it by one whose turn it is not",
    polls: int = 1,
    faults: Faults = CRASHES,
) -> Scenario:
    """Runner a died in the gate; b joins in the middle of a cycle, so that it has no turn in it."""
    then = Instant(-4 * SECOND)
    there = Document.of({"_id": "a", "left": None, "created": then, "joined": then, "seen": then})
    inside = Document.of({"_id": KEY, "token": 1, "run": "a.0", "runner": "a", "started": then})
    runner = made(me="b", service=SERVICE, key=KEY, work=writes, least=0, polls=polls, pause=0, dead_after=DEAD_AFTER)
    work = Document.of({"_id": KEY, "fence": 0})
    world = world_with({MEMBERS: (there,), GATES: (inside,), WORK: (work,)})
    return Scenario(
        name="atomic_service.ghost",
        summary=summary,
        world=world.write(CLOCK, Instant(SECOND)),
        actors=(Process("b", factory(runner.run), faults), Network()),
        budget=1,
        step={LEAVES: who_leaves_is_recorded},
        eventually={EMPTY: lambda state: not outcomes(state, "b") or gate(state).active is None},
        sometimes={"it is put out": lambda state: gate(state).active is None},
    )


NETWORK: Final = Faults.of(*ALL_FAULTS.kinds, Fault.CRASH_AFTER, Fault.NOT_DURABLE, Fault.CANCELLED)
EVERY: Final = Faults.of(*NETWORK.kinds, Fault.LATE, Fault.DUPLICATE)
SKEW: Final = Faults.of(Fault.CRASH_BEFORE, Fault.SKEW)
WRONG: Final = Host(skew=DEAD_AFTER)
"""A machine whose clock is off by the silence that presumes death."""

SCENARIOS: Final = (
    Shipped(
        "atomic_service",
        atomic_service,
        thorough=partial(atomic_service, budget=2, faults=ALL_FAULTS),
        large=partial(atomic_service, runners=3, polls=3, moves=8, budget=4, faults=ALL_FAULTS),
    ),
    Shipped(
        "atomic_service.network",
        partial(
            atomic_service,
            summary="the same under all that may strike a process and its requests, where the clock moves as far in one move",
            quantum=2 * SECOND,
            moves=1,
            faults=NETWORK,
        ),
        thorough=partial(atomic_service, quantum=2 * SECOND, moves=1, faults=EVERY),
        large=partial(atomic_service, runners=3, polls=3, moves=8, budget=4, faults=EVERY),
    ),
    Shipped(
        "atomic_service.skew",
        partial(
            atomic_service,
            summary="the same where the clocks of machines differ: all that is judged is judged by the store's",
            moves=1,
            faults=SKEW,
            host=WRONG,
        ),
        thorough=partial(atomic_service, budget=2, faults=SKEW, host=WRONG),
        large=partial(atomic_service, runners=3, polls=3, moves=8, budget=4, faults=SKEW, host=WRONG),
    ),
    Shipped(
        "atomic_service.ghost",
        ghost,
        thorough=partial(ghost, polls=2, faults=ALL_FAULTS),
        large=partial(ghost, polls=3, faults=NETWORK),
    ),
    Shipped(
        "atomic_service.newcomer",
        newcomer,
        thorough=partial(newcomer, budget=2),
        large=partial(newcomer, moves=6, budget=4),
    ),
)
