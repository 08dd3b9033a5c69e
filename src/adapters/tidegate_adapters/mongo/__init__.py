"""Documents in a real MongoDB, sync and async: effect to call, reply to value, error to outcome.

    with connect(uri) as client:
        handle = choosing(documents(Mongo(client, "services")), local())

Each operation of `tidegate.model.operations` is one command, which is atomic for each document.

What is asked of a transaction (`tidegate.model.transactions`) goes through a session of the driver's
(`tidegate_adapters.mongo.sessions`).

Several documents are found as they were at one time (read concern `snapshot`), which a server needs to be a member of a
replica set for.

Whatever the client's defaults are, reads go to the primary and see what a majority has, with a client of `connect` also just
after an election (`tidegate_adapters.mongo.elections`), and writes are acknowledged by a majority, journaled. Less would lose
acknowledged writes when a primary stands still and comes back. Otherwise a client is used as it is: its deadlines and its `retryWrites` are the caller's. One that would wait for ever, for it has neither
`timeoutMS` nor `socketTimeoutMS`, is given `REPLY_MS` beyond its `serverSelectionTimeoutMS` for each call; as under a `timeoutMS`,
the driver sends again what may be until then, and waits until then for a server, too.

With `retryWrites`, the driver sends a write again, and the first request may be carried out after the second one was
answered with a no, or has matched nothing. A client of `connect` tells of each request, and both are `Ambiguous` then
(`tidegate_adapters.mongo.attempts`). Updates and deletions of many are sent once, whatever the client, and so are updates with a time limit (`UpdateOne.within`), which the
server ends by itself; a bulk of updates of
one document each is sent again like these, and what matched in the first request is counted in the reply to the second.

What is found and has no counterpart here (`tidegate_adapters.mongo.bson`) is `Unreadable`; of `FindOneAndUpdate`, the update
was done.

Known not to work
    - A client that is connected directly to one node (`directConnection`) reads from that node, also when it is the primary no
      more: pymongo asks so. Its writes are `NotApplied` there. `connect` refuses such a node when it begins.
    - With a client that does not tell of each request, and has `retryWrites`, a write that was refused or matched nothing may
      be done later. That matters where something is decided by it. Transitions, tasks, runs and schedules of triggers,
      places, payloads, leases and gates are written under a version or a token that only grows: what it did not match
      once it never will, and those programs read again and decide anew. An increment looks for its token. But an insert that
      was refused, for its id was taken, may be done when that document is gone.
    - Where several documents match and there is no sort, MongoDB takes the first one in the order of the index that it uses.
      That is the natural order of the simulated store only where no index serves the filter. Programs that care name an id
      or a sort.
    - An index of two fields refuses a document in which both are arrays (171), which the simulated store takes.
    - Times that one update puts into several fields may lie a millisecond apart, in the order of the fields' names: the server
      reads its clock for each. In the simulated store they are the same.

Modules, in reading order
    wire        filters, updates and projections in MongoDB's words
    calls       an operation as a call of the driver, and its answer as a reply
    connection  a client, checked; a database's handle
    indexes     indexes that are made where they are not there yet
    store       what carries operations out
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
