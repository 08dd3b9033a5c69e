from __future__ import annotations

import asyncio
import sys

import pytest
from pymongo import lock

from tidegate_adapters.mongo.locks import mend_locks


async def _is_left_locked() -> bool:
    """Whether a waiter that times out and is cancelled leaves the condition's lock held."""
    condition = lock._async_create_condition(lock._async_create_lock())  # noqa: SLF001  what its clients call

    async def waits() -> None:
        async with condition:
            await lock._async_cond_wait(condition, 0.001)  # noqa: SLF001

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)  # the waiter starts and takes the lock
    async with condition:  # the waiter waits without the lock
        await asyncio.sleep(0.01)  # the waiter times out
        for _ in range(5):
            await asyncio.sleep(0)  # and wants the lock back
        task.cancel()
    _ = await asyncio.wait([task], timeout=1)
    await asyncio.sleep(0.01)
    return condition.locked()


@pytest.fixture
def unmended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "wait_for", asyncio.wait_for)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="wait_for needs no task there")
@pytest.mark.usefixtures("unmended")
def test_the_driver_as_it_comes_leaves_a_lock_behind() -> None:
    """If this fails, the driver is fixed, and `mongo.locks` can go."""
    assert asyncio.run(_is_left_locked())


@pytest.mark.usefixtures("unmended")
def test_no_lock_is_left_behind() -> None:
    mend_locks()
    assert not asyncio.run(_is_left_locked())
