from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.model.terms import NAN, A, B, C, doc

from tidegate import strategies
from tidegate.model import documents
from tidegate.model.checks.strategies.bson import decimal, regex
from tidegate.model.instants import (
    MILLISECOND,
    SECOND,
    Instant,
)


@given(strategies.values())
@example("\r\n\u2028\u202e\x1b[2J")
@example(("a\nb", b"\n", doc(a="\n")))
def test_a_value_prints_on_one_line(value: documents.Value) -> None:
    assert documents.show(value).isprintable()
    assert len(documents.show(value).splitlines()) <= 1


@given(st.text(max_size=5), st.text(max_size=5))
@example("\\n", "\n")
@example("a", "A")
def test_strings_that_differ_print_differently(one: str, other: str) -> None:
    assert (documents.show(one) == documents.show(other)) == (one == other)


@given(st.lists(strategies.scalars(), max_size=6, unique=True))
def test_a_set_prints_the_same_however_it_was_built(items: list[documents.Value]) -> None:
    """Sets have no order, and hashes of strings differ from run to run."""
    assert documents.show(frozenset(items)) == documents.show(frozenset(reversed(items)))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (doc(a=1, b=(True, None)), "{a: 1, b: [true, null]}"),
        (doc(), "{}"),
        (1.0, "1.0"),
        (False, "false"),
        ('say "\\"', '"say \\"\\\\\\""'),
        ("\x1b", '"\\u001b"'),
        (b"\0", "b'\\x00'"),
        (frozenset({"b", "a"}), '{"a", "b"}'),
        ("\U000e0001", '"\\U000e0001"'),
        (Instant(1_500 * MILLISECOND), "1.5 s@store"),
        (documents.Foreign("objectId", bytes(range(12))), "objectId(000102030405060708090a0b)"),
        (decimal(-150, -2), "decimal(-150E-2)"),
        (NAN, "decimal(nan)"),
        (tuple(range(7, 24)), "[7, 8, ..., 23]"),
        (tuple(range(2)), "[0, 1]"),
        ((*range(17), 16), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 16]"),
        ((*range(16), 16.0), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16.0]"),
        (regex("a\n", "i"), "regex(/a\\u000a/i)"),
        (documents.Foreign("maxKey", b""), "maxKey()"),
    ],
)
def test_values_print_like_this(value: object, shown: str) -> None:
    assert documents.show(value) == shown
    assert repr(doc(a=1)) == "{a: 1}"


@pytest.mark.parametrize(
    ("term", "shown"),
    [
        (A, "a"),
        (documents.Eq(A, "x"), 'a = "x"'),
        (documents.Ne(A, "x"), 'a != "x"'),
        (documents.Lt(A, 2), "a < 2"),
        (documents.Le(A, "x"), 'a <= "x"'),
        (documents.Gt(A, 0.5), "a > 0.5"),
        (documents.Ge(A, 2), "a >= 2"),
        (documents.NotIn(A, (1, None)), "a not in [1, null]"),
        (documents.Not(documents.AllOf((documents.Exists(A), documents.Exists(B)))), "not (has a and has b)"),
        (documents.In(A, (1, None)), "a in [1, null]"),
        (documents.Exists(A), "has a"),
        (documents.Contains(A, 1), "a has 1"),
        (documents.OlderThan(A, 40 * SECOND), "a is 40 s old"),
        (
            documents.AllOf((documents.Exists(A), documents.AnyOf((documents.Exists(B), documents.Exists(C))))),
            "has a and (has b or has c)",
        ),
        (documents.Put(A, True), "a := true"),
        (documents.Add(A, -1), "a += -1"),
        (documents.Push(A, 1), "push 1 to a"),
        (documents.Push(A, 1, 16), "push 1 to a, keep 16"),
        (documents.Pull(A, 1), "pull 1 from a"),
        (documents.AddToSet(A, 1), "add 1 to a"),
        (documents.Remove(A), "remove a"),
        (documents.PutServerTime(A), "a := now"),
    ],
)
def test_terms_print_like_this(term: object, shown: str) -> None:
    assert str(term) == shown
