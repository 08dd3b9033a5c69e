"""Limits the retries of one client, so that they do not keep an overloaded server down.

When a server is overloaded or gone, all its clients retry, and their retries keep it down. Each
client therefore pays for retries from one bucket of tokens. Only answered attempts fill it. In
normal operation every failure may be retried; in an outage the bucket is soon empty. First attempts
are free. The design follows the client backpressure of MongoDB's drivers and the retry quota of the
AWS SDKs. The defaults are MongoDB's: 1,000 retries at once, a tenth of one back for each success.

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
    """The limits on retries. Invariant: 1 <= refund <= cost <= capacity.

    Attributes:
        capacity: The size of the bucket in tokens; it starts full.
        cost: Tokens that a retry takes.
        refund: Tokens that an answer adds.
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
    """Send the retry; `left` tokens remain."""

    left: int


@final
@attrs.frozen
class Overspent:
    """Do not send the retry: too few tokens remain."""

    left: int

    def __str__(self) -> str:
        return f"too many retries: {self.left} tokens are left"


BudgetVerdict: TypeAlias = Paid | Overspent


def pay(budget: Budget, left: int) -> BudgetVerdict:
    """Decide whether a retry may be sent.

    Args:
        budget: The rules.
        left: Tokens in the bucket.

    Returns:
        `Paid` with the remaining tokens, or `Overspent`.

    Raises:
        Misuse: An argument is of another type or out of range.
    """
    _check(budget, left)
    return Paid(left - budget.cost) if left >= budget.cost else Overspent(left)


def answered(budget: Budget, left: int, *, is_retry: bool) -> int:
    """Count the tokens after an answered attempt; a refusal is an answer too.

    Args:
        budget: The rules.
        left: Tokens in the bucket before.
        is_retry: Whether the attempt was paid for.

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
