"""A way to read wrongly. It differs from `tidegate.counters.scenarios.counter_read` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.counters.scenarios.counter_read import LINEAR, READ, counter_read, increments, read
from tidegate.model.effects import Note
from tidegate.sim.linearizability import BEGAN, ENDED
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


async def reads_before(token: str) -> None:
    """What was read before the increment is answered as what is there now."""
    known = await read()
    if await increments(token):
        await Note(BEGAN, READ)
        await Note(ENDED, known)


SPECIMENS: Final = (
    Specimen(
        "counter.reads_before",
        partial(counter_read, reads_before, summary=reads_before.__doc__ or "", budget=0),
        LINEAR,
        "Planted: so does every cache that learns of no writes, and every read from a replica that lags.",
        of="counter.read",
    ),
)
