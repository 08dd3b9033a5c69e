from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidegate.model.documents import Document, Field
from tidegate.model.effects import Ambiguous, Call, Effect, Failure, NotApplied, Program
from tidegate.model.errors import Misuse
from tidegate.model.history import HISTORY_MAX
from tidegate.model.instants import SECOND, Instant
from tidegate.model.instants import STORE as STORE_CLOCK
from tidegate.model.operations import DeleteMany, FindAll, UpdateOne
from tidegate.payloads import uploads
from tidegate.payloads.checks.scenarios import KEY, calls, content_of
from tidegate.payloads.upload_records import CONTENT, Content, Damaged, announce, chunk_document, new_record, touch
from tidegate.sim.world.world import CLOCK, World, document, world_with

STORE = uploads.PayloadStore("records", "chunks", 3)
OLD = content_of("old")
HOUR = 3_600 * SECOND
Meaning = Callable[[Effect[object], World], tuple[World, object]]


def as_it_is(effect: Effect[object], world: World) -> tuple[World, object]:
    return next(calls(effect, world, "w"))


def no_reply(effect: Effect[object], world: World) -> tuple[World, object]:
    return as_it_is(effect, world) if isinstance(effect, Call) else (world, Ambiguous("no reply"))


def ran(program: Program[object], world: World, meaning: Meaning = as_it_is) -> tuple[World, object]:
    reply: object = None
    while True:
        try:
            effect = program.throw(reply) if isinstance(reply, Failure) else program.send(reply)
        except StopIteration as stop:
            return world, stop.value
        world, reply = (world, None) if type(effect).__name__ == "Sleep" else meaning(effect, world)


def test_what_is_put_is_found_read_deleted_and_swept() -> None:
    empty: World = world_with({})
    world, answer = ran(uploads.put(STORE, KEY, "w", "none"), empty)
    assert answer == uploads.Stored(1)
    world, found = ran(uploads.find(STORE, KEY), world)
    content = content_of("w")
    assert getattr(found, "content", None) == content
    assert [ran(uploads.read(STORE, KEY, content, number), world)[1] for number in range(2)] == [b"a ", b"new one"]
    assert ran(uploads.get(STORE, KEY), world)[1] == content
    world, answer = ran(uploads.delete(STORE, KEY, "d"), world)
    assert answer == uploads.Deleted()
    assert ran(uploads.delete(STORE, KEY, "e"), world) == (world, uploads.Absent())
    assert ran(uploads.find(STORE, KEY), world)[1] == ran(uploads.get(STORE, KEY), world)[1] == uploads.Absent()
    world, answer = ran(uploads.sweep(STORE, 0), world)
    assert answer == uploads.Swept(0, 1)
    assert ran(uploads.sweep(STORE, 0), world) == (world, uploads.Swept(0, 0))
    assert ran(uploads.delete(STORE, "never put", "d"), empty) == (empty, uploads.Absent())


@pytest.mark.parametrize(
    "program",
    [
        lambda: uploads.put(STORE, KEY, "w", "none"),
        lambda: uploads.delete(STORE, KEY, "w"),
        lambda: uploads.find(STORE, KEY),
        lambda: uploads.read(STORE, KEY, OLD, 0),
        lambda: uploads.get(STORE, KEY),
        lambda: uploads.sweep(STORE, 0),
    ],
)
def test_who_has_no_answer_gives_up(program: Callable[[], Program[object]]) -> None:
    assert ran(program(), world_with({}), no_reply)[1] == uploads.Unanswered(3)


def test_a_switch_that_others_have_buried_is_unanswered() -> None:
    """Its reply was lost, and the record no longer remembers that version's author."""

    def buried(effect: Effect[object], world: World) -> tuple[World, object]:
        if not isinstance(effect, UpdateOne):
            return as_it_is(effect, world)
        for number in range(HISTORY_MAX + 2):
            world, _ = ran(uploads.delete(STORE, KEY, f"d{number}"), world)
            again = new_content(world)
            world = world.write(document("records", KEY), again)
        return world, Ambiguous("no reply")

    def new_content(world: World) -> Document:
        found = world.read(document("records", KEY))
        assert found is not None
        return found.put(CONTENT, OLD.document())

    first: World = world_with({"records": (new_record(KEY).put(CONTENT, OLD.document()),)})
    assert ran(uploads.delete(STORE, KEY, "w"), first, buried)[1] == uploads.Unanswered(2)


@pytest.mark.parametrize(
    "program",
    [
        lambda: uploads.put(STORE, KEY, "w", "none"),
        lambda: uploads.delete(STORE, KEY, "w"),
        lambda: uploads.find(STORE, KEY),
        lambda: uploads.get(STORE, KEY),
    ],
)
def test_a_record_that_cannot_be_read_is_said_to_be_damaged(program: Callable[[], Program[object]]) -> None:
    spoiled: World = world_with(
        {"records": (Document.of({"_id": KEY}),), "chunks": (Document.of({"_id": "x/0000000000", "key": KEY}),)}
    )
    assert isinstance(ran(program(), spoiled)[1], Damaged)
    assert ran(uploads.sweep(STORE, 0), spoiled) == (spoiled, uploads.Swept(0, 0))


def test_a_switch_that_lost_to_another_is_not_confused_with_the_next_one() -> None:
    switches = 0

    def no_reply_to_switches(effect: Effect[object], world: World) -> tuple[World, object]:
        nonlocal switches
        if not isinstance(effect, UpdateOne) or CONTENT not in {each.field for each in effect.updates}:
            return as_it_is(effect, world)
        switches += 1
        world, _ = ran(uploads.delete(STORE, KEY, "d"), world) if switches == 1 else as_it_is(effect, world)
        return world, Ambiguous("no reply")

    world: World = world_with({"records": (new_record(KEY).put(CONTENT, OLD.document()),)})
    world, answer = ran(uploads.put(STORE, KEY, "w", "none"), world, no_reply_to_switches)
    assert (answer, switches) == (uploads.Stored(2), 2)
    assert ran(uploads.get(STORE, KEY), world)[1] == content_of("w")


def at(hours: int, world: World) -> World:
    return world.write(CLOCK, Instant(hours * HOUR, STORE_CLOCK))


def test_sweeps_that_come_often_remove_in_the_end_what_they_keep_for_readers() -> None:
    """The retention counts from the first sweep that found it unneeded."""
    world: World = world_with({"chunks": (chunk_document("u", 0, KEY, b"data"),)})
    swept = []
    for hours in range(26):
        world, answer = ran(uploads.sweep(STORE, 24 * HOUR), at(hours, world))
        swept.append(answer)
    assert swept == [uploads.Swept(0, 0)] * 24 + [uploads.Swept(0, 1)] + [uploads.Swept(0, 0)]


@pytest.mark.parametrize("hours", [23, 24])
def test_an_upload_that_goes_on_is_not_taken_for_dead(hours: int) -> None:
    def touched_meanwhile(effect: Effect[object], world: World) -> tuple[World, object]:
        world, reply = as_it_is(effect, world)
        if isinstance(effect, FindAll) and effect.collection == "records":
            world, _ = as_it_is(touch("records", KEY, "u"), world)
        return world, reply

    world, _ = as_it_is(announce("records", KEY, 0, "u"), at(0, world_with({"records": (new_record(KEY),)})))
    assert ran(uploads.sweep(STORE, 24 * HOUR), at(hours, world), touched_meanwhile)[1] == uploads.Swept(0, 0)
    assert ran(uploads.sweep(STORE, 24 * HOUR), at(hours, world))[1] == uploads.Swept(hours // 24, 0)


def test_a_sweep_passes_a_record_that_cannot_be_read_by() -> None:
    """Its uploads seem abandoned."""
    odd = Document.of({"_id": "a", "version": "x", "pending": ("u",)}).put(
        Field[Instant]("touched"), Instant(0, STORE_CLOCK)
    )
    world, _ = ran(uploads.put(STORE, KEY, "w", "none"), world_with({"records": (odd,)}))
    world, _ = ran(uploads.delete(STORE, KEY, "d"), world)
    world, answer = ran(uploads.sweep(STORE, 0), world)
    assert answer == uploads.Swept(0, 1)
    assert world.read(document("records", "a")) == odd


@pytest.mark.parametrize("every", [2, 3])
def test_a_sweep_goes_on_where_it_had_no_answer_and_forgets_nothing_that_it_did(every: int) -> None:
    left_over = (chunk_document(f"u{number}", 0, KEY, b"data") for number in range(8))
    world: World = world_with({"chunks": tuple(left_over)})
    asked = 0

    def often_unsent(effect: Effect[object], world: World) -> tuple[World, object]:
        nonlocal asked
        asked += isinstance(effect, DeleteMany)
        return (
            (world, NotApplied("not sent"))
            if isinstance(effect, DeleteMany) and asked % every
            else as_it_is(effect, world)
        )

    assert ran(uploads.sweep(STORE, 0), world, often_unsent)[1] == uploads.Swept(0, 8)
    assert asked == 8 * every


def test_a_record_with_chunks_and_a_payload_is_damaged() -> None:
    """Either may be the intended one."""
    both: World = world_with({"records": (new_record(KEY).put(CONTENT, Content("a", 0, 1, "0", "x").document()),)})
    assert isinstance(ran(uploads.find(STORE, KEY), both)[1], Damaged)


@pytest.mark.parametrize("name", ["whole", "chunk", "facts"])
def test_what_hands_in_nonsense_is_told(name: str) -> None:
    def nonsense(effect: Effect[object], world: World) -> tuple[World, object]:
        return (world, 7) if effect == Call(name) else as_it_is(effect, world)

    with pytest.raises(Misuse):
        ran(uploads.put(STORE, KEY, "w", "none"), world_with({}), nonsense)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: uploads.PayloadStore("", "chunks"),
        lambda: uploads.PayloadStore("records", "records"),
        lambda: uploads.PayloadStore("records", "chunks", 0),
        lambda: uploads.PayloadStore("records", "chunks", pauses=None),  # type: ignore[arg-type]
        lambda: ran(uploads.put(STORE, "", "w", "none"), world_with({})),
        lambda: ran(uploads.put(STORE, KEY, "a/b", "none"), world_with({})),
        lambda: ran(uploads.delete(STORE, "", "w"), world_with({})),
        lambda: ran(uploads.find(STORE, ""), world_with({})),
        lambda: ran(uploads.read(STORE, KEY, OLD, 3), world_with({})),
        lambda: ran(uploads.sweep(STORE, -1), world_with({})),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: Callable[[], Any]) -> None:
    with pytest.raises(Misuse):
        wrong()
