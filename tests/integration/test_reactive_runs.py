"""Two applications of reactive tasks on the simulated MongoDB, by seed (`mongo_runs`, `reactive_workload`): a fault strikes, and no law is
broken; bugs that are planted in what carries the programs out are found.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
import pytest
from tests.integration.mongo_runs import FAULTS, found, judged, line
from tests.length import PLANTED_REACTIVE_RUNS, REACTIVE_RUNS

from tidegate.model.instants import SECOND
from tidegate.reactive import pool
from tidegate.reactive.pool import End, Handle, Interrupt, PoolState, Renew
from tidegate.reactive.reactive_task import Later, ReactiveTask
from tidegate.reactive.tasks import Why
from tidegate_adapters.reactive import app, workers
from tidegate_adapters.reactive.planner import Planner
from tidegate_adapters.runtime import Call, Ended

AT_ONCE: Final = 50
REACTIVE: Final = (("reactive",), (*FAULTS, "cut", "cut", "cut"))
"""What they do, and what strikes; to be cut off is what takes a lease from whoever works on."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What fails is logged, and here a lot does."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first_seed", range(0, REACTIVE_RUNS, AT_ONCE))
def test_no_run_is_wrong(first_seed: int) -> None:
    """Laws M14 to M16, and of all runs M10 and M11."""
    story = found(range(first_seed, first_seed + AT_ONCE), *REACTIVE)

    assert story is None, "\n".join((line(story.course.seed, *REACTIVE), *story.wrong))


def test_a_seed_is_a_run() -> None:
    assert judged(7, *REACTIVE).lines == judged(7, *REACTIVE).lines


# --- planted bugs -------------------------------------------------------------------------------------------------------

RIGHT_BEGIN: Final = vars(workers.Pool)["_begin"]
RIGHT_ANSWER: Final = vars(workers.Pool)["_answer"]
RIGHT_TAKEN: Final = vars(pool)["_taken"]
RIGHT_PLAN: Final = ReactiveTask.plan_pass


def without(kind: type[Any], reply: Callable[[Any], object]) -> Callable[[Any, Any], Any]:
    """Commands of this kind are answered, and not carried out."""

    def begin(self: Any, command: Any) -> Any:
        async def answer() -> object:
            return reply(command)

        return Call(answer) if isinstance(command, kind) else RIGHT_BEGIN(self, command)

    return begin


def interrupts_nobody(self: Any, command: Any) -> Any:
    return None if isinstance(command, Interrupt) else RIGHT_BEGIN(self, command)


def answers_well(self: Any, command: Handle, ended: Ended) -> Any:
    """What a handler raises counts as a success."""
    answer = RIGHT_ANSWER(self, command, ended)
    return None if isinstance(answer, str) else answer


def is_never_later(self: Any, command: Handle, ended: Ended) -> Any:
    answer = RIGHT_ANSWER(self, command, ended)
    return None if isinstance(answer, Later) else answer


def held_from_the_answer(rules: Any, state: PoolState, event: Any) -> PoolState:
    """A lease is counted from when the claim was answered, and a half longer."""
    after: PoolState = RIGHT_TAKEN(rules, state, event)
    longer = (
        attrs.evolve(each, held_until=each.held_until + SECOND, renew_at=each.held_until + SECOND)
        for each in after.working
    )
    return attrs.evolve(after, working=tuple(longer))


async def looks_and_forgets(self: ReactiveTask, keys: Any, request: str) -> tuple[Any, ...]:
    """What was not written counts as looked at."""
    _ = await RIGHT_PLAN(attrs.evolve(self, attempts=1), keys, request)
    return ()


async def reconciles_nothing(self: Any, *given: Any) -> None:
    del self, given


async def keeps_no_more(*given: Any) -> bool:
    """Positions are not kept, and said to be."""
    del given
    return True


def one_name() -> str:
    return "worker"


PLANTED: Final[dict[str, tuple[object, str, object]]] = {
    "a lease that is lost interrupts nobody": (workers.Pool, "_begin", interrupts_nobody),
    "leases are not renewed, and said to be": (
        workers.Pool, "_begin", without(Renew, lambda command: (Why.RENEWED,) * len(command.runs))
    ),
    "ends are not written": (workers.Pool, "_begin", without(End, lambda command: (None,) * len(command.ended))),
    "handlers are not called": (
        workers.Pool, "_begin", without(Handle, lambda command: tuple(Ended(run, None) for run in command.runs))
    ),
    "what fails counts as done": (workers.Pool, "_answer", answers_well),
    "what is to be called later counts as done": (workers.Pool, "_answer", is_never_later),
    "a lease is counted too long": (pool, "_taken", held_from_the_answer),
    "two processes have one name": (app, "_me", one_name),
    "what was not written counts as looked at": (ReactiveTask, "plan_pass", looks_and_forgets),
    "nothing is reconciled": (Planner, "_reconcile", reconciles_nothing),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of, attribute, wrong = PLANTED[name]
    monkeypatch.setattr(of, attribute, wrong)

    assert found(range(PLANTED_REACTIVE_RUNS), *REACTIVE) is not None
