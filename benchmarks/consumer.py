"""What the core of a worker costs by itself, and how that grows: `python -m benchmarks.consumer [--records N] [WORD ...]`.

A consumer (`tidegate.consumer.worker.consumer`) is driven as the adapter drives it: polled, told of what has ended, and told that its
commits are done with the next poll. It keeps as many records in work as it is allowed, and the first that began ends first. What
it was told and how often it was asked what to poll is noted, and then timed by itself, without the driver. A row varies one
thing of the first row of its table. Rows take turns, and the best of five counts, in processor time. The aims are 1 us a record
told at once in batches of 500, and 6 us told singly; as machines differ, the first line says what a call of an empty function takes.

    told at once    what has ended is one event for a batch of the client: handlers that do not wait
    told singly     each record that has ended is an event of its own: handlers that wait, and end at different times

The table of memory tells what a state holds; a bit set by itself would be a bit for each offset from the stuck one on.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import deque
from collections.abc import Iterator, Sequence
from gc import get_referents
from itertools import chain
from sys import getsizeof
from time import process_time
from timeit import timeit
from types import FunctionType, ModuleType
from typing import Final

import attrs
from benchmarks.smoke import sized

from tidegate.consumer.fanout import Arrange, Report, Rules, Start, Tasks, TasksReported, WindowArranged
from tidegate.consumer.flow.backpressure import PartitionLimits, Thresholds
from tidegate.consumer.partition.partition import Ordering, PartitionRules
from tidegate.consumer.protocol.commands import (
    Assigned,
    Batch,
    Command,
    Commit,
    ConsumerEvent,
    Event,
    Fetch,
    Fetched,
    Handle,
    RecordsHandled,
    Work,
    WorkReported,
    event_for,
)
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.model.records import TopicPartition

ROUNDS: Final = sized(5, 1)
POLLED: Final = 500
"""How many records the client hands over at once, at most."""


@attrs.frozen
class Course:
    """A way to work.

    Attributes:
        in_work: How many records are in work at most.
        singly: Whether each record that has ended is told by itself.
        partitions: How many there are.
        keys: How many keys the records have, in turn; 0 for no order.
        window: How many records a window has at most.
        has_tasks: Whether each record of a window has a task of its own, and not all of them one.
        retried: One of so many records fails once; 0 for none.
        stuck: Whether the first record of the first partition never ends.
    """

    in_work: int = 1_000
    singly: bool = False
    partitions: int = 8
    keys: int = 0
    window: int = 1
    has_tasks: bool = False
    retried: int = 0
    stuck: bool = False

    def rules(self) -> ConsumerRules:
        partition = PartitionRules(
            window_max=self.window,
            hooks=self.window > 1,
            ordering=Ordering.BY_KEY if self.keys else Ordering.UNORDERED,
            fanout=Rules(1, 0, task_delivery=False, record_delivery=False, window_delivery=False),
            limits=PartitionLimits(span=None, metadata=None)
            if self.stuck or self.in_work > 10_000
            else PartitionLimits(),
        )
        room = Thresholds(high=4 * self.in_work + POLLED, low=2 * self.in_work)
        return ConsumerRules(executors=self.in_work, thresholds=room, partition=partition)


class Driver:
    """A consumer under way, and the world that answers it."""

    def __init__(self, course: Course) -> None:
        self.course, self.rules = course, course.rules()
        self.partitions = [TopicPartition("topic", number) for number in range(course.partitions)]
        self.next = dict.fromkeys(self.partitions, 0)
        self.working: deque[tuple[Work, tuple[int, ...]]] = deque()
        self.state = self.rules.step(
            ConsumerState(), Batch(tuple(Assigned(each, 1, 0) for each in self.partitions))
        ).state
        self.answered: list[Event] = []  # commits
        self.done = self.commits = self.metadata = 0
        self.noted: list[ConsumerEvent | None] = []
        """What it was told; None for a poll."""

    def run(self, records: int) -> int:
        """Work until that many more are done, or some more; tells how many."""
        began = self.done
        until = began + records
        while self.done < until:
            while True:
                polled = self.rules.polling(self.state, ()).poll
                self.noted.append(None)
                answered, self.answered = self.answered, []
                self.tell([*answered, *map(self.fetched, polled)])
                if not polled or sum(len(offsets) for _, offsets in self.working) >= self.course.in_work:
                    break
            for _ in range(min(self.course.in_work, POLLED) if self.course.singly else 1):
                if not self.working:
                    break
                self.tell([self.ended(*self.working.popleft())])
        return self.done - began

    def tell(self, events: list[Event]) -> None:
        while events:
            event = events[0] if len(events) == 1 else Batch(tuple(events))
            self.noted.append(event)
            step = self.rules.step(self.state, event)
            self.state = step.state
            events = list(chain.from_iterable(map(self.answers, step.commands)))

    def fetched(self, partition: TopicPartition) -> Fetched:
        first = self.next[partition]
        self.next[partition] = end = first + min(POLLED, max(1, 4 * self.course.in_work // self.course.partitions))
        keys = tuple(b"%d" % (each % self.course.keys) for each in range(first, end)) if self.course.keys else ()
        return Fetched(partition, 1, tuple(range(first, end)), keys)

    def answers(self, command: Command) -> Iterator[Event]:
        match command:
            case Work(partition, generation, Arrange(window, offsets)):
                tasks = Tasks(tuple(zip(offsets)) if self.course.has_tasks else (offsets,))
                yield WorkReported(partition, generation, WindowArranged(window, tasks))
            case Work(partition, _, _, offsets):
                if self.course.stuck and partition is self.partitions[0] and 0 in offsets:
                    offsets = tuple(each for each in offsets if each)
                is_single = self.course.singly and (self.course.window == 1 or self.course.has_tasks)
                self.working.extend((command, some) for some in (zip(offsets) if is_single else [offsets]) if some)
            case Fetch():
                pass
            case Commit():
                self.commits += 1
                self.metadata += bool(command.metadata)
                if (event := event_for(command, None)) is not None:
                    self.answered.append(event)
            case _:
                if (event := event_for(command, None)) is not None:
                    yield event

    def ended(self, work: Work, offsets: tuple[int, ...]) -> WorkReported:
        """These records of it have ended: the first time, some of them badly."""
        request = work.request
        if isinstance(request, Start):
            numbers = request.numbers
            if len(numbers) > len(offsets):  # told singly
                numbers = (numbers[work.offsets.index(offsets[0])],)
            told = TasksReported(request.window, numbers, request.attempt, Report.SUCCEEDED)
            self.done += len(offsets)
            return WorkReported(work.partition, work.generation, told)
        assert isinstance(request, Handle)
        share = self.course.retried
        failed = tuple(each for each in offsets if share and each % share == 0 and request.attempt == 1)
        done = tuple(each for each in offsets if each not in failed) if failed else offsets
        self.done += len(done)
        return WorkReported(work.partition, work.generation, RecordsHandled(done, failed, request.attempt))


# --- tables -------------------------------------------------------------------------------------------------------------

FEATURES: Final = {
    "each record by itself": Course(),
    "order by key, 1,000 keys": Course(keys=1_000),
    "windows of 100, a task each": Course(window=100),
    "windows of 100, a task for each record": Course(window=100, has_tasks=True),
    "1 % fail once": Course(retried=100),
    "a stuck head": Course(stuck=True),
}
GROWTH: Final = {
    **{f"{in_work:,} in work": Course(in_work) for in_work in (10, 100, 1_000, 10_000, 100_000)},
    **{f"{number} partitions": Course(partitions=number) for number in (1, 8, 64)},
    **{f"windows of {size:,}": Course(window=size) for size in (10, 100, 1_000)},
}


def timed(rules: ConsumerRules, state: ConsumerState, told: Sequence[ConsumerEvent | None]) -> float:
    """Seconds of the processor from this state on through all that was told."""
    began = process_time()
    for event in told:
        if event is None:
            rules.polling(state, ())
        else:
            state = rules.step(state, event).state
    return process_time() - began


def empty() -> None:
    pass


def table(name: str, courses: dict[str, Course], records: int) -> str:
    """Microseconds a record, told at once and singly, and how many commits there are, of which how many with metadata."""
    rows = {name: (Driver(course), Driver(attrs.evolve(course, singly=True))) for name, course in courses.items()}
    best = {(row, singly): float("inf") for row in rows for singly in range(2)}
    for row, drivers in rows.items():
        for driver in drivers:
            driver.run((5 * records if driver.course.stuck else records) + driver.course.in_work)
            driver.commits = driver.metadata = 0
        print(f"  {row} is under way", file=sys.stderr)
    courses_noted = {}
    for row, drivers in rows.items():
        for at, driver in enumerate(drivers):
            driver.noted, before = [], driver.state
            courses_noted[row, at] = driver.rules, before, driver.noted, driver.run(records)
    for _ in range(ROUNDS):
        for key, (rules, before, told, done) in courses_noted.items():
            best[key] = min(best[key], timed(rules, before, told) / done * 1e6)
    lines = [f"{name:38}{'told at once':>14}{'singly':>10}{'commits':>10}{'with metadata':>15}"]
    for row, (driver, _) in rows.items():
        lines.append(
            f"  {row:36}{best[row, 0]:11.2f} us{best[row, 1]:7.2f} us{driver.commits:10,}{driver.metadata:15,}"
        )
    return "\n".join(lines)


def size(value: object) -> int:
    """Bytes of all that it holds, each object once, types aside."""
    seen, total, left = {0}, 0, [value]
    while left:
        each = left.pop()
        if id(each) not in seen and not isinstance(each, type | FunctionType | ModuleType):
            seen.add(id(each))
            total += getsizeof(each)
            left += get_referents(each)
    return total


def memory(records: int) -> str:
    """What a state takes for each record in work, and with many more outstanding behind a stuck head."""
    lines = ["memory of a state"]
    for course, done in ((Course(5 * records, singly=True), records), (Course(stuck=True, partitions=1), 50 * records)):
        driver = Driver(course)
        empty = size(driver.state)
        driver.run(done)
        working = len(driver.working)
        while course.stuck and driver.working:
            driver.tell([driver.ended(*driver.working.popleft())])
        taken, beyond = size(driver.state) - empty, driver.next[driver.partitions[0]]
        lines.append(
            f"  {beyond:,} offsets beyond a stuck head: {taken / 1e6:.3f} MB, {8 * taken / beyond:.2f} bits each"
            if course.stuck
            else f"  {working:,} in work: {taken / working:.1f} bytes a record"
        )
    return "\n".join(lines)


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument(
        "words",
        nargs="*",
        default=sized([], ["windows of 1,000"]),
        help="rows with one of these in their name, or memory",
    )
    parser.add_argument(
        "--records",
        type=int,
        default=sized(20_000, 100),
        help="how many a round has; behind the stuck head 50 times as many",
    )
    given = parser.parse_args()

    took = min(timeit(empty, number=100_000) for _ in range(ROUNDS))
    print(f"a call of an empty function: {took * 10:.3f} us", end="\n\n")
    for name, courses in (("features, us a record", FEATURES), ("growth, us a record", GROWTH)):
        some = {row: each for row, each in courses.items() if not given.words or any(map(row.count, given.words))}
        if some:
            print(table(name, some, given.records), end="\n\n")
    if not given.words or "memory" in given.words:
        print(memory(given.records))


if __name__ == "__main__":
    main()
