"""What a user declares of a pipeline: hooks, the function of its tasks, and periodic functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import timedelta
from functools import cache
from inspect import iscoroutinefunction, signature
from typing import Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints, overload

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.records import Record
from tidegate.model.values import check_callable
from tidegate.pipeline.effects import Hook
from tidegate_adapters.base.decorators import length_of
from tidegate_adapters.base.threads import DaemonThreads
from tidegate_adapters.pipeline.executors import Executor
from tidegate_adapters.pipeline.functions import Function
from tidegate_adapters.pipeline.hook_calls import Hooks, listed
from tidegate_adapters.pipeline.settings import PipelineSettings
from tidegate_adapters.pipeline.values import Task
from tidegate_adapters.runtime.handlers import threaded
from tidegate_adapters.runtime.serialization import codec_of

F = TypeVar("F", bound=Callable[..., Any])
Arranging: TypeAlias = Callable[[Sequence[Any], Collection[str]], Awaitable[Iterable[tuple[Task, tuple[int, ...]]]]]


class Declared:
    """The declarations of a pipeline.

    Args:
        settings: The settings.
        executor: Runs tasks; None until a function is declared.
    """

    def __init__(self, settings: PipelineSettings, executor: Executor | None) -> None:
        self.settings, self._executor = settings, executor
        self._hooks: dict[Hook, Callable[..., Any]] = {}
        self._lifecycle: dict[str, Callable[..., Any]] = {}
        self._periodic: list[tuple[Callable[..., Any], timedelta, bool]] = []
        self._is_window = False

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

    def _without_arguments(self, code: Callable[[], Any]) -> Callable[[Any], Awaitable[Any]]:
        if iscoroutinefunction(code):
            return lambda _: code()
        return self._async(lambda _: code())

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
            return () if made is None else listed(made, "arrange", "a list of Task(...)")

        async def of_window(records: Sequence[Any], live: Collection[str]) -> Iterable[tuple[Task, tuple[int, ...]]]:
            alone = (0,) if len(records) == 1 else ()
            return [(task, alone) for task in await called(list(records), live)]

        async def of_records(records: Sequence[Any], live: Collection[str]) -> Iterable[tuple[Task, tuple[int, ...]]]:
            made: list[tuple[Task, tuple[int, ...]]] = []
            for place, record in enumerate(records):
                at = (place,)
                made += [(task, at) for task in await called(record, live)]
            return made

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
