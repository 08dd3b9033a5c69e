"""Two versions of an application reconcile two collections, one after the other; another one
queries for changes.

They have different triggers for one task, and the later one lacks another task, whose name holds
characters that field names cannot. The third version's queries grow, and find more changed
documents than it looks at.
"""

from __future__ import annotations

from functools import partial
from typing import Final, final

import attrs

from tidegate.model.documents import ID, AddToSet, Document, Eq, Field, Value, show
from tidegate.model.operations import find_all, update_one
from tidegate.reactive.checks.laws import reconciliation as laws
from tidegate.reactive.planning.change_stream import Elected
from tidegate.reactive.planning.reconciler import Reconciler, ScannedTask, progress_of
from tidegate.reactive.planning.reconciliation import Progress, ReconciliationRun, TaskTrigger
from tidegate.reactive.planning.stream_records import new_stream, take_over
from tidegate.reactive.task.plan_queries import PlanPage
from tidegate.retries.idempotent import PASSING
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers.actors import Process
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import document, world_with

STREAMS: Final = "streams"
STREAM: Final = "stream"
LOOKS: Final = "looks"
SEEN: Final = Field[tuple[Value, ...]]("seen")
DOCS: Final = (("orders", "x"), ("orders", "y"), ("users", "x"))

LOOKED: Final = "what is reconciled was looked at"
KEPT: Final = "what is known of a task of another version stays"

FAULTS: Final = Faults.of(Fault.CRASH_BEFORE, Fault.RESTART, Fault.DROPPED, Fault.LOST_REPLY)


@final
@attrs.frozen
class Version:
    """A version of an application.

    Attributes:
        tasks: The tasks it reconciles.
        made: The program, perhaps with a planted bug.
    """

    tasks: tuple[ScannedTask, ...]
    made: type[Reconciler] = Reconciler

    async def look(self, collection: str, ids: tuple[Value, ...], names: frozenset[str]) -> tuple[Value, ...]:
        """Record which task has looked, and for which trigger."""
        for key in ids:
            for each in self.tasks:
                if each.trigger.task in names:
                    await update_one(LOOKS, Eq(ID, place_of(collection, key)), AddToSet(SEEN, _look(each)))
        return ()

    async def lead(self, epoch: int) -> None:
        """Take the stream over, and reconcile."""
        elected = None
        while not isinstance(elected, Elected):
            try:
                elected = await take_over(STREAMS, STREAM, epoch)
            except PASSING:
                continue
            if elected is None:
                return
        run = ReconciliationRun(epoch, elected.history)
        parts = (STREAM, STREAMS, self.tasks, self.look, nothing_left)
        await self.made(*parts, batch=1, pause=0).run(run)


async def nothing_left(_: str, __: frozenset[str]) -> tuple[Value, ...]:
    return ()


def place_of(collection: str, key: object) -> str:
    return f"{collection}/{key}"


def _look(task: ScannedTask) -> str:
    return f"{task.trigger.task} {show(task.trigger.trigger)}"


BILL: Final = ScannedTask("orders", TaskTrigger("a.$bill", "all"))
PAID: Final = ScannedTask("orders", TaskTrigger("a.$bill", "paid"))
COUNT: Final = ScannedTask("users", TaskTrigger("count", "all"))
GREET: Final = ScannedTask("users", TaskTrigger("greet", "all"))
OLDER: Final = Version((BILL, COUNT, GREET))
LATER: Final = Version((PAID, GREET))


def progress(state: State) -> Progress:
    record = state.read(document(STREAMS, STREAM))
    assert record is not None, "the world begins with it"
    return progress_of(record)


def is_looked_at(state: State) -> bool:
    """Law RJ1: each document was looked at for each reconciled task and its trigger."""
    known = progress(state).reconciled
    for collection, key in DOCS:
        looks = state.read(document(LOOKS, place_of(collection, key)))
        assert looks is not None, "the world begins with it"
        for each in (BILL, PAID, COUNT, GREET):
            if each.collection == collection and each.trigger in known and _look(each) not in looks[SEEN]:
                return False
    return True


def is_kept(before: State, after: State) -> bool:
    """Law RJ2."""
    own = {each.trigger.task for each in LATER.tasks}
    return laws.keeps_other_tasks(progress(before), progress(after), own)


def is_all_done(state: State) -> bool:
    return {PAID.trigger, COUNT.trigger, GREET.trigger} <= progress(state).reconciled


def reconciler(
    made: type[Reconciler] = Reconciler,
    *,
    summary: str = "two versions reconcile one after the other: each for its own triggers, and neither undoes what it does not know",
    budget: int = 1,
) -> Scenario:
    """The scenario.

    Args:
        made: The program of the later version, perhaps with a planted bug.
        summary: One line for people.
        budget: How many faults may strike.
    """
    later = attrs.evolve(LATER, made=made)
    contents = {
        STREAMS: (new_stream(STREAM),),
        LOOKS: tuple(Document.of({"_id": place_of(collection, key), "seen": ()}) for collection, key in DOCS),
        "orders": (Document.of({"_id": "x"}), Document.of({"_id": "y"})),
        "users": (Document.of({"_id": "x"}),),
    }
    return Scenario(
        name="reconciler",
        summary=summary,
        world=world_with(contents),
        actors=(
            Process("older", lambda life: OLDER.lead(2 * life + 1), FAULTS),
            Process("later", lambda life: later.lead(2 * life + 2), FAULTS),
        ),
        budget=budget,
        always={LOOKED: is_looked_at},
        step={KEPT: is_kept},
        sometimes={"both are done": is_all_done},
    )


# --- what has changed is asked for ------------------------------------------------------------------------------------

CHANGED: Final = Field[bool]("changed")
KEYS: Final = ("a", "b", "c")
"""The first document has not changed, so one query covers both others."""


async def changed(after: tuple[Value, ...], limit: int) -> PlanPage:
    found = await find_all("orders", limit=limit, after=after)
    return PlanPage(tuple(each[ID] for each in found if each[CHANGED]), tuple(each[ID] for each in found[-1:]))


ASKING: Final = ScannedTask("orders", BILL.trigger, changed)


def is_all_looked_at(state: State) -> bool:
    """Law RJ1: each changed document was looked at once all is reconciled."""
    looks = [state.read(document(LOOKS, place_of("orders", key))) for key in KEYS[1:]]
    return not progress(state).reconciled or all(each is not None and each[SEEN] for each in looks)


def asking(
    made: type[Reconciler] = Reconciler,
    *,
    summary: str = "whoever asks what has changed looks at all of it, however much of it there is at once",
    budget: int = 1,
) -> Scenario:
    """The scenario.

    Args:
        made: The program, perhaps with a planted bug.
        summary: One line for people.
        budget: How many faults may strike.
    """
    version = Version((ASKING,), made)
    contents = {
        STREAMS: (new_stream(STREAM),),
        LOOKS: tuple(Document.of({"_id": place_of("orders", key), "seen": ()}) for key in KEYS),
        "orders": tuple(Document.of({"_id": key, "changed": key != KEYS[0]}) for key in KEYS),
    }
    return Scenario(
        name="reconciler",
        summary=summary,
        world=world_with(contents),
        actors=(Process("leader", lambda life: version.lead(life + 1), FAULTS),),
        budget=budget,
        always={LOOKED: is_all_looked_at},
        sometimes={"it is done": lambda state: bool(progress(state).reconciled)},
    )


SCENARIOS: Final = (
    Shipped("reconciler", reconciler, thorough=partial(reconciler, budget=2), large=partial(reconciler, budget=4)),
    Shipped("reconciler.asking", asking, thorough=partial(asking, budget=2), large=partial(asking, budget=4)),
)
