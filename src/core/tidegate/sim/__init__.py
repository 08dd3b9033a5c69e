"""The simulator: explores interleavings and faults of programs, and reports its coverage.

Does a protocol keep its laws under every interleaving and fault? If not, which shortest run breaks
one? The simulator replays, shrinks, explains and shows that run. The names below are for authors of
scenarios; the modules have more. Read them in this order:

    cells, world, scenario, faults, clocks, aging:
        cells, actors, laws, budgets, time
    transactions, expiry:
        snapshot isolation, and the end of abandoned transactions
    automaton, lines, fingerprint, determinism:
        a suspended program as a value, and the line of its request
    apart, alike:
        checks that programs share only the world, and that symmetric processes are alike
    actors, reducers, requests, halfway, failover:
        the actors, and the possible results of a request
    group, log, streams, planners:
        simulated servers: a Kafka group, a partitioned log, a change stream, queries of planners
    packing, space, judging, steppers:
        a state as an int; remembered laws and steps
    symmetry:
        states that differ only in names
    outside, rerun, recalled, confirming:
        state outside of programs; re-execution of runs and calls; confirmation
    liveness, sizing, growth, search, attempts:
        the exhaustive search
    policies, sample, tally:
        random runs
    exploration, coverage, report:
        options and results of an exploration
    trace, trace_json, ways, causes, picture, tracing, replay, nearest, shrink, compare, rendering,
    exports, page:
        a counterexample: described, replayed, shrunk, drawn
    type_names, tagged, recording:
        recorded production runs, executed again
    linearizability, observing, shipping, variants:
        shared by scenarios; bugs as replacements in the text of running code

    scenario = Scenario(
        name=..., summary=..., world=world_with({...}), always={"a law": predicate},
        actors=(Process("a", factory(program, "a")), ...),
    )
    report = explore(scenario)   # complete, violated (with a shortest run), or inconclusive
"""

from tidegate.sim.program.automaton import Asking, Crashed, Failed, Raised, Returned
from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.replay import Diverged, Reproduced, replay
from tidegate.sim.runs.report import Report, Verdict, explore
from tidegate.sim.scenario import Actor, ActorStep, Clock, Kind, Label, NoLongerThan, Scenario, State
from tidegate.sim.search.search import Reductions
from tidegate.sim.servers.actors import QUIET, Network, Process, factory, when_quiet
from tidegate.sim.servers.reducers import Crash, Machine, ReducerProcess
from tidegate.sim.trace.rendering import render
from tidegate.sim.trace.trace import Trace
from tidegate.sim.trace.trace_json import decoded, encoded
from tidegate.sim.world.faults import Fault, Faults, all_effects
from tidegate.sim.world.linearizability import Linearizable
from tidegate.sim.world.world import (
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
