"""How long ended invocations are kept, on a real MongoDB and on the embedded store."""

from __future__ import annotations

from datetime import timedelta

import attrs
import pytest
from tests.integration.mongo_loop import in_loop
from tests.integration.test_orchestrator_app import STORES, office_of, served, until
from tests.integration.test_orchestrator_triggers import TURNS

from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE
from tidegate.model.programs import insert_new
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.orchestrator import InvocationAbsent, InvocationFailed, MaxRunning, Orchestrator, Unique
from tidegate_adapters.orchestrator.settings import OrchestratorSettings

HOUR = 60 * MINUTE
EACH_SECOND = attrs.evolve(TURNS, purge="* * * * * *")


@pytest.mark.parametrize("store", STORES)
def test_what_has_ended_goes_once_it_was_kept_for_long_enough(mongodb: str, database: str, store: str) -> None:
    large = "x" * 5_000

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app(
                services=EACH_SECOND, keep_finished=timedelta(milliseconds=1_500), keep_failed=None, inline_bytes=1024
            )

            @app.task(unique=Unique())
            async def half(text: str) -> str:
                if len(text) % 2:
                    raise ValueError("odd")
                return text[::2]

            done = await half.enqueue(large)
            failed = await half.enqueue(large + "x")
            waiting = await half.enqueue("xx", delay=timedelta(days=1))

            async def left() -> set[str]:
                return {each["_id"] for each in await office.records() if each["task"] == "half"}

            async with served(app):
                assert await done.result() == "x" * 2_500
                assert done.id in await left()

                async def is_gone() -> bool:
                    return await left() == {failed.id, waiting.id}

                await until(is_gone, "what has succeeded is removed")
                with pytest.raises(InvocationAbsent, match="it was removed as old"):
                    await done.result()
                with pytest.raises(InvocationFailed, match="odd"):
                    await failed.result()
                calls = await office.records("orchestrator_calls")
                assert {each["_id"] for each in calls if each["task"] == "half"} == {failed.id, waiting.id}

                async def are_marked() -> bool:
                    payloads = await office.records("orchestrator_payloads")
                    marked = {each["_id"] for each in payloads if "unnamed_since" in each}
                    return store == "embedded" or {each.partition("#")[0] for each in marked} == {
                        done.id,
                        f"{done.id}@2",
                    }

                await until(are_marked, "uploads that nobody names are marked, and no others")

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_the_places_of_a_key_go_with_the_last_of_its_invocations(mongodb: str, database: str, store: str) -> None:
    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app(services=EACH_SECOND, keep_finished=timedelta(milliseconds=1_500), keep_failed=None)

            @app.task(max_running=MaxRunning.per(lambda name: name))
            async def send(name: str) -> None:
                if name == "ann":
                    raise ValueError("unknown")

            async with served(app):
                made = [await send.enqueue(name) for name in ("bob", "eve", "ann")]
                limited = {each["_id"]: each["limited_by"] for each in await office.records() if each["task"] == "send"}
                for done in made[:2]:
                    await done.result()
                with pytest.raises(InvocationFailed, match="unknown"):
                    await made[2].result()

                async def is_gone() -> bool:
                    left = {each["_id"] for each in await office.records("orchestrator_places")}
                    return left & {*limited.values()} == {limited[made[2].id]}

                await until(is_gone, "two keys are forgotten")

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_the_record_of_a_process_goes_some_time_after_it_is_gone(mongodb: str, database: str, store: str) -> None:
    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app(services=EACH_SECOND)

            @app.task()
            async def idle() -> None: ...

            now, members = await app.now(), app.collections.members
            old, late = now + -2 * HOUR, now + -HOUR
            for who, seen, left in (("silent", old, None), ("left", old, old), ("late", late, late)):
                times = dict.fromkeys(("created", "joined", "seen"), seen)
                await app.asked(insert_new(members, Document.of({"_id": who, "left": left, **times})))

            async def are_gone() -> bool:
                found = {each["_id"] for each in await office.records(members)}
                assert "late" in found
                return not found & {"silent", "left"}

            async with served(app):
                await until(are_gone, "who is gone is forgotten")

    in_loop(run())


def test_an_age_that_cannot_be_is_said_at_once() -> None:
    for wrong in ({"keep_finished": timedelta(-1)}, {"keep_failed": 1.5}):
        with pytest.raises(Misuse, match="keep_"):
            _ = OrchestratorSettings(database="jobs", **wrong)


def test_what_a_purge_reads_by_is_made_once() -> None:
    for indexes in Orchestrator(Embedded(), "jobs").indexes.values():
        assert len(set(indexes)) == len(indexes)
