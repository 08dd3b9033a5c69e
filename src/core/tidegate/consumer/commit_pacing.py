"""When are the commits of all partitions sent, and which of them together?

Each partition asks for its commits by itself, the next when the one before is answered (`tidegate.consumer.commits`), and
would ask a thousand times a second. A broker writes each request to a log of its own, and takes one after the other. So
commits wait for one another: a while after a request was sent, all that wait are sent in one, or at once while partitions are
being given back, for whoever takes them waits. What is sent was the right position when it was asked for, so it is older than
it might be by that while at most.

    asked      a commit waits
    due        what is sent now, one request for each generation that is committed under; or how long to wait for that
    held_back  how long the answer to a transaction waits

A position that is committed in a transaction (`tidegate.consumer.transactions`) goes along with no other, for each partition has
a producer of its own, and a transaction costs the broker more than a request. So there the answer waits, and not the commit:
the partition asks for the next one when it has heard of this one, and then for the position that it has reached by then.

Laws
    PC1  Each commit that was asked for is sent, once, in one request, in the order of asking within a generation.
    PC2  None waits for longer than the gap, and none at all in a hurry, or if the last request is a gap ago.
    PC3  Unless there is a hurry, nothing is sent within a gap after the last time that something was.
    PC4  The commits of a request are of one generation, of different partitions.
    PC5  Unless there is a hurry, a partition hears that a transaction is committed a gap after it was, and begins no other before.
    PC6  It hears within the gap, and at once in a hurry.
"""

from __future__ import annotations

from typing import TypeAlias, final

import attrs

from tidegate.consumer.commands import Commit
from tidegate.model.instants import Duration, Instant
from tidegate.model.records import TopicPartition
from tidegate.model.values import check_int, check_type

Requests: TypeAlias = "tuple[tuple[Commit, ...], ...]"


@final
@attrs.frozen
class Pace:
    """What waits to be sent.

    Attributes:
        waiting: The commits that wait, in the order in which they were asked for.
        sent: When something was sent last; None if nothing was.
    """

    waiting: tuple[Commit, ...] = ()
    sent: Instant | None = None


@final
@attrs.frozen
class Turn:
    """What a look at the commits comes to.

    Attributes:
        pace: What waits from then on.
        requests: What is sent now.
        wait: How long until the next look, in microseconds; None if there is nothing to wait for.
    """

    pace: Pace
    requests: Requests = ()
    wait: Duration | None = None


def asked(pace: Pace, commit: Commit) -> Pace:
    """A partition asks for a commit.

    Args:
        pace: What waits.
        commit: What is to be sent.

    Raises:
        Misuse: An argument is of another type.
    """
    check_type(pace, Pace, "what waits")
    check_type(commit, Commit, "what is to be sent")
    return Pace((*pace.waiting, commit), pace.sent)


def due(pace: Pace, now: Instant, gap: Duration, *, hurries: bool) -> Turn:
    """What is to be sent now.

    Args:
        pace: What waits.
        now: The instant of the look.
        gap: How long after something was sent the next is, in microseconds.
        hurries: Whether partitions are being given back.

    Raises:
        Misuse: An argument is of another type, or the gap negative.
    """
    check_type(pace, Pace, "what waits")
    check_type(now, Instant, "the instant")
    check_type(hurries, bool, "whether there is a hurry")
    check_int(gap, "the gap", 0)
    if not pace.waiting:
        return Turn(pace)
    if wait := 0 if pace.sent is None else held_back(pace.sent, now, gap, hurries=hurries):
        return Turn(pace, wait=wait)
    return Turn(Pace(sent=now), _together(pace.waiting))


def held_back(before: Instant, now: Instant, gap: Duration, *, hurries: bool) -> Duration:
    """How long the answer to a transaction waits from now on; also a request, after the one before.

    Args:
        before: When the transaction was committed.
        now: The instant of the look.
        gap: How long an answer waits at most, in microseconds.
        hurries: Whether partitions are being given back.

    Returns:
        Microseconds until the next look; 0 if it waits no longer.

    Raises:
        Misuse: An argument is of another type, or the gap negative.
    """
    check_type(before, Instant, "the instant before")
    check_type(now, Instant, "the instant")
    check_type(hurries, bool, "whether there is a hurry")
    check_int(gap, "the gap", 0)
    return 0 if hurries else min(max(gap - (now - before), 0), gap)


def _together(waiting: tuple[Commit, ...]) -> Requests:
    """One request for each generation, and another one where a partition asks twice."""
    requests: dict[tuple[int, int], list[Commit]] = {}
    times: dict[tuple[TopicPartition, int], int] = {}
    for each in waiting:
        before = times[each.partition, each.generation] = times.get((each.partition, each.generation), -1) + 1
        requests.setdefault((each.generation, before), []).append(each)
    return tuple(map(tuple, requests.values()))
