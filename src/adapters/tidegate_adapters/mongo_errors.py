"""What pymongo's errors say of the effect, as one table.

An error says little about its effect: of 200 writes that failed in failovers, most had been applied. So a row stands
here only if the server or the driver says so, definitely; whatever is not listed is `Ambiguous`, never `Refused`. Reads
fail in the same words, as they do in the simulator: whether a read was done matters to nobody.

    NotDurable   every error in the writeConcernError of a reply: the write was carried out
    NotApplied   the server said that it is not the primary, has met a conflict or has written nothing (NoWritesPerformed),
                 or the request was never sent
    Refused      the server said no to the request itself, for good, or it cannot be sent as it is
    Misuse       the caller broke a contract of the driver, such as using a client that was closed
    Ambiguous    everything else: no reply, garbage instead of one, codes that are not listed

With `retryWrites`, the driver sends a write again and raises what came last. The server recognises the second request only
if the first one was done: after a no, and after an update that matched nothing, a first request that is late is
carried out all the same. So it counts what is known of the requests before (`Before`, `tidegate_adapters.mongo_attempts`):

    nothing open    the error is taken as it is
    open            any no is `Ambiguous`
    not known       "not the primary" says nothing of the first request. Any other no is taken as it is: else a key
                    that is stored already could never be told from one that is not

Reasons name the error and its code, and never quote the server: its texts repeat keys, values and whole documents.

Known not to work
    - Where it is not known whether there was a request before, that one may be done after a no.
    - `NotDurable` is also what a write gets that matched nothing; who reads back, as after `Ambiguous`, learns which.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
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

__all__ = ["DRIVER_ERRORS", "Before", "DriverError", "failure", "wrote_nothing"]


DriverError: TypeAlias = PyMongoError | BSONError | OverflowError
DRIVER_ERRORS: Final = (PyMongoError, BSONError, OverflowError)
"""All that an operation of pymongo raises of its own."""


@final
@unique
class Before(Enum):
    """What became of the driver's requests before the one that it raised the error of, for the same operation."""

    NOTHING = "nothing"
    """There was none, or the server said of each that it wrote nothing."""
    UNKNOWN = "unknown"
    """There may have been one."""
    OPEN = "open"
    """There was one, which may have been done, or be done later."""


_NO_WRITES: Final = "NoWritesPerformed"
_NOT_PRIMARY: Final = (10107, 13435, 10058, 189)
"""NotWritablePrimary, NotPrimaryNoSecondaryOk, its form before 3.6, and PrimarySteppedDown."""
_OVERLOADED: Final = 462
_REFUSALS: Final = {
    2: "bad value",
    9: "failed to parse",
    13: "not authorised",
    14: "wrong type",
    15: "nested too deeply",
    16: "a value has a wrong length",
    18: "not authenticated",
    20: "not a replica set",
    22: "no valid BSON",
    28: "a field lies within a value that is no document",
    40: "updates conflict",
    52: "a key begins with $",
    53: "not a value for an _id",
    54: "no single value",
    56: "a field has no name",
    57: "a key has a dot",
    59: "no such command",
    61: "the shard key is missing",
    66: "a field that never changes",
    72: "options that the server does not take",
    73: "not a name of a collection",
    115: "not supported here",
    116: "document too large for the capped collection",
    121: "validation failed",
    123: "not a replica set",
    166: "not supported on a view",
    167: "an option that no view has",
    168: "no such operator",
    171: "an index cannot combine two arrays",
    238: "not implemented",
    241: "a value cannot be converted",
    263: "not supported in a transaction",
    322: "not in this version of the API",
    323: "not in this version of the API",
    324: "not in this version of the API",
    10334: "document too large",
    14031: "out of disk space",
    17419: "document too large",
    17420: "document too large",
    40324: "no such stage",
    40415: "no such option",
    40573: "a change stream begins with $changeStream",
}
"""What the same request meets again, however often it is sent."""
_OPEN: Final = {
    6: "a server within the cluster cannot be reached",
    7: "a server within the cluster is not known",
    24: "no lock in time",
    43: "the cursor is gone",
    50: "too late",
    51: "somebody has to look after the server",
    63: "the shard's version is stale",
    64: "no majority in time",
    79: "the write concern is not known",
    89: "no reply within the cluster",
    91: "shutting down",
    100: "the write concern cannot be met",
    133: "no server to read from",
    134: "no majority to read from yet",
    150: "the shard's version is stale",
    216: "an election is under way",
    234: "the change stream is to be begun again",
    251: "no such transaction",
    262: "too late",
    280: "the change stream cannot go on",
    286: "the change stream's history is lost",
    391: "the credentials have expired",
    9001: "no reply within the cluster",
    11600: "interrupted by a shutdown",
    11601: "interrupted",
    11602: "interrupted by an election",
    13436: "recovering",
}
"""What says nothing of the effect; they would be `Ambiguous` without their rows, with a poorer reason."""


@final
@attrs.frozen
class _Row:
    """Errors of one kind.

    Attributes:
        error: Of this class, or of one that derives from it.
        outcome: What they say of the effect.
        reason: The same for people.
        codes: With one of these codes; with any, or none, if empty.
        label: With this label; with any, or none, if empty.
        unknown: What they say where the driver may have sent the request before; `outcome` if None.
    """

    error: type[Exception]
    outcome: type[Failure | Misuse]
    reason: str
    codes: tuple[int, ...] = ()
    label: str = ""
    unknown: type[Failure] | None = None

    def fits(self, error: DriverError) -> bool:
        """Tell whether the row is for this error."""
        return (
            isinstance(error, self.error)
            and (not self.codes or _code_of(error) in self.codes)
            and (not self.label or (isinstance(error, PyMongoError) and error.has_error_label(self.label)))
        )


_TABLE: Final = (
    _Row(WriteConcernError, NotDurable, "no majority has confirmed it"),
    _Row(DuplicateKeyError, Refused, DUPLICATE_KEY),
    *(_Row(OperationFailure, Refused, reason, (code,)) for code, reason in _REFUSALS.items()),
    _Row(
        PyMongoError, NotApplied, "nothing was written", label=_NO_WRITES
    ),  # nor by any request before it: the driver says so of all
    _Row(PyMongoError, NotApplied, "not the primary", _NOT_PRIMARY, unknown=Ambiguous),
    _Row(OperationFailure, NotApplied, "overloaded", (_OVERLOADED,), unknown=Ambiguous),
    _Row(OperationFailure, NotApplied, "write conflict", (112,)),
    _Row(OperationFailure, NotApplied, "too large for the store's cache", (388,)),  # the next time it may be taken
    *(_Row(PyMongoError, Ambiguous, reason, (code,)) for code, reason in _OPEN.items()),
    _Row(ServerSelectionTimeoutError, NotApplied, "no server"),  # the driver never raises it for a second try
    _Row(WaitQueueTimeoutError, NotApplied, "no connection", unknown=Ambiguous),
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


def failure(error: DriverError, before: Before) -> Failure:
    """What an error of pymongo says of the operation that raised it.

    Args:
        error: What pymongo raised.
        before: What is known of earlier requests for the same operation.

    Returns:
        The reply to the program.

    Raises:
        Misuse: The operation could not be asked for at all.
    """
    row = next(row for row in _TABLE if row.fits(error))
    code = _code_of(error)
    reason = f"{row.reason} ({type(error).__name__}{'' if code is None else f' {code}'})"
    if issubclass(row.outcome, Misuse):
        raise Misuse(reason) from None
    if before is Before.OPEN and row.outcome is not NotDurable:
        return Ambiguous(f"an earlier request may have been done: {reason}")
    if row.error is DuplicateKeyError:
        index: Mapping[str, Any] = _details_of(error).get("keyPattern", {})
        return duplicate_key(*index)
    return (row.unknown if before is Before.UNKNOWN and row.unknown else row.outcome)(reason)


def wrote_nothing(reply: Mapping[str, Any]) -> bool:
    """Tell whether the server says that a request has changed nothing.

    Args:
        reply: Its reply, an error; or what pymongo makes of no reply.
    """
    return reply.get("code") in {*_NOT_PRIMARY, _OVERLOADED} or _NO_WRITES in reply.get("errorLabels", ())


def _code_of(error: DriverError) -> int | None:
    code: int | None = _details_of(error).get("code")
    return code


def _details_of(error: DriverError) -> Mapping[str, Any]:
    """What the server said, where it said anything."""
    details: object = getattr(error, "details", None)
    return cast("Mapping[str, Any]", details) if isinstance(details, Mapping) else {}
