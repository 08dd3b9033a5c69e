"""`tidegate orchestrator` and its commands: their options and help."""

from __future__ import annotations

from typing import Any, Final

import click

from tidegate.exit_codes import ExitCode
from tidegate_adapters.shell.commands import TARGET, Commands, of_all
from tidegate_adapters.shell.options import A_TIME, ASKED, filtering, limit_of, together
from tidegate_adapters.shell.runtimes import ORCHESTRATOR

STATUSES: Final = (
    "registered", "concurrency_controlled", "rerouted", "pending", "pending_recovery", "running", "running_recovery", "paused",
    "killed", "retry", "success", "failed", "cancelled", "concurrency_controlled_final",
)  # fmt: skip
"""Text, because `--help` must not load `tidegate.invocations.record.invocation`."""
FILTERS: Final = together(
    filtering("--id", "ids", multiple=True, metavar="ID", help="With this id."),
    filtering("--task", "tasks", multiple=True, metavar="NAME", help="Of this task; of all without it."),
    filtering("--queue", "queues", multiple=True, metavar="NAME", help="In this queue; in all without it."),
    filtering("--status", "statuses", multiple=True, type=click.Choice(STATUSES), help="In this status."),
    filtering("--tenant", metavar="NAME", help="On behalf of this one."),
    filtering("--parent", metavar="ID", help="Called by this invocation."),
    filtering("--root", metavar="ID", help="Called, by whatever way, on behalf of this invocation."),
    filtering("--error", metavar="TEXT", help="With this in the type or text of the last error, in any case."),
    filtering("--made-from", metavar="TIME", help="Made then or later."),
    filtering("--made-before", metavar="TIME", help=f"Made before. {A_TIME}"),
)
COMMANDS: Final = Commands(
    ORCHESTRATOR,
    "Tasks on MongoDB: run an app, ask how its invocations stand, and have them end, wait, or run again.\n\n"
    f"{TARGET.format('an Orchestrator')} Whoever asks needs no process of the app.",
    ("tidegate orchestrator run shop.jobs:app", "tidegate orchestrator list shop.jobs:app --status failed"),
    {ExitCode.OK: "done", ExitCode.USAGE: "wrong usage, or an app that cannot be loaded"},
)
orchestrator: Final = COMMANDS.group

COMMANDS.run(
    "an app",
    "its handlers end, and writes that down",
    "CONCURRENCY=20",
    ("--log-format json", "--set concurrency=20"),
)
COMMANDS.add(
    "status",
    "Tell which processes there are, what waits in the queues, and what is paused.",
    ("", "--json | jq .queues"),
)
COMMANDS.add(
    "list",
    "List invocations, the newest first: where each stands, since when or from when on, and what its last error was.",
    ("--status failed --error timeout", "--task send --made-from 1h --limit 200"),
    FILTERS,
    limit_of(),
    function="list_invocations",
)
COMMANDS.add(
    "show",
    "Show one invocation: its arguments, its result or error, and its history.",
    ("mail-7", "mail-7 --json"),
    click.argument("key", metavar="ID"),
    codes={**ASKED, ExitCode.NOTHING_SELECTED: "there is none"},
)
COMMANDS.add(
    "executions",
    "List which process had the turn of the app's services (crons, triggers, recovery), the newest first.",
    ("--since 1h", "--since 2026-11-24T12:00:00Z --until 2026-11-24T13:00:00Z"),
    click.option("--since", default="1h", show_default=True, metavar="TIME", help="Over then or later."),
    click.option("--until", metavar="TIME", help="Begun then or before; now without it."),
    click.option("--process", metavar="ID", help="Of this process; of all without it."),
    limit_of(),
)
for name, command, text in (
    (
        "retry",
        "REPEAT",
        (
            "Have invocations run again.\n\n"
            "What waits for its next try is due now; of what has ended one copy is made, under an id of its own (mail-7~2), however often "
            "it is asked for. Where neither --id nor --status is given, those that failed or wait for their next try are meant."
        ),
    ),
    (
        "cancel",
        "CANCEL",
        (
            "Cancel invocations that have not ended.\n\n"
            "What waits is cancelled at once; the process that runs one is asked to end it, and hears of it with its next beat."
        ),
    ),
    (
        "kill",
        "KILL",
        (
            "End the runs of invocations; they are given back, and run again.\n\n"
            "The process that runs one hears of it with its next beat."
        ),
    ),
    ("hold", "HOLD", "Have invocations that wait be due no more, until they are released."),
    ("release", "RELEASE", "Have invocations that are held be due again when they were."),
):
    COMMANDS.add(
        name,
        f"{text}\n\nWhich invocations are meant is said by filters, or --all.",
        ("--id mail-7", "--task send --made-from 1h"),
        FILTERS,
        click.option("--all", "is_all", is_flag=True, help="All for which it can be done are meant."),
        codes={
            **ASKED,
            ExitCode.NOTHING_SELECTED: "there are no such invocations",
            ExitCode.INCONCLUSIVE: "for some --id it cannot be done as they are, or some cannot be read, or nobody knows",
        },
        function="ask",
        check=of_all("invocations"),
        command=command,
    )


def unnamed(given: dict[str, Any]) -> str | None:
    return None if given["tasks"] or given["queues"] else "name a task, or a --queue"


for name, text in (
    (
        "pause",
        (
            "Have no process take anything more of these tasks, or from these queues.\n\n"
            "What runs goes on. Processes hear of it within some seconds."
        ),
    ),
    ("resume", "Have processes take of these tasks, and from these queues, again."),
):
    COMMANDS.add(
        name,
        text,
        ("send", "--queue mails"),
        click.argument("tasks", nargs=-1, metavar="[TASK...]"),
        click.option("--queue", "queues", multiple=True, metavar="NAME", help="All of this queue."),
        check=unnamed,
    )
