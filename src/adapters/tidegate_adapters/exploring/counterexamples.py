"""Counterexamples as files: text, JSON for replays, and a page.

    .tidegate/failures/array_push_lock.late.txt, .json, .html

Writes are atomic. The first file creates the directory; one of ours gets a `.gitignore` of
everything. Files are hostile when read: sizes are bounded, and any misfit is one clear error.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import EISDIR
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.sim.trace.rendering import render
from tidegate.sim.trace.trace import Trace
from tidegate.sim.trace.trace_json import decoded, encoded
from tidegate_adapters.base.redaction import clean
from tidegate_adapters.page.assembly import page

if TYPE_CHECKING:
    from tidegate_adapters.exploring.targets import (
        Target,  # imports all that ships
    )

_TRACE_BYTES_MAX: Final = 64 * 1024 * 1024
_STEM_MAX: Final = 80
_EMBEDDED: Final = re.compile(r"<script\b[^>]*\btype=\"application/json\"[^>]*>(.*?)</script>", re.DOTALL)


@final
@attrs.frozen
class Store:
    """A directory for counterexamples."""

    directory: Path

    def check(self) -> None:
        try:
            there = next(path for path in (self.directory, *self.directory.absolute().parents) if path.exists())
            with tempfile.TemporaryFile(dir=there):
                pass
        except OSError as error:
            raise _unwritable(self.directory, error) from error

    def save(self, target: Target, trace: Trace, what: str = "") -> Path:
        """Write the counterexample in all three forms, and return the path of the JSON file; `what`
        distinguishes several.
        """
        kept = trace if target.is_shipped else attrs.evolve(trace, scenario=target.identity)
        return self.keep(f"{_stem(target)}.{what}" if what else _stem(target), kept, replay_line)

    def keep(self, name: str, trace: Trace, replayed_by: Callable[[Path], str]) -> Path:
        """Write a trace in all three forms under a name, and return the path of the JSON file;
        `replayed_by` is the replay command.
        """
        path = self.directory / f"{name}.json"
        try:
            self.make()
            command = replayed_by(path)
            _write(path.with_name(f"{name}.txt"), f"{clean(render(trace))}\nreplay: {clean(command)}\n")
            _write(path, json.dumps(encoded(trace), indent=1, allow_nan=False) + "\n")
            also = "" if command == replay_line(path) else command
            _write(path.with_name(f"{name}.html"), page(trace, str(path), also))
        except OSError as error:
            raise _unwritable(self.directory, error) from error
        return path

    def make(self) -> None:
        if not self.directory.exists():
            self.directory.mkdir(parents=True)
            _write(self.directory / ".gitignore", "*\n")


def replay_line(path: Path) -> str:
    return f"tidegate replay {shlex.quote(str(path))}"


def _stem(target: Target) -> str:
    """A user's scenario may have any name, so a digest makes the file name unique."""
    if target.is_shipped:
        return target.identity
    return named_apart(target.scenario.name, target.identity)


def named_apart(name: str, identity: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:_STEM_MAX]
    return f"{plain or 'scenario'}-{sha256(identity.encode(errors='surrogatepass')).hexdigest()[:8]}"


def _write(path: Path, text: str) -> None:
    _write_bytes(path, text.encode())


def _write_bytes(path: Path, data: bytes) -> None:
    aside = path.with_name(f".{path.name}.{token_hex(4)}.tmp")
    try:
        aside.write_bytes(data)
        aside.replace(path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise


def save(path: Path, text: str) -> None:
    """Write a file, compressed if its name says so; deterministic.

    Raises:
        Misuse: It cannot be written.
    """
    data = text.encode()
    try:
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))  # "." and "/" have no name
        _write_bytes(path, gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data)
    except OSError as error:
        raise Misuse(f"cannot write {path}", why=error.strerror or str(error)) from error


def _unwritable(directory: Path, error: OSError) -> Misuse:
    return Misuse(
        f"cannot write to {directory}",
        why=error.strerror or str(error),
        todo="choose another directory with --out, or store nothing with --no-store",
    )


# --- reading --------------------------------------------------------------------------------------


def read(path: Path) -> Trace:
    """Read the trace of a JSON file or a page.

    Raises:
        Misuse: It holds no trace that this version can read.
    """
    return trace_in(path, bytes_of(path))


def trace_in(path: Path, data: bytes) -> Trace:
    try:
        return decoded(_found_in(data.decode()))
    except Misuse as error:
        error.where = error.where or str(path)
        raise
    except (ValueError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise Misuse("this is not a trace, or a damaged one", where=str(path), why=why, todo=_TRACES) from error


def bytes_of(path: Path) -> bytes:
    try:
        is_there, is_file = path.exists(), path.is_file()
        with path.open("rb") if is_file else BytesIO() as file:
            data = file.read(_TRACE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise Misuse(f"cannot read {path}", why=str(error)) from error
    if not is_file:
        raise Misuse(f"{path} is not a file" if is_there else f"there is no file {path}", todo=_TRACES)
    if data.startswith(_GZIP):
        data = _unpacked(path, data)
    if len(data) > _TRACE_BYTES_MAX:
        raise Misuse(f"{path} is larger than {_TRACE_BYTES_MAX >> 20} MiB", why="no trace is that large", todo=_TRACES)
    return data


def _unpacked(path: Path, data: bytes) -> bytes:
    """A small file may hold any number of zeros, so decompression is bounded."""
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        found = unpacking.decompress(data, _TRACE_BYTES_MAX + 1)
    except zlib.error as error:
        raise Misuse(f"{path} is compressed, and damaged", why=str(error), todo=_TRACES) from error
    if not unpacking.eof and len(found) <= _TRACE_BYTES_MAX:
        raise Misuse(f"{path} is compressed, and damaged", why="it ends before its end", todo=_TRACES)
    return found


_GZIP: Final = b"\x1f\x8b"
_TRACES: Final = "traces are the .json and .html files that tidegate explore writes, also compressed (.json.gz)"


def _found_in(text: str) -> object:
    if not text.lstrip().startswith("<"):
        return json.loads(text)
    return next(_embedded(text), None)


def _embedded(page: str) -> Iterator[object]:
    for match in _EMBEDDED.finditer(page):
        found = json.loads(match[1])
        if isinstance(found, dict) and "schema" in found:
            yield found
