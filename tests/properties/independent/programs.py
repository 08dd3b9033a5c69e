"""Little programs as data, and what they do: an interpreter of its own, for the simulator to be compared with.

A program is a tuple of statements. `source` writes it as Python, which the simulator runs; `flat` makes jumps of it, which
`advanced` runs here, so that a suspended program is a place in a list and the values of its variables. Nothing of
`tidegate` is used but to say what a request is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import attrs

VARIABLES = ("a", "b")
ANSWERED_BY = {
    "ambiguous": "Ambiguous", "not applied": "NotApplied", "refused": "Refused", "not durable": "NotDurable",
}  # fmt: skip
"""How a failure is called here, and there."""


class Doc(NamedTuple):
    """A document: names and values, in order."""

    fields: tuple[tuple[str, object], ...]

    def get(self, name: str) -> object:
        return dict(self.fields).get(name)

    def put(self, name: str, value: object) -> Doc:
        return Doc(tuple({**dict(self.fields), name: value}.items()))

    def without(self, name: str) -> Doc:
        return Doc(tuple((each, value) for each, value in self.fields if each != name))


class At(NamedTuple):
    """A point in time, in microseconds, by the store's clock or by that of a machine."""

    at: int
    wall: bool = False


@attrs.frozen
class After:  # which no tuple is equal to
    """Behind this change of a stream."""

    token: int


@attrs.frozen
class From:
    """From this change of a stream on."""

    time: int


class DocumentChange(NamedTuple):
    """What a stream tells of a document."""

    collection: str
    id: object
    is_gone: bool


class Page(NamedTuple):
    """What a stream tells at once."""

    changes: tuple[DocumentChange, ...]
    position: After | From


class Broken(NamedTuple):
    """A stream cannot go on."""

    code: int


def position_of(value: object) -> After | From:
    """Where to go on from: a position, or that of a page, or else the beginning."""
    match value:
        case After() | From():
            return value
        case Page():
            return value.position
        case _:
            return From(0)


class Const(NamedTuple):
    """A value."""

    value: object


class Me(NamedTuple):
    """The name of the process."""

    word: str = "me"


class Life(NamedTuple):
    """The number of its life."""

    word: str = "life"  # so that no other tuple is equal to it


class Var(NamedTuple):
    """What a variable holds."""

    name: str


class Picked(NamedTuple):
    """A field of the document in a variable; None if there is no document, or no such field."""

    name: str
    field: str


Expression: TypeAlias = Const | Me | Life | Var | Picked


class Term(NamedTuple):
    """What a filter, or an update, does to a field."""

    verb: str
    field: str = ""
    value: Any = Const(None)


class Ask(NamedTuple):
    """A request."""

    verb: str
    where: tuple[Term, ...] = ()
    changes: tuple[Term, ...] = ()
    name: str = ""
    value: Any = Const(None)


class Do(NamedTuple):
    """Ask, and keep the reply, or a field of it."""

    ask: Ask
    into: str = ""
    field: str = ""


class Set(NamedTuple):
    """Keep a value."""

    into: str
    value: Expression


class If(NamedTuple):
    """Where the two are the same."""

    left: Expression
    right: Expression
    then: Program
    otherwise: Program = ()


class Repeat(NamedTuple):
    """So many times."""

    counter: str
    times: int
    body: Program


class While(NamedTuple):
    """For as long as the two are not the same."""

    left: Expression
    right: Expression
    body: Program


class Try(NamedTuple):
    """Go on with the handler after such a failure."""

    body: Program
    failure: str
    handler: Program


class Return(NamedTuple):
    """The end."""

    value: Expression


class Raise(NamedTuple):
    """A bug."""


Statement: TypeAlias = Do | Set | If | Repeat | While | Try | Return | Raise
Program: TypeAlias = tuple[Any, ...]
"""Statements."""


# --- as Python ----------------------------------------------------------------------------------------------------------


def source(program: Program) -> str:
    lines = ["async def program(me, life):", f"    {' = '.join(VARIABLES)} = None", *_lines(program, "    ")]
    return "\n".join(lines)


def _lines(program: Program, indent: str) -> Iterator[str]:
    deeper = indent + "    "
    for each in program or (None,):
        match each:
            case None:
                yield f"{indent}pass"
            case Do(ask, into, field):
                asked = f"await {request(ask)}"
                reply = f"picked({asked}, {field!r})" if field else asked
                yield f"{indent}{into} = {reply}" if into else f"{indent}{asked}"
            case Set(into, value):
                yield f"{indent}{into} = {text(value)}"
            case If(left, right, then, otherwise):
                yield f"{indent}if same({text(left)}, {text(right)}):"
                yield from _lines(then, deeper)
                if otherwise:
                    yield f"{indent}else:"
                    yield from _lines(otherwise, deeper)
            case Repeat(counter, times, body):
                yield f"{indent}for {counter} in range({times}):"
                yield from _lines(body, deeper)
            case While(left, right, body):
                yield f"{indent}while not same({text(left)}, {text(right)}):"
                yield from _lines(body, deeper)
            case Try(body, failure, handler):
                yield f"{indent}try:"
                yield from _lines(body, deeper)
                yield f"{indent}except {ANSWERED_BY[failure]}:"
                yield from _lines(handler, deeper)
            case Return(value):
                yield f"{indent}return {text(value)}"
            case Raise():
                yield f"{indent}raise ValueError('a bug')"
            case other:
                raise AssertionError(other)


def text(expression: Expression) -> str:
    match expression:
        case Const(value):
            return repr(value)
        case Me():
            return "me"
        case Life():
            return "life"
        case Var(name):
            return name
        case Picked(name, field):
            return f"picked({name}, {field!r})"


def request(ask: Ask) -> str:
    where = ", ".join(_term(term) for term in ask.where)
    changes = "".join(f", {_term(term)}" for term in ask.changes)
    match ask.verb:
        case "find":
            return f"find_one('c', {where})"
        case "find all":
            return f"find_all('c', {where}{', ' if where else ''}limit={ask.value})"
        case "find and update":
            return f"find_one_and_update('c', AllOf(({where},)){changes})"
        case "update":
            return f"update_one('c', AllOf(({where},)){changes})"
        case "insert":
            fields = ", ".join(f"{term.field!r}: {text(term.value)}" for term in ask.changes)
            return f"insert_one('c', Document.of({{'_id': {text(ask.value)}, {fields}}}))"
        case "delete":
            return f"delete_one('c', {where})"
        case "note":
            return f"Note({ask.name!r}, {text(ask.value)})"
        case "sleep":
            return f"Sleep({ask.value})"
        case "time":
            return "StoreTime()"
        case "now":
            return "Now()"
        case "locate":
            return "Locate(1)"
        case "read":
            return f"Read(1, position_of({text(ask.value)}))"
        case "save":
            return f"Save({ask.name}, position_of({text(ask.value)}))"
        case "reset":
            return f"ResetHistory({ask.name})"
        case "call":
            return f"Call({ask.name!r}, ({text(ask.value)},))"
        case verb:
            raise AssertionError(verb)


def _term(term: Term) -> str:
    field = "ID" if term.field == "_id" else f"Field({term.field!r})"
    match term.verb:
        case "any":
            return f"AnyOf(({', '.join(_term(each) for each in term.value)},))"
        case "PutServerTime" | "Remove" | "Exists":
            return f"{term.verb}({field})"
        case "OlderThan" | "Lt" | "Add" | "In":
            return f"{term.verb}({field}, {term.value!r})"
        case "Push last":
            return f"Push({field}, {text(term.value)}, last=2)"
        case verb:
            return f"{verb}({field}, {text(term.value)})"


# --- as jumps -----------------------------------------------------------------------------------------------------------


class Asks(NamedTuple):
    """It stands here until there is a reply."""

    do: Do
    handlers: tuple[tuple[str, int], ...]
    """Where it goes on after which failure; the innermost first."""


class Jump(NamedTuple):
    """Go on there."""

    to: int


class Unless(NamedTuple):
    """Jump unless the two are the same."""

    left: Expression
    right: Expression
    to: int


class Counts(NamedTuple):
    """Jump when it has counted to the number; else keep the count, hidden and seen."""

    hidden: str
    seen: str
    times: int
    to: int


Code: TypeAlias = tuple[Any, ...]


def flat(program: Program) -> Code:
    code: list[Any] = []

    def emit(statements: Program, handlers: tuple[tuple[str, int], ...]) -> None:
        for each in statements:
            match each:
                case Do():
                    code.append(Asks(each, handlers))
                case If(left, right, then, otherwise):
                    test = _reserved(code)
                    emit(then, handlers)
                    end = _reserved(code)
                    code[test] = Unless(left, right, len(code))
                    emit(otherwise, handlers)
                    code[end] = Jump(len(code))
                case Repeat(counter, times, body):
                    hidden = f"counter {len(code)}"
                    code.append(Set(hidden, Const(0)))
                    test = _reserved(code)
                    emit(body, handlers)
                    code.append(Jump(test))
                    code[test] = Counts(hidden, counter, times, len(code))
                case While(left, right, body):
                    test, leave = _reserved(code), _reserved(code)
                    emit(body, handlers)
                    code.append(Jump(test))
                    code[test], code[leave] = Unless(left, right, leave + 1), Jump(len(code))
                case Try(body, failure, handler):
                    # The handler stands before the body, so that where it begins is known there.
                    skip = _reserved(code)
                    begin = len(code)
                    emit(handler, handlers)
                    end = _reserved(code)
                    code[skip] = Jump(len(code))
                    emit(body, ((failure, begin), *handlers))
                    code[end] = Jump(len(code))
                case _:
                    code.append(each)

    emit(program, ())
    code.append(Return(Const(None)))
    return tuple(code)


def _reserved(code: list[Any]) -> int:
    code.append(None)
    return len(code) - 1


Env: TypeAlias = tuple[tuple[str, object], ...]
"""The variables and what they hold."""


class Stands(NamedTuple):
    """Where a program stands: before a request, or at its end."""

    how: str  # asks, returned, raised, failed
    at: int
    env: Env
    what: object = None


def begun(code: Code, me: str, life: int) -> Stands:
    return advanced(code, 0, {"me": me, "life": life, **dict.fromkeys(VARIABLES)})


def answered(code: Code, stands: Stands, reply: object) -> Stands:
    env = dict(stands.env)
    do, handlers = code[stands.at]
    match reply:
        case Failed(kind):
            for failure, to in handlers:
                if failure == kind:
                    return advanced(code, to, env)
            return Stands("failed", 0, (), kind)
        case _:
            if do.into:
                env[do.into] = picked(reply, do.field) if do.field else reply
            return advanced(code, stands.at + 1, env)


class Failed(NamedTuple):
    """A reply that is raised."""

    kind: str


def advanced(code: Code, at: int, env: dict[str, object]) -> Stands:
    while True:
        match code[at]:
            case Asks(do):
                return Stands("asks", at, tuple(env.items()), resolved(do.ask, env))
            case Set(into, value):
                env[into] = evaluated(value, env)
                at += 1
            case Jump(to):
                at = to
            case Unless(left, right, to):
                at = at + 1 if same(evaluated(left, env), evaluated(right, env)) else to
            case Counts(hidden, seen, times, to):
                count = env.get(hidden)
                assert isinstance(count, int)
                if count == times:
                    at = to
                else:
                    env[seen], env[hidden] = count, count + 1
                    at += 1
            case Return(value):
                return Stands("returned", 0, (), evaluated(value, env))
            case Raise():
                return Stands("raised", 0, ())
            case other:
                raise AssertionError(other)


def evaluated(expression: Expression, env: dict[str, object]) -> object:
    match expression:
        case Const(value):
            return value
        case Me():
            return env["me"]
        case Life():
            return env["life"]
        case Var(name):
            return env[name]
        case Picked(name, field):
            return picked(env[name], field)


def picked(reply: object, field: str) -> object:
    return reply.get(field) if isinstance(reply, Doc) else None


def same(left: object, right: object) -> bool:
    """Of one type all the way down, and equal. True is not 1."""
    if type(left) is not type(right):
        return False
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def resolved(ask: Ask, env: dict[str, object]) -> Ask:
    """The request with values for expressions."""

    def term(each: Term) -> Term:
        if each.verb == "any":
            return each._replace(value=tuple(map(term, each.value)))
        return each._replace(value=_resolved(each.value, env))

    value = _resolved(ask.value, env)
    if ask.verb in {"read", "save"}:
        value = Const(position_of(evaluated(ask.value, env)))
    return ask._replace(where=tuple(map(term, ask.where)), changes=tuple(map(term, ask.changes)), value=value)


def _resolved(value: object, env: dict[str, object]) -> object:
    return Const(evaluated(value, env)) if isinstance(value, (Const, Me, Life, Var, Picked)) else value
