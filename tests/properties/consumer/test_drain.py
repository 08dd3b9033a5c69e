"""Plans for work in flight at a revocation, for a release in time."""

from __future__ import annotations

from collections.abc import Callable, Collection

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.consumer.checks.laws import drain as laws
from tidegate.consumer.checks.strategies import drain as drawn
from tidegate.consumer.flow import drain
from tidegate.consumer.flow.drain import Action, Budget, DrainDecision, InFlight, Stage
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Duration


def fate_of(budget: Budget, elapsed: Duration, record: InFlight) -> DrainDecision:
    (fate,) = drain.plan(budget, elapsed, (record,))
    return fate


# --- a consumer that follows the plan -----------------------------------------------------------------------------------


@attrs.frozen
class Work:
    """The real durations, also of the cleanup; None is endless."""

    record: InFlight
    takes: Duration | None = None
    cleans_up: Duration | None = None

    @property
    def honest(self) -> bool:
        return self.takes is not None and self.record.rest == self.takes


@attrs.frozen
class Drained:
    commit_began: Duration
    released: Duration
    ended: frozenset[int]
    to_clean_up: tuple[Duration, ...]


FOR_EVER = 10**9
ROUNDS = 99


def drained(
    budget: Budget,
    works: Collection[Work],
    commit_takes: Duration | None,
    looks: Collection[Duration],
) -> Drained:
    now, ends = 0, {work.record.offset: FOR_EVER if work.takes is None else work.takes for work in works}
    awaited = {work.record.offset: work for work in works}
    interrupted: dict[int, Duration] = {}
    ended: set[int] = set()
    for _ in range(ROUNDS):
        fates = drain.plan(
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
    return tuple(
        Work(record, draw(st.just(record.rest) | LENGTHS), draw(LENGTHS)) for record in draw(drawn.in_flight())
    )


# --- the laws -----------------------------------------------------------------------------------------------------------

ELAPSED = st.integers(0, 40)
TEN_FIVE_TWO = Budget(17, 5, 2)
UNKNOWN = InFlight(0)


@given(drawn.budgets(), ELAPSED, drawn.in_flight())
@example(TEN_FIVE_TWO, 0, (InFlight(2, 0, 40), InFlight(1)))
def test_dr1_each_has_one_fate(budget: Budget, elapsed: Duration, in_flight: tuple[InFlight, ...]) -> None:
    assert laws.each_has_one_fate(in_flight, drain.plan(budget, elapsed, in_flight))


@given(drawn.budgets(), ELAPSED, drawn.in_flight())
@example(TEN_FIVE_TWO, 0, (InFlight(0),))
def test_dr2_of_fates(budget: Budget, elapsed: Duration, in_flight: tuple[InFlight, ...]) -> None:
    for fate in drain.plan(budget, elapsed, in_flight):
        assert laws.leaves_time_to_commit(budget, fate)


@given(drawn.budgets(), works(), LENGTHS, st.sets(ELAPSED, max_size=4))
@example(TEN_FIVE_TWO, (Work(InFlight(0)), Work(InFlight(1, 0, None, stoppable=False))), None, {3, 12})
def test_dr2_of_releases(
    budget: Budget, works: tuple[Work, ...], commit_takes: Duration | None, looks: set[Duration]
) -> None:
    went = drained(budget, works, commit_takes, looks)
    assert laws.releases_in_time(budget, went.commit_began, went.released)


@given(drawn.budgets(), ELAPSED, drawn.records())
@example(TEN_FIVE_TWO, 0, InFlight(0, 3, 13))
@example(TEN_FIVE_TWO, 4, InFlight(0, 4, 15, stoppable=False))
def test_dr3_of_fates(budget: Budget, elapsed: Duration, record: InFlight) -> None:
    assert laws.lets_end_what_ends_in_time(budget, elapsed, record, fate_of(budget, elapsed, record))


@given(drawn.budgets(), works(), st.sets(ELAPSED, max_size=4))
@example(TEN_FIVE_TWO, (Work(InFlight(0, 3, 13), 10),), {5})
def test_dr3_of_releases(budget: Budget, works: tuple[Work, ...], looks: set[Duration]) -> None:
    went = drained(budget, works, 0, looks)
    for work in works:
        in_time = budget.wait if work.record.stoppable else budget.commit_at
        if work.honest and work.takes is not None and work.takes <= in_time:
            assert work.record.offset in went.ended


@given(drawn.budgets(), ELAPSED, ELAPSED, drawn.records())
@example(TEN_FIVE_TWO, 0, 10, InFlight(0, 0, 16, stoppable=False))
@example(TEN_FIVE_TWO, 0, 4, InFlight(0, 0, 16))
def test_dr4_it_grows_no_milder(budget: Budget, elapsed: Duration, more: Duration, record: InFlight) -> None:
    older = attrs.evolve(record, age=record.age + more)
    assert laws.grows_no_milder(fate_of(budget, elapsed, record), fate_of(budget, elapsed + more, older))


@given(drawn.budgets(), ELAPSED, drawn.records())
@example(TEN_FIVE_TWO, 0, InFlight(0, 0, 11))
@example(TEN_FIVE_TWO, 0, InFlight(0, 0, 16, stoppable=False))
@example(TEN_FIVE_TWO, 15, UNKNOWN)
def test_dr5_it_waits_for_nothing_in_vain(budget: Budget, elapsed: Duration, record: InFlight) -> None:
    assert laws.waits_for_nothing_in_vain(budget, elapsed, record, fate_of(budget, elapsed, record))


@given(drawn.budgets(), ELAPSED, drawn.records())
@example(TEN_FIVE_TWO, 10, UNKNOWN)
@example(TEN_FIVE_TWO, 0, UNKNOWN)
@example(TEN_FIVE_TWO, 10, InFlight(0, stoppable=False))
def test_dr6_of_fates(budget: Budget, elapsed: Duration, record: InFlight) -> None:
    assert laws.lets_clean_up(budget, elapsed, record, fate_of(budget, elapsed, record))


@given(drawn.budgets(), works(), st.sets(ELAPSED, max_size=4))
@example(TEN_FIVE_TWO, (Work(InFlight(0, 0, 16)), Work(InFlight(1))), set())
def test_dr6_of_releases(budget: Budget, works: tuple[Work, ...], looks: set[Duration]) -> None:
    went = drained(budget, works, 0, looks)
    assert all(length >= budget.cancel for length in went.to_clean_up)


@given(drawn.budgets(), ELAPSED)
@example(TEN_FIVE_TWO, 10)
@example(TEN_FIVE_TWO, 15)
@example(TEN_FIVE_TWO, 17)
def test_dr7_it_stands_where_the_budget_says(budget: Budget, elapsed: Duration) -> None:
    stage, left = drain.stage(budget, elapsed), drain.left(budget, elapsed)
    assert laws.stands_where_the_budget_says(budget, elapsed, stage, left)


# --- planted bugs -------------------------------------------------------------------------------------------------------

IN_TIME = "    in_time = budget.wait if record.stoppable else budget.commit_at\n"
COMMITS = "    if elapsed >= budget.commit_at:\n"
CANCELLED = "Action.CANCEL, budget.commit_at)"

test_a_planted_bug_is_found = planted(
    drain,
    bug(
        "what nothing is known about is forgotten",
        ("in sorted(in_flight,", "in sorted([each for each in in_flight if each.rest is not None],"),
        test_dr1_each_has_one_fate,
    ),
    # In case it ignores the estimate.
    bug(
        "what is interrupted is also abandoned",
        (
            "return fates",
            "return (*fates, *(attrs.evolve(each, action=Action.ABANDON) for each in fates if each.action is Action.CANCEL))",
        ),
        test_dr1_each_has_one_fate,
    ),
    bug("as it comes", ('sorted(in_flight, key=attrgetter("offset"))', "in_flight"), test_dr1_each_has_one_fate),
    # zio-kafka, once: no deadline.
    bug(
        "until all is done", ("Action.ABANDON, budget.commit_at)", "Action.WAIT, elapsed + 60_000_000)"),
        test_dr2_of_fates, test_dr2_of_releases,
    ),
    # All time goes to the work and none to the commit.
    bug(
        "no time to commit",
        (
            COMMITS,
            f"    if elapsed < budget.total:\n        return DrainDecision(record.offset, Action.WAIT, budget.total)\n{COMMITS}",
        ),
        test_dr2_of_fates, test_dr2_of_releases,
    ),
    # A deadline that is reached is not yet over.
    bug(
        "to the last moment",
        (
            COMMITS,
            f"    if elapsed == budget.commit_at:\n        return DrainDecision(record.offset, Action.WAIT, elapsed)\n{COMMITS}",
        ),
        test_dr2_of_releases, test_dr5_it_waits_for_nothing_in_vain,
    ),
    # The cleanup time starts at the interruption, however late that is.
    bug("whenever it may be", (CANCELLED, "Action.CANCEL, elapsed + budget.cancel)"), test_dr2_of_fates),
    # It interrupts all interruptible work, even if it would end in time.
    bug(
        "all at once",
        (IN_TIME, f"{IN_TIME}    if record.stoppable:\n        return DrainDecision(record.offset, {CANCELLED}\n"),
        test_dr3_of_fates, test_dr3_of_releases,
    ),
    # Drakkar: the callback does not wait, and work goes on beside the next owner.
    bug(
        "it returns at once", (IN_TIME, "    return DrainDecision(record.offset, Action.ABANDON, elapsed)\n"),
        test_dr3_of_fates, test_dr3_of_releases,
    ),
    # Each plan expects the whole duration again.
    bug(
        "ageless",
        ("record.rest is None or elapsed + record.rest <=", "record.expected is None or elapsed + record.expected <="),
        test_dr3_of_fates, test_dr3_of_releases,
    ),
    # Each plan grants the full cleanup time from then on.
    bug(
        "granted anew", (CANCELLED, "Action.CANCEL, min(elapsed + budget.cancel, budget.commit_at))"),
        test_dr4_it_grows_no_milder, test_dr6_of_fates,
    ),
    # It reads estimates only while there is time, so it waits again for abandoned work.
    bug(
        "forgetful", ("record.rest is None or", "record.rest is None or elapsed >= budget.wait or"),
        test_dr4_it_grows_no_milder,
    ),
    # It waits whatever the estimate.
    bug(
        "in vain", ("(record.rest is None or elapsed + record.rest <= in_time)", "True"),
        test_dr5_it_waits_for_nothing_in_vain,
    ),
    # It waits for interruptible work until no time is left to interrupt it.
    bug(
        "to the end", ("Action.WAIT, in_time)", "Action.WAIT, budget.commit_at)"),
        test_dr6_of_fates, test_dr6_of_releases,
    ),
    # It never interrupts, and abandons the work instead.
    bug("given up early", (CANCELLED, "Action.ABANDON, elapsed)"), test_dr6_of_fates),
    # It interrupts uninterruptible work, and waits for it.
    bug(
        "by force",
        (
            IN_TIME,
            f"    if elapsed >= budget.wait:\n        return DrainDecision(record.offset, {CANCELLED}\n{IN_TIME}",
        ),
        test_dr6_of_fates,
    ),
    # Each stage begins a microsecond late.
    bug(
        "stages are swallowed", ("if elapsed < budget.wait:", "if elapsed <= budget.wait:"),
        test_dr7_it_stands_where_the_budget_says,
    ),
    # All remaining time, whatever the stage.
    bug(
        "to the release", ("return budget.wait - elapsed", "return budget.total - elapsed"),
        test_dr7_it_stands_where_the_budget_says,
    ),
)  # fmt: skip


# --- facts --------------------------------------------------------------------------------------------------------------

DRAKKAR = Budget(30 * SECOND, 5 * SECOND, 2 * SECOND)


def fates(elapsed: Duration, *records: InFlight) -> list[str]:
    return [str(fate) for fate in drain.plan(DRAKKAR, elapsed * SECOND, records)]


def test_each_record_has_the_fate_that_the_header_tells() -> None:
    """Of 30 s, 5 s are for cleanup and 2 s for the commit: 23 s remain to wait."""
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
    assert [InFlight(0, age, 5).rest for age in (0, 4, 5, 6)] == [5, 1, None, None]
    assert UNKNOWN.rest is None


def test_a_partition_that_was_lost_has_no_time() -> None:
    assert drain.stage(Budget(0), 0) is Stage.OVER
    assert drain.plan(Budget(0), 0, (UNKNOWN, InFlight(1, stoppable=False))) == (
        DrainDecision(0, Action.ABANDON, 0),
        DrainDecision(1, Action.ABANDON, 0),
    )


def test_it_is_released_when_the_work_is_done_and_not_when_time_is_up() -> None:
    tasks = [Work(InFlight(offset, SECOND), SECOND) for offset in (100, 101, 102)]
    slow = [Work(InFlight(offset), 2 * SECOND, 0) for offset in (100, 101, 102)]

    assert drained(DRAKKAR, tasks, 3_000, ()) == Drained(SECOND, SECOND + 3_000, frozenset({100, 101, 102}), ())
    assert drained(Budget(SECOND, 200_000, 100_000), slow, None, ()) == Drained(
        700_000, SECOND, frozenset(), (200_000,) * 3
    )


def test_nothing_is_waited_for_where_nothing_runs() -> None:
    """zio-kafka once waited for partitions without a pulled record."""
    assert drained(DRAKKAR, (), 0, ()) == Drained(0, 0, frozenset(), ())


@given(st.lists(drawn.fates(), max_size=3))
def test_a_fate_is_printed_in_a_line(drawn_fates: list[DrainDecision]) -> None:
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
    with pytest.raises(Misuse):
        wrong()


def test_a_budget_that_does_not_fit_says_what_to_do() -> None:
    with pytest.raises(Misuse, match="6 s to clean up and 5 s to commit do not fit into 10 s") as caught:
        Budget(10 * SECOND, 6 * SECOND, 5 * SECOND)

    assert "raise total" in caught.value.todo
