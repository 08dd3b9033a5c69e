from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from tests.properties.on_documents import run

from tidegate.invocations.upkeep.recoverer import Recoverer
from tidegate.model.documents import Document
from tidegate.model.effects import Ambiguous, Effect, Failure, Refused, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, SECOND, Instant
from tidegate.model.operations import StoreTime, insert_one
from tidegate.services.atomic_service import AtomicServiceRun, Window
from tidegate.sim.world.world import CLOCK, Outcomes, World, contents, perform, world_with
from tidegate.triggers._starting import TOGETHER
from tidegate.triggers.conditions import OnEvent, condition_id
from tidegate.triggers.contexts import EventContext
from tidegate.triggers.evaluator import Evaluator
from tidegate.triggers.leader_duties import Duty, DutyFailedError, Turn, duties
from tidegate.triggers.outbox_relay import Noticer
from tidegate.triggers.trigger import Occurrence, Trigger
from tidegate.triggers.trigger_documents import stored_occurrence

RUN: Final = AtomicServiceRun("a", "a.0", Instant(0), Window(Instant(0), Instant(5 * SECOND)), Instant(0))


def passing(effect: Effect[object], world: World, who: str) -> Outcomes:
    if isinstance(effect, Sleep):
        yield world.write(CLOCK, world.read(CLOCK) + effect.duration), None
    else:
        yield from perform(effect, world, who)


def duty(name: str, raises: Exception | None = None) -> Duty:
    async def does(turn: AtomicServiceRun, token: int, number: int) -> None:
        await insert_one("done", Document.of({"_id": f"{number}:{name}:{turn.run_id}:{token}"}))
        if raises is not None:
            raise raises

    return Duty(name, does)


def rounds(world: World) -> list[str]:
    return [str(doc.items[0][1]) for doc in contents(world, "done")]


def test_rounds_follow_each_other_until_the_window_is_over() -> None:
    """Law TU3: the last round and the pause before it end in the window."""
    made = Turn(duties=(duty("x"), duty("y")), every=2 * SECOND)

    answer, world = run(made.work(RUN, 7), world_with({}), means=passing)

    assert answer == Instant(4 * SECOND)
    assert rounds(world) == [*(f"{n}:{name}:a.0:7" for n in range(3) for name in "xy")]
    assert world.read(CLOCK) == Instant(4 * SECOND)


def test_a_round_that_takes_long_is_the_last_that_fits() -> None:
    """Law TU3, judged by the previous round."""

    async def slow(turn: AtomicServiceRun, token: int, number: int) -> None:
        del turn, token, number
        await Sleep(3 * SECOND)

    made = Turn(duties=(Duty("slow", slow), duty("x")), every=SECOND)

    _, world = run(made.work(RUN, 1), world_with({}), means=passing)

    assert rounds(world) == ["0:x:a.0:1"]
    assert world.read(CLOCK) == Instant(3 * SECOND)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (Refused("not authorised"), "b: Refused(not authorised)"),
        (ValueError("a secret"), "b: ValueError"),
        (Misuse("wrong"), "b: Misuse"),
        (Ambiguous("?"), None),
    ],
    ids=["refused", "user", "misuse", "no reply"],
)
def test_what_fails_keeps_nothing_else(raised: Exception, said: str | None) -> None:
    """Law TU2: other duties still run; the turn reports the failure once."""
    made = Turn(duties=(duty("a"), duty("b", raised), duty("c")), every=4 * SECOND)

    async def seen() -> str | None:
        try:
            await made.work(RUN, 1)
        except DutyFailedError as failed:
            return str(failed)
        return None

    found, world = run(seen(), world_with({}), means=passing)

    assert found == said
    assert rounds(world) == [*(f"{n}:{name}:a.0:1" for n in range(2) for name in "abc")]


def test_what_is_due_fires_as_long_as_the_window_lasts() -> None:
    """Law TU3: the last round fires its claimed batch, and the next turn does the rest."""
    triggers = (Trigger(task="t", conditions=(OnEvent("e"),)),)
    evaluator = Evaluator(triggers=triggers, next_after=lambda _, __: None)
    key = condition_id(OnEvent("e"))
    waiting = [Occurrence(key, EventContext("e", str(number)), Instant(0)) for number in range(TOGETHER + 1)]
    fires = duties(Recoverer(me="a", dead_after=MINUTE, tasks=("recover",)), Noticer(conditions=()), evaluator)[2]

    for after, fired in ((0, TOGETHER + 1), (5 * SECOND, TOGETHER)):
        world = world_with({"occurrences": tuple(map(stored_occurrence, waiting))}).write(CLOCK, Instant(after))
        _, left = run(fires.round(RUN, 1, 0), world, means=passing)
        assert len(contents(left, "invocations")) == fired


def test_where_nobody_says_the_time_the_turn_is_over() -> None:
    made = Turn(duties=(duty("x"),))

    def fails(effect: Effect[object]) -> Failure | None:
        return Ambiguous("?") if isinstance(effect, StoreTime) else None

    answer, world = run(made.work(RUN, 1), world_with({}), fails, passing)

    assert answer is True
    assert rounds(world) == ["0:x:a.0:1"]


def test_what_recovers_comes_first() -> None:
    recoverer = Recoverer(me="a", dead_after=MINUTE, tasks=("recover",))
    noticer, evaluator = Noticer(conditions=()), Evaluator(triggers=(), next_after=lambda _, __: None)

    found = duties(recoverer, noticer, evaluator, (duty("mine"),))

    assert [each.name for each in found] == ["recover", "notice", "evaluate", "mine"]
    with pytest.raises(Misuse, match="name the tasks"):
        duties(Recoverer(me="a", dead_after=MINUTE), noticer, evaluator)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Turn(duties=("x",)),  # type: ignore[arg-type]
        lambda: Turn(duties=(), every=0),
        lambda: Duty("", duty("x").round),
        lambda: Duty("x", 7),  # type: ignore[arg-type]
    ],
    ids=["no duty", "no pause", "no name", "no program"],
)
def test_what_makes_no_turn_is_said(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()
