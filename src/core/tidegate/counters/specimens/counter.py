"""Ways to count wrongly. Each differs from `tidegate.counters.increments` in one place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from tidegate.counters.counter import (
    COUNT,
    ROUND,
    Counted,
    Counter,
    Forgotten,
    Increment,
    IncrementVerdict,
    NoteToken,
    decide_increment,
    decide_sweep,
    token_field,
    updates,
)
from tidegate.counters.increments import IncrementOutcome, IncrementParts, increment, swept
from tidegate.counters.scenarios.counter import (
    FAILOVERS,
    NOTHING_LEFT,
    ONCE,
    RIGHT,
    STAYS,
    TRUTH,
    all_of_them,
    counting,
)
from tidegate.model.documents import ID, Add, AllOf, Eq, Filter, Gt, Put, Remove
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Program
from tidegate.model.operations import UpdateOne, update_one
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


def token_leaves_when_counted(collection: str, key: str, token: str, noted: int) -> UpdateOne:
    """The second step removes the token: a first step that arrives late brings it back, and it is counted again."""
    field = token_field(token)
    return update_one(collection, AllOf((Eq(ID, key), Eq(field, noted))), Remove(field), Add(COUNT, 1))


def second_step_unguarded(collection: str, key: str, token: str, noted: int) -> UpdateOne:
    """The second step does not ask whether the token is pending, so it counts whenever it comes."""
    return update_one(collection, Eq(ID, key), Put(token_field(token), -noted), Add(COUNT, 1))


def first_step_in_any_round(collection: str, key: str, token: str, in_round: int) -> UpdateOne:
    """The first step does not name its round: when the tombstone is swept away, a late one is noted anew."""
    field = token_field(token)
    return update_one(collection, AllOf((Eq(ID, key), Eq(field, None))), Put(field, in_round))


async def new_token_on_retry(collection: str, key: str, token: str, parts: IncrementParts) -> IncrementOutcome:
    """Whoever tries again after a lost reply does so as somebody else, and is counted twice."""
    first = await increment(collection, key, f"{token}/1", parts, attempts=1)
    if isinstance(first, Counted):
        return first
    return await increment(collection, key, f"{token}/2", parts)


async def no_reply_is_yes(update: UpdateOne, made: int, *_: object) -> tuple[bool, int]:
    """No reply is taken for a yes."""
    try:
        matched = await update
    except Ambiguous:
        return True, made
    except (NotApplied, NotDurable):
        return False, made
    return matched > 0, made


async def not_durable_is_done(update: UpdateOne, made: int, *_: object) -> tuple[bool, int]:
    """What no majority has confirmed passes for done, and a failover takes it back."""
    try:
        matched = await update
    except NotDurable:
        return True, made
    except (Ambiguous, NotApplied):
        return False, made
    return matched > 0, made


async def looks_after_not_durable(update: UpdateOne, made: int, *_: object) -> tuple[bool, int]:
    """After a write that no majority has confirmed it looks, and takes what it sees for what will stay."""
    try:
        matched = await update
    except (Ambiguous, NotApplied, NotDurable):
        return False, made
    return matched > 0, made


def forgotten_is_noted_again(counter: Counter, known: Increment, tokens_max: int) -> IncrementVerdict:
    """Where nobody knows any more, it is noted again, to be sure that it counts."""
    verdict = decide_increment(counter, known, tokens_max)
    return NoteToken(counter.round) if isinstance(verdict, Forgotten) else verdict


def sweep_writes_the_sum(collection: str, key: str, counter: Counter) -> tuple[UpdateOne, ...]:
    """The sweep writes the sum of what it has read: what is counted in between is lost."""
    pending = [(token, noted) for token, noted in counter.tokens if noted > 0]
    tombstones = (Put(token_field(token), -noted) for token, noted in pending)
    if not pending:
        return swept(collection, key, counter)
    total = Put(COUNT, counter.count + len(pending))
    return (update_one(collection, Eq(ID, key), total, *tombstones),)


def sweep_drops_what_it_read(collection: str, key: str, counter: Counter) -> tuple[UpdateOne, ...]:
    """A tombstone is dropped as it was read: a failover makes it a pending token again, and that is dropped."""
    right = swept(collection, key, counter)
    where = AllOf((Eq(ID, key), Eq(ROUND, counter.round)))
    return (*right[:-1], *(update_one(collection, where, *last.updates) for last in right[-1:]))


def sweep_drops_what_is_pending(collection: str, key: str, counter: Counter) -> tuple[UpdateOne, ...]:
    """The sweep removes every token of an earlier round, counted or not."""
    old = tuple(token for token, noted in counter.tokens if abs(noted) < counter.round)
    where = AllOf((Eq(ID, key), Eq(ROUND, counter.round)))
    closing = update_one(collection, where, Add(ROUND, 1), *(Remove(token_field(token)) for token in old))
    return (closing,) if counter.tokens else ()


def sweep_counts_nothing(collection: str, key: str, counter: Counter) -> tuple[UpdateOne, ...]:
    """The sweep closes rounds and leaves what is pending to its owner, who may be dead."""
    return updates(collection, key, attrs.evolve(decide_sweep(counter), count=()))


def planted(
    name: str,
    bug: object,
    law: str,
    source: str,
    *,
    parts: IncrementParts = RIGHT,
    program: Callable[[str, str, str, IncrementParts], Program[IncrementOutcome]] = increment,
    early: int = 2,
    alone: bool = False,
    failover: bool = False,
    finds: bool = False,
) -> Specimen:
    """The scenario of the counter, with the bug in its place."""
    make = partial(counting, parts, program, summary=(bug.__doc__ or "").partition("\n")[0], early=early)
    if failover:
        make = partial(make, budget=2, faults=FAILOVERS)
    if finds:
        make = partial(make, sweeps=all_of_them, owners=1)
    of = "counter.failover" if failover else "counter.found" if finds else "counter"
    return Specimen(f"counter.{name}", make, law, source, of=of, alone=alone)


def sweep_finds_what_has_counted() -> Filter:
    """A sweep asks for counters that have counted something: an increment that was noted first of all stays noted for ever."""
    return Gt(COUNT, 0)


SPECIMENS: Final = (
    planted(
        "token_leaves_when_counted",
        token_leaves_when_counted,
        ONCE,
        "The article on resilient MongoDB applications pulls the token when it counts it (measured: 2 for 1).",
        parts=attrs.evolve(RIGHT, second_step=token_leaves_when_counted),
        alone=True,
    ),
    planted(
        "second_step_unguarded",
        second_step_unguarded,
        ONCE,
        "Any blind $inc: MongoDB applies it as often as it arrives.",
        parts=attrs.evolve(RIGHT, second_step=second_step_unguarded),
        alone=True,
    ),
    planted(
        "first_step_in_any_round",
        first_step_in_any_round,
        ONCE,
        "Planted: a tombstone is only as good as what keeps late requests out once it is gone.",
        parts=attrs.evolve(RIGHT, first_step=first_step_in_any_round),
        early=3,
    ),
    planted(
        "new_token_on_retry",
        new_token_on_retry,
        ONCE,
        "A retry by the application has a new transaction number, so MongoDB takes it for another write (measured: 2).",
        program=new_token_on_retry,
    ),
    planted(
        "no_reply_is_yes",
        no_reply_is_yes,
        TRUTH,
        "The resilience article: a time-out says nothing about whether the write was done.",
        parts=attrs.evolve(RIGHT, send=no_reply_is_yes),
    ),
    planted(
        "not_durable_is_done",
        not_durable_is_done,
        TRUTH,
        "MongoDB: a write under a write concern error has been done, and is lost if another primary is elected.",
        parts=attrs.evolve(RIGHT, send=not_durable_is_done),
        failover=True,
    ),
    planted(
        "looks_after_not_durable",
        looks_after_not_durable,
        TRUTH,
        "MongoDB: a read on the primary shows what a majority has not confirmed (found by the simulator in our first draft).",
        parts=attrs.evolve(RIGHT, send=looks_after_not_durable),
        failover=True,
    ),
    planted(
        "forgotten_is_noted_again",
        forgotten_is_noted_again,
        ONCE,
        "Planted: who cannot know whether it was counted must not make sure.",
        parts=attrs.evolve(RIGHT, decide=forgotten_is_noted_again),
        early=3,
    ),
    planted(
        "sweep_writes_the_sum",
        sweep_writes_the_sum,
        ONCE,
        "The article's clean-up writes count plus what it has read and clears the array (measured: 1 for 2).",
        parts=attrs.evolve(RIGHT, swept=sweep_writes_the_sum),
        alone=True,
    ),
    planted(
        "sweep_drops_what_it_read",
        sweep_drops_what_it_read,
        ONCE,
        "MongoDB: a read on the primary shows what a majority has not confirmed; found by the simulator in our own counter.",
        parts=attrs.evolve(RIGHT, swept=sweep_drops_what_it_read),
        failover=True,
    ),
    planted(
        "sweep_drops_what_is_pending",
        sweep_drops_what_is_pending,
        STAYS,
        "Planted: a sweep that tidies up before it counts.",
        parts=attrs.evolve(RIGHT, swept=sweep_drops_what_is_pending),
    ),
    planted(
        "sweep_counts_nothing",
        sweep_counts_nothing,
        NOTHING_LEFT,
        "Planted: an owner that crashed between its two steps does not come back.",
        parts=attrs.evolve(RIGHT, swept=sweep_counts_nothing),
    ),
    planted(
        "sweep_finds_what_has_counted",
        sweep_finds_what_has_counted,
        NOTHING_LEFT,
        "Planted: whether something is left behind does not show in the count.",
        parts=attrs.evolve(RIGHT, left_behind=sweep_finds_what_has_counted),
        finds=True,
    ),
)
