"""The simulator: explores the interleavings and faults of programs and reducers, and says what it has seen.

scenario = Scenario(name=..., summary=..., world=seeded({...}), actors=(Process("a", born(program, "a")), ...),
                    always={"a law": predicate})
report = explore(scenario)          # complete, violated (with a shortest counterexample), or inconclusive
"""

from tidegate.sim.actors import Network, Process, born
from tidegate.sim.behaviour import Asking, Crashed, Failed, Raised, Returned
from tidegate.sim.explore import Reductions
from tidegate.sim.faults import Fault, Faults, anything
from tidegate.sim.linearizability import Linearizable
from tidegate.sim.reducers import Crash, Machine, Reducer
from tidegate.sim.replay import Diverged, Reproduced, replay
from tidegate.sim.report import Report, Verdict, explore
from tidegate.sim.scenario import Actor, Clock, Kind, Label, Scenario, State, Step
from tidegate.sim.story import story
from tidegate.sim.trace import Trace
from tidegate.sim.trace_json import decoded, encoded
from tidegate.sim.world import Cell, World, calling, contents, document, journal, journaled, notes, perform, seeded

__all__ = [
    "Actor",
    "Asking",
    "Cell",
    "Clock",
    "Crash",
    "Crashed",
    "Diverged",
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
    "Reducer",
    "Reductions",
    "Report",
    "Reproduced",
    "Returned",
    "Scenario",
    "State",
    "Step",
    "Trace",
    "Verdict",
    "World",
    "anything",
    "born",
    "calling",
    "contents",
    "decoded",
    "document",
    "encoded",
    "explore",
    "journal",
    "journaled",
    "notes",
    "perform",
    "replay",
    "seeded",
    "story",
]
