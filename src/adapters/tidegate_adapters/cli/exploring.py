"""`tidegate explore`: one scenario after the other, each told and stored as soon as it is done.

The collector of cycles sleeps while a search runs: a search makes millions of small values and no cycles worth collecting
before its end, and it is 15 to 60 % quicker so.
"""

from __future__ import annotations

import gc
import random
import secrets
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, wait
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Final, TypeAlias, final

import attrs

from tidegate.exit_codes import ExitCode
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.patches import Json
from tidegate.sim.attempts import attempt
from tidegate.sim.coverage import absent
from tidegate.sim.exports.dot import dot
from tidegate.sim.faults import Fault
from tidegate.sim.policies import policies
from tidegate.sim.report import Report, Verdict, explore, sampled
from tidegate.sim.sample import Plan, Sampler, portfolio, runs_of
from tidegate.sim.scenario import Scenario
from tidegate.sim.search import ALL, CALLED_OFF, Progress, Reductions
from tidegate.sim.trace import Trace
from tidegate.sim.trace_json import encoded
from tidegate_adapters.cli.console import Terminal, error_json
from tidegate_adapters.cli.failures import WorkersLostError, exit_code, origin, raised
from tidegate_adapters.cli.lines import Result, ended, shrunk_line, stories, summed_up, written
from tidegate_adapters.cli.progress import Show, foretelling, shown
from tidegate_adapters.cli.shrinking import smaller
from tidegate_adapters.cli.store import Store, save
from tidegate_adapters.cli.targets import Target, one
from tidegate_adapters.parallel import (
    ASKED_S,
    POOLS_MAX,
    Order,
    in_processes,
    is_stopped,
    processes,
)
from tidegate_adapters.printable import one_line

Say: TypeAlias = Callable[..., None]
"""Tells a line of the result, as `Terminal.say` does."""
BEYOND_RUNS: Final = 1_000
"""Random runs that go on where a bound stops an exhaustive search: some seconds at most."""
BEYOND_STEPS: Final = 1_000
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@final
@attrs.frozen
class Bounds:
    """How a search is made, and where it ends.

    Attributes:
        runs: How many random runs; 0 for an exhaustive search.
        seed: Of the random runs; None for one that nobody knows yet.
        steps_max: The length of the longest random run.
        states_max: How many states an exhaustive search sees at most.
        timeout_s: How many seconds a scenario may take; None for any number.
        faults: Which kinds may strike; None for whatever the scenario allows.
        faults_max: How many faults a run may have, where the scenario allows more; None for as many as it allows.
        policy: Picks the steps of the random runs.
        pct_depth: Of the policy pct.
        shrinks: Shrink what the random runs find.
        reductions: What an exhaustive search leaves out.
        require_sometimes: Is a goal never reached, a fault that never struck, or a law never asked a reason to be unsure?
        depth_max: How many steps from the beginning an exhaustive search goes at most; None for any number.
        memory_max: How many bytes its states take at most; None for any number.
        jobs: In how many processes.
    """

    runs: int
    seed: str | None
    steps_max: int
    states_max: int
    timeout_s: float | None
    faults: tuple[str, ...] | None = None
    policy: str = "portfolio"
    pct_depth: int = 3
    shrinks: bool = True
    reductions: Reductions = ALL
    require_sometimes: bool = False
    depth_max: int | None = None
    memory_max: int | None = None
    jobs: int = 1
    faults_max: int | None = None

    @property
    def kinds(self) -> tuple[Fault, ...] | None:
        """Which may strike."""
        return None if self.faults is None else tuple(map(Fault, self.faults))


@final
@attrs.frozen
class Outcome:
    """All that was found, and why it ended where it did.

    Attributes:
        results: Of the scenarios that were explored, in order.
        selected: How many there were to explore.
        seed: Of the random runs; None where nothing was sampled.
        error: What ended it, if an error did.
        stopped: What ended it, if a signal did.
    """

    results: tuple[Result, ...]
    selected: int
    seed: str | None
    error: TidegateError | None
    stopped: ExitCode | None

    @property
    def code(self) -> ExitCode:
        """An expectation that is not met weighs more than one that is unknown."""
        if self.error is not None:
            return exit_code(self.error)
        if self.stopped is not None:
            return self.stopped
        if all(result.is_met for result in self.results):
            return ExitCode.OK
        is_unknown = all(result.is_met or result.is_open for result in self.results)
        return ExitCode.INCONCLUSIVE if is_unknown else ExitCode.NOT_MET

    def to_json(self) -> dict[str, object]:
        answer: dict[str, object] = {
            "schema": "tidegate/report@1",
            "seed": self.seed,
            "scenarios": [result_json(result) for result in self.results],
            "ok": self.code is ExitCode.OK,
        }
        return answer if self.error is None else {**answer, "error": error_json(self.error)}

    def to_lines(self) -> tuple[str, ...]:
        """What is told below the lines of the scenarios."""
        if not self.results:
            return ()
        counterexamples = (line for result in self.results for line in stories(result))
        return (*counterexamples, *written(self.results), "", ended(self.results, self.selected))


def explore_all(
    targets: list[Target],
    bounds: Bounds,
    store: Store | None,
    terminal: Terminal,
    *,
    is_json: bool,
    quiet: bool,
) -> ExitCode:
    """Explore the targets, and tell what was found.

    Args:
        targets: What was selected; each is taken out when its turn comes.
        bounds: How each is searched.
        store: Where counterexamples go; None for nowhere.
        terminal: Where it is told.
        is_json: Answer with one JSON object.
        quiet: Show no progress.

    Raises:
        TidegateError: Nothing was explored.
    """
    if store is not None:
        store.check()
    if bounds.runs and bounds.seed is None:
        bounds = attrs.evolve(bounds, seed=str(secrets.randbelow(2**32)))
    say: Say = (lambda *_: None) if is_json else terminal.say
    outcome = explored_all(targets, bounds, store, terminal, say, quiet=quiet)
    if is_json:
        terminal.answer(outcome.to_json())
    for line in outcome.to_lines():
        say(line)
    if outcome.error is not None:
        terminal.complain(outcome.error)
    return outcome.code


def explored_all(
    targets: list[Target], bounds: Bounds, store: Store | None, terminal: Terminal, say: Say, *, quiet: bool
) -> Outcome:
    """Explore the targets until one raises an error or a signal comes; each is dropped then, for it has become large."""
    selected, width = len(targets), max(len(one_line(target.scenario.name)) for target in targets)
    seed = bounds.seed if bounds.runs else None
    results: list[Result] = []
    error: TidegateError | None = None
    if seed is not None:
        say(f"seed {seed}")
    with stoppable() as stop:
        try:
            if bounds.jobs > 1 and not bounds.runs:
                for result in explored_apart(targets, bounds, store, stop, terminal, quiet=quiet):
                    results.append(result)
                    say(*summed_up(result, width))
            while targets and stop.code is None:
                target = targets.pop(0)
                results.append(explored(target, bounds, store, stop, terminal, quiet=quiet))
                say(*summed_up(results[-1], width))
                if bounds.shrinks and results[-1].report.trace is not None and not results[-1].report.is_shortest:
                    results[-1] = shrunk(results[-1], target, bounds, store, stop)
                    say(shrunk_line(results[-1]))
                del target
        except TidegateError as found:
            error = found
    return Outcome(tuple(results), selected, seed, error, stop.code)


def explored(
    target: Target, bounds: Bounds, store: Store | None, stop: Stop, terminal: Terminal, *, quiet: bool
) -> Result:
    """Explore one target and store its counterexample."""
    name = target.scenario.name
    with shown(name, terminal, quiet=quiet) as show:
        telling = show if quiet else foretelling(show, name, terminal, bounds.states_max)
        report, seconds = timed(target, bounds, Watch(telling, lambda: stop.code is not None, bounds.timeout_s))
    return stored(target, report, seconds, store, terminal, quiet=quiet)


def timed(target: Target, bounds: Bounds, watch: Watch) -> tuple[Report, float]:
    """The report on a target, and how many seconds it took."""
    began = monotonic()
    with uncollected():
        report = search(target, bounds, watch)
        return report, monotonic() - began


def stored(
    target: Target, report: Report, seconds: float, store: Store | None, terminal: Terminal, *, quiet: bool
) -> Result:
    for place in report.unmerged if not quiet else ():
        terminal.tell(f"warning: {one_line(target.scenario.name)} was not merged at {place}")
    for missing in report.uncovered if not quiet else ():
        terminal.tell(f"warning: {one_line(target.scenario.name)}: {one_line(missing)}")
    saved = None if store is None or report.trace is None else store.save(target, report.trace)
    return Result(report, seconds, saved)


def explored_apart(
    targets: list[Target], bounds: Bounds, store: Store | None, stop: Stop, terminal: Terminal, *, quiet: bool
) -> Iterator[Result]:
    """Explore the targets in several processes, each in one of them; told in their order. None is left but after a signal.

    A process that dies breaks its pool; another one goes on with what was not finished.

    Raises:
        WorkersLostError: They die again and again.
    """
    finished: dict[str, tuple[Report, float]] = {}
    for _ in range(POOLS_MAX):
        under_way: dict[str, Future[tuple[Report, float]]] = {}
        try:
            with processes(bounds.jobs) as executor:
                for name in [target.identity for target in targets if target.identity not in finished]:
                    under_way[name] = executor.submit(timed_apart, name, bounds)
                while targets:
                    name = targets[0].identity
                    while name not in finished and stop.code is None and not wait([under_way[name]], ASKED_S).done:
                        pass
                    if name not in finished and not under_way[name].done():
                        return
                    found = finished.get(name) or under_way[name].result()
                    yield stored(targets.pop(0), *found, store, terminal, quiet=quiet)
                return
        except BrokenExecutor:
            done = {name: each for name, each in under_way.items() if each.done() and not each.cancelled()}
            finished |= {name: each.result() for name, each in done.items() if each.exception() is None}
    raise WorkersLostError(
        f"worker processes died in {POOLS_MAX} pools of {bounds.jobs}",
        where=f"not explored: {', '.join(target.identity for target in targets)}",
        why="something ends them from outside: often the system, for want of memory",
        todo="use fewer with --jobs, or bound a search with --max-memory",
    )


def timed_apart(identity: str, bounds: Bounds) -> tuple[Report, float]:
    """What a worker process does with a target."""
    return timed(one(identity), bounds, Watch(lambda _: None, is_stopped, bounds.timeout_s))


def shrunk(result: Result, target: Target, bounds: Bounds, store: Store | None, stop: Stop) -> Result:
    """The result with a shrunk counterexample beside it, which is stored, too."""
    assert result.report.trace is not None

    def keep(trace: Trace) -> Path:
        assert store is not None
        return store.save(target, trace, "shrunk")

    with uncollected():
        found = smaller(
            result.report.trace,
            chosen(target, bounds),
            None if store is None else keep,
            is_stopped=lambda: stop.code is not None,
        )
    return attrs.evolve(result, smaller=found)


def chosen(target: Target, bounds: Bounds) -> Scenario:
    """The scenario of the target, with the faults that may strike."""
    return target.scenario.bounded(bounds.kinds, bounds.faults_max)


def search(target: Target, bounds: Bounds, watch: Watch) -> Report:
    """The report on the target.

    Raises:
        TidegateError: Its programs use tidegate wrongly, or code of the user's raised an error outside of them.
    """
    scenario = f"scenario {one_line(target.scenario.name)}"
    try:
        report = in_several(target, bounds, watch) if bounds.runs and bounds.jobs > 1 else in_one(target, bounds, watch)
    except TidegateError as error:
        error.where = error.where or ", ".join(filter(None, (scenario, origin(error))))
        raise
    except (Exception, SystemExit) as error:
        raise raised(error, f"{scenario} raised an error outside of its programs") from error
    if report.verdict is Verdict.INCONCLUSIVE and watch.why:
        else_why = report.reason.removeprefix(CALLED_OFF).removeprefix("; ")
        report = attrs.evolve(report, reason="; ".join(filter(None, (watch.why, else_why))))
    strangers = absent(target.scenario, bounds.kinds or (), report.faults)
    return report if report.trace else attrs.evolve(report, uncovered=(*report.uncovered, *strangers))


def in_one(target: Target, bounds: Bounds, watch: Watch) -> Report:
    seed = bounds.seed or "0"
    chosen_policies = policies(bounds.policy, bounds.pct_depth)
    return explore(
        chosen(target, bounds),
        onward=portfolio(
            seed,
            runs=BEYOND_RUNS,
            steps_max=BEYOND_STEPS,
            seeding=random.Random,
            policies=chosen_policies,
            proceed=watch,
        ),
        states_max=bounds.states_max,
        reductions=bounds.reductions,
        require_sometimes=bounds.require_sometimes,
        depth_max=bounds.depth_max,
        memory_max=bounds.memory_max,
        runs=bounds.runs,
        steps_max=bounds.steps_max,
        seed=seed,
        seeding=random.Random,
        policies=chosen_policies,
        proceed=watch,
    )


def in_several(target: Target, bounds: Bounds, watch: Watch) -> Report:
    """Random runs in several processes; what they find, this one finds again by its seed."""
    seed, runs = runs_of(bounds.seed or "", bounds.runs)
    plan = Plan(seed, policies(bounds.policy, bounds.pct_depth), bounds.steps_max)
    order = Order(target.identity, plan, bounds.kinds, bounds.faults_max)
    tally = in_processes(order, runs, jobs=bounds.jobs, proceed=watch)
    return sampled(Sampler(chosen(target, bounds), plan, random.Random).sampled(tally, bounds.seed or ""))


def draw_states(targets: Sequence[Target], bounds: Bounds, path: Path) -> None:
    """Draw the states of the only target, those nearest to the beginning, as far as people look at them.

    Raises:
        Misuse: There are more targets, or the file cannot be written.
    """
    if len(targets) != 1:
        raise Misuse(f"--dot draws one scenario, and {len(targets)} are selected", todo="name one TARGET")
    save(path, attempt(chosen(targets[0], bounds), dot))


def result_json(result: Result) -> dict[str, object]:
    trace = result.report.trace
    steps: Json = [] if trace is None else encoded(trace)["steps"]
    counterexample = {
        "steps": steps,
        "trace": None if result.saved is None else str(result.saved),
        "shrunk": None if result.smaller is None else result.smaller.to_json(),
    }
    return {
        **result.report.to_json(),
        "seconds": round(result.seconds, 3),
        "counterexample": None if trace is None else counterexample,
        "ok": result.is_met,
    }


# --- when a search ends before its end ----------------------------------------------------------------------------------


@final
@attrs.define
class Stop:
    """Whether the user, or the system, wants an end, and with which exit code."""

    code: ExitCode | None = None


@contextmanager
def stoppable() -> Generator[Stop]:
    """Hear of signals: the first one ends the search after its step, a second one of its kind does what it always does."""
    stop = Stop()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def hear(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  what signal handlers are given
        stop.code = ExitCode(128 + number)
        signal.signal(number, before[signal.Signals(number)])

    heard = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]  # a job in the background ignores it
    if threading.current_thread() is not threading.main_thread():
        heard = []  # only the main thread may
    try:
        for number in heard:
            signal.signal(number, hear)
        yield stop
    finally:
        for number in heard:
            signal.signal(number, before[number])


@final
class Watch:
    """Shows how far a search has come, and answers whether to go on."""

    def __init__(self, show: Show, is_stopped: Callable[[], bool], timeout_s: float | None) -> None:
        self.show, self.is_stopped, self.timeout_s = show, is_stopped, timeout_s
        self.began, self.why = monotonic(), ""

    def __call__(self, progress: Progress) -> bool:
        self.show(progress)
        if self.is_stopped():
            self.why = "interrupted"
        elif self.timeout_s is not None and monotonic() - self.began >= self.timeout_s:
            self.why = f"the time-out of {self.timeout_s:g} s is over"
        return not self.why


@contextmanager
def uncollected() -> Generator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
            gc.collect()  # a finished search is one large cycle; what was there before it is not looked through
        gc.unfreeze()
