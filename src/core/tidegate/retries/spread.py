"""Which of the records that are due does a worker claim, where others look for them at the same time?

All workers find the same records, those that are due longest. Whoever claims the first ones of them meets all others there, and
all but one have asked for nothing. So where claims were lost, a worker finds more than it takes, and draws from them by
scores of its own: rendezvous hashing (Thaler and Ravishankar 1998), whose scores depend on the worker, the record and the time
of the look. Two workers then share as much as chance has it, and a record that is passed over is drawn at a later look.

    widened    among how many records the next look draws: twice as many where more claims were lost than won, half as many
               where none was lost
    drawn      which ones

Laws
    SP1  What is drawn is of what was found, each once, as many as are taken or all.
    SP2  Whoever loses no claim takes what is due longest.
    SP3  Two workers that draw `most` among `factor * most` share no more than chance has it: one in `factor` on the average.
    SP4  Where it is told whose they are, as many are drawn of each, as far as there are.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from types import NoneType
from typing import Final

from tidegate.model.values import check_int, check_name, check_tuple

FACTOR_MAX: Final = 8
"""Among how many times what it takes a worker draws at most: of eight workers, most claims of each are then won."""


def widened(factor: int, won: int, lost: int) -> int:
    """Among how many times what it takes the next look draws.

    Args:
        factor: Among how many times this one has; 1 <= factor <= FACTOR_MAX.
        won: How many claims it has won.
        lost: How many it has lost to others.
    """
    check_int(factor, "a factor", 1, FACTOR_MAX)
    check_int(won, "a number of claims", 0)
    check_int(lost, "a number of claims", 0)
    if lost > won:
        return min(2 * factor, FACTOR_MAX)
    return factor if lost else max(factor // 2, 1)


def drawn(records: tuple[str, ...], most: int, draw: str, whose: tuple[str | None, ...] = ()) -> tuple[int, ...]:
    """Which of the records that were found are claimed, in the order in which they were found.

    Args:
        records: Their ids, the one that is due longest first.
        most: How many are claimed at most.
        draw: What makes the draw another one: the worker, and the time of its look.
        whose: On whose behalf each is, so that nobody is drawn more often than others; empty where that does not matter.

    Returns:
        Their places; the first ones where no more were found than are claimed.
    """
    check_tuple(records, str, "the id of a record")
    check_int(most, "a number of records", 1)
    check_name(draw, "a draw")
    check_tuple(whose, (str, NoneType), "whose a record is")
    if whose:
        check_int(len(whose), "a number of those whose records are", len(records), len(records))
    if len(records) <= most:
        return tuple(range(len(records)))
    scores = [blake2b(f"{draw} {each}".encode(errors="replace"), digest_size=8).digest() for each in records]
    places = sorted(range(len(records)), key=lambda at: scores[at])
    if whose:
        had = Counter[str | None]()
        turns: dict[int, int] = {}
        for at in places:
            turns[at] = had[whose[at]]
            had[whose[at]] += 1
        places.sort(key=lambda at: turns[at])
    return tuple(sorted(places[:most]))
