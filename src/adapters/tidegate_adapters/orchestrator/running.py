"""`tidegate orchestrator run`: an app until a signal ends it."""

from __future__ import annotations

from typing import Final

from tidegate.exit_codes import ExitCode
from tidegate_adapters.cli.console import Terminal
from tidegate_adapters.orchestrator.app import Orchestrator
from tidegate_adapters.running import ORCHESTRATOR, Life, Logs, Told, run_until_stopped
from tidegate_adapters.signals import CODES

__all__ = ["SCHEMA", "run_app"]

SCHEMA: Final = "tidegate/orchestrator@1"
"""Of all that `tidegate orchestrator` answers as JSON."""


def run_app(told: Told, logs: Logs, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Run an app until it is asked to stop.

    Args:
        told: Which app.
        logs: How it logs.
        terminal: Where it is shown how it ended.
        is_json: Answer with one JSON object.

    Raises:
        Misuse: There is no such app, or it is told what cannot be.
        CodeRaisedError: The user's code that makes it raised an error.
        ServerFailedError: The server does not answer, or has failed it.
    """

    def life(app: Orchestrator) -> Life[None]:
        return Life(app.serve, app.stop, app.settings.drain + app.settings.leave, "drain")

    ended = run_until_stopped(told, ORCHESTRATOR, life, logs, terminal)
    if is_json:
        terminal.answer({"schema": SCHEMA, "ended_by": ended.by and ended.by.name, "ok": True})
    return ExitCode.OK if ended.by is None else CODES[ended.by]
