"""The command, such that SIGINT interrupts it even where the tests run in the background, where it would be ignored."""

from __future__ import annotations

import sys
from typing import Final

_CODE: Final = """\
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from tidegate.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
INTERRUPTIBLE: Final = (sys.executable, "-u", "-c", _CODE)
"""What stands before the arguments of `tidegate`."""


def impatient(grace_s: float) -> tuple[str, ...]:
    """The same, where what does not end after a signal is ended sooner than after five seconds."""
    patched = f"from tidegate_adapters.cli import exploring\nexploring.GRACE_S = {grace_s}\n"
    return (*INTERRUPTIBLE[:-1], _CODE.replace("sys.exit", f"{patched}sys.exit"))
