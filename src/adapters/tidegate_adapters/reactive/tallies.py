"""What an app of reactive tasks shows of itself: what has happened in its pool since it began, and what its databases say.

Those are plain numbers, each replaced at once, so whoever shows them reads them from a thread of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast, final

from tidegate.model.instants import Duration
from tidegate.reactive.completion import HandlerAnswer, Later
from tidegate.reactive.desk import TaskCounts
from tidegate.reactive.worker import runs_of
from tidegate.work.events import HandlersEnded, PollCompleted, WorkerEvent
from tidegate.work.state import WorkerState
from tidegate.work.vocabulary import Interrupt, StartHandlers, WorkerCommand
from tidegate_adapters.observe.handler_times import HandlerTimes
from tidegate_adapters.reactive.office import Leadership
from tidegate_adapters.reactive.planner import Standing


def outcome(answer: HandlerAnswer) -> str:
    """What a handler has come to, in a word."""
    match answer:
        case None:
            return "succeeded"
        case Later():
            return "later"
        case _:
            return "failed"


@final
class Tallies:
    """Counts of a pool.

    Attributes:
        handled: Runs whose handlers have ended, by task and outcome.
        times: How long handlers took.
        retried: Runs that were begun again after a failure, or after a lease had run out, by task.
        interrupted: Handlers that were interrupted, by task and reason.
    """

    def __init__(self) -> None:
        self.handled: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.times = HandlerTimes()
        self.retried: defaultdict[str, int] = defaultdict(int)
        self.interrupted: defaultdict[tuple[str, str], int] = defaultdict(int)

    def follow(self, event: WorkerEvent, state: WorkerState, commands: Sequence[WorkerCommand]) -> None:
        """Count what a step of the pool tells: for its runtime, as an observer."""
        del state
        match event:
            case PollCompleted(_, command, result):
                self.retried[command.queue] += sum(each.record.attempts > 1 for each in runs_of(result.runs))
            case HandlersEnded(at, ended):
                for run, answer in ended:
                    self.handled[run.task, outcome(cast("HandlerAnswer", answer))] += 1
                    self.times.end(run.task, (run,), at)
            case _:
                pass
        for each in commands:
            match each:
                case StartHandlers(runs):
                    self.times.begin(runs, event.at)
                case Interrupt(runs, why):
                    for run in runs:
                        self.interrupted[run.task, why.name.lower()] += 1
                case _:
                    pass


@final
class Census(NamedTuple):
    """What the databases said, not long ago.

    Attributes:
        leaders: Who plans in each of them.
        counts: How the records of each task stand, in databases where this process plans, and how long the oldest has been
            due, in microseconds.
        behind: How long ago what had all changes looked at was, in databases where this process plans, in microseconds.
    """

    leaders: tuple[Leadership, ...] = ()
    counts: tuple[tuple[TaskCounts, Duration], ...] = ()
    behind: Mapping[str, Duration] = {}


@final
class Glance(NamedTuple):
    """What an app is like now.

    Attributes:
        tasks: The names of its tasks.
        pool: Its pool.
        standings: Its planners, by database.
        census: What the databases said.
    """

    tasks: tuple[str, ...]
    pool: WorkerState
    standings: Mapping[str, Standing]
    census: Census


NOTHING: Final = Glance((), WorkerState(), {}, Census())
"""Of an app that is not served."""
