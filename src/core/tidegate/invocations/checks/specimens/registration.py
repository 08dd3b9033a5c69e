"""Ways to register too many, or to leave too much."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.invocations.checks.scenarios.registration import (
    ANSWERED,
    AT_MOST,
    CLEAN,
    REGISTERED,
    answered,
    registration,
)
from tidegate.invocations.checks.specimens.admission import PLACES_NOT_COMPARED
from tidegate.invocations.limits.registration import Registrar
from tidegate.invocations.record.record_documents import STATUS
from tidegate.model.operations import find_all
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant

USED: Final = partial(registration, is_used=True)

BEGINS: Final = "        if places is None:\n"
LOOKS_AND_REGISTERS: Final = """        others = await find_all(self.records, limit=100)
        there = [each[ID] for each in others if each[STATUS] == "registered"]
        return Reuse(there[0], is_made=True, differing=()) if there else HasPlace()
"""
MAKES: Final = "    async def _make(self, key: str) -> None:\n"
MAKES_FOR_SURE: Final = """    async def _make(self, key: str) -> None:
        try:
            await self._try_to_make(key)
        except Ambiguous:
            return

    async def _try_to_make(self, key: str) -> None:
"""

SPECIMENS: Final = (
    specimen(
        "registration.looks_and_registers", AT_MOST,
        "It looks whether one is registered, and registers its own if not: two that look at once both do.",
        "pynenc looks for an invocation that is registered, and registers its own if there is none.",
        partial(variant, Registrar, (BEGINS, LOOKS_AND_REGISTERS + BEGINS), find_all=find_all, STATUS=STATUS),
        make=USED, of="registration"),
    specimen(
        "registration.place_not_compared", AT_MOST,
        "The places are written by their id alone: of two that read the same, the later one wipes out the other's.",
        "Planted: whoever writes a lock without naming what it has read takes it from whoever was faster.",
        lambda: variant(Registrar, take_places=PLACES_NOT_COMPARED()), make=USED, of="registration"),
    specimen(
        "registration.place_is_enough", REGISTERED,
        "Who has the place says that it is registered, whatever becomes of the record.",
        "Planted: a write whose reply is lost passes for done, and its caller waits for an invocation that is not there.",
        partial(variant, Registrar, (MAKES, MAKES_FOR_SURE)), make=USED, of="registration"),
    specimen(
        "registration.name_is_enough", ANSWERED,
        "Whoever has the place answers the call, whether it has come to be made or not.",
        "Planted: the caller is answered by an invocation whose maker has crashed before it made it.",
        partial(variant, Registrar, ("if not is_made:", "if False:")), make=USED, of="registration"),
    specimen(
        "registration.stores_its_call_first", CLEAN,
        "It stores its call before it looks who has the place, and nobody removes that of one who is answered.",
        "Ours, until a store was full of the calls of those who had been answered.",
        partial(variant, Registrar, (BEGINS, "        await insert_new(self.calls, self.stored_call)\n" + BEGINS)),
        make=partial(answered, budget=0), of="registration.answered"),
)  # fmt: skip
