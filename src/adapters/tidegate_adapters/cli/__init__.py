"""The command line: explore scenarios, replay traces, list and draw what ships.

Results go to stdout; progress, warnings and errors to stderr. With `--json` stdout holds exactly one JSON object, also
when something fails, and whatever a user's own module prints goes to stderr. Exit codes: `tidegate.exit_codes`.

Nothing is decided here about what a search means: targets become scenarios, reports become lines and files.
`tidegate --help` imports click and nothing heavier; each command imports what it needs when it runs.
"""

from tidegate_adapters.cli.command_line import main

__all__ = ["main"]
