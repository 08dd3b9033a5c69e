"""The result of an exploration: one of three verdicts, never a bare "passed".

    complete       every interleaving and fault within the budgets was seen, and no law is broken
    violated       a law is broken; a trace shows how
    inconclusive   anything else, with the reason: a bound was reached, runs were sampled, or a law
                   about rest was never checked because no state rests

`uncovered` lists goals never reached, faults that never occurred and laws never checked, beside the
verdict, and a scenario without steps or laws. On request (`require_sometimes`) a goal that was
never reached makes it "inconclusive".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum, unique
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.errors import InternalError, Misuse, Nondeterministic, TidegateError
from tidegate.model.patches import Json
from tidegate.model.values import check_callable, check_type
from tidegate.sim.program.relative_time import InstantRefused
from tidegate.sim.program.source_locations import raised_at, used_at
from tidegate.sim.runs.coverage import absent, missed, never, uncovered, unsure
from tidegate.sim.runs.exploration import EXHAUSTIVE, Exploration
from tidegate.sim.runs.nearest import passing_near
from tidegate.sim.runs.policies import Seeding
from tidegate.sim.runs.replay import Diverged, followed, with_fresh_programs
from tidegate.sim.runs.sample import Beyond, BrokenState, Sampled, sample
from tidegate.sim.runs.tracing import trace_of
from tidegate.sim.scenario import Kind, Scenario
from tidegate.sim.search.attempts import attempt, let_go, timing
from tidegate.sim.search.properties import BrokenStep, Grew
from tidegate.sim.search.search import CALLED_OFF, PLAIN, Explored, Proceed, Reductions, Search, go_on
from tidegate.sim.servers.actors import Process
from tidegate.sim.servers.reducers import ReducerProcess
from tidegate.sim.trace.trace import Breach, PolicyName, Trace
from tidegate.sim.world.faults import Fault, all_effects
from tidegate.sim.world.linearizability import Linearizable
from tidegate.sim.world.packing import Overflow, Packed


@final
@unique
class Verdict(StrEnum):
    """The verdicts of the module's header."""

    COMPLETE = "complete"
    VIOLATED = "violated"
    INCONCLUSIVE = "inconclusive"


@final
@attrs.frozen(eq=False)
class Report:
    """The result for one scenario.

    Attributes:
        scenario: Its name.
        expect: The law that it should break; None for clean.
        reason: Why it is inconclusive, or how a law was broken beyond a bound; else "".
        states: Distinct states seen; a lower bound for sampled runs.
        depth: The number of steps to the farthest state, or of the longest sampled run.
        unmerged: Where programs could not be compared, and why; the search is sound there, but
            slower.
        faults: Transitions that were faults, by kind.
        budget: The most faults in one run.
        seed: Of sampled runs; None otherwise.
        policy: Of sampled runs; "" otherwise.
        trace: The counterexample.
        reductions: What was left out because it would show nothing else.
        uncovered: Without a counterexample, all that was not covered: states beyond a bound, goals,
            faults, laws, writes of too many documents, endless sleeps, and programs that end with
            an unknown result. Always: requested faults that the scenario lacks.
        why: The processes that wait or loop for ever; "" if the trace shows all.
        loop: How many of its last steps repeat for ever; 0 if it ends.
        cut_short: States where laws about rest were not checked, because clock moves may lead on.
        expected: The last estimate of the number of states; None if the search was too short.
    """

    scenario: str
    kind: Kind
    expect: str | None
    verdict: Verdict
    reason: str
    law: str | None
    states: int
    transitions: int
    depth: int
    unmerged: tuple[str, ...]
    faults: Mapping[Fault, int]
    goals: Mapping[str, bool]
    laws: int
    time: str
    seed: str | None
    policy: str
    trace: Trace | None
    reductions: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    why: str = ""
    loop: int = 0
    expected: int | None = None
    budget: int = 0
    cut_short: int = 0

    @property
    def breach(self) -> Breach:
        return Breach.NONE if self.trace is None else self.trace.breach

    @property
    def ok(self) -> bool:
        """Whether the result is as expected."""
        if self.expect is None:
            return self.verdict is Verdict.COMPLETE
        return self.verdict is Verdict.VIOLATED and self.law == self.expect

    @property
    def is_shortest(self) -> bool:
        """Whether no counterexample is shorter: an exhaustive search found it before any bound."""
        return self.trace is not None and not self.policy and not self.reason

    def to_json(self) -> dict[str, Json]:
        """The output of `tidegate explore --json`; the caller adds the seconds and the path of the
        trace.
        """
        goals: dict[str, Json] = {name: reached for name, reached in self.goals.items()}  # noqa: C416  widens the type
        faults: dict[str, Json] = {kind.value: count for kind, count in self.faults.items()}
        return {
            "name": self.scenario,
            "kind": self.kind.value,
            "expect": "clean" if self.expect is None else "violated",
            "verdict": self.verdict.value,
            "law": self.law,
            "states": self.states,
            "expected_states": self.expected,
            "transitions": self.transitions,
            "depth": self.depth,
            "unmerged": len(self.unmerged),
            "unmerged_at": list(self.unmerged),
            "faults": faults,
            "budget": self.budget,
            "cut_short": self.cut_short,
            "goals": goals,
            "stopped_because": self.reason or _REASONS.get(self.verdict, ""),
            "time": self.time,
            "policy": self.policy,
            "reductions": list(self.reductions),
            "uncovered": list(self.uncovered),
            "violation": self.breach.value,
            "why": self.why,
            "loop": self.loop,
        }


_REASONS: Final = {Verdict.VIOLATED: "a law is broken", Verdict.COMPLETE: "every state was seen"}
"""Reasons of verdicts that no bound caused."""


def explore(
    scenario: Scenario,
    how: Exploration = EXHAUSTIVE,
    *,
    seeding: Seeding | None = None,
    onward: _Onward | None = None,
    proceed: Proceed = go_on,
) -> Report:
    """Explore a scenario exhaustively, or by random runs if `how` requests them.

    Args:
        scenario: The scenario.
        how: Bounds, random runs and faults.
        seeding: Makes a generator from a seed, for example `random.Random`; required for random
            runs.
        onward: Continues where a bound stopped an exhaustive search.
        proceed: Receives the progress now and then; returns whether to continue.

    Raises:
        Misuse: The scenario, or a program in it, breaks a contract; or random runs lack a
            generator.
        InternalError: The simulator itself failed.
        Exception: A law, a meaning or a step of the scenario raised it.
    """
    check_type(scenario, Scenario, "the scenario")
    check_type(how, Exploration, "how a scenario is explored", "write explore(scenario, Exploration(...))")
    check_callable(proceed, "what answers whether to go on", "write proceed=lambda progress: True")
    if onward is not None:
        check_callable(onward, "what goes on beyond a bound", "write onward=portfolio(...)")
    try:
        return _explored_all(scenario, how, seeding, onward, proceed)
    except TidegateError:
        raise
    except (Exception, InstantRefused) as error:
        if _is_the_users(error):
            raise
        raise InternalError(error, f"scenario {scenario.name}, {raised_at(error).partition(', from ')[0]}") from error


def _is_the_users(error: BaseException) -> bool:
    """Whether user code raised it, or was called with the wrong arguments."""
    if isinstance(error, _CONTROL_FLOW):
        return False
    return bool(used_at(error)) or (isinstance(error, TypeError) and _WRONG_CALL.search(str(error)) is not None)


_WRONG_CALL: Final = re.compile(r"\(\) (missing|takes|got) ")
_CONTROL_FLOW: Final = (InstantRefused, Overflow, Grew, BrokenStep, BrokenState)
"""The simulator raises these and always catches them."""


def _explored_all(
    scenario: Scenario, how: Exploration, seeding: Seeding | None, onward: _Onward | None, proceed: Proceed
) -> Report:
    for actor in scenario.actors:  # an earlier exploration may have learned with another clock or other faults
        if isinstance(actor, (Process, ReducerProcess)):
            actor.forget()
    chosen = scenario.bounded(how.faults, how.faults_max)
    if not how.runs:
        return with_absent(_searched(chosen, how, onward, proceed), scenario, how)
    if seeding is None:
        raise Misuse("random runs without a generator", todo="pass seeding=random.Random")
    try:
        report = sample(chosen, how.plan, how.runs, seeding=seeding, report=sampled, proceed=proceed)
    finally:
        let_go(chosen)
    return with_absent(report, scenario, how)


def with_absent(report: Report, scenario: Scenario, how: Exploration) -> Report:
    """Add the requested faults that the scenario lacks.

    Args:
        report: Of the requested faults.
        scenario: The scenario with all its faults.
        how: The request.
    """
    is_known = report.trace is None or all(
        hasattr(actor, "faults") for actor in scenario.actors
    )  # other actors may have more faults
    missing = absent(scenario, how.faults or (), report.faults) if is_known else ()
    return attrs.evolve(report, uncovered=(*report.uncovered, *missing)) if missing else report


def _searched(scenario: Scenario, how: Exploration, onward: _Onward | None, proceed: Proceed) -> Report:
    """The report of an exhaustive search. A plain search reports loops: a reduced one cannot show
    them.
    """

    def searched(leaving_out: Reductions) -> Report:
        def run(search: Search) -> Report:
            found = _gone_on(search.run(how.bounds, proceed), onward)
            return _explored(found, require_sometimes=how.require_sometimes)

        return attempt(scenario, run, leaving_out)

    report = searched(how.reductions)
    if not report.reductions or report.breach is not Breach.LIVELOCK:
        return report
    plain = searched(PLAIN)
    return plain if plain.verdict is Verdict.VIOLATED else report


_Onward: TypeAlias = Callable[[Search, Sequence[Packed]], Beyond]
"""Continues from the frontier of a bounded search, for example `tidegate.sim.runs.sample.portfolio`."""


def _gone_on(found: Explored, onward: _Onward | None) -> Explored:
    if onward is None or found.broken is not None or not found.frontier:
        return found
    if found.stopped == CALLED_OFF:  # the caller stopped it, so random runs do not continue
        return attrs.evolve(found, stopped=f"{found.stopped}; no random run went on from there")
    beyond = onward(found.search.unreduced(), found.frontier)
    return attrs.evolve(found, broken=beyond.broken, stopped=f"{found.stopped}; {beyond.summary}")


def _explored(found: Explored, *, require_sometimes: bool) -> Report:
    scenario = found.search.scenario
    if found.broken is not None:
        return _reported(found, Verdict.VIOLATED, found.stopped)
    if found.stopped:
        return _reported(found, Verdict.INCONCLUSIVE, found.stopped)
    unexplored = [f"{name}: {why}" for name, each in found.search.space.processes.items() for why in each.unexplored]
    if doubts := (*unexplored, *found.search.confirmed.doubts):
        return _reported(found, Verdict.INCONCLUSIVE, "; ".join(doubts))
    if scenario.eventually and not found.resting:
        why = "nothing comes to rest, so the laws about rest say nothing"
        reducers = [actor for actor in scenario.actors if isinstance(actor, ReducerProcess)]
        if names := ", ".join(each.name for each in reducers if each.split is all_effects):
            why += (
                f"; who asks again rests only if nobody can act before it has the answer: give {names} split=no_effects"
            )
        return _reported(found, Verdict.INCONCLUSIVE, why)
    if require_sometimes and (missing := never(found)):
        return _reported(found, Verdict.INCONCLUSIVE, "; ".join(missing))
    return _reported(found, Verdict.COMPLETE, "")


def sampled(found: Sampled) -> Report:
    if found.broken is not None:
        return _reported(found, Verdict.VIOLATED, "")
    promise = f"; {found.policy}" if "(" in found.policy else ""
    why = f"{found.runs:,} random runs are not all that can happen{promise}"
    return _reported(found, Verdict.INCONCLUSIVE, why)


def _reported(found: Explored | Sampled, verdict: Verdict, reason: str) -> Report:
    scenario = found.search.scenario
    seed, policy = (found.seed, found.policy) if isinstance(found, Sampled) else (None, "")
    return Report(
        scenario=scenario.name,
        kind=scenario.kind,
        expect=scenario.expect,
        verdict=verdict,
        reason=reason,
        law=found.broken and found.broken.law,
        states=found.states,
        transitions=found.transitions,
        depth=found.depth,
        unmerged=unmerged(found),
        faults=found.faults,
        goals=found.goals,
        laws=len(scenario.always) + len(scenario.step) + len(scenario.eventually),
        time=timing(found.search),
        seed=seed,
        policy=policy,
        reductions=found.search.reductions,
        uncovered=(*(() if found.broken else (*_uncovered(found), *unsure(found))), *found.search.confirmed.unsure),
        why=found.broken.why if found.broken else "",
        loop=found.broken.loop if found.broken else 0,
        trace=_traced(found, seed),
        expected=found.expected if isinstance(found, Explored) else None,
        cut_short=found.cut_short if isinstance(found, Explored) else 0,
        budget=scenario.budget if any(scenario.budgets.get(kind, 1) for kind in Fault) else 0,
    )


def _uncovered(found: Explored | Sampled) -> tuple[str, ...]:
    return uncovered(found) if isinstance(found, Explored) else missed(found)


def unmerged(found: Explored | Sampled) -> tuple[str, ...]:
    return tuple(f"{name}: {why}" for name, process in found.search.space.processes.items() for why in process.unmerged)


def _traced(found: Explored | Sampled, seed: str | None) -> Trace | None:
    if found.broken is None:
        return None
    search, path = found.search, found.broken.path
    origin = PolicyName(found.policy.partition(" ")[0]) if isinstance(found, Sampled) else PolicyName.EXHAUSTIVE
    breach = found.broken.breach or (Breach.LINEARIZABILITY if _is_of_a_history(found) else None)
    trace = trace_of(
        search,
        path,
        law=found.broken.law,
        time=timing(search),
        policy=origin,
        seed=seed,
        breach=breach,
        why=found.broken.why,
        loop=found.broken.loop,
    )
    return with_fresh_programs(search, lambda fresh: _confirmed(trace, fresh))


def _confirmed(trace: Trace, fresh: Search) -> Trace:
    """Replay the trace with fresh programs and add its nearest passing run.

    Raises:
        Nondeterministic: The replay differs.
    """
    way = followed(trace, fresh)
    if isinstance(way.outcome, Diverged):
        step = trace.steps[max(0, way.outcome.step - 1)]
        raise Nondeterministic(
            f"the counterexample does not happen again with fresh programs: step {way.outcome.step}: {way.outcome.reason}",
            where=", ".join(filter(None, (f"process {step.process}", step.src and f"at {step.src}"))),
            why="a program, a meaning or a law depends on something besides its arguments: a global, a clock, a random number",
            todo="keep it in a local of an immutable kind, pass it as an argument, or ask for it with an effect",
        )
    return attrs.evolve(trace, passing=passing_near(fresh, way.path))


def _is_of_a_history(found: Explored | Sampled) -> bool:
    law = found.broken and found.search.scenario.always.get(found.broken.law)
    return isinstance(law, Linearizable)
