"""`tidegate shrink`, and the shrinking after random runs: the same failure in fewer steps.

The original run is stored and shown first. Replays and time bound the shrinking. Its result has
files of its own: `NAME.shrunk.json`, `.txt` and `.html`, which also hold the original run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final, final

import attrs

from tidegate.exit_codes import ExitCode
from tidegate.model.errors import TidegateError
from tidegate.sim.runs.replay import Diverged, followed
from tidegate.sim.runs.shrink import REPLAYS_MAX, Shrunk, shrink
from tidegate.sim.scenario import Scenario
from tidegate.sim.trace.rendering import render
from tidegate.sim.trace.trace import Trace
from tidegate_adapters.base.errors import origin, raised
from tidegate_adapters.cli.following import diverged, replayed
from tidegate_adapters.exploring.counterexamples import Store, read, replay_line
from tidegate_adapters.exploring.targets import one, recorded
from tidegate_adapters.shell.terminal import Terminal

AFTER_RUNS_S: Final = 1.0
"""The time limit of automatic shrinking."""


@final
@attrs.frozen(eq=False)
class Smaller:
    """A shrunk counterexample, which holds the original run."""

    trace: Trace
    shrunk: Shrunk
    saved: Path | None

    def to_json(self) -> dict[str, object]:
        return {
            "before": self.shrunk.before,
            "steps": self.shrunk.run.steps,
            "faults": self.shrunk.run.faults,
            "replays": self.shrunk.replays,
            "minimal": self.shrunk.is_minimal,
            "shortest": self.shrunk.shortest.value,
            "trace": None if self.saved is None else str(self.saved),
        }


def smaller(
    trace: Trace,
    scenario: Scenario,
    keep: Callable[[Trace], Path] | None,
    *,
    replays_max: int = REPLAYS_MAX,
    seconds: float = AFTER_RUNS_S,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Smaller:
    """Shrink a counterexample and store it."""
    began = monotonic()
    try:
        small, shrunk = shrink(
            trace,
            scenario,
            replays_max=replays_max,
            keep=lambda _: monotonic() - began < seconds and not is_stopped(),
        )
    except TidegateError as error:
        error.where = error.where or origin(error)
        raise
    except (Exception, SystemExit) as error:
        raise raised(error, f"scenario {scenario.name} raised an error outside of its programs") from error
    return Smaller(small, shrunk, None if keep is None else keep(small))


def shrink_one(
    path: Path, text: str | None, *, budget: int, seconds: float, store: bool, terminal: Terminal, is_json: bool
) -> ExitCode:
    """Shrink the trace in a file, in the target `text` or the one in the trace."""
    trace = read(path)
    target = recorded(trace.scenario) if text is None else one(text)
    outcome = replayed(trace, target, lambda search: followed(trace, search).outcome)
    if isinstance(outcome, Diverged):
        raise diverged(trace, target, outcome)

    def keep(small: Trace) -> Path:
        return Store(path.parent).keep(f"{path.with_suffix('').name}.shrunk", small, replay_line)

    found = smaller(trace, target.scenario, keep if store else None, replays_max=budget, seconds=seconds)
    if is_json:
        terminal.answer(
            {
                "schema": "tidegate/shrink@1",
                "scenario": trace.scenario,
                "law": trace.law,
                **found.to_json(),
                "ok": True,
            }
        )
        return ExitCode.OK
    terminal.say(render(found.trace))
    terminal.say(str(found.shrunk))
    if found.saved is not None:
        terminal.say(f"written: {found.saved.with_suffix('')}.json, .txt and .html; replay: {replay_line(found.saved)}")
    return ExitCode.OK
