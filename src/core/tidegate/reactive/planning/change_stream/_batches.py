"""The collected changes of a stream, and the passes of a batch."""

from __future__ import annotations

from tidegate.model.documents import Value, exactly
from tidegate.reactive.planning.change_stream.commands import DocumentChange, HandleChanged, HandleDeleted, Pass


def collected(before: tuple[DocumentChange, ...], more: tuple[DocumentChange, ...]) -> tuple[DocumentChange, ...]:
    """The last change of each document (collection and id), in the order of the reports."""
    last: dict[object, DocumentChange] = {}
    for change in (*before, *more):
        key = (change.collection, exactly(change.id))
        last.pop(key, None)  # a dict keeps the place of a key that is set again, and this change is now the newest
        last[key] = change
    return tuple(last.values())


def apart(
    changes: tuple[DocumentChange, ...], left: tuple[DocumentChange, ...]
) -> tuple[tuple[DocumentChange, ...], tuple[DocumentChange, ...]]:
    """The changes of other documents than the left ones, and the left ones with their last changes."""
    if not left:
        return changes, left
    names = {(each.collection, exactly(each.id)) for each in left}
    is_left = [(each.collection, exactly(each.id)) in names for each in changes]
    of_left = tuple(each for each, is_of in zip(changes, is_left, strict=True) if is_of)
    others = tuple(each for each, is_of in zip(changes, is_left, strict=True) if not is_of)
    return others, collected(left, of_left)


def passes(epoch: int, batch: int, changes: tuple[DocumentChange, ...]) -> tuple[Pass, ...]:
    """The passes of a batch: for each collection first the deleted documents, then the changed
    ones.

    Args:
        epoch: The epoch of the request.
        batch: The number of the batch.
        changes: One for each document.

    Returns:
        The passes; each is requested AFTER the earlier ones of its collection have succeeded
        (`free`).
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
    """The passes without an earlier one of their collection."""
    return tuple(each for place, each in enumerate(left) if each.collection not in {e.collection for e in left[:place]})
