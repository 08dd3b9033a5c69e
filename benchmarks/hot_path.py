"""What a record costs on its way through one partition, from `Fetched` to `Committed`, and where that time goes.

A course is a few batches of records that one partition of `tidegate.consumer.worker.consumer.ConsumerRules` takes, works on and commits, as
the adapter drives it. It is timed as a whole. Then it is run once more with notes being taken of each call that
`partition` and `consumer` make into the layers below, arguments included; the calls of each layer are timed alone.
What is left of the time of a partition's steps is its own, and what is left of the whole is that of the assignment and of
whoever drives it. Layers are timed at rest, so the parts are a little too quick, and the rest a little too slow.

Handlers that end in one turn of the event loop are reported in one event. Where each ends in a turn of its own, a step is paid
for each record, whatever the batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import attrs

from tidegate.consumer.flow.backpressure import Thresholds
from tidegate.consumer.partition import _record_work, _window_work, partition
from tidegate.consumer.partition.partition import PartitionRules
from tidegate.consumer.protocol.commands import (
    Assigned,
    Command,
    Event,
    Fetch,
    Fetched,
    Handle,
    RecordsHandled,
    Work,
    WorkReported,
    event_for,
)
from tidegate.consumer.worker import consumer
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.model.records import TopicPartition

MOST_US: Final = 1.0
"""What is allowed for a record, in batches of `MOST_AT`."""
MOST_AT: Final = 500
BARE_US: Final = 1.2
"""What a record costs in a bare loop of aiokafka, in microseconds. It was given when the limit was set, not measured here."""

LAYERS: Final = {
    "tidegate.consumer.offsets.watermark": "watermark",
    "tidegate.consumer.committing.commit_metadata": "metadata",
    "tidegate.consumer.flow.backpressure": "gate",
}
PARTS: Final = (*LAYERS.values(), "partition", "consumer")
STEPS: Final = "steps"
RECORDS: Final = 1_000
"""How many records a course has at least."""

HERE: Final = TopicPartition("topic", 0)

Calls = dict[tuple[str, str], list[Callable[[], object]]]
"""Who called which layer, and how."""


# --- a course -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Course:
    """Batches of this size, whose records are reported at once, or one by one."""

    batch: int
    one_by_one: bool = False

    def __str__(self) -> str:
        return f"hot path: batches of {self.batch}{', reported one by one' if self.one_by_one else ''}"

    @property
    def records(self) -> int:
        return max(4, RECORDS // self.batch) * self.batch

    def run(self) -> None:
        """Take, work on and commit all records."""
        room = Thresholds(high=4 * self.batch, low=self.batch)
        rules = ConsumerRules(executors=self.batch, thresholds=room, partition=PartitionRules(batch_max=self.batch))
        state = rules.step(ConsumerState(), Assigned(HERE, 1, 0)).state
        for first in range(0, self.records, self.batch):
            events: deque[Event] = deque((Fetched(HERE, 1, tuple(range(first, first + self.batch))),))
            while events:
                step = rules.step(state, events.popleft())
                state = step.state
                events.extend(chain.from_iterable(map(self.answers, step.commands)))
            rules.polling(state, ())
        assert state.partitions[0].tracker.floor == self.records, "all of it is committed"

    def answers(self, command: Command) -> Iterator[Event]:
        """What comes of a command: each handler succeeds."""
        match command:
            case Fetch():
                return
            case Work(where, generation, Handle(offsets)) if self.one_by_one:
                for offset in offsets:
                    yield WorkReported(where, generation, RecordsHandled((offset,)))
                return
            case _:
                pass
        event = event_for(command, None)
        if event is not None:
            yield event


COURSES: Final = (*map(Course, (1, 10, 100, MOST_AT)), Course(MOST_AT, one_by_one=True))


# --- where its time goes ------------------------------------------------------------------------------------------------


@attrs.frozen
class Shares:
    """What a record costs, in microseconds, and which part of it is whose."""

    course: Course
    us: float
    parts: dict[str, float]

    def __str__(self) -> str:
        reported = "one by one" if self.course.one_by_one else "at once"
        return f"{self.course.batch:>8,}  {reported:12}{self.us:10.2f}" + "".join(
            f"{self.parts[part]:12.2f}" for part in PARTS
        )


def measured(
    course: Course, seconds: float, best_of: Callable[[Sequence[Callable[[], object]], float], list[float]]
) -> Shares:
    """What a course costs in all and by parts; `best_of` tells how many seconds each of several calls takes."""
    calls = noted(course)
    whole, *layers = best_of([course.run, *(partial(replayed, each) for each in calls.values())], seconds)
    took = dict(zip(calls, layers, strict=True))
    parts = {layer: sum(time for (_, of), time in took.items() if of == layer) for layer in LAYERS.values()}
    steps = took["consumer", STEPS]
    parts["partition"] = steps - sum(time for (user, _), time in took.items() if user == "partition")
    parts["consumer"] = (
        whole - steps - sum(time for (user, of), time in took.items() if user == "consumer" and of != STEPS)
    )
    scale = 1e6 / course.records
    return Shares(course, whole * scale, {part: max(0.0, parts[part]) * scale for part in PARTS})


def noted(course: Course) -> Calls:
    """The calls that the course makes from one layer into another."""
    calls: Calls = {}
    with ExitStack() as stack:
        for user in (consumer, partition, _record_work, _window_work):
            name = "consumer" if user is consumer else "partition"
            stack.enter_context(patch.dict(vars(user), noting(name, user, calls)))
        for name in ("_apply", "_start_work"):  # what a consumer calls
            step = note(("consumer", STEPS), vars(PartitionRules)[name], calls)
            stack.enter_context(patch.object(PartitionRules, name, step))
        course.run()
    return calls


def noting(name: str, user: ModuleType, calls: Calls) -> dict[str, object]:
    """What the user imports of the layers, such that each call is noted."""
    found: dict[str, object] = {}
    for imported, value in vars(user).items():
        if isinstance(value, ModuleType) and value.__name__ in LAYERS:
            inner = {each: noted_one(name, function, calls) for each, function in vars(value).items()}
            found[imported] = SimpleNamespace(**inner)
        elif isinstance(value, FunctionType):
            found[imported] = noted_one(name, value, calls)
    return found


def noted_one(user: str, value: object, calls: Calls) -> object:
    if not isinstance(value, FunctionType):
        return value
    layer = LAYERS.get(".".join(value.__module__.split(".")[:4]))
    return value if layer is None else note((user, layer), value, calls)


def note(key: tuple[str, str], function: Callable[..., Any], calls: Calls) -> Callable[..., Any]:
    def noting_it(*args: object, **kwargs: object) -> object:
        calls.setdefault(key, []).append(partial(function, *args, **kwargs))
        return function(*args, **kwargs)

    return noting_it


def replayed(calls: Sequence[Callable[[], object]]) -> None:
    for call in calls:
        call()


# --- what is reported of it ---------------------------------------------------------------------------------------------


def table(rows: Sequence[Shares]) -> str:
    """The rows, and whether the limit holds."""
    head = (
        f"The hot path: us a record, all in all and by parts; a bare loop of aiokafka takes {BARE_US} (not measured here)\n"
        f"{'batch':>8}  {'reported':12}{'in all':>10}" + "".join(f"{part:>12}" for part in PARTS)
    )
    return "\n".join([head, *map(str, rows), *map(verdict, filter(is_judged, rows))])


def is_judged(row: Shares) -> bool:
    return row.course == Course(MOST_AT)


def verdict(row: Shares) -> str:
    """Whether the limit holds, and if not, where the time goes."""
    limit = f"No more than {MOST_US} us a record in batches of {MOST_AT}"
    if row.us <= MOST_US:
        return f"{limit}: holds, with {row.us:.2f}"
    most = sorted(row.parts, key=lambda part: -row.parts[part])[:3]
    shares = ", ".join(f"{part} {row.parts[part]:.2f} ({row.parts[part] / row.us:.0%})" for part in most)
    return f"{limit}: does not hold, {row.us:.2f}; most of it goes to {shares}"


def as_json(rows: Sequence[Shares]) -> dict[str, object]:
    return {
        "bare_us": BARE_US,
        "most_us": MOST_US,
        "most_at": MOST_AT,
        "rows": [
            {
                "batch": row.course.batch,
                "one_by_one": row.course.one_by_one,
                "us": row.us,
                "parts": row.parts,
                **({"holds": row.us <= MOST_US} if is_judged(row) else {}),
            }
            for row in rows
        ],
    }
