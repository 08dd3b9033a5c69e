"""Twelve ways to take wrongly. Each differs from `tidegate.invocations.taking` in one place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from tidegate.invocations.admission import Admitted, AlreadyAdmitted, decide_running
from tidegate.invocations.ending import Ending
from tidegate.invocations.invocation import INVOCATION, RUNNING
from tidegate.invocations.metering import Metering, MeteringOutcome
from tidegate.invocations.place_documents import PLACES, kept, places_of
from tidegate.invocations.placing import Holders, Placed, Placing
from tidegate.invocations.rates import Admission, Meter, Rate
from tidegate.invocations.record_documents import DUE, STATUS, VERSION, VIEW, changes, viewed
from tidegate.invocations.scenarios.taking import (
    ASLEEP,
    AT_MOST,
    HELD_UP,
    KEYS,
    ONCE,
    PATIENT,
    SET,
    TOLD,
    WITHIN,
    crowded,
    limited,
    rated,
    rushed,
    taking,
    waking,
)
from tidegate.invocations.settling import RecordMove, Settling
from tidegate.invocations.status import Accepted, StatusRecord, decide_transition
from tidegate.invocations.taking import PARTS, Late, Taker, TakerParts
from tidegate.invocations.transition import GaveUp, Granted, TransitionOutcome
from tidegate.model.documents import ID, AllOf, Document, Eq, In, Put, Remove
from tidegate.model.effects import Ambiguous, NotApplied
from tidegate.model.instants import Instant
from tidegate.model.operations import bulk_update, find_one, update_one, upsert_one
from tidegate.sim.faults import Fault, Faults
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen, specimen
from tidegate.sim.variants import variant

__all__ = ["SPECIMENS"]

_AVAILABLE: Final = tuple(each.status for each in INVOCATION.definitions if each.available)


def decided(taker: Taker, moves: tuple[RecordMove, ...]) -> tuple[Accepted, ...]:
    found = (decide_transition(INVOCATION, move.expected, RUNNING, taker.runner) for move in moves)
    return tuple(each for each in found if isinstance(each, Accepted))


async def total_is_for_the_first(taker: Taker, moves: tuple[RecordMove, ...]) -> tuple[TransitionOutcome, ...]:
    """So many were taken: the first ones, it is thought."""
    verdicts = decided(taker, moves)
    updates = (
        update_one(
            taker.records,
            AllOf((Eq(ID, move.key), Eq(STATUS, move.expected.status))),
            *changes(INVOCATION, verdict, move.request, *move.also),
        )
        for move, verdict in zip(moves, verdicts, strict=True)
    )
    matched = await bulk_update(*updates)
    return tuple(
        Granted(verdict.record) if at < matched else GaveUp(1, move.expected, None)
        for at, (move, verdict) in enumerate(zip(moves, verdicts, strict=True))
    )


async def by_the_id_alone(taker: Taker, moves: tuple[RecordMove, ...]) -> tuple[TransitionOutcome, ...]:
    """What was found due is taken, whatever it is by then."""
    verdicts = decided(taker, moves)
    updates = (
        update_one(taker.records, Eq(ID, move.key), *changes(INVOCATION, verdict, move.request, *move.also))
        for move, verdict in zip(moves, verdicts, strict=True)
    )
    await bulk_update(*updates)
    return tuple(Granted(verdict.record) for verdict in verdicts)


async def gives_up(taker: Taker, moves: tuple[RecordMove, ...]) -> tuple[TransitionOutcome, ...]:
    """No reply is taken for nothing done, as where a lease would end by itself."""
    try:
        return await Settling(taker.records, INVOCATION, moves, taker.runner, 1, pauses=taker.pauses).run()
    except (Ambiguous, NotApplied):
        return tuple(GaveUp(1, move.expected, None) for move in moves)


async def by_the_owner(taker: Taker, moves: tuple[RecordMove, ...]) -> tuple[TransitionOutcome, ...]:
    """Which of them are its own now is asked for, and those alone are run: what is late is nobody's."""
    verdicts = decided(taker, moves)
    answers: tuple[TransitionOutcome, ...] = ()
    for move, verdict in zip(moves, verdicts, strict=True):
        try:
            where = AllOf((Eq(ID, move.key), In(STATUS, _AVAILABLE)))
            await update_one(taker.records, where, *changes(INVOCATION, verdict, move.request, *move.also))
        except (Ambiguous, NotApplied):
            pass
        try:
            actual = viewed(await find_one(taker.records, Eq(ID, move.key)))
        except (Ambiguous, NotApplied):
            actual = None
        is_mine = actual == verdict.record
        answers = (*answers, Granted(verdict.record) if is_mine else GaveUp(1, move.expected, actual))
    return answers


async def without_a_place(placing: Placing) -> Placed:
    """Nobody asks for a place."""
    return Placed(has=tuple(wish.key for wish in placing.wishes))


async def as_if_alone(placing: Placing) -> Placed:
    """The places are written, whatever they are by then."""
    (wish,) = placing.wishes
    places = places_of(await find_one(placing.places, Eq(ID, wish.limited_by)))
    known: tuple[tuple[str, StatusRecord | None], ...] = ()
    for place in places.places:
        record = await find_one(placing.records, Eq(ID, place.invocation), fields=VIEW)
        known = (*known, (place.invocation, viewed(record)))
    verdict = decide_running(places, wish.key, wish.record, dict(known), at_most=wish.at_most, reroute=True)
    if isinstance(verdict, Admitted):
        wanted = kept(verdict.reservation)
        await upsert_one(placing.places, Eq(ID, wish.limited_by), Put(VERSION, 1), Put(PLACES, wanted))
    return Placed(has=(wish.key,)) if isinstance(verdict, (Admitted, AlreadyAdmitted)) else Placed()


async def does_not_look_again(placing: Placing, by: Holders) -> None:
    """Who waits is thought to be seen by whoever ends."""
    del placing, by


def wakes_first(made: type[Ending], *, summary: str) -> Scenario:
    return waking(ending=made, summary=summary, budget=0)


ENDS: Final = "        answers = await Settling("
WAKES: Final = "        await wake(self.records, ((SET, 1),))\n"


async def only_its_own(taker: Taker, turn: str | None) -> tuple[Document, ...]:
    """A look puts off what it would have taken, and nothing else."""
    del taker, turn
    return ()


async def refused_is_taken(taker: Taker, name: str, rate: Rate, wanted: int, behind: int) -> MeteringOutcome:
    """Nobody waits for an answer: what no meter refuses begins."""
    del behind
    found = await Metering(key=name, rate=rate, wanted=wanted, attempts=1, meters=taker.meters).run()
    now = Instant(0)
    return found if isinstance(found, Admission) else Admission(now, wanted, (), Meter(now, now))


async def out_of_the_queue(taker: Taker, over: Late) -> None:
    """What is over its rate is taken out of the queue, for its runner to put it back when it may begin."""
    await bulk_update(*(update_one(taker.records, Eq(ID, doc[ID]), Remove(DUE)) for doc, _ in over))


def planted(name: str, wrong: object, make: Callable[[], Scenario], law: str, source: str) -> Specimen:
    """The scenario, with the bug in its place; its design stands before the last dot of the name."""
    summary = (wrong.__doc__ or "").partition("\n")[0]
    return Specimen(name, lambda: attrs.evolve(make(), summary=summary), law, source, of=name.rpartition(".")[0])


SPECIMENS: Final = (
    planted(
        "taking.total_is_for_the_first",
        total_is_for_the_first,
        partial(taking, TakerParts(begin=total_is_for_the_first)),
        ONCE,
        "MongoDB before 8.0 answers a bulk with totals.",
    ),
    planted(
        "taking.by_the_id_alone",
        by_the_id_alone,
        partial(taking, TakerParts(begin=by_the_id_alone)),
        ONCE,
        "pynenc 0.4, W22: the message is taken, and the status of its invocation is written afterwards.",
    ),
    planted(
        "taking.gives_up",
        gives_up,
        partial(taking, TakerParts(begin=gives_up)),
        TOLD,
        "The resilience article: a time-out says nothing about whether the write was done.",
    ),
    planted(
        "taking.by_the_owner",
        by_the_owner,
        partial(taking, TakerParts(begin=by_the_owner)),
        TOLD,
        "Planted: one look, as if a request that is late were none.",
    ),
    planted(
        "taking.limited.without_a_place",
        without_a_place,
        partial(limited, attrs.evolve(PARTS, place=without_a_place)),
        AT_MOST,
        "Planted: each runner counts what it runs itself.",
    ),
    planted(
        "taking.waking.as_if_alone",
        as_if_alone,
        partial(waking, attrs.evolve(PARTS, place=as_if_alone), keys=KEYS, budget=0),
        AT_MOST,
        "pynenc 0.4: who looks whether another one runs, and goes on if not, races with everybody who looks at the same time.",
    ),
    planted(
        "taking.waking.does_not_look_again",
        does_not_look_again,
        partial(waking, attrs.evolve(PARTS, look=does_not_look_again), budget=0),
        ASLEEP,
        "The lost wake-up: Dijkstra 1965; a run ends between the look at its place and the write that waits.",
    ),
    specimen(
        "taking.waking.wakes_first",
        ASLEEP,
        "Who waits is woken while its place is held still.",
        "Planted: both in any order, for they are both sent.",
        partial(
            variant, Ending, (ENDS, WAKES + ENDS), ("return await wake(self.records, freed)", "return False"), SET=SET
        ),
        make=wakes_first,
        of="taking.waking",
    ),
    planted(
        "taking.crowded.only_its_own",
        only_its_own,
        partial(crowded, attrs.evolve(PARTS, head=only_its_own), budget=0),
        HELD_UP,
        "Ours: in a storm, 2,000 that waited for places held up 5,000 others for a minute.",
    ),
    planted(
        "taking.rated.refused_is_taken",
        refused_is_taken,
        partial(rated, attrs.evolve(PARTS, meter=refused_is_taken), faults=Faults.of(Fault.DROPPED)),
        WITHIN,
        "Limiters of requests on the web let all through where their store is away.",
    ),
    planted(
        "taking.rated.out_of_the_queue",
        out_of_the_queue,
        partial(rated, attrs.evolve(PARTS, later=out_of_the_queue), budget=0),
        PATIENT,
        "Celery 5: a worker keeps what is over its rate limit, until it may begin.",
    ),
    planted(
        "taking.rushed.only_its_own",
        only_its_own,
        partial(rushed, attrs.evolve(PARTS, head=only_its_own)),
        HELD_UP,
        "Celery 5, and ours until it was seen of places: what is over its rate is passed over one by one.",
    ),
)
