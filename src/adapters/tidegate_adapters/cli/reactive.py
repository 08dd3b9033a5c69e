"""`tidegate reactive` and its commands: their options and help."""

from __future__ import annotations

from typing import Final

import click

from tidegate.exit_codes import ExitCode
from tidegate_adapters.shell.commands import TARGET, Commands, of_all
from tidegate_adapters.shell.options import A_TIME, ASKED, duration, filtering, limit_of, together
from tidegate_adapters.shell.runtimes import REACTIVE

STATUSES: Final = ("pending", "processing", "processing_dirty", "completed", "failed")
"""Text, because `--help` must not load `TaskStatus`."""
FILTERS: Final = together(
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
    filtering("--due-before", metavar="TIME", help=f"Likewise before. {A_TIME}"),
)
COMMANDS: Final = Commands(
    REACTIVE,
    "Reactive tasks on MongoDB: run an app, ask how its tasks stand, and have them run again.\n\n"
    f"{TARGET.format('a Reactive')} Whoever asks needs no process of the app.",
    ("tidegate reactive run shop.tasks:app", "tidegate reactive list shop.tasks:app --status failed"),
    {ExitCode.OK: "done", ExitCode.USAGE: "wrong usage, or an app that cannot be loaded"},
)
reactive: Final = COMMANDS.group

COMMANDS.run(
    "an app",
    "its handlers end, and writes that down",
    "CONCURRENCY=20",
    ("--log-format json", "--set concurrency=20"),
)
COMMANDS.add(
    "status",
    "Tell who leads, how far the changes are looked at, and how each task stands.",
    ("", "--json | jq .tasks"),
)
COMMANDS.add(
    "list",
    "List records of tasks: where each stands, when it is due or ended, and what its last failure was.",
    ("--status failed --error timeout", """--task invoice --id '{"$oid": "65a5f0b4c3d2e1f0a9b8c7d6"}'"""),
    FILTERS,
    click.option(
        "--order",
        type=click.Choice(["changed", "next_run"]),
        default="changed",
        show_default=True,
        help="The last change first, or what is due first.",
    ),
    limit_of(", of each database"),
    function="list_records",
)
COMMANDS.add(
    "count",
    "Count records by task and status, and tell the lag: since when the oldest is due that is not finished.\n\n"
    "What is asked for by the text of an error can be listed, and not counted.",
    ("", "--due-before 5m --json"),
    FILTERS,
)
COMMANDS.add(
    "retry",
    "Have records run again, their attempts counted anew.\n\n"
    "What is running goes on, and runs once more afterwards. Which records are meant is said by filters, or --all.",
    ("--task invoice --status failed", "--id order-7"),
    FILTERS,
    click.option("--all", "is_all", is_flag=True, help="All records of all tasks are meant."),
    codes={
        **ASKED,
        ExitCode.NOTHING_SELECTED: "there are no such records",
        ExitCode.INCONCLUSIVE: "of some nobody knows, or others have changed them meanwhile, or they cannot be read",
    },
    check=of_all("records"),
)
for name, text in (
    (
        "pause",
        (
            "Have no handler of these tasks begin any more, in any process.\n\n"
            "What runs goes on, and documents are looked at as before. Processes hear of it within some seconds."
        ),
    ),
    ("resume", "Have handlers of these tasks begin again."),
):
    named = click.argument("tasks", nargs=-1, required=True, metavar="TASK...")
    COMMANDS.add(name, text, ("invoice", "invoice mail"), named)
COMMANDS.add(
    "import",
    "Take over the records that mongodash has left of a task, once.\n\n"
    "TASK is its name here. What was to run there runs here, and what was finished is finished. Their collection stays as it "
    "is; rename it first where it is called as that of the records here, for its indexes refuse them. It is refused "
    "while mongodash still writes there: stop all of its instances for good. Take over before the app is started for the first "
    "time, or it handles every document as one that is new.",
    (
        "invoice --from orders_tasks_of_mongodash --dry-run",
        "invoice --from orders_tasks_of_mongodash --named makeInvoice",
    ),
    click.argument("task"),
    click.option(
        "--from", "theirs", required=True, metavar="COLLECTION", help="Their collection, in the task's database."
    ),
    click.option("--named", metavar="NAME", help="The name of the task there; without it the same."),
    click.option(
        "--quiet",
        "quiet_s",
        callback=duration,
        metavar="TIME",
        default="15s",
        show_default=True,
        help="For how long nothing may have changed there; mongodash looks every ten seconds.",
    ),
    click.option("--dry-run", "is_dry", is_flag=True, help="Tell what would be taken over, and write nothing."),
    codes={
        ExitCode.OK: "taken over, now or before",
        ExitCode.NOT_MET: "mongodash still writes there; or the server does not answer, or refuses",
        ExitCode.USAGE: ASKED[ExitCode.USAGE],
        ExitCode.RAISED: ASKED[ExitCode.RAISED],
        ExitCode.NOTHING_SELECTED: "there is nothing of that task",
        ExitCode.INCONCLUSIVE: "some are no records; the others are taken over",
    },
    function="take_over",
)
