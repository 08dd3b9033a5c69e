from __future__ import annotations

from datetime import timedelta

from pymongo import MongoClient

from tidegate.leases.leader import FENCE, fenced
from tidegate.model.documents import Document, Field, Put
from tidegate.model.effects import Program
from tidegate.model.instants import MILLISECOND, SECOND
from tidegate.model.operations import find_all, insert_one
from tidegate.services.atomic_service import AtomicService, AtomicServiceRun
from tidegate.services.executions import ExecutionStatus
from tidegate.services.members import everybody, join, leave, membership_of
from tidegate.services.membership import DEAD_AFTER, Joined
from tidegate.services.service_runner import Abandoned, Completed, ServiceRunner, execution_of, gate_of, new_gate
from tidegate_adapters.mongo import Mongo
from tidegate_adapters.runtime.driver import choosing, documents, local, run

RUN = Field[str]("run")


async def writes(run: AtomicServiceRun, token: int) -> bool:
    return await fenced("work", "x", token, Put(RUN, run.run_id)) > 0


def test_who_joins_runs_and_leaves_is_on_record(mongodb: str, database: str) -> None:
    with MongoClient[dict[str, object]](mongodb) as client:
        handle = choosing(documents(Mongo(client, database)), local())

        async def prepared() -> None:
            await insert_one("gates", new_gate("x"))
            await insert_one("work", Document.of({"_id": "x", FENCE.name: 0}))

        async def left() -> None:
            await leave("members", "a-1")

        async def members() -> tuple[Document, ...]:
            return await everybody("members")

        async def rows() -> tuple[Document, ...]:
            return await find_all("executions", limit=100)

        async def gates() -> tuple[Document, ...]:
            return await find_all("gates", limit=9)

        def done(program: Program[object]) -> object:
            return run(program, handle)

        done(prepared())
        first, again, second, worker = (
            done(join("members", who, DEAD_AFTER, name=name, runner=runner))
            for who, name, runner in (("a-1", "a", None), ("a-1", "a", None), ("a-2", "a", None), ("w", None, "a-2"))
        )
        assert isinstance(first, Joined)
        assert isinstance(second, Joined)
        assert isinstance(worker, Joined)
        assert again == first
        assert (second.member.life, second.member.created) == (2, first.member.created)
        assert worker.member.runner == "a-2"

        service = AtomicService(interval=timedelta(milliseconds=50), spread=0, start_fraction_ppm=0)
        runner = ServiceRunner(
            me="a-2", service=service, key="x", work=writes, polls=20, pause=20 * MILLISECOND, least=0
        )
        outcomes = done(runner.run())
        assert isinstance(outcomes, tuple)
        completed = [each.run for each in outcomes if isinstance(each, Completed)]
        assert completed
        found = [execution_of(each) for each in run(rows(), handle)]
        assert {each.id for each in found if each.status is ExecutionStatus.COMPLETED} == {*completed}
        assert gate_of(run(gates(), handle)[0]).token == sum(
            isinstance(each, (Completed, Abandoned)) for each in outcomes
        )

        done(left())
        once = membership_of(run(members(), handle), DEAD_AFTER)
        done(left())
        assert membership_of(run(members(), handle), DEAD_AFTER) == once
        assert once.by_id["a-1"].left is not None
        assert once.by_id["a-2"].left is not None
        assert 0 <= once.by_id["a-2"].left - second.member.joined < 60 * SECOND
