"""The behaviour of a program, learned lazily: an automaton whose nodes are suspended programs.

`after(node, reply)` runs the real program once per distinct (node, reply). It returns an earlier
node if both are the same value (`tidegate.sim.program.fingerprint`), else a new one. So the explored
program is the real one. Programs at one node are interchangeable: the automaton parks and reuses
them, and replays a program from its replies only when none is parked. A replay that awaits a
different effect reveals state outside the program and raises `Nondeterministic`.

Other state (a global, a class, a cache, a context variable, an `is` comparison) can make a merge
wrong without any replay. So after a search, fresh programs execute whole runs again
(`tidegate.sim.program.rerun`).

In relative time a program may use a reply's instants only until its next await
(`tidegate.sim.program.relative_time`). Its locals are not part of the state, so an instant there would not age.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from types import CodeType
from typing import Final, NamedTuple, TypeAlias, final

import attrs

from tidegate.model import operations
from tidegate.model.documents import show
from tidegate.model.effects import Ambiguous, Effect, Failure, NotDurable, Program, Sleep, checked_effect
from tidegate.model.errors import ControlFlow, Misuse, TidegateError, UnknownEffect, typed
from tidegate.model.immutable import frozen_fields, must_be_value
from tidegate.model.instants import Duration
from tidegate.model.unawaited import check_awaited
from tidegate.sim.program.fingerprint import Canon, Unmergeable, fingerprint
from tidegate.sim.program.outside import differs, reached
from tidegate.sim.program.relative_time import (
    InstantRefused,
    RelativeInstant,
    check_use,
    horizon_of,
    plain,
    plain_text,
    settled,
)
from tidegate.sim.program.source_locations import awaited_at, defined_at, holders, raised_at, told

__all__ = [
    "Asking", "Birth", "Cancelled", "Crashed", "Failed", "ProcessStatus", "ProgramAutomaton", "Raised",
    "Returned", "check_again", "checked_effect", "close_quietly", "resume",
]  # fmt: skip


@final
@attrs.frozen
class Asking:
    """The program awaits an effect."""

    effect: Effect[object]

    def __str__(self) -> str:
        return f"about to {self.effect}"


@final
@attrs.frozen
class Returned:
    """The program returned."""

    value: object

    def __str__(self) -> str:
        return f"finished: {show(self.value)}"


@final
@attrs.frozen
class Failed:
    """The program let its last reply, a failure, propagate."""

    failure: Failure

    def __str__(self) -> str:
        return f"failed: {self.failure}"


@final
@attrs.frozen
class Raised:
    """The program raised its own error: a bug that breaks `NO_ERROR`, a law of every scenario.

    Attributes:
        error: Its type and message.
        where: The line that raised it and the program's calling lines, innermost first.
    """

    error: str
    where: str = ""

    def __str__(self) -> str:
        return f"raised {self.error}" + (f" at {self.where}" if self.where else "")


@final
@attrs.frozen
class Crashed:
    """The process died and lost its memory."""

    def __str__(self) -> str:
        return "crashed"


@final
@attrs.frozen
class Cancelled:
    """The await was cancelled and the program closed. Its last request may have taken effect."""

    def __str__(self) -> str:
        return "cancelled"


_SLEEPS_MAX: Final = 1_000
"""The maximum number of consecutive untimed sleeps that the automaton follows."""
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
"""Removes the address of an object from an error text: it differs in each run."""
_NO_LOOP: Final = "RuntimeError: no running event loop"

ProcessStatus: TypeAlias = Asking | Returned | Failed | Raised | Crashed | Cancelled
Birth: TypeAlias = Callable[[int], Program[object]]
"""Maps a life (0, then 1 after a restart, ...) to a new run of the program."""


class _Came(NamedTuple):
    node: int
    reply: object


@final
@attrs.define(eq=False)
class _Node:
    status: ProcessStatus
    exact: object
    life: int
    came: _Came | None
    unmerged: str
    src: str
    parked: list[Program[object]] = attrs.field(factory=list)
    edges: dict[Hashable, tuple[object, int]] = attrs.field(factory=dict)


@final
class ProgramAutomaton:
    """The automaton of one program. The first nodes are Crashed and Cancelled.

    Args:
        is_checked: Another automaton has already checked these programs for forgotten awaits.
    """

    def __init__(self, birth: Birth, process: str = "", *, is_checked: bool = False) -> None:
        self.birth, self.process, self.is_checked = birth, process, is_checked
        self.nodes = [_Node(end, None, 0, None, unmerged="", src="") for end in (Crashed(), Cancelled())]
        self.known: dict[Hashable, int] = {}
        self.births: dict[int, int] = {}
        self.looked_through: set[CodeType | None] = set()
        self.canon = Canon()
        self.is_relative = False
        self.slept_to: dict[tuple[int, Duration], int] = {}
        self.cut_off: set[str] = set()
        self.has_raised = False
        self.is_sent = False

    def __reduce__(self) -> tuple[object, ...]:
        """Sent to another process, an automaton knows the statuses of its nodes and has no
        programs.
        """
        return _recorded, (self.birth, self.process, [node.status for node in self.nodes])

    CRASHED: Final = 0
    CANCELLED: Final = 1

    def status(self, node: int) -> ProcessStatus:
        return self.nodes[node].status

    def start(self, life: int) -> int:
        if life not in self.births:
            self.must_be_here()
            program = self.begun(life)
            code = getattr(program, "cr_code", None)
            if not self.is_checked and code not in self.looked_through:
                self.looked_through.add(code)
                check_awaited(program)
            self.births[life] = self.park(program, resume(program, None), life, None)
        return self.births[life]

    def begun(self, life: int) -> Program[object]:
        todo = f'write Process({self.process!r}, factory(program, "argument")), with an `async def` as the program'
        try:
            program = self.birth(life)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # raised inside the factory
            raise Misuse(
                f"no program begins: {error}", why="it is called with the number of its life", todo=todo
            ) from None
        if not (hasattr(program, "send") and hasattr(program, "throw")):
            raise Misuse(f"{typed(program)} is no program", where=f"process {self.process}", todo=todo)
        return program

    def after(self, node: int, reply: object) -> int:
        try:
            key: Hashable = self.canon.key(plain(reply) if self.is_relative else reply)
        except Misuse as deep:
            deep.where = f"a reply to process {self.process}, at {self.nodes[node].src}"
            raise
        if key is None:
            must_be_value(reply, "a reply")
        if self.is_relative and (horizon := horizon_of(reply)) is not None:
            key = (horizon, key)  # under another horizon, or in absolute time, the program may do more than here
        edges = self.nodes[node].edges
        found = edges.get(key)
        if found is None:
            reply = settled(reply) if self.is_relative else reply
            found = edges[key] = (reply, self.run(node, reply))
        return found[1]

    def slept(self, node: int, quantum: Duration, lasts: Callable[[Duration], Duration]) -> int:
        """The node of the program after all sleeps shorter than a quantum.

        No clock observes such a sleep, nor any sleep at quantum 0. A program that only sleeps stays
        asleep.

        Args:
            node: The node where it begins.
            quantum: The step of the clock, in microseconds.
            lasts: Converts a sleep to the store's clock.
        """
        at, passed = node, set[int]()
        while at not in passed:
            match self.status(at):
                case Asking(Sleep() as sleep) if lasts(sleep.least) < quantum or not quantum:
                    if len(passed) == _SLEEPS_MAX:
                        self.cut_off.add(self.nodes[at].src)
                        break
                    passed.add(at)
                    at = self.slept_to.get((at, quantum)) or self.after(at, None)
                case _:
                    break
        for each in passed:
            self.slept_to[each, quantum] = at
        return at

    @property
    def unexplored(self) -> tuple[str, ...]:
        many = f"more than {_SLEEPS_MAX:,} sleeps in a row, and what comes after them was not explored"
        return tuple(
            f"{many}, at {src}: give the scenario a clock, or let it sleep less" for src in sorted(self.cut_off)
        )

    @property
    def unmerged(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(node.unmerged for node in self.nodes if node.unmerged))

    @property
    def unsure(self) -> tuple[str, ...]:
        """The failures that ended the program with an unknown outcome, each with its last await."""
        ends = (
            f"{type(end.failure).__name__} after the await at {node.src}"
            for node in self.nodes
            for _, to in node.edges.values()
            if isinstance(end := self.nodes[to].status, Failed) and isinstance(end.failure, (Ambiguous, NotDurable))
        )
        return tuple(dict.fromkeys(ends))

    def must_be_here(self) -> None:
        if self.is_sent:
            raise NotSentError(f"the programs of {self.process} are not sent along")

    def run(self, number: int, reply: object) -> int:
        self.must_be_here()
        life, program = self.nodes[number].life, self.standing(number).pop()
        status = resume(program, reply)
        if self.is_relative:
            check_use(reply)
        return self.park(program, status, life, _Came(number, reply))

    def standing(self, number: int) -> list[Program[object]]:
        node = self.nodes[number]
        assert isinstance(node.status, Asking), node.status
        if not node.parked:
            node.parked.append(self.replayed(self.way(number), node.life))
        return node.parked

    def way(self, number: int) -> list[int]:
        way = [number]
        while (came := self.nodes[way[-1]].came) is not None:
            way.append(came.node)
        return way[::-1]

    def replayed(self, way: Sequence[int], life: int) -> Program[object]:
        """A fresh program, replayed along the same nodes.

        Raises:
            Nondeterministic: It behaves differently than before.
        """
        program = self.birth(life)
        status = resume(program, None)
        for nth, number in enumerate(way):
            node = self.nodes[number]
            if nth and node.came is not None:  # the first node is the start, even if another run first reached it later
                status = resume(program, node.came.reply)
            self.compare(node, status)
        return program

    def compare(self, node: _Node, status: ProcessStatus) -> None:
        if self.canon.key(status) != node.exact:
            came = node.came
            line = node.src or (self.nodes[came.node].src if came is not None else "")
            check_again(node.status, status, line)
            what = f"with the same replies a program was first {node.status} and then stood at: {status}"
            raise differs(what, self.process, line, reached(self.birth))

    def placed(self) -> Iterator[tuple[_Node, Hashable]]:
        """The nodes, each with its position in the program and its locals; with its number where
        these are unknown.
        """
        places = {number: key for key, number in self.known.items()}
        for number, node in enumerate(self.nodes):
            yield node, places.get(number, number)

    def let_go(self) -> None:
        for node in self.nodes:
            while node.parked:
                close_quietly(node.parked.pop())

    def park_again(self, number: int, program: Program[object]) -> None:
        """Keep a program that stopped at the node: dropping it may have side effects, and it can be
        reused.
        """
        if isinstance(self.nodes[number].status, Asking):
            self.nodes[number].parked.append(program)

    def park(self, program: Program[object], status: ProcessStatus, life: int, came: _Came | None) -> int:
        try:
            exact = self.canon.key(status)
            place: object = fingerprint(program, self.canon) if isinstance(status, Asking) else ()
        except Misuse as deep:
            deep.where = f"process {self.process}, at {awaited_at(program) or defined_at(program)}"
            raise
        if exact is None:
            _must_be_immutable(status)
        if self.is_relative and came is not None and plain(came.reply) is not came.reply:
            _check_held(program, status, place)
        if isinstance(place, Unmergeable):
            number = len(self.nodes)  # each (node, reply) leads to its own node
        else:
            number = self.known.setdefault((exact, place), len(self.nodes))
        if number == len(self.nodes):
            unmerged = place.reason if isinstance(place, Unmergeable) else ""
            self.has_raised = self.has_raised or isinstance(status, Raised)
            self.nodes.append(_Node(status, exact, life, came, unmerged, awaited_at(program)))
        if isinstance(status, Asking):
            self.nodes[number].parked.append(program)
        return number


_CLOSES_MAX: Final = 100


def close_quietly(program: Program[object]) -> None:
    """Close a suspended program, so that Python does not warn when it is dropped."""
    for _ in range(_CLOSES_MAX):
        try:
            program.close()
        except BaseException:  # noqa: BLE001, S112  it awaits again, or raises what interests nobody
            continue
        return


def check_again(first: ProcessStatus, then: ProcessStatus, line: str) -> None:
    """Raise Misuse if two runs differ in a class that each created, or in recursion depth."""
    for each in (first, then):
        if isinstance(each, Raised) and each.error.startswith("RecursionError"):
            raise Misuse(
                f"a program calls itself without end: {each.error}",
                where=each.where,
                why="how many calls Python permits depends on what called the program",
                todo="write a loop, or give the recursion an end",
            )
    one, other = set(_classes(first)), set(_classes(then))
    made = {each.__qualname__ for each in one - other} & {each.__qualname__ for each in other - one}
    if made:
        raise Misuse(
            f"a program makes the class {min(made)}, so that each run has another one",
            where=line,
            why="values of two classes are not the same, and a program is run again and again",
            todo="define it outside of the program",
        )


def _classes(value: object) -> Iterator[type]:
    yield type(value)
    if isinstance(value, type):
        yield value
    fields = frozen_fields(type(value)) or ()  # type: ignore[arg-type]  # a class is hashable
    parts = value if isinstance(value, (tuple, frozenset)) else [getattr(value, field, None) for field in fields]
    for part in parts:
        yield from _classes(part)


def _check_held(program: Program[object], status: ProcessStatus, place: object) -> None:
    if not isinstance(status, Asking):
        if plain(status) is not status:
            raise InstantRefused(f"is {plain_text(status)}, which holds an instant", "return an age, or nothing of it")
        return
    held = ", ".join(f"`{name}`" for name in holders(program, _is_relative))
    where = f"{awaited_at(program)}, where it is {plain_text(status)}"
    if isinstance(place, Unmergeable) and not held and plain(status) is status:
        told = f"may hold the instant that it was given ({place.reason})"
        is_handling = "it awaits while it handles " in place.reason
        raise InstantRefused(
            told,
            "await after the `except`, not in it" if is_handling else "keep immutable values across an await",
            where,
        )
    if isinstance(place, Unmergeable) or plain(status) is not status or _names_instant(place):
        raise InstantRefused(
            f"holds an instant in {held or 'what it awaits, or in its memory'}",
            f"`del {held.replace('`', '')}` before that await, or keep an age" if held else "keep an age instead",
            where,
        )


def _recorded(birth: Birth, process: str, statuses: Sequence[ProcessStatus]) -> ProgramAutomaton:
    automaton = ProgramAutomaton(birth, process)
    automaton.nodes = [_Node(each, None, 0, None, unmerged="", src="") for each in statuses]
    automaton.is_sent = True
    return automaton


@final
class NotSentError(ControlFlow):
    """Code needs a program where only its statuses are known. User code must not catch it."""


def _is_relative(value: object) -> bool:
    return plain(value) is not value


def _must_be_immutable(status: ProcessStatus) -> None:
    match status:
        case Asking(effect):
            must_be_value(effect, "what a program awaits")
        case _:
            must_be_value(status.value if isinstance(status, Returned) else status, "what a program returns")


def _names_instant(key: object) -> bool:
    match key:
        case tuple():
            return (len(key) > 0 and key[0] is RelativeInstant) or any(map(_names_instant, key))
        case frozenset():
            return any(map(_names_instant, key))
        case _:
            return _is_relative(key)


def resume(program: Program[object], reply: object) -> ProcessStatus:
    """Send a reply (None to begin) and return the program's next status.

    Raises:
        UnknownEffect: The program awaits a value that is not an effect.
        TidegateError: The program uses tidegate wrongly, or returns an effect.
    """
    try:
        asked = program.throw(reply.fresh()) if isinstance(reply, Failure) else program.send(reply)
    except StopIteration as stop:
        if isinstance(stop.value, Effect):
            raise Misuse(
                f"the program returns an effect that is never awaited: {stop.value}",
                where=defined_at(program),
                why="it never happens, and the program ends as if it had",
                todo="write `return await ...`",
            ) from None
        return Returned(stop.value)
    except TidegateError as error:
        error.where = error.where or raised_at(error)
        raise
    except Failure as failure:
        return Failed(failure.fresh())
    except (KeyboardInterrupt, ControlFlow):
        raise
    except BaseException as error:  # noqa: BLE001  a bug in the program is a finding, not the end of the search
        return Raised(_without_effects(error) or _ADDRESS.sub("", told(error)), raised_at(error))
    try:
        return Asking(checked_effect(asked))
    except UnknownEffect as unknown:
        unknown.where = awaited_at(program)
        raise


def _without_effects(error: BaseException) -> str:
    """The advice for a program that called asyncio or pymongo; "" for its own errors."""
    frames, at = [], error.__traceback__
    while at is not None:
        frames.append(at.tb_frame)
        at = at.tb_next
    modules = [str(frame.f_globals.get("__name__")).partition(".")[0] for frame in frames]
    called = next((frame.f_code.co_name for frame, of in zip(frames, modules, strict=True) if of == modules[-1]), "")
    if modules[-1] == "asyncio" and told(error) == _NO_LOOP:
        return f"{_NO_LOOP}: a program awaits effects and nothing of asyncio: write await Sleep(...)"
    if modules[-1] == "pymongo":  # its own text has ids, which are others each time
        effect = called if hasattr(operations, called) else "find_one"
        return f"{type(error).__name__}: a program asks the database by effects: write await {effect}(...), and nothing of pymongo"
    return ""
