"""Decides when a record is settled, and when a window is.

A partition takes its records in windows. User code arranges a window: it turns the records into
tasks. A task may be for several records (fan-in), and a record may have several tasks (fan-out). A
task may fail, be retried, or be replaced by others. This package keeps the accounts of one
partition during one assignment. `step(state, event, rules)` returns the next state and the outputs.
It holds offsets and numbers, no payloads. The caller owns executors and backoff, calls user code,
and reports the results.

It is a termination detector of the counting kind (Mattern 1987), for tasks that create tasks. Each
open task is known by name, one bit per task, so a duplicate or late report is not counted twice.

    task      Running -- succeeded --> Delivering -- delivered --> Succeeded
                 |  ^                      |
              failed  '- retried        undelivered
                 v     '                 v
              Failing -- user code decides --> Failed, or Replaced by tasks of the next generation
    record   waits for its tasks, then for its own delivery, then for its window's: settled
    window   is being arranged, waits for its tasks and records, then for its own delivery: settled

The rules say which levels have a delivery. Without one, that level has no delivery to wait for. But
a record with a failure always waits until user code has answered for it: dead-lettered it, for
example, or marked it.

Windows are numbered in the order in which they open, the tasks of a window in the order listed,
with replacements last. So (window, number) names a task and (window, number, attempt) a run. A
replay gives the same names, whatever other windows do.

Laws
    F1  A record is settled at most once, and so is a window.
    F2  A record is settled only after all tasks for it, including replacements.
    F3  A record is settled only after its own delivery, if it has one. The delivery starts only
        after its tasks are settled.
    F4  If its window has a delivery of its own and had a task, a record is settled with the window,
        after that delivery.
    F5  A window is settled only after all its tasks and records.
    F6  No failure is silent: a record with a failed task, or of a window that could not be
        arranged, is settled only after user code has answered for it.
    F7  A task runs at most 1 + retries_max times, attempt by attempt, never two at once. No
        generation beyond generations_max starts. A task with a given result never runs.
    F8  A late, duplicate or unrequested report changes nothing, and is ignored with a reason.
    F9  Each task has a record, in flight when the task was made, that waits for it. Each record
        that waited for a replaced task waits for a replacement.
    F10 A tally equals the sum of the reports.
    F11 A batch equals its parts one by one: the same state, the same things settled.
    F12 Events of windows that share no task commute: the same state, and the same outputs of each.
    F13 Once every request is answered, everything is settled and no window is kept.

In `tidegate.consumer.partition.partition`, offsets that the tracker finds `undelivered` open as a window
AFTER they are `delivered` there. Offsets settled here are `completed` there. A settled offset may
be opened again, because only the tracker remembers it; one in flight may not. Each assignment
starts with `Fanout()`, so the caller checks the generation of an event first.

Read in this order: `vocabulary` (events, outputs, rules), `state` (windows as bitmaps),
`transitions` (`step`), `queries` (`load`, `record_status`, ...).

Known not to work
    The number of tasks of a record or a replacement has no bound. The load counts records, and all
    tasks start at once, so the caller queues them.
    A run that was given up may go on outside; its effects are not undone.

Things that do not work
    To count the remaining tasks: a duplicate report counts twice, and each report copies one
    counter per record.
    One bitmap for the whole assignment: a stuck task makes it grow for ever.
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
