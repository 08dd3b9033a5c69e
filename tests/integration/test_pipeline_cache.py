"""The cache of a pipeline against a plain twin, its loads, its file, and planted bugs."""

# ruff: noqa: SLF001  bugs are planted in private functions

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.integration.planting import Bug, planted

from tidegate.model.errors import Misuse
from tidegate_adapters.pipeline import cache as cache_module
from tidegate_adapters.pipeline.cache import Cache

SECOND = timedelta(seconds=1)
OPERATIONS = st.lists(
    st.tuples(st.just("set"), st.sampled_from("abc"), st.none() | st.text("xyz", max_size=4))
    | st.tuples(st.sampled_from(["peek", "delete"]), st.sampled_from("abc"), st.none())
    | st.tuples(st.just("wait"), st.just(""), st.integers(1, 3))
    | st.tuples(st.just("restart"), st.just(""), st.none()),
    max_size=20,
)


class Twin:
    """The same by a list of entries, the least recently used first."""

    def __init__(self, most: int, size: int | None) -> None:
        self.most, self.size, self.now = most, size, 0.0
        self.kept: list[tuple[str, object, tuple[float, int]]] = []
        self.sets = 0

    def set(self, key: str, value: object) -> None:
        self.delete(key)
        self.sets += 1
        self.kept.append((key, value, (self.now + (1.0 if value is None else 2.0), self.sets)))
        while len(self.kept) > self.most or (self.size is not None and self._bytes() > self.size):
            del self.kept[0]

    def _bytes(self) -> int:
        return sum(len(key) + (4 if value is None else len(str(value)) + 2) for key, value, _ in self.kept)

    def delete(self, key: str) -> None:
        self.kept = [each for each in self.kept if each[0] != key]

    def peek(self, key: str) -> object:
        for each in self.kept:
            if each[0] == key and each[2][0] > self.now:
                self.kept.remove(each)
                self.kept.append(each)
                return each[1]
        return "missing"


def agrees(operations: list[tuple[str, str, object]], most: int, size: int | None, file: Path | None) -> None:
    twin = Twin(most, size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache_module, "time", lambda: twin.now)
        made = partial(Cache, ttl=2 * SECOND, negative_ttl=SECOND, entries=most, size=size, file=file)
        cache = made()
        for what, key, value in operations:
            match what:
                case "set":
                    cache.set(key, value)
                    twin.set(key, value)
                case "peek":
                    assert cache.peek(key, "missing") == twin.peek(key)
                case "delete":
                    cache.delete(key)
                    twin.delete(key)
                case "wait":
                    twin.now += int(str(value))
                case _ if file is not None:
                    cache.close()
                    cache = made()
                    twin.kept.sort(key=lambda each: each[2])
                case _:
                    pass
            assert len(cache) == len(twin.kept)
        cache.close()


SET_A, SET_B, PEEK_A = ("set", "a", "x"), ("set", "b", "y"), ("peek", "a", None)


@example([SET_A, ("wait", "", 2), PEEK_A], 2, None)
@example([("set", "a", None), ("wait", "", 1), PEEK_A], 2, None)
@example([SET_A, SET_B, PEEK_A, ("set", "c", "z"), PEEK_A], 2, None)
@example([SET_A, SET_A, PEEK_A, SET_B, PEEK_A], 2, 8)
@given(OPERATIONS, st.integers(1, 3), st.none() | st.integers(3, 12))
def test_a_cache_agrees_with_a_plain_twin(
    operations: list[tuple[str, str, object]], most: int, size: int | None
) -> None:
    """Laws CA1 and CA2."""
    agrees(operations, most, size, None)


def test_a_cache_with_a_file_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Law CA7."""
    names = iter(range(10_000))

    @example([SET_A, ("restart", "", None), PEEK_A], 2)
    @example([SET_A, ("delete", "a", None), ("restart", "", None), PEEK_A], 2)
    @given(OPERATIONS, st.integers(1, 3))
    def law(operations: list[tuple[str, str, object]], most: int) -> None:
        agrees(operations, most, None, tmp_path / f"{next(names)}.sqlite")

    law()


class Source:
    """Something slow to load from."""

    def __init__(self) -> None:
        self.loads, self.ended, self.goes_on = 0, 0, asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, key: str) -> str:
        self.loads += 1
        try:
            await self.goes_on.wait()
        finally:
            self.ended += 1
            for _ in range(5):  # it takes its time to end
                await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return f"{key} {self.loads}"


async def waiting(cache: Cache, source: Source, count: int) -> list[asyncio.Task[object]]:
    tasks = [asyncio.ensure_future(cache.get("a", source)) for _ in range(count)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


def test_callers_share_a_load() -> None:
    """Law CA3."""

    async def run() -> None:
        cache, source = Cache(ttl=SECOND), Source()
        tasks = await waiting(cache, source, 3)
        source.goes_on.set()
        assert await asyncio.gather(*tasks) == ["a 1"] * 3
        assert await cache.get("a", source) == "a 1"
        assert source.loads == 1

    asyncio.run(run())


def test_callers_share_an_error_and_nothing_is_kept() -> None:
    """Law CA3."""

    async def run() -> None:
        cache, source = Cache(ttl=SECOND), Source()
        source.error = OSError("gone")
        tasks = await waiting(cache, source, 2)
        source.goes_on.set()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert errors == [source.error] * 2
        source.error = None
        again = (await asyncio.gather(cache.get("a", source), return_exceptions=True))[0]
        assert again == "a 2"

    asyncio.run(run())


def test_a_cancelled_caller_ends_no_load_of_others() -> None:
    """Law CA4."""

    async def run() -> None:
        cache, source = Cache(ttl=SECOND), Source()
        first, second = await waiting(cache, source, 2)
        first.cancel()
        await asyncio.wait([first])
        source.goes_on.set()
        assert not second.cancelled()
        await asyncio.wait([second])
        assert not second.cancelled()
        assert second.result() == "a 1"

    asyncio.run(run())


def test_a_load_ends_once_nobody_waits_and_the_next_caller_loads_again() -> None:
    """Law CA4."""

    async def run() -> None:
        cache, source = Cache(ttl=SECOND), Source()
        (only,) = await waiting(cache, source, 1)
        only.cancel()
        await asyncio.wait([only])
        source.goes_on.set()
        found = (await asyncio.gather(cache.get("a", source), return_exceptions=True))[0]
        assert found == "a 2"
        assert source.ended == 2

    asyncio.run(run())


@pytest.mark.parametrize("changes", [lambda cache: cache.set("a", "new"), lambda cache: cache.delete("a")])
def test_an_old_load_replaces_no_newer_change(changes: Callable[[Cache], None]) -> None:
    """Law CA5."""

    async def run() -> None:
        cache, source = Cache(ttl=SECOND), Source()
        (first,) = await waiting(cache, source, 1)
        changes(cache)
        was = cache.peek("a")
        source.goes_on.set()
        assert await first == "a 1"
        assert cache.peek("a") == was

    asyncio.run(run())


def test_threads_share_a_cache() -> None:
    """Law CA6."""
    cache, errors = Cache(ttl=SECOND, entries=3, size=40), list[BaseException]()

    def work() -> None:
        try:
            for number in range(2_000):
                cache.set(f"{number % 7}", number)
                cache.peek(f"{number % 5}")
                cache.delete(f"{number % 3}")
        except BaseException as error:  # noqa: BLE001  for the assertion
            errors.append(error)

    threads = [Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors
    for key in range(7):
        cache.delete(f"{key}")
    assert len(cache) == 0
    cache.set("fits", "x" * 30)
    assert cache.peek("fits") == "x" * 30


def test_a_file_has_one_owner(tmp_path: Path) -> None:
    cache = Cache(ttl=SECOND, file=tmp_path / "one.sqlite")
    with pytest.raises(Misuse, match=r"(?s)cannot be opened.*a writable file of its own"):
        Cache(ttl=SECOND, file=tmp_path / "one.sqlite")
    cache.close()


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.sqlite").write_text("no database, but a text of some length" * 100)
    with pytest.raises(Misuse, match="cannot be opened"):
        Cache(ttl=SECOND, file=tmp_path / "one.sqlite")


def test_a_cache_goes_on_without_its_file(tmp_path: Path) -> None:
    """Law CA7."""
    cache = Cache(ttl=SECOND, file=tmp_path / "one.sqlite")
    assert cache._file is not None
    cache._file.execute("DROP TABLE entries")
    cache.set("a", 1)
    assert cache.peek("a") == 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ttl": timedelta(0)}, "ttl"),
        ({"ttl": 5}, "ttl"),
        ({"ttl": SECOND, "entries": 0}, "entries must be an integer from 1"),
        ({"ttl": SECOND, "size": 0}, "size must be an integer from 1"),
        ({"ttl": SECOND, "file": "/nowhere/at/all.sqlite"}, "cannot be opened"),
    ],
)
def test_wrong_arguments_are_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(Misuse, match=says):
        Cache(**wrong)  # type: ignore[arg-type]  # that is the test


twin = test_a_cache_agrees_with_a_plain_twin
BUGS = {
    "an expired entry is found": (Bug(Cache.peek, "entry.expires <= time()", "False"), twin),
    "an entry lasts a moment longer": (Bug(Cache.peek, "<= time()", "< time()"), twin),
    "a None lasts as long as others": (Bug(Cache.set, "self._negative_s if value is None else ", ""), twin),
    "one entry too many": (Bug(Cache._put, "len(self._entries) > self._most", "len(self._entries) > self._most + 1"), twin),
    "bytes are not bounded": (Bug(Cache._put, "self._size > self._size_max", "False"), twin),
    "bytes of dropped entries count": (Bug(Cache.delete, "self._size -= entry.size", "pass"), twin),
    "a use does not count": (Bug(Cache.peek, "self._entries.move_to_end(key)", "pass"), twin),
    "each caller loads": (Bug(Cache.get, "loading is None or loading.loop is not loop", "True"), test_callers_share_a_load),
    "a loaded value is not kept": (Bug(Cache._loaded, "self.set(key, value)", "pass"), test_callers_share_a_load),
    "a failed load stays": (Bug(Cache._end, "del self._loads[key]", "pass"), test_callers_share_an_error_and_nothing_is_kept),
    "a caller's end is the load's": (Bug(Cache.get, "not loading.waiters and ", ""), test_a_cancelled_caller_ends_no_load_of_others),
    "a load is not shielded": (Bug(Cache.get, "asyncio.shield(loading.task)", "loading.task"), test_a_cancelled_caller_ends_no_load_of_others),
    "a load goes on for nobody": (Bug(Cache.get, "loading.task.cancel()", "False"), test_a_load_ends_once_nobody_waits_and_the_next_caller_loads_again),
    "a caller joins a cancelled load": (Bug(Cache.get, "self._end(key, loading)", "pass"), test_a_load_ends_once_nobody_waits_and_the_next_caller_loads_again),
    "an old load wins": (Bug(Cache._loaded, "self._loads.get(key) is loading", "True"), partial(test_an_old_load_replaces_no_newer_change, lambda cache: cache.delete("a"))),
    "a set is no change": (Bug(Cache.delete, "self._loads.pop(key, None)", "pass"), partial(test_an_old_load_replaces_no_newer_change, lambda cache: cache.set("a", "new"))),
}  # fmt: skip
FILE_BUGS = {
    "nothing is written": Bug(Cache._write, "None if self._file is None else self._file.execute(statement, values)", "None"),
    "a dropped entry stays in the file": Bug(Cache.delete, 'self._write("DELETE FROM entries WHERE key = ?", key)', "pass"),
}  # fmt: skip


@pytest.mark.parametrize(("bug", "law"), BUGS.values(), ids=BUGS)
def test_a_planted_bug_is_found(bug: Bug, law: Callable[[], None]) -> None:
    with planted(bug), pytest.raises((AssertionError, StopIteration)):  # it looks for an entry that is not there
        law()


@pytest.mark.parametrize("bug", FILE_BUGS.values(), ids=FILE_BUGS)
def test_a_planted_bug_of_the_file_is_found(bug: Bug, tmp_path: Path) -> None:
    with planted(bug), pytest.raises(AssertionError):
        test_a_cache_with_a_file_goes_on_after_a_restart(tmp_path)
