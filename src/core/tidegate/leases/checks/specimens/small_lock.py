"""A faulty variant of the small lock."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.leases.checks.scenarios.small_lock import EXCLUDES, contend, small_lock
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant

SPECIMENS: Final = (
    specimen(
        "small_lock.unlocked", EXCLUDES,
        "Nobody asks whose token is first: everybody enters.",
        "Planted: what the lock protects, without the lock.",
        partial(variant, contend, ("        token = me * 10 + attempt\n", "        await count(me)\n        continue\n")),
        make=lambda made, *, summary: small_lock(2, 1, 1, 0, made=made, summary=summary), of="small_lock"),
)  # fmt: skip
