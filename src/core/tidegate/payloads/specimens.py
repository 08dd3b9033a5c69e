"""Ways to replace a large payload wrongly. Each differs from `tidegate.payloads.uploads` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.model.documents import ID, AllOf, Document, Eq, Put
from tidegate.model.effects import Ambiguous
from tidegate.model.instants import Duration
from tidegate.model.operations import delete_one, find_all, find_one, update_one
from tidegate.model.programs import insert_new
from tidegate.payloads.scenarios import CHUNKS, LEFT, RIGHT, SWITCHES, THERE, TRUTH, WHOLE, payloads
from tidegate.payloads.upload_records import (
    FACTS,
    PENDING,
    VERSION,
    Content,
    Damaged,
    Found,
    UploadRecord,
    switch,
    upload_of,
    upload_record_of,
)
from tidegate.payloads.uploads import Replaced
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


def what_is_announced_may_go(record: UploadRecord, upload: str) -> bool:
    """A sweep keeps what contents refer to, and nothing else: the chunks of an upload that is under way go."""
    return record.content is not None and record.content.upload == upload


async def undo_at_the_same_version(records: str, key: str, version: int, _: Duration) -> int:
    """What was announced is taken back, but a switch that was decided before still matches."""
    return await update_one(records, AllOf((Eq(ID, key), Eq(VERSION, version))), Put(PENDING, ()))


async def never_undone(_records: str, _key: str, _version: int, _age: Duration) -> int:
    """Uploads whose writers are dead stay announced, and so their chunks stay."""
    return 0


async def switch_at_any_version(records: str, key: str, version: int, upload: str, payload: Found | None) -> int:
    """The content is switched in over whatever is there by then."""
    right = switch(records, key, version, upload, payload)
    return await update_one(records, Eq(ID, key), *right.updates)


async def deletes_the_old_first(records: str, key: str, version: int, upload: str, payload: Found | None) -> int:
    """The old chunks are deleted, then the new content comes in: between the two there is no payload."""
    found = await find_one(records, Eq(ID, key), fields=FACTS)
    record = None if found is None else upload_record_of(found)
    if isinstance(record, UploadRecord) and record.content is not None:
        for chunk in await find_all(CHUNKS, limit=9):
            if upload_of(chunk[ID]) == record.content.upload:
                await delete_one(CHUNKS, Eq(ID, chunk[ID]))
    return await switch(records, key, version, upload, payload)


async def no_reply_is_yes(records: str, key: str, version: int, upload: str, payload: Found | None) -> int:
    """No reply to the switch is taken for a yes."""
    try:
        return await switch(records, key, version, upload, payload)
    except Ambiguous:
        return 1


async def a_lost_chunk_is_there(chunks: str, chunk: Document) -> bool:
    """A chunk whose insert had no reply is taken for stored."""
    try:
        return await insert_new(chunks, chunk) or True
    except Ambiguous:
        return True


async def missing_is_damaged(_records: str, _key: str, _content: Content, number: int) -> Damaged | Replaced:
    """A chunk that is missing is the end: nobody looks whether the payload was replaced meanwhile."""
    return Damaged(f"chunk {number}", "is missing")


SAME_ID: Final = "Chunks are named by the payload's key: those of two uploads mix."


def planted(name: str, summary: str | None, make: partial[Scenario], law: str, source: str) -> Specimen:
    """The scenario of the programs, with the bug in its place."""
    first_line = (summary or "").partition("\n")[0]
    return Specimen(f"payloads.{name}", partial(make, summary=first_line), law, source, of="payloads")


SPECIMENS: Final = (
    planted(
        "what_is_announced_may_go",
        what_is_announced_may_go.__doc__,
        partial(payloads, attrs.evolve(RIGHT, needs=what_is_announced_may_go)),
        THERE,
        "Any collection by reachability: what is not referred to yet looks like what is not referred to any more.",
    ),
    planted(
        "undo_at_the_same_version",
        undo_at_the_same_version.__doc__,
        partial(payloads, attrs.evolve(RIGHT, undo=undo_at_the_same_version)),
        SWITCHES,
        "Planted: a guess that a writer is dead must fence it.",
    ),
    planted(
        "switch_at_any_version",
        switch_at_any_version.__doc__,
        partial(payloads, attrs.evolve(RIGHT, switch=switch_at_any_version)),
        SWITCHES,
        "pynenc: two writers of a key mix their chunks, for neither asks what the other has done.",
    ),
    planted(
        "deletes_the_old_first",
        deletes_the_old_first.__doc__,
        partial(payloads, attrs.evolve(RIGHT, switch=deletes_the_old_first)),
        THERE,
        "pynenc deletes the old chunks of a key and then inserts the new ones.",
    ),
    planted(
        "no_reply_is_yes",
        no_reply_is_yes.__doc__,
        partial(payloads, attrs.evolve(RIGHT, switch=no_reply_is_yes)),
        TRUTH,
        "The resilience article: a time-out says nothing about whether the write was done.",
    ),
    planted(
        "a_lost_chunk_is_there",
        a_lost_chunk_is_there.__doc__,
        partial(payloads, attrs.evolve(RIGHT, insert=a_lost_chunk_is_there)),
        THERE,
        "The resilience article: a time-out says nothing about whether the write was done.",
    ),
    planted(
        "missing_is_damaged",
        missing_is_damaged.__doc__,
        partial(payloads, attrs.evolve(RIGHT, why_missing=missing_is_damaged)),
        WHOLE,
        "pynenc raises a KeyError where chunks are missing, which they are whenever the payload is being replaced.",
    ),
    planted(
        "same_id",
        SAME_ID,
        partial(payloads, same_id=True),
        WHOLE,
        "pynenc names chunks by the key, and GridFS by an id that its caller may use again.",
    ),
    planted(
        "never_undone",
        never_undone.__doc__,
        partial(payloads, attrs.evolve(RIGHT, undo=never_undone)),
        LEFT,
        "GridFS has no answer to what an upload leaves that has failed.",
    ),
)
