"""Checks of decorator arguments; each error names the problem, place, reason and fix."""

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

    Raises:
        Misuse: It is not callable, or a generator.
    """
    check_callable(handler, "a handler", todo)
    if isgeneratorfunction(handler) or isasyncgenfunction(handler):
        raise Misuse(f"{name} is a generator", why="its code would never run", todo="return, and do not yield")
    return iscoroutinefunction(handler) or iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def check_called_with_one(handler: Callable[..., object], name: str, what: str, word: str) -> None:
    """Raise Misuse if the signature, where known, does not accept one argument."""
    try:
        _ = signature(handler).bind(None)
    except TypeError:
        raise Misuse(f"{name} cannot be called with {what}", todo=f"write async def {name}({word}): ...") from None
    except ValueError:  # unknown signature
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


def meant(name: str, options: Iterable[str]) -> str:
    """A question for the option nearest to a wrong name; "" if none is near."""
    there = [*options]
    found = [_FORMER[name]] if _FORMER.get(name) in there else get_close_matches(name, there, n=1)
    return "".join(f"did you mean {each}?" for each in found)


def check_known(call: Callable[..., object], what: str, unknown: Iterable[str]) -> None:
    """Raise Misuse for option names that the function lacks."""
    options = [each.name for each in signature(call).parameters.values() if each.kind is each.KEYWORD_ONLY]
    for name in unknown:
        todo = meant(name, options) or f"there are: {', '.join(options)}"
        raise Misuse(f"{name} is not an option of {what}", todo=todo)


def check_task_name(name: object) -> None:
    check_name(name, "a task")
    if any("\ud800" <= char <= "\udfff" for char in str(name)):
        raise Misuse(f"{shown(name)} cannot name a task", why="half of a surrogate pair cannot be encoded")
    if name == "<lambda>":
        raise Misuse("a lambda has no name for its task", todo='pass name="...", or write a def')


def check_database(name: object) -> None:
    check_name(name, "a database")
    if name in {"admin", "config", "local"}:
        raise Misuse(
            f"{name} is a database of the server's own", todo="name another one: it is made when it is written"
        )


def module_from(name: str, file: str) -> ModuleType:
    """Run a file as the module of this name; the module is removed if its code raises."""
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
    """Load a module for its app without running it; running it would block the loader."""
    token = _IS_LOADING.set(True)
    try:
        yield
    finally:
        _IS_LOADING.reset(token)


def is_loading() -> bool:
    return _IS_LOADING.get()


def place_of(handler: Callable[..., object]) -> str:
    code = getattr(handler, "__code__", None)
    return "" if code is None else f"{near(code.co_filename)}:{code.co_firstlineno}"


def length_of(length: object, what: str, least: Duration) -> Duration:
    """A length of time of at least `least`, in microseconds.

    Raises:
        Misuse: Wrong type, too short, or longer than a century.
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
    for unit, name in ((SECOND, "seconds"), (MILLISECOND, "milliseconds")):
        if length and length % unit == 0:
            return f"timedelta({name}={length // unit})"
    return f"timedelta(microseconds={length})" if length else "timedelta(0)"


def check_lengths(given: object, **least: Duration) -> None:
    """Raise Misuse unless these attributes have their minimum length, in microseconds."""
    for what, shortest in least.items():
        _ = length_of(getattr(given, what), what, shortest)


_OF_TIME: Final = re.compile("Duration|microseconds")


def check_unit(given: attrs.AttrsInstance, what: str) -> None:
    """Raise Misuse for a length below a millisecond, such as `Fixed(10)` meant as seconds."""
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
    """A handler's timeout in microseconds; Misuse for a handler in a thread."""
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
    """An app's observers; Misuse for async ones, which no caller would await."""
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
    """The policy of a retry number or policy, and a back-off; Misuse for two back-offs."""
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
    if not isinstance(backoff, kinds):
        return Fixed(length_of(backoff, "backoff", 0))
    check_unit(cast("attrs.AttrsInstance", backoff), "backoff")
    return backoff
