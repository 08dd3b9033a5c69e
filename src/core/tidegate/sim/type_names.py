"""What types are called in recordings: by names of their own, so that moving a module breaks no file.

    a class of ours     its subject and its own name: "consumer.Commit", whichever module of the subject it stands in
    any other class     its module and its own name: "shop.jobs.Order"

The subject is the room, the folder under `tidegate`. Where two classes of a room have one name, or a class has moved to
another room or was renamed, `NAMES` says what it is called. A name that was given once stays: a committed list of all of
them is compared in a test.

Recordings of the first version called classes by the modules of their time. `upgraded` gives them the names of today; a
class that is in none of those modules keeps its name, for it is a user's. Fields get their names of today in recordings of
any version, since nothing marks when one was renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

NAMES: Final[Mapping[str, str]] = {
    "tidegate.consumer.worker.StopRequested": "consumer.StopAsked",
    "tidegate.leases.election.StartTimer": "leases.WakeIn",
    "tidegate.model.record_counts.CountRecords": "reactive.CountRecords",
    "tidegate.model.record_counts.RecordCount": "reactive.RecordCount",
    "tidegate.reactive.change_stream.commands.StartTimer": "reactive.Await",
    "tidegate.reactive.change_stream.events.StopRequested": "reactive.StopAsked",
    "tidegate.reactive.tasks.vocabulary.TaskRules": "reactive.Task",
    "tidegate.retries.polling.AskReason": "retries.Why",
    "tidegate.retries.polling.PollingBounds": "retries.Bounds",
    "tidegate.retries.schedule.ScheduleCell": "retries.Cell",
    "tidegate.sinks.outbox.StartTimer": "sinks.WakeAt",
}
"""Names of classes that are called otherwise than by their room and their own name."""

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
"""The modules whose classes stand in recordings of the first version, and the rooms where they are today."""
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
"""Those of their events, commands and values that were renamed since, or moved alone."""
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
"""Fields that were renamed, by what the class is called in a recording of today."""
ADDED: Final[Mapping[str, Mapping[str, object]]] = {
    "model.Call": {"catches": False},
    "model.FindAll": {"after": [], "fields": None, "sort": []},
    "model.FindOne": {"fields": None, "sort": []},
    "model.FindOneAndUpdate": {"sort": []},
    "model.Sleep": {"jitter_ppm": 0},
}
"""Fields that came later, behind all others, with what was meant without them."""


def name_of(kind: type) -> str:
    """What the class is called in a recording."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    package, *modules = kind.__module__.split(".")
    return NAMES.get(name) or (f"{modules[0]}.{kind.__qualname__}" if package == "tidegate" and modules else name)


def upgraded(plain: object) -> object:
    """What a recording holds, as it is written today.

    Args:
        plain: JSON, as `tidegate.sim.tagged` wrote it then, in the first version or since.
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
