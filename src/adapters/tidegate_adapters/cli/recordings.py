"""`tidegate replay RECORDING TARGET`: executes a production run again, with today's program.

    shop/jobs.py:claim      a function without arguments that makes a run of the program, with its
                            original arguments
    shop/worker.py:orders   a `ConsumerRules`, or a `WorkerRules` made of it: the reducer of a
                            Kafka worker

Replies and events may be of tidegate's classes, and of those that the target's module has or
imports.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import iscoroutine
from pathlib import Path
from types import ModuleType
from typing import cast

import tidegate
from tidegate.consumer import fanout
from tidegate.consumer.flow import drain
from tidegate.consumer.protocol import commands
from tidegate.consumer.worker import worker
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.consumer.worker.worker import ShutdownEvent, ShutdownStep, WorkerRules, WorkerState
from tidegate.exit_codes import ExitCode
from tidegate.model import documents, effects, instants, operations
from tidegate.model.effects import Effect, Program
from tidegate.model.errors import Misuse, TidegateError
from tidegate.sim.program.recording import Executed, Other, Recording, Same, executed, read, stepped
from tidegate.sim.program.tagged import named_classes
from tidegate.sim.trace.rendering import number_of
from tidegate_adapters.base.errors import ReplayDivergedError, origin, raised
from tidegate_adapters.exploring.targets import attribute, takes_nothing
from tidegate_adapters.kafka.settings import WorkerSettings
from tidegate_adapters.shell.terminal import Terminal, error_json

_OURS = (documents, drain, effects, fanout, instants, operations, worker, commands)


def execute_again(path: Path, text: str, target: str | None, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Execute a recorded run again; only the user, not the recording, names the target."""
    recording = _read_at(path, text)
    if target is None:
        raise Misuse(
            f"{path} is the recording of a run of {recording.program}, and which program is to be executed?",
            todo=f"name it: tidegate replay {path} path.py:attr",
        )
    found = again(recording, target)
    answer = {
        "schema": "tidegate/execution@1",
        "program": recording.program,
        "recorded_with": recording.version,
        "is_whole": recording.is_whole,
        "damage": recording.damage,
    }
    if recording.damage:
        terminal.tell(f"warning: {path}: {recording.damage}; what stands before is used")
    match found:
        case Same(steps, then):
            if is_json:
                terminal.answer({**answer, "verdict": "reproduced", "steps": steps, "then": then, "ok": True})
            else:
                terminal.say(
                    f"reproduced {number_of(steps, 'step')} of {recording.program}"
                    + (f"; then: {then}" if then else "")
                )
            return ExitCode.OK
        case Other(step, was, now, src):
            error = ReplayDivergedError(
                f"another decision at step {step}",
                where=src or target,
                why=f"recorded: {was}\n    now: {now}",
                todo=f"recorded with {recording.version}, now {tidegate.__version__}: it is another program, or the same with "
                "other arguments, or what it was answered was hidden",
            )
            if is_json:
                said = {"verdict": "diverged", "step": step, "recorded": was, "now": now, "src": src}
                terminal.answer({**answer, **said, "ok": False, "error": error_json(error)})
            terminal.complain(error)
            return ExitCode.DIVERGED


def _read_at(path: Path, text: str) -> Recording:
    try:
        return read(text)
    except Misuse as error:
        error.where = error.where or str(path)
        raise


def again(recording: Recording, target: str) -> Executed:
    value, module = attribute(target)
    classes = named_classes(each for space in (*_OURS, module) for each in vars(space).values())
    try:
        if (rules := _rules_of(value)) is not None:
            return stepped(recording, WorkerState(), _of(rules), classes)
        return executed(recording, _run_of(value, target, module), classes)
    except TidegateError as error:
        error.where = error.where or ", ".join(filter(None, (target, origin(error))))
        raise
    except Exception as error:
        raise raised(error, f"{target} raised an error") from error


def _rules_of(value: object) -> WorkerRules | None:
    match value:
        case WorkerRules():
            return value
        case ConsumerRules():
            return WorkerRules(value)
        case _:
            told = getattr(value, "settings", None)  # a Worker
            return told.rules if isinstance(told, WorkerSettings) else None


def _of(rules: WorkerRules) -> Callable[[WorkerState, object], ShutdownStep]:
    def step(state: WorkerState, event: object) -> ShutdownStep:
        if not isinstance(event, ShutdownEvent):
            raise Misuse(f"a consumer has no event {type(event).__name__}", where="a recording")
        return rules.step(state, event)

    return step


def _run_of(make: object, target: str, module: ModuleType) -> Program[object]:
    todo = "name a function without arguments that returns program(...), or a Worker, a ConsumerRules or WorkerRules"
    if callable(make) and not takes_nothing(make):
        raise Misuse(f"{target} takes arguments, and a recording holds a digest of them only", todo=todo)
    made: object = make() if callable(make) else make
    if not iscoroutine(made):
        raise Misuse(f"{target} makes no run of a program: {type(made).__name__}", where=module.__name__, todo=todo)
    return cast("Coroutine[Effect[object], object, object]", made)
