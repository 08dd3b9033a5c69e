"""Decides when the commits of all partitions are sent, and which of them share a request.

Each partition requests its next commit after the answer to the last (`tidegate.consumer.committing.commits`),
a thousand times per second. A broker logs each request, one after the other. So all commits that
wait go out in one request, a gap after the last one. While partitions are being given back they go
out at once, because the next owner waits. A sent position is out of date by at most the gap.

    asked      a commit waits
    due        the requests to send now, one for each generation; or how long to wait
    held_back  how long the answer to a transaction waits

A position committed in a transaction (`tidegate.consumer.worker.transactions`) shares no request. Each
partition has its own producer, and a transaction costs the broker more. There the answer waits
instead of the commit. The partition requests its next commit after that answer, with the position
reached by then.

Laws
    PC1  Each requested commit is sent once, in one request, in the order of requests within a
         generation.
    PC2  No commit waits longer than the gap; none waits in a hurry, or if the last request is a gap
         ago.
    PC3  Without a hurry, requests are at least a gap apart.
    PC4  The commits of a request are of one generation and of different partitions.
    PC5  Without a hurry, a partition receives the answer to a transaction a gap after its commit,
         and begins no other before.
    PC6  It receives the answer within the gap, and at once in a hurry.
"""

from __future__ import annotations

from typing import TypeAlias, final

import attrs

from tidegate.consumer.protocol.commands import Commit
from tidegate.model.instants import Duration, Instant
from tidegate.model.records import TopicPartition
from tidegate.model.values import check_int, check_type

Requests: TypeAlias = "tuple[tuple[Commit, ...], ...]"


@final
@attrs.frozen
class Pace:
    """The commits that wait.

    Attributes:
        waiting: The waiting commits, in the order of requests.
        sent: The time of the last request; None before the first.
    """

    waiting: tuple[Commit, ...] = ()
    sent: Instant | None = None


@final
@attrs.frozen
class Turn:
    """The result of `due`.

    Attributes:
        pace: The commits that wait afterwards.
        requests: The requests to send now.
        wait: The time until the next call, in microseconds; None if no commit waits.
    """

    pace: Pace
    requests: Requests = ()
    wait: Duration | None = None


def asked(pace: Pace, commit: Commit) -> Pace:
    """Add a commit that a partition requests.

    Raises:
        Misuse: An argument has a wrong type.
    """
    check_type(pace, Pace, "what waits")
    check_type(commit, Commit, "what is to be sent")
    return Pace((*pace.waiting, commit), pace.sent)


def due(pace: Pace, now: Instant, gap: Duration, *, hurries: bool) -> Turn:
    """The requests to send now.

    Args:
        pace: The waiting commits.
        now: The current time.
        gap: The least time between requests, in microseconds.
        hurries: Whether partitions are being given back.

    Raises:
        Misuse: An argument has a wrong type, or the gap is negative.
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
    """How long the answer to a transaction waits from now on; also a request after the last one.

    Args:
        before: When the transaction was committed.
        now: The current time.
        gap: The longest wait, in microseconds.
        hurries: Whether partitions are being given back.

    Returns:
        Microseconds until the next call; 0 if it waits no longer.

    Raises:
        Misuse: An argument has a wrong type, or the gap is negative.
    """
    check_type(before, Instant, "the instant before")
    check_type(now, Instant, "the instant")
    check_type(hurries, bool, "whether there is a hurry")
    check_int(gap, "the gap", 0)
    return 0 if hurries else min(max(gap - (now - before), 0), gap)


def _together(waiting: tuple[Commit, ...]) -> Requests:
    """One request for each generation, and another if a partition has two commits."""
    requests: dict[tuple[int, int], list[Commit]] = {}
    times: dict[tuple[TopicPartition, int], int] = {}
    for each in waiting:
        before = times[each.partition, each.generation] = times.get((each.partition, each.generation), -1) + 1
        requests.setdefault((each.generation, before), []).append(each)
    return tuple(map(tuple, requests.values()))
