from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidegate.leases import claim_lock
from tidegate.leases.checks.laws import claim_lock as laws
from tidegate.leases.checks.strategies.claim_lock import claims
from tidegate.leases.checks.strategies.lease import instants, observations
from tidegate.leases.claim_lock import Absent, Holding, LockView, Stale, Waiting
from tidegate.leases.lease import Mark, Observation, observe
from tidegate.model.documents import Contains, Document, Field, Pull, matches, updated
from tidegate.model.errors import Misuse
from tidegate.model.instants import ClockName, Duration, Instant

HERE = ClockName("monotonic clock of an observer")


class ViewLock(Protocol):
    def __call__(
        self, claims: tuple[str, ...], mine: str, *, observation: Observation | None, now: Instant, threshold: Duration
    ) -> LockView: ...


@attrs.frozen
class Desk:
    observe: Callable[[Observation | None, Mark | None, Instant], Observation | None] = observe
    lock_view: ViewLock = claim_lock.lock_view


def effort(desk: Desk, examples: int = 100) -> settings:
    return settings(max_examples=examples) if desk == Desk() else settings()


def check_lk1(desk: Desk) -> None:
    @effort(desk)
    @given(st.lists(st.tuples(claims(), st.integers(0, 5)), min_size=1, max_size=10), st.integers(1, 8))
    @example([(("a", "b"), 0), (("b", "a"), 7), (("b", "a"), 1)], 8)
    @example([(("b", "a", "c"), 0), (("b", "a", "c"), 8)], 8)
    @example([(("b", "a"), 0), (("b", "a"), 7)], 8)
    def only_the_judged_first_is_stale(looks: list[tuple[tuple[str, ...], int]], threshold: int) -> None:
        real, first_since, first, observation = 0, 0, None, None
        for array, later in looks:
            real += later
            if first != (array[:1] or None):
                first, first_since = array[:1] or None, real
            now = Instant(real + 1_000, HERE)
            observation = desk.observe(observation, array[0] if array else None, now)
            view = desk.lock_view(array, "a", observation=observation, now=now, threshold=threshold)

            assert laws.stale_is_the_first(array, real - first_since, threshold, view)

    only_the_judged_first_is_stale()


def check_lk2(desk: Desk) -> None:
    @effort(desk)
    @given(claims(), st.none() | observations(HERE), instants(HERE), st.integers(1, 8))
    @example(("a", "b", "a"), None, Instant(0, HERE), 1)
    @example(("b", "a"), Observation("b", Instant(0, HERE)), Instant(9, HERE), 8)
    @example((), None, Instant(0, HERE), 1)
    def the_first_holds(array: tuple[str, ...], observation: Observation | None, now: Instant, threshold: int) -> None:
        views = {
            mine: desk.lock_view(array, mine, observation=observation, now=now, threshold=threshold) for mine in "abcd"
        }

        assert all(laws.the_first_holds(array, mine, view) for mine, view in views.items())
        assert all((mine in array) != isinstance(view, Absent) for mine, view in views.items())

    the_first_holds()


LAWS: dict[str, Callable[[Desk], None]] = {
    "LK1": check_lk1,
    "LK2": check_lk2,
}


@pytest.mark.parametrize("law", LAWS)
def test_a_claim_lock_keeps_the_law(law: str) -> None:
    """Laws LK1 and LK2 (`tidegate.leases.claim_lock`)."""
    LAWS[law](Desk())


def any_version_renamed(before: Observation | None, mark: Mark | None, now: Instant) -> Observation | None:
    seen = observe(before, mark, now)
    return seen if seen is None or before is None else Observation(seen.mark, before.since)


def judges_all_by_the_first(
    claims: tuple[str, ...], mine: str, *, observation: Observation | None, now: Instant, threshold: Duration
) -> LockView:
    """pynenc: it clears the array because its first claim is stale."""
    view = claim_lock.lock_view(claims, mine, observation=observation, now=now, threshold=threshold)
    return Stale(claims[-1]) if isinstance(view, Stale) else view


def judges_what_it_saw_before(
    claims: tuple[str, ...], mine: str, *, observation: Observation | None, now: Instant, threshold: Duration
) -> LockView:
    """pynenc: a claim's age counts from its push, here from the earliest possible one."""
    view = claim_lock.lock_view(claims, mine, observation=observation, now=now, threshold=threshold)
    return Stale(view.behind) if isinstance(view, Waiting) and view.left < threshold else view


def anywhere_is_first(
    claims: tuple[str, ...], mine: str, *, observation: Observation | None, now: Instant, threshold: Duration
) -> LockView:
    if mine in claims:
        return Holding()
    return claim_lock.lock_view(claims, mine, observation=observation, now=now, threshold=threshold)


def stale_before_held(
    claims: tuple[str, ...], mine: str, *, observation: Observation | None, now: Instant, threshold: Duration
) -> LockView:
    if not claims:
        return Holding()
    return claim_lock.lock_view(claims, mine, observation=observation, now=now, threshold=threshold)


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("LK1", Desk(lock_view=judges_all_by_the_first)),
        ("LK1", Desk(lock_view=judges_what_it_saw_before)),
        ("LK1", Desk(observe=any_version_renamed)),
        ("LK2", Desk(lock_view=anywhere_is_first)),
        ("LK2", Desk(lock_view=stale_before_held)),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Desk) -> None:
    with pytest.raises(AssertionError):
        LAWS[law](planted)


SOON = Instant(12)


@pytest.mark.parametrize(
    ("expected", "array", "since"),
    [
        (Absent(), (), 0),
        (Absent(), ("b",), -99),
        (Holding(), ("a", "b"), -99),
        (Waiting("b", 5), ("b", "a"), 0),
        (Waiting("b", 5), ("b", "a"), 2),
        (Waiting("b", 1), ("b", "a"), -4),
        (Stale("b"), ("b", "a"), -5),
        (Waiting("c", 5), ("c", "a"), -5),
    ],
)
def test_a_lock_is_viewed(expected: LockView, array: tuple[str, ...], since: int) -> None:
    observation = Observation("b", Instant(since, HERE))

    assert expected == claim_lock.lock_view(array, "a", observation=observation, now=Instant(0, HERE), threshold=5)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(("come", "read", "write", "judge"))), max_size=40))
@example([(0, "come"), (0, "read"), (1, "come"), (1, "judge"), (1, "read"), (1, "write"), (0, "write")])
def test_whoever_writes_with_its_claim_in_the_filter_overwrites_nobody(turns: list[tuple[int, str]]) -> None:
    """Law LK2 and the advice in `Holding`."""
    array, number = Field[tuple[str, ...]]("claims"), Field[int]("number")
    record = Document().put(array, ()).put(number, 0)
    seen, written = dict[int, int](), list[int]()
    for who, what in turns:
        mine = "abc"[who]
        held = record[array]
        view = claim_lock.lock_view(held, mine, observation=None, now=Instant(0, HERE), threshold=1)
        match what:
            case "come" if isinstance(view, Absent):
                record = record.put(array, (*held, mine))
                seen.pop(who, None)
            case "read" if isinstance(view, Holding):
                seen[who] = record[number]
            case "write" if who in seen and matches(Contains(array, mine), record, lambda: SOON):
                written.append(seen.pop(who) + 1)
                record = updated(record.put(number, written[-1]), (Pull(array, mine),), lambda: SOON)
            case "judge" if held:  # a party has seen the first claim for too long
                record = updated(record, (Pull(array, held[0]),), lambda: SOON)
            case _:
                pass

    assert written == [*range(1, len(written) + 1)]


@pytest.mark.parametrize(
    "build",
    [
        lambda: claim_lock.lock_view(["a"], "a", observation=None, now=SOON, threshold=1),  # type: ignore[arg-type]
        lambda: claim_lock.lock_view((1,), "a", observation=None, now=SOON, threshold=1),  # type: ignore[arg-type]
        lambda: claim_lock.lock_view((), "", observation=None, now=SOON, threshold=1),
        lambda: claim_lock.lock_view((), "a", observation=None, now=SOON, threshold=0),
    ],
)
def test_what_makes_no_sense_is_refused(build: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        build()


@pytest.mark.parametrize(
    ("view", "text"),
    [
        (Absent(), "absent"),
        (Holding(), "holding"),
        (Waiting("b", 5), "waiting behind 'b', not stale for another 5 us"),
        (Stale("b"), "stale: pull 'b'"),
    ],
)
def test_a_view_says_what_it_is_in_one_line(view: LockView, text: str) -> None:
    assert str(view) == text
