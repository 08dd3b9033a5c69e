"""Twenty-two ways to get triggers wrong. Each differs from `tidegate.triggers.evaluator` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final, TypeAlias

import attrs

from tidegate.model.documents import ID, Document, Eq, Field, Filter, In, OlderThan
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Refused
from tidegate.model.instants import Instant
from tidegate.model.operations import StoreTime, delete_many, delete_one, find_all
from tidegate.model.programs import insert_new
from tidegate.model.reading import needed
from tidegate.retries.resending import Done
from tidegate.retries.schedule import Due, FirstSeen, Look, NextAfter, Schedule, ScheduleCell, TooLate
from tidegate.sim.faults import Fault, Faults
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen
from tidegate.transactions.transacting import in_transaction
from tidegate.triggers._identity import identity
from tidegate.triggers.contexts import EventContext
from tidegate.triggers.definitions import Definition
from tidegate.triggers.evaluator import PARTS, Asked, Evaluator, Invoked, Skipped
from tidegate.triggers.firing import Claims, Firing, Held, Plan, RunClaim, TriggerRun
from tidegate.triggers.scenarios.evaluator import (
    ALL_OR_NONE,
    BOTH,
    CLAIMED,
    DROPPED,
    EACH,
    FORGOTTEN,
    INSTANTS,
    INVOKED,
    MINUTE,
    NUMBERED,
    ON_A_BROKEN,
    ON_BOTH,
    ON_MINUTE,
    POLICY,
    SETTLED,
    SIZE_MAX_ONE,
    SIZE_MAX_SMALL,
    THEIRS,
    TOGETHER,
    TWICE,
    beside,
    packed,
    reporting,
    rolling,
    triggers,
)
from tidegate.triggers.trigger import NotProvided, Occurrence, Trigger, provided
from tidegate.triggers.trigger_documents import AT, OF, loaded_run, stored_occurrence, stored_run

__all__ = ["SPECIMENS"]

Triggers: TypeAlias = tuple[Trigger, ...]
Occurrences: TypeAlias = tuple[Occurrence, ...]
ALL_OF: Final = Field[tuple[str, ...]](OF.name)
Runs: TypeAlias = tuple[TriggerRun, ...]


def first_sight_fires(schedule: Schedule, next_after: NextAfter, cell: ScheduleCell | None, now: Instant) -> Look:
    """A cron that is seen for the first time fires at once, whatever its schedule says."""
    found = PARTS.look(schedule, next_after, cell, now)
    return FirstSeen(ScheduleCell(now, 1, (now,))) if isinstance(found, FirstSeen) else found


def instant_of_the_look(schedule: Schedule, next_after: NextAfter, cell: ScheduleCell | None, now: Instant) -> Look:
    """What fires is the time at which somebody looked, and not the instant that was due."""
    found = PARTS.look(schedule, next_after, cell, now)
    if not isinstance(found, Due) or cell is None:
        return found
    return Due(
        found.at, ScheduleCell(now, cell.version + 1, tuple(sorted({*cell.pending, now}, key=lambda each: each.at)))
    )


def late_is_skipped(schedule: Schedule, next_after: NextAfter, cell: ScheduleCell | None, now: Instant) -> Look:
    """An instant fires only to whoever looks within a minute of it, and is skipped otherwise."""
    found = PARTS.look(schedule, next_after, cell, now)
    if isinstance(found, Due) and cell is not None and now - found.at >= MINUTE:
        return TooLate(found.at, ScheduleCell(found.at, cell.version + 1, cell.pending))
    return found


def drops_what_was_tried(triggers: Triggers, occurrences: Occurrences, runs: Runs, now: Instant) -> Plan:
    """An occurrence is dropped once its run is tried, though whoever holds it may die."""
    made = PARTS.plan(triggers, occurrences, runs, now)
    tried = {each.id for run in runs for each in run.firing.occurrences}.difference(made.dropped)
    return attrs.evolve(made, dropped=(*made.dropped, *sorted(tried)))


def nothing_is_spared(made: Plan, others: tuple[Definition, ...], occurrences: Occurrences) -> Plan:
    """What a process does not know is dropped, and given up, as if nobody knew it."""
    del others, occurrences
    return made


def named_by_its_view(triggers: Triggers, occurrences: Occurrences, runs: Runs, now: Instant) -> Plan:
    """A run of all conditions is named by the occurrences that its planner sees, so that two views are two runs."""
    made = PARTS.plan(triggers, occurrences, runs, now)
    return attrs.evolve(made, firings=tuple(map(named, made.firings)))


def named(wanted: Firing) -> Firing:
    number = int(identity(*[each.id for each in wanted.occurrences])[:8], 16)
    return Firing(wanted.trigger_id, wanted.occurrences, number)


def sets_never_age(triggers: Triggers, occurrences: Occurrences, runs: Runs, now: Instant) -> Plan:
    """Occurrences wait for each other for ever, so last month's event meets today's."""
    seen_now = tuple(attrs.evolve(each, seen=now) for each in occurrences)
    seen = {each.id: each for each in occurrences}
    made = PARTS.plan(triggers, seen_now, runs, now)
    return attrs.evolve(
        made,
        firings=tuple(
            Firing(each.trigger_id, tuple(seen[one.id] for one in each.occurrences), each.number)
            for each in made.firings
        ),
    )


def claims_are_taken(wanted: Firing, run: TriggerRun | None, claims: Claims, by: str, now: Instant) -> RunClaim:
    """A claim is taken over without a look at its expiry."""
    if run is not None and isinstance(run.state, Held) and run.state.by != by:
        run = attrs.evolve(run, state=Held(run.state.by, now))
    return PARTS.claim(wanted, run, claims, by, now)


def writes_by_id(key: str, version: int) -> Filter:
    """A run is written by id alone, whatever its version is by now."""
    del version
    return Eq(ID, key)


async def settles_before_it_invokes(evaluator: Evaluator, asked: Asked) -> Invoked:
    """A run is said to have fired, and then its invocation is made."""
    await PARTS.settle(evaluator, tuple([(run, ()) for run, _ in asked]))
    return await PARTS.invoke(evaluator, asked)


def provider_ends_the_pass(triggers: Triggers, occurrences: Occurrences, runs: Runs, now: Instant) -> Plan:
    """What a provider raises ends the process that evaluates, and the next one, too."""
    made = PARTS.plan(triggers, occurrences, runs, now)
    providers = {trigger.id: trigger.provider for trigger in triggers}
    for each in made.firings:
        answer = provided(providers[each.trigger_id], tuple(one.context for one in each.occurrences))
        if isinstance(answer, NotProvided):
            raise Refused(answer.reasons[0])
    return made


async def names_it_again(evaluator: Evaluator, runs: Runs, now: Instant) -> tuple[tuple[str, ...], tuple[Skipped, ...]]:
    """A run that is too large for its record is named by each pass, and nothing behind it ever fires."""
    del now
    recorded: tuple[str, ...] = ()
    for run in runs:
        if await insert_new(evaluator.runs, stored_run(run)):
            recorded = (*recorded, run.id)
    return recorded, ()


async def refused_together(
    evaluator: Evaluator, runs: Runs, now: Instant
) -> tuple[tuple[str, ...], tuple[Skipped, ...]]:
    """Where one run is refused, all that are claimed with it are left to the next pass, which asks for the same."""
    del now
    try:
        for run in runs:
            await insert_new(evaluator.runs, stored_run(run))
    except Refused as refused:
        return (), tuple([Skipped(run.id, refused.reason) for run in runs])
    return tuple([run.id for run in runs]), ()


async def settles_what_nobody_confirmed(evaluator: Evaluator, asked: Asked) -> Invoked:
    """All runs that were asked for together are said to have fired, though nobody has said whether their invocations are there."""
    answers = await PARTS.invoke(evaluator, asked)
    return tuple([(key, reasons or ()) for key, reasons in answers])


async def forgets_the_last_run(evaluator: Evaluator) -> None:
    """All runs that are over are forgotten, the last one of a trigger of all conditions included."""
    try:
        await StoreTime()
        found = await find_all(evaluator.runs, limit=10)
        for run in tuple([loaded_run(each) for each in found]):
            if run.state.settled:
                await delete_one(evaluator.runs, PARTS.at_version(run.id, run.version))
    except (Ambiguous, NotApplied, NotDurable):
        return


async def looks_at_one_page(evaluator: Evaluator, found: tuple[Document, ...]) -> None:
    """What waits is read to the end of a page, and what is not on it is taken for done."""
    page = await find_all(evaluator.occurrences, limit=1, fields=())
    waiting = frozenset([each[ID] for each in page])
    read = [(doc[ID], needed(doc, ALL_OF)) for doc in found]
    going = tuple([key for key, of in read if waiting.isdisjoint(of)])
    if going:
        await delete_many(evaluator.runs, In(ID, going), OlderThan(AT, evaluator.keep))


async def forgets_by_id(evaluator: Evaluator, found: tuple[Document, ...]) -> None:
    """What was read as old is deleted, whatever has become of it since."""
    held = [needed(doc, ALL_OF) for doc in found]
    of = tuple([each for some in held for each in some])
    page = await find_all(evaluator.occurrences, In(ID, of), limit=1, fields=()) if of else ()
    if found and not page:
        await delete_many(evaluator.runs, In(ID, tuple([doc[ID] for doc in found])))


async def reported_before(programs: Evaluator) -> bool:
    """It is reported before the transaction, as a message is that a broker of its own keeps."""
    await programs.notice(EventContext("a", "a1"), "r")
    return isinstance(await in_transaction("session", packed, POLICY), Done)


async def one_by_one(evaluator: Evaluator, occurrences: Occurrences, by: str) -> bool:
    """Each condition of an event notices it by a write of its own, and whoever reports it may die in between."""
    del by
    for each in occurrences:
        await insert_new(evaluator.occurrences, stored_occurrence(each))
    return True


async def kept_unheard(evaluator: Evaluator, occurrences: Occurrences, by: str) -> bool:
    """It is said to be kept, whatever has become of the transaction."""
    await PARTS.keep(evaluator, occurrences, by)
    return True


def planted(
    name: str, wrong: object, make: partial[Scenario], law: str, source: str, *, of: str = "triggers"
) -> Specimen:
    """The scenario of the programs, with the bug in its place."""
    summary = (wrong.__doc__ or "").partition("\n")[0]
    return Specimen(f"triggers.{name}", partial(make, summary=summary), law, source, of)


ALL: Final = "triggers.all_conditions"
CRON: Final = "triggers.cron"

SPECIMENS: Final = (
    planted(
        "first_sight_fires",
        first_sight_fires,
        partial(
            triggers, attrs.evolve(PARTS, look=first_sight_fires), trigger=ON_MINUTE, events=(), is_seen=False, moves=0
        ),
        INSTANTS,
        "pynenc fires a cron at first sight, and each start of a process is one: a yearly job ran in June.",
        of="triggers.first_sight",
    ),
    planted(
        "instant_of_the_look",
        instant_of_the_look,
        partial(triggers, attrs.evolve(PARTS, look=instant_of_the_look), trigger=ON_MINUTE, events=(), moves=2),
        EACH,
        "pynenc's instants are the times at which somebody looked, so a catch-up fires once for many.",
        of=CRON,
    ),
    planted(
        "late_is_skipped",
        late_is_skipped,
        partial(triggers, attrs.evolve(PARTS, look=late_is_skipped), trigger=ON_MINUTE, events=(), moves=2),
        EACH,
        "pynenc asks whether now is within a minute of an instant: an hourly job that is looked at late is skipped.",
        of=CRON,
    ),
    planted(
        "drops_what_was_tried",
        drops_what_was_tried,
        partial(triggers, attrs.evolve(PARTS, plan=drops_what_was_tried), moves=0),
        DROPPED,
        "pynenc deletes a condition that was tried although the claim was refused; a crash of the holder loses it.",
    ),
    planted(
        "nothing_is_spared",
        nothing_is_spared,
        partial(rolling, attrs.evolve(PARTS, spare=nothing_is_spared)),
        THEIRS,
        "Our own first draft: an old version, beside a new one, dropped what the new one's triggers waited for.",
        of="triggers.rolling",
    ),
    planted(
        "named_by_its_view",
        named_by_its_view,
        partial(
            triggers,
            attrs.evolve(PARTS, plan=named_by_its_view),
            trigger=ON_BOTH,
            reported=("b1", "a2"),
            moves=0,
            only=TWICE,
        ),
        TWICE,
        "pynenc names a run of all conditions by the occurrences that one planner sees: two views fire twice.",
        of=ALL,
    ),
    planted(
        "sets_never_age",
        sets_never_age,
        partial(triggers, attrs.evolve(PARTS, plan=sets_never_age), trigger=ON_BOTH, reported=("b1",), moves=2),
        TOGETHER,
        "pynenc's contexts of all conditions never age: last month's event pairs with today's.",
        of=ALL,
    ),
    planted(
        "claims_are_taken",
        claims_are_taken,
        partial(triggers, attrs.evolve(PARTS, claim=claims_are_taken), moves=0),
        CLAIMED,
        "Planted: so it is where each machine judges an expiry by its own clock, and one is ahead.",
    ),
    planted(
        "writes_by_id",
        writes_by_id,
        partial(triggers, attrs.evolve(PARTS, at_version=writes_by_id), evaluators=3),
        CLAIMED,
        "Planted: a write that does not ask for the version takes what another has claimed since it was read.",
    ),
    planted(
        "settles_before_it_invokes",
        settles_before_it_invokes,
        partial(triggers, attrs.evolve(PARTS, invoke=settles_before_it_invokes), moves=0),
        INVOKED,
        "pynenc claims, which drops the condition, and then makes the invocation: a crash in between loses it.",
    ),
    planted(
        "provider_ends_the_pass",
        provider_ends_the_pass,
        partial(triggers, attrs.evolve(PARTS, plan=provider_ends_the_pass), trigger=ON_A_BROKEN, moves=2),
        SETTLED,
        "pynenc: a provider may raise into the loop of all triggers, and the next pass meets the same one.",
        of="triggers.given_up",
    ),
    planted(
        "names_it_again",
        names_it_again,
        partial(
            triggers,
            attrs.evolve(PARTS, record=names_it_again),
            trigger=ON_BOTH,
            events=("A1", "B1"),
            reported=("b2", "a2"),
            evaluators=1,
            moves=0,
            size_max=SIZE_MAX_SMALL,
            passes=4,  # as many as the design needs
        ),
        SETTLED,
        "Our own second draft: each pass was refused the same record; the first draft ended there.",
        of="triggers.too_large",
    ),
    planted(
        "refused_together",
        refused_together,
        partial(
            triggers,
            attrs.evolve(PARTS, record=refused_together),
            events=("A1", "a2"),
            evaluators=1,
            moves=0,
            size_max=SIZE_MAX_ONE,
            passes=3,  # one more than the design needs
        ),
        SETTLED,
        "Planted: so it is where many are written in a transaction, or in an order, as drivers do unless told otherwise.",
        of="triggers.together",
    ),
    planted(
        "settles_what_nobody_confirmed",
        settles_what_nobody_confirmed,
        partial(
            triggers,
            attrs.evolve(PARTS, invoke=settles_what_nobody_confirmed),
            events=("a1", "a2"),
            evaluators=1,
            budget=2,
            moves=0,
        ),
        INVOKED,
        "Planted: a request for many that was answered by nobody is taken for one that was carried out.",
        of="triggers.together",
    ),
    planted(
        "forgets_the_last_run",
        forgets_the_last_run,
        partial(
            triggers,
            trigger=ON_BOTH,
            reported=("b1", "a2"),
            moves=0,
            purge=forgets_the_last_run,
            only=INVOKED,
        ),
        INVOKED,
        "Planted: runs of all conditions are numbered after the last one, so it must not be forgotten.",
        of="triggers.purged",
    ),
    planted(
        "purged_under_a_view",
        Evaluator,
        partial(
            triggers,
            trigger=ON_BOTH,
            reported=("b1", "a2", "b2"),
            moves=0,
            purge=Evaluator.purge,
            only=TWICE,
        ),
        TWICE,
        "Nothing is planted: runs that are kept for less time than a planner may stand still fire again.",
        of="triggers.purged",
    ),
    planted(
        "looks_at_one_page",
        looks_at_one_page,
        partial(
            triggers,
            attrs.evolve(PARTS, forget=looks_at_one_page),
            events=("a1", "a2"),
            moves=0,
            purge=Evaluator.purge,
        ),
        FORGOTTEN,
        "Planted: a find answers a page at most, and whoever asks for no more does not notice.",
        of="triggers.purged",
    ),
    planted(
        "forgets_by_id",
        forgets_by_id,
        partial(
            triggers,
            attrs.evolve(PARTS, forget=forgets_by_id),
            purge=Evaluator.purge,
            keep=MINUTE,
            attempts_max=1,
            moves=2,
        ),
        FORGOTTEN,
        "Planted: a run that was given up, and turns out to have fired, is forgotten in the moment in which it says so.",
        of="triggers.purged",
    ),
    planted(
        "numbers_by_view",
        named_by_its_view,
        partial(
            triggers,
            attrs.evolve(PARTS, plan=named_by_its_view),
            trigger=ON_BOTH,
            reported=("b1",),
            moves=0,
            only=NUMBERED,
        ),
        NUMBERED,
        "As above: what names a run by what was seen cannot tell which one comes next.",
        of=ALL,
    ),
    planted(
        "reported_before",
        reported_before,
        partial(beside, reported_before),
        BOTH,
        "What users of Oban and River praise that theirs do not: news of an order that was rolled back.",
        of="triggers.beside",
    ),
    planted(
        "one_by_one",
        one_by_one,
        partial(reporting, attrs.evolve(PARTS, keep=one_by_one), budget=2, faults=Faults.of(Fault.CRASH_BEFORE)),
        ALL_OR_NONE,
        "Ours, until it was asked what becomes of the conditions behind the one at which the process dies.",
        of="triggers.reporting",
    ),
    planted(
        "kept_unheard",
        kept_unheard,
        partial(reporting, attrs.evolve(PARTS, keep=kept_unheard), budget=2, faults=Faults.of(Fault.DROPPED)),
        ALL_OR_NONE,
        "Planted: so it is where nobody looks at what a transaction has come to.",
        of="triggers.reporting",
    ),
)
