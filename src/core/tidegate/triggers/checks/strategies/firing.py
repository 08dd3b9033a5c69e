"""Strategies for a pass: triggers, occurrences, and runs in every state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.instants import Instant
from tidegate.triggers.conditions import Logic, OnEvent
from tidegate.triggers.contexts import EventContext
from tidegate.triggers.firing import Claims, Failed, Fired, Firing, GivenUp, Held, RunState, TriggerRun, plan
from tidegate.triggers.trigger import Occurrence, Trigger

_CODES: Final = ("a", "b", "c")
_ON: Final = {code: Trigger(task="t", conditions=(OnEvent(code),)).condition_ids[0] for code in _CODES}


@attrs.frozen
class Found:
    """The input of a pass; runs may belong to unregistered triggers."""

    triggers: tuple[Trigger, ...]
    occurrences: tuple[Occurrence, ...]
    runs: tuple[TriggerRun, ...]
    now: Instant


def claims() -> SearchStrategy[Claims]:
    """Claim settings: short expiries, few attempts."""
    return st.builds(Claims, expiry=st.integers(1, 9), attempts_max=st.integers(1, 3))


def event_triggers() -> SearchStrategy[Trigger]:
    """Triggers of one to three event codes; ANY, or ALL within a short time."""
    codes = st.lists(st.sampled_from(_CODES), min_size=1, max_size=3, unique=True)
    return st.builds(
        Trigger,
        task=st.sampled_from(("t", "u")),
        conditions=codes.map(lambda drawn: tuple(map(OnEvent, drawn))),
        logic=st.sampled_from(Logic),
        within=st.integers(1, 6),
    )


def event(code: str, number: int) -> Occurrence:
    return Occurrence(_ON[code], EventContext(code, f"{code}{number}"), Instant(number))


def events(size_max: int = 8) -> SearchStrategy[tuple[Occurrence, ...]]:
    """Events seen one after the other, close together and far apart."""
    drawn = st.lists(st.tuples(st.sampled_from(_CODES), st.sampled_from((1, 1, 2, 5))), max_size=size_max)
    return drawn.map(_seen)


def _seen(drawn: Sequence[tuple[str, int]]) -> tuple[Occurrence, ...]:
    found, at = list[Occurrence](), 0
    for code, gap in drawn:
        at += gap
        found.append(event(code, at))
    return tuple(found)


@st.composite
def states(draw: DrawFn) -> RunState:
    at = Instant(draw(st.integers(0, 40)))
    some: tuple[RunState, ...] = (
        Held("p", at),
        Held("q", at),
        Failed(("no",)),
        GivenUp(("no",), at),
        Fired(at),
        Fired(at),
    )
    return draw(st.sampled_from(some))


@st.composite
def runs(draw: DrawFn) -> TriggerRun:
    """The record of a run of one event, in every state, after one to three attempts."""
    attempt = draw(st.integers(1, 3))
    firing = Firing(draw(event_triggers()).id, (event("a", draw(st.integers(0, 3))),))
    return TriggerRun(firing, draw(states()), attempt, attempt + draw(st.integers(0, 3)))


@st.composite
def found(draw: DrawFn) -> Found:
    """Leftovers of earlier passes: some firings were claimed, and some of those are settled."""
    triggers = tuple(draw(st.lists(event_triggers(), max_size=4, unique_by=lambda each: each.id)))
    seen, made = draw(events()), dict[str, TriggerRun]()
    for _ in range(draw(st.integers(0, 4))):
        some = seen[: draw(st.integers(0, len(seen)))]
        firings = plan(triggers, some, tuple(made.values()), Instant(0)).firings
        for firing in [each for each in firings if each.id not in made and draw(st.booleans())]:
            made[firing.id] = TriggerRun(firing, draw(states()))
    known = tuple(each for each in triggers if draw(st.integers(0, 5)))
    waits = tuple(each for each in seen if draw(st.integers(0, 5)))
    return Found(known, waits, tuple(made.values()), Instant(draw(st.integers(0, 40))))
