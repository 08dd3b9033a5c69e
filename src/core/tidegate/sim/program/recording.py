"""A recorded production run: the requests of a program and their replies, for re-execution.

A program learns about the world only through replies, so a run depends only on them. With the
recorded replies, the same program makes the same requests in the same order. A changed program is
caught at its first different request, with the line of its `await`. A recording of a reducer holds
its events; re-execution compares its commands.

A recording is text, one JSON object a line, so a kill can interrupt the writer at any point:

    {"schema": "tidegate/recording@3", "program": "transition", "kind": "program",
     "arguments": digest, "versions": {...}}
    {"i": 1, "what": "find ...", "effect": {...}, "reply": {...}}
        a program made a request and received a reply
    {"i": 2, "what": "call ...", "effect": {...}, "ended": "CancelledError"}
        the run was ended during the request
    {"i": 1, "what": "fetched ...", "event": {...}, "commands": [...]}
        a reducer received an event and returned commands
    {"end": 2}
        the run ended by itself after this many lines

A kill may leave an incomplete last line: it is reported, and the lines before it are used. Any
other damage is an error that names the line.

Laws
    RD1  The program that made a recording reproduces the run from it.
    RD2  A program with a different request is caught at exactly that step.
    RD3  All whole lines of a truncated recording are used.

Known not to work: a hidden value is another text in the re-execution, so a program that computes
with a secret may decide differently; the recorder states what is hidden. Runs that share one file
are not separated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, TypeAlias, TypeVar, cast, final

import attrs

from tidegate._version import __version__
from tidegate.model.bytecode import PYTHON
from tidegate.model.documents import one_line
from tidegate.model.effects import Call, Effect, Program
from tidegate.model.errors import Misuse
from tidegate.model.patches import Json
from tidegate.model.reducer import Step
from tidegate.model.transactions import AbortTransaction
from tidegate.sim.program.automaton import Asking, ProcessStatus, resume
from tidegate.sim.program.source_locations import awaited_at, decided_at
from tidegate.sim.program.tagged import (
    Classes,
    FieldPath,
    Hide,
    matches,
    named_classes,
    nothing_hidden,
    tagged,
    untagged,
)
from tidegate.sim.program.type_names import name_of, upgraded

S = TypeVar("S")
E = TypeVar("E")

_SCHEMA: Final = "tidegate/recording@3"
_OLD_SCHEMAS: Final = ("tidegate/recording@1", "tidegate/recording@2")
"""Still readable. The first names classes by module and calls commands wishes; the second lists
each offset and key.
"""
RecordingKind: TypeAlias = Literal["program", "reducer"]


@final
@attrs.frozen
class Entry:
    """One line of a run.

    Attributes:
        what: The effect or the event, in words.
        asked: The effect, or the event, as JSON.
        answer: The reply, or the commands, as JSON; "" if the run was ended instead.
        ended: The error that ended the run during the effect, or "".
    """

    what: str
    asked: str
    answer: str
    ended: str = ""


@final
@attrs.frozen
class Recording:
    """A recorded run.

    Attributes:
        program: The name that the recorder gave.
        arguments: A digest of its arguments.
        version: The version of tidegate that recorded it.
        python: The version of Python that recorded it.
        is_whole: Whether the run ended by itself.
        damage: The damage of its last line, or "".
    """

    program: str
    kind: RecordingKind
    arguments: str
    version: str
    python: str
    entries: tuple[Entry, ...]
    is_whole: bool
    damage: str = ""


# --- writing ----------------------------------------------------------------------------------


def header(program: str, kind: RecordingKind, arguments: str) -> str:
    versions: Json = {"tidegate": __version__, "python": PYTHON}
    return _line({"schema": _SCHEMA, "program": program, "kind": kind, "arguments": arguments, "versions": versions})


def replied(number: int, effect: Effect[object], reply: object, hide: Hide) -> str:
    name = (effect.name,) if isinstance(effect, Call) else ()  # paths into replies of user code begin with its name
    answer = tagged(reply, lambda path, value: hide((*name, *path), value))
    return _line({**asked(number, effect, "effect", hide), "reply": answer})


def ended(number: int, effect: Effect[object], error: BaseException, hide: Hide) -> str:
    return _line({**asked(number, effect, "effect", hide), "ended": type(error).__name__})


def handled(number: int, event: object, commands: Iterable[Effect[object]], hide: Hide) -> str:
    return _line({**asked(number, event, "event", hide), "commands": [tagged(command, hide) for command in commands]})


def last(number: int) -> str:
    return _line({"end": number})


def asked(number: int, item: object, role: str, hide: Hide) -> dict[str, Json]:
    hidden: list[str] = []

    def noticed(path: FieldPath, value: object) -> str | None:
        label = hide(path, value)
        if label is not None:
            hidden.append(label)
        return label

    plain = tagged(item, noticed)
    return {"i": number, "what": _without_secrets(item, plain) if hidden else one_line(str(item)), role: plain}


def _without_secrets(item: object, plain: Json) -> str:
    """The text of the item after reading it back."""
    try:
        return one_line(str(untagged(plain, _classes_in(item))))
    except Misuse:  # a hidden value is of another type
        return type(item).__name__


def _classes_in(item: object) -> Classes:
    todo, found = [item], set[type]()
    while todo:
        value = todo.pop()
        found.add(type(value))
        if isinstance(value, (tuple, frozenset)):
            todo += value
        fields: tuple[attrs.Attribute[object], ...] = getattr(type(value), "__attrs_attrs__", ())
        todo += [getattr(value, field.name) for field in fields]
    return named_classes(found)


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def _line(item: dict[str, Json]) -> str:
    return _ENCODER.encode(item) + "\n"


# --- reading ----------------------------------------------------------------------------------


def is_recording(text: str) -> bool:
    return text.startswith(f'{{"schema":"{_SCHEMA.partition("@")[0]}@')


def read(text: str) -> Recording:
    """Parse a recording.

    Raises:
        Misuse: It is no recording, has an unknown version, or is damaged before its last line.
    """
    first, *rest = text.split("\n")
    head = _parsed(first, 1)
    if head.get("schema") not in (*_OLD_SCHEMAS, _SCHEMA):
        raise Misuse(f"a recording of version {head.get('schema')!r}", why=f"this tidegate reads {_SCHEMA!r}")
    damage, is_whole = "", False
    entries: list[Entry] = []
    if rest and rest[-1]:
        damage = f"line {len(rest) + 1} is not whole"
    for number, each in enumerate(rest[:-1], 2):
        if is_whole:
            raise _damaged(number, "the run has ended before")
        found = _parsed(each, number)
        if "end" in found:
            is_whole = found["end"] == len(entries)
            if not is_whole:
                raise _damaged(number, f"it ends after {found['end']!r} lines, and there are {len(entries)}")
        else:
            entries.append(_entry(_of_today(found, number), number, len(entries) + 1))
    kind = head.get("kind")
    if kind not in ("program", "reducer"):
        raise _damaged(1, "it is of no program and of no reducer")
    versions = head.get("versions")
    packages = cast("dict[str, object]", versions) if isinstance(versions, dict) else {}
    return Recording(
        program=_string(head.get("program"), 1),
        kind=kind,
        arguments=_string(head.get("arguments", ""), 1),
        version=_string(packages.get("tidegate", ""), 1),
        python=_string(packages.get("python", ""), 1),
        entries=tuple(entries),
        is_whole=is_whole,
        damage=damage,
    )


def _parsed(text: str, number: int) -> dict[str, object]:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(number, str(error)) from error
    if not isinstance(found, dict):
        raise _damaged(number, "it is not an object")
    return cast("dict[str, object]", found)


def _of_today(found: dict[str, object], number: int) -> dict[str, object]:
    try:
        return {"commands" if key == "wishes" else key: upgraded(item) for key, item in found.items()}
    except RecursionError as error:
        raise _damaged(number, str(error)) from error


def _entry(found: dict[str, object], number: int, expected: int) -> Entry:
    if found.get("i") != expected:
        raise _damaged(number, f"number {expected} is missing")
    item = found.get("effect", found.get("event"))
    answer = found.get("reply") if "reply" in found else found.get("commands")
    stopped = _string(found.get("ended", ""), number)
    if item is None or not ({"reply", "commands", "ended"} & found.keys()):
        raise _damaged(number, "it says not what was asked, or not what was answered")
    return Entry(
        _string(found.get("what", ""), number), json.dumps(item), "" if stopped else json.dumps(answer), stopped
    )


def _string(found: object, number: int) -> str:
    if not isinstance(found, str):
        raise _damaged(number, f"there is {found!r} where a text belongs")
    return one_line(found)


def _damaged(number: int, why: str) -> Misuse:
    return Misuse(f"line {number} of a recording is damaged", why=why)


# --- re-execution -----------------------------------------------------------------------------


@final
@attrs.frozen
class Same:
    """All decisions are the same.

    Attributes:
        steps: Their number.
        then: What follows the last line, in words.
    """

    steps: int
    then: str


@final
@attrs.frozen
class Other:
    """A decision differs.

    Attributes:
        step: Its line of the run, counted from 1.
        recorded: The recorded effect or commands.
        now: The present effect or commands.
        src: `file.py:line function` of the `await`, or of the decision; "" if the program has
            ended.
    """

    step: int
    recorded: str
    now: str
    src: str


Executed: TypeAlias = Same | Other
NOTHING_MORE: Final = "nothing more"
_ABORT: Final = json.dumps(name_of(AbortTransaction))


def executed(recording: Recording, program: Program[object], classes: Classes) -> Executed:
    """Execute a program on the recorded replies.

    Args:
        recording: Of a program.
        program: A new run with the same arguments.
        classes: The classes that replies may have.

    Raises:
        Misuse: The recording is of a reducer, or holds a value of an unknown class.
    """
    try:
        if recording.kind != "program":
            raise Misuse(
                "this is the recording of a reducer",
                todo="name the rules that it had: a ConsumerRules or a WorkerRules",
            )
        return _executed_on(recording, program, classes)
    finally:
        program.close()


def _executed_on(recording: Recording, program: Program[object], classes: Classes) -> Executed:
    status = resume(program, None)
    for number, each in enumerate(recording.entries, 1):
        if not isinstance(status, Asking):
            if _ABORT in each.asked:
                continue  # the driver aborted a transaction that the program left open
            return Other(number, each.what, one_line(str(status)), "")
        if not matches(json.loads(each.asked), tagged(status.effect)):
            return Other(number, each.what, one_line(str(status.effect)), awaited_at(program))
        if each.ended:
            return Same(number, f"the run was ended: {each.ended}")
        status = resume(program, untagged(json.loads(each.answer), classes))
    done = len(recording.entries)
    if recording.is_whole and isinstance(status, Asking):
        return Other(done + 1, NOTHING_MORE, one_line(str(status.effect)), awaited_at(program))
    return Same(done, one_line(status_line(status, is_whole=recording.is_whole)))


def status_line(status: ProcessStatus, *, is_whole: bool) -> str:
    return str(status) if is_whole or not isinstance(status, Asking) else f"the recording ends; {status}"


def stepped(
    recording: Recording, first: S, step: Callable[[S, E], Step[S, Effect[object]]], classes: Classes
) -> Executed:
    """Give a reducer the recorded events.

    Args:
        recording: Of a reducer.
        first: Its first state.
        step: The reducer.
        classes: The classes that events may have.

    Raises:
        Misuse: The recording is of a program, or holds a value of an unknown class.
    """
    if recording.kind != "reducer":
        raise Misuse("this is the recording of a program", todo="name a function that makes a run of it")
    state = first
    for number, each in enumerate(recording.entries, 1):
        after = step(state, cast("E", untagged(json.loads(each.asked), classes)))
        state = after.state
        recorded = json.loads(each.answer)
        if not matches(recorded, [tagged(command) for command in after.commands]):
            return Other(
                number, "; ".join(_words(recorded, classes)) or NOTHING_MORE, _in_list(after.commands), decided_at(step)
            )
    return Same(len(recording.entries), "")


def _words(commands: object, classes: Classes) -> Iterator[str]:
    for command in cast("list[object]", commands):
        yield one_line(str(untagged(command, classes)))


def _in_list(commands: tuple[Effect[object], ...]) -> str:
    return "; ".join(one_line(str(command)) for command in commands) or NOTHING_MORE


def digest_of(arguments: object, hide: Hide = nothing_hidden) -> str:
    """The arguments as text for a digest, without hidden values."""
    return json.dumps(tagged(arguments, hide), sort_keys=True)
