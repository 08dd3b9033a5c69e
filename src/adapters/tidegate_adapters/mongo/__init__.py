"""Stores documents in a real MongoDB, sync and async.

    with connect(uri) as client:
        handle = choosing(documents(Mongo(client, "services")), local())

Each operation of `tidegate.model.operations` is one command, atomic per document. Transactions
(`tidegate.model.transactions`) use driver sessions (`tidegate_adapters.mongo.sessions`). `FindAll`
reads one point in time (read concern `snapshot`), which requires a replica set.

Reads go to the primary and see majority data; with a client of `connect` also just after an
election (`tidegate_adapters.mongo.elections`). Writes are acknowledged by a majority and journaled:
less would lose acknowledged writes when a stalled primary returns. These hold whatever the client's
defaults. Deadlines and `retryWrites` stay the caller's. A client without `timeoutMS` and
`socketTimeoutMS` gets `REPLY_MS` beyond its `serverSelectionTimeoutMS` per call, with retries as
under a `timeoutMS`.

With `retryWrites` the driver repeats a write. The first request may be executed after the repeat
was rejected or had no match. A client of `connect` reports each request, and both cases are then
`Ambiguous` (`tidegate_adapters.mongo.attempts`). Any client sends updates and deletions of many
once. The same holds for updates with a time limit (`UpdateOne.within`), which the server enforces.
The driver repeats a bulk of single-document updates; the reply to the repeat counts the matches of
the first request.

A found value without a counterpart (`tidegate_adapters.mongo.bson`) gives `Unreadable`;
`FindOneAndUpdate` has then applied its update.

Known not to work:
    - A client connected directly to one node (`directConnection`) reads from it even after it loses
      the primary role: pymongo requests that. Its writes are `NotApplied` there. `connect` refuses
      such a node at the start.
    - With `retryWrites` and a client that does not report requests, a rejected or unmatched write
      may be executed later. Transitions, tasks, runs and schedules of triggers, places, payloads,
      leases and gates carry a growing version or token: a write that did not match once never will,
      and those programs decide again. An increment checks its token. But an insert rejected for a
      taken id may be executed once that document is gone.
    - With several matches and no sort, MongoDB takes the first by the index it uses. That equals
      the simulated store's natural order only if no index serves the filter. Programs that care
      name an id or a sort.
    - A two-field index refuses a document with arrays in both fields (171); the simulated store
      accepts it.
    - Times that one update writes to several fields may differ by a millisecond: the server reads
      its clock for each, by field name. In the simulated store they are equal.

Modules, in reading order:
    wire        Filters, updates and projections in MongoDB's form.
    calls       Operations as driver calls, answers as replies.
    connection  Checked clients; database handles.
    indexes     Creation of missing indexes.
    store       Execution of operations.
"""

from tidegate.model.errors import MissingExtra

try:
    from tidegate_adapters.mongo.bson import document_of
    from tidegate_adapters.mongo.calls import Asked
    from tidegate_adapters.mongo.connection import (
        CHECK_SECONDS,
        REPLY_MS,
        check_replicated,
        connect,
        connect_async,
        database_of,
        masked,
        misplaced,
    )
    from tidegate_adapters.mongo.indexes import make_unique, make_unique_async
    from tidegate_adapters.mongo.store import AsyncMongo, Mongo
    from tidegate_adapters.mongo.wire import changes, condition
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.mongo", "mongo", missing) from missing

__all__ = [
    "CHECK_SECONDS", "REPLY_MS", "Asked", "AsyncMongo", "Mongo", "changes", "check_replicated", "condition", "connect", "connect_async",
    "database_of", "document_of", "make_unique", "make_unique_async", "masked", "misplaced",
]  # fmt: skip
