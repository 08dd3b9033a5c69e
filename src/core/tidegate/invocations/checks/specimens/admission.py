"""Ways to admit too many."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.invocations.checks.scenarios.admission import AT_MOST, HELD_BACK, PICKED, admission
from tidegate.invocations.limits.admission import Place
from tidegate.invocations.limits.slot_acquisition import Picker
from tidegate.invocations.limits.slot_documents import take_places
from tidegate.invocations.record.record_documents import STATUS
from tidegate.model.operations import find_all
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant

PLACES_NOT_COMPARED: Final = partial(variant, take_places, ("as_read(found), ", "Eq(ID, places), "))
USED: Final = partial(admission, is_used=True)

BEGINS: Final = "        found = await find_one(self.places, Eq(ID, places))\n"
LOOKS_AND_GOES: Final = """        others = await find_all(self.records, limit=100)
        if all(each[STATUS] not in ("pending", "running", "paused") for each in others):
            return HasPlace()
        return NoFreePlace((Place(places, 1),), "concurrency_controlled_final")
"""
PENDING: Final = "        answer = await self._move(record, PENDING, self.runner)\n"
PENDING_FOR_SURE: Final = """        request = f"{self.request}.{record.version}"
        await Transition(self.records, INVOCATION, self.key, PENDING, self.runner, request, attempts=1).run()
        return PickedUp(record.version + 1)
"""

SPECIMENS: Final = (
    specimen(
        "admission.looks_and_goes", AT_MOST,
        "It looks whether another one is there, and goes on if not: two that look at once both run.",
        "pynenc: two invocations of a limited task both pass the check, both are pending, both pass again, both run.",
        partial(variant, Picker, (BEGINS, LOOKS_AND_GOES + BEGINS), find_all=find_all, STATUS=STATUS, Place=Place),
        make=USED, of="admission"),
    specimen(
        "admission.places_not_compared", AT_MOST,
        "The places are written by their id alone: of two that read the same, the later one wipes out the other's.",
        "Planted: a semaphore whose count is read and written in two operations.",
        lambda: variant(Picker, take_places=PLACES_NOT_COMPARED()), make=USED, of="admission"),
    specimen(
        "admission.whoever_asks_is_in", AT_MOST,
        "Whoever has a place is not asked for: it is taken for one that is held no more.",
        "Planted: the place of one that is gone and the place of one that works look the same.",
        partial(variant, Picker, ("await self._record(key)", 'StatusRecord("success", None, 9)')), make=USED, of="admission"),
    specimen(
        "admission.place_is_enough", PICKED,
        "Who has a place says that it has picked the invocation up, whatever becomes of the write after it.",
        "Planted: a place is held from before the invocation is pending, and is not the same as that.",
        partial(variant, Picker, (PENDING, PENDING_FOR_SURE)), make=USED, of="admission"),
    specimen(
        "admission.held_back_unseen", HELD_BACK,
        "Who is refused says that the invocation was moved on, whether it was or not.",
        "pynenc: a refusal whose edge does not exist leaves the invocation stranded, and nobody learns of it.",
        partial(
            variant, Picker,
            ("await self._move(record, target, None)", "Granted(StatusRecord(target, None, record.version + 1))")),
        make=USED, of="admission"),
)  # fmt: skip
