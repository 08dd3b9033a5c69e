"""A database of a runtime and the function that performs its operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, final

import attrs

from tidegate.model.effects import Program
from tidegate.model.instants import Instant
from tidegate.model.operations import StoreTime
from tidegate.model.values import check_callable
from tidegate.retries.idempotent import repeated
from tidegate_adapters.base.decorators import check_database
from tidegate_adapters.runtime.driver import AsyncHandle, choosing, documents, local_async, run_async

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient

T = TypeVar("T")


@final
@attrs.frozen
class Site:
    """A database.

    Attributes:
        store: Performs operations: an `AsyncMongo`, or `Embedded().awaited`.
        client: The MongoDB client; None for an embedded store.
    """

    name: str
    store: Callable[[Any], Awaitable[object]] = attrs.field(repr=False, eq=False)
    client: AsyncMongoClient[Any] | None = attrs.field(default=None, repr=False, eq=False)
    _handle: AsyncHandle = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        check_database(self.name)
        check_callable(self.store, "a store")
        object.__setattr__(self, "_handle", choosing(documents(self.store), local_async()))

    async def run(self, program: Program[T]) -> T:
        return await run_async(program, self._handle)

    async def now(self) -> Instant:
        """Read the store's clock."""
        return await self.run(_store_time())


@repeated
async def _store_time() -> Instant:
    return await StoreTime()
