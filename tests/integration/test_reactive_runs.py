"""Reactive applications on the simulated MongoDB, by seed (`reactive_workload`, `mongo_runs`)."""

# ruff: noqa: SLF001  bugs are planted in private functions

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from tests.integration.mongo_runs import REACTIVE_FAULTS, Story, course, found, judged, line, page_of
from tests.integration.planting import Bug, first, own_seeds, planted
from tests.integration.reactive_workload import (
    Reactively,  # import before planting, or modules imported later keep the bug
)
from tests.length import REACTIVE_RUNS, STORIES_STEP

from tidegate.reactive.planning import deployments, evolution, stream_records
from tidegate.reactive.planning.change_stream import events
from tidegate.reactive.record import task_documents
from tidegate.reactive.record._record_store import RecordStore
from tidegate.reactive.task.completion import Completer
from tidegate.reactive.task.fetching import Fetcher
from tidegate.work import _liveness, worker
from tidegate_adapters.exploring.counterexamples import read as read_trace
from tidegate_adapters.mongo import calls
from tidegate_adapters.mongo.change_stream import ChangeStream
from tidegate_adapters.reactive import app
from tidegate_adapters.reactive.planner import Planner, _Looks
from tidegate_adapters.reactive.workers import Pool
from tidegate_adapters.runtime import connection
from tidegate_adapters.runtime.workers import HandlerWorkers

REACTIVE: Final = ("reactive",)
BUGS: Final[Mapping[str, Bug]] = {
    "texts are compared by the collation of the user's collection": Bug(calls.on_collection, "projection(fields, where), collation=SIMPLE, **within)", "projection(fields, where), **within)", ("cut",)),
    "what is left of a look counts as written": Bug(_Looks.look, "left, held = await self._take(noting, ids, noted)", "left = (await self._take(noting, ids, noted))[0][:0]", ("storm",)),
    "what a pass has claimed nobody hears of, and it is given up": Bug(_Looks._claim, "runs, is_unheard = planned.runs, planned.is_unheard", "is_unheard = False", shown_by=("nothing", 5)),
    "what was there before is not looked at": Bug(Planner._reconcile, "await self._site.run(self._reconciler.run(run))", "pass"),
    "a history that was lost is not begun anew": Bug(Planner._begin, "return Call(lambda: self._store(stream_records.reset_history(STREAMS, self._key, command)))", "return Call(lambda: asyncio.sleep(0))", ("forget",), shown_by=("forget", 81)),
    "a history begins with the position of the last one": Bug(stream_records.reset_history, ", Remove(AFTER), Remove(FROM)", "", ("forget",), shown_by=("forget", 84)),
    "a stream forgets what came at once": Bug(ChangeStream._read, "return self._told(await self._open(position))", "_ = await self._open(position)", ("kill", "stop"), shown_by=("kill", 5)),
    "what a handler raises is a success": Bug(Pool._answer, "answer = _answer_of(ended.reply)", "answer = None"),
    "what is interrupted is a success": Bug(Pool._answer, "return INTERRUPTED.reason", "return None", ("stop",), shown_by=("stop", 55)),
    "ends are not written": Bug(Pool._write, "await run(task.completer.end(worker.ends(command.results)))", "await asyncio.sleep(0)"),
    "a handler whose lease is lost goes on": Bug(HandlerWorkers._begin, "return InterruptEach(lambda of, given: ", "return InterruptEach(lambda of, given: False and ", ("cut",), shown_by=("cut", 104)),
    "leases are not renewed, and said to be": Bug(Completer.renew_all, "settling = tuple((key, claim, None, None) for key, claim in runs)", "return (Why.RENEWED,) * len(runs)"),
    "a claim that another was faster with counts": Bug(Fetcher._claimed, "if matched == len(writes):", "if True:"),
    "writes are not guarded": Bug(task_documents.guarded, "Eq(VERSION, on.version), Eq(OWNER, on.owner), Eq(_TOKEN, on.token)", ""),
    "a lease is counted too long": Bug(_liveness.taken, "sent + queue.lease, sent", "sent + 2 * queue.lease, sent", ("cut",), shown_by=("cut", 104)),
    "two processes have one name": Bug(connection.life_name, 'return f"', 'return f"one" or f"', ("kill", "closed"), shown_by=("closed", 301)),
    "handlers are not called": Bug(HandlerWorkers._begin, "return CallEach(self._handle, runs)", "return CallEach(lambda run: asyncio.sleep(0), runs)"),
    "later is never": Bug(Completer._outcome, "return Deferred(now + after)", "return Succeeded()"),
    "a failure is the last": Bug(Completer._outcome, "next_attempt(self.policy, max(claim.attempts, 1), since, now, draw)", "tasks.GiveUp()"),
    "what a process was not told of is left": Bug(worker._poll_completed, "    if result.is_uncertain:", "    if False:", ("unheard",), shown_by=("unheard", 154)),
    "a claim that arrives late is left": Bug(Fetcher._claimed, "given_up, missed = missed[: len(given_up)], unheard", "given_up = missed[: len(given_up)]", ("unheard",), shown_by=("unheard", 21)),
    "an end that nobody confirms is left": Bug(worker._results_refused, "return _write_again(rules, state, command, results, event.at + liveness.retry_pause(queue))", "return state", ("unheard",), shown_by=("unheard", 173)),
    "what a new version is to do over is not": Bug(evolution.evolve, "    if statuses:", "    if False:", shown_by=("nothing", 22)),
    "what another version led past counts as looked at": Bug(deployments.decide_deployment, "of_tasks(known.progress, names)", "known.progress", shown_by=("nothing", 217)),
    "a write waits for whatever transaction holds its record": Bug(RecordStore.update, "within=None if before.owner is None else self.within", "within=None", ("holds",)),
    "what cannot be written now holds up all changes": Bug(events.event_for, 'return PassLeft(command, cast("tuple[Value, ...]", reply))', "return CommandFailed(command)", ("holds",)),
    "what is late is not sent alone": Bug(RecordStore._sent_in_time, "if not late or len(of_runs) == 1:", "if True:", ("holds",), shown_by=("holds", 352)),
    "a lease that waits for its own transaction is lost": Bug(Completer.renew_all, "if_held=Why.COMPLETING", "if_held=None", ("holds",)),
    "what is paused is handled": Bug(worker._may_poll, "or queue.name in state.paused or", "or", shown_by=("nothing", 22)),
    "what is resumed is not": Bug(app._Paused.look, "self._known[name] = frozenset(", "self._known[name] = self._known.get(name, frozenset()).union(", shown_by=("nothing", 22)),
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("collected")

AT_ONCE: Final = 10

_ALL: Final = own_seeds(REACTIVE_FAULTS, REACTIVE_RUNS, BUGS.values())
SEEDS: Final = {**_ALL, "holds": _ALL["holds"][: REACTIVE_RUNS // 6]}
"""A run with an open transaction takes as long as five others."""


@pytest.mark.parametrize(
    ("fault", "nth"), [(fault, nth) for fault, seeds in SEEDS.items() for nth in range(0, len(seeds), AT_ONCE)]
)
def test_no_run_is_wrong(fault: str, nth: int) -> None:
    story = found(SEEDS[fault][nth : nth + AT_ONCE], REACTIVE, (fault,))
    if story is not None:
        page = page_of(story.course.seed, REACTIVE, (fault,), Path(".tidegate/failures"))
        again = line(story.course.seed, REACTIVE, (fault,))
        pytest.fail(f"{story.wrong}\n    {again}\n    {page}", pytrace=False)


def test_a_seed_tells_the_same_story() -> None:
    for fault, seeds in [*SEEDS.items()][::STORIES_STEP]:
        assert of_kind(seeds[1], fault).lines == of_kind(seeds[1], fault).lines


def test_every_fault_is_drawn() -> None:
    assert {course(seed, REACTIVE).fault for seed in range(300)} == {*REACTIVE_FAULTS}
    assert len(next(iter(Reactively.documents.values()))) == 10


def test_what_is_wrong_opens_as_a_page(tmp_path: Path) -> None:
    with planted(BUGS["later is never"]):
        story = found(SEEDS["nothing"], REACTIVE, ("nothing",))
        assert story is not None
        page = page_of(story.course.seed, REACTIVE, ("nothing",), tmp_path)
    trace = read_trace(page)

    assert trace.law.startswith("R1: ")
    assert trace.why == story.wrong[0]
    assert line(story.course.seed, REACTIVE, ("nothing",)) in page.read_text("utf-8")


def of_kind(seed: int, fault: str) -> Story:
    return judged(seed, REACTIVE, (fault,))


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    assert first(BUGS[name], of_kind, SEEDS) is not None, f"not found by the seeds of {', '.join(BUGS[name].kinds)}"
