"""`tidegate replay`: take the recorded decisions again, in the scenario as it is today."""

from __future__ import annotations

from pathlib import Path

import tidegate
from tidegate.errors import TidegateError
from tidegate.exit_codes import ExitCode
from tidegate.sim.replay import Diverged, Replayed, Reproduced, replay
from tidegate.sim.story import story
from tidegate.sim.trace import Trace
from tidegate_adapters.cli.console import Terminal, error_json
from tidegate_adapters.cli.failures import ReplayDivergedError, origin, raised
from tidegate_adapters.cli.store import read
from tidegate_adapters.cli.targets import Target, one, recorded


def replay_one(path: Path, text: str | None, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Replay the trace in a file.

    Args:
        path: A trace as JSON, or a page that holds one.
        text: The target to replay it in; None for the one that the trace names.
        terminal: Where it is told.
        is_json: Answer with one JSON object.

    Raises:
        TidegateError: There is no such trace or scenario, or they cannot be replayed.
    """
    trace = read(path)
    target = recorded(trace.scenario) if text is None else one(text)
    found = replayed(trace, target)
    match found:
        case Reproduced(steps):
            if is_json:
                terminal.answer({**answer(trace), "verdict": "reproduced", "steps": steps, "ok": True})
            else:
                terminal.say(story(trace))
                terminal.say(f"reproduced {steps} steps")
            return ExitCode.OK
        case Diverged(step, reason, enabled):
            error = diverged(trace, target, found)
            if is_json:
                at = {"verdict": "diverged", "step": step, "reason": reason, "enabled": list(enabled)}
                terminal.answer({**answer(trace), **at, "ok": False, "error": error_json(error)})
            terminal.complain(error)
            return ExitCode.DIVERGED


def answer(trace: Trace) -> dict[str, object]:
    return {"schema": "tidegate/replay@1", "scenario": trace.scenario, "law": trace.law, "seed": trace.seed}


def replayed(trace: Trace, target: Target) -> Replayed:
    try:
        return replay(trace, target.scenario)
    except TidegateError as error:
        error.where = error.where or ", ".join(filter(None, (target.identity, origin(error))))
        raise
    except (Exception, SystemExit) as error:
        raise raised(error, f"{target.identity} raised an error outside of its programs") from error


def diverged(trace: Trace, target: Target, found: Diverged) -> ReplayDivergedError:
    return ReplayDivergedError(
        f"the replay diverged at step {found.step}: {found.reason}",
        where=f"{target.identity}, recorded with {trace.version}, now {tidegate.__version__}",
        why="\n    ".join(("enabled instead:", *found.enabled)) if found.enabled else "",
        todo="the scenario has changed since, or this is a trace of another one: explore again",
    )
