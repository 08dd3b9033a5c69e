"""The deterministic event loop (`tidegate_adapters.testing.event_loop`) and its fixture."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidegate.model.errors import Misuse
from tidegate_adapters.testing.event_loop import EPOCH_S, Deadlock, Endless, Unhandled, run, stall

SEEDS = 50
Main = Callable[[Random], Coroutine[Any, Any, Any]]


async def course(random: Random) -> list[object]:
    said: list[object] = []
    lock, queue, loop = asyncio.Lock(), asyncio.Queue[int](2), asyncio.get_running_loop()

    async def works(number: int) -> None:
        await asyncio.sleep(random.choice([0, 0.5, 1]))
        async with lock:
            said.append((number, loop.time()))
            await queue.put(number)
        said.append(await loop.run_in_executor(None, str, number))

    async def takes() -> None:
        while True:
            said.append(await queue.get())

    taker = asyncio.create_task(takes())
    done, _ = await asyncio.wait([asyncio.create_task(works(number), name=str(number)) for number in range(6)])
    said.extend(each.get_name() for each in done)
    taker.cancel()
    return said


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    """Law L1, including the order of a set of tasks."""
    assert run(course, seed) == run(course, seed)


def test_another_process_runs_the_same() -> None:
    """Law L1: under other addresses and hash seeds."""
    script = "import sys\nfrom test_testing import course\nfrom tidegate_adapters.testing.event_loop import run\nprint(run(course, 7))"

    def printed(hash_seed: str) -> str:
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        environment = os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert printed("1") == printed("2") == f"{run(course, 7)}\n"


def test_what_code_draws_is_the_seeds() -> None:
    """Law L1; the state of `random` is restored."""

    async def draws(_: Random) -> list[float]:
        return [random.random(), random.randint(0, 10**9)]

    random.seed(1)
    before = random.getstate()
    first = run(draws, 7)
    assert random.getstate() == before
    random.seed(2)
    assert run(draws, 7) == first != run(draws, 8)


def test_seeds_differ() -> None:
    """Law L3: with six tasks, hardly two of fifty seeds give the same run."""
    assert len({str(run(course, seed)) for seed in range(SEEDS)}) > SEEDS * 0.9


def orders(begin: Callable[[Callable[[int], None]], object]) -> set[tuple[int, ...]]:
    async def main(_: Random) -> tuple[int, ...]:
        said: list[int] = []
        begin(said.append)
        await asyncio.sleep(10)
        return tuple(said)

    return {run(main, seed) for seed in range(SEEDS)}


def test_tasks_go_in_any_order() -> None:
    """Law L3."""

    async def says(number: int, say: Callable[[int], None]) -> None:
        say(number)

    kept: list[object] = []
    assert len(orders(lambda say: kept.extend(asyncio.create_task(says(n, say)) for n in range(3)))) == 6


def test_plain_callbacks_keep_their_order() -> None:
    """Law L3: asyncio documents it."""
    assert orders(lambda say: [asyncio.get_running_loop().call_soon(say, n) for n in range(3)]) == {(0, 1, 2)}


def test_timers_of_one_instant_have_no_order() -> None:
    """Law L3: asyncio documents it."""
    assert len(orders(lambda say: [asyncio.get_running_loop().call_later(1, say, n) for n in range(3)])) == 6


def test_timers_go_by_their_instants() -> None:
    """Law L2."""
    assert orders(lambda say: [asyncio.get_running_loop().call_later(3 - n, say, n) for n in range(3)]) == {(2, 1, 0)}


def test_time_stands_while_something_is_ready_and_passes_when_the_loop_stalls() -> None:
    """Law L2: a due timer waits for the turn to end."""

    async def main(_: Random) -> tuple[float, float, float]:
        loop = asyncio.get_running_loop()
        for _turn in range(100):
            await asyncio.sleep(0)
        before = loop.time()
        stall(timedelta(seconds=2.5))
        after = loop.time()
        await asyncio.sleep(1)
        return before, after, loop.time()

    assert run(main, 0) == (0, 2.5, 3.5)


def test_a_timeout_takes_no_time() -> None:
    async def main(_: Random) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run(main, 0) == 3600


def test_a_deadlock_says_who_waits_where() -> None:
    """Law L4: each task, from the outermost call to the innermost."""

    async def main(_: Random) -> None:
        locks = asyncio.Lock(), asyncio.Lock()

        async def takes(first: asyncio.Lock, second: asyncio.Lock) -> None:
            async with first:
                await asyncio.sleep(1)
                async with second:
                    pass

        await asyncio.gather(takes(*locks), takes(*locks[::-1]))

    with pytest.raises(Deadlock) as raised:
        run(main, 0)

    assert raised.value.what == "nothing is ready and no timer runs, 1 s after the start"
    waiting = re.compile(
        r"task \d waits at test_testing\.py:\d+ in takes > locks\.py:\d+ in __aenter__ > locks\.py:\d+ in acquire"
    )
    assert len(waiting.findall(raised.value.where)) == 2


def test_what_goes_on_and_on_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L4."""
    monkeypatch.setattr("tidegate_adapters.testing.event_loop.TURNS_MAX", 1_000)

    async def main(_: Random) -> None:
        while not await asyncio.sleep(1, result=False):
            pass

    with pytest.raises(Endless, match="not ended after 1,000 turns, 500 s after the start"):
        run(main, 0)


async def _raises() -> None:
    raise ValueError("lost")


async def a_callback_raises(_: Random) -> None:
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(1)


async def a_task_is_forgotten(_: Random) -> None:
    forgotten = asyncio.create_task(_raises())
    del forgotten
    await asyncio.sleep(1)


@pytest.mark.parametrize(("main", "cause"), [(a_callback_raises, ZeroDivisionError), (a_task_is_forgotten, ValueError)])
def test_what_only_the_loop_is_told_fails_the_run(main: Main, cause: type[Exception]) -> None:
    """Law L5."""
    with pytest.raises(Unhandled) as raised:
        run(main, 0)

    assert isinstance(raised.value.__cause__, cause)


def test_an_exception_handler_of_ones_own_is_told_instead() -> None:
    """Law L5, as in asyncio."""
    told = []

    async def main(random: Random) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        await a_callback_raises(random)

    run(main, 0)
    assert [type(each) for each in told] == [ZeroDivisionError]


async def opens_a_socket(_: Random) -> None:
    await asyncio.open_connection("127.0.0.1", 1)


async def starts_a_process(_: Random) -> None:
    await asyncio.create_subprocess_exec("true")


async def listens_to_signals(_: Random) -> None:
    asyncio.get_running_loop().add_signal_handler(15, print)


async def is_called_by_a_thread(_: Random) -> None:
    loop, raised = asyncio.get_running_loop(), []

    def calls() -> None:
        try:
            loop.call_soon_threadsafe(print)
        except Misuse as error:
            raised.append(error)

    thread = threading.Thread(target=calls)
    thread.start()
    thread.join()
    raise raised[0]


async def waits_for_the_loop_in_an_executor(_: Random) -> None:
    loop, coroutine = asyncio.get_running_loop(), asyncio.sleep(0)
    try:
        await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(coroutine, loop).result())
    finally:
        coroutine.close()


@pytest.mark.parametrize(
    "main",
    [
        opens_a_socket,
        starts_a_process,
        listens_to_signals,
        is_called_by_a_thread,
        waits_for_the_loop_in_an_executor,
    ],
)
def test_nothing_comes_from_outside(main: Main) -> None:
    """Law L6."""
    with pytest.raises(Misuse, match="deterministic"):
        run(main, 0)


def test_what_is_left_behind_is_cancelled_and_closed() -> None:
    said = []

    async def left() -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            said.append("cancelled")

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            said.append("closed")

    kept: list[object] = []

    async def main(_: Random) -> None:
        generator = numbers()
        kept.extend([asyncio.create_task(left()), generator, await anext(generator)])
        await asyncio.sleep(1)

    run(main, 0)
    assert said == ["cancelled", "closed"]


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, KeyboardInterrupt, SystemExit])
def test_what_main_raises_comes_out(error: type[BaseException]) -> None:
    async def main(_: Random) -> None:
        await asyncio.sleep(1)
        raise error

    with pytest.raises(error):
        run(main, 0)


OTHERS = [
    path
    for version in ("3.12", "3.13")
    for path in [
        shutil.which(f"python{version}"),
        *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
    ]
    if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
]
EAGER = """
import asyncio
from tidegate_adapters.testing.event_loop import run

async def main(random):
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    said = []
    async def says(number):
        said.append(number)
        await asyncio.sleep(random.choice([1, 2]))
        said.append(-number)
    async with asyncio.TaskGroup() as group:
        for number in range(1, 5):
            group.create_task(says(number))
        said.append(0)
    return said

print([run(main, seed)[:5] for seed in range(3)], run(main, 3) == run(main, 3))
"""


@pytest.mark.parametrize("python", OTHERS)
def test_eager_tasks_start_at_once(python: str) -> None:
    """Since Python 3.12. Creators then choose the first step, and the seed the rest."""
    adapters = Path(__file__).parents[2] / "src"
    import attrs

    path = os.pathsep.join(map(str, [adapters / "core", adapters / "adapters", Path(attrs.__file__).parents[1]]))
    done = subprocess.run(
        [python, "-c", EAGER], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )

    assert done.stdout == "[[1, 2, 3, 4, 0], [1, 2, 3, 4, 0], [1, 2, 3, 4, 0]] True\n"


RACE = """
import asyncio

async def main(random):
    kept = {"count": 0}
    async def adds():
        seen = kept["count"]
        await asyncio.sleep(random.random())
        kept["count"] = seen + 1
    async def looks():
        await asyncio.sleep(random.random() / 2)
        await adds()
    await asyncio.gather(looks(), looks())
    assert kept["count"] == 2, "an update was lost"

def test_it(seeded):
    seeded.run(main)
"""


def test_the_fixture_tells_the_line_that_runs_a_failing_seed_again(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "TIDEGATE_"))]:
        monkeypatch.delenv(name)
    pytester.makepyfile(test_it=RACE)
    options = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")

    first = pytester.runpytest(*options, "--tidegate-seed=1")
    assert first.ret == 1
    line = re.search(r"again: pytest (test_it\.py::test_it) (--tidegate-loop-seed=\d+)", first.stdout.str())
    assert line is not None, first.stdout.str()

    again = pytester.runpytest(*options, *line.groups())
    assert again.ret == 1
    again.stdout.fnmatch_lines(["*an update was lost*", f"*{line.group(2)}"])


def test_the_clocks_of_time_show_the_loops() -> None:
    """Law L7: in the loop's thread alone, and restored afterwards."""
    before = time.monotonic, time.monotonic_ns, time.time, time.time_ns

    async def main(_: Random) -> tuple[list[float], list[float]]:
        others: list[float] = []
        thread = threading.Thread(target=lambda: others.append(time.time()))
        await asyncio.sleep(2.5)
        thread.start()
        thread.join()
        return [time.monotonic(), time.monotonic_ns(), time.time(), time.time_ns()], others

    shown, others = run(main, 1)
    assert shown == [2.5, 2_500_000_000, EPOCH_S + 2.5, EPOCH_S * 10**9 + 2_500_000_000]
    assert others[0] > EPOCH_S + 10**7
    assert (time.monotonic, time.monotonic_ns, time.time, time.time_ns) == before
