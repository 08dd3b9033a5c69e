"""Four ways to enqueue wrongly."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.checks.scenarios.enqueueing import BOTH, MAKER, POLICY, THERE, beside, enqueueing, paid
from tidegate.invocations.queue.enqueueing import Enqueue
from tidegate.retries.retrying import Done
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant
from tidegate.transactions.transacting import in_transaction


async def made_before(command: Enqueue) -> bool:
    """The order is paid in a transaction that the invocation is not in."""
    await attrs.evolve(command, looks_first=False).run()
    return isinstance(await in_transaction("session", paid, POLICY), Done)


INSERTED: Final = "                inserted = await self._insert(self._documents(left, await StoreTime()))\n"
DONE: Final = """                docs = self._documents(left, await StoreTime())
                try:
                    inserted = await self._insert(docs)
                except Ambiguous:
                    inserted = len(left)
"""

SPECIMENS: Final = (
    specimen(
        "enqueueing.no_reply_is_done", THERE,
        "A request without a reply is taken for one that was carried out.",
        "The resilience article: a time-out says nothing about whether the write was done.",
        partial(variant, Enqueue, (INSERTED, DONE)),
        make=enqueueing, of="enqueueing"),
    specimen(
        "enqueueing.total_is_for_all", MAKER,
        "Ids that are taken are taken for this command's own earlier request.",
        "Planted: a duplicate key is 'already done', by whomever.",
        partial(variant, Enqueue, ("if inserted == len(left):", "if True:")),
        make=enqueueing, of="enqueueing"),
    specimen(
        "enqueueing.whoever_finds_it", MAKER,
        "What is there is thought to be made by whoever has asked for it.",
        "Planted: found is made.",
        partial(variant, Enqueue, ("Registered(key) if is_mine else Reused(key)", "Registered(key)")),
        make=enqueueing, of="enqueueing"),
    specimen(
        "enqueueing.beside.made_before", BOTH,
        "The invocation is made before the transaction, as a message is that a broker of its own keeps.",
        "What users of Oban and River praise that theirs do not: a job whose order was rolled back.",
        lambda: made_before, make=beside, of="enqueueing.beside"),
)  # fmt: skip
