"""Which due records a worker claims while other workers poll for the same ones.

If each worker claims the records due longest, all but one lose. A worker that lost claims therefore
finds more records than it takes, and draws from them by rendezvous hashing (Thaler and Ravishankar
1998): a score depends on the worker, the record and the time of the poll.

    widened    how many records the next poll draws from: doubled if more claims were lost than won,
               halved if none was lost
    drawn      which ones

Laws
    SP1  Drawn records are among those found, each once: as many as are taken, or all.
    SP2  A worker that loses no claim takes the records due longest.
    SP3  Two workers that draw `most` among `factor * most` overlap only by chance: one record in
         `factor` on average.
    SP4  If the owners are given, each owner gets as many records drawn, as far as it has them.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from types import NoneType
from typing import Final

from tidegate.model.values import check_int, check_name, check_tuple

FACTOR_MAX: Final = 8
"""The maximum ratio of found to taken records: of eight workers, each then wins most claims."""


def widened(factor: int, won: int, lost: int) -> int:
    """The next factor between found and taken records, by the claims won and lost."""
    check_int(factor, "a factor", 1, FACTOR_MAX)
    check_int(won, "a number of claims", 0)
    check_int(lost, "a number of claims", 0)
    if lost > won:
        return min(2 * factor, FACTOR_MAX)
    return factor if lost else max(factor // 2, 1)


def drawn(records: tuple[str, ...], most: int, draw: str, whose: tuple[str | None, ...] = ()) -> tuple[int, ...]:
    """The positions of the records to claim, at most `most`, in the order found.

    `records` are ids, due longest first. `draw` names the worker and the time of its poll. Owners
    in `whose` share the draws.
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
