"""Which position is committed now, and with which text?

This is the fifth stage of a partition (`tidegate.consumer.partition`). It is told how many records were done, and what became
of the commit in flight, and it makes the next one: one at a time, of the position that the tracker allows, with what is done
beyond it as metadata (`tidegate.consumer.commit_metadata`). Where nothing is committed yet, or nothing that is in the log, and
another owner may find another beginning, the first is that of the beginning. The metadata is made with a commit and not before;
so its size, for which the partition may be held, is known as of the last commit.

What a step costs: the path to the head of the tracker; to make metadata, what has changed since it was last made. Its laws are
P1, P2, P12 and P16 of the partition.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.consumer.commit_metadata import Alphabet, Survey, Whole, encoded, surveyed, units
from tidegate.consumer.watermark import OffsetTracker, committable, done_beyond
from tidegate.model.sealed import sealed

_NOTICE: Final = 4
"""So many commits in a row without an answer are told to people; then twice as many, and so on."""


@final
@sealed
class Commits:
    """What is committed, and what is to be.

    Attributes:
        alphabet: In which letters to write the metadata of commits; None if the broker takes none.
        committing: The position of the commit in flight.
        failures: How many commits in a row had no answer.
        backs_off: Whether the next one waits for that.
        unrecorded: How many offsets were completed since the last commit was made.
        length: How many units the metadata took when it was last made, whether or not the broker takes that many.
        survey: Of the tracker, for the metadata; it follows from the tracker.
        begins: Whether the beginning is still to be committed.
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
        """After so many records were completed."""
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
        """After the commit in flight was taken."""
        return Commits(self.alphabet, None, 0, self.backs_off, self.unrecorded, self.length, self.survey)

    def unknown(self, enough: int) -> Commits:
        """After the commit in flight had no answer.

        Committing is idempotent: after a while the same or a higher position is committed, for this says that enough is
        unrecorded to send a position that has not moved.
        """
        unrecorded = max(self.unrecorded, enough)
        return attrs.evolve(self, committing=None, failures=self.failures + 1, backs_off=True, unrecorded=unrecorded)

    def next_position(self, tracker: OffsetTracker, enough: int) -> int | None:
        """The position to commit now: one at a time; the same once more where so many are done beyond it and in no commit, or where
        it is the beginning.
        """
        if self.committing is not None:
            return None
        position = committable(tracker)
        if position is None and (self.begins or (self.alphabet is not None and self.unrecorded >= enough)):
            return tracker.floor
        return position

    @property
    def is_noteworthy(self) -> bool:
        """Whether people are to be told that so many had no answer."""
        return self.failures >= _NOTICE and not self.failures & (self.failures - 1)

    def refused_text(self, enough: int) -> Commits:
        """After the broker did not take the metadata: again at once, in plainer letters or without."""
        letters = Alphabet.ASCII if self.alphabet is Alphabet.WIDE else None
        return attrs.evolve(self, committing=None, alphabet=letters, unrecorded=enough)

    def made(self, position: int, tracker: OffsetTracker, limit: int) -> tuple[Commits, str]:
        """With a commit of this position in flight; and its metadata, of at most so many units."""
        text, length, survey = "", 0, self.survey
        if self.alphabet is not None and done_beyond(tracker, position):
            survey = surveyed(tracker, survey)
            found = encoded(survey, limit=limit, alphabet=self.alphabet)
            text = found.text
            length = len(text) if isinstance(found, Whole) else units(survey, self.alphabet)  # a letter is a unit
        return Commits(self.alphabet, position, self.failures, False, 0, length, survey, self.begins), text
