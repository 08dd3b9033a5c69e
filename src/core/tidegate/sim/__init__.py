"""The simulator: explores interleavings and faults of programs, and reports its coverage.

Does a protocol keep its laws under every interleaving and fault? If not, which shortest run
breaks
one? The simulator replays, shrinks, explains and shows that run. The names below are for authors
of
scenarios; the modules have more. The packages, lowest first:
    program   a suspended program as a value: automaton, source_locations, fingerprint,
              relative_time; isolation_check (programs share only the world), outside (state that
              they must not have), rerun; tagged, type_names, recording (recorded production runs)
    trace     a counterexample: trace, trace_json, compare, rendering, page; variants (planted bugs)
    world     cells, documents and laws: cells, world, transactions, observing, planners,
              linearizability; faults, clocks, alike, packing (a state as an int)
    scenario  actors, laws, budgets, time
    servers   actors, reducers, requests, halfway, failover, expiry; group, log, streams
              (simulated servers)
    search    the exhaustive search: space, properties, steppers, symmetry, liveness, sizing, growth,
              search, attempts; recalled, confirming (it is run again)
    runs      random runs: policies, sample, tally; explorations: exploration, coverage, report,
              registry; counterexamples: successors, causes, state_view, tracing, replay, nearest,
              shrink, exports; determinism

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
