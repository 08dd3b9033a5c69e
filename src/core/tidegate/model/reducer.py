"""A reducer: a long-lived machine with work in flight, as a pure function of its state and one event.

    step(state, event) -> Step(next state, commands)

A program (`tidegate.model.effects`) suits a protocol of one task that waits for each reply. Where many things are under way
at once, as in a partition or a consumer of a group, the machine is a reducer. It emits commands, and does not wait: a
runtime or the simulator carries them out, and what became of one comes back as an event, at any later time and in any order.

Nothing else passes between the two. So every state must have an answer to every event, one that comes late or twice
included: it is ignored, and says why. Then no runtime can bring a reducer to a halt, whatever it reports and whenever.
Events come from outside, so `step` checks them; states and commands are made by reducers only, and check nothing.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar, final

from tidegate.model.sealed import sealed

S = TypeVar("S")
C_co = TypeVar("C_co", covariant=True)
S_co = TypeVar("S_co", covariant=True)
E_contra = TypeVar("E_contra", contravariant=True)


@final
@sealed
class Step(Generic[S_co, C_co]):
    """What follows from an event: the next state, and the commands to carry out, in this order."""

    state: S_co
    commands: tuple[C_co, ...] = ()


class Reducer(Protocol[S, E_contra, C_co]):
    """The rules of a machine: of a partition, of a consumer, of an outbox, ..."""

    def step(self, state: S, event: E_contra, /) -> Step[S, C_co]:
        """What follows from the event; every state has an answer to every event."""
        ...
