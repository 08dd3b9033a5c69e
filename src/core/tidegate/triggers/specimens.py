"""Thirteen ways to get triggers wrong. Each differs from `tidegate.triggers.evaluator` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.model.documents import ID, Eq, Filter
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Refused
from tidegate.model.instants import Instant
from tidegate.model.operations import StoreTime, delete_one, find_all
from tidegate.retries import schedule
from tidegate.retries.schedule import Cell, Due, FirstSeen, TooLate
from tidegate.services.retention import Retention
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen
from tidegate.triggers import firing
from tidegate.triggers.conditions import OnCron, identity
from tidegate.triggers.evaluator import Evaluator
from tidegate.triggers.firing import Firing, Held, Plan, Run
from tidegate.triggers.scenarios import (
    CLAIMED,
    DROPPED,
    EACH,
    INSTANTS,
    INVOKED,
    MINUTE,
    NUMBERED,
    ON_A_BROKEN,
    ON_BOTH,
    ON_MINUTE,
    SETTLED,
    TOGETHER,
    TWICE,
    triggers,
)
from tidegate.triggers.trigger import NotProvided, Occurrence, provided
from tidegate.triggers.trigger_documents import loaded_run


@attrs.frozen(kw_only=True)
class FirstSightFires(Evaluator):
    """A cron that is seen for the first time fires at once, whatever its schedule says."""

    def _looked(self, cron: OnCron, cell: Cell | None, now: Instant) -> schedule.Look:
        found = super()._looked(cron, cell, now)
        return FirstSeen(Cell(now, 1, (now,))) if isinstance(found, FirstSeen) else found


@attrs.frozen(kw_only=True)
class InstantOfTheLook(Evaluator):
    """What fires is the time at which somebody looked, and not the instant that was due."""

    def _looked(self, cron: OnCron, cell: Cell | None, now: Instant) -> schedule.Look:
        found = super()._looked(cron, cell, now)
        if not isinstance(found, Due) or cell is None:
            return found
        return Due(found.at, Cell(now, cell.version + 1, tuple(sorted({*cell.pending, now}, key=lambda each: each.at))))


@attrs.frozen(kw_only=True)
class LateIsSkipped(Evaluator):
    """An instant fires only to whoever looks within a minute of it, and is skipped otherwise."""

    def _looked(self, cron: OnCron, cell: Cell | None, now: Instant) -> schedule.Look:
        found = super()._looked(cron, cell, now)
        if isinstance(found, Due) and cell is not None and now - found.at >= MINUTE:
            return TooLate(found.at, Cell(found.at, cell.version + 1, cell.pending))
        return found


@attrs.frozen(kw_only=True)
class DropsWhatWasTried(Evaluator):
    """An occurrence is dropped when its run was tried, though another may hold it, and die."""

    def _plans(self, occurrences: tuple[Occurrence, ...], runs: tuple[Run, ...], now: Instant) -> Plan:
        made = super()._plans(occurrences, runs, now)
        tried = tuple(each.id for each in occurrences if each.id not in made.dropped)
        return attrs.evolve(made, dropped=(*made.dropped, *tried))


@attrs.frozen(kw_only=True)
class NamedByItsView(Evaluator):
    """A run of all conditions is named by the occurrences that its planner sees, so that two views are two runs."""

    def _plans(self, occurrences: tuple[Occurrence, ...], runs: tuple[Run, ...], now: Instant) -> Plan:
        made = super()._plans(occurrences, runs, now)
        return attrs.evolve(made, firings=tuple(map(self._named, made.firings)))

    def _named(self, wanted: Firing) -> Firing:
        number = int(identity(*[each.id for each in wanted.occurrences])[:8], 16)
        return Firing(wanted.trigger_id, wanted.occurrences, number)


@attrs.frozen(kw_only=True)
class SetsNeverAge(Evaluator):
    """Occurrences wait for each other for ever, so last month's event meets today's."""

    def _plans(self, occurrences: tuple[Occurrence, ...], runs: tuple[Run, ...], now: Instant) -> Plan:
        seen_now = tuple(attrs.evolve(each, seen=now) for each in occurrences)
        seen = {each.id: each for each in occurrences}
        made = super()._plans(seen_now, runs, now)
        return attrs.evolve(
            made,
            firings=tuple(
                Firing(each.trigger_id, tuple(seen[one.id] for one in each.occurrences), each.number)
                for each in made.firings
            ),
        )


@attrs.frozen(kw_only=True)
class ClaimsAreTaken(Evaluator):
    """A claim is taken over without a look at its expiry."""

    def _claims(self, wanted: Firing, run: Run | None, by: str, now: Instant) -> firing.Claim:
        if run is not None and isinstance(run.state, Held) and run.state.by != by:
            run = attrs.evolve(run, state=Held(run.state.by, now))
        return super()._claims(wanted, run, by, now)


@attrs.frozen(kw_only=True)
class WritesById(Evaluator):
    """A run is written by id alone, whatever its version is by now."""

    def _at_version(self, key: str, version: int) -> Filter:  # noqa: ARG002  that is the bug
        return Eq(ID, key)


@attrs.frozen(kw_only=True)
class ToldBeforeItIs(Evaluator):
    """A run is said to have fired, and then its invocation is made."""

    async def _fire(self, wanted: Firing, by: str) -> None:
        run = await self._claimed(wanted, by)
        if run is None:
            return
        await self._told(run.id, run.attempt, ())
        trigger = next(each for each in self.triggers if each.id == run.firing.trigger_id)
        answer = provided(trigger.provider, tuple(each.context for each in run.firing.occurrences))
        if not isinstance(answer, NotProvided):
            await self._inserted(self.invocations, self._invocation(run, trigger, answer.arguments))


@attrs.frozen(kw_only=True)
class ProviderEndsThePass(Evaluator):
    """What a provider raises ends the process that evaluates, and the next one, too."""

    async def _told(self, run_id: str, attempt: int, reasons: tuple[str, ...]) -> None:
        if reasons:
            raise Refused(reasons[0])
        await super()._told(run_id, attempt, reasons)


@attrs.frozen(kw_only=True)
class ForgetsTheLastRun(Evaluator):
    """All runs that are over are forgotten, the last one of a trigger of all conditions included."""

    async def purge(self) -> None:
        try:
            await StoreTime()
            found = await find_all(self.runs, limit=10)
            for run in tuple([loaded_run(each) for each in found]):
                if run.state.settled:
                    await delete_one(self.runs, self._at_version(run.id, run.version))
        except (Ambiguous, NotApplied, NotDurable):
            return


def planted(name: str, make: partial[Scenario], law: str, source: str, of: str = "triggers") -> Specimen:
    """The scenario of the programs, with the bug in its place."""
    summary = (make.args[0].__doc__ or "").partition("\n")[0]
    return Specimen(f"triggers.{name}", partial(make, summary=summary), law, source, of)


ALL: Final = "triggers.all_conditions"
CRON: Final = "triggers.cron"

SPECIMENS: Final = (
    planted(
        "first_sight_fires",
        partial(triggers, FirstSightFires, trigger=ON_MINUTE, events=(), is_seen=False, moves=0),
        INSTANTS,
        "pynenc fires a cron at first sight, and each start of a process is one: a yearly job ran in June.",
        of="triggers.first_sight",
    ),
    planted(
        "instant_of_the_look",
        partial(triggers, InstantOfTheLook, trigger=ON_MINUTE, events=(), moves=2),
        EACH,
        "pynenc's instants are the times at which somebody looked, so a catch-up fires once for many.",
        of=CRON,
    ),
    planted(
        "late_is_skipped",
        partial(triggers, LateIsSkipped, trigger=ON_MINUTE, events=(), moves=2),
        EACH,
        "pynenc asks whether now is within a minute of an instant: an hourly job that is looked at late is skipped.",
        of=CRON,
    ),
    planted(
        "drops_what_was_tried",
        partial(triggers, DropsWhatWasTried, moves=0),
        DROPPED,
        "pynenc deletes a condition that was tried although the claim was refused; a crash of the holder loses it.",
    ),
    planted(
        "named_by_its_view",
        partial(triggers, NamedByItsView, trigger=ON_BOTH, reported=("b1", "a2"), moves=0, only=TWICE),
        TWICE,
        "pynenc names a run of all conditions by the occurrences that one planner sees: two views fire twice.",
        of=ALL,
    ),
    planted(
        "sets_never_age",
        partial(triggers, SetsNeverAge, trigger=ON_BOTH, reported=("b1",), moves=2),
        TOGETHER,
        "pynenc's contexts of all conditions never age: last month's event pairs with today's.",
        of=ALL,
    ),
    planted(
        "claims_are_taken",
        partial(triggers, ClaimsAreTaken, moves=0),
        CLAIMED,
        "Planted: so it is where each machine judges an expiry by its own clock, and one is ahead.",
    ),
    planted(
        "writes_by_id",
        partial(triggers, WritesById, evaluators=3),
        CLAIMED,
        "Planted: a write that does not ask for the version takes what another has claimed since it was read.",
    ),
    planted(
        "told_before_it_is",
        partial(triggers, ToldBeforeItIs, moves=0),
        INVOKED,
        "pynenc claims, which drops the condition, and then makes the invocation: a crash in between loses it.",
    ),
    planted(
        "provider_ends_the_pass",
        partial(triggers, ProviderEndsThePass, trigger=ON_A_BROKEN, moves=2),
        SETTLED,
        "pynenc: a provider may raise into the loop of all triggers, and the next pass meets the same one.",
        of="triggers.given_up",
    ),
    planted(
        "forgets_the_last_run",
        partial(
            triggers,
            ForgetsTheLastRun,
            trigger=ON_BOTH,
            reported=("b1", "a2", "b2"),
            moves=0,
            purges=True,
            only=INVOKED,
        ),
        INVOKED,
        "Planted: runs of all conditions are numbered after the last one, so it must not be forgotten.",
        of="triggers.purged",
    ),
    planted(
        "purged_under_a_view",
        partial(
            triggers,
            Evaluator,
            trigger=ON_BOTH,
            reported=("b1", "a2", "b2"),
            moves=0,
            purges=True,
            keep=Retention(age=0, count=1),
            only=TWICE,
        ),
        TWICE,
        "Nothing is planted: runs that are kept for less time than a planner may stand still fire again.",
        of="triggers.purged",
    ),
    planted(
        "numbers_by_view",
        partial(triggers, NamedByItsView, trigger=ON_BOTH, reported=("b1",), moves=0, only=NUMBERED),
        NUMBERED,
        "As above: what names a run by what was seen cannot tell which one comes next.",
        of=ALL,
    ),
)
