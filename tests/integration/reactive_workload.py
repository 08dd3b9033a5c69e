"""Two applications of reactive tasks on the simulated MongoDB, those who change its documents, and what their judges say (`mongo_runs`).

M14  No two handlers of one document run at the same time (RT2, RT7): who is interrupted has ended before another begins.
M15  In the end each document was handled as it is (RT1), and each record is at rest.
M16  No run is handled twice: a claim has a token of its own.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, ClassVar, Final, final

from pymongo.errors import PyMongoError
from tests.integration.mongo_runs import DATABASE
from tests.integration.mongo_workloads import THERE, THINGS, Documents, N, Work

from tidegate.leases.lease import Terms
from tidegate.model.documents import Document, Field
from tidegate.model.effects import Failure
from tidegate.model.errors import TidegateError
from tidegate.model.instants import MILLISECOND, SECOND
from tidegate.reactive.change_stream import ChangeStreamConsumer
from tidegate.retries.polling import PollingBounds
from tidegate_adapters.reactive import Change, Later, Reactive
from tidegate_adapters.reactive.planner import PlannerRules
from tidegate_adapters.reactive.settings import ReactiveSettings

__all__ = ["Apps"]

SETTINGS: Final = ReactiveSettings(
    database=DATABASE,
    concurrency=3,
    drain=SECOND,
    leave=SECOND,
    polling=PollingBounds(least=100 * MILLISECOND, most=800 * MILLISECOND, jitter=10 * MILLISECOND),
    paused_every=10 * SECOND,
    planner=PlannerRules(
        terms=Terms(ttl=3 * SECOND, heartbeat=SECOND, margin=200 * MILLISECOND),
        stream=ChangeStreamConsumer(wait=0, pause=100 * MILLISECOND, idle=SECOND),
        pause=200 * MILLISECOND,
    ),
)
LEASE: Final = timedelta(seconds=2)
DOCUMENTS: Final = 10
SETTLED_S: Final = 100.0
STATUS, SNAPSHOT = Field[str]("status"), Field[Document]("snapshot")


@final
class Apps(Work):
    """They handle each document that has changed; all of them are changed once at least, some of them again."""

    documents: ClassVar[Documents] = {THERE: tuple(Document.of({"_id": key, "n": 0}) for key in range(2))}

    def __init__(self, run: Any) -> None:
        super().__init__(run)
        self.working: dict[int, str] = {}
        """Who handles a document now."""
        self.handled: dict[int, int] = {}
        """What was handled of each last."""
        self.tokens: set[tuple[int, int]] = set()
        self.is_written = False

    async def begin(self) -> None:
        self.run.begin("w", self._write())
        for client in "ab":
            self.run.begin(client, self.task(client, client))

    async def task(self, name: str, client: str) -> None:
        """A process, which is begun anew where it ends with an error."""
        while not self._is_settled():
            app = self._app(name, client)
            serving = asyncio.get_running_loop().create_task(app.serve(), name=f"{name} serves")
            try:
                async with asyncio.timeout(SETTLED_S):
                    while not (self._is_settled() or serving.done()):  # noqa: ASYNC110  of documents nobody tells
                        await asyncio.sleep(0.05)
            except TimeoutError:
                self.story.accuse(
                    "M15", f"{self.handled} were handled, and there is {self._there()}, {self._records()}"
                )
                return
            finally:
                app.stop()
                try:
                    await serving
                except (TidegateError, Failure) as error:
                    self.story.tell(name, f"ends: {error}")
            await asyncio.sleep(0.1)

    def _app(self, name: str, client: str) -> Reactive:
        app = Reactive(self.run.client(client), settings=SETTINGS)

        @app.task(
            THINGS,
            watch=["n"],
            debounce=timedelta(milliseconds=self.random.choice((0, 0, 20))),
            lease=LEASE,
            retries=50,
            backoff=timedelta(milliseconds=50),
        )
        async def handle(change: Change) -> Later | None:
            return await self._handle(name, change)

        return app

    async def _handle(self, name: str, change: Change) -> Later | None:
        key, seen = change.id, change.values["n"]
        if key in self.working:
            self.story.accuse(
                "M14", f"{name} handles {key} under token {change.token}, and {self.working[key]} does, too"
            )
        if (key, change.token) in self.tokens:
            self.story.accuse("M16", f"{name} handles {key} under token {change.token}, which was handled")
        self.tokens.add((key, change.token))
        self.working[key] = f"{name} under token {change.token}"
        try:
            if self.run.course.fault == "cut" and name == self.run.course.whom and not self.run.cut_until_s:
                self.story.tell("faults", f"{name} is cut off while it works", fault="cut")
                self.run.cut_until_s = self.run.set.loop.time() + self.run.course.lasts_s
                await asyncio.sleep(3.0)
            await asyncio.sleep(self.random.choice((0, 0, 0.01, 0.01, 0.3, 3.0 if self.random.random() < 0.05 else 0)))
            if self.random.random() < 0.05:
                raise ValueError("no")
            if self.random.random() < 0.05:
                return Later(timedelta(milliseconds=20))
        finally:
            del self.working[key]
        self.handled[key] = seen
        return None

    async def _write(self) -> None:
        """All documents come, a few at a time; then some are changed. Who is cancelled leaves it at that."""
        try:
            await self._written()
        finally:
            self.is_written = True

    async def _written(self) -> None:
        things = self.run.client("w")[DATABASE][THINGS]
        keys = [*range(len(self.documents[THERE]), DOCUMENTS)]
        while keys:
            some, keys = keys[:6], keys[6:]
            try:
                _ = await things.insert_many([{"_id": key, "n": 0} for key in some])
            except PyMongoError:
                for key in some:
                    await self._put(things, key, 0)
            await self.a_while()
        for number in range(self.random.randint(1, 4)):
            await self._put(things, self.random.randrange(DOCUMENTS), number + 1)
            await self.a_while()

    async def _put(self, things: Any, key: int, n: int) -> None:
        for _ in range(100):
            try:
                if not (await things.update_one({"_id": key}, {"$set": {"n": n}})).matched_count:
                    _ = await things.insert_one({"_id": key, "n": n})
            except PyMongoError:
                await asyncio.sleep(0.2)
            else:
                return

    def _there(self) -> dict[Any, int]:
        return {each.items[0][1]: each[N] for each in self.run.contents(THINGS)}

    def _records(self) -> dict[Any, Any]:
        found = self.run.contents(f"{THINGS}_tasks")
        return {each.held(Field[Any]("document")): (each.get(STATUS), str(each.get(SNAPSHOT))) for each in found}

    def _is_settled(self) -> bool:
        there = self._there()
        return (
            self.is_written
            and self.handled == there
            and self._records() == {key: ("completed", f"{{n: {n}}}") for key, n in there.items()}
        )
