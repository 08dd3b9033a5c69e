"""What `benchmarks/decisions.py` times, in the order of the README's tables."""

from __future__ import annotations

from typing import Final

from benchmarks.cases import changes, invocations, log

TABLES: Final = (log.table, invocations.table, changes.table)
