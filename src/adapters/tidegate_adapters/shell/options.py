"""Shared options of commands, and the layout of help."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final, TypeAlias

import click

from tidegate.exit_codes import ExitCode
from tidegate_adapters.shell.terminal import Terminal

Run: TypeAlias = Callable[[Terminal], ExitCode]
Option: TypeAlias = Callable[[Callable[..., Run]], Callable[..., Run]]
UNITS_B: Final = {"": 1, "B": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}
UNITS_S: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Parse `500ms`, `90s`, `90`, `1.5m` or `1h` to seconds."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|)", value)
    found = float(match[1]) * UNITS_S[match[2]] if match else 0.0
    if not found:
        raise click.BadParameter(f"{value!r} is not a time; write 500ms, 90s, 5m or 1h", ctx, param)
    return found


def _not_empty(
    ctx: click.Context, param: click.Parameter, value: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    """Reject an empty filter: an unset shell variable would otherwise select everything."""
    if value is not None and not all(value if isinstance(value, tuple) else (value,)):
        raise click.BadParameter("it is empty; leave it out where all are meant", ctx, param)
    return value


filtering = partial(click.option, callback=_not_empty)

A_TIME: Final = "A time with its time zone, or how long ago: 2026-11-24T12:00:00Z, 90s, 5m, 2h, 1d."


def limit_of(each: str = "") -> Option:
    text = f"How many at most{each}."
    return click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help=text)


def size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Parse `500MB`, `2GB` or a number of bytes."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]{1,15})(B|kB|MB|GB|)", value)
    if match is None or not int(match[1]):
        raise click.BadParameter(f"{value!r} is not a size; write 500MB or 2GB", ctx, param)
    return int(match[1]) * UNITS_B[match[2]]


def seed_of_runs(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[0-9]{1,20}(\.[0-9]{1,9})?", value):
        raise click.BadParameter(
            f"{value!r} is not a seed; write a number, or number.run for one run of it", ctx, param
        )
    return value


def kinds_of_faults(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...] | None:
    """Parse `all` (None), `none`, or comma-separated kinds."""
    if value in {"all", "none"}:
        return None if value == "all" else ()
    from tidegate.sim.world.faults import Fault  # noqa: PLC0415  so that --help is quick

    chosen = tuple(value.split(","))
    for kind in chosen:
        if kind not in set(Fault):
            meant = "".join(f"did you mean {near}? " for near in get_close_matches(kind, Fault, n=1))
            raise click.BadParameter(
                f"{kind!r} is not a kind of fault; {meant}docs/faults.md tells of each: {', '.join(Fault)}", ctx, param
            )
    return chosen


FILE: Final = click.Path(path_type=Path)


def together(*options: Option) -> Option:
    def decorate(command: Callable[..., Run]) -> Callable[..., Run]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def calling(function: str) -> Callable[..., Run]:
    """A command that calls `module:name` with its options and the terminal; the module loads only
    then, so `--help` is quick.
    """
    module, _, name = function.partition(":")
    return lambda **given: lambda terminal: getattr(import_module(module), name)(terminal=terminal, **given)


told: Final = together(
    click.argument("target"),
    click.option(
        "--config",
        type=FILE,
        metavar="FILE",
        help="A file with settings, TOML or YAML; without it that of TIDEGATE_CONFIG, or pyproject.toml here.",
    ),
    click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting, such as concurrency=8."),
)
logged: Final = together(
    click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Lines, or JSON lines.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="What is below is not logged.",
    ),
)


def set_colour(ctx: click.Context, _: click.Parameter, value: str) -> None:
    terminal_of(ctx).colour = value


def set_debugging(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    terminal_of(ctx).is_debugging = value


def terminal_of(ctx: click.Context) -> Terminal:
    terminal = ctx.find_object(Terminal)
    assert terminal is not None, "main puts it there"
    return terminal


common: Final = together(
    click.option("--json", "is_json", is_flag=True, help="Answer with one JSON object on stdout, also on failure."),
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        expose_value=False,
        callback=set_colour,
        help="Colour; auto: on a terminal, and as NO_COLOR and FORCE_COLOR say.",
    ),
    click.option(
        "--debug", is_flag=True, expose_value=False, callback=set_debugging, help="Show the traceback of an error."
    ),
)


def explained(text: str, examples: Sequence[str], codes: Mapping[ExitCode, str]) -> str:
    """The help of a command; backspaces keep click from rewrapping blocks."""
    shown = "\n".join(f"  {example}" for example in examples)
    ends = "\n".join(f"  {code:<3}  {meaning}" for code, meaning in codes.items())
    return f"{text}\n\n\b\nExamples:\n{shown}\n\n\b\nExit codes:\n{ends}"


ASKED: Final = {
    ExitCode.OK: "done",
    ExitCode.NOT_MET: "the server does not answer, or refuses",
    ExitCode.USAGE: "wrong usage or configuration, or an app that cannot be loaded",
    ExitCode.RAISED: "the code that makes the app raised an error",
}
RUN: Final = {
    ExitCode.OK: "it ended by itself",
    ExitCode.NOT_MET: "the server does not answer, or has failed it",
    ExitCode.USAGE: "wrong usage or configuration, or an app that cannot be loaded",
    ExitCode.RAISED: "the code that makes the app raised an error",
    ExitCode.INTERRUPTED: "ended by Ctrl-C",
    ExitCode.TERMINATED: "ended by SIGTERM",
}
