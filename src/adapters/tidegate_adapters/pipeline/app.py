"""`Pipeline`: what a user declares, and how it runs.

    app = Pipeline(topics=["searches"], group="indexer", bootstrap="localhost:9092", sinks={"hits": ...})

    @app.arrange
    async def arrange(search: Search) -> list[Task]: ...

    @app.task
    async def run(task: Task) -> Hit: ...

    @app.task_done
    async def index(result: Result) -> Output: ...

A hook is an async function, or a plain one, which runs in a thread. Its outcome when it raises is
in `tidegate.pipeline.programs`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

import attrs

from tidegate.consumer.worker.worker import WorkerRules
from tidegate.model.errors import Misuse, TidegateError, shown, typed
from tidegate.model.instants import SECOND
from tidegate.model.records import Record, Send, TopicPartition
from tidegate.model.values import check_name, check_type
from tidegate.retries.backoff import Exponential, Policy
from tidegate.sinks.circuit_breaker import CircuitBreaker
from tidegate.sinks.delivery import Action, DeliveryRules
from tidegate.sinks.outbox import OutboxRules
from tidegate_adapters.kafka.client import Connect, Produce, client, producer
from tidegate_adapters.kafka.handler_calls import Calls, Code
from tidegate_adapters.kafka.in_flight import Records
from tidegate_adapters.kafka.member import Member
from tidegate_adapters.kafka.monitor import of_health
from tidegate_adapters.kafka.producer import KafkaSink
from tidegate_adapters.kafka.stats import Tallies
from tidegate_adapters.kafka.worker import client_times
from tidegate_adapters.pipeline.background import Beside
from tidegate_adapters.pipeline.declarations import Declared
from tidegate_adapters.pipeline.embedded import Processed, process
from tidegate_adapters.pipeline.executors import Executor
from tidegate_adapters.pipeline.hook_calls import HookCalls, say
from tidegate_adapters.pipeline.letters import Letters
from tidegate_adapters.pipeline.settings import OnStop, PipelineSettings
from tidegate_adapters.pipeline.values import PartitionStopped
from tidegate_adapters.shell.monitor import Monitor
from tidegate_adapters.sinks.outputs import Delivery
from tidegate_adapters.sinks.port import Outbox, Sink, SinkStatus

if TYPE_CHECKING:
    from tidegate_adapters.observe.prometheus import CollectorRegistry

F = TypeVar("F", bound=Callable[..., Any])
_NO_RESET: Final = {"auto_offset_reset": "none"}
_OUTBOX: Final = OutboxRules(
    breaker=CircuitBreaker(cooldown=5 * SECOND),
    delivery=DeliveryRules(
        sending=Policy(backoff=Exponential(SECOND // 10, cap=5 * SECOND), attempts_max=None),
        refused=Action.HOLD,
        lasting=Action.HOLD,
        dead_lettering=None,
    ),
    most=4,
    batch=500,
)
"""An output that was not answered is delivered again for as long as that takes: its record waits. What a sink refuses is
handed back, for `delivery_error`.
"""


class PipelineSink(Sink[Delivery], Protocol):
    """A sink that a pipeline starts before the first record."""

    async def start(self) -> None:
        """Connect, or raise TidegateError."""


class Process(Protocol):
    """What `Pipeline.testing` gives."""

    def __call__(self, *records: Record | Mapping[str, object]) -> Awaitable[Processed]: ...


@final
class Pipeline(Declared):
    """Turns records into tasks, runs them, and delivers what hooks make of the results to sinks.

    Args:
        topics: The topics to consume.
        bootstrap: `host:port` of a broker; several are separated by commas.
        group: The consumer group.
        sinks: The sinks, by the name that outputs give.
        executor: Runs tasks; `app.task` declares a function instead.
        lifespan: An async context manager, made with the pipeline, around its whole run.
        metrics: A registry of prometheus_client.
        settings: The fields of `PipelineSettings`.

    Attributes:
        settings: The settings.

    Raises:
        Misuse: An argument has the wrong type or is out of range.
    """

    def __init__(
        self,
        *,
        topics: Sequence[str],
        bootstrap: str,
        group: str,
        sinks: Mapping[str, PipelineSink],
        executor: Executor | None = None,
        lifespan: Callable[[Pipeline], AbstractAsyncContextManager[object]] | None = None,
        metrics: CollectorRegistry | None = None,
        **settings: Any,
    ) -> None:
        if isinstance(topics, str) or not isinstance(topics, Iterable):
            raise Misuse(f"topics must be a list of names, got {shown(topics)}", todo=f"write [{topics!r}]")
        for name in settings:
            if name not in _SETTINGS:
                raise Misuse(f"a pipeline has no setting {name!r}", todo=f"there are: {', '.join(_SETTINGS)}")
        check_type(sinks, Mapping, "sinks")
        if not sinks:
            raise Misuse("a pipeline without sinks", todo='pass sinks={"hits": ...}, or use Worker, which has none')
        for name, sink in sinks.items():
            check_name(name, "the name of a sink")
            if not all(callable(getattr(sink, each, None)) for each in ("start", "deliver", "stop")):
                raise Misuse(f"{typed(sink)} is not a sink", todo="a sink has start, deliver and stop")
        super().__init__(PipelineSettings(topics=tuple(topics), bootstrap=bootstrap, group=group, **settings), executor)
        self._sinks, self._lifespan, self._metrics = dict(sinks), lifespan, metrics
        self._beside: Beside | None = None
        self._stop_error: PartitionStopped | None = None
        self._is_stopping = asyncio.Event()
        self._member: Member | None = None
        self._calls: HookCalls | None = None
        self._stop_calls = 0

    def __repr__(self) -> str:
        return f"<Pipeline on {', '.join(self.settings.topics)} in group {self.settings.group}>"

    # --- its life ---------------------------------------------------------------------------------

    def configured(self, settings: PipelineSettings, *, sinks: Mapping[str, PipelineSink] | None = None) -> Pipeline:
        """A pipeline with the same hooks and other settings.

        Args:
            settings: The settings.
            sinks: Other sinks; None for the same.
        """
        check_type(settings, PipelineSettings, "settings")
        made: Pipeline = copy(self)
        made.settings, made._hooks, made._member, made._calls, made._stop_calls = (
            settings,
            dict(self._hooks),
            None,
            None,
            0,
        )
        made._sinks = self._sinks if sinks is None else dict(sinks)
        made._lifecycle, made._periodic, made._beside = dict(self._lifecycle), list(self._periodic), None
        made._stop_error, made._is_stopping = None, asyncio.Event()
        return made

    @property
    def sinks(self) -> Mapping[str, PipelineSink]:
        """Its sinks, by name."""
        return MappingProxyType(self._sinks)

    @property
    def rules(self) -> WorkerRules:
        """What its member of the group does."""
        return self.settings.worker(frozenset(self._hooks)).rules

    @asynccontextmanager
    async def testing(self) -> AsyncGenerator[Process, None]:
        """Process records without servers, for a test: `await process({"topic": "searches", "value": "{}"})`.

        Returns:
            What is awaited with records, each as the fields of `tidegate_adapters.kafka.embedded`, or a
            `Record`. It returns what became of them (`Processed`).
        """

        async def called(*records: Record | Mapping[str, object]) -> Processed:
            return await process(self, records)

        yield called

    async def run(self, connect: Connect = client, produce: Produce = producer) -> None:
        """Process records until `stop` is called or the task is cancelled; then drain, commit and leave the group.

        Args:
            connect: Makes the client.
            produce: Makes the producer of dead letters.

        Raises:
            Misuse: It has no arrange, nothing runs its tasks, or it runs already.
            TidegateError: A sink or the broker cannot be reached at the start, or the client has failed for
                good.
        """
        if self._member is not None:
            raise Misuse(f"{self!r} runs already, or has run", todo="make another one with configured(app.settings)")
        names = frozenset(self._hooks)
        told, hooks = self.settings.worker(names), self._made_hooks()
        rules = self.settings.rules(names, decodes=hooks.decode is not None)
        outbox = Outbox(KafkaSink(lambda: produce(told.bootstrap, told.options)), told.outbox)
        monitor = Monitor(told, self._metrics)
        tallies = Tallies() if monitor.is_wanted else None
        beside = self._beside = Beside(
            {name: self._async(code) for name, code in self._lifecycle.items() if name != "ready"}
        )
        async with self._started() as outboxes:

            def calls(records: Records, outbox: Outbox[Sequence[Send]], tallies: Tallies | None) -> Calls:  # noqa: ARG001
                letters = Letters(outbox, told.dead_letter, told.group)
                assert self._executor is not None, "it was checked"
                self._calls = HookCalls(
                    hooks, rules, records, self._executor, outboxes, letters, beside.notify, self._partition_stopped
                )
                return self._calls

            member = self._member = Member(
                client=connect(told.bootstrap, told.group, told.options | client_times(told) | _NO_RESET),
                settings=told,
                code=Code(handle=_unused, expected=None, observe=None, record=None, calls=calls),
                outbox=outbox,
                tallies=tallies,
            )
            for _ in range(self._stop_calls):
                member.stop()

            def sinks() -> Sequence[SinkStatus]:
                return (*member.status.sinks, *(each.status for each in outboxes.values()))

            async with (
                monitor.showing(
                    lambda: of_health(member.status.health(), sinks(), self._stop_error),
                    "tidegate_adapters.kafka.metrics",
                    (lambda: member.status.glance()._replace(sinks=tuple(sinks())), tallies),
                ),
                nullcontext() if self._lifespan is None else self._lifespan(self),
            ):
                if (ready := self._lifecycle.get("ready")) is not None:
                    await self._without_arguments(ready)(None)
                try:
                    for code, every, stops in self._periodic:
                        beside.repeat(
                            getattr(code, "__name__", "periodic"), self._without_arguments(code), every, stops=stops
                        )
                    await member.run()
                except PartitionStopped as error:
                    if self.settings.on_stop is OnStop.END:
                        raise
                    say(logging.ERROR, "%s; this process has left the group", error)
                    await self._is_stopping.wait()
                finally:
                    await beside.end()

    def _partition_stopped(self, partition: TopicPartition, offset: int) -> None:
        """End the run: a partition cannot go on (`PipelineSettings.on_stop`)."""
        if self._stop_error is None and self._member is not None:
            self._stop_error = PartitionStopped(
                f"{partition} has stopped at @{offset}, which has failed for good",
                why="on_failure or undecodable is STOP, or a dead letter cannot be written",
                todo="correct the code or the record and start again; nothing from this offset on is committed",
            )
            self._member.life.end_with(self._stop_error)

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[Mapping[str, Outbox[Delivery]]]:
        """Start the executor and all sinks, then stop them."""
        assert self._executor is not None, "it was checked"
        await self._executor.start()
        started = await asyncio.gather(*(sink.start() for sink in self._sinks.values()), return_exceptions=True)
        outboxes = {name: Outbox(sink, _OUTBOX) for name, sink in self._sinks.items()}
        try:
            for name, error in zip(self._sinks, started, strict=True):
                if isinstance(error, TidegateError):
                    error.where = error.where or f"sink {name}"
                if isinstance(error, BaseException):
                    raise error
            yield outboxes
        finally:
            stops = [self._executor.stop(), *(each.stop() for each in outboxes.values())]
            await asyncio.gather(*stops, return_exceptions=True)

    def stop(self) -> None:
        """Let `run` drain, commit, leave the group and return; called once more, it waits for nothing."""
        self._is_stopping.set()
        if self._beside is not None:
            self._beside.cancel()
        if self._member is None:
            self._stop_calls += 1
        else:
            self._member.stop()

    @property
    def is_busy(self) -> tuple[int, int]:
        """The number of requests to hooks and tasks so far, and without an answer."""
        return (0, 0) if self._calls is None else (self._calls.begun, self._calls.running)


_SETTINGS: Final = tuple(
    each.name for each in attrs.fields(PipelineSettings) if each.name not in {"topics", "bootstrap", "group"}
)


async def _unused(_: object) -> object:
    raise AssertionError("hooks are called instead")
