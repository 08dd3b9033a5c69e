"""Ways to count wrongly. Each differs from `tidegate.counters.increments` in one place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from tidegate.counters.counter import (
    COUNT,
    ROUND,
    Answer,
    Counted,
    Counter,
    Forgotten,
    Increment,
    Note,
    Sweep,
    decide_sweep,
    token_field,
)
from tidegate.counters.increments import Incrementer, IncrementOutcome, Sweeper
from tidegate.counters.scenarios.counter import FAILOVERS, NOTHING_LEFT, ONCE, STAYS, TRUTH, counting
from tidegate.model.documents import ID, Add, AllOf, Eq, Put, Remove
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable
from tidegate.model.operations import UpdateOne, update_one
from tidegate.sim.shipping import Specimen


@attrs.frozen
class TokenLeavesWhenCounted(Incrementer):
    """The second step removes the token: a first step that arrives late brings it back, and it is counted again."""

    def _second(self, noted: int) -> UpdateOne:
        field = token_field(self.token)
        where = AllOf((Eq(ID, self.key), Eq(field, noted)))
        return update_one(self.collection, where, Remove(field), Add(COUNT, 1))


@attrs.frozen
class SecondStepUnguarded(Incrementer):
    """The second step does not ask whether the token is pending, so it counts whenever it comes."""

    def _second(self, noted: int) -> UpdateOne:
        return update_one(self.collection, Eq(ID, self.key), Put(token_field(self.token), -noted), Add(COUNT, 1))


@attrs.frozen
class FirstStepInAnyRound(Incrementer):
    """The first step does not name its round: when the tombstone is swept away, a late one is noted anew."""

    def _first(self, in_round: int) -> UpdateOne:
        field = token_field(self.token)
        return update_one(self.collection, AllOf((Eq(ID, self.key), Eq(field, None))), Put(field, in_round))


@attrs.frozen
class NewTokenOnRetry(Incrementer):
    """Whoever tries again after a lost reply does so as somebody else, and is counted twice."""

    async def run(self) -> IncrementOutcome:
        first = await Incrementer(self.collection, self.key, f"{self.token}/1", attempts=1).run()
        if isinstance(first, Counted):
            return first
        return await Incrementer(self.collection, self.key, f"{self.token}/2").run()


@attrs.frozen
class NoReplyIsYes(Incrementer):
    """No reply is taken for a yes."""

    async def _sent(self, update: UpdateOne) -> bool:
        try:
            matched = await update
        except Ambiguous:
            return True
        except (NotApplied, NotDurable):
            return False
        return matched > 0


@attrs.frozen
class NotDurableIsDone(Incrementer):
    """What no majority has confirmed passes for done, and a failover takes it back."""

    async def _sent(self, update: UpdateOne) -> bool:
        try:
            matched = await update
        except NotDurable:
            return True
        except (Ambiguous, NotApplied):
            return False
        return matched > 0


@attrs.frozen
class LooksAfterNotDurable(Incrementer):
    """After a write that no majority has confirmed it looks, and takes what it sees for what will stay."""

    async def _sent(self, update: UpdateOne) -> bool:
        try:
            matched = await update
        except (Ambiguous, NotApplied, NotDurable):
            return False
        return matched > 0


@attrs.frozen
class ForgottenIsNotedAgain(Incrementer):
    """Where nobody can tell any more, it is noted again, to be sure that it counts."""

    def _decided(self, counter: Counter, known: Increment) -> Answer:
        verdict = super()._decided(counter, known)
        return Note(counter.round) if isinstance(verdict, Forgotten) else verdict


@attrs.frozen
class SweepWritesTheSum(Sweeper):
    """The sweep writes the sum of what it has read: what is counted in between is lost."""

    def _updates(self, counter: Counter) -> tuple[UpdateOne, ...]:
        pending = [(token, noted) for token, noted in counter.tokens if noted > 0]
        tombstones = (Put(token_field(token), -noted) for token, noted in pending)
        if not pending:
            return super()._updates(counter)
        total = Put(COUNT, counter.count + len(pending))
        return (update_one(self.collection, Eq(ID, self.key), total, *tombstones),)


@attrs.frozen
class SweepDropsWhatItRead(Sweeper):
    """A tombstone is dropped as it was read: a failover makes it a pending token again, and that is dropped."""

    def _updates(self, counter: Counter) -> tuple[UpdateOne, ...]:
        right = super()._updates(counter)
        where = AllOf((Eq(ID, self.key), Eq(ROUND, counter.round)))
        return (*right[:-1], *(update_one(self.collection, where, *last.updates) for last in right[-1:]))


@attrs.frozen
class SweepDropsWhatIsPending(Sweeper):
    """The sweep removes every token of an earlier round, counted or not."""

    def _updates(self, counter: Counter) -> tuple[UpdateOne, ...]:
        old = tuple(token for token, noted in counter.tokens if abs(noted) < counter.round)
        where = AllOf((Eq(ID, self.key), Eq(ROUND, counter.round)))
        closing = update_one(self.collection, where, Add(ROUND, 1), *(Remove(token_field(token)) for token in old))
        return (closing,) if counter.tokens else ()


@attrs.frozen
class SweepCountsNothing(Sweeper):
    """The sweep closes rounds and leaves what is pending to its owner, who may be dead."""

    def _planned(self, counter: Counter) -> Sweep:
        return attrs.evolve(decide_sweep(counter), count=())


def planted(
    name: str,
    law: str,
    source: str,
    *,
    incrementer: Callable[[str, str, str], Incrementer] | None = None,
    sweeper: type[Sweeper] | None = None,
    early: int = 2,
    alone: bool = False,
    failover: bool = False,
) -> Specimen:
    """The scenario of the counter, with the bug in its place."""
    bug = incrementer or sweeper
    make = partial(
        counting,
        incrementer or Incrementer,
        sweeper or Sweeper,
        summary=(bug.__doc__ or "").partition("\n")[0],
        early=early,
    )
    if failover:
        make = partial(make, budget=2, faults=FAILOVERS)
    of = "counter.failover" if failover else "counter"
    return Specimen(f"counter.{name}", make, law, source, of=of, alone=alone)


SPECIMENS: Final = (
    planted(
        "token_leaves_when_counted",
        ONCE,
        "The article on resilient MongoDB applications pulls the token when it counts it (measured: 2 for 1).",
        incrementer=TokenLeavesWhenCounted,
        alone=True,
    ),
    planted(
        "second_step_unguarded",
        ONCE,
        "Any blind $inc: MongoDB applies it as often as it arrives.",
        incrementer=SecondStepUnguarded,
        alone=True,
    ),
    planted(
        "first_step_in_any_round",
        ONCE,
        "Planted: a tombstone is only as good as what keeps late requests out once it is gone.",
        incrementer=FirstStepInAnyRound,
        early=3,
    ),
    planted(
        "new_token_on_retry",
        ONCE,
        "A retry by the application has a new transaction number, so MongoDB takes it for another write (measured: 2).",
        incrementer=NewTokenOnRetry,
    ),
    planted(
        "no_reply_is_yes",
        TRUTH,
        "The resilience article: a time-out says nothing about whether the write was done.",
        incrementer=NoReplyIsYes,
    ),
    planted(
        "not_durable_is_done",
        TRUTH,
        "MongoDB: a write under a write concern error has been done, and is lost if another primary is elected.",
        incrementer=NotDurableIsDone,
        failover=True,
    ),
    planted(
        "looks_after_not_durable",
        TRUTH,
        "MongoDB: a read on the primary shows what a majority has not confirmed (found by the simulator in our first draft).",
        incrementer=LooksAfterNotDurable,
        failover=True,
    ),
    planted(
        "forgotten_is_noted_again",
        ONCE,
        "Planted: who cannot know whether it was counted must not make sure.",
        incrementer=ForgottenIsNotedAgain,
        early=3,
    ),
    planted(
        "sweep_writes_the_sum",
        ONCE,
        "The article's clean-up writes count plus what it has read and clears the array (measured: 1 for 2).",
        sweeper=SweepWritesTheSum,
        alone=True,
    ),
    planted(
        "sweep_drops_what_it_read",
        ONCE,
        "MongoDB: a read on the primary shows what a majority has not confirmed; found by the simulator in our own counter.",
        sweeper=SweepDropsWhatItRead,
        failover=True,
    ),
    planted(
        "sweep_drops_what_is_pending",
        STAYS,
        "Planted: a sweep that tidies up before it counts.",
        sweeper=SweepDropsWhatIsPending,
    ),
    planted(
        "sweep_counts_nothing",
        NOTHING_LEFT,
        "Planted: an owner that crashed between its two steps does not come back.",
        sweeper=SweepCountsNothing,
    ),
)
