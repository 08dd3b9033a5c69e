"""Membership on a document store: how a process joins, beats, leaves and reads the members.

A member is one document. The store writes every instant in it by its own clock, and each write
returns the store's time.

    join    insert the record (`new_member`) without instants, then let the store write them; both
            are idempotent. With a lasting name, or as a worker, read the members first (`join`)
    beat    the store writes `seen`, unless the member has left or is presumed dead
    leave   the store writes `left`, once
    forget  delete long-gone members one by one, in the order of `forgettable`, each if still gone

A write that matches nothing was done before, or concerns a member that has left.

Laws
    MP1  Repeating a join after a lost reply is harmless: a life begins once.
    MP2  A member that left or is presumed dead is never a member again, however late its beats
         arrive.
    MP3  These commands write valid members, even if the store's clock was set back in between.
    MP4  A process that joins under a name is the name's next life, in the place of a living one. A
         worker joins a runner that is alive.
    MP5  A deleted member has been silent for the retention at that time. Deleting revives no
         member, wherever a pass stops.

Known not to work: see `tidegate.services.membership`. If two processes join at once under a name,
the one with the greater id counts. The other learns it when it reads the members. A join abandoned
before the store wrote its instants leaves a record of no member, for ever.
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
    """Load a member; None if the store has not written when it joined.

    After a failover, a primary with a slower clock may write an instant before an earlier one. Each
    instant therefore counts as no earlier than the one it followed.
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
    """Load all members."""
    check_tuple(records, Document, "a record")
    members = (member_of(record) for record in records)
    return Membership(tuple(member for member in members if member is not None), dead_after)


async def join(
    collection: str, who: str, dead_after: Duration, *, name: str | None = None, runner: str | None = None
) -> Joined | Taken | RunnerNotAlive:
    """Join under a lasting name, or as a worker: a program. Repeat it after a lost reply.

    Args:
        collection: The collection of the members.
        who: The id, new for this life.
        dead_after: The silence after which a member is presumed dead, in microseconds; the same for
            all.
        name: The name that its lives share; None if it has none.
        runner: For a worker, the id of its runner.

    Returns:
        `Joined` with the member as stored, or why it has not joined.

    Raises:
        Failure: There was no reply, or the store refused.
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
    """The second step of a join that takes over the place of a former life."""
    where = AllOf((Eq(ID, who), Eq(Field[Instant | None](_JOINED.name), None), _STAYS))
    return find_one_and_update(collection, where, PutServerTime(_JOINED), PutServerTime(SEEN))


def new_member(who: str) -> Document:
    """Return the record that the first step of a join inserts (`insert_new`)."""
    check_name(who, "a member")
    return Document.of({"_id": who, "left": None})


def begin(collection: str, who: str) -> FindOneAndUpdate:
    """The second step of a join: the store writes the instants, once."""
    where = AllOf((Eq(ID, who), Eq(Field[Instant | None](_CREATED.name), None), _STAYS))
    return find_one_and_update(collection, where, PutServerTime(_CREATED), PutServerTime(_JOINED), PutServerTime(SEEN))


def beat(collection: str, who: str, dead_after: Duration | None = None) -> FindOneAndUpdate:
    """Beat; return the record, with the store's time in `seen`. None if it left or is presumed
    dead.

    `dead_after` is in microseconds, the same for all; None if the member also beats elsewhere.
    """
    stays = () if dead_after is None else (Not(OlderThan(SEEN, dead_after)),)
    return find_one_and_update(collection, AllOf((Eq(ID, who), _STAYS, *stays)), PutServerTime(SEEN))


def leave(collection: str, who: str) -> FindOneAndUpdate:
    return find_one_and_update(collection, AllOf((Eq(ID, who), _STAYS)), PutServerTime(_LEFT))


def everybody(collection: str) -> Program[tuple[Document, ...]]:
    return find_every(collection)


async def forget(collection: str, dead_after: Duration, retention: Duration) -> int:
    """Delete members that have been gone for long, and return how many: a program.

    It stops if a member came back, or another process deletes; the next pass continues.

    Args:
        collection: The collection of the members.
        dead_after: The silence after which a member is presumed dead, in microseconds; the same for
            all.
        retention: The silence after which to delete, in microseconds; at least `dead_after`, and a
            cycle of the atomic service more.

    Raises:
        Failure: There was no reply, or the store refused.
    """
    known = membership_of(await everybody(collection), dead_after)
    forgotten = 0
    for who in forgettable(known, await StoreTime(), retention):
        if not await delete_one(collection, Eq(ID, who), OlderThan(SEEN, retention)):
            break
        forgotten += 1
    return forgotten
