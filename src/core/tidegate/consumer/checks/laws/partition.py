"""The laws of `tidegate.consumer.partition.partition` as predicates over states, steps and commands."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import attrs

from tidegate.consumer.committing.commits import Commits
from tidegate.consumer.fanout import Arrange, DeliverRecords, Judge, Start
from tidegate.consumer.flow.backpressure import Free, PartitionHold
from tidegate.consumer.offsets.watermark import done_offsets
from tidegate.consumer.partition.partition import Owned, PartitionState, PartitionStep, Phase
from tidegate.consumer.protocol.commands import Commit, Fetch, Handle, Request, StartRetryTimer, Work, WorkUnanswered
from tidegate.model.effects import Effect


def committed_is_finished(committed: int, delivered: Iterable[int], processed: Collection[int]) -> bool:
    """Law P1: each delivered record below the committed position was processed."""
    return all(offset in processed for offset in delivered if offset < committed)


def passes_nothing_unfinished(position: int, unfinished: Iterable[int]) -> bool:
    """Law P1: a position passes no unfinished offset."""
    return all(position <= offset for offset in unfinished)


def committed_never_falls(before: int, after: int) -> bool:
    """Law P1: the committed position never falls."""
    return before <= after


def one_commit_in_flight(commands: Iterable[Effect[object]], generation: int) -> bool:
    """Law P2, within one generation."""
    return sum(isinstance(command, Commit) and command.generation == generation for command in commands) <= 1


def changes_nothing(before: PartitionState, step: PartitionStep) -> bool:
    """Law P3: the event neither changes the state nor causes a command."""
    return step.state == before and not step.commands


def failures_are_not_committed(position: int, unanswered: Iterable[int]) -> bool:
    """Law P4: a position passes no unanswered failure."""
    return all(position <= offset for offset in unanswered)


def takes_nothing_behind(begun: Iterable[int], failed: Collection[int]) -> bool:
    """Law P4, where the partition stops: no record behind a failed one starts."""
    return all(offset < min(failed) for offset in begun) if failed else True


def is_committed_up_to_a_failure(committed: int, failed: Collection[int], log: Iterable[int]) -> bool:
    """Law P4: at rest, all records before the first failure are committed."""
    return all(offset < committed for offset in log if all(offset < each for each in failed))


def only_the_owner_handles(commands: Iterable[Effect[object]], generation: int) -> bool:
    """Law P5: no work goes on after the release. `generation` is the group's."""
    return all(command.generation == generation for command in commands if isinstance(command, Work))


def starts_nothing(command: Effect[object]) -> bool:
    """Law P5, after the revocation: a command may deliver results of ended work, and starts no
    other work.
    """
    return not isinstance(command, Fetch) and not (
        isinstance(command, Work) and isinstance(command.request, Arrange | Handle | Start | Judge)
    )


def has_nothing_to_start(part: Owned) -> bool:
    """Law P5: a draining partition has dropped its queue."""
    return part.phase is not Phase.DRAINING or not (part.order.waiting or part.work.ready)


def is_released(asked: Collection[Work], commits: Collection[Commit], ready: int | None, *, in_time: bool) -> bool:
    """Law P5: a released partition has no work left and nothing to commit, or its time is over.

    Args:
        asked: The work that has not ended.
        commits: The commits in flight.
        ready: The position that may be committed, if any.
        in_time: Whether there is time left to drain.
    """
    return not asked and (not in_time or (not commits and ready is None))


def tasks_are_bounded(commands: Iterable[Effect[object]], running_max: int) -> bool:
    """Law P6: at most `running_max` tasks run."""
    requests = [command.request for command in commands if isinstance(command, Work)]
    handled = sum(len(each.offsets) for each in requests if isinstance(each, Handle))
    return handled + sum(len(each.numbers) for each in requests if isinstance(each, Start)) <= running_max


def fetches_what_is_free(command: Effect[object], hold: PartitionHold) -> bool:
    """Law P6: a partition held by its own limits is not fetched."""
    return not isinstance(command, Fetch) or isinstance(hold, Free)


def commits_its_beginning(part: Owned, commands: Iterable[Effect[object]]) -> bool:
    """Law P16: until its beginning is committed, a partition neither fetches nor works."""
    return not part.commits.begins or not any(
        isinstance(command, Fetch | Work) and command.generation == part.generation for command in commands
    )


def all_is_processed(committed: int, processed: Collection[int], records: int) -> bool:
    """Law P7, at rest with a member alive and every failure answered."""
    return committed == records and set(processed) >= set(range(records))


def waits_its_turn(offset: int, line: Iterable[int], opened: Collection[int]) -> bool:
    """Law P8.

    Args:
        offset: A record that has started.
        line: The offsets that must be handled in order, `offset` included.
        opened: The offsets delivered and not settled.
    """
    return not any(other in opened for other in line if other < offset)


def is_not_run(offset: int, request: Request, closed: Collection[int]) -> bool:
    """Law P9.

    Args:
        offset: The record.
        request: A request to user code about it.
        closed: The offsets of blocked or diverted keys.
    """
    return offset not in closed or (isinstance(request, DeliverRecords) and offset in request.to_dead_letter)


def nothing_else_waits(opened: Iterable[int], failed: Collection[int], held_back: Collection[int]) -> bool:
    """Law P10: at rest, each open record has failed, or is held back behind a failed one."""
    return all(offset in failed or offset in held_back for offset in opened)


def is_left_to_the_next_owner(before: Owned, after: Owned) -> bool:
    """Law P11: interrupted work changes neither the failed nor the done offsets."""
    return after.failed == before.failed and done_offsets(after.tracker) == done_offsets(before.tracker)


def batch_is_its_parts(batch: PartitionState, parts: PartitionState) -> bool:
    """Law P13. The commits may differ.

    Args:
        batch: The state after the batch.
        parts: The state after its parts, in any order, and after executors were assigned.
    """
    if not isinstance(batch, Owned) or not isinstance(parts, Owned):
        return batch == parts
    return _but_for_commits(batch) == _but_for_commits(parts)


def _but_for_commits(part: Owned) -> Owned:
    return attrs.evolve(part, commits=Commits())


def is_failed_and_told(work: Request, asked: Iterable[Work], commands: Iterable[Effect[object]]) -> bool:
    """Law P14: the work is no longer expected to answer, and a command informs the operators.

    Args:
        work: The request whose work ended without an answer.
        asked: The requests that are still open.
        commands: The commands that followed.
    """
    is_told = any(isinstance(command, WorkUnanswered) for command in commands)
    return is_told and all(each.request != work for each in asked)


def is_put_off(before: Owned, after: Owned, offsets: Collection[int]) -> bool:
    """Law P15: parked records are neither failed nor done and do not run; other work goes on.

    Args:
        before: The partition while the handlers of these records ran.
        after: The partition after they were parked.
        offsets: The parked records.
    """
    others = {each for each in before.asked if each.work.offsets[0] not in offsets}
    runs = {each.work.offsets[0] for each in after.asked}
    return is_left_to_the_next_owner(before, after) and others <= {*after.asked} and runs.isdisjoint(offsets)


def has_not_failed(part: Owned, commands: Iterable[Effect[object]]) -> bool:
    """Law P15, for handlers that park and never raise: no record fails, and none has a second
    attempt.
    """
    works = (command.request for command in commands if isinstance(command, Work))
    return not part.failed and all(request.attempt == 1 for request in works if isinstance(request, Handle))


def has_backed_off(command: Effect[object], timers: Iterable[StartRetryTimer]) -> bool:
    """Law P12: a command does not start anything that an active timer delays.

    Args:
        command: The command.
        timers: The timers of this assignment that have neither fired nor been cancelled.
    """
    if isinstance(command, Commit):
        return all(timer.start is not None for timer in timers)
    request = command.request if isinstance(command, Work) else None
    return not any(_names_of(timer.start) & _names_of(request) for timer in timers)


def _names_of(request: Request | None) -> set[tuple[int, ...]]:
    """The runs that a request starts: (offset, attempt) or (window, task, attempt)."""
    match request:
        case Handle(offsets, attempt):
            return {(offset, attempt) for offset in offsets}
        case Start(window, numbers, attempt):
            return {(window, number, attempt) for number in numbers}
        case _:
            return set()
