"""A cache for hooks and tasks: bounded, with a time to live, and kept in a file if wanted.

    cache = Cache(ttl=timedelta(minutes=5), file="owners.sqlite")
    owner = await cache.get("user-7", load)      # `load` is called once, however many callers wait

A None is kept, too. All entries are in memory; the file, one for each process, keeps them for the
next start. Expiry is by the wall clock.

Laws
    CA1  A key has the value last set or loaded, for its time to live.
    CA2  There are at most `entries` entries and `size` bytes; the least recently used go first.
    CA3  Concurrent `get`s of a key share one load. If it raises, each gets the error; none is kept.
    CA4  A cancelled caller does not end the load of others; without callers it is cancelled.
    CA5  A value whose load began before a `set` or `delete` of its key is not kept.
    CA6  All methods but `get` may be called from any thread.
    CA7  The next cache with the file has its entries. If it fails, the cache goes on in memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from threading import RLock
from time import time
from typing import Any, Final, NamedTuple, final

from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND
from tidegate.model.values import check_int, check_name
from tidegate_adapters.base.decorators import length_of
from tidegate_adapters.base.safe_log import Lines

_say: Final = Lines(logging.getLogger("tidegate_adapters.pipeline"))
_MISSING: Final = object()


class _Entry(NamedTuple):
    value: Any
    expires: float
    size: int


class _Load:
    loop: asyncio.AbstractEventLoop
    task: asyncio.Task[Any]
    waiters = 0


@final
class Cache:
    """A cache by text keys. Callers share the values: do not change them.

    Args:
        ttl: How long a value is kept.
        negative_ttl: How long a None is kept; as long as others by default.
        entries: The most entries.
        size: The most bytes of keys and values as JSON; None for any.
        file: An SQLite file, for values that JSON can hold.
    """

    def __init__(
        self,
        *,
        ttl: timedelta,
        negative_ttl: timedelta | None = None,
        entries: int = 10_000,
        size: int | None = None,
        file: str | os.PathLike[str] | None = None,
    ) -> None:
        check_int(entries, "entries", 1)
        check_int(1 if size is None else size, "size", 1)
        self._ttl_s = length_of(ttl, "ttl", MILLISECOND) / SECOND
        self._negative_s = length_of(negative_ttl or ttl, "negative_ttl", MILLISECOND) / SECOND
        self._lock, self._most, self._size_max, self._size = RLock(), entries, size, 0
        self._entries, self._loads = OrderedDict[str, _Entry](), dict[str, _Load]()
        self._file: sqlite3.Connection | None = None
        rows: list[tuple[str, str, float]] = []
        if file is not None:
            self._file, rows = _opened(file)
        for key, text, expires in rows:
            self._put(key, _Entry(json.loads(text), expires, len(key) + len(text)))

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, key: str, load: Callable[[str], Awaitable[Any]]) -> Any:
        """The value of the key; if there is none, what `load` returns for it."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if (found := self.peek(key, _MISSING)) is not _MISSING:
                return found
            loading = self._loads.get(key)
            if loading is None or loading.loop is not loop:
                loading = self._loads[key] = _Load()
                loading.loop, loading.task = loop, loop.create_task(self._loaded(key, load, loading))
            loading.waiters += 1
        try:
            return await asyncio.shield(loading.task)
        finally:
            loading.waiters -= 1
            if not loading.waiters and loading.task.cancel():
                self._end(key, loading)  # the next caller needs another one

    async def _loaded(self, key: str, load: Callable[[str], Awaitable[Any]], loading: _Load) -> Any:
        try:
            value = await load(key)
            with self._lock:
                if self._loads.get(key) is loading:
                    self.set(key, value)
            return value
        finally:
            self._end(key, loading)

    def _end(self, key: str, loading: _Load) -> None:
        with self._lock:
            if self._loads.get(key) is loading:
                del self._loads[key]

    def peek(self, key: str, default: Any = None) -> Any:
        """The value of the key, or the default."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.expires <= time():
                return default
            self._entries.move_to_end(key)
            return entry.value

    def set(self, key: str, value: object) -> None:
        """Keep a value."""
        check_name(key, "an entry")
        text = "" if self._file is None and self._size_max is None else json.dumps(value)
        with self._lock:
            self.delete(key)
            expires = time() + (self._negative_s if value is None else self._ttl_s)
            self._write("INSERT INTO entries VALUES (?, ?, ?)", key, text, expires)
            self._put(key, _Entry(value, expires, len(key) + len(text)))

    def delete(self, key: str) -> None:
        """Drop the entry of the key, if there is one."""
        with self._lock:
            self._loads.pop(key, None)
            if (entry := self._entries.pop(key, None)) is not None:
                self._size -= entry.size
                self._write("DELETE FROM entries WHERE key = ?", key)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                file.close()

    def _put(self, key: str, entry: _Entry) -> None:
        self._entries[key] = entry
        self._size += entry.size
        while len(self._entries) > self._most or (self._size_max is not None and self._size > self._size_max):
            self.delete(next(iter(self._entries)))

    def _write(self, statement: str, *values: object) -> None:
        try:
            _ = None if self._file is None else self._file.execute(statement, values)
        except sqlite3.Error as error:
            _say(logging.ERROR, "the file of a cache is given up: %s", error)
            self.close()


def _opened(file: str | os.PathLike[str]) -> tuple[sqlite3.Connection, list[tuple[str, str, float]]]:
    """The file and its entries. It outlives a killed process, but perhaps not a loss of power."""
    try:
        found = sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)
        for each in ("PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=WAL", "PRAGMA synchronous=OFF"):
            found.execute(each)
        found.execute("CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value TEXT, expires REAL)")
        rows = found.execute("SELECT key, value, expires FROM entries ORDER BY expires, rowid").fetchall()
    except sqlite3.Error as error:
        what, todo = (
            f"the file of a cache cannot be opened: {os.fspath(file)}",
            "give each process a writable file of its own",
        )
        raise Misuse(what, why=str(error), todo=todo) from error
    return found, rows
