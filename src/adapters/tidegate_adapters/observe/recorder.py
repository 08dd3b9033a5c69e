"""Records production runs for `tidegate replay RECORDING TARGET`.

A recorder wraps the handle that executes the effects of a run, or a worker calls it with each event
and the resulting commands. It flushes each line (`tidegate.sim.program.recording`), so after a kill only
the last one may be incomplete.

    with Recorder(path, "transition", arguments) as recorder:
        answer = run(transition(*arguments), recorder.recorded(handle))

    with Recorder(path, "orders", kind="reducer") as recorder:
        await Worker(topics, handle, ..., record=recorder.stepped).run()

Apparent secrets never reach the file: text and bytes under a name such as `password`, `token` or
`api_key`, numbers under a name such as `password`, and text with the user part of a URI or
`secret=...`. Positional arguments of a `Call` have no name, so their text and bytes are never
written. The caller's `is_secret` hides more; the reply to a `Call` has its name. The file has a
label instead, equal for equal values within a recording, and unguessable, because its key is never
written.

A recorder never fails a run: after an error it logs once and stops. It logs only the type of an
exception from the caller's code, whose message may hold the secret.

Known not to work: a secret without a telling name or form, for example in the reply to a harmless
call; use `is_secret`.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
import threading
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from secrets import token_bytes
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias, final

from tidegate.model.effects import Effect, Failure
from tidegate.model.errors import Misuse
from tidegate.sim.program import recording
from tidegate.sim.program.tagged import FieldPath
from tidegate_adapters.base.redaction import is_secret_name, may_be_redacted, redacted
from tidegate_adapters.runtime.driver import AsyncHandle, Handle

log: Final = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

IsSecret: TypeAlias = Callable[[FieldPath, object], bool]
"""Whether to hide a value, by the names that lead to it, outermost first."""

_SECRET_TEXT: Final = re.compile(r"(?i)token")
"""Names that hide text, but not numbers: a fencing token is one."""
_BY_POSITION: Final = ("arguments", "")
_LABEL_LENGTH: Final = 12


def _nothing_more(path: FieldPath, value: object) -> bool:  # noqa: ARG001  hides nothing more
    return False


@lru_cache(1024)
def _is_secret_path(path: FieldPath) -> bool:
    return any(map(is_secret_name, path))


@lru_cache(1024)
def _is_of_secret_text(path: FieldPath) -> bool:
    return path[-2:] == _BY_POSITION or any(map(_SECRET_TEXT.search, path))


def _looks_secret(path: FieldPath, value: object) -> bool:
    """Judges by the names, by the lack of one, and by the text."""
    if _is_secret_path(path):
        return True
    if not isinstance(value, str | bytes):
        return False
    text = value if isinstance(value, str) else value.decode(errors="replace")
    return _is_of_secret_text(path) or redacted(text) != text


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@final
class Recorder:
    """Records one run into a new file, readable only by its owner.

    Args:
        program: The name of the program, for readers.
        arguments: The run's arguments, written as a digest.
        is_secret: Hides more values.

    Raises:
        Misuse: The file exists, or cannot be created.
    """

    def __init__(
        self,
        path: Path | str,
        program: str,
        arguments: tuple[object, ...] = (),
        *,
        kind: Literal["program", "reducer"] = "program",
        is_secret: IsSecret = _nothing_more,
    ) -> None:
        self.path = Path(path)
        self._key, self._is_secret = token_bytes(), is_secret
        self._lock, self._count, self._fails = threading.Lock(), 0, False
        try:
            self._file = open(path, "x", encoding="utf-8", newline="\n", opener=_for_its_owner)  # noqa: SIM115  open for the whole run
        except OSError as error:
            raise Misuse(f"cannot record into {path}", why=error.strerror or str(error)) from error
        self._write(lambda _: recording.header(program, kind, self._digest(arguments)))

    def recorded(self, handle: Handle) -> Handle:
        def carried_out(effect: Effect[object]) -> object:
            try:
                reply = handle(effect)
            except Failure as failure:
                self._replied(effect, failure)
                raise
            except BaseException as error:
                self._ended(effect, error)
                raise
            self._replied(effect, reply)
            return reply

        return carried_out

    def recorded_async(self, handle: AsyncHandle) -> AsyncHandle:
        async def awaited(effect: Effect[object], carried_out: Awaitable[object]) -> object:
            try:
                reply = await carried_out
            except Failure as failure:
                self._replied(effect, failure)
                raise
            except BaseException as error:
                self._ended(effect, error)
                raise
            self._replied(effect, reply)
            return reply

        return lambda effect: awaited(effect, handle(effect))

    def stepped(self, event: object, commands: Iterable[Effect[object]]) -> None:
        made = tuple(commands)
        self._write_next(lambda number: recording.handled(number, event, made, self._hide))

    def close(self) -> None:
        self._write(recording.last)
        self._shut()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._shut()

    def _replied(self, effect: Effect[object], reply: object) -> None:
        self._write_next(lambda number: recording.replied(number, effect, reply, self._hide))

    def _ended(self, effect: Effect[object], error: BaseException) -> None:
        self._write_next(lambda number: recording.ended(number, effect, error, self._hide))

    def _hide(self, path: FieldPath, value: object) -> str | None:
        if isinstance(value, tuple):
            return "one of them" if self._hides_any(path, value) else None
        if not _looks_secret(path, value) and not self._is_secret(path, value):
            return None
        return hmac.new(self._key, repr(value).encode(errors="replace"), sha256).hexdigest()[:_LABEL_LENGTH]

    def _hides_any(self, path: FieldPath, items: tuple[object, ...]) -> bool:
        if _is_secret_path(path):
            return True
        strings = () if isinstance(items[0], int) else [each for each in items if isinstance(each, bytes)]
        if strings and (_is_of_secret_text(path) or may_be_redacted(b" ".join(strings).decode(errors="replace"))):
            return True
        return self._is_secret is not _nothing_more and any(
            self._is_secret(path, each) for each in items if each is not None
        )

    def _digest(self, arguments: tuple[object, ...]) -> str:
        return sha256(recording.digest_of(arguments, self._without_label).encode(errors="replace")).hexdigest()

    def _without_label(self, path: FieldPath, value: object) -> str | None:
        """The digest must neither depend on the key nor allow guessing a secret."""
        return None if self._hide(path, value) is None else ""

    def _write_next(self, line: Callable[[int], str]) -> None:
        with self._lock:
            self._count += 1
            self._put(line)

    def _write(self, line: Callable[[int], str]) -> None:
        with self._lock:
            self._put(line)

    def _shut(self) -> None:
        try:
            self._file.close()
        except OSError as error:  # writes the failed rest
            self._stop(error)

    def _put(self, line: Callable[[int], str]) -> None:
        if self._fails:
            return
        try:
            self._file.write(line(self._count))
            self._file.flush()
        except Exception as error:  # noqa: BLE001  includes the caller's code; the run matters more
            self._stop(error)

    def _stop(self, error: Exception) -> None:
        if not self._fails:
            log.warning("recording stops: %s", error if isinstance(error, OSError | Misuse) else type(error).__name__)
        self._fails = True
