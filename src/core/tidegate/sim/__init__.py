"""The simulator: explores the interleavings and faults of programs and reducers, and says what it has seen.

scenario = Scenario(name=..., summary=..., world=world_with({...}), actors=(Process("a", factory(program, "a")), ...),
                    always={"a law": predicate})
report = explore(scenario)          # complete, violated (with a shortest counterexample), or inconclusive
"""

from tidegate.sim.actors import Network, Process, factory
from tidegate.sim.automaton import Asking, Crashed, Failed, Raised, Returned
from tidegate.sim.exploration import Exploration
from tidegate.sim.faults import Fault, Faults, all_effects
from tidegate.sim.linearizability import Linearizable
from tidegate.sim.reducers import Crash, Machine, ReducerProcess
from tidegate.sim.rendering import render
from tidegate.sim.replay import Diverged, Reproduced, replay
from tidegate.sim.report import Report, Verdict, explore
from tidegate.sim.scenario import Actor, ActorStep, Clock, Kind, Label, Scenario, State
from tidegate.sim.search import Reductions
from tidegate.sim.trace import Trace
from tidegate.sim.trace_json import decoded, encoded
from tidegate.sim.world import (
    Cell,
    World,
    calling,
    contents,
    document,
    journal,
    journaled,
    notes,
    perform,
    world_with,
)

__all__ = [
    "Actor",
    "ActorStep",
    "Asking",
    "Cell",
    "Clock",
    "Crash",
    "Crashed",
    "Diverged",
    "Exploration",
    "Failed",
    "Fault",
    "Faults",
    "Kind",
    "Label",
    "Linearizable",
    "Machine",
    "Network",
    "Process",
    "Raised",
    "ReducerProcess",
    "Reductions",
    "Report",
    "Reproduced",
    "Returned",
    "Scenario",
    "State",
    "Trace",
    "Verdict",
    "World",
    "all_effects",
    "calling",
    "contents",
    "decoded",
    "document",
    "encoded",
    "explore",
    "factory",
    "journal",
    "journaled",
    "notes",
    "perform",
    "render",
    "replay",
    "world_with",
]
