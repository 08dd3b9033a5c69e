"""The fifth stage of a partition: which position is committed now, and with which metadata.

It receives the number of completed records and the results of commits, and makes the next commit.
One commit is in flight at a time. It has the position that the tracker allows, with the offsets
done beyond it as metadata (`tidegate.consumer.committing.commit_metadata`). If no position in the log is
committed yet, and another owner might begin elsewhere, the first commit is that of the beginning.
Metadata is made only with a commit. So its size, for which the partition may be held, is that of
the last commit.

A step costs the path to the head of the tracker; metadata costs what changed since it was last
made. The laws are P1, P2, P12 and P16 of the partition.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.consumer.committing.commit_metadata import Alphabet, Survey, Whole, encoded, surveyed, units
from tidegate.consumer.offsets.watermark import OffsetTracker, committable, done_beyond
from tidegate.model.sealed import sealed

_NOTICE: Final = 4
"""Operators are alerted after this many commits in a row without an answer, then after twice as
many, and so on.
"""


@final
@sealed
class Commits:
    """The state of the commits.

    Attributes:
        alphabet: The letters of the metadata; None if the broker accepts none.
        committing: The position of the commit in flight.
        failures: How many commits in a row had no answer.
        backs_off: Whether the next commit waits for the back-off.
        unrecorded: How many offsets were completed since the last commit was made.
        length: The units of the last metadata, even if the broker accepts fewer.
        survey: Of the tracker, for the metadata; derived from it.
        begins: Whether the beginning is not committed yet.
    """

    alphabet: Alphabet | None = None
    committing: int | None = None
    failures: int = 0
    backs_off: bool = False
    unrecorded: int = 0
    length: int = 0
    survey: Survey | None = attrs.field(default=None, eq=False, repr=False)
    begins: bool = False

    def done(self, count: int) -> Commits:
        """After this many records were completed."""
        if self.alphabet is None or not count:
            return self
        return Commits(
            self.alphabet,
            self.committing,
            self.failures,
            self.backs_off,
            self.unrecorded + count,
            self.length,
            self.survey,
        )

    def acknowledged(self) -> Commits:
        """After the commit in flight succeeded."""
        return Commits(self.alphabet, None, 0, self.backs_off, self.unrecorded, self.length, self.survey)

    def unknown(self, enough: int) -> Commits:
        """After the commit in flight had no answer.

        Committing is idempotent, so after a delay the same or a higher position is committed.
        Setting `unrecorded` to `enough` makes the next commit due even if the position has not
        moved.
        """
        unrecorded = max(self.unrecorded, enough)
        return attrs.evolve(self, committing=None, failures=self.failures + 1, backs_off=True, unrecorded=unrecorded)

    def next_position(self, tracker: OffsetTracker, enough: int) -> int | None:
        """The position to commit now, or None while a commit is in flight or none is due.

        An unmoved position is committed again if it is the beginning, or if `enough` completed
        offsets are in no commit.
        """
        if self.committing is not None:
            return None
        position = committable(tracker)
        if position is None and (self.begins or (self.alphabet is not None and self.unrecorded >= enough)):
            return tracker.floor
        return position

    @property
    def is_noteworthy(self) -> bool:
        """Whether to alert the operators of missing answers."""
        return self.failures >= _NOTICE and not self.failures & (self.failures - 1)

    def refused_text(self, enough: int) -> Commits:
        """After the broker refused the metadata: retry at once, in ASCII or without."""
        letters = Alphabet.ASCII if self.alphabet is Alphabet.WIDE else None
        return attrs.evolve(self, committing=None, alphabet=letters, unrecorded=enough)

    def made(self, position: int, tracker: OffsetTracker, limit: int) -> tuple[Commits, str]:
        """Put a commit of this position in flight; returns its metadata too, of at most `limit`
        units.
        """
        text, length, survey = "", 0, self.survey
        if self.alphabet is not None and done_beyond(tracker, position):
            survey = surveyed(tracker, survey)
            found = encoded(survey, limit=limit, alphabet=self.alphabet)
            text = found.text
            length = len(text) if isinstance(found, Whole) else units(survey, self.alphabet)  # a letter is a unit
        return Commits(self.alphabet, position, self.failures, False, 0, length, survey, self.begins), text
