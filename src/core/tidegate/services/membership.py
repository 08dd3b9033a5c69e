"""Decides which members are alive, and in which order they take part.

This is a failure detector by heartbeats (Chandra and Toueg 1996, "Unreliable failure detectors for
reliable distributed systems"): a member that beats is alive; one silent for `dead_after` is
presumed dead. Only the store's clock judges. `tidegate.services.atomic_service` takes the ordered
list of runners at the start of a cycle.

A process joins under an id that is new for this life, and then beats. Runners have workers: threads
or processes that own what they work on. A worker beats for itself, or its runner beats for it, and
never takes part in the atomic service. A gone member never returns; it joins again under a new id.
So decisions about the dead stay true.

A process with a fixed place (a pod of a stateful set, a host and a number) joins under that name.
The next process under the name is its next life, like a static member of a Kafka group (KIP-345).
Lives are numbered and the highest number counts, so no clock decides between two. If the former
life still seems alive, the next one takes over its place in the order: a restart moves no other
runner. Still, its stabilisation counts from when it joined.

    Alive       beat less than `dead_after` ago
    Silent      did not: presumed dead from then on
    Departed    said so, AFTER its work and its workers had ended
    Replaced    the name has a later life
    Orphaned    a worker whose runner has departed or was replaced
    Unseen      there is no such member: not yet, or no more

Laws
    M1  A member that beat less than `dead_after` ago, did not depart and was not replaced (nor did
        or was its runner) is alive.
    M2  A gone member stays gone, whatever comes after.
    M3  The runners are the living ones, each once, one per name, and no worker.
    M4  They are ordered by creation, then name. Of two that stay, none overtakes the other,
        whichever members beat, join or go.
    M5  A restart under a name that seems alive puts the new id in the place of the old one, and
        changes nothing else.
    M6  A forgettable member is gone. Deleting them one by one, in order, changes no other member's
        state.
    M7  The list of an instant is fixed from then on: later joins, leaves and silences change no
        place in it, and a restart only the id. So a whole cycle has one list, that of its start.

Known not to work
    - A stalled process is presumed dead and may go on. Its writes carry owner and version, so the
      store refuses them.
    - A restart without a name is a newcomer, and its ghost holds a slot until it is silent. So does
      a named one if no process joins under its name.
    - Names are shared by all runners, or by all workers: the second worker called "1" replaces the
      first, of any runner. Put the runner's name into a worker's lasting name.
    - Two readers at the exact instant that they ask about may see different lists. So may readers
      before and after the deletion of a member that was in the list (keep records for `dead_after`
      and a cycle), or before and after a restart decided by an old list.
    - A beat in flight while its sender falls silent revives it, unless the write is filtered on
      silence (`tidegate.services.members.beat` is).
    - A store whose clock leaps forward (a failover to a node that is ahead) silences all members at
      once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, Duration, Instant
from tidegate.model.values import check_int, check_name, check_type, check_types
from tidegate.services.atomic_service import Runner

DEAD_AFTER: Final[Duration] = 10 * MINUTE


# --- values ---------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Member:
    """One life of a runner or of a worker.

    Invariants: the id and the name are not empty; 1 <= life; created <= joined <= seen and joined
    <= left, on one clock; no worker of itself.

    Attributes:
        id: The id, used for this life only; the member owns its work under this id.
        name: The name shared by all its lives, and no other runner, or worker; by default the id.
        life: The number of this life of the name.
        runner: For a worker, the id of its runner; None for a runner.
        created: Since when it has its place in the order; before `joined` if it took the place
            over.
        seen: When it last beat.
    """

    id: str
    name: str
    life: int
    runner: str | None
    created: Instant
    joined: Instant
    seen: Instant
    left: Instant | None = None

    def __attrs_post_init__(self) -> None:
        check_name(self.id, "a member")
        check_name(self.name, "a member")
        check_int(self.life, "the number of a life", 1)
        if self.runner is not None:
            check_name(self.runner, "a runner")
        if self.runner == self.id:
            raise Misuse(f"{self.id!r} cannot be a worker of itself", todo="a runner has no runner")
        left = self.seen if self.left is None else self.left
        for each in (self.created, self.joined, self.seen, left):
            check_type(each, Instant, "an instant")
        if self.joined - self.created < 0 or self.seen - self.joined < 0 or left - self.joined < 0:
            raise Misuse(f"{self.id!r} was seen before it was there", why="created <= joined <= seen, joined <= left")

    @property
    def place(self) -> tuple[bool, str]:
        """What its lives share; a worker is never the next life of a runner."""
        return self.runner is not None, self.name


@final
@attrs.frozen
class Membership:
    """All stored members, one per life, the dead included, in any order.

    Invariants: ids are distinct; all instants are of one clock; 1 <= dead_after.

    Attributes:
        dead_after: The silence after which a member is presumed dead, in microseconds; the same for
            all.
    """

    members: tuple[Member, ...] = ()
    dead_after: Duration = DEAD_AFTER
    by_id: Mapping[str, Member] = attrs.field(init=False, eq=False, repr=False)
    latest: Mapping[tuple[bool, str], Member] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        check_type(self.members, tuple, "a tuple of members")
        check_types(self.members, Member, "a member")
        check_int(self.dead_after, "a time of silence in microseconds", 1)
        by_id = {member.id: member for member in self.members}
        if len(by_id) != len(self.members):
            raise Misuse("two members have one id", why="an id is used for one life only")
        if len({member.seen.clock for member in self.members}) > 1:
            raise Misuse("members were seen on different clocks", why="two clocks are never compared")
        object.__setattr__(self, "by_id", by_id)
        # Of the lives of a name the highest number comes last, and so it stays.
        object.__setattr__(self, "latest", {member.place: member for member in sorted(self.members, key=_by_life)})


@final
@attrs.frozen
class Alive:
    """The member has beaten, and is alive at least until then."""

    until: Instant

    def __str__(self) -> str:
        return f"alive until {self.until}"


@final
@attrs.frozen
class Silent:
    """The member has not beaten since then, and is presumed dead."""

    since: Instant

    def __str__(self) -> str:
        return f"silent since {self.since}"


@final
@attrs.frozen
class Departed:
    """The member has left, and owns nothing any more."""

    def __str__(self) -> str:
        return "departed"


@final
@attrs.frozen
class Replaced:
    """The member's name has a later life."""

    by: str

    def __str__(self) -> str:
        return f"replaced by {self.by!r}"


@final
@attrs.frozen
class Orphaned:
    """The member is a worker, and its runner has departed or was replaced."""

    runner: str

    def __str__(self) -> str:
        return f"orphaned by {self.runner!r}"


@final
@attrs.frozen
class Unseen:
    """There is no such member; it may or may not be alive."""

    def __str__(self) -> str:
        return "unseen"


Gone: TypeAlias = Silent | Departed | Replaced | Orphaned
Liveness: TypeAlias = Alive | Gone | Unseen


@final
@attrs.frozen
class Joined:
    """The member to insert, if its id is free."""

    member: Member


@final
@attrs.frozen
class Beaten:
    """The member after its beat."""

    member: Member


@final
@attrs.frozen
class Left:
    """The member after it left."""

    member: Member


@final
@attrs.frozen
class Taken:
    """Another member has the id; a process that joins needs its own."""

    member: Member


@final
@attrs.frozen
class RunnerNotAlive:
    """A worker can only join a living runner."""

    runner: str
    liveness: Gone | Unseen


# --- who is alive ---------------------------------------------------------------------------------


def liveness(membership: Membership, who: str, now: Instant) -> Liveness:
    """Return whether a member is alive, or why it is gone; `now` is on the members' clock."""
    _check_clock(membership, now)
    check_name(who, "a member")
    return _liveness(membership, who, now)


def _liveness(membership: Membership, who: str, now: Instant) -> Liveness:
    member = membership.by_id.get(who)
    if member is None:
        return Unseen()
    runner = None if member.runner is None else membership.by_id.get(member.runner)
    if (ended := _end_of(membership, member)) is not None:
        return ended
    if runner is not None and _end_of(membership, runner) is not None:
        return Orphaned(runner.id)
    if now - member.seen >= membership.dead_after:
        return Silent(member.seen)
    return Alive(member.seen + membership.dead_after)


def runners(membership: Membership, at: Instant) -> tuple[Runner, ...]:
    """Return the runners that share the cycle of the atomic service that begins at `at`.

    They had their place and were alive then, in order, each with the instant at which its life
    began.
    """
    _check_clock(membership, at)
    # The latest life of each name that had its place by then. It may have joined since, taking over
    # from a living one. If the former life was gone, the next has a new place, from when it joined.
    had_place = {
        member.name: member
        for member in sorted(membership.members, key=_by_life)
        if member.runner is None and at - member.created >= 0
    }
    standing = [member for member in had_place.values() if _stood(membership, member, at)]
    return tuple(Runner(member.id, member.joined) for member in sorted(standing, key=_by_creation))


def _stood(membership: Membership, member: Member, at: Instant) -> bool:
    """Return whether it was alive then. A later beat proves it: the silent cannot beat."""
    return at - member.seen < membership.dead_after and (member.left is None or member.left - at > 0)


# --- what a process does --------------------------------------------------------------------------


def join(
    membership: Membership, who: str, now: Instant, *, name: str | None = None, runner: str | None = None
) -> Joined | Taken | RunnerNotAlive:
    """Decide the membership of a process that joins.

    Args:
        membership: All members.
        who: The id, new for this life.
        now: The time, on the members' clock.
        name: The name that its lives share; None if it has none.
        runner: For a worker, the id of its runner.

    Returns:
        `Joined` with the member to insert, or the existing one if the join is repeated; else why
            not.
    """
    _check_clock(membership, now)
    newcomer = Member(
        id=who, name=who if name is None else name, life=1, runner=runner, created=now, joined=now, seen=now
    )
    there = membership.by_id.get(who)
    if there is not None:
        same = there.place == newcomer.place and there.runner == runner and _is_alive(membership, who, now)
        return Joined(there) if same else Taken(there)
    if runner is not None and not isinstance(known := _liveness(membership, runner, now), Alive):
        return RunnerNotAlive(runner, known)
    former = membership.latest.get(newcomer.place)
    if former is None:
        return Joined(newcomer)
    newcomer = attrs.evolve(newcomer, life=former.life + 1)
    return Joined(_taking_over(newcomer, former) if _is_alive(membership, former.id, now) else newcomer)


def beat(membership: Membership, who: str, now: Instant) -> Beaten | Gone | Unseen:
    """Return a member after a beat. If it is gone or `Unseen`, it must stop and join under a new
    id.
    """
    found = liveness(membership, who, now)
    if not isinstance(found, Alive):
        return found
    member = membership.by_id[who]
    return Beaten(attrs.evolve(member, seen=_later(member.seen, now)))


def leave(membership: Membership, who: str, now: Instant) -> Left | Unseen:
    """Return a member after it leaves, AFTER its work and its workers have ended.

    A gone member may leave too, and repeatedly.
    """
    _check_clock(membership, now)
    check_name(who, "a member")
    member = membership.by_id.get(who)
    if member is None:
        return Unseen()
    return Left(member if member.left is not None else attrs.evolve(member, left=_later(member.joined, now)))


# --- what may be forgotten ------------------------------------------------------------------------


def forgettable(membership: Membership, now: Instant, retention: Duration) -> tuple[str, ...]:
    """Return the members whose records may be deleted, in the order in which to delete them.

    A life goes AFTER the earlier ones of its name, and a runner AFTER its workers, because its
    record shows that those are gone. Stopping anywhere is harmless.

    Args:
        membership: All members.
        now: The time, on the members' clock.
        retention: How long they must have been silent, in microseconds; at least `dead_after`.
    """
    _check_clock(membership, now)
    check_int(retention, "a retention in microseconds", membership.dead_after)
    forgotten: list[str] = []
    kept: set[object] = set()  # the places that keep an earlier life, and the runners that keep a worker
    for member in sorted(membership.members, key=lambda each: (each.runner is None, *_by_life(each))):
        if now - member.seen < retention or member.place in kept or member.id in kept:
            kept |= {member.place, member.runner}
        else:
            forgotten.append(member.id)
    return tuple(forgotten)


# --- helpers --------------------------------------------------------------------------------------


def _check_clock(membership: Membership, now: Instant) -> None:
    check_type(membership, Membership, "a membership")
    check_type(now, Instant, "an instant")
    for member in membership.members[:1]:
        _ = now - member.seen  # two clocks are never compared


def _end_of(membership: Membership, member: Member) -> Departed | Replaced | None:
    """Return why its life is over at any time, or None."""
    if member.left is not None:
        return Departed()
    latest = membership.latest[member.place]
    return None if latest.id == member.id else Replaced(latest.id)


def _taking_over(member: Member, former: Member) -> Member:
    """Return the member in the place of its former life, whose clock may have been ahead."""
    since = _later(member.joined, former.created)
    return attrs.evolve(member, created=former.created, joined=since, seen=since)


def _is_alive(membership: Membership, who: str, now: Instant) -> bool:
    return isinstance(_liveness(membership, who, now), Alive)


def _later(one: Instant, other: Instant) -> Instant:
    return one if one - other > 0 else other


def _by_life(member: Member) -> tuple[int, str]:
    return member.life, member.id


def _by_creation(member: Member) -> tuple[int, str]:
    return member.created.at, member.name
