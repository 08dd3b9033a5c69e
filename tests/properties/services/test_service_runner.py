"""A gate's record and the work of a run. Scenarios explore gates (`atomic_service`)."""

from __future__ import annotations

import pytest
from tests.properties.on_documents import is_read_or_misuse, run
from tests.properties.triggers.test_turn import passing

from tidegate.leases.leader import fenced
from tidegate.model.documents import ID, Document, Field, Put
from tidegate.model.effects import Ambiguous, Effect, Failure, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import FOUND_MAX, StoreTime
from tidegate.services import service_runner
from tidegate.services.atomic_service import AtomicService, AtomicServiceRun
from tidegate.services.checks.scenarios import KEY, WORK, gate
from tidegate.services.executions import Execution, Gate
from tidegate.services.retention import Retention, Row
from tidegate.sim.program.automaton import Returned
from tidegate.sim.runs.report import explore
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.world.world import contents, document, world_with
from tidegate.triggers.evaluator import Evaluator

HELD = Document.of({"_id": "x", "token": 1, "run": "r", "runner": "a", "started": Instant(0)})


def test_a_gate_is_what_its_record_says() -> None:
    assert service_runner.gate_of(service_runner.new_gate("x")) == Gate()
    assert service_runner.gate_of(HELD) == Gate(1, Execution(id="r", runner_id="a", start=Instant(0)))


def test_what_is_not_a_gate_is_misuse() -> None:
    with pytest.raises(Misuse):
        service_runner.gate_of(Document.of({"_id": "x"}))
    with pytest.raises(Misuse):
        service_runner.new_gate("")


# --- the work -----------------------------------------------------------------------------------------------------------

OLD = Document.of(
    {
        "_id": "old",
        "runner": "a",
        "start": Instant(-9 * SECOND),
        "end": Instant(-9 * SECOND),
        "status": "completed",
        "reason": "",
    }
)
NO_TRIGGERS = Evaluator(triggers=(), next_after=lambda _, __: None)


async def evaluates(run: AtomicServiceRun, token: int) -> bool:
    assert token == 1
    await NO_TRIGGERS.evaluate(run.run_id)
    return True


async def is_refused(run: AtomicServiceRun, token: int) -> bool:
    return await fenced(WORK, "nothing there", token, Put(Field[str]("run"), run.run_id)) > 0


async def raises(run: AtomicServiceRun, token: int) -> bool:
    raise ValueError(run.run_id, token)


async def has_no_answer(run: AtomicServiceRun, token: int) -> bool:
    raise Ambiguous(f"{run.run_id} {token}")


async def seen_from_outside(runner: service_runner.ServiceRunner) -> object:
    try:
        return await runner.run()
    except ValueError as raised:
        return raised.args


def left_behind(work: service_runner.Work, keep: Retention) -> tuple[object, list[tuple[str, str, str]]]:
    runner = service_runner.ServiceRunner(me="a", service=AtomicService(), key=KEY, work=work, polls=1, keep=keep)
    rows = list[tuple[str, str, str]]()

    def is_left(state: State) -> bool:
        found = map(service_runner.execution_of, contents(state, "executions"))
        rows[:] = sorted((each.id, each.status.value, each.reason) for each in found)
        return gate(state).active is None

    process = Process("a", factory(seen_from_outside, runner))
    world = world_with({"gates": (service_runner.new_gate(KEY),), "executions": (OLD,)})
    report = explore(Scenario("one", "one runner alone", world, (process,), eventually={"the gate is left": is_left}))
    assert report.ok, report
    return process.behaviour.nodes[-1].status, rows


ROW = ("old", "completed", "")


@pytest.mark.parametrize(
    ("work", "outcome", "status"),
    [
        (evaluates, service_runner.Completed("a.0"), ("a.0", "completed", "")),
        (is_refused, service_runner.Abandoned("a.0", "fenced"), ("a.0", "abandoned", "fenced")),
        (has_no_answer, service_runner.Abandoned("a.0", "no reply"), ("a.0", "abandoned", "no reply")),
    ],
)
def test_the_work_of_a_run_is_a_program_of_the_user(work: service_runner.Work, outcome: object, status: object) -> None:
    assert left_behind(work, Retention()) == (Returned((outcome,)), [status, ROW])


def test_work_that_raises_leaves_the_gate_first() -> None:
    """Law AP4: its row has the error, which is then raised again."""
    rows = [("a.0", "abandoned", "failed: ValueError"), ROW]
    assert left_behind(raises, Retention()) == (Returned(("a.0", 1)), rows)


@pytest.mark.parametrize("answers", [3 * SECOND, -SECOND, None, "raised", "no reply"])
def test_a_row_tells_how_long_the_work_took(answers: int | str | None) -> None:
    async def works(run: AtomicServiceRun, token: int) -> bool | Instant:
        del run, token
        await Sleep(2 * SECOND)
        if isinstance(answers, str):
            raise ValueError(answers)  # noqa: TRY004  it is the work that fails
        return Instant(answers) if isinstance(answers, int) else True

    def fails(effect: Effect[object]) -> Failure | None:
        return Ambiguous("?") if isinstance(effect, StoreTime) and answers == "no reply" else None

    runner = service_runner.ServiceRunner(me="a", service=AtomicService(), key=KEY, work=works, polls=1)
    _, world = run(seen_from_outside(runner), world_with({"gates": (service_runner.new_gate(KEY),)}), fails, passing)
    (row,) = map(service_runner.execution_of, contents(world, "executions"))

    assert row.duration == {"raised": 2 * SECOND, 3 * SECOND: 3 * SECOND}.get(answers or "", 0)


def test_a_run_cuts_the_history() -> None:
    mine = ("a.0", "completed", "")
    for keep in (Retention(age=SECOND), Retention(age=0, count=1)):
        assert left_behind(evaluates, keep)[1] == [mine]
    for keep in (Retention(age=9 * SECOND), Retention(age=0, count=0), Retention(age=0, count=2)):
        assert left_behind(evaluates, keep)[1] == [mine, ROW]


def test_a_history_of_more_rows_than_a_reply_holds_is_cut() -> None:
    late = OLD.put(ID, "z")
    begun, ended = (Field[Instant](name) for name in ("start", "end"))
    rows = tuple(
        OLD.put(ID, f"{number:04}").put(begun, Instant(0)).put(ended, Instant(0)) for number in range(FOUND_MAX)
    )
    runner = service_runner.ServiceRunner(
        me="a", service=AtomicService(), key=KEY, work=evaluates, polls=1, keep=Retention(age=5 * SECOND, count=0)
    )
    world = world_with({"gates": (service_runner.new_gate(KEY),), "executions": (*rows, late)})
    _, after = run(runner.run(), world)
    assert len(contents(after, "executions")) == FOUND_MAX + 1
    assert after.read(document("executions", "z")) is None


def test_what_is_not_a_row_is_misuse() -> None:
    assert service_runner.execution_of(OLD).row == Row("old", Instant(-9 * SECOND), Instant(-9 * SECOND))
    assert is_read_or_misuse(service_runner.execution_of, OLD)


def test_a_record_that_another_has_spoiled_is_read_or_misuse() -> None:
    assert is_read_or_misuse(service_runner.gate_of, HELD)
