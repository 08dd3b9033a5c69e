"""Ways to register too many, or to leave too much. Each differs from `tidegate.invocations.registration` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.admission import Reuse
from tidegate.invocations.invocation import REGISTERED as IS_REGISTERED
from tidegate.invocations.place_documents import HasPlace
from tidegate.invocations.record_documents import viewed
from tidegate.invocations.registration import PARTS, Registrar, RegistrarParts, RegistrationAdmission
from tidegate.invocations.scenarios.registration import ANSWERED, AT_MOST, CLEAN, REGISTERED, answered, registration
from tidegate.invocations.specimens.admission import PLACES_NOT_COMPARED
from tidegate.model.documents import ID, Document
from tidegate.model.effects import Ambiguous
from tidegate.model.operations import find_all
from tidegate.model.programs import insert_new
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


def registered(found: tuple[Document, ...]) -> tuple[str, ...]:
    records = ((str(each[ID]), viewed(each)) for each in found)
    return tuple(key for key, record in records if record is not None and record.status == IS_REGISTERED)


async def looks_and_registers(registrar: Registrar, places: str | None) -> RegistrationAdmission:
    """It looks whether one is registered, and registers its own if not: two that look at once both do."""
    del places
    found = await find_all(registrar.records, limit=100)
    there = registered(found)
    return Reuse(there[0], is_made=True, differing=()) if there else HasPlace()


async def place_is_enough(registrar: Registrar, key: str) -> None:
    """Who has the place says that it is registered, whatever becomes of the record."""
    try:
        await PARTS.make(registrar, key)
    except Ambiguous:
        return


async def name_is_enough(registrar: Registrar, places: str | None) -> RegistrationAdmission:
    """Whoever has the place answers the call, whether it has come to be made or not."""
    verdict = await PARTS.admit(registrar, places)
    return attrs.evolve(verdict, is_made=True) if isinstance(verdict, Reuse) else verdict


async def stores_its_call_first(registrar: Registrar, places: str | None) -> RegistrationAdmission:
    """It stores its call before it looks who has the place, and nobody removes that of one who is answered."""
    await insert_new(registrar.calls, registrar.stored_call)
    return await PARTS.admit(registrar, places)


def planted(name: str, wrong: object, parts: RegistrarParts, law: str, source: str) -> Specimen:
    """The scenario of the program, with the bug in its place."""
    make = partial(registration, parts, summary=(wrong.__doc__ or "").partition("\n")[0], is_used=True)
    return Specimen(f"registration.{name}", make, law, source, of="registration")


SPECIMENS: Final = (
    planted(
        "looks_and_registers",
        looks_and_registers,
        attrs.evolve(PARTS, admit=looks_and_registers),
        AT_MOST,
        "pynenc looks for an invocation that is registered, and registers its own if there is none.",
    ),
    planted(
        "place_not_compared",
        PLACES_NOT_COMPARED(),
        attrs.evolve(PARTS, take=PLACES_NOT_COMPARED()),
        AT_MOST,
        "Planted: whoever writes a lock without naming what it has read takes it from whoever was faster.",
    ),
    planted(
        "place_is_enough",
        place_is_enough,
        attrs.evolve(PARTS, make=place_is_enough),
        REGISTERED,
        "Planted: a write whose reply is lost passes for done, and its caller waits for an invocation that is not there.",
    ),
    planted(
        "name_is_enough",
        name_is_enough,
        attrs.evolve(PARTS, admit=name_is_enough),
        ANSWERED,
        "Planted: the caller is answered by an invocation whose maker has crashed before it made it.",
    ),
    Specimen(
        "registration.stores_its_call_first",
        partial(
            answered,
            attrs.evolve(PARTS, admit=stores_its_call_first),
            summary=(stores_its_call_first.__doc__ or "").partition("\n")[0],
            budget=0,
        ),
        CLEAN,
        "Ours, until a store was full of the calls of those who had been answered.",
        of="registration.answered",
    ),
)
