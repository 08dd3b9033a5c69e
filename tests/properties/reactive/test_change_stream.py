"""What does the leader do with a stream of changes, and how far may its resume token advance?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.model.documents import Document, exactly
from tidegate.model.effects import Ambiguous, Effect, NotApplied, Now, Refused
from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.model.instants import MILLISECOND, SECOND
from tidegate.model.reducer import Step
from tidegate.reactive import change_stream, reconciliation
from tidegate.reactive.change_stream import (
    CANNOT_RESUME,
    After,
    Await,
    Broken,
    Change,
    ChangeStreamConsumer,
    Consuming,
    Done,
    Due,
    Elected,
    Failed,
    Fenced,
    Flush,
    Flushing,
    Following,
    From,
    HandleDeleted,
    Keep,
    LeadershipLost,
    Locate,
    Located,
    Page,
    Pass,
    Plan,
    Position,
    Read,
    Received,
    Reconcile,
    Request,
    ResetHistory,
    Save,
    StopAsked,
    Stopped,
    StreamCommand,
    StreamEvent,
    StreamFailed,
    StreamState,
    StreamStep,
    collected,
    event_for,
    free,
    passes,
)
from tidegate.reactive.laws import change_stream as laws
from tidegate.reactive.reconciliation import (
    CleanedUp,
    PassOutcome,
    Planned,
    Progress,
    Run,
    Scan,
    ScanVerdict,
    Trigger,
    Write,
    forgotten,
    forgotten_task,
    reconcile,
    scans,
)
from tidegate.reactive.strategies.change_stream import changes, commands, consumers, events

Doc: TypeAlias = tuple[str, int]
Tasks: TypeAlias = Mapping[str, frozenset[Trigger]]

BEFORE: Final = (("a", 0), ("b", 0), ("a", 2))
"""The documents that are there at the beginning, and of which no stream tells."""

TASKS: Final = {"a": ("t1", "t2"), "b": ("t3",)}


def deployed(version: int) -> Tasks:
    """The tasks of two collections; the trigger of t1 is of a version."""
    return {
        collection: frozenset(Trigger(task, version if task == "t1" else 0) for task in tasks)
        for collection, tasks in TASKS.items()
    }


@attrs.frozen
class Parts:
    """What the world is made of, of which one may be planted."""

    kind: type[ChangeStreamConsumer] = ChangeStreamConsumer
    reconcile: Callable[[Run, Progress, Scan, PassOutcome], ScanVerdict] = reconcile
    forgotten: Callable[[Progress], Progress] = forgotten
    is_one_write: bool = True
    is_fenced: bool = True

    @property
    def consumer(self) -> ChangeStreamConsumer:
        return self.kind(size=2)


OURS: Final = Parts()

# --- a world in which documents change, leaders change, and much goes wrong ---------------------------------------------


@attrs.define(eq=False)
class Running:
    """A reconciliation under way."""

    run: Run
    progress: Progress = attrs.Factory(Progress)
    scan: Scan | None = None
    outcome: PassOutcome | None = None


@attrs.define(eq=False)
class Process:
    """A consumer, what it commanded, and its reconciliations."""

    version: int = 0
    state: StreamState = attrs.Factory(Following)
    out: list[StreamCommand] = attrs.Factory(list)
    runs: list[Running] = attrs.Factory(list)
    asked: list[Reconcile] = attrs.Factory(list)

    @property
    def epoch(self) -> int:
        return self.state.epoch if isinstance(self.state, Consuming) else 0


@attrs.define(eq=False)
class World:
    """A server with documents, a stream that forgets, and a record; and two processes.

    Positions, passes and what is lost are counted in changes; of all changes before `lost` no stream tells.
    """

    parts: Parts
    law: str
    page: int
    log: list[Change] = attrs.Factory(lambda: [Change(*doc) for doc in BEFORE])
    last: dict[Doc, int] = attrs.Factory(lambda: {doc: at for at, doc in enumerate(BEFORE)})
    lost: int = len(BEFORE)
    passed: dict[tuple[str, Doc], int] = attrs.Factory(dict)
    epoch: int = 0
    position: int | None = None
    progress: Progress = attrs.Factory(Progress)
    version: int = 0
    processes: tuple[Process, ...] = attrs.Factory(lambda: (Process(), Process()))
    late: list[Callable[[], object]] = attrs.Factory(list)

    def judge(self, law: str, verdict: bool) -> None:
        assert verdict or law not in self.law, law

    # what is there

    def is_there(self, doc: Doc) -> bool:
        return doc in self.last and not self.log[self.last[doc]].is_gone

    def docs(self, collection: str, *, are_gone: bool) -> list[Doc]:
        return sorted(doc for doc in self.last if doc[0] == collection and self.is_there(doc) != are_gone)

    def change(self, doc: Doc, *, is_gone: bool) -> None:
        if not is_gone or self.is_there(doc):
            self.last[doc] = len(self.log)
            self.log.append(Change(*doc, is_gone=is_gone))

    def mark(self, by: Process, tasks: Iterable[str], docs: Iterable[Doc]) -> None:
        """These had a pass now; one by another trigger than the stored one does not count."""
        for task in tasks:
            if task != "t1" or by.version == self.version:
                self.passed.update({(task, doc): len(self.log) for doc in docs})

    def scanned(self) -> Iterator[tuple[str, Doc]]:
        """The tasks and documents that whoever reconciles next looks at."""
        for scan in scans(self.progress, deployed(self.version)):
            for doc in self.last:
                is_left = scan.after is None or doc[1] > int(str(scan.after.last_id)) or not self.is_there(doc)
                if doc[0] == scan.collection and is_left:
                    yield from ((each.task, doc) for each in scan.triggers)

    def judge_all(self) -> None:
        scanned = set(self.scanned())
        for doc, at in self.last.items():
            for each in ((task, doc) for task in TASKS[doc[0]]):
                kept = laws.is_not_lost(at, self.passed.get(each, 0), self.position, is_scanned=each in scanned)
                self.judge("CS1", kept)

    # what is asked of the server

    def apply(self, by: Process, command: Request, skipped: int = 0) -> object:
        """Carry a command out, or of a pass all but so much of it."""
        match command:
            case Locate():
                return From(len(self.log))
            case Read(_, position):
                at = counted(position)
                if at < self.lost:
                    return Broken(286)
                told = tuple(self.log[at : at + self.page])
                return Page(told, After(at + len(told)))
            case HandleDeleted(_, _, collection, ids):
                gone = [(collection, int(str(each))) for each in ids]
                self.mark(by, TASKS[collection], [doc for doc in gone if not self.is_there(doc)][skipped:])
            case Plan(_, _, collection, ids):
                there = [(collection, int(str(each))) for each in ids]
                self.mark(by, TASKS[collection], [doc for doc in there if self.is_there(doc)][skipped:])
            case Save(epoch, history, position):
                if self.parts.is_fenced and (epoch, history) != (self.epoch, self.progress.history):
                    return Refused("fenced")
                self.position = counted(position)
            case ResetHistory(epoch, history):
                if epoch != self.epoch or history < self.progress.history:
                    return Refused("fenced")
                if history > self.progress.history:
                    self.position = None
                    if self.parts.is_one_write:
                        self.progress = self.parts.forgotten(self.progress)
                    else:
                        self.judge_all()  # here the process may crash
        return None

    def elect(self, by: Process) -> None:
        """It takes the lease, does what another trigger asks for, and reads what is stored."""
        if by.epoch == self.epoch > 0 or isinstance(by.state, Stopped):
            return
        self.epoch += 1
        if by.version != self.version:
            self.version = by.version
            self.progress = forgotten_task(self.progress, "a", "t1")
            self.passed = {key: at for key, at in self.passed.items() if key[0] != "t1"}
        position = None if self.position is None else After(self.position)
        self.tell(by, Elected(self.epoch, self.progress.history, position))

    # what a process does

    def tell(self, by: Process, event: StreamEvent) -> None:
        """One step of a consumer; the laws of a step are judged here."""
        before, consumer = by.state, self.parts.consumer
        step = consumer.step(before, event)
        self.judge("CS3", self.asks_well(before, step))
        self.judge("CS4", laws.flushes_in_time(consumer, before, event, step))
        self.judge("CS4", laws.starts_its_time_once(before, step))
        self.judge("CS5", laws.one_save_is_under_way(step.state))
        self.judge("CS6", laws.awaits_something(step.state))
        self.judge("CS6", laws.tries_again(before, event, step))
        self.judge("CS7", laws.is_silent_when_over(step))
        self.judge("CS7", laws.ignores_what_is_not_awaited(before, event, step))
        is_led = isinstance(step.state, Consuming) and step.state.epoch == self.epoch
        if is_led:
            stored = (self.progress.history, self.position is not None)
            self.judge("CS8", laws.reconciles_in_time(before, event, step, tuple(by.asked), stored))
        self.judge("CS9", laws.keeps_the_position(consumer, before, event, step))
        by.state = step.state
        for command in step.commands:
            if isinstance(command, Reconcile):
                by.asked.append(command)
                by.runs.append(Running(Run(command.epoch, command.history)))
            else:
                by.out.append(command)
            if isinstance(command, Save) and is_led:
                self.judge("CS5", self.may_save(command))

    def asks_well(self, before: StreamState, step: StreamStep) -> bool:
        """What a batch asks for, told from what was collected."""
        after = step.state
        if not laws.cleans_up_first(after) or not isinstance(after, Consuming):
            return not isinstance(after, Consuming)
        is_begun = isinstance(before, Consuming) and before.flushing is None and after.flushing is not None
        if not is_begun or not isinstance(before, Consuming) or after.flushing is None or before.read is None:
            return True
        told = self.log[self.collected_from(before) : counted(after.flushing.position)]
        return laws.asks_for_each_once(tuple(told), after.flushing.left)

    def collected_from(self, before: Consuming) -> int:
        """Where the batch begins: where the one before it ended."""
        return counted(before.safe or From(0))

    def may_save(self, command: Save) -> bool:
        """Of each document the last change counts: it is told again, and a pass over those before it may see nothing."""
        saved, scanned = counted(command.position), set(self.scanned())
        happened = [(at, (task, doc)) for doc, at in self.last.items() for task in TASKS[doc[0]]]
        return all(
            laws.may_be_saved(at, self.passed.get(each, 0), saved, is_scanned=each in scanned) for at, each in happened
        )

    def serve(self, by: Process, place: int, how: str) -> None:
        """Carry out one of the commands: well, with no answer, not at all, only a part, or late."""
        requests = [command for command in by.out if not isinstance(command, (Await, Reconcile))]
        if not requests:
            return
        command = requests[place % len(requests)]
        by.out.remove(command)
        if how == "serve":
            self.hear(by, command, self.apply(by, command))
        elif how == "lose":
            _ = self.apply(by, command)
            self.hear(by, command, Ambiguous("no answer"))
        elif how == "part":
            if isinstance(command, (HandleDeleted, Plan)):
                _ = self.apply(by, command, 1)
            self.hear(by, command, NotApplied("part of it"))
        else:
            self.late.append(partial(self.apply, by, command))
            self.hear(by, command, Ambiguous("no answer"))

    def hear(self, by: Process, command: StreamCommand, reply: object) -> None:
        event = event_for(command, reply)
        assert event is not None
        self.tell(by, event)

    def time(self, by: Process, place: int) -> None:
        timers = [command for command in by.out if isinstance(command, Await)]
        if timers:
            command = timers[place % len(timers)]
            by.out.remove(command)
            self.hear(by, command, None)

    def run(self, by: Process, place: int, how: str) -> None:
        """One step of a reconciliation: it reads what is left, looks at a batch, or writes."""
        if not by.runs:
            return
        running = by.runs[place % len(by.runs)]
        if running.scan is None:
            running.progress = self.progress
            left = scans(self.progress, deployed(by.version))
            if left:
                running.scan = left[place % len(left)]
            else:
                by.runs.remove(running)
        elif running.outcome is None:
            running.outcome = self.look(by, running.scan, how)
        else:
            verdict = self.parts.reconcile(running.run, running.progress, running.scan, running.outcome)
            running.scan = running.outcome = None
            match verdict:
                case Write() if how == "late":
                    self.late.append(partial(self.write, verdict, running.run))
                case Write():
                    if not self.write(verdict, running.run):
                        by.runs.remove(running)
                case reconciliation.Again():
                    pass
                case reconciliation.RunSuperseded():
                    by.runs.remove(running)

    def look(self, by: Process, scan: Scan, how: str) -> PassOutcome:
        tasks = [each.task for each in scan.triggers]
        since = -1 if scan.after is None else int(str(scan.after.last_id))
        left = [doc for doc in self.docs(scan.collection, are_gone=False) if doc[1] > since][:2]
        if how == "part":
            self.mark(by, tasks, left[1:])
            return reconciliation.Failed()
        if left:
            self.mark(by, tasks, left)
            return Planned(tuple(doc[1] for doc in left))
        self.mark(by, tasks, self.docs(scan.collection, are_gone=True))
        return CleanedUp()

    def write(self, verdict: Write, run: Run) -> bool:
        is_fit = (verdict.epoch, run.history) == (self.epoch, self.progress.history)
        if is_fit:
            self.progress = verdict.progress
        return is_fit

    def crash(self, by: Process, version: int) -> None:
        """What is in memory is lost; what is under way may still arrive."""
        requests = [command for command in by.out if not isinstance(command, (Await, Reconcile))]
        was = attrs.evolve(by)
        self.late.extend(partial(self.apply, was, command) for command in requests[:2])
        by.version, by.state, by.out, by.runs, by.asked = version, Following(), [], [], []

    def turn(self, what: str, who: int, much: int) -> None:
        by = self.processes[who]
        doc = ("ab"[much % 2], much // 2 % 3)
        match what:
            case "change" | "delete":
                self.change(doc, is_gone=what == "delete")
            case "truncate":
                self.lost = len(self.log) - much % 2
            case "elect":
                self.elect(by)
            case "tell":
                if by.epoch < self.epoch:
                    self.tell(by, LeadershipLost(max(by.epoch, 1)))
            case "serve" | "lose" | "part" | "late":
                self.serve(by, much, what)
            case "arrive" if self.late:
                _ = self.late.pop(much % len(self.late))()
            case "break":
                reads = [command for command in by.out if isinstance(command, Read)]
                for command in reads[:1]:
                    by.out.remove(command)
                    self.hear(by, command, Broken(43) if much % 2 else NotApplied("no connection"))
            case "time":
                self.time(by, much)
            case "run" | "run part" | "run late":
                self.run(by, much, what.removeprefix("run").strip())
            case "crash":
                self.crash(by, much % 2)
            case "stop":
                self.tell(by, StopAsked())
            case _:
                pass
        self.judge_all()

    def calm(self) -> None:
        """No fault any more, and one that leads."""
        first, other = self.processes
        self.crash(other, 0)
        if isinstance(first.state, Stopped) or (isinstance(first.state, Consuming) and first.state.is_stopping):
            self.crash(first, 0)
        self.late.clear()
        if first.epoch != self.epoch or self.epoch == 0:
            self.elect(first)
        for _ in range(40):
            for place in range(3):
                self.run(first, place, "")
            for what in list(first.out):
                if what in first.out:
                    self.time(first, 0)
                    self.serve(first, 0, "serve")
            self.judge_all()
        for doc, at in self.last.items():
            for task in TASKS[doc[0]]:
                self.judge("CS2", laws.has_had_its_pass(at, self.passed.get((task, doc), 0)))
        self.judge("CS2", scans(self.progress, deployed(self.version)) == () and not first.runs)
        self.judge("CS9", self.position == len(self.log))


def doc_of(change: Change) -> Doc:
    return change.collection, int(str(change.id))


def counted(position: Position) -> int:
    return int(str(position.token if isinstance(position, After) else position.time))


Turn: TypeAlias = tuple[str, int, int]

USUAL: Final = ("serve", "serve", "serve", "run", "run", "time", "change", "change", "elect")
FAULTS: Final = (
    "lose",
    "part",
    "late",
    "arrive",
    "break",
    "truncate",
    "delete",
    "tell",
    "crash",
    "stop",
    "run part",
    "run late",
)
TURNS: Final = st.lists(
    st.sampled_from([(what, who, much) for what in USUAL * 2 + FAULTS for who in (0, 0, 0, 1) for much in range(6)]),
    min_size=10,
    max_size=60,
)


def turns(story: str) -> list[Turn]:
    """A schedule from words: `change-3` is of the third document, `2*serve` is done twice, `elect!` by the other process."""
    schedule: list[Turn] = []
    for word in story.split():
        times, _, told = word.rpartition("*")
        what, _, much = told.rstrip("!").partition("-")
        schedule += [(what.replace("_", " "), int(told.endswith("!")), int(much or 0))] * int(times or 1)
    return schedule


LED: Final = "elect 3*serve "
"""It leads, knows where the stream stands, has stored that, and has read."""
DONE: Final = LED + "13*run "
"""And has reconciled."""

STORIES: Final = {
    "a collection fails": DONE + "change-0 change-1 serve-0 part-0 9*serve crash elect",
    "the same id in two collections": DONE + "change-0 change-1 serve-0 9*serve crash elect",
    "history is lost behind a checkpoint": LED + "3*run crash change-0 truncate elect 5*serve",
    "a crash after the first flags": "elect 9*serve 9*run change-4 crash elect 3*serve",
    "an old leader writes late": LED + "change-0 serve late elect! 3*serve! change-2 3*serve! arrive",
    "an old leader of an older trigger": DONE
    + "crash-1! elect! 13*run! 3*serve! 13*run! change-0 serve time-1 2*serve-1",
    "a second batch is full first": DONE + "change-0 change-1 serve change-2 change-4 2*serve-2 serve-3 crash elect",
    "leadership is lost with a batch": LED + "change-0 serve elect! tell",
    "a batch that failed is followed by another": DONE
    + "change-0 change-1 serve part-0 change-2 change-4 2*serve-1 serve-2 crash elect",
    "the stream breaks": DONE + "change-0 break",
    "the stream breaks, and nothing else is awaited": LED + "time serve-1 break",
    "one document changes again and again": DONE + "change serve change serve",
    "a batch is done while another is collected": DONE + "change-0 change-1 serve change-2 serve-2 2*serve serve-1",
    "no position is stored": "elect 13*run change",
    "one document is deleted and another changes": DONE + "change-0 delete-0 change-2 2*serve",
    "a batch of a scan fails": LED + "run run_part run crash",
    "a stream is idle": DONE + "change-0 serve-0 time-0",
    "a batch is collected while another is under way": DONE
    + "change-0 change-1 2*serve-1 change-2 9*serve-0 crash elect",
}


def check(parts: Parts, law: str) -> None:
    """Whatever happens in whichever order, the law holds at each step, and at the end in a calm world."""
    for story in STORIES.values():
        play(World(parts, law, page=2), turns(story))

    @settings(max_examples=200)
    @given(st.integers(1, 3), st.sampled_from(["", LED, DONE, DONE]), TURNS)
    def holds(page: int, story: str, schedule: list[Turn]) -> None:
        play(World(parts, law, page), [*turns(story), *schedule])

    holds()


def play(world: World, schedule: list[Turn]) -> None:
    for each in schedule:
        world.turn(*each)
    world.calm()


LAWS: Final = "CS1 CS2 CS3 CS4 CS5 CS6 CS7 CS8 CS9"


def test_the_consumer_keeps_the_laws() -> None:
    """Laws CS1 to CS9, with two processes, crashes, lost leaderships, lost histories, and answers that do not come."""
    check(OURS, LAWS)


# --- specimens --------------------------------------------------------------------------------------------------------


class SavesAnyway(ChangeStreamConsumer):
    """mongodash: the token is saved although a collection failed."""

    def _failed(self, state: Consuming, command: Request) -> StreamStep:
        return (
            self._onward(self._done(state, command))
            if isinstance(command, (HandleDeleted, Plan))
            else super()._failed(state, command)
        )


class DropsWhatFailed(ChangeStreamConsumer):
    """mongodash: the token is not saved after other errors, but the events are gone, and the next batch saves its own."""

    def _failed(self, state: Consuming, command: Request) -> StreamStep:
        if isinstance(command, (HandleDeleted, Plan)):
            return self._onward(attrs.evolve(state, flushing=None))
        return super()._failed(state, command)


class KnowsById(ChangeStreamConsumer):
    """mongodash: a batch knows its documents by id, and not by collection."""

    def _collected(self, before: tuple[Change, ...], more: tuple[Change, ...]) -> tuple[Change, ...]:
        return tuple({exactly(each.id): each for each in (*before, *more)}.values())


class KeepsTheFirst(ChangeStreamConsumer):
    """The first change of a document stands for those after it."""

    def _collected(self, before: tuple[Change, ...], more: tuple[Change, ...]) -> tuple[Change, ...]:
        return super()._collected((), (*more[::-1], *before[::-1]))


class Slides(ChangeStreamConsumer):
    """Each change starts the time of its batch again."""

    def _received(self, state: Consuming, page: Page) -> StreamStep:
        return super()._received(attrs.evolve(state, batch=state.batch + bool(page.changes)), page)


class SavesTheNewest(ChangeStreamConsumer):
    """When a batch is done, the position is saved up to which was read by then."""

    def _safe(self, state: Consuming, flushing: Flushing) -> Position | None:
        return state.read or flushing.position


class SavesWhatWaits(ChangeStreamConsumer):
    """mongodash: a position is saved by the clock, whatever waits."""

    def _due(self, state: Consuming, command: Await) -> Consuming:
        return attrs.evolve(state, safe=state.read) if isinstance(command.then, Keep) else super()._due(state, command)


class Overlaps(ChangeStreamConsumer):
    """mongodash: flushes overlap, and who is done first saves its token."""

    def _flushed(self, state: Consuming) -> Consuming:
        after = super()._flushed(attrs.evolve(state, flushing=None))
        return state if after.flushing is None else after


class WaitsForMore(ChangeStreamConsumer):
    """A batch whose time is over waits until it is full."""

    def _flushed(self, state: Consuming) -> Consuming:
        after = super()._flushed(attrs.evolve(state, is_due=False))
        return state if after.flushing is state.flushing else after


class Takes286ForLess(ChangeStreamConsumer):
    """mongodash: only 280 is taken for lost history."""

    def _answered(self, state: Consuming, event: change_stream.Answer) -> StreamStep:
        if isinstance(event, StreamFailed) and event.code != 280:
            return self._failed(state, event.command)
        return super()._answered(state, event)


class ReconcilesAtOnce(ChangeStreamConsumer):
    """mongodash: reconciliation begins before a position is stored."""

    def _following(self, state: Following, event: StreamEvent) -> StreamStep:
        step = super()._following(state, event)
        if not isinstance(step.state, Consuming):
            return step
        asked = Reconcile(step.state.epoch, step.state.history)
        return Step(attrs.evolve(step.state, must_reconcile=False), (*step.commands, asked))


class ReconcilesAgain(ChangeStreamConsumer):
    """Reconciliation is asked for whenever something is read."""

    def _received(self, state: Consuming, page: Page) -> StreamStep:
        return super()._received(attrs.evolve(state, must_reconcile=True), page)


class ReconcilesNever(ChangeStreamConsumer):
    """The history is lost, and what was not told is not looked for."""

    def _lost(self, state: Consuming) -> Consuming:
        return attrs.evolve(super()._lost(state), must_reconcile=False)


class FlushesToTheEnd(ChangeStreamConsumer):
    """mongodash: who has lost the lease flushes its batch and saves its token."""

    def _consuming(self, state: Consuming, event: StreamEvent) -> StreamStep:
        step = super()._consuming(state, event)
        is_over = isinstance(event, LeadershipLost) and isinstance(step.state, Following)
        if not is_over or state.read is None:
            return step
        last = (*passes(state.epoch, state.batch, state.changes), Save(state.epoch, state.history, state.read))
        return Step(step.state, last)


class PlansFirst(ChangeStreamConsumer):
    """What has changed is looked at before what was deleted."""

    def _passes(self, state: Consuming) -> tuple[Pass, ...]:
        return super()._passes(state)[::-1]


class TriesAtOnce(ChangeStreamConsumer):
    """What failed is tried again with no pause."""

    def _failed(self, state: Consuming, command: Request) -> StreamStep:
        return super()._failed(state, command) if state.is_stopping else self._onward(state)


class GivesUp(ChangeStreamConsumer):
    """A stream that has failed is not opened again."""

    def _failed(self, state: Consuming, command: Request) -> StreamStep:
        return Step(state) if isinstance(command, Read) else super()._failed(state, command)


class BelievesWhatever(ChangeStreamConsumer):
    """An answer counts, whatever is awaited."""

    def _consuming(self, state: Consuming, event: StreamEvent) -> StreamStep:
        if isinstance(event, (Elected, LeadershipLost, StopAsked)):
            return super()._consuming(state, event)
        return self._answered(attrs.evolve(state, awaited=state.awaited - {event.command}), event)


class SavesOnlyChanges(ChangeStreamConsumer):
    """The position of a stream that is idle is never saved."""

    def _wanted(self, state: Consuming) -> Iterator[StreamCommand]:
        for command in super()._wanted(state):
            if not (isinstance(command, Await) and isinstance(command.then, Keep)):
                yield command


class SavesTwice(ChangeStreamConsumer):
    """A later position is saved while an earlier one is under way."""

    def _wanted(self, state: Consuming) -> Iterator[StreamCommand]:
        yield from super()._wanted(state)
        if state.safe is not None and state.safe != state.saved:
            yield Save(state.epoch, state.history, state.safe)


def with_checkpoints(progress: Progress) -> Progress:
    """mongodash: lost history leaves the checkpoints of an interrupted reconciliation."""
    return Progress(progress.history + 1, checkpoints=progress.checkpoints)


def with_flags(progress: Progress) -> Progress:
    """Lost history leaves the flags."""
    return Progress(progress.history + 1, progress.reconciled)


def flags_whatever_happened(run: Run, progress: Progress, scan: Scan, outcome: PassOutcome) -> ScanVerdict:
    """mongodash: "finished" is told, whatever happened."""
    return reconcile(run, progress, scan, CleanedUp() if outcome == reconciliation.Failed() else outcome)


def passes_failures(run: Run, progress: Progress, scan: Scan, outcome: PassOutcome) -> ScanVerdict:
    """A batch that failed has a checkpoint at its end."""
    return reconcile(run, progress, scan, Planned((9,)) if outcome == reconciliation.Failed() else outcome)


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("CS1", Parts(SavesAnyway)),
        ("CS5", Parts(SavesAnyway)),
        ("CS1", Parts(DropsWhatFailed)),
        ("CS1", Parts(KnowsById)),
        ("CS3", Parts(KnowsById)),
        ("CS3", Parts(KeepsTheFirst)),
        ("CS2", Parts(KeepsTheFirst)),
        ("CS4", Parts(Slides)),
        ("CS1", Parts(SavesTheNewest)),
        ("CS5", Parts(SavesTheNewest)),
        ("CS5", Parts(SavesWhatWaits)),
        ("CS1", Parts(Overlaps)),
        ("CS4", Parts(Overlaps)),
        ("CS4", Parts(WaitsForMore)),
        ("CS2", Parts(Takes286ForLess)),
        ("CS1", Parts(ReconcilesAtOnce)),
        ("CS8", Parts(ReconcilesAtOnce)),
        ("CS8", Parts(ReconcilesAgain)),
        ("CS2", Parts(ReconcilesNever)),
        ("CS7", Parts(FlushesToTheEnd)),
        ("CS3", Parts(PlansFirst)),
        ("CS6", Parts(TriesAtOnce)),
        ("CS6", Parts(GivesUp)),
        ("CS2", Parts(GivesUp)),
        ("CS7", Parts(BelievesWhatever)),
        ("CS9", Parts(SavesOnlyChanges)),
        ("CS5", Parts(SavesTwice)),
        ("CS1", Parts(forgotten=with_checkpoints)),
        ("CS1", Parts(forgotten=with_flags)),
        ("CS1", Parts(is_one_write=False)),
        ("CS1", Parts(is_fenced=False)),
        ("CS1", Parts(reconcile=flags_whatever_happened)),
        ("CS1", Parts(reconcile=passes_failures)),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Parts) -> None:
    """Each law is broken by a small faulty variant."""
    with pytest.raises(AssertionError, match=law):
        check(planted, law)


# --- what it does, told one by one --------------------------------------------------------------------------------------

CONSUMER: Final = ChangeStreamConsumer(size=3)
START: Final = After("t0")


def follow(
    *events: StreamEvent, consumer: ChangeStreamConsumer = CONSUMER, start: Position | None = START
) -> StreamStep:
    """The last step after these, of one that leads in epoch 5."""
    step = consumer.step(Following(), Elected(5, 2, start))
    for event in events:
        assert isinstance(step.state, Consuming)
        step = consumer.step(step.state, event)
    return step


def told(*changes: Change, after: Position = START, up_to: str = "t1") -> Received:
    return Received(Read(5, after), Page(changes, After(up_to)))


A1, A2, B1 = Change("a", 1), Change("a", 2), Change("b", 1)
GONE: Final = Change("a", 1, is_gone=True)


def test_a_first_leader_stores_a_position_before_it_reads_and_reads_before_it_reconciles() -> None:
    """Law CS8. mongodash, 36: what is inserted during the start is neither lost, nor told of twice by anybody else."""
    here, first = From("now"), Read(5, From("now"))
    save = Save(5, 2, here)

    assert follow(start=None).commands == (Locate(5),)
    assert follow(Located(Locate(5), here), start=None).commands == (save,)
    assert follow(Located(Locate(5), here), Done(save), start=None).commands == (first,)
    read = follow(Located(Locate(5), here), Done(save), Received(first, Page((), After("t1"))), start=None)
    assert read.commands[0] == Reconcile(5, 2)
    assert Read(5, After("t1")) in read.commands


def test_who_finds_a_position_reads_on_from_there() -> None:
    """And reconciles what is left, once the stream could be read."""
    assert follow().commands == (Read(5, START),)
    assert follow(told()).commands == (Reconcile(5, 2), Read(5, After("t1")), Await(Keep(5), 10 * SECOND))


def test_a_batch_waits_for_its_time_or_until_it_is_full() -> None:
    """Law CS4. mongodash: 500 ms, or 1,000 documents."""
    timer = Await(Flush(5, 0), 500 * MILLISECOND)
    one = told(A1)

    assert timer in follow(one).commands
    later = follow(one, told(A2, A1, after=After("t1"), up_to="t2"))
    assert later.commands == (Read(5, After("t2")),)
    due = follow(one, Due(timer))
    assert due.commands == (Plan(5, 0, "a", (1,)),)
    full = follow(told(A1, A2, B1))
    assert full.commands[1:3] == (Plan(5, 0, "a", (1, 2)), Plan(5, 0, "b", (1,)))
    assert (ChangeStreamConsumer().size, ChangeStreamConsumer().wait) == (1_000, 500 * MILLISECOND)


def test_what_was_deleted_is_cleaned_up_before_its_collection_is_planned() -> None:
    """Law CS3. Another collection does not wait."""
    full = told(GONE, A2, B1)
    clean, plan, other = HandleDeleted(5, 0, "a", (1,)), Plan(5, 0, "a", (2,)), Plan(5, 0, "b", (1,))

    assert follow(full).commands[1:3] == (clean, other)
    assert follow(full, Done(clean)).commands == (plan,)
    assert follow(full, Done(clean), Done(plan)).commands == ()
    assert follow(full, Done(clean), Done(plan), Done(other)).commands == (Save(5, 2, After("t1")),)


def test_what_failed_is_tried_again_after_a_pause_and_nothing_is_saved_meanwhile() -> None:
    """Law CS6. mongodash: three inserts, one makes a computed size fail; none is planned, and the token is saved."""
    full, plan, other = told(A1, A2, B1), Plan(5, 0, "a", (1, 2)), Plan(5, 0, "b", (1,))
    again = Await(plan, SECOND)

    assert follow(full, Failed(plan)).commands == (again,)
    assert follow(full, Failed(plan), Done(other)).commands == ()
    assert follow(full, Failed(plan), Done(other), Due(again)).commands == (plan,)
    assert follow(full, Failed(plan), Done(other), Due(again), Done(plan)).commands == (Save(5, 2, After("t1")),)


def test_it_reads_no_further_than_until_the_next_batch_is_full() -> None:
    """While a batch does not succeed, what is held is bounded."""
    more = Received(Read(5, After("t1")), Page((A1, A2, B1), After("t2")))
    step = follow(told(A1, A2, B1), more)

    assert isinstance(step.state, Consuming)
    assert not any(isinstance(command, Read) for command in step.state.awaited)


def test_a_stream_that_broke_is_read_again_from_where_it_was() -> None:
    """Any other error: what is collected stays."""
    read = Read(5, After("t1"))
    again = Await(read, SECOND)
    broken = follow(told(A1), StreamFailed(read, 43))

    assert broken.commands == (again,)
    assert isinstance(broken.state, Consuming)
    assert broken.state.changes == (A1,)
    assert follow(told(A1), StreamFailed(read, 43), Due(again)).commands == (read,)


@pytest.mark.parametrize("code", sorted(CANNOT_RESUME))
def test_a_history_that_is_lost_is_forgotten_before_the_next_begins(code: int) -> None:
    """mongodash, 35, with 280; the server says 286 when its oplog has gone on. Law CS8 for the next history."""
    forget = ResetHistory(5, 3)
    lost = (told(A1), StreamFailed(Read(5, After("t1")), code))

    assert follow(*lost).commands == (forget,)
    assert follow(*lost, Failed(forget)).commands == (Await(forget, SECOND),)
    begun = (*lost, Done(forget), Located(Locate(5), From("now")))
    assert follow(*begun).commands == (Save(5, 3, From("now")),)
    read = (*begun, Done(Save(5, 3, From("now"))), Received(Read(5, From("now")), Page((), From("now"))))
    assert follow(*read).commands == (Reconcile(5, 3), Read(5, From("now")))


def test_who_is_to_stop_flushes_what_it_has_and_saves_where_it_was() -> None:
    """And reads no more."""
    stopping = follow(told(A1), StopAsked())

    assert stopping.commands == (Plan(5, 0, "a", (1,)),)
    assert follow(told(A1), StopAsked(), Done(Plan(5, 0, "a", (1,)))).commands == (Save(5, 2, After("t1")),)
    saved = follow(told(A1), StopAsked(), Done(Plan(5, 0, "a", (1,))), Done(Save(5, 2, After("t1"))))
    assert saved == Step(Stopped())
    assert follow(StopAsked()) == Step(Stopped())
    assert follow(StopAsked(), start=None) == Step(Stopped())
    assert follow(told(A1), StopAsked(), Failed(Plan(5, 0, "a", (1,)))) == Step(Stopped())
    assert follow(told(), StopAsked()).commands == (Save(5, 2, After("t1")),)


def test_what_waited_to_be_tried_again_is_tried_at_the_stop() -> None:
    """Once more, with no pause; the lease lasts no longer for it."""
    plan = Plan(5, 0, "a", (1, 2))
    assert follow(told(A1, A2, B1), Failed(plan), StopAsked()).commands == (plan,)


def test_who_does_not_lead_does_nothing() -> None:
    """Law CS7. Also where the end of an epoch is heard of before its beginning."""
    assert follow(told(A1), LeadershipLost(5)) == Step(Following(5))
    assert follow(told(A1), LeadershipLost(4)).commands == ()
    assert follow(told(), StopAsked(), Fenced(Save(5, 2, After("t1")))) == Step(Following(5))
    assert CONSUMER.step(Following(), LeadershipLost(5)) == Step(Following(5))
    assert CONSUMER.step(Following(5), Elected(5, 0, None)) == Step(Following(5))
    assert CONSUMER.step(Following(5), LeadershipLost(4)) == Step(Following(5))
    assert CONSUMER.step(Following(5), told()) == Step(Following(5))
    assert CONSUMER.step(Following(5), StopAsked()) == Step(Stopped())
    assert CONSUMER.step(Stopped(), Elected(5, 0, None)) == Step(Stopped())


def test_a_later_epoch_begins_anew() -> None:
    """And an earlier one is over, whatever is told of it."""
    state = follow(told(A1)).state
    assert CONSUMER.step(state, Elected(6, 2, START)) == CONSUMER.step(Following(), Elected(6, 2, START))
    assert CONSUMER.step(state, Elected(5, 2, START)) == Step(state)


def test_an_idle_position_is_saved_only_where_nothing_waits() -> None:
    """Law CS9. mongodash: at a heartbeat of 10 s with an empty batch."""
    keep, flush = Await(Keep(5), 10 * SECOND), Await(Flush(5, 0), 500 * MILLISECOND)
    more = told(A1, after=After("t1"), up_to="t2")

    assert follow(told(), Due(keep)).commands == (Save(5, 2, After("t1")),)
    assert follow(told(), more, Due(keep)).commands == ()
    assert follow(told(), more, Due(flush), Due(keep)).commands == ()


def test_a_pass_that_nobody_knows_of_changes_nothing() -> None:
    """No step makes such a state, and none is hurt by it."""
    plan = Plan(5, 0, "a", (1,))
    state = Consuming(5, 2, START, START, START, awaited=frozenset({plan}))
    step = CONSUMER.step(state, Done(plan))

    assert isinstance(step.state, Consuming)
    assert (step.state.safe, step.state.saved) == (START, START)


@given(st.lists(changes(), max_size=6).map(tuple), st.lists(changes(), max_size=6).map(tuple))
def test_changes_are_collected_one_after_the_other_or_at_once(
    before: tuple[Change, ...], more: tuple[Change, ...]
) -> None:
    """Law CS3, for all kinds of ids; collecting what is collected changes nothing."""
    assert collected(collected((), before), more) == collected((), (*before, *more))
    assert collected(collected((), before), ()) == collected((), before)
    assert laws.asks_for_each_once((*before, *more), passes(1, 0, collected(before, more)))


def test_the_first_pass_of_a_collection_is_free() -> None:
    """The others wait for it."""
    asked = passes(1, 0, (A1, Change("a", 3, is_gone=True), B1))
    assert free(asked) == (HandleDeleted(1, 0, "a", (3,)), Plan(1, 0, "b", (1,)))
    assert free(()) == ()


@given(consumers(), st.lists(events(), max_size=30))
def test_every_event_has_an_answer_in_every_state(consumer: ChangeStreamConsumer, schedule: list[StreamEvent]) -> None:
    """Laws CS6 and CS7, also for events that nobody awaits."""
    state: StreamState = Following()
    for event in schedule:
        step = consumer.step(state, event)
        assert laws.ignores_what_is_not_awaited(state, event, step)
        assert laws.is_silent_when_over(step)
        assert laws.awaits_something(step.state)
        state = step.state


# --- what is heard ------------------------------------------------------------------------------------------------------


def test_what_is_heard_says_what_became_of_a_command() -> None:
    """Refusals of what is fenced, codes of a stream, and everything else is a failure."""
    save, plan, read, locate = Save(1, 0, START), Plan(1, 0, "a", (1,)), Read(1, START), Locate(1)
    page = Page((), START)

    assert event_for(save, Refused("fenced")) == Fenced(save)
    assert event_for(ResetHistory(1, 1), Refused("fenced")) == Fenced(ResetHistory(1, 1))
    assert event_for(plan, Refused("no")) == event_for(plan, Ambiguous("?")) == Failed(plan)
    assert event_for(save, None) == Done(save)
    assert event_for(read, page) == Received(read, page)
    assert event_for(read, Broken(286)) == StreamFailed(read, 286)
    assert event_for(read, NotApplied("no connection")) == StreamFailed(read, None)
    assert event_for(locate, START) == Located(locate, START)
    assert event_for(locate, Ambiguous("?")) == Failed(locate)
    assert event_for(Await(plan, 1), None) == Due(Await(plan, 1))
    assert event_for(Reconcile(1, 0), None) is None


@pytest.mark.parametrize(
    ("command", "reply"), [(Read(1, START), None), (Locate(1), None), (Save(1, 0, START), "done"), (Now(), None)]
)
def test_what_is_no_answer_is_refused(command: Effect[object], reply: object) -> None:
    """Whoever runs a consumer hears of it at once."""
    with pytest.raises(Misuse):
        _ = event_for(command, reply)


@given(commands())
def test_wishes_print_on_one_line(command: StreamCommand) -> None:
    """For logs."""
    assert len(str(command).splitlines()) == 1
    assert hash(command) == hash(command)


def test_states_and_changes_say_what_they_are() -> None:
    """In a line."""
    printed = [str(each) for each in (Following(3), follow().state, follow(start=None).state, Stopped(), A1, GONE)]
    assert printed == [
        "following, epoch 3 is over",
        'consuming in epoch 5: read after "t0", 0 collected',
        "consuming in epoch 5: does not know where, 0 collected",
        "stopped",
        "changed a/1",
        "deleted a/1",
    ]
    assert [str(each) for each in (Await(Flush(5, 0), SECOND), Await(Keep(5), 1), Plan(5, 0, "a", (1, 2)))] == [
        "in 1 s: batch 0",
        "in 1 us: save while nothing changes",
        "plan 2 of a (batch 0)",
    ]
    assert str(follow(told(A1), StreamFailed(Read(5, After("t1")), 286)).state) == (
        "consuming in epoch 5: has lost its history, 0 collected"
    )


STREAM: Final[Any] = change_stream
"""The same, for what the type checkers refuse."""


@pytest.mark.parametrize(
    "construct",
    [
        lambda: STREAM.Consumer(size=0),
        lambda: STREAM.Consumer(size=True),
        lambda: STREAM.Consumer(wait=-1),
        lambda: STREAM.Consumer(idle=None),
        lambda: STREAM.Consumer(pause=0),
        lambda: STREAM.After([1]),
        lambda: STREAM.From({"a": 1}),
        lambda: STREAM.Change("", 1),
        lambda: STREAM.Change("a", object()),
        lambda: STREAM.Change("a", 1, is_gone=1),
        lambda: STREAM.Page([], START),
        lambda: STREAM.Page((), "t0"),
        lambda: STREAM.Broken("286"),
        lambda: STREAM.Save(0, 0, START),
        lambda: STREAM.Save(1, -1, START),
        lambda: STREAM.Plan(1, 0, "a", [1]),
        lambda: STREAM.Plan(1, 0, "a", (object(),)),
        lambda: STREAM.Forget(1, 0),
        lambda: STREAM.Await(Now(), 1),
        lambda: STREAM.Await(Locate(1), -1),
        lambda: STREAM.Elected(1, 0, "t0"),
        lambda: STREAM.Consuming(1, awaited=frozenset({Reconcile(1, 0)})),
        lambda: STREAM.Consuming(1, awaited={Locate(1)}),
        lambda: STREAM.Following(-1),
        lambda: CONSUMER.step(STREAM.Following(), None),  # type: ignore[arg-type]
        lambda: CONSUMER.step(None, StopAsked()),  # type: ignore[arg-type]
        lambda: STREAM.heard(None, None),
        lambda: STREAM.collected((1,), ()),
        lambda: STREAM.passes(1, 0, (1,)),
        lambda: STREAM.free((1,)),
        lambda: STREAM.Forget(1, INT64_MAX + 1),
    ],
)
def test_what_means_nothing_is_refused(construct: Callable[[], object]) -> None:
    """Sizes and times that are none, ids that are no values, and other types."""
    with pytest.raises(Misuse):
        _ = construct()


def test_positions_are_compared_exactly() -> None:
    """A token is data, and 1 is not 1.0."""
    assert After(Document.of({"_data": "82"})) == After(Document.of({"_data": "82"}))
    assert After(1) != After(1.0)
