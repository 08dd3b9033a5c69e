"""What a worker sends: the records that its handlers answer with, and its dead letters.

Each is acknowledged by all replicas in sync before the record that it was made of counts as done:

    handled -> sent -> done       `runtime.CallEach.then`: the reply of a handler is not told before it is sent (RT9)
    failed -> written -> done     the partition asks for an answer (`DeliverRecords`), and that is given once it is written

Both orders are tried by seed, with sends that are slow and fail (`tests/integration/kafka_runs.py`, the kinds `sends` and
`letters`). So a record whose worker dies in between is handled again, and sent again: at least once. What nobody has answered
is sent again (`tidegate_adapters.sinks.port`); what the broker refuses is a failure of its record. A dead letter that is refused is
written again as `tidegate.sinks.letter_writing` says, or until its partition goes; the record is not done meanwhile, so nothing is lost.

A producer is made when there is something to send, and another one when something could not be: aiokafka's counts what it has
not sent among what it has, and is told from then on that it is out of order. Whoever else was about to send by the old one
sends by the new one, and has not failed.
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
from tidegate.sinks.dead_records import GivenUp, dead_record
from tidegate.sinks.letter_writing import Attempt, Settled, after_attempt
from tidegate_adapters.base.log_fields import say
from tidegate_adapters.kafka import client as ports
from tidegate_adapters.kafka.client import Producer
from tidegate_adapters.kafka.settings import letter_topic
from tidegate_adapters.sinks.port import Outbox, Sink

_LASTS_S: Final = 120.0
"""The longest that a send takes: three times the client's own limit, for its sender may end without a word."""
_BATCH_BYTES: Final = 16_384
"""As much as aiokafka puts into one batch; with more, one partition that is full is not to hold up others."""


@final
class KafkaSink(Sink[Sequence[Send]]):
    """Sends records, by a producer that is made when it is needed. A payload is what one handler has answered with: its
    records are sent in this order within a partition, and again all of them where one has failed.

    Args:
        make: Makes a producer.
    """

    name = "kafka"

    def __init__(self, make: Callable[[], Producer]) -> None:
        self._make = make
        self._producer: Producer | None = None
        self._starts = asyncio.Lock()
        self._spoilt: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    async def deliver(self, payloads: Sequence[Sequence[Send]], /) -> Sequence[Failure | None]:
        """Send payloads; return when all are acknowledged, or have failed."""
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
        """By which producer, and what acknowledges each; where another's failure closes it meanwhile, by the next one."""
        producer = None
        while True:
            try:
                producer = await self._started()
                return producer, await queued(producer, records)
            except ports.PRODUCER_CLOSED as error:
                if self._producer is producer:
                    return producer, error
            except Exception as error:  # noqa: BLE001  it is told what became of each
                return producer, error

    async def _sent(
        self, records: Sequence[Send], producer: Producer | None, sent: list[asyncio.Future[object]] | Exception
    ) -> Failure | None:
        """What became of a payload; a producer that could not send something is not used again."""
        if isinstance(sent, Exception):
            return ports.send_failure(sent)
        try:
            await acknowledged(records, sent)
        except Exception as error:  # noqa: BLE001  as above
            self._replace(producer)
            return ports.send_failure(error)
        return None

    async def stop(self) -> None:
        """Send nothing more."""
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
    """About how much space records take."""
    return sum(len(each.value or b"") for each in records)


async def queued(producer: Producer, records: Iterable[Send]) -> list[asyncio.Future[object]]:
    """What each is acknowledged by, once it is in the producer's queue; whoever waits for it may go.

    Raises:
        Exception: As `acknowledged`.
    """
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
    """Wait until all are acknowledged.

    Args:
        records: What was sent.
        sent: What `queued` has answered.

    Raises:
        Exception: What the client raises for the first that is not, with a note that names its topic.
    """
    for record, each in zip(records, sent, strict=True):
        try:
            await each
        except Exception as error:
            _note(error, record)
            raise


def _note(error: Exception, record: Send) -> None:
    """Note where this was to be sent; the client's error says nothing of it."""
    note = f"sending to {record.topic}"
    if note not in getattr(error, "__notes__", ()):  # all of a request may have one in common
        error.add_note(note)


def _seen(sent: asyncio.Future[object]) -> None:
    """Whoever waited for it may be gone."""
    if not sent.cancelled():
        sent.exception()


@final
class Failed(NamedTuple):
    """What became of the attempts at a record: how many there were, and what the last one raised."""

    attempts: int = 0
    error: str | None = None
    message: str | None = None


def failed_by(error: BaseException, attempts: int) -> Failed:
    """The failure of a record at which this was raised.

    Args:
        error: What was raised.
        attempts: How often its handler was tried.
    """
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        return Failed(attempts, name, str(error))
    except Exception:  # noqa: BLE001  the user's own __str__
        return Failed(attempts, name)


@final
class DeadLetters:
    """Writes dead letters.

    Args:
        outbox: What sends them.
        pattern: Where to.
        group: Whose they are.
    """

    def __init__(self, outbox: Outbox[Sequence[Send]], pattern: str, group: str) -> None:
        self._outbox, self._pattern, self._group = outbox, pattern, group

    def letter(self, record: Record, failed: Failed) -> Send:
        """The dead letter of a record.

        Args:
            record: What could not be handled.
            failed: What became of the attempts at it.
        """
        why = GivenUp(
            group=self._group, attempts=failed.attempts, error=failed.error, message=failed.message,
            at=Instant(round(time() * SECOND), WALL),
        )  # fmt: skip
        return dead_record(record, why, letter_topic(self._pattern, record.topic))

    async def write(self, record: Record, failed: Failed) -> None:
        """Write it, again and again until it is written.

        Args:
            record: What could not be handled.
            failed: What became of the attempts at it.
        """
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
        """What an attempt to write it has raised, if anything."""
        try:
            await self._outbox.deliver((letter,))
        except Exception as error:  # noqa: BLE001  whatever it is, the record is not done
            return error
        return None
