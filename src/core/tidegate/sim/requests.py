"""What may become of one request. Per fault, what reply the caller gets and what the world knows:

    none            the reply                        done
    unsent          NotApplied                       not done
    dropped         Ambiguous                        not done
    lost reply      Ambiguous                        done, and a majority has it
    partly done     Ambiguous                        done to some of its documents, if it is a write of many
    late            Ambiguous                        done at any later point; to many documents one by one
    duplicate       the reply                        done, and done once more at any later point
    not durable     NotDurable                       done, and perhaps taken back (`tidegate.sim.failover`)
    stale read      what was there before            not changed
    refusals        Refused                          not done: user code, a sink, dead letters, a commit
    clocks          another time                     not changed (`tidegate.sim.clocks`)

Without any fault, a write of many documents is done at once or one document after the other, and an upsert whose filter says more
than the id may find none, and insert later: others act in between (`halfway`). What begins to match meanwhile is written, too,
or not.

Each strikes what the scenario says that it may strike. Nobody else is asked for a note or a sleep, so the network has no
part in them; the store has one clock, a machine another. What the store is asked is not user code, so that does not raise.

Known not to work
    - A write of many documents goes on in steps only while a majority has all that was written; and its single documents are
      not taken back.
    - Of one that arrives late, the documents are those that match when it begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, combinations
from types import MappingProxyType
from typing import Final, TypeAlias, cast, final, get_args

import attrs

from tidegate.model.documents import AllOf, Eq, equalities, parts_of
from tidegate.model.effects import (
    Ambiguous,
    Call,
    Effect,
    Failure,
    NotApplied,
    NotDurable,
    Note,
    Now,
    Refused,
    Sleep,
    is_too_late,
)
from tidegate.model.errors import Misuse, shown
from tidegate.model.operations import (
    BulkUpdate,
    DeleteOne,
    FindAll,
    FindOne,
    FindOneAndUpdate,
    InsertMany,
    InsertOne,
    Operation,
    StoreTime,
    UpdateOne,
    UpsertOne,
)
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction
from tidegate.sim.aging import plain_text, same
from tidegate.sim.clocks import HOST, Host, readings, troubled_readings
from tidegate.sim.failover import behind, noted, unconfirmed
from tidegate.sim.faults import Fault, Faults, spent
from tidegate.sim.scenario import Trouble
from tidegate.sim.transactions import all_confirmed
from tidegate.sim.world import (
    FLIGHT,
    MANY,
    UNCONFIRMED,
    Flying,
    Key,
    Many,
    Meaning,
    Outcomes,
    Part,
    PartsDone,
    World,
    parts,
    target,
    to_insert,
)

__all__ = [
    "ANSWERED",
    "FOUND_NONE",
    "OPERATIONS",
    "Answers",
    "Asker",
    "Halfway",
    "found_none",
    "halfway",
    "replies",
    "troubled",
    "under_way",
]


_NO_REPLY: Final = Ambiguous("no reply")
_UNCONFIRMED_REPLY: Final = NotDurable("no majority has confirmed it")
OPERATIONS: Final = (*get_args(Operation), InTransaction, CommitTransaction, AbortTransaction)
"""What a document store is asked."""
FOUND_NONE: Final = "it finds none, and has not inserted yet"
ANSWERED: Final = (*OPERATIONS, StoreTime, Now, Sleep, Note)
"""What always has an answer in the end, for no code of the user's gives it."""
_READS: Final = (FindOne, FindAll)
_WRITES: Final = (FindOneAndUpdate, UpdateOne, UpsertOne, InsertOne, DeleteOne, CommitTransaction, *MANY)
"""Also one that matches nothing waits for a majority."""
_UNSTORED: Final = (Call, InTransaction, AbortTransaction)
"""What no majority has to confirm: of a transaction, that is the commit alone."""
_REFUSALS: Final[Mapping[Fault, str]] = MappingProxyType(
    {
        Fault.FAILED: "user code raised",
        Fault.SINK_FAILED: "the sink refused",
        Fault.DEAD_LETTER_FAILED: "the topic for dead letters refused",
        Fault.COMMIT_REFUSED: "the group has moved on",
    }
)


@final
@attrs.frozen
class Halfway:
    """How far the store has come with a request.

    Attributes:
        left: What it is about to do; of an upsert that has found none, to insert.
        passed: Which documents it has written.
        tally: What has become of them.
    """

    left: tuple[Part, ...]
    passed: tuple[Key, ...] = ()
    tally: PartsDone = attrs.field(factory=PartsDone)

    def rest(self, effect: Effect[object], world: World, who: str, meaning: Meaning) -> Outcomes:
        """What becomes of the request from here on, done at once."""
        if isinstance(effect, UpsertOne):
            insert = cast("InsertOne", self.left[0])
            for done, reply in meaning(insert, world, who):
                yield done, insert.doc if reply is None else reply
        elif not self.left or self.tally.failure is not None:
            yield all_confirmed(world), self.tally.reply(cast("Many", effect))
        else:
            for done, after in self.onward(cast("Many", effect), world, who, meaning):
                yield from after.rest(effect, done, who, meaning)

    def onward(self, effect: Many, world: World, who: str, meaning: Meaning) -> Iterator[tuple[World, Halfway]]:
        """After the next document."""
        part = self.left[0]
        for done, reply in meaning(part, world, who):
            passed = (*self.passed, cast("Key", target(part)))
            yield done, Halfway(self.left[1:], passed, self.tally.plus(effect, part, reply))


@final
@attrs.frozen(eq=False)
class Asker:
    """Who asks.

    Attributes:
        name: The process.
        meaning: What its requests mean.
        faults: What may strike them.
        host: The machine that it runs on.
        at: How far its request has come.
    """

    name: str
    meaning: Meaning
    faults: Faults
    host: Host = HOST
    at: Halfway | None = None

    def come(self, at: Halfway | None) -> Asker:
        """The same, whose request has come so far."""
        if at is None:
            return self

        def rest(effect: Effect[object], world: World, who: str) -> Outcomes:
            return at.rest(effect, world, who, self.meaning)

        return attrs.evolve(self, meaning=rest, at=at)


def halfway(
    effect: Effect[object], world: World, asker: Asker, at: Halfway | None
) -> Iterator[tuple[str, World, Halfway]]:
    """One step of a request that takes the store several: what happens in words, the world after it, and how far it has come.

    Args:
        effect: The request.
        world: Where.
        asker: Who asks.
        at: How far it has come; None before the first step.
    """
    if isinstance(effect, UpsertOne):
        if at is None and (insert := found_none(effect, world)):
            yield FOUND_NONE, world, Halfway((insert,))
        return
    if not isinstance(effect, MANY) or world.read(UNCONFIRMED):
        return
    here = Halfway(parts(effect, world)) if at is None else at
    if here.tally.failure is not None:
        return
    if isinstance(effect, (BulkUpdate, InsertMany)):
        if len(here.left) < 2:
            return
    elif not here.left:  # what has begun to match meanwhile
        here = attrs.evolve(here, left=tuple(each for each in parts(effect, world) if target(each) not in here.passed))
    for done, after in here.onward(effect, world, asker.name, asker.meaning) if here.left else ():
        yield f"{plain_text(after.passed[-1])} is done, the rest is not", done, after


def found_none(effect: UpsertOne, world: World) -> InsertOne | None:
    """What it inserts if it finds none, and does not look again; a server does so only for a filter of the id alone."""
    if len(equalities(effect.where)) == 1 and all(isinstance(each, (AllOf, Eq)) for each in parts_of(effect.where)):
        return None
    try:
        return to_insert(effect, world)
    except Refused:
        return None


Answers: TypeAlias = tuple[tuple[World, object], ...]
"""What becomes of a request without any fault: worlds, each with the reply."""
_Troubles: TypeAlias = Iterator[tuple[Fault, Trouble, World, object]]
"""Which fault, in words, the world after it, and the reply that the caller gets."""


def replies(effect: Effect[object], world: World, asker: Asker) -> Answers:
    """What becomes of the request without any fault; nothing while it must wait."""
    if isinstance(effect, Now) and asker.host != HOST:
        return (readings(asker.host, asker.name, world),)
    outcomes: object = asker.meaning(effect, world, asker.name)
    found: tuple[object, ...] = tuple(outcomes) if isinstance(outcomes, Iterable) else (outcomes,)
    if not all(type(each) is tuple and len(each) == 2 for each in found):
        raise Misuse(
            f"a meaning has an outcome {shown(found[0] if len(found) == 1 else found)} for {effect}",
            where=asker.name,
            why="an outcome is the world after it, and the reply",
            todo="yield (world, reply) for each outcome; for none, while it must wait, yield nothing",
        )
    return cast("Answers", found)


def troubled(effect: Effect[object], outcomes: Answers, world: World, asker: Asker) -> _Troubles:
    """What may become of it, as far as the budget goes."""
    faults = asker.faults
    if isinstance(effect, Now):
        for fault, happened, later, reading in troubled_readings(asker.host, asker.name, world, faults):
            yield fault, Trouble(f"{plain_text(reading)}, for {happened}"), later, reading
        return
    if isinstance(effect, (Sleep, Note)):
        return
    yield from _lost(effect, outcomes, world, asker)
    if faults.strikes(Fault.NOT_DURABLE, effect) and not isinstance(effect, _UNSTORED):
        yield from _not_durable(effect, world, asker)
    if faults.strikes(Fault.STALE_READ, effect) and isinstance(effect, _READS):
        yield from _stale(effect, outcomes, world, asker)
    for fault, why in _REFUSALS.items() if not isinstance(effect, ANSWERED) else ():
        if faults.strikes(fault, effect) and (after := spent(world, fault)):
            yield fault, Trouble(why), after, Refused(why)


def _lost(effect: Effect[object], outcomes: Answers, world: World, asker: Asker) -> _Troubles:
    """What the network may do to it."""

    def may(kind: Fault, happened: World) -> World | None:
        return spent(happened, kind) if asker.faults.strikes(kind, effect) else None

    if asker.at is None:  # what strikes a request halfway, and nobody hears of, could as well have struck it before
        if after := may(Fault.UNSENT, world):
            yield Fault.UNSENT, Trouble("could not be sent"), after, NotApplied("not sent")
        if after := may(Fault.DROPPED, world):
            yield Fault.DROPPED, Trouble("no reply: the request is lost"), after, _NO_REPLY
        if after := may(Fault.LATE, world):
            flying = under_way(after, asker.name, effect)
            yield Fault.LATE, Trouble("no reply: the request is still under way"), flying, _NO_REPLY
        if isinstance(effect, MANY) and asker.faults.strikes(Fault.PARTLY_DONE, effect):
            for some, done in _partly(effect, world, asker):
                if after := may(Fault.PARTLY_DONE, done):
                    yield Fault.PARTLY_DONE, Trouble(f"no reply: done in {some} alone"), after, _NO_REPLY
    for done, reply in outcomes:
        if after := may(Fault.LOST_REPLY, done):
            yield Fault.LOST_REPLY, Trouble("done, but the reply is lost"), after, _NO_REPLY
        # No driver sends a statement of a transaction twice, for the server would carry it out twice.
        if not isinstance(effect, InTransaction) and (after := may(Fault.DUPLICATE, done)):
            again = Trouble(f"{plain_text(reply)}, and the request is under way once more")
            yield Fault.DUPLICATE, again, under_way(after, asker.name, effect), reply


def _partly(effect: Many, world: World, asker: Asker) -> Iterator[tuple[str, World]]:
    """Some of its documents, and the world in which they alone are written."""
    each = parts(effect, world)
    for some in chain.from_iterable(combinations(each, size) for size in range(1, len(each))):
        for done in _all_done(some, world, asker):
            yield ", ".join(plain_text(target(part)) for part in some), done


def _all_done(some: tuple[Part, ...], world: World, asker: Asker) -> Iterator[World]:
    """The world in which these parts are done, one after the other; none where one of them must wait, or is too late."""
    if not some:
        yield world
        return
    for done, reply in asker.meaning(some[0], world, asker.name):
        if not isinstance(reply, Failure) or not is_too_late(reply):
            yield from _all_done(some[1:], done, asker)


def under_way(world: World, who: str, effect: Effect[object]) -> World:
    """The world in which the request arrives any time later."""
    return world.write(FLIGHT, tuple(sorted((*world.read(FLIGHT), Flying(who, effect)), key=plain_text)))


def _not_durable(effect: Effect[object], world: World, asker: Asker) -> _Troubles:
    for done, reply, overwritten in noted(asker.meaning, effect, world, asker.name):
        is_write = isinstance(effect, _WRITES) or overwritten
        if is_write and isinstance(reply, Refused) and world.read(UNCONFIRMED):  # that is what the driver tells
            if after := spent(world, Fault.NOT_DURABLE):
                happened = Trouble(f"{plain_text(reply)}, and no majority has confirmed why")
                yield Fault.NOT_DURABLE, happened, after, reply
            continue
        after = None if isinstance(reply, Failure) or not is_write else spent(done, Fault.NOT_DURABLE)
        if after is not None:
            alone = asker.faults.strikes(Fault.ROLLED_BACK, effect)
            happened = Trouble("done, but no majority has confirmed it")
            yield Fault.NOT_DURABLE, happened, unconfirmed(world, after, overwritten, alone=alone), _UNCONFIRMED_REPLY


def _stale(effect: Effect[object], outcomes: Answers, world: World, asker: Asker) -> _Troubles:
    """What was there before, where that is another reply."""
    told = [newest for _, newest in outcomes]
    for member in behind(world):
        for _, reply in asker.meaning(effect, member, asker.name):
            if not any(same(reply, each) for each in told) and (after := spent(world, Fault.STALE_READ)):
                told.append(reply)
                yield Fault.STALE_READ, Trouble(f"{plain_text(reply)}, which is stale"), after, reply
