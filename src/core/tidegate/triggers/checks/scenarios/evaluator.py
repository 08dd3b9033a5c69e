"""Evaluators run passes while reporters report; each may crash or stall.

An evaluator runs a pass only when there is something to do, so that polling adds no states.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final, TypeAlias

import attrs

from tidegate.invocations.limits.registration import ORIGIN
from tidegate.model.documents import ID, SIZE_MAX, Document, Eq, Field, Put
from tidegate.model.effects import Ambiguous, Call, Effect, NotApplied, NotDurable, Program
from tidegate.model.instants import SECOND, Duration, Instant
from tidegate.model.operations import DeleteMany, DeleteOne, InsertOne, UpdateOne, update_one
from tidegate.retries.backoff import Fixed, Policy
from tidegate.retries.retrying import Done
from tidegate.retries.schedule import Missed, Schedule, ScheduleCell
from tidegate.sim.program.automaton import Crashed, Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Actor, Clock, Law, Scenario, State, StepLaw
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.servers.expiry import Expiry
from tidegate.sim.world.faults import Fault, Faults, all_effects
from tidegate.sim.world.world import (
    CLOCK,
    MANY,
    Cell,
    Meaning,
    Outcomes,
    Reads,
    World,
    contents,
    document,
    ids,
    perform,
    world_with,
)
from tidegate.transactions.transacting import in_transaction
from tidegate.triggers.checks import laws
from tidegate.triggers.conditions import Equal, OnCron, OnEvent, condition_id
from tidegate.triggers.contexts import EventContext, Kind
from tidegate.triggers.definitions import defined, stored_definition
from tidegate.triggers.evaluator import Evaluator, Noted
from tidegate.triggers.firing import Claims, Failed, Firing, GivenUp, Held, TriggerRun, plan
from tidegate.triggers.trigger import FromContext, Occurrence, Static, Trigger, ticks
from tidegate.triggers.trigger_documents import (
    FAILED,
    STATE,
    TRIGGER,
    loaded_cell,
    loaded_occurrence,
    loaded_run,
    stored_cell,
    stored_occurrence,
    stored_run,
)

Purging: TypeAlias = Callable[[Evaluator], Program[object]]

Ids: TypeAlias = tuple[str, ...]

MINUTE: Final = 60 * SECOND
OF: Final = Field[Ids]("of")

TWICE: Final = "no occurrence is invoked twice"
DROPPED: Final = "nothing is dropped unfired"
SETTLED: Final = "at rest nothing waits"
CLAIMED: Final = "a claim that lasts is not taken"
INSTANTS: Final = "what is invoked of a cron is an instant of it"
EACH: Final = "at rest each instant is invoked once"
NUMBERED: Final = "runs of all conditions are numbered"
TOGETHER: Final = "what fires together was seen together"
INVOKED: Final = "what has fired is invoked"
THEIRS: Final = "what others wait for stays"
ALL_OR_NONE: Final = "at rest all conditions of an event have noticed it, or none"
FORGOTTEN: Final = "what is forgotten is over and nothing needs it"

A: Final = OnEvent("a")
B: Final = OnEvent("b")
MINUTELY: Final = OnCron(Schedule("* * * * *", Missed.EACH))
ON_A: Final = Trigger(task="t", conditions=(A,))
ON_BOTH: Final = Trigger(task="t", conditions=(A, B), within=MINUTE)
ON_MINUTE: Final = Trigger(task="t", conditions=(MINUTELY,))

NOTICED: Final = Cell[Ids](("noticed",), ())
GIVEN_UP: Final = Cell[Ids](("given up",), ())
"""The ids of the occurrences of runs that were given up and then deleted."""


INSTANTS_OF: Final = {
    each.id: each.seen
    for each in ticks(
        MINUTELY, ScheduleCell(Instant(9 * MINUTE), 1, tuple(Instant(number * MINUTE) for number in range(1, 10)))
    )
}
"""The first instants of the cron, by the ids of their occurrences."""


def next_minute(expression: str, after: Instant) -> Instant:  # noqa: ARG001  there is only one expression
    return Instant((after.at // MINUTE + 1) * MINUTE, after.clock)


def broken(context: object) -> object:
    raise ValueError(context)


LARGE: Final = 1_000
SIZE_MAX_SMALL: Final = 1_700
"""Fits each occurrence, and a run of all four without the contents of the large ones."""
SIZE_MAX_ONE: Final = 1_500
"""Fits each occurrence, but no run of a large one."""
BOTH: Final = "an order is packed exactly if that was reported"
ORDERS: Final = "orders"
PACKED: Final = Field[bool]("packed")
SEEN: Final = Field[bool]("seen")
POLICY: Final = Policy(backoff=Fixed(0), attempts_max=3)
REPORTS: Final = Faults.of(
    Fault.CRASH_BEFORE, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE, Fault.CANCELLED, Fault.STALL
)
BESIDE: Final = Faults.of(Fault.CRASH_BEFORE, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY)
ANY_NUMBER: Final = 1_000
"""More passes than any scenario makes."""

ON_A_BROKEN: Final = Trigger(task="t", conditions=(A,), provider=FromContext("broken", Kind.EVENT, broken))


def stored(name: str) -> Document:
    """Return the stored occurrence of an event; a name in capitals has a large payload."""
    condition = A if name[0] in "aA" else B
    payload = Document.of({"text": "." * LARGE} if name.isupper() else {})
    return stored_occurrence(
        Occurrence(condition_id(condition), EventContext(condition.code, name, payload), Instant(0))
    )


# --- the world ------------------------------------------------------------------------------------


@lru_cache(10_000)
def run_of(doc: Document) -> TriggerRun:
    """Cached, because laws read the same runs often."""
    return loaded_run(doc)


def runs(world: Reads) -> tuple[TriggerRun, ...]:
    return tuple(map(run_of, contents(world, "runs")))


def gone(before: Reads, after: Reads) -> tuple[TriggerRun, ...]:
    left = {run.id for run in runs(after)}
    return tuple(run for run in runs(before) if run.id not in left)


def waiting(world: Reads) -> tuple[Occurrence, ...]:
    found = tuple(map(loaded_occurrence, contents(world, "occurrences")))
    cell = cron_cell(world)
    return found if cell is None else (*found, *ticks(MINUTELY, cell))


def cron_cell(world: Reads) -> ScheduleCell | None:
    found = world.read(document("crons", condition_id(MINUTELY)))
    return None if found is None else loaded_cell(found)


def is_needed(world: World, programs: Evaluator) -> bool:
    """Return whether a pass has work: a due cron, a run to claim, or an occurrence to drop."""
    now, cell = world.read(CLOCK), cron_cell(world)
    if programs.crons and (cell is None or next_minute("", cell.last) - now <= 0):
        return True
    known = {run.id: run for run in runs(world)}
    made = plan(programs.triggers, waiting(world), tuple(known.values()), now)
    return bool(made.dropped) or not all(lasts(known.get(each.id), now) for each in made.firings)


def lasts(run: TriggerRun | None, now: Instant) -> bool:
    return run is not None and isinstance(run.state, Held) and run.state.until - now > 0


def around(programs: Evaluator, size_max: int) -> Meaning:
    """Documents, calls that reply when a pass is needed or a run is over, and all ids."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        match effect:
            case Call("a pass is needed"):
                if is_needed(world, programs):
                    yield world, None
            case Call("a run is over"):
                if any(run.state.settled for run in runs(world)):
                    yield world, None
            case InsertOne("occurrences", doc):
                for after, reply in perform(effect, world, who, size_max):
                    yield after.write(NOTICED, tuple(sorted({*after.read(NOTICED), doc[ID]}))), reply
            case DeleteOne("runs") | DeleteMany("runs"):
                for after, reply in perform(effect, world, who, size_max):
                    given_up = [run for run in gone(world, after) if isinstance(run.state, GivenUp)]
                    known = after.read(GIVEN_UP)
                    of = {each.id for run in given_up for each in run.firing.occurrences}
                    yield (after.write(GIVEN_UP, tuple(sorted(of.union(known)))) if of else after), reply
            case _:
                yield from perform(effect, world, who, size_max)

    return meaning


# --- who is there ---------------------------------------------------------------------------------


async def evaluator(programs: Evaluator, name: str, passes_max: int) -> None:
    passes = 0
    while passes < passes_max:
        await Call("a pass is needed")
        passes += 1
        await programs.evaluate(f"{name}.{passes}")


async def reporter(programs: Evaluator, events: tuple[str, ...]) -> None:
    for name in events:
        await programs.notice(EventContext(name[0], name), name)


def purges(programs: Evaluator) -> Program[bool]:
    return programs.purge()


async def purger(programs: Evaluator, purge: Purging) -> None:
    await Call("a run is over")
    await purge(programs)


# --- laws -----------------------------------------------------------------------------------------


def origins(state: Reads) -> dict[object, Document]:
    calls = ((doc.held(ID), state.read(document("calls", doc[ID]))) for doc in contents(state, "invocations"))
    return {key: call[ORIGIN] for key, call in calls if call is not None}


def invoked(state: Reads) -> tuple[str, ...]:
    return tuple(each for origin in origins(state).values() for each in origin[OF])


def is_fired_once(state: State) -> bool:
    pairs = [(origin[TRIGGER], origin[OF]) for origin in origins(state).values()]
    return laws.evaluator.no_occurrence_is_invoked_twice(pairs)


def is_fired_before_it_goes(state: State) -> bool:
    stored_now = [doc[ID] for doc in contents(state, "occurrences")]
    noticed = state.read(NOTICED)
    done = (*invoked(state), *state.read(GIVEN_UP))
    return laws.evaluator.nothing_is_dropped_unfired(noticed, stored_now, runs(state), done)


def is_settled(programs: Evaluator, names: Ids) -> Law:
    def holds(state: State) -> bool:
        if all(state.status(name) == Crashed() for name in names):
            return True
        now = state.read(CLOCK)
        is_later = any(lasts(run, now) for run in runs(state))
        left = waiting(state)
        if programs.triggers[0].joins and len({each.condition_id for each in left}) == 1:
            return True  # it waits for an occurrence of the other condition
        return is_later or laws.evaluator.nothing_waits([each.id for each in left])

    return holds


def is_not_taken(before: State, after: State) -> bool:
    known = {run.id: run for run in runs(after)}
    return all(
        laws.evaluator.a_claim_is_not_taken(run, known.get(run.id, run), before.read(CLOCK)) for run in runs(before)
    )


def is_an_instant(state: State) -> bool:
    times = [INSTANTS_OF.get(each, Instant(0)) for each in invoked(state)]
    return laws.evaluator.instants_are_due(times, tuple(INSTANTS_OF.values()))


def is_each_invoked(names: tuple[str, ...]) -> Law:
    """Law TE4 at rest, for a cron that was first seen at the beginning."""

    def holds(state: State) -> bool:
        now = state.read(CLOCK)
        if all(state.status(name) == Crashed() for name in names) or any(lasts(run, now) for run in runs(state)):
            return True
        times = [INSTANTS_OF[each] for each in invoked(state)]
        return laws.evaluator.instants_are_invoked_once(times, [at for at in INSTANTS_OF.values() if now - at >= 0])

    return holds


def is_together(programs: Evaluator) -> Law:
    (trigger,) = programs.triggers
    return lambda state: all(laws.firing.a_run_is_complete(trigger, run.firing) for run in runs(state))


def is_forgotten_when_over(keep: Duration) -> StepLaw:
    def holds(before: State, after: State) -> bool:
        some = gone(before, after)
        left, still = (runs(after), [each.id for each in waiting(after)]) if some else ((), [])
        now = before.read(CLOCK)
        return all(laws.evaluator.what_is_forgotten_is_over(run, left, still, keep, now) for run in some)

    return holds


def is_invoked(state: State) -> bool:
    of = {str(key): origin[OF] for key, origin in origins(state).items()}
    return all(laws.evaluator.what_fired_is_invoked(run, of.get(run.id)) for run in runs(state))


def is_numbered(state: State) -> bool:
    return laws.evaluator.runs_are_numbered(run.firing for run in runs(state))


# --- scenarios ------------------------------------------------------------------------------------


def is_write(effect: Effect[object]) -> bool:
    return isinstance(effect, (UpdateOne, InsertOne, DeleteOne, *MANY))


FAULTS: Final = Faults(
    {
        **dict.fromkeys((Fault.CRASH_BEFORE, Fault.RESTART), all_effects),
        **dict.fromkeys((Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE), is_write),
    }
)
PARTLY: Final = attrs.evolve(FAULTS, kinds={**FAULTS.kinds, Fault.PARTLY_DONE: is_write})
PARTLY_IN_TIME: Final = attrs.evolve(
    PARTLY, kinds={kind: on for kind, on in PARTLY.kinds.items() if kind is not Fault.LATE}
)
CRASHES: Final = Faults.of(Fault.CRASH_BEFORE)
IN_TIME: Final = Faults({Fault.CRASH_BEFORE: all_effects, **dict.fromkeys((Fault.DROPPED, Fault.LOST_REPLY), is_write)})
ON_WRITES: Final = Faults.of(Fault.CRASH_BEFORE, Fault.DROPPED, Fault.LOST_REPLY, on=is_write)
"""Fewer faults, where all of them would make a default scope too large."""


def triggers(
    made: type[Evaluator] = Evaluator,
    *,
    summary: str = "two evaluators notice the same event, and crash, stall, or get no answer: it fires once",
    trigger: Trigger = ON_A,
    events: tuple[str, ...] = ("a1",),
    reported: tuple[str, ...] = (),
    evaluators: int = 2,
    budget: int = 0,
    moves: int = 1,
    purge: Purging | None = None,
    keep: Duration = 0,
    attempts_max: int = 2,
    is_seen: bool = True,
    size_max: int = SIZE_MAX,
    passes: int = ANY_NUMBER,
    faults: Faults = FAULTS,
    only: str | None = None,
) -> Scenario:
    """Evaluators of one trigger.

    Args:
        made: The evaluator class, or a faulty variant.
        summary: One line for people.
        trigger: The trigger.
        events: The events noticed before.
        reported: The events that one reporter reports, in order.
        evaluators: How many evaluators run.
        budget: The number of faults.
        moves: How often the clock may move a minute, in which a claim expires.
        purge: The purge program, or None.
        keep: How long the purge keeps runs, in microseconds.
        attempts_max: How often a run is tried.
        is_seen: Whether the cron has a cell at the start.
        size_max: The maximum size of a document, in bytes.
        passes: The maximum passes of each evaluator.
        faults: The faults of the evaluators.
        only: The only law to check, because one violation hides the next; None for all.
    """
    programs = made(
        triggers=(trigger,),
        next_after=next_minute,
        claims=Claims(expiry=MINUTE, attempts_max=attempts_max),
        keep=keep,
        batch=1,
        attempts=2,
    )
    means = around(programs, size_max)
    names = tuple(f"evaluator {number}" for number in range(1, evaluators + 1))

    def evaluate(name: str) -> Callable[[int], Program[object]]:
        return lambda life: evaluator(programs, f"{name}.{life}", passes)

    actors: tuple[Actor, ...] = (
        *(Process(name, evaluate(name), faults, means) for name in names),
        *((Process("reporter", lambda _: reporter(programs, reported), meaning=means),) if reported else ()),
        *((Process("purger", lambda _: purger(programs, purge), meaning=means),) if purge else ()),
        Network(means),
    )
    occurrences = tuple(map(stored, events))
    empty: dict[str, tuple[Document, ...]] = {
        "crons": (),
        "invocations": (),
    }  # laws read these even when they are empty
    world = world_with({"occurrences": occurrences, **empty}).write(
        NOTICED, tuple(sorted(doc[ID] for doc in occurrences))
    )
    if programs.crons and is_seen:
        cells = (stored_cell(condition_id(MINUTELY), ScheduleCell(Instant(0))),)
        world = world_with({**empty, "occurrences": (), "crons": cells})
    always: dict[str, Law] = {
        TWICE: is_fired_once,
        DROPPED: is_fired_before_it_goes,
        INVOKED: is_invoked,
        **({INSTANTS: is_an_instant} if programs.crons else {TOGETHER: is_together(programs)}),
        **({NUMBERED: is_numbered} if trigger.joins and not purge else {}),
    }
    steps = {CLAIMED: is_not_taken, **({FORGOTTEN: is_forgotten_when_over(keep)} if purge else {})}
    at_rest = {EACH: is_each_invoked(names)} if programs.crons and is_seen else {SETTLED: is_settled(programs, names)}
    return Scenario(
        name="triggers",
        summary=summary,
        world=world,
        actors=actors,
        budget=budget,
        clock=Clock(MINUTE, moves=moves),
        always={law: holds for law, holds in always.items() if only in (None, law)},
        step={law: holds for law, holds in steps.items() if only in (None, law)},
        eventually={law: holds for law, holds in at_rest.items() if only in (None, law)},
        sometimes=(
            {"it fires": lambda state: bool(invoked(state))}
            if trigger.provider == Static()
            else {"it is given up": lambda state: any(isinstance(run.state, GivenUp) for run in runs(state))}
        ),
    )


def rolling(
    made: type[Evaluator] = Evaluator,
    *,
    summary: str = "two versions of an application run side by side: what the one does not know stays for the other",
    budget: int = 1,
    passes: int = 2,
    faults: Faults = FAULTS,
) -> Scenario:
    """One evaluator knows a trigger on `a`; another version waits for `b` and has a failed run."""
    known = triggers(
        made, summary=summary, events=("a1", "b1"), evaluators=1, budget=budget, moves=0, passes=passes, faults=faults
    )
    theirs = Trigger(task="u", conditions=(B,))
    run = TriggerRun(Firing(theirs.id, (loaded_occurrence(stored("b2")),)), Failed(("no arguments",)))
    waits, failed = stored("b1"), stored_run(run)

    def is_theirs(state: State) -> bool:
        found = state.read(document("runs", run.id))
        return laws.evaluator.others_find_what_they_wait_for(
            state.read(document("occurrences", waits[ID])) is not None, found is not None and found[STATE] == FAILED
        )

    world = known.world
    for name, docs in (("runs", (failed,)), ("triggers", (stored_definition(defined(theirs), Instant(0)),))):
        for doc in docs:
            world = world.write(document(name, doc[ID]), doc).write(ids(name), (doc[ID],))
    return attrs.evolve(
        known,
        name="triggers.rolling",
        world=world,
        always={**{law: known.always[law] for law in (TWICE, INVOKED)}, THEIRS: is_theirs},
        eventually={},
    )


# --- in a transaction -----------------------------------------------------------------------------


async def packed() -> None:
    await update_one(ORDERS, Eq(ID, "o"), Put(PACKED, True))


async def packs(programs: Evaluator) -> None:
    await packed()
    await programs.notice_beside(EventContext("a", "a1"))


async def packing(programs: Evaluator) -> bool:
    """Mark and report in one transaction, repeated as needed."""
    return isinstance(await in_transaction("session", lambda: packs(programs), POLICY), Done)


async def looking() -> None:
    """Write into the order once, without retries; this may conflict with the transaction."""
    try:
        await update_one(ORDERS, Eq(ID, "o"), Put(SEEN, True))
    except (Ambiguous, NotApplied, NotDurable):
        return


def both_or_neither(state: State) -> bool:
    order = state.read(document(ORDERS, "o"))
    return laws.evaluator.is_kept_with_the_rest(
        is_kept=bool(contents(state, "occurrences")), is_written=order is not None and order.get(PACKED) is True
    )


def beside(
    pack: Callable[[Evaluator], Program[bool]] = packing,
    *,
    summary: str = "an order is packed and that reported in one transaction: both or neither, though another writes into the order",
    budget: int = 2,
) -> Scenario:
    """A report in a transaction."""
    programs = Evaluator(triggers=(ON_BOTH,), next_after=next_minute)
    return Scenario(
        name="triggers.beside",
        summary=summary,
        world=world_with({"occurrences": (), ORDERS: (Document.of({"_id": "o", "packed": False}),)}),
        actors=(
            Process("packer", lambda _: pack(programs), BESIDE),
            Process("looker", lambda _: looking()),
            Network(),
        ),
        budget=budget,
        always={BOTH: both_or_neither},
        sometimes={"it is packed": lambda state: bool(contents(state, "occurrences"))},
    )


# --- of several conditions ------------------------------------------------------------------------

ANY_A: Final = Trigger(task="u", conditions=(OnEvent("a", Equal(Document())),))


def reporting(
    made: type[Evaluator] = Evaluator,
    *,
    summary: str = "two report an event that two conditions hold of, and crash or get no answer: both have noticed it, or neither",
    budget: int = 1,
    faults: Faults = REPORTS,
) -> Scenario:
    """An event that is reported twice."""
    programs = made(triggers=(ON_A, ANY_A), next_after=next_minute, attempts=2)
    names = ("first", "second")

    def report(name: str) -> Callable[[int], Program[Noted]]:
        return lambda _: programs.notice(EventContext("a", "a1"), name)

    def all_or_none(state: State) -> bool:
        noticed, is_kept = len(contents(state, "occurrences")), Returned(Noted(is_kept=True))
        return laws.evaluator.all_have_noticed_or_none(
            noticed, len(programs.conditions), is_kept=any(state.status(name) == is_kept for name in names)
        )

    actors = tuple(Process(name, report(name), faults) for name in names)
    return Scenario(
        name="triggers.reporting",
        summary=summary,
        world=world_with({"occurrences": ()}),
        actors=(*actors, Network(), Expiry(actors)),
        budget=budget,
        eventually={ALL_OR_NONE: all_or_none},
        sometimes={"both have noticed it": lambda state: len(contents(state, "occurrences")) == 2},
    )


# fmt: off
_ON_BOTH: Final = partial(
    triggers, trigger=ON_BOTH, reported=("b1", "a2", "b2"),
    summary="events that have to meet come meanwhile: none fires twice, and runs are numbered")
_CRON: Final = partial(
    triggers, trigger=ON_MINUTE, events=(),
    summary="two evaluators look at a cron, late or not, and one may crash: each minute fires once")
_FIRST_SIGHT: Final = partial(
    _CRON, is_seen=False,
    summary="a cron is seen for the first time, by two at once: nothing fires before its first minute")
_GIVEN_UP: Final = partial(
    triggers, trigger=ON_A_BROKEN,
    summary="there are never any arguments: it is tried as often as it may be, and given up")
_TOO_LARGE: Final = partial(
    triggers, trigger=ON_BOTH, events=("A1", "B1"), reported=("b2", "a2"), size_max=SIZE_MAX_SMALL,
    summary="what meets is too large for the record of a run: it is given up, and what comes behind it fires")
_TOGETHER: Final = partial(
    triggers, events=("A1", "a2"), size_max=SIZE_MAX_ONE, faults=PARTLY,
    summary="several fire together, of which one is too large for its record: it is given up, and the others fire")
_PURGED: Final = partial(
    triggers, purge=purges,
    summary="runs that are over are forgotten while others evaluate: what has fired does not fire again")

SCENARIOS: Final = (
    Shipped("triggers.reporting", reporting, thorough=partial(reporting, budget=2), large=partial(reporting, budget=3)),
    Shipped("triggers.beside", beside, thorough=partial(beside, budget=3), large=partial(beside, budget=4)),
    Shipped(
        "triggers", partial(triggers, budget=1), thorough=partial(triggers, budget=2),
        large=partial(triggers, evaluators=3, budget=3, moves=3)),
    Shipped(
        "triggers.all_conditions", partial(_ON_BOTH, reported=("b1", "a2"), budget=1, moves=0, faults=IN_TIME),
        thorough=partial(_ON_BOTH, moves=1), large=partial(_ON_BOTH, budget=2, moves=3)),
    Shipped(
        "triggers.cron", partial(_CRON, budget=1, moves=2, faults=CRASHES),
        thorough=partial(_CRON, budget=1, moves=2, faults=IN_TIME),
        large=partial(_CRON, evaluators=3, budget=2, moves=4)),
    Shipped(
        "triggers.first_sight", partial(_FIRST_SIGHT, budget=1), thorough=partial(_FIRST_SIGHT, budget=2),
        large=partial(_FIRST_SIGHT, evaluators=3, budget=2, moves=4)),
    Shipped(
        "triggers.rolling", rolling, thorough=partial(rolling, budget=2), large=partial(rolling, budget=3, passes=4)),
    Shipped(
        "triggers.given_up", partial(_GIVEN_UP, budget=1, faults=IN_TIME), thorough=partial(_GIVEN_UP, budget=2),
        large=partial(_GIVEN_UP, evaluators=3, budget=3, moves=3)),
    Shipped(
        "triggers.too_large", partial(_TOO_LARGE, evaluators=1, budget=1, moves=0),
        thorough=partial(_TOO_LARGE, budget=1, moves=0), large=partial(_TOO_LARGE, budget=2)),
    Shipped(
        "triggers.together", partial(_TOGETHER, budget=1, moves=0, faults=PARTLY_IN_TIME),
        thorough=partial(_TOGETHER, budget=1), large=partial(_TOGETHER, events=("A1", "a2", "a3"), budget=2)),
    Shipped(
        "triggers.purged", partial(_PURGED, budget=1, moves=0, faults=ON_WRITES),
        thorough=partial(_PURGED, keep=MINUTE, attempts_max=1, moves=2),
        large=partial(_PURGED, events=("a1", "a2"), keep=MINUTE, budget=1, moves=2)),
)
# fmt: on
