"""What happens to the consumer of a stream: it is elected, it loses its lease, its commands are answered.

Events check nothing when they are made: `step` looks at each one that it is given (`check_event`).
"""

from __future__ import annotations

from types import NoneType
from typing import TypeAlias, cast, final

import attrs

from tidegate.model.documents import Value, exactly
from tidegate.model.effects import Effect, Failure, Refused
from tidegate.model.errors import INT64_MAX, Misuse, typed
from tidegate.model.immutable import must_be_value
from tidegate.model.values import check_int, check_type
from tidegate.reactive.planning.change_stream.commands import (
    POSITIONS,
    Broken,
    HandleChanged,
    HandleDeleted,
    Locate,
    Page,
    Pass,
    Position,
    Read,
    Reconcile,
    ResetHistory,
    Save,
    StartTimer,
)


@final
@attrs.frozen
class Elected:
    """It leads, under this epoch, and this is what was stored then.

    Attributes:
        epoch: That of its lease.
        history: That of the stored record; 0 where there is none.
        position: The stored one, if any.
    """

    epoch: int
    history: int
    position: Position | None


@final
@attrs.frozen
class LeadershipLost:
    """It does not lead under this epoch any more, nor under one before it."""

    epoch: int


@final
@attrs.frozen
class StopRequested:
    """The consumer is to stop."""


@final
@attrs.frozen
class Located:
    """The stream stands here."""

    command: Locate
    position: Position


@final
@attrs.frozen
class Received:
    """The stream reported this."""

    command: Read
    page: Page


@final
@attrs.frozen
class StreamFailed:
    """The stream has failed."""

    command: Read
    code: int | None


@final
@attrs.frozen
class CommandDone:
    """It was done."""

    command: Pass | Save | ResetHistory


@final
@attrs.frozen
class CommandFailed:
    """It was not done, not all of it, or nobody knows."""

    command: Locate | Pass | Save | ResetHistory


@final
@attrs.frozen
class Fenced:
    """It was refused: another epoch or history is stored."""

    command: Save | ResetHistory


@final
@attrs.frozen
class TimerFired:
    """The time of a wait is over."""

    command: StartTimer


@final
@attrs.frozen
class PassLeft:
    """A pass has ended, and left out these documents, which could not be written now. Invariant: they are of the pass, one at least."""

    command: Pass
    left: tuple[Value, ...] = attrs.field(eq=exactly)


Answer: TypeAlias = Located | Received | StreamFailed | CommandDone | CommandFailed | PassLeft | Fenced | TimerFired
StreamEvent: TypeAlias = Elected | LeadershipLost | StopRequested | Answer

_WRITES = (HandleDeleted, HandleChanged, Save, ResetHistory)


def check_event(event: object) -> None:
    """Raise Misuse unless it is an event of a consumer, made of what it says."""
    match event:
        case Elected(epoch, history, position):
            check_int(epoch, "an epoch", 1, INT64_MAX)
            check_int(history, "the number of a history", 0, INT64_MAX)
            check_type(position, (*POSITIONS, NoneType), "a position")
        case LeadershipLost(epoch):
            check_int(epoch, "an epoch", 1, INT64_MAX)
        case StopRequested():
            pass
        case Located(command, position):
            check_type(command, Locate, "a question where the stream stands")
            check_type(position, POSITIONS, "a position")
        case Received(command, page):
            check_type(command, Read, "a request to read")
            check_type(page, Page, "a page")
        case StreamFailed(command, code):
            check_type(command, Read, "a request to read")
            if code is not None:
                check_int(code, "the code of an error", -INT64_MAX, INT64_MAX)
        case CommandDone(command):
            check_type(command, _WRITES, "a request that can be done")
        case CommandFailed(command):
            check_type(command, (Locate, *_WRITES), "a request that can fail")
        case PassLeft(command, left):
            check_type(command, (HandleDeleted, HandleChanged), "a pass")
            check_type(left, tuple, "a tuple of ids")
            must_be_value(left, "what a pass left out")
            known = {exactly(each) for each in command.ids}
            if not left or not {exactly(each) for each in left} <= known:
                raise Misuse(f"a pass that left out {len(left)} documents", todo="name those of its ids that are left")
        case Fenced(command):
            check_type(command, (Save, ResetHistory), "a request under an epoch")
        case TimerFired(command):
            check_type(command, StartTimer, "a wait")
        case _:
            raise Misuse(f"{typed(event)} is not an event of a consumer")


def event_for(command: Effect[object], reply: object) -> StreamEvent | None:
    """The event that says what became of a command; None for a reconciliation, which nobody waits for.

    Args:
        command: The command.
        reply: What the world answered, a Failure included.

    Raises:
        Misuse: It is not a command of a consumer, or not an answer to it.
    """
    match command:
        case Reconcile():
            return None
        case StartTimer():
            return TimerFired(command)
        case Read():
            if isinstance(reply, Page):
                return Received(command, reply)
            if isinstance(reply, (Broken, Failure)):
                return StreamFailed(command, reply.code if isinstance(reply, Broken) else None)
        case Locate():
            if isinstance(reply, POSITIONS):
                return Located(command, reply)
            if isinstance(reply, Failure):
                return CommandFailed(command)
        case HandleDeleted() | HandleChanged() | Save() | ResetHistory():
            if isinstance(reply, Refused) and isinstance(command, (Save, ResetHistory)):
                return Fenced(command)
            if isinstance(reply, tuple) and isinstance(command, (HandleDeleted, HandleChanged)):
                return PassLeft(command, cast("tuple[Value, ...]", reply))
            if reply is None or isinstance(reply, Failure):
                return CommandDone(command) if reply is None else CommandFailed(command)
        case _:
            raise Misuse(f"{typed(command)} is not a command of a consumer")
    raise Misuse(f"{command} was answered {typed(reply)}", todo="answer what it asks for, or a Failure")
