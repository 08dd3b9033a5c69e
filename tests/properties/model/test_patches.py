from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any, Final

import jsonpatch
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate import strategies
from tidegate.model import patches
from tidegate.model.checks.strategies.bson import foreign_pairs, foreigns
from tidegate.model.documents import Document, Foreign, Value, exactly
from tidegate.model.errors import Misuse
from tidegate.model.instants import STORE, WALL, Instant
from tidegate.model.patches import (
    Added,
    Patch,
    PatchOperation,
    Removed,
    Replaced,
    applied,
    difference,
    from_json,
    patch_from_json,
    patch_to_json,
    to_json,
)
from tidegate.reactive.checks.laws import snapshot as laws


def doc(**items: object) -> Document:
    return Document.of(items)


# --- laws ---------------------------------------------------------------------------------------------------------------


@given(foreign_pairs())
@example((1, True))
@example((1, 1.0))
@example((0.0, -0.0))
@example((math.nan, math.nan))
@example((doc(a=1, b=2), doc(b=2, a=1)))
def test_only_the_same_values_have_no_difference(pair: tuple[Value, Value]) -> None:
    """Law N1; identity is that of `documents.exactly`."""
    before, after = pair
    assert laws.only_the_same_have_no_difference(before, after, difference(before, after))


@given(foreign_pairs())
@example((doc(a=1, b=2), doc(b=2, a=1)))
@example((doc(a=1, c=3), doc(a=1, b=2, c=3)))
@example(((1, 2, 3), (1,)))
@example(((1, 3), (1, 2, 3)))
@example((1, True))
@example((Document((("a/b", 1), ("a~1b", 2))), Document((("a/b", 2), ("a~1b", 3)))))
def test_a_patch_leads_to_exactly_what_came_after(pair: tuple[Value, Value]) -> None:
    """Law N2; RFC 6902, and the order of keys besides."""
    before, after = pair
    try:
        came = applied(difference(before, after), before)
    except Misuse:  # it leads nowhere
        came = before
    assert laws.a_patch_leads_to_what_came_after(after, came)


test_a_planted_bug_is_found = planted(
    patches,
    # 1 equals True, and NaN is a change.
    bug(
        "compared as Python does", ("if exactly(before) == exactly(after):", "if before == after:"),
        test_only_the_same_values_have_no_difference, test_a_patch_leads_to_exactly_what_came_after,
    ),
    bug(
        "keys are compared as sets", ("set(kept[: _alike(kept, list(new))])", "set(kept)"),
        test_only_the_same_values_have_no_difference, test_a_patch_leads_to_exactly_what_came_after,
    ),
    bug(
        "keys are written into the pointer as they are", ("key.replace('~', '~0').replace('/', '~1')", "key"),
        test_a_patch_leads_to_exactly_what_came_after,
    ),
    # Later elements have moved by then.
    bug(
        "elements are removed from the first to the last",
        ("in reversed(range(both_end, old_end))", "in range(both_end, old_end)"),
        test_a_patch_leads_to_exactly_what_came_after,
    ),
    bug(
        "an element is overwritten where one is to be inserted",
        ("place.insert(int(last), _opened(value))", "place[int(last) : int(last) + 1] = [_opened(value)]"),
        test_a_patch_leads_to_exactly_what_came_after,
    ),
)  # fmt: skip


# --- agreement ----------------------------------------------------------------------------------------------------------


def plain_values() -> st.SearchStrategy[Value]:
    leaves = st.one_of(
        st.none(), st.booleans(), st.integers(-3, 3), st.floats(allow_nan=False, allow_infinity=False), st.text("aA/~$")
    )
    keys = st.sampled_from(("a", "b", "", "0", "-", "a/b", "~", "~1", "é"))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=5).map(tuple),
            st.dictionaries(keys, inner, max_size=5).map(lambda items: Document(tuple(items.items()))),
        ),
        max_leaves=10,
    )


def json_patch(patch: Patch, value: Value) -> Value:
    """The simple twin: a library that knows only RFC 6902."""
    result: Any = jsonpatch.apply_patch(json.loads(json.dumps(to_json(value))), json.dumps(patch_to_json(patch)))
    return from_json(result)


@given(plain_values(), plain_values())
@example(doc(a=1, b=2), doc(b=2, a=1))
@example((1, 2, 3, 4), (1, 9, 4))
@example((1, 4), (1, 2, 3, 4))
def test_a_json_patch_library_applies_our_patches(before: Value, after: Value) -> None:
    """For plain JSON, a patch is an RFC 6902 patch, with the same text and order."""
    patch = difference(before, after)

    assert json.dumps(to_json(json_patch(patch, before))) == json.dumps(to_json(after))
    assert exactly(json_patch(patch, before)) == exactly(applied(patch, before))


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        (doc(n=1, tags=("a",)), doc(n=2, tags=("a", "b")), (Replaced("/n", 2), Added("/tags/1", "b"))),
        (doc(a=1, b=2), doc(a=1), (Removed("/b"),)),
        (doc(a=1), doc(a=1, b=None), (Added("/b", None),)),
        (doc(a=1, c=3), doc(a=1, b=2, c=3), (Removed("/c"), Added("/b", 2), Added("/c", 3))),
        (doc(a=doc(b=doc(c=1, d=2))), doc(a=doc(b=doc(c=1, d=3))), (Replaced("/a/b/d", 3),)),
        ((1, 2, 3, 4, 5), (1, 5), (Removed("/3"), Removed("/2"), Removed("/1"))),
        ((1, 5), (1, 2, 3, 5), (Added("/1", 2), Added("/2", 3))),
        ((1, doc(a=1), 3), (1, doc(a=2), 3), (Replaced("/1/a", 2),)),
        (1, doc(), (Replaced("", doc()),)),
        ((), doc(), (Replaced("", doc()),)),
        (Document((("a/b", 1), ("m~n", 1))), Document((("a/b", 2),)), (Removed("/m~0n"), Replaced("/a~1b", 2))),
    ],
)
def test_a_difference_is_reported_where_it_is(before: Value, after: Value, patch: Patch) -> None:
    assert difference(before, after) == patch
    assert exactly(applied(patch, before)) == exactly(after)


@given(strategies.pairs())
def test_a_value_is_left_as_it_is(pair: tuple[Value, Value]) -> None:
    before, after = pair
    patch, was = difference(before, after), exactly(before)

    assert exactly(applied(patch, before)) == exactly(applied(patch, before))
    assert exactly(before) == was


@pytest.mark.parametrize(
    ("patch", "value", "reached"),
    [
        ((), 1, 1),
        ((Added("", 2),), 1, 2),
        ((Replaced("", None),), doc(a=1), None),
        ((Added("/a", 2),), doc(a=1, b=1), doc(a=2, b=1)),
        ((Added("/a", doc(b=1)), Added("/a/c", ()), Added("/a/c/0", 1)), doc(), doc(a=doc(b=1, c=(1,)))),
    ],
)
def test_a_patch_may_also_be_written_by_hand(patch: Patch, value: Value, reached: Value) -> None:
    """RFC 6902 section 4.1."""
    assert exactly(applied(patch, value)) == exactly(reached)


@pytest.mark.parametrize(
    ("operation", "value"),
    [
        (Removed("/a"), doc(b=1)),
        (Replaced("/a", 1), doc(b=1)),
        (Replaced("/a", 1), 1),
        (Added("/a/b", 1), doc(b=1)),
        (Added("/a/b", 1), doc(a=1)),
        (Added("/2", 1), (1,)),
        (Added("/-", 1), (1,)),
        (Added("/00", 1), (1,)),
        (Added("/\u0661", 1), (1, 2)),
        (Added("/" + "1" * 5000, 1), (1, 2)),
        (Removed("/1"), (1,)),
        (Removed("/1/a"), (1,)),
        (Replaced("/1", 1), (1,)),
        (Replaced("/x", 1), (1,)),
    ],
)
def test_a_patch_for_another_value_is_refused(operation: PatchOperation, value: Value) -> None:
    with pytest.raises(Misuse, match=r"cannot (add|remove|replace) "):
        applied((operation,), value)


@pytest.mark.parametrize("path", ["a", "a/b", "/~", "/~2", "/a~/b", "/~~0", 1, None])
def test_a_path_is_a_json_pointer(path: str) -> None:
    """RFC 6901 section 3."""
    for operation in (Added(path, 1), Removed(path), Replaced(path, 1)):
        with pytest.raises(Misuse, match="JSON pointer"):
            applied((operation,), 1)
        with pytest.raises(Misuse, match="JSON pointer"):
            patch_to_json((operation,))


def test_the_whole_value_cannot_be_removed() -> None:
    with pytest.raises(Misuse, match="whole value"):
        applied((Removed(""),), 1)


def test_operations_are_equal_only_with_exactly_the_same_values() -> None:
    assert Replaced("/a", 1) != Replaced("/a", True)
    assert Added("/a", 0.0) != Added("/a", -0.0)
    assert Added("/a", math.nan) == Added("/a", math.nan)
    assert len({Added("/a", 1), Added("/a", 1), Added("/a", 1.0)}) == 2


def test_operations_print_on_one_line() -> None:
    """Keys and strings are payload: they cannot forge a line."""
    assert str(Added("/a", "x\ny")) == 'add "/a": "x\\u000ay"'
    assert str(Removed("/a\nb")) == 'remove "/a\\u000ab"'
    assert str(Replaced("/a", None)) == 'replace "/a": null'


def nest_of(depth: int) -> Value:
    value: Value = 1
    for _ in range(depth):
        value = (value,)
    return value


WRONG: Final[Any] = patches
"""Untyped, for values that type checkers refuse."""


@pytest.mark.parametrize(
    "junk",
    [[1], {"a": 1}, object(), 1j, {1}, 10**5_000, ([1],), nest_of(101), nest_of(100_000)],
    ids=lambda junk: type(junk).__name__,
)
def test_what_is_not_a_value_is_in_no_patch(junk: Any) -> None:
    wrong: tuple[Callable[[], object], ...] = (
        lambda: WRONG.applied((WRONG.Added("/a", junk),), Document()),
        lambda: WRONG.patch_to_json((WRONG.Replaced("/a", junk),)),
        lambda: WRONG.difference(junk, 1),
        lambda: WRONG.difference(1, junk),
        lambda: WRONG.applied((), junk),
        lambda: WRONG.to_json(junk),
        lambda: WRONG.applied(junk, 1),
        lambda: WRONG.applied((junk,), 1),
        lambda: WRONG.patch_to_json(junk),
        lambda: WRONG.patch_to_json((junk,)),
    )
    for ask in wrong:
        with pytest.raises(Misuse):
            ask()


# --- plain JSON ---------------------------------------------------------------------------------------------------------


def through_text(plain: object) -> object:
    return json.loads(json.dumps(plain, allow_nan=False))


@given(st.one_of(strategies.values(), foreigns(), foreign_pairs().map(lambda pair: pair[0])))
@example(doc(b=1, a=1))
@example(Document((("$bytes", "00"),)))
@example(Document((("$document", Document((("$document", 1),))),)))
@example(b"")
@example(-0.0)
@example(math.inf)
@example(struct.unpack(">d", b"\xff\xf8\0\0\0\0\0\1")[0])
@example(Instant(1, WALL))
@example((Foreign("minKey", b""),))
def test_values_come_back_from_json_exactly(value: Value) -> None:
    """Law N8: types, signs, bits of NaN, order of keys."""
    try:
        decoded = from_json(through_text(to_json(value)))
    except (Misuse, ValueError):
        decoded = "lost"
    assert laws.nothing_is_lost_in_json(value, decoded)


test_a_planted_bug_of_json_is_found = planted(
    patches,
    bug(
        "a document that looks like a tag is written as it is",
        ('{"$document": plain} if _is_tagged(plain) else plain', "plain"),
        test_values_come_back_from_json_exactly,
    ),
    bug(
        "every NaN is the same", ("_DOUBLE.pack(value)", "_DOUBLE.pack(math.nan if math.isnan(value) else value)"),
        test_values_come_back_from_json_exactly,
    ),
    bug(
        "keys are in order of the alphabet",
        ("_to_json(item) for key, item in items", "_to_json(item) for key, item in sorted(items)"),
        test_values_come_back_from_json_exactly,
    ),
)  # fmt: skip


@given(foreign_pairs())
def test_patches_come_back_from_json(pair: tuple[Value, Value]) -> None:
    """Law N8."""
    patch = difference(*pair)

    assert patch_from_json(through_text(patch_to_json(patch))) == patch


def test_plain_json_looks_like_this() -> None:
    value = doc(b=b"\0\xff", i=Instant(1000, STORE), n=math.nan, m=-math.inf, t=(1, 1.0, True, None, "é"))

    assert to_json(value) == {
        "b": {"$bytes": "00ff"},
        "i": {"$instant": [1000, "store"]},
        "n": {"$float": "7ff8000000000000"},
        "m": {"$float": "fff0000000000000"},
        "t": [1, 1.0, True, None, "é"],
    }
    assert to_json(Foreign("timestamp", b"\1" * 8)) == {"$foreign": ["timestamp", "01" * 8]}
    assert to_json(Document((("$a", 1),))) == {"$document": {"$a": 1}}
    assert to_json(Document((("$a", 1), ("$b", 2)))) == {"$a": 1, "$b": 2}
    assert patch_to_json((Added("/a", b""), Removed("/b"), Replaced("/c", 1))) == [
        {"op": "add", "path": "/a", "value": {"$bytes": ""}},
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/c", "value": 1},
    ]


def nested(depth: int) -> object:
    plain: object = 1
    for _ in range(depth):
        plain = [plain]
    return plain


@pytest.mark.parametrize(
    "plain",
    [
        math.nan,
        math.inf,
        2**63,
        "\ud800",
        (1,),
        b"",
        {1: 2},
        {"a\0": 1},
        {"$unknown": 1},
        {"$bytes": "0"},
        {"$bytes": "AA"},
        {"$bytes": 1},
        {"$float": "7ff8"},
        {"$float": "zz"},
        {"$float": "3ff0000000000000"},
        {"$instant": [True, "store"]},
        {"$instant": ["1", "store"]},
        {"$instant": 1},
        {"$foreign": ["minKey"]},
        {"$foreign": ["minKey", "00"]},
        {"$foreign": ["symbol", ""]},
        {"$foreign": ["timestamp", "0g"]},
        {"$document": {"a": 1}},
        {"$document": 1},
        nested(101),
        nested(5000),
        {"a": nested(100)},
    ],
)
def test_what_no_value_is_written_as_is_refused(plain: object) -> None:
    with pytest.raises(Misuse):
        from_json(plain)


@pytest.mark.parametrize(
    "plain",
    [
        None,
        {},
        [1],
        [{"op": "move", "from": "/a", "path": "/b"}],
        [{"op": "add", "path": "/a"}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "add", "path": 1, "value": 1}],
        [{"op": "add", "path": "/a", "value": math.nan}],
        [{"op": "remove", "path": ""}],
    ],
)
def test_what_no_patch_is_written_as_is_refused(plain: object) -> None:
    """Only operations that `patch_to_json` writes: never `move`, `copy` or `test`."""
    with pytest.raises(Misuse):
        patch_from_json(plain)


def test_members_that_an_operation_does_not_know_are_ignored() -> None:
    """RFC 6902, section 4 and A.11; a `remove` has no value."""
    plain = [
        {"op": "add", "path": "/baz", "value": "qux", "xyz": 123},
        {"op": "remove", "path": "/a", "value": 1},
        {"op": "replace", "path": "/a", "value": 1, "from": "/b"},
    ]

    assert patch_from_json(plain) == (Added("/baz", "qux"), Removed("/a"), Replaced("/a", 1))
