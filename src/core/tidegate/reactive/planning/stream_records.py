"""How far the consumer of a stream is: one document, written under the epoch of its lease and its history.

    {_id, epoch, history, after | from, progress}

The commands of `tidegate.reactive.planning.change_stream` that write it are programs here, each of which may be done again:

    take_over        under a new epoch: those before it write nothing any more; and what is stored, read in the same request
    save             a position, if the epoch and the history are still these
    reset_history    the next history: no position, and nothing is reconciled, for `progress` is of the one before

`progress` is that of `tidegate.reactive.planning.reconciler`, which writes it under the same guard.

Laws
    SR1  Of epochs that take over, each is higher than all before it; what is written under one is never written after a later
         one has taken over.
    SR2  A position is stored beside the history that it is of: the write that begins a history removes the position before.
"""

from __future__ import annotations

from typing import Final

from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Ge, Lt, Not, Put, Remove, Update, Value
from tidegate.model.effects import Refused
from tidegate.model.errors import Misuse, shown
from tidegate.model.operations import check_collection, find_one, find_one_and_update, update_one
from tidegate.model.programs import insert_new
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_type
from tidegate.reactive.planning.change_stream import After, Elected, From, Position, ResetHistory, Save
from tidegate.reactive.planning.change_stream.commands import POSITIONS
from tidegate.reactive.planning.reconciler import EPOCH, HISTORY

AFTER: Final = Field[Value]("after")
FROM: Final = Field[Value]("from")
_FENCED: Final = "another epoch or history is stored"


def new_stream(stream: str) -> Document:
    """The record of a stream that nobody has consumed, to insert.

    Args:
        stream: Its id.
    """
    check_name(stream, "a stream")
    return Document.of({ID.name: stream, EPOCH.name: 0, HISTORY.name: 0})


def position_of(record: Document) -> Position | None:
    """The position that a record holds; None before the first, and after a history is lost."""
    check_type(record, Document, "the record of a stream")
    if record.has(AFTER):
        return After(record[AFTER])
    return From(record[FROM]) if record.has(FROM) else None


async def take_over(streams: str, stream: str, epoch: int) -> Elected | None:
    """Take the record over under a new epoch, AFTER its lease was taken.

    Args:
        streams: The collection of the record.
        stream: Its id; the record is made where there is none.
        epoch: That of the lease.

    Returns:
        What the consumer is told, with what is stored; None where a higher epoch has taken over.

    Raises:
        Misuse: What is stored under its id has no epoch, so that nobody could ever take it over.
    """
    check_collection(streams)
    check_name(stream, "a stream")
    check_int(epoch, "an epoch", 1)
    older = AllOf((Eq(ID, stream), Lt(EPOCH, epoch + 1)))
    record = await find_one_and_update(streams, older, Put(EPOCH, epoch))
    if record is None:
        if await insert_new(streams, new_stream(stream)):
            record = await find_one_and_update(streams, older, Put(EPOCH, epoch))
        elif await find_one(streams, AllOf((Eq(ID, stream), Not(Ge(EPOCH, 0)))), fields=(EPOCH,)):
            raise Misuse(
                f"the document {shown(stream)} of {streams} is no record of a stream: it has no epoch",
                why="somebody else has written there",
                todo="delete it: then every document is looked at again, and only what differs is handled",
            )
    return None if record is None else Elected(epoch, needed(record, HISTORY), position_of(record))


async def save(streams: str, stream: str, command: Save) -> None:
    """Store a position.

    Args:
        streams: The collection of the record.
        stream: Its id.
        command: Which position, under which epoch, of which history.

    Raises:
        Refused: Another epoch has taken over, or another history has begun.
    """
    where = AllOf((Eq(ID, stream), Eq(EPOCH, command.epoch), Eq(HISTORY, command.history)))
    if not await update_one(streams, where, *stored_position(command.position)):
        raise Refused(_FENCED)


async def reset_history(streams: str, stream: str, command: ResetHistory) -> None:
    """Begin a history.

    Args:
        streams: The collection of the record.
        stream: Its id.
        command: Which history, under which epoch.

    Raises:
        Refused: Another epoch has taken over, or a later history has begun.
    """
    older = AllOf((Eq(ID, stream), Eq(EPOCH, command.epoch), Lt(HISTORY, command.history)))
    if await update_one(streams, older, Put(HISTORY, command.history), Remove(AFTER), Remove(FROM)):
        return
    record = await find_one(streams, Eq(ID, stream))
    if record is None or (needed(record, EPOCH), needed(record, HISTORY)) != (command.epoch, command.history):
        raise Refused(_FENCED)


def stored_position(position: Position) -> tuple[Update, ...]:
    """What stores a position in the record."""
    check_type(position, POSITIONS, "a position")
    if isinstance(position, After):
        return Put(AFTER, position.token), Remove(FROM)
    return Put(FROM, position.time), Remove(AFTER)
