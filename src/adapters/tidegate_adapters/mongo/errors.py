"""What pymongo's errors say of the effect.

An error says little about its effect: of 200 writes that failed in failovers, most had been applied. What the server says
is a table of its own, by code and label (`tidegate_adapters.mongo.error_codes`); what only the driver knows is the one below.

    NotDurable   every error in the writeConcernError of a reply: the write was carried out
    NotApplied   the server said that it is not the primary, has met a conflict or has written nothing (NoWritesPerformed),
                 or the request was never sent
    Refused      the server said no to the request itself, for good, or it cannot be sent as it is
    Misuse       the caller broke a contract of the driver, such as using a client that was closed
    Ambiguous    everything else: no reply, garbage instead of one, codes that are not listed

Reads fail in the same words, as they do in the simulator: whether a read was done matters to nobody.

With `retryWrites`, the driver sends a write again and raises what came last, or first. The server recognises the second
request only if the first one was done: after a no, and after an update that matched nothing, a first request that is late
is carried out all the same. So it counts what is known of the other requests for the same operation (`Before`,
`tidegate_adapters.mongo.attempts`):

    never sent      NotApplied, or Refused: whatever failed, failed on the way
    nothing open    the error is taken as it is
    open            any no is `Ambiguous`
    not known       what is said before anything is looked up, such as "not the primary", says nothing of an earlier
                    request. Any other no is taken as it is: else a key that is stored already could never be told from
                    one that is not

A write of many documents (`failure_of_many`) may have been done in part before anything was said of it. A no is believed only
where the server says that nothing was written, or turns the whole request away for good, or where nothing was sent. A filter is
read before anything is deleted, so where it cannot be read nothing is (`failure_of_deletions`), unless it has an expression, which
may fail at any document: here none has one that can. A bulk without an order says a no to some of its updates and carries the others out: `Refused` if it matched none, `Ambiguous`
if it did.

Reasons name the error and its code, and never quote the server: its texts repeat keys, values and whole documents.

Known not to work
    - Where it is not known whether there was a request before, that one may be done after a no.
    - `NotDurable` is also what a write gets that matched nothing; who reads back, as after `Ambiguous`, learns which.
    - A request that was answered, but neither with a success nor with a no, stays open: a mongos may have given up on a
      shard that carries it out later. A mongod says NoWritesPerformed where it has done nothing.
    - The server does not remember an update that changed nothing, for all was as asked already. If that was the driver's
      second request, its first one may undo what others change later. Programs raise a version in what they write.
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
"""All that an operation of pymongo raises of its own."""


@final
@unique
class Before(Enum):
    """What became of the driver's other requests for the operation, besides the one that its error answers."""

    NEVER = "never"
    """No request was sent, not even one that the error could answer."""
    NOTHING = "nothing"
    """There was none, or the server said of each that it wrote nothing."""
    UNKNOWN = "unknown"
    """There may have been one."""
    OPEN = "open"
    """There was one, which may have been done, or be done later."""


_TRANSIENT: Final = "TransientTransactionError"
"""The server says by this that the transaction is over, and nothing of it was done; the driver also where it has no answer, so
only the server's own word counts."""
_UNCONFIRMED: Final = Meaning(NotDurable, "no majority has confirmed it")
_NO_FORM: Final = Meaning(Misuse, "what is asked has no BSON form")
_GARBLED: Final = Meaning(Ambiguous, "garbled reply")
_FAILED: Final = Meaning(Ambiguous, "failed")
_UNKNOWN: Final = 8
_THROWN: Final = "uncaught exception: "
_BY_JAVASCRIPT: Final = Meaning(Refused, "JavaScript has thrown")
"""What `$where` and `$function` throw that is no object has the code of whatever the server's store has no code for, such as a
disk that fails; its words alone tell them apart."""

_TABLE: Final[tuple[tuple[type[Exception], Meaning], ...]] = (
    (ServerSelectionTimeoutError, Meaning(NotApplied, "no server")),  # the driver never raises it for a second try
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
"""What an error says of its own request, if the server has not said it. The first row that fits decides."""


def failure(error: DriverError, before: Before) -> Failure:
    """What an error of pymongo says of the operation that raised it.

    Args:
        error: What pymongo raised.
        before: What is known of the other requests for the same operation.

    Returns:
        The reply to the program.

    Raises:
        Misuse: The operation could not be asked for at all.
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
    """The same of a statement of a transaction, which no driver sends again, and of which nothing stays if it fails.

    Args:
        error: What pymongo raised.

    Returns:
        The reply to the program. `NotApplied` too where the server says that it has ended the transaction.

    Raises:
        Misuse: The statement could not be asked for at all.
    """
    if _TRANSIENT in _details_of(error).get("errorLabels", ()):
        return NotApplied(f"the transaction is over ({type(error).__name__} {_code_of(error)})")
    if isinstance(error, BulkWriteError):
        return Refused(_of_bulk(error, Before.NOTHING).reason)
    return failure(error, Before.NOTHING)


def failure_of_commit(error: DriverError) -> Failure | bool:
    """The same of a commit, which the driver may have sent twice.

    Args:
        error: What pymongo raised.

    Returns:
        The reply to the program: False where the server says that there is no such transaction, for good.

    Raises:
        Misuse: The commit could not be asked for at all.
    """
    if _TRANSIENT in _details_of(error).get("errorLabels", ()):
        return False
    said = failure(error, Before.OPEN)
    return said if isinstance(said, NotDurable) else Ambiguous(said.reason)


def retold(failure: Failure) -> Exception:
    """What whoever began a transaction with the driver is told, so that `with_transaction` begins it anew where that is right.

    Args:
        failure: Of a statement in it (`failure_of_statement`).
    """
    if isinstance(failure, NotApplied):
        return OperationFailure(failure.reason, None, {"errorLabels": [_TRANSIENT]})
    return failure


def failure_of_many(error: DriverError, before: Before) -> Failure:
    """The same of a write that may change several documents: a part of it may have been done.

    Args:
        error: What pymongo raised.
        before: What is known of the other requests for the same operation.

    Returns:
        The reply to the program.

    Raises:
        Misuse: The operation could not be asked for at all.
    """
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
    """The same of a deletion of many, by a filter that no document makes fail.

    Args:
        error: What pymongo raised.
        before: What is known of the other requests for the same operation.

    Returns:
        The reply to the program: `Refused` where the server will never carry the filter out.

    Raises:
        Misuse: The operation could not be asked for at all.
    """
    said = failure(error, before)
    is_of_all = isinstance(said, Refused) and _code_of(error) in _OF_A_FILTER
    return said if is_of_all else failure_of_many(error, before)


_OF_A_FILTER: Final = {2, 9, 14, 15, 20, 27, 72, 73, 115, 166, 168, 238, 291, 51091, 51108}
"""What the server says where it cannot read a filter, or does not delete in such a collection: before it looks at any document."""


def inserted_beside(error: DriverError) -> int | None:
    """How many documents were inserted beside those whose ids were taken; None where something else is wrong.

    Args:
        error: What pymongo raised for an insert of many, without an order.
    """
    if not isinstance(error, BulkWriteError) or error.details["writeConcernErrors"] or not _is_of_taken_ids(error):
        return None
    inserted: int = error.details["nInserted"]
    return inserted


def _is_of_taken_ids(error: BulkWriteError) -> bool:
    """Is nothing wrong but ids that were taken, if that?"""
    return all(
        (said := meaning(each["code"], ()))
        and said.reason == DUPLICATE_KEY
        and [*each.get("keyPattern", ())] == ["_id"]
        for each in error.details["writeErrors"]
    )


def _of_bulk(error: BulkWriteError, before: Before) -> Failure:
    """What it comes to: each of its updates was done, matched nothing, or was refused.

    Where an id is taken, its document stands, and a majority may not have it: those of an insert whose reply was lost.
    """
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
    """Does the server say of the request as a whole that it wrote nothing?"""
    return any(isinstance(error, PyMongoError) and error.has_error_label(label) for label in LABELS)


def is_said_by(reply: Reply, error: DriverError) -> bool:
    """Tell whether the driver raised the error for this reply, and not for want of a connection after it, or one before.

    Args:
        reply: What came of a request.
        error: What the driver raised.
    """
    if isinstance(error, BulkWriteError):  # of one request, it holds what was wrong there, and no code of its own
        wrong, concern = reply.get("writeErrors", ()), reply.get("writeConcernError")
        is_same = [each["code"] for each in wrong] == [each["code"] for each in error.details["writeErrors"]]
        return is_same and bool(wrong or concern)
    parts: tuple[Reply, ...] = (reply, reply.get("writeConcernError", {}), *reply.get("writeErrors", ()))
    code = _code_of(error)
    return isinstance(error, DocumentTooLarge) or (code is not None and any(part.get("code") == code for part in parts))


def wrote_nothing(reply: Reply) -> bool:
    """Tell whether the server says that a request has changed nothing.

    Args:
        reply: What came of it: a whole reply of the server, the error of its write concern, or what pymongo makes of no
            reply. Only in the first of them a no is one.
    """
    said = meaning(reply.get("code"), reply.get("errorLabels", ()))
    return "ok" in reply and said is not None and said.outcome in {Refused, NotApplied}


def _meaning(error: DriverError) -> Meaning:
    """What the error says of its own request."""
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
    """What the server said, where it said anything."""
    details: object = getattr(error, "details", None)
    return cast("Mapping[str, Any]", details) if isinstance(details, Mapping) else {}
