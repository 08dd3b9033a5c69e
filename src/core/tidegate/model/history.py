"""What a record remembers of its own versions, and so what became of a request whose reply was lost.

A write is one compare-and-set on the version that it was decided on. If its reply is lost and it is sent again, it finds no
match although it won. So each write leaves its request id in the record, under the version that it made (RIFL: Lee et al.
2015, "Implementing linearizability at large scale and low latency", section 3). A request is identified by its id and the
version that it was decided on; `outcome_of` says what became of it. The record remembers its last HISTORY_MAX versions.
Beyond them nobody can tell: that is `Forgotten`, which means unknown, never lost.

    own id at the version after the one decided on         Won
    another's id there                                     Superseded: versions only grow, so it can never be applied now
    the record is still at the version decided on          NotYet: it may still arrive; ask again with the same id
    further back than remembered, or the history has gaps  Forgotten

Laws
    H1  `outcome_of` never says Won of a request that has not won, nor Superseded of one that has, nor NotYet once another
        version is made.
    H2  A request that was to make one of the last HISTORY_MAX versions, or the next, is never Forgotten.

Known not to work
    - A record that is deleted and made anew begins again at version 1: answers about requests to the former one are wrong.
    - A read that is older than the decision proves nothing: `outcome_of` needs a read that sees majority writes. Where it
      can notice (the record is older than the decision) it answers Forgotten.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.model.values import check_int, check_name, check_tuple

HISTORY_MAX: Final = 16
"""How many of its last versions a record remembers."""


@final
@attrs.frozen
class Change:
    """One version in a record's history: which request made it, and the status that it brought.

    Invariants: 1 <= version; the request id is not empty.
    """

    version: int
    request_id: str
    status: str

    def __attrs_post_init__(self) -> None:
        check_int(self.version, "the version of a change", 1)
        check_name(self.request_id, "a request")
        check_name(self.status, "a status")

    def __str__(self) -> str:
        return f"version {self.version}: {self.status!r} by request {self.request_id!r}"


@final
@attrs.frozen
class Won:
    """The request was applied, and made this version."""

    version: int


@final
@attrs.frozen
class Superseded:
    """Another request made the version that this one was to make, so it can never be applied."""

    to: Change


@final
@attrs.frozen
class NotYet:
    """The record is still at the version decided on. The request may still arrive, or be sent again unchanged."""


@final
@attrs.frozen
class Forgotten:
    """The record does not remember; nobody knows whether the request was applied."""


RequestOutcome: TypeAlias = Won | Superseded | NotYet | Forgotten


def outcome_of(
    record_version: int, history: tuple[Change, ...], decided_version: int, request_id: str
) -> RequestOutcome:
    """What became of the request `request_id` that was decided on version `decided_version`.

    Args:
        record_version: The version of the record as it is read now, by a read that sees all majority writes; 0 where
            there is no record.
        history: The changes that the record remembers, newest last.
        decided_version: The version that the decision was made on; 0 where there was no record.
        request_id: The id that the write carried.

    Returns:
        What became of it. A history that is not one unbroken run up to the record's version remembers nothing.

    Raises:
        Misuse: A version is negative or no integer, the request id is empty or no string, or the history is not a tuple of
            changes.
    """
    check_tuple(history, Change, "a change")
    check_int(record_version, "the version of a record", 0)
    check_int(decided_version, "the version decided on", 0)
    check_name(request_id, "a request")
    oldest = record_version - len(history) + 1
    if any(change.version != version for version, change in enumerate(history, oldest)):
        return Forgotten()
    if record_version == decided_version:
        return NotYet()
    if not oldest <= decided_version + 1 <= record_version:
        return Forgotten()
    made = history[decided_version + 1 - oldest]
    return Won(made.version) if made.request_id == request_id else Superseded(made)
