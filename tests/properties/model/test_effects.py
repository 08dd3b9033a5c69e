from __future__ import annotations

import pytest

from tidegate.model import effects
from tidegate.model.errors import Misuse
from tidegate.model.instants import (
    PPM,
    WALL,
    Duration,
    Instant,
)

FAILURES = (effects.Refused, effects.NotApplied, effects.Ambiguous, effects.NotDurable)


def test_awaiting_an_effect_yields_itself_and_returns_the_reply() -> None:
    async def program() -> tuple[Instant, object]:
        return await effects.Now(), await effects.Call("f", (1,))

    run = program()

    assert run.send(None) == effects.Now()
    assert run.send(Instant(0, WALL)) == effects.Call("f", (1,))
    with pytest.raises(StopIteration) as stopped:
        run.send("reply")
    assert stopped.value.value == (Instant(0, WALL), "reply")


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_is_raised_into_the_program(kind: type[effects.Failure]) -> None:
    async def program() -> effects.Failure | None:
        try:
            await effects.Sleep(1)
        except effects.Failure as failure:
            return failure
        return None

    run = program()
    run.send(None)

    with pytest.raises(StopIteration) as stopped:
        run.throw(kind("lost").fresh())
    assert stopped.value.value == kind("lost")


@pytest.mark.parametrize("kind", FAILURES)
def test_failures_are_equal_by_kind_and_reason(kind: type[effects.Failure]) -> None:
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
        (effects.Now(), "read the clock"),
        (effects.Sleep(1_500_000), "sleep 1.5 s"),
        (effects.Sleep(1_500_000, 200_000), "sleep 1.2 s to 1.5 s"),
        (effects.Call("f", (1, "x")), "call f(1, x)"),
        (effects.Cancel(effects.Sleep(40)), "cancel sleep 40 us"),
        (effects.Note("held", 3), "note held: 3"),
        (effects.Note("held", ("x", 1)), "note held: ('x', 1)"),
        (effects.Note("held", frozenset("abcde")), 'note held: {"a", "b", "c", "d", "e"}'),
        (effects.Call("f", (("x", frozenset("abcde")), "x")), 'call f(["x", {"a", "b", "c", "d", "e"}], x)'),
    ],
)
def test_effects_print_like_this(effect: effects.Effect[object], shown: str) -> None:
    assert str(effect) == shown


@pytest.mark.parametrize("length", [-1, True, 1.5, "1", None])
def test_nobody_sleeps_for_less_than_nothing(length: Duration) -> None:
    with pytest.raises(Misuse):
        _ = effects.Sleep(length)
    with pytest.raises(Misuse):
        _ = effects.Sleep(1, length)


def test_a_sleep_lasts_for_less_by_what_is_drawn_of_its_jitter() -> None:
    """Draws and jitters are parts per million."""
    assert [effects.Sleep(1_000, 400_000).lasting(draw) for draw in (0, 500_000, PPM)] == [1_000, 800, 600]
    assert (effects.Sleep(1_000, 400_000).least, effects.Sleep(1_000).least, effects.Sleep(1_000, PPM).least) == (
        600,
        1_000,
        0,
    )
    for wrong in (-1, PPM + 1):
        with pytest.raises(Misuse):
            _ = effects.Sleep(1).lasting(wrong)
    with pytest.raises(Misuse):
        _ = effects.Sleep(1, PPM + 1)
