"""Where does a partition begin, once it is known what its group has committed and how far its log goes?

    its log since it was assigned    what is committed              it begins
    is the same                      is within the log              there, with what is done beyond it
    is the same                      is nothing, or beyond the end  where the settings say
    has lost its end                 was within what was left       there; nothing is known to be done beyond it
    has lost its end                 is nothing, or beyond that     where the client goes on by itself

A log loses its end where a replica that is behind comes to lead (an unclean election), or where another log takes its name; a
position may be beyond the end for these reasons, or because somebody has committed a wrong number. Whoever begins there is sent
elsewhere by the broker, and what comes below that position is taken for done.

Nobody knows from where on records are others than before. So what was done beyond a position is done over, and an end counts
that was seen before the log grew again: later it goes beyond positions that were committed of what it has lost.

Laws
    BG1  Nothing begins beyond the end of its log.
    BG2  What is committed within the log holds: nothing before it is done over, and nothing from there on is left out.
    BG3  What was done beyond a position counts only in the log in which it was done.
    BG4  Where nothing holds that is committed, nothing that the client has read of another log is left out.

Known not to work
    A log that has lost its end, and has grown beyond what is committed before anybody reads it again, looks as if nothing were:
    what came below that position is left out. Epochs of leaders tell (KIP-320), where a client knows them.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import final

import attrs

from tidegate.model.values import check_int, check_type

__all__ = [
    "Begins", "Cut", "begins",
]  # fmt: skip


@final
@unique
class Begins(Enum):
    """Where a partition begins."""

    AS_COMMITTED = "where its group has committed, with what is done beyond it"
    AT_THE_POSITION = "where its group has committed, with nothing done beyond it"
    WHERE_IT_GOES_ON = "where its client goes on"
    AS_TOLD = "where the settings say"


@final
@attrs.frozen
class Cut:
    """A log that has lost its end since it was assigned.

    Attributes:
        goes_on: The offset at which its client reads on.
        end: How far the log went when that was seen; None where nobody knows.
    """

    goes_on: int
    end: int | None = None


def begins(committed: int | None, end: int, cut: Cut | None = None) -> Begins:
    """Where a partition begins.

    Args:
        committed: What its group has committed; None for nothing.
        end: The offset behind the last record of its log, asked for after that.
        cut: What is known of a log that has lost its end since it was assigned.

    Raises:
        Misuse: An argument is of another type, or negative.
    """
    if committed is not None:
        check_int(committed, "a committed position", 0)
    check_int(end, "the end of a log", 0)
    if cut is None:
        return Begins.AS_COMMITTED if committed is not None and committed <= end else Begins.AS_TOLD
    check_type(cut, Cut, "a log that has lost its end")
    end = end if cut.end is None else cut.end
    return Begins.AT_THE_POSITION if committed is not None and committed <= end else Begins.WHERE_IT_GOES_ON
