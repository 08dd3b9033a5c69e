"""The options of a task, checked at declaration."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from hashlib import sha256
from inspect import BoundArguments, Parameter, Signature, signature
from typing import Any, Final, cast, final, get_type_hints

import attrs

from tidegate.invocations.limits import rate_limit
from tidegate.invocations.limits.admission import Call, Control, Purpose, Rule, reservation_id
from tidegate.invocations.queue.fetching import Takeable
from tidegate.invocations.record.jobs import DEFAULT_QUEUE, PRIORITY_MAX, PRIORITY_MIN
from tidegate.model.documents import Document
from tidegate.model.errors import Misuse, TidegateError, shown
from tidegate.model.instants import Duration
from tidegate.model.values import check_callable, check_int, check_name, check_type
from tidegate.retries.backoff import Backoff, Policy
from tidegate_adapters.base.decorators import (
    check_task_name,
    is_async_handler,
    length_of,
    place_of,
    policy_of,
    timeout_of,
)
from tidegate_adapters.mongo.bson import natural
from tidegate_adapters.runtime.children import check_importable
from tidegate_adapters.runtime.serialization import UNTYPED, TextCodec, codec_of

OPTIONS: Final = frozenset({"session", "key", "delay", "due", "priority", "queue", "tenant"})
"""The options of `enqueue`; no parameter of a task may have such a name."""

_KEY: Final = "key"
_JSON: Final = codec_of(UNTYPED)


# --- limits ---------------------------------------------------------------------------------------


@final
@attrs.frozen
class MaxRunning:
    """A limit on concurrent runs of a task over all processes. Invariant: 1 <= at_most.

    `MaxRunning()` limits the whole task, `MaxRunning.per(...)` each key.

    Attributes:
        key: Computes the key from the arguments.
        waits: Without a slot, wait; otherwise the invocation ends, and its result raises
            `InvocationCancelled`.
    """

    at_most: int = 1
    key: Callable[..., object] | None = attrs.field(default=None, kw_only=True, repr=False)
    waits: bool = attrs.field(default=True, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_int(self.at_most, "at_most", 1)
        check_type(self.waits, bool, "waits")
        if self.key is not None:
            check_callable(self.key, "key", "write MaxRunning.per(lambda mail: mail.to)")

    @classmethod
    def per(cls, key: Callable[..., object], at_most: int = 1, *, waits: bool = True) -> MaxRunning:
        """A limit for each value of a key.

        `key` is called with the arguments it has parameters for. Its result is stored as JSON.
        """
        return cls(at_most, key=key, waits=waits)

    @property
    def names(self) -> tuple[str, ...]:
        return _wanted(self.key)


@final
@attrs.frozen
class Unique:
    """At most one invocation of a kind waits, over all processes; enqueueing another returns it.

    Once that one begins to run, another may wait. `Unique()` compares all arguments,
    `Unique.per(...)` a key, `Unique.per_task()` nothing.

    Attributes:
        must_agree: Raise an error if the waiting invocation has other arguments.
        key: Computes the key from the arguments.
    """

    must_agree: bool = attrs.field(default=False, kw_only=True)
    key: Callable[..., object] | None = attrs.field(default=None, kw_only=True, repr=False)

    def __attrs_post_init__(self) -> None:
        check_type(self.must_agree, bool, "must_agree")
        if self.key is not None:
            check_callable(self.key, "key", "write Unique.per(lambda mail: mail.to)")

    @classmethod
    def per(cls, key: Callable[..., object], *, must_agree: bool = False) -> Unique:
        """One waiting invocation per key; `key` as for `MaxRunning.per`."""
        return cls(must_agree=must_agree, key=key)

    @classmethod
    def per_task(cls, *, must_agree: bool = False) -> Unique:
        return cls(must_agree=must_agree, key=_nothing)

    @property
    def names(self) -> tuple[str, ...]:
        return _wanted(self.key)

    @property
    def rule(self) -> Rule:
        return Rule(Control.ARGUMENTS) if self.key is None else Rule(Control.KEYS, (_KEY,))


@final
@attrs.frozen
class Rate:
    """A limit on starts over all processes: `Rate(10, per=timedelta(seconds=1))`.

    An invocation over the limit becomes due later, one after another. A retry counts again.
    Invariants: 1 <= burst <= at_most; at most one each microsecond.

    Attributes:
        burst: How many may begin at once; default: all. No window of length `per` has more than
            `burst + at_most` starts, so 1 spreads them evenly.
        key: Computes the key from the arguments.
    """

    at_most: int
    per: timedelta = attrs.field(kw_only=True)
    burst: int | None = attrs.field(default=None, kw_only=True)
    key: Callable[..., object] | None = attrs.field(default=None, kw_only=True, repr=False)
    rule: rate_limit.Rate = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "rule", rate_limit.Rate(self.at_most, length_of(self.per, "per", 1), self.burst))
        if self.key is not None:
            check_callable(self.key, "key", "write Rate(10, per=..., key=lambda mail: mail.to)")

    @property
    def names(self) -> tuple[str, ...]:
        return _wanted(self.key)


def _nothing() -> None:
    """The common key of all calls."""


def _wanted(key: Callable[..., object] | None) -> tuple[str, ...]:
    return () if key is None else tuple(signature(key).parameters)


@final
@attrs.frozen
class Kept:
    """A stored call, with the ids of its limits."""

    arguments: Document = attrs.field(repr=False)
    limited_by: str | None = None
    rated_by: str | None = None


# --- tasks ----------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Declared:
    """A task and its handler.

    Attributes:
        is_async: Plain functions run in threads.
        is_process: Runs in a child process.
        timeout: In microseconds; None for no limit.
    """

    name: str
    handler: Callable[..., Any] = attrs.field(eq=id)
    is_async: bool
    is_process: bool
    queue: str
    priority: int
    policy: Policy
    retry_for: tuple[type[Exception], ...]
    timeout: Duration | None
    max_running: MaxRunning | None
    unique: Unique | None
    rate: Rate | None
    parameters: Mapping[str, TextCodec] = attrs.field(repr=False)
    result: TextCodec = attrs.field(repr=False)
    signature: Signature = attrs.field(repr=False)

    @property
    def takeable(self) -> Takeable:
        found = Takeable(self.name, rate=None if self.rate is None else self.rate.rule)
        if self.max_running is None:
            return found
        held_back = found.held_back if self.max_running.waits else None
        return attrs.evolve(found, at_most=self.max_running.at_most, held_back=held_back)

    def kept(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Kept:
        """Encode a call; Misuse if it does not fit the handler."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise Misuse(
                f"{self.name} cannot be called so: {error}", todo=f"it is {self.name}{self.signature}"
            ) from None
        bound.apply_defaults()
        texts = {
            name: self.parameters[name].text(value, f"the argument {name} of {self.name}")
            for name, value in bound.arguments.items()
        }
        return Kept(
            Document.of(texts), self._set(self.max_running, bound, "max_running"), self._set(self.rate, bound, "rate")
        )

    def _set(self, those: MaxRunning | Rate | None, bound: BoundArguments, what: str) -> str | None:
        if those is None:
            return None
        rule = Rule(Control.TASK) if those.key is None else Rule(Control.KEYS, (_KEY,))
        return reservation_id(Purpose.RUNNING, rule, Call(self.name, self._in_common(those, bound, what)))

    def _in_common(
        self, those: MaxRunning | Rate | Unique, bound: BoundArguments, what: str
    ) -> tuple[tuple[str, str], ...]:
        if those.key is None:
            return ()
        key = those.key(**{name: bound.arguments[name] for name in those.names})
        return ((_KEY, _JSON.text(key, f"the key of {what} of {self.name}")),)

    def call(self, arguments: Document) -> Call:
        """The identity of a stored call for `unique`, as digests to save space."""
        common = () if self.unique is None else self._in_common(self.unique, self.bound(arguments), "what is unique")
        texts = (*common, *((name, str(text)) for name, text in arguments.items))
        return Call(self.name, tuple((name, sha256(text.encode()).hexdigest()) for name, text in texts))

    def values(self, arguments: Document) -> Mapping[str, object]:
        """Convert a trigger's plain arguments."""
        plain = cast("Mapping[str, object]", natural(arguments))
        return {
            name: self.parameters[name].value(json.dumps(value, default=str), f"the argument {name} of {self.name}")
            if name in self.parameters
            else value
            for name, value in plain.items()
        }

    def check_call(self, arguments: Document) -> None:
        values = self.values(arguments)
        try:
            _ = self.signature.bind(**values)
        except TypeError as error:
            raise Misuse(
                f"a trigger calls {self.name} with what it cannot be called with",
                why=str(error),
                todo=f"it is {self.name}{self.signature}: say calls_with(...)",
            ) from None

    def bound(self, arguments: Document) -> BoundArguments:
        """Decode a stored call; Misuse if it does not fit, as after the function has changed."""
        given: dict[str, object] = {}
        for name, text in arguments.items:
            if name not in self.parameters:
                raise Misuse(
                    f"{self.name} has no parameter {shown(name)}",
                    why="it was called before it changed, or by a newer version, which passes its defaults as well",
                    todo="give what calls of both versions reach a name of its own, or deploy the parameter before it is passed",
                )
            given[name] = self.parameters[name].value(cast("str", text), f"the argument {name} of {self.name}")
        bound = BoundArguments(self.signature, given)
        missing = [
            name
            for name, each in self.signature.parameters.items()
            if name not in given and each.default is Parameter.empty
        ]
        if missing:
            raise Misuse(f"{self.name} lacks {', '.join(missing)}", why="it was called before it changed")
        bound.apply_defaults()
        return bound


def _signature(handler: Callable[..., Any], name: str) -> Signature:
    try:
        return signature(handler)
    except ValueError:
        raise Misuse(f"nobody can tell what {name} is called with", todo="decorate a def that calls it") from None


def declared(
    handler: Callable[..., Any],
    *,
    name: str | None = None,
    queue: str = DEFAULT_QUEUE,
    priority: int = 0,
    retries: int | Policy = 0,
    backoff: Backoff | timedelta | None = None,
    retry_for: type[Exception] | tuple[type[Exception], ...] = Exception,
    timeout: timedelta | None = None,
    max_running: MaxRunning | None = None,
    unique: Unique | None = None,
    rate: Rate | None = None,
    processes: bool = False,
) -> Declared:
    """The task of a handler with these options, which it checks; see `Orchestrator.task`."""
    found = name if name is not None else getattr(handler, "__name__", "")
    is_async = is_async_handler(handler, found, "decorate a function")
    try:
        check_task_name(found)
        check_name(queue, "a queue")
        check_int(priority, "priority", PRIORITY_MIN, PRIORITY_MAX)
        if max_running is not None:
            check_type(max_running, MaxRunning, "max_running", "write MaxRunning(2), or MaxRunning.per(...)")
        if unique is not None:
            check_type(unique, Unique, "unique", "write Unique(), or Unique.per(...)")
        if rate is not None:
            check_type(rate, Rate, "rate", "write Rate(10, per=timedelta(seconds=1))")
        check_type(processes, bool, "processes")
        if processes:
            check_importable(handler, "processes=True")
        signed = _signature(handler, found)
        for what, those in (("max_running", max_running), ("unique", unique), ("rate", rate)):
            unknown = [] if those is None else [each for each in those.names if each not in signed.parameters]
            if unknown:
                raise Misuse(
                    f"the key of its {what} wants {', '.join(unknown)}",
                    why=f"{found} has no such parameter",
                    todo=f"name what {found}{signed} is called with",
                )
        hints = _hints(handler)
        return Declared(
            name=found, handler=handler, is_async=is_async, is_process=processes, queue=queue, priority=priority,
            policy=policy_of(retries, backoff), retry_for=_errors(retry_for),
            timeout=timeout_of(timeout, is_async=is_async or processes, instead="pass processes=True, "), max_running=max_running,
            unique=unique, rate=rate,
            parameters={each.name: _codec(each, hints) for each in signed.parameters.values()},
            result=codec_of(hints.get("return", UNTYPED)), signature=_resolved(signed, hints),
        )  # fmt: skip
    except TidegateError as error:
        error.where = ", ".join(filter(None, (f"the task {found!r}", place_of(handler), error.where)))
        raise


def _hints(handler: Callable[..., Any]) -> Mapping[str, Any]:
    """The annotations by name; for a callable object, those of `__call__`."""
    of = handler if hasattr(handler, "__annotations__") else getattr(handler, "__call__")  # noqa: B004, B009
    try:
        return get_type_hints(of)
    except NameError as error:
        raise Misuse(
            f"an annotation names {error.name}, which nobody knows",
            why="arguments and results are written by their annotations",
            todo="define it in the module of the function, before it, and not under TYPE_CHECKING",
        ) from None


def _resolved(signed: Signature, hints: Mapping[str, Any]) -> Signature:
    """Replace string annotations, because messages show the signature."""
    parameters = [each.replace(annotation=hints.get(name, each.annotation)) for name, each in signed.parameters.items()]
    return signed.replace(parameters=parameters, return_annotation=hints.get("return", signed.return_annotation))


def _codec(parameter: Parameter, hints: Mapping[str, Any]) -> TextCodec:
    if parameter.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
        raise Misuse(f"{parameter} takes any number of arguments", todo="name each one, or pass a list or a dict")
    if parameter.name in OPTIONS:
        raise Misuse(
            f"a parameter is called {parameter.name}",
            why="enqueue() has an option of this name",
            todo="call it something else",
        )
    return codec_of(hints.get(parameter.name, UNTYPED))


def _errors(found: object) -> tuple[type[Exception], ...]:
    errors = found if isinstance(found, tuple) else (found,)
    for each in errors:
        if not (isinstance(each, type) and issubclass(each, Exception)):
            raise Misuse(
                f"retry_for names {shown(each)}, which is no class of errors", todo="write retry_for=(OSError,)"
            )
    return cast("tuple[type[Exception], ...]", errors)
