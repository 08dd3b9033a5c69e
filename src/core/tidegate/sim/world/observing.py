"""The history of one document as a perfect observer sees it, kept in the world for laws.

A fold is cheaper than a journal: it keeps only the facts that a law needs, so that states which
differ only in other facts are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidegate.model.documents import Document
from tidegate.model.effects import Effect
from tidegate.sim.program.relative_time import same
from tidegate.sim.world.world import Cell, Meaning, Outcomes, World, document, perform

V = TypeVar("V")


def seen(what: str, empty: V) -> Cell[V]:
    return Cell(("seen", what), empty)


def observed(
    collection: str,
    key: str,
    cell: Cell[V],
    fold: Callable[[V, Document | None, Document | None], V],
    otherwise: Meaning = perform,
) -> Meaning:
    """A meaning that folds each change of one document, from before to after, into a cell."""
    watched = document(collection, key)

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        if getattr(effect, "collection", collection) != collection:
            yield from otherwise(effect, world, who)
            return
        before = world.read(watched)
        for after, reply in otherwise(effect, world, who):
            now = after.read(watched)
            yield (after if same(now, before) else after.write(cell, fold(after.read(cell), before, now))), reply

    return meaning
