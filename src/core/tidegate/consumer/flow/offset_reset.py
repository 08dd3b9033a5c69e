"""Decides where a partition begins, and where a member continues whose position is outside the log.

At an assignment, from the group's committed position and the range of the log:

    since the assignment    committed                     the partition begins
    the log is the same     within the log                there, with the offsets done beyond it
    the log is the same     below the start of the log    at the first record left
    the log is the same     none, or beyond the end       where the settings say
    the log lost its end    within what was left          there, without offsets done beyond it
    the log lost its end    below the start of the log    at the first record left
    the log lost its end    none, or beyond that          where its member continues (`Cut`)

While it runs, after the broker answered that a position is out of range:

    position of the member        the member continues
    below the start of the log    at the first record left; its work and assignment go on
    within the log                at its position: the log has changed since that answer
    beyond the end of the log     the log lost its end: the partition begins again, by the table
                                  above

Settings such as `auto_offset_reset` are for a group without a position. A group with one continues
at the first record left, because only retention or DeleteRecords has removed the records before it.
So the client never resets a position by itself: it could jump to the end and skip the records left.

The end of a log is the end for readers of all records. Positions at control markers, at records of
aborted transactions, and behind the start of an open one are within the log.

A log loses its end when a lagging replica becomes leader (an unclean election), or when another log
takes its name. A position may also be beyond the end because a wrong number was committed. The
broker redirects a member that begins there, and records that arrive below that position count as
done.

The offset from which records differ is unknown. So work done beyond a position is repeated. The end
that counts is the one seen before the log grew again: later it passes positions committed in the
lost part.

Laws
    BG1  No partition begins at a committed position outside the log.
    BG2  A committed position within the log holds: no record before it is repeated, and none from
         there on is skipped.
    BG3  Work done beyond a position counts only in the log in which it was done.
    BG4  Where no committed position holds, no record is skipped that was written after the member
         saw that its log had lost its end.
    BG5  A group whose position is below the start begins at the first record left, and no other
         group does.
    BG6  A member continues at the lowest offset of the log from its position on, and begins again
         if there is none.
    BG7  The offsets reported as removed are exactly those from the position to the start.

Known not to work
    A log that lost its end, and grew past the committed position before it was read again, seems
    intact: new records below that position are skipped. Leader epochs would show it (KIP-320), if
    the client knows them.
    Removed records are counted in offsets. Some may have held no record: control markers, and
    compacted ones.
    A member that continues at the first record left commits that position only with the first
    record done from there on. An owner that takes over before continues there too, and reports the
    same offsets again.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import final

import attrs

from tidegate.model.values import check_int, check_type


@final
@attrs.frozen
class LogRange:
    """The offsets of a log: `start <= offset < end`. Invariant: 0 <= start <= end.

    Attributes:
        start: The first offset left.
        end: One past the last record, including those of open transactions.
    """

    start: int
    end: int

    def __attrs_post_init__(self) -> None:
        check_int(self.start, "the start of a log", 0)
        check_int(self.end, "the end of a log", self.start)

    def removed(self, position: int) -> int:
        """The number of removed offsets from the position on. Law BG7.

        Raises:
            Misuse: The position is not a whole number, or negative.
        """
        check_int(position, "a position", 0)
        return max(0, self.start - position)


@final
@unique
class Begins(Enum):
    """Where a partition begins."""

    AS_COMMITTED = "where its group has committed, with what is done beyond it"
    AT_THE_POSITION = "where its group has committed, with nothing done beyond it"
    AT_THE_START = "at the first record that is left"
    WHERE_IT_GOES_ON = "where its member goes on"
    AS_TOLD = "where the settings say"


@final
@unique
class GoesOn(Enum):
    """Where a member continues whose position was out of range."""

    AT_THE_START = "at the first record that is left"
    WHERE_IT_IS = "where it is"
    AGAIN = "where its partition begins, in a log that has lost its end"


@final
@attrs.frozen
class Cut:
    """A log that has lost its end since it was assigned.

    Attributes:
        goes_on: The offset at which its member continues, by the settings at the time of detection.
        end: The end of the log at that time; None if unknown.
    """

    goes_on: int
    end: int | None = None


def begins(committed: int | None, log: LogRange, cut: Cut | None = None) -> Begins:
    """Where a partition begins.

    Args:
        committed: The group's committed position; None for none.
        log: The range of its log, read after that.
        cut: Set if the log has lost its end since it was assigned.

    Raises:
        Misuse: An argument has a wrong type, or is negative.
    """
    if committed is not None:
        check_int(committed, "a committed position", 0)
    check_type(log, LogRange, "the range of a log")
    if cut is not None:
        check_type(cut, Cut, "a log that has lost its end")
    end = log.end if cut is None or cut.end is None else cut.end
    if committed is None or committed > end:
        return Begins.AS_TOLD if cut is None else Begins.WHERE_IT_GOES_ON
    if committed < log.start:
        return Begins.AT_THE_START
    return Begins.AS_COMMITTED if cut is None else Begins.AT_THE_POSITION


def goes_on(position: int, log: LogRange) -> GoesOn:
    """Where a member continues whose position was out of range.

    Args:
        position: The offset that it tried to read.
        log: The range of the log, read after the broker's refusal.

    Raises:
        Misuse: An argument has a wrong type, or is negative.
    """
    check_int(position, "the position of a member", 0)
    check_type(log, LogRange, "the range of a log")
    if position < log.start:
        return GoesOn.AT_THE_START
    return GoesOn.WHERE_IT_IS if position <= log.end else GoesOn.AGAIN
