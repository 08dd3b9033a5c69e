from __future__ import annotations

from typing import Any, Final, TypeAlias

from pymongo import MongoClient, WriteConcern
from pymongo.collection import Collection

Raw: TypeAlias = dict[str, Any]

MAJORITY: Final = WriteConcern("majority")


def client(uri: str, **options: Any) -> MongoClient[Raw]:
    return MongoClient(uri, **options)


def counter(client: MongoClient[Raw], database: str) -> Collection[Raw]:
    collection = client[database].get_collection("counters", write_concern=MAJORITY)
    collection.insert_one({"_id": 1, "n": 0})
    return collection


def value(collection: Collection[Raw]) -> int:
    document = collection.find_one({"_id": 1})
    assert document is not None
    return int(document["n"])


def increment(collection: Collection[Raw]) -> None:
    collection.update_one({"_id": 1}, {"$inc": {"n": 1}})
