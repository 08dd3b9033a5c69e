"""Where does a partition begin, and where does a member go on whose position is not in the log?

At an assignment, by what the group has committed and by the range of the log:

    since the assignment    committed                       the partition begins
    the log is the same     within the log                  there, with what is done beyond it
    the log is the same     below the start of the log      at the first record that is left
    the log is the same     nothing, or beyond the end      where the settings say
    the log lost its end    within what was left            there; nothing is known to be done beyond it
    the log lost its end    below the start of the log      at the first record that is left
    the log lost its end    nothing, or beyond that         where its member goes on (`Cut`)

While it runs, once the broker has answered that a position is out of range:

    position of the member        the member goes on
    below the start of the log    at the first record that is left; its work and its assignment go on, too
    within the log                where it is: the log has changed since that answer
    beyond the end of the log     the log lost its end: the partition begins again, by the table above

Settings such as `auto_offset_reset` are for a group without a position. A group that has one goes on at the first record that is
left: retention, or DeleteRecords, has removed what was before it, and nothing else. So the client resets no position by itself, for
it would jump to the end where the settings say so, and nobody would handle what is left before the end.

The end of a log is the end for readers of all records. A position at a control marker, at a record of a transaction that was aborted,
or behind the start of one that is open is within the log, for readers of committed records, too.

A log loses its end where a replica that is behind comes to lead (an unclean election), or where another log takes its name; a
position may be beyond the end for these reasons, or because somebody has committed a wrong number. Whoever begins there is sent
elsewhere by the broker, and what comes below that position is taken for done.

Nobody knows from where on records are others than before. So what was done beyond a position is done over, and an end counts
that was seen before the log grew again: later it goes beyond positions that were committed of what it has lost.

Laws
    BG1  Nothing begins at a committed position that is outside of the log.
    BG2  What is committed within the log holds: nothing before it is done over, and nothing from there on is left out.
    BG3  What was done beyond a position counts only in the log in which it was done.
    BG4  Where nothing holds that is committed, nothing is left out that was written after the member saw that its log had lost its end.
    BG5  A group whose position is below the start begins at the first record that is left, and no other group does.
    BG6  A member reads on at the lowest offset of the log from its position on, and begins again where there is none.
    BG7  The offsets that are told as removed are those from the position to the start, and no others.

Known not to work
    A log that has lost its end, and has grown beyond what is committed before anybody reads it again, looks as if nothing were:
    what came below that position is left out. Epochs of leaders tell (KIP-320), where a client knows them.
    What is removed is counted in offsets. Some of those may have held no record: control markers, and what compaction removed.
    A member that goes on at the first record that is left commits that only with the first record that is done from there on. If
    another owner takes over before, it goes on there, too, and tells of the same offsets again.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import final

import attrs

from tidegate.model.values import check_int, check_type


@final
@attrs.frozen
class LogRange:
    """The offsets that are in a log: `start <= offset < end`. Invariant: 0 <= start <= end.

    Attributes:
        start: The first offset that is left.
        end: The offset behind the last record, those of open transactions included.
    """

    start: int
    end: int

    def __attrs_post_init__(self) -> None:
        check_int(self.start, "the start of a log", 0)
        check_int(self.end, "the end of a log", self.start)

    def removed(self, position: int) -> int:
        """How many offsets from the position on are removed. Law BG7.

        Raises:
            Misuse: The position is no whole number, or negative.
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
    """Where a member goes on whose position was out of range."""

    AT_THE_START = "at the first record that is left"
    WHERE_IT_IS = "where it is"
    AGAIN = "where its partition begins, in a log that has lost its end"


@final
@attrs.frozen
class Cut:
    """A log that has lost its end since it was assigned.

    Attributes:
        goes_on: The offset at which its member reads on, where the settings said when that was seen.
        end: How far the log went when that was seen; None where nobody knows.
    """

    goes_on: int
    end: int | None = None


def begins(committed: int | None, log: LogRange, cut: Cut | None = None) -> Begins:
    """Where a partition begins.

    Args:
        committed: What its group has committed; None for nothing.
        log: The range of its log, asked for after that.
        cut: What is known of a log that has lost its end since it was assigned.

    Raises:
        Misuse: An argument is of another type, or negative.
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
    """Where a member goes on whose position was out of range.

    Args:
        position: The offset that it wanted to read.
        log: The range of the log, asked for after the broker had refused that.

    Raises:
        Misuse: An argument is of another type, or negative.
    """
    check_int(position, "the position of a member", 0)
    check_type(log, LogRange, "the range of a log")
    if position < log.start:
        return GoesOn.AT_THE_START
    return GoesOn.WHERE_IT_IS if position <= log.end else GoesOn.AGAIN
