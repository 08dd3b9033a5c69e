"""The fast path: one handler has ended well, and the next record takes its place.

Handlers usually end one by one, each with its own event. The stages of a partition
(`tidegate.consumer.partition.partition`) take a hundred calls for it; this takes a tenth. It applies if no
stage has a decision to make: the record was in work without deviating, a commit is in flight, and a
fetch is too, or the partition is held and stays held. Work that backed off must not be next. In all
other cases it returns None, and the stages decide.
"""

from __future__ import annotations

from tidegate.consumer.committing.commits import Commits
from tidegate.consumer.flow.backpressure import Free, Held, PartitionLimits, Signal
from tidegate.consumer.offsets._pages import PAGE, PAGE_BITS, count_open, ended
from tidegate.consumer.offsets.watermark import OffsetTracker
from tidegate.consumer.partition.in_flight_records import Handling
from tidegate.consumer.partition.partition_state import Owned, Phase
from tidegate.consumer.partition.ready_queue import Queue
from tidegate.consumer.protocol.commands import Handle, Work

_LAST = PAGE - 1


def one_done(part: Owned, offset: int, limits: PartitionLimits) -> Owned | None:
    """The partition after this record's handler ended well at its first attempt; None if the stages
    must decide.
    """
    order, work, commits, holding, tracker = part.order, part.work, part.commits, part.holding, part.tracker
    if (
        part.phase is not Phase.FLOWING
        or type(work) is not Handling
        or (work.deviations and work.of(offset) is not None)
        or type(order) is not Queue
        or order.together
        or order.late
        or offset >= order.cursor
        or commits.committing is None
        or commits.backs_off
        or (holding.fetching is None and type(holding.hold) is Free)
    ):
        return None
    pages, count = ended(tracker.pages, offset >> PAGE_BITS, 1 << (offset & _LAST))
    if not count or not pages:
        return None
    if type(holding.hold) is Held and not _stays_held(holding.hold, limits, count_open(pages)):
        return None
    if commits.alphabet is not None:
        commits = Commits(
            commits.alphabet,
            commits.committing,
            commits.failures,
            False,
            commits.unrecorded + 1,
            commits.length,
            commits.survey,
        )
    return Owned(
        part.partition, part.generation, Phase.FLOWING, OffsetTracker(tracker.floor, tracker.frontier, pages), order,
        work.begun(-1), part.failed, commits, holding, part.revocation,
    )  # fmt: skip


def _stays_held(held: Held, limits: PartitionLimits, undone: int) -> bool:
    """Whether the span, the only changed signal, surely keeps it held. Without undone records it
    does not.
    """
    return undone > (limits.span.low if limits.span is not None and Signal.SPAN in held.by else 0)


def one_begun(part: Owned) -> tuple[Owned, Work] | None:
    """The partition with its next record in work, and the call for it; None if it is not simply the
    next of the log.
    """
    order, work = part.order, part.work
    if (
        type(work) is not Handling
        or work.ready
        or type(order) is not Queue
        or order.together
        or order.late
        or order.cursor >= order.until
    ):
        return None
    offset = order.cursor
    taken = Queue(offset + 1, order.waiting - 1, (), order.stop, 0, order.busy + 1, order.is_closed, order.until)
    after = Owned(
        part.partition, part.generation, part.phase, part.tracker, taken, work.begun(1), part.failed, part.commits,
        part.holding, part.revocation,
    )  # fmt: skip
    return after, Work(part.partition, part.generation, Handle((offset,), 1), (offset,))
