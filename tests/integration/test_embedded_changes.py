from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from random import Random
from typing import Any, Final, cast

import pytest

from tidegate.model.documents import ID, Document, Eq, Field, Put
from tidegate.model.errors import Misuse
from tidegate.model.operations import delete_one, insert_one, update_one
from tidegate.model.transactions import CommitTransaction, InTransaction, Transaction
from tidegate.reactive.planning.change_stream import After, Broken, DocumentChange, From, Page, Position
from tidegate_adapters.embedded.changes import EmbeddedChanges, Feed
from tidegate_adapters.embedded.store import Embedded

N: Final = Field[int]("n")
WATCHED: Final = ("orders", "customers")
KEYS: Final[tuple[str | int, ...]] = ("a", 1)


def doc(key: str | int, n: int = 0) -> Document:
    return Document.of({"_id": key, "n": n})


async def told(changes: EmbeddedChanges, position: Position) -> tuple[list[DocumentChange], Position]:
    found: list[DocumentChange] = []
    while True:
        page = await changes.read(position)
        assert isinstance(page, Page)
        if page.position == position:
            return found, position
        found += page.changes
        position = page.position


def written(store: Embedded, chance: Random, times: int) -> list[DocumentChange]:
    found = []
    for number in range(times):
        collection = chance.choice([*WATCHED, "others"])
        key: str | int = chance.choice(KEYS)
        is_there = any(each[ID] == key for each in store.contents(collection))
        is_gone = is_there and chance.random() < 0.3
        if is_gone:
            store(delete_one(collection, Eq(Field[Any]("_id"), key)))
        elif is_there:
            store(update_one(collection, Eq(Field[Any]("_id"), key), Put(N, number)))
            store(update_one(collection, Eq(Field[Any]("_id"), key), Put(N, number)))
        else:
            store(insert_one(collection, doc(key, number)))
        if collection in WATCHED:
            found.append(DocumentChange(collection, key, is_gone))
    return found


def test_each_change_is_told_once_and_in_order() -> None:
    async def main() -> None:
        store = Embedded()
        changes = store.changes(WATCHED, timedelta(milliseconds=1))
        _ = written(store, Random(0), 20)
        begin = await changes.locate()
        expected = written(store, Random(1), 3_000)
        found, end = await told(changes, begin)
        assert found == expected
        first = await changes.read(begin)
        assert isinstance(first, Page)
        assert [*first.changes, *(await told(changes, first.position))[0]] == expected
        assert await told(changes, end) == ([], end)

    asyncio.run(main())


def test_what_a_transaction_writes_is_told_when_it_is_committed() -> None:
    async def main() -> None:
        store = Embedded()
        changes = store.changes(WATCHED, timedelta(milliseconds=1))
        begin, transaction = await changes.locate(), Transaction("s", 1)
        store(InTransaction(transaction, insert_one("orders", doc("a")), begins=True))
        assert (await told(changes, begin))[0] == []
        store(CommitTransaction(transaction))
        assert (await told(changes, begin))[0] == [DocumentChange("orders", "a")]

    asyncio.run(main())


def test_what_comes_while_it_waits_is_told_at_once() -> None:
    async def main() -> None:
        store = Embedded()
        changes = store.changes(WATCHED, timedelta(minutes=1))
        reading = asyncio.create_task(changes.read(await changes.locate()))
        await asyncio.sleep(0.01)
        writer = threading.Thread(target=store, args=(insert_one("orders", doc("a")),))
        writer.start()
        async with asyncio.timeout(20):
            page = await reading
        assert isinstance(page, Page)
        assert page.changes == (DocumentChange("orders", "a"),)
        writer.join()

    asyncio.run(main())


@pytest.mark.parametrize("position", [From(1), After(1), After(Document.of({"watched": ("orders",)}))])
def test_a_position_of_something_else_is_of_a_history_that_is_lost(position: Position) -> None:
    async def main() -> None:
        assert await Embedded().changes(WATCHED).read(position) == Broken(286)

    asyncio.run(main())


def test_a_position_of_other_collections_is_one_of_these() -> None:
    async def main() -> None:
        feed = Feed()
        begin = await EmbeddedChanges(feed, ("orders",), timedelta(milliseconds=1)).locate()
        change = DocumentChange("customers", 1)
        feed.tell(change)
        assert (await told(EmbeddedChanges(feed, WATCHED, timedelta(milliseconds=1)), begin))[0] == [change]

    asyncio.run(main())


def test_what_is_not_remembered_is_lost() -> None:
    """A position may be too old, or of another life of the store."""

    async def main() -> None:
        feed = Feed(remembered=2)
        changes = EmbeddedChanges(feed, WATCHED, timedelta(milliseconds=1))
        begin = await changes.locate()
        for key in range(2):
            feed.tell(DocumentChange("orders", key))
        assert len((await told(changes, begin))[0]) == 2
        feed.tell(DocumentChange("orders", 2))
        assert await changes.read(begin) == Broken(286)
        later = await changes.locate()
        assert await EmbeddedChanges(Feed(), WATCHED, timedelta(milliseconds=1)).read(later) == Broken(286)

    asyncio.run(main())


def test_changes_of_nothing_are_refused() -> None:
    with pytest.raises(Misuse):
        _ = Embedded().changes(())
    with pytest.raises(Misuse, match="wait must be a timedelta, got int 5"):
        _ = Embedded().changes(WATCHED, cast("Any", 5))
