from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Protocol, get_args

import attrs
import pytest
from hypothesis import example, given

from tidegate.catalogue import shipped
from tidegate.model.effects import Ambiguous, Effect, NotApplied, NotDurable, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, PPM, SECOND
from tidegate.model.operations import FindOneAndUpdate, Operation, StoreTime, UpdateOne
from tidegate.retries import pauses as pausing
from tidegate.retries.backoff import Cron, Exponential, Fixed
from tidegate.retries.laws import pauses as laws
from tidegate.retries.pauses import PAUSES, Pauses, pause
from tidegate.retries.strategies import pauses as drawn
from tidegate.retries.strategies.backoff import EachPeriod, attempts, draws
from tidegate.sim.actors import Process
from tidegate.sim.automaton import Asking, Returned, resume
from tidegate.sim.world import World

REQUESTS = (*get_args(Operation), StoreTime)


class After(Protocol):
    """How long?"""

    def __call__(self, pauses: Pauses, attempts: int, /) -> Sleep: ...


def check_pa1(after: After) -> None:
    @given(drawn.pauses(), attempts(), draws())
    @example(Pauses(Fixed(2), jitter_ppm=1), 1, PPM)
    def nothing_comes_before_its_time(pauses: Pauses, made: int, draw: int) -> None:
        assert laws.is_after_its_pause(pauses, made, after(pauses, made).lasting(draw))

    nothing_comes_before_its_time()


def check_pa2(after: After) -> None:
    @given(drawn.pauses(), attempts())
    @example(Pauses(Exponential(1)), 2)
    def it_is_the_delay_after_so_many(pauses: Pauses, made: int) -> None:
        assert laws.is_of(pauses, made, after(pauses, made))

    it_is_the_delay_after_so_many()


LAWS: Mapping[str, Callable[[After], None]] = {"PA1": check_pa1, "PA2": check_pa2}
PLANTED: Mapping[str, tuple[str, After]] = {
    "jitter takes all": ("PA1", lambda pauses, made: attrs.evolve(pauses.after(made), jitter_ppm=PPM)),
    "at once": ("PA1", lambda *_: Sleep(0)),
    "always the first delay": ("PA2", lambda pauses, _: pauses.after(1)),
    "all wake together": ("PA2", lambda pauses, made: Sleep(pauses.after(made).duration)),
}


@pytest.mark.parametrize("law", LAWS)
def test_a_pause_keeps_the_law(law: str) -> None:
    """Laws PA1 and PA2."""
    LAWS[law](Pauses.after)


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_pause_breaks_the_law(bug: str) -> None:
    """A law that nothing breaks says nothing."""
    law, after = PLANTED[bug]
    with pytest.raises(AssertionError):
        LAWS[law](after)


def test_the_default_is_that_of_mongodb_s_drivers() -> None:
    """100 ms, doubled, up to 10 s, full jitter (specification "Client Backpressure")."""
    delays = [PAUSES.after(made).duration // MILLISECOND for made in range(1, 10)]
    assert delays == [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]
    assert {PAUSES.after(made).least for made in range(1, 10)} == {0}


def test_nothing_lies_before_the_first_attempt_nor_where_the_delay_is_nothing() -> None:
    """A program that need not wait does not ask."""
    assert resume(pause(PAUSES, 0), None) == resume(pause(Pauses(Fixed(0)), 3), None) == Returned(None)
    assert resume(pause(Pauses(Fixed(SECOND), 7), 3), None) == Asking(Sleep(SECOND, 7))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Pauses(Cron("* * * * *", EachPeriod(1))),  # type: ignore[arg-type]
        lambda: Pauses(Fixed(1), PPM + 1),
        lambda: Pauses(Fixed(1), -1),
        lambda: PAUSES.after(0),
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], object]) -> None:
    """At construction, or at the call."""
    with pytest.raises(Misuse):
        wrong()


# --- all programs -------------------------------------------------------------------------------------------------------

PROGRAMS = (
    ("counter", "t"),
    ("payloads", "w"),
    ("payloads", "r1"),
    ("atomic_service", "a"),
    ("admission", "worker x"),
    ("registration", "caller x"),
    ("transition", "r1"),
    ("triggers.all_conditions", "reporter"),
    ("reactive_task.indexed", "planner 1"),
)
"""A process of each scenario whose program asks a store again: that is one program, and not a loop of the scenario's."""
TROUBLE: Mapping[str, Callable[[Effect[object]], object]] = {
    "no reply": lambda _: Ambiguous("no reply"),
    "not sent": lambda _: NotApplied("not sent"),
    "not durable": lambda effect: (
        NotDurable("no majority") if isinstance(effect, (FindOneAndUpdate, UpdateOne)) else ...
    ),
    "another was faster": lambda effect: (
        0 if isinstance(effect, UpdateOne) else None if isinstance(effect, FindOneAndUpdate) else ...
    ),
}
"""What becomes of one request, which is not done; ... for what does not meet that."""


def course(process: Process, scenario: str, at: int, trouble: Callable[[Effect[object]], object]) -> Iterator[object]:
    """What the program asks for where request number `at` meets trouble; None after that one."""
    world: World = shipped(scenario).world
    program, requests = process.birth(0), count()
    reply: object = None
    for _ in range(120):
        status = resume(program, reply)
        if not isinstance(status, Asking):
            return
        effect = status.effect
        yield effect
        reply = trouble(effect) if isinstance(effect, REQUESTS) and next(requests) == at else ...
        if reply is not ...:
            yield None
        elif isinstance(effect, Sleep):
            reply = None
        else:
            outcomes = tuple(process.meaning(effect, world, process.name))
            if not outcomes:
                return
            world, reply = outcomes[0]


def again_at_once(scenario: str, who: str) -> list[str]:
    """Requests that met trouble and were asked again without a pause."""
    process = next(each for each in shipped(scenario).actors if isinstance(each, Process) and each.name == who)
    found = []
    for what, trouble in TROUBLE.items():
        for at in range(25):
            asked = [*course(process, scenario, at, trouble)]
            if None in asked:
                number = asked.index(None)
                after = asked[number + 1 :]
                again = after.index(asked[number - 1]) if asked[number - 1] in after else None
                if again is not None and not any(isinstance(each, Sleep) for each in after[:again]):
                    found.append(f"{what}: {asked[number - 1]}")
    return found


@pytest.mark.parametrize(("scenario", "who"), PROGRAMS)
def test_no_program_asks_again_at_once(scenario: str, who: str) -> None:
    """Laws PA1 and TR8, of every program: nothing that had no answer, or came too late, is asked again without a pause."""
    assert again_at_once(scenario, who) == []


@pytest.mark.parametrize(("scenario", "who"), PROGRAMS)
def test_without_pauses_every_program_asks_again_at_once(
    scenario: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test above sees the pauses of each."""
    monkeypatch.setattr(pausing.Pauses, "after", lambda *_: Sleep(0))
    assert again_at_once(scenario, who) != []
