"""The command with SIGINT enabled: processes started in the background ignore it by default."""

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


def impatient(grace_s: float) -> tuple[str, ...]:
    """The same, with a shorter grace period than 5 s after a signal."""
    patched = f"from tidegate_adapters.cli import exploring\nexploring.GRACE_S = {grace_s}\n"
    return (*INTERRUPTIBLE[:-1], _CODE.replace("sys.exit", f"{patched}sys.exit"))
