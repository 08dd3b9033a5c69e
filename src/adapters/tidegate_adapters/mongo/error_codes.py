"""The effect of each MongoDB error code and label: one table, with a reason per row.

The codes come from the drivers' specifications (retryable reads and writes, transactions, change
streams, overload; mongodb/specifications) and from the server's error_codes.yml. Of the latter
these are the transient ones (network, interruption, shutdown, election, time limits, stale routing,
overload) and rejections of requests that this adapter sends. A row gives the meaning of the
server's own answer. In a writeConcernError every code means that the write was executed.

    Refused      The same request will fail again. Retrying it would never end.
    NotApplied   The server answers before it begins, or has undone all: conflicts, "not the
        primary", overload.
    Ambiguous    The server may answer so during a write, or relay it from another server.

A code without a row is `Ambiguous`, which is always true: programs read their write back and retry
at growing intervals. A new permanent code then costs a wait per operation. A code wrongly listed as
Refused denies a write that happens; one wrongly listed as NotApplied doubles a write. So a code
needs a reason to move into those rows.

Two labels describe the effect of the whole answer; the others only who may repeat what:

    NoWritesPerformed   Neither this request nor an earlier one of the driver has written.
    RetryableError      Any such request may be repeated, so it was not begun.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, TypeAlias, final

import attrs

from tidegate.model.effects import DUPLICATE_KEY, TOO_LATE, Ambiguous, Failure, NotApplied, Refused
from tidegate.model.errors import Misuse

Reply: TypeAlias = Mapping[str, Any]
"""A server's reply, or its part about one write."""


@final
@attrs.frozen
class Meaning:
    """The effect of a request.

    `is_early` codes come before any lookup, so earlier requests for the same operation remain
    unknown.
    """

    outcome: type[Failure | Misuse]
    reason: str
    is_early: bool = False


_REFUSED: Final = {
    2: "bad value",
    9: "failed to parse",
    10: "what cannot be changed",
    11: "no such user",
    13: "not authorised",
    14: "wrong type",
    15: "nested too deeply",
    16: "a value has a wrong length",
    18: "not authenticated",
    20: "not a replica set",
    21: "an empty array",
    22: "no valid BSON",
    26: "no such collection",
    27: "no such index",
    28: "a field lies within a value that is no document",
    29: "no such field",
    30: "not a path of fields",
    34: "an array would get a gap",
    40: "updates conflict",
    48: "there is a collection of that name",
    52: "a key begins with $",
    53: "not a value for an _id",
    54: "no single value",
    55: "not a reference to a document",
    56: "a field has no name",
    57: "a key has a dot",
    59: "no such command",
    61: "the shard key is missing",
    66: "a field that never changes",
    67: "not an index that can be made",
    72: "options that the server does not take",
    73: "not a name of a collection",
    76: "not a replica set",
    85: "there is such an index with other options",
    86: "there is another index of that name",
    101: "the client is too old for this server",
    111: "no value is given exactly",
    115: "not supported here",
    116: "document too large for the capped collection",
    121: "validation failed",
    123: "not a replica set",
    146: "too large for the server's memory",
    148: "the server keeps no majority reads",
    160: "too small a bound of staleness",
    165: "a view of too many views",
    166: "not supported on a view",
    167: "an option that no view has",
    168: "no such operator",
    171: "an index cannot combine two arrays",
    182: "not a definition of a view",
    197: "not an option of an index",
    201: "a value that no index can hold",
    207: "not a UUID",
    224: "not in this version of the server",
    238: "not implemented",
    241: "a value cannot be converted",
    257: "the transaction is too large",
    260: "not a resume token",
    263: "not supported in a transaction",
    291: "no plan for this query",
    292: "the query needs too much memory",
    322: "not in this version of the API",
    323: "not in this version of the API",
    324: "not in this version of the API",
    334: "no such mechanism of authentication",
    347: "not in this version of the API",
    352: "the client is too old for this server",
    357: "not a type of BSON",
    376: "no change streams on this collection",
    378: "no valid BSON",
    411: "an administrator rejects this query",
    10003: "no document grows in the capped collection",
    10334: "document too large",
    11000: DUPLICATE_KEY,
    11001: DUPLICATE_KEY,
    12582: DUPLICATE_KEY,
    14031: "out of disk space",
    13027: "not a point of the index",
    13068: "not a point of the index",
    13297: "a database of this name is there in other case",
    16755: "no geometry",
    16766: "an index of hashes has no arrays",
    16804: "not a point of the index",
    17261: "no such language",
    17262: "no such language",
    17280: "a value is too large for its index",
    17419: "document too large",
    17420: "document too large",
    40324: "no such stage",
    40413: "an option twice",
    40414: "an option is missing",
    40415: "no such option",
    40573: "a change stream begins with $changeStream",
    50768: "not a write that can be sent again",
    51091: "no regular expression",
    51108: "no option of a regular expression",
}

_NOT_APPLIED: Final = {
    112: "write conflict",
    365: "the store was too busy",
    371: "writes are blocked",
    388: "too large for the store's cache",  # may be accepted later
}

_EARLY: Final = {
    189: "not the primary",
    391: "the credentials have expired",  # drivers replace them and retry everything
    462: "overloaded",
    10058: "not the primary",
    10107: "not the primary",
    13435: "not the primary",
}

_OPEN: Final = {
    1: "the server failed",
    6: "a server within the cluster cannot be reached",
    7: "a server within the cluster is not known",
    8: "the server failed",  # or an exception in JavaScript, by its text (`errors`)
    24: "no lock in time",
    43: "the cursor is gone",
    46: "no lock",
    50: TOO_LATE,
    51: "somebody has to look after the server",
    63: "the shard's version is stale",
    64: "no majority in time",
    75: "no majority yet",
    79: "the write concern is not known",
    89: "no reply within the cluster",
    90: "called off",
    91: "shutting down",
    96: "the server failed",
    100: "the write concern cannot be met",
    107: "no lock",
    117: "another operation is in its way",
    125: "the server failed",
    133: "no server to read from",
    134: "no majority to read from yet",
    136: "the change stream's history is lost",
    143: "somebody else reads from the cursor",
    149: "no primary of the configuration",
    150: "the shard's version is stale",
    175: "the query was killed",
    202: "no reply within the cluster in time",
    215: "the database is being dropped",
    216: "an election is under way",
    217: "the server no longer knows whether it was done before",
    225: "there is a later transaction",
    234: "the change stream is to be begun again",
    237: "the cursor was killed",
    239: "the snapshot is too old",
    246: "no snapshot yet",
    249: "the database's version is stale",
    250: "the shard's version is stale",
    251: "no such transaction",
    256: "the transaction was committed",
    262: TOO_LATE,
    264: "too many files are open",
    267: "a transaction is in its way",
    272: "chunks are moving",
    279: "the client is gone",
    280: "the change stream cannot go on",
    281: "interrupted by an election",
    282: "the transaction was called off",
    283: "the document would move to another shard",
    286: "the change stream's history is lost",
    290: "the transaction was open for too long",
    310: "called off",
    314: "somebody else reads from the cursor",
    346: "the change stream is over",
    355: "interrupted by a change of the store",
    356: "there is a later transaction",
    358: "no internal transaction yet",
    363: "a transaction is in its way",
    402: "resources are exhausted",
    406: "chunks are moving",
    407: "no connection within the cluster in time",
    412: "updates are under way",
    433: "overloaded",
    449: "overloaded",
    450: "overloaded",
    453: "interrupted by a new distribution",
    8000: "the service in front of the server failed",
    9001: "no reply within the cluster",
    11600: "interrupted by a shutdown",
    11601: "interrupted",
    11602: "interrupted by an election",
    13388: "the shard's version is stale",
    13436: "recovering",
    46841: "interrupted",
    50915: "a backup is in its way",
    91331: "no reply within the cluster",
    10045600: "interrupted by a change of the version",
}

CODES: Final[Mapping[int, Meaning]] = {
    **{code: Meaning(Refused, reason) for code, reason in _REFUSED.items()},
    **{code: Meaning(NotApplied, reason) for code, reason in _NOT_APPLIED.items()},
    **{code: Meaning(NotApplied, reason, is_early=True) for code, reason in _EARLY.items()},
    **{code: Meaning(Ambiguous, reason) for code, reason in _OPEN.items()},
}
_NOT_BEGUN: Final = "RetryableError"
_NO_WRITES: Final = "NoWritesPerformed"

LABELS: Final[Mapping[str, Meaning]] = {
    _NOT_BEGUN: Meaning(NotApplied, "turned away", is_early=True),
    _NO_WRITES: Meaning(NotApplied, "nothing was written"),
}
SILENT_LABELS: Final[Mapping[str, str]] = {
    "SystemOverloadedError": "ask again later, at growing intervals",
    "RetryableWriteError": "the driver may send it again under its number, by which the server recognises it",
    "TransientTransactionError": "the whole transaction may be sent again",  # `errors` handles the server's own
    "UnknownTransactionCommitResult": "the commit may be sent again",
    "ResumableChangeStreamError": "the change stream may go on from its token",
    "NonResumableChangeStreamError": "the change stream may not go on from its token",
}
"""Labels that allow a next step and say nothing of the effect."""


def meaning(code: int | None, labels: Collection[str]) -> Meaning | None:
    """None if unknown. NoWritesPerformed turns all codes but `Refused` ones into `NotApplied`."""
    coded = None if code is None else CODES.get(code)
    if _NOT_BEGUN in labels:
        return LABELS[_NOT_BEGUN]
    if _NO_WRITES in labels and (coded is None or coded.outcome is not Refused):
        return LABELS[_NO_WRITES]
    return coded
