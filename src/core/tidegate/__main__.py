"""The command `tidegate`, and `python -m tidegate`: the command line of the adapters, if
installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Final, cast

from tidegate.exit_codes import ExitCode

NEEDS: Final = ("tidegate_adapters", "click")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line with these arguments, None for those of this process; return the exit
    code.
    """
    if any(find_spec(name) is None for name in NEEDS):
        sys.stderr.write("error: needs extra: pip install 'tidegate[cli]'\n")
        return ExitCode.USAGE
    try:
        command_line = import_module("tidegate_adapters.cli")
        return cast("Callable[[Sequence[str] | None], int]", command_line.main)(argv)
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return ExitCode.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
