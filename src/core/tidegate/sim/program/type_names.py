"""Names of types in recordings, independent of modules, so that moving a class breaks no file.

    a class of tidegate   its package and its own name, in any module: "consumer.Commit"
    any other class       its module and its own name: "shop.jobs.Order"

The package is the folder under `tidegate`. `NAMES` has the names of classes that share one in a
package, moved to another package, or were renamed. A name never changes: a test compares all names
with a committed list.

Recordings of the first version name classes by their modules of that time. `upgraded` replaces
these names; a class of any other module is a user's and keeps its name. It renames fields in
recordings of any version, since recordings do not mark when a field was renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

NAMES: Final[Mapping[str, str]] = {
    "tidegate.consumer.worker.worker.StopRequested": "consumer.StopAsked",
    "tidegate.leases.election.StartTimer": "leases.WakeIn",
    "tidegate.model.record_counts.CountRecords": "reactive.CountRecords",
    "tidegate.model.record_counts.RecordCount": "reactive.RecordCount",
    "tidegate.reactive.planning.change_stream.commands.StartTimer": "reactive.Await",
    "tidegate.reactive.planning.change_stream.events.StopRequested": "reactive.StopAsked",
    "tidegate.reactive.record.tasks.vocabulary.TaskRules": "reactive.Task",
    "tidegate.retries.polling.AskReason": "retries.Why",
    "tidegate.retries.polling.PollingBounds": "retries.Bounds",
    "tidegate.retries.schedule.ScheduleCell": "retries.Cell",
    "tidegate.sinks.outbox.StartTimer": "sinks.WakeAt",
}
"""Names of classes that differ from their package and own name."""

ROOMS: Final[Mapping[str, str]] = {
    "tidegate.change_stream": "reactive",
    "tidegate.circuit": "sinks",
    "tidegate.courier": "sinks",
    "tidegate.delivery": "sinks",
    "tidegate.documents": "model",
    "tidegate.drain": "consumer",
    "tidegate.effects": "model",
    "tidegate.election": "leases",
    "tidegate.fanout": "consumer",
    "tidegate.instants": "model",
    "tidegate.lease": "leases",
    "tidegate.operations": "model",
    "tidegate.partition": "consumer",
    "tidegate.records": "model",
    "tidegate.shutdown": "consumer",
    "tidegate.wishes": "consumer",
}
"""Modules with classes in recordings of the first version, and their present packages."""
RENAMED: Final[Mapping[str, str]] = {
    "tidegate.change_stream.Broke": "reactive.StreamFailed",
    "tidegate.change_stream.Change": "reactive.DocumentChange",
    "tidegate.change_stream.CleanUp": "reactive.HandleDeleted",
    "tidegate.change_stream.Done": "reactive.CommandDone",
    "tidegate.change_stream.Due": "reactive.TimerFired",
    "tidegate.change_stream.Failed": "reactive.CommandFailed",
    "tidegate.change_stream.Forget": "reactive.ResetHistory",
    "tidegate.change_stream.Keep": "reactive.SaveIdle",
    "tidegate.change_stream.Plan": "reactive.HandleChanged",
    "tidegate.circuit.Outcome": "sinks.AttemptOutcome",
    "tidegate.courier.Given": "sinks.Submitted",
    "tidegate.courier.Heard": "sinks.AttemptEnded",
    "tidegate.courier.Wake": "sinks.WakeAt",
    "tidegate.courier.Woken": "sinks.TimerFired",
    "tidegate.delivery.Unwritten": "sinks.DeadLetterFailed",
    "tidegate.delivery.Written": "sinks.DeadLetterWritten",
    "tidegate.election.Ended": "leases.WorkEnded",
    "tidegate.election.StopAsked": "leases.StopRequested",
    "tidegate.election.Told": "leases.Answered",
    "tidegate.election.Woke": "leases.TimerFired",
    "tidegate.fanout.DeliverMessages": "consumer.DeliverRecords",
    "tidegate.fanout.MessagesDelivered": "consumer.RecordsDelivered",
    "tidegate.shutdown.Answered": "consumer.LeaveAnswered",
    "tidegate.shutdown.Asked": "consumer.StopAsked",
    "tidegate.shutdown.AwaitLeave": "consumer.StartLeaveTimer",
    "tidegate.shutdown.TimedOut": "consumer.LeaveTimerFired",
    "tidegate.wishes.AwaitDrain": "consumer.StartDrainTimer",
    "tidegate.wishes.CommitUnanswered": "consumer.CommitUnknown",
    "tidegate.wishes.DrainTimedOut": "consumer.DrainTimerFired",
    "tidegate.wishes.Raised": "consumer.WorkFailed",
    "tidegate.wishes.Reported": "consumer.WorkReported",
    "tidegate.wishes.RoomMade": "consumer.SlotFreed",
    "tidegate.wishes.TopicPartition": "model.TopicPartition",
}
"""Their events, commands and values that were renamed since, or moved alone."""
_OF_A_COMMAND: Final[Mapping[str, str]] = {"wish": "command"}
FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "consumer.DeliverRecords": {"failed": "to_dead_letter"},
    "consumer.Work": {"task": "request"},
    "consumer.WorkFailed": {"task": "request"},
    **dict.fromkeys(
        (
            f"reactive.{name}"
            for name in ("CommandDone", "CommandFailed", "Fenced", "Located", "Received", "StreamFailed", "TimerFired")
        ),
        _OF_A_COMMAND,
    ),
}
"""Renamed fields, by the class's name in present recordings."""
ADDED: Final[Mapping[str, Mapping[str, object]]] = {
    "model.Call": {"catches": False},
    "model.FindAll": {"after": [], "fields": None, "sort": []},
    "model.FindOne": {"fields": None, "sort": []},
    "model.FindOneAndUpdate": {"sort": []},
    "model.Sleep": {"jitter_ppm": 0},
}
"""Fields added later, after all others, with the value that their absence means."""


def name_of(kind: type) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}"
    package, *modules = kind.__module__.split(".")
    return NAMES.get(name) or (f"{modules[0]}.{kind.__qualname__}" if package == "tidegate" and modules else name)


def upgraded(plain: object) -> object:
    """The content of a recording in its present form.

    Args:
        plain: JSON of `tidegate.sim.program.tagged` in any version.
    """
    match plain:
        case {"$value": [str() as name, dict() as fields], **more} if not more:
            today = _today(name)
            renamed = FIELDS.get(today, {})
            made = {renamed.get(key, key): upgraded(item) for key, item in cast("dict[str, object]", fields).items()}
            return {
                "$value": [today, made | {key: value for key, value in ADDED.get(today, {}).items() if key not in made}]
            }
        case {"$name": [str() as name, member], **more} if not more:
            return {"$name": [_today(name), member]}
        case dict():
            return {key: upgraded(item) for key, item in cast("dict[str, object]", plain).items()}
        case list():
            return [upgraded(item) for item in cast("list[object]", plain)]
        case _:
            return plain


def _today(name: str) -> str:
    module, _, own = name.rpartition(".")
    return RENAMED.get(name) or (f"{ROOMS[module]}.{own}" if module in ROOMS else name)
