from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from itertools import combinations, permutations
from typing import Any, Final, TypeAlias, cast

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.model.checks.strategies.documents import values
from tidegate.model.checks.strategies.operations import filters, inserted, updates
from tidegate.model.documents import (
    ID,
    SIZE_MAX,
    Add,
    AddToSet,
    AllOf,
    AnyOf,
    Ascending,
    Descending,
    Document,
    Eq,
    Exists,
    Field,
    Foreign,
    In,
    Lt,
    Not,
    OlderThan,
    Push,
    Put,
    PutServerTime,
    cursor,
    equal,
    size_of,
)
from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, Call, Effect, Note, Now, Refused, Sleep
from tidegate.model.errors import Misuse, UnknownEffect
from tidegate.model.instants import SECOND, WALL, Instant
from tidegate.model.operations import (
    DeleteMany,
    FindOneAndUpdate,
    InsertMany,
    InsertOne,
    UpdateMany,
    UpdateOne,
    UpsertOne,
    bulk_update,
    delete_many,
    delete_one,
    find_all,
    find_one,
    find_one_and_update,
    insert_many,
    insert_one,
    update_many,
    update_one,
    upsert_one,
)
from tidegate.sim.runs.report import Report, Verdict, explore
from tidegate.sim.scenario import Scenario
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.world.world import (
    CLOCK,
    Cell,
    Flying,
    Many,
    Plain,
    World,
    calling,
    contents,
    document,
    ids,
    journal,
    journaled,
    notes,
    parts,
    perform,
    uniques,
    wakes,
    world_with,
)

N = Field[int]("n")
A_FIELD, B_FIELD = Field[Any]("a"), Field[Any]("b")
AT = Field[Instant]("at")
A, B = Document.of({"_id": "a", "n": 1}), Document.of({"_id": "b", "n": 2})
WORLD = world_with({"rows": (A, B)})


def outcome(effect: Effect[object], world: World = WORLD) -> tuple[World, object]:
    (one,) = perform(effect, world, "p")
    return one


def rows(world: World) -> tuple[Document | None, ...]:
    return tuple(world.read(document("rows", key)) for key in world.read(ids("rows")))


def row(**contents: object) -> Document:
    return Document.of({"_id": "a", **contents})


# --- upserts ------------------------------------------------------------------------------------------------------------

NEW: Final = AllOf((Eq(A_FIELD, 5), Eq(ID, "new"), Lt(N, 3)))


def test_an_upsert_inserts_what_its_filter_equals_and_then_updates_it() -> None:
    world, reply = outcome(upsert_one("rows", NEW, Add(N, 1)))
    assert reply == Document((("_id", "new"), ("a", 5), ("n", 1)))
    assert rows(world) == (A, B, reply)
    world, again = outcome(upsert_one("rows", NEW, Add(N, 1)), world)
    assert (rows(world)[:2], again) == ((A, B), Document((("_id", "new"), ("a", 5), ("n", 2))))


@pytest.mark.parametrize(
    ("upsert", "why"),
    [
        (upsert_one("rows", AllOf((Eq(ID, "a"), Eq(N, 7))), Put(B_FIELD, 1)), DUPLICATE_KEY),
        (upsert_one("rows", AllOf((Eq(ID, "new"), Eq(A_FIELD, "x"))), Add(Field[int]("a"), 1)), "a is not a number"),
        (upsert_one("rows", AllOf((Eq(ID, "new"), Eq(N, 1))), Put(B_FIELD, 1)), f"{DUPLICATE_KEY} of the index on n"),
    ],
)
def test_an_upsert_is_refused_where_its_document_cannot_be(upsert: UpsertOne, why: str) -> None:
    world = world_with({"rows": (A, B)}, {"rows": ((N,),)})
    assert outcome(upsert, world) == (world, Refused(why))


def test_who_takes_it_that_an_upsert_always_succeeds_is_found_out() -> None:
    """Two count by the same upsert, and one is refused: the count is 1."""

    async def counts() -> None:
        await upsert_one("rows", NEW, Add(N, 1))

    async def counts_again() -> None:
        try:
            await upsert_one("rows", NEW, Add(N, 1))
        except Refused:
            await update_one("rows", NEW, Add(N, 1))

    def counted(program: Callable[[], Coroutine[Effect[object], object, object]]) -> Report:
        return explore(
            Scenario(
                name="upserts",
                summary="Two count",
                world=WORLD,
                actors=tuple(Process(name, factory(program)) for name in ("p", "q")),
                eventually={"both count": lambda state: contents(state, "rows")[-1][N] == 2},
                symmetric=(("p", "q"),),
            )
        )

    assert counted(counts).law == "both count"
    assert counted(counts_again).verdict is Verdict.COMPLETE


# --- documents ----------------------------------------------------------------------------------------------------------

READS: Mapping[Effect[object], object] = {
    find_one("rows", Eq(ID, "b")): B,
    find_one("rows", Eq(N, 2)): B,
    find_one("rows", Exists(N)): A,
    find_one("rows", AllOf((Exists(N), Eq(ID, "b")))): B,
    find_one("rows", AnyOf((Eq(ID, "b"), Eq(ID, "a")))): A,
    find_one("rows", Eq(ID, "c")): None,
    find_one("rows", Eq(Field[bool]("_id"), value=True)): None,
    find_one("nowhere", Exists(N)): None,
    update_one("rows", Eq(N, 3), Add(N, 1)): 0,
    find_one_and_update("rows", Eq(N, 3), Add(N, 1)): None,
    delete_one("rows", Eq(N, 3)): 0,
    insert_one("rows", A): Refused(DUPLICATE_KEY),
    update_one("rows", Eq(ID, "a"), Push(Field[tuple[int, ...]]("n"), 1)): Refused("n is not an array"),
    find_one_and_update("rows", Eq(ID, "a"), AddToSet(Field[tuple[int, ...]]("n"), 1)): Refused("n is not an array"),
}


@pytest.mark.parametrize("effect", READS, ids=str)
def test_what_finds_nothing_or_is_refused_changes_nothing(effect: Effect[object]) -> None:
    world, reply = outcome(effect)
    assert (world, reply) == (WORLD, READS[effect])


def test_a_write_changes_the_first_document_that_matches() -> None:
    world, reply = outcome(find_one_and_update("rows", Exists(N), Add(N, 5)))
    assert reply == row(n=6)
    assert rows(world) == (row(n=6), B)
    assert outcome(update_one("rows", Exists(N), Add(N, 5))) == (world, 1)


Done: TypeAlias = Callable[[Many, World], tuple[World, object]]


def check_wo4(done: Done) -> None:
    many = st.one_of(
        st.builds(UpdateMany, st.just("rows"), filters(), updates()),
        st.builds(DeleteMany, st.just("rows"), filters()),
        st.builds(
            InsertMany,
            st.just("rows"),
            st.just((Document.of({"_id": "c", "n": 3}), Document.of({"_id": "new", "n": 7}))),
        ),
        st.builds(lambda one, two: bulk_update(*one, *two), bumps("a"), bumps("b")),
    )

    @given(effect=many, is_backwards=st.booleans())
    @example(effect=UpdateMany("rows", In(ID, ("a", "b")), (Add(N, 1),)), is_backwards=True)
    def law(effect: Many, *, is_backwards: bool) -> None:
        one_by_one: World = WORLD
        total = 0
        for part in parts(effect, WORLD)[:: -1 if is_backwards else 1]:
            one_by_one, reply = outcome(part, one_by_one)
            if isinstance(reply, Refused):
                return
            total += 1 if reply is None else cast("int", reply)
        world, reply = done(effect, WORLD)
        assert ({*contents(world, "rows")}, reply) == ({*contents(one_by_one, "rows")}, total)

    law()


def bumps(key: str) -> st.SearchStrategy[tuple[UpdateOne, ...]]:
    made = st.builds(UpdateOne, st.just("rows"), st.just(AllOf((Eq(ID, key), Exists(N)))), updates())
    return st.lists(made, min_size=1, max_size=1).map(tuple)


def test_a_write_of_many_comes_to_what_its_parts_come_to() -> None:
    """Law WO4, which a write that stops one document early breaks."""
    check_wo4(outcome)

    def ends_too_soon(effect: Many, world: World) -> tuple[World, object]:
        each = parts(effect, world)
        for part in each[:-1]:
            world, _ = outcome(part, world)
        return world, len(each)

    with pytest.raises(AssertionError):
        check_wo4(ends_too_soon)


@pytest.mark.parametrize(
    ("effect", "left", "reply"),
    [
        (update_many("rows", Exists(N), Add(N, -1)), [(0,), (1,)], 2),
        (update_many("rows", Exists(N), Add(N, 1)), [(1,), (2,)], Ambiguous),
        (update_many("rows", Eq(N, 2), Add(N, 1)), [(1,), (3,)], 1),
        (update_many("rows", Eq(ID, "none"), Add(N, 1)), [(1,), (2,)], 0),
        (delete_many("rows", Eq(N, 2)), [(1,)], 1),
        (delete_many("rows", Exists(ID)), [], 2),
        (update_many("rows", Exists(N), Put(N, 9)), [(9,), (2,)], Ambiguous),
        (bulk_update(*(update_one("rows", Eq(ID, key), Put(N, 2)) for key in "ab")), [(1,), (2,)], Ambiguous),
        (bulk_update(update_one("rows", Eq(ID, "a"), Put(N, 2))), [(1,), (2,)], Refused),
        (bulk_update(*(update_one("rows", Eq(ID, key), Add(N, 9)) for key in "axb")), [(10,), (11,)], 2),
        (
            insert_many("rows", Document.of({"_id": "c", "n": 3}), Document.of({"_id": "a", "n": 4})),
            [(1,), (2,), (3,)],
            1,
        ),
        (insert_many("rows", Document.of({"_id": "a", "n": 4})), [(1,), (2,)], 0),
        (insert_many("rows", *(Document.of({"_id": key, "n": 3}) for key in "cd")), [(1,), (2,), (3,)], Ambiguous),
        (insert_many("rows", Document.of({"_id": "c", "n": 2})), [(1,), (2,)], Refused),
    ],
    ids=str,
)
def test_what_a_write_of_many_answers(effect: Many, left: list[tuple[int]], reply: object) -> None:
    world, found = outcome(effect, world_with({"rows": (A, B)}, {"rows": ((N,),)}))
    assert [(doc[N],) for doc in contents(world, "rows")] == left
    assert (found if isinstance(reply, int) else type(found)) == reply
    assert "before it are" not in str(found)  # none may exist


def test_natural_order_is_the_order_of_insertion() -> None:
    deleted, count = outcome(delete_one("rows", Eq(ID, "a")))
    assert (rows(deleted), count) == ((B,), 1)
    inserted, reply = outcome(insert_one("rows", A), deleted)
    assert (rows(inserted), reply) == ((B, A), None)


FIRST, LAST = Foreign("objectId", b"object id 01"), Foreign("objectId", b"object id 02")


def test_several_are_found_in_the_order_of_their_ids() -> None:
    """Law WO2: ids of several types."""
    world = world_with(
        {"rows": tuple(Document.of({"_id": key, "n": 1}) for key in (LAST, "b", 10, FIRST, "a", "\u00e9", 9, "B"))}
    )
    for where, limit, found in (
        ((), 10, [9, 10, "B", "a", "b", "\u00e9", FIRST, LAST]),
        ((), 2, [9, 10]),
        ((In(ID, ("b", "a", "z")),), 10, ["a", "b"]),
        ((Eq(N, 2),), 10, []),
    ):
        after, reply = outcome(find_all("rows", *where, limit=limit), world)
        assert after == world
        assert isinstance(reply, tuple)
        assert [doc[ID] for doc in reply] == found


URGENT = (Descending(N), Ascending(A_FIELD))
HELD: Final[dict[str, dict[str, object]]] = {
    "last": {},
    "low": {"n": 1},
    "high": {"n": 2, "a": 3},
    "higher": {"n": 2.0, "a": 1},
    "next": {"n": 1},
    "nothing": {"n": None},
}
QUEUE: Final = tuple(Document.of({"_id": key, **held}) for key, held in HELD.items())


def test_the_first_of_a_sort_is_found_and_taken() -> None:
    """Law WO5; equal documents sort by id."""
    expected = ["higher", "high", "low", "next", "last", "nothing"]
    for queue in permutations(QUEUE):
        world: World = world_with({"rows": queue})
        _, found = outcome(find_all("rows", limit=6, sort=URGENT), world)
        assert isinstance(found, tuple)
        assert [doc[ID] for doc in found] == expected
        page, reply = [], outcome(find_one("rows", Exists(ID), sort=URGENT, fields=(N, A_FIELD)), world)[1]
        while isinstance(reply, Document):
            page.append(reply[ID])
            (reply,) = outcome(find_all("rows", limit=1, sort=URGENT, after=cursor(reply, URGENT)), world)[1] or (None,)  # type: ignore[misc]
        assert page == expected
    taken = []
    world = world_with({"rows": QUEUE})
    for _ in QUEUE:
        world, doc = outcome(find_one_and_update("rows", Not(Exists(B_FIELD)), Put(B_FIELD, 1), sort=URGENT), world)
        assert isinstance(doc, Document)
        taken.append(doc[ID])
    assert taken == expected


def test_a_sort_that_would_combine_two_arrays_is_refused() -> None:
    world = world_with({"rows": tuple(Document.of({"_id": n, "n": [1], "a": a}) for n, a in enumerate([[1], 2]))})
    for effect in (
        find_one("rows", Exists(ID), sort=URGENT),
        find_all("rows", limit=1, sort=URGENT),
        find_one_and_update("rows", Exists(ID), Put(N, 1), sort=URGENT),
    ):
        after, reply = outcome(effect, world)
        assert (after, reply) == (world, Refused("a sort cannot combine two arrays"))
        assert not isinstance(outcome(attrs.evolve(effect, where=Eq(ID, 1)), world)[1], Refused)


UNIQUE = {"rows": ((A_FIELD, N), (B_FIELD,))}
WRITES = st.one_of(
    st.builds(InsertOne, st.just("rows"), inserted(values())),
    st.builds(FindOneAndUpdate, st.just("rows"), filters(values()), updates(values())),
    st.builds(UpdateOne, st.just("rows"), filters(values()), updates(values())),
)


def is_shared(one: Document, other: Document, index: tuple[Field[Any], ...]) -> bool:
    """Whether both documents share a combination of indexed values, per MongoDB's manual."""

    def held(doc: Document, field: Field[Any]) -> list[object]:
        value = doc.held(field)
        return [value] if not isinstance(value, tuple) else list(value) or ["no element"]

    return all(any(equal(a, b) for a in held(one, field) for b in held(other, field)) for field in index)


@given(st.lists(WRITES, max_size=8))
@example([InsertOne("rows", Document.of({"_id": key, "a": 1, "n": key, "b": key})) for key in (1, 2)])
@example([InsertOne("rows", Document.of({"_id": key, "a": a, "n": 1, "b": key})) for key, a in ((1, 1), (2, (2, 1.0)))])
def test_a_unique_index_is_never_broken(writes: list[Effect[object]]) -> None:
    """Law WO1; a refused write changes nothing, and a valid one is never refused."""
    world: World = world_with({}, UNIQUE)
    for write in writes:
        after, reply = outcome(write, world)
        docs = [doc for doc in rows(after) if doc is not None]
        assert not any(is_shared(*pair, index) for pair in combinations(docs, 2) for index in UNIQUE["rows"])
        if isinstance(reply, Refused):
            assert after == world
            freely, done = outcome(write, without_indexes(world))
            assert isinstance(done, Refused) or breaks_an_index(rows(freely))
        world = after


def without_indexes(world: World) -> World:
    return world.write(uniques("rows"), ())


def breaks_an_index(docs: tuple[Document | None, ...]) -> bool:
    there = [doc for doc in docs if doc is not None]
    arrays = [doc for doc in there if isinstance(doc.held(A_FIELD), tuple) and isinstance(doc.held(N), tuple)]
    shared = any(is_shared(*pair, index) for pair in combinations(there, 2) for index in UNIQUE["rows"])
    return shared or bool(arrays)


REFUSED_BY_INDEX: Mapping[str, tuple[Document, Document, bool]] = {
    "equal numbers of two types": (Document.of({"_id": 1, "b": 1}), Document.of({"_id": 2, "b": 1.0}), True),
    "missing and null": (Document.of({"_id": 1, "b": None}), Document.of({"_id": 2}), True),
    "missing and an empty array": (Document.of({"_id": 1}), Document.of({"_id": 2, "b": ()}), False),
    "two empty arrays": (Document.of({"_id": 1, "b": ()}), Document.of({"_id": 2, "b": ()}), True),
    "an empty array in an array": (Document.of({"_id": 1, "b": ((),)}), Document.of({"_id": 2, "b": ()}), False),
    "one common element": (Document.of({"_id": 1, "b": (1, 2)}), Document.of({"_id": 2, "b": (2, 3)}), True),
    "an element twice in one": (Document.of({"_id": 1, "b": (1, 1)}), Document.of({"_id": 2, "b": 2}), False),
    "one and true": (Document.of({"_id": 1, "b": 1}), Document.of({"_id": 2, "b": True}), False),
}


@pytest.mark.parametrize("what", REFUSED_BY_INDEX)
def test_what_a_unique_index_takes_for_equal(what: str) -> None:
    """Law WO1, as in MongoDB; a document never conflicts with itself."""
    one, other, is_refused = REFUSED_BY_INDEX[what]
    world, _ = outcome(insert_one("rows", one), world_with({}, {"rows": ((B_FIELD,),)}))
    world, _ = outcome(update_one("rows", Eq(N, None), Put(N, 1)), world)
    _, reply = outcome(insert_one("rows", other), world)
    assert reply == (Refused("duplicate key of the index on b") if is_refused else None)


def test_an_id_that_is_a_number_is_not_the_text_that_looks_like_it() -> None:
    number = Document.of({"_id": 1, "n": 9})
    text = Document.of({"_id": "1", "n": 8})
    world = world_with({"rows": (number, text)})
    assert outcome(find_one("rows", Eq(Field[int]("_id"), 1)), world)[1] == number
    assert outcome(find_one("rows", Eq(ID, "1")), world)[1] == text
    assert document("rows", 1).name != document("rows", "1").name


# --- sizes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "held"),
    [
        (lambda data: insert_one("rows", row(b=data)), ()),
        (lambda data: upsert_one("rows", Eq(ID, "a"), Put(B_FIELD, data)), ()),
        (lambda data: upsert_one("rows", Eq(ID, "a"), Put(B_FIELD, data)), (row(),)),
        (lambda data: update_one("rows", Eq(ID, "a"), Put(B_FIELD, data)), (row(),)),
        (lambda data: find_one_and_update("rows", Eq(ID, "a"), Push(A_FIELD, data)), (row(a=(b"four",)),)),
        (lambda data: update_one("rows", Eq(ID, "a"), Push(A_FIELD, data, 1)), (row(a=(b"more",)),)),
    ],
    ids=["insert", "upsert that inserts", "upsert that updates", "put", "push", "push that drops another"],
)
def test_no_write_makes_a_document_that_is_too_large(
    write: Callable[[bytes], Effect[object]], held: tuple[Document, ...]
) -> None:
    """Law WO3, to the byte; `test_mongo_agreement` compares with MongoDB."""

    def made(data: bytes) -> int:
        (doc,) = rows(outcome(write(data), world)[0])
        assert doc is not None
        return size_of(doc)

    world = world_with({"rows": held})
    room = SIZE_MAX - made(b"")
    assert made(bytes(room)) == SIZE_MAX
    assert outcome(write(bytes(room + 1)), world) == (world, Refused("document too large"))


def test_a_world_begins_with_no_document_that_is_too_large() -> None:
    room = SIZE_MAX - size_of(row(b=b""))
    assert rows(world_with({"rows": (row(b=bytes(room)),)}))
    with pytest.raises(Misuse, match=r'(?s)16,777,217 bytes.*where: rows, "a"'):
        world_with({"rows": (row(b=bytes(room + 1)),)})


# --- time, notes, calls -------------------------------------------------------------------------------------------------


def test_the_store_s_clock_stamps_and_judges() -> None:
    later = WORLD.write(CLOCK, Instant(5 * SECOND))
    stamped, reply = outcome(find_one_and_update("rows", Eq(ID, "a"), PutServerTime(AT)), later)
    assert reply == row(n=1, at=Instant(5 * SECOND))
    much_later = stamped.write(CLOCK, Instant(7 * SECOND))
    assert outcome(find_one("rows", OlderThan(AT, 3 * SECOND)), much_later)[1] is None
    assert outcome(find_one("rows", OlderThan(AT, 2 * SECOND)), much_later)[1] == reply
    assert outcome(Now(), later)[1] == Instant(5 * SECOND, WALL)


def test_a_sleep_has_no_outcome_before_its_time() -> None:
    asleep = WORLD.write(wakes("p"), Instant(SECOND))
    assert list(perform(Sleep(SECOND), asleep, "p")) == []
    world, reply = outcome(Sleep(SECOND), asleep.write(CLOCK, Instant(SECOND)))
    assert (world.read(wakes("p")), reply) == (None, None)
    assert outcome(Sleep(SECOND))[1] is None


def test_a_note_stands_until_it_is_said_anew() -> None:
    world, _ = outcome(Note("b", 1))
    world, _ = outcome(Note("a", 2), world)
    world, reply = outcome(Note("b", 3), world)
    assert (world.read(notes("p")), world.read(notes("q")), reply) == ((("a", 2), ("b", 3)), (), None)


@attrs.frozen
class Unknown(Effect[None]):
    pass


@pytest.mark.parametrize("effect", [Call("user code"), Unknown()], ids=["call", "another"])
def test_an_effect_without_a_meaning_is_unknown(effect: Effect[object]) -> None:
    with pytest.raises(UnknownEffect, match="has no meaning") as raised:
        outcome(effect)
    assert ("calls=" in raised.value.todo) == isinstance(effect, Call)


def test_user_code_answers_what_the_scenario_says() -> None:
    means = calling({"ask": (1, Refused("no"))})
    assert list(means(Call("ask"), WORLD, "p")) == [(WORLD, 1), (WORLD, Refused("no"))]
    assert list(means(find_one("rows", Eq(ID, "b")), WORLD, "p")) == [(WORLD, B)]
    with pytest.raises(UnknownEffect, match="has no outcomes") as raised:
        list(means(Call("tell"), WORLD, "p"))
    assert "ask" in raised.value.todo


def test_a_journal_keeps_every_version() -> None:
    means = journaled("rows", "a", lambda doc: Document.of({"n": doc[N]}))
    world: World = WORLD
    for effect in (
        find_one_and_update("rows", Eq(ID, "a"), Add(N, 1)),
        update_one("rows", Eq(ID, "a"), Put(N, 2)),
        update_one("rows", Eq(ID, "b"), Put(N, 7)),
        update_one("others", Eq(ID, "a"), Put(N, 7)),
        find_one("rows", Eq(ID, "a")),
        delete_one("rows", Eq(ID, "a")),
        insert_one("rows", row(n=5)),
        update_one("rows", Eq(ID, "a"), Add(N, 1)),
    ):
        ((world, _),) = means(effect, world, "p")
    assert world.read(journal("rows", "a")) == tuple(Document.of({"n": n}) for n in (2, 5, 6))


# --- cells --------------------------------------------------------------------------------------------------------------


def test_a_world_is_a_value() -> None:
    cell = Cell(("cell",), 0)
    assert WORLD.read(cell) == 0
    assert WORLD.write(cell, 1).read(cell) == 1
    assert WORLD.read(cell) == 0
    assert Plain() == Plain()


def test_no_cell_is_empty_with_an_instant_in_it() -> None:
    """In relative time it would always be now."""
    with pytest.raises(Misuse, match="an empty cell holds an instant"):
        Cell(("lease",), (1, Instant(0)))
    assert Cell(("lease",), (1,)).empty == (1,)


def test_a_late_request_reads_as_a_sentence() -> None:
    assert str(Flying("p", Note("a", 1))) == "p's late request: note a: 1"
