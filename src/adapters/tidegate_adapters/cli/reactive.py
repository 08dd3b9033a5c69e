"""`tidegate reactive` and its commands: their options and help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypedDict, Unpack

import click

from tidegate.exit_codes import ExitCode
from tidegate_adapters.cli.console import Terminal
from tidegate_adapters.cli.options import ASKED, RUN, P, Run, common, duration, explained, filtering, logged, told

if TYPE_CHECKING:
    from tidegate_adapters.reactive.command_line import Asked

__all__ = ["reactive"]

STATUSES: Final = ("pending", "processing", "processing_dirty", "completed", "failed")
"""`TaskStatus` in words, for `--help` must not load it."""


class Filters(TypedDict):
    """The options that say which records are meant."""

    tasks: tuple[str, ...]
    statuses: tuple[str, ...]
    ids: tuple[str, ...]
    error: str | None
    due_from: str | None
    due_before: str | None


def filtered(command: Callable[P, Run]) -> Callable[P, Run]:
    """Which records are meant."""
    time = "A time with its time zone, or how long ago: 2026-11-24T12:00:00Z, 90s, 5m, 2h, 1d."
    options = (
        filtering("--task", "tasks", multiple=True, metavar="NAME", help="Of this task; of all without it."),
        filtering("--status", "statuses", multiple=True, type=click.Choice(STATUSES), help="In this status."),
        filtering(
            "--id",
            "ids",
            multiple=True,
            metavar="ID",
            help="""Of the document with this id: plain, or Extended JSON such as {"$oid": "..."}; 7 is the number and the text.""",
        ),
        filtering("--error", metavar="TEXT", help="With this in the text of the last failure, in any case."),
        filtering("--due-from", metavar="TIME", help="Due, or with a lease that ends, then or later."),
        filtering("--due-before", metavar="TIME", help=f"Likewise before. {time}"),
    )
    for option in reversed(options):
        command = option(command)
    return command


def asked_for(filters: Filters) -> Asked:
    """The options as one value."""
    from tidegate_adapters.reactive.command_line import Asked  # noqa: PLC0415  so that --help is quick

    return Asked(**filters)


@click.group(
    help=explained(
        "Reactive tasks on MongoDB: run an app, ask how its tasks stand, and have them run again.\n\n"
        "TARGET is path.py:attr or module:attr, where attr is a Reactive, or a function without arguments, also an async one, "
        "that makes one. Whoever asks needs no process of the app.",
        ("tidegate reactive run shop.tasks:app", "tidegate reactive list shop.tasks:app --status failed"),
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
        from tidegate_adapters.running import REACTIVE, Logs, Told, run_app, show_settings  # noqa: PLC0415  so that --help is quick

        which = Told(target, config, settings)
        if dry_run:
            return show_settings(which, terminal, kinds=(REACTIVE,), with_origin=True, is_json=is_json)
        return run_app(which, REACTIVE, Logs(log_format, log_level.upper()), terminal, is_json=is_json)

    return answer


@reactive.command(
    "status",
    help=explained(
        "Tell who leads, how far the changes are looked at, and how each task stands.",
        ("tidegate reactive status shop.tasks:app", "tidegate reactive status tasks.py:app --json | jq .tasks"),
        ASKED,
    ),
)
@told
@common
def status(*, target: str, config: Path | None, settings: tuple[str, ...], is_json: bool) -> Run:
    def answer(terminal: Terminal) -> ExitCode:
        from tidegate_adapters.reactive import command_line  # noqa: PLC0415  so that --help is quick
        from tidegate_adapters.running import Told  # noqa: PLC0415

        return command_line.status(Told(target, config, settings), terminal, is_json=is_json)

    return answer


@reactive.command(
    "list",
    help=explained(
        "List records of tasks: where each stands, when it is due or ended, and what its last failure was.",
        (
            "tidegate reactive list shop.tasks:app --status failed --error timeout",
            """tidegate reactive list tasks.py:app --task invoice --id '{"$oid": "65a5f0b4c3d2e1f0a9b8c7d6"}'""",
        ),
        ASKED,
    ),
)
@told
@filtered
@click.option(
    "--order",
    type=click.Choice(["changed", "next_run"]),
    default="changed",
    show_default=True,
    help="The last change first, or what is due first.",
)
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most, of each database."
)
@common
def list_records(
    *,
    target: str,
    config: Path | None,
    settings: tuple[str, ...],
    order: str,
    limit: int,
    is_json: bool,
    **filters: Unpack[Filters],
) -> Run:
    def answer(terminal: Terminal) -> ExitCode:
        from tidegate_adapters.reactive import command_line  # noqa: PLC0415  so that --help is quick
        from tidegate_adapters.running import Told  # noqa: PLC0415

        which = Told(target, config, settings)
        return command_line.list_records(which, asked_for(filters), order, limit, terminal, is_json=is_json)

    return answer


@reactive.command(
    "count",
    help=explained(
        "Count records by task and status, and tell the lag: since when the oldest is due that is not finished.\n\n"
        "What is asked for by the text of an error can be listed, and not counted.",
        ("tidegate reactive count shop.tasks:app", "tidegate reactive count tasks.py:app --due-before 5m --json"),
        ASKED,
    ),
)
@told
@filtered
@common
def count(
    *, target: str, config: Path | None, settings: tuple[str, ...], is_json: bool, **filters: Unpack[Filters]
) -> Run:
    def answer(terminal: Terminal) -> ExitCode:
        from tidegate_adapters.reactive import command_line  # noqa: PLC0415  so that --help is quick
        from tidegate_adapters.running import Told  # noqa: PLC0415

        return command_line.count(Told(target, config, settings), asked_for(filters), terminal, is_json=is_json)

    return answer


@reactive.command(
    "retry",
    help=explained(
        "Have records run again, their attempts counted anew.\n\n"
        "What is running goes on, and runs once more afterwards. Which records are meant is said by filters, or --all.",
        (
            "tidegate reactive retry shop.tasks:app --task invoice --status failed",
            "tidegate reactive retry tasks.py:app --id order-7",
        ),
        {
            **ASKED,
            ExitCode.NOTHING_SELECTED: "there are no such records",
            ExitCode.INCONCLUSIVE: "of some nobody knows, or others have changed them meanwhile, or they cannot be read",
        },
    ),
)
@told
@filtered
@click.option("--all", "is_all", is_flag=True, help="All records of all tasks are meant.")
@common
@click.pass_context
def retry(
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
        raise click.UsageError("say which records are meant, by filters or by --all", ctx)

    def answer(terminal: Terminal) -> ExitCode:
        from tidegate_adapters.reactive import command_line  # noqa: PLC0415  so that --help is quick
        from tidegate_adapters.running import Told  # noqa: PLC0415

        return command_line.retry(Told(target, config, settings), asked_for(filters), terminal, is_json=is_json)

    return answer


def pausing(name: str, text: str) -> None:
    """A command that says whether handlers of tasks begin."""

    def command(
        *, target: str, tasks: tuple[str, ...], config: Path | None, settings: tuple[str, ...], is_json: bool
    ) -> Run:
        def answer(terminal: Terminal) -> ExitCode:
            from tidegate_adapters.reactive import command_line  # noqa: PLC0415  so that --help is quick
            from tidegate_adapters.running import Told  # noqa: PLC0415

            say = command_line.pause if name == "pause" else command_line.resume
            return say(Told(target, config, settings), tasks, terminal, is_json=is_json)

        return answer

    examples = (
        f"tidegate reactive {name} shop.tasks:app invoice",
        f"tidegate reactive {name} tasks.py:app invoice mail",
    )
    named = click.argument("tasks", nargs=-1, required=True, metavar="TASK...")
    reactive.command(name, help=explained(text, examples, ASKED))(told(named(common(command))))


pausing(
    "pause",
    "Have no handler of these tasks begin any more, in any process.\n\n"
    "What runs goes on, and documents are looked at as before. Processes hear of it within some seconds.",
)
pausing("resume", "Have handlers of these tasks begin again.")


@reactive.command(
    "import",
    help=explained(
        "Take over the records that mongodash has left of a task, once.\n\n"
        "TASK is its name here. What was to run there runs here, and what was finished is finished. Their collection stays as it "
        "is; rename it first where it is called as that of the records here, for its indexes refuse them. It is refused "
        "while mongodash still writes there: stop all of its instances for good. Take over before the app is started for the first "
        "time, or it handles every document as one that is new.",
        (
            "tidegate reactive import shop.tasks:app invoice --from orders_tasks_of_mongodash --dry-run",
            "tidegate reactive import tasks.py:app invoice --from orders_tasks_of_mongodash --named makeInvoice",
        ),
        {
            ExitCode.OK: "taken over, now or before",
            ExitCode.NOT_MET: "mongodash still writes there; or the server does not answer, or refuses",
            ExitCode.USAGE: ASKED[ExitCode.USAGE],
            ExitCode.RAISED: ASKED[ExitCode.RAISED],
            ExitCode.NOTHING_SELECTED: "there is nothing of that task",
            ExitCode.INCONCLUSIVE: "some are no records; the others are taken over",
        },
    ),
)
@told
@click.argument("task")
@click.option("--from", "theirs", required=True, metavar="COLLECTION", help="Their collection, in the task's database.")
@click.option("--named", metavar="NAME", help="The name of the task there; without it the same.")
@click.option(
    "--quiet",
    callback=duration,
    metavar="TIME",
    default="15s",
    show_default=True,
    help="For how long nothing may have changed there; mongodash looks every ten seconds.",
)
@click.option("--dry-run", is_flag=True, help="Tell what would be taken over, and write nothing.")
@common
def take_over(
    *,
    target: str,
    task: str,
    theirs: str,
    named: str | None,
    quiet: float,
    dry_run: bool,
    config: Path | None,
    settings: tuple[str, ...],
    is_json: bool,
) -> Run:
    def answer(terminal: Terminal) -> ExitCode:
        from tidegate_adapters.reactive import command_line  # noqa: PLC0415  so that --help is quick
        from tidegate_adapters.running import Told  # noqa: PLC0415

        left = command_line.Left(task, theirs, named, quiet, dry_run)
        return command_line.take_over(Told(target, config, settings), left, terminal, is_json=is_json)

    return answer
