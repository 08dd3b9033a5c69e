"""Four ways to enqueue wrongly. Each differs from `tidegate.invocations.enqueueing` in one place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from tidegate.invocations.enqueueing import PARTS, Enqueue, EnqueueParts
from tidegate.invocations.registration import Registered, RegistrationOutcome
from tidegate.invocations.scenarios.enqueueing import BOTH, MAKER, POLICY, THERE, beside, enqueueing, paid
from tidegate.model.documents import ID, Document
from tidegate.model.effects import Ambiguous
from tidegate.retries.resending import Done
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen
from tidegate.transactions.transacting import in_transaction

__all__ = ["SPECIMENS"]


async def no_reply_is_done(command: Enqueue, docs: tuple[Document, ...]) -> int:
    """A request without a reply is taken for one that was carried out."""
    try:
        return await PARTS.insert(command, docs)
    except Ambiguous:
        return len(docs)


async def total_is_for_all(command: Enqueue, docs: tuple[Document, ...]) -> int:
    """Ids that are taken are taken for this command's own earlier request."""
    await PARTS.insert(command, docs)
    return len(docs)


def whoever_finds_it(command: Enqueue, found: Document) -> RegistrationOutcome:
    """What is there is thought to be made by whoever has asked for it."""
    del command
    return Registered(found[ID])


async def made_before(command: Enqueue) -> bool:
    """The invocation is made before the transaction, as a message is that a broker of its own keeps."""
    await attrs.evolve(command, looks_first=False).run()
    return isinstance(await in_transaction("session", paid, POLICY), Done)


def planted(name: str, wrong: object, make: Callable[[], Scenario], law: str, source: str) -> Specimen:
    """The scenario, with the bug in its place; its design stands before the last dot of the name."""
    summary = (wrong.__doc__ or "").partition("\n")[0]
    return Specimen(name, lambda: attrs.evolve(make(), summary=summary), law, source, of=name.rpartition(".")[0])


SPECIMENS: Final = (
    planted(
        "enqueueing.no_reply_is_done",
        no_reply_is_done,
        partial(enqueueing, EnqueueParts(insert=no_reply_is_done)),
        THERE,
        "The resilience article: a time-out says nothing about whether the write was done.",
    ),
    planted(
        "enqueueing.total_is_for_all",
        total_is_for_all,
        partial(enqueueing, EnqueueParts(insert=total_is_for_all)),
        MAKER,
        "Planted: a duplicate key is 'already done', by whomever.",
    ),
    planted(
        "enqueueing.whoever_finds_it",
        whoever_finds_it,
        partial(enqueueing, EnqueueParts(became=whoever_finds_it)),
        MAKER,
        "Planted: found is made.",
    ),
    planted(
        "enqueueing.beside.made_before",
        made_before,
        partial(beside, pay=made_before),
        BOTH,
        "What users of Oban and River praise that theirs do not: a job whose order was rolled back.",
    ),
)
