"""Statistics of an app of reactive tasks: counters of its pool, and the status of its databases.

The values are plain numbers that are replaced atomically, so other threads may read them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast, final

from tidegate.model.instants import Duration
from tidegate.reactive.admin.commands import TaskCounts
from tidegate.reactive.task.completion import HandlerAnswer, Later
from tidegate.reactive.task.worker import runs_of
from tidegate.work.events import HandlersEnded, PollCompleted, WorkerEvent
from tidegate.work.state import WorkerState
from tidegate.work.vocabulary import Interrupt, StartHandlers, WorkerCommand
from tidegate_adapters.observe.handler_times import HandlerTimes
from tidegate_adapters.reactive.admin import Leadership
from tidegate_adapters.reactive.planner import Standing


def outcome(answer: HandlerAnswer) -> str:
    match answer:
        case None:
            return "succeeded"
        case Later():
            return "later"
        case _:
            return "failed"


@final
class Tallies:
    """The counters of a pool, by task and outcome or reason."""

    def __init__(self) -> None:
        self.handled: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.times = HandlerTimes()
        self.retried: defaultdict[str, int] = defaultdict(int)
        self.interrupted: defaultdict[tuple[str, str], int] = defaultdict(int)

    def follow(self, event: WorkerEvent, state: WorkerState, commands: Sequence[WorkerCommand]) -> None:
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
    """The last known status of the databases.

    Only a planning process knows `counts` (with the lag of the oldest record) and `behind`, the
    planning lag; lags are in microseconds.
    """

    leaders: tuple[Leadership, ...] = ()
    counts: tuple[tuple[TaskCounts, Duration], ...] = ()
    behind: Mapping[str, Duration] = {}


@final
class Glance(NamedTuple):
    """A snapshot of an app."""

    tasks: tuple[str, ...]
    pool: WorkerState
    standings: Mapping[str, Standing]
    census: Census


NOTHING: Final = Glance((), WorkerState(), {}, Census())
