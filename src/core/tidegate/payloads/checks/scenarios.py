"""A payload in three chunks is replaced by one in two, during a read and a sweep.

Writers crash, and their requests and the sweep's deletes may meet network faults. Sweeps do not
wait before they undo and remove. A last sweep follows at rest.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from types import ModuleType
from typing import Final

from tidegate.model.documents import ID, Document
from tidegate.model.effects import Call, Effect
from tidegate.model.operations import DeleteMany, DeleteOne, FindOne, InsertOne, UpdateOne
from tidegate.payloads import uploads
from tidegate.payloads.checks import laws
from tidegate.payloads.upload_records import (
    CONTENT,
    Content,
    UploadRecord,
    chunk_document,
    new_record,
    upload_record_of,
)
from tidegate.payloads.uploads import Abandoned, PayloadStore, Replaced, Stored
from tidegate.sim.program.automaton import Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Law, Scenario, State
from tidegate.sim.servers.actors import QUIET, Network, Process, factory, when_quiet
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import Cell, Outcomes, World, contents, document, perform, world_with

RECORDS: Final = "records"
CHUNKS: Final = "chunks"
KEY: Final = "report"

WHOLE: Final = "a reader has read a payload that was put"
THERE: Final = "a content refers to what is there"
SWITCHES: Final = "a content changes by switches"
TRUTH: Final = "who says so has stored it"
LEFT: Final = "at rest only what is referred to is left"

REQUESTS: Final = (FindOne, UpdateOne, InsertOne)


def deletes(effect: Effect[object]) -> bool:
    return isinstance(effect, (DeleteOne, DeleteMany))


def is_request(effect: Effect[object]) -> bool:
    return isinstance(effect, REQUESTS)


FAULTS: Final = Faults.of(
    Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE, Fault.DUPLICATE,
    Fault.NOT_DURABLE, Fault.CANCELLED, on=is_request,
)  # fmt: skip
DELETING: Final = Faults.of(Fault.PARTLY_DONE, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE, on=deletes)

PAYLOADS: Final = {"old": (b"an ", b"old ", b"one"), "w": (b"a ", b"new one"), "v": (b"another",), "u": (b"small",)}
PUT: Final = tuple(b"".join(pieces) for pieces in PAYLOADS.values())
INLINE: Final = ("u",)
"""The payloads stored in their records."""


def read_so_far(who: str) -> Cell[int]:
    """How many chunks of its payload a writer has read."""
    return Cell(("read so far", who), 0)


def got(who: str) -> Cell[tuple[bytes, ...]]:
    """The chunks that a reader has received since its begin."""
    return Cell(("got", who), ())


def content_of(upload: str) -> Content:
    payload = b"".join(PAYLOADS[upload])
    chunks = 0 if upload in INLINE else len(PAYLOADS[upload])
    return Content(upload, chunks, len(payload), sha256(payload).hexdigest(), "none")


def calls(effect: Effect[object], world: World, who: str) -> Outcomes:
    """The user code of writers and readers."""
    match effect:
        case Call("whole"):
            yield world, PAYLOADS[who][0] if who in INLINE else None
        case Call("chunk"):
            number = world.read(read_so_far(who))
            data = PAYLOADS[who][number] if number < len(PAYLOADS[who]) else b""
            yield world.write(read_so_far(who), number + 1), data
        case Call("facts"):
            content = content_of(who)
            yield world, (content.length, content.digest)
        case Call("begin"):
            yield world.write(got(who), ()), None
        case Call("keep", (bytes() as data,)):
            yield world.write(got(who), (*world.read(got(who)), data)), None
        case _:
            yield from perform(effect, world, who)


def record(state: State) -> UploadRecord:
    found = state.read(document(RECORDS, KEY))
    assert found is not None
    known = upload_record_of(found)
    assert isinstance(known, UploadRecord)
    return known


def there(state: State) -> tuple[str, ...]:
    return tuple(chunk[ID] for chunk in contents(state, CHUNKS))


def has_read(state: State, reader: str) -> str | None:
    """The upload whose payload it has read completely."""
    match state.status(reader):
        case Returned(Content(upload)):
            return upload
        case _:
            return None


def reads_whole(reader: str) -> Law:
    def holds(state: State) -> bool:
        match state.status(reader):
            case Returned(Content() as content):
                payload = b"".join([*state.read(got(reader))])
                return payload in PUT and sha256(payload).hexdigest() == content.digest
            case Returned(Replaced()):
                return True
            case Returned():
                return False
            case _:
                return True

    return holds


def tells_the_truth(name: str) -> Law:
    def holds(state: State) -> bool:
        made = {change.version: change.request_id for change in record(state).history}
        match state.status(name):
            case Returned(Stored(version)):
                return made.get(version) == name
            case Returned(Abandoned()):
                return name not in made.values()
            case _:
                return True

    return holds


def changes_right(before: State, after: State) -> bool:
    was, now = record(before), record(after)
    return laws.upload_records.changes_by_switches(was, now, was.version)


async def sweeps(made: ModuleType, store: PayloadStore, early: int) -> None:
    """Sweep at any time, and at rest."""
    for _ in range(early):
        await made.sweep(store, 0)
    await QUIET
    await made.sweep(store, 0)


def payloads(
    made: ModuleType = uploads,
    *,
    summary: str = "a payload is replaced while others read and sweep: the old one or the new one, whole",
    writers: str = "w",
    readers: int = 1,
    attempts: int = 4,
    early: int = 1,
    budget: int = 1,
    faults: Faults = FAULTS,
    same_id: bool = False,
) -> Scenario:
    store = PayloadStore(RECORDS, CHUNKS, attempts)
    old = (chunk_document("old", number, KEY, data) for number, data in enumerate(PAYLOADS["old"]))
    first: Document = new_record(KEY).put(CONTENT, content_of("old").document())
    writing = tuple(
        Process(name, factory(made.put, store, KEY, "old" if same_id else name, "none"), faults, calls)
        for name in writers
    )
    reading = tuple(
        Process(f"r{number}", factory(made.get, store, KEY), meaning=calls) for number in range(1, readers + 1)
    )
    return Scenario(
        name="payloads",
        summary=summary,
        world=world_with({RECORDS: (first,), CHUNKS: tuple(old)}),
        actors=(
            *writing,
            *reading,
            Process(
                "sweeper", factory(sweeps, made, store, early), DELETING, when_quiet((*writing, *reading), perform)
            ),
            Network(calls),
        ),
        budget=budget,
        always={
            WHOLE: tuple(reads_whole(process.name) for process in reading),
            THERE: lambda state: laws.upload_records.refers_to_what_is_there((record(state),), there(state)),
            TRUTH: () if same_id else tuple(map(tells_the_truth, writers)),
        },
        step={SWITCHES: changes_right},
        eventually={
            LEFT: lambda state: laws.upload_records.only_what_is_referred_to_is_left((record(state),), there(state))
        },
        sometimes={
            "the old payload is read after the new one is in": lambda state: (
                record(state).version > 0 and any(has_read(state, process.name) == "old" for process in reading)
            ),
            "the new payload is read": lambda state: any(
                has_read(state, process.name) in [*writers] for process in reading
            ),
            "an upload is taken for dead": lambda state: any(
                state.status(process.name) == Returned(Abandoned()) for process in writing
            ),
        },
    )


SCENARIOS: Final = (
    Shipped(
        "payloads",
        payloads,
        thorough=partial(payloads, budget=2),
        large=partial(payloads, writers="wvu", readers=2, early=2, budget=4),
    ),
)
