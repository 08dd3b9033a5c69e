"""Serves a production app on a fresh embedded store during a test.

    async with app.testing() as store:
        assert await (await square.enqueue(3)).result() == 9

Tasks and enqueueing code are the module's own, unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND
from tidegate.retries.polling import PollingBounds
from tidegate_adapters.embedded.store import Embedded

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")

_POLLING: Final = PollingBounds(least=MILLISECOND, most=20 * MILLISECOND, jitter=0)
_EVERY: Final = timedelta(milliseconds=20)
_DRAIN: Final = timedelta(seconds=1)


class App(Protocol):
    """An app that serves and stops."""

    settings: Any

    async def serve(self) -> None: ...

    def stop(self) -> None: ...


class Testable(Protocol[S_co]):
    """An app with `testing`."""

    def testing(self) -> AbstractAsyncContextManager[S_co]: ...


class OnEmbedded(Protocol):
    """The type of the fixture `on_embedded`."""

    def __call__(self, app: Testable[S], test: Callable[[S], Awaitable[T]]) -> T: ...


def on_embedded(app: Testable[S], test: Callable[[S], Awaitable[T]]) -> T:
    async def main() -> T:
        async with app.testing() as store:
            return await test(store)

    return asyncio.run(main())


@asynccontextmanager
async def tested(
    app: App, begin: Callable[[Embedded, Any], None], is_serving: Callable[[], bool]
) -> AsyncGenerator[Embedded, None]:
    """Serve an app on a fresh store within the block, then restore the app.

    The app polls every few milliseconds, drains for a second, and opens no ports. `begin` resets
    it.

    Raises:
        Misuse: The app is already connected or served.
        Exception: Any error of `serve`, after the block.
    """
    kept = dict(vars(app))
    if kept["_is_served"] or kept.get("_open"):
        raise Misuse(f"{app!r} is connected already", todo="test it where nothing else uses it")
    told, store = app.settings, Embedded()
    settings = attrs.evolve(
        told, uri=None, polling=_POLLING, paused_every=_EVERY, drain=min(told.drain, _DRAIN), metrics_port=None, page_port=None
    )  # fmt: skip
    vars(app)["_is_stopping"] = asyncio.Event()
    begin(store, settings)
    serving = asyncio.create_task(app.serve())
    try:
        while not (is_serving() or serving.done()):  # noqa: ASYNC110  it has no event for that
            await asyncio.sleep(0.001)
        if serving.done():
            await serving
            raise Misuse(f"{app!r} ended before the test began", todo="let nothing stop it")  # noqa: TRY301  as serve raises
        yield store
    except BaseException:
        app.stop()  # again below: running handlers are not awaited
        raise
    finally:
        app.stop()
        try:
            await serving
        finally:
            vars(app).clear()
            vars(app).update(kept)
