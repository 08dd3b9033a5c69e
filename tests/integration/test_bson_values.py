from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import UUID

import bson
import pytest
from bson import Binary, Decimal128, Int64, ObjectId, Timestamp
from hypothesis import example, given

from tidegate import strategies
from tidegate.model.documents import Document, exactly, size_of
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate_adapters.mongo.bson import CODEC, document_of, loaded, natural, stored, unreadable

Load: TypeAlias = Callable[[dict[str, Any]], Document]
Size: TypeAlias = Callable[[Document], int]


def through_bson(doc: Document) -> dict[str, Any]:
    return bson.decode(bson.encode(stored(doc)), CODEC)


def check_d1(load: Load) -> None:
    @given(strategies.documents())
    @example(Document.of({"n": 1.0, "b": True, "m": 2**40, "z": -0.0, "t": (None, b"\0")}))
    @example(Document.of({"at": Instant(-1_000), "b": {"y": 1, "a": 2}}))
    def law(doc: Document) -> None:
        assert exactly(load(through_bson(doc))) == exactly(doc)

    law()


def test_a_document_comes_back_as_it_was() -> None:
    """Law D1."""
    check_d1(lambda stored: loaded(stored, "c"))


def by_key(stored: dict[str, Any]) -> Document:
    return Document(tuple(sorted(loaded(stored, "c").items, key=lambda item: item[0])))


def whole(stored: dict[str, Any]) -> Document:
    items = loaded(stored, "c").items
    return Document(tuple((key, int(item) if isinstance(item, float) and item == 1.0 else item) for key, item in items))


@pytest.mark.parametrize("load", [by_key, whole])
def test_a_planted_bug_breaks_d1(load: Load) -> None:
    with pytest.raises(AssertionError):
        check_d1(load)


def check_d5(size: Size) -> None:
    @given(strategies.documents())
    @example(Document.of({"n": 2**31 - 1, "m": 2**31, "k": -(2**31), "j": -(2**31) - 1, "\u00e9": "\u00e9"}))
    @example(Document.of({"many": (1,) * 11, "b": True, "f": 0.5, "none": None, "at": Instant(0), "d": {"b": b"1"}}))
    def law(doc: Document) -> None:
        assert size(doc) == len(bson.encode(stored(doc)))

    law()


def test_a_document_takes_as_many_bytes_as_bson_makes_of_it() -> None:
    """Law D5."""
    check_d5(size_of)


def in_characters(doc: Document) -> int:
    return size_of(Document(tuple((key.replace("\u00e9", "e"), value) for key, value in doc.items)))


def in_long_integers(doc: Document) -> int:
    return size_of(Document(tuple((key, 2**40 if type(value) is int else value) for key, value in doc.items)))


@pytest.mark.parametrize("size", [in_characters, in_long_integers])
def test_a_planted_bug_breaks_d5(size: Size) -> None:
    with pytest.raises(AssertionError):
        check_d5(size)


@pytest.mark.parametrize(
    ("doc", "said"),
    [
        ({"_id": "x", "a": "bad??"}, "things, _id 'x': a text is no UTF-8 (a)"),
        ({"_id": 7, "a": {"b": "bad??"}}, "things, _id 7: a text is no UTF-8 (b)"),
        ({"_id": "secret??"}, "things, _id a str: a text is no UTF-8 (_id)"),
        ({"_id": {"a": "secret", "b": "??"}}, "things, _id a dict: a text is no UTF-8 (b)"),
        ({"_id": {"a": "secret"}, "c": "??"}, "things, _id a dict: a text is no UTF-8 (c)"),
        ({"_id": 7, "k" * 900: "??"}, f"things, _id 7: a text is no UTF-8 ({'k' * 100})"),
    ],
    ids=["a text", "in an object", "the id", "in the id", "beside an id that is an object", "a long key"],
)
def test_what_cannot_be_read_is_named_and_not_shown(doc: dict[str, Any], said: str) -> None:
    """The error names the document by its id if that is one plain value."""
    raw = bson.decode(bson.encode(doc).replace(b"??", b"\xff\xfe"), CODEC)
    with pytest.raises(Misuse) as caught:
        loaded(raw, "things")
    assert unreadable(raw, "things", caught.value).reason == said


def test_a_document_of_a_plain_client_is_taken_over() -> None:
    plain = {"_id": ObjectId(), "at": datetime(2020, 1, 1), "n": Decimal128("1.50"), "l": [{"a": None}]}  # noqa: DTZ001
    assert natural(document_of(plain)) == {**plain, "at": datetime(2020, 1, 1, tzinfo=UTC)}
    for bad in ({"at": plain["at"]}, {"n": Timestamp(1, 1)}):
        with pytest.raises(Misuse, match="document_of"):
            Document.of(bad)
    uuid = UUID(int=7)  # as a client with a non-default UUID representation reads it
    for scalar in (plain["_id"], plain["n"], uuid, Binary.from_uuid(uuid), Binary(b"x", 5), Int64(7), Binary(b"x", 0)):
        assert Document.of({"_id": scalar}) == document_of({"_id": scalar})
    for wrong in ({"a": 1 << 70}, {"a": object()}, {1: 2}, None):
        with pytest.raises(Misuse):
            document_of(wrong)  # type: ignore[arg-type]
