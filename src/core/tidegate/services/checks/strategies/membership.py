"""Strategies for members, alive and gone, and decisions about them."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.instants import Instant
from tidegate.services.membership import (
    Beaten,
    Joined,
    Left,
    Liveness,
    Member,
    Membership,
    RunnerNotAlive,
    Taken,
    beat,
    join,
    leave,
    liveness,
)

_NAMES: Final = ("a", "b", "c")
_TIMES: Final = st.integers(-20, 20)
_IDS: Final = st.tuples(st.sampled_from(_NAMES), st.integers(1, 3), st.sampled_from((None, None, "a-1", "a-2", "b-1")))
_LEFT: Final = st.one_of(st.none(), st.none(), _TIMES)
_WISH: Final = st.sampled_from(("joins", "beats", "leaves"))


def short_times() -> SearchStrategy[Instant]:
    """Instants so close to each other that they often coincide, before the epoch too."""
    return _TIMES.map(Instant)


@st.composite
def members(draw: DrawFn) -> Member:
    """Runners and workers, of the first life of a name or a later one."""
    name, life, runner = draw(_IDS)
    created, joined, seen = sorted((draw(_TIMES), draw(_TIMES), draw(_TIMES)))
    left = draw(_LEFT)
    return Member(
        id=f"{name}-{life}{'' if runner is None else 'w'}",
        name=name,
        life=life,
        runner=runner,
        created=Instant(created),
        joined=Instant(joined),
        seen=Instant(seen),
        left=None if left is None else Instant(max(joined, left)),
    )


_GROUPS: Final = st.builds(
    Membership,
    st.lists(members(), max_size=8, unique_by=lambda member: member.id).map(tuple),
    st.integers(1, 30),
)


def memberships() -> SearchStrategy[Membership]:
    return _GROUPS


@st.composite
def livenesses(draw: DrawFn) -> Liveness:
    membership = draw(_GROUPS)
    who = draw(st.sampled_from([*(member.id for member in membership.members), "somebody"]))
    return liveness(membership, who, Instant(draw(_TIMES)))


@st.composite
def answers_to_members(draw: DrawFn) -> Joined | Taken | RunnerNotAlive | Beaten | Left | Liveness:
    membership = draw(_GROUPS)
    ids = ["somebody", *(member.id for member in membership.members)]
    who, now = draw(st.sampled_from(ids)), Instant(draw(_TIMES))
    match draw(_WISH):
        case "joins":
            runner = draw(st.sampled_from((None, *(each for each in ids if each != who))))
            return join(membership, who, now, name=draw(st.sampled_from(_NAMES)), runner=runner)
        case "beats":
            return beat(membership, who, now)
        case _:
            return leave(membership, who, now)
