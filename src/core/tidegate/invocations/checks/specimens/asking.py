"""Seven ways to get what is asked of invocations wrong: bugs of the program, or of its runner."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.admin.commands import Asking, Command, order
from tidegate.invocations.admin.invocation_queries import InvocationQuery
from tidegate.invocations.checks.scenarios.asking import (
    COPIED,
    COUNTED,
    HELD_BACK,
    KILLED,
    OBEYED,
    RELEASED,
    STAYS,
    Orders,
    asking,
    holds_and_releases,
)
from tidegate.sim.runs.registry import specimen
from tidegate.sim.scenario import Scenario
from tidegate.sim.trace.variants import variant


def obeys(made: Orders, *, summary: str, ask: Command = Command.CANCEL) -> Scenario:
    return asking(ask=ask, orders=made, summary=summary, budget=0)


async def repeats_twice(asking: Asking) -> object:
    """Two operators, or one whose reply was lost."""
    await asking.ask(Command.REPEAT, InvocationQuery(ids=("x",)))
    return await attrs.evolve(asking, request="bob").ask(Command.REPEAT, InvocationQuery(ids=("x",)))


UNVERSIONED: Final = partial(variant, Asking, ("ID), known), made,", "ID), known), updates,"))
HOLDS: Final = partial(asking, ask=Command.HOLD, operates=holds_and_releases)

SPECIMENS: Final = (
    specimen(
        "asking.sent_is_done", COUNTED,
        "Whoever cancels counts what was sent, and not what has matched.",
        "Celery's `revoke` answers nothing: what was sent is all that anybody knows.",
        partial(variant, Asking, ("await bulk_update(*updates) == len(updates)", "await bulk_update(*updates) >= 0")),
        make=partial(asking, budget=0), of="asking"),
    specimen(
        "asking.by_id", STAYS,
        "An invocation is cancelled by its id alone, though it may have ended since it was read.",
        "Planted: so does a script that sets a status by ids that it has listed.",
        partial(
            variant, Asking, ("Change(unchanged(key, known), (Put(ASKED, _CANCEL),)", "Change(Eq(ID, key), (Put(ASKED, _CANCEL),)"),
            ("return Change(unchanged(key, known), made,", "return Change(Eq(ID, key), made,")),
        make=partial(asking, budget=0), of="asking", alone=True),
    specimen(
        "asking.cancel_is_a_kill", OBEYED,
        "A runner ends the run of what is to be cancelled, and gives it back: it is run again.",
        "pynenc 0.4.0 knows `killed` alone, and what is killed is routed again.",
        partial(variant, order, ("return Command.CANCEL", "return Command.KILL")), make=obeys, of="asking"),
    specimen(
        "asking.of_any_run", KILLED,
        "A runner kills whatever run it finds a kill in the record of, though it was said of one before.",
        "Planted: a flag that nobody takes down.",
        partial(variant, order, ('case "kill" if record.held(ASKED_OF) == record.held(VERSION):', 'case "kill":')),
        make=partial(obeys, ask=Command.KILL), of="asking.kill"),
    specimen(
        "asking.due_alone", HELD_BACK,
        "When an invocation is due is changed under the guard of its version, and makes no new one.",
        "The first draft of this module: a runner that has read it as due takes it, though it is held by then.",
        UNVERSIONED, make=partial(HOLDS, budget=0), of="asking.held"),
    specimen(
        "asking.held_once_more", RELEASED,
        "When an invocation is due is changed under the guard of its version, and makes no new one.",
        "The first draft of this module: a request to hold it that comes late finds it as it was.",
        UNVERSIONED, make=HOLDS, of="asking.held", alone=True),
    specimen(
        "asking.named_by_request", COPIED,
        "What is repeated is named by who asks, so each who asks makes another one.",
        "Planted: so does whoever enqueues a failed job anew, with a new id.",
        partial(variant, Asking, ("new_invocation(copy_id(needed(doc, ID)),", 'new_invocation(f"{needed(doc, ID)} by {asking.request}",')),
        make=partial(asking, ask=Command.REPEAT, operates=repeats_twice, budget=0), of="asking.repeated"),
)  # fmt: skip
