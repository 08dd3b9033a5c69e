"""The record for a dead-letter topic: the original, plus headers with its origin and its error.

A consumer reads the original key, value and headers and may resend them. The added headers begin
with `tidegate.` and hold text:

    topic, partition, offset    the origin
    timestamp                   when it was produced or appended, in milliseconds since 1970, if
        known
    group                       the group that could not handle it
    attempts                    the number of handler calls; 0 if there was none, as for the rest of
        a key
    error, message              the class and text of the exception, masked and cut
        (`delivery.shown`)
    at                          when the group gave up, in milliseconds since 1970

The record has a new time: with its old one, a topic with time-based retention would delete it at
once.

Laws
    DT1  Key, value and headers are sent unchanged, and added headers follow them.
    DT2  The added headers are UTF-8, have distinct names, and are bounded, whatever was raised.

Known not to work
    - A record at the size limit of its topic grows beyond it: give the dead-letter topic a larger
      one.
    - A record that is dead-lettered again has each header twice; the last one is current.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.model.instants import MILLISECOND, Instant
from tidegate.model.records import Record, Send
from tidegate.model.values import check_int, check_name, check_type
from tidegate.sinks.delivery import shown

PREFIX: Final = "tidegate."


@final
@attrs.frozen(kw_only=True)
class GivenUp:
    """Why a record is not tried again, after `attempts` handler calls. Invariant: 0 <= attempts.

    `error` is the class of the exception, or None.
    """

    group: str
    attempts: int
    error: str | None
    message: str | None = attrs.field(repr=False)
    at: Instant

    def __attrs_post_init__(self) -> None:
        check_name(self.group, "a group")
        check_int(self.attempts, "a number of attempts", 0)
        for text in (self.error, self.message):
            if text is not None:
                check_type(text, str, "what was raised")
        check_type(self.at, Instant, "a time")


def dead_record(record: Record, why: GivenUp, topic: str) -> Send:
    """The record for the dead-letter topic."""
    check_type(record, Record, "a record")
    check_type(why, GivenUp, "why it is given up")
    said = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": None if record.timestamp is None else str(record.timestamp.at // MILLISECOND),
        "group": why.group,
        "attempts": str(why.attempts),
        "error": why.error,
        "message": why.message,
        "at": str(why.at.at // MILLISECOND),
    }
    added = tuple((f"{PREFIX}{name}", shown(text).encode()) for name, text in said.items() if text)
    return Send(topic, record.value, record.key, (*record.headers, *added))
