"""Ways to count wrongly."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.counters import increments
from tidegate.counters.checks.scenarios.counter import (
    FAILOVERS,
    NOTHING_LEFT,
    ONCE,
    STAYS,
    TRUTH,
    all_of_them,
    counting,
)
from tidegate.counters.counter import (
    Counted,
    decide_increment,
    decide_sweep,
    first_step,
    second_step,
    token_field,
    updates,
)
from tidegate.counters.increments import IncrementOutcome, increment
from tidegate.model.documents import Gt, Put
from tidegate.model.operations import update_one
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant


async def new_token_on_retry(collection: str, key: str, token: str) -> IncrementOutcome:
    """A retry after a lost reply uses a new token, so the increment counts twice."""
    first = await increment(collection, key, f"{token}/1", attempts=1)
    if isinstance(first, Counted):
        return first
    return await increment(collection, key, f"{token}/2")


COUNTS: Final = "in before if noted > 0)"
NO_ANSWER: Final = """        except (Ambiguous, NotApplied):
            return False, made
"""
NO_REPLY_IS_YES: Final = """        except Ambiguous:
            return True, made
        except NotApplied:
            return False, made
"""
SWEEPS: Final = "    return updates(collection, key, decide_sweep(found))\n"
SUM: Final = """    pending = [(token, noted) for token, noted in found.tokens if noted > 0]
    if not pending:
        return updates(collection, key, decide_sweep(found))
    total = Put(COUNT, found.count + len(pending))
    return (update_one(collection, Eq(ID, key), total, *(Put(token_field(token), -noted) for token, noted in pending)),)
"""
failover: Final = partial(counting, budget=2, faults=FAILOVERS)

SPECIMENS: Final = (
    specimen(
        "counter.token_leaves_when_counted", ONCE,
        "The second step removes the token: a first step that arrives late brings it back, and it is counted again.",
        "The article on resilient MongoDB applications pulls the token when it counts it (measured: 2 for 1).",
        lambda: variant(increments, second_step=variant(second_step, ("Put(field, -noted)", "Remove(field)"))),
        make=counting, of="counter", alone=True),
    specimen(
        "counter.second_step_unguarded", ONCE,
        "The second step does not ask whether the token is pending, so it counts whenever it comes.",
        "Any blind $inc: MongoDB applies it as often as it arrives.",
        lambda: variant(increments, second_step=variant(second_step, ("AllOf((_key_is(key), Eq(field, noted)))", "_key_is(key)"))),
        make=counting, of="counter", alone=True),
    specimen(
        "counter.first_step_in_any_round", ONCE,
        "The first step does not name its round: when the tombstone is swept away, a late one is noted anew.",
        "Planted: a tombstone is only as good as what keeps late requests out once it is gone.",
        lambda: variant(increments, first_step=variant(first_step, ("Eq(ROUND, in_round), Eq(field, None)", "Eq(field, None)"))),
        make=partial(counting, early=3), of="counter"),
    specimen(
        "counter.new_token_on_retry", ONCE,
        "Whoever tries again after a lost reply does so as somebody else, and is counted twice.",
        "A retry by the application has a new transaction number, so MongoDB takes it for another write (measured: 2).",
        partial(variant, increments, increment=new_token_on_retry),
        make=counting, of="counter"),
    specimen(
        "counter.no_reply_is_yes", TRUTH,
        "No reply is taken for a yes.",
        "The resilience article: a time-out says nothing about whether the write was done.",
        partial(variant, increments, (NO_ANSWER, NO_REPLY_IS_YES)),
        make=counting, of="counter"),
    specimen(
        "counter.not_durable_is_done", TRUTH,
        "What no majority has confirmed passes for done, and a failover takes it back.",
        "MongoDB: a write under a write concern error has been done, and is lost if another primary is elected.",
        partial(variant, increments, ("pass  # done", "return True, made  # done")),
        make=failover, of="counter.failover"),
    specimen(
        "counter.looks_after_not_durable", TRUTH,
        "After a write that no majority has confirmed it looks, and takes what it sees for what will stay.",
        "MongoDB: a read on the primary shows what a majority has not confirmed (found by the simulator in our first draft).",
        partial(variant, increments, ("pass  # done", "return False, made  # done")),
        make=failover, of="counter.failover"),
    specimen(
        "counter.forgotten_is_noted_again", ONCE,
        "Where nobody knows any more, it is noted again, to be sure that it counts.",
        "Planted: who cannot know whether it was counted must not make sure.",
        lambda: variant(increments, decide_increment=variant(decide_increment, ("Forgotten(asked, now)", "NoteToken(now)"))),
        make=partial(counting, early=3), of="counter"),
    specimen(
        "counter.sweep_writes_the_sum", ONCE,
        "The sweep writes the sum of what it has read: what is counted in between is lost.",
        "The article's clean-up writes count plus what it has read and clears the array (measured: 1 for 2).",
        partial(variant, increments, (SWEEPS, SUM), Put=Put, token_field=token_field, update_one=update_one),
        make=counting, of="counter", alone=True),
    specimen(
        "counter.sweep_drops_what_it_read", ONCE,
        "A tombstone is dropped as it was read: a failover makes it a pending token again, and that is dropped.",
        "MongoDB: a read on the primary shows what a majority has not confirmed; found by the simulator in our own counter.",
        lambda: variant(increments, updates=variant(updates, ("in_round), *counted", "in_round)"))),
        make=failover, of="counter.failover"),
    specimen(
        "counter.sweep_drops_what_is_pending", STAYS,
        "The sweep removes every token of an earlier round, counted or not.",
        "Planted: a sweep that tidies up before it counts.",
        lambda: variant(
            increments,
            decide_sweep=variant(decide_sweep, (COUNTS, "in ())"), ("in before if noted < 0)", "in before)")),
            updates=variant(updates, ("in_round), *counted", "in_round)"))),
        make=counting, of="counter"),
    specimen(
        "counter.sweep_counts_nothing", NOTHING_LEFT,
        "The sweep closes rounds and leaves what is pending to its owner, who may be dead.",
        "Planted: an owner that crashed between its two steps does not come back.",
        lambda: variant(increments, decide_sweep=variant(decide_sweep, (COUNTS, "in ())"))),
        make=counting, of="counter"),
    specimen(
        "counter.sweep_finds_what_has_counted", NOTHING_LEFT,
        "A sweep asks for counters that have counted something: an increment that was noted first of all stays noted for ever.",
        "Planted: whether something is left behind does not show in the count.",
        partial(variant, increments, ("HasOther((COUNT, ROUND))", "Gt(COUNT, 0)"), Gt=Gt),
        make=partial(counting, sweeps=all_of_them, owners=1), of="counter.found"),
)  # fmt: skip
