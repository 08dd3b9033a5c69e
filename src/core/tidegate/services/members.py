"""How a process joins, beats and leaves, and how everybody reads who is there: `membership` on a document store.

A member is one document. The store writes every instant in it by its own clock, and each write of one's own record
replies what the store's clock showed: so a process knows the time that judges for all without a clock of its own.

    join    insert the record (`new_member`) without instants, then let the store write them: done again, both change
            nothing. Under a lasting name, or as a worker, first read who is there (`join`)
    beat    the store writes `seen`, unless the member has left, or was silent for so long that it is presumed dead
    leave   the store writes `left`, once
    forget  delete those who have been gone for long, one by one, in the order of `forgettable`, each if it is still so

What matches nothing was done before, or is of one that has left, and to do it again changes nothing either: a beat replies
None then, and `join` reads the member back.

Laws
    MP1  A join that is done again, after a lost reply, changes nothing: a life begins once.
    MP2  Who has left, or was silent for so long that it is presumed dead, is not a member again, however late its beats come.
    MP3  What these commands have written is a member, also where the store's clock was set back in between.
    MP4  Who joins under a name is the next life of it, in the place of one that is alive; a worker joins a runner that is.
    MP5  Whose record is deleted has been silent for so long when it is, and nobody comes to life by it, wherever a pass stops.

Known not to work: see `tidegate.services.membership`. Of two that join at once under a name, the one with the greater id
counts, and the other learns it when it reads who is there; a beat of it is taken. A join that broke off for good before the store
wrote its instants leaves a record that is of no member, and stays.
"""

from __future__ import annotations

from typing import Final

from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Not, OlderThan, PutServerTime
from tidegate.model.effects import Program
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import (
    FindOneAndUpdate,
    StoreTime,
    delete_one,
    find_one,
    find_one_and_update,
)
from tidegate.model.programs import find_every, insert_new
from tidegate.model.reading import needed
from tidegate.model.values import check_name, check_tuple, check_type
from tidegate.services.membership import Alive, Joined, Member, Membership, RunnerNotAlive, Taken, forgettable, liveness
from tidegate.services.membership import join as joining

_CREATED: Final = Field[Instant]("created")
_NAME: Final = Field[str]("name")
_LIFE: Final = Field[int]("life")
_RUNNER: Final = Field[str | None]("runner")
_JOINED: Final = Field[Instant]("joined")
SEEN: Final = Field[Instant]("seen")
_LEFT: Final = Field[Instant]("left")
_STAYS: Final = Eq(Field[Instant | None](_LEFT.name), None)


def member_of(record: Document) -> Member | None:
    """The member that a record holds; None if the store has not written when it joined.

    A primary whose clock is behind that of the last one writes instants that come before those that are there. Each
    counts as no earlier than the one that it followed.

    Raises:
        Misuse: It is not the record of a member.
    """
    check_type(record, Document, "a record")
    created, since = record.get(_CREATED), record.get(_JOINED)
    if created is None or since is None:
        return None
    who = needed(record, ID)
    joined, left = _no_earlier(created, since), record.get(_LEFT)
    return Member(
        id=who,
        name=record[_NAME] if record.has(_NAME) else who,
        life=record[_LIFE] if record.has(_LIFE) else 1,
        runner=record.get(_RUNNER),
        created=created,
        joined=joined,
        seen=_no_earlier(joined, needed(record, SEEN)),
        left=None if left is None else _no_earlier(joined, left),
    )


def _no_earlier(than: Instant, found: Instant) -> Instant:
    for each in (than, found):
        check_type(each, Instant, "an instant")
    return found if found - than > 0 else than


def membership_of(records: tuple[Document, ...], dead_after: Duration) -> Membership:
    """All members.

    Raises:
        Misuse: A record is not of a member.
    """
    check_tuple(records, Document, "a record")
    members = (member_of(record) for record in records)
    return Membership(tuple(member for member in members if member is not None), dead_after)


async def join(
    collection: str, who: str, dead_after: Duration, *, name: str | None = None, runner: str | None = None
) -> Joined | Taken | RunnerNotAlive:
    """Join under a lasting name, or as a worker: a program, to be done again where there was no reply.

    Args:
        collection: Where the members are.
        who: Its id, made anew for this life.
        dead_after: After how much silence one is presumed dead, in microseconds; the same for all who ask.
        name: The name that its lives have in common; None if it has none.
        runner: Of a worker, the id of its runner.

    Returns:
        `Joined` with the member as the store has it, or why it has not joined.

    Raises:
        Misuse: An id or a name is empty or no string, or a record is not of a member.
        Failure: There was no answer, or the store refused.
    """
    known = membership_of(await everybody(collection), dead_after)
    answer = joining(known, who, await StoreTime(), name=name, runner=runner)
    if not isinstance(answer, Joined):
        return answer
    member = answer.member
    place = (("name", member.name), ("life", member.life), ("runner", member.runner))
    record = Document((*new_member(who).items, *place))
    takes_over = member.life > 1 and isinstance(liveness(known, known.latest[member.place].id, member.joined), Alive)
    await insert_new(collection, record.put(_CREATED, member.created) if takes_over else record)
    await begin(collection, who)
    await _take_over(collection, who)
    found = await find_one(collection, Eq(ID, who))
    there = None if found is None else member_of(found)
    return answer if there is None else Joined(there)


def _take_over(collection: str, who: str) -> FindOneAndUpdate:
    """The second step of a join where the place in the order was there before."""
    where = AllOf((Eq(ID, who), Eq(Field[Instant | None](_JOINED.name), None), _STAYS))
    return find_one_and_update(collection, where, PutServerTime(_JOINED), PutServerTime(SEEN))


def new_member(who: str) -> Document:
    """What the first step of a join inserts, unless it is there (`insert_new`): then it was done before."""
    check_name(who, "a member")
    return Document.of({"_id": who, "left": None})


def begin(collection: str, who: str) -> FindOneAndUpdate:
    """The second step of a join: the store writes when it was, once."""
    where = AllOf((Eq(ID, who), Eq(Field[Instant | None](_CREATED.name), None), _STAYS))
    return find_one_and_update(collection, where, PutServerTime(_CREATED), PutServerTime(_JOINED), PutServerTime(SEEN))


def beat(collection: str, who: str, dead_after: Duration | None = None) -> FindOneAndUpdate:
    """A beat; it replies the record, whose `seen` is what the store's clock shows, or None for who is no member any more: it
    has left, or was silent for so long that it is presumed dead.

    Args:
        collection: Where the members are.
        who: Its id.
        dead_after: After how much silence one is presumed dead, in microseconds; the same for all who ask. None for a beat of
            whoever beats somewhere else as well.
    """
    stays = () if dead_after is None else (Not(OlderThan(SEEN, dead_after)),)
    return find_one_and_update(collection, AllOf((Eq(ID, who), _STAYS, *stays)), PutServerTime(SEEN))


def leave(collection: str, who: str) -> FindOneAndUpdate:
    """To leave, AFTER the work has ended."""
    return find_one_and_update(collection, AllOf((Eq(ID, who), _STAYS)), PutServerTime(_LEFT))


def everybody(collection: str) -> Program[tuple[Document, ...]]:
    """All records of members, however many."""
    return find_every(collection)


async def forget(collection: str, dead_after: Duration, retention: Duration) -> int:
    """Delete the records of those who have been gone for long: a program. It stops where one has come to life again, or somebody
    else deletes: the next pass goes on.

    Args:
        collection: Where the members are.
        dead_after: After how much silence one is presumed dead, in microseconds; the same for all who ask.
        retention: For how long they must have been silent; from `dead_after` on, and a cycle of the atomic service more.

    Returns:
        How many were deleted.

    Raises:
        Misuse: The retention is too short, or a record is not of a member.
        Failure: There was no answer, or the store refused.
    """
    known = membership_of(await everybody(collection), dead_after)
    forgotten = 0
    for who in forgettable(known, await StoreTime(), retention):
        if not await delete_one(collection, Eq(ID, who), OlderThan(SEEN, retention)):
            break
        forgotten += 1
    return forgotten
