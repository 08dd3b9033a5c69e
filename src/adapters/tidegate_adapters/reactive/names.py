"""The collections of a database with reactive tasks: these, `<source>_tasks` for task records, and
`tidegate_reactive` for pauses.
"""

from __future__ import annotations

from typing import Final

LEASES: Final = "tidegate_leases"
STREAMS: Final = "tidegate_streams"
KEY: Final = "reactive"
"""The document id in both, for an application without a name."""
