"""The possible results of one request: by fault, the caller's reply and the effect on the store.

    none            the reply                        done
    unsent          NotApplied                       not done
    dropped         Ambiguous                        not done
    lost reply      Ambiguous                        done and confirmed by a majority
    partly done     Ambiguous                        done to some documents of a write of many
    late            Ambiguous                        done at any later point; to many one by one
    duplicate       the reply                        done, and again at any later point
    not durable     NotDurable                       done; a failover may undo it
    stale read      an earlier value                 not changed
    refusals        Refused                          not done: user code, sinks, commits
    clocks          another time                     not changed (`tidegate.sim.world.clocks`)

`tidegate.sim.servers.halfway` has the requests that take several steps.

The scenario chooses the requests that a fault may affect. Notes and sleeps do not use the network.
The store has one clock, a machine another. Only user code raises; the store does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, combinations
from types import MappingProxyType
from typing import Final, TypeAlias, final, get_args

import attrs

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
from tidegate.model.operations import (
    DeleteOne,
    FindAll,
    FindOne,
    FindOneAndUpdate,
    InsertOne,
    Operation,
    StoreTime,
    UpdateOne,
    UpsertOne,
)
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction
from tidegate.sim.program.relative_time import by_text, plain_text, same
from tidegate.sim.scenario import Trouble
from tidegate.sim.servers.failover import behind, noted, noted_in, noting, overwritten_in, unconfirmed
from tidegate.sim.servers.halfway import APART_MAX, Answers, answers, ended_early, ending, is_done_apart
from tidegate.sim.world.clocks import HOST, Host, readings, troubled_readings
from tidegate.sim.world.faults import Fault, Faults, spent
from tidegate.sim.world.world import (
    FLIGHT,
    MANY,
    UNCONFIRMED,
    Flying,
    Halfway,
    Many,
    Meaning,
    Outcomes,
    Overwritten,
    Part,
    World,
    parts,
    target,
)

NO_REPLY: Final = Ambiguous("no reply")
_UNCONFIRMED_REPLY: Final = NotDurable("no majority has confirmed it")
OPERATIONS: Final = (*get_args(Operation), InTransaction, CommitTransaction, AbortTransaction)
"""Requests to a document store."""
ANSWERED: Final = (*OPERATIONS, StoreTime, Now, Sleep, Note)
"""Requests that no user code answers, so a reply always comes."""
_READS: Final = (FindOne, FindAll)
_WRITES: Final = (FindOneAndUpdate, UpdateOne, UpsertOne, InsertOne, DeleteOne, CommitTransaction, *MANY)
"""A write that matches no document also waits for a majority."""
_UNSTORED: Final = (Call, InTransaction, AbortTransaction)
"""Requests that need no majority: of a transaction, only the commit does."""
_REFUSALS: Final[Mapping[Fault, str]] = MappingProxyType(
    {
        Fault.FAILED: "user code raised",
        Fault.SINK_FAILED: "the sink refused",
        Fault.DEAD_LETTER_FAILED: "the topic for dead letters refused",
        Fault.COMMIT_REFUSED: "the group has moved on",
    }
)


@final
@attrs.frozen(eq=False)
class Asker:
    """The sender of a request.

    Attributes:
        name: The process.
        host: Its machine.
        at: The progress of its request.
    """

    name: str
    meaning: Meaning
    faults: Faults
    host: Host = HOST
    at: Halfway | None = None

    def come(self, at: Halfway | None) -> Asker:
        if at is None:
            return self

        def ends(effect: Effect[object], world: World, who: str) -> Outcomes:
            return ending(at, effect, world, who, self.meaning)

        return attrs.evolve(self, meaning=ends, at=at)


_Troubles: TypeAlias = Iterator[tuple[Fault, Trouble, World, object]]
"""The fault, its description, the world after it, and the caller's reply."""


def replies(effect: Effect[object], world: World, asker: Asker) -> Answers:
    """The results of a request without faults; none while it must wait."""
    if isinstance(effect, Now) and asker.host != HOST:
        return (readings(asker.host, asker.name, world),)
    found = answers(asker.meaning, effect, world, asker.name)
    return found if asker.at is not None else (*found, *ended_early(effect, world, asker.name, asker.meaning, found))


def noted_replies(effect: Effect[object], world: World, asker: Asker) -> Iterator[tuple[World, object, Overwritten]]:
    """The results of a request to the store, each with the overwritten values."""
    yield from noted(asker.meaning, effect, world, asker.name)
    if asker.at is None and isinstance(effect, MANY):
        here = noting(world)
        whole = answers(asker.meaning, effect, here, asker.name)
        for done, reply in ended_early(effect, here, asker.name, asker.meaning, whole):
            yield noted_in(done), reply, overwritten_in(done)
    elif asker.at is None and isinstance(effect, InTransaction):  # the transaction has ended without writes
        whole = answers(asker.meaning, effect, world, asker.name)
        yield from ((done, reply, ()) for done, reply in ended_early(effect, world, asker.name, asker.meaning, whole))


def troubled(effect: Effect[object], outcomes: Answers, world: World, asker: Asker) -> _Troubles:
    """The results with a fault, within the budget."""
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
    def may(kind: Fault, happened: World) -> World | None:
        return spent(happened, kind) if asker.faults.strikes(kind, effect) else None

    if asker.at is not None:
        has_written = isinstance(effect, MANY) and asker.at.left and (asker.at.done.total or asker.at.done.refused)
        if has_written and (after := may(Fault.PARTLY_DONE, world)):
            yield Fault.PARTLY_DONE, Trouble("no reply: it ends there"), after, NO_REPLY
    else:  # a later fault without effect equals one before the request
        if after := may(Fault.UNSENT, world):
            yield Fault.UNSENT, Trouble("could not be sent"), after, NotApplied("not sent")
        if after := may(Fault.DROPPED, world):
            yield Fault.DROPPED, Trouble("no reply: the request is lost"), after, NO_REPLY
        if after := may(Fault.LATE, world):
            flying = under_way(after, asker.name, effect)
            yield Fault.LATE, Trouble("no reply: the request is still under way"), flying, NO_REPLY
        if isinstance(effect, MANY) and asker.faults.strikes(Fault.PARTLY_DONE, effect):
            for some, done in _partly(effect, outcomes, world, asker):
                if after := may(Fault.PARTLY_DONE, done):
                    yield Fault.PARTLY_DONE, Trouble(f"no reply: done in {some} alone"), after, NO_REPLY
    for done, reply in outcomes:
        if after := may(Fault.LOST_REPLY, done):
            yield Fault.LOST_REPLY, Trouble("done, but the reply is lost"), after, NO_REPLY
        # A driver never resends a statement: the server would execute it twice.
        if not isinstance(effect, InTransaction) and (after := may(Fault.DUPLICATE, done)):
            again = Trouble(f"{plain_text(reply)}, and the request is under way once more")
            yield Fault.DUPLICATE, again, under_way(after, asker.name, effect), reply


def _partly(effect: Many, outcomes: Answers, world: World, asker: Asker) -> Iterator[tuple[str, World]]:
    """Some of its documents, and the world with only these written; none if the meaning
    is atomic.
    """
    each = parts(effect, world)
    whole = outcomes if len(outcomes) < 2 else answers(asker.meaning, effect, world, asker.name)
    if len(each) > 1 and not is_done_apart(effect, each, world, asker.name, asker.meaning, whole):
        return
    first = max(0, len(each) - APART_MAX)  # more than APART_MAX: all but the last are one step
    groups = (*((each[:first],) if first else ()), *((part,) for part in each[first:]))
    for some in chain.from_iterable(combinations(groups, size) for size in range(1, len(groups))):
        named = ", ".join(plain_text(target(group[0])) if len(group) == 1 else f"{len(group)} others" for group in some)
        for done in _all_done(chain.from_iterable(some), world, asker):
            yield named, done


def _all_done(some: Iterable[Part], world: World, asker: Asker) -> list[World]:
    """The worlds after these parts, in order; none if a part must wait or is too late."""
    worlds = [world]
    for part in some:
        worlds = [
            done
            for before in worlds
            for done, reply in asker.meaning(part, before, asker.name)
            if not isinstance(reply, Failure) or not is_too_late(reply)
        ]
    return worlds


def under_way(world: World, who: str, effect: Effect[object], come: Halfway | None = None) -> World:
    return world.write(FLIGHT, by_text((*world.read(FLIGHT), Flying(who, effect, come))))


def _not_durable(effect: Effect[object], world: World, asker: Asker) -> _Troubles:
    for done, reply, overwritten in noted_replies(effect, world, asker):
        is_write, told = bool(isinstance(effect, _WRITES) or overwritten), reply
        if isinstance(reply, Failure):  # a driver reports this one of two errors
            is_write &= not is_too_late(reply) and bool(
                unconfirmed(world, done, overwritten, alone=True).read(UNCONFIRMED)
            )
        else:
            told = _UNCONFIRMED_REPLY
        if is_write and (after := spent(done, Fault.NOT_DURABLE)):
            alone = asker.faults.strikes(Fault.ROLLED_BACK, effect)
            happened = Trouble(
                "done, but no majority has confirmed it"
                if told is _UNCONFIRMED_REPLY
                else f"{plain_text(reply)}, and no majority has confirmed what is there"
            )
            yield Fault.NOT_DURABLE, happened, unconfirmed(world, after, overwritten, alone=alone), told


def _stale(effect: Effect[object], outcomes: Answers, world: World, asker: Asker) -> _Troubles:
    told = [newest for _, newest in outcomes]
    for member in behind(world):
        for _, reply in asker.meaning(effect, member, asker.name):
            if not any(same(reply, each) for each in told) and (after := spent(world, Fault.STALE_READ)):
                told.append(reply)
                yield Fault.STALE_READ, Trouble(f"{plain_text(reply)}, which is stale"), after, reply
