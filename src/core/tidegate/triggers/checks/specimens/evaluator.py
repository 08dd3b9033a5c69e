"""Twenty-two faulty variants of the evaluator."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.model.documents import ID, AllOf, Eq
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable
from tidegate.model.operations import StoreTime, delete_one, find_all
from tidegate.retries.retrying import Done
from tidegate.retries.schedule import look
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant
from tidegate.sim.world.faults import Fault, Faults
from tidegate.transactions.transacting import in_transaction
from tidegate.triggers._cron_cells import CronCells
from tidegate.triggers._documents import at_version
from tidegate.triggers._starting import RunStarter
from tidegate.triggers.checks.scenarios.evaluator import (
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
    purges,
    reporting,
    rolling,
    triggers,
)
from tidegate.triggers.contexts import EventContext
from tidegate.triggers.evaluator import Evaluator
from tidegate.triggers.firing import claim, plan
from tidegate.triggers.trigger import NotProvided, provided
from tidegate.triggers.trigger_documents import VERSION, loaded_run


async def forgets_the_last_run(evaluator: Evaluator) -> None:
    """Purge every finished run, even the last one of a trigger of all conditions."""
    try:
        await StoreTime()
        found = await find_all(evaluator.runs, limit=10)
        for run in tuple([loaded_run(each) for each in found]):
            if run.state.settled:
                await delete_one(evaluator.runs, AllOf((Eq(ID, run.id), Eq(VERSION, run.version))))
    except (Ambiguous, NotApplied, NotDurable):
        return


async def reported_before(programs: Evaluator) -> bool:
    """Report before the transaction, like a message to a separate broker."""
    await programs.notice(EventContext("a", "a1"), "r")
    return isinstance(await in_transaction("session", packed, POLICY), Done)


def crons(**names: object) -> type[Evaluator]:
    return variant(Evaluator, CronCells=variant(CronCells, **names))


def starting(*replacements: tuple[str, str], **names: object) -> type[Evaluator]:
    return variant(Evaluator, RunStarter=variant(RunStarter, *replacements, **names))


ALL: Final = "triggers.all_conditions"
CRON: Final = "triggers.cron"

DUE: Final = "due if schedule.missed is Missed.EACH else now, cell.version + 1, (*cell.pending, due)"
NOW: Final = "now, cell.version + 1, tuple(sorted({*cell.pending, now}, key=lambda each: each.at))"
MAY_BE_FULL: Final = "    if len(cell.pending) >= PENDING_MAX:\n"
LATE: Final = """    if late >= MINUTE:
        return TooLate(due, ScheduleCell(due, cell.version + 1, cell.pending))
"""
DROPS: Final = "        tuple(each.id for each in sorted(dropped, key=_by_sight)),\n"
DROPS_TRIED: Final = """        (
            *(each.id for each in sorted(dropped, key=_by_sight)),
            *sorted({each.id for run in runs for each in run.firing.occurrences}.difference(each.id for each in dropped)),
        ),
"""
FIRES: Final = "tuple(sorted(kept, key=lambda firing: (_by_sight(firing.occurrences[0]), firing.id)))"
FIRES_A_VIEW: Final = f"""tuple(
            Firing(each.trigger_id, each.occurrences, int(identity(*[one.id for one in each.occurrences])[:8], 16))
            for each in {FIRES}
        )"""
PLANS: Final = "        made = plan(self.triggers, _unused(occurrences, used), runs, now)\n"
PROVIDES: Final = """        providers = {trigger.id: trigger.provider for trigger in self.triggers}
        for each in made.firings:
            answer = provided(providers[each.trigger_id], tuple(one.context for one in each.occurrences))
            if isinstance(answer, NotProvided):
                raise Refused(answer.reasons[0])
"""
INVOKES: Final = "        answers = await _invoke(self, asked) if asked else ()\n"
SETTLES: Final = """        if asked:
            await _settle(self, tuple([(run, ()) for run, _ in asked]))
"""
RECORDS: Final = "    if len(runs) > 1:\n"
RECORDS_EACH: Final = """    recorded: tuple[str, ...] = ()
    for run in runs:
        if await insert_new(starter.runs, stored_run(run)):
            recorded = (*recorded, run.id)
    return recorded, ()
"""
RECORDS_ALL: Final = """    try:
        for run in runs:
            await insert_new(starter.runs, stored_run(run))
    except Refused as refused:
        return (), tuple([Skipped(run.id, refused.reason) for run in runs])
    return tuple([run.id for run in runs]), ()
"""
WAITING: Final = (
    "    waiting = await _waiting(evaluator, tuple(dict.fromkeys([each for *_, of in runs for each in of])))\n"
)
A_PAGE: Final = """    page = await find_all(evaluator.occurrences, limit=1, fields=())
    waiting = frozenset([each[ID] for each in page])
"""

named_by_its_view: Final = partial(variant, plan, (FIRES, FIRES_A_VIEW))

SPECIMENS: Final = (
    specimen(
        "triggers.first_sight_fires", INSTANTS,
        "A cron that is seen for the first time fires at once, whatever its schedule says.",
        "pynenc fires a cron at first sight, and each start of a process is one: a yearly job ran in June.",
        lambda: crons(look=variant(look, ("FirstSeen(ScheduleCell(now))", "FirstSeen(ScheduleCell(now, 1, (now,)))"))),
        make=partial(triggers, trigger=ON_MINUTE, events=(), is_seen=False, moves=0), of="triggers.first_sight"),
    specimen(
        "triggers.instant_of_the_look", EACH,
        "What fires is the time at which somebody looked, and not the instant that was due.",
        "pynenc's instants are the times at which somebody looked, so a catch-up fires once for many.",
        lambda: crons(look=variant(look, (DUE, NOW))),
        make=partial(triggers, trigger=ON_MINUTE, events=(), moves=2), of=CRON),
    specimen(
        "triggers.late_is_skipped", EACH,
        "An instant fires only to whoever looks within a minute of it, and is skipped otherwise.",
        "pynenc asks whether now is within a minute of an instant: an hourly job that is looked at late is skipped.",
        lambda: crons(look=variant(look, (MAY_BE_FULL, LATE + MAY_BE_FULL), MINUTE=MINUTE)),
        make=partial(triggers, trigger=ON_MINUTE, events=(), moves=2), of=CRON),
    specimen(
        "triggers.drops_what_was_tried", DROPPED,
        "An occurrence is dropped once its run is tried, though whoever holds it may die.",
        "pynenc deletes a condition that was tried although the claim was refused; a crash of the holder loses it.",
        lambda: variant(Evaluator, plan=variant(plan, (DROPS, DROPS_TRIED))),
        make=partial(triggers, moves=0), of="triggers"),
    specimen(
        "triggers.nothing_is_spared", THEIRS,
        "What a process does not know is dropped, and given up, as if nobody knew it.",
        "Our own first draft: an old version, beside a new one, dropped what the new one's triggers waited for.",
        partial(variant, Evaluator, ("return spared(made, others, occurrences), cells", "return made, cells")),
        make=rolling, of="triggers.rolling"),
    specimen(
        "triggers.named_by_its_view", TWICE,
        "A run of all conditions is named by the occurrences that its planner sees, so that two views are two runs.",
        "pynenc names a run of all conditions by the occurrences that one planner sees: two views fire twice.",
        lambda: variant(Evaluator, plan=named_by_its_view()),
        make=partial(triggers, trigger=ON_BOTH, reported=("b1", "a2"), moves=0, only=TWICE), of=ALL),
    specimen(
        "triggers.sets_never_age", TOGETHER,
        "Occurrences wait for each other for ever, so last month's event meets today's.",
        "pynenc's contexts of all conditions never age: last month's event pairs with today's.",
        lambda: variant(
            Evaluator,
            plan=variant(plan, ("latch and newest.seen - latch[0].seen > trigger.within", "False"), (" if now - each.seen <= trigger.within", ""))),
        make=partial(triggers, trigger=ON_BOTH, reported=("b1",), moves=2), of=ALL),
    specimen(
        "triggers.claims_are_taken", CLAIMED,
        "A claim is taken over without a look at its expiry.",
        "Planted: so it is where each machine judges an expiry by its own clock, and one is ahead.",
        lambda: starting(claim=variant(claim, ("if until - now > 0:", "if holder == by and until - now > 0:"))),
        make=partial(triggers, moves=0), of="triggers"),
    specimen(
        "triggers.writes_by_id", CLAIMED,
        "A run is written by id alone, whatever its version is by now.",
        "Planted: a write that does not ask for the version takes what another has claimed since it was read.",
        lambda: starting(at_version=variant(at_version, ("AllOf((Eq(ID, key), Eq(VERSION, version)))", "Eq(ID, key)"))),
        make=partial(triggers, evaluators=3), of="triggers"),
    specimen(
        "triggers.settles_before_it_invokes", INVOKED,
        "A run is said to have fired, and then its invocation is made.",
        "pynenc claims, which drops the condition, and then makes the invocation: a crash in between loses it.",
        partial(starting, (INVOKES, SETTLES + INVOKES)),
        make=partial(triggers, moves=0), of="triggers"),
    specimen(
        "triggers.provider_ends_the_pass", SETTLED,
        "What a provider raises ends the process that evaluates, and the next one, too.",
        "pynenc: a provider may raise into the loop of all triggers, and the next pass meets the same one.",
        partial(variant, Evaluator, (PLANS, PLANS + PROVIDES), provided=provided, NotProvided=NotProvided),
        make=partial(triggers, trigger=ON_A_BROKEN, moves=2), of="triggers.given_up"),
    specimen(
        "triggers.names_it_again", SETTLED,
        "A run that is too large for its record is named by each pass, and nothing behind it ever fires.",
        "Our own second draft: each pass was refused the same record; the first draft ended there.",
        partial(starting, (RECORDS, RECORDS_EACH + RECORDS)),
        make=partial(
            triggers, trigger=ON_BOTH, events=("A1", "B1"), reported=("b2", "a2"), evaluators=1, moves=0, size_max=SIZE_MAX_SMALL,
            passes=4),  # as many as the design needs
        of="triggers.too_large"),
    specimen(
        "triggers.refused_together", SETTLED,
        "Where one run is refused, all that are claimed with it are left to the next pass, which asks for the same.",
        "Planted: so it is where many are written in a transaction, or in an order, as drivers do unless told otherwise.",
        partial(starting, (RECORDS, RECORDS_ALL + RECORDS)),
        make=partial(
            triggers, events=("A1", "a2"), evaluators=1, moves=0, size_max=SIZE_MAX_ONE,
            passes=3),  # one more than the design needs
        of="triggers.together"),
    specimen(
        "triggers.settles_what_nobody_confirmed", INVOKED,
        "All runs that were asked for together are said to have fired, though nobody has said whether their invocations are there.",
        "Planted: a request for many that was answered by nobody is taken for one that was carried out.",
        partial(starting, ("    return answers\n", "    return tuple([(key, reasons or ()) for key, reasons in answers])\n")),
        make=partial(triggers, events=("a1", "a2"), evaluators=1, budget=2, moves=0), of="triggers.together"),
    specimen(
        "triggers.forgets_the_last_run", INVOKED,
        "All runs that are over are forgotten, the last one of a trigger of all conditions included.",
        "Planted: runs of all conditions are numbered after the last one, so it must not be forgotten.",
        lambda: Evaluator,
        make=partial(triggers, trigger=ON_BOTH, reported=("b1", "a2"), moves=0, purge=forgets_the_last_run, only=INVOKED),
        of="triggers.purged"),
    specimen(
        "triggers.purged_under_a_view", TWICE,
        "Runs are kept for less time than a planner may stand still, and fire again.",
        "Nothing is planted: runs that are kept for less time than a planner may stand still fire again.",
        lambda: Evaluator,
        make=partial(triggers, trigger=ON_BOTH, reported=("b1", "a2", "b2"), moves=0, purge=purges, only=TWICE),
        of="triggers.purged"),
    specimen(
        "triggers.looks_at_one_page", FORGOTTEN,
        "What waits is read to the end of a page, and what is not on it is taken for done.",
        "Planted: a find answers a page at most, and whoever asks for no more does not notice.",
        partial(variant, Evaluator, (WAITING, A_PAGE)),
        make=partial(triggers, events=("a1", "a2"), moves=0, purge=purges), of="triggers.purged"),
    specimen(
        "triggers.forgets_by_id", FORGOTTEN,
        "What was read as old is deleted, whatever has become of it since.",
        "Planted: a run that was given up, and turns out to have fired, is forgotten in the moment in which it says so.",
        partial(variant, Evaluator, ("In(ID, going), OlderThan(AT, evaluator.keep)", "In(ID, going)")),
        make=partial(triggers, purge=purges, keep=MINUTE, attempts_max=1, moves=2), of="triggers.purged"),
    specimen(
        "triggers.numbers_by_view", NUMBERED,
        "A run of all conditions is named by the occurrences that its planner sees, so that two views are two runs.",
        "As above: what names a run by what was seen cannot tell which one comes next.",
        lambda: variant(Evaluator, plan=named_by_its_view()),
        make=partial(triggers, trigger=ON_BOTH, reported=("b1",), moves=0, only=NUMBERED), of=ALL),
    specimen(
        "triggers.reported_before", BOTH,
        "It is reported before the transaction, as a message is that a broker of its own keeps.",
        "What users of Oban and River praise that theirs do not: news of an order that was rolled back.",
        lambda: reported_before, make=beside, of="triggers.beside"),
    specimen(
        "triggers.one_by_one", ALL_OR_NONE,
        "Each condition of an event notices it by a write of its own, and whoever reports it may die in between.",
        "Ours, until it was asked what becomes of the conditions behind the one at which the process dies.",
        partial(variant, Evaluator, ("    if len(occurrences) < 2:\n", "    if True:\n")),
        make=partial(reporting, budget=2, faults=Faults.of(Fault.CRASH_BEFORE)), of="triggers.reporting"),
    specimen(
        "triggers.kept_unheard", ALL_OR_NONE,
        "It is said to be kept, whatever has become of the transaction.",
        "Planted: so it is where nobody looks at what a transaction has come to.",
        partial(variant, Evaluator, ("return isinstance(sent, Done)", "return True")),
        make=partial(reporting, budget=2, faults=Faults.of(Fault.DROPPED)), of="triggers.reporting"),
)  # fmt: skip
