"""Ways to admit too many. Each differs from `tidegate.invocations.picker` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.admission import AlreadyAdmitted, Ask, Place, Refused, Reservation, Running
from tidegate.invocations.invocation import INVOCATION, PENDING
from tidegate.invocations.picker import PLACES, VERSION, HeldBack, PickedUp, Picker, PickOutcome, kept
from tidegate.invocations.scenarios.admission import AT_MOST, HELD_BACK, PICKED, admission
from tidegate.invocations.status import StatusRecord
from tidegate.invocations.transition import Transition, viewed
from tidegate.model.documents import ID, Document, Eq, Put
from tidegate.model.operations import find_all, update_one
from tidegate.sim.shipping import Specimen

RUNNING: Final = frozenset({"pending", "running", "paused"})


def are_running(found: tuple[Document, ...]) -> bool:
    records = (viewed(each) for each in found)
    return any(record is not None and record.status in RUNNING for record in records)


@attrs.frozen(kw_only=True)
class LooksAndGoes(Picker):
    """It looks whether another one is there, and goes on if not: two that look at once both run."""

    async def _admitted(self, places: str, record: StatusRecord) -> Running:
        found = await find_all(self.records, limit=100)
        if are_running(found):
            return Refused((Place(places, 1),), "concurrency_controlled_final")
        del record
        return AlreadyAdmitted()


@attrs.frozen(kw_only=True)
class PlacesNotCompared(Picker):
    """The places are written by their id alone: of two that read the same, the later one wipes out the other's."""

    async def _taken(self, places: str, found: Document | None, wanted: Reservation) -> bool:
        if found is None:
            return await super()._taken(places, found, wanted)
        changes = (Put(VERSION, found[VERSION] + 1), Put(PLACES, kept(wanted)))
        return await update_one(self.places, Eq(ID, places), *changes) > 0


@attrs.frozen(kw_only=True)
class WhoeverAsksIsIn(Picker):
    """Whoever has a place is not asked for: it is taken for one that is held no more."""

    async def _known(self, asked: Ask) -> tuple[tuple[str, StatusRecord | None], ...]:
        return tuple((key, StatusRecord("success", None, 9)) for key in asked.invocations)


@attrs.frozen(kw_only=True)
class PlaceIsEnough(Picker):
    """Who has a place says that it has picked the invocation up, whatever becomes of the write after it."""

    async def _pending(self, record: StatusRecord) -> PickOutcome:
        request = f"{self.request}.{record.version}"
        await Transition(self.records, INVOCATION, self.key, PENDING, self.runner, request, attempts=1).run()
        return PickedUp(record.version + 1)


@attrs.frozen(kw_only=True)
class HeldBackUnseen(Picker):
    """Who is refused says that the invocation was moved on, whether it was or not."""

    async def _held_back(self, record: StatusRecord, refused: Refused) -> PickOutcome:
        del record
        return HeldBack(refused.target)


def planted(name: str, bug: type[Picker], law: str, source: str) -> Specimen:
    """The scenario of the program, with the bug in its place."""
    make = partial(admission, bug, summary=(bug.__doc__ or "").partition("\n")[0], is_used=True)
    return Specimen(f"admission.{name}", make, law, source, of="admission")


SPECIMENS: Final = (
    planted(
        "looks_and_goes",
        LooksAndGoes,
        AT_MOST,
        "pynenc: two invocations of a limited task both pass the check, both are pending, both pass again, both run.",
    ),
    planted(
        "places_not_compared",
        PlacesNotCompared,
        AT_MOST,
        "Planted: a semaphore whose count is read and written in two operations.",
    ),
    planted(
        "whoever_asks_is_in",
        WhoeverAsksIsIn,
        AT_MOST,
        "Planted: the place of one that is gone and the place of one that works look the same.",
    ),
    planted(
        "place_is_enough",
        PlaceIsEnough,
        PICKED,
        "Planted: a place is held from before the invocation is pending, and is not the same as that.",
    ),
    planted(
        "held_back_unseen",
        HeldBackUnseen,
        HELD_BACK,
        "pynenc: a refusal whose edge does not exist leaves the invocation stranded, and nobody hears of it.",
    ),
)
