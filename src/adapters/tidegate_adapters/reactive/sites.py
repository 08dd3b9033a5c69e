"""What there is in a database with reactive tasks, beside the documents: `<source>_tasks` with the records of tasks,
`tidegate_reactive` with what operators have paused, and these collections.
"""

from __future__ import annotations

from typing import Final

LEASES: Final = "tidegate_leases"
"""The collection of the leader's lease."""
STREAMS: Final = "tidegate_streams"
"""The collection of the record of the change stream."""
KEY: Final = "reactive"
"""The id of the document of each of these, of an application that has no name of its own."""
