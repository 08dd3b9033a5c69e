"""Laws CS1 to CS12 hold under any faults of leaders and stream, and a planted bug breaks each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import ClassVar, Final, TypeAlias

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.lawbook import Law, bug, finds, planted

from tidegate.model.effects import Ambiguous, NotApplied, Refused
from tidegate.reactive.checks.laws import change_stream as laws
from tidegate.reactive.planning import reconciliation
from tidegate.reactive.planning.change_stream import (
    After,
    Broken,
    ChangeStreamConsumer,
    Consuming,
    DocumentChange,
    Elected,
    Following,
    From,
    HandleChanged,
    HandleDeleted,
    LeadershipLost,
    Locate,
    Page,
    Pass,
    Position,
    Read,
    Reconcile,
    Request,
    ResetHistory,
    Save,
    StartTimer,
    Stopped,
    StopRequested,
    StreamCommand,
    StreamEvent,
    StreamState,
    StreamStep,
    _batches,
    event_for,
    is_followed,
)
from tidegate.reactive.planning.change_stream import consumer as consumer_
from tidegate.reactive.planning.reconciliation import (
    BatchPlanned,
    CleanedUp,
    PassFailed,
    PassOutcome,
    Progress,
    ReconciliationRun,
    RunSuperseded,
    Scan,
    ScanAgain,
    TaskTrigger,
    WriteProgress,
    forgotten_task,
    in_history,
    reconcile,
    scans,
)

Doc: TypeAlias = tuple[str, int]
Tasks: TypeAlias = Mapping[str, frozenset[TaskTrigger]]

BEFORE: Final = (("a", 0), ("b", 0), ("a", 2))
"""The initial documents; no stream event reports them."""

TASKS: Final = {"a": ("t1", "t2"), "b": ("t3",)}


def deployed(version: int) -> Tasks:
    return {
        collection: frozenset(TaskTrigger(task, version if task == "t1" else 0) for task in tasks)
        for collection, tasks in TASKS.items()
    }


EAGER: Final = ChangeStreamConsumer(size=2, wait=1, rest=0)


RESTING: Final = ChangeStreamConsumer(size=2, wait=1)
AT_ONCE: Final = ChangeStreamConsumer(size=2, rest=0)

# --- a world with changing documents, changing leaders and faults -------------------------------------------------------


@attrs.define(eq=False)
class Running:
    run: ReconciliationRun
    progress: Progress = attrs.Factory(Progress)
    scan: Scan | None = None
    outcome: PassOutcome | None = None


@attrs.define(eq=False)
class Process:
    version: int = 0
    state: StreamState = attrs.Factory(Following)
    out: list[StreamCommand] = attrs.Factory(list)
    runs: list[Running] = attrs.Factory(list)
    asked: list[Reconcile] = attrs.Factory(list)
    began: dict[Pass, int] = attrs.Factory(dict)
    batched: tuple[int, int] = (0, 0)

    @property
    def epoch(self) -> int:
        return self.state.epoch if isinstance(self.state, Consuming) else 0


@attrs.define(eq=False)
class World:
    """A server with documents, a stream that loses history and a record, plus two processes.

    Positions, passes and losses are counted in changes: the stream no longer has the changes before
    `lost`.
    """

    is_one_write: ClassVar = True
    is_fenced: ClassVar = True
    consumer: ChangeStreamConsumer
    law: str
    page: int
    log: list[DocumentChange] = attrs.Factory(lambda: [DocumentChange(*doc) for doc in BEFORE])
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
        assert verdict or law not in self.law.split(), law

    # state

    def is_there(self, doc: Doc) -> bool:
        return doc in self.last and not self.log[self.last[doc]].is_gone

    def docs(self, collection: str, *, are_gone: bool) -> list[Doc]:
        return sorted(doc for doc in self.last if doc[0] == collection and self.is_there(doc) != are_gone)

    def change(self, doc: Doc, *, is_gone: bool) -> None:
        if not is_gone or self.is_there(doc):
            self.last[doc] = len(self.log)
            self.log.append(DocumentChange(*doc, is_gone=is_gone))

    def mark(self, by: Process, tasks: Iterable[str], docs: Iterable[Doc]) -> None:
        for task in tasks:
            if task != "t1" or by.version == self.version:
                self.passed.update({(task, doc): len(self.log) for doc in docs})

    def scanned(self) -> Iterator[tuple[str, Doc]]:
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
        leader = next((each for each in self.processes if each.epoch == self.epoch > 0), None)
        asked = None if leader is None else laws.asked_up_to(leader.state)
        for by in self.processes:
            for command in by.out:
                if isinstance(command, Pass) and is_followed(by.state, command, int(by is leader)):
                    self.judge("CS12", self.is_looked_at_later(by.began[command], counted(asked or From(0)), scanned))

    def is_looked_at_later(self, began: int, asked: int, scanned: set[tuple[str, Doc]]) -> bool:
        return all(
            laws.is_looked_at_later(at, asked, self.position, is_scanned=(task, doc_of(change)) in scanned)
            for at, change in enumerate(self.log[began:], began)
            for task in TASKS[change.collection]
        )

    # server

    def apply(self, by: Process, command: Request, skipped: int = 0) -> object:
        match command:
            case Locate():
                return From(len(self.log))
            case Read(_, position):
                at = counted(position)
                if at < self.lost:
                    return Broken(286)
                page = tuple(self.log[at : at + self.page])
                return Page(page, After(at + len(page)))
            case HandleDeleted(_, _, collection, ids):
                gone = [(collection, int(str(each))) for each in ids]
                self.mark(by, TASKS[collection], [doc for doc in gone if not self.is_there(doc)][skipped:])
            case HandleChanged(_, _, collection, ids):
                there = [(collection, int(str(each))) for each in ids]
                self.mark(by, TASKS[collection], [doc for doc in there if self.is_there(doc)][skipped:])
            case Save(epoch, history, position):
                if self.is_fenced and (epoch, history) != (self.epoch, self.progress.history):
                    return Refused("fenced")
                self.position = counted(position)
            case ResetHistory(epoch, history):
                if epoch != self.epoch or history < self.progress.history:
                    return Refused("fenced")
                if history > self.progress.history:
                    self.position = None
                    if self.is_one_write:
                        self.progress = in_history(self.progress, history)
                    else:
                        self.judge_all()  # the process may crash here
        return None

    def elect(self, by: Process) -> None:
        if by.epoch == self.epoch > 0 or isinstance(by.state, Stopped):
            return
        self.epoch += 1
        if by.version != self.version:
            self.version = by.version
            self.progress = forgotten_task(self.progress, "a", "t1")
            self.passed = {key: at for key, at in self.passed.items() if key[0] != "t1"}
        position = None if self.position is None else After(self.position)
        self.tell(by, Elected(self.epoch, self.progress.history, position))

    # processes

    def tell(self, by: Process, event: StreamEvent) -> None:
        before = by.state
        step = self.consumer.step(before, event)
        self.judge("CS3", self.asks_well(by, step))
        self.judge("CS4", laws.flushes_in_time(self.consumer, before, event, step))
        self.judge("CS4", laws.starts_its_time_once(self.consumer, before, step))
        self.judge("CS5", laws.one_save_is_under_way(step.state))
        self.judge("CS6", laws.awaits_something(step.state))
        self.judge("CS6", laws.tries_again(before, event, step))
        self.judge("CS7", laws.is_silent_when_over(step))
        self.judge("CS7", laws.ignores_what_is_not_awaited(before, event, step))
        is_led = isinstance(step.state, Consuming) and step.state.epoch == self.epoch
        if is_led:
            stored = (self.progress.history, self.position is not None)
            self.judge("CS8", laws.reconciles_in_time(before, event, step, tuple(by.asked), stored))
        self.judge("CS9", laws.keeps_the_position(self.consumer, before, event, step))
        self.judge("CS10", laws.rests_between_saves(self.consumer, before, event, step))
        self.judge("CS11", laws.reads_no_further(step))
        if isinstance(step.state, Consuming) and step.state.flushing is not None:
            by.batched = counted(step.state.flushing.position), step.state.epoch
        by.state = step.state
        for command in step.commands:
            if isinstance(command, Reconcile):
                by.asked.append(command)
                by.runs.append(Running(ReconciliationRun(command.epoch, command.history)))
            else:
                by.out.append(command)
            if isinstance(command, Pass):
                by.began[command] = len(self.log)
            if isinstance(command, Save) and is_led:
                self.judge("CS5", self.may_save(command))

    def asks_well(self, by: Process, step: StreamStep) -> bool:
        before, after = by.state, step.state
        if not laws.cleans_up_first(after) or not isinstance(after, Consuming):
            return not isinstance(after, Consuming)
        is_begun = isinstance(before, Consuming) and before.flushing is None and after.flushing is not None
        if not is_begun or not isinstance(before, Consuming) or after.flushing is None or before.read is None:
            return True
        changes = self.log[self.collected_from(by, before) : counted(after.flushing.position)]
        waiting = {(each.collection, each.id) for each in after.left}
        changes = [each for each in (*before.left, *changes) if (each.collection, each.id) not in waiting]
        return laws.asks_for_each_once(tuple(changes), after.flushing.left)

    def collected_from(self, by: Process, before: Consuming) -> int:
        batched, epoch = by.batched
        return max(counted(before.safe or From(0)), batched if epoch == before.epoch else 0)

    def may_save(self, command: Save) -> bool:
        """A pass rereads a document, so only its last change counts."""
        saved, scanned = counted(command.position), set(self.scanned())
        happened = [(at, (task, doc)) for doc, at in self.last.items() for task in TASKS[doc[0]]]
        return all(
            laws.may_be_saved(at, self.passed.get(each, 0), saved, is_scanned=each in scanned) for at, each in happened
        )

    def serve(self, by: Process, place: int, how: str) -> None:
        """Carry out a command: correctly, without a reply, not at all, in part, or late."""
        requests = [command for command in by.out if not isinstance(command, (StartTimer, Reconcile))]
        if not requests:
            return
        command = requests[place % len(requests)]
        by.out.remove(command)
        if how == "serve":
            self.receive(by, command, self.apply(by, command))
        elif how == "lose":
            _ = self.apply(by, command)
            self.receive(by, command, Ambiguous("no answer"))
        elif how == "part":
            if isinstance(command, (HandleDeleted, HandleChanged)):
                _ = self.apply(by, command, 1)
            self.receive(by, command, NotApplied("part of it"))
        elif how == "leave" and isinstance(command, (HandleDeleted, HandleChanged)):
            is_gone = isinstance(command, HandleDeleted)
            of = [each for each in command.ids if self.is_there((command.collection, int(str(each)))) != is_gone]
            _ = self.apply(by, command, 1)
            self.receive(by, command, (*of, *command.ids)[:1])
        else:
            self.late.append(partial(self.apply, by, command))
            self.receive(by, command, Ambiguous("no answer"))

    def receive(self, by: Process, command: StreamCommand, reply: object) -> None:
        event = event_for(command, reply)
        assert event is not None
        self.tell(by, event)

    def time(self, by: Process, place: int) -> None:
        timers = [command for command in by.out if isinstance(command, StartTimer)]
        if timers:
            command = timers[place % len(timers)]
            by.out.remove(command)
            self.receive(by, command, None)

    def run(self, by: Process, place: int, how: str) -> None:
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
            verdict = reconcile(running.run, running.progress, running.scan, running.outcome)
            running.scan = running.outcome = None
            match verdict:
                case WriteProgress() if how == "late":
                    self.late.append(partial(self.write, verdict, running.run))
                case WriteProgress():
                    if not self.write(verdict, running.run):
                        by.runs.remove(running)
                case ScanAgain():
                    pass
                case RunSuperseded():
                    by.runs.remove(running)

    def look(self, by: Process, scan: Scan, how: str) -> PassOutcome:
        tasks = [each.task for each in scan.triggers]
        since = -1 if scan.after is None else int(str(scan.after.last_id))
        left = [doc for doc in self.docs(scan.collection, are_gone=False) if doc[1] > since][:2]
        if how == "part":
            self.mark(by, tasks, left[1:])
            return PassFailed()
        if left:
            self.mark(by, tasks, left)
            return BatchPlanned(tuple(doc[1] for doc in left))
        self.mark(by, tasks, self.docs(scan.collection, are_gone=True))
        return CleanedUp()

    def write(self, verdict: WriteProgress, run: ReconciliationRun) -> bool:
        is_fit = (verdict.epoch, run.history) == (self.epoch, self.progress.history)
        if is_fit:
            self.progress = verdict.progress
        return is_fit

    def crash(self, by: Process, version: int) -> None:
        requests = [command for command in by.out if not isinstance(command, (StartTimer, Reconcile))]
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
            case "serve" | "lose" | "part" | "leave" | "late":
                self.serve(by, much, what)
            case "arrive" if self.late:
                _ = self.late.pop(much % len(self.late))()
            case "break":
                reads = [command for command in by.out if isinstance(command, Read)]
                for command in reads[:1]:
                    by.out.remove(command)
                    self.receive(by, command, Broken(43) if much % 2 else NotApplied("no connection"))
            case "time":
                self.time(by, much)
            case "run" | "run part" | "run late":
                self.run(by, much, what.removeprefix("run").strip())
            case "crash":
                self.crash(by, much % 2)
            case "stop":
                self.tell(by, StopRequested())
            case _:
                pass
        self.judge_all()

    def calm(self) -> None:
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


def doc_of(change: DocumentChange) -> Doc:
    return change.collection, int(str(change.id))


def counted(position: Position) -> int:
    return int(str(position.token if isinstance(position, After) else position.time))


Turn: TypeAlias = tuple[str, int, int]

USUAL: Final = ("serve", "serve", "serve", "run", "run", "time", "change", "change", "elect")
FAULTS: Final = (
    "lose",
    "part",
    "leave",
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
    """Parse a schedule: `change-3` is the third document, `2*serve` twice, `elect!` the other."""
    schedule: list[Turn] = []
    for word in story.split():
        times, _, turn = word.rpartition("*")
        what, _, much = turn.rstrip("!").partition("-")
        schedule += [(what.replace("_", " "), int(turn.endswith("!")), int(much or 0))] * int(times or 1)
    return schedule


LED: Final = "elect 3*serve "
"""It leads, knows and has stored the stream position, and has read."""
DONE: Final = LED + "13*run "
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
    "a document changes during its pass": DONE + "change serve time-1 change serve time-1",
    "history is lost during a pass": DONE + "change serve time-1 change truncate serve 4*serve-1 13*run",
    "leadership is lost during a pass": DONE + "change-0 change-1 serve change-0 change-1 elect! 3*serve! serve-1!",
    "a document is left out, and another one changes": DONE
    + "change-0 change-1 serve time-1 leave change-2 change-0 9*serve time-1 9*serve crash elect",
    "a document is left out for ever": DONE
    + "change-0 serve time-1 leave serve change-2 9*serve time-0 3*serve crash elect",
    "a batch is collected while another is under way": DONE
    + "change-0 change-1 2*serve-1 change-2 9*serve-0 crash elect",
    "a document is left out of a pass, and nothing else happens": LED + "2*run change serve time-1 leave-1",
    "two batches overlap": LED + "2*run delete change-1 serve leave change-2 serve change-1 serve part",
    "a pass fails in part": LED + "2*run change change-2 serve part",
    "more is read while a batch is under way": LED + "run late run 2*change-3 change-2 delete",
    "the stream breaks at once": "elect 2*serve break",
}


def with_stories(test: Law) -> Law:
    for story in reversed(STORIES.values()):
        test = example(page=2, story="", schedule=turns(story))(test)
    return test


@settings(max_examples=200)
@with_stories
@given(page=st.integers(1, 3), story=st.sampled_from(["", LED, DONE, DONE]), schedule=TURNS)
def keeps(law: str, consumer: ChangeStreamConsumer, page: int, story: str, schedule: list[Turn]) -> None:
    play(World(consumer, law, page), [*turns(story), *schedule])


def play(world: World, schedule: list[Turn]) -> None:
    for each in schedule:
        world.turn(*each)
    world.calm()


LAWS: Final = "CS1 CS2 CS3 CS4 CS5 CS6 CS7 CS8 CS9 CS10 CS11 CS12"


@pytest.mark.parametrize(
    "consumer", [EAGER, RESTING, AT_ONCE], ids=["it saves at once", "it rests", "it does not wait"]
)
def test_the_consumer_keeps_the_laws(consumer: ChangeStreamConsumer) -> None:
    """Laws CS1 to CS12."""
    keeps(LAWS, consumer=consumer)


# --- planted bugs -------------------------------------------------------------------------------------------------------

CS1, CS2, CS3, CS4, CS5, CS6, CS7, CS8, CS9, CS10, CS11, CS12 = (
    partial(keeps, law, consumer=RESTING if law == "CS10" else EAGER) for law in LAWS.split()
)
FAILS: Final = "            case StreamFailed(command) | CommandFailed(command):\n"
OF_HANDLING: Final = "            case CommandFailed(HandleDeleted() | HandleChanged() as command):\n"
LOST: Final = "                return Step(Following(epoch)) if epoch >= state.epoch else Step(state)"
LEADS: Final = "Consuming(epoch, history, position, position, position)"
FOLLOWED: Final = "lease_left > 0 and isinstance(state, Consuming) and command in state.awaited"
SAFE: Final = "safe = state.safe if state.left else flushing.position"

test_a_planted_bug_of_a_consumer_is_found = planted(
    consumer_,
    # mongodash: the token is saved although a collection failed, or the next batch saves its own.
    bug("saves anyway", (FAILS, f"{OF_HANDLING}                return self._onward(_done(state, command))\n{FAILS}"), CS1, CS5),
    bug("drops what failed", (FAILS, f"{OF_HANDLING}                return self._onward(attrs.evolve(state, flushing=None))\n{FAILS}"), CS1),
    bug("forgets what is left", ("self._left_out(state, command, left)", "self._onward(_done(state, command))"), CS1),
    bug("saves past what is left", (SAFE, "safe = flushing.position"), CS5),
    bug("never looks again", ("if state.is_left_due or again in state.awaited", "if True"), CS6),
    bug("starts the time of a batch again", ("read=page.position, changes=changes", "read=page.position, batch=state.batch + bool(page.changes), changes=changes"), CS4),
    bug("saves the newest", (SAFE, "safe = state.safe if state.left else state.read"), CS1, CS5),
    # mongodash: the clock saves a position although changes wait.
    bug("saves what waits", ("return state if state.is_pending else attrs.evolve(state, safe", "return attrs.evolve(state, safe"), CS5),
    # mongodash: the first to finish saves its token.
    bug("overlaps", ("if state.flushing is not None or state.read is None", "if state.read is None"), CS1, CS4, CS12),
    bug("waits for more", ("return self._onward(_timed(state, command))", "return Step(_timed(state, command)) if isinstance(command.then, Flush) else self._onward(_timed(state, command))"), CS4),
    bug("takes 286 for less", ("if code in CANNOT_RESUME", "if code == 280"), CS2),  # mongodash
    # mongodash: reconciliation begins before a position is stored.
    bug("reconciles at once", (f"{LEADS})", f"{LEADS[:-1]}, must_reconcile=False), Reconcile(epoch, history))"), CS1, CS8),
    bug("reconciles again", (" if state.must_reconcile else ()", ""), CS8),
    bug("reconciles never", ("batch=state.batch + 1, is_lost", "batch=state.batch + 1, must_reconcile=False, is_lost"), CS2),
    bug(
        "flushes to the end",  # mongodash: a leader without its lease flushes its batch and saves its token
        (LOST, f"""                if epoch >= state.epoch and state.read is not None:
                    last = (*passes(state.epoch, state.batch, state.changes), Save(state.epoch, state.history, state.read))
                    return Step(Following(epoch), last)\n{LOST}"""),
        CS7,
    ),
    bug("plans first", ("passes(state.epoch, state.batch, changes))", "passes(state.epoch, state.batch, changes)[::-1])"), CS3),
    bug("tries at once", ("self._again(state, command, self.pause)", "self._onward(state)"), CS6),
    bug("gives up", (FAILS, "            case StreamFailed():\n                return Step(state)\n            case CommandFailed(command):\n"), CS6, CS2),
    bug("believes whatever", ("if event.command not in state.awaited", "if False"), CS7),
    bug("saves only changes", ("if not state.is_pending and state.read != state.safe", "if False"), CS9),
    bug("never rests", ("if self.rest and not state.is_stopping", "if False"), CS10),  # mongodash: after each batch its token is saved
    bug("reads ahead", ("state.flushing is None and len", "len"), CS11),
    bug(
        "keeps passes",  # they stay in progress when the history is lost
        ("is_lost=True)", "is_lost=True, awaited=frozenset(each for each in state.awaited if isinstance(each, (HandleChanged, HandleDeleted))))"),
        CS12,
    ),
    bug("ignores the lease", (FOLLOWED, FOLLOWED.removeprefix("lease_left > 0 and ")), CS12),
    bug("ignores the state", (FOLLOWED, "lease_left > 0"), CS12),
    bug("saves twice", (" and not _is_saving(state)", ""), CS5),
)  # fmt: skip
test_a_planted_bug_of_a_batch_is_found = planted(
    _batches,
    bug("knows by id", ("key = (change.collection, exactly(change.id))", "key = exactly(change.id)"), CS1, CS3),  # mongodash
    bug("keeps the first", ("        last.pop(key, None)", "        if key in last:\n            continue\n        last.pop(key, None)"), CS3, CS2),
)  # fmt: skip
test_a_planted_bug_of_a_reconciliation_is_found = planted(
    reconciliation,
    # mongodash: a lost history keeps the checkpoints of an interrupted reconciliation, and
    # "finished" is reported regardless.
    bug("with checkpoints", ("else Progress(history)", "else Progress(history, checkpoints=progress.checkpoints)"), CS1),
    bug("with flags", ("else Progress(history)", "else Progress(history, progress.reconciled)"), CS1),
    bug("flags a failure", ("    match outcome:", "    match CleanedUp() if isinstance(outcome, PassFailed) else outcome:"), CS1),
    bug("passes a failure", ("    match outcome:", "    match BatchPlanned((9,)) if isinstance(outcome, PassFailed) else outcome:"), CS1),
)  # fmt: skip


@pytest.mark.parametrize("duty", ["is_one_write", "is_fenced"])
def test_a_planted_record_that_forgets_a_duty_is_found(duty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream record is one write, fenced by the epoch."""
    monkeypatch.setattr(World, duty, False)
    finds(CS1, monkeypatch)
