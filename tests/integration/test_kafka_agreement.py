"""The simulated Kafka agrees with aiokafka and a real broker, call by call.

The scripts are written by hand, derived from the error table, or random. They run concurrently,
each with its own topic and group, because they mostly wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from tests.integration.kafka_scripts import (
    Account,
    Ask,
    Begin,
    Call,
    Commit,
    Create,
    DeleteBelow,
    Grow,
    Heal,
    Kill,
    Outcomes,
    Poll,
    Produce,
    RealKafka,
    Remove,
    Script,
    Seek,
    Settle,
    SimulatedKafka,
    Start,
    Step,
    Stop,
    Strike,
    Transact,
    Wait,
    play,
)
from tests.length import KAFKA_HAND_STEP, KAFKA_SCRIPTS, KAFKA_TABLE_STEP, KAFKA_WAIT_S

from tidegate_adapters.testing.event_loop import run
from tidegate_adapters.testing.kafka import CODES
from tidegate_adapters.testing.kafka.requests import OF_PRODUCERS

SCRIPT_S, TURNS = 120.0, 3
A_FEW = (Produce(partition=0), Produce(partition=1, count=2), Produce(partition=2, count=1))
ALONE: Script = (*A_FEW, Start("a"), Settle(), Poll("a"))
SOON: Mapping[str, Any] = {"metadata_max_age_ms": 400}
LOST: Script = (  # the session is lost, and the member cannot join again
    *ALONE,
    Strike("a", "JoinGroup", "GroupLoadInProgressError", 1_000),
    Strike("a", "Heartbeat", "unsent", 1_000),
    Commit("a", 0, 2),
    Wait(seconds=6.0),
    Commit("a", 0, 3),
    Wait(),
    Commit("a", 0, 1),
)

BY_HAND: Mapping[str, Script] = {
    "alone": (*ALONE, Commit("a", 0, 2, "with metadata"), Call("a", "committed", 0), Call("a", "committed", 1), Stop("a")),
    "two share": (*ALONE, Start("b"), Settle(), Poll("a"), Poll("b"), Stop("a"), Settle(), Poll("b")),
    "three share": (*ALONE, Start("b"), Settle(), Start("c"), Settle(), Stop("b"), Settle(), Poll("a"), Poll("c")),
    "named partitions alone are handed out": (
        *A_FEW, Start("a"), Settle(), Wait(), Poll("a", (1,)), Poll("a", (0, 2)), Produce(partition=3), Poll("a"),
    ),
    "paused partitions are not handed out": (
        *A_FEW, Start("a"), Settle(), Wait(), Call("a", "pause", 0), Call("a", "paused", 0), Poll("a"), Call("a", "resume", 0),
        Poll("a"), Call("a", "position", 0),
    ),
    "what was fetched before a pause is dropped at a poll": (
        Produce(count=9), Start("a"), Settle(), Wait(), Call("a", "pause", 0), Poll("a"), DeleteBelow(partition=0, offset=5),
        Call("a", "resume", 0), Wait(), Poll("a"), Call("a", "position", 0),
    ),
    "a pause does not outlive the assignment": (
        *ALONE, Call("a", "pause", 0), Start("b"), Settle(), Call("a", "paused", 0), Poll("a"),
    ),
    "an exception as partitions are assigned": (
        *A_FEW, Start("a", raises=("assigned", RuntimeError, 1)), Settle(), Poll("a"), Commit("a", 0, 1), Start("b"), Settle(),
    ),
    "an exception as partitions are revoked": (
        *A_FEW, Start("a", raises=("revoked", RuntimeError, 2)), Settle(), Poll("a"), Start("b"), Settle(), Poll("b"),
    ),
    "a CancelledError as partitions are assigned": (
        *A_FEW, Start("a", raises=("assigned", asyncio.CancelledError, 1)), Wait(), Poll("a"), Commit("a", 0, 1), Wait(seconds=6.0),
        Commit("a", 0, 2),
    ),
    "commits as partitions are revoked are taken": (
        *A_FEW, Start("a", commits=1), Settle(), Poll("a"), Start("b"), Settle(), Poll("b"),
    ),
    "a revocation takes longer than the group waits": (
        *A_FEW, Start("a", sleeps=7.0, commits=1), Settle(), Poll("a"), Start("b"), Wait(seconds=11.0), Settle(), Poll("b"),
    ),
    "a revocation has the time that was asked for": (
        *A_FEW, Start("a", {"rebalance_timeout_ms": 12_000}, sleeps=7.0, commits=1), Settle(), Poll("a"),
        Start("b", {"rebalance_timeout_ms": 12_000}), Wait(seconds=9.0), Settle(), Poll("b"),
    ),
    "a cancelled commit is sent": (*ALONE, Commit("a", 0, 2, way="cancel"), Call("a", "committed", 0)),
    "a retried commit has the generation of then": (
        *ALONE, Strike("a", "OffsetCommit", "GroupLoadInProgressError", 40), Commit("a", 0, 3, way="later"),
        Start("b"), Settle(), Outcomes("a"), Settle(), Call("a", "committed", 0),
    ),
    "commits without a generation, nobody else there": LOST,
    "commits without a generation, somebody there": (
        *ALONE, Start("b"), Settle(), *LOST[len(ALONE):], Call("b", "committed", 0),
    ),
    "the one that was lost joins again": (*LOST, Heal("a"), Settle(), Commit("a", 0, 1), Poll("a")),
    "one is killed": (*ALONE, Start("b"), Settle(), Kill("b"), Wait(seconds=6.0), Settle(), Poll("a")),
    "one name for two": (
        *A_FEW, Start("a", {"group_instance_id": "i"}), Settle(), Poll("a"), Commit("a", 0, 1),
        Strike("a", "JoinGroup", "GroupLoadInProgressError", 1_000), Start("b", {"group_instance_id": "i"}), Wait(seconds=2.0), Commit("a", 0, 2),
        Poll("b"), Commit("b", 0, 3),
    ),
    "who asks whether its name was taken": (
        *A_FEW, Start("a", {"group_instance_id": "i"}), Settle(), Ask("a"),
        Strike("a", "JoinGroup", "GroupLoadInProgressError", 1_000), Start("b", {"group_instance_id": "i"}), Wait(seconds=2.0), Ask("a"), Ask("b"),
        Kill("b"), Wait(seconds=6.0), Ask("a"),
    ),
    "a static member comes again": (
        *A_FEW, Start("b"), Settle(), Start("a", {"group_instance_id": "i"}), Settle(), Stop("a"), Wait(),
        Start("a", {"group_instance_id": "i"}), Settle(), Poll("a"), Poll("b"),
    ),
    "nobody polls for too long": (
        *A_FEW, Start("a", {"max_poll_interval_ms": 1_500}), Settle(), Wait(seconds=4.0), Commit("a", 0, 1), Poll("a"),
        Settle(), Poll("a"),
    ),
    "marks of transactions": (
        Produce(kind="transaction"), Produce(count=2), Produce(kind="transaction", count=1), Start("a"), Settle(), Poll("a"),
        Call("a", "position", 0), Call("a", "end_offsets", 0), Call("a", "beginning_offsets", 0),
    ),
    "from the end": (
        *A_FEW, Start("a", {"auto_offset_reset": "latest"}), Settle(), Poll("a"), Produce(partition=0), Poll("a"),
    ),
    "from nowhere": (*A_FEW, Start("a", {"auto_offset_reset": "none"}), Settle(), Poll("a"), Seek("a", 0, 1), Poll("a", (0,))),
    "beyond the end, then from the beginning": (*ALONE, Seek("a", 0, 99), Poll("a"), Call("a", "position", 0)),
    "beyond the end, and that is an error": (
        *A_FEW, Start("a", {"auto_offset_reset": "none"}), Settle(), Seek("a", 0, 99), Poll("a", (0,)), Seek("a", 0, 1),
        Poll("a", (0,)),
    ),
    "what was committed is deleted": (
        Produce(count=9), Start("a"), Settle(), Commit("a", 0, 2), Stop("a"), DeleteBelow(partition=0, offset=5), Start("b"),
        Settle(), Poll("b"), Call("b", "beginning_offsets", 0),
    ),
    "a topic grows": (
        *A_FEW, Start("a", SOON), Settle(), Poll("a"), Grow(partitions=6), Wait(seconds=2.0), Settle(), Produce(partition=5), Poll("a"),
    ),
    "a topic grows, and the leader looks": (
        *A_FEW, Start("a", SOON), Settle(), Start("b"), Settle(), Grow(partitions=6), Wait(seconds=2.0), Settle(), Produce(partition=4),
        Produce(partition=5), Poll("a"), Poll("b"),
    ),
    "a topic grows, and the leader does not look": (
        *A_FEW, Start("a"), Settle(), Start("b", SOON), Settle(), Grow(partitions=6), Wait(seconds=2.0), Settle(), Produce(partition=5),
        Poll("a"), Poll("b"),
    ),
    "a topic grows, and who led looks": (
        *A_FEW, Start("a", SOON), Settle(), Start("b"), Settle(), Kill("a"), Wait(seconds=6.0), Settle(), Grow(partitions=6),
        Start("a", SOON), Settle(), Wait(seconds=2.0), Settle(), Poll("a"), Poll("b"),
    ),
    "too much metadata": (*ALONE, Commit("a", 0, 1, "x" * 4_097), Commit("a", 0, 1, "x" * 4_096)),
    "a record that cannot be decoded": (
        Produce(count=2), Produce(count=1, kind="poison"), Produce(count=2), Start("a"), Settle(), Poll("a"),
        Call("a", "position", 0), Seek("a", 0, 3), Poll("a"),
    ),
    "a partition of somebody else": (*ALONE, Start("b"), Settle(), Commit("a", 1, 1), Commit("b", 1, 1), Call("a", "pause", 1)),
    "a commit that arrives late falls": (*ALONE, Commit("a", 0, 3), Commit("a", 0, 1)),
}  # fmt: skip

COMMITTED: Mapping[str, Any] = {"isolation_level": "read_committed", "group_id": "readers"}
READ: Script = (
    Wait(),
    Start("r", COMMITTED),
    Settle(),
    Poll("r"),
    Call("r", "position", 0),
    Call("r", "end_offsets", 0),
)
OPEN: Script = (Begin("p"), Transact("p"), Transact("p", "send"), Transact("p", "position", 0, 2, "m"))
DONE: Script = (*OPEN, Transact("p", "commit"))
SHORT: Mapping[str, Any] = {"transaction_timeout_ms": 1_000}
A_ROUND_S = 13.0
"""A transaction that timed out may stay open for so long."""

TRANSACTIONS: Mapping[str, Script] = {
    "a transaction": (*DONE, *READ),
    "one after the other": (
        *DONE, Transact("p"), Transact("p", "send"), Transact("p", "send", 1), Transact("p", "position", 0, 3), Transact("p", "commit"), *READ,
    ),
    "aborted, then committed": (
        *OPEN, Transact("p", "abort"), Transact("p"), Transact("p", "send"), Transact("p", "commit"), *READ,
    ),
    "aborted, and read by somebody who does not mind": (*OPEN, Transact("p", "abort"), Wait(), Start("r"), Settle(), Poll("r")),
    "nothing but a position": (Begin("p"), Transact("p"), Transact("p", "position", 1, 5), Transact("p", "commit"), Wait()),
    "what is open ends what is read": (
        Produce(), *OPEN, Produce(count=1), *READ, Transact("p", "commit"), Poll("r"), Call("r", "end_offsets", 0), Call("r", "position", 0),
    ),
    "from the end of what is committed": (
        *OPEN, Start("r", {**COMMITTED, "auto_offset_reset": "latest"}), Settle(), Call("r", "position", 0), Transact("p", "commit"), Poll("r"),
    ),
    "what is open does not end what others read": (Produce(), *OPEN, Start("r"), Settle(), Poll("r"), Call("r", "end_offsets", 0)),
    "a position is not seen before": (
        *OPEN, Start("a"), Settle(), Call("a", "committed", 0), Transact("p", "commit"), Wait(), Call("a", "committed", 0),
    ),
    "nothing is begun": (Begin("p"), Transact("p", "send"), Transact("p", "position"), Transact("p", "commit"), Transact("p", "abort")),
    "nothing is in it": (Begin("p"), Transact("p"), Transact("p", "commit"), Transact("p"), Transact("p", "abort"), Transact("p"), Transact("p")),
    "two of one id": (
        *OPEN, Begin("q"), Transact("p", "send"), Transact("p", "commit"), Transact("p", "send"), Transact("q"), Transact("q", "send"),
        Transact("q", "commit"), *READ,
    ),
    "two of one id, and the first sends a position": (
        *OPEN, Begin("q"), Transact("p", "position", 0, 7), Transact("p", "abort"), *READ,
    ),
    "two of one id, and the first begins": (*DONE, Begin("q"), Transact("p"), Transact("p", "send"), Transact("p", "abort"), *READ),
    "two of one id, and the first begins with a position": (*DONE, Begin("q"), Transact("p"), Transact("p", "position", 0, 7), Wait()),
    "two of one id, and the first aborts": (*OPEN, Begin("q"), Transact("p", "abort"), *READ),
    "two of one id, while the first commits": (*OPEN, Transact("p", "commit", way="later"), Begin("q"), Outcomes("p"), *READ),
    "two ids": (
        *OPEN, Begin("q", "y"), Transact("q"), Transact("q", "send"), Transact("q", "position", 0, 9), Transact("q", "commit"), *READ,
        Transact("p", "commit"), Wait(), Poll("r"),
    ),
    "killed, and somebody else comes": (*OPEN, Transact("p", "kill"), Begin("q"), *READ),
    "killed, and nobody comes": (
        Begin("p", options=SHORT), *OPEN[1:], Transact("p", "kill"), *READ, Wait(seconds=A_ROUND_S), Poll("r"),
    ),
    "it takes too long": (
        Begin("p", options=SHORT), *OPEN[1:], Wait(seconds=A_ROUND_S), Transact("p", "send"), Transact("p", "commit"), *READ,
        Begin("q"), Transact("q"), Transact("q", "send"), Transact("q", "commit"), Poll("r"),
    ),
    "it takes too long, and a position comes": (
        Begin("p", options=SHORT), *OPEN[1:], Wait(seconds=A_ROUND_S), Transact("p", "position", 0, 7), Transact("p", "commit"), *READ,
    ),
    "it may take too long": (Begin("p", options={"transaction_timeout_ms": 1_000_000}), Wait()),
    "a position where nobody is a member": (Start("a"), Settle(), Stop("a"), *DONE, Wait()),
    "a position of a member that was put out": (
        Start("a"), Settle(), Start("b"), Settle(), Kill("a"), Wait(seconds=6.0), Settle(), *DONE, Wait(), Call("b", "committed", 0),
        Commit("b", 0, 1),
    ),
    "a position falls": (*DONE, Wait(), Start("a"), Settle(), Commit("a", 0, 9), *OPEN[1:], Transact("p", "commit"), Wait()),
    "a position that is aborted after a commit": (*OPEN, Start("a"), Settle(), Commit("a", 0, 9), Transact("p", "abort"), Wait()),
    "a position before another one is committed after it": (*OPEN, Start("a"), Settle(), Commit("a", 0, 9), Transact("p", "commit"), Wait()),
    "too much metadata in a transaction": (
        Begin("p"), Transact("p"), Transact("p", "send"), Transact("p", "position", 0, 1, "x" * 4_097), Transact("p", "abort"), *READ,
    ),
    "a position of a partition that is not there": (
        Begin("p"), Transact("p"), Transact("p", "position", 9, 1, way="later"), Wait(), Transact("p", "kill"), Wait(),
    ),
    "two rounds of two": (
        *OPEN, Begin("q"), Transact("q"), Transact("q", "send"), Begin("p"), Transact("q", "commit"), Transact("p"), Transact("p", "send", 1),
        Transact("p", "commit"), *READ,
    ),
}  # fmt: skip
MORE: Script = (Produce(partition=0, count=5), Produce(partition=1, count=1))
AGAIN: Script = (Remove(), Create(), *MORE)
DELETED: Mapping[str, Script] = {
    "a topic is deleted": (
        *A_FEW, Start("a", SOON), Settle(), Poll("a"), Commit("a", 0, 2), Remove(), Wait(seconds=2.0), Settle(), Poll("a"), Call("a", "committed", 0),
    ),
    "a topic is deleted, and nobody looks": (*A_FEW, Start("a"), Settle(), Poll("a"), Commit("a", 0, 2), Remove(), Wait(seconds=2.0), Settle(), Poll("a")),
    "a commit after a topic was deleted": (
        *ALONE, Remove(), Commit("a", 0, 3, way="later"), Wait(), Create(), Wait(), Outcomes("a"), Wait(),
    ),
    "a topic is there again": (
        *A_FEW, Start("a", SOON), Settle(), Poll("a"), Commit("a", 0, 2), Remove(), Wait(seconds=2.0), Settle(), Create(), *MORE, Wait(seconds=2.0),
        Settle(), Poll("a"), Call("a", "committed", 0), Call("a", "position", 0),
    ),
    "a topic is there again, and nobody was": (
        *ALONE, Commit("a", 0, 2), Stop("a"), *AGAIN, Start("b"), Settle(), Poll("b"), Call("b", "committed", 0),
    ),
    "a topic is there again, and nobody has looked": (
        *ALONE, Commit("a", 0, 2), *(Call("a", "pause", number) for number in range(4)), Wait(), *AGAIN, Wait(), Call("a", "committed", 0),
        *(Call("a", "resume", number) for number in range(4)), Poll("a"), Call("a", "position", 0), Commit("a", 0, 5),
    ),
    "a topic is there again, and whoever has not looked is beyond its end": (
        *ALONE, *(Call("a", "pause", number) for number in range(4)), Wait(), Remove(), Create(), Produce(partition=0, count=1), Wait(),
        *(Call("a", "resume", number) for number in range(4)), Poll("a"), Call("a", "position", 0), Call("a", "position", 1),
    ),
    "two share a topic that is deleted and made anew": (
        *A_FEW, Start("a", SOON), Settle(), Start("b"), Settle(), Remove(), Wait(seconds=2.0), Settle(), Create(), *MORE, Wait(seconds=2.0), Settle(),
        Poll("a"), Poll("b"),
    ),
    "a transaction on a topic that is deleted": (*OPEN, Remove(), Wait(), Transact("p", "commit"), Wait()),
    "a transaction on a topic that is there again": (
        *OPEN, Remove(), Wait(), Create(), Wait(), Transact("p", "commit"), Transact("p"), Transact("p", "send"), Transact("p", "commit"), *READ,
    ),
    "a producer on a topic that is there again": (
        *DONE, Wait(), Remove(), Create(), Wait(), Transact("p"), Transact("p", "send"), Transact("p", "position", 0, 1), Transact("p", "commit"), *READ,
    ),
}  # fmt: skip
NO_RESET: Mapping[str, Any] = {"auto_offset_reset": "none"}
KEPT: Script = (Produce(count=9), DeleteBelow(partition=0, offset=5))
OVERTAKEN: Script = (Call("a", "pause", 0), Wait(), *KEPT)
"""Records arrive while no member reads, and the first of them are removed."""
REMOVED: Mapping[str, Script] = {
    "a position is removed, and the client jumps to the end": (
        Start("a", {"auto_offset_reset": "latest"}), Settle(), Commit("a", 0, 2), Stop("a"), *KEPT, Start("b", {"auto_offset_reset": "latest"}),
        Settle(), Poll("b"), Call("b", "position", 0), Produce(partition=0, count=1), Poll("b"),
    ),
    "a position is removed, and that is an error": (
        Start("a"), Settle(), Commit("a", 0, 2), Stop("a"), *KEPT, Start("b", NO_RESET), Settle(), Poll("b", (0,)), Call("b", "position", 0),
        Poll("b", (0,)), Seek("b", 0, 5), Poll("b", (0,)),
    ),
    "all is removed": (
        Start("a"), Settle(), Commit("a", 0, 2), Stop("a"), Produce(count=9), DeleteBelow(partition=0, offset=9), Start("b", NO_RESET), Settle(),
        Call("b", "beginning_offsets", 0), Call("b", "end_offsets", 0), Poll("b", (0,)), Seek("b", 0, 9), Poll("b", (0,)), Produce(partition=0, count=1),
        Poll("b", (0,)),
    ),
    "a member is overtaken, and jumps to the end": (
        Produce(count=2), Start("a", {"auto_offset_reset": "earliest"}), Settle(), Poll("a"), Commit("a", 0, 2), Stop("a"),
        Start("a", {"auto_offset_reset": "latest"}), Settle(), Poll("a"), *OVERTAKEN, Call("a", "resume", 0), Wait(), Poll("a"), Call("a", "position", 0),
    ),
    "a member is overtaken, and goes on at the start": (
        Produce(count=2), Start("a"), Settle(), Poll("a"), *OVERTAKEN, Call("a", "resume", 0), Poll("a"), Call("a", "position", 0),
    ),
    "a member is overtaken, and that is an error": (
        Produce(count=2), Start("a"), Settle(), Poll("a"), Commit("a", 0, 2), Stop("a"), Start("a", NO_RESET), Settle(), Poll("a", (0,)), *OVERTAKEN,
        Call("a", "resume", 0), Poll("a", (0,)), Call("a", "position", 0), Seek("a", 0, 5), Poll("a", (0,)),
    ),
    "a seek as soon as a partition is assigned": (
        *A_FEW, Start("a", NO_RESET), Settle(), Seek("a", 0, 0), Seek("a", 1, 1), Poll("a", (0, 1)), Call("a", "position", 1),
    ),
    "a position at a control marker": (
        *DONE, Wait(), Start("a"), Settle(), Commit("a", 0, 1), Stop("a"), Start("r", {**NO_RESET, "isolation_level": "read_committed"}), Settle(),
        Call("r", "position", 0), Poll("r", (0,)), Produce(partition=0, count=1), Poll("r", (0,)), Call("r", "position", 0),
    ),
    "a position at an aborted record": (
        *OPEN, Transact("p", "send"), Transact("p", "abort"), Wait(), Start("a"), Settle(), Commit("a", 0, 1), Stop("a"),
        Start("r", {**NO_RESET, "isolation_level": "read_committed"}), Settle(), Poll("r", (0,)), Call("r", "position", 0), Produce(partition=0, count=1),
        Poll("r", (0,)), Call("r", "position", 0),
    ),
    "a position behind the start of an open transaction": (
        Produce(), *OPEN, Transact("p", "send"), Start("a"), Settle(), Commit("a", 0, 4), Stop("a"),
        Start("r", {**NO_RESET, "isolation_level": "read_committed"}), Settle(), Call("r", "end_offsets", 0), Call("r", "log_ends", 0),
        Poll("r", (0,)), Call("r", "position", 0), Transact("p", "commit"), Poll("r", (0,)),
    ),
    "an open transaction is removed": (
        Produce(), *OPEN, Transact("p", "send"), Produce(count=2), DeleteBelow(partition=0, offset=4), *READ, Call("r", "beginning_offsets", 0),
        Call("r", "log_ends", 0), Transact("p", "commit"), Poll("r"), Call("r", "end_offsets", 0),
    ),
    "all of an open transaction is removed": (
        Produce(), *OPEN, Produce(count=3), DeleteBelow(partition=0, offset=5), *READ, Call("r", "beginning_offsets", 0),
        Transact("p", "abort"), Poll("r"), Call("r", "end_offsets", 0),
    ),
}  # fmt: skip
BY_HAND = {**BY_HAND, **TRANSACTIONS, **DELETED, **REMOVED}


def of_the_table() -> Mapping[str, Script]:
    scripts: dict[str, Script] = {}
    for request, codes in CODES.items():
        outcomes = ("unsent", "lost reply", *(code.__name__ for code in codes)) if codes else ()
        for outcome in outcomes:
            for times in (1, 1_000):
                strike = Strike("p" if request in OF_PRODUCERS else "a", request.__name__, outcome, times)
                name = f"{request.__name__} {outcome} {'once' if times == 1 else 'always'}"
                scripts[name] = around(strike)
    return scripts


JOINS_AGAIN = ("RebalanceInProgressError", "UnknownMemberIdError", "IllegalGenerationError")
"""After these heartbeat answers the time of a poll's answer is unpredictable."""


def around(strike: Strike) -> Script:
    if strike.member == "p":
        return in_a_transaction(strike)
    match strike.request:
        case "OffsetCommit":
            return (
                *ALONE,
                strike,
                Commit("a", 0, 2, way="later"),
                Wait(),
                Heal("a"),
                Outcomes("a"),
                Settle(),
                Commit("a", 0, 3),
            )
        case "LeaveGroup":
            return (*ALONE, strike, Stop("a"), Wait(seconds=5.0), Start("b"), Settle(), Poll("b"))
        case "ListOffsets":
            later: Script = (
                (strike, Call("a", "beginning_offsets", 0)) if strike.times == 1 else (strike, Wait(), Heal("a"))
            )
            return (*ALONE, *later, Call("a", "end_offsets", 0))
        case "Fetch":
            return (*ALONE, strike, Wait(), Produce(partition=0), Poll("a"), Heal("a"), Poll("a"))
        case "Heartbeat" if strike.outcome in JOINS_AGAIN:
            return (*ALONE, strike, Wait(), Heal("a"), Settle(), Poll("a"), Commit("a", 0, 1))
        case "Heartbeat":
            return (
                *ALONE,
                strike,
                Wait(),
                Poll("a"),
                Heal("a"),
                Wait(seconds=5.0),
                Poll("a"),
                Settle(),
                Commit("a", 0, 1),
            )
        case _:
            begun: Script = (
                (*A_FEW, strike, Start("a"), Wait(), Poll("a"))
                if strike.times == 1
                else (*A_FEW, strike, Start("a"), Wait())
            )
            return (*begun, Heal("a"), Settle(), Poll("a"), Commit("a", 0, 1), Call("a", "committed", 0))


CALLS: Mapping[str, str] = {
    "AddPartitionsToTxn": "send",
    "Produce": "send",
    "AddOffsetsToTxn": "position",
    "TxnOffsetCommit": "position",
    "EndTxn": "commit",
}


def in_a_transaction(strike: Strike) -> Script:
    if strike.request == "InitProducerId":
        begun: Script = (strike, Begin("p", way="later"), Wait(), Heal("p"), Outcomes("p"))
    else:
        begun = (Begin("p"),)
    steps: list[Step] = [*begun, Transact("p")]
    for call in ("send", "position", "commit"):
        if CALLS.get(strike.request) == call:
            steps += [strike, Transact("p", call, way="later"), Wait(), Heal("p"), Outcomes("p")]
        else:
            steps.append(Transact("p", call))
    return (
        *steps,
        Transact("p", "abort"),
        Wait(),
        Transact("p"),
        Transact("p", "send", 1),
        Transact("p", "commit"),
        *READ,
    )


def by_seed(seed: int) -> Script:
    """The group comes to rest between steps; otherwise the outcome is not deterministic."""
    random = Random(seed)
    steps: list[Step] = [Produce(partition=number, count=random.randint(1, 5)) for number in range(4)]
    running: list[str] = []
    idle = list("fedcba")
    for _ in range(8):
        kinds = ["start"] * (len(running) < 2 and bool(idle)) + [
            "stop",
            "kill",
            "poll",
            "commit",
            "commit",
            "call",
            "produce",
        ] * bool(running)
        match random.choice(kinds):
            case "start":
                running.append(idle.pop())
                steps.append(Start(running[-1], commits=random.choice((None, 1, 2))))
                if random.random() < 0.2:
                    steps.append(
                        Strike(
                            running[-1],
                            *random.choice(
                                (("JoinGroup", "lost reply"), ("SyncGroup", "unsent"), ("OffsetFetch", "unsent"))
                            ),
                        )
                    )
            case "stop" | "kill" as way:
                member = running.pop(random.randrange(len(running)))
                steps += [Stop(member)] if way == "stop" else [Kill(member), Wait(seconds=5.0)]
            case "poll":
                steps.append(Poll(random.choice(running), random.choice(((), (0,), (1, 2)))))
            case "commit":
                steps.append(
                    Commit(random.choice(running), random.randrange(4), random.randint(0, 6), random.choice(("", "m")))
                )
            case "call":
                call = random.choice(("committed", "end_offsets", "pause", "resume", "paused"))
                steps.append(Call(random.choice(running), call, random.randrange(4)))
            case "produce":
                steps.append(Produce(partition=random.randrange(4), kind=random.choice(("plain", "transaction"))))
            case _:
                pass
        steps.append(Settle())
    return (*steps, *(Poll(member) for member in running))


def transactions_by_seed(seed: int) -> Script:
    """It awaits the markers of each transaction; otherwise offsets would depend on timing."""
    random = Random(f"transactions {seed}")
    steps: list[Step] = [Start("r", COMMITTED), Settle()]
    there: list[str] = []
    for number in range(12):
        if len(there) < 2 or random.random() < 0.15:
            there.append(f"p{number}")
            steps += [Begin(there[-1], random.choice("xy")), Wait(seconds=0.4), Transact(there[-1])]
            continue
        member, partition = random.choice(there[-3:]), random.randrange(2)
        match random.choice(("send", "send", "position", "commit", "commit", "abort", "kill")):
            case "kill":
                there.remove(member)
                steps.append(Transact(member, "kill"))
            case "commit" | "abort" as call:
                steps += [Transact(member, call), Wait(seconds=0.4), Transact(member)]
            case call:
                steps.append(Transact(member, call, partition, random.randint(0, 6), random.choice(("", "m"))))
    return (*steps, Poll("r"), *(Call("r", "end_offsets", number) for number in range(2)))


async def really(bootstrap: str, scripts: Mapping[str, Script]) -> Mapping[str, Account]:
    at_once = asyncio.Semaphore(60)

    async def one(script: Script) -> Account:
        async with at_once:
            name = f"agreement-{uuid4().hex}"
            kafka = RealKafka(bootstrap, name, name)
            await kafka.create()
            try:
                async with asyncio.timeout(SCRIPT_S):
                    return await play(script, kafka)
            except TimeoutError:  # aiokafka's sender task may end silently
                return {"the script": ("does not end",)}

    return dict(zip(scripts, await asyncio.gather(*map(one, scripts.values())), strict=True))


def simulated(script: Script, seed: int = 1) -> Account:
    async def played(random: Random) -> Account:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)  # aiokafka leaves errors behind
        return await play(script, SimulatedKafka(random))

    return run(played, seed)


def check(bootstrap: str, scripts: Mapping[str, Script]) -> None:
    """Replays scripts that differ: on a busy machine a group may change between two steps."""
    expected = {name: simulated(script) for name, script in scripts.items()}
    differs: dict[str, tuple[Account, Account]] = {}
    for _ in range(TURNS):
        real = asyncio.run(really(bootstrap, {name: scripts[name] for name in differs or scripts}))
        differs = {name: (account, expected[name]) for name, account in real.items() if account != expected[name]}
        if not differs:
            return
    told = "\n".join(f"{name}\n  real      {real}\n  simulated {other}" for name, (real, other) in differs.items())
    pytest.fail(f"{len(differs)} of {len(scripts)}\n{told}")


@pytest.fixture(autouse=True)
def _silent() -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def test_scripts_by_hand_are_answered_alike(kafka: str) -> None:
    soon = {name: script for name, script in BY_HAND.items() if waited_s(script) <= KAFKA_WAIT_S}
    check(kafka, {name: soon[name] for name in tuple(soon)[::KAFKA_HAND_STEP]})


def test_scripts_of_the_table_and_at_random_are_answered_alike(kafka: str) -> None:
    table, seeds = of_the_table(), range(KAFKA_SCRIPTS)
    by_code = {name: table[name] for name in tuple(table)[::KAFKA_TABLE_STEP]}
    members = {f"members, seed {seed}": by_seed(seed) for seed in seeds}
    scripts = {**by_code, **members, **{f"producers, seed {seed}": transactions_by_seed(seed) for seed in seeds}}
    check(kafka, {name: script for name, script in scripts.items() if waited_s(script) <= KAFKA_WAIT_S})


def waited_s(script: Script) -> float:
    return sum(step.seconds for step in script if isinstance(step, Wait))


@pytest.mark.parametrize("name", BY_HAND)
def test_a_script_is_answered_alike_whatever_goes_first(name: str) -> None:
    """Otherwise no comparison would be possible."""
    assert len({repr(simulated(BY_HAND[name], seed)) for seed in range(5)}) == 1
