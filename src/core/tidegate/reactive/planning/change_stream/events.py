"""The events of a change stream's consumer: elections, lost leases, replies to commands.

Events check nothing when made; `step` checks each one (`check_event`).
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
    """It leads under this epoch, with the stored state of that time.

    Attributes:
        epoch: The epoch of its lease.
        history: That of the stored record; 0 if there is none.
        position: The stored one, if any.
    """

    epoch: int
    history: int
    position: Position | None


@final
@attrs.frozen
class LeadershipLost:
    """It no longer leads under this epoch or an earlier one."""

    epoch: int


@final
@attrs.frozen
class StopRequested:
    """The consumer is to stop."""


@final
@attrs.frozen
class Located:
    """The position of the stream."""

    command: Locate
    position: Position


@final
@attrs.frozen
class Received:
    """A report of the stream."""

    command: Read
    page: Page


@final
@attrs.frozen
class StreamFailed:
    """The stream failed."""

    command: Read
    code: int | None


@final
@attrs.frozen
class CommandDone:
    """The command was done."""

    command: Pass | Save | ResetHistory


@final
@attrs.frozen
class CommandFailed:
    """The command was not done, done in part, or its result is unknown."""

    command: Locate | Pass | Save | ResetHistory


@final
@attrs.frozen
class Fenced:
    """Refused: another epoch or history is stored."""

    command: Save | ResetHistory


@final
@attrs.frozen
class TimerFired:
    """A wait is over."""

    command: StartTimer


@final
@attrs.frozen
class PassLeft:
    """A pass has ended without these documents, which could not be written. Invariant: some of its
    own.
    """

    command: Pass
    left: tuple[Value, ...] = attrs.field(eq=exactly)


Answer: TypeAlias = Located | Received | StreamFailed | CommandDone | CommandFailed | PassLeft | Fenced | TimerFired
StreamEvent: TypeAlias = Elected | LeadershipLost | StopRequested | Answer

_WRITES = (HandleDeleted, HandleChanged, Save, ResetHistory)


def check_event(event: object) -> None:
    """Raise Misuse unless it is an event of a consumer with parts of the right types."""
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
    """The event for the reply to a command; None for a reconciliation, which is not awaited.

    Args:
        command: The command.
        reply: The reply, or a Failure.

    Raises:
        Misuse: It is no command of a consumer, or no reply to it.
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
