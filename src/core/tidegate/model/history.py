"""The versions that a record remembers, and the outcome of a request whose reply was lost.

A write is a compare-and-set on the version of its decision, so a resent write finds no match even
if the first one won. Each write therefore stores its request id under the version that it made
(RIFL: Lee et al. 2015, "Implementing linearizability at large scale and low latency", section 3).
The record remembers its last HISTORY_MAX versions.

    own id at the version after the one decided on         Won
    another's id there                                     Superseded: versions only grow, so it can
        never be applied now
    the record is still at the version decided on          NotYet: it may still arrive; resend it
        with the same id
    further back than remembered, or the history has gaps  Forgotten: unknown, never lost

Laws
    H1  `outcome_of` never returns Won for a request that has not won, Superseded for one that has,
        or NotYet once another version exists.
    H2  A request for one of the last HISTORY_MAX versions, or for the next, is never Forgotten.

Known not to work
    - A record that is deleted and created again starts at version 1: outcomes of requests to the
      former record are wrong.
    - A read older than the decision proves nothing: `outcome_of` needs a read that includes
      majority writes. If the record is older than the decision, it returns Forgotten.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.model.values import check_int, check_name, check_tuple

HISTORY_MAX: Final = 16


@final
@attrs.frozen
class Change:
    """One version: its request and the resulting status. Invariant: 1 <= version."""

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
    """The request was applied and made this version."""

    version: int


@final
@attrs.frozen
class Superseded:
    """Another request made the version that this one was to make."""

    to: Change


@final
@attrs.frozen
class NotYet:
    """The record is still at the version decided on. The request may still arrive; resend it
    unchanged.
    """


@final
@attrs.frozen
class Forgotten:
    """The record no longer remembers."""


RequestOutcome: TypeAlias = Won | Superseded | NotYet | Forgotten


def outcome_of(
    record_version: int, history: tuple[Change, ...], decided_version: int, request_id: str
) -> RequestOutcome:
    """The outcome of a request.

    Args:
        record_version: The current version, by a read that includes all majority writes; 0 if there
            is no record.
        history: The changes that the record remembers, newest last. A history with gaps counts as
            empty.
        decided_version: The version of the decision; 0 if there was no record.
        request_id: The id that the write carried.
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
