"""The laws of `tidegate.consumer.worker.consumer` as predicates over its states, plans and events."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.consumer.fanout import Start
from tidegate.consumer.flow.backpressure import Free, Plan
from tidegate.consumer.offsets.watermark import done_offsets, open_offsets
from tidegate.consumer.partition.partition import Owned, Phase
from tidegate.consumer.protocol.commands import Assigned, CommitRefused, Committed, Event, Fetched, Handle, Lost, Work
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.model.records import TopicPartition


def executors_bound_the_running(consumer: ConsumerRules, state: ConsumerState) -> bool:
    """Law AS1."""
    return state.running <= consumer.executors


def nothing_is_polled_at_high(consumer: ConsumerRules, state: ConsumerState, poll: Plan[TopicPartition]) -> bool:
    """Law AS2, before a poll."""
    return not poll.poll or state.load < consumer.thresholds.high


def load_is_bounded(consumer: ConsumerRules, state: ConsumerState, batch: int) -> bool:
    """Law AS2: the load never exceeds `high` by more than one batch."""
    return state.load < consumer.thresholds.high + batch


def no_executor_waits(consumer: ConsumerRules, state: ConsumerState) -> bool:
    """Law AS3."""
    free = state.running < consumer.executors
    return not (free and any(_waits(consumer, part) for part in state.partitions))


def others_are_left_alone(before: ConsumerState, after: ConsumerState, partition: TopicPartition) -> bool:
    """Law AS4: an event of one partition only lets others start more of their tasks."""
    rest = {part.partition: part for part in before.partitions if part.partition != partition}
    now = {part.partition: part for part in after.partitions if part.partition != partition}
    return rest.keys() == now.keys() and all(
        (old.generation, old.phase, old.tracker, old.committing)
        == (now[key].generation, now[key].phase, now[key].tracker, now[key].committing)
        and old.running <= now[key].running
        for key, old in rest.items()
    )


def what_was_done_counts(before: ConsumerState, after: ConsumerState, event: Event) -> bool:
    """Law AS10, by Laws KE1, KE2 and KE3, over one event."""
    was, now = before[event.partition], after[event.partition]
    known, kept = _kept(before, event.partition), _kept(after, event.partition)
    tracked = {*done_offsets(was.tracker), *open_offsets(was.tracker)} if isinstance(was, Owned) else set[int]()
    match event:
        case Lost() | CommitRefused() if isinstance(was, Owned) and not isinstance(now, Owned):
            at = was.tracker.frontier
            done = {each for each in done_offsets(was.tracker) if each < at} | {each for each in known if each >= at}
            return kept == dict.fromkeys(done, was.tracker.floor)
        case Assigned(committed=position) | Committed(position=position):
            return kept == {each: position for each, floor in known.items() if each >= position >= floor}
        case Fetched(_, generation, _, _, again, is_anew) if isinstance(was, Owned) and isinstance(now, Owned):
            if was.generation != generation or was.fetching is None:
                return now == was and kept == known
            counts = {each for each in again if each in known and each not in tracked and each >= was.tracker.floor}
            return {*done_offsets(now.tracker)} - tracked == counts and kept == ({} if is_anew else known)
        case _:
            return kept == known


def _kept(state: ConsumerState, partition: TopicPartition) -> dict[int, int]:
    """The kept offsets of the partition, each with the position at its loss."""
    return {
        at: each.position
        for each in state.kept
        if each.partition == partition
        for run in each.done
        for at in range(*run)
    }


def holds_what_is_not_polled(
    state: ConsumerState, paused: Collection[TopicPartition], poll: Plan[TopicPartition]
) -> bool:
    """Law AS5."""
    wait = {part.partition for part in state.partitions if part.fetching is not None and isinstance(part.hold, Free)}
    held = (set(paused) | set(poll.pause)) - set(poll.resume)
    return (
        set(poll.poll) <= wait
        and not held & set(poll.poll)
        and (bool(poll.poll) or held >= {part.partition for part in state.partitions})
    )


def slots_go_round(
    consumer: ConsumerRules, before: ConsumerState, after: ConsumerState, partition: TopicPartition
) -> bool:
    """Law AS6."""
    waits = [part for part in after.partitions if _waits(consumer, part) and not _begun(before, part)]
    own = after[partition]
    return not (isinstance(own, Owned) and _begun(before, own) and any(part.partition != partition for part in waits))


def nothing_runs_uncounted(state: ConsumerState, in_work: Collection[Work]) -> bool:
    """Law AS8.

    Args:
        state: The partitions.
        in_work: The user code that was started and has not ended.
    """
    requests = [each.request for each in in_work]
    handlers = sum(len(request.offsets) for request in requests if isinstance(request, Handle))
    tasks = sum(len(request.numbers) for request in requests if isinstance(request, Start))
    records = {(each.partition, each.generation, offset) for each in in_work for offset in each.offsets}
    return state.running == handlers + tasks and state.load >= len(records)


def _waits(consumer: ConsumerRules, part: Owned) -> bool:
    """Whether the partition would start a record with one executor more."""
    return part.phase is Phase.FLOWING and bool(consumer.partition.next_taken(part, part.running + 1))


def _begun(before: ConsumerState, part: Owned) -> bool:
    earlier = before[part.partition]
    asked = {each.work for each in earlier.asked} if isinstance(earlier, Owned) else set[Work]()
    return any(isinstance(each.work.request, Handle | Start) and each.work not in asked for each in part.asked)
