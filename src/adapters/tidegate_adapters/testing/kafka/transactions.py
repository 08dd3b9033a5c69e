"""Who writes under a transactional id, and what belongs to its transaction: the coordinator of a Kafka broker.

    EMPTY ──something is added──> ONGOING ──ends──> ENDING ──all marks are written──> ENDED ──something is added──> ONGOING

Written after Kafka 4.1's `TransactionCoordinator`, as a client of aiokafka 0.14 meets it (the first version of each request, so
its epoch stays from one transaction to the next), and held against a real broker by tests.

What a client meets here that it may not expect:
    The end is answered when it is decided; the marks that let others see it are written later, to each log and each group by
    itself. Until then whoever asks for a producer, or adds to the next transaction, is told ConcurrentTransactions.
    Whoever asks for a producer fences the one before, and aborts what is open: it is told ConcurrentTransactions meanwhile.
    A transaction that lasts longer than its producer has said is aborted, and its producer fenced, at the next of the broker's
    rounds, which are ten seconds apart.
    To end a transaction again as it has ended is answered as if it were the first time, but for an empty one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, unique
from itertools import count
from typing import Final, TypeAlias, final

import attrs
from aiokafka import errors

from tidegate_adapters.testing.kafka.membership import BrokerClock
from tidegate_adapters.testing.kafka.requests import Code, EndTxn, InitProducerId, Partition, ProducerEpoch

Part: TypeAlias = Partition | str
"""What belongs to a transaction: a partition, or a group."""

_TIMEOUT_MAX_S: Final = 900.0
_ROUND_S: Final = 10.0
_NEW: Final = -1
"""The epoch before the first."""


@final
@unique
class _Phase(Enum):
    """Where a transactional id stands."""

    EMPTY = "empty"
    ONGOING = "ongoing"
    ENDING = "ending"
    ENDED = "ended"


@final
@attrs.define(eq=False)
class _Transaction:
    """The transactions of an id, one after the other."""

    producer: ProducerEpoch
    timeout_s: float
    phase: _Phase = _Phase.EMPTY
    is_commit: bool = False
    parts: dict[Part, None] = attrs.field(factory=dict)
    timer: asyncio.TimerHandle | None = None


@final
class TransactionCoordinator:
    """Those of a broker.

    Args:
        clock: Its timers.
        decided: Is called when a transaction is committed or aborted, with its parts, before any mark is written.
        marked: Writes a mark.
        mark_s: How long the next mark takes.
    """

    def __init__(
        self,
        clock: BrokerClock,
        decided: Callable[[str, ProducerEpoch, tuple[Part, ...], bool], None],
        marked: Callable[[ProducerEpoch, Part, bool], None],
        mark_s: Callable[[], float],
    ) -> None:
        self._clock, self._decided, self._marked, self._mark_s = clock, decided, marked, mark_s
        self._ids = count(1)
        self._transactions: dict[str, _Transaction] = {}

    def begin(self, request: InitProducerId) -> ProducerEpoch | Code:
        """Make a producer; of a transactional id it fences the one before."""
        if request.transactional_id is None:
            return ProducerEpoch(next(self._ids), 0)
        if not 0 < request.timeout_s <= _TIMEOUT_MAX_S:
            return errors.InvalidTransactionTimeout
        now = self._transactions.get(request.transactional_id)
        if now is None:
            now = _Transaction(ProducerEpoch(next(self._ids), _NEW), request.timeout_s)
            self._transactions[request.transactional_id] = now
        if now.phase is _Phase.ENDING:
            return errors.ConcurrentTransactions
        now.producer = now.producer._replace(epoch=now.producer.epoch + 1)
        if now.phase is _Phase.ONGOING:
            self._end(request.transactional_id, now, is_commit=False)
            return errors.ConcurrentTransactions
        now.timeout_s, now.phase = request.timeout_s, _Phase.EMPTY
        return now.producer

    def add(self, transactional_id: str, producer: ProducerEpoch, *parts: Part) -> Code:
        """Let parts belong to the transaction, which begins with the first."""
        code = self._judged(transactional_id, producer)
        if code is not errors.NoError:
            return code
        now = self._transactions[transactional_id]
        if now.phase is _Phase.ENDING:
            return errors.ConcurrentTransactions
        if now.phase is not _Phase.ONGOING:
            now.phase, now.parts = _Phase.ONGOING, {}
            due = self._clock.time() + now.timeout_s
            round_s = _ROUND_S * (due // _ROUND_S + 1)
            now.timer = self._clock.call_later(
                round_s - self._clock.time(), self._time_out, transactional_id, now, producer
            )
        now.parts.update(dict.fromkeys(parts))
        return errors.NoError

    def end(self, request: EndTxn) -> Code:
        """Commit or abort."""
        code = self._judged(request.transactional_id, request.producer)
        if code is not errors.NoError:
            return code
        now = self._transactions[request.transactional_id]
        if now.phase is _Phase.ONGOING:
            self._end(request.transactional_id, now, is_commit=request.is_commit)
            return errors.NoError
        if now.phase is _Phase.EMPTY or now.is_commit != request.is_commit:
            return errors.InvalidTxnState
        return errors.ConcurrentTransactions if now.phase is _Phase.ENDING else errors.NoError

    def verified(self, transactional_id: str | None, producer: ProducerEpoch, part: Part) -> Code:
        """Does this part belong to the ongoing transaction?"""
        code = self._judged(transactional_id or "", producer)
        if code is not errors.NoError:
            return code
        now = self._transactions[transactional_id or ""]
        if now.phase is _Phase.ENDING:
            return errors.ConcurrentTransactions
        is_part = now.phase is _Phase.ONGOING and part in now.parts
        return errors.NoError if is_part else errors.InvalidTxnState

    def _judged(self, transactional_id: str, producer: ProducerEpoch) -> Code:
        now = self._transactions.get(transactional_id)
        if now is None or now.producer.id != producer.id:
            return errors.InvalidProducerIdMapping
        return errors.NoError if now.producer.epoch == producer.epoch else errors.InvalidProducerEpoch

    def _time_out(self, transactional_id: str, now: _Transaction, producer: ProducerEpoch) -> None:
        if now.phase is _Phase.ONGOING and now.producer == producer:
            now.producer = producer._replace(epoch=producer.epoch + 1)
            self._end(transactional_id, now, is_commit=False)

    def _end(self, transactional_id: str, now: _Transaction, *, is_commit: bool) -> None:
        """Decide, and write a mark to each part, each after a while."""
        now.phase, now.is_commit = _Phase.ENDING, is_commit
        if now.timer is not None:
            now.timer.cancel()
        self._decided(transactional_id, now.producer, tuple(now.parts), is_commit)
        left = {*now.parts}

        def mark(part: Part) -> None:
            self._marked(now.producer, part, is_commit)
            left.discard(part)
            if not left:
                now.phase = _Phase.ENDED

        for part in now.parts:
            self._clock.call_later(self._mark_s(), mark, part)
