"""Seven ways to get what is asked of invocations wrong, each in one place of `tidegate.invocations.asking` or of its runner."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.asking import ASKING_PARTS, Asking, AskingParts, Change, Command, Decided, order
from tidegate.invocations.invocation_queries import InvocationQuery
from tidegate.invocations.record_documents import ASKED, DUE, HELD
from tidegate.invocations.scenarios.asking import (
    ASKS,
    COPIED,
    COUNTED,
    HELD_BACK,
    KILLED,
    OBEYED,
    RELEASED,
    STAYS,
    asking,
    holds_and_releases,
)
from tidegate.model.documents import ID, Document, equalities
from tidegate.model.instants import Instant
from tidegate.model.operations import UpdateOne
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


async def sent_is_done(updates: tuple[UpdateOne, ...]) -> int:
    """Whoever sends them takes them for done."""
    await ASKING_PARTS.send(updates)
    return len(updates)


async def by_id(updates: tuple[UpdateOne, ...]) -> int:
    """What has changed since it was read is changed all the same."""
    asked = ((update, equalities(update.where)) for update in updates)
    return await ASKING_PARTS.send(
        tuple(attrs.evolve(update, where=next(each for each in parts if each.field == ID)) for update, parts in asked)
    )


def cancel_is_a_kill(record: Document) -> Command | None:
    """Its run is ended, and it is given back as at any other time."""
    return None if order(record) is None else Command.KILL


def of_any_run(record: Document) -> Command | None:
    """What was asked stands in the record, so it is obeyed."""
    return Command.KILL if record.has(ASKED) else None


def decide_without_version(
    asking: Asking, command: Command, now: Instant | None, first: Document, doc: Document
) -> Decided:
    """Only when it is due changes, so it is the same record for whoever has read it."""
    verdict = ASKING_PARTS.decide(asking, command, now, first, doc)
    if not isinstance(verdict, Change):
        return verdict
    return attrs.evolve(verdict, updates=tuple(each for each in verdict.updates if each.field in {DUE, HELD}))


def named_by_request(asking: Asking, key: str) -> str:
    return f"{key} by {asking.request}"


async def repeats_twice(asking: Asking) -> object:
    """Two operators, or one whose reply was lost."""
    await asking.ask(Command.REPEAT, InvocationQuery(ids=("x",)))
    return await attrs.evolve(asking, request="bob").ask(Command.REPEAT, InvocationQuery(ids=("x",)))


def with_parts(parts: AskingParts) -> Asking:
    return attrs.evolve(ASKS, parts=parts)


UNVERSIONED: Final = partial(
    asking,
    Command.HOLD,
    with_parts(attrs.evolve(ASKING_PARTS, decide=decide_without_version)),
    operates=holds_and_releases,
    summary="When an invocation is due is changed under the guard of its version, and makes no new one.",
)

SPECIMENS: Final = (
    Specimen(
        "asking.sent_is_done",
        partial(
            asking,
            Command.CANCEL,
            with_parts(attrs.evolve(ASKING_PARTS, send=sent_is_done)),
            summary="Whoever cancels counts what was sent, and not what has matched.",
            budget=0,
        ),
        COUNTED,
        "Celery's `revoke` answers nothing: what was sent is all that anybody knows.",
        of="asking",
    ),
    Specimen(
        "asking.by_id",
        partial(
            asking,
            Command.CANCEL,
            with_parts(attrs.evolve(ASKING_PARTS, send=by_id)),
            summary="An invocation is cancelled by its id alone, though it may have ended since it was read.",
            budget=0,
        ),
        STAYS,
        "Planted: so does a script that sets a status by ids that it has listed.",
        of="asking",
        alone=True,
    ),
    Specimen(
        "asking.cancel_is_a_kill",
        partial(
            asking,
            orders=cancel_is_a_kill,
            summary="A runner ends the run of what is to be cancelled, and gives it back: it is run again.",
            budget=0,
        ),
        OBEYED,
        "pynenc 0.4.0 knows `killed` alone, and what is killed is routed again.",
        of="asking",
    ),
    Specimen(
        "asking.of_any_run",
        partial(
            asking,
            Command.KILL,
            orders=of_any_run,
            summary="A runner kills whatever run it finds a kill in the record of, though it was said of one before.",
            budget=0,
        ),
        KILLED,
        "Planted: a flag that nobody takes down.",
        of="asking.kill",
    ),
    Specimen(
        "asking.due_alone",
        partial(UNVERSIONED, budget=0),
        HELD_BACK,
        "The first draft of this module: a runner that has read it as due takes it, though it is held by then.",
        of="asking.held",
    ),
    Specimen(
        "asking.held_once_more",
        UNVERSIONED,
        RELEASED,
        "The first draft of this module: a request to hold it that comes late finds it as it was.",
        of="asking.held",
        alone=True,
    ),
    Specimen(
        "asking.named_by_request",
        partial(
            asking,
            Command.REPEAT,
            with_parts(attrs.evolve(ASKING_PARTS, copy=named_by_request)),
            operates=repeats_twice,
            summary="What is repeated is named by who asks, so each who asks makes another one.",
            budget=0,
        ),
        COPIED,
        "Planted: so does whoever enqueues a failed job anew, with a new id.",
        of="asking.repeated",
    ),
)
