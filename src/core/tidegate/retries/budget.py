"""Are there too many retries already?

Where a server is overloaded or gone, all its clients try again, and what they add keeps it down. So retries of one client are
paid from one bucket of tokens, which only what is answered fills: while all goes well each failure may be tried again, and in
an outage soon none is. First attempts are free. After the client backpressure of MongoDB's drivers, whose numbers are the
default (1,000 retries at once, a tenth of one back for each success), and the retry quota of the AWS SDKs.

    a retry                            takes `cost`, and is not sent where there is less
    an attempt is answered             brings `refund`
    a retry is answered                brings what it cost as well

Laws
    BU1  There are never less than 0 tokens, nor more than `capacity`.
    BU2  While nothing is answered, no more than `capacity // cost` retries are sent; all that are sent are paid for.
    BU3  After as many answers as the cost has refunds, a retry is sent, whatever was before.
    BU4  A retry that is answered costs nothing.
"""

from __future__ import annotations

from typing import TypeAlias, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.values import check_int, check_type


@final
@attrs.frozen(kw_only=True)
class Budget:
    """How many retries there may be. Invariant: 1 <= refund <= cost <= capacity.

    Attributes:
        capacity: How many tokens the bucket holds; it is full at the beginning.
        cost: How many a retry takes.
        refund: How many an answer brings.
    """

    capacity: int = 10_000
    cost: int = 10
    refund: int = 1

    def __attrs_post_init__(self) -> None:
        check_int(self.capacity, "a number of tokens", 1)
        check_int(self.cost, "the cost of a retry", 1, self.capacity)
        check_int(self.refund, "what an answer brings", 1, self.cost)


@final
@attrs.frozen
class Paid:
    """Send it: so many tokens are left."""

    left: int


@final
@attrs.frozen
class Overspent:
    """Do not send it: there are too few tokens."""

    left: int

    def __str__(self) -> str:
        return f"too many retries: {self.left} tokens are left"


BudgetVerdict: TypeAlias = Paid | Overspent


def pay(budget: Budget, left: int) -> BudgetVerdict:
    """Whether a retry may be sent.

    Args:
        budget: The rules.
        left: How many tokens there are.

    Returns:
        `Paid` with what is left then, or `Overspent`.

    Raises:
        Misuse: An argument is of another type or out of range.
    """
    _check(budget, left)
    return Paid(left - budget.cost) if left >= budget.cost else Overspent(left)


def answered(budget: Budget, left: int, *, is_retry: bool) -> int:
    """How many tokens there are after an attempt that was answered, with a refusal or without.

    Args:
        budget: The rules.
        left: How many there were.
        is_retry: It was paid for.

    Raises:
        Misuse: An argument is of another type or out of range.
    """
    _check(budget, left)
    return min(budget.capacity, left + budget.refund + (budget.cost if is_retry else 0))


def _check(budget: Budget, left: int) -> None:
    check_type(budget, Budget, "a budget")
    check_int(left, "a number of tokens", 0)
    if left > budget.capacity:
        raise Misuse(f"{left} tokens are more than the {budget.capacity} of the bucket")
