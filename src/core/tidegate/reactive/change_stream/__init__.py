"""What does the leader do with a stream of changes, and how far may its resume token advance?

The store reports every change in order, and from which position (a resume token) to go on. A change only says where to
look: a pass reads what is there now, so a change may be reported twice, and the last change of a document stands for those
before it. What may not happen is that a position is saved while a change before it has had no pass. After a crash nobody
would ever learn of it again: the position is a promise, as the committed offset of a log is (`tidegate.consumer.watermark`).

This is a reducer: `step(state, event)` answers the next state and commands. What becomes of a command comes back as an
event, any time later; `event_for` says which. A state knows which commands are unanswered, so the next ones follow from the
state: what is wanted, and neither unanswered nor paused.

    Following -- Elected --> Consuming -- asked to stop, all is saved or something fails --> Stopped
        |                        |
        +--- LeadershipLost -----+

    Locate     where does the stream stand now?        only where no position is stored
    Save       store that position                     what follows is reported from there
    Read       the changes after a position            they are collected, the last one of each document
    HandleDeleted    look at what was deleted                of each collection that a batch has, first this,
    HandleChanged    look at what changed                    and then this, one pass
    Save       store the position up to which the batch was read, once in a while
    Reconcile  look at every document (`tidegate.reactive.reconciliation`), for changes that no stream reports

A batch is flushed when it is full, when its time is over, or when the consumer is to stop. Meanwhile nothing more is read, so that
what has changed by its end comes in one page. What fails is asked for again after a pause; nothing else waits.

A pass may end and leave out documents that cannot be written now (`PassLeft`): a transaction may hold the record of one for a minute.
They are in a batch again after each pause, and until that has succeeded no position is saved. Meanwhile other changes are read and
flushed; a new change of such a document waits with it.

Position, flags and checkpoints of reconciliation are of one history: a stretch in which the stream reports everything. If
the server cannot go on from a position (`CANNOT_RESUME`), the history is lost. The next one begins with an empty record, a
position, and then a reconciliation.

A real stream answers by `tidegate_adapters.mongo.change_stream`, a simulated one by `tidegate.sim.streams`.

Read `commands` first (positions, changes, and what is asked of the world), then `events`, then `consumer`, the reducer.

Caller's duties
    - `Elected` carries what is stored as it was read AFTER the lease was taken.
    - `Save` and `ResetHistory` are carried out under their epoch and history only, in the write itself.
    - `Read` reports every change of the collections that are watched: the store chooses by collection, and the pass by
      filter. It answers within a bounded time, with no change if there is none.
    - A pass succeeds only if each of its documents was looked at, and what was seen is stored. A document of which
      something cannot be computed is not a failure of a pass (`tasks`).

Laws
    CS1  No change is lost: at any time, each change has had a pass since, or is after the stored position, or is where
         reconciliation will look.
    CS2  Once stream and store answer again and somebody leads, each change has had a pass after it happened.
    CS3  A batch asks for each document once, in its collection, as its last change has it; of each collection what was
         deleted comes first, in one pass each.
    CS4  A batch is flushed when it is full, when `wait` is over since its first change (at once where that is 0), at the stop, or
         with what was left out; no
         later change puts that off, and no two batches are under way.
    CS5  A position is saved only if no change before it is waiting, and one save is under way at most.
    CS6  While it leads, a command is unanswered: what failed is tried again.
    CS7  Under an epoch that is over no command is emitted, and an answer to what was not asked changes nothing.
    CS8  A reconciliation is asked for once in a history and epoch, AFTER a position of that history was stored and the
         stream could be read.
    CS9  Where nothing changes, the position is saved within `idle` nevertheless.
    CS10 Between a save that has succeeded and the next lies `rest`, but for the one at the stop.
    CS11 No page is asked for while a batch is under way, nor while as many documents as a batch holds are left out.
    CS12 While a pass is under way, under a lease that is held (`is_followed`), what has changed since it began is in no batch of
         whoever leads yet, and after the stored position; or is where reconciliation will look.

Things that do not work
    Dropping the position first and the flags in a second write: a crash in between, and the stream begins now, while the
    flags say that all was looked at.
    Saving the newest position when a batch is done: what was collected meanwhile is before it.
    Reading on while a batch is under way: changes come one or two to a page then, and each page costs a request and a step. At 420
    changes a second that took a fifth of all processor time, and made half of the latency.

Known not to work
    - A pass that fails as a whole for ever holds the position, and nothing is read until it succeeds, of other collections neither.
    - A document that is left out for ever holds the position: the next leader looks at everything since again.
    - Positions are not ordered for us. A save without an answer that is applied late takes the stored position back; what
      is reported again is looked at again.
    - Each page costs a look at the whole batch: let `Read` answer all that is there, and not one change after the other. A
      batch of 1,000 took 8 us a change in pages of 100, and 480 us one by one.
    - Ids that MongoDB takes for equal but are of two types (1 and 1.0) are two documents here: it costs a second look.
"""

from tidegate.reactive.change_stream.commands import (
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
from tidegate.reactive.change_stream.consumer import (
    ChangeStreamConsumer,
    Consuming,
    Flushing,
    Following,
    Stopped,
    StreamState,
    StreamStep,
    is_followed,
)
from tidegate.reactive.change_stream.events import (
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
