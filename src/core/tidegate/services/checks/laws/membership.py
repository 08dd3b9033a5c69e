"""The laws of `tidegate.services.membership` as predicates over members and a judgement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from tidegate.model.instants import Duration, Instant
from tidegate.services.atomic_service import Runner
from tidegate.services.membership import Alive, Liveness, Member, Membership, Unseen


def written(membership: Membership, member: Member) -> Membership:
    kept = tuple(each for each in membership.members if each.id != member.id)
    return attrs.evolve(membership, members=(*kept, member))


def deleted(membership: Membership, who: str) -> Membership:
    return attrs.evolve(membership, members=tuple(each for each in membership.members if each.id != who))


def who_beats_is_alive(membership: Membership, who: str, now: Instant, found: Liveness) -> bool:
    """Law M1; no other is alive."""
    return isinstance(found, Alive) == any(
        member.id == who and now - member.seen < membership.dead_after and not _is_over(membership, member)
        for member in membership.members
    )


def _is_over(membership: Membership, member: Member) -> bool:
    runners = [each for each in membership.members if each.id == member.runner]
    return any(
        each.left is not None
        or any(
            other.name == each.name
            and (other.runner is None) is (each.runner is None)
            and (other.life, other.id) > (each.life, each.id)
            for other in membership.members
        )
        for each in (member, *runners)
    )


def gone_is_gone(before: Liveness, after: Liveness) -> bool:
    """Law M2; the member may be deleted."""
    return isinstance(before, Alive | Unseen) or not isinstance(after, Alive)


def runners_are_the_living(membership: Membership, found: Mapping[str, Liveness], runners: Sequence[Runner]) -> bool:
    """Law M3; each comes with the instant at which its life began."""
    by_id = {member.id: member for member in membership.members}
    living = {who for who, liveness in found.items() if isinstance(liveness, Alive) and by_id[who].runner is None}
    listed = [by_id[runner.id] for runner in runners]
    return (
        {member.id for member in listed} == living
        and len({member.name for member in listed}) == len(listed)
        and all(runner.created == member.joined for runner, member in zip(runners, listed, strict=True))
    )


def they_stand_by_creation(membership: Membership, runners: Sequence[Runner]) -> bool:
    """Law M4: the order."""
    by_id = {member.id: member for member in membership.members}
    places = [(by_id[runner.id].created.at, by_id[runner.id].name) for runner in runners]
    return places == sorted(places)


def nobody_overtakes(before: Sequence[Runner], after: Sequence[Runner]) -> bool:
    """Law M4: none overtakes."""
    was, stays = [runner.id for runner in before], {runner.id for runner in after}
    return [who for who in was if who in stays] == [runner.id for runner in after if runner.id in {*was}]


def a_restart_moves_nobody(before: Sequence[Runner], after: Sequence[Runner], old: str, new: Runner) -> bool:
    """Law M5."""
    return [new if runner.id == old else runner for runner in before] == list(after)


def only_the_forgotten_go(before: Mapping[str, Liveness], after: Mapping[str, Liveness], forgotten: str) -> bool:
    """Law M6."""
    lived, lives = ({who for who, found in each.items() if isinstance(found, Alive)} for each in (before, after))
    return not isinstance(before[forgotten], Alive) and lived == lives and {*before} - {forgotten} == {*after}


def the_forgotten_were_silent(before: Membership, after: Membership, now: Instant, retention: Duration) -> bool:
    """Law MP5, the silence; M6 covers that none revives."""
    return all(now - each.seen >= retention for each in before.members if each.id not in after.by_id)


def an_instant_keeps_its_list(
    before: Sequence[Runner], after: Sequence[Runner], membership: Membership, at: Instant
) -> bool:
    """Law M7, for the lists of an instant as known when it was over and now; no member was deleted.

    An id may be that of a later life.
    """
    known = membership.by_id
    return [known[runner.id].name for runner in before] == [known[runner.id].name for runner in after] and all(
        now == then or known[now.id].joined - at > 0 for then, now in zip(before, after, strict=True)
    )
