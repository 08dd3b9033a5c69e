"""The simulator: explores the interleavings and faults of programs and reducers, and says what it has seen.

Does a protocol keep its laws under every interleaving and fault? If not, what is a shortest run that breaks one? Can that
run be replayed, shrunk, explained and shown? The names below are for those who write scenarios; the modules have more.
In which order to read them:

    cells, world, scenario, faults, clocks, aging
                                          what is explored: cells, actors, laws, budgets, time
    transactions, expiry                  what a transaction sees and keeps, and what ends one that nobody ends
    automaton, lines, fingerprint, determinism
                                          a suspended program as a value, and which line of it asks
    apart, alike                          that programs share nothing but the world, and which processes differ in nothing
    actors, reducers, requests, halfway, failover  who moves, and what may become of a request
    group, log, streams, planners         simulated servers: a Kafka group, a partitioned log, a change stream, what planners ask
    packing, space, judging, steppers     a state as an int; laws and steps, remembered
    symmetry                              what a search leaves out
    outside, rerun, recalled, confirming  state outside of programs; runs and calls that are executed again; what is confirmed
    liveness, sizing, growth, search, attempts
                                          the exhaustive search
    policies, sample, tally               random runs
    exploration, coverage, report         how to explore, and what is answered
    trace, trace_json, ways, causes, picture, tracing, replay, nearest, shrink, compare, rendering, exports, page
                                          a counterexample: described, replayed, shrunk, drawn
    type_names, tagged, recording         runs of production, executed again
    linearizability, observing, shipping, variants  what scenarios share; bugs as texts in the code that runs

scenario = Scenario(name=..., summary=..., world=world_with({...}), actors=(Process("a", factory(program, "a")), ...),
                    always={"a law": predicate})
report = explore(scenario)          # complete, violated (with a shortest counterexample), or inconclusive
"""

from tidegate.sim.actors import QUIET, Network, Process, factory, when_quiet
from tidegate.sim.automaton import Asking, Crashed, Failed, Raised, Returned
from tidegate.sim.exploration import Exploration
from tidegate.sim.faults import Fault, Faults, all_effects
from tidegate.sim.linearizability import Linearizable
from tidegate.sim.reducers import Crash, Machine, ReducerProcess
from tidegate.sim.rendering import render
from tidegate.sim.replay import Diverged, Reproduced, replay
from tidegate.sim.report import Report, Verdict, explore
from tidegate.sim.scenario import Actor, ActorStep, Clock, Kind, Label, NoLongerThan, Scenario, State
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
    place,
    world_with,
)

__all__ = [
    "QUIET", "Actor", "ActorStep", "Asking", "Cell", "Clock", "Crash", "Crashed", "Diverged", "Exploration",
    "Failed", "Fault", "Faults", "Kind", "Label", "Linearizable", "Machine", "Network", "NoLongerThan", "Process",
    "Raised", "ReducerProcess", "Reductions", "Report", "Reproduced", "Returned", "Scenario", "State", "Trace",
    "Verdict", "World", "all_effects", "calling", "contents", "decoded", "document", "encoded", "explore",
    "factory", "journal", "journaled", "notes", "perform", "place", "render", "replay", "when_quiet", "world_with",
]  # fmt: skip
