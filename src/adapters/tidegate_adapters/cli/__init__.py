"""The command line: explore scenarios, replay traces, list and draw what ships.

Results go to stdout; progress, warnings and errors to stderr. With `--json` stdout holds exactly
one JSON object, also after a failure, and output of the user's modules goes to stderr. Exit codes:
`tidegate.exit_codes`.

`tidegate --help` imports click but no heavy module; commands import on demand.
"""

from tidegate_adapters.cli.command_line import main

__all__ = ["main"]
