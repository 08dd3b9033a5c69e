"""Replays a trace in a search of a target."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tidegate
from tidegate.model.errors import TidegateError
from tidegate.sim.runs.replay import Diverged, replaying
from tidegate.sim.search.search import Search
from tidegate.sim.trace.trace import Trace
from tidegate_adapters.base.errors import ReplayDivergedError, origin, raised
from tidegate_adapters.exploring.targets import Target

T = TypeVar("T")


def replayed(trace: Trace, target: Target, run: Callable[[Search], T]) -> T:
    try:
        return replaying(trace, target.scenario, run)
    except TidegateError as error:
        error.where = error.where or ", ".join(filter(None, (target.identity, origin(error))))
        raise
    except (Exception, SystemExit) as error:
        raise raised(error, f"{target.identity} raised an error outside of its programs") from error


def diverged(trace: Trace, target: Target, found: Diverged) -> ReplayDivergedError:
    return ReplayDivergedError(
        f"the replay diverged at step {found.step}: {found.reason}",
        where=f"{target.identity}, recorded with {trace.version}, now {tidegate.__version__}",
        why="\n    ".join(
            (f"recorded: {found.recorded}", *(("enabled instead:", *found.enabled) if found.enabled else ()))
        )
        if found.recorded
        else "",
        todo="the scenario has changed since, or this is a trace of another one: explore again, or add --continue",
    )
