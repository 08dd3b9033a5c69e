"""Three ways to sweep wrong. Each differs from `tidegate.reactive.sweeper` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.model.documents import ID, AllOf, Document, Eq
from tidegate.model.effects import Ambiguous
from tidegate.model.operations import StoreTime, find_one, update_one
from tidegate.reactive.reconciler import EPOCH
from tidegate.reactive.reconciliation import BeginSweep, Sweeps, decide_sweep
from tidegate.reactive.scenarios.sweeper import IN_TURN, ONCE, SWEEPER, SWEPT, Turning, sweeper
from tidegate.reactive.sweeper import remove_orphans, stored_sweeps, sweeps_of
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


async def known() -> Document:
    record = await find_one(SWEEPER.streams, Eq(ID, SWEEPER.stream))
    assert record is not None, "the world begins with it"
    return record


async def store(sweeps: Sweeps, *under: Eq[int]) -> None:
    await update_one(SWEEPER.streams, AllOf((Eq(ID, SWEEPER.stream), *under)), stored_sweeps(sweeps))


async def errors_are_swallowed(epoch: int) -> None:
    """A sweep has ended well whatever was left."""
    try:
        begun = decide_sweep(sweeps_of(await known()), epoch, await StoreTime(), SWEEPER.interval)
        if isinstance(begun, BeginSweep):
            await store(begun.sweeps, Eq(EPOCH, epoch))
            await remove_orphans(SWEEPER.tasks[0], 1)
            await store(Sweeps(await StoreTime()), Eq(EPOCH, epoch))
    except Ambiguous:
        return


async def begins_under_any_epoch(epoch: int) -> None:
    """Whoever has led begins to sweep, over the sweep of a later leader."""
    try:
        begun = decide_sweep(sweeps_of(await known()), epoch, await StoreTime(), SWEEPER.interval)
        if isinstance(begun, BeginSweep):
            await store(begun.sweeps)
    except Ambiguous:
        return


async def at_each_election(epoch: int) -> None:
    """Whoever begins to lead sweeps, whenever that was done last."""
    try:
        before = sweeps_of(await known())
        await store(attrs.evolve(before, epoch=epoch), Eq(EPOCH, epoch))
        if not await remove_orphans(SWEEPER.tasks[0], 1):
            await store(Sweeps(await StoreTime()), Eq(EPOCH, epoch))
    except Ambiguous:
        return


def planted(turn: Turning, law: str, source: str) -> Specimen:
    make = partial(sweeper, turn, summary=(turn.__doc__ or "").partition("\n")[0])
    return Specimen(f"sweeper.{getattr(turn, '__name__', '')}", make, law, source, of="sweeper")


SPECIMENS: Final = (
    planted(
        errors_are_swallowed, SWEPT, "mongodash 2.3.1 swallows the errors of a sweep, and stores that it has ended."
    ),
    planted(begins_under_any_epoch, IN_TURN, "Planted: a leader that stood still goes on where it was."),
    planted(at_each_election, ONCE, "Planted: where leaders change often, each of them reads all records."),
)
