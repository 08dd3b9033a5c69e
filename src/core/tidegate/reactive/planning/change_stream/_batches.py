"""What is collected of a stream, and the passes that a batch of it is made of."""

from __future__ import annotations

from tidegate.model.documents import Value, exactly
from tidegate.reactive.planning.change_stream.commands import DocumentChange, HandleChanged, HandleDeleted, Pass


def collected(before: tuple[DocumentChange, ...], more: tuple[DocumentChange, ...]) -> tuple[DocumentChange, ...]:
    """The last change of each document, which its collection and its id name, in the order in which they were reported."""
    last: dict[object, DocumentChange] = {}
    for change in (*before, *more):
        key = (change.collection, exactly(change.id))
        last.pop(key, None)  # a dict keeps the place of a key that is set again, and this change is now the newest
        last[key] = change
    return tuple(last.values())


def apart(
    changes: tuple[DocumentChange, ...], left: tuple[DocumentChange, ...]
) -> tuple[tuple[DocumentChange, ...], tuple[DocumentChange, ...]]:
    """The changes of other documents than those that are left, and those that are left, with their last changes."""
    if not left:
        return changes, left
    names = {(each.collection, exactly(each.id)) for each in left}
    is_left = [(each.collection, exactly(each.id)) in names for each in changes]
    of_left = tuple(each for each, is_of in zip(changes, is_left, strict=True) if is_of)
    others = tuple(each for each, is_of in zip(changes, is_left, strict=True) if not is_of)
    return others, collected(left, of_left)


def passes(epoch: int, batch: int, changes: tuple[DocumentChange, ...]) -> tuple[Pass, ...]:
    """What a batch asks for: what was deleted, one pass for each collection, and then what changed.

    Args:
        epoch: The epoch that it is asked for in.
        batch: The number of the batch.
        changes: One of each document.

    Returns:
        The passes, each to be asked for AFTER those of its collection that stand before it have succeeded (`free`).
    """
    gone: dict[str, list[Value]] = {}
    there: dict[str, list[Value]] = {}
    for change in changes:
        (gone if change.is_gone else there).setdefault(change.collection, []).append(change.id)
    return (
        *(HandleDeleted(epoch, batch, collection, tuple(ids)) for collection, ids in gone.items()),
        *(HandleChanged(epoch, batch, collection, tuple(ids)) for collection, ids in there.items()),
    )


def free(left: tuple[Pass, ...]) -> tuple[Pass, ...]:
    """The passes before which no other pass of their collection stands."""
    return tuple(each for place, each in enumerate(left) if each.collection not in {e.collection for e in left[:place]})
