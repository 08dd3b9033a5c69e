"""Effects and failures, and a program that awaits them."""

from __future__ import annotations

import pytest

from tidegate.model.effects import (
    Ambiguous,
    Call,
    Cancel,
    Effect,
    Failure,
    NotApplied,
    NotDurable,
    Note,
    Now,
    Refused,
    Sleep,
)
from tidegate.model.errors import Misuse
from tidegate.model.instants import (
    PPM,
    WALL,
    Duration,
    Instant,
)

FAILURES = (Refused, NotApplied, Ambiguous, NotDurable)


def test_awaiting_an_effect_yields_itself_and_returns_the_reply() -> None:
    """No event loop is involved: whoever holds the program feeds it."""

    async def program() -> tuple[Instant, object]:
        return await Now(), await Call("f", (1,))

    run = program()

    assert run.send(None) == Now()
    assert run.send(Instant(0, WALL)) == Call("f", (1,))
    with pytest.raises(StopIteration) as stopped:
        run.send("reply")
    assert stopped.value.value == (Instant(0, WALL), "reply")


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_is_raised_into_the_program(kind: type[Failure]) -> None:
    """The straight path reads straight; a failure is caught before the next await."""

    async def program() -> Failure | None:
        try:
            await Sleep(1)
        except Failure as failure:
            return failure
        return None

    run = program()
    run.send(None)

    with pytest.raises(StopIteration) as stopped:
        run.throw(kind("lost").fresh())
    assert stopped.value.value == kind("lost")


@pytest.mark.parametrize("kind", FAILURES)
def test_failures_are_equal_by_kind_and_reason(kind: type[Failure]) -> None:
    """Which is what makes a suspended program a value."""
    failure = kind("a")

    assert failure == kind("a") == failure.fresh()
    assert failure.fresh() is not failure
    assert hash(failure) == hash(kind("a"))
    assert failure != kind("b")
    assert failure != "a"
    assert [other for other in FAILURES if other("a") == failure] == [kind]
    assert str(failure) == f"{kind.__name__}(a)"


@pytest.mark.parametrize(
    ("effect", "shown"),
    [
        (Now(), "read the clock"),
        (Sleep(1_500_000), "sleep 1.5 s"),
        (Sleep(1_500_000, 200_000), "sleep 1.2 s to 1.5 s"),
        (Call("f", (1, "x")), "call f(1, x)"),
        (Cancel(Sleep(40)), "cancel sleep 40 us"),
        (Note("held", 3), "note held: 3"),
        (Note("held", ("x", 1)), "note held: ('x', 1)"),
        (Note("held", frozenset("abcde")), 'note held: {"a", "b", "c", "d", "e"}'),
        (Call("f", (("x", frozenset("abcde")), "x")), 'call f(["x", {"a", "b", "c", "d", "e"}], x)'),
    ],
)
def test_effects_print_like_this(effect: Effect[object], shown: str) -> None:
    """One line each."""
    assert str(effect) == shown


@pytest.mark.parametrize("length", [-1, True, 1.5, "1", None])
def test_nobody_sleeps_for_less_than_nothing(length: Duration) -> None:
    """An invariant of `Sleep`."""
    with pytest.raises(Misuse):
        _ = Sleep(length)
    with pytest.raises(Misuse):
        _ = Sleep(1, length)


def test_a_sleep_lasts_for_less_by_what_is_drawn_of_its_jitter() -> None:
    """Between the whole of it and what the jitter leaves; draws and jitters are parts per million."""
    assert [Sleep(1_000, 400_000).lasting(draw) for draw in (0, 500_000, PPM)] == [1_000, 800, 600]
    assert (Sleep(1_000, 400_000).least, Sleep(1_000).least, Sleep(1_000, PPM).least) == (600, 1_000, 0)
    for wrong in (-1, PPM + 1):
        with pytest.raises(Misuse):
            _ = Sleep(1).lasting(wrong)
    with pytest.raises(Misuse):
        _ = Sleep(1, PPM + 1)
