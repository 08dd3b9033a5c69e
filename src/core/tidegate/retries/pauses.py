"""How long does a program wait before it tries again?

Whoever loses to another one, gets no answer, or finds that something is not there yet tries again. Who does so at once meets
the same others once more, uses up its attempts while they succeed, and asks a store that elects a primary ever again. So a
program waits, twice as long each time up to a cap, and each for a part of that: exponential back-off with full jitter, as
Brooker 2015 ("Exponential Backoff And Jitter") measured it for writes that compare and set.

    attempts made    1          2          3          n
    pause            delay(1)   delay(2)   delay(3)   delay(n), less a part of it that whoever runs the program draws

The default is that of MongoDB's drivers for a server that is overloaded: 100 ms, doubled, up to 10 s, full jitter (their
specification "Client Backpressure"). Between eight attempts there are 12.7 s at most, and half of that on the average;
MongoDB elects a primary within 12 s.

Each program is told how many attempts it has (`attempts`; None for any number) and what lies between them (`pauses`), which
may end them sooner: after `elapsed_max` none begins. How long one attempt may take is the store's to say: a client waits for
a reply for as long as its deadline, and its failure ends the attempt.

Laws
    PA1  What contends is not tried again before its time: between two attempts lies no less than what the jitter leaves of
         the delay.
    PA2  The pause after so many attempts is the delay after so many, with that jitter.
    PA3  No attempt begins later than the maximum duration after the first one, as far as no sleep lasts for longer than it
         was asked to, and none is missing before that but where its whole delay would not fit.

Known not to work
    - Attempts of a program in a program multiply: each pause of the outer one comes after all those of the inner one, and
      each has a maximum duration of its own.
    - A clock that is set back lengthens the maximum duration, and one that leaps forward ends it.
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
    """What a program that tries again may come to, for whoever runs it and logs that (`tidegate_adapters.runtime.driver`)."""

    __slots__ = ()

    @property
    def is_given_up(self) -> bool:
        """No attempt is left: it is not done, or nobody knows."""
        return True


_DELAYS: Final = Exponential(100 * MILLISECOND, cap=10 * SECOND)


@final
@attrs.frozen
class Pauses:
    """What lies between the attempts of a program. Invariants: 0 <= jitter_ppm <= PPM; the first delay fits into elapsed_max.

    Attributes:
        delays: How long it waits after so many attempts.
        jitter_ppm: How much of that may be taken away; all of it by default.
        elapsed_max: How long after the first attempt another may begin, in microseconds or a timedelta; None for ever.
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
        """What lies between that many attempts and the next one, as an effect.

        Raises:
            Misuse: There was no attempt.
        """
        return Sleep(delay_after(self.delays, attempts), self.jitter_ppm)


PAUSES: Final = Pauses()


async def pause(pauses: Pauses, attempts: int) -> None:
    """Wait before the next attempt: a program. It does nothing before the first one, and where the delay is 0.

    Args:
        pauses: How long.
        attempts: How many were made.
    """
    if attempts and (sleep := pauses.after(attempts)).duration:
        await sleep


def check_attempts(attempts: object, pauses: object) -> None:
    """Raise Misuse unless that is how often a program may try, and what lies in between.

    Args:
        attempts: A number from 1 on; None for any number.
        pauses: What lies between them. Without a number of attempts and without a delay, it would do nothing else for ever.
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
    """When the first attempt begins, where that matters: a program."""
    return None if pauses.elapsed_max is None else await Now()


async def goes_on(pauses: Pauses, attempts: int | None, made: int, since: Instant | None) -> bool:
    """Wait before the next attempt, where there is one: a program.

    Ask it in one place, `while True: if not await goes_on(...): break`: a `while await` is compiled into two places, which keep
    states apart that are the same.

    Args:
        pauses: What lies between attempts, and how long after the first one another may begin.
        attempts: How many there may be; None for any number.
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
