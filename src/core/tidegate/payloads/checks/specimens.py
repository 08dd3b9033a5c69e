"""Faulty replacements of a large payload."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.model.documents import AllOf
from tidegate.payloads import uploads
from tidegate.payloads.checks.scenarios import LEFT, SWITCHES, THERE, TRUTH, WHOLE, payloads
from tidegate.payloads.upload_records import PENDING, VERSION
from tidegate.sim.runs.registry import Specimen, specimen
from tidegate.sim.trace.variants import variant


def bug(name: str, law: str, says: str, source: str, *replacements: tuple[str, str], **names: object) -> Specimen:
    return specimen(
        name, law, says, source, partial(variant, uploads, *replacements, **names), make=payloads, of="payloads"
    )


UNDO: Final = "upload_records.undo(store.records, needed(found, _ID), record.version, age)"
SWITCH: Final = "upload_records.switch(store.records, key, record.version, upload, payload)"
SWITCHED: Final = f"            if await {SWITCH}:\n"
DELETES_FIRST: Final = """            before = await _looked(store, key)
            if isinstance(before, UploadRecord) and before.content is not None:
                for chunk in await find_all(store.chunks, limit=9):
                    if upload_of(chunk[ID]) == before.content.upload:
                        await delete_one(store.chunks, Eq(ID, chunk[ID]))
"""
YES: Final = f"""            try:
                matched = await {SWITCH}
            except Ambiguous:
                matched = 1
            if matched:
"""
THERE_NOW: Final = """            try:
                is_there = await insert_new(store.chunks, chunk) or True
            except Ambiguous:
                is_there = True
"""

SPECIMENS: Final = (
    bug("payloads.what_is_announced_may_go", THERE,
        "A sweep keeps what contents refer to, and nothing else: the chunks of an upload that is under way go.",
        "Any collection by reachability: what is not referred to yet looks like what is not referred to any more.",
        ("record.needs(upload_of(first))", "(record.content is not None and record.content.upload == upload_of(first))")),
    bug("payloads.undo_at_the_same_version", SWITCHES,
        "What was announced is taken back, but a switch that was decided before still matches.",
        "Planted: a guess that a writer is dead must fence it.",
        (UNDO, "update_one(store.records, AllOf((Eq(ID, needed(found, _ID)), Eq(VERSION, record.version))), Put(PENDING, ()))"),
        AllOf=AllOf, PENDING=PENDING, VERSION=VERSION),
    bug("payloads.switch_at_any_version", SWITCHES,
        "The content is switched in over whatever is there by then.",
        "pynenc: two writers of a key mix their chunks, for neither asks what the other has done.",
        (SWITCH, f"update_one(store.records, Eq(ID, key), *{SWITCH}.updates)")),
    bug("payloads.deletes_the_old_first", THERE,
        "The old chunks are deleted, then the new content comes in: between the two there is no payload.",
        "pynenc deletes the old chunks of a key and then inserts the new ones.",
        (SWITCHED, DELETES_FIRST + SWITCHED)),
    bug("payloads.no_reply_is_yes", TRUTH,
        "No reply to the switch is taken for a yes.",
        "The resilience article: a time-out says nothing about whether the write was done.",
        (SWITCHED, YES)),
    bug("payloads.a_lost_chunk_is_there", THERE,
        "A chunk whose insert had no reply is taken for stored.",
        "The resilience article: a time-out says nothing about whether the write was done.",
        ("            is_there = await _insert(store.chunks, chunk)\n", THERE_NOW)),
    bug("payloads.missing_is_damaged", WHOLE,
        "A chunk that is missing is the end: nobody looks whether the payload was replaced meanwhile.",
        "pynenc raises a KeyError where chunks are missing, which they are whenever the payload is being replaced.",
        ("await _why_missing(store.records, key, content, number)", 'Damaged(f"chunk {number}", "is missing")')),
    specimen(
        "payloads.same_id", WHOLE,
        "Chunks are named by the payload's key: those of two uploads mix.",
        "pynenc names chunks by the key, and GridFS by an id that its caller may use again.",
        lambda: uploads, make=partial(payloads, same_id=True), of="payloads"),
    bug("payloads.never_undone", LEFT,
        "Uploads whose writers are dead stay announced, and so their chunks stay.",
        "GridFS has no answer to what an upload leaves that has failed.",
        (f"await {UNDO}", "0")),
)  # fmt: skip
