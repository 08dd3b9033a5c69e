"""A reducer: a long-lived machine with work in flight, as a pure function of its state and one
event.

    step(state, event) -> Step(next state, commands)

A program suits one task that waits for each reply; a machine with many concurrent operations is a
reducer. It emits commands and does not wait. A runtime or the simulator executes them; each result
returns as an event, at any later time and in any order.

So every state must answer every event, late and repeated ones included; then no runtime can stop a
reducer. `step` checks events, which come from outside; states and commands check nothing.
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
    """The result of an event: the next state, and the commands to execute in this order."""

    state: S_co
    commands: tuple[C_co, ...] = ()


class Reducer(Protocol[S, E_contra, C_co]):
    """The rules of a machine, for instance of a partition, a consumer or an outbox."""

    def step(self, state: S, event: E_contra, /) -> Step[S, C_co]: ...
