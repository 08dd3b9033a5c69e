"""Did anything that is watched change?"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate import strategies
from tidegate.documents import DEPTH_MAX, Document, Field, Value, equal, exactly
from tidegate.errors import Misuse
from tidegate.instants import Instant
from tidegate.laws import snapshot as laws
from tidegate.patches import Added, Replaced, difference
from tidegate.snapshot import Changed, Projection, Unchanged, Verdict, changed, snapshot

Judge: TypeAlias = Callable[[Document | None, Document], Verdict]
Take: TypeAlias = Callable[[Document, Projection], Document]
Watched: TypeAlias = tuple[Document, Document, Projection]


def doc(**items: object) -> Document:
    return Document.of(items)


WHOLE = Projection()
A, A_B = Projection(("a",)), Projection(("a.b",))


@st.composite
def watched(draw: st.DrawFn) -> Watched:
    """Two documents of few keys, deep enough for paths to lead somewhere, and what is watched of them."""
    before, after = draw(strategies.document_pairs(st.sampled_from(("a", "b"))))
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
        verdict = judge(snapshot(before, projection), snapshot(after, projection))
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
        taken = None if first_sight else snapshot(before, projection)
        now = snapshot(after, projection)
        assert laws.a_change_tells_all(taken, now, judge(taken, now))

    law()


def check_n7(take: Take) -> None:
    @given(watched())
    @example((doc(a=doc(b=1), b=1), doc(), A_B))
    def law(drawn: Watched) -> None:
        document, _, projection = drawn
        taken, reverse = take(document, projection), Projection(projection.paths[::-1])
        assert laws.a_snapshot_is_its_own(taken, take(taken, projection))
        assert laws.a_snapshot_is_its_own(taken, take(document, reverse))

    law()


def test_what_is_not_watched_is_not_seen() -> None:
    """Law N3; mongodash: another field, no run."""
    check_n3(snapshot, changed)


def test_what_is_read_again_is_unchanged() -> None:
    """Law N4; a NaN that differed from itself would trigger for ever."""
    check_n4(changed)


def test_no_watched_change_is_lost() -> None:
    """Law N5; mongodash: either watched field, a run."""
    check_n5(snapshot, changed)


def test_the_patch_of_a_change_tells_all() -> None:
    """Law N6; at first sight it adds the whole snapshot."""
    check_n6(changed)


def test_a_snapshot_of_a_snapshot_is_that_snapshot() -> None:
    """Law N7; paths are a set."""
    check_n7(snapshot)


def everything(document: Document, _: Projection) -> Document:
    """Planted bug: the projection is forgotten."""
    return document


def nulls(document: Document, projection: Projection) -> Document:
    """Planted bug: what is missing is written as null."""
    whole = {way[0].name: document.get(way[0]) for way in projection.ways}
    return Document(tuple(whole.items())) if whole else document


def flat(document: Document, projection: Projection) -> Document:
    """Planted bug: a dotted path gives a dotted key."""
    taken = snapshot(document, projection)
    return Document(
        tuple(
            (f"{key}.{inner}", leaf)
            for key, value in taken.items
            for inner, leaf in (value.items if isinstance(value, Document) else (("", value),))
        )
    )


def never(_: Document | None, __: Document) -> Verdict:
    """Planted bug: nothing is a change, not even first sight."""
    return Unchanged()


def by_identity(before: Document | None, after: Document) -> Verdict:
    """Planted bug: 1.0 for 1 is a change."""
    patch = difference(before, after)
    return Changed(patch) if patch else Unchanged()


def by_python(before: Document | None, after: Document) -> Verdict:
    """Planted bug: Python compares, so NaN is a change, and True for 1 is none, nor is another order of keys."""

    def plain(value: Value) -> object:
        match value:
            case Document(items):
                return {key: plain(item) for key, item in items}
            case tuple():
                return [plain(item) for item in value]
            case float():
                return float(str(value))  # another object, for a list compares by identity first
            case _:
                return value

    return Unchanged() if plain(before) == plain(after) else Changed((Added("", after),))


def backwards(before: Document | None, after: Document) -> Verdict:
    """Planted bug: the patch leads from after to before."""
    verdict = changed(before, after)
    return Changed(difference(after, before)) if isinstance(verdict, Changed) and before is not None else verdict


def shallow(before: Document | None, after: Document) -> Verdict:
    """Planted bug: the patch leaves out what is equal though of another type."""
    if before is None or equal(before, after):
        return changed(before, after)
    old, new = dict(before.items), dict(after.items)
    kept = {key: old[key] if key in old and equal(old[key], value) else value for key, value in new.items()}
    return Changed(difference(before, Document(tuple(kept.items()))) or (Replaced("", after),))


@pytest.mark.parametrize("planted", [everything])
def test_a_planted_bug_breaks_n3(planted: Take) -> None:
    """A law that no bug breaks proves nothing."""
    with pytest.raises(AssertionError):
        check_n3(planted, changed)


@pytest.mark.parametrize("planted", [by_identity, by_python])
def test_a_planted_bug_breaks_n4(planted: Judge) -> None:
    """A law that no bug breaks proves nothing."""
    with pytest.raises(AssertionError):
        check_n4(planted)


@pytest.mark.parametrize(("take", "judge"), [(nulls, changed), (snapshot, by_python), (snapshot, never)])
def test_a_planted_bug_breaks_n5(take: Take, judge: Judge) -> None:
    """A law that no bug breaks proves nothing."""
    with pytest.raises(AssertionError):
        check_n5(take, judge)


@pytest.mark.parametrize("planted", [never, backwards, shallow])
def test_a_planted_bug_breaks_n6(planted: Judge) -> None:
    """A law that no bug breaks proves nothing."""
    with pytest.raises(AssertionError):
        check_n6(planted)


def test_a_planted_bug_breaks_n7() -> None:
    """A law that no bug breaks proves nothing."""
    with pytest.raises(AssertionError):
        check_n7(flat)


# --- agreement ----------------------------------------------------------------------------------------------------------

Plain: TypeAlias = dict[str, object]
MISSING = object()


def expression(paths: tuple[str, ...]) -> Plain:
    """What mongodash sends to MongoDB for these paths: {a: {b: "$a.b"}}."""
    whole: Plain = {}
    for path in paths:
        *parents, leaf = path.split(".")
        place = whole
        for name in parents:
            place = cast("Plain", place.setdefault(name, {}))
        place[leaf] = f"${path}"
    return whole


def evaluated(term: object, document: Plain) -> object:
    """The term of an aggregation as the manual of MongoDB describes it: an object of terms, or a field path."""
    if isinstance(term, dict):
        results = {key: evaluated(inner, document) for key, inner in cast("Plain", term).items()}
        return {key: result for key, result in results.items() if result is not MISSING}
    assert isinstance(term, str)
    return at(document, term[1:].split("."))


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


@given(watched())
def test_a_snapshot_is_what_the_aggregation_gives(drawn: Watched) -> None:
    """The dumb twin: the expression itself, over plain dicts; MongoDB agrees in the integration tests."""
    document, _, projection = drawn
    whole = cast("Plain", opened(document))
    told = evaluated(expression(projection.paths), whole) if projection.paths else whole

    assert exactly(snapshot(document, projection)) == exactly(Document.of(cast("Plain", told)))


# --- described vectors --------------------------------------------------------------------------------------------------

PARENTS = (doc(), doc(a=doc()), doc(a=None), doc(a="scalar"), doc(a=doc(c=1)))


@pytest.mark.parametrize("before", PARENTS)
@pytest.mark.parametrize("after", PARENTS)
def test_where_the_leaf_is_missing_the_parent_does_not_matter(before: Document, after: Document) -> None:
    """mongodash: missing, {}, null and a scalar all give an empty parent object."""
    assert snapshot(before, A_B) == doc(a=doc())
    assert changed(snapshot(before, A_B), snapshot(after, A_B)) == Unchanged()


@pytest.mark.parametrize(
    ("document", "paths", "taken"),
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
def test_a_snapshot_is_nested_as_its_paths_are(document: Document, paths: tuple[str, ...], taken: Document) -> None:
    """The table of mongodash for projections, and what MongoDB makes of a path through an array."""
    assert snapshot(document, Projection(paths)) == taken


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
    ],
)
def test_values_compare_as_in_mongodb(before: Document, after: Document, same: bool) -> None:
    """The table of mongodash for pairs: missing is not null, 1 is 1.0 but not true, NaN is NaN, order counts."""
    assert isinstance(changed(before, after), Unchanged) == same
    assert isinstance(changed(after, before), Unchanged) == same


def test_first_sight_is_a_change() -> None:
    """mongodash: an insert always counts, even where nothing that is watched is there."""
    assert changed(None, doc()) == Changed((Added("", doc()),))


def test_an_element_without_the_leaf_is_invisible() -> None:
    """Known not to work, as in MongoDB: the position of a leaf among elements that lack it is not seen."""
    one, other = doc(a=(doc(b=1), doc())), doc(a=(doc(), doc(b=1)))

    assert changed(snapshot(one, A_B), snapshot(other, A_B)) == Unchanged()
    assert isinstance(changed(snapshot(one, A), snapshot(other, A)), Changed)


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
    """Where mongodash keeps one of the two silently, both are named, in either order."""
    with pytest.raises(Misuse, match=f"'{outer}' and '{inner}' cannot both be watched"):
        Projection(paths)


@pytest.mark.parametrize(
    "path", ["", ".", "a.", ".a", "a..b", "$a", "a.$b", "a.$", "a.$[]", "a.0", "0", "a\0b", 1, None, Field[int]("a")]
)
def test_a_path_is_made_of_names(path: str) -> None:
    """Empty, `$`, positional: what means something else in a path of MongoDB is refused at construction."""
    with pytest.raises(Misuse):
        Projection((path,))


@pytest.mark.parametrize("paths", ["ab", ["a"], {"a": 1}, None, frozenset({"a"})])
def test_paths_are_a_tuple(paths: tuple[str, ...]) -> None:
    """A bare string would be taken apart into letters."""
    with pytest.raises(Misuse, match="no tuple of paths"):
        Projection(paths)


def test_a_path_is_at_most_as_deep_as_a_document() -> None:
    """So that every snapshot of every document exists."""
    deepest = ".".join(["a"] * DEPTH_MAX)
    document = doc(a=1)
    for _ in range(DEPTH_MAX - 1):
        document = doc(a=document)

    assert snapshot(document, Projection((deepest,))) == document
    assert snapshot(doc(), Projection((deepest,))) != doc()
    with pytest.raises(Misuse, match=f"{DEPTH_MAX + 1} names"):
        Projection((f"a.{deepest}",))


def test_a_change_has_a_difference() -> None:
    """A verdict cannot contradict itself."""
    with pytest.raises(Misuse, match="without a difference"):
        Changed(())


def test_projections_are_equal_whatever_the_order_of_their_paths() -> None:
    """Written in another order it is the same projection, and no redeployment changes every document."""
    assert Projection(("b", "a.c", "a.b")) == Projection(("a.b", "a.c", "b"))
    assert Projection(("b", "a")).paths == ("a", "b")
    assert len({Projection(("b", "a")), Projection(("a", "b"))}) == 1


def test_verdicts_and_projections_print_on_one_line() -> None:
    """What a person pastes into an issue."""
    assert str(changed(doc(a=1, b="x"), doc(a=2))) == 'changed: remove "/b"; replace "/a": 2'
    assert str(changed(doc(), doc())) == "unchanged"
    assert str(Projection(("b", "a.c"))) == "a.c, b"
    assert str(WHOLE) == "the whole document"
