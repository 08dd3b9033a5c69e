"""Creates missing indexes."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias, final

from bson.son import SON
from pymongo import AsyncMongoClient, IndexModel, MongoClient

from tidegate.model.effects import Refused
from tidegate.model.errors import TidegateError
from tidegate.model.operations import NO_INDEXES, Indexes, Unique, check_indexes, check_unique
from tidegate_adapters.base.at_once import Calling, at_once, awaited, directly
from tidegate_adapters.mongo.connection import in_time, limit_of, misplaced, opened
from tidegate_adapters.mongo.errors import DRIVER_ERRORS, Before, failure
from tidegate_adapters.mongo.sorts import ordered
from tidegate_adapters.mongo.wire import DURABLE, condition


def make_unique(client: MongoClient[Any], database: str, unique: Unique) -> None:
    """Make missing unique indexes; any number of processes may call it at any time.

    Raises:
        Misuse: The wrong kind of client, or a closed one.
        TidegateError: Documents violate an index, its name is taken, or no server answers now,
            perhaps because it is building.
    """
    at_once(_made_all(client, opened(client, database, MongoClient), unique, directly))


async def make_unique_async(client: AsyncMongoClient[Any], database: str, unique: Unique) -> None:
    await _made_all(client, opened(client, database, AsyncMongoClient), unique, awaited)


async def _made_all(
    client: MongoClient[Any] | AsyncMongoClient[Any], handle: Any, unique: Unique, call: Calling
) -> None:
    with making_clearly(limit_of(client)):
        for collection, indexes in unmade(unique, NO_INDEXES).items():
            for index in indexes:
                await made(handle[collection], index, call)


_Made: TypeAlias = tuple[list[tuple[str, int]], dict[str, Any]]


def unmade(unique: Unique, indexes: Indexes) -> dict[str, tuple[_Made, ...]]:
    check_unique(unique)
    check_indexes(indexes)
    found: dict[str, tuple[_Made, ...]] = {}
    for collection in {**unique, **indexes}:
        alone = ([(field.name, 1) for field in fields] for fields in unique.get(collection, ()))
        conditions = [
            {} if each.where is None else {"partialFilterExpression": condition(each.where)}
            for each in indexes.get(collection, ())
        ]
        others = (
            (ordered(each.keys), said) for each, said in zip(indexes.get(collection, ()), conditions, strict=True)
        )
        found[collection] = (*((keys, {"unique": True}) for keys in alone), *others)
    return found


@final
class _Unhurried(SON[str, Any]):
    """The server continues after the client gives up: the driver sends no deadline."""

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "maxTimeMS":
            super().__setitem__(key, value)


async def made(collection: Any, index: _Made, call: Calling) -> None:
    """A majority suffices: the server's default waits for all voting members, dead ones
    included.
    """
    keys, said = index
    asked = {"indexes": [IndexModel(keys, **said).document], "commitQuorum": "majority"}
    command = _Unhurried({"createIndexes": collection.name, **asked, "writeConcern": DURABLE.document})
    if "writeConcernError" in await call(partial(collection.database.command, command)):
        raise NotMadeYetError("an index is not made yet", why="no majority has confirmed it", todo="ask again")


async def check_built(collection: Any, call: Calling) -> None:
    """Raise NotMadeYetError if the server is building an index of the collection.

    A request for it would occupy the server until the build ends, even after the client leaves. If
    the server does not report builds, the caller proceeds.
    """
    stages: list[dict[str, Any]] = [{"$collStats": {"storageStats": {}}}]
    asked = {"aggregate": collection.name, "pipeline": stages, "cursor": {}}
    reply = await call(partial(collection.database.command, asked, check=False))
    if any(each["storageStats"].get("indexBuilds") for each in reply.get("cursor", {}).get("firstBatch", ())):
        raise NotMadeYetError("an index is not made yet", why="the server builds it", todo="ask again")


@final
class NotMadeYetError(TidegateError):
    """An index cannot be made now."""


@contextmanager
def making_clearly(limit: float | None) -> Generator[None, None, None]:
    """Convert errors of index creation, without values that the server quotes.

    Raises:
        NotMadeYetError: A later attempt may succeed.
        Misuse: The client is closed or unusable.
        TidegateError: The server refuses for good.
    """
    try:
        with in_time(limit):
            yield
    except DRIVER_ERRORS as error:
        if not isinstance(failure(error, Before.NOTHING), Refused):
            raise NotMadeYetError("an index is not made yet", why=type(error).__name__, todo="ask again") from None
        code = getattr(error, "code", None)
        why, todo = _NO_INDEX.get(code, ("", "look it up, and remove what stands in its way"))
        raise TidegateError(
            "an index cannot be made", why=f"the server answers with code {code}{why and f': {why}'}", todo=todo
        ) from None
    except RuntimeError as error:
        raise misplaced(error) from None


_OTHER_INDEX: Final = ("there is another one of the same name or the same fields", "drop the other index")
_NO_INDEX: Final[Mapping[int | None, tuple[str, str]]] = {
    13: ("the user may make none", "grant the user readWrite on the database, or have its owner make the indexes"),
    85: _OTHER_INDEX,
    86: _OTHER_INDEX,
    171: ("in a document two of its fields are arrays", "look for those documents"),
    11000: ("it is unique, and documents break it", "look for those documents"),
    13297: ("there is a database of this name in other case", "correct the name"),
}
