"""Who leads, does its work under an epoch, and hands over: a candidate on a document store.

What is decided is in `tidegate.leases.election` and `tidegate.leases.lease`: the candidate is a reducer, and this program
carries its commands out, one after the other, with one machine's clock and one document. The store judges in the filter of
the write whether a version has stood for long enough, by its own clock. The work is done in pieces, and before each of them
the candidate is asked whether it still leads; between them it renews. A piece is a program of the user's, under the epoch;
what it writes to refuses older ones, for whoever has asked may stall before it writes. A write of the lease that matches
nothing was too late, or is the second copy of one that was done: the candidate looks again, and finds its own request there
or not.

    seeds     {_id: key, version: 0} is a lease that nobody ever took; `new_lease` inserts it
    a piece   any program; each write of it with the filter `fence < epoch + 1` and the update `fence := epoch` (`fenced`)

Laws
    LP1  At no instant do two believe that they lead, by their own clocks, as long as none of these is set back.
    LP2  Each take makes the next token, nothing else makes one, and each change makes one version.
    LP3  What is written under an epoch (`fenced`) is never written after a newer one, whoever stalls and whatever clocks
         show.
    LP4  A candidate that says that it has released the lease does not hold it.

Known not to work
    - A machine's clock that is set back lengthens the time for which its leader believes that it leads (LP1); a monotonic clock is not set. The
      fence does not look at clocks (LP3).
    - A piece that takes longer than the lease: it is done, or refused, and then the candidate has lapsed. Make it smaller.
    - A piece that raises ends the program; the lease runs out by itself.
    - A take that arrives after its candidate has stopped holds the lease for one TTL (LP4).
    - Work that must not be done twice at all: a crash after a piece is done leaves no trace but what the piece has written.
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
"""The note of a leader: the end of its tenure by its own clock, unless it renews; None once it does not lead."""


def new_lease(key: str) -> Document:
    """The record of a lease that nobody ever took, to insert: where the id is taken, another did.

    Raises:
        Misuse: The key is empty or no string.
    """
    check_name(key, "a lease")
    return Document.of({"_id": key, "version": 0})


def lease_of(record: Document | None) -> Lease | None:
    """The lease that a record holds; None if it was never taken.

    Raises:
        Misuse: It is not the record of a lease.
    """
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
    """An update under an epoch: it replies 0 if a newer epoch has written there, or if there is no such document.

    Args:
        collection: Where the document is.
        key: Its id.
        epoch: The token of the lease.
        updates: What else is written; not the fence.

    Raises:
        Misuse: The epoch is not a token, or an update touches the fence.
    """
    check_int(epoch, "an epoch", 1)
    return update_one(collection, AllOf((Eq(ID, key), Lt(FENCE, epoch + 1))), Put(FENCE, epoch), *updates)


Piece: TypeAlias = Callable[[int], Program[bool]]
"""A piece of work under an epoch: a program. False if it was refused, because a newer epoch has written there; one that has
no answer counts as done."""


@final
@attrs.frozen
class Served:
    """The candidate has come to its end.

    Attributes:
        pieces: How many pieces of work it has done.
        is_released: It holds nothing. Else its last request had no answer, and what it holds is left to its TTL.
    """

    pieces: int
    is_released: bool

    def __str__(self) -> str:
        return f"served: {self.pieces} pieces{'' if self.is_released else ', perhaps not released'}"


def _unchanged(key: str, swap: Swap) -> Filter:
    """The record is still at the version that was read, and has been for long enough."""
    parts: tuple[Filter, ...] = (Eq(ID, key), Eq(_VERSION, swap.version))
    return AllOf((*parts, OlderThan(_STAMP, swap.stood)) if swap.stood else parts)


async def ask(collection: str, key: str, request: Request) -> Lease | Failure | None:
    """What the store answers to a request of a candidate: the lease, or None; or why nobody knows.

    Args:
        collection: Where the leases are.
        key: The lease's id.
        request: What the candidate asks for.
    """
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

    Invariants: the key is not empty; 1 <= pieces.

    Attributes:
        collection: Where the leases are.
        key: The lease's id; its record is there (`new_lease`).
        candidate: Who wants to lead, and on which terms.
        piece: A piece of its work.
        pieces: How many there are to do.
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
        """The program."""
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
                    events = (*events, WorkEnded(event.at, command.epoch))  # no piece of it is under way here
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
        """Until when it believes that it leads, by its own clock."""
        if not isinstance(state, Leading) or state.is_over:
            return None
        return state.tenure.since + (state.tenure.lease.ttl - self.candidate.terms.margin)

    async def _done(self, epoch: int) -> bool:
        """One piece of work; False if a newer epoch has begun. One without an answer counts as done: it is not repeated."""
        try:
            return await self.piece(epoch)
        except (Ambiguous, NotApplied, NotDurable):
            return True


def _wake_in(step: ElectionStep) -> Duration:
    """For how long to sleep; at the end of a step there is a timer, or something else to do (EL5)."""
    return next(command.duration for command in step.commands if isinstance(command, StartTimer))
