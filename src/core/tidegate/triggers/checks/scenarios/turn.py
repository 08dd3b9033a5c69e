"""The recovery task itself is stuck: its runner has died, and only one run of it may exist."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import DUE, STATUS, TASK, new_record, viewed
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import Granted, Transition
from tidegate.invocations.upkeep.recoverer import Recoverer
from tidegate.model.documents import ID, Document
from tidegate.model.effects import Call, Effect
from tidegate.model.instants import SECOND, Duration, Instant
from tidegate.services.atomic_service import AtomicServiceRun, Window
from tidegate.sim.program.automaton import Crashed
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import Meaning, Outcomes, Reads, World, contents, document, perform, world_with
from tidegate.triggers.checks import laws
from tidegate.triggers.evaluator import Evaluator
from tidegate.triggers.leader_duties import Duty, DutyFailedError, Turn, duties
from tidegate.triggers.outbox_relay import Noticer

RECORDS: Final = "invocations"
MEMBERS: Final = "members"
CORE: Final = "recover"
READY: Final = "it may run"
DEAD_AFTER: Final[Duration] = 10 * SECOND

FREE: Final = "at rest nobody who is gone has anything"

ANY: Final = Faults.of(
    Fault.CRASH_BEFORE, Fault.DROPPED, Fault.LOST_REPLY, on=lambda effect: not isinstance(effect, Call)
)
RUN: Final = AtomicServiceRun("s", "s.0", Instant(0), Window(Instant(0), Instant(SECOND)), Instant(0))
"""A turn of one round: its window is as long as the pause before a second one."""
UPKEEP: Final = (
    Recoverer(me="s", dead_after=DEAD_AFTER, tasks=(CORE,), attempts=3),
    Noticer(conditions=()),
    Evaluator(triggers=(), next_after=lambda expression, after: None),  # noqa: ARG005
)


def invocation(key: str, task: str, record: StatusRecord) -> Document:
    due = Instant(0) if record.status == status.REGISTERED else None
    return new_record(key, record, f"{key}.made", Instant(0), due=due, more=Document.of({TASK.name: task}))


def member(who: str, seen: int) -> Document:
    then = Instant(seen)
    return Document.of({"_id": who, "left": None, "created": then, "joined": then, "seen": then})


WORLD: Final = world_with(
    {
        RECORDS: (
            invocation("r1", CORE, StatusRecord(status.RUNNING, "gone", 1)),
            invocation("r2", CORE, StatusRecord(status.REGISTERED, None, 1)),
            invocation("x", "job", StatusRecord(status.RUNNING, "gone", 1)),
        ),
        MEMBERS: (member("gone", -20 * SECOND), member("s", 0), member("w", 0)),
    }
)


def may_run(world: Reads) -> str | None:
    """Return the id of an available recovery run, if none is running: one runs at a time."""
    core = [record for record in contents(world, RECORDS) if record[TASK] == CORE]
    if any(record[STATUS] in (status.RUNNING, status.RUNNING_RECOVERY) for record in core):
        return None
    return min((record[ID] for record in core if record.has(DUE)), default=None)


def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
    """Documents, and a call that replies when a recovery run may start."""
    if effect == Call(READY):
        if (found := may_run(world)) is not None:
            yield world, found
    else:
        yield from perform(effect, world, who)


async def worker() -> None:
    """Run the recovery task whenever it may start."""
    for number in range(3):
        key = str(await Call(READY))
        begun = await Transition(RECORDS, INVOCATION, key, status.RUNNING, "w", f"w.{number}").run()
        if isinstance(begun, Granted):
            await Recoverer(me="w", dead_after=DEAD_AFTER).run()
            await Transition(
                RECORDS, INVOCATION, key, status.SUCCESS, "w", f"w.{number}.end", expected=begun.record
            ).run()


async def service(made: Turn, turns: int) -> None:
    for token in range(1, turns + 1):
        try:
            await made.work(RUN, token)
        except DutyFailedError:
            continue  # the next turn retries


def is_free(state: State) -> bool:
    if Crashed() in (state.status("s"), state.status("w")):
        return True
    owners = [known.owner for record in contents(state, RECORDS) if (known := viewed(record)) is not None]
    return laws.turn.nobody_who_is_gone_owns_anything(owners, {"gone"})


def turn(
    made: Callable[[Recoverer, Noticer, Evaluator], tuple[Duty, ...]] = duties,
    *,
    summary: str = "what recovers is stuck where its runner has died: whoever has a turn frees it, and it frees the rest",
    budget: int = 1,
    faults: Faults = ANY,
) -> Scenario:
    """One process with turns beside one worker."""
    means: Meaning = meaning
    return Scenario(
        name="turn",
        summary=summary,
        world=WORLD,
        actors=(
            Process("s", factory(service, Turn(duties=made(*UPKEEP)), budget + 1), faults, means),
            Process("w", factory(worker), meaning=means),
            Network(means),
        ),
        budget=budget,
        eventually={FREE: is_free},
        sometimes={"the job is free": lambda state: _status(state, "x") == status.REROUTED},
    )


def _status(state: State, key: str) -> str:
    record = state.read(document(RECORDS, key))
    return "" if record is None else record[STATUS]


SCENARIOS: Final = (Shipped("turn", turn, thorough=partial(turn, budget=2), large=partial(turn, budget=4)),)
