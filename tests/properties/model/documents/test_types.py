"""The types of fields, filters and updates; mypy checks half of each line.

A superfluous ignore is an error of mypy, too (`warn_unused_ignores`).
"""

from __future__ import annotations

from typing import Final

import pytest
from tests.properties.model.terms import at_ten

from tidegate.model.documents import (
    Document,
    Eq,
    Field,
    Filter,
    Ge,
    Gt,
    In,
    Lt,
    Ne,
    OlderThan,
    Put,
    PutServerTime,
    Update,
    matches,
    updated,
)
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, Instant

SINCE: Final = Field[Instant]("since")
LEASE: Final = Field[Instant | None]("lease")
COUNT: Final = Field[int]("count")
PRICE: Final = Field[float]("price")
NAME: Final = Field[str]("name")
NEVER: Final = Document.of({"since": None, "lease": None})


@pytest.mark.parametrize(
    "term", [Eq(SINCE, None), Ne(SINCE, Instant(0)), Eq(LEASE, None), In(LEASE, (None,)), Ne(LEASE, Instant(0))]
)
def test_a_field_that_may_be_null_is_asked_for_null(term: Filter) -> None:
    assert matches(term, NEVER, at_ten)


@pytest.mark.parametrize("update", [PutServerTime(LEASE), Put(LEASE, at_ten()), PutServerTime(SINCE)])
def test_a_lease_that_may_be_null_is_stamped_and_grows_old(update: Update) -> None:
    after = updated(NEVER, (update,), at_ten)

    assert matches(OlderThan(LEASE, -MILLISECOND), after, at_ten) is (update.field == LEASE)
    assert matches(OlderThan(SINCE, 0), after, at_ten) is (update.field == SINCE)


@pytest.mark.parametrize(
    ("term", "expected"),
    [(Ge(COUNT, 60), True), (Gt(PRICE, 0.5), False), (Lt(NAME, "b"), True), (Ge(LEASE, Instant(0)), False)],
)
def test_a_limit_is_of_the_type_of_its_field(term: Filter, expected: bool) -> None:
    assert matches(term, Document.of({"count": 60, "price": 0.5, "name": "a", "lease": None}), at_ten) is expected


def test_a_value_of_another_type_is_an_error_of_the_type_checkers() -> None:
    assert Eq(COUNT, "3") != Eq(COUNT, 3)  # type: ignore[misc]
    assert Ne(COUNT, "3") != Ne(COUNT, 3)  # type: ignore[misc]
    assert Ge(COUNT, "3") != Ge(COUNT, 3)  # type: ignore[misc]
    with pytest.raises(Misuse):
        OlderThan(COUNT, "3")  # type: ignore[arg-type]
