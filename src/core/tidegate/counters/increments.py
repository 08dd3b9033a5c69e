"""One more, exactly once, whatever the network does: the two steps of an increment, and the sweep behind them.

What is decided is in `tidegate.counters.counter`; this is what is asked of the store, and when. An increment reads the record,
decides, and sends the step that is due. Whenever it does not know what became of a step it reads again and decides again:
each step finds nothing to do when it comes twice. Its owner may crash anywhere. What it has noted, a sweep counts.

Laws
    CP1  Each token is counted once or not at all, and the count is how many were.
    CP2  What is noted stays until it is counted.
    CP3  Who is told that its increment is counted, or that it is not, is told the truth.
    CP4  At rest, once sweeps have been over the record, nothing is left in it but the count.

Where we differ from the article on resilient MongoDB applications (Davis 2016): see `tidegate.counters.counter`. Both of its own
steps are specimens here: the token that leaves when it is counted, and the clean-up that writes what it has read.

A step that no majority has confirmed is sent again: if it stands it finds nothing to do, and that answer confirms it; if a
failover took it back it is done anew. To look instead would show what may still be taken back.

Known not to work
    - An owner that gives up does not know whether it will be counted: what it noted is, at the next sweep.
    - Sweeps that never come: the record grows until it is full, and refuses.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.counters.counter import (
    TOKENS_MAX,
    Answer,
    Count,
    Counted,
    Counter,
    Forgotten,
    Full,
    Increment,
    Note,
    Sweep,
    counter_of,
    decide_increment,
    decide_sweep,
    first_step,
    second_step,
    token_field,
    updates,
)
from tidegate.model.documents import ID, Eq
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable
from tidegate.model.errors import Misuse
from tidegate.model.operations import UpdateOne, check_collection, find_one
from tidegate.model.values import check_int, check_name

ATTEMPTS: Final = 8


@final
@attrs.frozen
class Unsettled:
    """It is not counted yet as far as anybody knows; if a first step of it was applied, a sweep counts it."""

    attempts: int

    def __str__(self) -> str:
        return f"unsettled after {self.attempts} attempts"


IncrementOutcome: TypeAlias = Counted | Full | Forgotten | Unsettled


@attrs.frozen
class Incrementer:
    """One command: one more.

    Invariants: the token is used for this command only; 1 <= attempts.

    Attributes:
        collection: Where the counters are.
        key: The counter's id; its record is there (`new_counter`).
        token: What tells this increment from all others.
        attempts: How often to look before giving up.
        tokens_max: From how many tokens on the record is full.
    """

    collection: str
    key: str
    token: str
    attempts: int = ATTEMPTS
    tokens_max: int = TOKENS_MAX

    def __attrs_post_init__(self) -> None:
        check_collection(self.collection)
        check_name(self.key, "a counter")
        token_field(self.token)
        check_int(self.attempts, "a number of attempts", 1)
        check_int(self.tokens_max, "a number of tokens", 1)

    async def run(self) -> IncrementOutcome:
        """The program."""
        known = Increment(self.token)
        attempt = 0
        while attempt < self.attempts:
            attempt += 1
            try:
                record = await find_one(self.collection, Eq(ID, self.key))
            except (Ambiguous, NotApplied):
                continue
            if record is None:
                raise Misuse(f"there is no counter {self.key!r}", todo="insert new_counter(key)")
            verdict = self._decided(counter_of(record), known)
            if isinstance(verdict, Note):
                known = Increment(self.token, verdict.in_round)
                if not await self._sent(self._first(verdict.in_round)):
                    continue
                known = Increment(self.token, verdict.in_round, is_noted=True)
                verdict = Count(verdict.in_round)
            if isinstance(verdict, Count):
                known = Increment(self.token, verdict.noted, is_noted=True)
                if await self._sent(self._second(verdict.noted)):
                    return Counted()
                continue
            if isinstance(verdict, (Counted, Full, Forgotten)):
                return verdict
        return Unsettled(attempt)

    def _decided(self, counter: Counter, known: Increment) -> Answer:
        return decide_increment(counter, known, self.tokens_max)

    def _first(self, in_round: int) -> UpdateOne:
        return first_step(self.collection, self.key, self.token, in_round)

    def _second(self, noted: int) -> UpdateOne:
        return second_step(self.collection, self.key, self.token, noted)

    async def _sent(self, update: UpdateOne) -> bool:
        """Was it applied, for good? False says nothing: look again."""
        tries = 0
        while tries < self.attempts:
            tries += 1
            try:
                matched = await update
            except NotDurable:
                continue  # done, and a failover may take it back: sent again it finds nothing to do, or does it anew
            except (Ambiguous, NotApplied):
                return False
            return matched > 0
        return False


@attrs.frozen
class Sweeper:
    """Counts what owners left behind, and closes the round.

    Attributes:
        collection: Where the counters are.
        key: The counter's id.
    """

    collection: str
    key: str

    def __attrs_post_init__(self) -> None:
        check_collection(self.collection)
        check_name(self.key, "a counter")

    async def run(self) -> None:
        """The program: one sweep. What it does not come to do, the next one does."""
        try:
            record = await find_one(self.collection, Eq(ID, self.key))
        except (Ambiguous, NotApplied):
            return
        if record is None:
            return
        for update in self._updates(counter_of(record)):
            try:
                await update
            except (Ambiguous, NotApplied, NotDurable):
                return

    def _updates(self, counter: Counter) -> tuple[UpdateOne, ...]:
        return updates(self.collection, self.key, self._planned(counter))

    def _planned(self, counter: Counter) -> Sweep:
        return decide_sweep(counter)


async def increment(collection: str, key: str, token: str, *, attempts: int = ATTEMPTS) -> IncrementOutcome:
    """Add one to a counter, exactly once.

    Args:
        collection: Where the counters are.
        key: The counter's id.
        token: An id used for this increment only.
        attempts: How often to look before giving up.

    Returns:
        `Counted`; `Full` if it was not noted; `Forgotten` or `Unsettled` where nobody can tell yet.

    Raises:
        Misuse: An argument is empty, or there is no such counter.
        Refused: The store said no, definitely.
    """
    return await Incrementer(collection, key, token, attempts).run()


async def sweep(collection: str, key: str) -> None:
    """Count what was left behind in a counter; three sweeps at rest leave nothing but the count.

    Raises:
        Misuse: An argument is empty.
        Refused: The store said no, definitely.
    """
    await Sweeper(collection, key).run()
