"""What a program does, learned lazily: an automaton whose nodes are suspended programs.

`after(node, reply)` really runs the program, once per distinct (node, reply), and answers a node again: an earlier one
if both are the same value (`tidegate.sim.fingerprint`), else a new one. So the program that is explored is the program
that runs; nothing is re-implemented. Programs that stand at one node are interchangeable, so they are parked there
and used again; a program is replayed from its replies only when none is left. A replay that asks for something else than
before shows state hidden outside of the program, and is an error (`Nondeterministic`); where a search has ended, some
ways are run once more, so that it shows where nothing had to be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from types import FrameType
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import Document, show
from tidegate.model.effects import Effect, Failure, Now, Program, checked_effect
from tidegate.model.errors import Nondeterministic, TidegateError
from tidegate.model.immutable import must_be_value
from tidegate.model.instants import Instant
from tidegate.sim.aging import holds_instant
from tidegate.sim.fingerprint import Canon, Unmergeable, fingerprint

__all__ = [
    "Asking", "Birth", "Cancelled", "Crashed", "Failed", "HoldsInstant", "ProcessStatus", "ProgramAutomaton", "Raised",
    "Returned", "checked_effect", "resume",
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
    """The program has finished with a result."""

    value: object

    def __str__(self) -> str:
        return f"finished: {show(self.value)}"


@final
@attrs.frozen
class Failed:
    """The program passed a failure on: what the world said to it last."""

    failure: Failure

    def __str__(self) -> str:
        return f"failed: {self.failure}"


@final
@attrs.frozen
class Raised:
    """The program raised an error of its own: a bug, and against the law `NO_ERROR` of every scenario."""

    error: str

    def __str__(self) -> str:
        return f"raised {self.error}"


@final
@attrs.frozen
class Crashed:
    """The process is dead; what it held in memory is gone."""

    def __str__(self) -> str:
        return "crashed"


@final
@attrs.frozen
class Cancelled:
    """The await was cancelled and the program closed; what it asked for last may have been done."""

    def __str__(self) -> str:
        return "cancelled"


_RUN_AGAIN: Final = 20
"""Ways that are run once more when a search has ended: the last ones, which are long and lead through many others."""

ProcessStatus: TypeAlias = Asking | Returned | Failed | Raised | Crashed | Cancelled
Birth: TypeAlias = Callable[[int], Program[object]]
"""Which life (0, then 1 after a restart, ...) -> a new run of the program."""


class HoldsInstant(Exception):  # noqa: N818  control flow of the search, never seen outside
    """Relative time does not fit: a program keeps an instant, or reads its clock. Its argument says where it stands."""


@final
@attrs.define(eq=False)
class _Node:
    """A suspended program, and one way there: the nodes before it, each with the reply that it was left on."""

    status: ProcessStatus
    exact: object
    life: int
    way: tuple[tuple[int, object], ...]
    is_timed: bool
    unmerged: str
    parked: list[Program[object]] = attrs.field(factory=list)


@final
class ProgramAutomaton:
    """The automaton of one program. The first nodes are Crashed and Cancelled."""

    def __init__(self, birth: Birth) -> None:
        self.birth = birth
        self.nodes = [_Node(end, None, 0, (), is_timed=False, unmerged="") for end in (Crashed(), Cancelled())]
        self.known: dict[Hashable, int] = {}
        self.edges: dict[tuple[int, Hashable], int] = {}
        self.births: dict[int, int] = {}
        self.canon = Canon()
        self.has_raised = False  # has any run of it raised an error so far?

    CRASHED: Final = 0
    CANCELLED: Final = 1

    def status(self, node: int) -> ProcessStatus:
        return self.nodes[node].status

    def start(self, life: int) -> int:
        """The node where a new run of the program first stands."""
        if life not in self.births:
            program = self.birth(life)
            self.births[life] = self.park(program, resume(program, None), life, ())
        return self.births[life]

    def after(self, node: int, reply: object) -> int:
        """The node where the program stands after the reply."""
        key = self.canon.key(reply)
        if key is None:
            must_be_value(reply, "a reply")
        edge = (node, key)
        found = self.edges.get(edge)
        if found is None:
            found = self.edges[edge] = self.run(node, reply)
        return found

    def later(self, node: int) -> int:
        """The node when time has moved on: itself, for a program that holds no instant."""
        if self.nodes[node].is_timed:
            raise HoldsInstant(str(self.nodes[node].status))
        return node

    @property
    def unmerged(self) -> tuple[str, ...]:
        """Where the program could not be merged, and why."""
        return tuple(dict.fromkeys(node.unmerged for node in self.nodes if node.unmerged))

    def run(self, node: int, reply: object) -> int:
        at = self.nodes[node]
        program = at.parked.pop() if at.parked else self.replayed(at)
        assert isinstance(at.status, Asking), at.status
        return self.park(program, resume(program, reply), at.life, (*at.way, (node, reply)))

    def replayed(self, node: _Node) -> Program[object]:
        program = self.birth(node.life)
        status = resume(program, None)
        for passed, reply in node.way:
            self.compare(self.nodes[passed], status)
            status = resume(program, reply)
        self.compare(node, status)
        return program

    def run_again(self) -> None:
        """Run the program anew on the ways to its last nodes, for a search that never had to replay it has compared nothing.

        Raises:
            Nondeterministic: It asks for something else than it did.
        """
        ran = [
            node
            for node in self.nodes[ProgramAutomaton.CANCELLED + 1 :]
            if node.parked or not isinstance(node.status, Asking)
        ]
        for node in ran[
            -_RUN_AGAIN:
        ]:  # a program that stands where none was left to stand may not like to be dropped there
            node.parked.append(self.replayed(node))

    def compare(self, node: _Node, status: ProcessStatus) -> None:
        if self.canon.key(status) != node.exact:
            raise Nondeterministic(
                f"with the same replies a program was first {node.status} and then stood at: {status}",
                why="it depends on something besides its arguments and replies: a global, a clock, a random number",
                todo="pass it as an argument, or ask for it with an effect",
            )

    def park(
        self, program: Program[object], status: ProcessStatus, life: int, way: tuple[tuple[int, object], ...]
    ) -> int:
        """Let the program stand where it is; `way` is how it came there."""
        exact = self.canon.key(status)
        if exact is None:
            _must_be_immutable(status)
        place: object = fingerprint(program, self.canon) if isinstance(status, Asking) else ()
        replies = tuple(reply for _, reply in way) if isinstance(place, Unmergeable) else ()
        key = (exact, life, self.canon.key(replies)) if isinstance(place, Unmergeable) else (exact, place)
        number = self.known.setdefault(key, len(self.nodes))
        if number == len(self.nodes):
            unmerged = place.reason if isinstance(place, Unmergeable) else ""
            self.has_raised = self.has_raised or isinstance(status, Raised)
            is_timed = holds_instant(status) or self.is_timed(program, status, place, replies)
            self.nodes.append(_Node(status, exact, life, way, is_timed, unmerged))
        if isinstance(status, Asking):
            self.nodes[number].parked.append(program)
        return number

    def is_timed(
        self, program: Program[object], status: ProcessStatus, place: object, replies: tuple[object, ...]
    ) -> bool:
        """Does the program hold an instant, or is it about to read its clock? Where its locals are not known, it may."""
        if isinstance(status, Asking) and isinstance(status.effect, Now):
            return True
        if isinstance(place, Unmergeable):
            return any(map(holds_instant, replies)) or _was_given_instant(program)
        return _names_instant(place)


def _was_given_instant(program: Program[object]) -> bool:
    """Is there an instant in its outermost frame, where its arguments are? Where there is no frame, there may be."""
    frame: FrameType | None = getattr(program, "cr_frame", None)
    return frame is None or any(map(holds_instant, frame.f_locals.values()))


def _must_be_immutable(status: ProcessStatus) -> None:
    """Only what a program awaits or returns may be of any kind."""
    match status:
        case Asking(effect):
            must_be_value(effect, "what a program awaits")
        case _:
            must_be_value(status.value if isinstance(status, Returned) else status, "what a program returns")


def _names_instant(key: object) -> bool:
    """Is there an instant in what `exactly` made of a program's locals?"""
    match key:
        case tuple():
            return (len(key) > 0 and key[0] is Instant) or any(map(_names_instant, key))
        case frozenset():
            return any(map(_names_instant, key))
        case Document():
            return holds_instant(key)
        case _:
            return False


def resume(program: Program[object], reply: object) -> ProcessStatus:
    """Feed a reply (None to begin) and say where the program stands then.

    Raises:
        UnknownEffect: the program awaits something that is not an effect.
        TidegateError: the program used tidegate wrongly.
    """
    try:
        asked = program.throw(reply.fresh()) if isinstance(reply, Failure) else program.send(reply)
    except StopIteration as stop:
        return Returned(stop.value)
    except TidegateError:
        raise
    except Failure as failure:
        return Failed(failure.fresh())
    except Exception as error:  # noqa: BLE001  a bug in the program is a finding, not the end of the search
        return Raised(f"{type(error).__name__}: {error}")
    return Asking(checked_effect(asked))
