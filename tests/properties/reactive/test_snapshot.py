from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate import strategies
from tidegate.model.checks.strategies.bson import ODD_DECIMALS, decimal, foreign_document_pairs, foreigns, regex
from tidegate.model.documents import DEPTH_MAX, Document, Field, Value, equal, exactly
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, Instant
from tidegate.model.patches import Added, Replaced, difference, to_json
from tidegate.reactive.checks.laws import snapshot as laws
from tidegate.reactive.checks.strategies.snapshot import (
    COMPUTED,
    FAILING,
    computed_projections,
    digests,
    kept,
    verdicts,
)
from tidegate.reactive.record import snapshot as module
from tidegate.reactive.record.snapshot import (
    Changed,
    Computed,
    Differs,
    Digest,
    Kept,
    NotComputed,
    Projection,
    SnapshotVerdict,
    Unchanged,
    changed,
    described,
    differs,
    digest,
    expression,
    remembered,
    snapshot,
)

Judge: TypeAlias = Callable[[Document | None, Document], SnapshotVerdict]
Take: TypeAlias = Callable[[Document, Projection], Document]
Watched: TypeAlias = tuple[Document, Document, Projection]


def doc(**items: object) -> Document:
    return Document.of(items)


def taken(document: Document, projection: Projection) -> Document:
    result = snapshot(document, projection)
    assert isinstance(result, Document)
    return result


WHOLE = Projection()
A, A_B = Projection(("a",)), Projection(("a.b",))
AB = st.sampled_from(("a", "b"))


@st.composite
def watched(draw: st.DrawFn) -> Watched:
    before, after = draw(foreign_document_pairs(AB))
    few = st.sampled_from(((), ("a",), ("a.b",), ("a.a", "a.b"), ("b.a.b",), ("b.a", "a"), ("a.a.a", "a.b", "b.b")))
    return before, after, draw(st.one_of(few.map(Projection), strategies.projections()))


# --- laws ---------------------------------------------------------------------------------------------------------------


def check_n3(take: Take, judge: Judge) -> None:
    @given(watched())
    @example((doc(a=1, b=1), doc(a=1.0, b=2), A))
    def law(drawn: Watched) -> None:
        before, after, projection = drawn
        verdict = judge(take(before, projection), take(after, projection))
        assert laws.the_unwatched_is_not_seen(before, after, projection, verdict)

    law()


def check_n4(judge: Judge) -> None:
    @given(watched())
    @example((doc(a=math.nan), doc(a=math.nan), WHOLE))
    @example((doc(a=(1, -0.0)), doc(a=(1.0, 0)), A))
    def law(drawn: Watched) -> None:
        before, after, projection = drawn
        verdict = judge(taken(before, projection), taken(after, projection))
        assert laws.equal_documents_are_unchanged(before, after, verdict)

    law()


def check_n5(take: Take, judge: Judge) -> None:
    @given(watched())
    @example((doc(a=None), doc(), A))
    @example((doc(a=1), doc(a=True), A))
    @example((doc(a=doc(a=1, b=2)), doc(a=doc(b=2, a=1)), A))
    def law(drawn: Watched) -> None:
        before, after, projection = drawn
        verdict = judge(take(before, projection), take(after, projection))
        assert laws.no_watched_change_is_lost(before, after, projection, verdict)

    law()


def check_n6(judge: Judge) -> None:
    @given(watched(), st.booleans())
    @example(drawn=(doc(a=1, b=1), doc(a=1.0, b=2), WHOLE), first_sight=False)
    @example(drawn=(doc(), doc(), WHOLE), first_sight=True)
    def law(drawn: Watched, first_sight: bool) -> None:
        before, after, projection = drawn
        first = None if first_sight else taken(before, projection)
        now = taken(after, projection)
        assert laws.a_change_tells_all(first, now, judge(first, now))

    law()


def check_n7(take: Take) -> None:
    @given(watched())
    @example((doc(a=doc(b=1), b=1), doc(), A_B))
    def law(drawn: Watched) -> None:
        document, _, projection = drawn
        once, reverse = take(document, projection), Projection(projection.paths[::-1])
        assert laws.a_snapshot_is_its_own(once, take(once, projection))
        assert laws.a_snapshot_is_its_own(once, take(document, reverse))

    law()


def test_what_is_not_watched_is_not_seen() -> None:
    """Law N3; mongodash: another field makes no run."""
    check_n3(taken, changed)


def test_what_is_read_again_is_unchanged() -> None:
    """Law N4; a NaN that differed from itself would trigger forever."""
    check_n4(changed)


def test_no_watched_change_is_lost() -> None:
    """Law N5; mongodash: either watched field makes a run."""
    check_n5(taken, changed)


def test_the_patch_of_a_change_tells_all() -> None:
    """Law N6; at first sight the patch adds the whole snapshot."""
    check_n6(changed)


def test_a_snapshot_of_a_snapshot_is_that_snapshot() -> None:
    """Law N7; paths are a set."""
    check_n7(taken)


def everything(document: Document, _: Projection) -> Document:
    """Planted bug: the projection is ignored."""
    return document


def nulls(document: Document, projection: Projection) -> Document:
    """Planted bug: a missing value is written as null."""
    whole = {way[0].name: document.get(way[0]) for way, _ in projection.ways}
    return Document(tuple(whole.items())) if whole else document


def flat(document: Document, projection: Projection) -> Document:
    """Planted bug: a dotted path gives a dotted key."""
    return Document(
        tuple(
            (f"{key}.{inner}", leaf)
            for key, value in taken(document, projection).items
            for inner, leaf in (value.items if isinstance(value, Document) else (("", value),))
        )
    )


def never(_: Document | None, __: Document) -> SnapshotVerdict:
    return Unchanged()


def by_identity(before: Document | None, after: Document) -> SnapshotVerdict:
    """Planted bug: 1.0 for 1 is a change."""
    patch = difference(before, after)
    return Changed(patch) if patch else Unchanged()


def by_python(before: Document | None, after: Document) -> SnapshotVerdict:
    """Planted bug: Python compares: NaN is a change; True for 1 and another key order are not."""

    def plain(value: Value) -> object:
        match value:
            case Document(items):
                return {key: plain(item) for key, item in items}
            case tuple():
                return [plain(item) for item in value]
            case float():
                return float(str(value))  # a new object: a list compares by identity first
            case _:
                return value

    return Unchanged() if plain(before) == plain(after) else Changed((Added("", after),))


def backwards(before: Document | None, after: Document) -> SnapshotVerdict:
    verdict = changed(before, after)
    return Changed(difference(after, before)) if isinstance(verdict, Changed) and before is not None else verdict


def shallow(before: Document | None, after: Document) -> SnapshotVerdict:
    """Planted bug: the patch omits values that are equal but of another type."""
    if before is None or equal(before, after):
        return changed(before, after)
    old, new = dict(before.items), dict(after.items)
    kept = {key: old[key] if key in old and equal(old[key], value) else value for key, value in new.items()}
    return Changed(difference(before, Document(tuple(kept.items()))) or (Replaced("", after),))


@pytest.mark.parametrize("planted", [everything])
def test_a_planted_bug_breaks_n3(planted: Take) -> None:
    with pytest.raises(AssertionError):
        check_n3(planted, changed)


@pytest.mark.parametrize("planted", [by_identity, by_python])
def test_a_planted_bug_breaks_n4(planted: Judge) -> None:
    with pytest.raises(AssertionError):
        check_n4(planted)


@pytest.mark.parametrize(("take", "judge"), [(nulls, changed), (taken, by_python), (taken, never)])
def test_a_planted_bug_breaks_n5(take: Take, judge: Judge) -> None:
    with pytest.raises(AssertionError):
        check_n5(take, judge)


@pytest.mark.parametrize("planted", [never, backwards, shallow])
def test_a_planted_bug_breaks_n6(planted: Judge) -> None:
    with pytest.raises(AssertionError):
        check_n6(planted)


def test_a_planted_bug_breaks_n7() -> None:
    with pytest.raises(AssertionError):
        check_n7(flat)


# --- digests ------------------------------------------------------------------------------------------------------------


def check_n9(judge: Callable[[Kept, Document], SnapshotVerdict], digest: Callable[[Document], Kept]) -> None:
    @given(foreign_document_pairs(AB))
    @example((doc(a=1), doc(a=1.0)))
    @example((doc(a="b:1"), doc(a=b"b:1")))
    @example((doc(a=doc(), b=1), doc(b=1, a=doc())))
    @example((doc(a=("a", "b")), doc(a=("ab",))))
    @example((doc(a=(1, (2,))), doc(a=((1,), 2))))
    @example((doc(a=doc(a=1), b=2), doc(a=doc(a=1, b=2))))
    @example((doc(a=0.5), doc(a=decimal(50, -2))))
    @example((doc(a=0.1), doc(a=decimal(1, -1))))
    @example((doc(a=2**53 + 1), doc(a=2.0**53)))
    @example((doc(a=2**53 + 1), doc(a=decimal(2**53 + 1, 0))))
    @example((doc(a=2**63 - 1), doc(a=2.0**63)))
    @example((doc(a=1e300), doc(a=decimal(1, 300))))
    @example((doc(a=math.inf), doc(a=decimal(1, 400))))
    @example((doc(a=(math.nan, math.inf, -0.0)), doc(a=(ODD_DECIMALS[0], ODD_DECIMALS[3], decimal(0, 5)))))
    def law(pair: tuple[Document, Document]) -> None:
        before, after = pair
        assert laws.a_digest_notices_the_same(changed(before, after), judge(digest(before), after))

    law()


def test_a_digest_sees_what_the_snapshot_would() -> None:
    """Law N9; MongoDB's comparison still holds after hashing."""
    check_n9(changed, digest)


def of_text(document: Document) -> Digest:
    """Planted bug: 1 and 1.0 hash differently."""
    return Digest(hashlib.sha256(str(document).encode()).hexdigest())


def of_sorted_keys(document: Document) -> Digest:
    return digest(Document.of(json.loads(json.dumps(to_json(document), sort_keys=True))))


def of_parts(document: Document) -> Digest:
    """Planted bug: the boundary between parts is not marked."""
    return Digest(hashlib.sha256(str(document).translate(dict.fromkeys(map(ord, '[]{}", :'))).encode()).hexdigest())


def by_double(document: Document) -> Digest:
    """Planted bug: numbers become the nearest double, so 2**53 + 1 equals 2**53."""

    def nearest(value: Value) -> Value:
        match value:
            case Document(items):
                return Document(tuple((key, nearest(item)) for key, item in items))
            case tuple():
                return tuple(map(nearest, value))
            case _:
                return float(value) if type(value) is int else value

    return digest(cast("Document", nearest(document)))


@pytest.mark.parametrize("planted", [of_text, of_sorted_keys, of_parts, by_double])
def test_a_planted_bug_breaks_n9(planted: Callable[[Document], Digest]) -> None:
    def judge(before: Kept, after: Document) -> SnapshotVerdict:
        return Unchanged() if before == planted(after) else Differs()

    with pytest.raises(AssertionError):
        check_n9(judge, planted)


@given(st.dictionaries(AB, st.one_of(foreigns(), strategies.values()), max_size=2).map(Document.of), st.integers(0, 99))
def test_what_is_small_enough_is_kept_as_it_is(document: Document, bytes_max: int) -> None:
    there = remembered(document, bytes_max)

    assert there in (document, digest(document))
    assert remembered(document, 0) == digest(document)
    assert exactly(remembered(document, 2**30)) == exactly(document)
    assert changed(there, document) == Unchanged()


def test_a_number_takes_no_more_than_a_double() -> None:
    """0.1 is no power of two: in full, a hundred of them would take 6,000 bytes."""
    document = doc(a=tuple(each / 10 for each in range(100)), b=(5e-324, 1e300, decimal(5, -1)))

    assert remembered(document, 1_000) == document


def test_the_digest_of_a_document_is_pinned() -> None:
    """Digests are stored, so every release must compute the same."""
    document = doc(a=(1, 1.5, None, True, "x"), b=b"", c=Instant(MILLISECOND), d=decimal(-15, -1), e=regex("^a", "i"))

    assert str(digest(document)) == "sha256:0c6886af263b7a53f43a804f5ad921398e8b8061f18c379b559de5291f2e7bc2"


# --- computed values ----------------------------------------------------------------------------------------------------

PRICE, QUANTITY = Field[int]("price"), Field[int]("quantity")


def total(document: Document) -> Value:
    return document[PRICE] * document[QUANTITY]


TOTAL = Projection.of({"total": Computed(total, {"$multiply": ["$price", "$quantity"]})})


def test_a_computed_value_is_watched() -> None:
    """mongodash: price x quantity from 10 x 2 to 5 x 4 is no change, to 5 x 5 it is one."""
    before = taken(doc(price=10, quantity=2), TOTAL)

    assert before == doc(total=20)
    assert changed(before, taken(doc(price=5, quantity=4), TOTAL)) == Unchanged()
    assert changed(before, taken(doc(price=5, quantity=5), TOTAL)) == Changed((Replaced("/total", 25),))


def test_a_filter_may_be_computed() -> None:
    """mongodash: filtered and reduced arrays; the snapshot holds the computed value."""

    def open_items(document: Document) -> Value:
        return tuple(item for item in document[Field[tuple[Document, ...]]("items")] if item[Field[bool]("open")])

    watched_items = Projection.of({"open.items": Computed(open_items), "name": 1})
    document = doc(items=(doc(open=True, n=1), doc(open=False, n=2)), name="x")

    assert taken(document, watched_items) == doc(name="x", open=doc(items=(doc(open=True, n=1),)))


def test_computed_instants_are_cut_to_milliseconds() -> None:
    """MongoDB cuts dates towards the past; otherwise a stored snapshot would differ from itself."""

    def late(_: Document) -> Value:
        return (Instant(1_999), (Instant(-1),), 1)

    assert taken(doc(), Projection.of({"late": Computed(late)})) == doc(late=(Instant(1_000), (Instant(-1_000),), 1))


class Pair(NamedTuple):
    a: int
    b: int


def gives(value: object) -> Computed:
    return Computed(lambda _: cast("Value", value))


def nested(depth: int) -> Value:
    value: Value = 1
    for _ in range(depth):
        value = (value,)
    return value


def check_n10(snapshot: Callable[[Document, Projection], Document | NotComputed]) -> None:
    @given(
        foreign_document_pairs(AB), computed_projections(), st.sampled_from((None, FAILING, gives([1]), gives(2**63)))
    )
    @example((doc(), doc()), WHOLE, FAILING)
    @example((doc(), doc()), Projection((), (("x", gives(1)),)), None)
    def law(pair: tuple[Document, Document], projection: Projection, failing: Computed | None) -> None:
        document, _ = pair
        fails = () if failing is None else (("z.fails", failing),)
        watched = Projection(projection.paths, (*projection.computed, *fails))
        assert laws.a_failure_is_reported(failing is not None, "z.fails", snapshot(document, watched))

    law()


def test_what_cannot_be_computed_is_reported() -> None:
    """Law N10; in mongodash a failing computed value costs the whole batch its changes."""
    check_n10(snapshot)


def left_out(document: Document, projection: Projection) -> Document | NotComputed:
    result = snapshot(document, projection)
    return document if isinstance(result, NotComputed) else result


def never_computed(document: Document, projection: Projection) -> Document | NotComputed:
    return NotComputed("z.fails", "it is computed") if projection.computed else snapshot(document, projection)


@pytest.mark.parametrize("planted", [left_out, never_computed])
def test_a_planted_bug_breaks_n10(planted: Callable[[Document, Projection], Document | NotComputed]) -> None:
    with pytest.raises(AssertionError):
        check_n10(planted)


@pytest.mark.parametrize(
    ("computed", "why"),
    [
        (FAILING, "its function raised KeyError"),
        (gives([1]), "its function gave a list that MongoDB cannot keep"),
        (gives(Pair(1, 2)), "its function gave a Pair that MongoDB cannot keep"),
        (gives({"a": 1}), "its function gave a dict that MongoDB cannot keep"),
        (gives(2**63), "its function gave an int that MongoDB cannot keep"),
        (gives(nested(DEPTH_MAX - 1)), "its function gave a tuple that MongoDB cannot keep"),
        (gives(nested(100_000)), "its function raised RecursionError"),
    ],
)
def test_a_failure_says_where_and_of_which_kind(computed: Computed, why: str) -> None:
    assert snapshot(doc(), Projection.of({"x.y": computed})) == NotComputed("x.y", why)
    assert str(NotComputed("x.y", why)) == f"x.y cannot be computed: {why}"


def test_a_computed_value_is_as_deep_as_a_document() -> None:
    assert isinstance(snapshot(doc(), Projection.of({"x.y": gives(nested(DEPTH_MAX - 2))})), Document)


# --- the same on the server ---------------------------------------------------------------------------------------------

Plain: TypeAlias = dict[str, object]
MISSING = object()


def dumb_expression(paths: tuple[str, ...]) -> Plain:
    whole: Plain = {}
    for path in paths:
        *parents, leaf = path.split(".")
        place = whole
        for name in parents:
            place = cast("Plain", place.setdefault(name, {}))
        place[leaf] = f"${path}"
    return whole


def evaluated(term: object, document: Plain) -> object:
    """Evaluates an aggregation term as MongoDB's manual describes."""
    match term:
        case "$$ROOT":
            return document
        case str() if term.startswith("$"):
            return at(document, term[1:].split("."))
        case {"$literal": literal}:
            return literal
        case {"$type": inner}:
            return "missing" if evaluated(inner, document) is MISSING else "something"
        case {"$ifNull": [inner, otherwise]}:
            given = evaluated(inner, document)
            return otherwise if given is MISSING or given is None else given
        case {"$eq": [left, right]}:
            return is_alike(evaluated(left, document), evaluated(right, document))
        case {"$ne": [left, right]}:
            return not is_alike(evaluated(left, document), evaluated(right, document))
        case dict():
            results = {key: evaluated(inner, document) for key, inner in cast("Plain", term).items()}
            return {key: result for key, result in results.items() if result is not MISSING}
        case _:
            return term


def is_alike(left: object, right: object) -> bool:
    return left is right if left is MISSING or right is MISSING else equal(closed(left), closed(right))


def closed(plain: object) -> Value:
    return Document.of({"": plain}).items[0][1]


def at(value: object, names: list[str]) -> object:
    if not names:
        return value
    if isinstance(value, dict):
        return at(cast("Plain", value).get(names[0], MISSING), names[1:])
    if isinstance(value, list):
        leaves = [at(cast("Plain", item), names) for item in cast("list[object]", value) if isinstance(item, dict)]
        return [leaf for leaf in leaves if leaf is not MISSING]
    return MISSING


def opened(value: Value) -> object:
    match value:
        case Document(items):
            return {key: opened(item) for key, item in items}
        case tuple():
            return list(map(opened, value))
        case _:
            return value


def check_n11(
    expression: Callable[[Projection], Value], differs: Callable[[Projection, Document | str], Value]
) -> None:
    @given(foreign_document_pairs(AB), st.one_of(watched().map(lambda drawn: drawn[2]), computed_projections()))
    @example((doc(a="$b", b=1), doc(a=1, b=1)), WHOLE)
    @example((doc(a="$b", b=1), doc(a="$b", b=1)), WHOLE)
    @example((doc(a=doc(b=1)), doc(a=(doc(b=1), doc()))), A_B)
    @example((doc(a=1), doc(b=1)), Projection((), (("x", COMPUTED[0]),)))
    def law(pair: tuple[Document, Document], projection: Projection) -> None:
        before, after = (taken(each, projection) for each in pair)
        root = cast("Plain", opened(pair[1]))
        computed = closed(evaluated(opened(expression(projection)), root))
        stored = evaluated(opened(differs(projection, before)), root)
        assert isinstance(computed, Document)
        assert isinstance(stored, bool)
        assert laws.the_server_sees_the_same(after, computed, stored, changed(before, after))

    law()


def test_the_server_sees_the_same() -> None:
    """Law N11, with a naive twin of the aggregation. The integration tests compare with MongoDB."""
    check_n11(expression, differs)


def flat_expression(projection: Projection) -> Value:
    return (
        Document(tuple((path, f"${path}") for path in projection.paths)) if projection.paths else expression(projection)
    )


def without_computed(projection: Projection) -> Value:
    return expression(Projection(projection.paths))


def not_literal(projection: Projection, before: Document | str) -> Value:
    """Planted bug of mongodash: the stored snapshot is not quoted, so "$b" is a field."""
    return Document((("$ne", (before, expression(projection))),))


def equal_instead(projection: Projection, before: Document | str) -> Value:
    return Document((("$eq", differs(projection, before).items[0][1]),))


@pytest.mark.parametrize(
    ("expression", "differs"),
    [
        (flat_expression, differs),
        (without_computed, differs),
        (expression, not_literal),
        (expression, equal_instead),
    ],
)
def test_a_planted_bug_breaks_n11(
    expression: Callable[[Projection], Value], differs: Callable[[Projection, Document | str], Value]
) -> None:
    with pytest.raises(AssertionError):
        check_n11(expression, differs)


@given(strategies.projections())
def test_paths_are_asked_for_as_mongodash_does(projection: Projection) -> None:
    opened_by_server = opened(expression(projection))

    assert opened_by_server == (dumb_expression(projection.paths) if projection.paths else "$$ROOT")


def test_the_expression_leads_to_where_a_snapshot_is_stored() -> None:
    assert differs(Projection(("a.b", "c")), "$$record.snapshot") == Document.of(
        {"$ne": ["$$record.snapshot", {"a": {"b": "$a.b"}, "c": "$c"}]}
    )
    assert differs(WHOLE, doc(a=1)) == Document.of({"$ne": [{"$literal": {"a": 1}}, "$$ROOT"]})
    for elsewhere in ("snapshot", 1, None, Digest("0" * 64)):
        with pytest.raises(Misuse):
            differs(WHOLE, cast("str", elsewhere))


def test_without_an_expression_the_server_cannot_be_asked() -> None:
    """A function cannot be translated; the user may add an expression."""
    for ask in (expression, lambda projection: differs(projection, "$snapshot")):
        with pytest.raises(Misuse, match="total"):
            ask(Projection.of({"a": 1, "total": Computed(total)}))


# --- described vectors --------------------------------------------------------------------------------------------------

PARENTS = (doc(), doc(a=doc()), doc(a=None), doc(a="scalar"), doc(a=doc(c=1)))


@pytest.mark.parametrize("before", PARENTS)
@pytest.mark.parametrize("after", PARENTS)
def test_where_the_leaf_is_missing_the_parent_does_not_matter(before: Document, after: Document) -> None:
    """mongodash: missing, {}, null and a scalar all give an empty parent object."""
    assert taken(before, A_B) == doc(a=doc())
    assert changed(taken(before, A_B), taken(after, A_B)) == Unchanged()


@pytest.mark.parametrize(
    ("document", "paths", "expected"),
    [
        (doc(_id=1, a=1), (), doc(_id=1, a=1)),
        (doc(_id=1, a=1), ("a",), doc(a=1)),
        (doc(a=1), ("b",), doc()),
        (doc(a=None), ("a",), doc(a=None)),
        (doc(a=doc(b=None)), ("a.b",), doc(a=doc(b=None))),
        (doc(b=2, a=1), ("b", "a"), doc(a=1, b=2)),
        (doc(meta=doc(version=1, other=2)), ("meta.version",), doc(meta=doc(version=1))),
        (doc(a=doc(b=1, c=2, d=3), e=4), ("e", "a.d", "a.b"), doc(a=doc(b=1, d=3), e=4)),
        (doc(a=doc(b=doc(c=1))), ("a.b.c", "a.b.d", "a.e"), doc(a=doc(b=doc(c=1)))),
        (doc(a=(doc(b=1), doc(), 3, (doc(b=4),), doc(b=None))), ("a.b",), doc(a=doc(b=(1, None)))),
        (doc(a=()), ("a.b",), doc(a=doc(b=()))),
        (doc(a=(doc(b=(doc(c=1), doc(c=2))), doc(b=3))), ("a.b.c",), doc(a=doc(b=doc(c=((1, 2),))))),
        (Document((("a.b", 1), ("a", doc(b=2)))), ("a.b",), doc(a=doc(b=2))),
        (doc(**{"a-b": 1, "a": doc(b=1, c=2)}), ("a.b", "a-b", "a.c"), Document.of({"a": {"b": 1, "c": 2}, "a-b": 1})),
    ],
)
def test_a_snapshot_is_nested_as_its_paths_are(document: Document, paths: tuple[str, ...], expected: Document) -> None:
    """The table of mongodash for projections, and MongoDB's results for paths through arrays."""
    assert taken(document, Projection(paths)) == expected


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (doc(), doc(a=None), False),
        (doc(a=doc()), doc(a=doc(b=None)), False),
        (doc(a=1), doc(a=1.0), True),
        (doc(a=1), doc(a=True), False),
        (doc(a=0), doc(a=False), False),
        (doc(a=2**53 + 1), doc(a=2.0**53), False),
        (doc(a=2**53), doc(a=2.0**53), True),
        (doc(a=2**63 - 1), doc(a=2.0**63), False),
        (doc(a=math.nan), doc(a=math.nan), True),
        (doc(a=-0.0), doc(a=0), True),
        (doc(a="S"), doc(a="s"), False),
        (doc(a="1"), doc(a=b"1"), False),
        (doc(a=b"\x00"), doc(a=b"\x00"), True),
        (doc(a=doc(b=1, c=2)), doc(a=doc(c=2, b=1)), False),
        (doc(a=(1, 2)), doc(a=(2, 1)), False),
        (doc(a=(1, 2)), doc(a=(1.0, 2.0)), True),
        (doc(a=()), doc(a=None), False),
        (doc(a=()), doc(a=doc()), False),
        (doc(a=Instant(1000)), doc(a=Instant(1000)), True),
        (doc(a=Instant(1000)), doc(a=Instant(2000)), False),
        (doc(a=Instant(1000)), doc(a=1000), False),
        (doc(a=1), doc(a=decimal(100, -2)), True),
        (doc(a=True), doc(a=decimal(1, 0)), False),
        (doc(a=0.5), doc(a=decimal(5, -1)), True),
        (doc(a=0.1), doc(a=decimal(1, -1)), False),
        (doc(a=2.0**53), doc(a=decimal(2**53 + 1, 0)), False),
        (doc(a="a"), doc(a=regex("a")), False),
        (doc(a=regex("a")), doc(a=regex("a", "i")), False),
        (doc(a=(decimal(10, -1),)), doc(a=(1.0,)), True),
    ],
)
def test_values_compare_as_in_mongodb(before: Document, after: Document, same: bool) -> None:
    """Of mongodash: missing is not null, 1 is 1.0 but not true, NaN is NaN, order counts."""
    assert isinstance(changed(before, after), Unchanged) == same
    assert isinstance(changed(after, before), Unchanged) == same


def test_first_sight_is_a_change() -> None:
    """mongodash: an insert always counts, even if no watched field exists."""
    assert changed(None, doc()) == Changed((Added("", doc()),))


def test_an_element_without_the_leaf_is_invisible() -> None:
    """Known limit, as in MongoDB: a leaf's position among elements without it is not seen."""
    one, other = doc(a=(doc(b=1), doc())), doc(a=(doc(), doc(b=1)))

    assert changed(taken(one, A_B), taken(other, A_B)) == Unchanged()
    assert isinstance(changed(taken(one, A), taken(other, A)), Changed)


# --- construction -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paths", "outer", "inner"),
    [
        (("a", "a.b"), "a", "a.b"),
        (("a.b", "a"), "a", "a.b"),
        (("a.b.c.d", "x", "a.b"), "a.b", "a.b.c.d"),
        (("a", "a-b", "a.b"), "a", "a.b"),
        (("a.b", "a.b"), "a.b", "a.b"),
    ],
)
def test_a_path_inside_of_another_is_refused(paths: tuple[str, ...], outer: str, inner: str) -> None:
    """The error names both, in either order; mongodash silently keeps one of them."""
    with pytest.raises(Misuse, match=f"'{outer}' and '{inner}'"):
        Projection(paths)


@pytest.mark.parametrize(
    "path", ["", ".", "a.", ".a", "a..b", "$a", "a.$b", "a.$", "a.$[]", "a.0", "0", "a\0b", 1, None, Field[int]("a")]
)
def test_a_path_is_made_of_names(path: str) -> None:
    with pytest.raises(Misuse):
        Projection((path,))


@pytest.mark.parametrize("paths", ["ab", ["a"], {"a": 1}, None, frozenset({"a"})])
def test_paths_are_a_tuple(paths: tuple[str, ...]) -> None:
    with pytest.raises(Misuse):
        Projection(paths)


@pytest.mark.parametrize(
    "form",
    [0, False, 1.0, 2, None, "$price", "x", {"$slice": 1}, {"b": 1}, {"$elemMatch": {}}, {"$meta": "x"}, [1], ()],
)
@pytest.mark.parametrize("path", ["a", "_id"])
def test_a_path_is_watched_with_1_or_true(path: str, form: object) -> None:
    """Not even _id can be excluded. mongodash takes any other form for a computed value."""
    with pytest.raises(Misuse, match=f"'{path}'"):
        Projection.of({path: form})


def test_a_projection_is_written_as_in_mongodb() -> None:
    computed = Computed(total)

    assert Projection.of({}) == WHOLE
    assert Projection.of({"b": True, "a.c": 1}) == Projection(("a.c", "b"))
    assert Projection.of({"b": 1, "total": computed}) == Projection(("b",), (("total", computed),))
    assert Projection((), (("b", computed), ("a", computed))).computed == (("a", computed), ("b", computed))
    for watched in (["a"], "a", None):
        with pytest.raises(Misuse):
            Projection.of(cast("dict[str, object]", watched))
    with pytest.raises(Misuse, match=r"'a' and 'a\.b'"):
        Projection.of({"a.b": computed, "a": 1})
    with pytest.raises(Misuse):
        Projection.of(cast("dict[str, object]", {1: 1}))


@pytest.mark.parametrize("computed", [[("a", FAILING)], ("a", FAILING), (FAILING,), (("a", total),), None])
def test_computed_values_are_pairs(computed: tuple[tuple[str, Computed], ...]) -> None:
    with pytest.raises(Misuse):
        Projection((), computed)


@pytest.mark.parametrize(
    ("compute", "expression", "version"),
    [
        ("$price", None, 1),
        (None, None, 1),
        (total, "price", 1),
        (total, 1, 1),
        (total, ["$a"], 1),
        (total, {"a": {1}}, 1),
        (total, None, 0),
        (total, None, True),
        (total, None, "1"),
    ],
)
def test_what_computes_nothing_is_refused(
    compute: Callable[[Document], Value], expression: object, version: int
) -> None:
    with pytest.raises(Misuse):
        Computed(compute, expression, version)


def test_what_is_watched_is_described_as_data() -> None:
    first = Projection.of({"b": 1, "total": Computed(total, "$total")})
    second = Projection.of({"b": 1, "total": Computed(total, "$total", version=2)})

    assert described(first) == Document.of(
        {"paths": ["b"], "computed": [{"path": "total", "version": 1, "expression": "$total"}]}
    )
    assert len({described(first), described(second), described(TOTAL), described(WHOLE)}) == 4
    assert Computed(total, "$a") != Computed(total, "$b")
    assert str(second) == "b, total (computed, version 2)"


@pytest.mark.parametrize("sha256", ["", "0" * 63, "0" * 65, "A" * 64, "g" * 64, b"0" * 64, None, 0])
def test_a_digest_is_64_hexadecimal_digits(sha256: str) -> None:
    with pytest.raises(Misuse):
        Digest(sha256)


@pytest.mark.parametrize("bytes_max", [-1, True, 1.5, None, "1"])
def test_a_limit_is_a_number_of_bytes(bytes_max: int) -> None:
    with pytest.raises(Misuse):
        remembered(doc(), bytes_max)


@given(kept(), digests(), verdicts())
def test_what_is_kept_and_what_is_said_print_on_one_line(there: Kept, other: Digest, verdict: SnapshotVerdict) -> None:
    assert len(str(there).splitlines()) == len(str(other).splitlines()) == 1
    assert str(verdict).startswith(("changed", "unchanged"))
    assert hash(verdict) == hash(verdict)


SNAPSHOT: Final[Any] = module


@pytest.mark.parametrize(
    "junk", [2, object(), [1], {"a": 1}, ("a",), True, 10**5_000, int, math.nan], ids=lambda junk: type(junk).__name__
)
def test_wrong_types_are_refused(junk: Any) -> None:
    wrong: tuple[Callable[[], object], ...] = (
        lambda: SNAPSHOT.described(junk),
        lambda: SNAPSHOT.changed(junk, doc()),
        lambda: SNAPSHOT.changed(None, junk),
        lambda: SNAPSHOT.remembered(junk, 1),
        lambda: SNAPSHOT.digest(junk),
        lambda: SNAPSHOT.snapshot(junk, WHOLE),
        lambda: SNAPSHOT.snapshot(doc(), junk),
        lambda: SNAPSHOT.expression(junk),
        lambda: SNAPSHOT.differs(junk, doc()),
        lambda: SNAPSHOT.differs(WHOLE, junk),
        lambda: SNAPSHOT.NotComputed(junk, "why"),
        lambda: SNAPSHOT.NotComputed("a", junk),
        lambda: SNAPSHOT.Computed(total, junk if not isinstance(junk, dict) else 1),
        lambda: SNAPSHOT.Projection(((junk,),)),
        lambda: SNAPSHOT.Projection((), junk),
        lambda: SNAPSHOT.Projection.of({"a": junk if junk is not True else 0}),
        lambda: SNAPSHOT.Digest(junk),
    )
    for ask in wrong:
        with pytest.raises(Misuse):
            ask()


@pytest.mark.parametrize("depth", [97, 98, 100])
def test_what_no_document_holds_is_not_compared_on_the_server(depth: int) -> None:
    """The comparison nests the snapshot deeper, and a document has at most 100 levels."""
    deep = doc(a=1)
    for _ in range(depth - 1):
        deep = doc(a=deep)

    if depth <= DEPTH_MAX - 3:
        assert differs(WHOLE, deep) == Document.of({"$ne": [{"$literal": deep}, "$$ROOT"]})
    else:
        with pytest.raises(Misuse):
            differs(WHOLE, deep)
    assert changed(deep, deep) == Unchanged()


def test_a_path_is_at_most_as_deep_as_a_document() -> None:
    deepest = ".".join(["a"] * DEPTH_MAX)
    document = doc(a=1)
    for _ in range(DEPTH_MAX - 1):
        document = doc(a=document)

    assert taken(document, Projection((deepest,))) == document
    assert taken(doc(), Projection((deepest,))) != doc()
    with pytest.raises(Misuse, match=str(DEPTH_MAX + 1)):
        Projection((f"a.{deepest}",))


def test_projections_are_equal_whatever_the_order_of_their_paths() -> None:
    """Reordered paths must not make every document look changed after a deployment."""
    assert Projection(("b", "a.c", "a.b")) == Projection(("a.b", "a.c", "b"))
    assert Projection(("b", "a")).paths == ("a", "b")
    assert len({Projection(("b", "a")), Projection(("a", "b"))}) == 1


def test_verdicts_and_projections_print_on_one_line() -> None:
    assert str(changed(doc(a=1, b="x"), doc(a=2))) == 'changed: remove "/b"; replace "/a": 2'
    assert str(changed(doc(), doc())) == "unchanged"
    assert str(Projection(("b", "a.c"))) == "a.c, b"
    assert str(WHOLE) == "the whole document"
