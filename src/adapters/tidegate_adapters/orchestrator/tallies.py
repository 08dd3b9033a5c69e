"""What an orchestrator shows of itself: what has happened in its workers since it began, and how it is now.

Those are plain numbers, each replaced at once, so whoever shows them reads them from a thread of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast, final

from tidegate.invocations.ending import Cancelled, End, Failed, GivenBack, Succeeded
from tidegate.invocations.worker import Held, tries_of
from tidegate.services.service_runner import Abandoned, Completed, NoMember, ServiceOutcome, Skipped, Unanswered
from tidegate.work.events import HandlersEnded, ResultsWritten, WorkerEvent
from tidegate.work.state import WorkerState
from tidegate.work.vocabulary import Interrupt, StartHandlers, WorkerCommand
from tidegate_adapters.observe.handler_times import HandlerTimes
from tidegate_adapters.orchestrator.standing import Backlog

OUTCOMES: Final[Mapping[type[End], str]] = {
    Succeeded: "succeeded", Failed: "failed", Cancelled: "cancelled", GivenBack: "given_back",
}  # fmt: skip
"""How a run has ended, in a word."""
LOST: Final = "lost"
"""That of a run whose invocation had gone on without it."""
TURNS: Final[Mapping[type[ServiceOutcome], str]] = {
    Completed: "completed", Abandoned: "abandoned", Skipped: "skipped", Unanswered: "unanswered", NoMember: "no_member",
}  # fmt: skip
"""What became of the question whose turn it is, in a word."""


@final
class Tallies:
    """Counts of a process.

    Attributes:
        begun: Runs whose handlers were called, by task.
        retried: Those of them that were not the first of their invocation, by task.
        ended: Runs whose end the store has answered, by task and outcome.
        interrupted: Handlers that were interrupted, by task and reason.
        times: How long handlers took.
        turns: What became of the question whose turn it is.
    """

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.retried: Counter[str] = Counter()
        self.ended: Counter[tuple[str, str]] = Counter()
        self.interrupted: Counter[tuple[str, str]] = Counter()
        self.times = HandlerTimes()
        self.turns: Counter[str] = Counter()

    def follow(self, event: WorkerEvent, state: WorkerState, commands: Sequence[WorkerCommand]) -> None:
        """Count what a step of the workers tells: for their runtime, as an observer."""
        del state
        match event:
            case ResultsWritten(_, written, reply):
                for each in written.results:
                    if each not in reply.left:
                        outcome = LOST if each in reply.lost else OUTCOMES[type(cast("End", each.value))]
                        self.ended[each.run.task, outcome] += 1
            case HandlersEnded(at, ended):
                for run, _ in ended:
                    self.times.end(run.task, (run,), at)
            case _:
                pass
        for command in commands:
            match command:
                case StartHandlers(runs):
                    self.begun.update(each.task for each in runs)
                    self.retried.update(each.task for each in runs if tries_of(each) > 1)
                    self.times.begin(runs, event.at)
                case Interrupt(runs, why):
                    self.interrupted.update((each.task, why.name.lower()) for each in runs)
                case _:
                    pass

    def turn(self, outcome: ServiceOutcome) -> None:
        """Count what became of the question whose turn it is."""
        self.turns[TURNS[type(outcome)]] += 1


@final
class Glance(NamedTuple):
    """What a process is like now.

    Attributes:
        tasks: The names of its tasks.
        slots: How many handlers are active at a time.
        state: Its workers.
        backlogs: What is due in its queues, as the store said not long ago.
        beaten_s: How many seconds ago a beat was confirmed, or it began.
        moved_s: How many seconds ago a look was answered, a handler has ended, or its end was written; or it began.
        held: What nothing is taken from.
    """

    tasks: tuple[str, ...]
    slots: int
    state: WorkerState
    backlogs: tuple[Backlog, ...] = ()
    beaten_s: float = 0.0
    moved_s: float = 0.0
    held: Held = Held()


NOTHING: Final = Glance((), 0, WorkerState())
"""Of an app that is not served."""
