from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, SECOND, WALL, Instant
from tidegate.retries import schedule
from tidegate.retries.schedule import Missed, Schedule, ScheduleCell
from tidegate.retries.strategies.schedule import port, timelines
from tidegate.services.retention import Retention
from tidegate.triggers import firing as module
from tidegate.triggers.conditions import Logic, OnCron, OnEvent
from tidegate.triggers.contexts import CronContext, EventContext, ResultContext, StatusContext
from tidegate.triggers.firing import (
    HISTORY,
    TRIGGER_GONE,
    Busy,
    Changed,
    Claimed,
    Claims,
    Exhausted,
    Failed,
    Fired,
    Firing,
    GivenUp,
    Held,
    Ignored,
    Plan,
    Purge,
    RunClaim,
    RunState,
    Settled,
    TriggerRun,
    claim,
    failed,
    fired,
    plan,
    purge,
)
from tidegate.triggers.laws import firing as laws
from tidegate.triggers.strategies import firing as drawn
from tidegate.triggers.strategies.firing import Found, event, event_triggers, events
from tidegate.triggers.strategies.trigger import occurrences
from tidegate.triggers.trigger import Occurrence, Trigger, ticks

EPOCH, NOW = Instant(0), Instant(20)
CARRIED = Document.of({"n": 1})
CLAIMS = Claims(expiry=10, attempts_max=2)
Planned = Callable[[Collection[Trigger], Collection[Occurrence], Collection[TriggerRun], Instant], Plan]


@attrs.frozen
class Pass:
    """What a pass asks: the real functions, but for one that is planted."""

    plan: Planned = module.plan
    claim: Callable[..., RunClaim] = module.claim
    fired: Callable[[TriggerRun, Instant], Changed | Ignored] = module.fired
    failed: Callable[[TriggerRun, int, tuple[str, ...], Claims, Instant], Changed | Ignored] = module.failed
    purge: Callable[..., Purge] = module.purge
    set_aside: Callable[[TriggerRun, str, Instant], TriggerRun] = module.set_aside
    look: Callable[..., schedule.Look] = schedule.look


REAL = Pass()


def effort(of: Pass, examples: int = 100) -> settings:
    """A counterexample to a specimen need not be a small one."""
    return (
        settings(max_examples=examples)
        if of == REAL
        else settings(phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False)
    )


A, B = OnEvent("a"), OnEvent("b")
SINGLE = Trigger(task="t", conditions=(A,))
EITHER = Trigger(task="t", conditions=(A, B), logic=Logic.ANY)
BOTH = Trigger(task="t", conditions=(A, B), within=6)
AB = (event("a", 1), event("b", 2))


def run(firing: Firing, state: RunState, attempt: int = 1) -> TriggerRun:
    return TriggerRun(firing, state, attempt, attempt)


# --- the laws of one step -------------------------------------------------------------------------------------------------


def check_fi2(of: Pass) -> None:
    @effort(of)
    @given(drawn.found())
    @example(Found((SINGLE,), AB[:1], (run(Firing(SINGLE.id, AB[:1]), Held("p", NOW)),), NOW))
    @example(Found((BOTH,), AB[:1], (), Instant(7)))
    @example(Found((BOTH, SINGLE), AB[:1], (), NOW))
    @example(Found((BOTH,), (event("a", 1), event("b", 7)), (), Instant(7)))
    def what_is_dropped_is_done(found: Found) -> None:
        made = of.plan(found.triggers, found.occurrences, found.runs, found.now)

        assert laws.dropped_when_done(made, found.triggers, found.occurrences, found.runs, found.now)

    what_is_dropped_is_done()


def check_fi3(of: Pass) -> None:
    @effort(of)
    @given(
        st.one_of(st.none(), drawn.runs()), drawn.claims(), st.sampled_from("pq"), st.integers(0, 40), st.integers(1, 3)
    )
    @example(run(Firing(SINGLE.id, AB[:1]), Held("q", NOW)), CLAIMS, "p", 15, 1)
    @example(run(Firing(SINGLE.id, AB[:1]), Held("q", NOW), 2), CLAIMS, "p", 15, 1)
    def what_is_held_is_kept(before: TriggerRun | None, claims: Claims, by: str, at: int, attempt: int) -> None:
        firing = before.firing if before else Firing(SINGLE.id, AB[:1])
        now = Instant(at)

        assert laws.held_claims_are_kept(before, by, now, of.claim(firing, before, claims, by=by, now=now))
        if before is not None:
            answer = of.failed(before, attempt, ("no",), claims, now)
            assert laws.only_its_own_attempt_fails(before, attempt, answer)

    what_is_held_is_kept()


def check_fi4_and_fi8(of: Pass) -> None:
    @effort(of)
    @given(drawn.runs(), drawn.claims(), st.sampled_from("pq"), st.integers(0, 40))
    @example(run(Firing(SINGLE.id, AB[:1]), Fired(NOW)), CLAIMS, "p", 15)
    @example(run(Firing(SINGLE.id, AB[:1]), GivenUp(("no",), NOW)), CLAIMS, "p", 15)
    @example(run(Firing(SINGLE.id, AB[:1]), Held("q", NOW), 2), CLAIMS, "p", 25)
    @example(run(Firing(SINGLE.id, AB[:1]), Failed(("no",)), 2), CLAIMS, "p", 25)
    def it_ends(before: TriggerRun, claims: Claims, by: str, at: int) -> None:
        now = Instant(at)
        answers = (
            of.claim(before.firing, before, claims, by=by, now=now),
            of.fired(before, now),
            of.failed(before, before.attempt, ("no",), claims, now),
        )
        for answer in answers:
            assert isinstance(answer, Busy) or laws.what_is_settled_stays(before, answer.run)
            assert laws.attempts_are_bounded(claims, before, answer)
        assert isinstance(answers[1].run.state, Fired)

    it_ends()


def check_fi5(of: Pass) -> None:
    @effort(of)
    @given(drawn.found())
    @example(Found((BOTH,), (event("a", 1), event("a", 3), event("b", 9)), (), NOW))
    @example(Found((BOTH,), (event("a", 1), event("b", 9)), (), NOW))
    def sets_are_complete(found: Found) -> None:
        made = of.plan(found.triggers, found.occurrences, found.runs, found.now)
        triggers = {each.id: each for each in found.triggers}

        assert all(laws.a_run_is_complete(triggers[firing.trigger_id], firing) for firing in made.firings)

    sets_are_complete()


def check_fi6(of: Pass) -> None:
    @effort(of)
    @given(st.lists(event_triggers(), min_size=1, max_size=3, unique_by=lambda each: each.id), events(12))
    @example([BOTH], (event("a", 1), event("b", 2), event("a", 9)))
    @example([BOTH], (event("a", 1), event("a", 9), event("b", 10)))
    def when_does_not_matter(triggers: list[Trigger], seen: tuple[Occurrence, ...]) -> None:
        often = settled(of, triggers, seen, [each.seen for each in seen])
        late = Instant(1000)

        assert laws.when_it_is_planned_does_not_matter(often, settled(of, triggers, seen, [late]))

    when_does_not_matter()


def settled(
    of: Pass, triggers: Collection[Trigger], seen: Collection[Occurrence], looks: Collection[Instant]
) -> list[Firing]:
    """What fires when somebody plans at these instants, until nothing is left, and drops what may be dropped."""
    runs: list[TriggerRun] = []
    dropped: set[str] = set()
    for now in looks:
        for _ in range(len(seen) + 1):
            there = [each for each in seen if each.seen.at <= now.at and each.id not in dropped]
            made = of.plan(triggers, there, runs, now)
            runs += [TriggerRun(firing, Fired(now)) for firing in made.firings]
            dropped |= set(made.dropped)
    return [each.firing for each in runs]


def check_fi7(of: Pass) -> None:
    @effort(of)
    @given(drawn.found(), st.randoms(use_true_random=False))
    def order_does_not_matter(found: Found, chance: Any) -> None:
        triggers, occurrences, runs = list(found.triggers), list(found.occurrences), list(found.runs)
        for each in (triggers, occurrences, runs):
            chance.shuffle(each)
        made = of.plan(found.triggers, found.occurrences, found.runs, found.now)

        assert laws.order_does_not_matter(made, of.plan(triggers, occurrences, runs, found.now))

    order_does_not_matter()


RETENTIONS = st.builds(Retention, age=st.integers(0, 12), count=st.integers(0, 3))


def check_fi9(of: Pass) -> None:
    @effort(of)
    @given(drawn.found(), RETENTIONS, RETENTIONS, st.integers(0, 8))
    @example(
        Found((), (), (run(Firing(BOTH.id, AB, 1), Fired(Instant(3))),), NOW), Retention(age=1), Retention(age=1), 0
    )
    @example(
        Found((), AB[:1], (run(Firing(SINGLE.id, AB[:1]), Fired(Instant(3))),), NOW),
        Retention(age=1),
        Retention(age=1),
        0,
    )
    @example(
        Found((), (), (run(Firing(SINGLE.id, AB[:1]), Held("p", NOW)),), NOW), Retention(age=1), Retention(age=1), 0
    )
    def what_is_needed_stays(found: Found, keep_events: Retention, keep_runs: Retention, gone_before: int) -> None:
        all_events = {
            each.context.event_id: each.seen
            for some in (found.occurrences, *(each.firing.occurrences for each in found.runs))
            for each in some
            if isinstance(each.context, EventContext)
        }
        stored = dict(list(all_events.items())[gone_before:])
        ask = partial(of.purge, now=found.now, keep_events=keep_events, keep_runs=keep_runs)
        gone = ask(stored, found.runs, found.occurrences)

        assert laws.a_purge_leaves_what_is_needed(stored, found.runs, found.occurrences, gone)
        left = {event: at for event, at in stored.items() if event not in gone.events}
        again = ask(left, [each for each in found.runs if each.id not in gone.runs], found.occurrences)
        assert again == Purge((), ())

    what_is_needed_stays()


# --- the laws of a race ---------------------------------------------------------------------------------------------------

CRON = OnCron(Schedule("* * * * *", Missed.EACH))
TRIGGERS = (
    SINGLE,
    EITHER,
    BOTH,
    Trigger(task="u", conditions=(A, B), within=3),
    Trigger(task="t", conditions=(CRON,)),
)
MIXED = Trigger(task="m", conditions=(CRON, A), within=6)


@attrs.define
class World:
    """What passes share: the stored occurrences, the cell of a cron, the runs, and the invocations that were inserted."""

    of: Pass
    line: tuple[Instant, ...]
    failures: list[bool]
    lost: list[bool]
    triggers: tuple[Trigger, ...] = (*TRIGGERS, MIXED)
    now: Instant = EPOCH
    cell: ScheduleCell | None = None
    first: int = 0
    stored: dict[str, Occurrence] = attrs.field(factory=dict)
    seen: list[Occurrence] = attrs.field(factory=list)
    runs: dict[str, TriggerRun] = attrs.field(factory=dict)
    invocations: dict[str, Firing] = attrs.field(factory=dict)

    def happens(self, code: str) -> None:
        self.now += 1
        occurrence = event(code, self.now.at)
        self.seen.append(occurrence)
        self.stored[occurrence.id] = occurrence

    def swap(self, before: TriggerRun | None, after: TriggerRun) -> bool:
        """A compare-and-set; tell whether the caller learns that it has won."""
        if self.runs.get(after.id) != before:
            return False
        self.runs[after.id] = after
        return not (self.lost and self.lost.pop())

    def insert(self, firing: Firing) -> bool:
        """Insert an invocation under the id of its run; tell whether the caller learns that it is there."""
        self.invocations.setdefault(firing.id, firing)
        return not (self.lost and self.lost.pop())

    def waiting(self) -> tuple[Occurrence, ...]:
        return (*self.stored.values(), *(ticks(CRON, self.cell) if self.cell else ()))

    def drop(self, dropped: Collection[str]) -> None:
        for each in dropped:
            self.stored.pop(each, None)
        if self.cell is not None:
            done = [each.seen for each in ticks(CRON, self.cell) if each.id in dropped]
            self.cell = schedule.closed(self.cell, done)


def look(world: World) -> Generator[None, None, None]:
    while True:
        cell = world.cell
        yield
        found = world.of.look(CRON.schedule, port(world.line), cell, world.now)
        if not isinstance(found, (schedule.FirstSeen, schedule.Due)):
            return
        yield
        if world.cell == cell:
            world.first = found.cell.last.at if cell is None else world.first
            world.cell = found.cell


def one_pass(world: World, me: str) -> Generator[None, None, None]:
    """One pass; each `yield` is a point at which others go on, or this one is killed."""
    yield from look(world)
    now = world.now
    yield
    waiting = world.waiting()
    yield
    made = world.of.plan(world.triggers, waiting, tuple(world.runs.values()), now)
    for firing in made.firings:
        yield from one_run(world, me, firing)
    yield
    world.drop(made.dropped)


def one_run(world: World, me: str, firing: Firing) -> Generator[None, None, None]:
    while True:
        before, now = world.runs.get(firing.id), world.now
        yield
        answer = world.of.claim(firing, before, CLAIMS, by=me, now=now)
        if not isinstance(answer, (Claimed, Exhausted)):
            return
        if answer.run == before or world.swap(before, answer.run):
            break
    if isinstance(answer, Exhausted):
        return
    mine = answer.run
    yield
    if world.failures and world.failures.pop():
        yield from tell(world, mine.id, lambda it: world.of.failed(it, mine.attempt, ("no",), CLAIMS, world.now))
    elif world.insert(mine.firing):
        yield from tell(world, mine.id, lambda it: world.of.fired(it, world.now))


def tell(world: World, run_id: str, of: Callable[[TriggerRun], Changed | Ignored]) -> Generator[None, None, None]:
    while True:
        before = world.runs[run_id]
        yield
        answer = of(before)
        if isinstance(answer, Ignored) or world.swap(before, answer.run):
            return


STEPS = st.one_of(
    st.tuples(st.integers(0, 2), st.just("step")),
    st.tuples(st.integers(0, 2), st.sampled_from(("step", "run", "run", "kill"))),
    st.tuples(st.integers(0, 3), st.sampled_from(("a", "b", "wait"))),
    st.tuples(st.integers(0, 3), st.sampled_from(("a", "b"))),
)


KILLED = [*[(0, "step")] * 7, (0, "kill"), (3, "wait"), *[(0, "step")] * 5, (0, "kill"), (3, "wait")]
"""Two passes that are killed when they have claimed the first run, and their claims have expired."""


def check_race(of: Pass) -> None:
    @effort(of, 150)
    @given(
        st.lists(STEPS, min_size=8, max_size=60),
        timelines(5),
        st.lists(st.booleans(), max_size=6),
        st.lists(st.booleans(), max_size=6),
    )
    @example([(0, "a"), (0, "run"), (1, "step"), (0, "step")], (), [], [])
    @example([(0, "a"), *[(0, "step")] * 7, (0, "kill"), (1, "run"), (1, "run")], (), [], [])
    @example([(0, "a"), (0, "b"), *[(0, "step")] * 5, (0, "a"), (1, "run"), (0, "run")], (), [], [])
    @example([(0, "run"), (3, "wait"), *[(0, "step")] * 5, (1, "run"), (0, "run")], (Instant(2),), [], [])
    @example([(0, "a"), (1, "wait"), (0, "run"), (0, "b")], (), [], [])
    @example([(0, "a"), *KILLED, (0, "run"), (0, "run")], (), [], [])
    def nothing_is_lost_or_fires_twice(
        steps: list[tuple[int, str]], line: tuple[Instant, ...], failures: list[bool], lost: list[bool]
    ) -> None:
        world = World(of, line, list(failures), list(lost))
        passes: dict[int, Generator[None, None, None]] = {}
        for number, (who, what) in enumerate(steps):
            match what:
                case "a" | "b":
                    world.happens(what)
                case "wait":
                    world.now += 4 * who
                case "kill":
                    passes.pop(who, None)
                case _:
                    mine = passes.setdefault(who, one_pass(world, f"{who}.{number}"))
                    for _ in range(1 if what == "step" else 25):
                        if next(mine, "over") == "over":
                            passes.pop(who, None)
        for who in sorted(passes):
            list(passes[who])
        judge(world, rest(world))

    nothing_is_lost_or_fires_twice()


@st.composite
def refused(draw: st.DrawFn) -> TriggerRun:
    """A new run of whatever happened, with whatever it carries."""
    happened = draw(st.lists(occurrences(), min_size=1, max_size=3, unique_by=lambda each: each.id))
    number = draw(st.integers(len(happened) > 1, 3))
    return TriggerRun(Firing("t", tuple(happened), number), Held("p", NOW))


def check_fi10(of: Pass) -> None:
    @effort(of)
    @given(refused())
    @example(TriggerRun(Firing("t", (Occurrence("c", ResultContext("t", "i", 1, 7, CARRIED), NOW),)), Held("p", NOW)))
    @example(TriggerRun(Firing("t", (Occurrence("c", EventContext("a", "1", CARRIED), NOW),)), Held("p", NOW)))
    def law(run: TriggerRun) -> None:
        assert laws.what_is_set_aside_carries_nothing(run, of.set_aside(run, "too large", NOW)), "FI10"

    law()


def rest(world: World) -> int:
    """Nobody disturbs any more: passes go on until nothing is left to do. How many it took."""
    world.failures, world.lost = [], []
    world.now += 100
    for number in range(100):
        before = (dict(world.runs), dict(world.stored), world.cell)
        list(one_pass(world, f"rest.{number}"))
        if before == (world.runs, world.stored, world.cell):
            return number
        world.now += CLAIMS.expiry
    raise AssertionError("passes never come to rest")


def judge(world: World, passes: int) -> None:
    assert passes < 60
    firings = [each.firing for each in world.runs.values()]
    assert laws.no_occurrence_fires_twice(firings), "FI1"
    assert laws.no_occurrence_fires_twice(world.invocations.values()), "FI1"
    for each in world.runs.values():
        assert each.state.settled
        assert each.attempt <= CLAIMS.attempts_max
        assert isinstance(each.state, GivenUp) or world.invocations[each.id] == each.firing

    expected = settled(REAL, world.triggers[:4], world.seen, [Instant(10_000)])
    assert laws.when_it_is_planned_does_not_matter(of_triggers(firings, world.triggers[:4]), expected)

    crons = of_triggers(firings, world.triggers[4:5])
    assert world.cell is not None
    due = [at for at in world.line if world.first < at.at <= world.now.at]
    assert sorted(each.occurrences[0].seen.at for each in crons) == [at.at for at in due]
    assert not world.cell.pending
    assert not world.stored


def of_triggers(firings: Collection[Firing], triggers: Collection[Trigger]) -> list[Firing]:
    return [each for each in firings if each.trigger_id in {trigger.id for trigger in triggers}]


LAWS: dict[str, Callable[[Pass], None]] = {
    "FI2": check_fi2,
    "FI3": check_fi3,
    "FI4, FI8": check_fi4_and_fi8,
    "FI5": check_fi5,
    "FI6": check_fi6,
    "FI7": check_fi7,
    "FI9": check_fi9,
    "FI10": check_fi10,
    "FI1 and all in a race": check_race,
}


@pytest.mark.parametrize("law", LAWS)
def test_passes_keep_the_law(law: str) -> None:
    """Laws FI1 to FI10, as the header of `tidegate.triggers.firing` states them; in the race, three passes are killed, lose replies,
    and meet providers that fail, and yet each due instant and each event has one firing of each trigger.
    """
    LAWS[law](REAL)


# --- specimens ----------------------------------------------------------------------------------------------------------


def tried_is_done(
    triggers: Collection[Trigger], occurrences: Collection[Occurrence], runs: Collection[TriggerRun], now: Instant
) -> Plan:
    """A loop as pynenc has it: what was tried is deleted, though the claim was another's, who was killed then."""
    made = plan(triggers, occurrences, runs, now)
    tried = {run.id for run in runs}
    used = {each.id for run in runs for each in run.firing.occurrences}
    dropped = {*made.dropped, *(each.id for each in occurrences if each.id in used)}
    return Plan(tuple(each for each in made.firings if each.id not in tried), (), tuple(sorted(dropped)))


def all_that_is_there(
    triggers: Collection[Trigger], occurrences: Collection[Occurrence], runs: Collection[TriggerRun], now: Instant
) -> Plan:
    """A set as pynenc has it: all occurrences that one planner sees, which also make its name; and nothing ages."""
    made = plan([each for each in triggers if not each.joins], occurrences, runs, now)
    firings = list(made.firings)
    for trigger in [each for each in triggers if each.joins]:
        mine = sorted((each for each in occurrences if each.condition_id in trigger.condition_ids), key=by_sight)
        if {each.condition_id for each in mine} == set(trigger.condition_ids):
            number = 1 + sum(each.seen.at for each in mine)
            if all(run.firing != Firing(trigger.id, tuple(mine), number) for run in runs):
                firings.append(Firing(trigger.id, tuple(mine), number))
    used = {each.id for run in runs if run.state.settled for each in run.firing.occurrences}
    return Plan(tuple(firings), (), tuple(each.id for each in occurrences if each.id in used))


def by_sight(occurrence: Occurrence) -> tuple[int, str]:
    return occurrence.seen.at, occurrence.id


def aged_by_now(
    triggers: Collection[Trigger], occurrences: Collection[Occurrence], runs: Collection[TriggerRun], now: Instant
) -> Plan:
    """What waits too long is dropped before anybody asks whether its set is complete."""
    least = min((each.within for each in triggers if each.joins), default=0)
    young = [each for each in occurrences if not least or now - each.seen <= least]
    made = plan(triggers, young, runs, now)
    return attrs.evolve(made, dropped=(*made.dropped, *[each.id for each in occurrences if each not in young]))


def dropped_at_once(
    triggers: Collection[Trigger], occurrences: Collection[Occurrence], runs: Collection[TriggerRun], now: Instant
) -> Plan:
    """What one trigger has aged out is dropped for the others too."""
    made = plan(triggers, occurrences, runs, now)
    old = [each.id for each in occurrences if now - each.seen > min((t.within for t in triggers), default=0)]
    return attrs.evolve(made, dropped=tuple(dict.fromkeys((*made.dropped, *old))))


def never_old(
    triggers: Collection[Trigger], occurrences: Collection[Occurrence], runs: Collection[TriggerRun], now: Instant
) -> Plan:
    """Last month's event meets today's."""
    forever = {each.id: attrs.evolve(each, within=10**9) for each in triggers}
    back = {other.id: each for each, other in forever.items()}
    made = plan(tuple(forever.values()), occurrences, (), now)
    del runs
    return attrs.evolve(
        made, firings=tuple(attrs.evolve(each, trigger_id=back[each.trigger_id]) for each in made.firings)
    )


def as_they_come(
    triggers: Collection[Trigger], occurrences: Collection[Occurrence], runs: Collection[TriggerRun], now: Instant
) -> Plan:
    """In the order of the store."""
    made = plan(triggers, occurrences, runs, now)
    order = {each.id: place for place, each in enumerate(occurrences)}
    return attrs.evolve(made, dropped=tuple(sorted(made.dropped, key=lambda each: order[each])))


def without_expiry(firing: Firing, run: TriggerRun | None, claims: Claims, *, by: str, now: Instant) -> RunClaim:
    """Whoever comes takes it."""
    held = run is not None and isinstance(run.state, Held)
    return claim(firing, run, claims, by=by, now=run.state.until if held else now)  # type: ignore[union-attr]


def same_attempt(firing: Firing, run: TriggerRun | None, claims: Claims, *, by: str, now: Instant) -> RunClaim:
    """A claim that was taken over looks like the one before."""
    answer = claim(firing, run, claims, by=by, now=now)
    if run is not None and isinstance(answer, Claimed):
        return Claimed(attrs.evolve(answer.run, attempt=run.attempt))
    return answer


def again_and_again(firing: Firing, run: TriggerRun | None, claims: Claims, *, by: str, now: Instant) -> RunClaim:
    """A run that kills its pass kills every pass."""
    return claim(firing, run, attrs.evolve(claims, attempts_max=10**6), by=by, now=now)


def any_attempt(
    run: TriggerRun, attempt: int, reasons: tuple[str, ...], claims: Claims, now: Instant
) -> Changed | Ignored:
    """An attempt that fails late ends the one that is under way."""
    del attempt
    return failed(run, run.attempt, reasons, claims, now)


def whatever_it_is(
    run: TriggerRun, attempt: int, reasons: tuple[str, ...], claims: Claims, now: Instant
) -> Changed | Ignored:
    """A failure that is reported late undoes what fired."""
    del attempt, claims, now
    return Changed(attrs.evolve(run, state=Failed(reasons), version=run.version + 1))


def unless_given_up(run: TriggerRun, now: Instant) -> Changed | Ignored:
    """The first end counts, and a run that fired after all is on record as given up."""
    return Ignored(run) if run.state.settled else fired(run, now)


def by_age_alone(
    events: Mapping[str, Instant],
    runs: Collection[TriggerRun],
    waiting: Collection[Occurrence],
    *,
    now: Instant,
    keep_events: Retention,
    keep_runs: Retention,
) -> Purge:
    """What waits for its set, or is under way, goes with the rest."""
    del runs, waiting, keep_runs
    return Purge(tuple(each for each, at in events.items() if 0 < keep_events.age < now - at), ())


def settled_ones(
    events: Mapping[str, Instant],
    runs: Collection[TriggerRun],
    waiting: Collection[Occurrence],
    *,
    now: Instant,
    keep_events: Retention,
    keep_runs: Retention,
) -> Purge:
    """The record of a run goes before its occurrence, or the last number is forgotten."""
    del waiting
    again = [attrs.evolve(each, firing=attrs.evolve(each.firing, number=0)) for each in runs if not each.firing.number]
    numbered = tuple(each.id for each in runs if each.firing.number and each.state.settled)
    gone = purge(events, again, (), now=now, keep_events=keep_events, keep_runs=keep_runs)
    return attrs.evolve(gone, runs=(*gone.runs, *numbered))


def with_all_it_carries(run: TriggerRun, reason: str, now: Instant) -> TriggerRun:
    """The same record again, which the store will not take either."""
    return attrs.evolve(run, state=GivenUp((reason,), now))


def without_the_others(run: TriggerRun, reason: str, now: Instant) -> TriggerRun:
    """What is left out of the record waits on."""
    found = module.set_aside(run, reason, now)
    return attrs.evolve(found, firing=attrs.evolve(found.firing, occurrences=found.firing.occurrences[:1]))


def at_the_time_of_the_look(*asked: Any) -> schedule.Look:
    """A cron as pynenc has it: the cell moves to now, so that what else was missed is lost."""
    cron, *others = asked
    return schedule.look(attrs.evolve(cron, missed=Missed.ONCE), *others)


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("FI2", Pass(plan=tried_is_done)),
        ("FI2", Pass(plan=dropped_at_once)),
        ("FI3", Pass(claim=without_expiry)),
        ("FI3", Pass(claim=same_attempt)),
        ("FI3", Pass(failed=any_attempt)),
        ("FI4, FI8", Pass(failed=whatever_it_is)),
        ("FI4, FI8", Pass(fired=unless_given_up)),
        ("FI4, FI8", Pass(claim=again_and_again)),
        ("FI5", Pass(plan=never_old)),
        ("FI6", Pass(plan=aged_by_now)),
        ("FI6", Pass(plan=all_that_is_there)),
        ("FI7", Pass(plan=as_they_come)),
        ("FI9", Pass(purge=by_age_alone)),
        ("FI9", Pass(purge=settled_ones)),
        ("FI10", Pass(set_aside=with_all_it_carries)),
        ("FI10", Pass(set_aside=without_the_others)),
        ("FI1 and all in a race", Pass(plan=tried_is_done)),
        ("FI1 and all in a race", Pass(plan=all_that_is_there)),
        ("FI1 and all in a race", Pass(plan=dropped_at_once)),
        ("FI1 and all in a race", Pass(look=at_the_time_of_the_look)),
        ("FI1 and all in a race", Pass(claim=again_and_again)),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Pass) -> None:
    """Each law is broken by a small faulty variant; several of them are pynenc's own."""
    with pytest.raises(AssertionError):
        LAWS[law](planted)


# --- facts --------------------------------------------------------------------------------------------------------------


def test_a_set_that_is_named_by_what_one_planner_sees_fires_twice_of_it() -> None:
    """Law FI1, and pynenc's specimen: it is this law that breaks, and no other one before it."""
    with pytest.raises(AssertionError, match="FI1"):
        check_race(Pass(plan=all_that_is_there))


def test_two_that_succeed_before_a_pass_fire_twice() -> None:
    """And once they are settled nothing is left (pynenc, case 41)."""
    two = (event("a", 1), event("a", 2))
    made = plan((SINGLE,), two, (), NOW)
    assert [each.occurrences for each in made.firings] == [two[:1], two[1:]]

    after = plan((SINGLE,), two, [run(each, Fired(NOW)) for each in made.firings], NOW)
    assert after == Plan((), (), tuple(each.id for each in two))


def test_a_set_has_all_that_the_latch_holds() -> None:
    """Both waited for b, so both are used up, on record, whichever invocation they came from (pynenc, case 42)."""
    three = (event("a", 1), event("a", 2), event("b", 3))
    made = plan((BOTH,), three, (), NOW)

    assert made.firings == (Firing(BOTH.id, three, 1),)
    assert made.dropped == ()


def test_a_set_lies_within_its_time_and_not_a_microsecond_more() -> None:
    """BOTH gives them 6: what is 6 apart meets, and what is 7 apart does not; then the older one is dropped."""
    early, just, late = event("a", 1), event("b", 7), event("b", 8)
    assert plan((BOTH,), (early, just), (), just.seen).firings == (Firing(BOTH.id, (early, just), 1),)
    assert plan((BOTH,), (early,), (), just.seen).dropped == ()

    assert plan((BOTH,), (early, late), (), late.seen) == Plan((), (), (early.id,))
    assert plan((BOTH,), (early,), (), late.seen).dropped == (early.id,)


def test_the_next_set_has_the_next_number() -> None:
    """So whoever makes it has seen what the one before has used up."""
    four = (*AB, event("a", 3), event("b", 4))
    first = run(Firing(BOTH.id, AB, 1), Held("p", NOW))

    assert plan((BOTH,), four, (first,), NOW).firings == (first.firing, Firing(BOTH.id, four[2:], 2))
    assert plan((BOTH,), four, (first,), NOW).firings[1].id != first.id


def test_what_nobody_waits_for_is_dropped() -> None:
    """In pynenc it stays for ever."""
    assert plan((), AB, (), NOW).dropped == tuple(each.id for each in AB)
    assert plan((SINGLE,), AB, (), Instant(3)).dropped == (AB[1].id,)


def test_a_run_whose_trigger_is_gone_is_given_up() -> None:
    """Nobody knows any more what it would start."""
    left = run(Firing(SINGLE.id, AB[:1]), Held("p", NOW))
    made = plan((), (), (left,), NOW)

    assert made == Plan((), (TriggerRun(left.firing, GivenUp((TRIGGER_GONE,), NOW), 1, 2),), ())


def test_the_plan_names_one_run_for_one_occurrence_of_any() -> None:
    """However many conditions a trigger of any has, and however often an occurrence is found."""
    made = plan((EITHER,), (*AB, *AB), (), NOW)

    assert [each.occurrences for each in made.firings] == [AB[:1], AB[1:]]


def test_an_occurrence_that_was_noticed_twice_was_seen_first() -> None:
    """Law FI7: which of the two is read first makes no difference; no set waits longer for a second notice."""
    first, again = AB[0], attrs.evolve(AB[0], seen=Instant(9))
    partner = event("b", 8)
    for both in ((first, again, partner), (again, first, partner)):
        assert plan((BOTH, SINGLE), both, (), NOW).firings == (Firing(SINGLE.id, (first,)),)


def test_a_run_that_was_read_twice_is_as_it_was_read_last() -> None:
    """Law FI7: three queries make the runs of a plan, so one may come twice, and be settled the second time."""
    held = run(Firing(SINGLE.id, AB[:1]), Held("p", NOW))
    done = TriggerRun(held.firing, Fired(NOW), 1, 2)
    for both in ((held, done), (done, held)):
        assert plan((SINGLE,), AB[:1], both, NOW) == Plan((), (), (AB[0].id,))
        assert plan((), (), both, NOW) == Plan((), (), ())


FIRING = Firing(SINGLE.id, AB[:1])


@pytest.mark.parametrize(
    ("state", "attempt", "at", "expected"),
    [
        (Held("p", Instant(30)), 1, 29, "same"),
        (Held("q", Instant(30)), 1, 29, Busy(Instant(30))),
        (Held("q", Instant(30)), 1, 30, "next"),
        (Held("p", Instant(30)), 1, 31, "next"),
        (Failed(("no",)), 1, 0, "next"),
        (Held("q", Instant(30)), 2, 30, ("its last claim expired",)),
        (Failed(("no",)), 2, 0, ("no",)),
        (Fired(NOW), 1, 99, "settled"),
        (GivenUp(("no",), NOW), 1, 99, "settled"),
    ],
)
def test_a_claim_holds_until_it_expires(state: RunState, attempt: int, at: int, expected: object) -> None:
    """An expiry that is now has expired (pynenc's rule); a claim of one's own is known again, for its reply was lost."""
    before, now = run(FIRING, state, attempt), Instant(at)
    answer = claim(FIRING, before, CLAIMS, by="p", now=now)

    answers: dict[object, object] = {
        "same": Claimed(before),
        "next": Claimed(TriggerRun(FIRING, Held("p", now + 10), attempt + 1, attempt + 1)),
        "settled": Settled(before),
    }
    if isinstance(expected, tuple):
        assert answer == Exhausted(TriggerRun(FIRING, GivenUp(expected, now), attempt, attempt + 1))
    else:
        assert answer == answers.get(expected, expected)


def test_the_record_counts_where_two_plans_differ() -> None:
    """A run with a number has the occurrences of whoever was first."""
    first = run(Firing(BOTH.id, AB, 1), Held("q", Instant(5)))
    mine = Firing(BOTH.id, (event("a", 7), event("b", 8)), 1)
    answer = claim(mine, first, CLAIMS, by="p", now=NOW)

    assert isinstance(answer, Claimed)
    assert answer.run.firing == first.firing


def test_a_run_that_was_given_up_may_have_fired() -> None:
    """Its last pass was only slow: the invocation is there, under the id of the run, and that is reported."""
    left = run(FIRING, GivenUp(("its last claim expired",), NOW))

    assert fired(left, Instant(30)) == Changed(TriggerRun(FIRING, Fired(Instant(30)), 1, 2))
    assert fired(run(FIRING, Fired(NOW)), Instant(30)) == Ignored(run(FIRING, Fired(NOW)))


def test_the_parent_is_the_first_event() -> None:
    """An invocation that follows an event is its child; one that follows something else has no such parent."""
    status = Occurrence("s", StatusContext("a", "i", 1, "retry"), Instant(0))

    assert Firing("x", (status, *AB), 1).parent == "a1"
    assert Firing("x", (status,)).parent is None


HELD = Held("p", NOW)


def at_minute(name: str, minutes: int) -> TriggerRun:
    seen = Instant(minutes * MINUTE)
    return TriggerRun(Firing("x", (Occurrence("c", EventContext("a", name), seen),)), Fired(seen + SECOND))


def test_a_purge_takes_runs_with_their_events() -> None:
    """By age and by count (pynenc, case 44); when both are off nothing goes."""
    runs = [at_minute(name, minutes) for minutes, name in enumerate("abc")]
    stored = {name: Instant(minutes * MINUTE) for minutes, name in enumerate("abc")}
    now, off = Instant(10 * MINUTE), Retention(age=0, count=0)

    by_age = purge(stored, runs, (), now=now, keep_events=Retention(age=9 * MINUTE - 1, count=0))
    assert by_age == Purge(("a", "b"), tuple(sorted(each.id for each in runs[:2])))
    by_count = purge(stored, runs, (), now=now, keep_events=Retention(age=0, count=1))
    assert by_count.events == ("a", "b")
    assert purge(stored, runs, (), now=now, keep_events=off, keep_runs=off) == Purge((), ())
    assert purge(stored, runs, (), now=now) == Purge((), ())
    assert purge(stored, runs, (), now=now + HISTORY.age).events == ("a", "b", "c")


def test_a_run_that_ended_before_it_was_seen_can_go() -> None:
    """Two clocks stepped, or a cron is seen ahead of its time: it ends as it starts."""
    early = TriggerRun(Firing("x", (Occurrence("c", EventContext("a", "e"), NOW),)), Fired(Instant(3)))

    assert purge({}, (early,), (), now=Instant(40), keep_runs=Retention(age=1)).runs == (early.id,)


def test_a_run_reads_as_one_line() -> None:
    """What a person can paste into an issue; and no payload is in it."""
    loaded = Occurrence("c", EventContext("a", "e"), NOW)
    firing = Firing("x" * 20, (loaded,))

    assert str(firing) == f"run {firing.id[:8]} of trigger xxxxxxxx: event 'e' of 'a', seen 20 us@store"
    assert str(TriggerRun(firing, Fired(NOW))).startswith(str(firing))
    assert str(TriggerRun(firing, Fired(NOW))).endswith("after 1 attempts, version 1")


def test_a_plan_takes_time_in_proportion() -> None:
    """Counted by comparisons of instants, not by a clock: twice the occurrences, about twice the work."""
    work = [planned_work(count) for count in (400, 800, 1600)]

    assert all(more < 2.6 * less for less, more in pairwise(work))


def planned_work(count: int) -> int:
    """How many instants are subtracted for half-met sets of this size, and for single events."""
    calls = Counter[str]()

    class Counted(int):
        def __sub__(self, other: int) -> int:
            calls["-"] += 1
            return int(self) - int(other)

    seen = tuple(attrs.evolve(event("a", number), seen=Instant(number)) for number in range(count))
    for each in seen:
        object.__setattr__(each.seen, "at", Counted(each.seen.at))
    plan((SINGLE, BOTH), seen, (), Instant(count))
    return calls["-"]


# --- bad input ----------------------------------------------------------------------------------------------------------

GOOD: list[tuple[Callable[..., object], dict[str, Any]]] = [
    (Held, {"by": "p", "until": NOW}),
    (Failed, {"reasons": ("no",)}),
    (GivenUp, {"reasons": ("no",), "at": NOW}),
    (Fired, {"at": NOW}),
    (Firing, {"trigger_id": "x", "occurrences": AB, "number": 1}),
    (TriggerRun, {"firing": FIRING, "state": HELD, "attempt": 1, "version": 1}),
    (plan, {"triggers": (SINGLE,), "occurrences": AB, "runs": (), "now": NOW}),
    (Claims, {"expiry": 1, "attempts_max": 1}),
    (claim, {"firing": FIRING, "run": run(FIRING, HELD), "claims": CLAIMS, "by": "p", "now": NOW}),
    (fired, {"run": run(FIRING, HELD), "now": NOW}),
    (failed, {"run": run(FIRING, HELD), "attempt": 1, "reasons": ("no",), "claims": CLAIMS, "now": NOW}),
    (failed, {"run": run(FIRING, Fired(NOW)), "attempt": 1, "reasons": ("no",), "claims": CLAIMS, "now": NOW}),
    (purge, {"events": {"e": NOW}, "runs": (), "waiting": AB, "now": NOW}),
    (purge, {"events": {}, "runs": (), "waiting": (), "now": NOW, "keep_events": HISTORY, "keep_runs": HISTORY}),
]


@pytest.mark.parametrize(
    "wrong", [True, 0.5, -1, "", b"x", object(), (None,), [0], {"a": 1}, Held], ids=lambda wrong: type(wrong).__name__
)
def test_arguments_of_the_wrong_type_are_misuse(wrong: Any) -> None:
    """Whatever stands in one place of a call, only tidegate's own error comes out."""
    calls = [partial(function, **{**good, name: wrong}) for function, good in GOOD for name in good]
    for call in calls:
        with pytest.raises(Misuse):
            call()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Firing("x", ()),
        lambda: Firing("x", (*AB, *AB), 1),
        lambda: Firing("x", AB),
        lambda: Firing("x", [*AB], 1),  # type: ignore[arg-type]
        lambda: purge({"e": 5}, (), (), now=NOW),  # type: ignore[dict-item]
        lambda: Failed(()),
        lambda: TriggerRun(FIRING, HELD, 2, 1),
        lambda: claim(Firing("y", AB[:1]), run(FIRING, HELD), CLAIMS, by="p", now=NOW),
        lambda: plan((), AB, (), Instant(5, WALL)),
        lambda: plan((), (attrs.evolve(AB[0], seen=Instant(5, WALL)),), (), NOW),
        lambda: claim(FIRING, run(FIRING, HELD), CLAIMS, by="p", now=Instant(5, WALL)),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], object]) -> None:
    """No occurrence, one twice, several without a number, another run, another clock."""
    with pytest.raises(Misuse):
        make()


def test_an_instant_of_a_cron_fires_once_whoever_looked() -> None:
    """It is named by the schedule: two that look at the same instant make one run."""
    trigger = Trigger(task="t", conditions=(CRON,))
    first, second = (ticks(CRON, ScheduleCell(NOW, version, (Instant(10),))) for version in (1, 2))

    assert plan((trigger,), first, (), NOW) == plan((trigger,), second, (), Instant(25))
    assert first[0].context == CronContext(CRON.schedule, Instant(10))
