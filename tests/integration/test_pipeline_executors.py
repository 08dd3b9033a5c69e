"""The executors of a pipeline, with real processes. EX1 to EX8 are the laws of `pipeline.executors`."""

# ruff: noqa: SLF001, ASYNC110, ASYNC240  bugs are planted in what is private; children are awaited by polling

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from tests.integration import pipeline_functions as functions
from tests.integration.pipeline_functions import MARK
from tests.integration.planting import Bug, planted

from tidegate.model.errors import Misuse
from tidegate_adapters.pipeline import Result, Subprocess, Task, executors
from tidegate_adapters.pipeline.executors import Executor, _launched, _Stream
from tidegate_adapters.pipeline.functions import Function
from tidegate_adapters.pipeline.values import Kind

SECRET: Final = "hunter2"  # noqa: S105
TERM_S, KILL_S, LINGER_S = 0.15, 0.4, 0.1
BOUND_S: Final = 1.5
"""More than any of these cases may take; the sleep of a child that is not killed takes longer."""
SPAWN_BOUND_S: Final = 30
"""The same where a process of Python starts, which a busy machine delays."""
SHORT: Final = timedelta(seconds=0.1)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_TERM_S", TERM_S), ("_KILL_S", KILL_S), ("_LINGER_S", LINGER_S)):
        monkeypatch.setattr(executors, name, value)
    ensure_running()  # the process that multiprocessing needs, and keeps


def living() -> set[int]:
    """The processes with the mark that have not ended."""
    found = set[int]()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_marked = MARK.encode() in (process / "environ").read_bytes()
            is_dead = (process / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            continue
        if is_marked and not is_dead:
            found.add(int(process.name))
    return found


def own_children() -> set[str]:
    """All children of this process, zombies too."""
    return {each for task in Path("/proc/self/task").glob("*/children") for each in task.read_text().split()}


def descriptors() -> set[str]:
    found = set[str]()
    for each in [*Path("/proc/self/fd").iterdir()]:
        with suppress(FileNotFoundError):  # that of iterdir
            found.add(f"{each.name} {each.readlink()}")
    return found


def own_descriptors() -> set[str]:
    """Those without sockets: clients that earlier tests left open may reconnect."""
    return {each for each in descriptors() if "socket:" not in each}


def there() -> set[object]:
    return {*living(), *own_children(), *own_descriptors(), *threading.enumerate()}


@contextmanager
def nothing_left() -> Iterator[None]:
    """EX2. The body runs an event loop of its own."""
    gc.collect()
    before = there()
    yield
    until = time.monotonic() + 0.5
    while there() - before and time.monotonic() < until:  # the kernel ends what got SIGKILL
        time.sleep(0.002)
    assert not there() - before


def run(executor: Executor, *given: Task, bound_s: float = BOUND_S) -> list[Result]:
    """The results of the tasks at once, after which nothing is left."""

    async def main() -> list[Result]:
        loop: Any = asyncio.get_running_loop()
        watched, errors = {*loop._selector.get_map()}, list[object]()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        running = [asyncio.create_task(executor.run(each)) for each in given]
        _, late = await asyncio.wait(running, timeout=bound_s)
        assert not late, "EX3"
        await executor.stop()
        assert not errors, "a callback raised"
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert {*loop._selector.get_map()} == watched
        assert not [each for each in loop._scheduled if not each.cancelled()], "no timer is left"
        return [each.result() for each in running]

    with nothing_left():
        return asyncio.run(main())


def shell(script: str, **given: Any) -> Result:
    (result,) = run(Subprocess(["/bin/sh", "-c"], env={MARK: "1"}), Task(args=[script], **given))
    return result


@attrs.frozen
class Case:
    """What a script does, and what its result is."""

    script: str
    kind: Kind
    exit_code: int | None
    stdout: bytes | None = b""
    given: Mapping[str, Any] = attrs.field(factory=dict)


CASES: Final[Mapping[str, Case]] = {
    "is well": Case("echo out; echo err >&2", Kind.OK, 0, b"out\n"),
    "reads its input": Case("cat", Kind.OK, 0, b"x" * 300_000, {"stdin": "x" * 300_000}),
    "ends at once": Case("exit 7", Kind.NONZERO_EXIT, 7),
    "is killed by a signal": Case("echo a; kill -9 $$", Kind.NONZERO_EXIT, -9, b"a\n"),
    "ends without reading": Case("exit 0", Kind.OK, 0, b"", {"stdin": b"x" * 1_000_000}),
    "closes stdin": Case("exec 0<&-; echo a; exit 0", Kind.OK, 0, b"a\n", {"stdin": b"x" * 1_000_000}),
    "closes its output and goes on": Case("exec >&- 2>&-; sleep 0.1; exit 3", Kind.NONZERO_EXIT, 3),
    "never reads its input": Case("sleep 9", Kind.TIMEOUT, -15, b"", {"stdin": b"x" * 1_000_000, "timeout": SHORT}),
    "does not end": Case("echo a; sleep 9", Kind.TIMEOUT, -15, b"a\n", {"timeout": SHORT}),
    "ends well, but late": Case("trap 'exit 0' TERM; echo a; while :; do sleep 0.01; done", Kind.TIMEOUT, 0, b"a\n", {"timeout": SHORT}),
    "ignores SIGTERM": Case("trap '' TERM; echo a; sleep 9; sleep 9", Kind.TIMEOUT, -9, b"a\n", {"timeout": SHORT}),
    "stops itself": Case("kill -STOP $$", Kind.TIMEOUT, -9, b"", {"timeout": SHORT}),
    "leaves a child with its pipes": Case("sleep 9 & echo a", Kind.OK, 0, b"a\n"),
    "leaves a child without pipes": Case("sleep 9 >/dev/null 2>&1 </dev/null & echo a", Kind.OK, 0, b"a\n"),
    "leaves a deaf child": Case("(trap '' TERM HUP; sleep 9; sleep 9) & echo a; exit 1", Kind.NONZERO_EXIT, 1, b"a\n"),
    "leaves a deaf child at its timeout": Case("(trap '' TERM; sleep 9; sleep 9) & sleep 9", Kind.TIMEOUT, -15, b"", {"timeout": SHORT}),
    "leaves a child that writes on": Case("yes & exit 0", Kind.OK, 0, None),
    "leaves a child that writes soon": Case("(sleep 0.02; echo b) & echo a", Kind.OK, 0, b"a\nb\n"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_bad_child_leaks_nothing(case: Case) -> None:
    """EX1 to EX5."""
    result = shell(case.script, **case.given)

    assert (result.kind, result.exit_code) == (case.kind, case.exit_code)
    assert case.stdout in (None, result.stdout)
    assert result.is_ok is (result.error is None)


def test_a_process_that_leaves_the_group_does_not_hold_the_task() -> None:
    """EX3, and the first item that is known not to work."""
    result = shell(f"env -u {MARK} setsid sleep 1 & echo a")

    assert (result.kind, result.stdout) == (Kind.OK, b"a\n")


def test_a_gigabyte_is_read_and_dropped() -> None:
    """EX4. It takes no more memory than the limit."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    script = "echo a; head -c 1000000000 /dev/zero; head -c 100 /dev/zero >&2; exit 4"
    (result,) = run(Subprocess(["/bin/sh", "-c", script], env={MARK: "1"}), Task(), bound_s=20)

    assert (result.kind, result.exit_code, result.is_truncated) == (Kind.NONZERO_EXIT, 4, True)
    assert (result.stdout, result.stderr) == (b"a\n" + bytes(executors.OUTPUT_MAX - 2), bytes(100))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


@pytest.mark.parametrize(("most", "is_truncated"), [(0, True), (3, True), (4, False), (5, False)])
def test_output_is_cut_at_its_limit(most: int, is_truncated: bool) -> None:
    """EX4."""
    sh = ["/bin/sh", "-c", "printf abcd; printf abcd >&2"]
    (out,) = run(Subprocess(sh, stdout_max=most), Task())
    (err,) = run(Subprocess(sh, stderr_max=most), Task())

    assert (out.stdout, out.stderr, out.is_truncated) == (b"abcd"[:most], b"abcd", is_truncated)
    assert (err.stdout, err.stderr, err.is_truncated) == (b"abcd", b"abcd"[:most], is_truncated)


UNFIT: Final[Mapping[str, tuple[Sequence[str], Mapping[str, Any], str]]] = {
    "no program": (["/nowhere/program"], {}, "No such file"),
    "a folder": (["/etc"], {}, "Permission denied"),
    "no executable": (["/etc/passwd"], {}, "Permission denied"),
    "NUL in an argument": (["true"], {"args": [f"{SECRET}\0"]}, "null byte"),
    "NUL in a variable": (["true"], {"env": {"A": f"{SECRET}\0"}}, "null byte"),
    "= in the name of a variable": (["true"], {"env": {f"A={SECRET}": "1"}}, "illegal environment variable name"),
    "a number as an argument": (["true"], {"args": [SECRET, 7]}, "not int"),
    "too many arguments": (["true"], {"args": [SECRET * 200_000]}, "too long"),
    "no Unicode in an argument": (["true"], {"args": [f"{SECRET}\ud800"]}, "not Unicode"),
    "no Unicode in stdin": (["true"], {"stdin": f"{SECRET}\ud800"}, "not Unicode"),
}


@pytest.mark.parametrize(("command", "given", "says"), UNFIT.values(), ids=UNFIT)
def test_what_cannot_be_started_is_a_result(command: Sequence[str], given: Mapping[str, Any], says: str) -> None:
    """EX1, EX2, EX7."""
    (result,) = run(Subprocess(command), Task(**given))

    assert (result.kind, result.exit_code) == (Kind.LAUNCH_FAILURE, None)
    assert isinstance(result.error, str)
    assert says in result.error
    assert command[0] in result.error
    assert SECRET not in result.error


def test_a_process_without_descriptors_starts_no_child() -> None:
    """EX1, EX2, wherever it runs out of them. The number is so low that some are taken for a short time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    executor, kinds = Subprocess(["/bin/sh", "-c", "exit 0"]), []
    for room in range(12):

        async def main(room: int = room) -> Result:
            most = max(int(each.split()[0]) for each in descriptors()) + 1
            taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(most - len(descriptors()))]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most + room, hard))
            try:
                return await executor.run(Task(stdin="x"))
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for each in taken:
                    os.close(each)

        with nothing_left():
            kinds.append(asyncio.run(main()).kind)

    assert set(kinds) == {Kind.LAUNCH_FAILURE, Kind.OK}
    assert kinds == sorted(kinds), "it starts from some number on"


async def begun(path: Path) -> int:
    """The id that a script writes there."""
    while not (path.exists() and (text := path.read_text().strip())):
        await asyncio.sleep(0.002)
    return int(text)


@pytest.mark.parametrize("trap", ["", "trap '' TERM;"])
@pytest.mark.parametrize("cancellations", [1, 2, 5])
def test_a_cancelled_run_kills_the_group_and_waits_for_it(tmp_path: Path, trap: str, cancellations: int) -> None:
    """EX1, EX2, EX3. A second cancellation kills at once; further ones do not prolong it."""
    path = tmp_path / "pid"
    script = f"{trap} (sleep 9 & echo $! > {path}; wait)"

    async def main() -> float:
        running = asyncio.create_task(Subprocess(["/bin/sh", "-c", script], env={MARK: "1"}).run(Task()))
        await begun(path)
        began = time.monotonic()
        for _ in range(cancellations):
            running.cancel()
            await asyncio.wait({running}, timeout=0.02)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not own_children() - before, "it is reaped before run ends"
        return time.monotonic() - began

    before = own_children()
    with nothing_left():
        took = asyncio.run(main())
    assert took < TERM_S + LINGER_S + KILL_S


def test_a_run_that_is_cancelled_at_once_leaves_nothing() -> None:
    """EX2, at each turn of the event loop."""
    for turns in range(6):

        async def main(turns: int = turns) -> None:
            running = asyncio.create_task(Subprocess(["/bin/true"], env={MARK: "1"}).run(Task(stdin="x")))
            for _ in range(turns):
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.wait({running})

        with nothing_left():
            asyncio.run(main())


def test_a_child_that_survives_sigkill_ends_the_run_and_is_reaped_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """EX3, and the second item that is known not to work."""
    monkeypatch.setattr(os, "killpg", lambda *_: None)  # as if it hung in the kernel

    async def main() -> Result:
        result = await Subprocess(["sleep", "0.9"], timeout=SHORT).run(Task())
        assert own_children() - before
        while own_children() - before:
            await asyncio.sleep(0.01)
        return result

    before = own_children()
    with nothing_left():
        result = asyncio.run(main())
    assert (result.kind, result.exit_code) == (Kind.TIMEOUT, None)
    assert result.seconds < 0.1 + TERM_S + KILL_S + 0.2


def test_the_end_is_found_without_pidfd_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """EX2, EX3, everywhere but on Linux."""

    def unknown(pid: int) -> int:
        del pid
        raise OSError

    monkeypatch.setattr(os, "pidfd_open", unknown)
    assert shell("sleep 9 & echo a; exit 3").exit_code == 3
    assert shell("sleep 9", timeout=SHORT).kind is Kind.TIMEOUT


def test_an_unknown_exit_code_is_no_success() -> None:
    """EX5. Popen reports 0."""
    earlier = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        result = shell("exit 0")
    finally:
        signal.signal(signal.SIGCHLD, earlier)
    assert (result.kind, result.exit_code) == (Kind.NONZERO_EXIT, None)
    assert "unknown" in str(result.error)


def test_the_group_is_killed_before_the_child_is_reaped() -> None:
    """EX2: afterwards its id may be that of another group."""
    calls = list[str]()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("killpg", "waitpid"):
            patch.setattr(os, name, partial(_noted, calls, name, getattr(os, name)))
        _ = shell("exit 0")
    assert calls == ["killpg", "waitpid"]


def _noted(calls: list[str], name: str, call: Callable[..., Any], *given: object) -> Any:
    calls.append(name)
    return call(*given)


def test_a_child_that_cannot_be_watched_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """EX1, EX2: epoll has a limit of its own."""

    async def main() -> Result:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", full)
        return await Subprocess(["sleep", "9"], env={MARK: "1"}).run(Task(stdin="x"))

    with nothing_left():
        result = asyncio.run(main())
    assert result.kind is Kind.LAUNCH_FAILURE
    assert "No space left" in str(result.error)


def test_many_children_at_once() -> None:
    """EX2: slots are free again, whatever was in them."""
    bad = [Task(args=[case.script], **case.given) for case in CASES.values() if "writes on" not in case.script]
    good = [Task(args=["exit 0"])] * 20
    results = run(Subprocess(["/bin/sh", "-c"], env={MARK: "1"}), *bad[:12], *good, bound_s=5)

    assert [each.kind for each in results[12:]] == [Kind.OK] * 20


def test_the_environment_has_no_secrets_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """EX6. `env` and the task may set them."""
    denied = (
        "API_TOKEN",
        "my_secret",
        "PGPASSWORD",
        "MYSQL_PASSWD",
        "AWS_ACCESS_KEY_ID",
        "SALT",
        "PG_DSN",
        "credentials",
    )
    for name in (*denied, "PLAIN", "OTHER"):
        monkeypatch.setenv(name, SECRET)
    executor = Subprocess(["env", "-0"], env={"OTHER": "own", "SALT": "own", "B": "own"})
    (result,) = run(executor, Task(env={"B": "task", "KEY": "task"}))
    found = dict(each.split("=", 1) for each in result.stdout.decode().split("\0") if each)

    assert found.keys().isdisjoint({*denied} - {"SALT"})
    assert {name: found[name] for name in ("PLAIN", "OTHER", "SALT", "B", "KEY")} == {
        "PLAIN": SECRET, "OTHER": "own", "SALT": "own", "B": "task", "KEY": "task",
    }  # fmt: skip
    (most,) = run(Subprocess(["env"], env_deny=["pl?in"]), Task())
    assert all(f"{name}={SECRET}".encode() in most.stdout for name in denied)
    assert b"PLAIN" not in most.stdout


def test_secrets_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """EX7."""
    caplog.set_level(logging.DEBUG)
    executor = Subprocess(["/bin/sh", "-c", f"exit 3 # {SECRET}"], env={"A": SECRET})
    (result,) = run(executor, Task(args=[SECRET], stdin=SECRET, env={"B": SECRET}))

    assert SECRET not in f"{executor!r} {result!r} {result.error} {caplog.text}"
    assert repr(executor) == "<Subprocess /bin/sh>"


def test_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "here").chmod(0o755)
    executor = Subprocess(["./here"], cwd=tmp_path)
    asyncio.run(executor.start())
    (result,) = run(executor, Task())

    assert result.stdout.decode().strip() == str(tmp_path)


@pytest.mark.parametrize(
    ("command", "given", "says"),
    [
        ("grep -c", {}, r'(?s)got a str.*write \["grep", "-c"\]'),
        ([], {}, "got a list"),
        ([b"grep"], {}, "a string or a path must be"),
        (["grep"], {"timeout": 3}, "timeout must be a timedelta, got int 3"),
        (["grep"], {"timeout": timedelta(0)}, "too short"),
        (["grep"], {"stdout_max": -1}, "stdout_max must be an integer from 0"),
        (["grep"], {"env": ["A=1"]}, "env must be a Mapping"),
        (["grep"], {"env_deny": "*KEY*"}, "not a collection"),
        (["grep"], {"cwd": 7}, "cwd must be"),
    ],
)
def test_wrong_arguments_are_misuse(command: Any, given: Mapping[str, Any], says: str) -> None:
    with pytest.raises(Misuse, match=says):
        Subprocess(command, **given)


@pytest.mark.parametrize("program", ["nowhere-at-all", "./nowhere", "/etc/passwd"])
def test_a_missing_program_is_found_at_the_start(program: str) -> None:
    with pytest.raises(Misuse, match=f"(?s){program}.*install it"):
        asyncio.run(Subprocess([program]).start())


# --- functions ----------------------------------------------------------------------------------------------------------


async def sleeps(task: Task) -> None:
    try:
        await asyncio.sleep(9)
    finally:
        ENDED.append(task.id)


async def doubles(task: Task) -> int:
    return 2 * int(task.args[0])


async def raises(task: Task) -> None:
    raise ValueError(*task.args)


async def raises_timeout(task: Task) -> None:
    raise TimeoutError(*task.args)


async def cancels(_: Task) -> None:
    raise asyncio.CancelledError


ENDED: Final[list[str | None]] = []


@pytest.mark.parametrize(
    ("executor", "kind", "found"),
    [
        (Function(doubles), Kind.OK, 14),
        (Function(functions.doubles), Kind.OK, 14),
        (Function(functions.doubles, process=True), Kind.OK, 14),
        (Function(functions.doubles_async, process=True), Kind.OK, 14),
        (Function(raises), Kind.RAISED, "ValueError(7)"),
        (Function(functions.raises), Kind.RAISED, "ValueError(7)"),
        (Function(functions.raises, process=True), Kind.RAISED, "ValueError(7)"),
        (Function(functions.raises_unpicklable, process=True), Kind.RAISED, "TidegateError('Odd: 1 and 2')"),
        (Function(functions.returns_unpicklable, process=True), Kind.RAISED, None),
        (Function(raises_timeout, timeout=timedelta(seconds=9)), Kind.RAISED, "TimeoutError(7)"),
        (Function(cancels), Kind.RAISED, "CancelledError()"),
        (Function(sleeps, timeout=SHORT), Kind.TIMEOUT, "'sleeps did not end within its timeout of 0.1 s'"),
        (Function(functions.stays, timeout=SHORT, process=True), Kind.TIMEOUT, None),
        (Function(functions.dies, process=True), Kind.NONZERO_EXIT, "'the process that ran it has ended with 7'"),
    ],
    ids=repr,
)
def test_a_function_ends_as_its_result_says(executor: Function, kind: Kind, found: object) -> None:
    """EX1, EX8."""
    (result,) = run(executor, Task(args=[7]), bound_s=SPAWN_BOUND_S)

    assert result.kind is kind
    assert (result.exit_code == 7) == (kind is Kind.NONZERO_EXIT)
    if found is not None:
        assert (result.value if kind is Kind.OK else repr(result.error)) == found


def test_processes_are_used_again_and_one_that_died_is_replaced() -> None:
    """EX2, EX8."""
    executor = Function(functions.tells, process=True)

    async def main() -> None:
        first, again = [await executor.run(Task(args=[0])) for _ in range(2)]
        assert first.value == again.value
        at_once = await asyncio.gather(*(executor.run(Task(args=[0.1])) for _ in range(2)))
        both = {each.value for each in at_once}
        assert first.value in both
        assert len(both) == 2
        for each in both:
            os.kill(each, signal.SIGKILL)
        assert (await executor.run(Task(args=[0]))).value not in both
        await executor.stop()

    with nothing_left():
        asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("cancels", [True, False])
def test_a_killed_process_takes_along_what_it_started(cancels: bool) -> None:
    """EX2, EX8."""
    executor = Function(functions.starts, process=True)

    async def main() -> None:
        assert (await executor.run(Task())).is_ok  # the process has begun
        running = asyncio.create_task(executor.run(Task(args=[9], timeout=timedelta(seconds=9 if cancels else 0.5))))
        while not living():
            await asyncio.sleep(0.01)
        if cancels:
            running.cancel()
        await asyncio.wait({running})
        assert running.cancelled() or running.result().kind is Kind.TIMEOUT
        await executor.stop()

    with nothing_left():
        asyncio.run(asyncio.wait_for(main(), 30))


def test_a_cancelled_thread_is_awaited() -> None:
    """EX8. A coroutine is cancelled."""
    goes_on = threading.Event()

    def waits(_: Task) -> None:
        goes_on.wait(5)

    async def main() -> None:
        executor = Function(waits)
        running = asyncio.create_task(executor.run(Task()))
        await asyncio.sleep(0.02)
        running.cancel()
        assert not (await asyncio.wait({running}, timeout=0.05))[0]
        goes_on.set()
        await asyncio.wait({running}, timeout=1)
        assert running.cancelled()
        await executor.stop()
        sleeping = asyncio.create_task(Function(sleeps).run(Task(id="it")))
        await asyncio.sleep(0)
        sleeping.cancel()
        await asyncio.wait({sleeping})
        assert (sleeping.cancelled(), ENDED[-1]) == (True, "it")

    asyncio.run(main())


def test_a_thread_has_no_timeout() -> None:
    with pytest.raises(Misuse, match=r"(?s)a thread cannot be interrupted.*process=True"):
        Function(functions.doubles, timeout=SHORT)
    (result,) = run(Function(functions.doubles), Task(args=[1], timeout=SHORT))
    assert result.kind is Kind.RAISED
    assert isinstance(result.error, Misuse)


def test_what_another_process_cannot_get_is_misuse() -> None:
    with pytest.raises(Misuse, match="no name in its module"):
        Function(lambda task: task, process=True)
    (result,) = run(Function(functions.doubles, process=True), Task(args=[lambda: SECRET]), bound_s=SPAWN_BOUND_S)
    assert isinstance(result.error, Misuse)
    assert "give args and metadata plain values" in str(result.error)


# --- planted bugs -------------------------------------------------------------------------------------------------------

C: Final = executors._Child


def case(name: str) -> Callable[[], None]:
    return partial(test_a_bad_child_leaks_nothing, CASES[name])


def environment() -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_the_environment_has_no_secrets_of_this_process(patch)


BUGS: Final[Mapping[str, tuple[Bug, Callable[[], None]]]] = {
    "the group is not killed at the end": (Bug(C._settle, "self._signal(signal.SIGKILL)", "pass"), case("leaves a child without pipes")),
    "only the child is killed": (Bug(C._signal, "os.killpg(", "os.kill("), case("leaves a child without pipes")),
    "the child is reaped first": (Bug(C._exit, "self._has_exited = True", "self._has_exited = True; self._reap()"), test_the_group_is_killed_before_the_child_is_reaped),
    "pipes are awaited without end": (Bug(C._exit, "self._after(_LINGER_S, self._settle)", "pass"), case("leaves a child with its pipes")),
    "pipes are not awaited": (Bug(C._exit, "if self._reading:", "if False:"), case("leaves a child that writes soon")),
    "the end is seen again and again": (Bug(C._exit, "for fd in self._fds - self._reading:", "for fd in ():"), case("leaves a child with its pipes")),
    "SIGTERM is all": (Bug(C.stop, "self._after(_TERM_S, self.stop)", "pass"), case("ignores SIGTERM")),
    "a refused input is a failure": (Bug(C._write, "except BrokenPipeError:", "except ChildProcessError:"), case("ends without reading")),
    "input is written once": (Bug(C._write, "if left:", "if False:"), case("reads its input")),
    "input stays open": (Bug(C._write, "self._close(fd)", "pass"), case("reads its input")),
    "a late success is one": (Bug(Subprocess._judged, "if child.is_timed_out:", "if False:"), case("ends well, but late")),
    "a failure is a success": (Bug(Subprocess._judged, "if code == 0:", "if code is not None and code >= 0:"), case("ends at once")),
    "the child is not reaped": (Bug(C._settle, "self._reap()", "pass"), case("is well")),
    "the timer stays": (Bug(C._release, "self._timer.cancel()", "pass"), case("is well")),
    "the end of output is the end": (Bug(C._read, "if self._has_exited and not", "if not"), case("closes its output and goes on")),
    "no limit is kept": (Bug(_Stream.read, "data[:room]", "data"), partial(test_output_is_cut_at_its_limit, 3, is_truncated=True)),
    "all that fits is cut": (Bug(_Stream.read, "len(data) > room", "len(data) >= room"), partial(test_output_is_cut_at_its_limit, 4, is_truncated=False)),
    "no group of its own": (Bug(_launched, "start_new_session=True", "start_new_session=False"), case("does not end")),
    "their pipes stay open": (Bug(_launched, "finally:", "else:"), partial(test_what_cannot_be_started_is_a_result, *UNFIT["no program"])),
    "our pipes stay open": (Bug(_launched, "for fd in ours:", "for fd in ():"), partial(test_what_cannot_be_started_is_a_result, *UNFIT["no program"])),
    "the limit of descriptors leaks some": (Bug(_launched, "for fd in ours:", "for fd in ours[1:]:"), test_a_process_without_descriptors_starts_no_child),
    "a timeout is an error of the function": (Bug(Function.run, "if limit is not None and limit.expired():", "if False:"), partial(test_a_function_ends_as_its_result_says, Function(sleeps, SHORT), Kind.TIMEOUT, None)),
    "a cancelled function is a result": (Bug(Function.run, "check_awaited_failure(raised)", "pass"), test_a_cancelled_thread_is_awaited),
    "small letters match themselves": (Bug(Subprocess.__init__, "each.upper()", "each"), environment),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("bug", "law"), BUGS.values(), ids=BUGS)
def test_a_planted_bug_is_found(bug: Bug, law: Callable[[], None]) -> None:
    before, known = descriptors(), own_children()
    try:
        with planted(bug), pytest.raises((AssertionError, Misuse)):
            law()
    finally:
        for each in {*map(str, living())} | (own_children() - known):
            with suppress(ProcessLookupError):
                os.kill(int(each), signal.SIGKILL)
        for each in own_children() - known:
            os.waitpid(int(each), 0)
        gc.collect()
        for each in descriptors() - before:
            os.close(int(each.split()[0]))
