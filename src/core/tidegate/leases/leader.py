"""The program of a candidate: it leads, works under an epoch, and hands over, on a document store.

`tidegate.leases.election` and `tidegate.leases.lease` decide. This program executes the candidate's
commands one by one, with one machine's clock and one document. The filter of a write lets the store
judge whether a version is old enough. The work is done in pieces: before each piece the program
checks that the candidate still leads; between pieces it renews. A piece is a user's program under
the epoch. Its targets refuse older epochs, because a leader may stall between check and write. A
lease write that matches nothing was too late, or is a second copy: the candidate reads the lease
and looks for its own request.

    seeds     {_id: key, version: 0} is a lease that was never taken; `new_lease` makes it
    a piece   any program; each write has the filter `fence < epoch + 1` and the update
              `fence := epoch` (`fenced`)

Laws
    LP1  At no instant do two candidates believe that they lead, unless a machine's clock is set
         back.
    LP2  Each take makes the next token, only takes make tokens, and each change makes one version.
    LP3  A fenced write never follows one under a newer epoch, with any stalls and any clocks.
    LP4  A candidate that reports the lease as released does not hold it.

Known not to work
    - Setting a machine's clock back lengthens its leader's belief (LP1); a monotonic clock is never
      set. The fence does not depend on clocks.
    - A piece that takes longer than the lease is done or refused, and then the candidate has
      lapsed. Make pieces smaller.
    - A piece that raises ends the program; the lease expires by itself.
    - A take that arrives after its candidate has stopped holds the lease for one TTL (LP4).
    - Exactly-once work: a crash after a piece leaves no trace except what the piece wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.leases.election import (
    Candidate,
    ElectionEvent,
    ElectionState,
    ElectionStep,
    End,
    Following,
    Leading,
    Leads,
    Look,
    Request,
    StartTimer,
    Stopped,
    StopRequested,
    Swap,
    TimerFired,
    Unanswered,
    WorkEnded,
    event_for,
)
from tidegate.leases.lease import Lease
from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Filter, Lt, OlderThan, Put, PutServerTime, Update
from tidegate.model.effects import Ambiguous, Failure, NotApplied, NotDurable, Note, Now, Program, Sleep
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import UpdateOne, check_collection, find_one, find_one_and_update, update_one
from tidegate.model.reading import needed
from tidegate.model.values import check_callable, check_int, check_name, check_type

_TOKEN: Final = Field[int]("token")
_VERSION: Final = Field[int]("version")
_HOLDER: Final = Field[str | None]("holder")
_REQUEST: Final = Field[str]("request")
_TTL: Final = Field[int]("ttl")
_STAMP: Final = Field[Instant]("stamp")
FENCE: Final = Field[int]("fence")

BELIEVES: Final = "believes that it leads until"
"""The note of a leader: when its tenure ends by its own clock; None if it does not lead."""


def new_lease(key: str) -> Document:
    """Return the record of a lease that was never taken, to insert."""
    check_name(key, "a lease")
    return Document.of({"_id": key, "version": 0})


def lease_of(record: Document | None) -> Lease | None:
    """Load a lease; None if it was never taken."""
    check_type(record, (Document, NoneType), "a document")
    if record is None or record.held(_VERSION) == 0:
        return None
    return Lease(
        needed(record, _TOKEN),
        needed(record, _VERSION),
        needed(record, _HOLDER),
        needed(record, _REQUEST),
        needed(record, _TTL),
        record.get(_STAMP),
    )


def fenced(collection: str, key: str, epoch: int, *updates: Update) -> UpdateOne:
    """Update under an epoch; 0 if a newer epoch has written there, or the document is missing.

    Raises:
        Misuse: The epoch is not a token, or an update touches the fence.
    """
    check_int(epoch, "an epoch", 1)
    return update_one(collection, AllOf((Eq(ID, key), Lt(FENCE, epoch + 1))), Put(FENCE, epoch), *updates)


Piece: TypeAlias = Callable[[int], Program[bool]]
"""A piece of work under an epoch: a program.

It returns False if a newer epoch's write refused it. A piece without a reply counts as done.
"""


@final
@attrs.frozen
class Served:
    """The candidate has stopped after this many pieces of work.

    If not `is_released`, its last request had no reply, and its lease expires.
    """

    pieces: int
    is_released: bool

    def __str__(self) -> str:
        return f"served: {self.pieces} pieces{'' if self.is_released else ', perhaps not released'}"


def _unchanged(key: str, swap: Swap) -> Filter:
    parts: tuple[Filter, ...] = (Eq(ID, key), Eq(_VERSION, swap.version))
    return AllOf((*parts, OlderThan(_STAMP, swap.stood)) if swap.stood else parts)


async def ask(collection: str, key: str, request: Request) -> Lease | Failure | None:
    """Execute a candidate's request; return the lease, None, or the failure."""
    try:
        if isinstance(request, Look):
            return lease_of(await find_one(collection, Eq(ID, key)))
        where = _unchanged(key, request)
        return lease_of(await find_one_and_update(collection, where, *_changes(request.lease)))
    except (Ambiguous, NotApplied, NotDurable) as failure:
        return failure.fresh()


def _changes(lease: Lease) -> tuple[Update, ...]:
    return (
        Put(_TOKEN, lease.token),
        Put(_VERSION, lease.version),
        Put(_HOLDER, lease.holder),
        Put(_REQUEST, lease.request),
        Put(_TTL, lease.ttl),
        PutServerTime(_STAMP),
    )


@final
@attrs.frozen
class Leader:
    """A candidate that leads until a number of pieces of work are done, and then hands over.

    Invariants: the key is not empty; 1 <= pieces. The record of the lease exists (`new_lease`).
    """

    collection: str
    key: str
    candidate: Candidate
    piece: Piece = attrs.field(repr=False)
    pieces: int

    def __attrs_post_init__(self) -> None:
        check_collection(self.collection)
        check_name(self.key, "a lease")
        check_type(self.candidate, Candidate, "a candidate")
        check_callable(self.piece, "a piece of work")
        check_int(self.pieces, "a number of pieces", 1)

    async def run(self) -> Served:
        state: ElectionState = Following()
        done = 0
        believed: Instant | None = None
        events: tuple[ElectionEvent, ...] = (TimerFired(await Now()),)
        while True:
            event = events[0]
            step = self.candidate.step(state, event)
            state, events = step.state, events[1:]
            until = self._until(state)
            if until != believed:
                believed = until
                await Note(BELIEVES, believed)
            for command in step.commands:
                if isinstance(command, End):
                    events = (*events, WorkEnded(event.at, command.epoch))  # no piece is under way here
                elif isinstance(command, (Look, Swap)):
                    reply = await ask(self.collection, self.key, command)
                    answer = event_for(command, reply, await Now())
                    assert answer is not None
                    events = (*events, answer)
            if isinstance(state, Stopped):
                return Served(done, not isinstance(event, Unanswered))
            if events:
                continue
            leads = self.candidate.leads(state, event.at)
            if isinstance(leads, Leads) and isinstance(state, Leading) and not state.is_ending:
                if done == self.pieces:
                    events = (StopRequested(event.at),)
                elif await self._done(leads.epoch):
                    done += 1
                    events = (TimerFired(await Now()),)
                else:
                    events = (WorkEnded(await Now(), leads.epoch),)
            else:
                await Sleep(_wake_in(step))
                events = (TimerFired(await Now()),)

    def _until(self, state: ElectionState) -> Instant | None:
        if not isinstance(state, Leading) or state.is_over:
            return None
        return state.tenure.since + (state.tenure.lease.ttl - self.candidate.terms.margin)

    async def _done(self, epoch: int) -> bool:
        """Do a piece; False if a newer epoch began. Never repeat one without a reply."""
        try:
            return await self.piece(epoch)
        except (Ambiguous, NotApplied, NotDurable):
            return True


def _wake_in(step: ElectionStep) -> Duration:
    """Return how long to sleep; a step ends with a timer unless another event follows (EL5)."""
    return next(command.duration for command in step.commands if isinstance(command, StartTimer))
