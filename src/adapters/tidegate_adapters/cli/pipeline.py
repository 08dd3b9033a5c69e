"""`tidegate pipeline` and its command: options and help."""

from __future__ import annotations

from typing import Final

import click

from tidegate.exit_codes import ExitCode
from tidegate_adapters.shell.commands import TARGET, Commands
from tidegate_adapters.shell.options import FILE
from tidegate_adapters.shell.runtimes import PIPELINE

COMMANDS: Final = Commands(
    PIPELINE,
    "Run a pipeline from Kafka through tasks to sinks.",
    ("tidegate pipeline run shop.search:app", "tidegate pipeline run search.py:app --embedded records.jsonl"),
    {ExitCode.OK: "done", ExitCode.USAGE: "wrong usage, or a pipeline that cannot be loaded"},
)
pipeline: Final = COMMANDS.group

COMMANDS.run(
    f"a pipeline\n\n{TARGET.format('a Pipeline')} ",
    "it drain, commit and leave its group",
    "CONCURRENCY=8",
    ("--log-format json", "--embedded records.jsonl"),
    click.option(
        "--embedded",
        type=FILE,
        metavar="RECORDS",
        help="Without servers, on the records of a file of JSON lines; prints the outputs in place of delivering them.",
    ),
    codes={
        ExitCode.OK: "it ended by itself; with --embedded: all is committed",
        ExitCode.NOT_MET: "a sink or the broker does not answer, or a partition has stopped; with --embedded: not all is committed",
        ExitCode.USAGE: "wrong usage or configuration, or a pipeline that cannot be loaded",
        ExitCode.RAISED: "the code that makes the pipeline raised an error",
        ExitCode.INTERRUPTED: "ended by Ctrl-C",
        ExitCode.TERMINATED: "ended by SIGTERM",
    },
)
