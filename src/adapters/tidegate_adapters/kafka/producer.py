"""Sends handlers' replies and dead letters.

All in-sync replicas acknowledge a send BEFORE the record that caused it is done:

    handled -> sent -> done       `runtime.CallEach.then`: the reply is reported after it (RT9)
    failed -> written -> done     the partition requests `DeliverRecords`; its reply follows

`tests/integration/kafka_runs.py` tests both with slow and failing sends (the kinds `sends` and
`letters`). After a crash in between, the record is handled and sent again: at least once. An
unanswered send is retried (`tidegate_adapters.sinks.port`); a refused one fails its record. A
refused dead letter is retried (`tidegate.sinks.letter_writing`) until the partition is revoked; its
record stays unfinished.

A failed send replaces the producer: aiokafka's sequence numbers include unsent records, so each
later send would be out of order. Sends that wait for the old producer use the new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from time import time
from typing import Final, NamedTuple, final

from tidegate.model.effects import Failure
from tidegate.model.errors import TidegateError
from tidegate.model.instants import SECOND, WALL, Instant, seconds
from tidegate.model.records import Record, Send
from tidegate.sinks.dead_letters import DeadLetter, RefusedOutput, encode
from tidegate.sinks.letter_writing import Attempt, Settled, after_attempt
from tidegate_adapters.base.log_fields import say
from tidegate_adapters.kafka import client as ports
from tidegate_adapters.kafka.client import Producer
from tidegate_adapters.kafka.settings import letter_topic
from tidegate_adapters.sinks.port import Outbox, Sink

_LASTS_S: Final = 120.0
"""Three times the client's own timeout, because its sender may end silently."""
_BATCH_BYTES: Final = 16_384
"""aiokafka's batch size; above it payloads are queued concurrently, so that a full partition does
not block others.
"""


@final
class KafkaSink(Sink[Sequence[Send]]):
    """Sends records by a producer made on demand.

    A payload is one handler's reply: its records keep their order within a partition, and one
    failure repeats all.
    """

    name = "kafka"

    def __init__(self, make: Callable[[], Producer]) -> None:
        self._make = make
        self._producer: Producer | None = None
        self._starts = asyncio.Lock()
        self._spoilt: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    async def deliver(self, payloads: Sequence[Sequence[Send]], /) -> Sequence[Failure | None]:
        try:
            async with asyncio.timeout(_LASTS_S):
                if len(payloads) == 1 or sum(map(_size, payloads)) <= _BATCH_BYTES:
                    sent = [await self._queued(each) for each in payloads]
                else:
                    sent = await asyncio.gather(*map(self._queued, payloads))
                return [await self._sent(records, *each) for records, each in zip(payloads, sent, strict=True)]
        except BaseException:
            self._replace(self._producer)
            raise

    async def _queued(
        self, records: Sequence[Send]
    ) -> tuple[Producer | None, list[asyncio.Future[object]] | Exception]:
        """If another failure closes the producer meanwhile, use the next one."""
        producer = None
        while True:
            try:
                producer = await self._started()
                return producer, await queued(producer, records)
            except ports.PRODUCER_CLOSED as error:
                if self._producer is producer:
                    return producer, error
            except Exception as error:  # noqa: BLE001  the outcome is returned
                return producer, error

    async def _sent(
        self, records: Sequence[Send], producer: Producer | None, sent: list[asyncio.Future[object]] | Exception
    ) -> Failure | None:
        if isinstance(sent, Exception):
            return ports.send_failure(sent)
        try:
            await acknowledged(records, sent)
        except Exception as error:  # noqa: BLE001  as above
            self._replace(producer)
            return ports.send_failure(error)
        return None

    async def stop(self) -> None:
        self._is_stopped = True
        self._replace(self._producer)
        if self._spoilt:
            await asyncio.wait(self._spoilt)

    async def _started(self) -> Producer:
        if self._producer is not None:
            return self._producer
        async with self._starts:
            if self._is_stopped:
                raise TidegateError("nothing is sent any more", why="the worker has left its group")
            if self._producer is None:
                made = self._make()
                try:
                    await made.start()
                except BaseException:
                    self._end(made)
                    raise
                self._producer = made
            return self._producer

    def _replace(self, producer: Producer | None) -> None:
        if producer is not None and self._producer is producer:
            self._producer = None
            self._end(producer)

    def _end(self, producer: Producer) -> None:
        async def stop() -> None:
            with suppress(Exception):
                await producer.stop()

        task = asyncio.get_running_loop().create_task(stop())
        self._spoilt.add(task)
        task.add_done_callback(self._spoilt.discard)


def _size(records: Iterable[Send]) -> int:
    return sum(len(each.value or b"") for each in records)


async def queued(producer: Producer, records: Iterable[Send]) -> list[asyncio.Future[object]]:
    found: list[asyncio.Future[object]] = []
    for each in records:
        try:
            found.append(asyncio.ensure_future(await producer.send(each)))
        except Exception as error:
            _note(error, each)
            raise
        found[-1].add_done_callback(_seen)
    return found


async def acknowledged(records: Iterable[Send], sent: Iterable[asyncio.Future[object]]) -> None:
    """Wait for all acknowledgements.

    Raises:
        Exception: The client's error for the first failure, with a note that names its topic.
    """
    for record, each in zip(records, sent, strict=True):
        try:
            await each
        except Exception as error:
            _note(error, record)
            raise


def _note(error: Exception, record: Send) -> None:
    note = f"sending to {record.topic}"
    if note not in getattr(error, "__notes__", ()):  # the records of a request may share it
        error.add_note(note)


def _seen(sent: asyncio.Future[object]) -> None:
    """Mark the exception as retrieved: the waiter may be gone."""
    if not sent.cancelled():
        sent.exception()


@final
class Failed(NamedTuple):
    """The number of attempts at a record, and the last error."""

    attempts: int = 0
    error: str | None = None
    message: str | None = None


def failed_by(error: BaseException, attempts: int) -> Failed:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        return Failed(attempts, name, str(error))
    except Exception:  # noqa: BLE001  the user's own __str__
        return Failed(attempts, name)


@final
class DeadLetters:
    """Writes dead letters."""

    def __init__(self, outbox: Outbox[Sequence[Send]], pattern: str, group: str) -> None:
        self._outbox, self._pattern, self._group = outbox, pattern, group

    def letter(self, record: Record, failed: Failed, output: RefusedOutput | None = None) -> Send:
        letter = DeadLetter(
            record=record, group=self._group, attempts=failed.attempts, error=failed.error, message=failed.message,
            at=Instant(round(time() * SECOND), WALL), output=output,
        )  # fmt: skip
        return encode(letter, letter_topic(self._pattern, record.topic))

    async def write(self, record: Record, failed: Failed) -> None:
        """Retries until the letter is written."""
        placed = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "attempt": failed.attempts,
        }
        letter, failures = self.letter(record, failed), 0
        topic = letter.topic
        while True:
            error = await self._attempted(letter)
            then = after_attempt(Attempt.WRITTEN if error is None else Attempt.FAILED, failures)
            if isinstance(then, Settled):
                say(
                    logging.WARNING,
                    "%s is written to %s after %s attempts",
                    record,
                    topic,
                    failed.attempts,
                    extra=placed,
                )
                return
            failures = then.failures
            say(logging.ERROR,
                "%s is held, for it cannot be written to %s, again in %s: %s: %s",
                record, topic, seconds(then.delay), type(error).__name__, error, extra=placed,
            )  # fmt: skip
            await asyncio.sleep(then.delay / SECOND)

    async def _attempted(self, letter: Send) -> Exception | None:
        try:
            await self._outbox.deliver((letter,))
        except Exception as error:  # noqa: BLE001  the record is not done
            return error
        return None
