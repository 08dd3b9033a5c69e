"""Repeats recorded runs of programs in child processes, each with another PYTHONHASHSEED: the
adapter of `SecondProcess`.

The first child serves all scenarios of this process. If the order of a set may matter, more
children follow (`SEEDS`). A child reads pickled messages from stdin and ends with it, so it does
not outlive this process.

Functions of importable modules are sent by name. For a file loaded by its path the child loads the
same file; if it cannot, they are sent by value, as are those of `__main__` and of modules that
pytest rewrites, lambdas and closures (with cloudpickle). An object that cannot be sent, such as an
open file, gives `Unshipped`. A child that misses its deadline is killed.

Known not to be seen: dependence on hashes in module-level code of `__main__`, which is not executed
again.
"""

from __future__ import annotations

import atexit
import io
import marshal
import os
import pickle
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import cache, lru_cache
from importlib.machinery import PathFinder, SourceFileLoader
from time import monotonic
from types import FunctionType, ModuleType
from typing import IO, Any, Final, cast, final

from tidegate.sim.program.outside import reached
from tidegate.sim.program.relative_time import RelativeInstant, packed
from tidegate.sim.program.rerun import Answer, Case, Mismatch, ProgramCase, Unshipped
from tidegate.sim.trace.variants import recipe_of
from tidegate_adapters.exploring.second_process_child import (
    cached,
    context_variable,
    read_message,
    variant_again,
    write_message,
)

try:
    import cloudpickle
except ImportError:
    cloudpickle = None

SEEDS: Final = ("1", "2", "3", "4", "5", "6", "7", "8")
"""PYTHONHASHSEED of the children; this process's own is skipped."""
ANSWER_S: Final = 60
_CHILDREN_MAX: Final = 24
"""The most starts without a reply, so that a crashing child is not restarted for ever; a missed
deadline counts for a third.
"""
_KEPT: Final = 100
_ENDED: Final = Unshipped("the second process has ended")
_COMMAND: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; from tidegate_adapters.exploring.second_process_child import main; main()"
)
_BY_VALUE: Final = "pip install 'tidegate[cli]', which brings cloudpickle; or move it to a module that can be imported"


# --- this process ---------------------------------------------------------------------------------


@cache
def second_process() -> Children:
    return Children()


@final
class Children:
    """The child processes of this process, by hash seed."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.children: dict[str, _Child] = {}
        self.inherited: list[object] = []
        self.begun = 0
        self.lock = threading.Lock()
        self.is_closing = False

    def seconds(self) -> float:
        return monotonic()

    def execute(self, cases: Sequence[Case], *, is_thorough: bool) -> Callable[[], Sequence[Answer]]:
        if self.owner != os.getpid():  # after a fork the children are the parent's
            self.inherited.append(self.children)
            self.owner, self.children = os.getpid(), {}
        first, *others = [seed for seed in SEEDS if seed != os.environ.get("PYTHONHASHSEED")]
        messages, unshipped = _packed(cases, by_value=False)
        if left := [nth for nth, message in enumerate(messages) if message is None]:  # before they grow
            for nth, message, answer in zip(left, *_packed([cases[nth] for nth in left], by_value=True), strict=True):
                messages[nth], unshipped[nth] = message, answer
        child = self.child(first)
        number = child.send(messages)

        def wait() -> Sequence[Answer]:
            sent, answers = messages, _merged(unshipped, child.answer(number))
            if not child.is_over:
                self.begun = 0  # earlier ends had other causes
            differing = [nth for nth, each in enumerate(answers) if isinstance(each, Mismatch)]
            by_seed = [[answers[nth] for nth in differing], *self.answers_of(others, [sent[nth] for nth in differing])]
            alike = [nth for nth, *all_ in zip(differing, *by_seed, strict=True) if all_.count(all_[0]) == len(all_)]
            # If all seeds agree with each other but not with this process, the cause is not the
            # seed: a setting changed at run time, or a changed file. So send this process's objects
            # by value.
            if failed := sorted(
                {
                    *alike,
                    *(
                        nth
                        for nth, each in enumerate(answers)
                        if isinstance(each, Unshipped) and sent[nth] and not _is_too_deep(each)
                    ),
                }
            ):
                repacked, why = _packed([cases[nth] for nth in failed], by_value=True)
                again = self.child(first)
                found = _merged(why, again.answer(again.send(repacked)))
                for nth, message, answer in zip(failed, repacked, found, strict=True):
                    sent[nth], answers[nth] = message, answer
            if is_thorough and not any(isinstance(each, Mismatch) for each in answers):
                for of_it in self.answers_of(others, sent):
                    answers = _merged(answers, of_it)
            return answers

        return wait

    def answers_of(self, seeds: Sequence[str], messages: Sequence[bytes | None]) -> list[list[Answer]]:
        if not messages:
            return []
        end_s = monotonic() + ANSWER_S  # for all together
        found: dict[str, list[Answer]] = {}
        for _ in range(2):  # restart one that has ended
            asked = [
                (seed, child, child.send(messages))
                for seed in seeds
                if seed not in found
                for child in [self.child(seed)]
            ]
            for seed, child, number in asked:
                answer = child.answer(number, end_s)
                if not child.is_over or child.has_hung:
                    found[seed] = answer
        return [found.get(seed) or [_ENDED] * len(messages) for seed in seeds]

    def child(self, seed: str) -> _Child:
        with self.lock:
            return self.running(seed)

    def running(self, seed: str) -> _Child:
        found = self.children.get(seed)
        if found is None or (found.is_over and self.begun < _CHILDREN_MAX):
            self.begun += 1 if found is None or not found.has_hung else _CHILDREN_MAX // 3
            if not self.is_closing:
                self.is_closing = True
                atexit.register(self.close)
            found = self.children[seed] = _Child(seed)
        return found

    def close(self) -> None:
        if self.owner == os.getpid():
            for child in self.children.values():
                child.close()
            self.children = {}


def _merged(answers: Sequence[Answer], others: Sequence[Answer]) -> list[Answer]:
    return [one or other for one, other in zip(answers, others, strict=True)]


def _begun(seed: str) -> subprocess.Popen[bytes] | None:
    try:
        path = [each or os.getcwd() for each in sys.path]  # noqa: PTH109  as Python does
        return subprocess.Popen(  # noqa: S603  our own code
            # -B: a user's file may change within a second, and a stale .pyc would be loaded
            [sys.executable, "-B", *["-O"] * sys.flags.optimize, "-c", _COMMAND, *path],
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the parent
        )
    except (OSError, TypeError, ValueError):
        return None


@final
class _Child:
    """Answers messages in order; unread replies are dropped."""

    def __init__(self, seed: str) -> None:
        self.sent = self.read = 0
        self.answers: dict[int, list[Answer]] = {}
        self.lock = threading.Lock()
        self.process = _begun(seed)
        self.is_over, self.has_hung = self.process is None, False

    def send(self, messages: Sequence[bytes | None]) -> int:
        with self.lock:
            self.drop_answers()
            if self.process is not None and not self.is_over:
                assert self.process.stdin is not None
                try:
                    write_message(self.process.stdin, pickle.dumps(list(messages)))
                except OSError:
                    self.close()
            self.sent += 1
            self.answers.pop(self.sent - _KEPT, None)
            self.answers[self.sent] = [_ENDED] * len(messages)
            return self.sent

    def drop_answers(self) -> None:
        """Read unread replies, so that the child does not block."""
        while self.read < self.sent and not self.is_over:
            self.receive()

    def answer(self, number: int, end_s: float | None = None) -> list[Answer]:
        with self.lock:
            while self.read < number and not self.is_over:
                self.receive(end_s)
            return self.answers.pop(number)

    def receive(self, end_s: float | None = None) -> None:
        assert self.process is not None, "only one that has begun is read"
        stdout = self.process.stdout
        assert stdout is not None
        left_s = ANSWER_S if end_s is None else max(0.0, end_s - monotonic())
        self.has_hung = os.name == "posix" and not select.select([stdout], [], [], left_s)[0]
        message = None if self.has_hung else read_message(stdout)
        self.read += 1
        if message is None:
            self.close()
        else:
            self.answers[self.read] = pickle.loads(message)  # noqa: S301  from our own child

    def close(self) -> None:
        self.is_over = True
        if self.process is None:
            return
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                cast("IO[bytes]", pipe).close()
        try:
            self.process.wait(0.2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _is_too_deep(answer: Unshipped) -> bool:
    """A deeply nested object, such as a mock, cannot be sent by value either."""
    return answer.why.startswith("RecursionError")


# --- pickling -------------------------------------------------------------------------------------


def _packed(cases: Sequence[Case], *, by_value: bool) -> tuple[list[bytes | None], list[Answer]]:
    """Each case as bytes, with its modules' files; or None and the reason."""
    messages: list[bytes | None] = []
    answers: list[Answer] = []
    for case in cases:
        buffer = io.BytesIO()
        try:
            with _pickled_by_value(by_value=by_value) as files:
                _PICKLER(buffer, pickle.HIGHEST_PROTOCOL).dump(case)
            messages.append(pickle.dumps((files, buffer.getvalue())))
            answers.append(None)
        except Exception as error:  # noqa: BLE001  a user object's pickling
            remedy = "" if cloudpickle else f"; {_BY_VALUE}"
            why = (str(error).splitlines() or [type(error).__name__])[0]
            held = ", ".join(f"`{label}`" for label in _unsendable(case))
            messages.append(None)
            answers.append(Unshipped(f"{why}{held and f': it is in {held}'}{remedy}"))
    return messages, answers


def _unsendable(case: Case) -> Iterator[str]:
    for label, held in reached(case.birth if isinstance(case, ProgramCase) else case.function).held():
        try:
            _PICKLER(io.BytesIO(), pickle.HIGHEST_PROTOCOL).dump(held)
        except Exception:  # noqa: BLE001  as above
            yield label


class _PlainPickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        return packed(obj) if isinstance(obj, RelativeInstant) else NotImplemented


def _pickler() -> type[pickle.Pickler]:
    if cloudpickle is None:
        return _PlainPickler

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
        """Sends caches, context variables and locks in their initial state."""

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, RelativeInstant):
                return packed(obj)
            if isinstance(obj, _CACHE_TYPE):
                return cached, (obj.__wrapped__, *obj.cache_parameters().values())
            if isinstance(obj, ContextVar):
                context = copy_context()
                return context_variable, (obj.name, *((context[obj],) if obj in context else ()))
            if isinstance(obj, _LOCK_TYPES):
                return threading.Lock if isinstance(obj, _LOCK_TYPES[0]) else threading.RLock, ()
            if not isinstance(obj, (FunctionType, type, ModuleType)):  # by reference: a program may use `is`
                return _singletons(type(obj).__module__).get(id(obj), NotImplemented)
            if found := recipe_of(obj):
                (module, code, names), called = found
                return variant_again, (module, marshal.dumps(code), names, called)
            reduced = super().reducer_override(obj)
            if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) == 6:  # a class by value
                reduced[2][0].setdefault("__qualname__", obj.__qualname__)  # cloudpickle omits it
            return reduced

    return Pickler


_CACHE_TYPE: Final = type(lru_cache(lambda: None))
_LOCK_TYPES: Final = (type(threading.Lock()), type(threading.RLock()))


@cache
def _singletons(module: str) -> dict[int, str]:
    found = sys.modules.get(module)
    if found is None or module in ("__main__", "builtins") or module in _MODULES or not _is_found(module, found):
        return {}
    named = vars(found).items()
    return {id(item): name for name, item in named if type(item).__module__ == module and not isinstance(item, type)}


_PICKLER: Final = _pickler()
_MODULES: Final[dict[str, str | None]] = {}
"""User modules that the child cannot import by name: their files, or None to send by value."""
_FOUND: Final[set[str]] = set()
_LOOKED_AT: Final[set[str]] = set()


@contextmanager
def _pickled_by_value(*, by_value: bool) -> Iterator[dict[str, str]]:
    """Send functions by value in the block; yields the files that the child loads."""
    for name in sys.modules.keys() - _LOOKED_AT:
        _LOOKED_AT.add(name)
        module = sys.modules.get(name)
        if isinstance(module, ModuleType) and not _is_found(name, module):
            _MODULES[name] = _file_of(module)
        elif isinstance(module, ModuleType) and not _is_library(name, module):
            _FOUND.add(name)
    unfound = [name for name, file in _MODULES.items() if by_value or file is None]
    sent = [name for name in (*unfound, *(_FOUND if by_value else ())) if name in sys.modules]
    modules = [] if cloudpickle is None else [sys.modules[name] for name in sent]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield {name: file for name, file in _MODULES.items() if file is not None and not by_value}
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _is_library(name: str, module: ModuleType) -> bool:
    """A module of the standard library, an installed package, or tidegate; cloudpickle handles
    `__main__`.
    """
    file = getattr(module, "__file__", None)
    is_ours = name.partition(".")[0] in ("tidegate", "tidegate_adapters", "__main__", "__mp_main__")
    return is_ours or file is None or "site-packages" in file or file.startswith(os.path.dirname(os.__file__))  # noqa: PTH120


def _is_found(name: str, module: ModuleType) -> bool:
    if _is_library(name, module):
        return True
    parent = sys.modules.get(name.rpartition(".")[0])
    try:
        spec = PathFinder.find_spec(name, getattr(parent, "__path__", None))
    except Exception:  # noqa: BLE001  any module finder
        spec = None
    return spec is not None and spec.origin == module.__file__ and not _is_rewritten(module)


def _is_rewritten(module: ModuleType) -> bool:
    return type(getattr(module, "__loader__", None)).__module__.startswith("_pytest")


def _file_of(module: ModuleType) -> str | None:
    is_plain = isinstance(getattr(module, "__loader__", None), SourceFileLoader)
    return cast("str", module.__file__) if is_plain and not _is_rewritten(module) else None
