"""The style and the script of the page of a run, as text.

The script needs nothing but the page: no library, no network, no storage. It reads the trace from the page's JSON,
rebuilds every state, and whatever the trace says reaches the page as text. A browser reads its parts as one program, in
the order in which they stand here: each uses those before it.
"""

from __future__ import annotations

from typing import Final

from tidegate.sim.page_code import compact
from tidegate.sim.page_code.band import BAND
from tidegate.sim.page_code.hands import HANDS
from tidegate.sim.page_code.lanes import LANES
from tidegate.sim.page_code.panel import PANEL
from tidegate.sim.page_code.runs import RUNS
from tidegate.sim.page_code.style import SHEET
from tidegate.sim.page_code.values import VALUES

SCRIPT: Final = "\n" + compact.script(VALUES + RUNS + LANES + BAND + PANEL + HANDS) + "\n"
"""The whole script."""

STYLE: Final = compact.style(SHEET)
"""The whole style."""
