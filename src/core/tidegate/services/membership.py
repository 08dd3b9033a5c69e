"""Who is alive, in which order?

A failure detector by heartbeats (Chandra and Toueg 1996, "Unreliable failure detectors for reliable distributed
systems"): whoever beats is alive, and whoever was silent for `dead_after` is presumed dead. One clock judges, the
store's: it writes the instants of beats, and says what time it is now. The list of the runners that stood when a cycle
began, in an order that all agree on, is what `tidegate.services.atomic_service` takes for that cycle.

A process joins under an id of its own, used for this one life, and beats from then on. Runners have workers, threads or
processes that own what they work on; each worker beats for itself, or its runner for it, and no worker ever takes part
in the atomic service. Who is gone does not come back: silent, departed, replaced or orphaned, it joins again under a new
id. So what was decided about the dead stays true.

A process that knows its place (a pod of a stateful set, a host and a number) joins under that name. The next process
under the name is its next life, as a static member of a Kafka group is (KIP-345): lives are numbered, the highest number
is the life that counts, and no clock decides between two. If the former life still seems alive, the next one takes over
its place in the order, so a restart moves nobody and no ghost takes a slot. It is as young as any newcomer, though: the
stabilisation of the atomic service counts from when a life joined.

    Alive       beat less than `dead_after` ago
    Silent      did not: presumed dead from then on
    Departed    said so, AFTER its work and its workers had ended
    Replaced    the name has a later life
    Orphaned    a worker whose runner has departed or was replaced
    Unseen      there is no such member: not yet, or no more

Laws
    M1  Who beat less than `dead_after` ago, did not depart and was not replaced (nor was its runner) is alive.
    M2  Who is gone stays gone, whatever comes after.
    M3  The runners are the living ones, each once, one a name, and no worker.
    M4  They stand by creation, then name. Of two that stay, none overtakes the other, whoever beats, joins or goes.
    M5  A restart under a name that seems alive puts the new id in the place of the old one, and changes nothing else.
    M6  What may be forgotten is gone, and while it is forgotten, one by one and in order, nobody else comes or goes.
    M7  Who stood at an instant is known from then on: who joins, leaves or falls silent later changes no place in the
        list of that instant, and a restart only the id in it. So a whole cycle has one list, that of its start.

Known not to work
    - Silence is not proof: a process that stalls is presumed dead and may go on. What it writes carries its owner and
      version, so it comes to nothing.
    - A restart without a name is a newcomer, and its ghost takes a slot until it is silent. So does one with a name that
      nobody else joins under.
    - Names are of all runners, or of all workers: the second worker called "1" replaces the first, whoever runs it. A
      worker that has a lasting name needs that of its runner in it.
    - Two that read the members at the very instant that they ask about may see different lists, for one may join in
      between. So may those who read before and after a record is forgotten that stood then (keep records for
      `dead_after` and a cycle), or before and after a restart that was decided by an old list.
    - A beat is one write and a judgement is a read: a beat that is under way while its sender falls silent makes it alive
      again, unless the write is filtered on that not being so (`tidegate.services.members.beat` is).
    - A store whose clock leaps forward (a failover to a node that is ahead) silences everybody at once.
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


# --- values -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Member:
    """One life of a runner or of a worker.

    Invariants: the id and the name are not empty; 1 <= life; created <= joined <= seen and joined <= left, on one
    clock; no worker of itself.

    Attributes:
        id: Its own, used for this life only; what it owns is owned under this id.
        name: What its earlier and later lives are called too, and no other runner, or worker; its id if it has no
            lasting name.
        life: Which life of that name it is.
        runner: Of a worker, the id of its runner; None for a runner.
        created: Since when it has its place in the order; earlier than `joined` if it took the place over.
        joined: When this life began.
        seen: When it beat last.
        left: When it has left; None while it has not.
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
        """What its lives have in common; a worker is never the next life of a runner."""
        return self.runner is not None, self.name


@final
@attrs.frozen
class Membership:
    """All members that the store knows, the dead included, in any order.

    Invariants: ids are distinct; all instants are of one clock; 1 <= dead_after.

    Attributes:
        members: One a life.
        dead_after: After how much silence one is presumed dead, in microseconds; the same for all who ask.
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
    """It beat, and is alive until then at least."""

    until: Instant

    def __str__(self) -> str:
        return f"alive until {self.until}"


@final
@attrs.frozen
class Silent:
    """It has not beaten since then, and is presumed dead."""

    since: Instant

    def __str__(self) -> str:
        return f"silent since {self.since}"


@final
@attrs.frozen
class Departed:
    """It has left, and owns nothing any more."""

    def __str__(self) -> str:
        return "departed"


@final
@attrs.frozen
class Replaced:
    """Its name has a later life."""

    by: str

    def __str__(self) -> str:
        return f"replaced by {self.by!r}"


@final
@attrs.frozen
class Orphaned:
    """It is a worker, and its runner has departed or was replaced."""

    runner: str

    def __str__(self) -> str:
        return f"orphaned by {self.runner!r}"


@final
@attrs.frozen
class Unseen:
    """There is no such member, which does not say whether it is alive."""

    def __str__(self) -> str:
        return "unseen"


Gone: TypeAlias = Silent | Departed | Replaced | Orphaned
Liveness: TypeAlias = Alive | Gone | Unseen


@final
@attrs.frozen
class Joined:
    """The member to be inserted, if its id is free."""

    member: Member


@final
@attrs.frozen
class Beaten:
    """The member as it is to be, now that it has beaten."""

    member: Member


@final
@attrs.frozen
class Left:
    """The member as it is to be, now that it has left."""

    member: Member


@final
@attrs.frozen
class Taken:
    """The id is another's; a process that joins needs one of its own."""

    member: Member


@final
@attrs.frozen
class RunnerNotAlive:
    """A worker joins a runner that is alive, and this one is not."""

    runner: str
    liveness: Gone | Unseen


# --- who is alive -----------------------------------------------------------------------------------------------------


def liveness(membership: Membership, who: str, now: Instant) -> Liveness:
    """Whether a member is alive.

    Args:
        membership: All members.
        who: The id of a runner or a worker, as an owner is called by.
        now: The time, on the clock that members are seen by.

    Returns:
        `Alive`, why it is gone, or `Unseen`.

    Raises:
        Misuse: The id is empty or no string, an argument is of the wrong type, or now was read on another clock.
    """
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
    """The runners that stand at an instant: they take part in the atomic service for the cycle that begins then.

    Args:
        membership: All members, as they were read at that instant or later.
        at: The start of the cycle (`AtomicService.cycle_start`), on the clock that members are seen by.

    Returns:
        Those that had their place and were alive, in their order, each with the instant at which its life began: the
        stabilisation counts from it.

    Raises:
        Misuse: An argument is of the wrong type, or the instant is of another clock.
    """
    _check_clock(membership, at)
    # Of the lives of a name that had its place by then the latest one stays. It may have joined since, in the place of
    # one that was alive; one whose former life was gone has a place of its own, from when it joined.
    had_place = {
        member.name: member
        for member in sorted(membership.members, key=_by_life)
        if member.runner is None and at - member.created >= 0
    }
    standing = [member for member in had_place.values() if _stood(membership, member, at)]
    return tuple(Runner(member.id, member.joined) for member in sorted(standing, key=_by_creation))


def _stood(membership: Membership, member: Member, at: Instant) -> bool:
    """Whether it was alive; who has beaten since then was, for who is silent does not beat."""
    return at - member.seen < membership.dead_after and (member.left is None or member.left - at > 0)


# --- what a process does ----------------------------------------------------------------------------------------------


def join(
    membership: Membership, who: str, now: Instant, *, name: str | None = None, runner: str | None = None
) -> Joined | Taken | RunnerNotAlive:
    """What becomes of a process that joins.

    Args:
        membership: All members.
        who: Its id, made anew for this life.
        now: The time, on the clock that members are seen by.
        name: The name that its lives have in common; None if it has none.
        runner: Of a worker, the id of its runner.

    Returns:
        `Joined` with the member to be inserted, or with the member that it is already: a join may be repeated. Else
        `Taken` or `RunnerNotAlive`.

    Raises:
        Misuse: An id or a name is empty or no string, an argument is of the wrong type, or now was read on another clock.
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
    """What becomes of a beat.

    Args:
        membership: All members.
        who: The id of who beats.
        now: The time, on the clock that members are seen by.

    Returns:
        `Beaten` with the member as it is to be. Else why it is gone, or `Unseen`: it stops what it does, and joins anew.

    Raises:
        Misuse: The id is empty or no string, an argument is of the wrong type, or now was read on another clock.
    """
    found = liveness(membership, who, now)
    if not isinstance(found, Alive):
        return found
    member = membership.by_id[who]
    return Beaten(attrs.evolve(member, seen=_later(member.seen, now)))


def leave(membership: Membership, who: str, now: Instant) -> Left | Unseen:
    """What becomes of a member that leaves, AFTER its work and its workers have ended.

    Args:
        membership: All members.
        who: The id of who leaves; who is gone may say so too, and say it again.
        now: The time, on the clock that members are seen by.

    Returns:
        `Left` with the member as it is to be, or `Unseen`.

    Raises:
        Misuse: The id is empty or no string, an argument is of the wrong type, or now was read on another clock.
    """
    _check_clock(membership, now)
    check_name(who, "a member")
    member = membership.by_id.get(who)
    if member is None:
        return Unseen()
    return Left(member if member.left is not None else attrs.evolve(member, left=_later(member.joined, now)))


# --- what may be forgotten --------------------------------------------------------------------------------------------


def forgettable(membership: Membership, now: Instant, retention: Duration) -> tuple[str, ...]:
    """The members whose records may be deleted.

    A life goes AFTER the earlier ones of its name, and a runner AFTER its workers: while they are there, it is what says
    that they are gone.

    Args:
        membership: All members.
        now: The time, on the clock that members are seen by.
        retention: For how long they must have been silent, in microseconds, from `dead_after` on.

    Returns:
        Their ids, in the order in which to delete them; stopping anywhere is harmless.

    Raises:
        Misuse: The retention is shorter than `dead_after`, an argument is of the wrong type, or now was read on another
            clock.
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


# --- helpers ----------------------------------------------------------------------------------------------------------


def _check_clock(membership: Membership, now: Instant) -> None:
    """Raise Misuse unless `now` was read on the clock that the members were seen by."""
    check_type(membership, Membership, "a membership")
    check_type(now, Instant, "an instant")
    for member in membership.members[:1]:
        _ = now - member.seen  # two clocks are never compared


def _end_of(membership: Membership, member: Member) -> Departed | Replaced | None:
    """Why its life is over, whatever the time; None if that is not known."""
    if member.left is not None:
        return Departed()
    latest = membership.latest[member.place]
    return None if latest.id == member.id else Replaced(latest.id)


def _taking_over(member: Member, former: Member) -> Member:
    """The member in the place of its former life, which may have come from a clock that was ahead."""
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
