"""Ways to register too many. Each differs from `tidegate.invocations.registration` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.admission import AlreadyAdmitted, Registration, Reservation, Reuse
from tidegate.invocations.invocation import REGISTERED as IS_REGISTERED
from tidegate.invocations.picker import PLACES, VERSION, kept
from tidegate.invocations.registration import Registrar
from tidegate.invocations.scenarios.registration import ANSWERED, AT_MOST, REGISTERED, registration
from tidegate.invocations.transition import viewed
from tidegate.model.documents import ID, Document, Eq, Put
from tidegate.model.effects import Ambiguous
from tidegate.model.operations import find_all, update_one
from tidegate.sim.shipping import Specimen


def registered(found: tuple[Document, ...]) -> tuple[str, ...]:
    records = ((str(each[ID]), viewed(each)) for each in found)
    return tuple(key for key, record in records if record is not None and record.status == IS_REGISTERED)


@attrs.frozen(kw_only=True)
class LooksAndRegisters(Registrar):
    """It looks whether one is registered, and registers its own if not: two that look at once both do."""

    async def _admitted(self, places: str | None) -> Registration:
        del places
        found = await find_all(self.records, limit=100)
        there = registered(found)
        return Reuse(there[0], is_made=True, differing=()) if there else AlreadyAdmitted()


@attrs.frozen(kw_only=True)
class PlaceNotCompared(Registrar):
    """The place is written by the id of its document alone: of two that read the same, both have it."""

    async def _taken(self, places: str, found: Document | None, wanted: Reservation) -> bool:
        assert found is not None, "it is there from the beginning"
        changes = (Put(VERSION, found[VERSION] + 1), Put(PLACES, kept(wanted)))
        return await update_one(self.places, Eq(ID, places), *changes) > 0


@attrs.frozen(kw_only=True)
class PlaceIsEnough(Registrar):
    """Who has the place says that it is registered, whatever becomes of the record."""

    async def _made(self, key: str) -> None:
        try:
            await super()._made(key)
        except Ambiguous:
            return


@attrs.frozen(kw_only=True)
class NameIsEnough(Registrar):
    """Whoever has the place answers the call, whether it has come to be made or not."""

    async def _admitted(self, places: str | None) -> Registration:
        verdict = await super()._admitted(places)
        return attrs.evolve(verdict, is_made=True) if isinstance(verdict, Reuse) else verdict


def planted(name: str, bug: type[Registrar], law: str, source: str) -> Specimen:
    """The scenario of the program, with the bug in its place."""
    make = partial(registration, bug, summary=(bug.__doc__ or "").partition("\n")[0], is_used=True)
    return Specimen(f"registration.{name}", make, law, source, of="registration")


SPECIMENS: Final = (
    planted(
        "looks_and_registers",
        LooksAndRegisters,
        AT_MOST,
        "pynenc looks for an invocation that is registered, and registers its own if there is none.",
    ),
    planted(
        "place_not_compared",
        PlaceNotCompared,
        AT_MOST,
        "Planted: whoever writes a lock without naming what it has read takes it from whoever was faster.",
    ),
    planted(
        "place_is_enough",
        PlaceIsEnough,
        REGISTERED,
        "Planted: a write whose reply is lost passes for done, and its caller waits for an invocation that is not there.",
    ),
    planted(
        "name_is_enough",
        NameIsEnough,
        ANSWERED,
        "Planted: the caller is answered by an invocation whose maker has crashed before it made it.",
    ),
)
