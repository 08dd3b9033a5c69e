from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate.model.documents import Document, Field
from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.payloads import chunking
from tidegate.payloads.chunking import (
    LIMIT,
    THRESHOLD,
    Chunk,
    Codec,
    Corrupt,
    Joined,
    Kind,
    Manifest,
    Missing,
    Plan,
    Reference,
    Size,
    TooLarge,
    TooLong,
    join,
    plan,
)
from tidegate.payloads.laws import chunking as laws
from tidegate.payloads.strategies.chunking import chunks, manifests, payloads, references, torn

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
    """The real functions, but for one that is planted."""

    plan: Planner = chunking.plan
    join: Joiner = chunking.join


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


def bomb(declared: int, real: int) -> tuple[Manifest, dict[str, object]]:
    """A chunk of a few bytes that inflates to many, and a manifest that tells of fewer."""
    chunk = Chunk(zlib.compress(bytes(real)))
    return Manifest((("a", Reference(Kind.BYTES, Codec.ZLIB, declared, chunk.digest, (chunk.digest,))),)), {
        chunk.digest: chunk.data
    }


def check_bomb(desk: Desk) -> None:
    """Law CH4: what is allocated while joining is what the manifest tells, and a little."""
    for declared, limit in ((1_000, LIMIT), (5_000_000, 1_000_000), (5_000_000, 4_999_999)):
        manifest, data = bomb(declared, 5_000_000)
        tracemalloc.start()
        try:
            verdict = desk.join(manifest, data, limit=limit)
            most = tracemalloc.get_traced_memory()[1] - 100_000  # for what is around it
        finally:
            tracemalloc.stop()
        made = [most] if most > 0 else []

        assert not isinstance(verdict, Joined), "CH4"
        assert laws.makes_no_more_than_the_manifest_says(manifest, limit, made), "CH4"


LAWS: dict[str, Callable[[Desk], None]] = {
    "CH1, CH2, CH5": check_plan,
    "CH3": check_join,
    "CH4": check_bomb,
}


@pytest.mark.parametrize("law", LAWS)
def test_chunking_keeps_the_law(law: str) -> None:
    """Laws CH1 to CH5, as the header of `tidegate.payloads.chunking` states them."""
    LAWS[law](Desk())


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


def test_what_does_not_fit_is_refused() -> None:
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


BROKEN = "corrupt: 'a' is longer or shorter than its manifest says"


@pytest.mark.parametrize(
    ("expected", "stored", "raw"),
    [
        ("joined", zlib.compress(b"raw"), b"raw"),
        (BROKEN, zlib.compress(b"raw"), b"ra"),
        ("corrupt: 'a' is not of the length or the digest that its manifest says", zlib.compress(b"raw"), b"raws"),
        ("corrupt: 'a' is not of the length or the digest that its manifest says", zlib.compress(b"raw"), b"war"),
        (BROKEN, zlib.compress(b"raw")[:-1], b"raw"),
        (BROKEN, zlib.compress(b"raw") + b"more", b"raw"),
        ("corrupt: 'a' cannot be inflated", b"no zlib", b"raw"),
        (BROKEN, b"", b""),
    ],
)
def test_what_is_stored_otherwise_than_declared_is_a_verdict(expected: str, stored: bytes, raw: bytes) -> None:
    """Law CH3: a stream that is cut, goes on, is not a stream, or is of something else, under the digest of itself."""
    assert expected == joined(refers(stored, raw=raw), Chunk(stored))


def test_a_missing_chunk_is_reported() -> None:
    """Its digest is; a chunk that is something else, or no bytes, is corrupt."""
    stored = Chunk(b"raw")
    manifest = refers(b"raw", codec=Codec.NONE, raw=b"raw")

    assert joined(manifest) == f"missing: 1 chunks, the first is {stored.digest}"
    corrupt = f"corrupt: {stored.digest!r} is the digest of something else"
    assert str(join(manifest, {stored.digest: b"war"})) == corrupt
    assert str(join(manifest, {stored.digest: "raw"})) == corrupt
    assert joined(manifest, stored, limit=3) == "joined"
    assert joined(manifest, stored, limit=2) == "too long: 3 bytes, and 2 are allowed"


def test_bytes_that_are_not_text_are_a_verdict() -> None:
    """Law CH3: of the kind that the manifest tells."""
    assert joined(refers(b"\xff", Kind.TEXT, Codec.NONE, b"\xff"), Chunk(b"\xff")) == "corrupt: 'a' is not text"
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
@given(chunks(), manifests(), references(st.just(Kind.TEXT)))
def test_values_do_not_tell_their_content(chunk: Chunk, manifest: Manifest, reference: Reference) -> None:
    """Payloads are in no repr; and all are hashable values."""
    secret = Chunk(b"hunter2")
    values = (
        secret,
        Plan(Manifest((("password", "hunter2"),)), (secret,)),
        Joined(Document.of({"password": "hunter2"})),
    )

    assert all("hunter2" not in repr(each) + str(each) for each in values)
    assert len({chunk, manifest, reference}) == 3


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
    ],
)
def test_what_makes_no_sense_is_refused(build: Callable[[], object]) -> None:
    """Wrong types, numbers out of range, wrong digests, a wrong size."""
    with pytest.raises(Misuse):
        build()
