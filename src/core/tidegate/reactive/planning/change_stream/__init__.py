"""Decide what the leader does with a change stream, and when its resume token may advance.

The store reports every change in order, with a position (a resume token) to resume from. A change
only names a document: a pass reads the current document. So a change may repeat, and the last
change of a document replaces earlier ones. No position may be saved while a change before it has
had no pass: after a crash that change would be lost. The position is a promise, like the committed
offset of a log (`tidegate.consumer.offsets.watermark`).

This is a reducer: `step(state, event)` returns the next state and commands. The result of a command
returns later as an event; `event_for` says which. The state holds the unanswered commands. The next
commands follow from the state: all that are needed and neither unanswered nor paused.

    Following -- Elected --> Consuming -- stop requested and saved, or failure --> Stopped
        |                        |
        +--- LeadershipLost -----+

    Locate     the current position of the stream     only where no position is stored
    Save       store that position                    later changes are reported from there
    Read       the changes after a position           collect the last one of each document
    HandleDeleted    pass over deleted documents           first, for each collection of a batch
    HandleChanged    pass over changed documents           then this, one pass
    Save       store the position up to which the batch was read, at intervals
    Reconcile  pass over every document (`tidegate.reactive.planning.reconciliation`), for unreported changes

A batch is flushed when it is full, when its time is over, or when the consumer stops. Reading
pauses during a flush, so that changes in the meantime arrive in one page. A failed command is
retried after a pause; the others continue.

A pass may leave out documents that it cannot write now (`PassLeft`): a transaction may hold a
record for a minute. After each pause they join a batch again, and no position is saved until that
succeeds. Meanwhile other changes are read and flushed; a new change of such a document waits with
it.

Position, flags and checkpoints of reconciliation belong to one history, in which the stream reports
everything. If the server cannot resume from a position (`CANNOT_RESUME`), the history is lost. The
next one begins with an empty record, a position, and then a reconciliation.

Adapters: `tidegate_adapters.mongo.change_stream` (real) and `tidegate.sim.servers.streams` (simulated).

Read `commands` first (positions, changes and requests), then `events`, then `consumer`, the
reducer.

Caller's duties
    - `Elected` carries the record as read AFTER the lease was taken.
    - `Save` and `ResetHistory` check their epoch and history in the write itself.
    - `Read` reports every change of the watched collections: the store selects by collection, the
      pass by filter. It answers within a bounded time, with no change if there is none.
    - A pass succeeds only if it looked at each of its documents and stored what it saw. A value
      that cannot be computed does not fail a pass (`tasks`).

Laws
    CS1  No change is lost: at any time, each change has had a pass since, or is after the stored
         position, or is where reconciliation will look.
    CS2  Once stream and store answer again and a leader exists, each change has had a pass after it
         happened.
    CS3  A batch asks for each document once, in its collection, with its last change. The deleted
         documents of each collection come first, in one pass each.
    CS4  A batch is flushed when it is full, when `wait` is over since its first change (at once
         where that is 0), at the stop, or with documents that were left out. No later change delays
         that, and no two batches are in flight.
    CS5  A position is saved only if no change before it is waiting, and at most one save is in
         flight.
    CS6  While it leads, a command is unanswered: failed commands are retried.
    CS7  Under an epoch that is over no command is emitted. An answer to no open command changes
         nothing.
    CS8  A reconciliation is requested once in a history and epoch, AFTER a position of that history
         was stored and the stream could be read.
    CS9  Where nothing changes, the position is still saved within `idle`.
    CS10 Between a successful save and the next lies `rest`, except for the one at the stop.
    CS11 No page is requested while a batch is in flight, nor while as many documents as a batch
         holds are left out.
    CS12 During a pass under a held lease (`is_followed`), each change since its start is in no
         batch of the current leader yet, and after the stored position; or is where reconciliation
         will look.

Rejected designs
    Drop the position first and the flags in a second write. After a crash in between, the stream
    begins now, while the flags claim that every document was looked at.
    Save the newest position when a batch is done. Changes collected during the batch are before it.
    Read on during a batch. Pages then carry one or two changes, and each costs a request and a
    step. At 420 changes a second that took a fifth of all processor time and made half of the
    latency.

Known limits
    - A pass that fails for ever as a whole holds the position and stops all reading, also of other
      collections.
    - A document that is left out for ever holds the position: the next leader repeats everything
      since.
    - Positions have no order here. An unanswered save that is applied late moves the stored
      position back; the changes after it are handled again.
    - Each page costs a scan of the whole batch, so `Read` should return all available changes. A
      batch of 1,000 took 8 us a change in pages of 100, and 480 us one by one.
    - Ids that are equal in MongoDB but of two types (1 and 1.0) are two documents here: this costs
      a second look.
"""

from tidegate.reactive.planning.change_stream.commands import (
    CANNOT_RESUME,
    After,
    Again,
    Broken,
    DocumentChange,
    Flush,
    From,
    HandleChanged,
    HandleDeleted,
    Locate,
    Page,
    Pass,
    Position,
    Read,
    Reconcile,
    Request,
    ResetHistory,
    Save,
    SaveIdle,
    StartTimer,
    StreamCommand,
)
from tidegate.reactive.planning.change_stream.consumer import (
    ChangeStreamConsumer,
    Consuming,
    Flushing,
    Following,
    Stopped,
    StreamState,
    StreamStep,
    is_followed,
)
from tidegate.reactive.planning.change_stream.events import (
    Answer,
    CommandDone,
    CommandFailed,
    Elected,
    Fenced,
    LeadershipLost,
    Located,
    PassLeft,
    Received,
    StopRequested,
    StreamEvent,
    StreamFailed,
    TimerFired,
    event_for,
)

__all__ = [
    "CANNOT_RESUME", "After", "Again", "Answer", "Broken", "ChangeStreamConsumer", "CommandDone", "CommandFailed", "Consuming",
    "DocumentChange", "Elected", "Fenced", "Flush", "Flushing", "Following", "From", "HandleChanged", "HandleDeleted",
    "LeadershipLost", "Locate", "Located", "Page", "Pass", "PassLeft", "Position", "Read", "Received", "Reconcile", "Request",
    "ResetHistory", "Save", "SaveIdle", "StartTimer", "StopRequested", "Stopped", "StreamCommand", "StreamEvent",
    "StreamFailed", "StreamState", "StreamStep", "TimerFired", "event_for",
    "is_followed",
]  # fmt: skip
