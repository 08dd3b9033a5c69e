from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Protocol, TypeAlias, TypeVar, assert_never

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate.model.documents import ID, Document, Eq, Field, Put, matches, updated
from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.model.history import Change, NotYet, Superseded, Won, outcome_of
from tidegate.model.instants import Instant
from tidegate.model.operations import DeleteOne, InsertOne, UpdateOne, delete_one, update_one
from tidegate.payloads import chunking, laws
from tidegate.payloads.chunking import (
    HISTORY,
    LIMIT,
    MANIFEST,
    PENDING,
    PUT,
    THRESHOLD,
    UNDONE,
    VERSION,
    Chunk,
    Codec,
    Corrupt,
    Done,
    Insert,
    Joined,
    Kind,
    Manifest,
    Mark,
    Missing,
    PayloadRecord,
    Plan,
    Reference,
    Seen,
    Size,
    TooLarge,
    TooLong,
    Touch,
    attempt_of,
    collectable,
    decide_put,
    join,
    new_record,
    plan,
    put,
    record_of,
    remove,
)
from tidegate.payloads.strategies import chunks, manifests, marks, payloads, records, references, seen, torn

T = TypeVar("T")

ATTEMPT = "ann@0"


class Planner(Protocol):
    """How a payload is stored, or a faulty variant of it."""

    def __call__(
        self, payload: Document, size: Size, *, attempt: str, threshold: int = ..., codec: Codec = ...
    ) -> Plan | TooLarge: ...


class Joiner(Protocol):
    """How it is put together again, or a faulty variant of it."""

    def __call__(
        self, manifest: Manifest, chunks: Mapping[str, object], *, limit: int = ...
    ) -> Joined | Missing | Corrupt | TooLong: ...


@attrs.frozen
class Desk:
    """What writers, readers and collectors ask: the real functions, but for one that is planted."""

    plan: Planner = chunking.plan
    join: Joiner = chunking.join
    attempt_of: Callable[[str, int], str] = chunking.attempt_of
    touch: Callable[[str, Seen, str], UpdateOne] = chunking.touch
    swap: Callable[[str, str, int, Mark, Manifest], UpdateOne] = chunking.swap
    undo: Callable[[str, str, int, str], UpdateOne] = chunking.undo
    remove: Callable[[str, Seen], DeleteOne] = chunking.remove
    decide_put: Callable[[Seen | None, str], Insert | Touch | Done] = chunking.decide_put
    collectable: Callable[[Iterable[Seen], Iterable[PayloadRecord]], tuple[Seen, ...]] = chunking.collectable
    marks_first: bool = True
    """An attempt marks before it puts; in a specimen, after."""
    sees_first: bool = True
    """A collector reads the chunks before the records; in a specimen, after."""


def effort(desk: Desk, examples: int = 100) -> settings:
    """A counterexample to a specimen need not be a small one."""
    if desk == Desk():
        return settings(max_examples=examples)
    return settings(max_examples=10 * examples, phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False)


def bson_size(document: Document) -> int:
    """How many bytes BSON takes (bsonspec.org), for what payloads and chunks are made of."""
    return 5 + sum(2 + len(key.encode()) + value_size(value) for key, value in document.items)


def value_size(value: object) -> int:
    match value:
        case str():
            return 5 + len(value.encode())
        case bytes():
            return 5 + len(value)
        case tuple():
            return bson_size(Document(tuple((str(place), item) for place, item in enumerate(value))))
        case Document():
            return bson_size(value)
        case _:
            return 4


# --- plan and join ----------------------------------------------------------------------------------------------------

THRESHOLDS = st.integers(450, 1_200)
LONG = Document.of({"a": "x" * 1_500, "b": b"y", "c": bytes(range(256)) * 5})
MANY = Document.of({f"key {number}": f"{number:2}" * 40 for number in range(20)})


def check_plan(desk: Desk) -> None:
    """Laws CH1, CH2 and CH5 of any payload, threshold and codec."""

    @effort(desk)
    @given(payloads(), THRESHOLDS, st.sampled_from(Codec))
    @example(LONG, 1_000, Codec.NONE)
    @example(LONG, 1_000, Codec.ZLIB)
    @example(LONG, 300, Codec.NONE)
    @example(MANY, 1_000, Codec.NONE)
    @example(MANY, 1_000, Codec.ZLIB)
    @example(Document.of({"a": "z" * 980}), 1_000, Codec.NONE)
    @example(Document.of({"a": "xyz" * 600, "b": "xyz" * 600}), 1_000, Codec.NONE)
    def what_is_planned_is_joined(payload: Document, threshold: int, codec: Codec) -> None:
        planned = desk.plan(payload, bson_size, attempt=ATTEMPT, threshold=threshold, codec=codec)

        assert laws.fits(payload, bson_size, threshold, ATTEMPT, planned), "CH2"
        if isinstance(planned, Plan):
            assert laws.each_is_named_by_its_content(planned), "CH5"
            given_back = desk.join(planned.manifest, {chunk.digest: chunk.data for chunk in planned.chunks})
            assert laws.gives_it_back(payload, given_back), "CH1"

    what_is_planned_is_joined()


@st.composite
def tampered(draw: st.DrawFn) -> tuple[Document, Manifest, dict[str, object]]:
    """A payload that was planned, and what became of its manifest and its chunks."""
    payload, other = (
        draw(payloads()).put(Field[bytes]("long"), draw(st.binary(min_size=500, max_size=900))) for _ in range(2)
    )
    codecs = st.sampled_from(tuple(Codec))
    mine, theirs = (
        plan(each, bson_size, attempt=ATTEMPT, threshold=450, codec=draw(codecs)) for each in (payload, other)
    )
    if not isinstance(mine, Plan) or not isinstance(theirs, Plan):
        return payload, Manifest(payload.items), {}  # type: ignore[arg-type]  # texts and bytes
    data: dict[str, object] = {chunk.digest: chunk.data for chunk in (*mine.chunks, *theirs.chunks)}
    manifest = mine.manifest
    for chunk in mine.chunks:
        match draw(st.sampled_from(("kept", "kept", "gone", "torn", "another's"))):
            case "gone":
                del data[chunk.digest]
            case "torn":
                data[chunk.digest] = draw(torn(chunk.data) | st.just("text"))
            case "another's" if theirs.chunks:
                data[chunk.digest] = theirs.chunks[0].data
            case _:
                pass
    if manifest.references:
        manifest = draw(st.just(manifest) | mixed(manifest, theirs.manifest))
    return payload, manifest, data


@st.composite
def mixed(draw: st.DrawFn, manifest: Manifest, other: Manifest) -> Manifest:
    """A manifest one of whose references tells something else: another order, length, codec, or another's chunks."""
    first = manifest.references[0]
    theirs = other.references[0].chunks if other.references else first.chunks[::-1]
    changed = draw(
        st.sampled_from(
            (
                attrs.evolve(first, chunks=first.chunks[::-1]),
                attrs.evolve(first, chunks=first.chunks[1:] or theirs),
                attrs.evolve(first, chunks=theirs),
                attrs.evolve(first, length=first.length - 1 if first.length else 1),
                attrs.evolve(first, length=first.length + 1),
                attrs.evolve(first, codec=Codec.NONE if first.codec is Codec.ZLIB else Codec.ZLIB),
            )
        )
    )
    if manifest.whole is not None:
        return Manifest(whole=changed)
    return Manifest(tuple((key, changed if part is first else part) for key, part in manifest.parts))


def check_join(desk: Desk) -> None:
    @effort(desk, 120)
    @given(tampered())
    @example(swapped_chunks())
    @example(cut_short())
    def another_payload_is_never_joined(case: tuple[Document, Manifest, dict[str, object]]) -> None:
        payload, manifest, data = case
        verdict = desk.join(manifest, data)

        assert laws.never_another_payload(payload, verdict), "CH3"

    another_payload_is_never_joined()


def swapped_chunks() -> tuple[Document, Manifest, dict[str, object]]:
    """Two chunks under each other's digest."""
    planned = plan(LONG, bson_size, attempt=ATTEMPT, threshold=1_000, codec=Codec.NONE)
    assert isinstance(planned, Plan)
    one, other = planned.chunks[0], planned.chunks[-1]
    data: dict[str, object] = {chunk.digest: chunk.data for chunk in planned.chunks}
    return LONG, planned.manifest, {**data, one.digest: other.data, other.digest: one.data}


def cut_short() -> tuple[Document, Manifest, dict[str, object]]:
    """A manifest that forgets the last chunk."""
    planned = plan(LONG, bson_size, attempt=ATTEMPT, threshold=1_000, codec=Codec.NONE)
    assert isinstance(planned, Plan)
    first = planned.manifest.references[0]
    parts = [
        (key, attrs.evolve(first, chunks=first.chunks[:-1]) if part is first else part)
        for key, part in planned.manifest.parts
    ]
    return LONG, Manifest(tuple(parts)), {chunk.digest: chunk.data for chunk in planned.chunks}


def bomb(told: int, real: int) -> tuple[Manifest, dict[str, object]]:
    """A chunk of a few bytes that inflates to many, and a manifest that tells of fewer."""
    chunk = Chunk(zlib.compress(bytes(real)))
    return Manifest((("a", Reference(Kind.BYTES, Codec.ZLIB, told, chunk.digest, (chunk.digest,))),)), {
        chunk.digest: chunk.data
    }


def check_bomb(desk: Desk) -> None:
    """Law CH4: what is allocated while joining is what the manifest tells, and a little."""
    for told, limit in ((1_000, LIMIT), (5_000_000, 1_000_000), (5_000_000, 4_999_999)):
        manifest, data = bomb(told, 5_000_000)
        tracemalloc.start()
        try:
            verdict = desk.join(manifest, data, limit=limit)
            most = tracemalloc.get_traced_memory()[1] - 100_000  # for what is around it
        finally:
            tracemalloc.stop()
        made = [most] if most > 0 else []

        assert not isinstance(verdict, Joined), "CH4"
        assert laws.makes_no_more_than_told(manifest, limit, made), "CH4"


# --- a store, and those who write, undo and collect -------------------------------------------------------------------


@attrs.frozen
class Read:
    """Read the record under a key."""

    key: str


@attrs.frozen
class Find:
    """Read who put a chunk last."""

    digest: str


class Scan(Enum):
    """Read which chunks there are."""

    ALL = "all"


class Outcome(Enum):
    """What a write was answered, or that it was not."""

    DONE = 1
    NOT = 0
    LOST = None


Ask: TypeAlias = Read | Find | Scan | UpdateOne | InsertOne | DeleteOne
Answer: TypeAlias = PayloadRecord | Seen | tuple[Seen, ...] | Outcome | None
Process: TypeAlias = Generator[Ask, Answer, None]
CHUNKS_ARE, RECORDS_ARE = "chunks", "records"
CONTENTS = tuple(Chunk(data) for data in (b"w", b"x", b"y", b"z"))


def manifest_of(wanted: tuple[Chunk, ...]) -> Manifest:
    parts = (
        (f"part {place}", Reference(Kind.BYTES, Codec.NONE, 1, chunk.digest, (chunk.digest,)))
        for place, chunk in enumerate(wanted)
    )
    return Manifest(tuple(parts))


def read(key: str) -> Generator[Ask, Answer, PayloadRecord]:
    record = yield Read(key)
    assert isinstance(record, PayloadRecord)
    return record


def writer(desk: Desk, name: str, key: str, wanted: tuple[Chunk, ...]) -> Process:
    """Replaces what is under the key, as the header says; begins again while others are faster."""
    manifest = manifest_of(wanted)
    for _ in range(4):
        record = yield from read(key)
        attempt = desk.attempt_of(name, record.version)
        announced = Mark(attempt, manifest.chunks)
        if desk.marks_first and not (yield from marked(key, record, announced)):
            continue
        for chunk in wanted:
            yield from has_put(desk, chunk, attempt)
        if not desk.marks_first and not (yield from marked(key, record, announced)):
            continue
        if (yield from swapped(desk, key, record, announced, manifest)):
            return


def marked(key: str, record: PayloadRecord, announced: Mark) -> Generator[Ask, Answer, bool]:
    for _ in range(9):
        if (yield chunking.mark(RECORDS_ARE, key, record.version, announced)) is Outcome.DONE:
            return True
        now = yield from read(key)
        if now.version != record.version or announced in now.pending:
            return now.version == record.version
    return False


def has_put(desk: Desk, chunk: Chunk, attempt: str) -> Generator[Ask, Answer, None]:
    for _ in range(9):
        found = yield Find(chunk.digest)
        assert found is None or isinstance(found, Seen)
        match desk.decide_put(found, attempt):
            case Insert():
                yield put(CHUNKS_ARE, chunk, attempt)
            case Touch(as_found):
                yield desk.touch(CHUNKS_ARE, as_found, attempt)
            case Done():
                return


def swapped(
    desk: Desk, key: str, record: PayloadRecord, announced: Mark, manifest: Manifest
) -> Generator[Ask, Answer, bool]:
    for _ in range(9):
        if (yield desk.swap(RECORDS_ARE, key, record.version, announced, manifest)) is Outcome.DONE:
            return True
        now = yield from read(key)
        match outcome_of(now.version, now.history, record.version, announced.attempt):
            case Won():
                return True
            case NotYet():
                continue
            case _:
                return False
    return False


def undoer(desk: Desk, name: str, key: str) -> Process:
    """Whatever is announced, it is undone: whether its writer is dead may be guessed."""
    for number in range(2):
        record = yield from read(key)
        if record.pending:
            yield desk.undo(RECORDS_ARE, key, record.version, f"{name} {number}")


def collector(desk: Desk, keys: tuple[str, ...]) -> Process:
    """Reads the chunks, then the records one by one, then removes."""
    for _ in range(2):
        there = (yield Scan.ALL) if desk.sees_first else ()
        found: list[PayloadRecord] = []
        for key in keys:
            record = yield from read(key)
            found.append(record)
        if not desk.sees_first:
            there = yield Scan.ALL
        assert isinstance(there, tuple)
        for each in desk.collectable(there, found):
            yield desk.remove(CHUNKS_ARE, each)


@cache
def parsed(document: Document) -> PayloadRecord:
    record = record_of(document)
    assert isinstance(record, PayloadRecord)
    return record


@attrs.define(eq=False)
class Store:
    """Chunks and records, and what was sent to them."""

    chunks: dict[str, Document] = attrs.Factory(dict)
    records: dict[str, Document] = attrs.Factory(dict)
    sent: list[UpdateOne | InsertOne | DeleteOne] = attrs.Factory(list)

    def answer(self, ask: Ask) -> Answer:
        match ask:
            case Read(key):
                return parsed(self.records[key])
            case Find(digest):
                return Seen(digest, self.chunks[digest][PUT]) if digest in self.chunks else None
            case Scan():
                return tuple(Seen(digest, chunk[PUT]) for digest, chunk in self.chunks.items())
            case _:
                return self.write(ask)

    def write(self, ask: UpdateOne | InsertOne | DeleteOne) -> Outcome:
        held = self.chunks if ask.collection == CHUNKS_ARE else self.records
        match ask:
            case InsertOne(_, document):
                if document[ID] in held:
                    return Outcome.NOT
                held[document[ID]] = document
            case UpdateOne(_, where, updates):
                key = next((key for key, each in held.items() if matches(where, each, lambda: Instant(0))), None)
                if key is None:
                    return Outcome.NOT
                held[key] = updated(held[key], updates, lambda: Instant(0))
            case DeleteOne(_, where):
                key = next((key for key, each in held.items() if matches(where, each, lambda: Instant(0))), None)
                if key is None:
                    return Outcome.NOT
                del held[key]
            case _:
                assert_never(ask)
        return Outcome.DONE

    def parsed(self) -> list[PayloadRecord]:
        return [*map(parsed, self.records.values())]


Turn: TypeAlias = tuple[int, str, int]
"""(who, how what it asks for goes, which old request arrives late)"""
MODES = ("go", "go", "go", "go", "reply lost", "request lost", "late", "late")
KEYS = ("k", "l")


@attrs.define(eq=False)
class World:
    """Two keys that share chunks; two writers of the first, one of the second; an undoer; two collectors."""

    desk: Desk
    store: Store = attrs.Factory(lambda: Store(records={key: new_record(key) for key in KEYS}))
    processes: list[Process | None] = attrs.Factory(list)
    asks: list[Ask | None] = attrs.Factory(list)

    def __attrs_post_init__(self) -> None:
        w, x, y, z = CONTENTS
        writers = (("ann", "k", (x, y)), ("bob", "k", (y, w)), ("cid", "l", (y, z)))
        for process in (
            *(writer(self.desk, *each) for each in writers),
            undoer(self.desk, "eve", "k"),
            *(collector(self.desk, KEYS) for _ in range(2)),
        ):
            self.start(process)

    def start(self, process: Process) -> None:
        self.processes.append(process)
        self.asks.append(next(process, None))

    def turn(self, who: int, mode: str, which: int) -> None:
        if mode == "late":
            if self.store.sent:
                self.apply(self.store.sent[-1 - which % len(self.store.sent)])
            return
        number = who % len(self.processes)
        ask, process = self.asks[number], self.processes[number]
        if ask is None or process is None:
            return
        answer: Answer = Outcome.LOST
        if isinstance(ask, (UpdateOne, InsertOne, DeleteOne)):
            self.store.sent.append(ask)
            done = Outcome.LOST if mode == "request lost" else self.apply(ask)
            answer = done if mode == "go" else Outcome.LOST
        else:
            answer = self.store.answer(ask)
        try:
            self.asks[number] = process.send(answer)
        except StopIteration:
            self.asks[number] = None

    def apply(self, ask: UpdateOne | InsertOne | DeleteOne) -> Outcome:
        keys = KEYS if ask.collection == RECORDS_ARE else ()
        before = [self.store.answer(Read(key)) for key in keys]
        done = self.store.write(ask)
        for key, earlier in zip(keys, before, strict=True):
            after = self.store.answer(Read(key))
            assert isinstance(after, PayloadRecord)
            assert isinstance(earlier, PayloadRecord)
            assert laws.changes_by_swaps_and_undos(earlier, after, *told(ask)), "CH6"
        assert laws.refers_to_what_is_there(self.store.parsed(), self.store.chunks), "CH7"
        return done

    def calm(self) -> None:
        """Everyone ends what it does; then what is announced is undone, and what nothing refers to collected."""
        for number in range(len(self.processes)):
            while self.asks[number] is not None:
                self.turn(number, "go", 0)
        for process in (*(undoer(self.desk, "last", key) for key in KEYS), collector(self.desk, KEYS)):
            self.start(process)
            while self.asks[-1] is not None:
                self.turn(len(self.asks) - 1, "go", 0)


def told(ask: UpdateOne | InsertOne | DeleteOne) -> tuple[Manifest | None, int | None]:
    """Of a write: the manifest that it lets in, and the version that it was decided on."""
    updates = ask.updates if isinstance(ask, UpdateOne) else ()
    manifest = next((each.value for each in updates if isinstance(each, Put) and each.field == MANIFEST), None)
    version = next((each.value for each in updates if isinstance(each, Put) and each.field == VERSION), None)
    parts = manifest and record_of(new_record("k").put(MANIFEST, manifest))
    return parts.manifest if isinstance(parts, PayloadRecord) else None, None if version is None else version - 1


TURNS = st.lists(st.integers(0, 6 * len(MODES) * 10 - 1), min_size=30, max_size=90).map(
    lambda drawn: [(number % 6, MODES[number // 6 % len(MODES)], number // (6 * len(MODES))) for number in drawn]
)
ANN, BOB, CID, EVE, CO1, CO2 = range(6)


def go(*who: int) -> list[Turn]:
    return [(each, "go", 0) for each in who]


# What each process asks for, turn by turn: a writer reads, marks, and of each chunk finds, puts and finds; then it swaps.
ANN_HAS_PUT = go(*8 * [ANN])
LEFT = [*ANN_HAS_PUT, *go(EVE, EVE)]  # undone: two chunks that nothing refers to
SEEN = go(CO1, CO1, CO1)
REMOVED = go(CO1, CO1)
IN_BETWEEN = [*ANN_HAS_PUT, *SEEN, *REMOVED, *go(ANN)]
LATE_MARK = [*LEFT, *SEEN, *REMOVED, (0, "late", 5), *go(ANN)]
PUT_AGAIN = [*LEFT, *SEEN, *go(*9 * [BOB]), *REMOVED]
SAME_AGAIN = [*LEFT, *SEEN, *go(*11 * [ANN]), *REMOVED]
LATE_TOUCH = [*LEFT, *go(*4 * [BOB], EVE, EVE), *SEEN, *go(*11 * [ANN]), (0, "late", 6), *REMOVED]
OLD_RECORDS = go(CO1, CO1, *9 * [ANN], *3 * [CO1])
PUT_FIRST = go(*7 * [ANN], *5 * [CO1], ANN, ANN)


def check_store(desk: Desk) -> None:
    """Laws CH6 and CH7 at every turn, and CH8 once all is done."""

    @effort(desk, 100)
    @given(TURNS)
    @example(IN_BETWEEN)
    @example(LATE_MARK)
    @example(PUT_AGAIN)
    @example(SAME_AGAIN)
    @example(LATE_TOUCH)
    @example(OLD_RECORDS)
    @example(PUT_FIRST)
    def holds(turns: list[Turn]) -> None:
        world = World(desk)
        for turn in turns:
            world.turn(*turn)
        world.calm()

        assert laws.only_the_reachable_is_left(world.store.parsed(), world.store.chunks), "CH8"

    holds()


LAWS: dict[str, Callable[[Desk], None]] = {
    "CH1, CH2, CH5": check_plan,
    "CH3": check_join,
    "CH4": check_bomb,
    "CH6 to CH8": check_store,
}


@pytest.mark.parametrize("law", LAWS)
def test_chunking_keeps_the_law(law: str) -> None:
    """Laws CH1 to CH8, as the header of `tidegate.payloads.chunking` states them."""
    LAWS[law](Desk())


# --- specimens --------------------------------------------------------------------------------------------------------


def touch_blindly(collection: str, as_found: Seen, attempt: str) -> UpdateOne:
    """Whoever touches, touches what is there by then."""
    return update_one(collection, Eq(ID, as_found.digest), Put(PUT, attempt))


def swap_at_any_version(collection: str, key: str, version: int, announced: Mark, manifest: Manifest) -> UpdateOne:
    """The last writer wins."""
    write = chunking.swap(collection, key, version, announced, manifest)
    return update_one(collection, Eq(ID, key), *write.updates)


def undo_without_a_version(collection: str, key: str, _: int, __: str) -> UpdateOne:
    """The marks go, and a writer that stood swaps in what was collected."""
    return update_one(collection, Eq(ID, key), Put(PENDING, ()))


def remove_blindly(collection: str, each: Seen) -> DeleteOne:
    return delete_one(collection, Eq(ID, each.digest))


def there_is_there(found: Seen | None, attempt: str) -> Insert | Touch | Done:
    """A duplicate key is success: the content is the same."""
    return decide_put(found, attempt) if found is None else Done()


def manifests_only(there: Iterable[Seen], found: Iterable[PayloadRecord]) -> tuple[Seen, ...]:
    """What is only announced is collected."""
    return collectable(there, [attrs.evolve(record, pending=()) for record in found])


def nothing_ever(_: Iterable[Seen], __: Iterable[PayloadRecord]) -> tuple[Seen, ...]:
    return ()


def by_request(request: str, _: int) -> str:
    """All attempts of a request have one id, so a chunk that is put again looks as if it had not been."""
    return request


def plan_all(
    payload: Document, size: Size, *, attempt: str, threshold: int = THRESHOLD, codec: Codec = Codec.ZLIB
) -> Plan | TooLarge:
    """Everything is chunked."""
    planned = plan(
        payload,
        lambda document: size(document) + threshold * ("parts" in dict(document.items)),
        attempt=attempt,
        threshold=threshold,
        codec=codec,
    )
    return (
        planned if isinstance(planned, Plan) else plan(payload, size, attempt=attempt, threshold=threshold, codec=codec)
    )


def plan_at_the_threshold(
    payload: Document, size: Size, *, attempt: str, threshold: int = THRESHOLD, codec: Codec = Codec.ZLIB
) -> Plan | TooLarge:
    """pynenc: data is split at the threshold, so a chunk is larger by what is around it."""
    around = size(Chunk(b"").document(attempt))
    return plan(
        payload,
        lambda each: size(each) - around * ("data" in dict(each.items)),
        attempt=attempt,
        threshold=threshold,
        codec=codec,
    )


def plan_twice(
    payload: Document, size: Size, *, attempt: str, threshold: int = THRESHOLD, codec: Codec = Codec.ZLIB
) -> Plan | TooLarge:
    """Chunks of single values are left behind when the whole is chunked."""
    planned = plan(payload, size, attempt=attempt, threshold=threshold, codec=codec)
    return (
        attrs.evolve(planned, chunks=(*planned.chunks, Chunk(b"left")))
        if isinstance(planned, Plan) and planned.chunks
        else planned
    )


def join_sorted(
    manifest: Manifest, chunks: Mapping[str, object], *, limit: int = LIMIT
) -> Joined | Missing | Corrupt | TooLong:
    """Keys are sorted."""
    joined = join(manifest, chunks, limit=limit)
    return (
        joined
        if not isinstance(joined, Joined)
        else Joined(Document(tuple(sorted(joined.payload.items, key=lambda each: each[0]))))
    )


def trusting(
    manifest: Manifest, chunks: Mapping[str, object], *, limit: int = LIMIT
) -> Joined | Missing | Corrupt | TooLong:
    """pynenc: chunks are joined as they come, and inflated whatever becomes of it."""
    values: list[tuple[str, str | bytes]] = []
    for key, part in manifest.parts:
        if isinstance(part, Reference):
            stored = b"".join(each for digest in part.chunks if isinstance(each := chunks.get(digest, b""), bytes))
            try:
                raw = zlib.decompress(stored) if part.codec is Codec.ZLIB else stored
            except zlib.error:
                return Corrupt(key, "cannot be inflated")
            values.append((key, raw.decode(errors="replace") if part.kind is Kind.TEXT else raw))
        else:
            values.append((key, part))
    return join(manifest, chunks, limit=limit) if manifest.whole is not None else Joined(Document(tuple(values)))


def without_a_limit(
    manifest: Manifest, chunks: Mapping[str, object], *, limit: int = LIMIT
) -> Joined | Missing | Corrupt | TooLong:
    return join(manifest, chunks, limit=max(limit, LIMIT))


@pytest.mark.parametrize(
    ("law", "broken", "planted"),
    [
        ("CH1, CH2, CH5", "CH1", Desk(join=join_sorted)),
        ("CH1, CH2, CH5", "CH2", Desk(plan=plan_all)),
        ("CH1, CH2, CH5", "CH2", Desk(plan=plan_at_the_threshold)),
        ("CH1, CH2, CH5", "CH5", Desk(plan=plan_twice)),
        ("CH3", "CH3", Desk(join=trusting)),
        ("CH4", "CH4", Desk(join=trusting)),
        ("CH4", "CH4", Desk(join=without_a_limit)),
        ("CH6 to CH8", "CH6", Desk(swap=swap_at_any_version)),
        ("CH6 to CH8", "CH7", Desk(undo=undo_without_a_version)),
        ("CH6 to CH8", "CH7", Desk(remove=remove_blindly)),
        ("CH6 to CH8", "CH7", Desk(decide_put=there_is_there)),
        ("CH6 to CH8", "CH7", Desk(collectable=manifests_only)),
        ("CH6 to CH8", "CH7", Desk(attempt_of=by_request)),
        ("CH6 to CH8", "CH7", Desk(touch=touch_blindly)),
        ("CH6 to CH8", "CH7", Desk(marks_first=False)),
        ("CH6 to CH8", "CH7", Desk(sees_first=False)),
        ("CH6 to CH8", "CH8", Desk(collectable=nothing_ever)),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, broken: str, planted: Desk) -> None:
    """Each law is broken by a small faulty variant of the function it speaks of, and it is that law."""
    with pytest.raises(AssertionError, match=broken):
        LAWS[law](planted)


# --- facts ------------------------------------------------------------------------------------------------------------


def planned(payload: Mapping[str, object], threshold: int, codec: Codec = Codec.NONE) -> Plan:
    found = plan(Document.of(payload), bson_size, attempt=ATTEMPT, threshold=threshold, codec=codec)
    assert isinstance(found, Plan)
    return found


@pytest.mark.parametrize("value", ["a" * 1_000, "\u4e2d" * 334])
def test_what_is_around_a_value_counts(value: str) -> None:
    """Pynenc's vectors: 1,000 characters of a byte, or 334 of three, are over a threshold of 1,000 bytes."""
    (reference,) = planned({"a": value}, 1_000).manifest.references

    assert (reference.kind, reference.codec, reference.length) == (Kind.TEXT, Codec.NONE, len(value.encode()))


def test_what_fits_stays_as_it_is() -> None:
    """Not a byte more than needed: the very size of the manifest is a threshold that it fits."""
    payload = {"a": "x" * 50, "b": b"y" * 50}
    size = bson_size(Manifest(Document.of(payload).items).document())  # type: ignore[arg-type]  # texts and bytes

    assert planned(payload, size) == Plan(Manifest((("a", "x" * 50), ("b", b"y" * 50))))
    assert planned(payload, 700).chunks == ()


def test_no_empty_chunk_is_left_over() -> None:
    """Pynenc's vector: what is twice as long as a chunk makes two of them, and no empty third."""
    around = bson_size(Chunk(b"").document(ATTEMPT))
    found = planned({"a": bytes(range(250)) * 8}, around + 1_000)

    assert [len(chunk.data) for chunk in found.chunks] == [1_000]  # both are equal, so there is one
    assert len(found.manifest.references[0].chunks) == 2


def test_large_values_are_chunked_and_small_ones_stay() -> None:
    """Each value that alone is over the threshold becomes chunks; keys keep their order."""
    found = planned({"b": "x" * 2_000, "a": "y", "c": b"z" * 2_000}, 1_000, Codec.ZLIB)

    assert [(key, isinstance(part, Reference)) for key, part in found.manifest.parts] == [
        ("b", True),
        ("a", False),
        ("c", True),
    ]
    assert [reference.codec for reference in found.manifest.references] == [Codec.ZLIB, Codec.ZLIB]


def test_many_small_values_are_chunked_as_a_whole() -> None:
    """Pynenc's vector: 100 values of 600 to 700 bytes at a threshold of 1,000; here with 20,000, for the digests."""
    payload = {f"key {number}": chr(97 + number % 26) * (600 + number) for number in range(100)}
    found = planned(payload, 20_000)

    assert found.manifest.whole is not None
    assert found.manifest.whole.kind is Kind.PAYLOAD
    assert found.manifest.parts == ()
    assert isinstance(
        plan(Document.of(payload), bson_size, attempt=ATTEMPT, threshold=1_000, codec=Codec.NONE), TooLarge
    )
    assert isinstance(planned(payload, 1_000, Codec.ZLIB), Plan)


def test_what_does_not_fit_is_told() -> None:
    """The references alone are larger than the threshold; and a threshold that no chunk fits is refused."""
    payload = Document.of({"a": bytes(range(256)) * 40})
    verdict = plan(payload, bson_size, attempt=ATTEMPT, threshold=300, codec=Codec.NONE)

    assert isinstance(verdict, TooLarge)
    assert str(verdict) == f"too large: a manifest takes {verdict.size} bytes, and 300 are allowed"
    with pytest.raises(Misuse, match="no chunk fits into 100 bytes"):
        plan(payload, bson_size, attempt=ATTEMPT, threshold=100)


def test_the_same_content_is_stored_once() -> None:
    """Law CH5: two values that are equal share their chunks, within a payload and between payloads."""
    one, other = planned({"a": b"x" * 2_000, "b": b"x" * 2_000}, 1_500), planned({"c": b"x" * 2_000}, 1_500)

    assert {chunk.digest for chunk in one.chunks} == {chunk.digest for chunk in other.chunks}
    assert len(one.chunks) == 2


def test_the_defaults_are_those_of_pynenc() -> None:
    """15 MiB and zlib."""
    found = plan(Document.of({"a": bytes(16 * 1024 * 1024)}), bson_size, attempt=ATTEMPT)

    assert THRESHOLD == 15_728_640
    assert isinstance(found, Plan)
    assert found.manifest.references[0].codec is Codec.ZLIB
    assert [len(chunk.data) < 20_000 for chunk in found.chunks] == [True]


def joined(manifest: Manifest, *chunks: Chunk, limit: int = LIMIT) -> str:
    verdict = join(manifest, {chunk.digest: chunk.data for chunk in chunks}, limit=limit)
    return "joined" if isinstance(verdict, Joined) else str(verdict)


def refers(stored: bytes, kind: Kind = Kind.BYTES, codec: Codec = Codec.ZLIB, raw: bytes | None = None) -> Manifest:
    """A manifest of one chunk that holds this."""
    real = zlib.decompress(stored) if raw is None else raw
    digest = Chunk(stored).digest
    reference = Reference(kind, codec, len(real), Chunk(real).digest, (digest,))
    return Manifest(whole=reference) if kind is Kind.PAYLOAD else Manifest((("a", reference),))


BROKEN = "corrupt: 'a' is longer or shorter than its manifest tells"


@pytest.mark.parametrize(
    ("expected", "stored", "raw"),
    [
        ("joined", zlib.compress(b"raw"), b"raw"),
        (BROKEN, zlib.compress(b"raw"), b"ra"),
        ("corrupt: 'a' is not of the length or the digest that its manifest tells", zlib.compress(b"raw"), b"raws"),
        ("corrupt: 'a' is not of the length or the digest that its manifest tells", zlib.compress(b"raw"), b"war"),
        (BROKEN, zlib.compress(b"raw")[:-1], b"raw"),
        (BROKEN, zlib.compress(b"raw") + b"more", b"raw"),
        ("corrupt: 'a' cannot be inflated", b"no zlib", b"raw"),
        (BROKEN, b"", b""),
    ],
)
def test_what_is_stored_otherwise_than_told_is_a_verdict(expected: str, stored: bytes, raw: bytes) -> None:
    """Law CH3: a stream that is cut, goes on, is none, or is of something else, under the digest of itself."""
    assert expected == joined(refers(stored, raw=raw), Chunk(stored))


def test_a_missing_chunk_is_told() -> None:
    """Its digest is; a chunk that is something else, or no bytes, is corrupt."""
    stored = Chunk(b"raw")
    manifest = refers(b"raw", codec=Codec.NONE, raw=b"raw")

    assert joined(manifest) == f"missing: 1 chunks, the first is {stored.digest}"
    corrupt = f"corrupt: {stored.digest!r} is the digest of something else"
    assert str(join(manifest, {stored.digest: b"war"})) == corrupt
    assert str(join(manifest, {stored.digest: "raw"})) == corrupt
    assert joined(manifest, stored, limit=3) == "joined"
    assert joined(manifest, stored, limit=2) == "too long: 3 bytes, and 2 are allowed"


def test_bytes_that_are_no_text_are_a_verdict() -> None:
    """Law CH3: of the kind that the manifest tells."""
    assert joined(refers(b"\xff", Kind.TEXT, Codec.NONE, b"\xff"), Chunk(b"\xff")) == "corrupt: 'a' is no text"
    assert joined(refers(b"\xff", Kind.BYTES, Codec.NONE, b"\xff"), Chunk(b"\xff")) == "joined"


def packed(*parts: tuple[str, str | bytes]) -> bytes:
    """The parts of a payload in a row, each behind its kind and the lengths of its key and value."""
    row = b""
    for key, value in parts:
        kind, raw = (b"t", value.encode()) if isinstance(value, str) else (b"b", value)
        row += kind + len(key.encode()).to_bytes(8, "big") + len(raw).to_bytes(8, "big") + key.encode() + raw
    return row


def unpacked(raw: bytes) -> Joined | Missing | Corrupt | TooLong:
    return join(refers(raw, Kind.PAYLOAD, Codec.NONE, raw), {Chunk(raw).digest: raw})


@given(payloads())
def test_what_is_packed_is_unpacked(payload: Document) -> None:
    """Inverse; and what is cut somewhere is a verdict, or the payload's beginning, whose digest is another one."""
    raw = packed(*((key, value) for key, value in payload.items if isinstance(value, (str, bytes))))

    assert unpacked(raw) == Joined(payload)
    for end in range(0, len(raw), max(1, len(raw) // 40)):
        assert isinstance(unpacked(raw[:end]), (Corrupt, Joined))
        assert unpacked(raw[:end]) != Joined(payload)


def test_a_whole_is_packed_as_it_is_unpacked() -> None:
    """What `plan` stores of a whole is what is read above."""
    (chunk,) = planned({f"key {number}": "v" * 40 for number in range(20)}, 600, Codec.ZLIB).chunks

    assert zlib.decompress(chunk.data) == packed(*((f"key {number}", "v" * 40) for number in range(20)))


@pytest.mark.parametrize(
    "raw",
    [
        b"t",
        packed(("a", "x"))[:-1],
        b"q" + packed(("a", "x"))[1:],
        packed(("a", b"\xff")).replace(b"b", b"t", 1),
        packed(("a", "x")).replace(b"a", b"\xff"),
        packed(("a", "x"), ("a", "y")),
        packed(("a", "x")).replace(b"a", b"\0"),
        b"b" + 16 * b"\xff",
    ],
)
def test_a_whole_that_is_none_is_a_verdict(raw: bytes) -> None:
    """Cut, of an unknown kind, no text, a key twice, a key that none can be, lengths beyond the end."""
    assert str(unpacked(raw)).startswith("corrupt: 'the whole' ")


@settings(max_examples=40)
@given(records())
def test_a_record_is_read_as_it_was_written(record: PayloadRecord) -> None:
    """Inverse: what `record_of` makes of a document is what the writes put there."""
    document = new_record("k").put(VERSION, record.version).put(MANIFEST, record.manifest.document())
    document = document.put(PENDING, tuple(mark.document() for mark in record.pending))
    history = [
        Document.of({"version": each.version, "attempt": each.request_id, "status": each.status})
        for each in record.history
    ]

    assert record_of(document.put(HISTORY, tuple(history))) == record
    assert record_of(new_record("k")) == PayloadRecord()


@pytest.mark.parametrize(
    ("why", "broken"),
    [
        ("a NoneType stands where a int should", Document()),
        ("a bool stands where a int should", new_record("k").put(VERSION, True)),
        ("-1 cannot be the version of a record", new_record("k").put(VERSION, -1)),
        ("a NoneType stands where a Document should", new_record("k").put(MANIFEST, Document())),
        ("a tuple stands where a Document should", new_record("k").put(Field[object]("pending"), ((),))),
        ("a NoneType stands where an array should", new_record("k").without(PENDING)),
        ("a str stands where an array should", new_record("k").put(Field[object]("history"), "x")),
        ("a int cannot be chunked", new_record("k").put(MANIFEST, Document.of({"parts": {"a": 1}}))),
        ("a Document stands where a int should", new_record("k").put(HISTORY, (Document.of({"version": {}}),))),
        (
            "an unknown name",
            new_record("k").put(MANIFEST, Document.of({"whole": {"kind": "x", "codec": "none"}})),
        ),
        (
            "a digest is no SHA-256 in hexadecimal",
            new_record("k").put(PENDING, (Document.of({"attempt": "a", "chunks": ("A" * 64,)}),)),
        ),
    ],
)
def test_a_record_of_something_else_is_a_verdict(why: str, broken: Document) -> None:
    """Then nothing may be collected, for it may refer to anything."""
    assert str(record_of(broken)) == f"corrupt: 'the record' is none: {why}"


def test_a_replacement_takes_four_kinds_of_writes() -> None:
    """The header's story, on one record: mark, put, swap; and late copies of all of it do nothing."""
    chunk = Chunk(b"x")
    attempt = attempt_of("ann", 0)
    announced, manifest = Mark(attempt, (chunk.digest,)), manifest_of((chunk,))
    store = Store(records={"k": new_record("k")})
    marking = chunking.mark(RECORDS_ARE, "k", 0, announced)
    putting, swapping = put(CHUNKS_ARE, chunk, attempt), chunking.swap(RECORDS_ARE, "k", 0, announced, manifest)

    assert store.answer(swapping) is Outcome.NOT
    assert [store.answer(each) for each in (marking, marking, putting, swapping)] == 4 * [Outcome.DONE]
    assert store.answer(Read("k")) == PayloadRecord(1, manifest, (), (Change(1, attempt, "swapped"),))
    late = (marking, putting, swapping, chunking.undo(RECORDS_ARE, "k", 0, "eve"))
    assert [store.answer(each) for each in late] == 4 * [Outcome.NOT]
    assert store.answer(remove(CHUNKS_ARE, Seen(chunk.digest, "another"))) is Outcome.NOT
    assert store.answer(chunking.undo(RECORDS_ARE, "k", 1, "eve 1")) is Outcome.DONE
    record = store.answer(Read("k"))
    assert isinstance(record, PayloadRecord)
    assert record.history[-1] == Change(2, "eve 1", UNDONE)
    assert outcome_of(record.version, record.history, 0, attempt) == Won(1)
    assert isinstance(outcome_of(record.version, record.history, 1, "ann@1"), Superseded)


def test_what_is_not_chunked_needs_no_mark() -> None:
    """A payload that fits is swapped in by one write."""
    store = Store(records={"k": new_record("k")})
    write = chunking.swap(RECORDS_ARE, "k", 0, Mark("ann@0", ()), Manifest((("a", "x"),)))

    assert store.answer(write) is Outcome.DONE


def test_a_chunk_is_put_once_by_each_attempt() -> None:
    """Where it is not there, is another's, is one's own."""
    digest = Chunk(b"x").digest

    assert decide_put(None, "ann@0") == Insert()
    assert decide_put(Seen(digest, "bob@0"), "ann@0") == Touch(Seen(digest, "bob@0"))
    assert decide_put(Seen(digest, "ann@0"), "ann@0") == Done()


@settings(max_examples=40)
@given(st.lists(seen(), max_size=5), st.lists(records(), max_size=3))
def test_what_is_collected_is_what_nothing_refers_to(there: list[Seen], found: list[PayloadRecord]) -> None:
    """Agreement with the definition, and order."""
    needed = {digest for record in found for digest in record.manifest.chunks}
    needed |= {digest for record in found for mark in record.pending for digest in mark.chunks}

    assert collectable(there, found) == tuple(each for each in there if each.digest not in needed)


@settings(max_examples=40)
@given(chunks(), manifests(), marks(), references(st.just(Kind.TEXT)))
def test_values_do_not_tell_their_content(chunk: Chunk, manifest: Manifest, mark: Mark, reference: Reference) -> None:
    """Payloads are in no repr; and all are hashable values."""
    secret = Chunk(b"hunter2")
    told = (
        secret,
        Plan(Manifest((("password", "hunter2"),)), (secret,)),
        Joined(Document.of({"password": "hunter2"})),
    )

    assert all("hunter2" not in repr(each) + str(each) for each in told)
    assert len({chunk, manifest, mark, reference}) == 4


def test_records_are_gone_through_one_by_one_after_the_chunks() -> None:
    """A store may have more records than fit into memory, and each is to be read AFTER all of the chunks."""
    steps: list[str] = []

    def told(what: str, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            steps.append(what)
            yield item

    digests = [Chunk(bytes([number])).digest for number in range(2)]
    there = tuple(Seen(digest, "ann@0") for digest in digests)
    found = [PayloadRecord(pending=(Mark("bob@0", (digest,)),)) for digest in digests[:1]]

    assert collectable(told("chunk", there), told("record", found)) == there[1:]
    assert steps == ["chunk", "chunk", "record"]


def test_a_manifest_that_tells_of_the_longest_payload_is_answered() -> None:
    """2**63 - 1 bytes and one more are asked of zlib in vain, and it takes no larger number."""
    stored = Chunk(zlib.compress(b"x"))
    longest = Reference(Kind.TEXT, Codec.ZLIB, INT64_MAX, stored.digest, (stored.digest,))
    given_ = {stored.digest: stored.data}

    assert isinstance(join(Manifest((("a", longest),)), given_), TooLong)
    assert isinstance(join(Manifest((("a", longest),)), given_, limit=INT64_MAX), Corrupt)


X = Chunk(b"x").digest
TEXT = Reference(Kind.TEXT, Codec.NONE, 1, X, (X,))


@pytest.mark.parametrize(
    "build",
    [
        lambda: Chunk("x"),  # type: ignore[arg-type]
        lambda: Reference("text", Codec.NONE, 1, X, (X,)),  # type: ignore[arg-type]
        lambda: Reference(Kind.TEXT, "none", 1, X, (X,)),  # type: ignore[arg-type]
        lambda: Reference(Kind.TEXT, Codec.NONE, -1, X, (X,)),
        lambda: Reference(Kind.TEXT, Codec.NONE, 2**63, X, (X,)),
        lambda: Reference(Kind.TEXT, Codec.NONE, 10**6_000, X, (X,)),
        lambda: Reference(Kind.TEXT, Codec.NONE, 1, X[1:], (X,)),
        lambda: Reference(Kind.TEXT, Codec.NONE, 1, X, (X.upper(),)),
        lambda: Reference(Kind.TEXT, Codec.NONE, 1, X, ()),
        lambda: Reference(Kind.TEXT, Codec.NONE, 1, X, [X]),  # type: ignore[arg-type]
        lambda: Manifest([("a", "x")]),  # type: ignore[arg-type]
        lambda: Manifest(("a",)),  # type: ignore[arg-type]
        lambda: Manifest((("a",),)),  # type: ignore[arg-type]
        lambda: Manifest((("a", 1),)),  # type: ignore[arg-type]
        lambda: Manifest(((1, "x"),)),  # type: ignore[arg-type]
        lambda: Manifest((("a", "x"), ("a", "y"))),
        lambda: Manifest((("a", attrs.evolve(TEXT, kind=Kind.PAYLOAD)),)),
        lambda: Manifest(whole=TEXT),
        lambda: Manifest(whole="x"),  # type: ignore[arg-type]
        lambda: Manifest((("a", "x"),), attrs.evolve(TEXT, kind=Kind.PAYLOAD)),
        lambda: Mark("", ()),
        lambda: Mark("a", ("x",)),
        lambda: PayloadRecord(-1),
        lambda: PayloadRecord(manifest=None),  # type: ignore[arg-type]
        lambda: PayloadRecord(pending=("a",)),  # type: ignore[arg-type]
        lambda: PayloadRecord(history=None),  # type: ignore[arg-type]
        lambda: Seen("x", "a"),
        lambda: Seen(X, ""),
        lambda: plan({"a": "x"}, bson_size, attempt=ATTEMPT),  # type: ignore[arg-type]
        lambda: plan(Document.of({"a": 1}), bson_size, attempt=ATTEMPT),
        lambda: plan(Document(), bson_size, attempt=""),
        lambda: plan(Document(), bson_size, attempt=ATTEMPT, threshold=0),
        lambda: plan(Document(), bson_size, attempt=ATTEMPT, codec="zlib"),  # type: ignore[arg-type]
        lambda: plan(Document(), lambda _: -1, attempt=ATTEMPT),
        lambda: plan(Document(), int, attempt=ATTEMPT),  # type: ignore[arg-type]
        lambda: plan(Document(), lambda _: 10**6_000, attempt=ATTEMPT),
        lambda: plan(Document(), bson_size, attempt=ATTEMPT, threshold=-(10**6_000)),
        lambda: plan(Document(), None, attempt=ATTEMPT),  # type: ignore[arg-type]
        lambda: join(None, {}),  # type: ignore[arg-type]
        lambda: join(Manifest(), None),  # type: ignore[arg-type]
        lambda: join(Manifest(), {}, limit=-1),
        lambda: record_of({}),  # type: ignore[arg-type]
        lambda: new_record(""),
        lambda: attempt_of("", 0),
        lambda: attempt_of("ann", -1),
        lambda: chunking.mark(RECORDS_ARE, "k", 0, None),  # type: ignore[arg-type]
        lambda: chunking.mark(RECORDS_ARE, "", 0, Mark("a", ())),
        lambda: put(CHUNKS_ARE, None, ATTEMPT),  # type: ignore[arg-type]
        lambda: put(CHUNKS_ARE, Chunk(b""), ""),
        lambda: chunking.touch(CHUNKS_ARE, None, ATTEMPT),  # type: ignore[arg-type]
        lambda: chunking.swap(RECORDS_ARE, "k", 0, Mark("a", ()), Manifest((("a", TEXT),))),
        lambda: chunking.swap(RECORDS_ARE, "k", 0, Mark("a", ()), None),  # type: ignore[arg-type]
        lambda: chunking.undo(RECORDS_ARE, "k", -1, "a"),
        lambda: chunking.undo(RECORDS_ARE, "k", 0, ""),
        lambda: remove(CHUNKS_ARE, X),  # type: ignore[arg-type]
        lambda: decide_put(X, ATTEMPT),  # type: ignore[arg-type]
        lambda: decide_put(None, ""),
        lambda: collectable(None, ()),  # type: ignore[arg-type]
        lambda: collectable((X,), ()),  # type: ignore[arg-type]
        lambda: collectable(range(10**18), ()),  # type: ignore[arg-type]
        lambda: collectable((), (Corrupt("the record", "is none"),)),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(build: Callable[[], object]) -> None:
    """Wrong types, numbers out of range, digests that are none, a size that is none, a manifest that was not announced."""
    with pytest.raises(Misuse):
        build()
