"""An exception of a user's function fails its operation; handlers have tests of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

import attrs
import pytest

from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, STORE, Instant
from tidegate.model.records import Record
from tidegate.reactive.record.snapshot import Computed, NotComputed, Projection, snapshot
from tidegate.retries.schedule import Broken, Schedule, ScheduleCell, look
from tidegate.sim.program.relative_time import InstantRefused
from tidegate.triggers.conditions import CannotTell, Judge, OnEvent, holds
from tidegate.triggers.contexts import EventContext
from tidegate.triggers.trigger import FromAll, NotProvided, provided
from tidegate_adapters.orchestrator.services import Services
from tidegate_adapters.runtime.handlers import Undecodable, Unread, called
from tidegate_adapters.runtime.serialization import codec_of


class OddError(BaseException):
    pass


Raises = Callable[..., NoReturn]


def computed(raises: Raises) -> bool:
    return isinstance(snapshot(Document.of({"n": 1}), Projection.of({"n": Computed(raises)})), NotComputed)


def filtered(raises: Raises) -> bool:
    return isinstance(holds(OnEvent("paid", Judge("large", raises)), EventContext("paid", "e")), CannotTell)


def given(raises: Raises) -> bool:
    return isinstance(provided(FromAll("all", raises), ()), NotProvided)


def due(raises: Raises) -> bool:
    cell = ScheduleCell(Instant(0, STORE))
    return isinstance(look(Schedule("* * * * *"), raises, cell, Instant(SECOND, STORE)), Broken)


def read(raises: Raises) -> bool:
    @attrs.define
    class Checked:
        number: int = attrs.field(validator=raises)

    with pytest.raises(Misuse, match="cannot be read"):
        codec_of(Checked).value('{"number":1}', "it")
    return True


def worked(raises: Raises) -> bool:
    async def work(run: object, token: object) -> None:
        del run, token
        raises()

    async def run() -> None:
        await Services._worked("work", work)(None, 1)  # noqa: SLF001

    asyncio.run(run())
    return True


def decoded(raises: Raises) -> bool:
    async def run() -> bool:
        call = called(handle, ("orders",), threads=1, decode=raises, undecodable=Undecodable.SKIP)
        return isinstance(await call(Record("orders", 0, 7, None, b"")), Unread)

    return asyncio.run(run())


async def handle(record: object) -> None:
    del record


CODE: Final[Mapping[str, Callable[[Raises], bool]]] = {
    "a computed value of a reactive task": computed,
    "a filter of events": filtered,
    "what makes arguments of a trigger": given,
    "the port of crons": due,
    "a type of arguments": read,
    "a work in turns": worked,
    "what decodes records of a worker": decoded,
}
FAILURES: Final = (ValueError("x"), OddError("x"), asyncio.CancelledError(), GeneratorExit())
ENDS: Final = (KeyboardInterrupt(), SystemExit(1), InstantRefused("x", "y"))


@pytest.mark.parametrize("error", FAILURES, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("code", CODE)
def test_whatever_it_raises_is_a_failure(code: str, error: BaseException) -> None:
    """Including `CancelledError`, which `future.result()` raises."""

    def raises(*_: object) -> NoReturn:
        raise error

    assert CODE[code](raises)


@pytest.mark.parametrize("error", ENDS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("code", CODE)
def test_what_ends_the_process_is_none(code: str, error: BaseException) -> None:
    def raises(*_: object) -> NoReturn:
        raise error

    with pytest.raises(type(error)):
        CODE[code](raises)
