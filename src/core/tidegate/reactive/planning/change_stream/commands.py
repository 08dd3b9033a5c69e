"""The reports of a change stream, and the commands of its consumer.

Positions, changes and pages come from outside and check their parts. Only the consumer makes
commands.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import Value, checked, exactly, show
from tidegate.model.effects import Effect
from tidegate.model.instants import Duration, seconds
from tidegate.model.values import check_name, check_tuple, check_type

CANNOT_RESUME: Final = frozenset({260, 280, 286, 10334})
"""MongoDB's codes after which a stream cannot resume there: InvalidResumeToken,
ChangeStreamFatalError, ChangeStreamHistoryLost, and BSONObjectTooLarge, since the event that is too
large stays the next.

CappedPositionLost (136) is none: it is about a cursor that the server has overtaken, or that was
opened during truncation, not about the position. A new cursor from there gets 286 or the changes.
"""


# --- what the stream reports ------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class After:
    """After the event of this resume token (`startAfter`, which also passes an invalidation)."""

    token: Value = attrs.field(eq=exactly)

    def __attrs_post_init__(self) -> None:
        checked(self.token, "a resume token")

    def __str__(self) -> str:
        return f"after {show(self.token)}"


@final
@attrs.frozen(cache_hash=True)
class From:
    """From this cluster time on (`startAtOperationTime`)."""

    time: Value = attrs.field(eq=exactly)

    def __attrs_post_init__(self) -> None:
        checked(self.time, "a time of the cluster")

    def __str__(self) -> str:
        return f"from {show(self.time)} on"


Position: TypeAlias = After | From
POSITIONS: Final = (After, From)


@final
@attrs.frozen(cache_hash=True)
class DocumentChange:
    """A document changed.

    Attributes:
        collection: Its collection.
        id: Its id.
        is_gone: It was deleted.
    """

    collection: str
    id: Value = attrs.field(eq=exactly)
    is_gone: bool = False

    def __attrs_post_init__(self) -> None:
        check_name(self.collection, "a collection")
        checked(self.id, "the id of a document")
        check_type(self.is_gone, bool, "a flag")

    def __str__(self) -> str:
        return f"{'deleted' if self.is_gone else 'changed'} {self.collection}/{show(self.id)}"


@final
@attrs.frozen
class Page:
    """A report of the stream: these changes in order, and no others before this position."""

    changes: tuple[DocumentChange, ...]
    position: Position

    def __attrs_post_init__(self) -> None:
        check_tuple(self.changes, DocumentChange, "a change")
        check_type(self.position, POSITIONS, "a position")


@final
@attrs.frozen
class Broken:
    """The stream failed, with this code of the server; None without one."""

    code: int | None


# --- commands ---------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Locate(Effect[Position]):
    """Ask for the server's operation time, BEFORE any look."""

    epoch: int

    def __str__(self) -> str:
        return "ask where the stream stands"


@final
@attrs.frozen(cache_hash=True)
class Read(Effect["Page | Broken"]):
    """Read the stream from this position; continuing from the read position needs no new stream."""

    epoch: int
    position: Position

    def __str__(self) -> str:
        return f"read {self.position}"


@final
@attrs.frozen(cache_hash=True)
class HandleDeleted(Effect[None]):
    """Look at the records of deleted documents (`tasks.plan`, `orphans.clean_up`)."""

    epoch: int
    batch: int
    collection: str
    ids: tuple[Value, ...] = attrs.field(eq=exactly)

    def __str__(self) -> str:
        return f"handle {len(self.ids)} deleted of {self.collection} (batch {self.batch})"


@final
@attrs.frozen(cache_hash=True)
class HandleChanged(Effect[None]):
    """Look at changed documents (`tasks.plan`)."""

    epoch: int
    batch: int
    collection: str
    ids: tuple[Value, ...] = attrs.field(eq=exactly)

    def __str__(self) -> str:
        return f"handle {len(self.ids)} changed of {self.collection} (batch {self.batch})"


@final
@attrs.frozen(cache_hash=True)
class Save(Effect[None]):
    """Store the position if the lease has this epoch and the record this history; else refused."""

    epoch: int
    history: int
    position: Position

    def __str__(self) -> str:
        return f"save {self.position} (epoch {self.epoch}, history {self.history})"


@final
@attrs.frozen(cache_hash=True)
class ResetHistory(Effect[None]):
    """Begin this history if the lease has this epoch; else refused.

    One write on a record of an earlier history stores the number, which voids all progress of
    reconciliation (`reconciliation.in_history`), and removes the position. On a record of this
    history
    nothing is written.
    """

    epoch: int
    history: int

    def __str__(self) -> str:
        return f"begin history {self.history} (epoch {self.epoch})"


@final
@attrs.frozen(cache_hash=True)
class Reconcile(Effect[None]):
    """Reconcile in a run of its own, until all is done or the epoch or history is over."""

    epoch: int
    history: int

    def __str__(self) -> str:
        return f"reconcile (epoch {self.epoch}, history {self.history})"


@final
@attrs.frozen(cache_hash=True)
class Flush:
    """It is time for this batch."""

    epoch: int
    batch: int

    def __str__(self) -> str:
        return f"batch {self.batch}"


@final
@attrs.frozen(cache_hash=True)
class Again:
    """It is time for the documents that passes have left out."""

    epoch: int

    def __str__(self) -> str:
        return "look again at what was left out"


@final
@attrs.frozen(cache_hash=True)
class SaveIdle:
    """It is time to save the position without changes."""

    epoch: int

    def __str__(self) -> str:
        return "save while nothing changes"


Pass: TypeAlias = HandleDeleted | HandleChanged
Request: TypeAlias = Locate | Read | Pass | Save | ResetHistory


@final
@attrs.frozen(cache_hash=True)
class StartTimer(Effect[None]):
    """Wait for this duration in microseconds, for this purpose."""

    then: Request | Flush | Again | SaveIdle
    duration: Duration

    def __str__(self) -> str:
        return f"in {seconds(self.duration)}: {self.then}"


StreamCommand: TypeAlias = Request | Reconcile | StartTimer
