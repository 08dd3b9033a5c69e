"""How long a program waits between attempts.

A program retries when it loses a race, gets no reply, or finds a record missing. Retrying at once
collides with the same competitors, exhausts the attempts, and hammers a store that is electing a
primary. So a program waits, twice as long each time up to a cap, for a random part of that:
exponential back-off with full jitter, as Brooker 2015 ("Exponential Backoff And Jitter") measured
for writes that compare and set.

    attempts made    1          2          3          n
    pause            delay(1)   delay(2)   delay(3)   delay(n), less a part that the runtime draws

The default is that of MongoDB's drivers for an overloaded server: 100 ms, doubled, up to 10 s, full
jitter (specification "Client Backpressure"). Eight attempts have at most 12.7 s between them, half
of that on average. MongoDB elects a primary within 12 s.

Each program takes a number of attempts (`attempts`; None for no limit) and its `pauses`, which may
end it sooner: no attempt begins after `elapsed_max`. The store limits how long one attempt takes: a
client waits for a reply until its deadline, and the failure ends the attempt.

Laws
    PA1  A contender does not retry early: at least the delay less its jitter lies between two
         attempts.
    PA2  The pause after n attempts is the delay after n, with that jitter.
    PA3  No attempt begins later than the maximum duration after the first one, unless a sleep lasts
         longer than requested. No attempt is missing before that, unless its whole delay would not
         fit.

Known not to work
    - Attempts of a program in a program multiply: each outer pause follows all inner ones, and each
      program has a maximum duration of its own.
    - A clock that is set back lengthens the maximum duration. One that leaps forward ends it.
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
    """A result of a retrying program.

    The runtime logs it (`tidegate_adapters.runtime.driver`).
    """

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
        delays: The wait by number of attempts.
        jitter_ppm: The part of it that may be taken away; all of it by default.
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
        """The pause after that many attempts, as an effect.

        Raises:
            Misuse: No attempt was made.
        """
        return Sleep(delay_after(self.delays, attempts), self.jitter_ppm)


PAUSES: Final = Pauses()


async def pause(pauses: Pauses, attempts: int) -> None:
    """Wait before the next attempt: a program.

    It returns at once before the first attempt, or if the delay is 0.

    Args:
        pauses: How long.
        attempts: How many were made.
    """
    if attempts and (sleep := pauses.after(attempts)).duration:
        await sleep


def check_attempts(attempts: object, pauses: object) -> None:
    """Raise Misuse unless these are a number of attempts and the pauses between them.

    Args:
        attempts: A number from 1; None for no limit.
        pauses: Their last delay must not be 0 if attempts are unlimited: the loop would never end.
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
    """When the first attempt begins, or None if there is no maximum duration: a program."""
    return None if pauses.elapsed_max is None else await Now()


async def goes_on(pauses: Pauses, attempts: int | None, made: int, since: Instant | None) -> bool:
    """Wait before the next attempt, if there is one: a program.

    Call it in one place, `while True: if not await goes_on(...): break`. A `while await` compiles
    into two places, which keep equal states apart.

    Args:
        pauses: The pauses, and the maximum duration.
        attempts: The maximum of attempts; None for no limit.
        made: How many were made.
        since: When the first one began (`begins`).

    Returns:
        Whether another attempt follows.
    """
    if attempts is not None and made >= attempts:
        return False
    if made and since is not None and pauses.elapsed_max is not None:
        now = await Now()
        if now - since + pauses.after(made).duration > pauses.elapsed_max:
            return False
    await pause(pauses, made)
    return True
