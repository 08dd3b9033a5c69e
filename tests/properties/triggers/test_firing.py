from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator
from functools import partial
from itertools import pairwise
from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, SECOND, WALL, Instant
from tidegate.retries import schedule
from tidegate.retries.checks.strategies.schedule import port, timelines
from tidegate.retries.schedule import Missed, Schedule, ScheduleCell
from tidegate.services.retention import Retention
from tidegate.triggers import firing as firings
from tidegate.triggers.checks.laws import firing as laws
from tidegate.triggers.checks.strategies import firing as drawn
from tidegate.triggers.checks.strategies.firing import Found, event, event_triggers, events
from tidegate.triggers.checks.strategies.trigger import occurrences
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
    RunState,
    Settled,
    TriggerRun,
    claim,
    failed,
    fired,
    plan,
    purge,
    set_aside,
)
from tidegate.triggers.trigger import Occurrence, Trigger, ticks

EPOCH, NOW = Instant(0), Instant(20)
CARRIED = Document.of({"n": 1})
CLAIMS = Claims(expiry=10, attempts_max=2)
right_plan = firings.plan
"""The undisturbed result comes from the right plan, also under a planted bug."""

A, B = OnEvent("a"), OnEvent("b")
SINGLE = Trigger(task="t", conditions=(A,))
EITHER = Trigger(task="t", conditions=(A, B), logic=Logic.ANY)
BOTH = Trigger(task="t", conditions=(A, B), within=6)
AB = (event("a", 1), event("b", 2))


def run(firing: Firing, state: RunState, attempt: int = 1) -> TriggerRun:
    return TriggerRun(firing, state, attempt, attempt)


# --- the laws of one step -------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(drawn.found())
@example(Found((SINGLE,), AB[:1], (run(Firing(SINGLE.id, AB[:1]), Held("p", NOW)),), NOW))
@example(Found((BOTH,), AB[:1], (), Instant(7)))
@example(Found((BOTH, SINGLE), AB[:1], (), NOW))
@example(Found((BOTH,), (event("a", 1), event("b", 7)), (), Instant(7)))
def test_fi2_what_is_dropped_is_done(found: Found) -> None:
    made = plan(found.triggers, found.occurrences, found.runs, found.now)

    assert laws.dropped_when_done(made, found.triggers, found.occurrences, found.runs, found.now)


@settings(max_examples=100)
@given(st.one_of(st.none(), drawn.runs()), drawn.claims(), st.sampled_from("pq"), st.integers(0, 40), st.integers(1, 3))
@example(run(Firing(SINGLE.id, AB[:1]), Held("q", NOW)), CLAIMS, "p", 15, 1)
@example(run(Firing(SINGLE.id, AB[:1]), Held("q", NOW), 2), CLAIMS, "p", 15, 1)
def test_fi3_what_is_held_is_kept(before: TriggerRun | None, claims: Claims, by: str, at: int, attempt: int) -> None:
    firing = before.firing if before else Firing(SINGLE.id, AB[:1])
    now = Instant(at)

    assert laws.held_claims_are_kept(before, by, now, claim(firing, before, claims, by=by, now=now))
    if before is not None:
        answer = failed(before, attempt, ("no",), claims, now)
        assert laws.only_its_own_attempt_fails(before, attempt, answer)


@settings(max_examples=100)
@given(drawn.runs(), drawn.claims(), st.sampled_from("pq"), st.integers(0, 40))
@example(run(Firing(SINGLE.id, AB[:1]), Fired(NOW)), CLAIMS, "p", 15)
@example(run(Firing(SINGLE.id, AB[:1]), GivenUp(("no",), NOW)), CLAIMS, "p", 15)
@example(run(Firing(SINGLE.id, AB[:1]), Held("q", NOW), 2), CLAIMS, "p", 25)
@example(run(Firing(SINGLE.id, AB[:1]), Failed(("no",)), 2), CLAIMS, "p", 25)
def test_fi4_and_fi8_it_ends(before: TriggerRun, claims: Claims, by: str, at: int) -> None:
    now = Instant(at)
    answers = (
        claim(before.firing, before, claims, by=by, now=now),
        fired(before, now),
        failed(before, before.attempt, ("no",), claims, now),
    )
    for answer in answers:
        assert isinstance(answer, Busy) or laws.what_is_settled_stays(before, answer.run)
        assert laws.attempts_are_bounded(claims, before, answer)
    assert isinstance(answers[1].run.state, Fired)


@settings(max_examples=100)
@given(drawn.found())
@example(Found((BOTH,), (event("a", 1), event("a", 3), event("b", 9)), (), NOW))
@example(Found((BOTH,), (event("a", 1), event("b", 9)), (), NOW))
def test_fi5_sets_are_complete(found: Found) -> None:
    made = plan(found.triggers, found.occurrences, found.runs, found.now)
    triggers = {each.id: each for each in found.triggers}

    assert all(laws.a_run_is_complete(triggers[firing.trigger_id], firing) for firing in made.firings)


@settings(max_examples=100)
@given(st.lists(event_triggers(), min_size=1, max_size=3, unique_by=lambda each: each.id), events(12))
@example([BOTH], (event("a", 1), event("b", 2), event("a", 9)))
@example([BOTH], (event("a", 1), event("a", 9), event("b", 10)))
def test_fi6_when_does_not_matter(triggers: list[Trigger], seen: tuple[Occurrence, ...]) -> None:
    often = settled(plan, triggers, seen, [each.seen for each in seen])
    late = Instant(1000)

    assert laws.when_it_is_planned_does_not_matter(often, settled(plan, triggers, seen, [late]))


Planned = Callable[[Collection[Trigger], Collection[Occurrence], Collection[TriggerRun], Instant], Plan]


def settled(
    by: Planned, triggers: Collection[Trigger], seen: Collection[Occurrence], looks: Collection[Instant]
) -> list[Firing]:
    runs: list[TriggerRun] = []
    dropped: set[str] = set()
    for now in looks:
        for _ in range(len(seen) + 1):
            there = [each for each in seen if each.seen.at <= now.at and each.id not in dropped]
            made = by(triggers, there, runs, now)
            runs += [TriggerRun(firing, Fired(now)) for firing in made.firings]
            dropped |= set(made.dropped)
    return [each.firing for each in runs]


@settings(max_examples=100)
@given(drawn.found(), st.randoms(use_true_random=False))
def test_fi7_order_does_not_matter(found: Found, chance: Any) -> None:
    triggers, occurrences, runs = list(found.triggers), list(found.occurrences), list(found.runs)
    for each in (triggers, occurrences, runs):
        chance.shuffle(each)
    made = plan(found.triggers, found.occurrences, found.runs, found.now)

    assert laws.order_does_not_matter(made, plan(triggers, occurrences, runs, found.now))


RETENTIONS = st.builds(Retention, age=st.integers(0, 12), count=st.integers(0, 3))


@settings(max_examples=100)
@given(drawn.found(), RETENTIONS, RETENTIONS, st.integers(0, 8))
@example(Found((), (), (run(Firing(BOTH.id, AB, 1), Fired(Instant(3))),), NOW), Retention(age=1), Retention(age=1), 0)
@example(
    Found((), AB[:1], (run(Firing(SINGLE.id, AB[:1]), Fired(Instant(3))),), NOW),
    Retention(age=1),
    Retention(age=1),
    0,
)
@example(Found((), (), (run(Firing(SINGLE.id, AB[:1]), Held("p", NOW)),), NOW), Retention(age=1), Retention(age=1), 0)
def test_fi9_what_is_needed_stays(found: Found, keep_events: Retention, keep_runs: Retention, gone_before: int) -> None:
    all_events = {
        each.context.event_id: each.seen
        for some in (found.occurrences, *(each.firing.occurrences for each in found.runs))
        for each in some
        if isinstance(each.context, EventContext)
    }
    stored = dict(list(all_events.items())[gone_before:])
    ask = partial(purge, now=found.now, keep_events=keep_events, keep_runs=keep_runs)
    gone = ask(stored, found.runs, found.occurrences)

    assert laws.a_purge_leaves_what_is_needed(stored, found.runs, found.occurrences, gone)
    left = {event: at for event, at in stored.items() if event not in gone.events}
    again = ask(left, [each for each in found.runs if each.id not in gone.runs], found.occurrences)
    assert again == Purge((), ())


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
        if self.runs.get(after.id) != before:
            return False
        self.runs[after.id] = after
        return not (self.lost and self.lost.pop())

    def insert(self, firing: Firing) -> bool:
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
        found = schedule.look(CRON.schedule, port(world.line), cell, world.now)
        if not isinstance(found, (schedule.FirstSeen, schedule.Due)):
            return
        yield
        if world.cell == cell:
            world.first = found.cell.last.at if cell is None else world.first
            world.cell = found.cell


def one_pass(world: World, me: str) -> Generator[None, None, None]:
    yield from look(world)
    now = world.now
    yield
    waiting = world.waiting()
    yield
    made = plan(world.triggers, waiting, tuple(world.runs.values()), now)
    for firing in made.firings:
        yield from one_run(world, me, firing)
    yield
    world.drop(made.dropped)


def one_run(world: World, me: str, firing: Firing) -> Generator[None, None, None]:
    while True:
        before, now = world.runs.get(firing.id), world.now
        yield
        answer = claim(firing, before, CLAIMS, by=me, now=now)
        if not isinstance(answer, (Claimed, Exhausted)):
            return
        if answer.run == before or world.swap(before, answer.run):
            break
    if isinstance(answer, Exhausted):
        return
    mine = answer.run
    yield
    if world.failures and world.failures.pop():
        yield from tell(world, mine.id, lambda it: failed(it, mine.attempt, ("no",), CLAIMS, world.now))
    elif world.insert(mine.firing):
        yield from tell(world, mine.id, lambda it: fired(it, world.now))


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
"""Two passes die after claiming the first run, and their claims expire."""


@settings(max_examples=150)
@given(
    st.lists(STEPS, min_size=8, max_size=60),
    timelines(5),
    st.lists(st.booleans(), max_size=6),
    st.lists(st.booleans(), max_size=6),
)
@example([(0, "a"), (0, "run"), (1, "step"), (0, "step")], (), [], [])
@example([(0, "a"), *[(0, "step")] * 7, (0, "kill"), (1, "run"), (1, "run")], (), [], [])
@example([(0, "a"), (0, "b"), *[(0, "step")] * 6, (0, "a"), (1, "run"), (0, "run")], (), [], [])
@example([(0, "run"), (3, "wait"), *[(0, "step")] * 5, (1, "run"), (0, "run")], (Instant(2),), [], [])
@example([(0, "a"), (1, "wait"), (0, "run"), (0, "b")], (), [], [])
@example([(0, "a"), *KILLED, (0, "run"), (0, "run")], (), [], [])
def test_in_a_race_nothing_is_lost_or_fires_twice(
    steps: list[tuple[int, str]], line: tuple[Instant, ...], failures: list[bool], lost: list[bool]
) -> None:
    """Laws FI1 to FI10: three passes die, lose replies and meet failing providers."""
    world = World(line, list(failures), list(lost))
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


@st.composite
def refused(draw: st.DrawFn) -> TriggerRun:
    happened = draw(st.lists(occurrences(), min_size=1, max_size=3, unique_by=lambda each: each.id))
    number = draw(st.integers(len(happened) > 1, 3))
    return TriggerRun(Firing("t", tuple(happened), number), Held("p", NOW))


@settings(max_examples=100)
@given(refused())
@example(TriggerRun(Firing("t", (Occurrence("c", ResultContext("t", "i", 1, 7, CARRIED), NOW),)), Held("p", NOW)))
@example(TriggerRun(Firing("t", (Occurrence("c", EventContext("a", "1", CARRIED), NOW),)), Held("p", NOW)))
def test_fi10_what_is_set_aside_carries_nothing(run: TriggerRun) -> None:
    assert laws.what_is_set_aside_carries_nothing(run, set_aside(run, "too large", NOW)), "FI10"


def rest(world: World) -> int:
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

    expected = settled(right_plan, world.triggers[:4], world.seen, [Instant(10_000)])
    assert laws.when_it_is_planned_does_not_matter(of_triggers(firings, world.triggers[:4]), expected)

    crons = of_triggers(firings, world.triggers[4:5])
    assert world.cell is not None
    due = [at for at in world.line if world.first < at.at <= world.now.at]
    assert sorted(each.occurrences[0].seen.at for each in crons) == [at.at for at in due]
    assert not world.cell.pending
    assert not world.stored


def of_triggers(firings: Collection[Firing], triggers: Collection[Trigger]) -> list[Firing]:
    return [each for each in firings if each.trigger_id in {trigger.id for trigger in triggers}]


# --- planted bugs -------------------------------------------------------------------------------------------------------

NAMED_BY_ALL_THAT_IS_THERE = (
    (
        "for run in runs for each in run.firing.occurrences}",
        "for run in runs if run.state.settled for each in run.firing.occurrences}",
    ),
    ("while left and not all(there.values()):", "while left:"),
    (
        "number = 1 + max((run.firing.number for run in runs), default=0)",
        "number = 1 + sum(each.seen.at for each in latch)",
    ),
)
"""pynenc's set: all occurrences that a planner sees, which also form its name."""

test_a_planted_bug_is_found = planted(
    firings,
    bug(
        "what was tried is dropped, though the claim was another's, who was killed then",  # as in pynenc
        ("firings = {run.id: run.firing for run in by_id.values() if not run.state.settled}", "firings = dict[str, Firing]()"),
        ("before is None or not before.state.settled", "before is None"),
        test_fi2_what_is_dropped_is_done,
        test_in_a_race_nothing_is_lost_or_fires_twice,
    ),
    bug(
        "what one trigger has aged out is dropped for the others too",
        ("if each.id not in needed]", "if each.id not in needed or now - each.seen > min((t.within for t in triggers), default=0)]"),
        test_fi2_what_is_dropped_is_done,
        test_in_a_race_nothing_is_lost_or_fires_twice,
    ),
    bug("whoever comes takes it", ("until - now > 0", "until - now > 10**9"), test_fi3_what_is_held_is_kept),
    bug("a claim that was taken over looks like the one before", ("attempt=run.attempt + 1", "attempt=run.attempt"), test_fi3_what_is_held_is_kept),
    bug("an attempt that fails late ends the one that is under way", (" or attempt != run.attempt", ""), test_fi3_what_is_held_is_kept),
    bug("a failure that is reported late undoes what fired", ("not isinstance(run.state, Held) or ", ""), test_fi4_and_fi8_it_ends),
    bug(
        "the first end counts, and a run that fired after all is on record as given up",
        ("isinstance(run.state, Fired) else Changed", "run.state.settled else Changed"),
        test_fi4_and_fi8_it_ends,
    ),
    bug(
        "a run that kills its pass kills every pass",
        ("case Held() if run.attempt >= claims.attempts_max", "case Held() if False"),
        ("case Failed(reasons) if run.attempt >= claims.attempts_max", "case Failed(reasons) if False"),
        test_fi4_and_fi8_it_ends,
        test_in_a_race_nothing_is_lost_or_fires_twice,
    ),
    bug("last month's event meets today's", ("latch[0].seen > trigger.within", "latch[0].seen > 10**9"), test_fi5_sets_are_complete),
    bug(
        "what waits too long is dropped before anybody asks whether its set is complete",
        ("for each in waiting if each.id not in used", "for each in waiting if each.id not in used and now - each.seen <= trigger.within"),
        test_fi6_when_does_not_matter,
    ),
    bug("a set is named by what is there", *NAMED_BY_ALL_THAT_IS_THERE, test_fi6_when_does_not_matter),
    bug("a set that is named by what is there fires twice", *NAMED_BY_ALL_THAT_IS_THERE, test_in_a_race_nothing_is_lost_or_fires_twice, says="FI1"),
    bug(
        "in the order of the store",
        ("for each in sorted(occurrences, key=_by_sight)", "for each in occurrences"),
        ("for each in sorted(dropped, key=_by_sight)", "for each in dropped"),
        test_fi7_order_does_not_matter,
    ),
    bug("what waits for its set goes with the rest", ("needed.union(_events(waiting))", "frozenset()"), test_fi9_what_is_needed_stays),
    bug(
        "the record of a run goes before its occurrence, or the last number is forgotten",
        ("or (run.firing.number and last[run.firing.trigger_id] == run.id)", ""),
        ("or not still.isdisjoint(each.id for each in run.firing.occurrences)", ""),
        test_fi9_what_is_needed_stays,
    ),
    bug("all that it carries, which the store will not take either", ("without_contents(each.context)", "each.context"), test_fi10_what_is_set_aside_carries_nothing),
    bug("what is left out of the record waits on", ("tuple(bare)", "tuple(bare[:1])"), test_fi10_what_is_set_aside_carries_nothing),
)  # fmt: skip

test_a_planted_bug_of_a_cron_is_found = planted(
    schedule,
    bug(
        "the cell moves to now, so that what else was missed is lost",  # as in pynenc
        ("due if schedule.missed is Missed.EACH else now", "now"),
        test_in_a_race_nothing_is_lost_or_fires_twice,
    ),
)


# --- facts --------------------------------------------------------------------------------------------------------------


def test_two_that_succeed_before_a_pass_fire_twice() -> None:
    """pynenc, case 41."""
    two = (event("a", 1), event("a", 2))
    made = plan((SINGLE,), two, (), NOW)
    assert [each.occurrences for each in made.firings] == [two[:1], two[1:]]

    after = plan((SINGLE,), two, [run(each, Fired(NOW)) for each in made.firings], NOW)
    assert after == Plan((), (), tuple(each.id for each in two))


def test_a_set_has_all_that_the_latch_holds() -> None:
    """pynenc, case 42: both waited for b, so both are used."""
    three = (event("a", 1), event("a", 2), event("b", 3))
    made = plan((BOTH,), three, (), NOW)

    assert made.firings == (Firing(BOTH.id, three, 1),)
    assert made.dropped == ()


def test_a_set_lies_within_its_time_and_not_a_microsecond_more() -> None:
    """BOTH allows 6: 6 apart meets, 7 apart drops the older one."""
    early, just, late = event("a", 1), event("b", 7), event("b", 8)
    assert plan((BOTH,), (early, just), (), just.seen).firings == (Firing(BOTH.id, (early, just), 1),)
    assert plan((BOTH,), (early,), (), just.seen).dropped == ()

    assert plan((BOTH,), (early, late), (), late.seen) == Plan((), (), (early.id,))
    assert plan((BOTH,), (early,), (), late.seen).dropped == (early.id,)


def test_the_next_set_has_the_next_number() -> None:
    four = (*AB, event("a", 3), event("b", 4))
    first = run(Firing(BOTH.id, AB, 1), Held("p", NOW))

    assert plan((BOTH,), four, (first,), NOW).firings == (first.firing, Firing(BOTH.id, four[2:], 2))
    assert plan((BOTH,), four, (first,), NOW).firings[1].id != first.id


def test_what_nobody_waits_for_is_dropped() -> None:
    """pynenc: keeps it forever."""
    assert plan((), AB, (), NOW).dropped == tuple(each.id for each in AB)
    assert plan((SINGLE,), AB, (), Instant(3)).dropped == (AB[1].id,)


def test_a_run_whose_trigger_is_gone_is_given_up() -> None:
    left = run(Firing(SINGLE.id, AB[:1]), Held("p", NOW))
    made = plan((), (), (left,), NOW)

    assert made == Plan((), (TriggerRun(left.firing, GivenUp((TRIGGER_GONE,), NOW), 1, 2),), ())


def test_the_plan_names_one_run_for_one_occurrence_of_any() -> None:
    made = plan((EITHER,), (*AB, *AB), (), NOW)

    assert [each.occurrences for each in made.firings] == [AB[:1], AB[1:]]


def test_an_occurrence_that_was_noticed_twice_was_seen_first() -> None:
    """Law FI7: either may be read first."""
    first, again = AB[0], attrs.evolve(AB[0], seen=Instant(9))
    partner = event("b", 8)
    for both in ((first, again, partner), (again, first, partner)):
        assert plan((BOTH, SINGLE), both, (), NOW).firings == (Firing(SINGLE.id, (first,)),)


def test_a_run_that_was_read_twice_is_as_it_was_read_last() -> None:
    """Law FI7: a plan uses three queries, so a run may appear twice, settled the second time."""
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
    """As in pynenc an expiry of now has expired. One's own claim is recognised."""
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
    """A numbered run has the occurrences of its first writer."""
    first = run(Firing(BOTH.id, AB, 1), Held("q", Instant(5)))
    mine = Firing(BOTH.id, (event("a", 7), event("b", 8)), 1)
    answer = claim(mine, first, CLAIMS, by="p", now=NOW)

    assert isinstance(answer, Claimed)
    assert answer.run.firing == first.firing


def test_a_run_that_was_given_up_may_have_fired() -> None:
    """Its last pass was slow: the invocation exists, and the report says so."""
    left = run(FIRING, GivenUp(("its last claim expired",), NOW))

    assert fired(left, Instant(30)) == Changed(TriggerRun(FIRING, Fired(Instant(30)), 1, 2))
    assert fired(run(FIRING, Fired(NOW)), Instant(30)) == Ignored(run(FIRING, Fired(NOW)))


def test_the_parent_is_the_first_event() -> None:
    status = Occurrence("s", StatusContext("a", "i", 1, "retry"), Instant(0))

    assert Firing("x", (status, *AB), 1).parent == "a1"
    assert Firing("x", (status,)).parent is None


HELD = Held("p", NOW)


def at_minute(name: str, minutes: int) -> TriggerRun:
    seen = Instant(minutes * MINUTE)
    return TriggerRun(Firing("x", (Occurrence("c", EventContext("a", name), seen),)), Fired(seen + SECOND))


def test_a_purge_takes_runs_with_their_events() -> None:
    """pynenc, case 44."""
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
    """Two clocks stepped, or a cron's instant is early: it ends as it starts."""
    early = TriggerRun(Firing("x", (Occurrence("c", EventContext("a", "e"), NOW),)), Fired(Instant(3)))

    assert purge({}, (early,), (), now=Instant(40), keep_runs=Retention(age=1)).runs == (early.id,)


def test_a_run_reads_as_one_line() -> None:
    loaded = Occurrence("c", EventContext("a", "e"), NOW)
    firing = Firing("x" * 20, (loaded,))

    assert str(firing) == f"run {firing.id[:8]} of trigger xxxxxxxx: event 'e' of 'a', seen 20 us@store"
    assert str(TriggerRun(firing, Fired(NOW))).startswith(str(firing))
    assert str(TriggerRun(firing, Fired(NOW))).endswith("after 1 attempts, version 1")


def test_a_plan_takes_time_in_proportion() -> None:
    work = [planned_work(count) for count in (400, 800, 1600)]

    assert all(more < 2.6 * less for less, more in pairwise(work))


def planned_work(count: int) -> int:
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
    with pytest.raises(Misuse):
        make()


def test_an_instant_of_a_cron_fires_once_whoever_looked() -> None:
    trigger = Trigger(task="t", conditions=(CRON,))
    first, second = (ticks(CRON, ScheduleCell(NOW, version, (Instant(10),))) for version in (1, 2))

    assert plan((trigger,), first, (), NOW) == plan((trigger,), second, (), Instant(25))
    assert first[0].context == CronContext(CRON.schedule, Instant(10))
