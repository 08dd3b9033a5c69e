"""`tidegate reactive` and its commands: their options and help."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from tidegate.exit_codes import ExitCode
from tidegate_adapters.cli.console import Terminal
from tidegate_adapters.cli.options import Run, common, explained, logged, told

__all__ = ["reactive"]


@click.group(
    help=explained(
        "Run reactive tasks on MongoDB.\n\n"
        "TARGET is path.py:attr or module:attr, where attr is a Reactive, or a function without arguments, also an async one, "
        "that makes one.",
        ("tidegate reactive run shop.tasks:app", "tidegate reactive run tasks.py:app --set concurrency=20"),
        {ExitCode.OK: "done", ExitCode.USAGE: "wrong usage, or an app that cannot be loaded"},
    )
)
def reactive() -> None: ...


@reactive.command(
    "run",
    help=explained(
        "Run an app until a signal ends it.\n\n"
        "SIGTERM or Ctrl-C lets its handlers end, and writes that down; a second one waits for nothing that runs; a third "
        "ends it at once. Logs go to stderr. What it is told besides its code comes from --set, the environment "
        "(TIDEGATE_REACTIVE__CONCURRENCY=20), a file and the code, in this order: see tidegate config show.",
        (
            "tidegate reactive run shop.tasks:app --log-format json",
            "tidegate reactive run tasks.py:app --set concurrency=20",
        ),
        {
            ExitCode.OK: "it ended by itself",
            ExitCode.NOT_MET: "the server does not answer, or has failed it",
            ExitCode.USAGE: "wrong usage or configuration, or an app that cannot be loaded",
            ExitCode.RAISED: "the code that makes the app raised an error",
            ExitCode.INTERRUPTED: "ended by Ctrl-C",
            ExitCode.TERMINATED: "ended by SIGTERM",
        },
    ),
)
@told
@click.option("--dry-run", is_flag=True, help="Show what it would be told, and connect to nothing.")
@logged
@common
def run(
    *,
    target: str,
    config: Path | None,
    settings: tuple[str, ...],
    dry_run: bool,
    log_format: Literal["text", "json"],
    log_level: str,
    is_json: bool,
) -> Run:
    def answer(terminal: Terminal) -> ExitCode:
        from tidegate_adapters.running import REACTIVE, Logs, Told, show_settings  # noqa: PLC0415  so that --help is quick

        which = Told(target, config, settings)
        if dry_run:
            return show_settings(which, terminal, kinds=(REACTIVE,), with_origin=True, is_json=is_json)
        from tidegate_adapters.reactive.running import run_app  # noqa: PLC0415

        return run_app(which, Logs(log_format, log_level.upper()), terminal, is_json=is_json)

    return answer
