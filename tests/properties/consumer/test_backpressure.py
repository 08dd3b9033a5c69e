from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from itertools import product
from random import Random  # noqa: TID251  seeded
from typing import cast

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.consumer.checks.laws import backpressure as laws
from tidegate.consumer.checks.strategies.backpressure import (
    gates,
    holds,
    limits,
    loads,
    near,
    pressures,
    thresholds,
    verdicts,
)
from tidegate.consumer.committing.commit_metadata import Partial, encoded, surveyed, units
from tidegate.consumer.flow import backpressure
from tidegate.consumer.flow.backpressure import (
    NEXT,
    Band,
    Flow,
    Free,
    Gate,
    GateReason,
    GateVerdict,
    Held,
    Hold,
    Load,
    PartitionHold,
    PartitionLimits,
    PartitionPressure,
    Plan,
    Signal,
    Thresholds,
    for_executors,
)
from tidegate.consumer.offsets.watermark import completed, delivered, restored
from tidegate.model.errors import Misuse

Partition = tuple[str, int]


@attrs.frozen
class Case:
    thresholds: Thresholds
    gate: Gate
    load: int
    assigned: tuple[Partition, ...]
    paused: tuple[Partition, ...]
    held: tuple[Partition, ...] = ()
    selective: bool = True

    @property
    def wanted(self) -> frozenset[Partition]:
        return frozenset(self.assigned) - frozenset(self.held)


PARTITIONS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 11)), max_size=6, unique=True).map(tuple)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    limits = draw(thresholds())
    assigned = draw(PARTITIONS)
    some = st.sets(st.sampled_from(assigned)).map(tuple) if assigned else st.just(())
    held = draw(st.one_of(st.just(()), some, PARTITIONS))
    return Case(
        limits,
        draw(gates()),
        draw(near(limits)),
        assigned,
        draw(st.one_of(some, PARTITIONS)),
        held,
        draw(st.booleans()),
    )


# --- the laws -----------------------------------------------------------------------------------------------------------


@given(cases())
@example(Case(Thresholds(9, 2), Gate.CLOSED, 8, (), ()))
def test_b1_the_gate_does_not_flap(case: Case) -> None:
    verdict = backpressure.decide(case.thresholds, case.gate, case.load)
    assert laws.does_not_flap(case.thresholds, case.gate, case.load, verdict)


@given(thresholds(), st.data())
def test_b1_the_load_crosses_from_high_to_low(limits: Thresholds, data: st.DataObject) -> None:
    gate, history = Gate.OPEN, list[tuple[int, Gate]]()
    for load in data.draw(st.lists(near(limits), max_size=20)):
        gate = backpressure.decide(limits, gate, load).gate
        history.append((load, gate))

    assert laws.crosses_from_high_to_low(limits, history)


@given(cases())
@example(Case(Thresholds(9, 2), Gate.CLOSED, 9, (("a", 0), ("b", 0)), (("a", 0),)))
@example(Case(Thresholds(9, 2), Gate.OPEN, 9, (("a", 0),), ()))
def test_b2_all_is_held_above_high(case: Case) -> None:
    _, todo, paused = turn(case)
    assert laws.bounds_the_load(case.thresholds, case.load, case.assigned, paused)
    assert laws.polls_nothing_at_high(case.thresholds, case.load, todo)


@given(cases())
@example(Case(Thresholds(9, 2), Gate.OPEN, 2, (("a", 0), ("a", 1)), (), (("a", 0),)))
def test_b2_what_is_not_polled_is_paused(case: Case) -> None:
    _, todo, paused = turn(attrs.evolve(case, selective=False))
    assert laws.flows_exactly(todo, case.assigned, paused)


@given(cases())
@example(Case(Thresholds(9, 2), Gate.CLOSED, 2, (("a", 0),), (("a", 0),)))
def test_b3_nothing_is_held_below_low(case: Case) -> None:
    _, todo, paused = turn(case)
    assert laws.outlives_no_reason(case.thresholds, case.load, case.wanted, todo, paused)


@given(cases())
def test_b4_planning_again_is_empty(case: Case) -> None:
    verdict, _, paused = turn(case)
    again = backpressure.plan(verdict, case.assigned, paused, case.held, selective=case.selective)
    assert laws.leaves_nothing_to_do(again)


@given(cases())
@example(Case(Thresholds(2, 1), Gate.OPEN, 2, (("b", 0), ("a", 10), ("a", 9)), ()))
def test_b5_plans_report_what_is_wrong(case: Case) -> None:
    _, todo, _ = turn(case)
    assert laws.reports_what_is_wrong(todo, case.assigned, case.paused)


@given(cases())
@example(Case(Thresholds(9, 2), Gate.CLOSED, 5, (), ()))
def test_b6_verdicts_tell_of_changes(case: Case) -> None:
    assert laws.tells_of_the_change(case.gate, backpressure.decide(case.thresholds, case.gate, case.load))


@given(limits(), holds(), st.data())
@example(PartitionLimits(span=Thresholds(9, 2), age=Thresholds(9, 2)), Held((Signal.SPAN,)), None)
def test_b7_a_partition_is_held_for_its_signals(
    limits: PartitionLimits, before: PartitionHold, data: st.DataObject | None
) -> None:
    pressure = PartitionPressure(span=2, age=5) if data is None else data.draw(pressures(limits))
    after = backpressure.decide_partition(limits, before, pressure)
    assert laws.holds_for_its_signals(limits, before, pressure, after)


@given(cases())
@example(Case(Thresholds(9, 2), Gate.OPEN, 2, (("a", 0), ("a", 1)), (("a", 0), ("a", 1)), (("a", 0),)))
def test_b8_the_others_flow(case: Case) -> None:
    _, todo, _ = turn(case)
    _, alone, _ = turn(attrs.evolve(case, held=()))
    assert laws.leaves_the_others_alone(todo, alone, case.assigned, case.held)


@given(cases())
@example(Case(Thresholds(9, 2), Gate.OPEN, 2, (("a", 0), ("a", 1)), (), (("a", 0),)))
def test_b9_nothing_is_thrown_away(case: Case) -> None:
    _, todo, _ = turn(attrs.evolve(case, selective=True))
    assert laws.throws_nothing_away(todo)


PLACES = ("waiting", "arranging", "running", "in_hooks", "delivering")


@given(st.lists(st.lists(st.integers(0, 5), max_size=9), max_size=3))
def test_b10_each_record_counts_once(consumers: list[list[int]]) -> None:
    records = dict.fromkeys(range(4), 0)  # each begins by waiting, and is settled behind the last place
    for moves in consumers:
        for move in moves:
            records = {each: place + (each == move) for each, place in records.items()}
        places = [PLACES[place] for place in records.values() if place < len(PLACES)]
        load = Load(**{place: places.count(place) for place in PLACES})

        assert laws.counts_each_record_once(load, len(places))
        assert laws.counts_each_record_once(load + load, 2 * len(places))


@attrs.frozen
class Polled:
    records: int


@attrs.frozen
class Moved:
    records: int


@attrs.frozen
class Settled:
    records: int


@attrs.frozen
class Pressed:
    partition: int
    pressure: PartitionPressure


@attrs.frozen
class Rebalanced:
    assigned: tuple[Partition, ...]


@attrs.frozen
class PausedLate:
    paused: tuple[Partition, ...]


Event = Polled | Moved | Settled | Pressed | Rebalanced | PausedLate
LIMITS = PartitionLimits(span=Thresholds(4, 1), metadata=Thresholds(4, 1))
FETCH_MAX = 4
EVENTS = st.one_of(
    st.builds(Polled, st.integers(0, FETCH_MAX)),
    st.builds(Moved, st.integers(1, 20)),
    st.builds(Settled, st.integers(1, 20)),
    st.builds(Pressed, st.integers(0, 5), pressures(LIMITS)),
    st.builds(Rebalanced, PARTITIONS),
    st.builds(PausedLate, PARTITIONS),
)


class World:
    def __init__(self, limits: Thresholds, *, selective: bool) -> None:
        self.limits, self.selective = limits, selective
        self.load = Load()
        self.gate = Gate.OPEN
        self.assigned: tuple[Partition, ...] = ()
        self.paused: frozenset[Partition] = frozenset()
        self.holds: dict[Partition, PartitionHold] = {}
        self.pressures: dict[Partition, PartitionPressure] = {}

    def happen(self, event: Event) -> None:
        match event:
            case Rebalanced(assigned):
                self.assigned, self.paused = assigned, frozenset()
                self.holds, self.pressures = {}, {}
            case PausedLate(paused):
                self.paused |= frozenset(paused) & frozenset(self.assigned)
            case Pressed(at, pressure):
                self.pressures |= dict.fromkeys(self.assigned[at : at + 1], pressure)
            case Moved(count):
                moved = min(count, self.load.waiting)
                self.load = attrs.evolve(
                    self.load, waiting=self.load.waiting - moved, arranging=self.load.arranging + moved
                )
            case Settled(count):
                self.load = attrs.evolve(self.load, arranging=max(0, self.load.arranging - count))
            case Polled(records):
                todo = self.turn()
                flowing = frozenset(todo.poll if self.selective else self.assigned) - self.paused
                self.load = attrs.evolve(self.load, waiting=self.load.waiting + (records if flowing else 0))

    def turn(self) -> Plan[Partition]:
        self.holds = {
            each: backpressure.decide_partition(
                LIMITS, self.holds.get(each, Free()), self.pressures.get(each, PartitionPressure())
            )
            for each in self.assigned
        }
        verdict = backpressure.decide(self.limits, self.gate, self.load.records)
        self.gate = verdict.gate
        held = tuple(each for each, hold in self.holds.items() if hold.by)
        todo = backpressure.plan(verdict, self.assigned, tuple(self.paused), held, selective=self.selective)
        self.paused = laws.carried_out(todo, self.paused)
        return todo


HISTORIES = st.lists(EVENTS, max_size=30)
ONE, TWO = Rebalanced((("a", 0),)), Rebalanced((("a", 0), ("a", 1)))


@given(thresholds(), HISTORIES, st.booleans())
@example(Thresholds(2, 1), [ONE, Polled(2), Polled(0), TWO, Polled(4), Polled(4)], False)
@example(Thresholds(2, 1), [ONE, *[Polled(2), Moved(2)] * 4], True)
def test_b2_the_load_is_bounded(limits: Thresholds, events: list[Event], selective: bool) -> None:
    world = World(limits, selective=selective)
    for event in events:
        world.happen(event)

        assert laws.stays_below(limits, FETCH_MAX, sum(attrs.astuple(world.load)))


@given(thresholds(), HISTORIES, st.booleans())
@example(Thresholds(2, 1), [TWO, Polled(4), Polled(0), PausedLate((("a", 0),))], True)
@example(Thresholds(2, 1), [TWO, Pressed(0, PartitionPressure(span=4)), Polled(0)], False)
@example(Thresholds(2, 1), [TWO, Polled(4), Polled(0), Settled(9), Polled(0), PausedLate((("a", 0),))], True)
def test_b11_all_flows_again(limits: Thresholds, events: list[Event], selective: bool) -> None:
    world = World(limits, selective=selective)
    for event in events:
        world.happen(event)
    world.load, world.pressures = Load(), {}
    todo = world.turn()

    assert laws.flows_again(todo, world.assigned, world.paused)


def turn(case: Case) -> tuple[GateVerdict, Plan[Partition], frozenset[Partition]]:
    verdict = backpressure.decide(case.thresholds, case.gate, case.load)
    todo = backpressure.plan(verdict, case.assigned, case.paused, case.held, selective=case.selective)
    return verdict, todo, laws.carried_out(todo, case.paused)


# --- planted bugs -------------------------------------------------------------------------------------------------------

test_a_planted_bug_is_found = planted(
    backpressure,
    bug(
        "high is compared both ways", ("load <= thresholds.low", "load < thresholds.high"),
        test_b1_the_gate_does_not_flap, test_b1_the_load_crosses_from_high_to_low,
    ),
    bug(
        "it closes above high only", ("load >= thresholds.high", "load > thresholds.high"),
        test_b2_all_is_held_above_high, test_b2_the_load_is_bounded,
    ),
    bug(
        "it opens below low only", ("load <= thresholds.low", "load < thresholds.low"),
        test_b3_nothing_is_held_below_low,
    ),
    bug(
        "it tells the news each time",
        ("Band.BETWEEN: Hold(GateReason.ABOVE_LOW)", "Band.BETWEEN: Hold(GateReason.REACHED_HIGH)"),
        test_b6_verdicts_tell_of_changes,
    ),
    # Drakkar's loop never checks a partition that is assigned while the flag is up, or paused late.
    bug(
        "it plans only on a change", ("return Plan(\n", "return Plan(poll=wanted) if not verdict.changed else Plan(\n"),
        test_b2_all_is_held_above_high, test_b2_the_load_is_bounded, test_b3_nothing_is_held_below_low,
        test_b11_all_flows_again,
    ),
    bug(
        "newly assigned ones are forgotten where some are paused",
        ("in left if each not in stopped", "in left if not stopped"),
        test_b2_all_is_held_above_high,
    ),
    bug(
        "it asks for everything each time", ("_names(paused)", "_names(() if isinstance(verdict, Hold) else assigned)"),
        test_b4_planning_again_is_empty, test_b5_plans_report_what_is_wrong,
    ),
    bug(
        "revoked ones are resumed, too",
        ("= _names(assigned)", "= _names({*assigned, *paused} if isinstance(verdict, Flow) else assigned)"),
        test_b5_plans_report_what_is_wrong,
    ),
    bug(
        "a plan is in the order of what is assigned",
        ("in left if each not in stopped", "in assigned if each in left and each not in stopped"),
        test_b5_plans_report_what_is_wrong,
    ),
    # Confluent's Parallel Consumer.
    bug(
        "one partition in trouble stops all", ("_names(held)", "_names(assigned if {*assigned} & {*held} else ())"),
        test_b3_nothing_is_held_below_low, test_b8_the_others_flow,
    ),
    bug(
        "the fall-back is the rule", ("    ours, stopped,", "    selective = False\n    ours, stopped,"),
        test_b9_nothing_is_thrown_away,
    ),
    bug(
        "there is no fall-back", ("    ours, stopped,", "    selective = True\n    ours, stopped,"),
        test_b2_what_is_not_polled_is_paused,
    ),
    bug(
        "what was held on its own account is resumed when the gate opens only",
        ("in wanted if each in stopped", "in wanted if each in stopped and verdict.changed"),
        test_b11_all_flows_again,
    ),
    bug(
        "what is about to be resumed is not polled",
        ("if each in stopped), wanted", "if each in stopped), tuple(each for each in wanted if each not in paused)"),
        test_b3_nothing_is_held_below_low,
    ),
    bug(
        "a partition has no hysteresis", ("signal in before.by, now", "False, now"),
        test_b7_a_partition_is_held_for_its_signals,
    ),
    bug(
        "what one signal has closed another keeps closed", ("signal in before.by, now", "bool(before.by), now"),
        test_b7_a_partition_is_held_for_its_signals,
    ),
    bug(
        "what was held once stays held", ("if _closes(", "if signal in before.by or _closes("),
        test_b7_a_partition_is_held_for_its_signals, test_b11_all_flows_again,
    ),
    # Drakkar's sum omits records inside `arrange`, in hooks or on their way to a sink.
    bug(
        "not all places count",
        ("self.waiting + self.arranging + self.running + self.in_hooks", "self.waiting + self.running"),
        test_b2_the_load_is_bounded, test_b10_each_record_counts_once,
    ),
)  # fmt: skip


# --- facts --------------------------------------------------------------------------------------------------------------


def test_the_gate_has_an_answer_for_every_load() -> None:
    """Totality, and agreement with the rule in prose."""
    limits = Thresholds(high=5, low=2)

    assert all(set(NEXT[gate]) == set(Band) for gate in Gate)
    for gate in Gate:
        for load in range(8):
            held = load >= 5 or (gate is Gate.CLOSED and load > 2)

            assert held == isinstance(backpressure.decide(limits, gate, load), Hold)


def test_the_gate_closes_at_128_and_opens_at_16() -> None:
    """Drakkar's defaults for four executors."""
    gate, seen = Gate.OPEN, list[str]()
    for load in (0, 127, 128, 129, 17, 16, 17):
        verdict = backpressure.decide(Thresholds(high=128, low=16), gate, load)
        gate = verdict.gate
        seen.append(f"{load} {verdict}")

    assert seen == [
        "0 flow: the load is below high",
        "127 flow: the load is below high",
        "128 hold: the load has reached high",
        "129 hold: the load has not fallen to low yet",
        "17 hold: the load has not fallen to low yet",
        "16 flow: the load has fallen to low",
        "17 flow: the load is below high",
    ]


@pytest.mark.parametrize(
    ("expected", "verdict", "assigned", "paused", "held"),
    [
        (Plan(pause=(5, 7)), Hold(GateReason.ABOVE_LOW), (0, 7, 5), (0,), ()),
        (Plan(poll=(0, 5, 7)), Flow(GateReason.BELOW_HIGH), (0, 5, 7), (), ()),
        (Plan(resume=(0, 5), poll=(0, 5)), Flow(GateReason.FELL_TO_LOW), (5, 0), (0, 3, 5), ()),
        (Plan(), Hold(GateReason.REACHED_HIGH), (), (3,), ()),
        (Plan(poll=(0, 7)), Flow(GateReason.BELOW_HIGH), (0, 5, 7), (), (5, 9)),
        (Plan(resume=(7,), poll=(7,)), Flow(GateReason.BELOW_HIGH), (0, 7), (0, 7), (0,)),
        (Plan(pause=(0, 7)), Flow(GateReason.BELOW_HIGH), (0, 7), (), (7, 0)),
    ],
)
def test_a_plan_is_made_from_what_is_observed(
    expected: Plan[int], verdict: GateVerdict, assigned: Iterable[int], paused: Iterable[int], held: Iterable[int]
) -> None:
    """Drakkar's edge cases."""
    assert expected == backpressure.plan(verdict, tuple(assigned), tuple(paused), tuple(held))


def test_a_client_that_cannot_poll_selectively_pauses_what_is_held() -> None:
    flow = Flow(GateReason.BELOW_HIGH)
    held = backpressure.plan(flow, (0, 5, 7), (), (5,), selective=False)
    free = backpressure.plan(flow, (0, 5, 7), (5,), (), selective=False)

    assert (held, free) == (Plan(pause=(5,), poll=(0, 7)), Plan(resume=(5,), poll=(0, 5, 7)))


@given(cases())
def test_the_order_of_what_is_observed_does_not_matter(case: Case) -> None:
    _, todo, _ = turn(case)
    other = attrs.evolve(case, assigned=case.assigned[::-1], paused=case.paused[::-1], held=case.held[::-1])

    assert todo == turn(other)[1]


def test_thresholds_follow_the_executors() -> None:
    """Drakkar's defaults: 32 and 4 records per executor; no gate waits for a load below one."""
    assert [for_executors(executors) for executors in (1, 4, 10_000)] == [
        Thresholds(32, 4),
        Thresholds(128, 16),
        Thresholds(320_000, 40_000),
    ]
    assert for_executors(2, high_each=3, low_each=0) == Thresholds(high=6, low=1)
    with pytest.raises(Misuse, match="cannot close at 1 and open at 1"):
        for_executors(1, high_each=1, low_each=0)


def test_what_is_inside_arrange_is_load() -> None:
    """Drakkar's load drops as records enter `arrange`."""
    before, inside = Load(waiting=100), Load(arranging=100)

    assert (before.records, inside.records) == (100, 100)


def test_a_partition_is_held_from_high_to_low() -> None:
    limits = PartitionLimits(span=Thresholds(10, 5), metadata=None, age=Thresholds(60, 30))
    hold: PartitionHold = Free()
    seen = list[str]()
    for span, age in ((9, 59), (10, 0), (6, 45), (6, 60), (5, 45), (0, 31), (0, 30), (9, 59)):
        hold = backpressure.decide_partition(limits, hold, PartitionPressure(span=span, age=age, metadata=9_999))
        seen.append(str(hold))

    assert seen == [
        "free",
        "held: undone span",
        "held: undone span",
        "held: undone span, age of the oldest",
        "held: age of the oldest",
        "held: age of the oldest",
        "free",
        "free",
    ]


def test_a_partition_whose_metadata_does_not_fit_is_held() -> None:
    """With a random half done, beyond 61,353 offsets; it is held long before."""
    chance = Random(6)
    done = [2 * pair + chance.randrange(2) for pair in range(31_000)]
    hold: PartitionHold = Free()
    held = dict[int, PartitionHold]()
    for reach in (40_000, 45_000, 47_000, 62_000):
        ranges = [(offset, offset + 1) for offset in done if 0 < offset < reach]
        tracker = delivered(restored(0, ranges), range(reach))
        survey = surveyed(tracker)
        standing = backpressure.decide_partition(
            PartitionLimits(span=None), hold, PartitionPressure(metadata=units(survey))
        )
        held[reach] = standing

        assert isinstance(encoded(survey), Partial) == (reach > 61_353)

        drained = surveyed(completed(tracker, range(reach)))

        assert Free() == backpressure.decide_partition(
            PartitionLimits(span=None), hold, PartitionPressure(metadata=units(drained))
        )

    metadata = Held((Signal.METADATA,))
    assert held == {40_000: Free(), 45_000: Free(), 47_000: metadata, 62_000: metadata}


def test_an_age_is_a_length_of_time() -> None:
    assert PartitionPressure(age=timedelta(seconds=5)) == PartitionPressure(age=5_000_000)
    assert Thresholds(timedelta(seconds=2), timedelta(seconds=1)) == Thresholds(2_000_000, 1_000_000)


@given(loads(), loads())
def test_loads_of_partitions_add_up(one: Load, other: Load) -> None:
    assert (one + other).records == one.records + other.records
    assert (one + other).in_hooks == one.in_hooks + other.in_hooks


@given(verdicts())
def test_a_verdict_says_why(verdict: GateVerdict) -> None:
    assert str(verdict) == f"{'hold' if isinstance(verdict, Hold) else 'flow'}: {verdict.reason.value}"


@pytest.mark.parametrize(("high", "low"), [(5, 5), (5, 6), (0, 0), (5, -1), (True, 0), (5.0, 1), (5, None), ("5", 1)])
def test_thresholds_that_would_flap_are_refused(high: int, low: int) -> None:
    """Drakkar accepts a low above the high."""
    with pytest.raises(Misuse, match="the gate cannot close at"):
        Thresholds(high, low)


@pytest.mark.parametrize("load", [-1, True, 1.5, None, "3"])
def test_what_is_not_a_load_is_refused(load: int) -> None:
    with pytest.raises(Misuse, match="is not a load"):
        backpressure.decide(Thresholds(2, 1), Gate.OPEN, load)


@pytest.mark.parametrize("bad", [-1, True, 1.5, None, "3"])
def test_what_is_not_a_number_is_refused(bad: int) -> None:
    made: list[Callable[[], object]] = [
        *(lambda signal=signal: PartitionPressure(**{signal: bad}) for signal in ("span", "size", "age", "metadata")),
        lambda: for_executors(bad),
        lambda: for_executors(1, high_each=bad),
        lambda: for_executors(1, low_each=bad),
    ]
    for make in made:
        with pytest.raises(Misuse, match="must be an integer"):
            make()


@pytest.mark.parametrize("bad", [None, 5, "open", (), (1,), [Signal.AGE]])
def test_what_is_of_another_type_is_refused(bad: object) -> None:
    limits = Thresholds(2, 1)
    made: list[Callable[[], object]] = [
        lambda: backpressure.decide(limits, cast("Gate", bad), 1),
        lambda: backpressure.decide(cast("Thresholds", bad), Gate.OPEN, 1),
        lambda: backpressure.decide_partition(cast("PartitionLimits", bad), Free(), PartitionPressure()),
        lambda: backpressure.decide_partition(PartitionLimits(), cast("PartitionHold", bad), PartitionPressure()),
        lambda: backpressure.decide_partition(PartitionLimits(), Free(), cast("PartitionPressure", bad)),
        lambda: backpressure.plan(cast("GateVerdict", bad), (), ()),
        *([] if bad is None else [lambda: PartitionLimits(age=cast("Thresholds", bad))]),
    ]
    for make in made:
        with pytest.raises(Misuse):
            make()


@pytest.mark.parametrize("bad", [None, 5, (1, "a"), ([],)])
def test_partitions_that_cannot_be_sorted_are_refused(bad: Collection[Partition]) -> None:
    with pytest.raises(Misuse, match=r"are not partitions|have no order"):
        backpressure.plan(Flow(GateReason.BELOW_HIGH), bad, ())


def test_a_verdict_serves_wherever_its_gate_does() -> None:
    limits = Thresholds(high=10, low=2)
    for load, then in product((0, 5, 10), (0, 5, 10)):
        verdict = backpressure.decide(limits, Gate.OPEN, load)
        assert backpressure.decide(limits, verdict, then) == backpressure.decide(limits, verdict.gate, then)
        assert backpressure.plan(verdict, [1, 2], [2], selective=False) == backpressure.plan(
            verdict.gate, [1, 2], [2], selective=False
        )
