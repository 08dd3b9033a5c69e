"""A partition is revoked. What is to become of the work in flight, so that it is let go in time?"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.consumer import drain
from tidegate.consumer.drain import Action, Budget, DrainDecision, InFlight, Stage
from tidegate.consumer.laws import drain as laws
from tidegate.consumer.strategies import drain as drawn
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, SECOND, Duration


class Plan(Protocol):
    """What is done about the records in flight."""

    def __call__(
        self, budget: Budget, elapsed: Duration, in_flight: Collection[InFlight], /
    ) -> tuple[DrainDecision, ...]: ...


@attrs.frozen
class Planner:
    """What a consumer asks: the real functions, but for one that is planted."""

    plan: Plan = drain.plan
    stage: Callable[[Budget, Duration], Stage] = drain.stage
    left: Callable[[Budget, Duration], Duration] = drain.left

    def fate(self, budget: Budget, elapsed: Duration, record: InFlight) -> DrainDecision:
        (fate,) = self.plan(budget, elapsed, (record,))
        return fate


REAL = Planner()

# --- a consumer that follows the plan -----------------------------------------------------------------------------------


@attrs.frozen
class Work:
    """What the record really takes from the revocation on, and to clean up once it is interrupted; None: for ever."""

    record: InFlight
    takes: Duration | None = None
    cleans_up: Duration | None = None

    @property
    def honest(self) -> bool:
        """Is its estimate right?"""
        return self.takes is not None and self.record.rest == self.takes


@attrs.frozen
class Drained:
    """How a revocation went.

    Attributes:
        commit_began: When nothing was awaited any more.
        released: When the partition was released.
        ended: What ended by itself.
        to_clean_up: How much time each of those had that were interrupted.
    """

    commit_began: Duration
    released: Duration
    ended: frozenset[int]
    to_clean_up: tuple[Duration, ...]


FOR_EVER = 10**9
ROUNDS = 99


def drained(
    planner: Planner,
    budget: Budget,
    works: Collection[Work],
    commit_takes: Duration | None,
    looks: Collection[Duration],
) -> Drained:
    """A revocation as the plan wants it: planned at once, whenever something planned is over, and at each look."""
    now, ends = 0, {work.record.offset: FOR_EVER if work.takes is None else work.takes for work in works}
    awaited = {work.record.offset: work for work in works}
    interrupted: dict[int, Duration] = {}
    ended: set[int] = set()
    for _ in range(ROUNDS):
        fates = planner.plan(
            budget,
            now,
            [attrs.evolve(work.record, age=work.record.age + now) for work in awaited.values()],
        )
        for offset, action, until in (attrs.astuple(fate) for fate in fates):
            if action is Action.ABANDON:
                del awaited[offset]
            elif action is Action.CANCEL and offset not in interrupted:
                interrupted[offset] = until - now
                cleans_up = awaited[offset].cleans_up
                ends[offset] = FOR_EVER if cleans_up is None else now + cleans_up
        if not awaited:
            break
        untils = [fate.until for fate in fates if fate.offset in awaited]
        after = min([*untils, *(look for look in looks if look > now)])
        over = {offset for offset in awaited if ends[offset] <= after}
        ended |= over - interrupted.keys()
        last = max((ends[offset] for offset in over), default=now)
        awaited = {offset: work for offset, work in awaited.items() if offset not in over}
        now = after if awaited else max(last, now)
    else:
        now = FOR_EVER
    committed = FOR_EVER if commit_takes is None else now + commit_takes
    return Drained(now, max(now, min(committed, budget.total)), frozenset(ended), tuple(interrupted.values()))


LENGTHS = st.none() | st.integers(0, 40)


@st.composite
def works(draw: st.DrawFn) -> tuple[Work, ...]:
    """Work that takes as long as it is thought to, or any other time."""
    return tuple(
        Work(record, draw(st.just(record.rest) | LENGTHS), draw(LENGTHS)) for record in draw(drawn.in_flight())
    )


# --- the laws -----------------------------------------------------------------------------------------------------------

ELAPSED = st.integers(0, 40)
TEN_FIVE_TWO = Budget(17, 5, 2)
UNKNOWN = InFlight(0)


def check_dr1(planner: Planner) -> None:
    @given(drawn.budgets(), ELAPSED, drawn.in_flight())
    @example(TEN_FIVE_TWO, 0, (InFlight(2, 0, 40), InFlight(1)))
    def law(budget: Budget, elapsed: Duration, in_flight: tuple[InFlight, ...]) -> None:
        assert laws.each_has_one_fate(in_flight, planner.plan(budget, elapsed, in_flight))

    law()


def check_dr2(planner: Planner) -> None:
    """For all code, all estimates, all brokers, and whenever somebody looks."""

    @given(drawn.budgets(), ELAPSED, drawn.in_flight())
    @example(TEN_FIVE_TWO, 0, (InFlight(0),))
    def of_fates(budget: Budget, elapsed: Duration, in_flight: tuple[InFlight, ...]) -> None:
        for fate in planner.plan(budget, elapsed, in_flight):
            assert laws.leaves_time_to_commit(budget, fate)

    @given(drawn.budgets(), works(), LENGTHS, st.sets(ELAPSED, max_size=4))
    @example(TEN_FIVE_TWO, (Work(InFlight(0)), Work(InFlight(1, 0, None, stoppable=False))), None, {3, 12})
    def of_releases(
        budget: Budget, works: tuple[Work, ...], commit_takes: Duration | None, looks: set[Duration]
    ) -> None:
        went = drained(planner, budget, works, commit_takes, looks)
        assert laws.releases_in_time(budget, went.commit_began, went.released)

    of_releases()
    of_fates()


def check_dr3(planner: Planner) -> None:
    @given(drawn.budgets(), ELAPSED, drawn.records())
    @example(TEN_FIVE_TWO, 0, InFlight(0, 3, 13))
    @example(TEN_FIVE_TWO, 4, InFlight(0, 4, 15, stoppable=False))
    def of_fates(budget: Budget, elapsed: Duration, record: InFlight) -> None:
        assert laws.lets_end_what_ends_in_time(budget, elapsed, record, planner.fate(budget, elapsed, record))

    @given(drawn.budgets(), works(), st.sets(ELAPSED, max_size=4))
    @example(TEN_FIVE_TWO, (Work(InFlight(0, 3, 13), 10),), {5})
    def of_releases(budget: Budget, works: tuple[Work, ...], looks: set[Duration]) -> None:
        went = drained(planner, budget, works, 0, looks)
        for work in works:
            in_time = budget.wait if work.record.stoppable else budget.commit_at
            if work.honest and work.takes is not None and work.takes <= in_time:
                assert work.record.offset in went.ended

    of_fates()
    of_releases()


def check_dr4(planner: Planner) -> None:
    @given(drawn.budgets(), ELAPSED, ELAPSED, drawn.records())
    @example(TEN_FIVE_TWO, 0, 10, InFlight(0, 0, 16, stoppable=False))
    @example(TEN_FIVE_TWO, 0, 4, InFlight(0, 0, 16))
    def law(budget: Budget, elapsed: Duration, more: Duration, record: InFlight) -> None:
        older = attrs.evolve(record, age=record.age + more)
        assert laws.grows_no_milder(planner.fate(budget, elapsed, record), planner.fate(budget, elapsed + more, older))

    law()


def check_dr5(planner: Planner) -> None:
    @given(drawn.budgets(), ELAPSED, drawn.records())
    @example(TEN_FIVE_TWO, 0, InFlight(0, 0, 11))
    @example(TEN_FIVE_TWO, 0, InFlight(0, 0, 16, stoppable=False))
    @example(TEN_FIVE_TWO, 15, UNKNOWN)
    def law(budget: Budget, elapsed: Duration, record: InFlight) -> None:
        assert laws.waits_for_nothing_in_vain(budget, elapsed, record, planner.fate(budget, elapsed, record))

    law()


def check_dr6(planner: Planner) -> None:
    @given(drawn.budgets(), ELAPSED, drawn.records())
    @example(TEN_FIVE_TWO, 10, UNKNOWN)
    @example(TEN_FIVE_TWO, 0, UNKNOWN)
    @example(TEN_FIVE_TWO, 10, InFlight(0, stoppable=False))
    def of_fates(budget: Budget, elapsed: Duration, record: InFlight) -> None:
        assert laws.lets_clean_up(budget, elapsed, record, planner.fate(budget, elapsed, record))

    @given(drawn.budgets(), works(), st.sets(ELAPSED, max_size=4))
    @example(TEN_FIVE_TWO, (Work(InFlight(0, 0, 16)), Work(InFlight(1))), set())
    def of_releases(budget: Budget, works: tuple[Work, ...], looks: set[Duration]) -> None:
        went = drained(planner, budget, works, 0, looks)
        assert all(length >= budget.cancel for length in went.to_clean_up)

    of_fates()
    of_releases()


def check_dr7(planner: Planner) -> None:
    @given(drawn.budgets(), ELAPSED)
    @example(TEN_FIVE_TWO, 10)
    @example(TEN_FIVE_TWO, 15)
    @example(TEN_FIVE_TWO, 17)
    def law(budget: Budget, elapsed: Duration) -> None:
        stage, left = planner.stage(budget, elapsed), planner.left(budget, elapsed)
        assert laws.stands_where_the_budget_says(budget, elapsed, stage, left)

    law()


LAWS: dict[str, Callable[[Planner], None]] = {
    "DR1": check_dr1,
    "DR2": check_dr2,
    "DR3": check_dr3,
    "DR4": check_dr4,
    "DR5": check_dr5,
    "DR6": check_dr6,
    "DR7": check_dr7,
}


@pytest.mark.parametrize("law", LAWS)
def test_a_revocation_keeps_the_law(law: str) -> None:
    """Laws DR1 to DR7, as the header of `tidegate.consumer.drain` states them."""
    LAWS[law](REAL)


# --- specimens ----------------------------------------------------------------------------------------------------------


def each(fate: Callable[[Budget, Duration, InFlight, DrainDecision], DrainDecision]) -> Planner:
    """A plan that has another fate for some records."""

    def plan(budget: Budget, elapsed: Duration, in_flight: Collection[InFlight]) -> tuple[DrainDecision, ...]:
        records = sorted(in_flight, key=lambda record: record.offset)
        fates = drain.plan(budget, elapsed, in_flight)
        return tuple(fate(budget, elapsed, *pair) for pair in zip(records, fates, strict=True))

    return Planner(plan)


def supposing(what: Callable[[Budget, Duration, InFlight], InFlight]) -> Planner:
    """A plan for something else than what is in flight."""

    def plan(budget: Budget, elapsed: Duration, in_flight: Collection[InFlight]) -> tuple[DrainDecision, ...]:
        return drain.plan(budget, elapsed, [what(budget, elapsed, record) for record in in_flight])

    return Planner(plan)


def only_the_known(budget: Budget, elapsed: Duration, in_flight: Collection[InFlight]) -> tuple[DrainDecision, ...]:
    """What nothing is known about is forgotten."""
    return drain.plan(budget, elapsed, [record for record in in_flight if record.rest is not None])


def once_more(budget: Budget, elapsed: Duration, in_flight: Collection[InFlight]) -> tuple[DrainDecision, ...]:
    """What is interrupted is also abandoned, in case that it does not care."""
    fates = drain.plan(budget, elapsed, in_flight)
    cancelled = [fate for fate in fates if fate.action is Action.CANCEL]
    return (*fates, *(DrainDecision(fate.offset, Action.ABANDON, fate.until) for fate in cancelled))


def as_it_comes(budget: Budget, elapsed: Duration, in_flight: Collection[InFlight]) -> tuple[DrainDecision, ...]:
    return tuple(fate for record in in_flight for fate in drain.plan(budget, elapsed, (record,)))


def until_all_is_done(_: Budget, elapsed: Duration, record: InFlight, fate: DrainDecision) -> DrainDecision:
    """zio-kafka, once: no deadline."""
    return DrainDecision(record.offset, Action.WAIT, elapsed + MINUTE) if fate.action is Action.ABANDON else fate


def without_time_to_commit(budget: Budget, elapsed: Duration, record: InFlight, fate: DrainDecision) -> DrainDecision:
    """All the time there is goes to the work, none is kept for its commit."""
    return DrainDecision(record.offset, Action.WAIT, budget.total) if elapsed < budget.total else fate


def granted_anew(budget: Budget, elapsed: Duration, record: InFlight, fate: DrainDecision) -> DrainDecision:
    """Each plan grants all the time to clean up, from then on."""
    if fate.action is not Action.CANCEL:
        return fate
    return DrainDecision(record.offset, Action.CANCEL, min(elapsed + budget.cancel, budget.commit_at))


def whenever_it_may_be(budget: Budget, elapsed: Duration, _: InFlight, fate: DrainDecision) -> DrainDecision:
    """The time to clean up begins when the interruption is asked for, however late that is."""
    return attrs.evolve(fate, until=elapsed + budget.cancel) if fate.action is Action.CANCEL else fate


def all_at_once(budget: Budget, _: Duration, record: InFlight, fate: DrainDecision) -> DrainDecision:
    """What can be interrupted is, whether or not it would have ended."""
    return DrainDecision(record.offset, Action.CANCEL, budget.commit_at) if record.stoppable else fate


def returns_at_once(_: Budget, elapsed: Duration, record: InFlight, __: DrainDecision) -> DrainDecision:
    """Drakkar: the callback waits for nothing, and work goes on beside the next owner."""
    return DrainDecision(record.offset, Action.ABANDON, elapsed)


def in_vain(budget: Budget, elapsed: Duration, record: InFlight, fate: DrainDecision) -> DrainDecision:
    """Whatever is known, it is waited for."""
    if elapsed >= budget.wait or fate.action is Action.WAIT:
        return fate
    return DrainDecision(record.offset, Action.WAIT, budget.wait)


def to_the_end(budget: Budget, _: Duration, __: InFlight, fate: DrainDecision) -> DrainDecision:
    """What can be interrupted is waited for until there is no time left to do so."""
    return attrs.evolve(fate, until=budget.commit_at) if fate.action is Action.WAIT else fate


def gives_up_early(_: Budget, elapsed: Duration, record: InFlight, fate: DrainDecision) -> DrainDecision:
    """Nothing is interrupted: what has not ended by itself is left alone."""
    return DrainDecision(record.offset, Action.ABANDON, elapsed) if fate.action is Action.CANCEL else fate


def by_force(budget: Budget, elapsed: Duration, record: InFlight, fate: DrainDecision) -> DrainDecision:
    """What cannot be interrupted is, and everybody waits for that."""
    if elapsed >= budget.commit_at or elapsed < budget.wait:
        return fate
    return DrainDecision(record.offset, Action.CANCEL, budget.commit_at)


def to_the_last_moment(budget: Budget, elapsed: Duration, record: InFlight, fate: DrainDecision) -> DrainDecision:
    """A deadline that has come is not yet over."""
    return DrainDecision(record.offset, Action.WAIT, elapsed) if elapsed == budget.commit_at else fate


def ageless(_: Budget, __: Duration, record: InFlight) -> InFlight:
    """Each plan expects the whole duration once more."""
    return attrs.evolve(record, age=0)


def forgetful(budget: Budget, elapsed: Duration, record: InFlight) -> InFlight:
    """Estimates are looked at while there is time, not afterwards: what was given up is waited for again."""
    return record if elapsed < budget.wait else attrs.evolve(record, expected=None)


def swallowing_stages(budget: Budget, elapsed: Duration) -> Stage:
    """Each stage begins a microsecond late."""
    return drain.stage(budget, max(elapsed - 1, 0))


def to_the_release(budget: Budget, elapsed: Duration) -> Duration:
    """All that is left, whatever the stage."""
    return max(budget.total - elapsed, 0)


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("DR1", Planner(only_the_known)),
        ("DR1", Planner(once_more)),
        ("DR1", Planner(as_it_comes)),
        ("DR2", each(until_all_is_done)),
        ("DR2", each(without_time_to_commit)),
        ("DR2", each(whenever_it_may_be)),
        ("DR2", each(to_the_last_moment)),
        ("DR3", each(all_at_once)),
        ("DR3", each(returns_at_once)),
        ("DR3", supposing(ageless)),
        ("DR4", each(granted_anew)),
        ("DR4", supposing(forgetful)),
        ("DR5", each(in_vain)),
        ("DR5", each(to_the_last_moment)),
        ("DR6", each(to_the_end)),
        ("DR6", each(gives_up_early)),
        ("DR6", each(granted_anew)),
        ("DR6", each(by_force)),
        ("DR7", Planner(stage=swallowing_stages)),
        ("DR7", Planner(left=to_the_release)),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Planner) -> None:
    """Each law is broken by a small faulty variant of the function it speaks of."""
    with pytest.raises(AssertionError):
        LAWS[law](planted)


def test_a_consumer_that_follows_a_plan_without_end_is_late() -> None:
    """Law DR2, as the consumer sees it: each of the planted plans releases late, or leaves the commit no time."""
    endless = (Work(InFlight(0, stoppable=False)), Work(InFlight(1)))
    for planted in (each(until_all_is_done), each(without_time_to_commit), each(to_the_last_moment)):
        went = drained(planted, TEN_FIVE_TWO, endless, None, ())
        assert not laws.releases_in_time(TEN_FIVE_TWO, went.commit_began, went.released)


# --- facts --------------------------------------------------------------------------------------------------------------

DRAKKAR = Budget(30 * SECOND, 5 * SECOND, 2 * SECOND)


def fates(elapsed: Duration, *records: InFlight) -> list[str]:
    return [str(fate) for fate in drain.plan(DRAKKAR, elapsed * SECOND, records)]


def test_each_record_has_the_fate_that_the_header_tells() -> None:
    """Of 30 s, 5 s are for cleaning up and 2 s for the commit: 23 s are left to wait."""
    unknown, soon = InFlight(7), InFlight(3, 10 * SECOND, 33 * SECOND)
    late = InFlight(4, 10 * SECOND, 33 * SECOND + 1)
    deaf, deaf_in_time = InFlight(5, stoppable=False), InFlight(6, 0, 28 * SECOND, stoppable=False)
    deaf_late, outlived = InFlight(8, 0, 28 * SECOND + 1, stoppable=False), InFlight(9, 5, 5)

    assert str(DRAKKAR) == "23 s to end, 5 s to clean up, 2 s to commit"
    assert fates(0, unknown, soon, late, deaf, deaf_in_time, deaf_late, outlived) == [
        "@3: wait for its end, until 23 s",
        "@4: interrupt it and wait for its end, until 28 s",
        "@5: wait for its end, until 28 s",
        "@6: wait for its end, until 28 s",
        "@7: wait for its end, until 23 s",
        "@8: wait no more",
        "@9: wait for its end, until 23 s",
    ]
    assert fates(23, unknown, soon, deaf, attrs.evolve(deaf_in_time, age=23 * SECOND)) == [
        "@3: interrupt it and wait for its end, until 28 s",
        "@5: wait for its end, until 28 s",
        "@6: wait for its end, until 28 s",
        "@7: interrupt it and wait for its end, until 28 s",
    ]
    assert drain.plan(DRAKKAR, 4 * SECOND, (deaf_late,)) == (DrainDecision(8, Action.ABANDON, 4 * SECOND),)
    for over in (28, 29, 30, 3_000):
        assert drain.plan(DRAKKAR, over * SECOND, (unknown,)) == (DrainDecision(7, Action.ABANDON, 28 * SECOND),)
    assert fates(0) == []


def test_an_estimate_that_a_record_has_outlived_says_nothing() -> None:
    """It takes longer than was thought; how long, nobody knows."""
    assert [InFlight(0, age, 5).rest for age in (0, 4, 5, 6)] == [5, 1, None, None]
    assert UNKNOWN.rest is None


def test_a_partition_that_was_lost_has_no_time() -> None:
    """A budget of 0 is over at once, and so is all that is in flight."""
    assert drain.stage(Budget(0), 0) is Stage.OVER
    assert drain.plan(Budget(0), 0, (UNKNOWN, InFlight(1, stoppable=False))) == (
        DrainDecision(0, Action.ABANDON, 0),
        DrainDecision(1, Action.ABANDON, 0),
    )


def test_it_is_released_when_the_work_is_done_and_not_when_time_is_up() -> None:
    """Three tasks of 2 s, 1 s of which is over: released after 1 s and the commit; with 1 s to drain, in 1 s all the same."""
    tasks = [Work(InFlight(offset, SECOND), SECOND) for offset in (100, 101, 102)]
    slow = [Work(InFlight(offset), 2 * SECOND, 0) for offset in (100, 101, 102)]

    assert drained(REAL, DRAKKAR, tasks, 3_000, ()) == Drained(SECOND, SECOND + 3_000, frozenset({100, 101, 102}), ())
    assert drained(REAL, Budget(SECOND, 200_000, 100_000), slow, None, ()) == Drained(
        700_000, SECOND, frozenset(), (200_000,) * 3
    )


def test_nothing_is_waited_for_where_nothing_runs() -> None:
    """zio-kafka waited for partitions of which no record was ever pulled."""
    assert drained(REAL, DRAKKAR, (), 0, ()) == Drained(0, 0, frozenset(), ())


@given(st.lists(drawn.fates(), max_size=3))
def test_a_fate_is_printed_in_a_line(drawn_fates: list[DrainDecision]) -> None:
    """Each says which record, what is done, and until when where somebody waits."""
    for fate in drawn_fates:
        assert str(fate).startswith(f"@{fate.offset}: {fate.action.value}")
        assert ("until" in str(fate)) == (fate.action is not Action.ABANDON)


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Budget(-1),
        lambda: Budget(10**18, 0, 0),
        lambda: Budget(10, -1),
        lambda: Budget(10, 0, -1),
        lambda: Budget(10, 6, 5),
        lambda: Budget(True),
        lambda: Budget(1.5),  # type: ignore[arg-type]
        lambda: Budget(None),  # type: ignore[arg-type]
        lambda: Budget("30 s"),  # type: ignore[arg-type]
        lambda: InFlight(-1),
        lambda: InFlight("7"),  # type: ignore[arg-type]
        lambda: InFlight(0, -1),
        lambda: InFlight(0, 0, -1),
        lambda: InFlight(0, 0, True),
        lambda: InFlight(0, 0, 1.0),  # type: ignore[arg-type]
        lambda: InFlight(0, 0, None, stoppable=1),  # type: ignore[arg-type]
        lambda: drain.stage(None, 0),  # type: ignore[arg-type]
        lambda: drain.stage(DRAKKAR, -1),
        lambda: drain.left(DRAKKAR, 0.5),  # type: ignore[arg-type]
        lambda: drain.plan(DRAKKAR, None, ()),  # type: ignore[arg-type]
        lambda: drain.plan(30, 0, ()),  # type: ignore[arg-type]
        lambda: drain.plan(DRAKKAR, 0, None),  # type: ignore[arg-type]
        lambda: drain.plan(DRAKKAR, 0, (7,)),  # type: ignore[arg-type]
        lambda: drain.plan(DRAKKAR, 0, (InFlight(7), InFlight(7, 5))),
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], object]) -> None:
    """A bad configuration is an error at construction, a bad argument one at the call; nothing is planned."""
    with pytest.raises(Misuse):
        wrong()


def test_a_budget_that_does_not_fit_says_what_to_do() -> None:
    """Time to clean up and to commit are part of the total, not added to it."""
    with pytest.raises(Misuse, match="6 s to clean up and 5 s to commit do not fit into 10 s") as caught:
        Budget(10 * SECOND, 6 * SECOND, 5 * SECOND)

    assert "raise total" in caught.value.todo
