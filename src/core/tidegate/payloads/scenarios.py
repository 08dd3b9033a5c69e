"""A payload in two chunks is replaced while somebody reads it and somebody collects what is left over.

The new payload has one chunk in common with the old one. Writers crash, and all of their requests may meet the faults of
the network. When all is quiet, marks of dead writers are undone, and the rest is collected.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Final

from tidegate.model.documents import ID
from tidegate.model.effects import Program
from tidegate.payloads import laws
from tidegate.payloads.chunking import Chunk, Codec, Joined, Kind, Manifest, Plan, Reference
from tidegate.payloads.payload_records import MANIFEST, PayloadRecord, new_record, record_of
from tidegate.payloads.replacement import ATTEMPTS, Collector, Reader, ReplacementParts, Replacer, Swapped
from tidegate.sim.actors import QUIET, Network, Process, factory, when_quiet
from tidegate.sim.automaton import Returned
from tidegate.sim.faults import Fault, Faults
from tidegate.sim.scenario import Law, Scenario, State
from tidegate.sim.shipping import Shipped
from tidegate.sim.world import contents, document, perform, world_with

__all__ = ["CHUNKS", "REACHABLE", "RIGHT", "SCENARIOS", "SWAPS", "THERE", "TRUTH", "WHOLE", "payloads"]

RECORDS: Final = "records"
CHUNKS: Final = "chunks"
KEY: Final = "report"

WHOLE: Final = "a reader answers a payload that was swapped in"
THERE: Final = "a manifest refers to what is there"
SWAPS: Final = "a record changes by swaps and undos"
TRUTH: Final = "who says so has swapped"
REACHABLE: Final = "at rest only what is referred to is left"

RIGHT: Final = ReplacementParts()
FAULTS: Final = Faults.of(Fault.CRASH_BEFORE, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE)


def planned(*parts: bytes) -> Plan:
    """A text in chunks, each as small as it is given: how a payload is cut is tested elsewhere."""
    chunks, raw = tuple(map(Chunk, parts)), b"".join(parts)
    digests = tuple(chunk.digest for chunk in chunks)
    text = Reference(Kind.TEXT, Codec.NONE, len(raw), sha256(raw).hexdigest(), digests)
    return Plan(Manifest((("text", text),)), chunks)


OLD: Final = planned(b"one ", b"two")
NEW: Final = (planned(b"one ", b"three"), planned(b"two", b"three"), planned(b"four"))
TEXTS: Final = ("one two", "one three", "twothree", "four")


def record(state: State) -> PayloadRecord:
    found = state.read(document(RECORDS, KEY))
    assert found is not None
    known = record_of(found)
    assert isinstance(known, PayloadRecord)
    return known


def there(state: State) -> tuple[str, ...]:
    return tuple(chunk[ID] for chunk in contents(state, CHUNKS))


def answers_whole(reader: str) -> Law:
    def holds(state: State) -> bool:
        match state.status(reader):
            case Returned(Joined(payload)):
                return dict(payload.items).get("text") in TEXTS
            case Returned():
                return False
            case _:
                return True

    return holds


def swapped(name: str) -> Law:
    def holds(state: State) -> bool:
        match state.status(name):
            case Returned(Swapped(version)):
                made = {change.version: change.request_id for change in record(state).history}
                return made.get(version, "").startswith(f"{name}@")
            case _:
                return True

    return holds


def changes_right(before: State, after: State) -> bool:
    """Law CH6, without knowing which write it was."""
    was, now = record(before), record(after)
    made = now.manifest if now.manifest in [plan.manifest for plan in NEW] else None
    return laws.payload_records.changes_by_swaps_and_undos(was, now, made, was.version)


async def collect(collector: Collector, early: int) -> None:
    """Collect at any time, and when all is quiet, undo what is marked and collect again."""
    for _ in range(early):
        await collector.run()
    await QUIET
    await collector.undo("collector")
    await collector.run()


def payloads(
    parts: ReplacementParts = RIGHT,
    collecting: Callable[[Collector, int], Program[None]] = collect,
    *,
    summary: str = "a payload is replaced while others read and collect: the old one or the new one, whole",
    writers: int = 1,
    readers: int = 1,
    attempts: int = ATTEMPTS,
    early: int = 1,
    budget: int = 2,
    faults: Faults = FAULTS,
) -> Scenario:
    """The scenario.

    Args:
        parts: The steps of the programs, or a faulty variant of one.
        collecting: What the collector does, or a faulty variant of it.
        summary: One line for people.
        writers: How many replace the payload.
        readers: How many read it.
        attempts: How often each of them tries.
        early: How many collections there are while they do.
        budget: How many faults may strike.
        faults: Which may strike writers.
    """
    first = new_record(KEY).put(MANIFEST, OLD.manifest.document())
    writing = tuple(
        Process(name, factory(Replacer(RECORDS, CHUNKS, KEY, plan, name, parts=parts).run), faults)
        for name, plan in zip(("w", "v", "u")[:writers], NEW, strict=False)
    )
    reading = tuple(
        Process(f"r{number}", factory(Reader(RECORDS, CHUNKS, KEY, attempts, parts).run))
        for number in range(1, readers + 1)
    )
    names = [process.name for process in writing]
    return Scenario(
        name="payloads",
        summary=summary,
        world=world_with({RECORDS: (first,), CHUNKS: tuple(chunk.document("old") for chunk in OLD.chunks)}),
        actors=(
            *writing,
            *reading,
            Process(
                "collector",
                factory(collecting, Collector(RECORDS, CHUNKS, parts=parts), early),
                meaning=when_quiet((*writing, *reading), perform),
            ),
            Network(),
        ),
        budget=budget,
        always={
            WHOLE: tuple(answers_whole(process.name) for process in reading),
            THERE: lambda state: laws.payload_records.refers_to_what_is_there((record(state),), there(state)),
            TRUTH: tuple(map(swapped, names)),
        },
        step={SWAPS: changes_right},
        eventually={
            REACHABLE: lambda state: laws.payload_records.only_the_reachable_is_left((record(state),), there(state))
        },
        sometimes={
            "the old payload is read after the new one is in": lambda state: any(
                record(state).version > 0 and read_text(state, process.name) == TEXTS[0] for process in reading
            ),
            "the new payload is read": lambda state: any(
                read_text(state, process.name) in TEXTS[1:] for process in reading
            ),
            **({"the marks of the dead are undone": is_undone} if budget >= writers else {}),
        },
    )


def is_undone(state: State) -> bool:
    return record(state).version > 0 and record(state).manifest == OLD.manifest


def read_text(state: State, reader: str) -> object:
    match state.status(reader):
        case Returned(Joined(payload)):
            return dict(payload.items).get("text")
        case _:
            return None


SCENARIOS: Final = (
    Shipped(
        "payloads",
        payloads,
        thorough=partial(payloads, writers=2, budget=1),
        large=partial(payloads, writers=3, readers=2, early=2, budget=4),
    ),
)
