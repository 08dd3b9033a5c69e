"""Laws of `tidegate.consumer.partition`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import attrs

from tidegate.consumer.backpressure import Free, PartitionHold
from tidegate.consumer.commands import Commit, Fetch, Handle, Request, StartRetryTimer, Work, WorkUnanswered
from tidegate.consumer.commits import Commits
from tidegate.consumer.fanout import Arrange, DeliverRecords, Judge, Start
from tidegate.consumer.partition import Owned, PartitionState, PartitionStep, Phase
from tidegate.consumer.watermark import done_offsets
from tidegate.model.effects import Effect


def committed_is_finished(committed: int, delivered: Iterable[int], processed: Collection[int]) -> bool:
    """Law P1: every record below the committed position was processed."""
    return all(offset in processed for offset in delivered if offset < committed)


def passes_nothing_unfinished(position: int, unfinished: Iterable[int]) -> bool:
    """Law P1: nothing below a position that is committed is still to be done."""
    return all(position <= offset for offset in unfinished)


def committed_never_falls(before: int, after: int) -> bool:
    """Law P1: the committed position never falls."""
    return before <= after


def one_commit_in_flight(commands: Iterable[Effect[object]], generation: int) -> bool:
    """Law P2: at most one commit of a generation is made and not answered."""
    return sum(isinstance(command, Commit) and command.generation == generation for command in commands) <= 1


def changes_nothing(before: PartitionState, step: PartitionStep) -> bool:
    """Law P3: what is late, of another partition, or nobody asked for, leaves the state as it is, and there is no command."""
    return step.state == before and not step.commands


def failures_are_not_committed(position: int, unanswered: Iterable[int]) -> bool:
    """Law P4: a failure that nobody has answered for is not committed, nor is anything behind it."""
    return all(position <= offset for offset in unanswered)


def takes_nothing_behind(begun: Iterable[int], failed: Collection[int]) -> bool:
    """Law P4: where the partition stops, no record behind one that failed is begun any more."""
    return all(offset < min(failed) for offset in begun) if failed else True


def is_committed_up_to_a_failure(committed: int, failed: Collection[int], log: Iterable[int]) -> bool:
    """Law P4: at rest, all that is before a failure is committed."""
    return all(offset < committed for offset in log if all(offset < each for each in failed))


def only_the_owner_handles(commands: Iterable[Effect[object]], generation: int) -> bool:
    """Law P5: what was released is no longer worked on; `generation` is the group's."""
    return all(command.generation == generation for command in commands if isinstance(command, Work))


def starts_nothing(command: Effect[object]) -> bool:
    """Law P5: no command of a revoked partition starts anything: it delivers what ends, and no more."""
    return not isinstance(command, Fetch) and not (
        isinstance(command, Work) and isinstance(command.request, Arrange | Handle | Start | Judge)
    )


def has_nothing_to_start(part: Owned) -> bool:
    """Law P5: a partition that is revoked has dropped what waited to be started."""
    return part.phase is not Phase.DRAINING or not (part.order.waiting or part.work.ready)


def is_released(asked: Collection[Work], commits: Collection[Commit], ready: int | None, *, in_time: bool) -> bool:
    """Law P5: a partition that is released has nothing in work and nothing to commit, or its time is over.

    Args:
        asked: What is in work.
        commits: The commits in flight.
        ready: The position that may be committed, if any.
        in_time: Whether the time to drain goes on.
    """
    return not asked and (not in_time or (not commits and ready is None))


def tasks_are_bounded(commands: Iterable[Effect[object]], running_max: int) -> bool:
    """Law P6: no more tasks run than may."""
    requests = [command.request for command in commands if isinstance(command, Work)]
    handled = sum(len(each.offsets) for each in requests if isinstance(each, Handle))
    return handled + sum(len(each.numbers) for each in requests if isinstance(each, Start)) <= running_max


def fetches_what_is_free(command: Effect[object], hold: PartitionHold) -> bool:
    """Law P6: nothing is fetched while the partition is held on its own account."""
    return not isinstance(command, Fetch) or isinstance(hold, Free)


def commits_its_beginning(part: Owned, commands: Iterable[Effect[object]]) -> bool:
    """Law P16: nothing is fetched or in work before a beginning that another owner may not find is committed."""
    return not part.commits.begins or not any(
        isinstance(command, Fetch | Work) and command.generation == part.generation for command in commands
    )


def all_is_processed(committed: int, processed: Collection[int], records: int) -> bool:
    """Law P7: at rest, with a member alive and no failure left unanswered: every record is processed, and committed."""
    return committed == records and set(processed) >= set(range(records))


def waits_its_turn(offset: int, line: Iterable[int], opened: Collection[int]) -> bool:
    """Law P8: a record is begun when those before it in its line were settled.

    Args:
        offset: The record.
        line: The records that wait for each other, itself included.
        opened: What was delivered and is not settled.
    """
    return not any(other in opened for other in line if other < offset)


def is_not_run(offset: int, request: Request, closed: Collection[int]) -> bool:
    """Law P9: of the rest of a key that is held back or diverted nothing is run; what is diverted is answered for.

    Args:
        offset: The record.
        request: What user code is asked for about it.
        closed: The offsets of the keys that are held back or diverted.
    """
    return offset not in closed or (isinstance(request, DeliverRecords) and offset in request.to_dead_letter)


def nothing_else_waits(opened: Iterable[int], failed: Collection[int], held_back: Collection[int]) -> bool:
    """Law P10: at rest, each record is settled, its failure stands, or it is held back behind one whose failure does."""
    return all(offset in failed or offset in held_back for offset in opened)


def is_left_to_the_next_owner(before: Owned, after: Owned) -> bool:
    """Law P11: work that ends because it was interrupted makes nothing done and nothing failed."""
    return after.failed == before.failed and done_offsets(after.tracker) == done_offsets(before.tracker)


def batch_is_its_parts(batch: PartitionState, parts: PartitionState) -> bool:
    """Law P13: after a batch the partition is as after its parts; of commits there may be fewer, so they may differ.

    Args:
        batch: The state after the batch.
        parts: The state after its parts, in any order, and after executors were given out.
    """
    if not isinstance(batch, Owned) or not isinstance(parts, Owned):
        return batch == parts
    return _but_for_commits(batch) == _but_for_commits(parts)


def _but_for_commits(part: Owned) -> Owned:
    return attrs.evolve(part, commits=Commits())


def is_failed_and_told(work: Request, asked: Iterable[Work], commands: Iterable[Effect[object]]) -> bool:
    """Law P14: of work that has ended without an answer nothing is expected any more, and people are told.

    Args:
        work: What has ended.
        asked: What user code is asked for then.
        commands: What followed.
    """
    is_told = any(isinstance(command, WorkUnanswered) for command in commands)
    return is_told and all(each.request != work for each in asked)


def is_put_off(before: Owned, after: Owned, offsets: Collection[int]) -> bool:
    """Law P15: what is parked has neither failed nor is it done, it does not run, and what else runs goes on.

    Args:
        before: The partition when the handlers of these ran.
        after: The same when they were parked.
        offsets: Those.
    """
    others = {each for each in before.asked if each.work.offsets[0] not in offsets}
    runs = {each.work.offsets[0] for each in after.asked}
    return is_left_to_the_next_owner(before, after) and others <= {*after.asked} and runs.isdisjoint(offsets)


def has_not_failed(part: Owned, commands: Iterable[Effect[object]]) -> bool:
    """Law P15: where nothing is raised, and some is parked, nothing has failed, and nothing is another attempt."""
    works = (command.request for command in commands if isinstance(command, Work))
    return not part.failed and all(request.attempt == 1 for request in works if isinstance(request, Handle))


def has_backed_off(command: Effect[object], timers: Iterable[StartRetryTimer]) -> bool:
    """Law P12: what is done is nothing that a timer which has not fired yet says to wait for.

    Args:
        command: What is done now.
        timers: Those that have been started in this assignment, and have neither fired nor been cancelled.
    """
    if isinstance(command, Commit):
        return all(timer.start is not None for timer in timers)
    request = command.request if isinstance(command, Work) else None
    return not any(_names_of(timer.start) & _names_of(request) for timer in timers)


def _names_of(request: Request | None) -> set[tuple[int, ...]]:
    """The runs that it is about: of records, or of tasks."""
    match request:
        case Handle(offsets, attempt):
            return {(offset, attempt) for offset in offsets}
        case Start(window, numbers, attempt):
            return {(window, number, attempt) for number in numbers}
        case _:
            return set()
