"""Short runs of real workers on the simulated Kafka, by seed: two members, 40 records and a fault.

    python -m tests.integration.kafka_runs 17             runs 17 and prints what is wrong
    python -m tests.integration.kafka_runs 17 --record D  also records members for `tidegate replay`
    python -m tests.integration.kafka_runs 17 --page D    also writes the trace and its page
    python -m tests.integration.kafka_runs 0 --runs 10000 that many runs, a line for each wrong one

The seed draws the fault, its time and target, how long user code and requests take, and the order
of the event loop. The members work under the fault until all is committed or time runs out, then
they stop, then a fresh member handles the rest.

Judges, by the laws of `tidegate.consumer`:
    J1  Every record is finished, with its answers sent, and committed in the end (P7).
    J2  No position is committed while a record before it is unfinished (P1).
    J3  A committed position never falls (P1), except by the member and generation that committed
        before: a broker does not fence those.
    J4  Two members work on one record only if the first is cut off or ignores cancellation.
    J5  `run` ends within the time to drain and leave after a stop (SD4), without an error or with
        one of tidegate's that the client caused.
    J6  Every record that a member counts as in work is in work: no slot leaks.
    J7  No more handlers run than `concurrency` allows (AS1), except at the instant of an
        interruption. Hooks whose tasks another hook has reported do not count.
    J8  All is finished and committed by the end of the first part, except records that user code
        failed or holds, and those that wait behind them in their partitions.
    J9  No member is evicted for releasing partitions too late (DR2), whatever user code does.
    J10 A handler that ends within the time to drain is not interrupted (DR3).
    J11 A member that ends has closed its client and producers and leaves no task running.
    J12 A member that continues keeps no records of partitions it does not own, and no finished
        requests beyond this instant.
    J13 Failed commits are resent with growing delays (P12), except those that are too long. A
        member that rejoins starts with the first delay.
    J14 The undecodable record is handled in its place.
    J15 Every position reported as committed is committed.
    J16 Where answers commit together with positions (`--kinds once`), those of each record are seen
        (EO2), and never twice (EO1).
    J17 A member that knows it has left the group fences no producer.
    J18 No record fails because a send has no reply yet. No more attempts fail than sends: one that
        waits while another closes the producer is no failure.
    J19 In a group that begins at the end of a growing log (`latest`), J1 and J2 hold from the first
        record handled.
    J20 Of two members with one name (`named`) one continues, the other ends with an error of
        tidegate (SD8).
    J21 A member that knows it has left the group releases revoked partitions at once.
    J22 A delayed retry does not start early.
    J23 Of the records of a key, or of a partition by offset (`ordered`), one is in work at a time,
        after those before it are settled (P8). The rest of a blocked or dead-lettered key does not
        start (P9).
    J24 A partition whose undone records span its limit fetches no more (P6), and none does at the
        limit of the gate (AS2). One poll may exceed either (`held`).
    J25 Where logs lose their starts (`retained`), J1 and J2 hold for the records left. Unfinished
        records that were removed are reported before the committed position passes them.
    J26 In a group that has a position, or begins at the end of a log, a partition commits its start
        before it starts a record (P16).
    J27 Each member handles a record that blocks the event loop beyond a session at most once
        (AS10).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias, cast, final

import attrs
import pytest
from aiokafka import errors
from tests.integration.run_pages import JUDGE, Told, laws_of, trace_of
from tests.integration.transactional_runs import OUT, Reader, fence, place_of, places_in, producing, trouble

from tidegate.consumer.checks import laws
from tidegate.consumer.fanout import Arrange, Report, Rules, Start, Tasks, TasksReported
from tidegate.consumer.flow.backpressure import PartitionLimits, Thresholds, for_executors
from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.partition.partition import Ordering, Owned, PartitionRules, Phase
from tidegate.consumer.protocol.commands import (
    Assigned,
    Committed,
    Event,
    Fetched,
    Handle,
    RecordsHandled,
    Work,
    WorkReported,
)
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.consumer.worker.worker import WorkerRules
from tidegate.model.documents import Document, Value
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import PPM, SECOND, Duration, jittered
from tidegate.model.records import Record, Send, TopicPartition
from tidegate.retries.backoff import delay_after
from tidegate.sim.servers.log import CONTROL, LogEntry
from tidegate.sim.trace.trace import StepKind
from tidegate_adapters.base.log_fields import say
from tidegate_adapters.exploring.counterexamples import Store
from tidegate_adapters.kafka.client import NO_GENERATION, Client, Producer, TransactionalProducer, generation_of
from tidegate_adapters.kafka.worker import Later, OnFailure, Undecodable, Worker
from tidegate_adapters.observe.recorder import Recorder
from tidegate_adapters.runtime.handlers import undecoded
from tidegate_adapters.testing import event_loop
from tidegate_adapters.testing.event_loop import stall
from tidegate_adapters.testing.kafka import (
    CODES,
    Network,
    Outcome,
    SimulatedBroker,
    SimulatedConsumer,
    SimulatedProducer,
)
from tidegate_adapters.testing.kafka.requests import (
    OF_PRODUCERS,
    Code,
    JoinGroup,
    OffsetCommit,
    OffsetFetch,
    Partition,
    Position,
    Request,
    TxnOffsetCommit,
)

PARTITIONS, RECORDS, KEYS = 4, 10, 3
AT_ONCE: Final = ("J2", "J3", "J4", "J7", "J10", "J13", "J15", "J23", "J24")
TURNS_MAX: Final = 50_000
"""Event-loop turns in a run: ten times those of the longest."""
LAST: Final = "z"
PACES: Final = 4
"""Records have few distinct durations, so that those that start together often end in one turn."""
ENOUGH_S: Final = 60.0
ENOUGH_FOR_USERS_S: Final = 20.0
OPEN_MAX_S: Final = 80
"""A transaction stays open for at most a minute plus one check by the broker."""
AWAY_S: Final = 1.2
"""The shortest time without the topic: within it every client refreshes its metadata."""
HEARD_S: Final = 1.0
"""Within this time members send a heartbeat and handle the reply, at the client settings below."""
QUIET_S: Final = 2.0
_LATE_S: Final = 1.0
"""Slack beyond the rules' own timeouts, for cancelled code."""
DRAIN: Final = Budget(3 * SECOND, cancel=SECOND, commit=SECOND)
LOGS: Final = ("tidegate_adapters.kafka", "tidegate_adapters.runtime.reducers")
_TESTING: Final = Path(event_loop.__file__).parent
_ADAPTERS: Final = _TESTING.parent
CLIENT: Final[Mapping[str, Any]] = {
    "session_timeout_ms": 6_000,
    "rebalance_timeout_ms": 8_000,
    "heartbeat_interval_ms": 300,
}
Record_: TypeAlias = tuple[int, int]
Answer: TypeAlias = Outcome | Code | None
Hooked: TypeAlias = tuple[TopicPartition, int, int, frozenset[int]]


class Boom(BaseException):
    pass


KINDS: Final = (
    "nothing", "request", "requests", "commits", "stall", "stop", "stop_twice", "cancel", "kill", "evicted", "rebalance", "raises",
    "hangs", "slow", "stubborn", "observer", "recorder", "partial", "expected", "poison", "gaps", "sends", "letters", "batches", "parks",
    "log", "exits", "asks",
)  # fmt: skip
OF_REQUESTS: Final = ("request", "requests", "commits", "log")
ONCE: Final = ("once",)
LATEST: Final = ("latest",)
GROWS: Final = ("grows",)
BEYOND: Final = ("beyond",)
RETAINED: Final = ("retained",)
"""Logs lose records below the committed positions, and below those at which members read."""
GROWING: Final = (*LATEST, *BEYOND, *RETAINED)
NAMED: Final = ("named",)
ORDERED: Final = ("ordered",)
"""Every seventh record fails permanently. The seed draws the ordering and `OnFailure`."""
ORDERS: Final = (*product((Ordering.BY_KEY, Ordering.BY_OFFSET), OnFailure),)
HELD: Final = ("held",)
SPAN_MAX: Final = Thresholds(3, 1)
POLLED_MAX: Final = 2
OF_MEMBERS: Final = (
    "named",
    "stall",
    "fenced",
    "rebalance",
    "grows",
    "recreated",
    "anew",
    "evicted",
    "stop",
    "stop_twice",
    "cancel",
    "kill",
)
RECREATED: Final = ("recreated",)
BACK: Final = ("blocks", "anew")
"""A blocked event loop beyond a session; or all evicted while the topic is recreated."""
BLOCKS_S, STANDS_S = 7.0, 2.0
MEMBER_STRIKES: Final = ("evicted", "kill", "stall", "rebalance", "stop")
LOST_FROM, COMMITTED_AT = 3, 5
KEPT_FROM, FILLED_TO, DONE_TO = 2, 4, 0
RESETS: Final = ("earliest", "latest", "none")
LOOKED_S: Final = 15.0
NAMED_STRIKES: Final = ("named", "named", "named", "evicted")
"""A second member with the name, or the loss of a session, which leaves a member its name."""
STRIKES: Final = ("fenced", "evicted", "kill", "stall", "rebalance", "stop")
UNHEARD: Final = (*BACK, *ONCE, *RECREATED, *OF_REQUESTS, *GROWING, *NAMED, *ORDERED, *HELD, "stall", "evicted")
"""Faults after which a member may not know that it has left the group."""
NOT_GIVEN: Final = ((OffsetFetch, "UnknownTopicOrPartitionError"),)
"""Kafka 4.1 never answers so: aiokafka reads it as "nothing committed", and the position falls."""
CALM: Final = ("nothing", "stop", "cancel", "rebalance", "observer", "recorder", "gaps", "exits")
MORE: Final[Mapping[str, Mapping[str, Any]]] = {
    "letters": {"on_failure": OnFailure.DEAD_LETTER, "dead_letter": "{topic}.dead"},
    "once": {"exactly_once": True},
    "grows": {"metadata_max_age_ms": 1_000},
    "recreated": {"metadata_max_age_ms": 1_000},
    "latest": {"auto_offset_reset": "latest"},
    "held": {"max_poll_records": POLLED_MAX},
}
COMMITS_MAX: Final = 2 * 5
"""In a second, of one partition: 5 by the back-off with jitter, each with others and alone."""
JITTER: Final = PPM // 2
TINY_S: Final = 0.000_01
EXITS: Final = 4
OF_TEXT: Final = (errors.OffsetMetadataTooLargeError, errors.InvalidCommitOffsetSizeError)
OF_USERS: Final = ("raises", "hangs", "slow", "stubborn", "partial")


@final
@attrs.frozen
class Course:
    """The plan of a run.

    Attributes:
        at_s: In seconds after the first member starts.
        outcome: Chooses the reply to the request, or the mistake in the answer of a hook.
        pace_s: The longest time that a record takes.
        executors: The concurrency: few make records wait, many end together.
    """

    seed: int
    kind: str
    whom: str
    at_s: float
    lasts_s: float
    request: type[Request]
    number: int
    outcome: float
    record: Record_
    error: type[BaseException]
    joins_s: float
    pace_s: float
    default: bool
    executors: int


def course(seed: int, kinds: tuple[str, ...] = KINDS) -> Course:
    random = Random(f"course {seed}")
    kind, pace_s = random.choice(kinds), random.choice((0.1, 0.3))
    return Course(
        seed,
        kind,
        random.choice("ab"),
        random.random() * 4 * pace_s,
        random.choice((0.5, 2.0, 7.0, 12.0)),
        OffsetCommit
        if kind in ("commits", "log")
        else random.choice([each for each in CODES if each not in OF_PRODUCERS]),
        random.randrange(4) * random.randrange(4),
        random.random(),
        (random.randrange(PARTITIONS), random.randrange(RECORDS)),
        random.choice((RuntimeError, asyncio.CancelledError, Boom)),
        random.choice((0.0, 0.05, 0.2)) + random.random() * 0.1,
        pace_s * (8 if kind in RECREATED else 1),
        random.random() < 0.15 and kind != "blocks",
        random.choice((4, 8, 16)),
    )


def hooked(worker: Any, hooks: Any, rules: ConsumerRules) -> Worker:
    worker.settings, code = attrs.evolve(worker.settings, consumer=rules), worker._code  # noqa: SLF001
    worker._code = code._replace(hooks=hooks)  # noqa: SLF001
    return cast("Worker", worker)


@final
class Story:
    def __init__(self, told: Course) -> None:
        self.course = told
        self.wrong: list[str] = []
        self.told: list[Told] = []
        self.is_seen = False
        self.begun: dict[Record_, dict[str, int]] = {}
        self.finished: set[Record_] = set()
        self.firsts: dict[int, int] = {}
        self.committed: dict[int, tuple[int, str, int]] = {}
        self.life = 0
        self.taken: set[tuple[int, int]] = set()
        self.struck: set[Record_] = set()
        self.parked: dict[Record_, int] = {}
        self.all_done = asyncio.Event()
        self.removed: set[Record_] = set()
        self.told_s = 0.0

    @property
    def lines(self) -> list[str]:
        return [*map(str, self.told)]

    def tell(self, who: str, what: str, kind: StepKind = StepKind.OTHER, fault: str = "", law: str = "") -> None:
        self.told_s = asyncio.get_running_loop().time()
        self.told.append(Told(self.told_s, who, what, kind, fault, law, self._seen() if self.is_seen else _NOTHING))

    def accuse(self, law: str, what: str) -> None:
        self.tell(JUDGE, f"{law}: {what}", law=law)
        self.wrong.append(f"{law}: {what}")

    def is_stuck(self, what: str) -> None:
        self.told.append(Told(self.told_s, JUDGE, f"J5: {what}", StepKind.OTHER, "", "J5", self._seen()))
        self.wrong.append(f"J5: {what}")

    def _seen(self) -> Document:
        finished = {
            number: tuple(sorted(at for of, at in self.finished if of == number)) for number in range(PARTITIONS)
        }
        working = sorted((name, at) for at, names in self.begun.items() for name in names)
        return Document(
            (
                ("committed", _document({f"t-{number}": at for number, (at, *_) in sorted(self.committed.items())})),
                ("finished", _document({f"t-{number}": offsets for number, offsets in finished.items()})),
                ("at work", _document({f"t-{at[0]} @{at[1]}": name for name, at in working})),
            )
        )


_NOTHING: Final = Document()


def _document(items: Mapping[str, Value]) -> Document:
    return Document(tuple(items.items()))


@final
class Member:
    def __init__(self, name: str, run_: Run) -> None:
        self.name, self.run = name, run_
        self.is_dead = False
        self.client: SimulatedConsumer | None = None
        self.producers: list[SimulatedProducer] = []
        self.sends: list[Sends] = []
        self.sends_failed = 0
        self.in_work = 0
        self.hooked: set[Hooked] = set()
        self.claimed: Hooked | None = None
        self.exit: BaseException | None = None
        self.has_exited = False
        self.stopped_s: float | None = None
        self.is_stopped_at_once = False
        self.due_s: dict[Record_, float] = {}
        """The earliest retry of each record, in this assignment of its partition."""
        self.tried: set[Record_] = set()
        self.failed: set[Record_] = set()
        """Started records and permanent failures under an ordering, in this assignment."""
        self.blocked: set[Record_] = set()
        self.begins: dict[int, int] = {}
        self.fetched: dict[tuple[TopicPartition, int], set[int]] = {}
        kind, mine = run_.course.kind, name == run_.course.whom
        self._once = {"observer": mine and kind == "observer", "recorder": mine and kind == "recorder"}
        self.rules, more = self._told()
        more["observe"] = self._observed
        self.recorder = None if run_.folder is None else Recorder(run_.folder / f"{name}.jsonl", name, kind="reducer")
        if kind == "recorder":
            more["record"] = self._recorded
        elif self.recorder is not None:
            more["record"] = self.recorder.stepped
        options = {} if run_.course.default else CLIENT
        if kind in NAMED:
            options = {**options, "group_instance_id": run_.course.whom if name == "c" else name}
        hooks = more.pop("hooks", None)
        plain = attrs.evolve(self.rules, partition=attrs.evolve(self.rules.partition, hooks=False))
        self.worker = Worker(
            ["t"],
            self._handle_batch if kind == "batches" else self._handle,
            bootstrap="simulated",
            group="g",
            concurrency=self.rules.executors,
            consumer=plain,
            **more,
            **options,
        )
        if hooks is not None:
            self.worker = hooked(self.worker, hooks, self.rules)
        run_.story.tell(name, "starts", StepKind.RESTART)
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"run of {name}")

    def _told(self) -> tuple[ConsumerRules, dict[str, Any]]:
        told, kind, order = self.run.course, self.run.course.kind, self.run.order
        more: dict[str, Any] = {**MORE.get(kind, {})}
        rules = PartitionRules() if told.default else PartitionRules(drain=DRAIN)
        if kind == "expected":
            rules = attrs.evolve(rules, window_max=3)
            more["expected"] = self._expected
        if kind == "poison":
            more["undecodable"] = Undecodable.RAW
        if kind == "partial":
            plain = Rules(0, 0, task_delivery=False, record_delivery=False, window_delivery=False)
            rules = attrs.evolve(rules, hooks=True, window_max=2, fanout=plain)
            more["hooks"] = self._hooked
        if kind in ("sends", "batches", "log"):
            more |= {"retries": 100, "jitter_ppm": JITTER}
        if kind == "batches":
            more |= {"batch": 3}
        if order is not None:
            rules, more["on_failure"] = attrs.evolve(rules, ordering=order[0]), order[1]
            if order[1] in (OnFailure.DEAD_LETTER, OnFailure.DEAD_LETTER_KEY):
                more["dead_letter"] = "{topic}.dead"
        if kind in RETAINED:
            more["auto_offset_reset"] = RESETS[told.seed % len(RESETS)]
        if kind in HELD:
            gate = for_executors(told.executors, high_each=1, low_each=0)
            rules = attrs.evolve(rules, limits=PartitionLimits(span=SPAN_MAX))
            return ConsumerRules(told.executors, gate, rules), more
        return ConsumerRules(told.executors, partition=rules), more

    async def _run(self) -> None:
        try:
            await self.worker.run(self._connect, lambda *_: Sends(self), self._transact)
        except (SystemExit, KeyboardInterrupt) as error:
            self.exit = error

    def _connect(self, _bootstrap: str, group: str, options: Mapping[str, object]) -> Client:
        kept = {"auto_offset_reset": "earliest"} | dict(options) | {"enable_auto_commit": False}
        kept = {name: value for name, value in kept.items() if value is not None}
        self.client = SimulatedConsumer(self.run.network, group_id=group, client_id=self.name, **cast("Any", kept))
        cast("Any", self.client).subscribe = partial(self._subscribed, self.client.subscribe)
        if self.run.course.kind == "asks":
            cast("Any", self.client).start = partial(self._started, self.client, self.client.start)
        return cast("Client", self.client)

    def _subscribed(self, subscribe: Callable[..., None], *topics: Any, listener: Any, **more: Any) -> None:
        subscribe(*topics, listener=Heard(self, listener), **more)

    async def _started(self, client: Any, start: Callable[[], Awaitable[None]]) -> None:
        await start()
        for of, name in ((client._coordinator, "fetch_committed_offsets"), (client, "end_offsets")):  # noqa: SLF001  the worker calls these
            setattr(of, name, self._late_answers(getattr(of, name)))

    def _late_answers(self, ask: Callable[[Any], Awaitable[object]]) -> Callable[[Any], Awaitable[object]]:
        """Half of the calls time out, until half of the first part is over."""

        async def asked(what: Any) -> object:
            if self.run.random.random() < 0.5 and asyncio.get_running_loop().time() < ENOUGH_S / 2:
                self.run.story.tell(self.name, f"is not answered in time by {ask.__name__}", fault="asks")
                raise errors.KafkaTimeoutError
            return await ask(what)

        return asked

    def _transact(self, _bootstrap: str, _options: Mapping[str, object], name: str) -> TransactionalProducer:
        if generation_of(cast("Client", self.client)) == NO_GENERATION:
            self.run.story.accuse("J17", f"{self.name} fences {name}, and knows that it is no member")
        made, sends = producing(self.run.network, self.name, name)
        self.producers.append(made)
        return sends

    # --- user code ------------------------------------------------------------------------------------------------------

    def _expected(self, _: Record) -> timedelta:
        if self.run.course.outcome < 0.3:
            raise self.run.course.error
        return timedelta(milliseconds=20 if self.run.course.outcome < 0.9 else -1)

    async def _handle(self, record: Record) -> Send | None:
        at = (record.partition, record.offset)
        if self.is_dead:
            raise asyncio.CancelledError  # the process is dead
        story = self.run.story
        self._begin(at)
        try:
            return await self._work_on(record, at)
        except asyncio.CancelledError:
            if story.course.kind in CALM and not self.is_stopped_at_once and self.name not in self.run.dead:
                story.accuse("J10", f"{self.name} is interrupted at {at}, with time left")
            raise
        finally:
            self.in_work -= 1
            working = story.begun[at]
            working[self.name] -= 1
            if not working[self.name]:
                del working[self.name]

    def _begin(self, at: Record_) -> None:
        story = self.run.story
        working = story.begun.setdefault(at, {})
        story.firsts[at[0]] = min(at[1], story.firsts.get(at[0], at[1]))
        if self.run.order is not None:
            self._judge_order(at, *self.run.order)
        if story.course.kind in GROWING and story.committed.get(at[0], (0,))[0] < self.begins.get(at[0], 0):
            story.accuse("J26", f"{self.name} begins {at}, and has not committed @{self.begins[at[0]]}")
        others = [name for name in working if name != self.name]
        if others and story.course.kind not in (*UNHEARD, "stubborn"):
            story.accuse("J4", f"{self.name} begins {at}, on which {others[0]} works")
        working[self.name] = working.get(self.name, 0) + 1
        self.in_work += 1
        story.tell(self.name, f"begins {at}", StepKind.CALL)
        now_s = asyncio.get_running_loop().time()
        if (early_s := self.due_s.pop(at, 0.0) - now_s) > TINY_S:
            story.accuse("J22", f"{self.name} tries {at} again {early_s:.3f} s before it may")

    def _judge_order(self, at: Record_, ordering: Ordering, then: OnFailure) -> None:
        """J23. A new owner starts with the first uncommitted record, finished or not."""
        story, line = self.run.story, self.run.line_of(at, ordering)
        opened = {each[1] for each in line if each not in story.finished or self.name in story.begun.get(each, ())}
        failed = [each[1] for each in self.failed & {*line} if then not in (OnFailure.SKIP, OnFailure.DEAD_LETTER)]
        closed = [offset for _, offset in line if any(each < offset for each in failed)]
        is_first = laws.partition.waits_its_turn(at[1], [each[1] for each in line], opened)
        if not is_first or any(each > at for each in self.tried & {*line}):
            story.accuse("J23", f"{self.name} begins {at} out of turn, {ordering.name}")
        if not laws.partition.is_not_run(at[1], Handle((at[1],)), closed):
            story.accuse("J23", f"{self.name} begins {at} behind {failed}, {then.name}")
        self.tried.add(at)

    def _put_off(self, at: Record_, delay: Duration) -> None:
        self.due_s[at] = asyncio.get_running_loop().time() + delay / SECOND

    async def _work_on(self, record: Record, at: Record_) -> Send | None:
        story, told = self.run.story, self.run.course
        await self._alive(asyncio.sleep(self.run.random.randrange(PACES) / (PACES - 1) * told.pace_s))
        if at == told.record and at not in story.struck and told.kind in OF_USERS:
            story.struck.add(at)
            await self._struck(at)
        if told.kind == "blocks" and at == told.record and self.name != LAST:
            if at in self.blocked:
                story.accuse("J27", f"{self.name} handles {at} again")
            self.blocked.add(at)
            story.tell(self.name, f"holds up the event loop at {at}", StepKind.TIME, "blocks")
            stall(timedelta(seconds=BLOCKS_S))
        counted = self.in_work - self._unasked()
        if not laws.consumer.executors_bound_the_running(self.rules, cast("Any", _Running(counted))):
            story.accuse("J7", f"{self.name} has {counted} records in work")
        if told.kind == "parks" and story.parked.setdefault(at, 0) < sum(at) % 3:
            story.parked[at] += 1
            story.tell(self.name, f"parks {at}", StepKind.SLEEP)
            later = Duration(round(self.run.random.random() * SECOND))
            self._put_off(at, later)
            raise Later(timedelta(microseconds=later))
        if told.kind == "exits" and self._exits(at):
            story.struck.add(at)
            story.tell(self.name, f"exits at {at}", StepKind.CALL)
            self.has_exited = True
            raise self.run.random.choice((SystemExit, KeyboardInterrupt))(3)
        if told.kind == "log" and at not in story.struck and sum(at) % 2:
            story.struck.add(at)
            story.tell(self.name, f"fails at {at}", StepKind.CALL)
            self._put_off(at, jittered(delay_after(self.rules.partition.backoff, 1), JITTER, PPM))
            raise RuntimeError("to be tried again")
        if told.kind == "letters" and sum(at) % 2:
            story.tell(self.name, f"fails at {at}", StepKind.CALL)
            raise RuntimeError("to the dead letters")
        if self.run.fails(at) and self.name != LAST:
            story.tell(self.name, f"fails at {at}", StepKind.CALL)
            self.failed.add(at)
            if self.run.order is not None and self.run.order[1] is OnFailure.SKIP:
                self.run.finish(at)
            raise RuntimeError("for good")
        if told.kind == "poison" and (undecoded(record) is not None) != (at == told.record):
            story.accuse("J14", f"{self.name} has handled {at} as if it were another")
        if record.key is not None and not record.key.startswith(b"%d." % story.life):
            story.tell(self.name, f"has handled {at} of the topic before", StepKind.CALL)
            return None
        is_sent = told.kind in ("sends", "batches", "once")
        if not is_sent:
            self.run.finish(at)
        story.tell(self.name, f"has handled {at}", StepKind.CALL)
        return Send("out", b"%d %d" % at) if is_sent else None

    def _exits(self, at: Record_) -> bool:
        """At several records of several partitions, like one function called from each."""
        story, (number, offset) = self.run.story, self.run.course.record
        return (
            self.name != LAST
            and at not in story.struck
            and at[0] in {number, 0}
            and at[1] >= offset
            and len(story.struck) < EXITS
        )

    async def _handle_batch(self, records: list[Record]) -> list[Send | None]:
        return [await self._handle(record) for record in records]

    async def _alive(self, what: Awaitable[object]) -> None:
        await what
        if self.is_dead:
            await asyncio.get_running_loop().create_future()

    async def _struck(self, at: Record_) -> None:
        told = self.run.course
        self.run.story.tell(self.name, f"is struck at {at}: {told.kind}", fault=told.kind)
        match told.kind:
            case "raises":
                raise told.error
            case "hangs":
                await asyncio.get_running_loop().create_future()
            case "slow":
                await self._alive(asyncio.sleep(told.lasts_s * 2))
            case "stubborn":
                end = asyncio.get_running_loop().time() + told.lasts_s * 2
                while (left := end - asyncio.get_running_loop().time()) > 0:
                    with contextlib.suppress(asyncio.CancelledError):
                        await self._alive(asyncio.sleep(left))
            case _:
                pass

    async def _hooked(self, work: Work, given: tuple[Record, ...]) -> object:
        """Each record is a task. For the struck one the report is partial, or of other work."""
        match work.request:
            case Arrange():
                return Tasks(tuple((record.offset,) for record in given))
            case Start(window, numbers, attempt):
                told, story = self.run.course, self.run.story
                is_part = any((each.partition, each.offset) == told.record for each in given) and (
                    told.record not in story.struck
                )
                if is_part:
                    story.struck.add(told.record)
                    story.tell(self.name, f"answers for a part of {[each.offset for each in given]}", fault="partial")
                kept = 1 if is_part else len(numbers)
                this = (work.partition, work.generation, window, frozenset(numbers))
                self.hooked.add(this)
                try:
                    for record in given[:kept]:
                        await self._handle(record)
                finally:
                    self.hooked.discard(this)
                match int(told.outcome * 3) if is_part else 0:
                    case 0:
                        return TasksReported(window, numbers[:kept], attempt, Report.SUCCEEDED)
                    case 1:
                        self.claimed = (work.partition, work.generation, window + 1, frozenset(numbers[:kept]))
                        return TasksReported(window + 1, numbers[:kept], attempt, Report.SUCCEEDED)
                    case _:
                        return TasksReported(window, numbers, attempt + 1, Report.SUCCEEDED)
            case _:
                return None

    def _unasked(self) -> int:
        if self.claimed is None:
            return 0
        *of, numbers = self.claimed
        part = self.worker.state[self.claimed[0]]
        asked = [each.work.request for each in part.asked] if isinstance(part, Owned) else []
        asked_of = {(each.window, frozenset(each.numbers)) for each in asked if isinstance(each, Start)}
        claimed = [each[2:] for each in self.hooked if [*each[:3]] == of and each[3] <= numbers]
        return sum(each not in asked_of for each in claimed)

    def _observed(self, event: Event, state: ConsumerState) -> None:
        if isinstance(event, Committed) and (event.partition.partition, event.position) not in self.run.story.taken:
            self.run.story.accuse("J15", f"{self.name} is told {event}")
        if isinstance(event, WorkReported) and isinstance(event.what, RecordsHandled):
            self._sends_failed(event, state)
        if isinstance(event, Assigned):
            for kept in (self.tried, self.failed):
                kept.difference_update({at for at in kept if at[0] == event.partition.partition})
            self.begins[event.partition.partition] = event.committed
        if isinstance(event, Fetched) and self.run.course.kind in HELD:
            self._judge_fetched(event, state)
        self._fail("observer")

    def _judge_fetched(self, event: Fetched, state: ConsumerState) -> None:
        """J24."""
        self.fetched.setdefault((event.partition, event.generation), set()).update(event.offsets)
        load = 0
        for part in state.partitions:
            if part.phase is Phase.DRAINING:
                continue  # its waiting records are dropped
            came = self.fetched.get((part.partition, part.generation), set())
            undone = {each for each in came if (part.partition.partition, each) not in self.run.story.finished}
            load += len(undone)
            span = sum(each >= min(undone) for each in came) if undone else 0
            if span >= SPAN_MAX.high + POLLED_MAX:
                self.run.story.accuse("J24", f"{self.name} fetches {event}, and {span} are undone of {part.partition}")
        if load >= self.rules.thresholds.high + POLLED_MAX:
            self.run.story.accuse("J24", f"{self.name} fetches {event}, and {load} are undone of all")

    def _sends_failed(self, event: WorkReported, state: ConsumerState) -> None:
        """J18. A draining partition interrupts its sends."""
        part = state[event.partition]
        if self.run.course.kind == "sends" and isinstance(part, Owned) and part.phase is not Phase.DRAINING:
            inner = self.worker._member  # noqa: SLF001  no public access
            failed = 0 if inner is None else inner.status.sinks[0].attempts.get("unanswered", 0)
            if (isinstance(event.what, RecordsHandled) and event.what.failed) or failed > self.sends_failed:
                self.run.story.accuse(
                    "J18", f"{event} of {self.name}, where {failed} attempts failed, {self.sends_failed} sends"
                )

    def _recorded(self, event: Any, commands: Any) -> None:
        if self.recorder is not None:
            self.recorder.stepped(event, commands)
        self._fail("recorder")

    def _fail(self, who: str) -> None:
        if self._once[who] and self.run.random.random() < 0.1:
            self._once[who] = False
            self.run.story.tell(self.name, f"has its {who} raise", fault=who)
            raise OSError("no space left on device")

    # --- faults ---------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        if self.stopped_s is None:
            self.stopped_s = asyncio.get_running_loop().time()
            self.run.story.tell(self.name, "is asked to stop")
        else:
            self.is_stopped_at_once = True
        self.worker.stop()

    def kill(self) -> None:
        self.run.story.tell(self.name, "is killed", StepKind.CRASH, "kill")
        self.is_dead = True
        for working in self.run.story.begun.values():
            working.pop(self.name, None)
        self.run.dead.add(self.name)
        for client in (self.client, *self.producers):
            if client is not None:
                client.kill()
        self.task.cancel()

    def kept(self) -> set[TopicPartition]:
        inner = self.worker._member  # noqa: SLF001  no public access
        return set() if inner is None else {partition for (partition, _), each in inner._records._lives.items() if each}  # noqa: SLF001

    def over(self) -> int:
        """Finished requests that it keeps; each partition may have one at this instant."""
        inner = self.worker._member  # noqa: SLF001
        return 0 if inner is None else sum(task.done() for task in inner.life._tasks)  # noqa: SLF001

    async def ended(self) -> None:
        """J5 and J11."""
        story = self.run.story
        rules = WorkerRules(self.rules)
        began = self.stopped_s if self.stopped_s is not None else asyncio.get_running_loop().time()
        limit = rules.total / SECOND + _LATE_S
        if self.run.course.kind == "stubborn":
            limit += self.run.course.lasts_s * 2
        await asyncio.wait({self.task}, timeout=limit)
        if not self.task.done():
            story.accuse("J5", f"{self.name} has not ended {limit:g} s after {began:.3f}")
            self.task.cancel()
            return
        if self.client is not None and not self.client.is_closed:
            story.accuse("J11", f"{self.name} has ended, and its client has not")
        if not all(each.is_closed for each in self.sends):
            story.accuse("J11", f"{self.name} has ended, and a producer has not")
        if (self.exit is not None) != (self.run.course.kind == "exits" and self.has_exited):
            story.accuse(
                "J5",
                f"run of {self.name} raised {self.exit!r}, and its user code has {'' if self.has_exited else 'not '}exited",
            )
        if self.task.cancelled():
            if self.run.course.kind != "cancel":
                story.accuse("J5", f"run of {self.name} was cancelled by nobody")
            return
        error = self.task.exception()
        cause = getattr(error, "__cause__", None)
        if not isinstance(error, TidegateError | None) or not isinstance(cause, errors.KafkaError | None):
            story.accuse("J5", f"run of {self.name} raised {error!r}, for {cause!r}")
        elif error is not None and self.run.course.kind in GROWING:
            story.accuse("J5", f"run of {self.name} raised {error!r}, and nothing had failed")


@final
class Heard:
    def __init__(self, member: Member, listener: Any) -> None:
        self.member, self.on_partitions_assigned = member, listener.on_partitions_assigned
        self._listener = listener

    async def on_partitions_revoked(self, revoked: Any) -> None:
        member, loop = self.member, asyncio.get_running_loop()
        is_lost, began_s = generation_of(cast("Client", member.client)) == NO_GENERATION, loop.time()
        member.due_s.clear()
        try:
            await self._listener.on_partitions_revoked(revoked)
        finally:
            member.due_s.clear()
        took_s = loop.time() - began_s
        if (
            is_lost and took_s > TINY_S and member.run.course.kind not in NAMED
        ):  # a static member first asks for the owner of its name
            member.run.story.accuse("J21", f"{member.name} is no member, and lets go {took_s:.3f} s later")


@final
class Sends(Producer):
    def __init__(self, member: Member) -> None:
        self.member, self.run = member, member.run
        self.is_closed = False
        member.sends.append(self)

    async def start(self) -> None:
        await self._late()

    async def stop(self) -> None:
        self.is_closed = True
        if self.run.random.random() < 0.2:  # aiokafka's waits for unsent records
            self.run.hangs = True
            await self.member._alive(asyncio.get_running_loop().create_future())  # noqa: SLF001
        await self._late()

    async def _late(self) -> None:
        await self.member._alive(asyncio.sleep(self.run.random.random() / 5))  # noqa: SLF001  one process
        if self.run.random.random() < 0.1:
            self.member.sends_failed += 1
            if self.run.course.kind == "letters" and self.run.random.random() < 0.5:
                raise errors.MessageSizeTooLargeError
            raise OSError("no reply")

    async def send(self, record: Send) -> Awaitable[None]:
        place = place_of(record.value, record.headers)
        if self.run.random.random() < 0.5:  # the batch of its partition is full
            await self.member._alive(asyncio.sleep(self.run.random.random() / 5))  # noqa: SLF001
        if self.is_closed:
            raise errors.ProducerClosed

        async def sent() -> None:
            await self._late()
            self.run.finish(place)
            self.run.story.tell(self.member.name, f"has sent what {place} has come to", StepKind.WRITE)
            await self._late()

        return sent()


@final
@attrs.frozen
class _Running:
    running: int


@final
class Run:
    def __init__(self, told: Course, random: Random, folder: Path | None) -> None:
        self.course, self.random, self.folder = told, random, folder
        self.story = Story(told)
        answers = {OUT: 1} if told.kind == "once" else {}
        self.broker = SimulatedBroker(
            {"t": PARTITIONS, **answers}, fetched_max=random.choice((3, 500)), mark_s=lambda: random.random() / 20
        )
        if told.kind == "beyond":
            beyond = {Partition("t", number): Position(COMMITTED_AT, "") for number in range(PARTITIONS)}
            self.broker.positions.take(OffsetCommit("g", NO_GENERATION, "", beyond))
        if told.kind in RETAINED:
            done = {Partition("t", number): Position(DONE_TO, "") for number in range(PARTITIONS)}
            self.broker.positions.take(OffsetCommit("g", NO_GENERATION, "", done))
        self.broker.positions.taken, self.broker.decided = self._taken, self._decided
        self.network = Network(self.broker, random, strike=self._strike)
        self.reader = Reader(self.network, OUT) if answers else None
        self.dead: set[str] = set()
        self._sent = self._count = 0
        self.begun_s = 0.0
        self.hangs = False
        self._failed_commits: dict[tuple[Partition, int], list[float]] = {}
        self.records = {number: self._filled(number) for number in range(PARTITIONS)}
        self.order = ORDERS[told.seed % len(ORDERS)] if told.kind in ORDERED else None
        self.held_back = self._held_back()

    def line_of(self, at: Record_, ordering: Ordering) -> list[Record_]:
        number, offset = at
        return [
            (number, each)
            for each in self.records[number]
            if ordering is Ordering.BY_OFFSET or each % KEYS == offset % KEYS
        ]

    def fails(self, at: Record_) -> bool:
        return self.order is not None and (sum(at) + self.course.seed // len(ORDERS)) % 7 == 0

    def _held_back(self) -> set[Record_]:
        if self.order is None or self.order[1] not in (OnFailure.STOP, OnFailure.BLOCK_KEY):
            return set()
        ordering = Ordering.BY_OFFSET if self.order[1] is OnFailure.STOP else self.order[0]
        failing = [
            (number, at) for number, offsets in self.records.items() for at in offsets if self.fails((number, at))
        ]
        return {each for at in failing for each in self.line_of(at, ordering) if each >= at}

    def _filled(self, number: int) -> tuple[int, ...]:
        if self.course.kind in GROWING:
            for at in range({"beyond": LOST_FROM, "retained": FILLED_TO}.get(self.course.kind, 0)):
                self.broker.append("t", number, b"0.%d" % (at % KEYS))
            if self.course.kind in RETAINED and number % 2:
                self.broker.delete_below("t", number, KEPT_FROM)
            return tuple(range(RECORDS))  # some are appended later
        entries: list[LogEntry] = []
        for at in range(RECORDS):
            entries.append(b"%d.%d" % (self.story.life, at % KEYS))
            if self.course.kind == "gaps" and self.random.random() < 0.4:
                entries.append(CONTROL)
        is_poisoned = self.course.kind == "poison" and self.course.record[0] == number
        bad = self.course.record[1] if is_poisoned else len(entries)
        for some, poison in ((entries[:bad], False), (entries[bad : bad + 1], True), (entries[bad + 1 :], False)):
            if some:
                self.broker.append("t", number, *some, poison=poison)
        return tuple(at for at, entry in enumerate(entries) if entry is not CONTROL)

    def _strike(self, client: str, request: Request) -> Answer:
        if client in self.dead:
            return Outcome.SILENCE
        told = self.course
        if told.kind == "once" and client != LAST and (struck := trouble(self.random, client, request)) is not None:
            self.story.tell("network", f"answers {type(request).__name__} of {client} by {struck}", fault=str(struck))
            return struck
        if client == told.whom and isinstance(request, JoinGroup):
            self._failed_commits.clear()  # it rejoins, perhaps in the same generation
        if client != told.whom or told.kind not in OF_REQUESTS or type(request) is not told.request:
            return None
        now = asyncio.get_running_loop().time()
        self._sent += 1
        if self._sent == told.number + 1:
            self.begun_s = now
        if told.kind == "request":
            return self._drawn(request) if self._sent == told.number + 1 else None
        is_struck = self._sent > told.number and now - self.begun_s <= told.lasts_s
        drawn = self._drawn(request) if is_struck else None
        if isinstance(request, OffsetCommit) and isinstance(drawn, type) and drawn not in OF_TEXT:
            for each in request.offsets:
                at = each, request.generation
                self._failed_commits[at] = [
                    *(before for before in self._failed_commits.get(at, ()) if now - before < 1.0),
                    now,
                ]
                if len(self._failed_commits[at]) == COMMITS_MAX + 1:
                    self.story.accuse(
                        "J13", f"{client} has sent {COMMITS_MAX + 1} commits of {each} in a second, in vain"
                    )
        return drawn

    def _drawn(self, request: Request) -> Answer:
        codes = (code for code in CODES[type(request)] if (type(request), code.__name__) not in NOT_GIVEN)
        ways: tuple[Answer, ...] = (*Outcome, *codes)
        drawn = ways[int(self.course.outcome * len(ways))]
        name = getattr(drawn, "__name__", drawn)
        self.story.tell("network", f"answers {type(request).__name__} of {self.course.whom} by {name}", fault=str(name))
        return drawn

    def finish(self, at: Record_) -> None:
        self.story.finished.add(at)
        if self.held_back and self.story.finished >= {*self.left()} - self.held_back:
            self.story.all_done.set()

    def _taken(self, request: OffsetCommit | TxnOffsetCommit, partition: Partition, position: Position) -> None:
        story, number, after = self.story, partition.partition, position.offset
        if isinstance(request, OffsetCommit):
            member, generation = request.member_id, request.generation
        else:  # its producer's fence orders it, so it may never fall
            self._count += 1
            member, generation = request.transactional_id, self._count
        client = member.rpartition("-")[0] or "no member"
        before, *by = story.committed.get(number, (0, "", 0))
        story.taken.add((number, after))
        story.committed[number] = (after, member, generation)
        story.tell(client, f"has committed {number}@{after} in generation {generation}", StepKind.COMMIT)
        processed = {offset for at, offset in story.finished if at == number}
        owed = {*self.owed(number), *(at for of, at in story.begun if of == number and story.begun[of, at].get(client))}
        if not laws.partition.committed_is_finished(after, owed, processed):
            left = [offset for offset in sorted(owed) if offset < after and offset not in processed]
            story.accuse("J2", f"{number}@{after} is committed, and {left} are unfinished")
        is_late = by == [member, generation] and member
        if not laws.partition.committed_never_falls(before, after) and not is_late:
            story.accuse("J3", f"the position of {number} falls from {before} to {after}, by {client}")
        if all(offsets[-1] < story.committed.get(at, (0,))[0] for at, offsets in self.records.items()):
            story.all_done.set()

    def _decided(
        self, name: str, offsets: Mapping[Partition, tuple[int, ...]], positions: Mapping[Partition, Position]
    ) -> None:
        answers = [at for each, written in offsets.items() for at in places_in(self.broker, each, written)]
        told = [f"{each.partition}@{at.offset}" for each, at in positions.items()]
        self.story.tell("run", f"{name} commits {told} with the answers of {answers}", StepKind.COMMIT)
        for at in answers:
            self.finish(at)
        self.story.taken.update((each.partition, at.offset) for each, at in positions.items())

    def owed(self, number: int) -> list[int]:
        """Records of a partition that must be finished (J19 and J25)."""
        first = self._start(number)
        if self.course.kind in LATEST:
            first = self.story.firsts.get(number, RECORDS)
        return [offset for offset in self.records[number] if offset >= first]

    def _start(self, number: int) -> int:
        log = self.broker.logs.get(Partition("t", number))
        return 0 if log is None else log.start

    async def _produce(self) -> None:
        by_s = asyncio.get_running_loop().time() + LOOKED_S * (self.course.kind not in LATEST)
        while len(self.story.firsts) < PARTITIONS and asyncio.get_running_loop().time() < by_s:  # noqa: ASYNC110
            await asyncio.sleep(self.course.pace_s / 5)
        to_be_removed = {*range(PARTITIONS)} if self.course.kind in RETAINED else set[int]()
        while growing := [at for at in range(PARTITIONS) if self.broker.logs[Partition("t", at)].end < RECORDS]:
            await asyncio.sleep(self.random.random() * self.course.pace_s / 5)
            number = self.random.choice(growing)
            end = self.broker.logs[Partition("t", number)].end
            if number in to_be_removed and (end == RECORDS - 2 or self.random.random() < 0.3):
                to_be_removed.discard(number)
                self._retain(number, end)
            else:
                self.broker.append("t", number, b"0.%d" % (end % KEYS))

    def _retain(self, number: int, end: int) -> None:
        until = self.random.randint(end + 1, RECORDS - 1)
        start = self.random.randint(end + 1, until)
        self.story.tell("faults", f"append {number}@{end} to @{until}, and remove what is before @{start}")
        place = Partition("t", number)
        self.broker.logs[place] = self.broker.logs[place].with_entries(
            *(b"0.%d" % (at % KEYS) for at in range(end, until))
        )
        self.broker.delete_below("t", number, start)

    def left(self) -> list[Record_]:
        return [
            (number, offset)
            for number in self.records
            for offset in self.records[number]
            if offset >= self.story.committed.get(number, (0,))[0] and offset >= self._start(number)
        ]

    async def played(self) -> Story:
        told, story = self.course, self.story
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        story.tell("run", f"is {told}")
        if self.order is not None:
            story.tell("run", f"has records {self.order[0].name}, and for those that fail {self.order[1].name}")
        members = {"a": Member("a", self)}
        fault = asyncio.get_running_loop().create_task(self._fault(members), name="fault")
        produces = asyncio.get_running_loop().create_task(self._produce()) if told.kind in GROWING else None
        await asyncio.sleep(told.joins_s)
        if "b" not in members:
            members["b"] = Member("b", self)
        await asyncio.wait({fault}, timeout=ENOUGH_S)
        if fault.done():
            fault.result()  # a fault that fails is one of the run
        if produces is not None:
            await produces
        await self._all_done(members.values())
        if told.kind in NAMED:
            await asyncio.sleep(HEARD_S * (4 if told.default else 1))
            self._judge_names([members[name] for name in (told.whom, "c") if name in members])
        self._judge_the_rest(members.values())
        for member in members.values():
            if not member.is_dead:
                member.stop()
        for member in members.values():
            if not member.is_dead:
                await member.ended()
        await self._last()
        self._judge_what_runs()
        return story

    async def _all_done(self, members: Iterable[Member]) -> None:
        waits = asyncio.get_running_loop().create_task(self.story.all_done.wait())
        tasks = {member.task for member in members if not member.is_dead}
        everyone: asyncio.Future[Any] = asyncio.gather(*(asyncio.wait({task}) for task in tasks))
        both: set[asyncio.Future[Any]] = {waits, everyone}
        loop, done = asyncio.get_running_loop(), set[asyncio.Future[Any]]()
        enough_s, quiet_s = self._enough_s()
        enough_s += loop.time()
        while not done and (left_s := min(enough_s, self.story.told_s + quiet_s) - loop.time()) > 0:
            done, _ = await asyncio.wait(both, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        waits.cancel()
        everyone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await everyone

    def _enough_s(self) -> tuple[float, float]:
        if self.course.kind not in ("hangs", "raises", "partial", "poison"):
            return ENOUGH_S, ENOUGH_S
        drain = PartitionRules().drain if self.course.default else DRAIN
        return ENOUGH_FOR_USERS_S, QUIET_S + drain.total / SECOND

    def _judge_names(self, alike: list[Member]) -> None:
        ended = [each for each in alike if each.task.done()]
        errors_ = [None if each.task.cancelled() else each.task.exception() for each in ended]
        told = [error for error in errors_ if isinstance(error, Misuse) and "group_instance_id" in error.where]
        if not len(told) == len(ended) == len(alike) - 1:
            self.story.accuse("J20", f"of {len(alike)} with one name these end: {[each.name for each in ended]}")

    def _judge_the_rest(self, members: Iterable[Member]) -> None:
        late = [each for each in self.broker.group("g").late if each.partition("-")[0] not in self.dead]
        if late and self.course.kind not in UNHEARD:
            self.story.accuse("J9", f"{late} had not let go in time, and were put out")
        alive = [member for member in members if not member.is_dead and not member.task.done()]
        for member in alive:
            if member.stopped_s is None and (running := member.worker.state.running) > member.in_work:
                self.story.accuse("J6", f"{member.name} takes {running} to be in work, and {member.in_work} are")
            own = {part.partition for part in member.worker.state.partitions}
            if self.course.kind not in UNHEARD and (kept := member.kept() - own):
                self.story.accuse("J12", f"{member.name} keeps records of {sorted(map(str, kept))}")
            if (over := member.over()) > len(self.records):
                self.story.accuse("J12", f"{member.name} keeps {over} questions that have been answered")
        ended = [member for member in members if not member.is_dead and member.task.done() and member.stopped_s is None]
        excused = (bool(ended) and self.course.kind not in NAMED) or not alive or self.course.kind == "cancel"
        held = {self.course.record[0]} if self.course.kind in OF_USERS else set()
        spared = self.held_back and self.held_back | self.story.finished  # the position stays before a failure
        left = [at for at in self.left() if at[0] not in held and at not in spared]
        if left and not excused:
            self.story.accuse("J8", f"{left} are not committed, though nothing keeps them")

    def _judge_what_runs(self) -> None:
        """J11, except for code that ignores cancellation and for the client's own tasks."""
        if self.dead or self.hangs or self.course.kind == "stubborn":
            return
        codes = [cast("Any", task.get_coro()).cr_code for task in asyncio.all_tasks()]
        ours = [
            each.co_qualname
            for each in codes
            if Path(each.co_filename).parent.parent == _ADAPTERS
            and Path(each.co_filename).parent != _TESTING
            and each.co_name != "sent"
        ]
        if ours:
            self.story.accuse("J11", f"{sorted(ours)} are left running")

    async def _last(self) -> None:
        """J1."""
        self.held_back = set()
        self.story.all_done.clear()
        if self.left():
            last = Member(LAST, self)
            await self._all_done([last])
            if self.left():
                self.story.accuse("J1", f"{self.left()} are not committed in the end")
            last.stop()
            await last.ended()
        missing = {(number, at) for number in self.records for at in self.owed(number)} - self.story.finished
        if missing:
            self.story.accuse("J1", f"{sorted(missing)} were never finished")
        passed = {(number, at) for number, (end, *_) in self.story.committed.items() for at in range(DONE_TO, end)}
        if self.course.kind in RETAINED and (silent := passed - self.story.finished - self.story.removed):
            self.story.accuse("J25", f"{sorted(silent)} are removed, nobody has finished them, and nobody has said so")
        if self.reader is not None:
            await self._read(self.reader)

    async def _read(self, reader: Reader) -> None:
        """J16, after the reader has read all, or the broker has ended the open transactions."""
        for _ in range(OPEN_MAX_S):
            if reader.seen.keys() >= self.story.finished:
                break
            await asyncio.sleep(1.0)
        await reader.stop()
        if twice := [at for at, times in reader.seen.items() if times > 1]:
            self.story.accuse("J16", f"the answers of {sorted(twice)} are seen twice")
        if differs := self.story.finished ^ reader.seen.keys():
            self.story.accuse("J16", f"the answers of {sorted(differs)} are not seen, or are not committed")

    async def _fault(self, members: dict[str, Member]) -> None:
        told, story = self.course, self.story
        strikes = {"once": STRIKES, "named": NAMED_STRIKES}.get(
            told.kind, MEMBER_STRIKES if told.kind in (*GROWING, *ORDERED, *HELD) else (told.kind,)
        )
        kind = strikes[int(told.outcome * len(strikes))]
        if kind not in OF_MEMBERS:
            return
        await asyncio.sleep(told.at_s)
        if told.whom not in members:
            members[told.whom] = Member(told.whom, self)
            await asyncio.sleep(told.outcome * 2 * told.pace_s)
        struck = members[told.whom]
        group = self.broker.group("g")
        match kind:
            case "stall":
                story.tell("faults", f"let all stand still for {told.lasts_s} s", StepKind.TIME, "stall")
                stall(timedelta(seconds=told.lasts_s))
            case "fenced":
                story.tell("faults", "fence all producers")
                for number in range(PARTITIONS):
                    await fence(self.network, f"g:t:{number}")
            case "rebalance":
                group.rebalance()
            case "named":
                members["c"] = Member("c", self)
            case "grows":
                story.tell("faults", f"add partition {PARTITIONS}")
                story.all_done.clear()
                self.broker.grow("t", PARTITIONS + 1)
                self.records[PARTITIONS] = self._filled(PARTITIONS)
            case "recreated":
                await self._recreated()
            case "anew":
                self._put_out_and_made_anew()
            case "evicted":
                for member_id in [each for each in group.members if each.startswith(f"{told.whom}-")]:
                    story.tell("faults", f"put {member_id} out", StepKind.REBALANCE, "evicted")
                    group.put_out(member_id)
            case "stop" | "stop_twice" | "cancel" | "kill":
                if kind == "kill":
                    struck.kill()
                elif kind == "cancel":
                    story.tell("faults", f"cancel the run of {told.whom}", fault="cancel")
                    struck.task.cancel()
                else:
                    struck.stop()
                    if kind == "stop_twice":
                        await asyncio.sleep(told.outcome)
                        struck.stop()
                members["c"] = Member("c", self)
            case _:
                pass

    async def _recreated(self) -> None:
        told = self.course
        self._delete()
        await asyncio.sleep(AWAY_S + told.outcome * told.lasts_s * (told.number > 0))
        self._make_anew()

    def _put_out_and_made_anew(self) -> None:
        group = self.broker.group("g")
        for member_id in [*group.members]:
            group.put_out(member_id)
        stall(timedelta(seconds=STANDS_S))
        self._delete()
        self._make_anew()

    def _delete(self) -> None:
        story = self.story
        story.tell("faults", "delete the topic")
        self.broker.delete("t")
        story.life += 1
        for kept in (story.finished, story.committed, story.all_done):
            kept.clear()

    def _make_anew(self) -> None:
        self.story.tell("faults", "make it anew")
        self.broker.grow("t", PARTITIONS)
        self.records = {number: self._filled(number) for number in range(PARTITIONS)}


def _hears(story: Callable[[], Story], line_: logging.LogRecord) -> bool:
    match line_.args:
        case (int(), TopicPartition() as partition, str(), int(position), int(start), *_):
            story().tell("log", line_.getMessage())
            story().removed.update((partition.partition, at) for at in range(position, start))
        case _:
            pass
    return False


def _raises(_: logging.LogRecord) -> bool:
    raise OSError("no space left on device")


def judged(seed: int, kinds: tuple[str, ...] = KINDS, folder: Path | None = None, *, is_seen: bool = False) -> Story:
    told = course(seed, kinds)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    kept: list[Story] = []

    async def main(random: Random) -> Story:
        this = Run(told, random, folder)
        kept.append(this.story)
        this.story.is_seen = is_seen
        return await this.played()

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(event_loop, "TURNS_MAX", TURNS_MAX)
            patch.setattr(say, "lost", 0)  # lines lost here belong to this run alone
            for each in map(logging.getLogger, LOGS) if told.kind == "log" else ():
                patch.setattr(each, "isEnabledFor", lambda _: True)  # overrides logging.disable
                patch.setattr(each, "filters", [_raises])
            if told.kind in RETAINED:
                heard = logging.getLogger("tidegate_adapters.kafka")
                patch.setattr(heard, "isEnabledFor", lambda _: True)
                patch.setattr(heard, "filters", [partial(_hears, lambda: kept[0])])
            return event_loop.run(main, seed)
    except TidegateError as error:
        [story] = kept
        story.is_stuck(f"the run is stuck: {str(error)[:300]}")
        return story


def line(seed: int, kinds: tuple[str, ...] = KINDS) -> str:
    more = "" if kinds == KINDS else f" --kinds {','.join(kinds)}"
    return f"python -m tests.integration.kafka_runs {seed}{more}"


def page_of(seed: int, kinds: tuple[str, ...], folder: Path) -> Path:
    story = judged(seed, kinds, is_seen=True)
    trace = trace_of(
        story.told,
        laws_of(__doc__ or ""),
        of="workers",
        at_once=AT_ONCE,
        seed=seed,
        summary=f"two members, 40 records, {story.course.kind}",
    )
    kept = Store(folder).keep(f"kafka-run-{seed}-{story.course.kind}", trace, lambda _: line(seed, kinds))
    return kept.with_suffix(".html")


def found(seeds: Iterable[int], kinds: tuple[str, ...] = KINDS, why: str = "") -> Story | None:
    for seed in seeds:
        story = judged(seed, kinds)
        if any(each.startswith(why) for each in story.wrong):
            return story
    return None


def main(arguments: Callable[[], argparse.Namespace] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--kinds", type=lambda text: tuple(text.split(",")), default=KINDS)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--page", type=Path)
    told = arguments() if arguments is not None else parser.parse_args()
    logging.disable(logging.CRITICAL)
    gc.freeze()  # spare older objects each collection
    wrong = 0
    for seed in range(told.seed, told.seed + told.runs):
        story = judged(seed, told.kinds, told.record)
        wrong += bool(story.wrong)
        if told.runs == 1:
            print("\n".join(story.lines))
        if told.page is not None and (story.wrong or told.runs == 1):
            print(page_of(seed, told.kinds, told.page))
        if story.wrong:
            print(f"{seed} ({story.course.kind}): {'; '.join(story.wrong)}\n    {line(seed, told.kinds)}")
    print(f"{wrong} of {told.runs} runs are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
