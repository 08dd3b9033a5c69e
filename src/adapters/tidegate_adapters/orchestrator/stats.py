"""Statistics of an orchestrator process: counters since its start, and a snapshot.

The values are plain numbers that are replaced atomically, so other threads may read them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast, final

from tidegate.invocations.queue.completion import Cancelled, End, Failed, GivenBack, Succeeded
from tidegate.invocations.worker.worker import Held, tries_of
from tidegate.services.service_runner import Abandoned, Completed, NoMember, ServiceOutcome, Skipped, Unanswered
from tidegate.work.events import HandlersEnded, ResultsWritten, WorkerEvent
from tidegate.work.state import WorkerState
from tidegate.work.vocabulary import Interrupt, StartHandlers, WorkerCommand
from tidegate_adapters.observe.handler_times import HandlerTimes
from tidegate_adapters.orchestrator.status import Backlog

OUTCOMES: Final[Mapping[type[End], str]] = {
    Succeeded: "succeeded", Failed: "failed", Cancelled: "cancelled", GivenBack: "given_back",
}  # fmt: skip
LOST: Final = "lost"
"""The label of a run whose invocation moved on without it."""
TURNS: Final[Mapping[type[ServiceOutcome], str]] = {
    Completed: "completed", Abandoned: "abandoned", Skipped: "skipped", Unanswered: "unanswered", NoMember: "no_member",
}  # fmt: skip


@final
class Tallies:
    """The counters of a process, by task and outcome or reason."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.retried: Counter[str] = Counter()
        self.ended: Counter[tuple[str, str]] = Counter()
        self.interrupted: Counter[tuple[str, str]] = Counter()
        self.times = HandlerTimes()
        self.turns: Counter[str] = Counter()

    def follow(self, event: WorkerEvent, state: WorkerState, commands: Sequence[WorkerCommand]) -> None:
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
        self.turns[TURNS[type(outcome)]] += 1


@final
class Glance(NamedTuple):
    """A snapshot of a process.

    Attributes:
        beaten_s: Seconds since the last confirmed heartbeat, or the start.
        moved_s: Seconds since the last answered poll, ended handler, written result or start.
    """

    tasks: tuple[str, ...]
    slots: int
    state: WorkerState
    backlogs: tuple[Backlog, ...] = ()
    beaten_s: float = 0.0
    moved_s: float = 0.0
    held: Held = Held()


NOTHING: Final = Glance((), 0, WorkerState())
