"""A command that hears of SIGINT, even where the tests themselves run in the background and it is ignored."""

from __future__ import annotations

import sys
from typing import Final

HEARS: Final = """\
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from tidegate.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
HEARING: Final = (sys.executable, "-u", "-c", HEARS)
"""What stands before the arguments of `tidegate`."""
