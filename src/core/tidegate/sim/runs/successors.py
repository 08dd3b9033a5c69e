"""All possible steps in one state of a search: the actor, the step, the next state, and
its line.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, cast, final

from tidegate.model.documents import exactly, one_line
from tidegate.model.effects import Effect
from tidegate.sim.program.automaton import Asking
from tidegate.sim.program.source_locations import decided_at
from tidegate.sim.scenario import ActorStep, Delivers, Label
from tidegate.sim.search.search import Search
from tidegate.sim.search.space import Stepper
from tidegate.sim.servers.actors import Network, Process, Ticks
from tidegate.sim.servers.failover import Failover
from tidegate.sim.servers.reducers import Crash, Machine, ReducerProcess, Restart
from tidegate.sim.trace.trace import Lane
from tidegate.sim.world.packing import Packed


@final
class Way(NamedTuple):
    """A possible step in a state."""

    stepper: Stepper
    step: ActorStep
    after: Packed

    @property
    def actor(self) -> object:
        """The actor; None for the clock of relative time."""
        return getattr(self.stepper, "actor", None)


def ways(search: Search, state: Packed) -> tuple[Way, ...]:
    """All possible steps in the state, in the order of the actors."""
    return tuple(Way(stepper, step, after) for stepper in search.steppers for step, after in stepper.steps(state))


def lane_of(stepper: Stepper) -> Lane:
    actor: object = getattr(stepper, "actor", None)
    if actor is None:
        return Lane.CLOCK
    return next((lane for kind, lane in _lanes() if isinstance(actor, kind)), Lane.PROCESS)


@cache
def _lanes() -> tuple[tuple[type[object], Lane], ...]:
    from tidegate.sim.servers.group import Coordinator  # noqa: PLC0415  only traces need it, and it loads the consumer
    from tidegate.sim.servers.streams import Forgetful  # noqa: PLC0415  likewise, the change stream

    return (
        (Network, Lane.NETWORK),
        (Ticks, Lane.CLOCK),
        (Coordinator, Lane.COORDINATOR),
        (Crash, Lane.FAULTS),
        (Restart, Lane.FAULTS),
        (Failover, Lane.FAULTS),
        (Forgetful, Lane.STREAM),
    )


def event(step: ActorStep) -> str:
    """The event in words; with the process, the decision that a replay takes."""
    return one_line(str(step.label))


def effect_of(label: Label) -> Effect[object] | None:
    match label.what:
        case Delivers(request):
            return request.effect
        case Effect():
            return cast("Effect[object]", label.what)
        case _:
            return None


# --- source lines -----------------------------------------------------------------------------


def source(search: Search, state: Packed, way: Way) -> str:
    """`file.py:line function` of the step's `await` or decision; "" for none."""
    actor = way.actor
    match actor:
        case Process():
            node = cast("int", search.space.packing.slot(actor.place).get(state))
            return actor.behaviour.nodes[node].src
        case ReducerProcess():
            machine = search.space.packing.slot(actor.place).get(state)
            for running in machine.running if isinstance(machine, Machine) else ():
                status = actor.at(running)
                if isinstance(status, Asking) and exactly(status.effect) == exactly(way.step.label.what):
                    return actor.behaviour(running.command).nodes[running.node].src
            return decided_at(actor.step)
        case _:
            return ""
