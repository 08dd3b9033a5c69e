"""How is an increment counted exactly once, when replies get lost and requests arrive late and twice?

An increment is not idempotent, so it is split into two steps that are ("How To Write Resilient MongoDB Applications",
Davis 2016): the first step notes a token that nobody else has, the second turns it into one more, in one atomic update that
finds nothing to do when it comes again. What its owner leaves behind, a sweep counts.

The record is one document. Each token is a field of it:

    {_id, count, round, "token <t>": r, "token <u>": -q, ...}     t was noted in round r, u in round q and is counted

    step          filter                              update
    first         round is r, the token is missing    token := r
    second        the token is r                      token := -r, count += 1
    close         round is r, the tokens are counted  round += 1, remove these tokens, that were noted before r

What a late first step may do is note the token: once, in the round that it was decided in, and if it is not there. It is
kept from more by the tombstone (-r) as long as its round is open, and by the round afterwards. So a tombstone can go once
its round is closed, and the record stays small. Whether it still is a tombstone is asked in the filter: a sweep may have
read a second step that no majority had, and a failover takes it back. (Found by the simulator.) A late second step finds no
pending token, or counts it.

A sweep counts each token that was noted before the current round, one update each, and closes the round. It needs no clock
and no quiet time: it may run whenever, twice and beside others, and beside the owners.

An owner whose reply was lost decides again on what is read then (`decide_increment`). A tombstone stays for the round after
the one it was noted in, and for an owner that comes back later than that the record may hold no trace: that is `Forgotten`.

Laws
    CN1  The count is the number of tokens that were counted, each once.
    CN2  What is noted stays until it is counted, by its owner or by a sweep.
    CN3  A first step changes nothing where its token stands or its round is closed, however late it comes.
    CN4  The answer is true: an increment is Counted only if it was, and is noted only where it was not counted and cannot be
         through an earlier first step. It is Forgotten only two rounds after its last one or later.
    CN5  At rest, three sweeps leave nothing but the count.
    CN6  No first step is decided on a record that is full.

Known not to work
    - A record that is deleted and made anew is in round 1 again, so first steps from before may match.
    - Whoever gives an increment up cannot take it back: a first step under way may still be noted, and is counted then.
    - Reads that do not see majority writes: where that can be noticed the answer is `OldRead`.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import ID, Add, AllOf, Document, Eq, Field, Lt, Put, Remove
from tidegate.model.errors import INT64_MAX, Misuse, typed
from tidegate.model.operations import UpdateOne, update_one
from tidegate.model.values import check_int, check_name, check_tuple, check_type

COUNT: Final = Field[int]("count")
ROUND: Final = Field[int]("round")

TOKENS_MAX: Final = 10_000
"""How many tokens a record may hold by default: less than a megabyte of them."""

_PREFIX: Final = "token "


# --- the record -------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Counter:
    """A counter as it was read.

    Invariants: 0 <= count; 1 <= round; tokens are distinct names, each with 1 <= |noted| <= round.

    Attributes:
        count: How many increments are counted.
        round: The current round.
        tokens: Each token and the round it was noted in, negative once it is counted.
    """

    count: int = 0
    round: int = 1
    tokens: tuple[tuple[str, int], ...] = ()

    def __attrs_post_init__(self) -> None:
        check_int(self.count, "a count", 0, INT64_MAX)
        check_int(self.round, "a round", 1, INT64_MAX)
        _check_tokens(self.tokens, self.round)

    def noted(self, token: str) -> int | None:
        """The round in which the token was noted, negative once it is counted; None if it is not there."""
        return next((noted for each, noted in self.tokens if each == token), None)


def new_counter(key: str) -> Document:
    """The record of a new counter, to insert: where the id is taken, another did.

    Raises:
        Misuse: The key is empty or no string.
    """
    check_name(key, "a counter")
    return Document.of({"_id": key, "count": 0, "round": 1})


def counter_of(record: Document) -> Counter:
    """The counter that a record holds.

    Raises:
        Misuse: It is not the record of a counter.
    """
    check_type(record, Document, "the record of a counter")
    tokens = ((key.removeprefix(_PREFIX), noted) for key, noted in record.items if key.startswith(_PREFIX))
    return Counter(
        _integer(record, COUNT), _integer(record, ROUND), tuple((token, _rounded(at)) for token, at in tokens)
    )


def _integer(record: Document, field: Field[int]) -> int:
    return _rounded(record.held(field))


def _rounded(held: object) -> int:
    if type(held) is not int:
        raise Misuse(f"{typed(held)} stands where a counter has an integer", todo="is it another's record?")
    return held


# --- what is written --------------------------------------------------------------------------------------------------


def first_step(collection: str, key: str, token: str, in_round: int) -> UpdateOne:
    """Note the token, in this round and if it is not there.

    Raises:
        Misuse: A name is empty or cannot be one, or the round is not a number of one.
    """
    check_int(in_round, "a round", 1, INT64_MAX)
    field = token_field(token)
    where = AllOf((_key_is(key), Eq(ROUND, in_round), Eq(field, None)))
    return update_one(collection, where, Put(field, in_round))


def second_step(collection: str, key: str, token: str, noted: int) -> UpdateOne:
    """Count the token, if it is pending since it was noted in that round.

    Raises:
        Misuse: A name is empty or cannot be one, or the round is not a number of one.
    """
    check_int(noted, "a round", 1, INT64_MAX)
    field = token_field(token)
    return update_one(collection, AllOf((_key_is(key), Eq(field, noted))), Put(field, -noted), Add(COUNT, 1))


def close(collection: str, key: str, in_round: int, drop: tuple[str, ...]) -> UpdateOne:
    """Close the round, and remove these tokens: counted ones, noted before it.

    Raises:
        Misuse: A name is empty or cannot be one, or the round is not a number of one.
    """
    check_int(in_round, "a round", 1, INT64_MAX)
    check_tuple(drop, str, "a token")
    # They were counted when they were read; a failover may have taken that back, so the filter asks again.
    counted = (Lt(Field[int](token_field(token).name), 0) for token in drop)
    where = AllOf((_key_is(key), Eq(ROUND, in_round), *counted))
    return update_one(collection, where, Add(ROUND, 1), *(Remove(token_field(token)) for token in drop))


def _key_is(key: str) -> Eq[str]:
    check_name(key, "a counter")
    return Eq(ID, key)


def token_field(token: str) -> Field[int | None]:
    """The field that holds a token. Misuse if it is empty or cannot be part of a field's name."""
    check_name(token, "a token")
    return Field[int | None](_PREFIX + token)


# --- an increment -----------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Increment:
    """What the owner of an increment knows of it.

    Invariants: the token is used for this increment only; 1 <= asked; is_noted implies asked.

    Attributes:
        token: An id that no other increment has.
        asked: The round in which its first step was sent last; None if none was.
        is_noted: That first step is known to have been applied.
    """

    token: str
    asked: int | None = None
    is_noted: bool = False

    def __attrs_post_init__(self) -> None:
        token_field(self.token)
        if self.asked is not None:
            check_int(self.asked, "a round", 1, INT64_MAX)
        check_type(self.is_noted, bool, "a flag")
        if self.is_noted and self.asked is None:
            raise Misuse(f"token {self.token!r} is noted in no round", todo="name the round that was asked for")


@final
@attrs.frozen
class NoteToken:
    """Send the first step in this round, which is `asked` from then on."""

    in_round: int

    def __str__(self) -> str:
        return f"note it in round {self.in_round}"


@final
@attrs.frozen
class CountToken:
    """It is noted in this round: send the second step."""

    noted: int

    def __str__(self) -> str:
        return f"count it, noted in round {self.noted}"


@final
@attrs.frozen
class Counted:
    """It is counted, once; nothing is left to do."""

    def __str__(self) -> str:
        return "counted"


@final
@attrs.frozen
class Full:
    """The record holds too many tokens for another one: sweep it, and come back."""

    tokens: int

    def __str__(self) -> str:
        return f"full: {self.tokens} tokens"


@final
@attrs.frozen
class Forgotten:
    """Nobody knows whether it was counted: it was last asked for in that round, and it is too late to find out."""

    asked: int
    now: int

    def __str__(self) -> str:
        return f"forgotten: asked for in round {self.asked}, and it is round {self.now}"


@final
@attrs.frozen
class OldRead:
    """The record as it was read is older than what the owner knows: read again, with all majority writes."""

    def __str__(self) -> str:
        return "an old read"


IncrementVerdict: TypeAlias = NoteToken | CountToken | Counted | Full | Forgotten | OldRead


def decide_increment(counter: Counter, increment: Increment, tokens_max: int = TOKENS_MAX) -> IncrementVerdict:
    """What the owner of an increment does next.

    Args:
        counter: The record as it was read, with all majority writes.
        increment: What the owner knows.
        tokens_max: From how many tokens on the record is full.

    Returns:
        `NoteToken` or `CountToken` with what to send, `Counted`, `Full`, or what is not known. Sent again after a lost reply and
        decided again on what is read then, it counts once.

    Raises:
        Misuse: An argument is of the wrong type or out of range.
    """
    check_type(counter, Counter, "a counter")
    check_type(increment, Increment, "an increment")
    check_int(tokens_max, "a number of tokens", 1, INT64_MAX)
    noted, asked, now = counter.noted(increment.token), increment.asked, counter.round
    if noted is not None:
        return CountToken(noted) if noted > 0 else Counted()
    if asked is not None:
        if now < asked or (increment.is_noted and now == asked):
            return OldRead()
        if increment.is_noted:
            return Counted()  # only what is counted is removed
        if now > asked + 1:
            return Forgotten(asked, now)
    # It was never asked for; or in this round, where the same again cannot count twice; or in the one before, whose tokens
    # all stand still, so it was not noted, and cannot be any more.
    return Full(len(counter.tokens)) if len(counter.tokens) >= tokens_max else NoteToken(now)


# --- the sweep --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Sweep:
    """What a sweep does, each an update of its own, in any order.

    Attributes:
        count: Tokens that were left pending, and the rounds in which they were noted.
        closing: The round to close; None if nothing is left in the record.
        drop: The tokens to remove with it.
    """

    count: tuple[tuple[str, int], ...] = ()
    closing: int | None = None
    drop: tuple[str, ...] = ()

    def __str__(self) -> str:
        closing = "nothing to close" if self.closing is None else f"close round {self.closing}"
        return f"count {len(self.count)}, {closing}, drop {len(self.drop)}"


def decide_sweep(counter: Counter) -> Sweep:
    """What there is to sweep: tokens that were noted before this round.

    Args:
        counter: The record as it was read.

    Returns:
        The sweep; empty if the record holds no token. An old read does no harm: what is done already matches nothing.

    Raises:
        Misuse: It is not a counter.
    """
    check_type(counter, Counter, "a counter")
    if not counter.tokens:
        return Sweep()
    before = [(token, noted) for token, noted in counter.tokens if abs(noted) < counter.round]
    return Sweep(
        count=tuple((token, noted) for token, noted in before if noted > 0),
        closing=counter.round,
        drop=tuple(token for token, noted in before if noted < 0),
    )


def updates(collection: str, key: str, sweep: Sweep) -> tuple[UpdateOne, ...]:
    """The updates of a sweep.

    Raises:
        Misuse: A name is empty or cannot be one, or it is not a sweep.
    """
    check_type(sweep, Sweep, "a sweep")
    counted = tuple(second_step(collection, key, token, noted) for token, noted in sweep.count)
    return counted if sweep.closing is None else (*counted, close(collection, key, sweep.closing, sweep.drop))


# --- helpers ----------------------------------------------------------------------------------------------------------


def _check_tokens(tokens: tuple[tuple[str, int], ...], latest: int) -> None:
    """Raise Misuse unless these are distinct tokens, each with a round up to the latest, negative once it is counted."""
    check_tuple(tokens, tuple, "a token with its round")
    for pair in tokens:
        if len(pair) != len(("token", "noted")):
            raise Misuse("a token stands without its round, or with more")
        token, noted = pair
        _ = token_field(token)
        check_int(noted, "the round of a token", -latest, latest)
        if noted == 0:
            raise Misuse("a token was noted in no round", why="the first round is 1")
    if len({token for token, _ in tokens}) != len(tokens):
        raise Misuse("a token stands twice", why="it is a field of the record")
