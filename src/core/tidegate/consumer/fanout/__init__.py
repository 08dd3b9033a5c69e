"""When is a record, and when is a window, settled?

The records of a partition are taken in windows. User code arranges a window: it turns records into tasks. A task is for
one record or for several (fan-in), a record may have many tasks (fan-out), a task may fail, be tried again, or be
replaced by others. This module keeps the accounts of one assignment of one partition: `step(state, event, rules)` answers
the next state and what follows from the event. It holds offsets and numbers, and no payloads. Executors, backoff and the
calls of user code are the caller's, who reports what became of them.

It is a termination detector of the counting kind (Mattern 1987), for work that begets work: what is open is known by
name, one bit a task, so that a report which comes twice or late cannot be counted twice.

    task      Running -- succeeded --> Delivering -- delivered --> Succeeded
                 |  ^                      |
              failed  '- tried again    undelivered
                 v     '                 v
              Failing -- user code answers --> Failed, or Replaced by tasks of the next generation
    record   waits for its tasks, then for its own delivery, then for that of its window: settled
    window    is being arranged, waits for its tasks and records, then for its own delivery: settled

Whether there is anything to deliver at a level is a rule. Where there is nothing, the level has no delivery to wait for;
only a record with a failure always waits until somebody has answered for it (dead-lettered it, marked it, ...).

Windows are numbered in the order in which they are opened, the tasks of a window in the order in which user code lists
them, replacements behind. So (window, number) names a task, and (window, number, attempt) a run of it, the same in each
replay, whatever the other windows do.

Laws
    F1  A record is settled at most once, and so is a window.
    F2  A record is settled only after all tasks that are for it, those that replace them included.
    F3  A record is settled only after its own delivery, if it has one. Nothing is delivered of a record before its tasks
        are settled.
    F4  If its window has a delivery of its own and had a task, a record is settled with the window, and that after the
        delivery.
    F5  A window is settled only after all its tasks and records.
    F6  No failure passes in silence: a record with a failed task, or of a window that could not be arranged, is settled
        only after somebody has answered for it.
    F7  A task is run at most 1 + retries_max times, attempt by attempt, never two at once; no generation beyond
        generations_max is started; a result that was given is never run.
    F8  What comes late, twice, or unasked changes nothing, and is ignored with a reason.
    F9  Every task has a record, in flight when the task was made, that waits for it; whatever waited for a task that is
        replaced waits for a replacement.
    F10 Accounts add up: a tally's parts are those of the reports.
    F11 A batch is the same as its parts one by one: the same state, the same things settled.
    F12 Events of windows that share no task commute: the same state, and the same outputs of each.
    F13 Once everything that was asked for is reported, everything is settled and nothing is kept.

How `tidegate.consumer.partition` uses it: what the tracker finds `undelivered` is opened as a window AFTER it is
`delivered` there; what is settled here is `completed` there. An offset that was settled may be opened again, for only the
tracker remembers; one that is in flight may not. An assignment begins with `Fanout()`, so the generation of an event is
judged before it comes here.

To be read in this order: `vocabulary` (events, outputs, rules), `state` (windows as bitmaps), `transitions` (`step`),
`queries` (`load`, `record_status`, ...).

Known not to work
    How many tasks one record, or one replacement, may have is not bounded: the load counts records, and all tasks are
    to be started at once. Whoever starts them queues them.
    A run that was given up may still go on outside; its effects are not undone.

Things that do not work
    Counting what remains: a report that comes twice is counted twice. And a counter a record is copied with each report.
    One bitmap from the first task of the assignment on: a stuck task makes it grow for ever.
"""

from tidegate.consumer.fanout.queries import (
    RecordStatus,
    Waits,
    failures_before,
    in_flight,
    load,
    load_in,
    offsets_of,
    outstanding,
    record_status,
    records,
    waits_alone,
)
from tidegate.consumer.fanout.state import (
    MOVES,
    NEXT,
    Fanout,
    FanoutStep,
    TaskPhase,
)
from tidegate.consumer.fanout.transitions import step
from tidegate.consumer.fanout.vocabulary import (
    Arrange,
    ArrangeFailed,
    Bar,
    DeliverRecords,
    DeliverTasks,
    DeliverWindow,
    FanoutEvent,
    Ignored,
    Judge,
    Output,
    Reason,
    RecordsDelivered,
    RecordsSettled,
    Report,
    Rules,
    Start,
    Tally,
    TaskGivenUp,
    TaskId,
    TaskReplaced,
    Tasks,
    TasksReported,
    UserRequest,
    WindowArranged,
    WindowDelivered,
    WindowOpened,
    WindowSettled,
    check_event,
)

__all__ = [
    "MOVES", "NEXT", "Arrange", "ArrangeFailed", "Bar", "DeliverRecords", "DeliverTasks", "DeliverWindow", "Fanout",
    "FanoutEvent", "FanoutStep", "Ignored", "Judge", "Output", "Reason", "RecordStatus", "RecordsDelivered",
    "RecordsSettled", "Report", "Rules", "Start", "Tally", "TaskGivenUp", "TaskId", "TaskPhase", "TaskReplaced",
    "Tasks", "TasksReported", "UserRequest", "Waits", "WindowArranged", "WindowDelivered", "WindowOpened",
    "WindowSettled", "check_event", "failures_before", "in_flight", "load", "load_in", "offsets_of", "outstanding",
    "record_status", "records", "step", "waits_alone",
]  # fmt: skip
