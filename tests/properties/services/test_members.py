from __future__ import annotations

from itertools import count, product
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted
from tests.properties.on_documents import done, is_read_or_misuse

from tidegate.model.documents import ID, Document
from tidegate.model.effects import Program
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.operations import FOUND_MAX, insert_one
from tidegate.services import members
from tidegate.services.checks import laws
from tidegate.services.members import (
    beat,
    begin,
    everybody,
    forget,
    join,
    leave,
    member_of,
    membership_of,
    new_member,
)
from tidegate.services.membership import (
    Alive,
    Departed,
    Joined,
    Member,
    Membership,
    RunnerNotAlive,
    Taken,
    liveness,
    runners,
)
from tidegate.sim.world.world import CLOCK, Plain, contents, document, perform, world_with

T = TypeVar("T")

MEMBERS = "members"


def joined() -> Plain:
    return done(world_with({}), insert_one(MEMBERS, new_member("a")), begin(MEMBERS, "a"))


def test_a_join_that_is_done_again_changes_nothing() -> None:
    """Law MP1, also later; a record without instants is no member yet."""
    record = joined().read(document(MEMBERS, "a"))
    assert record is not None
    zero = Instant(0)
    assert member_of(record) == Member(id="a", name="a", life=1, runner=None, created=zero, joined=zero, seen=zero)
    later = done(joined().write(CLOCK, Instant(5_000)), insert_one(MEMBERS, new_member("a")), begin(MEMBERS, "a"))
    assert later.read(document(MEMBERS, "a")) == record
    announced = done(world_with({}), insert_one(MEMBERS, new_member("a"))).read(document(MEMBERS, "a"))
    assert announced is not None
    assert membership_of((announced,), 1).members == ()


def test_whoever_has_left_is_not_a_member_again() -> None:
    """Law MP2, against a beat and a second join."""
    left = done(joined(), leave(MEMBERS, "a"))
    for effect in (beat(MEMBERS, "a"), begin(MEMBERS, "a"), insert_one(MEMBERS, new_member("a"))):
        assert done(left.write(CLOCK, Instant(5_000)), effect).read(document(MEMBERS, "a")) == left.read(
            document(MEMBERS, "a")
        )
    _, records = ran(left, everybody(MEMBERS))
    assert records == (left.read(document(MEMBERS, "a")),)


def test_who_is_presumed_dead_is_not_a_member_again() -> None:
    """Law MP2: a late beat changes nothing and gets no reply."""
    alive, dead = (joined().write(CLOCK, Instant(at)) for at in (4_000, 5_000))

    ((_, beaten),) = perform(beat(MEMBERS, "a", 5_000), alive, "a")
    ((after, nothing),) = perform(beat(MEMBERS, "a", 5_000), dead, "a")

    assert beaten is not None
    assert nothing is None
    assert after.read(document(MEMBERS, "a")) == joined().read(document(MEMBERS, "a"))


@pytest.mark.parametrize("back", [1_000, 2_000_000])
def test_a_member_is_read_where_the_clock_of_the_store_was_set_back(back: int) -> None:
    """Law MP3: it beats and rejoins under a primary whose clock is behind."""
    zero = Instant(0)
    failed_over = joined().write(CLOCK, Instant(-back))
    for again in (
        done(failed_over, beat(MEMBERS, "a")),
        done(failed_over, insert_one(MEMBERS, new_member("a")), begin(MEMBERS, "a")),
    ):
        record = again.read(document(MEMBERS, "a"))
        assert record is not None
        assert membership_of((record,), 1).members == (
            Member(id="a", name="a", life=1, runner=None, created=zero, joined=zero, seen=zero),
        )
    caught_up = done(done(failed_over, beat(MEMBERS, "a")).write(CLOCK, Instant(5_000)), beat(MEMBERS, "a"))
    record = caught_up.read(document(MEMBERS, "a"))
    assert record is not None
    assert membership_of((record,), 1).by_id["a"].seen == Instant(5_000)


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_whatever_the_clock_has_shown_is_a_member(created: int, since: int, seen: int) -> None:
    """Law MP3."""
    times = {"created": Instant(created * 1_000), "joined": Instant(since * 1_000), "seen": Instant(seen * 1_000)}
    found = member_of(Document.of(times | {"_id": "a", "left": None}))
    assert found is not None
    in_order = (created, max(created, since), max(created, since, seen))
    assert tuple(each.at // 1_000 for each in (found.created, found.joined, found.seen)) == in_order


def ran(world: Plain, program: Program[T]) -> tuple[Plain, T]:
    reply: object = None
    try:
        while True:
            ((after, reply),) = perform(program.send(reply), world, "a")
            assert isinstance(after, Plain)
            world = after
    except StopIteration as stopped:
        return world, stopped.value


DEAD_AFTER = 10_000


def test_the_next_life_of_a_name_takes_the_place_of_one_that_is_alive() -> None:
    """Law MP4: a restart keeps its place; the successor of a dead life goes to the end."""
    world, first = ran(world_with({}), join(MEMBERS, "a-1", DEAD_AFTER, name="a"))
    zero, five, late = Instant(0), Instant(5_000), Instant(30_000)
    one = Member(id="a-1", name="a", life=1, runner=None, created=zero, joined=zero, seen=zero)
    assert first == Joined(one)
    world, second = ran(world.write(CLOCK, five), join(MEMBERS, "a-2", DEAD_AFTER, name="a"))
    two = Member(id="a-2", name="a", life=2, runner=None, created=zero, joined=five, seen=five)
    assert second == Joined(two)
    _, again = ran(world, join(MEMBERS, "a-2", DEAD_AFTER, name="a"))
    assert again == Joined(two)
    _, third = ran(world.write(CLOCK, late), join(MEMBERS, "a-3", DEAD_AFTER, name="a"))
    assert third == Joined(Member(id="a-3", name="a", life=3, runner=None, created=late, joined=late, seen=late))
    _, taken = ran(world, join(MEMBERS, "a-1", DEAD_AFTER, name="a"))
    assert taken == Taken(one)


def test_a_worker_joins_a_runner_that_is_alive() -> None:
    """Law MP4: it goes with its runner."""
    world, _ = ran(world_with({}), join(MEMBERS, "a", DEAD_AFTER))
    world, worker = ran(world, join(MEMBERS, "w", DEAD_AFTER, runner="a"))
    assert isinstance(worker, Joined)
    assert worker.member.runner == "a"
    _, records = ran(world, everybody(MEMBERS))
    known = membership_of(records, DEAD_AFTER)
    assert [each.id for each in runners(known, Instant(0))] == ["a"]
    _, refused = ran(done(world, leave(MEMBERS, "a")), join(MEMBERS, "x", DEAD_AFTER, runner="a"))
    assert refused == RunnerNotAlive("a", Departed())


def test_everybody_is_read_however_many_there_are() -> None:
    """There are more members than two replies hold, the sought one on the last page."""
    times = dict.fromkeys(("created", "joined", "seen"), Instant(0))
    docs = tuple(Document.of({"_id": f"{number:04}", "left": None, **times}) for number in range(2 * FOUND_MAX + 1))
    world, records = ran(world_with({MEMBERS: docs}), everybody(MEMBERS))
    assert records == docs
    _, taken = ran(world, join(MEMBERS, "z", DEAD_AFTER, runner=docs[-1][ID]))
    assert isinstance(taken, Joined)


def test_who_has_been_gone_for_long_is_forgotten() -> None:
    """Law MP5: workers first, then lives in order; seen members and their runners stay."""
    world, _ = ran(world_with({}), join(MEMBERS, "a-1", DEAD_AFTER, name="a"))
    world, _ = ran(world, join(MEMBERS, "a-2", DEAD_AFTER, name="a"))
    world, _ = ran(world, join(MEMBERS, "w", DEAD_AFTER, runner="a-2"))
    world, _ = ran(world, join(MEMBERS, "b", DEAD_AFTER))
    world, _ = ran(world, join(MEMBERS, "x", DEAD_AFTER, runner="b"))
    world = done(world.write(CLOCK, Instant(DEAD_AFTER)), beat(MEMBERS, "x"))
    early, none = ran(world.write(CLOCK, Instant(2 * DEAD_AFTER - 1)), forget(MEMBERS, DEAD_AFTER, 2 * DEAD_AFTER))
    assert (none, early) == (0, world.write(CLOCK, Instant(2 * DEAD_AFTER - 1)))
    after, three = ran(world.write(CLOCK, Instant(2 * DEAD_AFTER)), forget(MEMBERS, DEAD_AFTER, 2 * DEAD_AFTER))
    assert three == 3
    _, records = ran(after, everybody(MEMBERS))
    assert {each[ID] for each in records} == {"b", "x"}


def obeys(revived: str, at: int) -> bool:
    """Check law MP5 if a late beat arrives before effect `at`."""

    def known() -> tuple[Membership, set[str]]:
        found = membership_of(contents(world, MEMBERS), DEAD_AFTER)
        return found, {each.id for each in found.members if isinstance(liveness(found, each.id, now), Alive)}

    world, _ = ran(world_with({}), join(MEMBERS, "a-1", DEAD_AFTER, name="a"))
    world, _ = ran(world, join(MEMBERS, "a-2", DEAD_AFTER, name="a"))
    world, _ = ran(world, join(MEMBERS, "w", DEAD_AFTER, runner="a-2"))
    now = Instant(9 * DEAD_AFTER)
    world = world.write(CLOCK, now)
    program, reply = forget(MEMBERS, DEAD_AFTER, DEAD_AFTER), None
    for number in count():
        if number == at:
            world = done(world, beat(MEMBERS, revived))
        before, lived = known()
        try:
            ((then, reply),) = perform(program.send(reply), world, "a")
        except StopIteration:
            return True
        assert isinstance(then, Plain)
        world = then
        after, lives = known()
        if not laws.membership.the_forgotten_were_silent(before, after, now, DEAD_AFTER) or lives != lived:
            return False
    raise AssertionError


def test_whoever_comes_to_life_and_whenever_nobody_else_does() -> None:
    for revived, at in product(("a-1", "a-2", "w"), range(7)):
        assert obeys(revived, at), (revived, at)


test_a_planted_bug_is_found = planted(
    members,
    bug(
        "who has come to life meanwhile is deleted, too",
        ("Eq(ID, who), OlderThan(SEEN, retention)):\n            break", "Eq(ID, who)):\n            break"),
        test_whoever_comes_to_life_and_whenever_nobody_else_does,
    ),
    bug(
        "behind one who has come to life it goes on",
        ("OlderThan(SEEN, retention)):\n            break", "OlderThan(SEEN, retention)):\n            continue"),
        test_whoever_comes_to_life_and_whenever_nobody_else_does,
    ),
)


def test_who_comes_to_life_while_others_are_forgotten_stays() -> None:
    """Law MP5: its delete is refused, and so are those of its possible runners."""
    world, _ = ran(world_with({}), join(MEMBERS, "a", DEAD_AFTER))
    world, _ = ran(world, join(MEMBERS, "w", DEAD_AFTER, runner="a"))
    late = world.write(CLOCK, Instant(9 * DEAD_AFTER))
    program, reply = forget(MEMBERS, DEAD_AFTER, DEAD_AFTER), None
    for _ in range(2):  # members and times
        ((_, reply),) = perform(program.send(reply), late, "a")
    revived = done(late, beat(MEMBERS, "w"))
    delete = program.send(reply)
    ((after, refused),) = perform(delete, revived, "a")
    with pytest.raises(StopIteration) as stopped:
        program.send(refused)
    assert (stopped.value.value, after) == (0, revived)


@pytest.mark.parametrize("stops", range(1, 6))
@pytest.mark.parametrize("name", [None, "a"])
def test_a_join_that_stops_half_way_is_done_again(stops: int, name: str | None) -> None:
    """Laws MP1 and MP4, after each of its writes."""
    world, _ = ran(world_with({}), join(MEMBERS, "a-1", DEAD_AFTER, name="a"))
    half, reply = join(MEMBERS, "a-2", DEAD_AFTER, name=name), None
    for _ in range(stops):
        ((after, reply),) = perform(half.send(reply), world, "a")
        assert isinstance(after, Plain)
        world = after
    half.close()
    _, whole = ran(world.write(CLOCK, Instant(5_000)), join(MEMBERS, "a-2", DEAD_AFTER, name=name))
    assert isinstance(whole, Joined)
    assert (whole.member.name, whole.member.life) == (name or "a-2", 2 if name else 1)
    assert whole.member.created == (Instant(0) if name else whole.member.joined)


def test_what_is_not_a_member_is_misuse() -> None:
    with pytest.raises(Misuse):
        member_of(Document.of({"_id": "x", "created": Instant(0), "joined": Instant(0)}))
    with pytest.raises(Misuse):
        _ = new_member("")


def test_a_record_that_another_has_spoiled_is_read_or_misuse() -> None:
    times = dict.fromkeys(("created", "joined", "seen"), Instant(0))
    named = {"_id": "x", "left": None, "name": "pod", "life": 2, "runner": "r"}
    assert is_read_or_misuse(member_of, Document.of({**times, **named}))
