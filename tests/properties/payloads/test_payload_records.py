from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from enum import Enum
from functools import cache
from typing import TypeAlias, TypeVar, assert_never

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate.model.documents import ID, Document, Eq, Field, Put, matches, updated
from tidegate.model.errors import Misuse
from tidegate.model.history import Change, NotYet, Superseded, Won, outcome_of
from tidegate.model.instants import Instant
from tidegate.model.operations import DeleteOne, InsertOne, UpdateOne, delete_one, insert_one, update_one
from tidegate.payloads import payload_records
from tidegate.payloads.chunking import (
    PUT,
    Chunk,
    Codec,
    Corrupt,
    Kind,
    Manifest,
    Reference,
)
from tidegate.payloads.laws import payload_records as laws
from tidegate.payloads.payload_records import (
    HISTORY,
    MANIFEST,
    PENDING,
    UNDONE,
    VERSION,
    Done,
    Insert,
    Mark,
    PayloadRecord,
    StoredChunk,
    Touch,
    attempt_of,
    collectable,
    decide_put,
    new_record,
    record_of,
    remove,
)
from tidegate.payloads.strategies.payload_records import marks, records, stored_chunks

T = TypeVar("T")

ATTEMPT = "ann@0"


@attrs.frozen
class Desk:
    """What writers, readers and collectors ask: the real functions, but for one that is planted."""

    attempt_of: Callable[[str, int], str] = payload_records.attempt_of
    touch: Callable[[str, StoredChunk, str], UpdateOne] = payload_records.touch
    swap: Callable[[str, str, int, Mark, Manifest], UpdateOne] = payload_records.swap
    undo: Callable[[str, str, int, str], UpdateOne] = payload_records.undo
    remove: Callable[[str, StoredChunk], DeleteOne] = payload_records.remove
    decide_put: Callable[[StoredChunk | None, str], Insert | Touch | Done] = payload_records.decide_put
    collectable: Callable[[Iterable[StoredChunk], Iterable[PayloadRecord]], tuple[StoredChunk, ...]] = (
        payload_records.collectable
    )
    marks_first: bool = True
    """An attempt marks before it puts; in a specimen, after."""
    sees_first: bool = True
    """A collector reads the chunks before the records; in a specimen, after."""


def effort(desk: Desk, examples: int = 100) -> settings:
    """A counterexample to a specimen need not be a small one."""
    if desk == Desk():
        return settings(max_examples=examples)
    return settings(max_examples=10 * examples, phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False)


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
Answer: TypeAlias = PayloadRecord | StoredChunk | tuple[StoredChunk, ...] | Outcome | None
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
        if (yield payload_records.mark(RECORDS_ARE, key, record.version, announced)) is Outcome.DONE:
            return True
        now = yield from read(key)
        if now.version != record.version or announced in now.pending:
            return now.version == record.version
    return False


def has_put(desk: Desk, chunk: Chunk, attempt: str) -> Generator[Ask, Answer, None]:
    for _ in range(9):
        found = yield Find(chunk.digest)
        assert found is None or isinstance(found, StoredChunk)
        match desk.decide_put(found, attempt):
            case Insert():
                yield insert_one(CHUNKS_ARE, chunk.document(attempt))
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
                return StoredChunk(digest, self.chunks[digest][PUT]) if digest in self.chunks else None
            case Scan():
                return tuple(StoredChunk(digest, chunk[PUT]) for digest, chunk in self.chunks.items())
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
            assert laws.changes_by_swaps_and_undos(earlier, after, *written(ask)), "PR1"
        assert laws.refers_to_what_is_there(self.store.parsed(), self.store.chunks), "PR2"
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


def written(ask: UpdateOne | InsertOne | DeleteOne) -> tuple[Manifest | None, int | None]:
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
    """Laws PR1 and PR2 at every turn, and PR3 once all is done."""

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

        assert laws.only_the_reachable_is_left(world.store.parsed(), world.store.chunks), "PR3"

    holds()


LAWS: dict[str, Callable[[Desk], None]] = {
    "PR1 to PR3": check_store,
}


@pytest.mark.parametrize("law", LAWS)
def test_records_keep_the_law(law: str) -> None:
    """Laws PR1 to PR3, as the header of `tidegate.payloads.chunking` states them."""
    LAWS[law](Desk())


# --- specimens --------------------------------------------------------------------------------------------------------


def touch_blindly(collection: str, as_found: StoredChunk, attempt: str) -> UpdateOne:
    """Whoever touches, touches what is there by then."""
    return update_one(collection, Eq(ID, as_found.digest), Put(PUT, attempt))


def swap_at_any_version(collection: str, key: str, version: int, announced: Mark, manifest: Manifest) -> UpdateOne:
    """The last writer wins."""
    write = payload_records.swap(collection, key, version, announced, manifest)
    return update_one(collection, Eq(ID, key), *write.updates)


def undo_without_a_version(collection: str, key: str, _: int, __: str) -> UpdateOne:
    """The marks go, and a writer that stood swaps in what was collected."""
    return update_one(collection, Eq(ID, key), Put(PENDING, ()))


def remove_blindly(collection: str, each: StoredChunk) -> DeleteOne:
    return delete_one(collection, Eq(ID, each.digest))


def there_is_there(found: StoredChunk | None, attempt: str) -> Insert | Touch | Done:
    """A duplicate key is success: the content is the same."""
    return decide_put(found, attempt) if found is None else Done()


def manifests_only(there: Iterable[StoredChunk], found: Iterable[PayloadRecord]) -> tuple[StoredChunk, ...]:
    """What is only announced is collected."""
    return collectable(there, [attrs.evolve(record, pending=()) for record in found])


def nothing_ever(_: Iterable[StoredChunk], __: Iterable[PayloadRecord]) -> tuple[StoredChunk, ...]:
    return ()


def by_request(request: str, _: int) -> str:
    """All attempts of a request have one id, so a chunk that is put again looks as if it had not been."""
    return request


@pytest.mark.parametrize(
    ("law", "broken", "planted"),
    [
        ("PR1 to PR3", "PR1", Desk(swap=swap_at_any_version)),
        ("PR1 to PR3", "PR2", Desk(undo=undo_without_a_version)),
        ("PR1 to PR3", "PR2", Desk(remove=remove_blindly)),
        ("PR1 to PR3", "PR2", Desk(decide_put=there_is_there)),
        ("PR1 to PR3", "PR2", Desk(collectable=manifests_only)),
        ("PR1 to PR3", "PR2", Desk(attempt_of=by_request)),
        ("PR1 to PR3", "PR2", Desk(touch=touch_blindly)),
        ("PR1 to PR3", "PR2", Desk(marks_first=False)),
        ("PR1 to PR3", "PR2", Desk(sees_first=False)),
        ("PR1 to PR3", "PR3", Desk(collectable=nothing_ever)),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, broken: str, planted: Desk) -> None:
    """Each law is broken by a small faulty variant of the function it speaks of, and it is that law."""
    with pytest.raises(AssertionError, match=broken):
        LAWS[law](planted)


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
    "broken",
    [
        Document(),
        new_record("k").put(VERSION, True),
        new_record("k").put(VERSION, -1),
        new_record("k").put(MANIFEST, Document()),
        new_record("k").put(MANIFEST, Document.of({"parts": 1})),
        new_record("k").put(MANIFEST, Document.of({"parts": {"a": 1}})),
        new_record("k").put(MANIFEST, Document.of({"whole": "x"})),
        new_record("k").put(MANIFEST, Document.of({"whole": {"kind": "x", "codec": "none"}})),
        new_record("k").put(Field[object]("pending"), ((),)),
        new_record("k").without(PENDING),
        new_record("k").put(Field[object]("history"), "x"),
        new_record("k").put(HISTORY, (Document.of({"version": {}}),)),
        new_record("k").put(PENDING, (Document.of({"attempt": "a", "chunks": ("A" * 64,)}),)),
    ],
)
def test_a_record_of_something_else_is_a_verdict(broken: Document) -> None:
    """Then nothing may be collected, for it may refer to anything."""
    verdict = record_of(broken)
    assert isinstance(verdict, Corrupt)
    assert verdict.where == "the record"


def test_a_replacement_takes_four_kinds_of_writes() -> None:
    """The header's story, on one record: mark, put, swap; and late copies of all of it do nothing."""
    chunk = Chunk(b"x")
    attempt = attempt_of("ann", 0)
    announced, manifest = Mark(attempt, (chunk.digest,)), manifest_of((chunk,))
    store = Store(records={"k": new_record("k")})
    marking = payload_records.mark(RECORDS_ARE, "k", 0, announced)
    putting, swapping = (
        insert_one(CHUNKS_ARE, chunk.document(attempt)),
        payload_records.swap(RECORDS_ARE, "k", 0, announced, manifest),
    )

    assert store.answer(swapping) is Outcome.NOT
    assert [store.answer(each) for each in (marking, marking, putting, swapping)] == 4 * [Outcome.DONE]
    assert store.answer(Read("k")) == PayloadRecord(1, manifest, (), (Change(1, attempt, "swapped"),))
    late = (marking, putting, swapping, payload_records.undo(RECORDS_ARE, "k", 0, "eve"))
    assert [store.answer(each) for each in late] == 4 * [Outcome.NOT]
    assert store.answer(remove(CHUNKS_ARE, StoredChunk(chunk.digest, "another"))) is Outcome.NOT
    assert store.answer(payload_records.undo(RECORDS_ARE, "k", 1, "eve 1")) is Outcome.DONE
    record = store.answer(Read("k"))
    assert isinstance(record, PayloadRecord)
    assert record.history[-1] == Change(2, "eve 1", UNDONE)
    assert outcome_of(record.version, record.history, 0, attempt) == Won(1)
    assert isinstance(outcome_of(record.version, record.history, 1, "ann@1"), Superseded)


def test_what_is_not_chunked_needs_no_mark() -> None:
    """A payload that fits is swapped in by one write."""
    store = Store(records={"k": new_record("k")})
    write = payload_records.swap(RECORDS_ARE, "k", 0, Mark("ann@0", ()), Manifest((("a", "x"),)))

    assert store.answer(write) is Outcome.DONE


def test_a_chunk_is_put_once_by_each_attempt() -> None:
    """Where it is not there, is another's, is one's own."""
    digest = Chunk(b"x").digest

    assert decide_put(None, "ann@0") == Insert()
    assert decide_put(StoredChunk(digest, "bob@0"), "ann@0") == Touch(StoredChunk(digest, "bob@0"))
    assert decide_put(StoredChunk(digest, "ann@0"), "ann@0") == Done()


@settings(max_examples=40)
@given(st.lists(stored_chunks(), max_size=5), st.lists(records(), max_size=3))
def test_what_is_collected_is_what_nothing_refers_to(there: list[StoredChunk], found: list[PayloadRecord]) -> None:
    """Agreement with the definition, and order."""
    needed = {digest for record in found for digest in record.manifest.chunks}
    needed |= {digest for record in found for mark in record.pending for digest in mark.chunks}

    assert collectable(there, found) == tuple(each for each in there if each.digest not in needed)


@settings(max_examples=40)
@given(marks(), records(), stored_chunks())
def test_values_can_be_hashed(mark: Mark, record: PayloadRecord, chunk: StoredChunk) -> None:
    """Marks, records and chunks as they are read may be keys."""
    assert len({mark, record, chunk}) == 3


def test_records_are_gone_through_one_by_one_after_the_chunks() -> None:
    """A store may have more records than fit into memory, and each is to be read AFTER all of the chunks."""
    steps: list[str] = []

    def noting(what: str, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            steps.append(what)
            yield item

    digests = [Chunk(bytes([number])).digest for number in range(2)]
    there = tuple(StoredChunk(digest, "ann@0") for digest in digests)
    found = [PayloadRecord(pending=(Mark("bob@0", (digest,)),)) for digest in digests[:1]]

    assert collectable(noting("chunk", there), noting("record", found)) == there[1:]
    assert steps == ["chunk", "chunk", "record"]


X = Chunk(b"x").digest
TEXT = Reference(Kind.TEXT, Codec.NONE, 1, X, (X,))


@pytest.mark.parametrize(
    "build",
    [
        lambda: Mark("", ()),
        lambda: Mark("a", ("x",)),
        lambda: PayloadRecord(-1),
        lambda: PayloadRecord(manifest=None),  # type: ignore[arg-type]
        lambda: PayloadRecord(pending=("a",)),  # type: ignore[arg-type]
        lambda: PayloadRecord(history=None),  # type: ignore[arg-type]
        lambda: StoredChunk("x", "a"),
        lambda: StoredChunk(X, ""),
        lambda: record_of({}),  # type: ignore[arg-type]
        lambda: new_record(""),
        lambda: attempt_of("", 0),
        lambda: attempt_of("ann", -1),
        lambda: payload_records.mark(RECORDS_ARE, "k", 0, None),  # type: ignore[arg-type]
        lambda: payload_records.mark(RECORDS_ARE, "", 0, Mark("a", ())),
        lambda: Chunk(b"").document(""),
        lambda: payload_records.touch(CHUNKS_ARE, None, ATTEMPT),  # type: ignore[arg-type]
        lambda: payload_records.swap(RECORDS_ARE, "k", 0, Mark("a", ()), Manifest((("a", TEXT),))),
        lambda: payload_records.swap(RECORDS_ARE, "k", 0, Mark("a", ()), None),  # type: ignore[arg-type]
        lambda: payload_records.undo(RECORDS_ARE, "k", -1, "a"),
        lambda: payload_records.undo(RECORDS_ARE, "k", 0, ""),
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
    """Wrong types, numbers out of range, wrong digests, a manifest that was not announced."""
    with pytest.raises(Misuse):
        build()
