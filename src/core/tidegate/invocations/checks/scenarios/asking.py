"""An operator sends a command while a runner takes an invocation, reads its orders and obeys.

    asking            cancel it: it is taken, or waits for its run
    asking.kill       kill its run; the next run continues
    asking.held       hold it, and release it
    asking.repeated   repeat an ended one

The operator's requests may be lost, late or duplicated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import attrs

from tidegate.invocations.admin.commands import Asked, Asking, Command, order
from tidegate.invocations.admin.invocation_queries import InvocationQuery
from tidegate.invocations.checks import laws
from tidegate.invocations.checks.scenarios.transition import RECORDS
from tidegate.invocations.queue.bulk_transition import RecordMove, settle
from tidegate.invocations.queue.completion import Cancelled, Ending, GivenBack, RunEnd, Succeeded
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.jobs import Job, job_fields
from tidegate.invocations.record.record_documents import CREATED_AT, DUE, HELD, STATUS, TRIES, new_record, viewed
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import Granted
from tidegate.model.documents import ID, Document, Eq, OlderThan, Put
from tidegate.model.effects import Effect, Program
from tidegate.model.instants import Instant
from tidegate.model.operations import BulkUpdate, InsertMany, find_one
from tidegate.model.reading import needed
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate.sim.program.automaton import Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Actor, Law, Scenario, State
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import contents, document, journal, journaled, perform, world_with

COUNTED: Final = "what is answered is so, and each is counted once"
STAYS: Final = "what has ended stays so"
OBEYED: Final = "what a runner was asked to cancel is over"
KILLED: Final = "a kill is of one run"
HELD_BACK: Final = "what is held is not due"
RELEASED: Final = "what was released is due again"
COPIED: Final = "what is repeated has one copy, and stays as it is"

KEY: Final = "x"
RUNNER: Final = "runner"
RUNS_MAX: Final = 3
Operates: TypeAlias = Callable[[Asking], Program[object]]
Orders: TypeAlias = Callable[[Document], Command | None]


def is_write(effect: Effect[object]) -> bool:
    return isinstance(effect, (BulkUpdate, InsertMany))


LOST: Final = Faults.of(Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE, Fault.DUPLICATE, on=is_write)


async def asks(ask: Command, asking: Asking) -> object:
    return await asking.ask(ask, InvocationQuery())


async def holds_and_releases(asking: Asking) -> object:
    await asking.ask(Command.HOLD, InvocationQuery())
    return await attrs.evolve(asking, request=f"{asking.request} again").ask(Command.RELEASE, InvocationQuery())


# --- the runner ---------------------------------------------------------------------------------------------------------


async def runs(orders: Orders) -> int:
    """Take it while it is due, and run it; how many of its runs were killed."""
    killed = 0
    for _ in range(RUNS_MAX):
        found = await find_one(RECORDS, Eq(ID, KEY), OlderThan(DUE, 0))
        known = viewed(found)
        if found is None or known is None:
            break
        take = RecordMove(
            KEY, known, status.RUNNING, f"take.{known.version}", (Put(TRIES, (found.get(TRIES) or 0) + 1),)
        )
        (answer,) = await settle(RECORDS, INVOCATION, (take,), runner=RUNNER)
        if not isinstance(answer, Granted):
            break
        record = await find_one(RECORDS, Eq(ID, KEY))
        assert record is not None, "nobody removes it"
        asked = orders(record)
        end = (
            Cancelled() if asked is Command.CANCEL else GivenBack(counts=True) if asked is Command.KILL else Succeeded()
        )
        run = RunEnd(key=KEY, record=answer.record, end=end, tries=needed(record, TRIES))
        await Ending(runs=(run,), records=RECORDS).run()
        if asked is not Command.KILL:
            break
        killed += 1
    return killed


# --- the scenario -------------------------------------------------------------------------------------------------------


def record(which: str) -> Document:
    made = Document((*job_fields(Job(task="mail")).items, (CREATED_AT.name, Instant(0)), (TRIES.name, 0)))
    due = Instant(0) if INVOCATION[which].available else None
    return new_record(KEY, StatusRecord(which, None, 1), "made", Instant(0), due=due, more=made)


def seen(found: Document) -> Document:
    return Document.of({STATUS.name: found[STATUS]})


def asking(
    made: type[Asking] = Asking,
    *,
    ask: Command = Command.CANCEL,
    operates: Operates | None = None,
    orders: Orders = order,
    summary: str = "an operator cancels an invocation that a runner takes meanwhile: it is cancelled, or had ended",
    budget: int = 1,
) -> Scenario:
    """The scenario.

    Args:
        made: The programs; a faulty variant of them, perhaps.
        ask: What is asked.
        operates: What the operator does; he asks once by default.
        orders: How the runner reads what it was asked to do, or a faulty variant.
        summary: One line for people.
        budget: How many faults may strike the operator.
    """
    has_ended = ask is Command.REPEAT
    world = world_with({RECORDS: (record(status.FAILED if has_ended else status.REGISTERED),)})
    world = world.write(journal(RECORDS, KEY), (seen(contents(world, RECORDS)[0]),))
    before = contents(world, RECORDS)[0]
    means = journaled(RECORDS, KEY, seen, perform)
    program = partial(asks, ask) if operates is None else operates
    asked = made(request="ann", records=RECORDS, attempts=3, pauses=Pauses(Fixed(0)))
    operator = Process("operator", lambda _: program(asked), LOST, means, raises=True)
    worker = Process(RUNNER, lambda _: runs(orders), meaning=means)
    actors: tuple[Actor, ...] = (operator, Network(means)) if has_ended else (operator, worker, Network(means))

    def now(state: State) -> Document:
        found = state.read(document(RECORDS, KEY))
        assert found is not None, "nobody removes it"
        return found

    def statuses(state: State) -> list[str]:
        return [each[STATUS] for each in state.read(journal(RECORDS, KEY))]

    def answer(state: State) -> Asked | None:
        match state.status("operator"):
            case Returned(Asked() as found):
                return found
            case _:
                return None

    def copies(state: State) -> list[Document]:
        return [each for each in contents(state, RECORDS) if each[ID] != KEY]

    def is_counted(state: State) -> bool:
        found = answer(state)
        is_so = {
            Command.CANCEL: statuses(state)[-1] == status.CANCELLED,
            Command.KILL: False,
            Command.HOLD: not now(state).has(HELD),  # released
            Command.REPEAT: bool(copies(state)),
        }[ask]
        return found is None or laws.asking.each_is_counted_once(found, 1, int(is_so))

    def is_obeyed(state: State) -> bool:
        found = answer(state)
        return found is None or not found.told or laws.asking.what_was_told_is_obeyed(now(state))

    def is_killed_once(state: State) -> bool:
        return laws.asking.a_kill_is_of_one_run(1, statuses(state).count(status.REROUTED))

    def is_released(state: State) -> bool:
        found = answer(state)
        return found is None or bool(found.unknown) or laws.asking.released_is_due_again(now(state))

    of_ask: dict[Command, tuple[dict[str, Law], dict[str, Law], dict[str, Law]]] = {
        Command.CANCEL: (
            {STAYS: lambda state: laws.asking.what_has_ended_stays(statuses(state))},
            {OBEYED: is_obeyed},
            {
                "it is cancelled before it is taken": lambda state: (
                    statuses(state) == [status.REGISTERED, status.CANCELLED]
                ),
                "its runner cancels it": lambda state: statuses(state)[-2:] == [status.RUNNING, status.CANCELLED],
            },
        ),
        Command.KILL: (
            {KILLED: is_killed_once},
            {},
            {"it is killed, and succeeds": lambda state: {status.REROUTED, status.SUCCESS} <= {*statuses(state)}},
        ),
        Command.HOLD: (
            {HELD_BACK: lambda state: laws.asking.held_is_not_due(now(state))},
            {RELEASED: is_released},
            {"it is held": lambda state: now(state).has(HELD)},
        ),
        Command.REPEAT: (
            {COPIED: lambda state: laws.asking.one_copy_at_most(copies(state), before, now(state))},
            {},
            {"there is a copy": lambda state: bool(copies(state))},
        ),
    }
    always, eventually, sometimes = of_ask[ask]
    return Scenario(
        name="asking",
        summary=summary,
        world=world,
        actors=actors,
        budget=budget,
        always={COUNTED: is_counted, **always},
        eventually=eventually,
        sometimes=sometimes,
    )


_KILL: Final = partial(
    asking, ask=Command.KILL, summary="an operator kills a run: it is given back, and the next run is left in peace"
)
_HOLD: Final = partial(
    asking,
    ask=Command.HOLD,
    operates=holds_and_releases,
    summary="an operator holds an invocation, and releases it: what comes late changes nothing",
)
_REPEAT: Final = partial(
    asking,
    ask=Command.REPEAT,
    summary="an operator repeats what has failed: there is one copy, whatever becomes of replies",
)

SCENARIOS: Final = (
    Shipped("asking", asking, thorough=partial(asking, budget=2), large=partial(asking, budget=4)),
    Shipped("asking.kill", _KILL, thorough=partial(_KILL, budget=2), large=partial(_KILL, budget=4)),
    Shipped("asking.held", _HOLD, thorough=partial(_HOLD, budget=2), large=partial(_HOLD, budget=4)),
    Shipped("asking.repeated", _REPEAT, thorough=partial(_REPEAT, budget=2), large=partial(_REPEAT, budget=4)),
)
