"""A reducer: a machine with work in flight, as a pure function of its state and of what happens.

    step(state, event) -> Step(next state, commands)

Commands are carried out by somebody else: the simulator, or a runtime. What becomes of one comes back as an event, any time
later and in any order; a reducer that is told of it in the wrong state ignores it and says so. There is no other channel, so
a reducer cannot be wedged by whoever carries its commands out, only by its own table of states and events.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar, final

import attrs

S = TypeVar("S")
C_co = TypeVar("C_co", covariant=True)
S_co = TypeVar("S_co", covariant=True)
E_contra = TypeVar("E_contra", contravariant=True)


@final
@attrs.frozen
class Step(Generic[S_co, C_co]):
    """What follows from an event: the next state, and what is to be done, in this order."""

    state: S_co
    commands: tuple[C_co, ...] = ()


class Reducer(Protocol[S, E_contra, C_co]):
    """Whatever has rules by which it steps: those of a partition, of a consumer, of an outbox, ..."""

    def step(self, state: S, event: E_contra, /) -> Step[S, C_co]:
        """What follows from the event; every state has an answer to every event."""
        ...
