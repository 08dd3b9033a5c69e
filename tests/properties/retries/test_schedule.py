from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, SECOND, WALL, Duration, Instant
from tidegate.retries import schedule as module
from tidegate.retries.checks.laws import schedule as laws
from tidegate.retries.checks.strategies.schedule import cells, port, schedules, timelines
from tidegate.retries.schedule import (
    PENDING_MAX,
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

EPOCH = Instant(0)
EACH = Schedule("* * * * *", Missed.EACH)
ONCE = Schedule("* * * * *")
LATE = Schedule("* * * * *", Missed.EACH, 4)
LINE = tuple(map(Instant, (1, 2, 4, 9, 10, 19)))


# --- the laws of one look -------------------------------------------------------------------------------------------------


@given(schedules(), timelines(), cells(), st.integers(0, 40))
@example(EACH, LINE, ScheduleCell(Instant(2)), 10)
@example(EACH, LINE, ScheduleCell(Instant(2)), 3)
def test_sc2_the_next_is_due(schedule: Schedule, line: tuple[Instant, ...], cell: ScheduleCell, at: int) -> None:
    now = Instant(at)

    assert laws.the_next_is_due(line, cell, look(schedule, port(line), cell, now), now)


@given(schedules(), timelines(), st.integers(0, 40))
@example(ONCE, LINE, 1)
def test_sc3_first_sight_is_not_due(schedule: Schedule, line: tuple[Instant, ...], at: int) -> None:
    assert laws.first_sight_is_not_due(look(schedule, port(line), None, Instant(at)), Instant(at))


@given(schedules(), timelines(), cells(), st.integers(0, 40))
@example(LATE, LINE, ScheduleCell(EPOCH), 5)
@example(LATE, LINE, ScheduleCell(EPOCH), 18)
@example(Schedule("* * * * *", late_max=0), (Instant(1), Instant(2)), ScheduleCell(EPOCH), 2)
def test_sc4_only_late_ones_are_skipped(
    schedule: Schedule, line: tuple[Instant, ...], cell: ScheduleCell, at: int
) -> None:
    now = Instant(at)

    assert laws.only_late_ones_are_skipped(line, schedule, cell, look(schedule, port(line), cell, now), now)


@given(schedules(), timelines(), cells(), st.integers(0, 40), st.sets(st.integers(0, 30)))
@example(EACH, LINE, ScheduleCell(Instant(2), 3, (Instant(1), Instant(2))), 10, {2})
@example(EACH, LINE, ScheduleCell(Instant(2), 3, (Instant(1), Instant(2))), 10, {7})
def test_sc5_it_moves_by_one_version(
    schedule: Schedule, line: tuple[Instant, ...], cell: ScheduleCell, at: int, fired: set[int]
) -> None:
    found = look(schedule, port(line), cell, Instant(at))
    after = found.cell if isinstance(found, (Due, TooLate)) else cell
    added = (found.at,) if isinstance(found, Due) else ()
    gone = tuple(map(Instant, sorted(fired)))

    assert laws.moves_by_one_version(cell, after, added=added, fired=())
    assert laws.moves_by_one_version(cell, closed(cell, gone), added=(), fired=gone)
    assert (closed(cell, gone) == cell) is set(cell.pending).isdisjoint(gone)


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


@given(schedules(), st.one_of(st.none(), cells()), st.integers(0, 40), st.sampled_from(NONSENSE))
@example(ONCE, ScheduleCell(Instant(9)), 20, EPOCH)
@example(ONCE, ScheduleCell(EPOCH), 20, EPOCH)
def test_sc7_nonsense_changes_nothing(schedule: Schedule, cell: ScheduleCell | None, at: int, nonsense: object) -> None:
    def next_after(expression: str, after: Instant) -> Any:
        del expression, after
        if isinstance(nonsense, Exception):
            raise nonsense
        return nonsense

    assert laws.nonsense_changes_nothing(look(schedule, next_after, cell, Instant(at)))


# --- the laws of a race ---------------------------------------------------------------------------------------------------


@attrs.define
class Looker:
    seen: ScheduleCell | None = None
    found: Look | None = None


@attrs.define
class Race:
    schedule: Schedule
    line: tuple[Instant, ...]
    now: Instant = EPOCH
    cell: ScheduleCell | None = None
    first: ScheduleCell | None = None
    written: list[laws.Written] = attrs.field(factory=list)
    lookers: list[Looker] = attrs.field(factory=lambda: [Looker(), Looker(), Looker()])

    @staticmethod
    def swapped(current: ScheduleCell | None, seen: ScheduleCell | None) -> bool:
        return (current and current.version) == (seen and seen.version)

    @staticmethod
    def registered(cell: ScheduleCell | None) -> ScheduleCell | None:
        return cell

    def read(self, who: Looker) -> None:
        who.seen = self.cell
        who.found = look(self.schedule, port(self.line), self.cell, self.now)

    def write(self, who: Looker) -> None:
        found, who.found = who.found, None
        if not isinstance(found, (FirstSeen, Due, TooLate)) or not self.swapped(self.cell, who.seen):
            return
        self.cell = found.cell
        self.first = self.first or found.cell
        if not isinstance(found, FirstSeen) and who.seen is not None:
            self.written.append((who.seen, found))

    def close(self, who: Looker) -> None:
        if self.cell is not None and self.cell.pending:
            self.cell = closed(self.cell, self.cell.pending[:1])
        del who

    def register(self, who: Looker) -> None:
        self.cell = self.registered(self.cell)
        del who

    def rest(self) -> None:
        for _ in range(5 * len(self.line) + 5):
            self.read(self.lookers[0])
            self.write(self.lookers[0])


ACTIONS = ("read", "write", "read", "write", "close", "register")


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
def test_sc1_sc6_those_who_race_look_once(
    schedule: Schedule, line: tuple[Instant, ...], actions: list[tuple[int, str, int]]
) -> None:
    race = Race(schedule, line)
    for who, action, later in actions:
        getattr(race, action)(race.lookers[who])
        race.now += later
    race.rest()

    assert race.first is not None
    due = [found.at for _, found in race.written if isinstance(found, Due)]
    assert laws.looked_at_once(line, race.written)
    assert laws.each_is_due(line, schedule, race.first, due, race.now)
    assert due == sorted(set(due), key=lambda at: at.at)


# --- planted bugs -------------------------------------------------------------------------------------------------------

test_a_planted_bug_is_found = planted(
    module,
    # As in pynenc.
    bug(
        "a firing is named by now", ("return Due(\n        due,", "return Due(\n        now,"),
        test_sc2_the_next_is_due,
    ),
    # As in pynenc: a late instant is lost without a report.
    bug(
        "never late",
        ("    if len(cell.pending) >=", "    if late > 1:\n        return Never()\n    if len(cell.pending) >="),
        test_sc1_sc6_those_who_race_look_once,
    ),
    # Whatever else was missed.
    bug(
        "the cell moves to now", ("due if schedule.missed is Missed.EACH else now", "now"),
        test_sc1_sc6_those_who_race_look_once,
    ),
    bug("a little early", ("late = now - due", "late = now + 1 - due"), test_sc2_the_next_is_due),
    # A yearly job that runs in June.
    bug(
        "at first sight", ("FirstSeen(ScheduleCell(now))", "Due(now, ScheduleCell(now, 1, (now,)))"),
        test_sc3_first_sight_is_not_due,
    ),
    # An instant exactly at the allowed lateness is skipped.
    bug(
        "one too strict", ("late > schedule.late_max:", "late >= schedule.late_max:"),
        test_sc4_only_late_ones_are_skipped,
    ),
    # One instant that is too late takes the others with it.
    bug(
        "skipped to now", ("ScheduleCell(oldest_allowed + -MICROSECOND,", "ScheduleCell(now,"),
        test_sc4_only_late_ones_are_skipped,
    ),
    bug("what is pending is forgotten", ("(*cell.pending, due)", "(due,)"), test_sc5_it_moves_by_one_version),
    # An older pending instant goes with a later one that has fired.
    bug(
        "closed up to the latest", ("if at not in fired)", "if all(each - at < 0 for each in fired))"),
        test_sc5_it_moves_by_one_version,
    ),
    bug(
        "no version", ("ScheduleCell(cell.last, cell.version + 1, left)", "attrs.evolve(cell, pending=left)"),
        test_sc5_it_moves_by_one_version,
    ),
    # The port's answers go unchecked, and its exception stops all crons.
    bug(
        "the port is trusted",
        ("if isinstance(due, Broken):\n        return due", "if isinstance(due, Broken):\n        return Never()"),
        test_sc7_nonsense_changes_nothing,
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("step", "wrong"),
    [
        # An expected value of none means no condition (pynenc, in memory and SQLite).
        ("swapped", lambda current, seen: True),  # noqa: ARG005
        ("registered", lambda cell: None),  # noqa: ARG005
    ],
)
def test_a_planted_store_is_found(step: str, wrong: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Race, step, staticmethod(wrong))
    with pytest.raises(AssertionError):
        test_sc1_sc6_those_who_race_look_once()


# --- facts --------------------------------------------------------------------------------------------------------------

NOON = Instant(12 * 60 * MINUTE)


def every(period: Duration, phase: Duration = 0) -> NextAfter:
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
    """pynenc, case 35. Without a bound the instant is made up for."""
    cron = Schedule("0 12 * * *", late_max=late_max)
    found = look(cron, DAILY, ScheduleCell(NOON + -60 * MINUTE), NOON + seconds * SECOND)

    assert type(found) is kind


@pytest.mark.parametrize(("minutes", "due"), [(3, False), (5, True), (10, True)])
def test_a_cron_every_five_minutes(minutes: int, due: bool) -> None:
    """pynenc, case 36; at 12:10 one firing makes up for two."""
    now = NOON + minutes * MINUTE
    found = look(Schedule("*/5 * * * *"), every(5 * MINUTE), ScheduleCell(NOON), now)

    expected = Due(NOON + 5 * MINUTE, ScheduleCell(now, 2, (NOON + 5 * MINUTE,))) if due else Waiting(NOON + 5 * MINUTE)
    assert found == expected


def test_an_hourly_cron_is_not_due_at_half_past() -> None:
    """pynenc, case 37."""
    found = look(Schedule("0 * * * *"), every(60 * MINUTE), ScheduleCell(NOON), NOON + 30 * MINUTE)

    assert found == Waiting(NOON + 60 * MINUTE)


@pytest.mark.parametrize("expression", ["0 0 0 12 * * *", "* * * *", "", "@daily", "CRON_TZ=UTC * * * *"])
def test_a_cron_has_five_fields_or_six(expression: str) -> None:
    """pynenc, case 38: six raise ValueError there; here the first field is seconds."""
    with pytest.raises(ValueError, match="fields"):
        Schedule(expression)


def test_spaces_between_fields_do_not_matter() -> None:
    assert Schedule(" 0  12 *\t* * ") == Schedule("0 12 * * *")
    assert str(Schedule(" 0  12 *\t* * ")) == "'0 12 * * *'"
    assert Schedule(" CRON_TZ=Europe/Berlin  0 0 12 * * *").expression == "CRON_TZ=Europe/Berlin 0 0 12 * * *"


def test_no_minute_is_blind() -> None:
    """`3-59/5`, polled in the first half of each five minutes: pynenc fired it 0 times of 24."""
    cell, fired = ScheduleCell(NOON), 0
    for cycle in range(1, 25):
        for second in range(0, 150, 30):
            found = look(EACH, every(5 * MINUTE, 3 * MINUTE), cell, NOON + cycle * 5 * MINUTE + second * SECOND)
            if isinstance(found, Due):
                cell, fired = found.cell, fired + 1

    assert fired == 24


def test_an_hourly_cron_that_is_looked_at_late_is_made_up_for() -> None:
    """pynenc: skips it at five minutes late."""
    found = look(Schedule("0 * * * *"), every(60 * MINUTE), ScheduleCell(NOON), NOON + 65 * MINUTE)

    assert isinstance(found, Due)
    assert found.at == NOON + 60 * MINUTE


def test_what_is_too_late_is_reported_and_then_the_rest_is_due() -> None:
    cron = Schedule("* * * * *", Missed.EACH, 2 * MINUTE)
    now = NOON + 600 * MINUTE
    skipped = look(cron, every(MINUTE), ScheduleCell(NOON), now)
    assert isinstance(skipped, TooLate)
    assert skipped.since == NOON + MINUTE

    found = look(cron, every(MINUTE), skipped.cell, now)
    assert isinstance(found, Due)
    assert found.at == now + -2 * MINUTE


def test_a_cron_without_instants_waits_for_ever() -> None:
    assert look(ONCE, lambda _, __: None, ScheduleCell(NOON), NOON) == Never()
    assert look(ONCE, lambda _, __: None, None, NOON) == FirstSeen(ScheduleCell(NOON))


def test_a_clock_that_steps_back_waits() -> None:
    assert look(ONCE, every(MINUTE), ScheduleCell(NOON), NOON + -600 * MINUTE) == Waiting(NOON + MINUTE)


def test_a_cell_that_nobody_empties_is_full_in_the_end() -> None:
    """It is not written then, and no instant is lost: they wait in the schedule."""
    cell, now = ScheduleCell(NOON), NOON + 1000 * MINUTE
    while isinstance(found := look(EACH, every(MINUTE), cell, now), Due):
        cell = found.cell

    assert found == Full(NOON + (PENDING_MAX + 1) * MINUTE)
    assert len(cell.pending) == PENDING_MAX
    assert isinstance(look(EACH, every(MINUTE), closed(cell, cell.pending[:1]), now), Due)


def test_a_broken_port_says_what_it_did() -> None:
    """Only the type of the error: its text may be secret."""

    def fails(expression: str, after: Instant) -> Instant:
        raise KeyError(f"the password is {expression} {after}")

    assert str(look(ONCE, fails, None, NOON)) == "broken: the port raised KeyError"


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [None, True, -1, 1.5, "x", b"x", object(), (None,), Missed, EPOCH], ids=lambda wrong: type(wrong).__name__
)
def test_arguments_of_the_wrong_type_are_misuse(wrong: Any) -> None:
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
    with pytest.raises(Misuse, match="not in order"):
        ScheduleCell(Instant(3), 1, tuple(map(Instant, pending)))


def test_two_clocks_are_not_compared() -> None:
    """Law T2 of instants."""
    with pytest.raises(Misuse, match="compare"):
        look(ONCE, every(MINUTE), ScheduleCell(NOON), Instant(0, WALL))
