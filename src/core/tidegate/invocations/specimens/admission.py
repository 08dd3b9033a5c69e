"""Ways to admit too many. Each differs from `tidegate.invocations.picker` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.admission import NoFreePlace, Place, Reservation
from tidegate.invocations.invocation import INVOCATION, PENDING
from tidegate.invocations.picker import PARTS, Known, Picker, PickerParts, RunningAdmission
from tidegate.invocations.place_documents import PLACES, HasPlace, kept
from tidegate.invocations.record_documents import VERSION, viewed
from tidegate.invocations.scenarios.admission import AT_MOST, HELD_BACK, PICKED, admission
from tidegate.invocations.status import StatusRecord
from tidegate.invocations.transition import Granted, Transition, TransitionOutcome
from tidegate.model.documents import ID, Document, Eq, Put
from tidegate.model.operations import find_all, update_one
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS", "places_not_compared"]

RUNNING: Final = frozenset({"pending", "running", "paused"})


def are_running(found: tuple[Document, ...]) -> bool:
    records = (viewed(each) for each in found)
    return any(record is not None and record.status in RUNNING for record in records)


async def looks_and_goes(picker: Picker, places: str, record: StatusRecord) -> RunningAdmission:
    """It looks whether another one is there, and goes on if not: two that look at once both run."""
    found = await find_all(picker.records, limit=100)
    if are_running(found):
        return NoFreePlace((Place(places, 1),), "concurrency_controlled_final")
    del record
    return HasPlace()


async def places_not_compared(collection: str, places: str, found: Document | None, wanted: Reservation) -> bool:
    """The places are written by their id alone: of two that read the same, the later one wipes out the other's."""
    if found is None:
        return await PARTS.take(collection, places, found, wanted)
    changes = (Put(VERSION, found[VERSION] + 1), Put(PLACES, kept(wanted)))
    return await update_one(collection, Eq(ID, places), *changes) > 0


async def whoever_asks_is_in(picker: Picker, invocations: tuple[str, ...]) -> Known:
    """Whoever has a place is not asked for: it is taken for one that is held no more."""
    del picker
    return tuple((key, StatusRecord("success", None, 9)) for key in invocations)


async def place_is_enough(picker: Picker, record: StatusRecord, target: str, runner: str | None) -> TransitionOutcome:
    """Who has a place says that it has picked the invocation up, whatever becomes of the write after it."""
    if target != PENDING:
        return await PARTS.move(picker, record, target, runner)
    request = f"{picker.request}.{record.version}"
    await Transition(picker.records, INVOCATION, picker.key, target, runner, request, attempts=1).run()
    return granted(record, target, runner)


async def held_back_unseen(picker: Picker, record: StatusRecord, target: str, runner: str | None) -> TransitionOutcome:
    """Who is refused says that the invocation was moved on, whether it was or not."""
    return await PARTS.move(picker, record, target, runner) if target == PENDING else granted(record, target, None)


def granted(record: StatusRecord, target: str, runner: str | None) -> Granted:
    return Granted(StatusRecord(target, runner, record.version + 1))


def planted(name: str, wrong: object, parts: PickerParts, law: str, source: str) -> Specimen:
    """The scenario of the program, with the bug in its place."""
    make = partial(admission, parts, summary=(wrong.__doc__ or "").partition("\n")[0], is_used=True)
    return Specimen(f"admission.{name}", make, law, source, of="admission")


SPECIMENS: Final = (
    planted(
        "looks_and_goes",
        looks_and_goes,
        attrs.evolve(PARTS, admit=looks_and_goes),
        AT_MOST,
        "pynenc: two invocations of a limited task both pass the check, both are pending, both pass again, both run.",
    ),
    planted(
        "places_not_compared",
        places_not_compared,
        attrs.evolve(PARTS, take=places_not_compared),
        AT_MOST,
        "Planted: a semaphore whose count is read and written in two operations.",
    ),
    planted(
        "whoever_asks_is_in",
        whoever_asks_is_in,
        attrs.evolve(PARTS, look=whoever_asks_is_in),
        AT_MOST,
        "Planted: the place of one that is gone and the place of one that works look the same.",
    ),
    planted(
        "place_is_enough",
        place_is_enough,
        attrs.evolve(PARTS, move=place_is_enough),
        PICKED,
        "Planted: a place is held from before the invocation is pending, and is not the same as that.",
    ),
    planted(
        "held_back_unseen",
        held_back_unseen,
        attrs.evolve(PARTS, move=held_back_unseen),
        HELD_BACK,
        "pynenc: a refusal whose edge does not exist leaves the invocation stranded, and nobody learns of it.",
    ),
)
