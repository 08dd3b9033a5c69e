"""How a process joins, beats and leaves, and how everybody reads who is there: `membership` on a document store.

A member is one document. The store writes every instant in it by its own clock, and each write of one's own record
replies what the store's clock showed: so a process knows the time that judges for all without a clock of its own.

    join    insert the record without instants, then let the store write them: done again, both change nothing
    beat    the store writes `seen`; a member that has left does not beat
    leave   the store writes `left`, once

Laws
    MP1  A join that is done again, after a lost reply, changes nothing: a life begins once.
    MP2  Who has left is not a member again.
    MP3  What these commands have written is a member, also where the store's clock was set back in between.

Known not to work: see `tidegate.services.membership`. A beat that is under way for as long as its sender is silent
makes it alive again: there is no `younger than` in a filter.
"""

from __future__ import annotations

from typing import Final

from tidegate.model.documents import ID, AllOf, Document, Eq, Field, PutServerTime
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import FindAll, FindOneAndUpdate, InsertOne, find_all, find_one_and_update, insert_one
from tidegate.model.reading import needed
from tidegate.model.values import check_name, check_tuple, check_type
from tidegate.services.membership import Member, Membership

__all__ = ["SEEN", "announce", "beat", "begin", "everybody", "leave", "member_of", "membership_of"]

_CREATED: Final = Field[Instant]("created")
_JOINED: Final = Field[Instant]("joined")
SEEN: Final = Field[Instant]("seen")
_LEFT: Final = Field[Instant]("left")
_STAYS: Final = Eq(Field[Instant | None](_LEFT.name), None)

_MEMBERS_MAX: Final = 1_000


def member_of(record: Document) -> Member | None:
    """The member that a record holds; None if the store has not written when it joined.

    A primary whose clock is behind that of the last one writes instants that come before those that are there. Each
    counts as no earlier than the one that it followed.

    Raises:
        Misuse: It is not the record of a member.
    """
    check_type(record, Document, "a record")
    created = record.get(_CREATED)
    if created is None:
        return None
    who = needed(record, ID)
    joined, left = _no_earlier(created, needed(record, _JOINED)), record.get(_LEFT)
    return Member(
        id=who,
        name=who,
        life=1,
        runner=None,
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


def announce(collection: str, who: str) -> InsertOne:
    """The first step of a join: where the id is taken, it was done before."""
    check_name(who, "a member")
    return insert_one(collection, Document.of({"_id": who, "left": None}))


def begin(collection: str, who: str) -> FindOneAndUpdate:
    """The second step of a join: the store writes when it was, once."""
    where = AllOf((Eq(ID, who), Eq(Field[Instant | None](_CREATED.name), None), _STAYS))
    return find_one_and_update(collection, where, PutServerTime(_CREATED), PutServerTime(_JOINED), PutServerTime(SEEN))


def beat(collection: str, who: str) -> FindOneAndUpdate:
    """A beat; it replies the record, whose `seen` is what the store's clock shows, or None for who has left."""
    return find_one_and_update(collection, AllOf((Eq(ID, who), _STAYS)), PutServerTime(SEEN))


def leave(collection: str, who: str) -> FindOneAndUpdate:
    """To leave, AFTER the work has ended."""
    return find_one_and_update(collection, AllOf((Eq(ID, who), _STAYS)), PutServerTime(_LEFT))


def everybody(collection: str) -> FindAll:
    """All records of members."""
    return find_all(collection, limit=_MEMBERS_MAX)
