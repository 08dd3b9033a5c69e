"""Counts an increment exactly once, although replies get lost and requests arrive late and twice.

An increment is split into two idempotent steps ("How To Write Resilient MongoDB Applications",
Davis 2016). The first step notes a unique token, the second turns it into one more. A sweep counts
the tokens of crashed owners. The record is one document, each token a field of it:

    {_id, count, round, "token <t>": r, "token <u>": -q, ...}     t was noted in round r, u in round
        q and is counted

    step          filter                              update
    first         round is r, the token is missing    token := r
    second        the token is r                      token := -r, count += 1
    close         round is r, the tokens are counted  round += 1, remove these tokens, that were
        noted before r

A late first step could note the token again. The tombstone (-r) prevents that while its round is
open, the round afterwards; so a close can remove it, and the record stays small. The close tests
the tombstones: a sweep may have read a second step that a failover reverts. (Found by the
simulator.)

A sweep counts each token of earlier rounds and closes the round. It needs no clock and no quiet
time, and may run concurrently with others and with owners. An owner whose reply was lost reads and
decides again. A tombstone stays for one more round; an owner that returns later may find no trace:
`Forgotten`.

Laws
    CN1  The count is the number of counted tokens, each once.
    CN2  A noted token stays until its owner or a sweep counts it.
    CN3  A late first step changes nothing if its token exists or its round is closed.
    CN4  The answer is true: Counted only if the increment was counted; noted only if it was not and
         cannot be through an earlier first step; Forgotten only two rounds or more after its last
         first step.
    CN5  At rest, three sweeps leave nothing but the count.
    CN6  No first step is decided on a full record.

Known not to work
    - A record that is deleted and created again starts at round 1, so earlier first steps may
      match.
    - An owner cannot take an increment back: a first step under way may still be noted, and then
      counts.
    - Reads without majority concern; the answer is `OldRead` if that is detected.
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
"""The default limit of tokens in a record: less than a megabyte of them."""

_PREFIX: Final = "token "


# --- the record -------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Counter:
    """A counter as read; a token has the round it was noted in, negative once counted.

    Invariants: 0 <= count; 1 <= round; tokens are distinct names, each with 1 <= |noted| <= round.
    """

    count: int = 0
    round: int = 1
    tokens: tuple[tuple[str, int], ...] = ()

    def __attrs_post_init__(self) -> None:
        check_int(self.count, "a count", 0, INT64_MAX)
        check_int(self.round, "a round", 1, INT64_MAX)
        _check_tokens(self.tokens, self.round)

    def noted(self, token: str) -> int | None:
        """The round in which the token was noted, negative once counted; None if absent."""
        return next((noted for each, noted in self.tokens if each == token), None)


def new_counter(key: str) -> Document:
    """The record of a new counter, to insert."""
    check_name(key, "a counter")
    return Document.of({"_id": key, "count": 0, "round": 1})


def counter_of(record: Document) -> Counter:
    """Parse the record of a counter."""
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
    """Note the token in this round unless it exists."""
    check_int(in_round, "a round", 1, INT64_MAX)
    field = token_field(token)
    where = AllOf((_key_is(key), Eq(ROUND, in_round), Eq(field, None)))
    return update_one(collection, where, Put(field, in_round))


def second_step(collection: str, key: str, token: str, noted: int) -> UpdateOne:
    """Count the token if it is pending since round `noted`."""
    check_int(noted, "a round", 1, INT64_MAX)
    field = token_field(token)
    return update_one(collection, AllOf((_key_is(key), Eq(field, noted))), Put(field, -noted), Add(COUNT, 1))


def close(collection: str, key: str, in_round: int, drop: tuple[str, ...]) -> UpdateOne:
    """Close the round, and remove these tokens: counted, and noted in earlier rounds."""
    check_int(in_round, "a round", 1, INT64_MAX)
    check_tuple(drop, str, "a token")
    # A failover may have reverted their count since the read, so the filter tests it again.
    counted = (Lt(Field[int](token_field(token).name), 0) for token in drop)
    where = AllOf((_key_is(key), Eq(ROUND, in_round), *counted))
    return update_one(collection, where, Add(ROUND, 1), *(Remove(token_field(token)) for token in drop))


def _key_is(key: str) -> Eq[str]:
    check_name(key, "a counter")
    return Eq(ID, key)


def token_field(token: str) -> Field[int | None]:
    """The field of a token. Misuse if it cannot be part of a field's name."""
    check_name(token, "a token")
    return Field[int | None](_PREFIX + token)


# --- an increment -----------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Increment:
    """The owner's knowledge: the round of its last first step, and whether that was applied.

    Invariants: the token is used for this increment only; 1 <= asked; is_noted implies asked.
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
    """Send the first step in this round, which then is `asked`."""

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
    """It is counted, once."""

    def __str__(self) -> str:
        return "counted"


@final
@attrs.frozen
class Full:
    """The record holds too many tokens: sweep it, and retry."""

    tokens: int

    def __str__(self) -> str:
        return f"full: {self.tokens} tokens"


@final
@attrs.frozen
class Forgotten:
    """Unknown whether it was counted: its last first step was in that round, too long ago."""

    asked: int
    now: int

    def __str__(self) -> str:
        return f"forgotten: asked for in round {self.asked}, and it is round {self.now}"


@final
@attrs.frozen
class OldRead:
    """The read is older than the owner's knowledge: read again, with majority concern."""

    def __str__(self) -> str:
        return "an old read"


IncrementVerdict: TypeAlias = NoteToken | CountToken | Counted | Full | Forgotten | OldRead


def decide_increment(counter: Counter, increment: Increment, tokens_max: int = TOKENS_MAX) -> IncrementVerdict:
    """The next step of the owner of an increment; `counter` needs a read with majority concern."""
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
    # There was no first step; or one in this round, where a repetition cannot count twice; or one
    # in the previous round, whose tokens all still exist, so it was not noted and cannot be any
    # more.
    return Full(len(counter.tokens)) if len(counter.tokens) >= tokens_max else NoteToken(now)


# --- the sweep --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Sweep:
    """The updates of a sweep, in any order: pending tokens to count with their rounds, the round to
    close (None if the record is clean), and tokens to drop.
    """

    count: tuple[tuple[str, int], ...] = ()
    closing: int | None = None
    drop: tuple[str, ...] = ()

    def __str__(self) -> str:
        closing = "nothing to close" if self.closing is None else f"close round {self.closing}"
        return f"count {len(self.count)}, {closing}, drop {len(self.drop)}"


def decide_sweep(counter: Counter) -> Sweep:
    """The sweep of tokens from earlier rounds. An old read does no harm: finished updates match
    nothing.
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
    """The updates of a sweep."""
    check_type(sweep, Sweep, "a sweep")
    counted = tuple(second_step(collection, key, token, noted) for token, noted in sweep.count)
    return counted if sweep.closing is None else (*counted, close(collection, key, sweep.closing, sweep.drop))


# --- helpers ----------------------------------------------------------------------------------------------------------


def _check_tokens(tokens: tuple[tuple[str, int], ...], latest: int) -> None:
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
