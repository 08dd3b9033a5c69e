"""How long a program waits between attempts.

A program that lost a race or got no reply must not retry at once: it would meet the same
competitors, exhaust the attempts, and hammer a store that is electing a primary. So it waits by
exponential back-off with full jitter (Brooker 2015, "Exponential Backoff And Jitter"). The default
is that of MongoDB's drivers for an overloaded server: 100 ms, doubled, up to 10 s (specification
"Client Backpressure"). Eight attempts have at most 12.7 s between them, half of that on average.
MongoDB elects a primary within 12 s.

Each program takes a number of attempts (None for no limit) and its `pauses`. The store limits how
long one attempt takes.

Laws
    PA1  At least the delay less its jitter lies between two attempts.
    PA2  The pause after n attempts is the delay after n, with that jitter.
    PA3  No attempt begins later than the maximum duration after the first one, unless a sleep lasts
         longer than requested. No attempt is missing before that, unless its whole delay would not
         fit.

Known not to work
    - Attempts of a program in a program multiply, and each has a maximum duration of its own.
    - A clock that is set back lengthens the maximum duration; one that leaps forward ends it.
"""

from __future__ import annotations

from typing import Final, final, get_args

import attrs

from tidegate.model.effects import Now, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, PPM, SECOND, Duration, Instant, micros, seconds
from tidegate.model.values import check_int, check_type
from tidegate.retries.backoff import Delays, Exponential, check_delay, delay_after


class Attempted:
    """A result of a retrying program, for the log of the runtime."""

    __slots__ = ()

    @property
    def is_given_up(self) -> bool:
        """No attempt is left: the effect is not done, or its outcome is unknown."""
        return True


_DELAYS: Final = Exponential(100 * MILLISECOND, cap=10 * SECOND)


@final
@attrs.frozen
class Pauses:
    """The pauses between the attempts of a program.

    Invariants: 0 <= jitter_ppm <= PPM; the first delay fits into elapsed_max.

    Attributes:
        elapsed_max: The latest start of an attempt after the first one, in microseconds or a
            timedelta; None for no limit.
    """

    delays: Delays = _DELAYS
    jitter_ppm: int = PPM
    elapsed_max: Duration | None = attrs.field(default=None, converter=attrs.converters.optional(micros))

    def __attrs_post_init__(self) -> None:
        check_type(self.delays, get_args(Delays), "a back-off with delays of its own")
        check_int(self.jitter_ppm, "a jitter in parts per million", 0, PPM)
        if self.elapsed_max is not None:
            check_delay(self.elapsed_max, "a maximum duration in microseconds", 0)
            if (first := delay_after(self.delays, 1)) > self.elapsed_max:
                raise Misuse(
                    f"a first delay of {seconds(first)} does not fit into {seconds(self.elapsed_max)}",
                    why="nothing would ever be tried again",
                    todo="raise elapsed_max, or allow one attempt",
                )

    def after(self, attempts: int) -> Sleep:
        """The pause after that many attempts, as an effect."""
        return Sleep(delay_after(self.delays, attempts), self.jitter_ppm)


PAUSES: Final = Pauses()


async def pause(pauses: Pauses, attempts: int) -> None:
    """Wait before the next attempt; not before the first one."""
    if attempts and (sleep := pauses.after(attempts)).duration:
        await sleep


def check_attempts(attempts: object, pauses: object) -> None:
    """Raise Misuse unless these are a number of attempts from 1, or None, and their pauses.

    Without a limit the last delay must not be 0: the loop would never end.
    """
    if attempts is not None:
        check_int(attempts, "a number of attempts", 1)
    check_type(pauses, Pauses, "what lies between attempts")
    assert isinstance(pauses, Pauses)
    if attempts is None and delay_after(pauses.delays, 10**9) == 0:
        raise Misuse(
            "attempts without a maximum and without a delay",
            why="it would do nothing else for ever",
            todo="give the pauses a last delay, or the attempts a maximum",
        )


async def begins(pauses: Pauses) -> Instant | None:
    """When the first attempt begins; None if there is no maximum duration."""
    return None if pauses.elapsed_max is None else await Now()


async def goes_on(pauses: Pauses, attempts: int | None, made: int, since: Instant | None) -> bool:
    """Wait before the next attempt, if one follows; return whether it does.

    Call it in one place, `while True: if not await goes_on(...): break`. A `while await` compiles
    into two places, which keep equal states apart.
    """
    if attempts is not None and made >= attempts:
        return False
    if made and since is not None and pauses.elapsed_max is not None:
        now = await Now()
        if now - since + pauses.after(made).duration > pauses.elapsed_max:
            return False
    await pause(pauses, made)
    return True
