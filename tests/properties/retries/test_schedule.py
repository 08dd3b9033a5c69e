from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, SECOND, WALL, Duration, Instant
from tidegate.retries import schedule as module
from tidegate.retries.laws import schedule as laws
from tidegate.retries.schedule import (
    PENDING_MAX,
    Broken,
    Due,
    FirstSeen,
    Full,
    Look,
    Missed,
    Never,
    NextAfter,
    Schedule,
    ScheduleCell,
    TooLate,
    Waiting,
    closed,
    look,
)
from tidegate.retries.strategies.schedule import cells, port, schedules, timelines

EPOCH = Instant(0)
EACH = Schedule("* * * * *", Missed.EACH)
ONCE = Schedule("* * * * *")
LATE = Schedule("* * * * *", Missed.EACH, 4)
LINE = tuple(map(Instant, (1, 2, 4, 9, 10, 19)))


def swapped(current: ScheduleCell | None, seen: ScheduleCell | None) -> bool:
    """A compare-and-set on the version, and an insert where there is none."""
    return (current and current.version) == (seen and seen.version)


@attrs.frozen
class Cron:
    """What those who look ask: the real functions, but for one that is planted."""

    look: Callable[[Schedule, NextAfter, ScheduleCell | None, Instant], Look] = module.look
    closed: Callable[[ScheduleCell, Collection[Instant]], ScheduleCell] = module.closed
    swapped: Callable[[ScheduleCell | None, ScheduleCell | None], bool] = swapped
    register: Callable[[ScheduleCell | None], ScheduleCell | None] = lambda cell: cell


REAL = Cron()


def effort(cron: Cron) -> settings:
    """A counterexample to a specimen need not be a small one."""
    return settings() if cron == REAL else settings(phases=(Phase.explicit, Phase.generate))


# --- the laws of one look -------------------------------------------------------------------------------------------------


def check_sc2(cron: Cron) -> None:
    @effort(cron)
    @given(schedules(), timelines(), cells(), st.integers(0, 40))
    @example(EACH, LINE, ScheduleCell(Instant(2)), 10)
    @example(EACH, LINE, ScheduleCell(Instant(2)), 3)
    def holds(schedule: Schedule, line: tuple[Instant, ...], cell: ScheduleCell, at: int) -> None:
        now = Instant(at)

        assert laws.the_next_is_due(line, cell, cron.look(schedule, port(line), cell, now), now)

    holds()


def check_sc3(cron: Cron) -> None:
    @effort(cron)
    @given(schedules(), timelines(), st.integers(0, 40))
    @example(ONCE, LINE, 1)
    def holds(schedule: Schedule, line: tuple[Instant, ...], at: int) -> None:
        assert laws.first_sight_is_not_due(cron.look(schedule, port(line), None, Instant(at)), Instant(at))

    holds()


def check_sc4(cron: Cron) -> None:
    @effort(cron)
    @given(schedules(), timelines(), cells(), st.integers(0, 40))
    @example(LATE, LINE, ScheduleCell(EPOCH), 5)
    @example(LATE, LINE, ScheduleCell(EPOCH), 18)
    def holds(schedule: Schedule, line: tuple[Instant, ...], cell: ScheduleCell, at: int) -> None:
        now = Instant(at)

        assert laws.only_late_ones_are_skipped(line, schedule, cell, cron.look(schedule, port(line), cell, now), now)

    holds()


def check_sc5(cron: Cron) -> None:
    @effort(cron)
    @given(schedules(), timelines(), cells(), st.integers(0, 40), st.sets(st.integers(0, 30)))
    @example(EACH, LINE, ScheduleCell(Instant(2), 3, (Instant(1), Instant(2))), 10, {2})
    @example(EACH, LINE, ScheduleCell(Instant(2), 3, (Instant(1), Instant(2))), 10, {7})
    def holds(schedule: Schedule, line: tuple[Instant, ...], cell: ScheduleCell, at: int, fired: set[int]) -> None:
        found = cron.look(schedule, port(line), cell, Instant(at))
        after = found.cell if isinstance(found, (Due, TooLate)) else cell
        added = (found.at,) if isinstance(found, Due) else ()
        gone = tuple(map(Instant, sorted(fired)))

        assert laws.moves_by_one_version(cell, after, added=added, fired=())
        assert laws.moves_by_one_version(cell, cron.closed(cell, gone), added=(), fired=gone)
        assert (cron.closed(cell, gone) == cell) is set(cell.pending).isdisjoint(gone)

    holds()


NONSENSE: tuple[object, ...] = (
    0,
    "12:00",
    True,
    Instant(5, WALL),
    EPOCH,
    Instant(-1),
    ValueError("a"),
    RecursionError(),
)


def check_sc7(cron: Cron) -> None:
    @effort(cron)
    @given(schedules(), st.one_of(st.none(), cells()), st.integers(0, 40), st.sampled_from(NONSENSE))
    @example(ONCE, ScheduleCell(Instant(9)), 20, EPOCH)
    @example(ONCE, ScheduleCell(EPOCH), 20, EPOCH)
    def holds(schedule: Schedule, cell: ScheduleCell | None, at: int, nonsense: object) -> None:
        def next_after(expression: str, after: Instant) -> Any:
            del expression, after
            if isinstance(nonsense, Exception):
                raise nonsense
            return nonsense

        assert laws.nonsense_changes_nothing(cron.look(schedule, next_after, cell, Instant(at)))

    holds()


# --- the laws of a race ---------------------------------------------------------------------------------------------------


@attrs.define
class Looker:
    """Somebody who looks: what it has read and decided, and has not written yet."""

    seen: ScheduleCell | None = None
    found: Look | None = None


@attrs.define
class Race:
    """A cell, those who look at it, and what came of it."""

    cron: Cron
    schedule: Schedule
    line: tuple[Instant, ...]
    now: Instant = EPOCH
    cell: ScheduleCell | None = None
    first: ScheduleCell | None = None
    written: list[laws.Written] = attrs.field(factory=list)
    lookers: list[Looker] = attrs.field(factory=lambda: [Looker(), Looker(), Looker()])

    def read(self, who: Looker) -> None:
        """Read the cell and decide."""
        who.seen = self.cell
        who.found = self.cron.look(self.schedule, port(self.line), self.cell, self.now)

    def write(self, who: Looker) -> None:
        """Write what was decided, if the cell is still as it was read."""
        found, who.found = who.found, None
        if not isinstance(found, (FirstSeen, Due, TooLate)) or not self.cron.swapped(self.cell, who.seen):
            return
        self.cell = found.cell
        self.first = self.first or found.cell
        if not isinstance(found, FirstSeen) and who.seen is not None:
            self.written.append((who.seen, found))

    def close(self, who: Looker) -> None:
        """The oldest pending instant was fired."""
        if self.cell is not None and self.cell.pending:
            self.cell = self.cron.closed(self.cell, self.cell.pending[:1])
        del who

    def register(self, who: Looker) -> None:
        """A process starts, and registers the cron that is there already."""
        self.cell = self.cron.register(self.cell)
        del who

    def rest(self) -> None:
        """One looks until nothing is due."""
        for _ in range(5 * len(self.line) + 5):
            self.read(self.lookers[0])
            self.write(self.lookers[0])


ACTIONS = ("read", "write", "read", "write", "close", "register")


def check_race(cron: Cron) -> None:
    @effort(cron)
    @given(
        schedules(),
        timelines(),
        st.lists(st.tuples(st.integers(0, 2), st.sampled_from(ACTIONS), st.sampled_from((0, 0, 1, 7))), max_size=40),
    )
    @example(
        EACH,
        LINE,
        [(0, "read", 0), (0, "write", 3), (0, "read", 0), (1, "read", 0), (0, "write", 0), (1, "write", 7)],
    )
    @example(EACH, LINE, [(0, "read", 0), (0, "write", 3), (0, "read", 0), (0, "write", 0), (0, "register", 9)])
    def holds(schedule: Schedule, line: tuple[Instant, ...], actions: list[tuple[int, str, int]]) -> None:
        race = Race(cron, schedule, line)
        for who, action, later in actions:
            getattr(race, action)(race.lookers[who])
            race.now += later
        race.rest()

        assert race.first is not None
        due = [found.at for _, found in race.written if isinstance(found, Due)]
        assert laws.looked_at_once(line, race.written)
        assert laws.each_is_due(line, schedule, race.first, due, race.now)
        assert due == sorted(set(due), key=lambda at: at.at)

    holds()


LAWS: dict[str, Callable[[Cron], None]] = {
    "SC1, SC6": check_race,
    "SC2": check_sc2,
    "SC3": check_sc3,
    "SC4": check_sc4,
    "SC5": check_sc5,
    "SC7": check_sc7,
}


@pytest.mark.parametrize("law", LAWS)
def test_a_look_keeps_the_law(law: str) -> None:
    """Laws SC1 to SC7, as the header of `tidegate.retries.schedule` states them; SC1 and SC6 for three that race."""
    LAWS[law](REAL)


# --- specimens ----------------------------------------------------------------------------------------------------------


def before(next_after: NextAfter, now: Instant) -> Instant | None:
    """The latest instant up to now, found by asking from long ago."""
    found, at = None, next_after("", EPOCH + -1)
    while at is not None and now - at >= 0:
        found, at = at, next_after("", at)
    return found


def about_now(schedule: Schedule, next_after: NextAfter, cell: ScheduleCell | None, now: Instant) -> Look:
    """A window as pynenc has it: due if the last instant is not long ago, and the firing is named by now."""
    last = before(next_after, now)
    if cell is not None and last is not None and now - last <= 1 and last - cell.last > 0:
        return Due(now, ScheduleCell(now, cell.version + 1, (*cell.pending, now)))
    return look(schedule, next_after, cell, now) if cell is None else Never()


def never_late(schedule: Schedule, next_after: NextAfter, cell: ScheduleCell | None, now: Instant) -> Look:
    """The same window, with the right name: what is looked at late is lost, and nothing is reported."""
    found = look(schedule, next_after, cell, now)
    return Never() if isinstance(found, Due) and now - found.at > 1 else found


def at_first_sight(schedule: Schedule, next_after: NextAfter, cell: ScheduleCell | None, now: Instant) -> Look:
    """A yearly job that runs in June."""
    return Due(now, ScheduleCell(now, 1, (now,))) if cell is None else look(schedule, next_after, cell, now)


def up_to_now(schedule: Schedule, next_after: NextAfter, cell: ScheduleCell | None, now: Instant) -> Look:
    """The cell moves to now, whatever else was missed."""
    return look(attrs.evolve(schedule, missed=Missed.ONCE), next_after, cell, now)


def a_little_early(schedule: Schedule, next_after: NextAfter, cell: ScheduleCell | None, now: Instant) -> Look:
    return look(schedule, next_after, cell, now + 1)


def one_too_strict(schedule: Schedule, next_after: NextAfter, cell: ScheduleCell | None, now: Instant) -> Look:
    """What is exactly as late as allowed is skipped."""
    late_max = schedule.late_max
    return look(attrs.evolve(schedule, late_max=late_max and late_max - 1), next_after, cell, now)


def skips_to_now(schedule: Schedule, next_after: NextAfter, cell: ScheduleCell | None, now: Instant) -> Look:
    """One that is too late takes with it those that are not."""
    found = look(schedule, next_after, cell, now)
    return TooLate(found.since, attrs.evolve(found.cell, last=now)) if isinstance(found, TooLate) else found


def forgets_what_is_pending(schedule: Schedule, next_after: NextAfter, cell: ScheduleCell | None, now: Instant) -> Look:
    found = look(schedule, next_after, cell, now)
    return Due(found.at, attrs.evolve(found.cell, pending=(found.at,))) if isinstance(found, Due) else found


def trusting(schedule: Schedule, next_after: NextAfter, cell: ScheduleCell | None, now: Instant) -> Look:
    """Whatever the port says is due, and what it raises is an end of all crons, not of one."""
    found = look(schedule, next_after, cell, now)
    return Never() if isinstance(found, Broken) else found


def up_to_the_latest(cell: ScheduleCell, fired: Collection[Instant]) -> ScheduleCell:
    """An instant that was not fired goes with a later one that was."""
    latest = max((at.at for at in fired), default=-1)
    left = tuple(at for at in cell.pending if at.at > latest)
    return cell if left == cell.pending else ScheduleCell(cell.last, cell.version + 1, left)


def unversioned(cell: ScheduleCell, fired: Collection[Instant]) -> ScheduleCell:
    return attrs.evolve(closed(cell, fired), version=cell.version)


def unconditional(current: ScheduleCell | None, seen: ScheduleCell | None) -> bool:
    """An expected value of none is taken for no condition at all (pynenc, in memory and SQLite), and so is any other."""
    del current, seen
    return True


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("SC1, SC6", Cron(swapped=unconditional)),
        ("SC1, SC6", Cron(register=lambda _: None)),
        ("SC1, SC6", Cron(look=never_late)),
        ("SC1, SC6", Cron(look=up_to_now)),
        ("SC2", Cron(look=about_now)),
        ("SC2", Cron(look=a_little_early)),
        ("SC3", Cron(look=at_first_sight)),
        ("SC4", Cron(look=one_too_strict)),
        ("SC4", Cron(look=skips_to_now)),
        ("SC5", Cron(look=forgets_what_is_pending)),
        ("SC5", Cron(closed=up_to_the_latest)),
        ("SC5", Cron(closed=unversioned)),
        ("SC7", Cron(look=trusting)),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Cron) -> None:
    """Each law is broken by a small faulty variant; five of them are pynenc's own."""
    with pytest.raises(AssertionError):
        LAWS[law](planted)


# --- facts --------------------------------------------------------------------------------------------------------------

NOON = Instant(12 * 60 * MINUTE)


def every(period: Duration, phase: Duration = 0) -> NextAfter:
    """A port that knows one expression: every so often."""

    def next_after(expression: str, after: Instant) -> Instant:
        assert len(expression.split()) == 5
        return after + (period - (after.at - phase) % period)

    return next_after


DAILY = every(24 * 60 * MINUTE, NOON.at)


@pytest.mark.parametrize(
    ("late_max", "seconds", "kind"),
    [
        (MINUTE, 30, Due),
        (MINUTE, 90, TooLate),
        (2 * MINUTE, 90, Due),
        (None, 90, Due),
        (None, -1, Waiting),
    ],
)
def test_a_cron_at_noon(late_max: Duration | None, seconds: int, kind: type[Look]) -> None:
    """12:00:30 yes, 12:01:30 not within 60 s but within 120 s (pynenc, case 35); without a bound it is made up for."""
    cron = Schedule("0 12 * * *", late_max=late_max)
    found = look(cron, DAILY, ScheduleCell(NOON + -60 * MINUTE), NOON + seconds * SECOND)

    assert type(found) is kind


@pytest.mark.parametrize(("minutes", "due"), [(3, False), (5, True), (10, True)])
def test_a_cron_every_five_minutes(minutes: int, due: bool) -> None:
    """Last at 12:00: not at 12:03, but at 12:05 and at 12:10, where one firing makes up for two (pynenc, case 36)."""
    now = NOON + minutes * MINUTE
    found = look(Schedule("*/5 * * * *"), every(5 * MINUTE), ScheduleCell(NOON), now)

    expected = Due(NOON + 5 * MINUTE, ScheduleCell(now, 2, (NOON + 5 * MINUTE,))) if due else Waiting(NOON + 5 * MINUTE)
    assert found == expected


def test_an_hourly_cron_is_not_due_at_half_past() -> None:
    """Last at 12:00, now 12:30 (pynenc, case 37)."""
    found = look(Schedule("0 * * * *"), every(60 * MINUTE), ScheduleCell(NOON), NOON + 30 * MINUTE)

    assert found == Waiting(NOON + 60 * MINUTE)


@pytest.mark.parametrize("expression", ["0 0 0 12 * * *", "* * * *", "", "@daily", "CRON_TZ=UTC * * * *"])
def test_a_cron_has_five_fields_or_six(expression: str) -> None:
    """Six are a ValueError for pynenc (case 38); here they begin with the second."""
    with pytest.raises(ValueError, match="fields"):
        Schedule(expression)


def test_spaces_between_fields_do_not_matter() -> None:
    """Two spellings of one schedule are one."""
    assert Schedule(" 0  12 *\t* * ") == Schedule("0 12 * * *")
    assert str(Schedule(" 0  12 *\t* * ")) == "'0 12 * * *'"
    assert Schedule(" CRON_TZ=Europe/Berlin  0 0 12 * * *").expression == "CRON_TZ=Europe/Berlin 0 0 12 * * *"


def test_no_minute_is_blind() -> None:
    """`3-59/5`, looked at in the first half of each cycle of five minutes: pynenc fired it 0 times of 24."""
    cell, fired = ScheduleCell(NOON), 0
    for cycle in range(1, 25):
        for second in range(0, 150, 30):
            found = look(EACH, every(5 * MINUTE, 3 * MINUTE), cell, NOON + cycle * 5 * MINUTE + second * SECOND)
            if isinstance(found, Due):
                cell, fired = found.cell, fired + 1

    assert fired == 24


def test_an_hourly_cron_that_is_looked_at_late_is_made_up_for() -> None:
    """Five minutes late, which pynenc skips; and under the name of its hour, whoever looks."""
    found = look(Schedule("0 * * * *"), every(60 * MINUTE), ScheduleCell(NOON), NOON + 65 * MINUTE)

    assert isinstance(found, Due)
    assert found.at == NOON + 60 * MINUTE


def test_what_is_too_late_is_reported_and_then_the_rest_is_due() -> None:
    """A span is skipped in one step, however many instants are in it."""
    cron = Schedule("* * * * *", Missed.EACH, 2 * MINUTE)
    now = NOON + 600 * MINUTE
    skipped = look(cron, every(MINUTE), ScheduleCell(NOON), now)
    assert isinstance(skipped, TooLate)
    assert skipped.since == NOON + MINUTE

    found = look(cron, every(MINUTE), skipped.cell, now)
    assert isinstance(found, Due)
    assert found.at == now + -2 * MINUTE


def test_a_cron_without_instants_waits_for_ever() -> None:
    """The 30th of February."""
    assert look(ONCE, lambda _, __: None, ScheduleCell(NOON), NOON) == Never()
    assert look(ONCE, lambda _, __: None, None, NOON) == FirstSeen(ScheduleCell(NOON))


def test_a_clock_that_steps_back_waits() -> None:
    """Nothing is due twice: what lies before `last` was looked at."""
    assert look(ONCE, every(MINUTE), ScheduleCell(NOON), NOON + -600 * MINUTE) == Waiting(NOON + MINUTE)


def test_a_cell_that_nobody_empties_is_full_in_the_end() -> None:
    """Then nothing is written, and no instant is lost: they wait in the schedule."""
    cell, now = ScheduleCell(NOON), NOON + 1000 * MINUTE
    while isinstance(found := look(EACH, every(MINUTE), cell, now), Due):
        cell = found.cell

    assert found == Full(NOON + (PENDING_MAX + 1) * MINUTE)
    assert len(cell.pending) == PENDING_MAX
    assert isinstance(look(EACH, every(MINUTE), closed(cell, cell.pending[:1]), now), Due)


def test_a_broken_port_says_what_it_did() -> None:
    """By the type of the error alone, for its text may be secret."""

    def fails(expression: str, after: Instant) -> Instant:
        raise KeyError(f"the password is {expression} {after}")

    assert str(look(ONCE, fails, None, NOON)) == "broken: the port raised KeyError"


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [None, True, -1, 1.5, "x", b"x", object(), (None,), Missed, EPOCH], ids=lambda wrong: type(wrong).__name__
)
def test_arguments_of_the_wrong_type_are_misuse(wrong: Any) -> None:
    """Whatever stands in one place of a call, only tidegate's own error comes out."""
    none: Any = object()
    instant: Any = none if wrong == EPOCH else wrong
    calls: list[Callable[[], object]] = [
        lambda: Schedule(wrong),
        lambda: Schedule("* * * * *", wrong),
        lambda: Schedule("* * * * *", Missed.ONCE, -1 if wrong is None else wrong),
        lambda: ScheduleCell(instant),
        lambda: ScheduleCell(EPOCH, wrong),
        lambda: ScheduleCell(EPOCH, 1, wrong),
        lambda: ScheduleCell(EPOCH, 1, (instant,)),
        lambda: ScheduleCell(EPOCH, 1, [EPOCH]),  # type: ignore[arg-type]
        lambda: look(wrong, every(1), None, EPOCH),
        lambda: look(ONCE, none if callable(wrong) else wrong, None, EPOCH),
        lambda: look(ONCE, every(1), none if wrong is None else wrong, EPOCH),
        lambda: look(ONCE, every(1), None, instant),
        lambda: closed(wrong, ()),
        lambda: closed(ScheduleCell(EPOCH), none if wrong is Missed else wrong),
    ]
    for call in calls:
        with pytest.raises(Misuse):
            call()


@pytest.mark.parametrize("pending", [(2, 1), (1, 1), (1, 4)])
def test_pending_instants_are_in_order(pending: tuple[int, ...]) -> None:
    """Each once, oldest first, and none after the last that was looked at."""
    with pytest.raises(Misuse, match="not in order"):
        ScheduleCell(Instant(3), 1, tuple(map(Instant, pending)))


def test_two_clocks_are_not_compared() -> None:
    """Law T2 of instants: a cell of the store's clock is not looked at by the clock of a machine."""
    with pytest.raises(Misuse, match="compare"):
        look(ONCE, every(MINUTE), ScheduleCell(NOON), Instant(0, WALL))
