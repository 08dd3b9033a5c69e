"""The transaction coordinator of a simulated Kafka broker.

    EMPTY ──add──> ONGOING ──end──> ENDING ──all markers written──> ENDED ──add──> ONGOING

It follows Kafka 4.1's `TransactionCoordinator` as aiokafka 0.14 uses it: the first version of each
request, so the epoch stays from one transaction to the next. Tests compare it with a real broker.

Behaviour that clients may not expect:
    The end is answered once decided; markers make it visible later, in each log and group
        separately. Until then, registering a producer or adding to the next transaction gets
        ConcurrentTransactions.
    Registering a producer fences the previous one and aborts its open transaction; meanwhile it
        gets ConcurrentTransactions.
    A transaction beyond its timeout is aborted and its producer fenced at the broker's next round,
        every ten seconds.
    Repeating an end gets the same answer, except after an empty transaction.
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
_TIMEOUT_MAX_S: Final = 900.0
_ROUND_S: Final = 10.0
_NEW: Final = -1


@final
@unique
class _Phase(Enum):
    EMPTY = "empty"
    ONGOING = "ongoing"
    ENDING = "ending"
    ENDED = "ended"


@final
@attrs.define(eq=False)
class _Transaction:
    producer: ProducerEpoch
    timeout_s: float
    phase: _Phase = _Phase.EMPTY
    is_commit: bool = False
    parts: dict[Part, None] = attrs.field(factory=dict)
    timer: asyncio.TimerHandle | None = None


@final
class TransactionCoordinator:
    """Calls `decided` at a commit or abort with the parts, then `marked` for each part's marker."""

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
        """Register a producer; a transactional id's earlier one is fenced."""
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
        """The first call begins a transaction."""
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
