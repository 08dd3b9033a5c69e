"""What decorators are told of handlers, checked as it is told: what is wrong, where, why, and what to do about it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from difflib import get_close_matches
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature
from types import ModuleType
from typing import Any, Final, cast, get_args

import attrs

from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import MILLISECOND, SECOND, Duration, duration, seconds
from tidegate.model.values import check_callable, check_int, check_name, check_type
from tidegate.retries.backoff import LONGEST, Backoff, Fixed, Policy
from tidegate_adapters.base.errors import near


def is_async_handler(handler: object, name: str, todo: str) -> bool:
    """Whether a handler is async.

    Args:
        handler: The user's.
        name: What it is called.
        todo: What to do where it is none.

    Raises:
        Misuse: It is none: it cannot be called, or is a generator.
    """
    check_callable(handler, "a handler", todo)
    if isgeneratorfunction(handler) or isasyncgenfunction(handler):
        raise Misuse(f"{name} is a generator", why="its code would never run", todo="return, and do not yield")
    return iscoroutinefunction(handler) or iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def check_called_with_one(handler: Callable[..., object], name: str, what: str, word: str) -> None:
    """Raise Misuse unless a handler can be called with one argument, as far as its signature tells.

    Args:
        handler: The user's.
        name: What it is called.
        what: What it is called with.
        word: A name for that.
    """
    try:
        _ = signature(handler).bind(None)
    except TypeError:
        raise Misuse(f"{name} cannot be called with {what}", todo=f"write async def {name}({word}): ...") from None
    except ValueError:  # nobody knows what it takes
        pass


_FORMER: Final[Mapping[str, str]] = {
    "executors": "concurrency",
    "max_workers": "concurrency",
    "running_max": "concurrency",
    "threads": "concurrency",
    "workers": "concurrency",
    "handler_timeout": "timeout",
    "filter": "where",
    "retry": "retries",
    "cron": "triggers",
}
"""By what others call an option: what it is called here."""


def meant(name: str, options: Iterable[str]) -> str:
    """The option that a wrong name is nearest to, as a question; "" if none is near."""
    there = [*options]
    found = [_FORMER[name]] if _FORMER.get(name) in there else get_close_matches(name, there, n=1)
    return "".join(f"did you mean {each}?" for each in found)


def check_known(call: Callable[..., object], what: str, unknown: Iterable[str]) -> None:
    """Raise Misuse if there are options that a function does not have.

    Args:
        call: The function.
        what: What has the options.
        unknown: Their names.
    """
    options = [each.name for each in signature(call).parameters.values() if each.kind is each.KEYWORD_ONLY]
    for name in unknown:
        todo = meant(name, options) or f"there are: {', '.join(options)}"
        raise Misuse(f"{name} is not an option of {what}", todo=todo)


def check_task_name(name: object) -> None:
    """Raise Misuse unless this can name a task: what is known of it is found by its name."""
    check_name(name, "a task")
    if any("\ud800" <= char <= "\udfff" for char in str(name)):
        raise Misuse(f"{shown(name)} cannot name a task", why="half of a surrogate pair cannot be encoded")
    if name == "<lambda>":
        raise Misuse("a lambda has no name for its task", todo='pass name="...", or write a def')


def check_database(name: object) -> None:
    """Raise Misuse unless this can be the name of a database of ours."""
    check_name(name, "a database")
    if name in {"admin", "config", "local"}:
        raise Misuse(
            f"{name} is a database of the server's own", todo="name another one: it is made when it is written"
        )


def module_from(name: str, file: str) -> ModuleType:
    """The module in a file, which is known by this name from then on.

    Args:
        name: Of the module.
        file: With its code, which is run.

    Raises:
        BaseException: Its code has raised it; then there is no such module.
    """
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


_IS_LOADING: Final = ContextVar("is_loading", default=False)


@contextmanager
def loading() -> Iterator[None]:
    """A module is loaded in the block for the app that it has, which is not run there: whoever loads it would not come back."""
    token = _IS_LOADING.set(True)
    try:
        yield
    finally:
        _IS_LOADING.reset(token)


def is_loading() -> bool:
    """Is a module loaded for what it has?"""
    return _IS_LOADING.get()


def place_of(handler: Callable[..., object]) -> str:
    """`file:line` of a function."""
    code = getattr(handler, "__code__", None)
    return "" if code is None else f"{near(code.co_filename)}:{code.co_firstlineno}"


def length_of(length: object, what: str, least: Duration) -> Duration:
    """A length of time in microseconds.

    Args:
        length: A timedelta.
        what: The name of the option.
        least: The shortest, in microseconds.

    Raises:
        Misuse: It is of another type, shorter, or longer than a century.
    """
    check_type(length, timedelta, what)
    assert isinstance(length, timedelta), "it was checked"
    found = duration(length)
    if found < least:
        raise Misuse(
            f"{what}={f'-{-length}' if found < 0 else length} is too short",
            why=f"the least is {seconds(least)}",
            todo=f"write {_written(least)} or longer",
        )
    if found > LONGEST:
        raise Misuse(
            f"{what}={length} is too long", why="the most is a century", todo="write timedelta(days=36_525) or less"
        )
    return found


def _written(length: Duration) -> str:
    """How a length of time is written in Python."""
    for unit, name in ((SECOND, "seconds"), (MILLISECOND, "milliseconds")):
        if length and length % unit == 0:
            return f"timedelta({name}={length // unit})"
    return f"timedelta(microseconds={length})" if length else "timedelta(0)"


def check_lengths(given: object, **least: Duration) -> None:
    """Raise Misuse unless these attributes are lengths of time, each of so many microseconds at least."""
    for what, shortest in least.items():
        _ = length_of(getattr(given, what), what, shortest)


_OF_TIME: Final = re.compile("Duration|microseconds")
"""In the type of an attribute that is a length of time: as it is written, or as it was resolved."""


def check_unit(given: attrs.AttrsInstance, what: str) -> None:
    """Raise Misuse if an option holds a length of time below a millisecond, as of `Fixed(10)`, which was meant in seconds."""
    for field in attrs.fields(type(given)):
        held, name = getattr(given, field.name), f"{what}.{field.name}"
        if attrs.has(type(held)):
            check_unit(held, name)
        elif _OF_TIME.search(f"{field.type}"):
            for length in held if isinstance(held, tuple) else (held or 0,):
                if type(length) is int and 0 < length < MILLISECOND:
                    raise Misuse(
                        f"{name} is {seconds(length)}",
                        why="a number counts microseconds",
                        todo=f"write timedelta(seconds={length})",
                    )


def timeout_of(timeout: timedelta | None, *, is_async: bool, instead: str = "") -> Duration | None:
    """How long a handler may take, in microseconds; None for any time.

    Args:
        timeout: What is said.
        is_async: Whether the handler can be interrupted.
        instead: What else to do where it cannot.

    Raises:
        Misuse: It is no length of time, or the handler runs in a thread.
    """
    if timeout is None:
        return None
    if not is_async:
        raise Misuse(
            "timeout=, for a plain function",
            why="a thread cannot be interrupted",
            todo=f"make it an async def, {instead}or leave timeout out",
        )
    return length_of(timeout, "timeout", MILLISECOND)


def observers_of(observers: object) -> tuple[Callable[..., object], ...]:
    """The observers of an app.

    Raises:
        Misuse: They are none: one cannot be called, or nobody would await it.
    """
    check_type(observers, Iterable, "observers", "pass a list of functions")
    found = tuple(cast("Iterable[Callable[..., object]]", observers))
    for each in found:
        check_callable(each, "an observer", "pass a function")
        if iscoroutinefunction(each):
            raise Misuse(
                f"{each.__name__} is an async function",
                why="observers are called and not awaited",
                todo="pass a plain one",
            )
    return found


def policy_of(retries: object, backoff: Backoff | timedelta | None) -> Policy:
    """When a run that failed is tried again.

    Args:
        retries: How often, or a whole policy; None for that of `Policy`.
        backoff: The delays before that; None for those of `Policy`.

    Raises:
        Misuse: They are of the wrong type, or out of range; or there is a back-off and a policy, which has one.
    """
    if isinstance(retries, Policy):
        if backoff is not None:
            raise Misuse("backoff=, and a policy that has one", todo="leave backoff out")
        check_unit(retries, "retries")
        return retries
    policy = Policy()
    if retries is not None:
        check_int(retries, "retries", 0)
        assert isinstance(retries, int), "it was checked"
        policy = Policy(attempts_max=retries + 1)
    if backoff is None:
        return policy
    return attrs.evolve(policy, backoff=delays_of(backoff, get_args(Backoff)))


def delays_of(backoff: Any, kinds: tuple[type, ...]) -> Any:
    """A back-off of one of these kinds, or a fixed one of a timedelta."""
    if not isinstance(backoff, kinds):
        return Fixed(length_of(backoff, "backoff", 0))
    check_unit(cast("attrs.AttrsInstance", backoff), "backoff")
    return backoff
