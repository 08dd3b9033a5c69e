"""What is sent to a dead-letter topic? The record as it came, and behind its headers where it came from, and why it is there.

A consumer of the topic reads key, value and headers as it would read those of the record, and may send them back. What is said
in addition are headers whose names begin with `tidegate.`, as text:

    topic, partition, offset    where it stood
    timestamp                   when it was produced or appended, in milliseconds since 1970, if that is known
    group                       which group could not handle it
    attempts                    how often its handler was tried; 0 where it was not, as with the rest of a key
    error, message              the class of what was raised, and what it said, masked and cut (`delivery.shown`)
    at                          when it was given up, in milliseconds since 1970

The record itself has the time at which it is sent: with its old one, a topic that forgets by time would forget it at once.
`dead_letters` writes what cannot be delivered to a sink as text instead, for its payload is no record.

Laws
    DT1  Key, value and headers of the record are sent as they came, and what is added stands behind them.
    DT2  What is added is UTF-8, names each thing at most once, and is bounded, whatever was raised.

Known not to work
    - A record as large as its topic takes is larger with what is added: let the dead-letter topic take more.
    - A record that is dead-lettered again has each header twice; the last one is of the last time.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.model.instants import MILLISECOND, Instant
from tidegate.model.records import Record, Send
from tidegate.model.values import check_int, check_name, check_type
from tidegate.sinks.delivery import shown

PREFIX: Final = "tidegate."
"""How the names of what is added begin."""


@final
@attrs.frozen(kw_only=True)
class GivenUp:
    """Why a record is not tried again. Invariant: 0 <= attempts.

    Attributes:
        group: Which group could not handle it.
        attempts: How often its handler was tried.
        error: The class of what was raised; None where nothing was.
        message: What it said.
        at: When it was given up.
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
    """The record for the dead-letter topic.

    Args:
        record: What could not be handled.
        why: Why not.
        topic: The dead-letter topic.

    Raises:
        Misuse: An argument is of another type, or names nothing.
    """
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
