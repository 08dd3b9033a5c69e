"""What pymongo's errors say of the effect, as one table.

An error says little about its effect: of 200 writes that failed in failovers, most had been applied. So a row stands
here only if the server or the driver says so, definitely; whatever is not listed is `Ambiguous`, never `Refused`. Reads
fail in the same words, as they do in the simulator: whether a read was done matters to nobody.

    NotDurable   every error in the writeConcernError of a reply: the write was carried out
    NotApplied   the server said that it is not the primary or has met a conflict, or the request was never sent
    Refused      the server said no to the request itself, or it cannot be sent as it is
    Misuse       the caller broke a contract of the driver, such as using a client that was closed
    Ambiguous    everything else: no reply, garbage instead of one, codes that are not listed

With `retryWrites`, the driver sends a write twice and raises what came last. "Not the primary" then says nothing of the
first try, and `retried` holds: a step-down between a lost reply and its retry would otherwise be taken for "not done".
Codes that are found out while the write is carried out (112, 121, 388, 11000, ...) come after the server has looked whether
it knows the request, so they keep their meaning.

Reasons name the error and its code, and never quote the server: its texts repeat keys, values and whole documents.

Known not to work
    - A right that is withdrawn between a lost reply and its retry by the driver is `Refused`, although it may be done.
    - `NotDurable` is also what a write gets that matched nothing; who reads back, as after `Ambiguous`, learns which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast, final

import attrs
from bson.errors import BSONError, InvalidDocument, InvalidStringData
from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    DuplicateKeyError,
    InvalidOperation,
    NotPrimaryError,
    OperationFailure,
    ProtocolError,
    PyMongoError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
    WriteConcernError,
)

from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, Failure, NotApplied, NotDurable, Refused, duplicate_key
from tidegate.model.errors import Misuse

__all__ = ["DRIVER_ERRORS", "DriverError", "failure"]


DriverError: TypeAlias = PyMongoError | BSONError | OverflowError
DRIVER_ERRORS: Final = (PyMongoError, BSONError, OverflowError)
"""All that an operation of pymongo raises of its own."""

_NOT_PRIMARY: Final = (
    10107,
    13435,
    10058,
    189,
)  # NotWritablePrimary, NotPrimaryNoSecondaryOk, legacy, PrimarySteppedDown
_REFUSALS: Final = {
    2: "bad value",
    9: "failed to parse",
    13: "not authorised",
    14: "wrong type",
    15: "nested too deeply",
    18: "not authenticated",
    20: "not a replica set",
    52: "a key begins with $",
    121: "validation failed",
    171: "an index cannot combine two arrays",
    10334: "document too large",
    14031: "out of disk space",
    17419: "document too large",
    17420: "document too large",
}


@final
@attrs.frozen
class _Row:
    """Errors of one kind.

    Attributes:
        error: Of this class, or of one that derives from it.
        outcome: What they say of the effect.
        reason: The same for people.
        codes: With one of these codes; with any, or none, if empty.
        retried: What they say where the driver may have sent the request before; `outcome` if None.
    """

    error: type[Exception]
    outcome: type[Failure | Misuse]
    reason: str
    codes: tuple[int, ...] = ()
    retried: type[Failure] | None = None


_TABLE: Final = (
    _Row(WriteConcernError, NotDurable, "no majority has confirmed it"),
    _Row(DuplicateKeyError, Refused, DUPLICATE_KEY),
    _Row(PyMongoError, NotApplied, "not the primary", _NOT_PRIMARY, retried=Ambiguous),
    _Row(OperationFailure, NotApplied, "overloaded", (462,), retried=Ambiguous),
    _Row(OperationFailure, NotApplied, "write conflict", (112,)),
    _Row(OperationFailure, NotApplied, "too large for the store's cache", (388,)),  # the next time it may be taken
    *(_Row(OperationFailure, Refused, reason, (code,)) for code, reason in _REFUSALS.items()),
    _Row(ServerSelectionTimeoutError, NotApplied, "no server"),  # the driver never raises it for a second try
    _Row(WaitQueueTimeoutError, NotApplied, "no connection", retried=Ambiguous),
    _Row(DocumentTooLarge, Refused, "document too large"),
    _Row(InvalidDocument, Misuse, "what is asked has no BSON form"),
    _Row(InvalidStringData, Misuse, "what is asked has no BSON form"),
    _Row(OverflowError, Misuse, "what is asked has no BSON form"),
    _Row(InvalidOperation, Misuse, "the client cannot be used: was it closed?"),
    _Row(ConfigurationError, Misuse, "the client cannot be used as it is configured"),
    _Row(NotPrimaryError, Ambiguous, "interrupted"),  # by an election or a shutdown
    _Row(ConnectionFailure, Ambiguous, "no reply"),
    _Row(ProtocolError, Ambiguous, "garbled reply"),
    _Row(BSONError, Ambiguous, "garbled reply"),
    _Row(OperationFailure, Ambiguous, "failed"),
    _Row(PyMongoError, Ambiguous, "failed"),
)
"""The first row that fits decides."""


def failure(error: DriverError, *, retries: bool) -> Failure:
    """What an error of pymongo says of the operation that raised it.

    Args:
        error: What pymongo raised.
        retries: Whether the driver may have sent the request twice (`retryWrites`).

    Returns:
        The reply to the program.

    Raises:
        Misuse: The operation could not be asked for at all.
    """
    code = _code_of(error)
    row = next(row for row in _TABLE if isinstance(error, row.error) and (not row.codes or code in row.codes))
    if row.error is DuplicateKeyError:
        index: Mapping[str, Any] = _details_of(error).get("keyPattern", {})
        return duplicate_key(*index)
    reason = f"{row.reason} ({type(error).__name__}{'' if code is None else f' {code}'})"
    if issubclass(row.outcome, Misuse):
        raise Misuse(reason) from None
    return (row.retried if retries and row.retried else row.outcome)(reason)


def _code_of(error: DriverError) -> int | None:
    code: int | None = _details_of(error).get("code")
    return code


def _details_of(error: DriverError) -> Mapping[str, Any]:
    """What the server said, where it said anything."""
    details: object = getattr(error, "details", None)
    return cast("Mapping[str, Any]", details) if isinstance(details, Mapping) else {}
