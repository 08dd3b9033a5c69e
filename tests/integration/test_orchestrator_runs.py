"""Applications of tasks on the simulated MongoDB, by seed (`orchestrator_workload`,
`mongo_runs`).
"""

# ruff: noqa: SLF001  bugs are planted in private functions

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from tests.integration.mongo_runs import ORCHESTRATOR_FAULTS, Story, course, found, judged, line, page_of
from tests.integration.planting import Bug, first, own_seeds
from tests.length import ORCHESTRATOR_RUNS

from tidegate.invocations.limits import slots
from tidegate.invocations.queue import bulk_transition as settling
from tidegate.invocations.queue import completion as ending
from tidegate.invocations.queue.fetching import Taker
from tidegate.invocations.record import record_documents
from tidegate.invocations.upkeep import recovery
from tidegate.invocations.worker import heartbeat
from tidegate.triggers.evaluator import Evaluator
from tidegate.work import _liveness, worker
from tidegate_adapters.orchestrator.workers import Workers
from tidegate_adapters.runtime import connection

WORKLOADS: Final = ("orchestrator",)
BUGS: Final[Mapping[str, Bug]] = {
    "what a handler raises is a success": Bug(Workers._answer, "found = failed(ended.reply, declared.retry_for, declared.policy)", "return Succeeded('\"well\"')"),
    "a failure is the last": Bug(ending._written, "if not isinstance(verdict, Retry):", "if True:"),
    "a failure is never the last": Bug(ending._written, "decide(policy, run.tries, since,", "decide(policy, 1, since,"),
    "a result is kept under another run": Bug(Workers._in_here, "return declared.result.text(result,", "return declared.result.text('another', "),
    "writes are not guarded": Bug(record_documents.unchanged, "_STATUS_IS(expected.status), _OWNER_IS(expected.owner), is_version", ""),
    "a claim that another was faster with counts": Bug(settling._became, "return Outdated(move.expected, viewed(record))", "return Granted(verdict.record)"),
    "two may run of those that exclude each other": Bug(Taker._placed, "return await self._placing(wishes).place() if wishes else Placed()", "return Placed(has=tuple(wish.key for wish in wishes))", shown_by=("nothing", 9)),
    "who is refused is due no more": Bug(slots._waits, "Put(DUE, due), Put(LATER, due)", "Remove(DUE), Put(LATER, due)", ("nothing", "command"), shown_by=("command", 108)),
    "what is asked is not heard": Bug(heartbeat._told, "elif (asked := order(record)) is not None:", "elif False:", shown_by=("nothing", 32)),
    "who is asked to cancel gives back": Bug(heartbeat._told, "(run, _ASKED[asked])", "(run, InterruptReason.KILL)", shown_by=("nothing", 33)),
    "what is its own and was not told is left": Bug(_liveness.mark_untracked, "    if any(isinstance(each, Poll) for each, _ in state.requests):", "    if True:", ("unheard",), shown_by=("unheard", 127)),
    "a timeout is not kept": Bug(Workers._take, "longest = each.job.deadline or declared.timeout", "longest = None"),
    "who waits keeps its slot": Bug(Workers._waiting, "if waits.number == 1 and not waits.is_over:", "if False:"),
    "who is cancelled while it wants a slot goes on without one": Bug(Workers._waiting, "await _in_any_case(resumed)", "await resumed", ("kill",), ("kill", 67)),
    "who was interrupted waits for a slot": Bug(worker._resume, "is None]\n    given = {each.run: Slot.WITHOUT for each in wanting if each.why is not None}", "is None or True]\n    given = {}", shown_by=("nothing", 4)),
    "two processes have one name": Bug(connection.life_name, 'return f"', 'return f"one" or f"', ("kill", "closed")),
    "conditions notice one by one": Bug(Evaluator.notice, "await _keep(self, found.occurrences, by)", "bool([await insert_new(self.occurrences, stored_occurrence(each)) for each in found.occurrences])", ("closed",), shown_by=("closed", 5195)),
    "whoever is silent is alive": Bug(recovery._unless_owned, "if now - owned_until >= 0:", "if False:", ("kill",)),
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("collected")

AT_ONCE: Final = 10

SEEDS: Final = own_seeds(ORCHESTRATOR_FAULTS, ORCHESTRATOR_RUNS, BUGS.values())


@pytest.mark.parametrize(
    ("fault", "nth"), [(fault, nth) for fault, seeds in SEEDS.items() for nth in range(0, len(seeds), AT_ONCE)]
)
def test_no_run_is_wrong(fault: str, nth: int) -> None:
    story = found(SEEDS[fault][nth : nth + AT_ONCE], WORKLOADS, (fault,))
    if story is not None:
        page = page_of(story.course.seed, WORKLOADS, (fault,), Path(".tidegate/failures"))
        again = line(story.course.seed, WORKLOADS, (fault,))
        pytest.fail(f"{story.wrong}\n    {again}\n    {page}", pytrace=False)


def test_a_seed_tells_the_same_story() -> None:
    for fault, seeds in SEEDS.items():
        assert of_kind(seeds[1], fault).lines == of_kind(seeds[1], fault).lines


def test_every_fault_is_drawn() -> None:
    assert {course(seed, WORKLOADS).fault for seed in range(300)} == {*ORCHESTRATOR_FAULTS}


def of_kind(seed: int, fault: str) -> Story:
    return judged(seed, WORKLOADS, (fault,))


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    assert first(BUGS[name], of_kind, SEEDS) is not None, f"not found by the seeds of {', '.join(BUGS[name].kinds)}"
