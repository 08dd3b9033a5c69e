"""Laws of `tidegate.partition`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidegate.effects import Effect
from tidegate.partition import Commit, Handle


def committed_is_finished(committed: int, delivered: Iterable[int], processed: Collection[int]) -> bool:
    """Law P1, first half: every record below the committed position was processed."""
    return all(offset in processed for offset in delivered if offset < committed)


def committed_never_falls(before: int, after: int) -> bool:
    """Law P1, second half."""
    return before <= after


def one_commit_in_flight(wishes: Iterable[Effect[object]], generation: int) -> bool:
    """Law P2: at most one commit of a generation is wished for and not answered."""
    return sum(isinstance(wish, Commit) and wish.generation == generation for wish in wishes) <= 1


def only_the_owner_handles(wishes: Iterable[Effect[object]], generation: int) -> bool:
    """Law P5: what was released is no longer worked on; `generation` is the group's."""
    return all(wish.generation == generation for wish in wishes if isinstance(wish, Handle))


def handlers_are_bounded(wishes: Iterable[Effect[object]], running_max: int) -> bool:
    """Law P6, first half."""
    return sum(isinstance(wish, Handle) for wish in wishes) <= running_max


def all_is_processed(committed: int, processed: Collection[int], records: int) -> bool:
    """Law P7: at rest, with a member alive and no handler failed: every record is processed at least once, and committed."""
    return committed == records and set(processed) >= set(range(records))
