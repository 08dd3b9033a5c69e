"""Members on a document store: a life begins once, and ends once."""

from __future__ import annotations

import pytest
from tests.properties.on_documents import done, is_read_or_misuse

from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.services.members import announce, beat, begin, everybody, leave, member_of, membership_of
from tidegate.services.membership import Member
from tidegate.sim.world import CLOCK, Plain, document, perform, world_with

MEMBERS = "members"


def joined() -> Plain:
    return done(world_with({}), announce(MEMBERS, "a"), begin(MEMBERS, "a"))


def test_a_join_that_is_done_again_changes_nothing() -> None:
    """Law MP1: also when time has passed; a record without instants is not a member yet."""
    record = joined().read(document(MEMBERS, "a"))
    assert record is not None
    zero = Instant(0)
    assert member_of(record) == Member(id="a", name="a", life=1, runner=None, created=zero, joined=zero, seen=zero)
    later = done(joined().write(CLOCK, Instant(5_000)), announce(MEMBERS, "a"), begin(MEMBERS, "a"))
    assert later.read(document(MEMBERS, "a")) == record
    announced = done(world_with({}), announce(MEMBERS, "a")).read(document(MEMBERS, "a"))
    assert announced is not None
    assert membership_of((announced,), 1).members == ()


def test_whoever_has_left_is_not_a_member_again() -> None:
    """Law MP2: neither a beat nor another join brings it back."""
    left = done(joined(), leave(MEMBERS, "a"))
    for effect in (beat(MEMBERS, "a"), begin(MEMBERS, "a"), announce(MEMBERS, "a")):
        assert done(left.write(CLOCK, Instant(5_000)), effect).read(document(MEMBERS, "a")) == left.read(
            document(MEMBERS, "a")
        )
    ((_, records),) = perform(everybody(MEMBERS), left, "a")
    assert records == (left.read(document(MEMBERS, "a")),)


def test_what_is_not_a_member_is_misuse() -> None:
    """A record that lacks fields, and a name that is empty."""
    with pytest.raises(Misuse):
        member_of(Document.of({"_id": "x", "created": Instant(0)}))
    with pytest.raises(Misuse):
        _ = announce(MEMBERS, "")


def test_a_record_that_another_has_spoiled_is_read_or_misuse() -> None:
    """Whatever stands in a field, or is missing."""
    times = dict.fromkeys(("created", "joined", "seen"), Instant(0))
    assert is_read_or_misuse(member_of, Document.of(times | {"_id": "x", "departed": False}))
