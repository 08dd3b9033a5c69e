"""Executors: what runs the tasks of a pipeline. This module has the protocol, and programs as child processes.

Functions are in `tidegate_adapters.pipeline.functions`. The member of the group decides how many
tasks run at once: an executor has no queue and no slots of its own.

Laws
    EX1  `run` returns one result for each call. It raises only if it is cancelled.
    EX2  Once `run` has ended, in any way, the child has ended and is reaped, its process group has
         got SIGKILL, and no file descriptor, timer or task of it is left.
    EX3  `run` ends in time: at most the timeout, `_TERM_S`, `_KILL_S` and `_LINGER_S` after it began,
         or the last three after it was cancelled. The child and its children cannot prolong it.
    EX4  A result has the first bytes of stdout and stderr, up to `stdout_max` and `stderr_max`, of a
         killed child, too. The rest is read and dropped, so a child never waits for a reader, and
         the result is marked as truncated.
    EX5  The kind is OK only for a program that has ended by itself, in time, with exit code 0.
    EX6  A program gets no variable of this process that `env_deny` matches.
    EX7  Arguments, variables and stdin appear in no repr, error or log.
    EX8  Once `run` has ended, the function that it called has ended: a coroutine is cancelled, a
         process killed, a thread awaited.

The child leads a session and a process group of its own. It is reaped last, after the group got
SIGKILL: until then its id cannot belong to another group. pidfd_open(2) tells its end to the event
loop, without a thread or SIGCHLD, and does not compete with other code that waits for children.

Known not to work
    - A process that left the group (`setsid`, a daemon) is not killed. It cannot hold the task.
    - A child that hangs in the kernel may survive SIGKILL. `run` then ends after `_KILL_S`, and the
      child is reaped once it ends.
    - Children of a process that is killed by SIGKILL run on to their end.
    - The event loop waits for exec, about a millisecond, as in asyncio.
    - Without pidfd_open (macOS, Linux before 5.3) the end of a child is found by polling, and the
      child is reaped just before its group is killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from fnmatch import fnmatchcase
from subprocess import DEVNULL, Popen
from time import perf_counter
from typing import Final, Protocol, TypeAlias, final

from tidegate.model.errors import Misuse, typed
from tidegate.model.instants import MILLISECOND, SECOND
from tidegate.model.values import check_int, check_type, check_types
from tidegate_adapters.base.decorators import length_of
from tidegate_adapters.base.safe_log import Lines
from tidegate_adapters.pipeline.values import Kind, Result, Task

say: Final = Lines(logging.getLogger("tidegate_adapters.pipeline"))

OUTPUT_MAX: Final = 1 << 20
ENV_DENY: Final = ("*TOKEN*", "*SECRET*", "*PASSW*", "*KEY*", "*SALT*", "*CREDENTIAL*", "*_DSN")
"""Those of Drakkar 2.4 with `_KEY` and `PASSWORD` made wider."""
_TERM_S: Final = 2.0
"""From SIGTERM to SIGKILL."""
_KILL_S: Final = 5.0
"""From SIGKILL to the end of the wait."""
_LINGER_S: Final = 0.2
"""From the end of a child to the end of its group, while its pipes are held open."""
_POLL_S: Final = 0.01
_CHUNK: Final = 1 << 16
"""The capacity of a pipe on Linux."""

Path: TypeAlias = str | os.PathLike[str]


class Executor(Protocol):
    """Runs tasks."""

    async def start(self) -> None:
        """Prepare, or raise TidegateError."""

    async def run(self, task: Task) -> Result:
        """Run a task to its end (EX1)."""

    async def stop(self) -> None:
        """Release everything, after the last `run`."""


@final
class Subprocess:
    """Runs a task as a program, without a shell: `Subprocess(["grep", "-c"])`.

    Args:
        command: The program and its first arguments; the arguments of the task follow.
        timeout: How long it may run. The timeout of a task wins.
        stdout_max: How many bytes of stdout a result has.
        stderr_max: The same of stderr.
        env: Variables for the program. Those of the task win.
        env_deny: Patterns of variables of this process that the program does not get, in any case.
            `env` and the task may still set them.
        cwd: Its working directory; None for that of this process.

    Raises:
        Misuse: An argument has the wrong type or is out of range, or this system has no process groups.
    """

    def __init__(
        self,
        command: Sequence[Path],
        *,
        timeout: timedelta = timedelta(seconds=120),
        stdout_max: int = OUTPUT_MAX,
        stderr_max: int = OUTPUT_MAX,
        env: Mapping[str, str] | None = None,
        env_deny: Sequence[str] = ENV_DENY,
        cwd: Path | None = None,
    ) -> None:
        if isinstance(command, str) or not command:
            raise Misuse(
                f"command must be a list of the program and its arguments, got {typed(command)}",
                todo='write ["grep", "-c"]: there is no shell',
            )
        if os.name != "posix":
            raise Misuse("Subprocess needs process groups", why="this system has none", todo="use @app.task")
        check_types(command, (str, os.PathLike), "a string or a path")
        check_types(env_deny, str, "a pattern")
        check_type({} if env is None else env, Mapping, "env")
        check_type(cwd, (str, os.PathLike, type(None)), "cwd")
        for name, most in (("stdout_max", stdout_max), ("stderr_max", stderr_max)):
            check_int(most, name, 0)
        self._timeout_s = length_of(timeout, "timeout", MILLISECOND) / SECOND
        self._command, self._most = tuple(command), (stdout_max, stderr_max)
        self._own, self._deny, self._cwd = dict(env or {}), tuple(each.upper() for each in env_deny), cwd
        self._env: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        return f"<Subprocess {self._program}>"

    @property
    def _program(self) -> str:
        return os.fspath(self._command[0])

    async def start(self) -> None:
        """Look for the program.

        Raises:
            Misuse: It cannot be executed.
        """
        path, where = self._program, os.fspath(self._cwd or "")
        name = os.path.join(where, path) if os.path.dirname(path) else path  # noqa: PTH118, PTH120  Path drops "./"
        if shutil.which(name, path=self._base.get("PATH")) is None:
            raise Misuse(f"the program {path!r} cannot be executed", todo="install it, or write its path")

    async def run(self, task: Task) -> Result:
        """Run the program; see the laws of this module."""
        began = perf_counter()
        timeout_s = self._timeout_s if task.timeout is None else task.timeout.total_seconds()
        why: str | None
        try:
            stdin = task.stdin.encode() if isinstance(task.stdin, str) else task.stdin or b""
            launched = _launched([*self._command, *task.args], {**self._base, **task.env}, self._cwd, feeds=bool(stdin))
            child = _Child(launched, stdin, self._most, timeout_s)
        except Exception as error:  # noqa: BLE001  what a task has may not fit: no executable, too long, NUL, a wrong type
            why = f"{self._program} was not started: {_reason(error)}"
            return Result(task=task, kind=Kind.LAUNCH_FAILURE, error=why, seconds=perf_counter() - began)
        cancelled: asyncio.CancelledError | None = None
        while not child.ended.done():
            try:
                await asyncio.shield(child.ended)
            except asyncio.CancelledError as error:
                cancelled = error
                child.stop()
        if cancelled is not None:
            raise cancelled
        kind, why = self._judged(child, timeout_s)
        return Result(
            task=task,
            kind=kind,
            error=why,
            exit_code=child.exit_code,
            stdout=bytes(child.streams[0].kept),
            stderr=bytes(child.streams[1].kept),
            is_truncated=any(each.is_truncated for each in child.streams),
            seconds=perf_counter() - began,
        )

    async def stop(self) -> None:
        """Each `run` has released what it had."""

    @property
    def _base(self) -> Mapping[str, str]:
        """The variables for each task: those of this process are read once."""
        if self._env is None:
            inherited = {
                name: value
                for name, value in os.environ.items()
                if not any(fnmatchcase(name.upper(), pattern) for pattern in self._deny)
            }
            self._env = inherited | self._own
        return self._env

    def _judged(self, child: _Child, timeout_s: float) -> tuple[Kind, str | None]:
        code, name = child.exit_code, self._program
        if child.is_timed_out:
            return Kind.TIMEOUT, f"{name} was killed after its timeout of {timeout_s:g} s"
        if code == 0:
            return Kind.OK, None
        if code is None:
            return Kind.NONZERO_EXIT, f"the exit code of {name} is unknown: SIGCHLD is ignored, or other code reaped it"
        if code < 0:
            return Kind.NONZERO_EXIT, f"{name} was ended by signal {-code} ({signal.strsignal(-code)})"
        return Kind.NONZERO_EXIT, f"{name} ended with exit code {code}"


def _reason(error: Exception) -> str:
    """Why a program was not started, without what it was given: a UnicodeError shows that."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "an argument or stdin is not Unicode" if isinstance(error, UnicodeError) else str(error)


_Launched: TypeAlias = tuple["Popen[bytes]", Sequence[int]]
"""A process, and our ends of the pipes of stdout, stderr, and, if it is fed, stdin."""


def _launched(argv: Sequence[Path], env: Mapping[str, str], cwd: Path | None, *, feeds: bool) -> _Launched:
    """Start a program. The pipes are not Popen's, which may leak some where the next one fails (python/cpython#87474)."""
    ours: list[int] = []
    theirs: list[int] = []
    try:
        for mine in (0, 0, 1)[: 2 + feeds]:
            pipe = os.pipe()
            ours.append(pipe[mine])
            theirs.append(pipe[1 - mine])
            os.set_blocking(pipe[mine], False)
        stdin = theirs[2] if feeds else DEVNULL
        process = Popen(  # noqa: S603  the command is the developer's, and there is no shell
            argv, stdin=stdin, stdout=theirs[0], stderr=theirs[1], env=env, cwd=cwd, start_new_session=True
        )
    except BaseException:
        for fd in ours:
            os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    return process, ours


@final
class _Stream:
    """What a child writes into a pipe, up to a limit (EX4)."""

    __slots__ = ("_fd", "_most", "is_truncated", "kept")

    def __init__(self, fd: int, most: int) -> None:
        self._fd, self._most, self.kept, self.is_truncated = fd, most, bytearray(), False

    def read(self) -> bool:
        """Read what is there; whether that was the end."""
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        room = self._most - len(self.kept)
        self.kept += data[:room]
        self.is_truncated |= len(data) > room
        return not data


@final
class _Child:
    """A child process until its end.

        started -> exited        its pipes are read to the end, for at most `_LINGER_S`
        started -> terminated    at the timeout, or by `stop`
        terminated -> killed     after `_TERM_S`, or by a second `stop`
        killed -> abandoned      after `_KILL_S`

    Attributes:
        ended: Done when nothing of it is left, or it is abandoned.
        exit_code: None while it runs, and where it is unknown.
        streams: Its stdout and stderr.
        is_timed_out: Whether it was stopped at its timeout.
    """

    def __init__(self, launched: _Launched, stdin: bytes, most: tuple[int, int], timeout_s: float) -> None:
        self._process, fds = launched
        self._loop = asyncio.get_running_loop()
        self._fds = {*fds}
        self._timer: asyncio.TimerHandle | None = None
        self._next_signal: signal.Signals | None = signal.SIGTERM
        self._has_exited, self._is_reaped = False, False
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.exit_code: int | None = None
        self.is_timed_out = False
        self.streams = (_Stream(fds[0], most[0]), _Stream(fds[1], most[1]))
        self._reading = {*fds[:2]}
        try:
            for fd, stream in zip(fds, self.streams, strict=False):
                self._loop.add_reader(fd, self._read, fd, stream)
            if stdin:
                self._write(fds[2], memoryview(stdin))
            self._after(timeout_s, self._expire)
            self._watch()
        except BaseException:
            self._signal(signal.SIGKILL)
            _ = self._process.wait()
            self._settle()
            raise

    def stop(self) -> None:
        """End it by SIGTERM, and by SIGKILL if called again."""
        if self._has_exited:
            self._settle()
        elif self._next_signal is signal.SIGTERM:
            self._next_signal = signal.SIGKILL
            self._signal(signal.SIGTERM)
            self._after(_TERM_S, self.stop)
        elif self._next_signal is signal.SIGKILL:
            self._next_signal = None
            self._signal(signal.SIGKILL)
            self._after(_KILL_S, self._abandon)

    # --- callbacks --------------------------------------------------------------------------------

    def _read(self, fd: int, stream: _Stream) -> None:
        if stream.read():
            self._close(fd)
            self._reading.discard(fd)
            if self._has_exited and not self._reading:
                self._settle()

    def _write(self, fd: int, left: memoryview) -> None:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:  # it may refuse its input
            left = left[:0]
        self._loop.remove_writer(fd)
        if left:
            self._loop.add_writer(fd, self._write, fd, left)
        else:
            self._close(fd)

    def _watch(self) -> None:
        try:
            fd = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):
            self._poll()
            return
        self._fds.add(fd)
        self._loop.add_reader(fd, self._exit)

    def _poll(self) -> None:
        self._reap()
        if self._is_reaped:
            self._exit()
        else:
            self._loop.call_later(_POLL_S, self._poll)

    def _exit(self) -> None:
        """It has ended. What it wrote is in the pipes, and each is read before a timer that begins now fires."""
        self._has_exited = True
        for fd in self._fds - self._reading:
            self._close(fd)
        if self._reading:
            self._after(_LINGER_S, self._settle)
        else:
            self._settle()

    def _expire(self) -> None:
        self.is_timed_out = True
        self.stop()

    def _settle(self) -> None:
        """Kill the rest of the group BEFORE the child is reaped, and release everything (EX2)."""
        self._signal(signal.SIGKILL)
        self._reap()
        self._release()

    def _abandon(self) -> None:
        say(logging.ERROR, "process %s hangs: it has not ended %s s after SIGKILL", self._process.pid, _KILL_S)
        for fd in self._reading:
            self._close(fd)
        self._reading.clear()
        self.ended.set_result(None)  # _exit follows at its end

    # --- parts ------------------------------------------------------------------------------------

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # all have ended; it is another user's
            os.killpg(self._process.pid, number)

    def _reap(self) -> None:
        if self._is_reaped:
            return
        try:
            pid, status = os.waitpid(self._process.pid, os.WNOHANG)
        except ChildProcessError:  # Popen would report success
            pid, status = self._process.pid, None
        if pid:
            self._is_reaped = True
            self.exit_code = None if status is None else os.waitstatus_to_exitcode(status)
            self._process.returncode = self.exit_code or 0  # Popen has nothing to do any more

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for fd in [*self._fds]:
            self._close(fd)
        if not self.ended.done():
            self.ended.set_result(None)

    def _after(self, delay_s: float, code: Callable[[], None]) -> None:
        """Have one timer, this one."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, code)

    def _close(self, fd: int) -> None:
        if fd in self._fds:
            self._fds.discard(fd)
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)
            os.close(fd)
