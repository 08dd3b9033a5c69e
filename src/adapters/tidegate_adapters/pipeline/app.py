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
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from copy import copy
from datetime import timedelta
from functools import cache
from inspect import iscoroutinefunction, signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final, get_args, get_origin, get_type_hints, overload

import attrs

from tidegate.consumer.worker import WorkerRules
from tidegate.model.errors import Misuse, TidegateError, shown, typed
from tidegate.model.instants import SECOND
from tidegate.model.records import Record, Send, TopicPartition
from tidegate.model.values import check_callable, check_name, check_type
from tidegate.pipeline.effects import Hook
from tidegate.retries.backoff import Exponential, Policy
from tidegate.sinks.circuit_breaker import CircuitBreaker
from tidegate.sinks.delivery import Action, DeliveryRules
from tidegate.sinks.outbox import OutboxRules
from tidegate_adapters.base.decorators import length_of
from tidegate_adapters.base.log_fields import named
from tidegate_adapters.base.threads import DaemonThreads
from tidegate_adapters.kafka.client import Connect, Produce, client, producer
from tidegate_adapters.kafka.handler_calls import Calls, Code
from tidegate_adapters.kafka.in_flight import Records
from tidegate_adapters.kafka.member import Member
from tidegate_adapters.kafka.monitor import of_health
from tidegate_adapters.kafka.producer import KafkaSink
from tidegate_adapters.kafka.stats import Tallies
from tidegate_adapters.kafka.worker import client_times
from tidegate_adapters.pipeline.embedded import Processed, process
from tidegate_adapters.pipeline.executors import Executor
from tidegate_adapters.pipeline.functions import Function
from tidegate_adapters.pipeline.hook_calls import HookCalls, Hooks, listed, say
from tidegate_adapters.pipeline.letters import Letters
from tidegate_adapters.pipeline.settings import OnStop, PipelineSettings
from tidegate_adapters.pipeline.values import PartitionStopped, Task
from tidegate_adapters.runtime.handlers import threaded
from tidegate_adapters.runtime.serialization import codec_of
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
class Pipeline:
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
        self.settings = PipelineSettings(topics=tuple(topics), bootstrap=bootstrap, group=group, **settings)
        self._sinks, self._executor, self._lifespan, self._metrics = dict(sinks), executor, lifespan, metrics
        self._hooks: dict[Hook, Callable[..., Any]] = {}
        self._lifecycle: dict[str, Callable[..., Any]] = {}
        self._periodic: list[tuple[Callable[..., Any], timedelta, bool]] = []
        self._beside: set[asyncio.Task[object]] = set()
        self._stop_error: PartitionStopped | None = None
        self._is_stopping = asyncio.Event()
        self._is_window = False
        self._member: Member | None = None
        self._calls: HookCalls | None = None
        self._stop_calls = 0

    def __repr__(self) -> str:
        return f"<Pipeline on {', '.join(self.settings.topics)} in group {self.settings.group}>"

    # --- declarations -----------------------------------------------------------------------------

    @overload
    def arrange(self, code: F, /) -> F: ...

    @overload
    def arrange(self, /, *, window: int | None = None) -> Callable[[F], F]: ...

    def arrange(self, code: Any = None, *, window: int | None = None) -> Any:
        """Declare what makes tasks of a record, or of a list of records.

        Args:
            code: Called with a record, decoded by its annotation; with `window`, with a list of up to
                so many. A second argument gets the ids of the live tasks of the partition. It returns
                tasks; a task of a window names its `record` or `offsets`.
            window: The most records of a list; None for one record, and no list.
        """

        def declared(code: F) -> F:
            self._declare(Hook.ARRANGE, code)
            self._is_window = window is not None
            if window is not None:
                self.settings = attrs.evolve(self.settings, window=window)
            return code

        return declared if code is None else declared(code)

    @overload
    def task(self, code: F, /) -> F: ...

    @overload
    def task(self, /, *, timeout: timedelta | None = None, process: bool = False) -> Callable[[F], F]: ...

    def task(self, code: Any = None, *, timeout: timedelta | None = None, process: bool = False) -> Any:
        """Declare the function that runs a task; what it returns is the value of its result.

        Args:
            code: Called with the task; a plain function runs in a thread.
            timeout: How long a call may take; None for any time.
            process: Whether it runs in a child process, which the timeout kills.
        """

        def declared(code: F) -> F:
            if self._executor is not None:
                raise Misuse("a pipeline has one executor", todo="leave out executor=, or @app.task")
            self._executor = Function(code, timeout, process=process)
            return code

        return declared if code is None else declared(code)

    def task_done(self, code: F) -> F:
        """Declare what makes outputs of the result of a task that did well."""
        return self._declare(Hook.TASK_DONE, code)

    def record_done(self, code: F) -> F:
        """Declare what makes outputs of a record whose tasks are settled (`RecordResult`)."""
        return self._declare(Hook.RECORD_DONE, code)

    def window_done(self, code: F) -> F:
        """Declare what makes outputs of a window whose tasks and records are settled (`WindowResult`)."""
        return self._declare(Hook.WINDOW_DONE, code)

    def task_error(self, code: F) -> F:
        """Declare what follows a failed task, given its result: `RETRY`, `SKIP`, or tasks that replace it."""
        return self._declare(Hook.TASK_ERROR, code)

    def delivery_error(self, code: F) -> F:
        """Declare what follows an output that its sink refused (`FailedOutput`): an `Action`."""
        return self._declare(Hook.DELIVERY_ERROR, code)

    def ready(self, code: F) -> F:
        """Declare what is called once, without arguments, when all sinks have started; if it raises, `run` does."""
        return self._around("ready", code)

    def assigned(self, code: F) -> F:
        """Declare what is called with each partition (`TopicPartition`) that this process gets; an error is logged."""
        return self._around("assigned", code)

    def revoked(self, code: F) -> F:
        """Declare what is called with each partition that this process has to let go; an error is logged."""
        return self._around("revoked", code)

    def periodic(self, every: timedelta, *, stops: bool = False) -> Callable[[F], F]:
        """Declare what is called again and again, without arguments, until the pipeline stops.

        A call begins `every` after the last one has ended. An error is logged.

        Args:
            every: The time between two calls.
            stops: Whether it is not called again after an error.
        """
        _ = length_of(every, "every", 1)

        def declared(code: F) -> F:
            check_callable(code, "a periodic function")
            self._periodic.append((code, every, stops))
            return code

        return declared

    def _around(self, name: str, code: F) -> F:
        check_callable(code, f"the hook {name}", "pass a function")
        if name in self._lifecycle:
            raise Misuse(f"there are two hooks {name}", todo="declare it once")
        self._lifecycle[name] = code
        return code

    def _declare(self, hook: Hook, code: F) -> F:
        check_callable(code, f"the hook {hook}", "pass a function")
        if hook in self._hooks:
            raise Misuse(f"there are two hooks {hook}", todo="declare it once")
        self._hooks[hook] = code
        return code

    def _async(self, code: Callable[..., Any]) -> Callable[[Any], Awaitable[Any]]:
        if iscoroutinefunction(code) or iscoroutinefunction(getattr(code, "__call__", None)):  # noqa: B004
            return code
        return threaded(code, cache(lambda: DaemonThreads("tidegate-hook", self.settings.concurrency)))

    # --- what hooks get ---------------------------------------------------------------------------

    def _made_hooks(self) -> Hooks:
        arrange = self._hooks.get(Hook.ARRANGE)
        if arrange is None:
            raise Misuse("a pipeline without arrange", todo="decorate a function with @app.arrange")
        if self._executor is None:
            raise Misuse("nothing runs the tasks", todo="decorate a function with @app.task, or pass executor=")
        others: dict[Hook, Callable[[Any], Awaitable[object]]] = {
            hook: self._async(code) for hook, code in self._hooks.items() if hook is not Hook.ARRANGE
        }
        return Hooks(self._arranging(arrange), others, self._decoder(arrange))

    def _arranging(
        self, code: Callable[..., Any]
    ) -> Callable[[Sequence[Any], Collection[str]], Awaitable[Iterable[tuple[Task, tuple[int, ...]]]]]:
        wants_live = len(signature(code).parameters) > 1
        is_async = iscoroutinefunction(code)
        call = code if is_async else self._async(lambda given: code(*given))

        async def called(given: object, live: Collection[str]) -> Sequence[Task]:
            arguments = (given, live) if wants_live else (given,)
            made = await (call(*arguments) if is_async else call(arguments))
            if made is None:
                return ()
            return listed(made, "arrange", "a list of Task(...)")

        async def of_window(records: Sequence[Any], live: Collection[str]) -> Iterable[tuple[Task, tuple[int, ...]]]:
            alone = (0,) if len(records) == 1 else ()
            return [(task, alone) for task in await called(list(records), live)]

        async def of_records(records: Sequence[Any], live: Collection[str]) -> Iterable[tuple[Task, tuple[int, ...]]]:
            return [(task, (place,)) for place, record in enumerate(records) for task in await called(record, live)]

        return of_window if self._is_window else of_records

    def _decoder(self, code: Callable[..., Any]) -> Callable[[Record], object] | None:
        """What decodes a record, by the annotation of the first parameter of arrange."""
        first = next(iter(signature(code).parameters), "")
        try:
            kind = get_type_hints(code).get(first, Record)
        except NameError as error:
            raise Misuse(f"the annotation of {first} is unknown: {error}", where="arrange", todo="import it") from None
        if self._is_window and get_origin(kind) is not None:
            kind = next(iter(get_args(kind)), Record)
        if kind in (Record, Any, list):
            return None
        codec = codec_of(kind)

        def decoded(record: Record) -> object:
            return codec.value((record.value or b"null").decode(), "the value of the record")

        return decoded

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
        made._lifecycle, made._periodic, made._beside = dict(self._lifecycle), list(self._periodic), set()
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
        async with self._started() as outboxes:

            def calls(records: Records, outbox: Outbox[Sequence[Send]], tallies: Tallies | None) -> Calls:  # noqa: ARG001
                letters = Letters(outbox, told.dead_letter, told.group)
                assert self._executor is not None, "it was checked"
                self._calls = HookCalls(
                    hooks, rules, records, self._executor, outboxes, letters, self._notify, self._partition_stopped
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
                    await self._async(lambda _: ready())(None) if not iscoroutinefunction(ready) else await ready()
                try:
                    self._spawn(*(self._repeated(*each) for each in self._periodic))
                    await member.run()
                except PartitionStopped as error:
                    if self.settings.on_stop is OnStop.END:
                        raise
                    say(logging.ERROR, "%s; this process has left the group", error)
                    await self._is_stopping.wait()
                finally:
                    await self._end_beside()

    def _spawn(self, *coroutines: Coroutine[Any, Any, object]) -> None:
        for each in coroutines:
            task = asyncio.ensure_future(each)
            self._beside.add(task)
            task.add_done_callback(self._beside.discard)

    async def _end_beside(self) -> None:
        beside = tuple(self._beside)
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)

    def _notify(self, name: str, partition: TopicPartition) -> None:
        """Call the hook of a partition that comes or goes; nothing waits for it."""
        if (code := self._lifecycle.get(name)) is not None:
            self._spawn(self._logged(name, self._async(code), partition))

    def _partition_stopped(self, partition: TopicPartition, offset: int) -> None:
        """End the run: a partition cannot go on (`PipelineSettings.on_stop`)."""
        if self._stop_error is None and self._member is not None:
            self._stop_error = PartitionStopped(
                f"{partition} has stopped at @{offset}, which has failed for good",
                why="on_failure or undecodable is STOP, or a dead letter cannot be written",
                todo="correct the code or the record and start again; nothing from this offset on is committed",
            )
            self._member.life.end_with(self._stop_error)

    async def _repeated(self, code: Callable[..., Any], every: timedelta, stops: bool) -> None:
        call = code if iscoroutinefunction(code) else self._async(lambda _: code())
        arguments = () if call is code else (None,)
        while True:
            await asyncio.sleep(every.total_seconds())
            if not await self._logged(getattr(code, "__name__", "periodic"), call, *arguments) and stops:
                return

    async def _logged(self, name: str, code: Callable[..., Awaitable[object]], *arguments: object) -> bool:
        try:
            await code(*arguments)
        except Exception as error:  # noqa: BLE001  of the user's
            say(logging.ERROR, "%s raised: %s", name, named(error))
            return False
        return True

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
        for task in tuple(self._beside):
            task.cancel()
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
