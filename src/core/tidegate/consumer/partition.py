"""One partition's life at one consumer: what to do next, whatever comes.

A partition is assigned, its records are fetched, worked on out of order and committed in order, until it is revoked or
lost. This is a reducer: `step(state, event)` answers the next state and commands (`tidegate.consumer.commands`). There is no
other channel, so nothing can wedge it: every event has an answer in every state, and "ignored" is one.

    Assigned -> Flowing -- Revoked --> Draining -- all done, or time is up --> Unassigned
                   |                     ^
                 Failed                  |
                   v                     |
                Stopped ---- Revoked ----+            Lost, or a commit refused, from anywhere: Unassigned

An event passes the stages of a partition once, in this order. Each has a small state of its own, is told what changed, and
says what changes for the next; none looks at the others again:

    take in   what came is delivered in the tracker, but for what is known already          `watermark`
    order     what waits, and for which record before it; which is next                     `order`
    work      what was given to user code: records to handlers, or windows with tasks       `_record_work`; `_window_work`
    settle    what is done is completed; what follows from a failure                        `_failures`
    commit    the position, with what is done beyond it                                     `commits`, `commit_metadata`
    hold      a partition that holds up too much is not fetched from                        `holding`, `backpressure`

Executors are given out last, once all that an event tells is settled: so a consumer can share them among its partitions. What
has failed, a record or a commit without an answer, is tried again after a while, and a longer one each time (`backoff`):
whoever carries the commands out starts the timer, and tells when it has fired. A revocation (`drain`) is an event like others.

A step costs what it is told, and the path to a page of the tracker. A record with a plain handler has no entry anywhere but in
the tracker's bit set; what deviates has one (`handling`). Windows cost a look at each that is in flight.

What a final failure does is a choice: stop the partition, hold back the rest of the key, or answer for the record (write
it, or a marker, elsewhere) and go on, or do the same with the rest of the key, in order. To speak of the rest of a key,
the records of a key must be worked on in order: `Ordering.BY_KEY`. A failure nobody can answer for stops the partition.

Each assignment has a generation, and every command and event names it. What comes of an older one is ignored, late as it
may be: the partition has another life by now, here or elsewhere.

Laws
    P1  The committed position never passes unfinished work, and never falls.
    P2  At most one commit is in flight.
    P3  What comes of an older generation or of another partition changes nothing, nor does what nobody asked for.
    P4  A record with a failure that nobody has answered for is not committed, nor is anything behind it. What is before
        it is still finished and committed. Where the partition stops for it, nothing behind it is taken any more.
    P5  Nothing new is started once it is revoked. It is released when nothing is in work and what may be committed is, or
        when the time to drain is over; in either case exactly once.
    P6  No more than `running_max` tasks run, and nothing is fetched while the partition is held on its own account.
    P7  At rest, with a member alive and no failure left unanswered, every record was processed at least once, and
        committed.
    P8  Of the records of a key, or of the partition, as the order says, one is in work at a time, or with an order by offset
        those of one window, and each only after those before it, or before its window, were settled.
    P9  The rest of a key that is held back is not begun; the rest of one that is diverted is not run, but answered for.
    P10 What user code raises is a failure of that work and of nothing else: whatever it raises at, each record is settled,
        or its failure stands and is seen, and nothing else waits for it.
    P11 Work that is interrupted or abandoned, or fails once the partition is revoked, is not taken for failed, nor for
        done: the next owner does it again.
    P12 What has failed, or was parked, is not tried again before its time: neither its tasks, nor those that replace them, nor a commit.
    P13 A report of many records is the same as a report of each, in any order, where executors are given out after all of
        them: the same is done, failed, in work and waiting then, and the same is begun. Commits may be fewer.
    P14 Work that ends without an answer for all it was asked for has failed as far as that goes, and people are told.
    P15 What user code parks has neither failed nor is it done: it is handled again at the same attempt, once its time has come,
        and only what waits for it in the order of work waits. Where the partition is revoked, it is left to the next owner.
    P16 Where nothing is committed, or what is committed is not in the log, and another owner may find another beginning, nothing is
        fetched before the beginning is committed: or what was begun and not committed would be before it.

Known not to work
    - User code that neither ends nor can be interrupted goes on after the time to drain is over. The new owner then works
      on the same record; at least once is all that is promised, so handlers must bear repetition.
    - A commit whose reply was lost, and that the broker takes only after the next one, makes the committed position fall
      (P1) until the next commit. Within a generation no broker fences it; what lies between is handled again, if at all.
    - A record whose key is held back stays undone until the partition is assigned anew, and the partition takes no more
      than `limits` allow behind it.
    - Records without a key have no order, and no rest.
    - Which keys are held back or diverted is forgotten with the assignment: the next owner runs the rest of a key that was
      diverted.
    - In a window nothing can be parked: who asks for that has failed.
    - Where a window has a delivery of its own, its records are settled together. So a failure that stands holds up all of
      them, and the rest of all their keys.
    - To stop behind a failure, or to drop what waits, costs what waits in lines of keys.

Things that do not work
    To judge what fails during a drain, or to answer for it: an executor that is interrupted may well say that it has
    failed, and the record would be dead-lettered, which was not bad.
    To believe an answer to a commit that is not in flight: the floor moves on, and what lies between is never committed.
    To drop all that is queued when the partition stops: where records of a key wait for each other, some of it is before
    the failure, and P4 wants it done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import assert_never, final

import attrs

from tidegate.consumer import _failures, _record_work, _window_work
from tidegate.consumer._stages import came
from tidegate.consumer.backpressure import Free
from tidegate.consumer.commands import (
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
from tidegate.consumer.commit_metadata import Alphabet, decoded
from tidegate.consumer.commits import Commits
from tidegate.consumer.drain import Action, InFlight, Stage, left, plan, stage
from tidegate.consumer.fanout import Start
from tidegate.consumer.handling import Handling, RecordPhase
from tidegate.consumer.holding import Holding
from tidegate.consumer.order import Lines, Queue
from tidegate.consumer.outstanding import Asked
from tidegate.consumer.partition_settings import DRAIN, PLAIN, RUNNING_MAX, FailurePolicy, Ordering, PartitionSettings
from tidegate.consumer.partition_state import (
    Owned,
    PartitionState,
    PartitionStep,
    Phase,
    Revocation,
    Unassigned,
)
from tidegate.consumer.watermark import OffsetTracker, acknowledged
from tidegate.consumer.windowed import Windowed
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
    """What one partition does next; its settings say how much at once."""

    def step(self, state: PartitionState, event: Event) -> PartitionStep:
        """What follows from an event for the partition.

        Args:
            state: The state before.
            event: What happened.

        Returns:
            The state after, and commands in order. An event that no longer matters leaves the state as it is.

        Raises:
            Misuse: An argument is of another type, or out of range.
        """
        check_event(event)
        check_type(state, (Unassigned, Owned), "a state of a partition")
        if isinstance(state, Owned) and event.partition != state.partition:
            return Step(state)  # whoever handed it over took one partition for another
        told = self._apply(state, event)
        if not isinstance(told.state, Owned):
            return told
        begun, commands = self._start_work(told.state, self.running_max)
        return Step(begun, (*told.commands, *commands))

    def _apply(self, state: PartitionState, event: Event) -> PartitionStep:
        """What follows from an event before executors are given out: for a consumer, which has checked it."""
        if isinstance(state, Unassigned):
            return self._unassigned(event)
        return self._owned(state, event) if _is_current(state, event) else Step(state)

    def _start_work(self, part: Owned, room: int) -> tuple[Owned, Sequence[Command]]:
        """What may be started is started, where so many handlers or tasks of the partition may run."""
        if isinstance(part.work, Windowed):
            return _window_work.start_windows(self, part, part.work, room)
        return _record_work.start_handlers(self, part, part.work, room)

    def _unassigned(self, event: Event) -> PartitionStep:
        match event:
            case Assigned():
                return self._commit_hold_fetch(self._assigned(event))
            case Revoked(partition):
                return Step(Unassigned(), (Release(partition),))  # it was given up before
            case _:
                return Step(Unassigned())  # it is not ours, or no longer

    def _assigned(self, event: Assigned) -> Owned:
        """A new life, with what the former owner has committed beyond the position."""
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
            case Assigned():  # the group forgot to revoke it: a new life all the same
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
                return Step(part)  # it has happened before, or nothing asked for it
            case _:
                assert_never(event)

    # --- take in, and order ---

    def _records_fetched(self, part: Owned, offsets: tuple[int, ...], keys: tuple[Key, ...]) -> PartitionStep:
        """These records are registered, and wait; the fetch is answered."""
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
        """The records to take now: in order, and of each key none before the one before it is settled.

        Args:
            part: The partition.
            room: How many handlers or tasks of it may run; by default `running_max`.

        Raises:
            Misuse: It is not a partition that is owned, or not a number of tasks.
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
        """What has backed off is ready."""
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
        """What waits or backs off is left to the next owner; what is in work may end within the time to drain."""
        timers = tuple([Cancel(_failures.retry_timer(self, part, start)) for start in _failures.backing_off(part)])
        work = part.work.not_ready().without_retries()
        revocation = Revocation(Stage.WAITING, in_flight)
        dropped = attrs.evolve(
            part, phase=Phase.DRAINING, order=part.order.stopped(0), work=work, revocation=revocation
        )
        return self._draining(dropped, 0, timers)

    def _draining(self, part: Owned, elapsed: Duration, commands: tuple[Command, ...] = ()) -> PartitionStep:
        """Enter the stage of draining that begins at this time since the revocation."""
        now = stage(self.drain, elapsed)
        if now is Stage.OVER:
            return Step(Unassigned(), (*commands, *self._cancelled(part), Release(part.partition)))
        in_stage = attrs.evolve(part, revocation=attrs.evolve(part.revocation, stage=now))
        part, follows = self._fated(in_stage, elapsed)
        return self._commit_hold_fetch(part, (*commands, self._timer(part), *follows))

    def _fated(self, part: Owned, elapsed: Duration) -> tuple[Owned, tuple[Command, ...]]:
        """What becomes of work in flight at this time since the revocation, and what to do about it."""
        asked = part.asked
        if not asked:
            return part, ()
        # what is in two works ends with the later one
        oldest_first = sorted(part.revocation.in_flight, key=lambda each: -each.age)
        known = {each.offset: attrs.evolve(each, age=each.age + elapsed) for each in oldest_first}
        in_work = sorted({offset for each in asked for offset in each.work.offsets})
        fates = plan(self.drain, elapsed, tuple(known.get(offset, InFlight(offset)) for offset in in_work))
        action = {fate.offset: fate.action for fate in fates}
        stop: list[Asked] = []
        abandoned: list[Asked] = []
        for each in asked:  # work on several records is dealt with as mildly as any of them
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
        """Cancel what is under way, and let go if somebody waits for that."""
        return (*self._cancelled(part), *self._let_go(part))

    def _let_go(self, part: Owned) -> tuple[Command, ...]:
        if part.phase is not Phase.DRAINING:
            return ()
        return Cancel(self._timer(part)), Release(part.partition)

    def _timer(self, part: Owned) -> StartDrainTimer:
        """The one that runs in this stage."""
        during = part.revocation.stage
        return StartDrainTimer(part.partition, part.generation, during, left(self.drain, self._began(during)))

    def _cancelled(self, part: Owned) -> tuple[Cancel, ...]:
        """What is under way, taken back."""
        timers = [_failures.retry_timer(self, part, start) for start in _failures.backing_off(part)]
        if part.commits.backs_off:
            timers.append(_failures.commit_timer(self, part, part.commits))
        works = self._batched([each.work for each in part.asked])
        return *map(Cancel, works), *map(Cancel, timers), *map(Cancel, _fetches(part))

    def _batched(self, works: Iterable[Work]) -> list[Work]:
        """The same works in few commands: records that are handled at the same attempt are named together."""
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
        """How long after the revocation the stage begins."""
        return {Stage.CANCELLING: self.drain.wait, Stage.COMMITTING: self.drain.commit_at}.get(during, 0)


# --- helpers ------------------------------------------------------------------------------------------------------------


def _is_current(part: Owned, event: Event) -> bool:
    """Is the event of this generation? An assignment is of a newer one."""
    if isinstance(event, OF_ANY_LIFE):
        return True
    return event.generation > part.generation if isinstance(event, Assigned) else event.generation == part.generation


def _fetches(part: Owned) -> tuple[Fetch, ...]:
    """The fetch in flight, if there is one."""
    return () if part.fetching is None else (Fetch(part.partition, part.generation, part.fetching),)


def _batch(work: Work) -> tuple[bool, int]:
    """What may be named together: records that are handled at the same attempt."""
    return (True, work.request.attempt) if isinstance(work.request, Handle) else (False, 0)
