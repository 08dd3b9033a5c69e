"""Decide whether a watched value of a document changed.

A reactive task watches fields of a document, or values computed from them. The snapshot holds the
watched values; only a difference from the stored snapshot counts as a change. A snapshot has the
values that MongoDB's aggregation gives for `{a: {b: "$a.b"}}`, where `a.b` is watched. Equality is
MongoDB's (`documents.equal`). So the server can compare too, with `expression` and `differs`, and
return only ids.

    pair                                                           changed
    missing and null                                               yes
    parent missing, {}, null or a scalar: no watched leaf in any   no, each gives an empty parent
    1, 1.0 and the decimals 1 and 1.00; NaN and NaN; -0.0 and 0.0  no
    1 and true; "S" and "s"; 2**53 + 1 and 2.0**53; 0.1 and the decimal 0.1     yes
    bytes of another subtype; a string and a regular expression    yes
    the same keys, or the same elements, in another order          yes
    seen for the first time                                        yes

A dotted path through an array gives the array of its existing leaves. A large snapshot is replaced
by its digest (`remembered`): it detects a change, but does not show the old value.

Laws
    N3  where every field that a path begins with is equal before and after, nothing has changed.
    N4  equal documents have equal snapshots: what is read again is unchanged, NaN and -0.0
        included.
    N5  where a field that is watched whole differs, it has changed: no change is lost.
    N6  the patch of a change leads from the snapshot before to exactly the one after.
    N7  a snapshot of a snapshot is that snapshot, and the order of the paths makes no difference.
    N9  a digest notices the very changes that the snapshot itself would have noticed.
    N10 a function that fails, or gives what MongoDB cannot keep, is named by its path: no
        exception, and no snapshot.
    N11 what MongoDB computes for `expression` is the snapshot, and it has changed exactly where
        `differs` holds.

N3 to N7 are about paths; for a computed value they hold as far as its function keeps them. N9
excludes a collision of SHA-256. N11 holds for a computed value as far as its expression equals its
function.

Known limits
    - An array element without the leaf is invisible: `a.b` sees [{b: 1}, {}] and [{}, {b: 1}] as
      equal (watch `a` instead).
    - A change and its reversal between two looks leave no trace (A-B-A).
    - MongoDB cannot compute our digest, so with digests the snapshots travel.
    - An expression of `Computed` that fails on one document fails the server's whole pass: guard it
      ($ifNull, $cond).
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby, pairwise
from types import NoneType
from typing import Final, Self, TypeAlias, assert_never, cast, final

import attrs

from tidegate.model.documents import (
    DECIMAL,
    DEPTH_MAX,
    Document,
    Field,
    Foreign,
    Value,
    checked,
    equal,
    exactly,
    frozen,
    numeric,
)
from tidegate.model.errors import Misuse, check_failure, shown, typed
from tidegate.model.instants import MILLISECOND, Instant
from tidegate.model.patches import Added, Patch, difference
from tidegate.model.values import check_callable, check_int, check_name, check_type

_Way: TypeAlias = tuple[Field[Value], ...]
"""A path, taken apart."""


# --- what is watched ----------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Computed:
    """A watched value that is computed from the document.

    Invariants: the expression is an object, or a string that begins with `$`; 1 <= version.

    Attributes:
        compute: A pure function of the document. What it raises, and what MongoDB could not keep, becomes `NotComputed`;
            instants are cut to milliseconds, as MongoDB does.
        expression: The same for MongoDB, an aggregation expression over the document as the root; mappings and lists are
            taken over. None where snapshots are taken here only.
        version: Raised when the function means something else from now on, for nobody can see that in a function.
    """

    compute: Callable[[Document], Value]
    expression: Value = attrs.field(default=None, converter=frozen, eq=exactly)
    version: int = 1

    def __attrs_post_init__(self) -> None:
        check_int(self.version, "the version of a computed value", 1)
        check_callable(self.compute, "a function of the document")
        match self.expression:
            case None | Document():
                pass
            case str() as path if path.startswith("$"):
                pass
            case _:
                raise Misuse(
                    f"{shown(self.expression)} computes nothing",
                    why='an expression is an object, or a path such as "$a.b"',
                )


@final
@attrs.frozen
class Projection:
    """What is watched; nothing means the whole document.

    Invariants: a path is 1 to DEPTH_MAX names of fields with dots in between; no path is, or lies inside of, another.

    Attributes:
        paths: The paths of fields, sorted, in whichever order they were given.
        computed: The paths under which computed values stand in the snapshot, with what computes them, sorted.
        ways: All of them, taken apart, with what computes those that are computed.
    """

    paths: tuple[str, ...] = ()
    computed: tuple[tuple[str, Computed], ...] = ()
    ways: tuple[tuple[_Way, Computed | None], ...] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if type(self.paths) is not tuple:
            raise Misuse(
                f"{shown(self.paths)} is not a tuple of paths", todo='write Projection(("status", "address.city"))'
            )
        ways = sorted(
            (*((_way(path), None) for path in self.paths), *_computed_ways(self.computed)),
            key=lambda each: [field.name for field in each[0]],
        )
        # Sorted by name, whatever stands between a path and one inside of it begins with that path, too: so if any path
        # holds another, then two neighbours do.
        for (outer, _), (inner, _) in pairwise(ways):
            if inner[: len(outer)] == outer:
                raise Misuse(
                    f"{_dotted(outer)!r} and {_dotted(inner)!r} cannot both be watched",
                    why="the one holds the other",
                    todo=f"watch {_dotted(outer)!r} alone, or only paths inside of it",
                )
        object.__setattr__(self, "paths", tuple(_dotted(way) for way, computed in ways if computed is None))
        object.__setattr__(
            self, "computed", tuple((_dotted(way), computed) for way, computed in ways if computed is not None)
        )
        object.__setattr__(self, "ways", tuple(ways))

    @classmethod
    def of(cls, watched: Mapping[str, object]) -> Self:
        """A projection in MongoDB's words: `{"status": 1, "address.city": True, "total": Computed(...)}`.

        Args:
            watched: For each path 1 or true, or what computes the value that is to stand there.

        Returns:
            The projection; of the whole document for {}.

        Raises:
            Misuse: Something is left out (0, false), or has another form than these.
        """
        if not isinstance(watched, Mapping):
            raise Misuse(f"{typed(watched)} is not a projection", todo='write {"status": 1}')
        for path, form in watched.items():
            if form is not True and (type(form) is not int or form != 1) and not isinstance(form, Computed):
                raise Misuse(
                    f"{shown(path)} cannot be watched as {shown(form)}",
                    why="what is watched is named with 1 or True, and nothing can be left out",
                    todo="leave out what is not watched; wrap what is computed in Computed",
                )
        return cls(
            tuple(path for path, form in watched.items() if not isinstance(form, Computed)),
            tuple((path, form) for path, form in watched.items() if isinstance(form, Computed)),
        )

    def __str__(self) -> str:
        computed = (f"{path} (computed, version {each.version})" for path, each in self.computed)
        return ", ".join((*self.paths, *computed)) or "the whole document"


def described(projection: Projection) -> Document:
    """What the projection is, as data to be stored: two projections watch the same if these are the same."""
    check_type(projection, Projection, "a projection")
    computed = tuple(
        Document((("path", path), ("version", each.version), ("expression", each.expression)))
        for path, each in projection.computed
    )
    return Document((("paths", projection.paths), ("computed", computed)))


# --- what has changed ---------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Unchanged:
    """Nothing that is watched differs, by MongoDB's equality."""

    def __str__(self) -> str:
        return "unchanged"


@final
@attrs.frozen
class Changed:
    """Something that is watched differs. Invariant: the patch is not empty.

    Attributes:
        patch: What leads from the snapshot before to exactly the one after; at first sight the whole of it is added.
    """

    patch: Patch

    def __str__(self) -> str:
        return f"changed: {'; '.join(map(str, self.patch))}"


@final
@attrs.frozen
class Differs:
    """Something that is watched differs; only a digest was kept, so nobody can tell what."""

    def __str__(self) -> str:
        return "changed: its digest differs"


SnapshotVerdict: TypeAlias = Unchanged | Changed | Differs


@final
@attrs.frozen
class Digest:
    """What is kept of a large snapshot: equal snapshots have equal digests. Invariant: 64 hexadecimal digits."""

    sha256: str

    def __attrs_post_init__(self) -> None:
        if type(self.sha256) is not str or len(self.sha256) != 64 or set(self.sha256) - set("0123456789abcdef"):
            raise Misuse(
                f"{shown(self.sha256)} is not a digest", why="it is 64 hexadecimal digits", todo="use digest()"
            )

    def __str__(self) -> str:
        return f"sha256:{self.sha256}"


Kept: TypeAlias = Document | Digest
"""What is stored of a snapshot, to compare the next one with."""


def changed(before: Kept | None, after: Document) -> SnapshotVerdict:
    """Tell whether anything changed between two snapshots.

    Args:
        before: The snapshot that was stored, or its digest, or None at first sight.
        after: The snapshot that was just taken, under the same projection.

    Returns:
        `Unchanged`, or `Changed` with the difference, or `Differs` where only a digest was stored.

    Raises:
        Misuse: An argument is of another type.
    """
    check_type(before, (Document, Digest, NoneType), "what is kept of a snapshot")
    check_type(after, Document, "a snapshot")
    match before:
        case None:
            return Changed((Added("", after),))
        case Digest():
            return Unchanged() if before == digest(after) else Differs()
        case Document():
            return Unchanged() if equal(before, after) else Changed(difference(before, after))
        case _:
            assert_never(before)


def remembered(snapshot: Document, bytes_max: int) -> Kept:
    """What to store of a snapshot.

    Args:
        snapshot: The snapshot.
        bytes_max: How large it may be to be stored as it is, in bytes of its canonical form, which is about as long as
            BSON: a little more for short keys and small integers, a little less for nested documents.

    Returns:
        The snapshot; or its digest if it is larger, or so deep that it cannot stand in a document.

    Raises:
        Misuse: An argument is of another type, or the limit is negative.
    """
    check_type(snapshot, Document, "a snapshot")
    check_int(bytes_max, "a number of bytes", 0)
    form = _canonical(snapshot)
    is_small = len(form) <= bytes_max and snapshot.height < DEPTH_MAX
    return snapshot if is_small else _hashed(form)


def digest(snapshot: Document) -> Digest:
    """The digest of a snapshot, the same for all that are equal by MongoDB's equality."""
    check_type(snapshot, Document, "a snapshot")
    return _hashed(_canonical(snapshot))


_DOUBLE: Final = struct.Struct(">d")
_FORM: Final = b"tidegate/snapshot@1\n"
"""The version of the canonical form; digests are stored, and compared by later releases."""


def _hashed(form: bytes) -> Digest:
    return Digest(hashlib.sha256(_FORM + form).hexdigest())


def _canonical(value: Value) -> bytes:
    """Bytes that are the same exactly if two values are equal: no part can be taken for another."""
    return b"".join(_parts(value))


def _parts(value: Value) -> Iterator[bytes]:
    # Each part begins with its kind, and ends with ";" or says its length: so no two values run into the same bytes.
    match value:
        case None | bool():
            yield b"%r;" % value
        case int() | float():
            yield _number(value)
        case str():
            yield _tagged(b"s", value.encode())
        case bytes():
            yield _tagged(b"b", value)
        case Instant(at):
            yield b"d%d;" % at
        case Foreign(kind, payload):
            yield _number(value) if kind == DECIMAL else _tagged(kind.encode(), payload)
        case tuple():
            yield b"[%d;" % len(value)
            for item in value:
                yield from _parts(item)
        case Document(items):
            yield b"{%d;" % len(items)
            for key, item in items:
                yield _tagged(b"", key.encode())
                yield from _parts(item)
        case _:
            assert_never(value)


def _number(value: float | Foreign) -> bytes:
    """A number as a double where one holds exactly that number, and else in full; equal numbers are alike in this."""
    if isinstance(value, Foreign):
        read = numeric(value)
        double = float(read if isinstance(read, str) else "{}e{}".format(*read or ()))
        if numeric(double) != read:
            return b"%a;" % (read,)
    else:
        double = float(value)
        if type(value) is int and int(double) != value:
            return b"%a;" % (numeric(value),)
    return b"n%b" % _DOUBLE.pack(math.nan if math.isnan(double) else double or 0.0)  # one NaN, and no -0.0


def _tagged(kind: bytes, content: bytes) -> bytes:
    return b"%b%d:%b" % (kind, len(content), content)


# --- the snapshot -------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class NotComputed:
    """There is no snapshot, for a computed value failed, or the document cannot be read. Nothing can be said about it until it changes.

    Attributes:
        path: Where the value was to stand.
        why: What its function raised, or gave; by type, for more could be payload.
    """

    path: str
    why: str

    def __attrs_post_init__(self) -> None:
        check_name(self.path, "a computed value")
        check_type(self.why, str, "what went wrong")

    def __str__(self) -> str:
        return f"{self.path} cannot be computed: {self.why}"


def snapshot(document: Document, projection: Projection) -> Document | NotComputed:
    """What is watched of the document, as MongoDB's aggregation computes it.

    Args:
        document: The document as it was read.
        projection: What is watched.

    Returns:
        A document with the watched values, nested as their paths are, in the order of the paths; or `NotComputed`.

    Raises:
        Misuse: An argument is of another type.
    """
    check_type(document, Document, "a document")
    check_type(projection, Projection, "a projection")
    if not projection.ways:
        return document
    results: dict[_Way, Value] = {}
    for way, computed in projection.ways:
        if computed is not None:
            result = _computed(document, way, computed)
            if isinstance(result, NotComputed):
                return result
            [results[way]] = result
    return _cut_out(document, tuple(way for way, _ in projection.ways), results, 0)


def _computed(document: Document, way: _Way, computed: Computed) -> tuple[Value] | NotComputed:
    try:
        value = _cut(computed.compute(document))
    except BaseException as error:  # noqa: BLE001  it is the user's function: whatever it raises is an answer
        check_failure(error)
        return NotComputed(_dotted(way), f"its function raised {type(error).__name__}")
    try:
        checked(value, _dotted(way), len(way))
    except Misuse:
        return NotComputed(_dotted(way), f"its function gave {typed(value)} that MongoDB cannot keep")
    return (value,)


def _cut(value: Value) -> Value:
    """The value with its instants cut to milliseconds, towards the past."""
    match value:
        case Instant(at, clock):
            return Instant(at // MILLISECOND * MILLISECOND, clock)
        case tuple() if type(value) is tuple:
            return tuple(map(_cut, value))
        case _:
            return value


def _cut_out(document: Document, ways: tuple[_Way, ...], results: Mapping[_Way, Value], depth: int) -> Document:
    items: list[tuple[str, Value]] = []
    for field, group in groupby(ways, key=lambda way: way[depth]):  # sorted, so all ways through a field are neighbours
        further = tuple(group)
        if len(further[0]) > depth + 1:
            items.append((field.name, _cut_out(document, further, results, depth + 1)))
        elif further[0] in results:  # it ends here, and then it is the only one
            items.append((field.name, results[further[0]]))
        else:
            items.extend((field.name, value) for value in _seen(document, further[0]))
    return Document(tuple(items))


def _seen(document: Document, way: _Way) -> tuple[Value, ...]:
    """The value that MongoDB's `"$a.b"` means, alone; nothing if that is missing."""
    field, *rest = way
    if not document.has(field):
        return ()
    value, further = document[field], tuple(rest)
    if not further:
        return (value,)
    match value:
        case Document():
            return _seen(value, further)
        case tuple():
            leaves = (leaf for item in value if isinstance(item, Document) for leaf in _seen(item, further))
            return (tuple(leaves),)
        case _:
            return ()


# --- the same on the server ---------------------------------------------------------------------------------------------


def expression(projection: Projection) -> Value:
    """The aggregation expression whose value, for MongoDB, is the snapshot of the document at the root.

    Args:
        projection: What is watched.

    Returns:
        Data that a driver takes as it is (`tidegate_adapters.mongo.bson.stored`): `{a: {b: "$a.b"}}` for `a.b`, and
        "$$ROOT" for the whole document.

    Raises:
        Misuse: A computed value has no expression; or, with its expressions, it is nested deeper than a document.
    """
    check_type(projection, Projection, "a projection")
    if not projection.ways:
        return "$$ROOT"
    for path, computed in projection.computed:
        if computed.expression is None:
            raise Misuse(
                f"{path!r} has no expression for MongoDB", todo="give its Computed one, or take snapshots here"
            )
    return _asked(projection.ways, 0)


def differs(projection: Projection, before: Document | str) -> Document:
    """The aggregation expression that holds where the document at the root has changed.

    Args:
        projection: What is watched.
        before: The snapshot that was stored, or the expression that leads to where it is stored: "$$record.snapshot".

    Returns:
        Data as of `expression`. It holds at first sight too: where the stored snapshot is missing, it differs.

    Raises:
        Misuse: A computed value has no expression, or `before` is neither; or one of them is nested so deep that no
            document could hold the comparison: take such snapshots here.
    """
    match before:
        case Document():
            known: Value = Document((("$literal", before),))
        case str() if before.startswith("$"):
            known = before
        case _:
            raise Misuse(f"{shown(before)} leads to no stored snapshot", todo='write "$snapshot", or pass the snapshot')
    return Document((("$ne", (known, expression(projection))),))


def _asked(ways: tuple[tuple[_Way, Computed | None], ...], depth: int) -> Document:
    items: list[tuple[str, Value]] = []
    for field, group in groupby(ways, key=lambda each: each[0][depth]):
        further = tuple(group)
        way, computed = further[0]
        if len(way) > depth + 1:
            items.append((field.name, _asked(further, depth + 1)))
        else:
            items.append((field.name, f"${_dotted(way)}" if computed is None else computed.expression))
    return Document(tuple(items))


# --- paths --------------------------------------------------------------------------------------------------------------


def _computed_ways(computed: object) -> Iterator[tuple[_Way, Computed]]:
    if type(computed) is not tuple:
        raise Misuse(f"{shown(computed)} is not a tuple of computed values", todo='write (("total", Computed(...)),)')
    for each in cast("tuple[object, ...]", computed):
        match each:
            case (str() as path, Computed() as known):
                yield _way(path), known
            case _:
                raise Misuse(f"{shown(each)} is not a computed value", todo='write ("total", Computed(...))')


def _way(path: object) -> _Way:
    if not isinstance(path, str):
        raise Misuse(f"{shown(path)} is not a path", todo="write the names of the fields with dots in between")
    names = path.split(".")
    if len(names) > DEPTH_MAX:
        raise Misuse(f"a path of {len(names)} names", why=f"no document is nested deeper than {DEPTH_MAX}")
    return tuple(Field[Value](name) for name in names)


def _dotted(way: _Way) -> str:
    return ".".join(field.name for field in way)
