from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate import backpressure
from tidegate.backpressure import NEXT, Band, Flow, Gate, Hold, Plan, Reason, Thresholds, Verdict
from tidegate.errors import Misuse
from tidegate.laws import backpressure as laws

Partition = tuple[str, int]


@attrs.frozen
class Valve:
    """What a consumer asks: the real functions, but for one that is planted."""

    decide: Callable[[Thresholds, Gate, int], Verdict] = backpressure.decide
    plan: Callable[[Verdict, Collection[Partition], Collection[Partition]], Plan[Partition]] = backpressure.plan


@attrs.frozen
class Case:
    """What is known when a consumer asks."""

    thresholds: Thresholds
    gate: Gate
    load: int
    assigned: tuple[Partition, ...]
    held: tuple[Partition, ...]


PARTITIONS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 11)), max_size=6, unique=True).map(tuple)


@st.composite
def thresholds(draw: st.DrawFn) -> Thresholds:
    low = draw(st.integers(0, 6))
    return Thresholds(draw(st.integers(low + 1, 12)), low)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    limits = draw(thresholds())
    load = draw(st.one_of(st.sampled_from((limits.low, limits.high)), st.integers(0, 20), st.integers(0)))
    return Case(limits, draw(st.sampled_from(Gate)), load, draw(PARTITIONS), draw(PARTITIONS))


def effort(valve: Valve) -> settings:
    """A counterexample to a specimen need not be a small one."""
    return settings() if valve == Valve() else settings(phases=(Phase.explicit, Phase.generate))


# --- the laws -----------------------------------------------------------------------------------------------------------


def check_b1(valve: Valve) -> None:
    @effort(valve)
    @given(cases())
    @example(Case(Thresholds(9, 2), Gate.CLOSED, 8, (), ()))
    def the_gate_does_not_flap(case: Case) -> None:
        verdict = valve.decide(case.thresholds, case.gate, case.load)
        assert laws.does_not_flap(case.thresholds, case.gate, case.load, verdict)

    the_gate_does_not_flap()


def check_b2(valve: Valve) -> None:
    @effort(valve)
    @given(cases())
    @example(Case(Thresholds(9, 2), Gate.CLOSED, 9, (("a", 0), ("b", 0)), (("a", 0),)))
    @example(Case(Thresholds(9, 2), Gate.OPEN, 9, (("a", 0),), ()))
    def all_is_held_above_high(case: Case) -> None:
        _, _, held = turn(valve, case)
        assert laws.bounds_the_load(case.thresholds, case.load, case.assigned, held)

    all_is_held_above_high()


def check_b3(valve: Valve) -> None:
    @effort(valve)
    @given(cases())
    @example(Case(Thresholds(9, 2), Gate.CLOSED, 2, (("a", 0),), (("a", 0),)))
    def nothing_is_held_below_low(case: Case) -> None:
        _, _, held = turn(valve, case)
        assert laws.outlives_no_reason(case.thresholds, case.load, case.assigned, held)

    nothing_is_held_below_low()


def check_b4(valve: Valve) -> None:
    @effort(valve)
    @given(cases())
    def planning_again_is_empty(case: Case) -> None:
        verdict, _, held = turn(valve, case)
        assert laws.leaves_nothing_to_do(valve.plan(verdict, case.assigned, held))

    planning_again_is_empty()


def check_b5(valve: Valve) -> None:
    @effort(valve)
    @given(cases())
    @example(Case(Thresholds(2, 1), Gate.OPEN, 2, (("b", 0), ("a", 10), ("a", 9)), ()))
    def plans_speak_of_what_is_amiss(case: Case) -> None:
        _, todo, _ = turn(valve, case)
        assert laws.speaks_of_what_is_amiss(todo, case.assigned, case.held)

    plans_speak_of_what_is_amiss()


def check_b6(valve: Valve) -> None:
    @effort(valve)
    @given(cases())
    @example(Case(Thresholds(9, 2), Gate.CLOSED, 5, (), ()))
    def verdicts_tell_of_changes(case: Case) -> None:
        assert laws.tells_of_the_change(case.gate, valve.decide(case.thresholds, case.gate, case.load))

    verdicts_tell_of_changes()


@attrs.frozen
class Polled:
    """A poll, for which the broker has that many records."""

    records: int


@attrs.frozen
class Settled:
    """That many records are done."""

    records: int


@attrs.frozen
class Rebalanced:
    """These partitions are assigned now, and the client has forgotten its pauses."""

    assigned: tuple[Partition, ...]


Event = Polled | Settled | Rebalanced
FETCH_MAX = 4
EVENTS = st.one_of(
    st.builds(Polled, st.integers(0, FETCH_MAX)),
    st.builds(Settled, st.integers(1, 20)),
    st.builds(Rebalanced, PARTITIONS),
)


def check_b2_over_time(valve: Valve) -> None:
    @effort(valve)
    @given(thresholds(), st.lists(EVENTS, max_size=30))
    @example(
        Thresholds(2, 1), [Rebalanced((("a", 0),)), Polled(2), Polled(0), Rebalanced((("a", 1),)), Polled(4), Polled(4)]
    )
    def the_load_is_bounded(limits: Thresholds, events: list[Event]) -> None:
        load, gate = 0, Gate.OPEN
        assigned: tuple[Partition, ...] = ()
        held: frozenset[Partition] = frozenset()
        for event in events:
            match event:
                case Rebalanced():
                    assigned, held = event.assigned, frozenset()
                case Settled():
                    load = max(0, load - event.records)
                case Polled():
                    verdict, _, held = turn(valve, Case(limits, gate, load, assigned, tuple(held)))
                    gate = verdict.gate
                    load += event.records if frozenset(assigned) - held else 0

            assert laws.stays_below(limits, FETCH_MAX, load)

    the_load_is_bounded()


def turn(valve: Valve, case: Case) -> tuple[Verdict, Plan[Partition], frozenset[Partition]]:
    """The verdict, the plan, and what is held once it is carried out."""
    verdict = valve.decide(case.thresholds, case.gate, case.load)
    todo = valve.plan(verdict, case.assigned, case.held)
    return verdict, todo, laws.carried_out(todo, case.held)


LAWS: dict[str, Callable[[Valve], None]] = {
    "B1": check_b1,
    "B2": check_b2,
    "B2 over time": check_b2_over_time,
    "B3": check_b3,
    "B4": check_b4,
    "B5": check_b5,
    "B6": check_b6,
}


@pytest.mark.parametrize("law", LAWS)
def test_the_gate_keeps_the_law(law: str) -> None:
    """Laws B1 to B6, as the header of `tidegate.backpressure` states them."""
    LAWS[law](Valve())


# --- specimens ----------------------------------------------------------------------------------------------------------


def one_threshold(limits: Thresholds, gate: Gate, load: int) -> Verdict:
    """High is compared both ways."""
    return backpressure.decide(Thresholds(limits.high, limits.high - 1), gate, load)


def above_high_only(limits: Thresholds, gate: Gate, load: int) -> Verdict:
    return backpressure.decide(Thresholds(limits.high + 1, limits.low), gate, load)


def below_low_only(limits: Thresholds, gate: Gate, load: int) -> Verdict:
    held = gate is Gate.CLOSED and load == limits.low
    return Hold(Reason.ABOVE_LOW) if held else backpressure.decide(limits, gate, load)


def news_each_time(limits: Thresholds, gate: Gate, load: int) -> Verdict:
    verdict = backpressure.decide(limits, gate, load)
    return Hold(Reason.REACHED_HIGH) if isinstance(verdict, Hold) else verdict


def only_on_a_change(verdict: Verdict, assigned: Collection[Partition], held: Collection[Partition]) -> Plan[Partition]:
    """Drakkar's loop: what is assigned while the flag is up, or paused late, is never looked at."""
    return backpressure.plan(verdict, assigned, held) if verdict.changed else Plan()


def unless_some_are_held(
    verdict: Verdict, assigned: Collection[Partition], held: Collection[Partition]
) -> Plan[Partition]:
    """Newly assigned partitions are forgotten."""
    return Plan() if held and isinstance(verdict, Hold) else backpressure.plan(verdict, assigned, held)


def whatever_is_held(verdict: Verdict, assigned: Collection[Partition], _: Collection[Partition]) -> Plan[Partition]:
    """It asks for everything each time, without looking."""
    return backpressure.plan(verdict, assigned, () if isinstance(verdict, Hold) else assigned)


def revoked_ones_too(verdict: Verdict, assigned: Collection[Partition], held: Collection[Partition]) -> Plan[Partition]:
    return backpressure.plan(verdict, {*assigned, *held} if isinstance(verdict, Flow) else assigned, held)


def as_they_come(verdict: Verdict, assigned: Collection[Partition], held: Collection[Partition]) -> Plan[Partition]:
    todo = backpressure.plan(verdict, assigned, held)
    return attrs.evolve(todo, hold=tuple(each for each in assigned if each in todo.hold))


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("B1", Valve(decide=one_threshold)),
        ("B2", Valve(decide=above_high_only)),
        ("B2", Valve(plan=only_on_a_change)),
        ("B2", Valve(plan=unless_some_are_held)),
        ("B2 over time", Valve(decide=above_high_only)),
        ("B2 over time", Valve(plan=only_on_a_change)),
        ("B3", Valve(decide=below_low_only)),
        ("B3", Valve(plan=only_on_a_change)),
        ("B4", Valve(plan=whatever_is_held)),
        ("B5", Valve(plan=whatever_is_held)),
        ("B5", Valve(plan=revoked_ones_too)),
        ("B5", Valve(plan=as_they_come)),
        ("B6", Valve(decide=news_each_time)),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Valve) -> None:
    """Each law is broken by a small faulty variant of the function it speaks of."""
    with pytest.raises(AssertionError):
        LAWS[law](planted)


# --- facts --------------------------------------------------------------------------------------------------------------


def test_the_gate_has_an_answer_for_every_load() -> None:
    """Totality: each gate has a verdict for each band, and each load lies in one; agreement with the rule in prose."""
    limits = Thresholds(high=5, low=2)

    assert all(set(NEXT[gate]) == set(Band) for gate in Gate)
    for gate in Gate:
        for load in range(8):
            held = load >= 5 or (gate is Gate.CLOSED and load > 2)

            assert held == isinstance(backpressure.decide(limits, gate, load), Hold)


def test_the_gate_closes_at_128_and_opens_at_16() -> None:
    """Drakkar's defaults for four executors, and a load that rises and falls."""
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
    ("expected", "verdict", "assigned", "held"),
    [
        (Plan(hold=(5, 7)), Hold(Reason.ABOVE_LOW), (0, 7, 5), (0,)),
        (Plan(), Flow(Reason.BELOW_HIGH), (0, 5, 7), ()),
        (Plan(release=(0, 5)), Flow(Reason.FELL_TO_LOW), (5, 0), (0, 3, 5)),
        (Plan(), Hold(Reason.REACHED_HIGH), (), (3,)),
    ],
)
def test_a_plan_is_made_from_what_is_observed(
    expected: Plan[int], verdict: Verdict, assigned: Iterable[int], held: Iterable[int]
) -> None:
    """Drakkar's edge case: 0 held, then 5 and 7 assigned; and a revoked one, which is in neither part."""
    assert expected == backpressure.plan(verdict, tuple(assigned), tuple(held))


@given(cases())
def test_the_order_of_what_is_observed_does_not_matter(case: Case) -> None:
    """Metamorphic: the same sets in another order give the same plan."""
    _, todo, _ = turn(Valve(), case)
    other = attrs.evolve(case, assigned=case.assigned[::-1], held=case.held[::-1])

    assert todo == turn(Valve(), other)[1]


@pytest.mark.parametrize(("high", "low"), [(5, 5), (5, 6), (0, 0), (5, -1), (True, 0), (5.0, 1), (5, None), ("5", 1)])
def test_thresholds_that_would_flap_are_refused(high: int, low: int) -> None:
    """0 <= low < high, in whole records; Drakkar accepts a low above the high."""
    with pytest.raises(Misuse, match="the gate cannot close at"):
        Thresholds(high, low)


@pytest.mark.parametrize("load", [-1, True, 1.5, None, "3"])
def test_what_is_no_load_is_refused(load: int) -> None:
    """A load is a whole number of records."""
    with pytest.raises(Misuse, match="is no load"):
        backpressure.decide(Thresholds(2, 1), Gate.OPEN, load)
