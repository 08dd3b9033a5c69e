from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.invocations.test_settling import DROPPED, UNSENT, Store, Way, answered, lost_reply
from tests.properties.shipped import OF_DESIGNS, report_on

from tidegate.invocations.checks import laws
from tidegate.invocations.limits.rate_limit import (
    LINE_MAX,
    LINE_PATIENCE,
    Admission,
    Meter,
    Rate,
    decide_rate,
    is_spent,
)
from tidegate.invocations.limits.rate_limiting import ADMITTED, Metering, NotMetered, new_meter
from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, MINUTE, SECOND, Instant
from tidegate.model.operations import FindOne, StoreTime, UpdateOne
from tidegate.sim.world.world import CLOCK, contents, world_with

T0: Final = Instant(1_700_000_000 * SECOND)
EMPTY: Final = Meter(T0, T0)


@st.composite
def rates(draw: st.DrawFn) -> Rate:
    at_most = draw(st.integers(1, 12))
    return Rate(at_most, draw(st.integers(at_most, 100)), draw(st.none() | st.integers(1, at_most)))


STEPS: Final = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=30)


@given(rates(), STEPS, st.integers(0, 20))
def test_no_more_are_admitted_than_may_and_nobody_is_refused_for_whom_there_is_room(
    rate: Rate, steps: list[tuple[int, int]], behind: int
) -> None:
    """Laws GC1, GC2 and GC3, at every instant, for any load and any queue."""
    now, meter = T0, EMPTY
    admitted: list[tuple[Instant, int]] = []
    for passes, wanted in steps:
        now += passes
        found = decide_rate(rate, meter, now, wanted, behind)
        assert laws.rates.is_full(rate, admitted, now, wanted, found)
        assert laws.rates.stands_in_line(rate, meter, now, found)
        assert found.admitted + len(found.dues) == wanted + behind
        admitted.append((now, found.admitted))
        meter = found.meter
    assert laws.rates.fits(rate, admitted)


@given(rates(), STEPS, st.integers(-(10**9), 10**9))
def test_where_the_clock_goes_back_the_rate_goes_on_after_a_burst(
    rate: Rate, steps: list[tuple[int, int]], jump: int
) -> None:
    """Law GC4."""
    meter, now = EMPTY, T0
    for passes, wanted in steps:
        now += passes
        meter = decide_rate(rate, meter, now, wanted).meter
    now += jump
    meter = decide_rate(rate, meter, now, 1).meter
    assert decide_rate(rate, meter, now + rate.room, 100).admitted == rate.room // rate.interval


@given(rates(), STEPS, st.integers(0, 5_000), st.integers(0, 5_000), st.tuples(st.integers(0, 50), st.integers(1, 50)))
def test_what_is_spent_decides_as_if_nothing_had_been_admitted(
    rate: Rate, steps: list[tuple[int, int]], passes: int, more: int, asked: tuple[int, int]
) -> None:
    """Law GC5, whatever was admitted before."""
    meter, now = EMPTY, T0
    for after, number in steps:
        now += after
        meter = decide_rate(rate, meter, now, number).meter
    at = now + passes
    if is_spent(meter, at):
        then = at + more
        assert decide_rate(rate, meter, then, *asked) == decide_rate(rate, Meter(then, then), then, *asked)
    assert is_spent(meter, max(meter.free_at, meter.line_at, key=lambda each: each - T0))


@pytest.mark.parametrize("burst", [None, 1])
def test_of_many_that_wait_each_asks_about_twice_and_the_rate_is_used(burst: int | None) -> None:
    """Law GC3: all are due at once, and a poll finds a hundred."""
    rate, meter, now, asked = Rate(10, SECOND, burst), EMPTY, T0, 0
    waiting = [0] * 3_000
    while waiting:
        some = [at for at in sorted(waiting)[:100] if at <= now - T0]
        waiting = sorted(waiting)[len(some) :]
        if some:
            found = decide_rate(rate, meter, now, len(some))
            asked, meter = asked + len(some), found.meter
            waiting += [due - T0 for due in found.dues]
        now += 100 * MILLISECOND
    assert asked <= 2 * 3_000
    assert now - T0 < 301 * SECOND


def test_a_line_in_which_nobody_stands_holds_up_nobody() -> None:
    """Law GC3: a cancelled invocation does not come, and its turn lapses."""
    rate = Rate(10, SECOND)
    meter = decide_rate(rate, EMPTY, T0, 6_000).meter
    assert meter.line_at - T0 > 500 * SECOND
    now = meter.free_at + LINE_PATIENCE + 2 * rate.interval
    found = decide_rate(rate, meter, now, 11)
    assert (found.admitted, found.dues) == (10, (now + 100 * MILLISECOND,))


def test_a_line_has_an_end() -> None:
    rate = Rate(1, MINUTE)
    found = decide_rate(rate, EMPTY, T0, 12)
    assert found.dues[-1] - T0 == LINE_MAX + MINUTE
    assert decide_rate(rate, found.meter, T0, 1).dues == (T0 + MINUTE,)


# --- the program --------------------------------------------------------------------------------------------------------

RATE: Final = Rate(2, SECOND)


def stored(*docs: Document) -> Store:
    return Store(cast("Any", world_with({"meters": docs}).write(CLOCK, T0)))


def asked(store: Store, wanted: int, *ways: Way, rate: Rate = RATE) -> Admission | NotMetered:
    store.asked.clear()
    command = Metering(key="send", rate=rate, wanted=wanted)
    return cast("Admission | NotMetered", store.run(cast("Any", command.run()), *ways))


def test_the_first_question_makes_the_meter_and_others_are_three_requests() -> None:
    """Law MT3."""
    store = stored()
    first = asked(store, 1)
    assert isinstance(first, Admission)
    assert first.admitted == 1
    second = asked(store, 2)
    assert [type(each) for each in store.asked] == [FindOne, StoreTime, UpdateOne]
    assert isinstance(second, Admission)
    assert (second.admitted, second.dues) == (1, (T0 + 500 * MILLISECOND,))
    assert contents(store.world, "meters")[0][ADMITTED] == 2


def test_a_rate_of_less_than_a_millisecond_is_kept_whole() -> None:
    store, rate = stored(), Rate(3_000, SECOND, 1)
    assert rate.interval == 334
    admitted = 0
    for step in range(1, 1_001):
        store.world = cast("Any", store.world.write(CLOCK, T0 + step * MILLISECOND))
        found = asked(store, 5, rate=rate)
        assert isinstance(found, Admission)
        admitted += found.admitted
    assert admitted == 1_000  # one at a time, one poll per millisecond


@pytest.mark.parametrize("way", [DROPPED, UNSENT, lost_reply], ids=["lost", "not sent", "reply lost"])
@pytest.mark.parametrize("at", range(3))
def test_what_has_no_answer_is_asked_again(way: Way, at: int) -> None:
    """Law MT2: at worst, permits are unused."""
    store = stored(new_meter("send", T0))
    found = asked(store, 2, *(answered,) * at, way)
    assert isinstance(found, Admission)
    is_charged_twice = way is lost_reply and at == 2
    assert found.admitted == (0 if is_charged_twice else 2)
    assert laws.rates.is_counted(found.admitted, contents(store.world, "meters")[0][ADMITTED])


def test_where_nobody_answers_nothing_may_begin() -> None:
    """Law MT2."""
    command = Metering(key="send", rate=RATE, wanted=2, attempts=1)
    assert isinstance(stored().run(cast("Any", command.run()), UNSENT), NotMetered)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rate(0, SECOND), lambda: Rate(1, 0), lambda: Rate(2, 1), lambda: Rate(2, SECOND, 3), lambda: Rate(2, SECOND, 0),
        lambda: decide_rate(RATE, EMPTY, T0, 0), lambda: Metering(key="", rate=RATE, wanted=1),
        lambda: Metering(key="send", rate=RATE, wanted=0), lambda: Metering(key="send", rate=RATE, wanted=1, meters=""),
    ],
    ids=["none", "no time", "more than one in the least time", "burst", "no burst", "nobody", "set", "wanted", "collection"],
)  # fmt: skip
def test_what_is_no_rate_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        make()


@OF_DESIGNS
def test_every_fault_strikes_where_it_is_explored() -> None:
    """Laws MT1 and MT2."""
    report = report_on("metering")

    assert report.ok
    assert {"late", "lost_reply", "dropped", "duplicate", "crash_after"} <= {*report.faults}
