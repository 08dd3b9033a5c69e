"""`tidegate explore`: explores scenarios one by one, and reports and stores each result at once.

The cyclic garbage collector is off during a search, which makes millions of small values and few
cycles, and runs 15 to 60 % faster.
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
from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.exports.dot import dot
from tidegate.sim.runs.report import Report, Verdict, explore, sampled, with_absent
from tidegate.sim.runs.sample import portfolio, runs_of
from tidegate.sim.search.attempts import attempt
from tidegate.sim.search.search import CALLED_OFF, Progress
from tidegate.sim.trace.trace import Trace
from tidegate.sim.trace.trace_json import encoded
from tidegate_adapters.base.errors import StoppedError, WorkersLostError, exit_code, origin, raised
from tidegate_adapters.base.redaction import one_line
from tidegate_adapters.cli.junit import junit
from tidegate_adapters.cli.lines import Result, ended, shrunk_line, stories, summed_up, written
from tidegate_adapters.cli.progress import Show, foretelling, shown
from tidegate_adapters.cli.shrinking import AFTER_RUNS_S, smaller
from tidegate_adapters.exploring.counterexamples import Store, save
from tidegate_adapters.exploring.parallel import (
    ASKED_S,
    POOLS_MAX,
    Order,
    in_processes,
    is_stopped,
    processes,
)
from tidegate_adapters.exploring.targets import Target, one
from tidegate_adapters.shell.terminal import Terminal, error_json

Say: TypeAlias = Callable[..., None]
BEYOND_RUNS: Final = 1_000
"""Random runs after a bounded exhaustive search: some seconds at most."""
BEYOND_STEPS: Final = 1_000
SCENARIO_S: Final = 0.4
"""The average for a shipped scenario in its default scope."""
GRACE_S: Final = 5.0
"""The limit after the first signal, for search and report."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@final
@attrs.frozen
class Settings:
    """The options for each scenario."""

    how: Exploration
    timeout_s: float | None = None
    shrinks: bool = True
    jobs: int = 1
    junit_xml: Path | None = None


@final
@attrs.frozen
class Outcome:
    """All results, and the error or signal that ended them."""

    results: tuple[Result, ...]
    selected: int
    seed: str | None
    error: TidegateError | None
    stopped: ExitCode | None

    @property
    def code(self) -> ExitCode:
        """A broken expectation outweighs an unknown one."""
        if self.stopped is not None and (self.error is None or isinstance(self.error, StoppedError)):
            return self.stopped
        if self.error is not None:
            return exit_code(self.error)
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
        if not self.results:
            return ()
        counterexamples = (line for result in self.results for line in stories(result))
        return (*counterexamples, *written(self.results), "", ended(self.results, self.selected))


def explore_all(
    targets: list[Target],
    settings: Settings,
    store: Store | None,
    terminal: Terminal,
    *,
    is_json: bool,
    quiet: bool,
) -> ExitCode:
    """Explore the targets, and report the results."""
    if store is not None:
        store.check()
    if settings.junit_xml is not None:
        save(settings.junit_xml, junit((), None))  # fail before all the work
    if settings.how.runs and settings.how.seed is None:
        drawn = attrs.evolve(settings.how, seed=str(secrets.randbelow(2**32)))
        settings = attrs.evolve(settings, how=drawn)
    say: Say = (lambda *_: None) if is_json else terminal.say
    outcome = explored_all(targets, settings, store, terminal, say, quiet=quiet)
    if is_json:
        terminal.answer(outcome.to_json())
    for line in outcome.to_lines():
        say(line)
    if settings.junit_xml is not None:
        save(settings.junit_xml, junit(outcome.results, outcome.error))
    if outcome.error is not None:
        terminal.complain(outcome.error)
    return outcome.code


def beginning(number: int, *, is_sample: bool) -> str:
    more = "; --all explores every scenario that ships" if is_sample else ""
    return f"exploring {number} scenarios, about {number * SCENARIO_S:.0f} s{more}"


def explored_all(
    targets: list[Target], settings: Settings, store: Store | None, terminal: Terminal, say: Say, *, quiet: bool
) -> Outcome:
    """Each target is freed afterwards, because it has grown large."""
    selected, width = len(targets), max(len(one_line(target.scenario.name)) for target in targets)
    seed = settings.how.seed if settings.how.runs else None
    results: list[Result] = []
    error: TidegateError | None = None
    if seed is not None:
        say(f"seed {seed}")
    with stoppable() as stop:
        try:
            if settings.jobs > 1 and not settings.how.runs:
                for result in explored_apart(targets, settings, store, stop, terminal, quiet=quiet):
                    results.append(result)
                    say(*summed_up(result, width))
            while targets and stop.code is None:
                target = targets.pop(0)
                results.append(explored(target, settings, store, stop, terminal, quiet=quiet))
                say(*summed_up(results[-1], width))
                if settings.shrinks and results[-1].report.trace is not None and not results[-1].report.is_shortest:
                    results[-1] = shrunk(results[-1], target, settings, store, stop)
                    say(shrunk_line(results[-1]))
                del target
        except TidegateError as found:
            error = found
        except OverdueError:
            why = "for example, what was found is long, and to write it down takes its time"
            error = StoppedError(f"not at an end {GRACE_S:g} s after the signal", why=why)
    return Outcome(tuple(results), selected, seed, error, stop.code)


def explored(
    target: Target, settings: Settings, store: Store | None, stop: Stop, terminal: Terminal, *, quiet: bool
) -> Result:
    name = target.scenario.name
    with shown(name, terminal, quiet=quiet) as show:
        telling = show if quiet else foretelling(show, name, terminal, settings.how.states_max)
        report, seconds = timed(target, settings, Watch(telling, lambda: stop.code is not None, settings.timeout_s))
    return stored(target, report, seconds, store, terminal, quiet=quiet)


def timed(target: Target, settings: Settings, watch: Watch) -> tuple[Report, float]:
    began = monotonic()
    with uncollected():
        report = search(target, settings, watch)
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
    targets: list[Target], settings: Settings, store: Store | None, stop: Stop, terminal: Terminal, *, quiet: bool
) -> Iterator[Result]:
    """Explore targets in several processes, and report in order. Targets remain only after a
    signal.

    A process that dies breaks its pool; another pool takes the unfinished targets.
    """
    finished: dict[str, tuple[Report, float]] = {}
    for _ in range(POOLS_MAX):
        under_way: dict[str, Future[tuple[Report, float]]] = {}
        try:
            with processes(settings.jobs) as executor:
                for name in [target.identity for target in targets if target.identity not in finished]:
                    under_way[name] = executor.submit(timed_apart, name, settings)
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
        f"worker processes died in {POOLS_MAX} pools of {settings.jobs}",
        where=f"not explored: {', '.join(target.identity for target in targets)}",
        why="something ends them from outside: often the system, for want of memory",
        todo="use fewer with --jobs, or bound a search with --max-memory",
    )


def timed_apart(identity: str, settings: Settings) -> tuple[Report, float]:
    return timed(one(identity), settings, Watch(lambda _: None, is_stopped, settings.timeout_s))


def shrunk(result: Result, target: Target, settings: Settings, store: Store | None, stop: Stop) -> Result:
    assert result.report.trace is not None
    left = AFTER_RUNS_S if settings.timeout_s is None else max(0.0, settings.timeout_s - result.seconds)

    def keep(trace: Trace) -> Path:
        assert store is not None
        return store.save(target, trace, "shrunk")

    with uncollected():
        found = smaller(
            result.report.trace,
            target.scenario.bounded(settings.how.faults, settings.how.faults_max),
            None if store is None else keep,
            seconds=min(AFTER_RUNS_S, left),
            is_stopped=lambda: stop.code is not None,
        )
    return attrs.evolve(result, smaller=found)


def search(target: Target, settings: Settings, watch: Watch) -> Report:
    scenario = f"scenario {one_line(target.scenario.name)}"
    try:
        report = report_on(target, settings, watch)
    except TidegateError as error:
        error.where = error.where or ", ".join(filter(None, (scenario, origin(error))))
        raise
    except (Exception, SystemExit) as error:
        raise raised(error, f"{scenario} raised an error outside of its programs") from error
    if report.verdict is Verdict.INCONCLUSIVE and watch.why:
        else_why = report.reason.removeprefix(CALLED_OFF).removeprefix("; ")
        report = attrs.evolve(report, reason="; ".join(filter(None, (watch.why, else_why))))
    return report


def report_on(target: Target, settings: Settings, watch: Watch) -> Report:
    how = settings.how
    if how.runs and settings.jobs > 1:
        return in_several(target, how, settings.jobs, watch)
    beyond = attrs.evolve(how.plan, steps_max=BEYOND_STEPS)
    onward = portfolio(beyond, BEYOND_RUNS, seeding=random.Random, proceed=watch)
    return explore(target.scenario, how, seeding=random.Random, onward=onward, proceed=watch)


def in_several(target: Target, how: Exploration, jobs: int, watch: Watch) -> Report:
    """A violation is repeated by its seed in the calling process."""
    of_all, runs = runs_of(how.plan.seed, how.runs)
    order = Order(target.identity, attrs.evolve(how, seed=of_all))
    tally = in_processes(order, runs, jobs=jobs, proceed=watch)
    return with_absent(order.sampler_of(target.scenario).sampled(tally, how.plan.seed, sampled), target.scenario, how)


def draw_states(targets: Sequence[Target], how: Exploration, path: Path) -> None:
    """Draw the states nearest to the initial one."""
    if len(targets) != 1:
        raise Misuse(f"--dot draws one scenario, and {len(targets)} are selected", todo="name one TARGET")
    save(path, attempt(targets[0].scenario.bounded(how.faults, how.faults_max), dot))


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


# --- interrupts -----------------------------------------------------------------------------------


@final
@attrs.define
class Stop:
    """Whether a signal requests the end, and the exit code."""

    code: ExitCode | None = None


@final
class OverdueError(KeyboardInterrupt):
    """Aborts code that ignores an earlier signal; user code must not catch it."""


def overdue(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  the signature of signal handlers
    raise OverdueError


@contextmanager
def stoppable() -> Generator[Stop]:
    """The first signal ends the search after its step; a second one has its default effect.

    Code that still runs `GRACE_S` after the first one, for example a long report, is aborted.
    """
    stop = Stop()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def caught(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  the signature of signal handlers
        stop.code = ExitCode(128 + number)
        signal.signal(number, before[signal.Signals(number)])
        if hasattr(signal, "setitimer"):  # not on Windows
            signal.signal(signal.SIGALRM, overdue)
            signal.setitimer(signal.ITIMER_REAL, GRACE_S)

    handled = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]  # background jobs ignore it
    if threading.current_thread() is not threading.main_thread():
        handled = []  # only in the main thread
    try:
        for number in handled:
            signal.signal(number, caught)
        yield stop
    finally:
        if stop.code is not None and hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number in handled:
            signal.signal(number, before[number])


@final
class Watch:
    """Shows the progress of a search, and returns whether to continue."""

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
            gc.collect()  # a finished search is one large cycle
        gc.unfreeze()
