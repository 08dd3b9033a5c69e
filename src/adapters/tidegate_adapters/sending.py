"""What a worker sends: the records that its handlers answer with, and its dead letters.

Each is acknowledged by all replicas in sync before the record that it was made of counts as done:

    handled -> sent -> done       `runtime.CallEach.then`: the reply of a handler is not told before it is sent (RT9)
    failed -> written -> done     the partition asks for an answer (`DeliverRecords`), and that is given once it is written

Both orders are tried by seed, with sends that are slow and fail (`tests/integration/kafka_runs.py`, the kinds `sends` and
`letters`). So a record whose worker dies in between is handled again, and sent again: at least once. What cannot be sent is a failure of
its record. A dead letter that cannot be written is written again as
`tidegate.sinks.letter_writing` says, or until its partition goes; the record is not done meanwhile, so nothing is lost.

A producer is made when there is something to send, and another one when something could not be: aiokafka's counts what it has
not sent among what it has, and is told from then on that it is out of order. Whoever else was about to send by the old one
sends by the new one, and has not failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from time import time
from typing import Final, NamedTuple, final

from tidegate.model.errors import TidegateError
from tidegate.model.instants import SECOND, WALL, Instant, seconds
from tidegate.model.records import Record, Send
from tidegate.sinks.dead_records import GivenUp, dead_record
from tidegate.sinks.letter_writing import Attempt, Settled, after_attempt
from tidegate_adapters import kafka_ports as ports
from tidegate_adapters.kafka_ports import Producer
from tidegate_adapters.record_fields import say
from tidegate_adapters.worker_settings import letter_topic

__all__ = ["DeadLetters", "Failed", "Sender", "acknowledged", "failed_by", "queued"]

_LASTS_S: Final = 120.0
"""The longest that a send takes: three times the client's own limit, for its sender may end without a word."""


@final
class Sender:
    """Sends records, by a producer that is made when it is needed.

    Args:
        make: Makes a producer.
    """

    def __init__(self, make: Callable[[], Producer]) -> None:
        self._make = make
        self._producer: Producer | None = None
        self._starts = asyncio.Lock()
        self._spoilt: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    async def send(self, records: Sequence[Send]) -> None:
        """Send them, in this order within a partition; return when all are acknowledged.

        Raises:
            TidegateError: The worker has left its group.
            Exception: What the client raises, with a note that names the topic. Some of them may have been sent then.
        """
        if not records:
            return
        async with asyncio.timeout(_LASTS_S):
            producer, sent = await self._queued_all(records)
            try:
                await acknowledged(records, sent)
            except BaseException:
                self._replace(producer)
                raise

    async def _queued_all(self, records: Sequence[Send]) -> tuple[Producer, list[asyncio.Future[object]]]:
        """With the producer; where another's failure closes it meanwhile, with the next one."""
        while True:
            producer = await self._started()
            try:
                return producer, await queued(producer, records)
            except ports.PRODUCER_CLOSED:
                if self._producer is producer:
                    raise

    async def stop(self) -> None:
        """Send nothing more."""
        self._is_stopped = True
        if self._producer is not None:
            self._replace(self._producer)
        if self._spoilt:
            await asyncio.wait(self._spoilt)

    async def _started(self) -> Producer:
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

    def _replace(self, producer: Producer) -> None:
        if self._producer is producer:
            self._producer = None
            self._end(producer)

    def _end(self, producer: Producer) -> None:
        async def stop() -> None:
            with suppress(Exception):
                await producer.stop()

        task = asyncio.get_running_loop().create_task(stop())
        self._spoilt.add(task)
        task.add_done_callback(self._spoilt.discard)


async def queued(producer: Producer, records: Iterable[Send]) -> list[asyncio.Future[object]]:
    """What each is acknowledged by, once it is in the producer's queue; whoever waits for it may go.

    Raises:
        Exception: As `acknowledged`.
    """
    found: list[asyncio.Future[object]] = []
    for each in records:
        with _noted(each):
            found.append(asyncio.ensure_future(await producer.send(each)))
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
        with _noted(record):
            await each


@contextmanager
def _noted(record: Send) -> Generator[None]:
    """What is raised within the block gets a note that says where this was to be sent; the client's says nothing of it."""
    try:
        yield
    except Exception as error:
        note = f"sending to {record.topic}"
        if note not in getattr(error, "__notes__", ()):  # all of a request may have one in common
            error.add_note(note)
        raise


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
        sender: What sends them.
        pattern: Where to.
        group: Whose they are.
    """

    def __init__(self, sender: Sender, pattern: str, group: str) -> None:
        self._sender, self._pattern, self._group = sender, pattern, group

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
            await self._sender.send((letter,))
        except Exception as error:  # noqa: BLE001  whatever it is, the record is not done
            return error
        return None
