"""Errors that no test server can raise: codes and labels of the specifications and the server."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, Final, TypeAlias

import pytest
from bson.errors import InvalidBSON
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    CursorNotFound,
    DocumentTooLarge,
    DuplicateKeyError,
    ExecutionTimeout,
    InvalidOperation,
    NetworkTimeout,
    NotPrimaryError,
    OperationFailure,
    ProtocolError,
    PyMongoError,
    WaitQueueTimeoutError,
    WriteConcernError,
    WriteError,
    WTimeoutError,
)

from tidegate.model.effects import Ambiguous, Failure, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse
from tidegate_adapters.mongo.attempts import Requests, before
from tidegate_adapters.mongo.error_codes import CODES, LABELS, SILENT_LABELS
from tidegate_adapters.mongo.errors import (
    Before,
    DriverError,
    failure,
    failure_of_deletions,
    failure_of_many,
    inserted_beside,
)

Raw: TypeAlias = dict[str, Any]
Outcome: TypeAlias = type[Failure]


def said(code: int, kind: type[OperationFailure] = OperationFailure, **more: Any) -> OperationFailure:
    return kind(str(code), code, {"ok": 0.0, "code": code, **more})


# From the drivers' specifications (mongodb/specifications at 92b3c0b: retryable reads and writes,
# transactions, change streams, overload): every code in their tests and texts, and every label.


SPECIFIED: Final[Mapping[Outcome, tuple[int, ...]]] = {
    NotApplied: (10107, 13435, 189, 112, 391, 462),
    Refused: (2, 18, 263, 40324, 40573),
    Ambiguous: (
        *(1, 6, 7, 8, 24, 43, 50, 51, 63, 64, 79, 89, 91, 100, 133, 134, 150, 216, 234, 246, 251, 262, 267, 280, 286),
        *(9001, 11600, 11601, 11602, 13388, 13436),
    ),
}
"""As the server's own answer, outside a transaction."""

CONCERNS: Final = (50, 64, 79, 91, 100, 189, 11600, 11601, 11602)
"""In a write concern error."""

LABELLED: Final[tuple[tuple[int, tuple[str, ...], Outcome], ...]] = (
    (64, ("RetryableWriteError", "NoWritesPerformed"), NotApplied),
    (91, ("RetryableWriteError", "NoWritesPerformed"), NotApplied),
    (10107, ("RetryableWriteError", "NoWritesPerformed"), NotApplied),
    (462, ("SystemOverloadedError", "RetryableError"), NotApplied),
    (2, ("SystemOverloadedError", "RetryableError"), NotApplied),
    (112, ("SystemOverloadedError", "RetryableError"), NotApplied),
    (91, ("SystemOverloadedError", "RetryableError", "NoWritesPerformed"), NotApplied),
    (2, ("SystemOverloadedError",), Refused),
    (2, ("NoWritesPerformed",), Refused),
    (24, ("TransientTransactionError",), Ambiguous),
    (251, ("TransientTransactionError",), Ambiguous),
    (91, ("RetryableWriteError", "UnknownTransactionCommitResult"), Ambiguous),
    (50, ("UnknownTransactionCommitResult",), Ambiguous),
    (7, ("ResumableChangeStreamError",), Ambiguous),
    (280, ("NonResumableChangeStreamError",), Ambiguous),
)

NAMED: Final = {
    *("RetryableWriteError", "NoWritesPerformed", "TransientTransactionError", "UnknownTransactionCommitResult"),
    *("ResumableChangeStreamError", "NonResumableChangeStreamError", "RetryableError", "SystemOverloadedError"),
}


def test_each_code_of_the_drivers_specifications_has_a_reason() -> None:
    for outcome, code in ((kind, code) for kind, codes in SPECIFIED.items() for code in codes):
        reply = failure(said(code), Before.NOTHING)

        assert type(reply) is outcome, code
        assert reply.reason.startswith(CODES[code].reason)
        for label in SILENT_LABELS:
            assert failure(said(code, errorLabels=[label]), Before.NOTHING) == reply


def test_in_the_error_of_a_write_concern_each_code_says_that_it_was_done() -> None:
    kinds, before = (WriteConcernError, WTimeoutError), set(Before) - {Before.NEVER}
    for code, kind, known, label in product({*CONCERNS, *CODES}, kinds, before, NAMED):
        assert type(failure(kind("", code, {"code": code, "errorLabels": [label]}), known)) is NotDurable, code


def test_every_label_has_a_reason() -> None:
    assert {*LABELS, *SILENT_LABELS} == NAMED


@pytest.mark.parametrize(("code", "labels", "outcome"), LABELLED)
def test_labels_are_believed_as_they_are_specified(code: int, labels: tuple[str, ...], outcome: Outcome) -> None:
    assert type(failure(said(code, errorLabels=list(labels)), Before.NOTHING)) is outcome


# From the server's error list (error_codes.yml at 007ba93), by category, without codes used only
# between servers.


PASSING: Final[Mapping[str, tuple[int, ...]]] = {
    "NetworkError": (6, 7, 89, 9001),
    "NetworkTimeoutError": (89, 202),
    "Interruption": (*(24, 50, 237, 262, 279, 281, 282, 290, 355, 453, 11600, 11601, 11602, 46841, 91331, 10045600),),
    "NotPrimaryError": (189, 10107, 11602, 13435, 13436),
    "StaleShardVersionError": (150, 13388),
    "WriteConcernError": (64, 75, 79, 100),
    "ShutdownError": (91, 11600),
    "CancellationError": (90, 91, 310, 355, 11600, 46841),
    "ExceededTimeLimitError": (50, 202, 262, 290, 407),
    "SnapshotError": (239, 246, 250, 272),
    "RetriableError": (
        *(6, 7, 89, 91, 134, 189, 262, 358, 402, 406, 407, 412, 453, 462, 9001, 10107, 11600, 11602, 13435, 13436),
        *(50915, 91331, 10045600),
    ),
    "CursorInvalidatedError": (43, 96, 175, 237, 314),
    "SystemOverloadedError": (433, 449, 450, 462),
}
FINAL: Final[Mapping[str, tuple[int, ...]]] = {
    "ValidationError": (22, 378),
    "IDLParseError": (40413, 40414, 40415),
    "VersionedAPIError": (322, 323, 324, 347),
}
NOT_THE_PRIMARY_BEFORE_IT_BEGAN: Final = {189, 10107, 13435}


def test_what_passes_is_never_refused() -> None:
    """Only errors before a write begins count as "not applied"."""
    for code in {code for codes in PASSING.values() for code in codes}:
        outcome = NotApplied if code in NOT_THE_PRIMARY_BEFORE_IT_BEGAN | {462} else Ambiguous
        assert CODES[code].outcome is outcome, code


LASTING: Final = (
    *(2, 9, 10, 13, 14, 15, 16, 18, 20, 21, 22, 26, 28, 29, 30, 40, 52, 53, 54, 55, 56, 57, 59, 61, 66, 72, 73, 76),
    *(101, 111, 115, 116, 121, 123, 146, 166, 167, 168, 171, 201, 238, 241, 257, 260, 263, 291, 292, 334, 352, 357),
    *(376, 411, 10003, 10334, 11000, 11001, 12582, 14031, 17280, 17419, 17420, 40324, 40573, 50768),
    *(13027, 13068, 13297, 16755, 16766, 16804, 17261, 17262, 51091, 51108),
    *(code for codes in FINAL.values() for code in codes),
)


def test_what_the_server_will_always_say_is_refused() -> None:
    """Otherwise programs would retry forever."""
    assert [code for code in LASTING if type(failure(said(code), Before.NOTHING)) is not Refused] == []


@pytest.mark.parametrize("code", [0, 424242, 2**31 - 1, -1])
def test_a_code_that_nobody_knows_says_nothing(code: int) -> None:
    assert code not in CODES
    assert type(failure(said(code), Before.NOTHING)) is Ambiguous


# Driver errors


NOTHING_WRITTEN: Final[Raw] = {"errorLabels": ["RetryableWriteError", "NoWritesPerformed"]}
TURNED_AWAY: Final[Raw] = {"errorLabels": ["SystemOverloadedError", "RetryableError"]}


@pytest.mark.parametrize(
    ("error", "outcome", "unknown", "open_", "never"),
    [
        (said(189, WriteError), NotApplied, Ambiguous, Ambiguous, NotApplied),
        (NotPrimaryError("10107", {"code": 10107}), NotApplied, Ambiguous, Ambiguous, NotApplied),
        (said(462), NotApplied, Ambiguous, Ambiguous, NotApplied),
        (said(2, **TURNED_AWAY), NotApplied, Ambiguous, Ambiguous, NotApplied),
        (WaitQueueTimeoutError("no connection"), NotApplied, Ambiguous, Ambiguous, NotApplied),
        *((said(code), NotApplied, NotApplied, Ambiguous, NotApplied) for code in (112, 388)),
        *((said(code), Refused, Refused, Ambiguous, Refused) for code in (121, 14, 73)),
        (DuplicateKeyError("", 11000, {"code": 11000, "keyPattern": {"_id": 1}}), Refused, Refused, Ambiguous, Refused),
        (DocumentTooLarge("large"), Refused, Refused, Ambiguous, Refused),
        (NotPrimaryError("91", {"code": 91, **NOTHING_WRITTEN}), NotApplied, NotApplied, Ambiguous, NotApplied),
        (said(424242, **NOTHING_WRITTEN), NotApplied, NotApplied, Ambiguous, NotApplied),
        (said(13, **NOTHING_WRITTEN), Refused, Refused, Ambiguous, Refused),
        *(
            (error, Ambiguous, Ambiguous, Ambiguous, NotApplied)
            for error in (
                ProtocolError("garbage"),
                InvalidBSON("garbage"),
                said(43, CursorNotFound),
                said(50, ExecutionTimeout),
                NetworkTimeout("late"),
                AutoReconnect("gone"),
                PyMongoError("new"),
            )
        ),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else f"{type(value).__name__} {value}"[:30],
)
def test_the_table_has_a_row_for_everything(
    error: DriverError, outcome: Outcome, unknown: Outcome, open_: Outcome, never: Outcome
) -> None:
    """So is any refusal if an earlier request may have been applied."""
    expected = {Before.NOTHING: outcome, Before.UNKNOWN: unknown, Before.OPEN: open_, Before.NEVER: never}

    assert {known: type(failure(error, known)) for known in Before} == expected


@pytest.mark.parametrize("error", [InvalidOperation("closed"), OverflowError("8 bytes")], ids=repr)
def test_what_could_not_be_asked_is_a_misuse(error: DriverError) -> None:
    with pytest.raises(Misuse):
        failure(error, Before.UNKNOWN)


# Writes of many


def in_bulk(
    *codes: int, matched: int = 0, inserted: int = 0, key: str | None = "_id", concern: int | None = None
) -> BulkWriteError:
    wrong: list[dict[str, Any]] = [
        {"index": index, "code": code, "errmsg": "as the server says", **({"keyPattern": {key: 1}} if key else {})}
        for index, code in enumerate(codes)
    ]
    concerns = [] if concern is None else [{"code": concern, "errmsg": "as the server says"}]
    return BulkWriteError(
        {"writeErrors": wrong, "writeConcernErrors": concerns, "nMatched": matched, "nInserted": inserted}
    )


@pytest.mark.parametrize(
    ("error", "inserted"),
    [
        (in_bulk(11000, inserted=3), 3),
        (in_bulk(11000, 11000), 0),
        (in_bulk(11000, 121, inserted=3), None),
        (in_bulk(11000, inserted=3, key="a"), None),
        (in_bulk(11000, inserted=3, key=None), None),
        (in_bulk(11000, inserted=3, concern=64), None),
        (in_bulk(inserted=3, concern=64), None),
        (AutoReconnect("gone"), None),
    ],
    ids=[
        "one",
        "all",
        "another is invalid",
        "another index",
        "nobody says which",
        "not durable",
        "none, not durable",
        "no reply",
    ],
)
def test_ids_that_were_taken_are_told_from_all_else(error: DriverError, inserted: int | None) -> None:
    assert inserted_beside(error) == inserted


@pytest.mark.parametrize(
    ("error", "outcome", "open_", "never"),
    [
        (in_bulk(121, inserted=1), Ambiguous, Ambiguous, Ambiguous),
        *((said(code), Ambiguous, Ambiguous, NotApplied) for code in (189, 10107, 112, 388, 91, 424242)),
        *((said(code), Refused, Ambiguous, Refused) for code in (13, 73)),
        *((said(code, WriteError), Ambiguous, Ambiguous, Refused) for code in (14, 121)),
        (DuplicateKeyError("", 11000, {"code": 11000, "keyPattern": {"a": 1}}), Ambiguous, Ambiguous, Refused),
        (said(189, errorLabels=["NoWritesPerformed"]), NotApplied, Ambiguous, NotApplied),
        (said(462, errorLabels=["RetryableError"]), NotApplied, Ambiguous, NotApplied),
        (DocumentTooLarge("large"), Refused, Ambiguous, Refused),
        (AutoReconnect("gone"), Ambiguous, Ambiguous, NotApplied),
        (WriteConcernError("", 64, {"code": 64}), NotDurable, NotDurable, NotApplied),
        (in_bulk(14, 121), Refused, Ambiguous, Refused),
        (in_bulk(14, 112), Ambiguous, Ambiguous, Ambiguous),
        (in_bulk(14, matched=1), Ambiguous, Ambiguous, Ambiguous),
        (in_bulk(14, matched=1, concern=64), Ambiguous, Ambiguous, Ambiguous),
        *((in_bulk(matched=matched, concern=64), NotDurable, NotDurable, NotDurable) for matched in (0, 2)),
        *((in_bulk(11000, inserted=n, concern=64), NotDurable, NotDurable, NotDurable) for n in (0, 2)),
        *((in_bulk(11000, key=key, concern=64), Refused, Ambiguous, Refused) for key in ("a", None)),
        (in_bulk(11000, 121, concern=64), Refused, Ambiguous, Refused),
    ],
    ids=str,
)
def test_of_many_a_part_may_have_been_done(
    error: DriverError, outcome: Outcome, open_: Outcome, never: Outcome
) -> None:
    """A refusal is certain only of the whole request or of a bulk that matched nothing."""
    expected = {Before.NOTHING: outcome, Before.OPEN: open_, Before.NEVER: never}

    assert {known: type(failure_of_many(error, known)) for known in expected} == expected


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(2, Refused), (166, Refused), (13, Ambiguous), (14031, Ambiguous), (112, Ambiguous), (424242, Ambiguous)],
)
def test_a_filter_is_refused_before_anything_is_deleted(code: int, outcome: Outcome) -> None:
    """An invalid filter is refused first; a full disk or a conflict may occur midway."""
    assert type(failure_of_deletions(said(code, WriteError), Before.NOTHING)) is outcome


# Earlier requests


LOST: Final[Raw] = {"errmsg": "connection closed", "errtype": "AutoReconnect"}
NOT_PRIMARY: Final[Raw] = {"ok": 0.0, "code": 10107}
STOPPED: Final[Raw] = {"ok": 0.0, "code": 91}
UNCONFIRMED: Final[Raw] = {"code": 189, "errmsg": "the error of the write concern alone, as findAndModify has it"}
DONE: Final[Raw] = {"ok": 1.0, "n": 1}
WRONG_ITEM: Final[Raw] = {"ok": 1.0, "n": 0, "writeErrors": [{"index": 0, "code": 121}]}
TOO_LARGE: Final[Raw] = {"errmsg": "too large", "errtype": "DocumentTooLarge"}


@pytest.mark.parametrize(
    ("requests", "error", "known"),
    [
        (None, AutoReconnect("a read"), Before.NOTHING),
        ([], AutoReconnect("no connection"), Before.NEVER),
        ([{}], WaitQueueTimeoutError("none for the second"), Before.OPEN),
        ([LOST], WaitQueueTimeoutError("none for the second"), Before.OPEN),
        ([LOST], said(18), Before.OPEN),
        ([STOPPED], said(18), Before.OPEN),
        ([NOT_PRIMARY], WaitQueueTimeoutError("none for the second"), Before.NOTHING),
        ([TOO_LARGE], DocumentTooLarge("of the only one"), Before.NOTHING),
        ([WRONG_ITEM], said(121, WriteError), Before.NOTHING),
        ([{"ok": 1.0, "writeConcernError": {"code": 64}}], said(64, WriteConcernError), Before.NOTHING),
        ([LOST, WRONG_ITEM], said(121, WriteError), Before.OPEN),
        ([UNCONFIRMED, NOT_PRIMARY], said(10107), Before.OPEN),
        ([NOT_PRIMARY, NOT_PRIMARY], said(10107), Before.NOTHING),
        ([{**STOPPED, **NOTHING_WRITTEN}, {**STOPPED, **NOTHING_WRITTEN}], said(91, **NOTHING_WRITTEN), Before.NOTHING),
        ([{**STOPPED, **TURNED_AWAY}, NOT_PRIMARY], said(10107), Before.NOTHING),
        ([STOPPED, NOT_PRIMARY], said(10107), Before.OPEN),
        ([DONE], None, Before.NOTHING),
        ([LOST, DONE], None, Before.OPEN),
        ([NOT_PRIMARY, DONE], None, Before.NOTHING),
        ([DONE, DONE], None, Before.NOTHING),
        ([DONE, NOT_PRIMARY, DONE], None, Before.NOTHING),
        ([DONE, LOST, DONE], None, Before.OPEN),
        ([{**DONE, "writeConcernError": {"code": 64}}, DONE], None, Before.OPEN),
        ([DONE, WRONG_ITEM], in_bulk(121), Before.NOTHING),
        ([WRONG_ITEM, WRONG_ITEM], in_bulk(121, 121), Before.NOTHING),
        ([WRONG_ITEM, LOST, WRONG_ITEM], in_bulk(121, 121), Before.OPEN),
        ([DONE, LOST], AutoReconnect("gone"), Before.OPEN),
        ([DONE, NOT_PRIMARY], said(10107), Before.OPEN),
        ([DONE, {"ok": 0.0, "code": 13}], said(13), Before.OPEN),
    ],
)
def test_what_is_known_of_the_other_requests(
    requests: Requests | None, error: DriverError | None, known: Before
) -> None:
    assert before(requests, error) is known
