"""Small programs as data with their own interpreter, for comparison with the simulator.

`source` writes a program as Python for the simulator. `flat` compiles it to jumps, which `advanced`
runs here: a suspended program is an index and the values of its variables. The interpreter uses
`tidegate` only for the names of requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import attrs

VARIABLES = ("a", "b")
ANSWERED_BY = {
    "ambiguous": "Ambiguous", "not applied": "NotApplied", "refused": "Refused", "not durable": "NotDurable", "any": "Failure",
}  # fmt: skip


class Doc(NamedTuple):
    fields: tuple[tuple[str, object], ...]

    def get(self, name: str) -> object:
        return dict(self.fields).get(name)

    def put(self, name: str, value: object) -> Doc:
        return Doc(tuple({**dict(self.fields), name: value}.items()))

    def without(self, name: str) -> Doc:
        return Doc(tuple((each, value) for each, value in self.fields if each != name))


class At(NamedTuple):
    """In microseconds, on the store's clock or on a machine's."""

    at: int
    wall: bool = False


class Truth(NamedTuple):
    """A bool; Python's True equals 1."""

    value: bool


@attrs.frozen
class After:  # which no tuple is equal to
    token: int


@attrs.frozen
class From:
    time: int


class DocumentChange(NamedTuple):
    collection: str
    id: object
    is_gone: bool


class Page(NamedTuple):
    changes: tuple[DocumentChange, ...]
    position: After | From


class Broken(NamedTuple):
    code: int


def position_of(value: object) -> After | From:
    match value:
        case After() | From():
            return value
        case Page():
            return value.position
        case _:
            return From(0)


class Const(NamedTuple):
    value: object


class Me(NamedTuple):
    word: str = "me"


class Life(NamedTuple):
    word: str = "life"  # so that no other tuple is equal to it


class Var(NamedTuple):
    name: str


class Picked(NamedTuple):
    name: str
    field: str


class Session(NamedTuple):
    word: str = "session"


Expression: TypeAlias = Const | Me | Life | Var | Picked | Session


class Term(NamedTuple):
    verb: str
    field: str = ""
    value: Any = Const(None)


class Ask(NamedTuple):
    """A request.

    Attributes:
        name: Of a note, a call, or "epoch, history" of a record.
        value: An id, a limit, a duration, a position; the parts of a bulk or of an insert of many.
        sort: Field names; a leading "-" means descending.
        transaction: Session, number, and whether the request begins the transaction.
        begun: The store's progress with it, while it is under way.
    """

    verb: str
    where: tuple[Term, ...] = ()
    changes: tuple[Term, ...] = ()
    name: str = ""
    value: Any = Const(None)
    sort: tuple[str, ...] = ()
    transaction: tuple[Any, int, bool] | None = None
    begun: Any = None


class Do(NamedTuple):
    ask: Ask
    into: str = ""
    field: str = ""


class Set(NamedTuple):
    into: str
    value: Expression


class If(NamedTuple):
    left: Expression
    right: Expression
    then: Program
    otherwise: Program = ()


class Repeat(NamedTuple):
    """Over a generator, whose state the simulator cannot compare."""

    counter: str
    times: int
    body: Program
    is_lazy: bool = False


class While(NamedTuple):
    left: Expression
    right: Expression
    body: Program


class Try(NamedTuple):
    body: Program
    failure: str
    handler: Program


class Finally(NamedTuple):
    body: Program
    cleanup: Program


class Reraise(NamedTuple):
    pass


class Break(NamedTuple):
    pass


class Return(NamedTuple):
    value: Expression


class Raise(NamedTuple):
    pass


Statement: TypeAlias = Do | Set | If | Repeat | While | Try | Finally | Reraise | Break | Return | Raise
Program: TypeAlias = tuple[Any, ...]

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
            case Repeat(counter, times, body, is_lazy):
                numbers = f"(each for each in range({times}))" if is_lazy else f"range({times})"
                yield f"{indent}for {counter} in {numbers}:"
                yield from _lines(body, deeper)
            case While(left, right, body):
                yield f"{indent}while not same({text(left)}, {text(right)}):"
                yield from _lines(body, deeper)
            case Try(body, failure, handler):
                yield f"{indent}try:"
                yield from _lines(body, deeper)
                yield f"{indent}except {ANSWERED_BY[failure]}:"
                yield from _lines(handler, deeper)
            case Finally(body, cleanup):
                yield f"{indent}try:"
                yield from _lines(body, deeper)
                yield f"{indent}finally:"
                yield from _lines(cleanup, deeper)
            case Reraise():
                yield f"{indent}raise"
            case Break():
                yield f"{indent}break"
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
        case Session():
            return "f'{me}-{life}'"


def request(ask: Ask) -> str:
    if ask.transaction is None:
        return _operation(ask)
    session, number, begins = ask.transaction
    which = f"Transaction({text(session)}, {number})"
    match ask.verb:
        case "commit":
            return f"CommitTransaction({which})"
        case "abort":
            return f"AbortTransaction({which})"
        case _:
            return f"InTransaction({which}, {_operation(ask)}, begins={begins})"


def _operation(ask: Ask) -> str:
    where = ", ".join(_term(term) for term in ask.where)
    changes = "".join(f", {_term(term)}" for term in ask.changes)
    match ask.verb:
        case "find":
            return f"find_one('c', {where}, sort={_sort(ask)})"
        case "find all":
            return f"find_all('c', {where}{', ' if where else ''}limit={ask.value}, sort={_sort(ask)})"
        case "find and update":
            return f"find_one_and_update('c', AllOf(({where},)){changes}, sort={_sort(ask)})"
        case "update" | "update many":
            return f"update_{'one' if ask.verb == 'update' else 'many'}('c', AllOf(({where},)){changes})"
        case "upsert":
            return f"upsert_one('c', {f'AllOf(({where},))' if len(ask.where) > 1 else where}{changes})"
        case "delete many":
            return f"delete_many('c', {where})"
        case "bulk" | "insert many":
            parts = ", ".join(map(_operation, ask.value))
            return (
                f"BulkUpdate(({parts},))"
                if ask.verb == "bulk"
                else f"InsertMany('c', tuple(each.doc for each in ({parts},)))"
            )
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


def _sort(ask: Ask) -> str:
    terms = (f"{'Descending' if each[0] == '-' else 'Ascending'}(Field({each.lstrip('-')!r}))" for each in ask.sort)
    return "(" + "".join(f"{term}, " for term in terms) + ")"


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


Handlers: TypeAlias = tuple[tuple[str, int, str], ...]
"""(failure, target, variable), the innermost first. "finally" also catches errors."""


class Asks(NamedTuple):
    do: Do
    handlers: Handlers


class Raises(NamedTuple):
    handlers: Handlers
    kept: str = ""


class Jump(NamedTuple):
    to: int


class Unless(NamedTuple):
    left: Expression
    right: Expression
    to: int


class Counts(NamedTuple):
    """Jump once the counter reaches the number; else store the counter, hidden and visible."""

    hidden: str
    seen: str
    times: int
    to: int


Code: TypeAlias = tuple[Any, ...]


class _Context(NamedTuple):
    handlers: Handlers = ()
    cleanups: tuple[tuple[Program, Any], ...] = ()
    loop: tuple[list[int], int] = ([], 0)
    kept: str = ""


def flat(program: Program) -> Code:  # noqa: PLR0915  one case for each statement
    code: list[Any] = []

    def emit(statements: Program, here: _Context) -> None:  # noqa: PLR0915
        for each in statements:
            match each:
                case Do():
                    code.append(Asks(each, here.handlers))
                case If(left, right, then, otherwise):
                    test = _reserved(code)
                    emit(then, here)
                    end = _reserved(code)
                    code[test] = Unless(left, right, len(code))
                    emit(otherwise, here)
                    code[end] = Jump(len(code))
                case Repeat(counter, times, body):
                    hidden = f"counter {len(code)}"
                    code.append(Set(hidden, Const(0)))
                    test, breaks = _reserved(code), list[int]()
                    emit(body, here._replace(loop=(breaks, len(here.cleanups))))
                    code.append(Jump(test))
                    code[test] = Counts(hidden, counter, times, len(code))
                    for at in breaks:
                        code[at] = Jump(len(code))
                case While(left, right, body):
                    test, leave, breaks = _reserved(code), _reserved(code), list[int]()
                    emit(body, here._replace(loop=(breaks, len(here.cleanups))))
                    code.append(Jump(test))
                    code[test], code[leave] = Unless(left, right, leave + 1), Jump(len(code))
                    for at in breaks:
                        code[at] = Jump(len(code))
                case Try(body, failure, handler):
                    # The handler precedes the body in the code, so that its start is known there.
                    skip, kept = _reserved(code), f"failure {len(code)}"
                    begin = len(code)
                    emit(handler, here._replace(kept=kept))
                    end = _reserved(code)
                    code[skip] = Jump(len(code))
                    emit(body, here._replace(handlers=((failure, begin, kept), *here.handlers)))
                    code[end] = Jump(len(code))
                case Finally(body, cleanup):
                    skip, kept = _reserved(code), f"failure {len(code)}"
                    begin = len(code)
                    emit(cleanup, here)
                    code.append(Raises(here.handlers, kept))
                    code[skip] = Jump(len(code))
                    handlers = (("finally", begin, kept), *here.handlers)
                    emit(body, here._replace(handlers=handlers, cleanups=((cleanup, here), *here.cleanups)))
                    emit(cleanup, here)
                case Return(value) if here.cleanups:
                    hidden = f"returned {len(code)}"
                    code.append(Set(hidden, value))
                    leave_blocks(here, 0)
                    code.append(Return(Var(hidden)))
                case Break():
                    breaks, depth = here.loop
                    leave_blocks(here, depth)
                    breaks.append(_reserved(code))
                case Reraise():
                    code.append(Raises(here.handlers, here.kept))
                case Raise():
                    code.append(Raises(here.handlers))
                case _:
                    code.append(each)

    def leave_blocks(here: _Context, depth: int) -> None:
        for cleanup, around in here.cleanups[: len(here.cleanups) - depth]:
            emit(cleanup, around)

    emit(program, _Context())
    code.append(Return(Const(None)))
    return tuple(code)


def _reserved(code: list[Any]) -> int:
    code.append(None)
    return len(code) - 1


Env: TypeAlias = tuple[tuple[str, object], ...]


class Stands(NamedTuple):
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
            return raised(code, handlers, env, kind)
        case _:
            if do.into:
                env[do.into] = picked(reply, do.field) if do.field else reply
            return advanced(code, stands.at + 1, env)


ERROR = "an error"


def raised(code: Code, handlers: Handlers, env: dict[str, object], kind: str) -> Stands:
    for failure, to, kept in handlers:
        if failure == "finally" or (kind != ERROR and failure in {kind, "any"}):
            return advanced(code, to, {**env, kept: kind})
    return Stands("raised", 0, ()) if kind == ERROR else Stands("failed", 0, (), kind)


class Failed(NamedTuple):
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
            case Raises(handlers, kept):
                return raised(code, handlers, env, str(env.get(kept, ERROR)))
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
        case Session():
            return f"{env['me']}-{env['life']}"


def picked(reply: object, field: str) -> object:
    return reply.get(field) if isinstance(reply, Doc) else None


def same(left: object, right: object) -> bool:
    """True is not 1, at every level."""
    if type(left) is not type(right):
        return False
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def resolved(ask: Ask, env: dict[str, object]) -> Ask:
    def term(each: Term) -> Term:
        if each.verb == "any":
            return each._replace(value=tuple(map(term, each.value)))
        return each._replace(value=_resolved(each.value, env))

    value = _resolved(ask.value, env)
    if ask.verb in {"bulk", "insert many"}:
        value = tuple(resolved(part, env) for part in ask.value)
    if ask.transaction is not None:
        session, number, begins = ask.transaction
        ask = ask._replace(transaction=(_resolved(session, env), number, begins))
    if ask.verb in {"read", "save"}:
        value = Const(position_of(evaluated(ask.value, env)))
    return ask._replace(where=tuple(map(term, ask.where)), changes=tuple(map(term, ask.changes)), value=value)


def _resolved(value: object, env: dict[str, object]) -> object:
    return Const(evaluated(value, env)) if isinstance(value, (Const, Me, Life, Var, Picked, Session)) else value
