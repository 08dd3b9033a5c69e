"""Documents of triggers, written and read: occurrences, cells of crons, and runs.

    occurrence   {_id, condition, seen, context: {kind, ...}}
    cell         {_id: the condition's id, last, version, pending: [...]}
    run          {_id, trigger, number, of: [ids], occurrences: [...], attempt, version, state, ...}

Fields without a value are left out, so that indexes can be partial. Arguments become those of a
call: each value as text, in plain JSON (`tidegate.model.patches`).

Laws
    TO1  Loading a stored value returns the same value.
    TO2  Arguments written into a call are read back the same, except that they are sorted by name.
"""

from __future__ import annotations

import json
from typing import Final, assert_never

from tidegate.invocations.limits.admission import Call
from tidegate.model.documents import ID, Document, Field, V, Value
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import Instant
from tidegate.model.patches import from_json, to_json
from tidegate.model.reading import needed, one_of
from tidegate.model.values import check_tuple, check_type
from tidegate.retries.schedule import Missed, Schedule, ScheduleCell
from tidegate.triggers.contexts import (
    Context,
    CronContext,
    EventContext,
    ExceptionContext,
    Kind,
    ResultContext,
    StatusContext,
)
from tidegate.triggers.firing import Failed, Fired, Firing, GivenUp, Held, RunState, TriggerRun
from tidegate.triggers.trigger import Occurrence

_CONDITION: Final = Field[str]("condition")
_SEEN: Final = Field[Instant]("seen")
_CONTEXT: Final = Field[Document]("context")

_LAST: Final = Field[Instant]("last")
VERSION: Final = Field[int]("version")
_PENDING: Final = Field[tuple[Instant, ...]]("pending")

TRIGGER: Final = Field[str]("trigger")
NUMBER: Final = Field[int]("number")
OF: Final = Field[str]("of")  # an array of ids; a filter matches if one of them fits
_OCCURRENCES: Final = Field[tuple[Document, ...]]("occurrences")
_ATTEMPT: Final = Field[int]("attempt")
STATE: Final = Field[str]("state")
_BY: Final = Field[str]("by")
_UNTIL: Final = Field[Instant]("until")
_REASONS: Final = Field[tuple[str, ...]]("reasons")
AT: Final = Field[Instant]("at")

HELD: Final = "held"
FAILED: Final = "failed"
_GIVEN_UP: Final = "given up"
_FIRED: Final = "fired"


# --- occurrences ----------------------------------------------------------------------------------


def stored_occurrence(occurrence: Occurrence) -> Document:
    check_type(occurrence, Occurrence, "an occurrence")
    context = _context(occurrence.context)
    fields = (("_id", occurrence.id), ("condition", occurrence.condition_id), ("seen", occurrence.seen))
    return Document((*fields, ("context", context)))


def loaded_occurrence(doc: Document) -> Occurrence:
    """Load an occurrence."""
    check_type(doc, Document, "a document")
    return Occurrence(needed(doc, _CONDITION), _loaded_context(needed(doc, _CONTEXT)), needed(doc, _SEEN))


def _context(context: Context) -> Document:
    return Document((("kind", context.source[0].value), *_fields(context)))


def _fields(context: Context) -> tuple[tuple[str, Value], ...]:
    match context:
        case CronContext(schedule, due):
            late_max = (("late_max", schedule.late_max),) if schedule.late_max is not None else ()
            return (("expression", schedule.expression), ("missed", schedule.missed.value), *late_max, ("due", due))
        case EventContext(code, event_id, payload):
            return (("code", code), ("event", event_id), ("payload", payload))
        case StatusContext(status=status):
            return (*_invocation(context), ("status", status))
        case ResultContext(result=result):
            result_at = () if context.result_at is None else (("result_at", context.result_at),)
            return (*_invocation(context), ("result", result), *result_at)
        case ExceptionContext(error=error, above=above):
            return (*_invocation(context), ("error", error), *((("above", above),) if above else ()))
        case _:
            assert_never(context)


def _invocation(context: StatusContext | ResultContext | ExceptionContext) -> tuple[tuple[str, Value], ...]:
    return (
        ("task", context.task),
        ("invocation", context.invocation_id),
        ("of_version", context.version),
        ("arguments", context.arguments),
        *(() if context.arguments_at is None else (("arguments_at", context.arguments_at),)),
    )


def _loaded_context(doc: Document) -> Context:
    check_type(doc, Document, "a context")
    fields = dict(doc.items)

    def field(name: str, kind: type[V]) -> V:
        value: object = fields.get(name)
        if not isinstance(value, kind):
            raise Misuse(f"a context has no {name!r}", todo="let only the programs of triggers write it")
        return value

    match one_of(Kind, field("kind", str)):
        case Kind.CRON:
            late_max = field("late_max", int) if "late_max" in fields else None
            schedule = Schedule(field("expression", str), one_of(Missed, field("missed", str)), late_max)
            return CronContext(schedule, field("due", Instant))
        case Kind.EVENT:
            return EventContext(field("code", str), field("event", str), field("payload", Document))
        case kind:
            of = field("task", str), field("invocation", str), field("of_version", int)
            arguments = field("arguments", Document)
            at = field("arguments_at", str) if "arguments_at" in fields else None
            if kind is Kind.STATUS:
                return StatusContext(*of, field("status", str), arguments, at)
            if kind is Kind.EXCEPTION:
                above = field("above", tuple) if "above" in fields else ()
                return ExceptionContext(*of, field("error", str), arguments, at, above)
            result_at = field("result_at", str) if "result_at" in fields else None
            return ResultContext(*of, fields.get("result"), arguments, at, result_at)


# --- cells ----------------------------------------------------------------------------------------


def stored_cell(condition_id: str, cell: ScheduleCell) -> Document:
    check_type(cell, ScheduleCell, "a cell")
    return Document((("_id", condition_id), ("last", cell.last), ("version", cell.version), ("pending", cell.pending)))


def loaded_cell(doc: Document) -> ScheduleCell:
    check_type(doc, Document, "a document")
    return ScheduleCell(needed(doc, _LAST), needed(doc, VERSION), needed(doc, _PENDING))


# --- runs -----------------------------------------------------------------------------------------


def stored_run(run: TriggerRun) -> Document:
    check_type(run, TriggerRun, "a run")
    firing = run.firing
    fields: tuple[tuple[str, Value], ...] = (
        ("_id", run.id),
        ("trigger", firing.trigger_id),
        ("number", firing.number),
        ("of", tuple(each.id for each in firing.occurrences)),
        ("occurrences", tuple(map(stored_occurrence, firing.occurrences))),
    )
    return Document((*fields, *stored_progress(run)))


def stored_progress(run: TriggerRun) -> tuple[tuple[str, Value], ...]:
    check_type(run, TriggerRun, "a run")
    counted: tuple[tuple[str, Value], ...] = (("attempt", run.attempt), ("version", run.version))
    match run.state:
        case Held(by, until):
            return (*counted, ("state", HELD), ("by", by), ("until", until))
        case Failed(reasons):
            return (*counted, ("state", FAILED), ("reasons", reasons))
        case GivenUp(reasons, at):
            return (*counted, ("state", _GIVEN_UP), ("reasons", reasons), ("at", at))
        case Fired(at):
            return (*counted, ("state", _FIRED), ("at", at))
        case _:
            assert_never(run.state)


def loaded_run(doc: Document) -> TriggerRun:
    """Load a run."""
    check_type(doc, Document, "a document")
    stored = needed(doc, _OCCURRENCES)
    check_tuple(stored, Document, "an occurrence")
    firing = Firing(needed(doc, TRIGGER), tuple([loaded_occurrence(each) for each in stored]), needed(doc, NUMBER))
    return TriggerRun(firing, _state(doc), needed(doc, _ATTEMPT), needed(doc, VERSION))


def _state(doc: Document) -> RunState:
    match needed(doc, STATE):
        case "held":
            return Held(needed(doc, _BY), needed(doc, _UNTIL))
        case "failed":
            return Failed(needed(doc, _REASONS))
        case "given up":
            return GivenUp(needed(doc, _REASONS), needed(doc, AT))
        case "fired":
            return Fired(needed(doc, AT))
        case other:
            raise Misuse(f"{shown(other)} is not a state of a run", where=f"the document {shown(doc.held(ID))}")


# --- calls ----------------------------------------------------------------------------------------


def call_of(task: str, arguments: Document) -> Call:
    """Return the call of a task with the arguments that a provider made."""
    check_type(arguments, Document, "a document")
    return Call(task, tuple((name, json.dumps(to_json(value))) for name, value in arguments.items))


def arguments_of(call: Call) -> Document:
    """Return the arguments of a call that a trigger made."""
    check_type(call, Call, "a call")
    try:
        return Document(tuple((name, from_json(json.loads(text))) for name, text in call.arguments))
    except (ValueError, RecursionError):
        raise Misuse("an argument of a call is not plain JSON", where=f"a call of {call.task!r}") from None


def origin_of(firing: Firing) -> Document:
    """Return the trigger, occurrences and parent event of a run's call."""
    check_type(firing, Firing, "a firing")
    parent = (("parent", firing.parent),) if firing.parent is not None else ()
    return Document((("trigger", firing.trigger_id), ("of", tuple(each.id for each in firing.occurrences)), *parent))
