"""Runs one command line, and turns any error into a message and an exit code.

click only parses the arguments into a call, which `main` makes, so a command's errors are not
mistaken for click's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import TextIOWrapper
from typing import Final, TextIO, cast

import click

from tidegate.exit_codes import ExitCode
from tidegate.model.errors import Misuse, TidegateError
from tidegate_adapters.base.errors import StoppedError, exit_code, raised
from tidegate_adapters.cli.commands import cli
from tidegate_adapters.shell.options import Run
from tidegate_adapters.shell.runtimes import DEAD_LETTERS, RUNTIMES
from tidegate_adapters.shell.terminal import Terminal, UnwritableError, error_json

SCHEMAS: Final[dict[str, dict[str, object]]] = {
    "explore": {"schema": "tidegate/report@1", "seed": None, "scenarios": []},
    "replay": {"schema": "tidegate/replay@1"},
    "shrink": {"schema": "tidegate/shrink@1"},
    "trace": {"schema": "tidegate/trace-export@1"},
    "check-determinism": {"schema": "tidegate/determinism@1"},
    "list": {"schema": "tidegate/list@1"},
    "diagram": {"schema": "tidegate/diagram@1"},
    **{each.section: {"schema": each.schema} for each in (*RUNTIMES.values(), DEAD_LETTERS)},
    "config": {"schema": "tidegate/config@1"},
    "doctor": {"schema": "tidegate/doctor@1"},
    "completion": {"schema": "tidegate/completion@1"},
}
"""The first fields of each command's JSON answer, for failures."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code, see `tidegate.exit_codes`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    out: TextIO = sys.stdout
    err: TextIO = sys.stderr
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an unprintable name must not fail
    terminal = Terminal(out, err, os.environ)
    try:
        run = parsed(arguments, terminal)
        with redirect_stdout(err):  # a user's module may print
            code = run(terminal)
        out.flush()
    except click.exceptions.NoArgsIsHelpError as usage:
        terminal.tell(usage.format_message())
        return ExitCode.USAGE
    except click.UsageError as usage:
        return failed(misused(usage), arguments, terminal)
    except UnwritableError as error:
        discard(out)
        terminal.complain(error)
        return exit_code(error)
    except TidegateError as error:
        return failed(error, arguments, terminal)
    except KeyboardInterrupt:
        return failed(StoppedError("interrupted"), arguments, terminal)
    except BrokenPipeError:  # the reader has left, like `head`
        discard(out)
        return ExitCode.BROKEN_PIPE
    except Exception as error:  # noqa: BLE001  reported in one way
        return failed(raised(error, "internal error"), arguments, terminal)
    return code


def parsed(arguments: list[str], terminal: Terminal) -> Run:
    found: object = cli.main(arguments, prog_name="tidegate", standalone_mode=False, obj=terminal)
    return (lambda _: ExitCode.OK) if isinstance(found, int) else cast("Run", found)  # an int after help or version


def failed(error: TidegateError, arguments: list[str], terminal: Terminal) -> ExitCode:
    """Report the error, with `--json` also as the answer."""
    if "--json" in arguments:
        command = next((each for each in arguments if each in SCHEMAS), "")
        terminal.answer(
            {**SCHEMAS.get(command, {"schema": "tidegate/error@1"}), "ok": False, "error": error_json(error)}
        )
    terminal.complain(error)
    return exit_code(error)


def misused(usage: click.UsageError) -> Misuse:
    command = usage.ctx.command_path if usage.ctx else "tidegate"
    return Misuse(usage.format_message().replace("\n\t", " ").rstrip("."), where=command, todo=f"{command} --help")


def discard(out: TextIO) -> None:
    """Without it the interpreter's final flush fails."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
