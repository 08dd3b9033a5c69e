"""Limits the retries of one client, so that they do not keep an overloaded server down.

Each client pays for retries from one bucket of tokens, which only answered attempts fill. In normal
operation every failure may be retried; in an outage the bucket is soon empty. First attempts are
free. The design and the defaults follow the client backpressure of MongoDB's drivers: 1,000 retries
at once, a tenth of one back for each success.

    a retry                            takes `cost`; it is not sent if fewer tokens are left
    an attempt is answered             adds `refund`
    a retry is answered                also returns its cost

Laws
    BU1  The bucket never has less than 0 tokens, nor more than `capacity`.
    BU2  Without an answer, at most `capacity // cost` retries are sent. Each sent retry is paid.
    BU3  After cost / refund answers, rounded up, a retry is sent, whatever happened before.
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
    """The limits on retries, in tokens; the bucket starts full. Invariant: 1 <= refund <= cost <=
    capacity.
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
    """Send the retry."""

    left: int


@final
@attrs.frozen
class Overspent:
    """Do not send the retry."""

    left: int

    def __str__(self) -> str:
        return f"too many retries: {self.left} tokens are left"


BudgetVerdict: TypeAlias = Paid | Overspent


def pay(budget: Budget, left: int) -> BudgetVerdict:
    """Decide whether a retry may be sent with `left` tokens in the bucket."""
    _check(budget, left)
    return Paid(left - budget.cost) if left >= budget.cost else Overspent(left)


def answered(budget: Budget, left: int, *, is_retry: bool) -> int:
    """The tokens after an answered attempt; a refusal is an answer too."""
    _check(budget, left)
    return min(budget.capacity, left + budget.refund + (budget.cost if is_retry else 0))


def _check(budget: Budget, left: int) -> None:
    check_type(budget, Budget, "a budget")
    check_int(left, "a number of tokens", 0)
    if left > budget.capacity:
        raise Misuse(f"{left} tokens are more than the {budget.capacity} of the bucket")
