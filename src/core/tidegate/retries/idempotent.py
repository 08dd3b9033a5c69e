"""Runs an idempotent program again from its start until it succeeds.

It restarts the whole program, because its earlier reads may be older than its next ones.

    end of a run                         what follows
    it returns                           `repeat` returns that value
    NotApplied, Ambiguous, NotDurable    another run; without attempts left, `repeat` raises it
    anything else                        `repeat` raises it: another run would raise it too

Laws
    AN1  The result or error is that of the last run. No earlier run is part of it.
    AN2  Only a failure that may pass leads to another run.
    AN3  Such a failure is raised only where no attempt follows (`tidegate.retries.attempt_delays`, PA3).

Known not to work
    - A repeated program within a repeated one multiplies the attempts: repeat the inner ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Final, ParamSpec, TypeVar

from tidegate.model.effects import Ambiguous, Failure, NotApplied, NotDurable, Program
from tidegate.model.values import check_callable
from tidegate.retries.attempt_delays import PAUSES, Pauses, begins, check_attempts, goes_on

P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS: Final = 8
"""The default number of attempts: with `PAUSES`, they outlast an election."""
PASSING: Final = (NotApplied, Ambiguous, NotDurable)


async def repeat(make: Callable[[], Awaitable[T]], attempts: int | None = ATTEMPTS, pauses: Pauses = PAUSES) -> T:
    """Run a program until it succeeds, and return its result.

    `make` makes a new program, or one effect, for each run; it must be safe to repeat.

    Raises:
        Failure: The last attempt failed, or the store refuses.
    """
    check_callable(make, "what makes a program")
    check_attempts(attempts, pauses)
    failure: Failure = NotApplied("nothing was asked")
    made, since = 0, await begins(pauses)
    while True:
        if not await goes_on(pauses, attempts, made, since):
            raise failure
        made += 1
        try:
            return await make()
        except PASSING as passing:
            failure = passing.fresh()


def repeated(program: Callable[P, Program[T]]) -> Callable[P, Program[T]]:
    """Decorate a program that is safe to repeat, so that each call repeats it."""
    check_callable(program, "a program")

    @wraps(program)  # logs name it
    async def repeating(*args: P.args, **kwargs: P.kwargs) -> T:
        return await repeat(partial(program, *args, **kwargs))

    return repeating
