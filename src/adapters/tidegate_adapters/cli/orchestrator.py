"""`tidegate orchestrator` and its commands: their options and help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypedDict, Unpack

import click

from tidegate.exit_codes import ExitCode
from tidegate_adapters.cli.console import Terminal
from tidegate_adapters.cli.options import ASKED, RUN, P, Run, common, explained, filtering, logged, told

if TYPE_CHECKING:
    from tidegate_adapters.orchestrator.command_line import Meant

__all__ = ["orchestrator"]

STATUSES: Final = (
    "registered", "concurrency_controlled", "rerouted", "pending", "pending_recovery", "running", "running_recovery", "paused",
    "killed", "retry", "success", "failed", "cancelled", "concurrency_controlled_final",
)  # fmt: skip
"""Those of `tidegate.invocations.invocation`, for `--help` must not load it."""


class Filters(TypedDict):
    """The options that say which invocations are meant."""

    ids: tuple[str, ...]
    tasks: tuple[str, ...]
    queues: tuple[str, ...]
    statuses: tuple[str, ...]
    tenant: str | None
    parent: str | None
    root: str | None
    error: str | None
    made_from: str | None
    made_before: str | None


def filtered(command: Callable[P, Run]) -> Callable[P, Run]:
    """Which invocations are meant."""
    time = "A time with its time zone, or how long ago: 2026-11-24T12:00:00Z, 90s, 5m, 2h, 1d."
    options = (
        filtering("--id", "ids", multiple=True, metavar="ID", help="With this id."),
        filtering("--task", "tasks", multiple=True, metavar="NAME", help="Of this task; of all without it."),
        filtering("--queue", "queues", multiple=True, metavar="NAME", help="In this queue; in all without it."),
        filtering("--status", "statuses", multiple=True, type=click.Choice(STATUSES), help="In this status."),
        filtering("--tenant", metavar="NAME", help="On behalf of this one."),
        filtering("--parent", metavar="ID", help="Called by this invocation."),
        filtering("--root", metavar="ID", help="Called, by whatever way, on behalf of this invocation."),
        filtering("--error", metavar="TEXT", help="With this in the type or text of the last error, in any case."),
        filtering("--made-from", metavar="TIME", help="Made then or later."),
        filtering("--made-before", metavar="TIME", help=f"Made before. {time}"),
    )
    for option in reversed(options):
        command = option(command)
    return command


def meant(filters: Filters) -> Meant:
    """The options as one value."""
    from tidegate_adapters.orchestrator.command_line import Meant  # noqa: PLC0415  so that --help is quick

    return Meant(**filters)


@click.group(
    help=explained(
        "Tasks on MongoDB: run an app, ask how its invocations stand, and have them end, wait, or run again.\n\n"
        "TARGET is path.py:attr or module:attr, where attr is an Orchestrator, or a function without arguments, also an async "
        "one, that makes one. Whoever asks needs no process of the app.",
        ("tidegate orchestrator run shop.jobs:app", "tidegate orchestrator list shop.jobs:app --status failed"),
        {ExitCode.OK: "done", ExitCode.USAGE: "wrong usage, or an app that cannot be loaded"},
    )
)
def orchestrator() -> None: ...


@orchestrator.command(
    "run",
    help=explained(
        "Run an app until a signal ends it.\n\n"
        "SIGTERM or Ctrl-C lets its handlers end, and writes that down; a second one waits for nothing that runs; a third "
        "ends it at once. Logs go to stderr. What it is told besides its code comes from --set, the environment "
        "(TIDEGATE_ORCHESTRATOR__CONCURRENCY=20), a file and the code, in this order: see tidegate config show.",
        (
            "tidegate orchestrator run shop.jobs:app --log-format json",
            "tidegate orchestrator run jobs.py:app --set concurrency=20",
        ),
        RUN,
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
        from tidegate_adapters.running import ORCHESTRATOR, Logs, Told, run_app, show_settings  # noqa: PLC0415  so that --help is quick

        which = Told(target, config, settings)
        if dry_run:
            return show_settings(which, terminal, kinds=(ORCHESTRATOR,), with_origin=True, is_json=is_json)
        return run_app(which, ORCHESTRATOR, Logs(log_format, log_level.upper()), terminal, is_json=is_json)

    return answer


@orchestrator.command(
    "status",
    help=explained(
        "Tell which processes there are, what waits in the queues, and what is paused.",
        ("tidegate orchestrator status shop.jobs:app", "tidegate orchestrator status jobs.py:app --json | jq .queues"),
        ASKED,
    ),
)
@told
@common
def status(*, target: str, config: Path | None, settings: tuple[str, ...], is_json: bool) -> Run:
    def answer(terminal: Terminal) -> ExitCode:
        from tidegate_adapters.orchestrator import command_line  # noqa: PLC0415  so that --help is quick
        from tidegate_adapters.running import Told  # noqa: PLC0415

        return command_line.status(Told(target, config, settings), terminal, is_json=is_json)

    return answer


@orchestrator.command(
    "list",
    help=explained(
        "List invocations, the newest first: where each stands, since when or from when on, and what its last error was.",
        (
            "tidegate orchestrator list shop.jobs:app --status failed --error timeout",
            "tidegate orchestrator list jobs.py:app --task send --made-from 1h --limit 200",
        ),
        ASKED,
    ),
)
@told
@filtered
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most.")
@common
def list_invocations(
    *,
    target: str,
    config: Path | None,
    settings: tuple[str, ...],
    limit: int,
    is_json: bool,
    **filters: Unpack[Filters],
) -> Run:
    def answer(terminal: Terminal) -> ExitCode:
        from tidegate_adapters.orchestrator import command_line  # noqa: PLC0415  so that --help is quick
        from tidegate_adapters.running import Told  # noqa: PLC0415

        which = Told(target, config, settings)
        return command_line.list_invocations(which, meant(filters), limit, terminal, is_json=is_json)

    return answer


@orchestrator.command(
    "show",
    help=explained(
        "Show one invocation: its arguments, its result or error, and its history.",
        ("tidegate orchestrator show shop.jobs:app mail-7", "tidegate orchestrator show jobs.py:app mail-7 --json"),
        {**ASKED, ExitCode.NOTHING_SELECTED: "there is none"},
    ),
)
@told
@click.argument("key", metavar="ID")
@common
def show(*, target: str, key: str, config: Path | None, settings: tuple[str, ...], is_json: bool) -> Run:
    def answer(terminal: Terminal) -> ExitCode:
        from tidegate_adapters.orchestrator import command_line  # noqa: PLC0415  so that --help is quick
        from tidegate_adapters.running import Told  # noqa: PLC0415

        return command_line.show(Told(target, config, settings), key, terminal, is_json=is_json)

    return answer


@orchestrator.command(
    "executions",
    help=explained(
        "List which process had the turn of the app's services (crons, triggers, recovery), the newest first.",
        (
            "tidegate orchestrator executions shop.jobs:app --since 1h",
            "tidegate orchestrator executions jobs.py:app --since 2026-11-24T12:00:00Z --until 2026-11-24T13:00:00Z",
        ),
        ASKED,
    ),
)
@told
@click.option("--since", default="1h", show_default=True, metavar="TIME", help="Over then or later.")
@click.option("--until", metavar="TIME", help="Begun then or before; now without it.")
@click.option("--process", metavar="ID", help="Of this process; of all without it.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most.")
@common
def executions(
    *,
    target: str,
    config: Path | None,
    settings: tuple[str, ...],
    since: str,
    until: str | None,
    process: str | None,
    limit: int,
    is_json: bool,
) -> Run:
    def answer(terminal: Terminal) -> ExitCode:
        from tidegate_adapters.orchestrator import command_line  # noqa: PLC0415  so that --help is quick
        from tidegate_adapters.running import Told  # noqa: PLC0415

        which = Told(target, config, settings)
        return command_line.executions(which, (since, until), process, limit, terminal, is_json=is_json)

    return answer


def asking(name: str, command: str, text: str) -> None:
    """A command that is asked of all invocations that are meant."""

    def asks(
        ctx: click.Context,
        *,
        target: str,
        config: Path | None,
        settings: tuple[str, ...],
        is_all: bool,
        is_json: bool,
        **filters: Unpack[Filters],
    ) -> Run:
        if is_all == any(filters.values()):
            raise click.UsageError("say which invocations are meant, by filters or by --all", ctx)

        def answer(terminal: Terminal) -> ExitCode:
            from tidegate.invocations.asking import Command  # noqa: PLC0415  so that --help is quick
            from tidegate_adapters.orchestrator import command_line  # noqa: PLC0415
            from tidegate_adapters.running import Told  # noqa: PLC0415

            which = Told(target, config, settings)
            return command_line.ask(which, Command[command], meant(filters), terminal, is_json=is_json)

        return answer

    help_text = explained(
        f"{text}\n\nWhich invocations are meant is said by filters, or --all.",
        (
            f"tidegate orchestrator {name} shop.jobs:app --id mail-7",
            f"tidegate orchestrator {name} jobs.py:app --task send --made-from 1h",
        ),
        {
            **ASKED,
            ExitCode.NOTHING_SELECTED: "there are no such invocations",
            ExitCode.INCONCLUSIVE: "for some --id it cannot be done as they are, or some cannot be read, or nobody knows",
        },
    )
    is_all = click.option("--all", "is_all", is_flag=True, help="All for which it can be done are meant.")
    orchestrator.command(name, help=help_text)(told(filtered(is_all(common(click.pass_context(asks))))))


asking(
    "retry",
    "REPEAT",
    "Have invocations run again.\n\n"
    "What waits for its next try is due now; of what has ended one copy is made, under an id of its own (mail-7~2), however often "
    "it is asked for. Where neither --id nor --status is given, those that failed or wait for their next try are meant.",
)
asking(
    "cancel",
    "CANCEL",
    "Cancel invocations that have not ended.\n\n"
    "What waits is cancelled at once; the process that runs one is asked to end it, and hears of it with its next beat.",
)
asking(
    "kill",
    "KILL",
    "End the runs of invocations; they are given back, and run again.\n\n"
    "The process that runs one hears of it with its next beat.",
)
asking("hold", "HOLD", "Have invocations that wait be due no more, until they are released.")
asking("release", "RELEASE", "Have invocations that are held be due again when they were.")


def pausing(name: str, text: str) -> None:
    """A command that says whether processes take of tasks, and from queues."""

    def command(
        ctx: click.Context,
        *,
        target: str,
        tasks: tuple[str, ...],
        queues: tuple[str, ...],
        config: Path | None,
        settings: tuple[str, ...],
        is_json: bool,
    ) -> Run:
        if not tasks and not queues:
            raise click.UsageError("name a task, or a --queue", ctx)

        def answer(terminal: Terminal) -> ExitCode:
            from tidegate_adapters.orchestrator import command_line  # noqa: PLC0415  so that --help is quick
            from tidegate_adapters.running import Told  # noqa: PLC0415

            say = command_line.pause if name == "pause" else command_line.resume
            return say(Told(target, config, settings), tasks, queues, terminal, is_json=is_json)

        return answer

    examples = (
        f"tidegate orchestrator {name} shop.jobs:app send",
        f"tidegate orchestrator {name} jobs.py:app --queue mails",
    )
    tasks = click.argument("tasks", nargs=-1, metavar="[TASK...]")
    queues = click.option("--queue", "queues", multiple=True, metavar="NAME", help="All of this queue.")
    orchestrator.command(name, help=explained(text, examples, ASKED))(
        told(tasks(queues(common(click.pass_context(command)))))
    )


pausing(
    "pause",
    "Have no process take anything more of these tasks, or from these queues.\n\n"
    "What runs goes on. Processes hear of it within some seconds.",
)
pausing("resume", "Have processes take of these tasks, and from these queues, again.")
