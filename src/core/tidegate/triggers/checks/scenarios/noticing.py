"""An invocation runs and fails while two noticers run. Any of them may die or get no reply."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import ERROR, NOTICE, TASK, changes, new_record, unchanged, viewed
from tidegate.invocations.record.status import Accepted, StatusRecord, decide_transition
from tidegate.model.documents import ID, Document, Eq, Push, Put, Update
from tidegate.model.effects import Call, Effect, Program
from tidegate.model.instants import Instant
from tidegate.model.operations import BulkUpdate, InsertMany, UpdateOne, find_one, update_one
from tidegate.sim.program.automaton import Crashed
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Law, Scenario, State
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import Meaning, Outcomes, World, contents, document, perform, world_with
from tidegate.triggers.checks import laws
from tidegate.triggers.conditions import OnException, OnStatus
from tidegate.triggers.outbox_relay import Noticer, happened
from tidegate.triggers.trigger import noticed

Ids: TypeAlias = tuple[str, ...]
Writing: TypeAlias = Callable[[StatusRecord, Accepted, tuple[Update, ...]], Program[None]]
"""How a runner writes a change and its notice."""

RECORDS: Final = "invocations"
OCCURRENCES: Final = "occurrences"
KEY: Final = "x"
READY: Final = "there is a notice"

HEARD: Final = "what changes is heard of"
LEFT: Final = "at rest no notice is left"
NOTHING: Final = "nothing else is heard of"

CONDITIONS: Final = (OnStatus("t", frozenset({status.RUNNING})), OnException("t", frozenset({"ValueError"})))
FIRST: Final = new_record(
    KEY,
    StatusRecord(status.REGISTERED, None, 1),
    "made",
    Instant(0),
    due=Instant(0),
    more=Document.of({TASK.name: "t"}),
)
CRASHES: Final = Faults.of(Fault.CRASH_BEFORE)
WRITES: Final = Faults(
    {
        Fault.CRASH_BEFORE: lambda _: True,
        **dict.fromkeys(
            (Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE),
            lambda effect: isinstance(effect, (UpdateOne, BulkUpdate, InsertMany)),
        ),
    }
)


async def written(before: StatusRecord, made: Accepted, updates: tuple[Update, ...]) -> None:
    await update_one(RECORDS, unchanged(KEY, before), *updates, *notices(made))


def notices(made: Accepted) -> tuple[Update, ...]:
    return (Push(NOTICE, made.version),)


async def runner(write: Writing) -> None:
    record = viewed(await find_one(RECORDS, Eq(ID, KEY)))
    for target, more in ((status.RUNNING, ()), (status.FAILED, (Put(ERROR, Document.of({"type": "ValueError"})),))):
        assert record is not None
        made = decide_transition(INVOCATION, record, target, "r")
        assert isinstance(made, Accepted)
        await write(record, made, changes(INVOCATION, made, f"r.{target}", *more))
        record = StatusRecord(made.status, made.owner, made.version)


async def looks(programs: Noticer, passes: int) -> None:
    for _ in range(passes):
        await Call(READY)
        await programs.run()


def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
    """Documents, and a call that replies when there is a notice."""
    match effect:
        case Call(name) if name == READY:
            if any(record.has(NOTICE) for record in contents(world, RECORDS)):
                yield world, None
        case _:
            yield from perform(effect, world, who)


def changed(state: State) -> Ids:
    record = state.read(document(RECORDS, KEY))
    assert record is not None
    now = viewed(record)
    assert now is not None
    contexts, _ = happened(record.put(NOTICE, tuple(range(2, now.version + 1))))
    return tuple(each.id for context in contexts for each in noticed(CONDITIONS, context, Instant(0)).occurrences)


def there(state: State) -> Ids:
    return tuple(doc[ID] for doc in contents(state, OCCURRENCES))


def pending(state: State) -> Ids:
    """Return the ids of the occurrences that a notice leads to."""
    (record,) = contents(state, RECORDS)
    contexts, _ = happened(record) if record.has(NOTICE) else ((), ())
    return tuple(each.id for context in contexts for each in noticed(CONDITIONS, context, Instant(0)).occurrences)


def is_heard(state: State) -> bool:
    return laws.noticing.what_happened_is_heard_of(changed(state), there(state), pending(state))


def is_nothing_else(state: State) -> bool:
    return laws.noticing.nothing_else_is_heard_of(there(state), changed(state))


def is_left(names: Ids) -> Law:
    return lambda state: (
        all(state.status(name) == Crashed() for name in names)
        or laws.noticing.no_notice_is_left(contents(state, RECORDS))
    )


def noticing(
    made: type[Noticer] = Noticer,
    *,
    write: Writing = written,
    summary: str = "an invocation runs and fails while two look: triggers hear of each change, whoever dies",
    noticers: int = 2,
    budget: int = 1,
    faults: Faults = WRITES,
) -> Scenario:
    """A runner and some noticers."""
    programs = made(conditions=CONDITIONS)
    names = ("a", "b", "c")[:noticers]
    means: Meaning = meaning
    return Scenario(
        name="noticing",
        summary=summary,
        world=world_with({RECORDS: (FIRST,)}),
        actors=(
            Process("runner", factory(runner, write), CRASHES, means),
            *(Process(name, factory(looks, programs, budget + 3), faults, means) for name in names),
            Network(means),
        ),
        budget=budget,
        always={HEARD: is_heard, NOTHING: is_nothing_else},
        eventually={LEFT: is_left(names)},
        sometimes={"both are heard of": lambda state: len(there(state)) == 2},
    )


SCENARIOS: Final = (
    Shipped(
        "noticing",
        noticing,
        thorough=partial(noticing, budget=2),
        large=partial(noticing, noticers=3, budget=3),
    ),
)
