"""The state machine of one partition at one consumer, from its assignment to its release.

It is a reducer: `step(state, event)` returns the next state and commands
(`tidegate.consumer.protocol.commands`). It has no other channel. Every event has an answer in every state,
and ignoring it is one, so no event can block a partition.

    Assigned -> Flowing -- Revoked --> Draining -- all done, or time is up --> Unassigned
                   |                     ^
                 Failed                  |
                   v                     |
                Stopped ---- Revoked ----+    Lost, or a commit refused, from any state: Unassigned

An event passes the stages once, in this order. Each stage has its own state, receives what changed
and passes on what changes next:

    take in  register records in the tracker, except known ones   `watermark`
    order    queue records behind those they wait for; pick next  `order`
    work     track records or windows given to user code          `_record_work`, `_window_work`
    settle   complete what is done; apply the failure policy      `_failures`
    commit   commit the position and what is done beyond it       `commits`, `commit_metadata`
    hold     stop fetching where a partition holds up too much    `holding`, `backpressure`

`_start_work` assigns executors last, so that a consumer can share them among its partitions. A
failed record and an unanswered commit are retried after a growing delay (`backoff`); the runtime
runs the timer.

A step costs the size of its event plus the path to one page of the tracker. A record with a plain
handler is one bit there; only exceptions have an entry (`handling`). Windows cost a scan of all
windows in flight.

A final failure has four policies: stop the partition, block the key, dead-letter the record, or
dead-letter the rest of its key too, in order. The two policies about keys need an order. User code
answers for a failure: it writes the record, or a marker, elsewhere. If it cannot, the partition
stops.

Each assignment has a generation, which nearly all commands and events carry. Events of an older
generation are ignored: the partition has been assigned again, here or elsewhere.

Laws
    P1  The committed position never passes unfinished work, and never falls.
    P2  At most one commit is in flight.
    P3  An event of an older generation or another partition, or one that answers no request,
        changes nothing.
    P4  A record with an unanswered failure is not committed, nor is any record behind it. Records
        before it are still finished and committed. Where the partition stops for it, no record
        behind it is started any more.
    P5  After the revocation no work starts. The partition is released exactly once: when no work is
        left and all that may be committed is, or when the time to drain is over.
    P6  At most `running_max` tasks run, and a partition held by its own limits is not fetched.
    P7  At rest, with a member alive and every failure answered, each record was processed at least
        once, and committed.
    P8  One record of a key (or of the partition, by `ordering`) is in work at a time; with an order
        by offset, the records of one window. Each starts only after those before it, or before its
        window, were settled.
    P9  The rest of a blocked key does not start. The rest of a diverted key is dead-lettered
        without running.
    P10 An exception of user code fails that work only. Wherever user code raises, each record is
        settled or its failure stays visible, and no other work waits for it.
    P11 Work that is interrupted or abandoned, or that fails after the revocation, counts neither as
        failed nor as done: the next owner does it again.
    P12 A failed or parked task, its replacements, and a failed commit are not retried before their
        time.
    P13 One report of many records equals one report each, in any order, if executors are assigned
        after all of them: the same records are done, failed, in work and waiting, and the same work
        starts. Commits may be fewer.
    P14 Work that ends without an answer for all of its records fails for the rest, and the
        operators are told.
    P15 A parked record has neither failed nor succeeded. It is handled again at the same attempt
        when its delay is over; only work ordered behind it waits. After a revocation it is left to
        the next owner.
    P16 Where no position is committed, or it is outside the log, and another owner might begin
        elsewhere, the beginning is committed before the first fetch. Otherwise a new owner could
        skip records that were begun and not committed.

Known not to work
    - User code that neither ends nor can be interrupted runs on after the time to drain. The new
      owner then works on the same record. Delivery is at least once, so handlers must be
      idempotent.
    - A commit whose reply was lost may reach the broker after the next one. The committed position
      then falls (P1) until the next commit, because no broker fences within a generation. Records
      in between are handled again, if at all.
    - A record of a blocked key stays undone until the partition is assigned again. The partition
      takes no more than `limits` allow behind it.
    - Records without a key have no order and no rest.
    - The set of blocked and diverted keys is lost with the assignment: the next owner runs the rest
      of a diverted key.
    - Nothing can be parked in a window; a task that asks for it fails.
    - A window with a delivery of its own settles its records together. So one unanswered failure
      holds up all of them and the rest of their keys.
    - Stopping at a failure and dropping waiting records cost time in proportion to the records
      waiting in lines of keys.

Things that do not work
    To judge or dead-letter failures during a drain: an interrupted executor may report a failure,
    and a good record would be dead-lettered.
    To accept an answer to a commit that is not in flight: the floor moves on, and the records in
    between are never committed.
    To drop the whole queue when the partition stops: with keys, some waiting records are before the
    failure, and P4 requires them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import assert_never, final

import attrs

from tidegate.consumer.committing.commit_metadata import Alphabet, decoded
from tidegate.consumer.committing.commits import Commits
from tidegate.consumer.fanout import Start
from tidegate.consumer.flow.backpressure import Free
from tidegate.consumer.flow.drain import Action, InFlight, Stage, left, plan, stage
from tidegate.consumer.flow.partition_pause import Holding
from tidegate.consumer.offsets._stages import came
from tidegate.consumer.offsets.watermark import OffsetTracker, acknowledged
from tidegate.consumer.partition import _failures, _record_work, _window_work
from tidegate.consumer.partition.in_flight_records import Handling, RecordPhase
from tidegate.consumer.partition.in_flight_windows import Windowed
from tidegate.consumer.partition.partition_settings import (
    DRAIN,
    PLAIN,
    RUNNING_MAX,
    FailurePolicy,
    Ordering,
    PartitionSettings,
)
from tidegate.consumer.partition.partition_state import (
    Owned,
    PartitionState,
    PartitionStep,
    Phase,
    Revocation,
    Unassigned,
)
from tidegate.consumer.partition.pending_requests import Asked
from tidegate.consumer.partition.ready_queue import Lines, Queue
from tidegate.consumer.protocol.commands import (
    OF_ANY_LIFE,
    Assigned,
    Command,
    Commit,
    CommitRefused,
    CommitsUnanswered,
    Committed,
    CommitUnknown,
    DrainTimerFired,
    Event,
    Fetch,
    Fetched,
    Handle,
    Interrupt,
    Key,
    Lost,
    Measured,
    MetadataRefused,
    Release,
    RetryTimerFired,
    Revoked,
    SlotFreed,
    StartDrainTimer,
    Work,
    WorkFailed,
    WorkReported,
    check_event,
)
from tidegate.model.effects import Cancel
from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration
from tidegate.model.reducer import Step
from tidegate.model.values import check_int, check_type

__all__ = [
    "DRAIN", "PLAIN", "RUNNING_MAX", "FailurePolicy", "Ordering", "Owned", "PartitionRules", "PartitionState", "PartitionStep",
    "Phase", "Unassigned",
]  # fmt: skip


@final
@attrs.frozen
class PartitionRules(PartitionSettings):
    """Decides the next step of one partition; the settings limit how much runs at once."""

    def step(self, state: PartitionState, event: Event) -> PartitionStep:
        """Apply an event to the partition, then start work.

        Returns:
            The state after, and commands in order. An outdated event leaves the state unchanged.

        Raises:
            Misuse: An argument has a wrong type, or is out of range.
        """
        check_event(event)
        check_type(state, (Unassigned, Owned), "a state of a partition")
        if isinstance(state, Owned) and event.partition != state.partition:
            return Step(state)  # the caller mixed up two partitions
        told = self._apply(state, event)
        if not isinstance(told.state, Owned):
            return told
        begun, commands = self._start_work(told.state, self.running_max)
        return Step(begun, (*told.commands, *commands))

    def _apply(self, state: PartitionState, event: Event) -> PartitionStep:
        """Apply an event without starting work. A consumer calls it after checking the event."""
        if isinstance(state, Unassigned):
            return self._unassigned(event)
        return self._owned(state, event) if _is_current(state, event) else Step(state)

    def _start_work(self, part: Owned, room: int) -> tuple[Owned, Sequence[Command]]:
        """Start what may start, with at most `room` handlers or tasks of the partition running."""
        if isinstance(part.work, Windowed):
            return _window_work.start_windows(self, part, part.work, room)
        return _record_work.start_handlers(self, part, part.work, room)

    def _unassigned(self, event: Event) -> PartitionStep:
        match event:
            case Assigned():
                return self._commit_hold_fetch(self._assigned(event))
            case Revoked(partition):
                return Step(Unassigned(), (Release(partition),))  # it was released before
            case _:
                return Step(Unassigned())  # not owned any more, or never was

    def _assigned(self, event: Assigned) -> Owned:
        """A new assignment, with the records that the former owner has done beyond the position."""
        tracker = OffsetTracker(event.committed)
        if event.metadata and self.metadata_max:
            tracker = decoded(event.metadata, position=event.committed, end=max(event.committed, event.end)).tracker
        together = 0 if self.ordering is not Ordering.BY_OFFSET else self.window_max if self.hooks else 1
        return Owned(
            partition=event.partition,
            generation=event.generation,
            phase=Phase.FLOWING,
            tracker=tracker,
            order=Lines() if self.ordering is Ordering.BY_KEY else Queue(event.committed, together=together),
            work=Handling() if self.is_plain else Windowed(),
            commits=Commits(Alphabet.WIDE if self.metadata_max else None, begins=event.metadata is None),
        )

    def _owned(self, part: Owned, event: Event) -> PartitionStep:
        work, commits = part.work, part.commits
        match event:
            case WorkReported(_, _, what, ended):
                worked = (
                    _window_work.apply_window_report(self, part, work, what, ended)
                    if isinstance(work, Windowed)
                    else _record_work.apply_record_report(self, part, work, what, ended)
                )
                return Step(part) if worked is None else self._commit_hold_fetch(*worked)
            case WorkFailed(_, _, request):
                worked = (
                    _window_work.fail_window_request(self, part, work, request)
                    if isinstance(work, Windowed)
                    else _record_work.fail_record_request(self, part, work, request)
                )
                return Step(part) if worked is None else self._commit_hold_fetch(*worked)
            case RetryTimerFired(_, _, Handle() | Start() as start):
                return self._retry_due(part, start)
            case Fetched(_, _, offsets, keys) if part.fetching is not None:
                return self._records_fetched(part, offsets, keys)
            case Committed(_, _, position) if position == part.committing:
                tracker = acknowledged(part.tracker, position)
                return self._commit_hold_fetch(part.evolve(tracker=tracker, commits=commits.acknowledged()))
            case MetadataRefused(_, _, position) if position == part.committing and commits.alphabet is not None:
                return self._commit_hold_fetch(part.evolve(commits=commits.refused_text(self.replay_max)))
            case CommitUnknown(_, _, position) | MetadataRefused(_, _, position) if position == part.committing:
                commits = commits.unknown(self.replay_max)
                note = CommitsUnanswered(part.partition, part.generation, position, commits.failures)
                timer = _failures.commit_timer(self, part, commits)
                notes = (timer, note) if commits.is_noteworthy else (timer,)
                return self._commit_hold_fetch(part.evolve(commits=commits), notes)
            case RetryTimerFired(_, _, None) if commits.backs_off:
                return self._commit_hold_fetch(part.evolve(commits=attrs.evolve(commits, backs_off=False)))
            case CommitRefused(_, _, position) if position == part.committing:
                return Step(Unassigned(), self._given_up(part))
            case Assigned():  # the group did not revoke it first: start a new assignment anyway
                again = self._commit_hold_fetch(self._assigned(event))
                return Step(again.state, (*self._given_up(part), *again.commands))
            case Lost():
                return Step(Unassigned(), self._given_up(part))
            case Revoked(_, in_flight) if part.phase is not Phase.DRAINING:
                return self._revoked(part, in_flight)
            case DrainTimerFired(_, _, during) if part.phase is Phase.DRAINING and during is part.revocation.stage:
                return self._draining(part, self._began(during) + self._timer(part).duration)
            case Measured(_, _, size, age):
                holding = Holding(part.holding.hold, part.holding.fetching, size, age)
                return self._commit_hold_fetch(part.evolve(holding=holding))
            case (
                SlotFreed()
                | Revoked()
                | Fetched()
                | Committed()
                | CommitRefused()
                | CommitUnknown()
                | MetadataRefused()
                | DrainTimerFired()
                | RetryTimerFired()
            ):
                return Step(part)  # P3: a duplicate, or it answers no request
            case _:
                assert_never(event)

    # --- take in, and order ---

    def _records_fetched(self, part: Owned, offsets: tuple[int, ...], keys: tuple[Key, ...]) -> PartitionStep:
        tracker, new = came(part.tracker, offsets)
        lines: Sequence[Key] = ()
        if self.ordering is Ordering.BY_KEY:
            if len(keys) < len(offsets):
                raise Misuse(
                    f"records of {part.partition} came without their keys",
                    why="each waits for those of the same key",
                    todo="give the keys in Fetched.keys",
                )
            of = dict(zip(offsets, keys, strict=True))
            lines = [of[offset] for offset in new]
        order = part.order.came(new, lines, drops=self.failure_policy is FailurePolicy.BLOCK_KEY)
        after = Owned(
            part.partition, part.generation, part.phase, tracker, order, part.work, part.failed, part.commits,
            part.holding.at(None), part.revocation,
        )  # fmt: skip
        return self._commit_hold_fetch(after)

    def next_taken(self, part: Owned, room: int | None = None) -> tuple[int, ...]:
        """The records to start next, in order; a record waits until the one before it in its key is
        settled.

        Args:
            part: The partition.
            room: How many handlers or tasks of it may run; by default `running_max`.

        Raises:
            Misuse: The partition is not owned, or the room is not a number of tasks.
        """
        check_type(part, Owned, "a partition that is owned")
        if room is None:
            room = self.running_max
        check_int(room, "a number of tasks", 0)
        free = room - part.running
        most = max(0, free) if self.is_plain else _window_work.batch_for(self, free)
        return part.order.taken(part.tracker, most)[1]

    # --- work ---

    def _retry_due(self, part: Owned, start: Handle | Start) -> PartitionStep:
        work: Handling | Windowed
        match part.work, start:
            case Handling() as handling, Handle((offset,), attempt):
                known = handling.of(offset)
                if known is None or (known.phase, known.attempt) != (RecordPhase.BACKING_OFF, attempt):
                    return Step(part)
                work = handling.rested(offset)
            case Windowed() as windowed, Start() if start in windowed.backing_off:
                work = windowed.rested(start)
            case _:
                return Step(part)
        return self._commit_hold_fetch(part.evolve(work=work))

    # --- commit, and hold ---

    def _commit_hold_fetch(self, part: Owned, commands: tuple[Command, ...] = ()) -> PartitionStep:
        """The last stages: the partition commits, is held, and fetches or is released."""
        phase, tracker, commits = part.phase, part.tracker, part.commits
        if not commits.backs_off:
            position = commits.next_position(tracker, 1 if phase is Phase.DRAINING else self.replay_max)
            if position is not None:
                commits, text = commits.made(position, tracker, self.metadata_max)
                commands = (*commands, Commit(part.partition, part.generation, position, text))
        holding = part.holding.decided(self.limits, tracker, commits.length)
        if phase is not Phase.FLOWING:
            if holding.fetching is not None:
                commands = (*commands, *map(Cancel, _fetches(part)))
                holding = holding.at(None)
            if phase is Phase.DRAINING and part.work.is_idle and not commits.backs_off and commits.committing is None:
                return Step(Unassigned(), (*commands, *self._let_go(part)))
        elif holding.fetching is None and isinstance(holding.hold, Free) and not commits.begins:
            holding = holding.at(tracker.frontier)
            commands = (*commands, Fetch(part.partition, part.generation, tracker.frontier))
        if commits is part.commits and holding is part.holding:
            return Step(part, commands)
        after = Owned(
            partition=part.partition, generation=part.generation, phase=phase, tracker=tracker, order=part.order,
            work=part.work, failed=part.failed, commits=commits, holding=holding, revocation=part.revocation,
        )  # fmt: skip
        return Step(after, commands)

    # --- the end ---

    def _revoked(self, part: Owned, in_flight: tuple[InFlight, ...]) -> PartitionStep:
        """Leave waiting and backed-off work to the next owner; work in flight may end within the
        time to drain.
        """
        timers = tuple([Cancel(_failures.retry_timer(self, part, start)) for start in _failures.backing_off(part)])
        work = part.work.not_ready().without_retries()
        revocation = Revocation(Stage.WAITING, in_flight)
        dropped = attrs.evolve(
            part, phase=Phase.DRAINING, order=part.order.stopped(0), work=work, revocation=revocation
        )
        return self._draining(dropped, 0, timers)

    def _draining(self, part: Owned, elapsed: Duration, commands: tuple[Command, ...] = ()) -> PartitionStep:
        """Enter the stage of draining that begins `elapsed` microseconds after the revocation."""
        now = stage(self.drain, elapsed)
        if now is Stage.OVER:
            return Step(Unassigned(), (*commands, *self._cancelled(part), Release(part.partition)))
        in_stage = attrs.evolve(part, revocation=attrs.evolve(part.revocation, stage=now))
        part, follows = self._fated(in_stage, elapsed)
        return self._commit_hold_fetch(part, (*commands, self._timer(part), *follows))

    def _fated(self, part: Owned, elapsed: Duration) -> tuple[Owned, tuple[Command, ...]]:
        """Apply the drain plan to the work in flight: interrupt, abandon or wait."""
        asked = part.asked
        if not asked:
            return part, ()
        # a record that is in two works ends with the later one: it overwrites the older
        oldest_first = sorted(part.revocation.in_flight, key=lambda each: -each.age)
        known = {each.offset: attrs.evolve(each, age=each.age + elapsed) for each in oldest_first}
        in_work = sorted({offset for each in asked for offset in each.work.offsets})
        fates = plan(self.drain, elapsed, tuple(known.get(offset, InFlight(offset)) for offset in in_work))
        action = {fate.offset: fate.action for fate in fates}
        stop: list[Asked] = []
        abandoned: list[Asked] = []
        for each in asked:  # work on several records gets the mildest action of any
            actions = {action[offset] for offset in each.work.offsets}
            mildest = next(mildest for mildest in Action if mildest in actions)
            if mildest is Action.ABANDON:
                abandoned.append(each)
            elif mildest is Action.CANCEL and not each.is_interrupted:
                stop.append(each)
        interrupts = map(Interrupt, self._batched([each.work for each in stop]))
        cancels = map(Cancel, self._batched([each.work for each in abandoned]))
        if stop or abandoned:
            part = part.evolve(work=part.work.ending(stop, abandoned))
        return part, (*interrupts, *cancels)

    def _given_up(self, part: Owned) -> tuple[Command, ...]:
        return (*self._cancelled(part), *self._let_go(part))

    def _let_go(self, part: Owned) -> tuple[Command, ...]:
        if part.phase is not Phase.DRAINING:
            return ()
        return Cancel(self._timer(part)), Release(part.partition)

    def _timer(self, part: Owned) -> StartDrainTimer:
        during = part.revocation.stage
        return StartDrainTimer(part.partition, part.generation, during, left(self.drain, self._began(during)))

    def _cancelled(self, part: Owned) -> tuple[Cancel, ...]:
        """Cancels of all work, timers and fetches of the partition."""
        timers = [_failures.retry_timer(self, part, start) for start in _failures.backing_off(part)]
        if part.commits.backs_off:
            timers.append(_failures.commit_timer(self, part, part.commits))
        works = self._batched([each.work for each in part.asked])
        return *map(Cancel, works), *map(Cancel, timers), *map(Cancel, _fetches(part))

    def _batched(self, works: Iterable[Work]) -> list[Work]:
        """The same works in fewer commands: one `Handle` names many records of the same attempt."""
        batched: list[Work] = []
        for (is_handled, attempt), those in groupby(works, key=_batch):
            if not is_handled:
                batched += those
                continue
            own = [*those]
            for at in range(0, len(own), self.batch_max):
                some = own[at : at + self.batch_max]
                offsets = tuple([each.offsets[0] for each in some])
                batched.append(attrs.evolve(some[0], request=Handle(offsets, attempt), offsets=offsets))
        return batched

    def _began(self, during: Stage) -> Duration:
        """How long after the revocation the stage begins, in microseconds."""
        return {Stage.CANCELLING: self.drain.wait, Stage.COMMITTING: self.drain.commit_at}.get(during, 0)


# --- helpers --------------------------------------------------------------------------------------


def _is_current(part: Owned, event: Event) -> bool:
    """Whether the event belongs to this generation; an assignment must be of a newer one."""
    if isinstance(event, OF_ANY_LIFE):
        return True
    return event.generation > part.generation if isinstance(event, Assigned) else event.generation == part.generation


def _fetches(part: Owned) -> tuple[Fetch, ...]:
    return () if part.fetching is None else (Fetch(part.partition, part.generation, part.fetching),)


def _batch(work: Work) -> tuple[bool, int]:
    """The key of `_batched`: records of the same attempt share a command."""
    return (True, work.request.attempt) if isinstance(work.request, Handle) else (False, 0)
