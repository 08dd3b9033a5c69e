"""An app that starts without its database takes no work before it knows the paused tasks."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from tidegate.invocations.worker.worker import Held
from tidegate.model.effects import Ambiguous, Refused
from tidegate.model.instants import SECOND, Instant
from tidegate.reactive.admin.pausing import PausedTask
from tidegate_adapters.orchestrator.pause import Holding
from tidegate_adapters.reactive.app import _Paused
from tidegate_adapters.shell.app import look_until_answered
from tidegate_adapters.testing import event_loop

LATE: Final = (Ambiguous("no reply"), Ambiguous("no reply"))


class Site:
    name = "shop"

    def __init__(self, *answers: object) -> None:
        self.answers = [*answers]

    async def run(self, program: Any) -> Any:
        program.close()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answers", "held"),
    [
        ((*LATE, (PausedTask("task:send", Instant(0)),)), [Held(tasks=frozenset(("send",)))]),
        ((LATE[0], Refused("no")), []),
    ],
    ids=["late", "refused"],
)
def test_an_orchestrator_asks_until_it_is_told_or_never_will_be(answers: tuple[object, ...], held: list[Held]) -> None:
    site, found = Site(*answers), list[Held]()

    async def begin(_: Random) -> None:
        await Holding(cast("Any", site), "control").begin(found.append, SECOND)

    event_loop.run(begin, 1)
    assert (found, site.answers) == (held, [])


@pytest.mark.parametrize(
    ("answers", "paused"),
    [((*LATE, (PausedTask("bill", Instant(0)),)), frozenset(("bill",))), ((LATE[0], Refused("no")), frozenset[str]())],
    ids=["late", "refused"],
)
def test_reactive_tasks_are_asked_for_likewise(answers: tuple[object, ...], paused: frozenset[str]) -> None:
    site, told = Site(*answers), list[frozenset[str]]()

    async def begin(_: Random) -> None:
        pool, placed = SimpleNamespace(pause=told.append), [SimpleNamespace(site=site, name="bill")]
        await look_until_answered(_Paused(cast("Any", pool), cast("Any", placed)).look, SECOND)

    event_loop.run(begin, 1)
    assert told[-1] == paused
    assert not site.answers
