"""`tidegate dead-letters` and its commands: options and help."""

from __future__ import annotations

from typing import Final

import click

from tidegate.exit_codes import ExitCode
from tidegate_adapters.shell.commands import TARGET, Commands
from tidegate_adapters.shell.options import A_TIME, ASKED, filtering, limit_of, together
from tidegate_adapters.shell.runtimes import DEAD_LETTERS

FILTERS: Final = together(
    filtering("--topic", "topics", multiple=True, metavar="NAME", help="Of a record of this topic."),
    click.option(
        "--partition", "partitions", multiple=True, type=click.IntRange(0), help="Of a record of this partition."
    ),
    filtering("--offsets", multiple=True, metavar="RANGE", help="Of a record at these offsets: 7, or 7-12."),
    filtering("--sink", "sinks", multiple=True, metavar="NAME", help="Of an output for this sink."),
    filtering("--error", metavar="TEXT", help="With this in the class or text of the error, in any case."),
    filtering("--since", metavar="TIME", help="Written then or later."),
    filtering("--until", metavar="TIME", help=f"Written before. {A_TIME}"),
)
GROUP: Final = filtering("--group", metavar="NAME", help="The consumer group of replays; by default GROUP.replay.")
COMMANDS: Final = Commands(
    DEAD_LETTERS,
    "List, show and replay the dead letters of a worker or a pipeline.\n\n"
    f"{TARGET.format('a Worker or a Pipeline')} It names the topics, the brokers and the sinks; its settings come from "
    "the same places as for tidegate worker run.",
    ("tidegate dead-letters list shop.search:app", "tidegate dead-letters replay orders.py:worker --dry-run"),
    {ExitCode.OK: "done", ExitCode.USAGE: "wrong usage, or an application that cannot be loaded"},
)
dead_letters: Final = COMMANDS.group

COMMANDS.add(
    "list",
    "List the letters that are not replayed. Contents and texts of errors are not shown.",
    ("--error timeout --since 1h", "--all --json"),
    FILTERS,
    click.option("--all", "is_all", is_flag=True, help="Those that are replayed as well."),
    GROUP,
    limit_of(),
    function="list_letters",
)
COMMANDS.add(
    "show",
    "Show one letter, by the place that the list names.",
    ("search.dead-0@17", "orders.dead-2@5 --payload"),
    click.argument("letter"),
    click.option("--payload", "is_payload", is_flag=True, help="Show key, value, headers and output, too."),
    codes={**ASKED, ExitCode.NOTHING_SELECTED: "there is none"},
)
COMMANDS.add(
    "replay",
    "Deliver letters again: an output to its sink, a record to its topic.\n\n"
    "A letter counts as replayed once its delivery is acknowledged. A replay that was killed goes on where it stopped. "
    "A letter that cannot be delivered stays, and no other is written for it.",
    ("--sink hits --rate 50", "--limit 1 --dry-run"),
    FILTERS,
    click.option("--to-topic", "requeues", is_flag=True, help="Re-queue the records of outputs, too."),
    click.option("--limit", type=click.IntRange(1), help="Deliver so many at most."),
    click.option("--rate", type=click.FloatRange(0, min_open=True), help="Deliver so many a second at most."),
    click.option("--skip-failed", is_flag=True, help="Go on after a letter that cannot be delivered; it stays."),
    click.option("--dry-run", is_flag=True, help="Name the letters, deliver none."),
    GROUP,
    codes={**ASKED, ExitCode.NOT_MET: "a letter could not be delivered, or the broker does not answer"},
)  # fmt: skip
