"""The effect of an operation that fails with a pymongo error.

An error reveals little of its effect: of 200 writes that failed in failovers, most had been
applied. `tidegate_adapters.mongo.error_codes` has a table of the server's codes and labels; the
table below covers the driver's own errors.

    NotDurable   Any error in a reply's writeConcernError: the write was executed.
    NotApplied   The server is not primary, met a conflict or reports no writes (NoWritesPerformed),
        or the request was never sent.
    Refused      The server rejected the request for good, or it cannot be sent.
    Misuse       The caller broke a contract of the driver, such as using a closed client.
    Ambiguous    Everything else: no reply, garbage, unlisted codes.

Reads use the same outcomes, as in the simulator, although their effect is irrelevant.

With `retryWrites`, the driver repeats a write and raises the last error, or the first. The server
recognises the repeat only if the first request took effect. After a rejection, or an update without
a match, a late first request is still executed. So the outcome depends on the operation's other
requests (`Before`, `tidegate_adapters.mongo.attempts`):

    never sent      NotApplied, or Refused.
    none open       The error as it is.
    open            A rejection becomes `Ambiguous`.
    unknown         The same for a rejection before any lookup, such as "not the primary". Any other
        counts as it is: otherwise a taken key would look like a free one.

A write of many documents (`failure_of_many`) may be partly done before its error. A rejection
counts only if the server reports no writes or refuses the whole request for good, or if the driver
sent none. The server parses a filter before any deletion, so an unparsable one has no effect
(`failure_of_deletions`). An expression could fail at any document; no filter here has one that can.
An unordered bulk may have some updates rejected and others executed: `Refused` if none matched,
`Ambiguous` otherwise.

Reasons name the error and its code, and never the server's texts, which repeat keys, values and
documents.

Known not to work
    - If earlier requests are unknown, one of them may be executed after a rejection.
    - A write without a match also gets `NotDurable`; a read, as after `Ambiguous`, shows which.
    - A request whose answer is neither success nor rejection stays open: a mongos may have given up
      on a shard that executes it later. A mongod adds NoWritesPerformed if it did not write.
    - The server does not remember an update whose values all matched already. If it was the
      driver's repeat, the first request may undo later changes. Programs therefore write a growing
      version.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import Any, Final, TypeAlias, cast, final

from bson.errors import BSONError, InvalidDocument, InvalidStringData
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    InvalidOperation,
    NotPrimaryError,
    OperationFailure,
    ProtocolError,
    PyMongoError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
    WriteConcernError,
    WriteError,
)

from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, Failure, NotApplied, NotDurable, Refused, duplicate_key
from tidegate.model.errors import Misuse
from tidegate_adapters.mongo.error_codes import LABELS, Meaning, Reply, meaning

DriverError: TypeAlias = PyMongoError | BSONError | OverflowError
DRIVER_ERRORS: Final = (PyMongoError, BSONError, OverflowError)
"""All exceptions of a pymongo operation."""


@final
@unique
class Before(Enum):
    """The state of the operation's other requests, apart from the one that its error answers."""

    NEVER = "never"
    """No request was sent at all."""
    NOTHING = "nothing"
    """There was none, or the server rejected each."""
    UNKNOWN = "unknown"
    """There may have been one."""
    OPEN = "open"
    """One may have been executed, or may be later."""


_TRANSIENT: Final = "TransientTransactionError"
"""The transaction is over and had no effect, if the server says so. The driver also uses this label
without an answer, so only the server's own counts.
"""
_UNCONFIRMED: Final = Meaning(NotDurable, "no majority has confirmed it")
_NO_FORM: Final = Meaning(Misuse, "what is asked has no BSON form")
_GARBLED: Final = Meaning(Ambiguous, "garbled reply")
_FAILED: Final = Meaning(Ambiguous, "failed")
_UNKNOWN: Final = 8
_THROWN: Final = "uncaught exception: "
_BY_JAVASCRIPT: Final = Meaning(Refused, "JavaScript has thrown")
"""A thrown value that is no object gets the code for unknown failures of the store, such as a
failing disk. Only its text tells it apart.
"""

_TABLE: Final[tuple[tuple[type[Exception], Meaning], ...]] = (
    (ServerSelectionTimeoutError, Meaning(NotApplied, "no server")),  # the driver never raises it for a retry
    (WaitQueueTimeoutError, Meaning(NotApplied, "no connection", is_early=True)),
    (DocumentTooLarge, Meaning(Refused, "document too large")),
    (InvalidDocument, _NO_FORM),
    (InvalidStringData, _NO_FORM),
    (OverflowError, _NO_FORM),
    (
        InvalidOperation,
        Meaning(
            Misuse,
            "the client cannot be used: was it closed, has its session ended, or does its transaction read from secondaries?",
        ),
    ),
    (ConfigurationError, Meaning(Misuse, "the client cannot be used as it is configured")),
    (NotPrimaryError, Meaning(Ambiguous, "interrupted")),  # by an election or a shutdown
    (ConnectionFailure, Meaning(Ambiguous, "no reply")),
    (ProtocolError, _GARBLED),
    (BSONError, _GARBLED),
    (OperationFailure, _FAILED),
    (PyMongoError, _FAILED),
)
"""The outcome if the server named none; the first matching row applies."""


def failure(error: DriverError, before: Before) -> Failure:
    """The outcome of an operation that raised a pymongo error.

    Args:
        error: From pymongo.
        before: The state of the operation's other requests.

    Raises:
        Misuse: The operation could not be sent at all.
    """
    said = _meaning(error)
    code = _code_of(error)
    reason = f"{said.reason} ({type(error).__name__}{'' if code is None else f' {code}'})"
    if issubclass(said.outcome, Misuse):
        raise Misuse(reason) from None
    if before is Before.NEVER and said.outcome is not Refused:
        return NotApplied(f"nothing was sent: {reason}")
    is_no = said.outcome in {Refused, NotApplied}
    if (before is Before.OPEN and is_no) or (before is Before.UNKNOWN and said.is_early):
        return Ambiguous(f"an earlier request may have been done: {reason}")
    if said.reason == DUPLICATE_KEY:
        index: Mapping[str, Any] = _details_of(error).get("keyPattern", {})
        return duplicate_key(*index)
    return said.outcome(reason)


def failure_of_statement(error: DriverError) -> Failure:
    """The outcome of a transaction's statement, which the driver never repeats; a failed one has no
    effect.
    """
    if _TRANSIENT in _details_of(error).get("errorLabels", ()):
        return NotApplied(f"the transaction is over ({type(error).__name__} {_code_of(error)})")
    if isinstance(error, BulkWriteError):
        return Refused(_of_bulk(error, Before.NOTHING).reason)
    return failure(error, Before.NOTHING)


def failure_of_commit(error: DriverError) -> Failure | bool:
    """The outcome of a commit, which the driver may have sent twice; False if the transaction does
    not exist.
    """
    if _TRANSIENT in _details_of(error).get("errorLabels", ()):
        return False
    said = failure(error, Before.OPEN)
    return said if isinstance(said, NotDurable) else Ambiguous(said.reason)


def retold(failure: Failure) -> Exception:
    """The exception with which a user's `with_transaction` restarts where possible."""
    if isinstance(failure, NotApplied):
        return OperationFailure(failure.reason, None, {"errorLabels": [_TRANSIENT]})
    return failure


def failure_of_many(error: DriverError, before: Before) -> Failure:
    """The outcome of a write of several documents, which may be partly done."""
    if isinstance(error, BulkWriteError):
        return _of_bulk(error, before)
    said = failure(error, before)
    is_of_all = (
        before is Before.NEVER or _labelled(error) or (type(said) is Refused and not isinstance(error, WriteError))
    )
    if type(said) not in {Refused, NotApplied} or is_of_all:
        return said
    return Ambiguous(f"a part may have been done: {said.reason}")


def failure_of_deletions(error: DriverError, before: Before) -> Failure:
    """The outcome of a deletion by a filter that fails at no document."""
    said = failure(error, before)
    is_of_all = isinstance(said, Refused) and _code_of(error) in _OF_A_FILTER
    return said if is_of_all else failure_of_many(error, before)


_OF_A_FILTER: Final = {2, 9, 14, 15, 20, 27, 72, 73, 115, 166, 168, 238, 291, 51091, 51108}
"""Codes for an unparsable filter or a collection without deletions, before any lookup."""


def inserted_beside(error: DriverError) -> int | None:
    """The number inserted by an unordered insert if all errors are taken ids; else None."""
    if not isinstance(error, BulkWriteError) or error.details["writeConcernErrors"] or not _is_of_taken_ids(error):
        return None
    inserted: int = error.details["nInserted"]
    return inserted


def _is_of_taken_ids(error: BulkWriteError) -> bool:
    return all(
        (said := meaning(each["code"], ()))
        and said.reason == DUPLICATE_KEY
        and [*each.get("keyPattern", ())] == ["_id"]
        for each in error.details["writeErrors"]
    )


def _of_bulk(error: BulkWriteError, before: Before) -> Failure:
    """After an insert with a lost reply, a majority may lack the document of a taken id."""
    wrong, done = error.details["writeErrors"], error.details["nMatched"] + error.details["nInserted"]
    codes = sorted({each["code"] for each in wrong})
    if error.details["writeConcernErrors"] and _is_of_taken_ids(error):
        return NotDurable(f"{_UNCONFIRMED.reason} ({type(error).__name__})")
    said = [meaning(code, ()) or _FAILED for code in codes]
    reasons = ", ".join(f"{each.reason} {code}" for each, code in zip(said, codes, strict=True))
    reason = f"{len(wrong)} of a bulk refused, {done} done: {reasons} ({type(error).__name__})"
    is_no = before is not Before.OPEN and not done and all(each.outcome is Refused for each in said)
    return (Refused if is_no else Ambiguous)(reason)


def _labelled(error: DriverError) -> bool:
    return any(isinstance(error, PyMongoError) and error.has_error_label(label) for label in LABELS)


def is_said_by(reply: Reply, error: DriverError) -> bool:
    """Whether this reply, and no later or earlier problem, caused the error."""
    if isinstance(error, BulkWriteError):  # it holds the errors of one request, without a code of its own
        wrong, concern = reply.get("writeErrors", ()), reply.get("writeConcernError")
        is_same = [each["code"] for each in wrong] == [each["code"] for each in error.details["writeErrors"]]
        return is_same and bool(wrong or concern)
    parts: tuple[Reply, ...] = (reply, reply.get("writeConcernError", {}), *reply.get("writeErrors", ()))
    code = _code_of(error)
    return isinstance(error, DocumentTooLarge) or (code is not None and any(part.get("code") == code for part in parts))


def wrote_nothing(reply: Reply) -> bool:
    """Whether a whole reply, unlike a write concern error or a missing one, shows no effect."""
    said = meaning(reply.get("code"), reply.get("errorLabels", ()))
    return "ok" in reply and said is not None and said.outcome in {Refused, NotApplied}


def _meaning(error: DriverError) -> Meaning:
    if isinstance(error, WriteConcernError):
        return _UNCONFIRMED
    code = _code_of(error)
    if code == _UNKNOWN and _THROWN in _details_of(error).get("errmsg", ""):
        return _BY_JAVASCRIPT
    labels = {label for label in LABELS if isinstance(error, PyMongoError) and error.has_error_label(label)}
    said = meaning(code, labels)
    return said or next(row for kind, row in _TABLE if isinstance(error, kind))


def _code_of(error: DriverError) -> int | None:
    code: int | None = _details_of(error).get("code")
    return code


def _details_of(error: DriverError) -> Mapping[str, Any]:
    details: object = getattr(error, "details", None)
    return cast("Mapping[str, Any]", details) if isinstance(details, Mapping) else {}
