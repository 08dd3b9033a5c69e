"""A Kafka worker: it executes the commands of `tidegate.consumer.worker.worker` and decides nothing
itself.

Handlers run with bounded concurrency, and records complete out of order. Commits run in the
background, with the work done beyond the position; polling never waits for one. A revocation waits
until in-flight records have ended and are committed, or until the drain time is over. Delivery is
at least once: user code must tolerate repetition.

This module holds the arguments and the life cycle. `tidegate_adapters.kafka.member` acts in the
group, `handler_calls` and `handlers` call user code, and `producer` sends.

User code may raise anything. CancelledError and other exceptions outside `Exception` fail their
record. After SystemExit and KeyboardInterrupt the worker drains, commits, leaves its group, and
raises them. An observer or recording that raises is logged, and no record is lost.

A revocation drains for `PartitionRules.drain`. The group waits for `rebalance_timeout_ms`, by
default long enough, from the start of the rebalance, which a member notices at its next heartbeat.
A stop takes a drain plus up to `leave`, less than `grace`, when the supervisor kills the process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from copy import copy
from datetime import datetime, timedelta
from enum import Enum, unique
from inspect import isasyncgenfunction, iscoroutinefunction, signature
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast, final, get_args

import attrs

from tidegate.consumer.partition.partition import FailurePolicy
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.consumer.worker.health import Health, Healthy
from tidegate.consumer.worker.transactions import transactional_id
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import MILLISECOND, SECOND, duration, seconds
from tidegate.model.records import Record, Send, TopicPartition
from tidegate.model.values import check_callable, check_int, check_type
from tidegate.retries.backoff import Delays
from tidegate_adapters.base.decorators import check_unit, delays_of
from tidegate_adapters.kafka.client import (
    HEARTBEAT_MS,
    SESSION_MS,
    Connect,
    Produce,
    Transact,
    check_options,
    client,
    producer,
    transactional_producer,
)
from tidegate_adapters.kafka.handler_calls import Code, Estimate, Observer, Recording
from tidegate_adapters.kafka.member import Member
from tidegate_adapters.kafka.monitor import of_health
from tidegate_adapters.kafka.producer import KafkaSink
from tidegate_adapters.kafka.settings import (
    CONCURRENCY,
    GRACE,
    LEAVE,
    LOOPBACK,
    STALLED_AFTER,
    WorkerSettings,
)
from tidegate_adapters.kafka.stats import Tallies
from tidegate_adapters.runtime.handlers import Around, Called, Decode, Handlers, Undecodable, UserHandler, called
from tidegate_adapters.runtime.later import Later
from tidegate_adapters.shell.monitor import Monitor
from tidegate_adapters.sinks.port import Outbox

if TYPE_CHECKING:
    from tidegate_adapters.kafka.embedded import Outcome
    from tidegate_adapters.observe.prometheus import CollectorRegistry
    from tidegate_adapters.observe.tracing import TracerProvider

__all__ = [
    "Decode", "Estimate", "HandleRecords", "Handlers", "Later", "Lifespan", "Observer", "OnFailure", "Recording", "Send", "Undecodable",
    "UserHandler", "Worker",
]  # fmt: skip


@final
@unique
class OnFailure(Enum):
    """The fate of a record that has used up its attempts."""

    STOP = "its partition takes nothing new, until it is assigned anew"
    BLOCK_KEY = "the rest of its key waits, until its partition is assigned anew"
    SKIP = "it is logged, and counts as done"
    DEAD_LETTER = "it is written to the dead-letter topic, and counts as done"
    DEAD_LETTER_KEY = "the same, and so is the rest of its key"


_POLICIES: Final = {
    OnFailure.STOP: FailurePolicy.STOP,
    OnFailure.BLOCK_KEY: FailurePolicy.BLOCK_KEY,
    OnFailure.SKIP: FailurePolicy.SKIP,
    OnFailure.DEAD_LETTER: FailurePolicy.SKIP,
    OnFailure.DEAD_LETTER_KEY: FailurePolicy.DIVERT_KEY,
}

Lifespan: TypeAlias = "Callable[[Worker], AbstractAsyncContextManager[object]]"

_NO_RESET: Final = {"auto_offset_reset": "none"}
"""The worker decides where a group starts; a client's reset would jump to the end from a removed
position.
"""
_ON_THE_WAY: Final = SECOND
"""The margin between a drain and the group's timeout, for replies in transit."""


class HandleRecords(Protocol):
    """The function that `Worker.testing` yields."""

    def __call__(self, *records: Record | Mapping[str, object]) -> Awaitable[Outcome]: ...


_SETTINGS: Final = tuple(each.name for each in attrs.fields(WorkerSettings))


@final
class Worker:
    """Consumes topics as a member of a group.

    Args:
        topics: Names, and patterns that begin with `^`. The client searches for matching topics
            every `metadata_max_age_ms`; patterns do not match the worker's dead-letter topics. Or
            the handler of each topic: `{"orders": ship, "^audit[.].*": keep}`.
        handle: The user's code, called with each record at least once: an async function, or a
            plain one, which runs in a thread. It returns None or what to send before the record is
            done: one or several `Send`. After `Later` the worker calls it again; after any other
            exception `on_failure` decides, and by default stops the record's partition. One for all
            topics, or one by topic.
        batch: The most records a handler gets at once, as a list in log order; replaces the rules'
            `window_max`. None for one record without a list. The worker does not wait for a full
            batch. A reply or an exception counts for the whole list. With an order by key a list
            holds one record of a key.
        decode: Makes the handler's argument of a record; async or not.
        on_failure: Replaces the rules' `failure_policy`.
        retries: Retries of a failed record; replaces the rules' `fanout.retries_max`.
        backoff: The delay before a retry; replaces the rules' `backoff`.
        jitter_ppm: The largest random cut of that delay; replaces the rules' `jitter_ppm`.
        lifespan: Makes an async context manager from the worker. Code before its `yield` runs
            before the client starts, code behind it after the worker has left the group.
        metrics: A registry of prometheus_client, for the running worker
            (`tidegate_adapters.kafka.metrics`).
        tracer_provider: Makes an OpenTelemetry span for each handler call
            (`tidegate_adapters.observe.tracing`).
        expected: Estimates how long user code takes with a record; None or an exception means
            unknown. A revocation does not wait for a record that takes longer than the drain.
        observe: Called with every event of a partition and the state after it, for logs and
            metrics.
        record: Called with every event and the commands that follow:
            `tidegate_adapters.observe.recorder.Recorder.stepped`.
        options: The settings below, and more options of aiokafka's consumer, for example
            `session_timeout_ms`.

    Attributes:
        settings: The arguments that are not code.
        handle: The user's handlers, as one async function of a record.

    Raises:
        Misuse: no topic, group or handler; a timeout for a plain function; an unknown option; code
            that is not callable, or async where the worker does not await it; rules that need
            hooks; dead letters without a topic, or the reverse; a drain longer than the group's
            timeout; or a stop longer than `grace`.
    """

    def __init__(
        self,
        topics: Sequence[str] | Mapping[str, UserHandler],
        handle: Handlers | None = None,
        *,
        bootstrap: str,
        group: str,
        concurrency: int = CONCURRENCY,
        consumer: ConsumerRules = ConsumerRules(),
        batch: int | None = None,
        decode: Decode | None = None,
        undecodable: Undecodable = Undecodable.FAIL,
        on_failure: OnFailure | None = None,
        dead_letter: str | None = None,
        retries: int | None = None,
        backoff: Delays | timedelta | None = None,
        jitter_ppm: int | None = None,
        timeout: timedelta | None = None,
        start_time: datetime | None = None,
        start_offsets: Mapping[TopicPartition, int] | None = None,
        lifespan: Lifespan | None = None,
        metrics: CollectorRegistry | None = None,
        metrics_port: int | None = None,
        metrics_host: str = LOOPBACK,
        tracer_provider: TracerProvider | None = None,
        stalled_after: timedelta = STALLED_AFTER,
        leave: timedelta = LEAVE,
        grace: timedelta = GRACE,
        exactly_once: bool = False,
        expected: Estimate | None = None,
        observe: Observer | None = None,
        record: Recording | None = None,
        observer_failures_max: int | None = None,
        **options: object,
    ) -> None:
        arguments, given = locals(), cast("object", topics)
        if isinstance(given, str) or not isinstance(given, Iterable):
            todo = f"write [{given!r}]" if isinstance(given, str) else ""
            raise Misuse(f"topics must be a list of names, got {shown(given)}", todo=todo)
        check_type(consumer, ConsumerRules, "consumer")
        if consumer.executors not in (CONCURRENCY, concurrency):
            raise Misuse(
                f"a consumer with {consumer.executors} executors",
                why="how many handlers run at a time in this process is an option of the worker",
                todo=f"write Worker(concurrency={consumer.executors})",
            )
        _check_code({"decode": decode, "lifespan": lifespan})
        _check_code({"expected": expected, "observe": observe, "record": record}, is_plain=True)
        consumer = _with_failures(consumer, on_failure, retries, backoff, jitter_ppm)
        if batch is not None:
            consumer = _with_batches(consumer, batch)
        made = {"topics": tuple(topics), "consumer": consumer, "start_offsets": start_offsets or {}}
        self._handlers = topics if handle is None and isinstance(topics, Mapping) else handle
        self._decode, self._lifespan, self._metrics, self._tracer_provider = decode, lifespan, metrics, tracer_provider
        self._code = Code(handle=_nobody, expected=expected, observe=observe, record=record, is_batch=batch is not None)
        self._begin(WorkerSettings(**{name: arguments[name] for name in _SETTINGS} | made), on_failure)

    def _begin(self, settings: WorkerSettings, on_failure: OnFailure | None = None) -> None:
        if settings.exactly_once:
            settings = attrs.evolve(settings, consumer=_with_transactions(settings.consumer))
        self.settings = settings
        check_options(settings.options, signature(Worker).parameters)
        _ = client_times(settings)
        if self._handlers is None:
            raise Misuse("nothing handles the records", todo="pass a function of one record, or one by topic")
        if not (self._code.is_batch or settings.consumer.partition.is_plain):
            raise Misuse(
                "these rules ask for more than to handle records",
                why="a worker has a handler, and no code that arranges windows or delivers",
                todo="leave hooks and the deliveries of fanout out, or pass batch=",
            )
        _check_dead_letters(settings, on_failure)
        call = called(
            self._handlers, settings.topics, threads=settings.concurrency, decode=self._decode, undecodable=settings.undecodable,
            timeout=None if settings.timeout is None else duration(settings.timeout), is_batch=self._code.is_batch,
        )  # fmt: skip
        self._code = self._code._replace(handle=call, around=_around(self._tracer_provider, settings.group))
        self._member: Member | None = None
        self._stop_calls = 0
        """Calls of `stop` before `run`."""

    @property
    def handle(self) -> Called:
        code = self._code
        return code.handle if code.around is None else code.around(code.handle)

    def __repr__(self) -> str:
        return f"<Worker on {', '.join(self.settings.topics)} in group {self.settings.group}>"

    def configured(self, settings: WorkerSettings, handle: Called | None = None) -> Worker:
        """A worker with the same code and other settings, and with other handlers if `handle` is
        given; raises as for a new worker.
        """
        check_unit(settings.consumer, "consumer")
        made: Worker = copy(self)
        if isinstance(self._handlers, Mapping):  # drops handlers of other topics
            made._handlers = {topic: each for topic, each in self._handlers.items() if topic in settings.topics}
        if self._code.is_batch:
            rules = _with_batches(settings.consumer, settings.consumer.partition.window_max)
            settings = attrs.evolve(settings, consumer=rules)
        made._begin(settings)
        if handle is not None:
            made._code = made._code._replace(handle=handle, around=None)
        return made

    @property
    def state(self) -> ConsumerState:
        return ConsumerState() if self._member is None else self._member.life.state

    @asynccontextmanager
    async def testing(self) -> AsyncGenerator[HandleRecords, None]:
        """Handle records without a broker, for a test: `await handle({"topic": "orders", "value":
        "5 apples"})`.

        Each call runs a worker with the same code on an in-memory log of these records, each a
        `Record` or the fields of `tidegate_adapters.kafka.embedded`, and returns an `Outcome`.

        Raises:
            Misuse: A record is malformed, or its topic is not consumed.
        """
        from tidegate_adapters.kafka.embedded import (  # noqa: PLC0415  circular
            EmbeddedLog,
            EmbeddedRun,
            record_of,
        )

        async def handle(*records: Record | Mapping[str, object]) -> Outcome:
            given = [each if isinstance(each, Record) else record_of(dict(each)) for each in records]
            worker = self.configured(attrs.evolve(self.settings, metrics_port=None))
            return await EmbeddedRun(worker, EmbeddedLog(given)).run()

        yield handle

    async def run(
        self, connect: Connect = client, produce: Produce = producer, transact: Transact = transactional_producer
    ) -> None:
        """Consume until `stop` or a cancellation; then drain, commit and leave the group.

        Args:
            connect: Makes the client.
            produce: Makes the producer, at the first send.
            transact: Makes the transactional producers, one per partition.

        Raises:
            Misuse: the client rejects an option, `metrics_port` is taken, the registry shows
                another worker, the worker has run already, or another worker has taken its
                `group_instance_id`.
            TidegateError: the worker cannot reach a broker at the start, or the client has failed
                for good.
            Exception: what `lifespan` raises.
            CancelledError, SystemExit, KeyboardInterrupt: of the task or of user code, after the
                drain.
        """
        if self._member is not None:
            raise Misuse(f"{self!r} runs already, or has run", todo="make another one with configured(worker.settings)")
        told = self.settings
        times = client_times(told)
        isolation = {"isolation_level": "read_committed"} if told.exactly_once else {}
        outbox = Outbox(KafkaSink(lambda: produce(told.bootstrap, told.options)), told.outbox)
        monitor = Monitor(told, self._metrics)
        tallies = Tallies() if monitor.is_wanted else None
        member = self._member = Member(
            client=connect(told.bootstrap, told.group, isolation | told.options | times | _NO_RESET),
            settings=told, code=self._code, outbox=outbox, tallies=tallies,
            transact=(lambda each: transact(told.bootstrap, told.options, transactional_id(told.group, each))) if told.exactly_once else None,
        )  # fmt: skip
        for _ in range(self._stop_calls):
            member.stop()
        sample = (member.status.glance, tallies)
        async with (
            monitor.showing(
                lambda: of_health(member.status.health(), member.status.sinks),
                "tidegate_adapters.kafka.metrics",
                sample,
            ),
            nullcontext() if self._lifespan is None else self._lifespan(self),
        ):
            await member.run()

    def health(self) -> Health:
        """Callable from any thread."""
        return Healthy() if self._member is None else self._member.status.health()

    def stop(self) -> None:
        """Let `run` drain, commit, leave the group and return; a second call skips the waiting.

        Call it in the event loop of `run`; from another thread, as in a plain handler, use
        `loop.call_soon_threadsafe(worker.stop)`.
        """
        if self._member is None:
            self._stop_calls += 1
        else:
            self._member.stop()


if Worker.__doc__ and WorkerSettings.__doc__:  # without -OO
    _, _, _documented = WorkerSettings.__doc__.partition("Attributes:\n")
    Worker.__doc__ = Worker.__doc__.replace(
        "    Attributes:\n", f"    Settings:\n{_documented.rstrip()}\n\n    Attributes:\n", 1
    )


def _check_code(code: Mapping[str, object], *, is_plain: bool = False) -> None:
    for name, each in code.items():
        if each is not None:
            check_callable(each, f"{name}=", "pass a function")
            if isasyncgenfunction(each):
                raise Misuse(f"{name}= is an async generator", todo="write @asynccontextmanager above a lifespan")
            if is_plain and iscoroutinefunction(each):
                raise Misuse(
                    f"{name}= is an async function", why="it is called and not awaited", todo="pass a plain function"
                )


async def _nobody(_: object) -> object:
    raise AssertionError("no handlers yet")


def _around(provider: TracerProvider | None, group: str) -> Around | None:
    if provider is None:
        return None
    from tidegate_adapters.observe.tracing import traced  # noqa: PLC0415  an extra

    if not callable(getattr(provider, "get_tracer", None)):
        raise Misuse(f"{shown(provider)} is not a provider of tracers", todo="pass a TracerProvider of OpenTelemetry")
    return traced(provider, group)


def _with_failures(
    rules: ConsumerRules,
    on_failure: OnFailure | None,
    retries: int | None,
    backoff: Delays | timedelta | None,
    jitter_ppm: int | None,
) -> ConsumerRules:
    check_type(rules, ConsumerRules, "consumer")
    check_unit(rules, "consumer")
    part = rules.partition
    if on_failure is not None:
        check_type(on_failure, OnFailure, "on_failure")
        part = attrs.evolve(part, failure_policy=_POLICIES[on_failure])
    if retries is not None:
        part = attrs.evolve(part, fanout=attrs.evolve(part.fanout, retries_max=retries))
    if backoff is not None:
        part = attrs.evolve(part, backoff=delays_of(backoff, get_args(Delays)))
    if jitter_ppm is not None:
        part = attrs.evolve(part, jitter_ppm=jitter_ppm)
    return rules if part is rules.partition else attrs.evolve(rules, partition=part)


def _with_batches(rules: ConsumerRules, batch: int) -> ConsumerRules:
    return attrs.evolve(rules, partition=attrs.evolve(rules.partition, hooks=True, window_max=batch))


def _with_transactions(rules: ConsumerRules) -> ConsumerRules:
    """Replies wait for a commit, so each finished record asks for one."""
    if not rules.partition.is_plain:
        raise Misuse(
            "batches, and answers that are committed with their records",
            why="a commit may cover a part of a window, and its records have answers in common",
            todo="leave one of them out",
        )
    return attrs.evolve(rules, partition=attrs.evolve(rules.partition, replay_max=1))


def _check_dead_letters(told: WorkerSettings, on_failure: OnFailure | None) -> None:
    wants = (
        on_failure in (OnFailure.DEAD_LETTER, OnFailure.DEAD_LETTER_KEY) or told.undecodable is Undecodable.DEAD_LETTER
    )
    if wants and told.dead_letter is None:
        raise Misuse("dead letters, and no topic for them", todo='pass dead_letter=, such as "{topic}.dead"')
    answers = told.consumer.partition.failure_policy in (FailurePolicy.SKIP, FailurePolicy.DIVERT_KEY)
    if told.dead_letter is not None and (on_failure is OnFailure.SKIP or not (wants or answers)):
        raise Misuse(
            f"a topic for dead letters, {told.dead_letter!r}, and none that go there",
            todo="pass on_failure=OnFailure.DEAD_LETTER, or leave it out",
        )


def client_times(told: WorkerSettings) -> dict[str, object]:
    """The options that bound how long the group waits for a member, with defaults filled in.

    Raises:
        Misuse: The group does not wait for a drain or for the next heartbeat.
    """
    drain, options = told.consumer.partition.drain, cast("Mapping[str, object]", told.options)
    heartbeat_ms = _told_ms(options, "heartbeat_interval_ms") or HEARTBEAT_MS
    session_ms = _told_ms(options, "session_timeout_ms") or SESSION_MS
    if heartbeat_ms >= session_ms:
        raise Misuse(
            f"heartbeat_interval_ms={heartbeat_ms} is not less than session_timeout_ms={session_ms}",
            why="the group puts a member out that it has not heard of for so long, and two work on one record",
            todo=f"set heartbeat_interval_ms to {max(session_ms // 3, 1)}, a third, or less",
        )
    needed = heartbeat_ms * MILLISECOND + drain.total + _ON_THE_WAY
    patience_ms = _told_ms(options, "rebalance_timeout_ms") or -((needed + _ON_THE_WAY) // -MILLISECOND)
    if patience_ms * MILLISECOND < needed:
        raise Misuse(
            f"rebalance_timeout_ms={patience_ms} is less than a revocation may take",
            why=f"who hears of it by a heartbeat, after {seconds(heartbeat_ms * MILLISECOND)}, drains for {seconds(drain.total)};"
            " whoever is late loses its partitions, and two work on one record",
            todo=f"set it to {-(needed // -MILLISECOND)} or more, leave it out,"
            " or shorten PartitionRules.drain or heartbeat_interval_ms",
        )
    return {"heartbeat_interval_ms": heartbeat_ms, "rebalance_timeout_ms": patience_ms}


def _told_ms(options: Mapping[str, object], name: str) -> int | None:
    told = options.get(name)
    if told is not None:
        check_int(told, f"{name}, in milliseconds,", 1)
    return cast("int | None", told)
