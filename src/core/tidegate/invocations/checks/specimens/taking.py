"""Twelve ways to take wrongly."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tidegate.invocations.checks.scenarios.taking import (
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
from tidegate.invocations.checks.specimens.settling import NO_REPLY, OF_EACH
from tidegate.invocations.limits.rate_limit import Meter
from tidegate.invocations.limits.slots import Placing
from tidegate.invocations.queue.bulk_transition import Settling
from tidegate.invocations.queue.completion import Ending
from tidegate.invocations.queue.fetching import Taker
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import STATUS, changes
from tidegate.invocations.record.status import decide_transition
from tidegate.invocations.record.transition import GaveUp
from tidegate.model.documents import AllOf, Eq
from tidegate.model.operations import find_one, upsert_one
from tidegate.sim.runs.registry import specimen
from tidegate.sim.scenario import Scenario
from tidegate.sim.trace.variants import variant
from tidegate.sim.world.faults import Fault, Faults


def begins_by(*replacements: tuple[str, str], **names: object) -> Callable[[], type[Taker]]:
    """The program with a bug in the bulk by which it takes, whose reply is awaited and believed."""
    always = ((NO_REPLY, ""), ("if matched == len(left):", "if True:"))
    return lambda: variant(Taker, Settling=variant(Settling, *always, *replacements, **names))


def ends_by(made: type[Ending], *, summary: str) -> Scenario:
    return waking(ending=made, summary=summary, budget=0)


UNCHANGED: Final = "unchanged(move.key, move.expected)"
BY_STATUS: Final = "AllOf((Eq(ID, move.key), Eq(STATUS, move.expected.status)))"
THE_FIRST: Final = """(
                    (move, Granted(verdict.record) if number < matched else GaveUp(1, move.expected, None))
                    for number, (move, verdict) in enumerate(left)
                )"""
BEGINS: Final = (
    "        return await Settling(self.records, INVOCATION, moves, self.runner, None, pauses=self.pauses).run()\n"
)
BY_THE_OWNER: Final = """        answers: tuple[TransitionOutcome, ...] = ()
        for move in moves:
            verdict = decide_transition(INVOCATION, move.expected, RUNNING, self.runner)
            try:
                where = AllOf((Eq(ID, move.key), In(STATUS, AVAILABLE)))
                await update_one(self.records, where, *changes(INVOCATION, verdict, move.request, *move.also))
            except (Ambiguous, NotApplied):
                pass
            try:
                actual = viewed(await find_one(self.records, Eq(ID, move.key)))
            except (Ambiguous, NotApplied):
                actual = None
            is_mine = actual == verdict.record
            answers = (*answers, Granted(verdict.record) if is_mine else GaveUp(1, move.expected, actual))
        return answers
"""
AVAILABLE: Final = tuple(each.status for each in INVOCATION.definitions if each.available)
PLACES: Final = "        left, placed = self.wishes, Placed()\n"
AS_IF_ALONE: Final = """        (wish,) = self.wishes
        places = places_of(await find_one(self.places, Eq(ID, wish.limited_by)))
        known = ()
        for place in places.places:
            record = await find_one(self.records, Eq(ID, place.invocation), fields=VIEW)
            known = (*known, (place.invocation, viewed(record)))
        verdict = decide_running(places, wish.key, wish.record, dict(known), at_most=wish.at_most, reroute=True)
        if isinstance(verdict, Admitted):
            wanted = kept(verdict.reservation)
            await upsert_one(self.places, Eq(ID, wish.limited_by), Put(VERSION, 1), Put(PLACES, wanted))
        return Placed(has=(wish.key,)) if isinstance(verdict, (Admitted, AlreadyAdmitted)) else Placed()
"""
ENDS: Final = "        answers = await Settling("
WAKES: Final = "        await wake(self.records, ((SET, 1),))\n"
HEAD: Final = "await self._head(turn) if is_more and len(refused) + len(over) > len(records) else ()"
NOBODY_KNOWS: Final = "            return tuple((doc, None, None) for doc in (*docs, *behind))\n"
ALL_BEGIN: Final = "            answer = Admission(Instant(0), len(docs), (), Meter(Instant(0), Instant(0)))\n"
OVER: Final = """                AllOf((unchanged(doc[ID], _known(doc)), OlderThan(DUE, 0))),
                Put(DUE, due),
                Put(LATER, due),
"""

SPECIMENS: Final = (
    specimen(
        "taking.total_is_for_the_first", ONCE,
        "So many were taken: the first ones, it is thought.",
        "MongoDB before 8.0 answers a bulk with totals.",
        begins_by((UNCHANGED, BY_STATUS), (OF_EACH, THE_FIRST), AllOf=AllOf, Eq=Eq, STATUS=STATUS), make=taking, of="taking"),
    specimen(
        "taking.by_the_id_alone", ONCE,
        "What was found due is taken, whatever it is by then.",
        "pynenc 0.4, W22: the message is taken, and the status of its invocation is written afterwards.",
        begins_by((UNCHANGED, "Eq(ID, move.key)"), Eq=Eq), make=taking, of="taking"),
    specimen(
        "taking.gives_up", TOLD,
        "No reply is taken for nothing done, as where a lease would end by itself.",
        "The resilience article: a time-out says nothing about whether the write was done.",
        partial(variant, Taker, ("moves, self.runner, None,", "moves, self.runner, 1,")), make=taking, of="taking"),
    specimen(
        "taking.by_the_owner", TOLD,
        "Which of them are its own now is asked for, and those alone are run: what is late is nobody's.",
        "Planted: one look, as if a request that is late were none.",
        partial(
            variant, Taker, (BEGINS, BY_THE_OWNER),
            AVAILABLE=AVAILABLE, STATUS=STATUS, GaveUp=GaveUp, changes=changes, decide_transition=decide_transition),
        make=taking, of="taking"),
    specimen(
        "taking.limited.without_a_place", AT_MOST,
        "Nobody asks for a place.",
        "Planted: each runner counts what it runs itself.",
        partial(variant, Taker, ("await self._placing(wishes).place()", "Placed(has=tuple(wish.key for wish in wishes))")),
        make=limited, of="taking.limited"),
    specimen(
        "taking.waking.as_if_alone", AT_MOST,
        "The places are written, whatever they are by then.",
        "pynenc 0.4: who looks whether another one runs, and goes on if not, races with everybody who looks at the same time.",
        lambda: variant(
            Taker, Placing=variant(Placing, (PLACES, AS_IF_ALONE + PLACES), find_one=find_one, upsert_one=upsert_one)),
        make=partial(waking, keys=KEYS, budget=0), of="taking.waking"),
    specimen(
        "taking.waking.does_not_look_again", ASLEEP,
        "Who waits is thought to be seen by whoever ends.",
        "The lost wake-up: Dijkstra 1965; a run ends between the look at its place and the write that waits.",
        partial(variant, Taker, ("        await self._placing(()).look(placed.by)\n", "")),
        make=partial(waking, budget=0), of="taking.waking"),
    specimen(
        "taking.waking.wakes_first", ASLEEP,
        "Who waits is woken while its place is held still.",
        "Planted: both in any order, for they are both sent.",
        partial(variant, Ending, (ENDS, WAKES + ENDS), ("return await wake(self.records, freed)", "return False"), SET=SET),
        make=ends_by, of="taking.waking"),
    specimen(
        "taking.crowded.only_its_own", HELD_UP,
        "A look puts off what it would have taken, and nothing else.",
        "Ours: in a storm, 2,000 that waited for places held up 5,000 others for a minute.",
        partial(variant, Taker, (HEAD, "()")), make=partial(crowded, budget=0), of="taking.crowded"),
    specimen(
        "taking.rated.refused_is_taken", WITHIN,
        "Nobody waits for an answer: what no meter refuses begins.",
        "Limiters of requests on the web let all through where their store is away.",
        partial(
            variant, Taker, ("meters=self.meters, attempts=self.attempts", "meters=self.meters, attempts=1"),
            (NOBODY_KNOWS, ALL_BEGIN), Meter=Meter),
        make=partial(rated, faults=Faults.of(Fault.DROPPED)), of="taking.rated"),
    specimen(
        "taking.rated.out_of_the_queue", PATIENT,
        "What is over its rate is taken out of the queue, for its runner to put it back when it may begin.",
        "Celery 5: a worker keeps what is over its rate limit, until it may begin.",
        partial(variant, Taker, (OVER, "                Eq(ID, doc[ID]),\n                Remove(DUE),\n")),
        make=partial(rated, budget=0), of="taking.rated"),
    specimen(
        "taking.rushed.only_its_own", HELD_UP,
        "A look puts off what it would have taken, and nothing else.",
        "Celery 5, and ours until it was seen of places: what is over its rate is passed over one by one.",
        partial(variant, Taker, (HEAD, "()")), make=rushed, of="taking.rushed"),
)  # fmt: skip
