"""`tidegate worker` and its command: options and help."""

from __future__ import annotations

from typing import Final

import click

from tidegate.exit_codes import ExitCode
from tidegate_adapters.shell.commands import TARGET, Commands
from tidegate_adapters.shell.options import FILE
from tidegate_adapters.shell.runtimes import WORKER

COMMANDS: Final = Commands(
    WORKER,
    "Run a worker on Kafka.",
    ("tidegate worker run shop.orders:worker", "tidegate worker run orders.py:worker --log-format json"),
    {ExitCode.OK: "done", ExitCode.USAGE: "wrong usage, or a worker that cannot be loaded"},
)
worker: Final = COMMANDS.group

COMMANDS.run(
    f"a worker\n\n{TARGET.format('a Worker')} ",
    "it drain, commit and leave its group",
    "CONSUMER__EXECUTORS=8",
    ("--log-format json", "--embedded records.jsonl"),
    click.option(
        "--embedded",
        type=FILE,
        metavar="RECORDS",
        help="Without a broker, on the records of a file of JSON lines, until all is committed or nothing moves any more.",
    ),
    codes={
        ExitCode.OK: "it ended by itself; with --embedded: all is committed",
        ExitCode.NOT_MET: "the broker does not answer, or has failed it; with --embedded: not all is committed",
        ExitCode.USAGE: "wrong usage or configuration, or a worker that cannot be loaded",
        ExitCode.RAISED: "the code that makes the worker raised an error",
        ExitCode.INTERRUPTED: "ended by Ctrl-C",
        ExitCode.TERMINATED: "ended by SIGTERM",
    },
)
