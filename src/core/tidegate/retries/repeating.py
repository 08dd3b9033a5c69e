"""How is a program begun anew that may be done again, until it is answered?

Whoever only looks, or does what does no harm when it is done twice, need not end with the first request that has no answer: a
primary steps down, or what was made a moment ago has no snapshot yet. So the program is begun anew after a pause
(`tidegate.retries.pauses`), whole and not from where it was left: what it had read by then may be older than what it reads next.

    how it ends                          what follows
    it returns                           that is the answer
    NotApplied, Ambiguous, NotDurable    it is begun anew; where no attempt is left, that is raised
    anything else                        that is raised: it would be so once more

Laws
    AN1  What is answered or raised is what the last run has come to: nothing of a run before is part of it.
    AN2  It is begun anew after no other end than a failure that may pass.
    AN3  Such a failure is raised only where no attempt follows (`tidegate.retries.pauses`, PA3).

Known not to work
    - What changes while a run goes on is seen by a part of it, as by any program that asks more than once.
    - A repeated program within a repeated one makes as many attempts as both together, multiplied: repeat the inner ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Final, ParamSpec, TypeVar

from tidegate.model.effects import Ambiguous, Failure, NotApplied, NotDurable, Program
from tidegate.model.values import check_callable
from tidegate.retries.pauses import PAUSES, Pauses, begins, check_attempts, goes_on

P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS: Final = 8
"""How often, unless it is said otherwise: with `PAUSES`, for longer than an election takes."""
PASSING: Final = (NotApplied, Ambiguous, NotDurable)
"""What may be otherwise the next time."""


async def repeat(make: Callable[[], Awaitable[T]], attempts: int | None = ATTEMPTS, pauses: Pauses = PAUSES) -> T:
    """Run a program until it is answered: a program.

    Args:
        make: Makes the program, or one effect, anew each time: one that may be done again.
        attempts: How often it is begun; None for any number.
        pauses: What lies in between.

    Returns:
        What the program returns.

    Raises:
        Misuse: An argument is of a wrong type.
        Failure: Nobody answers, as often as it was asked; or the store refuses.
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
    """The same program, which is repeated by itself: for one that may be done again.

    Args:
        program: An `async def` of effects.

    Raises:
        Misuse: It is none.
    """
    check_callable(program, "a program")

    @wraps(program)  # logs name it
    async def repeating(*args: P.args, **kwargs: P.kwargs) -> T:
        return await repeat(partial(program, *args, **kwargs))

    return repeating
