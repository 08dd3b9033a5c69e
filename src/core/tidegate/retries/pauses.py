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

Laws
    PA1  What contends is not tried again before its time: between two attempts lies no less than what the jitter leaves of
         the delay.
    PA2  The pause after so many attempts is the delay after so many, with that jitter.

Known not to work
    - Attempts of a program in a program multiply: each pause of the outer one comes after all those of the inner one.
"""

from __future__ import annotations

from typing import Final, final, get_args

import attrs

from tidegate.model.effects import Sleep
from tidegate.model.instants import MILLISECOND, PPM, SECOND
from tidegate.model.values import check_int, check_type
from tidegate.retries.backoff import Delays, Exponential, delay_after

__all__ = ["PAUSES", "Pauses", "pause"]


_DELAYS: Final = Exponential(100 * MILLISECOND, cap=10 * SECOND)


@final
@attrs.frozen
class Pauses:
    """What lies between the attempts of a program. Invariant: 0 <= jitter_ppm <= PPM.

    Attributes:
        delays: How long it waits after so many attempts.
        jitter_ppm: How much of that may be taken away; all of it by default.
    """

    delays: Delays = _DELAYS
    jitter_ppm: int = PPM

    def __attrs_post_init__(self) -> None:
        check_type(self.delays, get_args(Delays), "a back-off with delays of its own")
        check_int(self.jitter_ppm, "a jitter in parts per million", 0, PPM)

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
