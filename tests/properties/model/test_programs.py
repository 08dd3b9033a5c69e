from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.on_documents import run

from tidegate.model.documents import ID, Document, Eq, Field, Filter
from tidegate.model.effects import Ambiguous, Program, Refused, is_duplicate
from tidegate.model.operations import find_all, insert_one
from tidegate.model.programs import find_every, insert_new
from tidegate.sim.world.world import World, contents, perform, world_with

T = TypeVar("T")
InsertNew: TypeAlias = Callable[[str, Document], Program[bool]]
FindEvery: TypeAlias = Callable[[int, Filter], Program[tuple[Document, ...]]]

NAME: Final = Field[str]("name")
IDS: Final = st.integers(-3, 3) | st.sampled_from(("", "a", "b", "\uffff", "\U00010000"))


# --- insert_new -------------------------------------------------------------------------------------------------------


def check_dp1(insert: InsertNew) -> None:
    there = Document.of({"_id": "x", "name": "n"})
    for doc in (
        {"_id": "y", "name": "m"},
        {"_id": "x", "name": "m"},
        {"_id": "x", "name": "n"},
        {"_id": "y", "name": "n"},
    ):
        wanted = Document.of(doc)
        world: World = world_with({"c": (there,)}, {"c": ((NAME,),)})
        try:
            answer, world = run(insert("c", wanted), world)
        except Refused:
            assert wanted[ID] != there[ID], "one of that id was there"
            continue
        assert answer is (wanted[ID] != there[ID])
        assert contents(world, "c") == ((there, wanted) if answer else (there,))


def test_a_document_is_inserted_unless_one_of_its_id_is_there() -> None:
    """Law DP1."""
    check_dp1(insert_new)


async def any_duplicate(collection: str, doc: Document) -> bool:
    """A conflict in any index counts as one of ids."""
    try:
        await insert_one(collection, doc)
    except Refused as refused:
        if not is_duplicate(refused):
            raise
        return False
    return True


async def always_new(collection: str, doc: Document) -> bool:
    await insert_new(collection, doc)
    return True


@pytest.mark.parametrize("wrong", [any_duplicate, always_new])
def test_law_dp1_notices(wrong: InsertNew) -> None:
    with pytest.raises(AssertionError):
        check_dp1(wrong)


def test_what_is_asked_again_is_inserted_once_each() -> None:
    world: World = world_with({})
    for _ in range(2):
        for name in "abc":
            program = insert_new("queue", Document.of({"_id": name}))
            ((world, _reply),) = perform(program.send(None), world, "caller")
            with pytest.raises(Ambiguous):
                program.throw(Ambiguous("no reply"))
    for name in "abc":
        answer, world = run(insert_new("queue", Document.of({"_id": name})), world)
        assert not answer

    assert [doc[ID] for doc in contents(world, "queue")] == ["a", "b", "c"]


# --- find_every -------------------------------------------------------------------------------------------------------


def check_dp2(find: FindEvery) -> None:
    @given(st.lists(st.tuples(IDS, st.booleans()), unique_by=lambda each: each[0]), st.integers(1, 4))
    def holds(held: Sequence[tuple[str | int, bool]], limit: int) -> None:
        docs = tuple(Document.of({"_id": key, "name": "n" if matches else "m"}) for key, matches in held)
        found, _ = run(find(limit, Eq(NAME, "n")), world_with({"c": docs}))
        keys = sorted((key for key, matches in held if matches), key=lambda key: (isinstance(key, str), key))

        assert [each.held(ID) for each in found] == keys

    holds()


def test_every_document_that_matches_is_found_once_in_order() -> None:
    """Law DP2."""
    check_dp2(lambda limit, where: find_every("c", where, limit=limit))


async def one_page(limit: int, where: Filter) -> tuple[Document, ...]:
    return await find_all("c", where, limit=limit)


async def from_the_last(limit: int, where: Filter) -> tuple[Document, ...]:
    found = await find_every("c", where, limit=limit)
    return tuple(doc for at, doc in enumerate(found) for _ in range(1 + (at > 0 and at % limit == 0)))


@pytest.mark.parametrize("wrong", [one_page, from_the_last])
def test_law_dp2_notices(wrong: FindEvery) -> None:
    with pytest.raises(AssertionError):
        check_dp2(wrong)
