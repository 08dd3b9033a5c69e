from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import pytest
from bson import ObjectId

from tidegate.model.documents import Document, Eq, Field, Foreign, Put, frozen
from tidegate.model.effects import DUPLICATE_KEY, Refused
from tidegate.model.errors import Misuse
from tidegate.model.operations import delete_one, find_all, find_one, find_one_and_update, insert_one
from tidegate.sim import Process, Returned, Scenario, contents, factory, world_with
from tidegate.testing import assert_no_counterexample
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.mongo import Mongo, connect
from tidegate_adapters.runtime.driver import choosing, documents, run

OWN_ID: Final = Field[Foreign]("_id")
ORDER: Final = Field[Foreign]("order")
FIRST, SECOND = ObjectId("0123456789abcdef01234567"), ObjectId("ffffffffffffffffffffffff")


def by(key: ObjectId | UUID) -> Eq[Foreign]:
    value = frozen(key)
    assert isinstance(value, Foreign)
    return Eq(OWN_ID, value)


async def told(first: ObjectId | UUID, second: ObjectId | UUID) -> tuple[object, ...]:
    await insert_one("rows", Document.of({"_id": second, "order": first}))
    await insert_one("rows", Document.of({"_id": first}))
    taken = ""
    try:
        await insert_one("rows", Document.of({"_id": first}))
    except Refused as refused:
        taken = refused.reason
    changed = await find_one_and_update("rows", by(first), Put(ORDER, by(second).value))
    held = await find_all("rows", limit=5)
    return taken, changed, held, await delete_one("rows", by(second)), await find_one("rows", by(second))


@pytest.mark.parametrize(("first", "second"), [(FIRST, SECOND), (UUID(int=7), FIRST), (UUID(int=7), UUID(int=8))])
def test_a_document_is_kept_and_found_under_its_id(
    mongodb: str, database: str, first: ObjectId | UUID, second: ObjectId | UUID
) -> None:
    changed = Document.of({"_id": first, "order": second})
    expected = (DUPLICATE_KEY, changed, (changed, Document.of({"_id": second, "order": first})), 1, None)
    with connect(mongodb) as client:
        assert run(told(first, second), choosing(documents(Mongo(client, database)))) == expected
    assert run(told(first, second), choosing(documents(Embedded()))) == expected


def test_a_scenario_has_documents_under_object_ids() -> None:
    async def inserts() -> object:
        try:
            await insert_one("rows", Document.of({"_id": FIRST}))
        except Refused:
            return "refused"
        return "inserted"

    assert_no_counterexample(
        Scenario(
            name="object ids",
            summary="Two insert a document of one id",
            world=world_with({"rows": (Document.of({"_id": SECOND}),)}),
            actors=(Process("a", factory(inserts)), Process("b", factory(inserts))),
            always={"one of each id": lambda state: len(set(contents(state, "rows"))) == len(contents(state, "rows"))},
            eventually={
                "one inserts": lambda state: (
                    {state.status("a"), state.status("b")} == {Returned("inserted"), Returned("refused")}
                )
            },
        )
    )


@pytest.mark.parametrize("term", [Eq[Any], Put[Any]])
def test_a_term_says_how_an_object_id_is_handed_in(term: Callable[..., object]) -> None:
    with pytest.raises(Misuse, match=r"help: hand in frozen\(...\) of it"):
        term(OWN_ID, FIRST)
