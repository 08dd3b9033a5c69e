"""What a stream of changes reports, and what its consumer asks of the world.

Positions, changes and pages come from outside, and check what they are made of. Commands are made by the consumer alone.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import Value, checked, exactly, show
from tidegate.model.effects import Effect
from tidegate.model.instants import Duration, seconds
from tidegate.model.values import check_name, check_tuple, check_type

CANNOT_RESUME: Final = frozenset({260, 280, 286, 10334})
"""MongoDB's codes after which a stream never goes on from that position: InvalidResumeToken, ChangeStreamFatalError,
ChangeStreamHistoryLost, and BSONObjectTooLarge, for the event that is too large is still the next.

CappedPositionLost (136) is none: it is said of a cursor that the server has overtaken, or that was opened while it was cutting
off, and not of the position. Whoever opens another one from there is told the truth of that: 286, or what has happened."""


# --- what the stream reports ------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class After:
    """After the event of this resume token (`startAfter`, which goes on behind an invalidation as well)."""

    token: Value = attrs.field(eq=exactly)

    def __attrs_post_init__(self) -> None:
        checked(self.token, "a resume token")

    def __str__(self) -> str:
        return f"after {show(self.token)}"


@final
@attrs.frozen(cache_hash=True)
class From:
    """From this time of the cluster on (`startAtOperationTime`)."""

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
    """Something happened to a document.

    Attributes:
        collection: Where it is, or was.
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
    """What a stream reported: these changes, in order, and there are no others before this position."""

    changes: tuple[DocumentChange, ...]
    position: Position

    def __attrs_post_init__(self) -> None:
        check_tuple(self.changes, DocumentChange, "a change")
        check_type(self.position, POSITIONS, "a position")


@final
@attrs.frozen
class Broken:
    """The stream has failed, with this code of the server; None where it gave none."""

    code: int | None


# --- commands ---------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Locate(Effect[Position]):
    """Ask where the stream stands now: the server's operation time, read BEFORE anything is looked at."""

    epoch: int

    def __str__(self) -> str:
        return "ask where the stream stands"


@final
@attrs.frozen(cache_hash=True)
class Read(Effect["Page | Broken"]):
    """Read what the stream reports from this position on; reading on from where it was read to needs no new stream."""

    epoch: int
    position: Position

    def __str__(self) -> str:
        return f"read {self.position}"


@final
@attrs.frozen(cache_hash=True)
class HandleDeleted(Effect[None]):
    """Look at the records of documents that were deleted (`tasks.plan`, `orphans.clean_up`)."""

    epoch: int
    batch: int
    collection: str
    ids: tuple[Value, ...] = attrs.field(eq=exactly)

    def __str__(self) -> str:
        return f"handle {len(self.ids)} deleted of {self.collection} (batch {self.batch})"


@final
@attrs.frozen(cache_hash=True)
class HandleChanged(Effect[None]):
    """Look at documents that have changed (`tasks.plan`)."""

    epoch: int
    batch: int
    collection: str
    ids: tuple[Value, ...] = attrs.field(eq=exactly)

    def __str__(self) -> str:
        return f"handle {len(self.ids)} changed of {self.collection} (batch {self.batch})"


@final
@attrs.frozen(cache_hash=True)
class Save(Effect[None]):
    """Store the position, if the lease is still of this epoch and the record of this history; refused if it is not."""

    epoch: int
    history: int
    position: Position

    def __str__(self) -> str:
        return f"save {self.position} (epoch {self.epoch}, history {self.history})"


@final
@attrs.frozen(cache_hash=True)
class ResetHistory(Effect[None]):
    """Begin this history, if the lease is still of this epoch; refused if it is not.

    In one write, on a record of an earlier history: store its number, by which nothing counts that reconciliation knows
    (`reconciliation.in_history`), and remove the position. On a record of this history that has been done, and nothing is written.
    """

    epoch: int
    history: int

    def __str__(self) -> str:
        return f"begin history {self.history} (epoch {self.epoch})"


@final
@attrs.frozen(cache_hash=True)
class Reconcile(Effect[None]):
    """Reconcile what is not reconciled, as a run of its own: until all is, or until the epoch or the history is over."""

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
    """It is time to look again at the documents that passes have left out."""

    epoch: int

    def __str__(self) -> str:
        return "look again at what was left out"


@final
@attrs.frozen(cache_hash=True)
class SaveIdle:
    """It is time to save the position although nothing changes."""

    epoch: int

    def __str__(self) -> str:
        return "save while nothing changes"


Pass: TypeAlias = HandleDeleted | HandleChanged
Request: TypeAlias = Locate | Read | Pass | Save | ResetHistory


@final
@attrs.frozen(cache_hash=True)
class StartTimer(Effect[None]):
    """Wait for this duration, in microseconds: then it is time for this."""

    then: Request | Flush | Again | SaveIdle
    duration: Duration

    def __str__(self) -> str:
        return f"in {seconds(self.duration)}: {self.then}"


StreamCommand: TypeAlias = Request | Reconcile | StartTimer
