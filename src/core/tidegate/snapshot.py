"""Did anything that is watched change?

A reactive task watches some fields of a document. When the document is seen again, the watched part is cut out (the
snapshot), compared with the one that was stored, and only a difference counts as a change. After mongodash, whose plan
pass lets MongoDB compute `{a: {b: "$a.b"}}` for a watched `a.b` and compare it with `$ne`; the values here are the ones
that MongoDB's aggregation gives for that expression, and equality is MongoDB's (`documents.equal`).

    pair                                                           changed
    missing and null                                               yes
    parent missing, {}, null or a scalar: no watched leaf in any   no, each gives an empty parent
    1 and 1.0; NaN and NaN; -0.0 and 0.0                           no
    1 and true; "S" and "s"; 2**53 + 1 and 2.0**53                 yes
    the same keys, or the same elements, in another order          yes
    seen for the first time                                        yes

A dotted path through an array gives the array of the leaves that are there.

Laws
    N3  where every field that a path begins with is equal before and after, nothing has changed.
    N4  equal documents have equal snapshots: what is read again is unchanged, NaN and -0.0 included.
    N5  where a field that is watched whole differs, it has changed: no change is lost.
    N6  the patch of a change leads from the snapshot before to exactly the one after.
    N7  a snapshot of a snapshot is that snapshot, and the order of the paths makes no difference.

We differ from mongodash:
    - a path and another one inside of it are refused, in either order; there the inner one is silently dropped, or not,
      after the order in which they were written;
    - paths are kept sorted, so that writing them in another order is no change of every document;
    - a path never begins an expression: a name that starts with `$` is refused, and so is a number, which a filter
      takes for a position and an expression for a name.

Known not to work: an array element that lacks the leaf is invisible, so [{b: 1}, {}] and [{}, {b: 1}] look the same to
`a.b` (watch `a` instead); a change and its opposite between two looks leave no trace (A-B-A).
"""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import TypeAlias, final

import attrs

from tidegate.documents import DEPTH_MAX, Document, Field, Value, equal
from tidegate.errors import Misuse
from tidegate.patches import Added, Patch, difference

Way: TypeAlias = tuple[Field[Value], ...]
"""A path, taken apart."""


@final
@attrs.frozen
class Projection:
    """The paths that are watched; none means the whole document.

    Invariants: a path is 1 to DEPTH_MAX names of fields with dots in between; no path is, or lies inside of, another.

    Attributes:
        paths: The paths, sorted, in whichever order they were given.
        ways: The same, taken apart.
    """

    paths: tuple[str, ...] = ()
    ways: tuple[Way, ...] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if type(self.paths) is not tuple:
            raise Misuse(f"{self.paths!r} is no tuple of paths", todo='write Projection(("status", "address.city"))')
        ways = tuple(sorted(map(_way, self.paths), key=lambda way: [field.name for field in way]))
        for outer, inner in pairwise(ways):
            if inner[: len(outer)] == outer:
                raise Misuse(
                    f"{_dotted(outer)!r} and {_dotted(inner)!r} cannot both be watched",
                    why="the one holds the other",
                    todo=f"watch {_dotted(outer)!r} alone, or only paths inside of it",
                )
        object.__setattr__(self, "paths", tuple(map(_dotted, ways)))
        object.__setattr__(self, "ways", ways)

    def __str__(self) -> str:
        return ", ".join(self.paths) or "the whole document"


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

    def __attrs_post_init__(self) -> None:
        if not self.patch:
            raise Misuse("a change without a difference")

    def __str__(self) -> str:
        return f"changed: {'; '.join(map(str, self.patch))}"


Verdict: TypeAlias = Unchanged | Changed


def changed(before: Document | None, after: Document) -> Verdict:
    """Tell whether anything changed between two snapshots.

    Args:
        before: The snapshot that was stored, or None at first sight.
        after: The snapshot that was just taken, under the same projection.

    Returns:
        `Unchanged`, or `Changed` with the difference.
    """
    if before is None:
        return Changed((Added("", after),))
    if equal(before, after):
        return Unchanged()
    return Changed(difference(before, after))


def snapshot(document: Document, projection: Projection) -> Document:
    """What is watched of the document, as MongoDB's aggregation computes it.

    Args:
        document: The document as it was read.
        projection: What is watched.

    Returns:
        A document with the watched values, nested as their paths are, in the order of the paths.
    """
    return _cut_out(document, projection.ways, 0) if projection.ways else document


def _cut_out(document: Document, ways: tuple[Way, ...], depth: int) -> Document:
    items: list[tuple[str, Value]] = []
    for field, group in groupby(ways, key=lambda way: way[depth]):
        further = tuple(group)
        if len(further[0]) == depth + 1:  # it ends here, and then it is the only one
            items.extend((field.name, value) for value in _seen(document, further[0]))
        else:
            items.append((field.name, _cut_out(document, further, depth + 1)))
    return Document(tuple(items))


def _seen(document: Document, way: Way) -> tuple[Value, ...]:
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


def _way(path: object) -> Way:
    if not isinstance(path, str):
        raise Misuse(f"{path!r} is no path", todo="write the names of the fields with dots in between")
    names = path.split(".")
    if len(names) > DEPTH_MAX:
        raise Misuse(f"a path of {len(names)} names", why=f"no document is nested deeper than {DEPTH_MAX}")
    return tuple(Field[Value](name) for name in names)


def _dotted(way: Way) -> str:
    return ".".join(field.name for field in way)
