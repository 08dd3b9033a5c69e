"""`tidegate dead-letters`: lists, shows and replays the dead letters of a worker or a pipeline.

The decisions are those of `tidegate.sinks.replay`. A command reads each partition of the dead-letter
topics with a consumer that joins no group and commits for `GROUP.replay`. Each plan is committed
BEFORE the next letters are read.
"""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic, time
from typing import Any, Final, Protocol, cast, final

from attrs import evolve

from tidegate.exit_codes import ExitCode
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import SECOND, WALL, Instant
from tidegate.model.records import Record, TopicPartition
from tidegate.retries.backoff import Exponential, Policy
from tidegate.sinks.circuit_breaker import CircuitBreaker
from tidegate.sinks.dead_letters import DeadLetter, Undecodable, decode
from tidegate.sinks.delivery import Action, DeliveryRules
from tidegate.sinks.outbox import OutboxRules
from tidegate.sinks.replay import (
    Choice,
    Leave,
    Redeliver,
    ReplayRules,
    ReplayState,
    Requeue,
    Selection,
    Stop,
    Target,
    begin,
    plan,
    settle,
)
from tidegate_adapters.base.errors import NothingSelectedError
from tidegate_adapters.base.log_fields import named
from tidegate_adapters.base.redaction import one_line
from tidegate_adapters.base.times import time_of, when
from tidegate_adapters.kafka import client as ports
from tidegate_adapters.kafka import decoding
from tidegate_adapters.kafka.client import Client, Connect, Produce, client, producer, record_of, theirs
from tidegate_adapters.kafka.producer import KafkaSink
from tidegate_adapters.kafka.settings import WorkerSettings
from tidegate_adapters.pipeline.letters import output_of
from tidegate_adapters.pipeline.settings import PipelineSettings
from tidegate_adapters.runtime.handlers import letters_of, pattern_of
from tidegate_adapters.shell.application import Answer, listing
from tidegate_adapters.sinks.outputs import Delivery
from tidegate_adapters.sinks.port import Outbox, Sink

AT_ONCE: Final = 100
"""The most letters of a plan: what a replay that is killed repeats at most."""
_PATIENCE_S: Final = 30.0
_ADDRESS: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)@(?P<offset>[0-9]+)")
_OFFSETS: Final = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_OUTBOX: Final = OutboxRules(
    breaker=CircuitBreaker(cooldown=SECOND),
    delivery=DeliveryRules(
        sending=Policy(backoff=Exponential(SECOND // 10, cap=2 * SECOND), attempts_max=5),
        refused=Action.HOLD,
        lasting=Action.HOLD,
        dead_lettering=None,
    ),
)
"""A delivery that is not answered is tried five times, then the letter stays."""


class _Reading(Client, Protocol):
    """A client that reads what it is told to, in no group."""

    def assign(self, partitions: Sequence[object]) -> None: ...
    async def position(self, partition: object) -> int: ...


class _Starting(Sink[Delivery], Protocol):
    async def start(self) -> None: ...


@final
class LetterTopics:
    """The dead-letter topics of an application.

    Args:
        settings: The settings of the application.
        sinks: Its sinks, by name.
        connect: Makes the client.
        produce: Makes the producer of re-queued records.

    Raises:
        Misuse: The application has no dead-letter topic.
    """

    def __init__(
        self,
        settings: WorkerSettings | PipelineSettings,
        sinks: Mapping[str, _Starting],
        connect: Connect = client,
        produce: Produce = producer,
    ) -> None:
        if settings.dead_letter is None:
            raise Misuse("the application has no dead letters", todo="set dead_letter to the topic that has them")
        self.settings, self.sinks, self._connect, self.produce = settings, sinks, connect, produce
        names = pattern_of(settings.topics).removeprefix("^").removesuffix("$")
        self._pattern = re.compile(letters_of(settings.dead_letter, f"(?:{names})"))

    @asynccontextmanager
    async def reading(self, group: str | None) -> AsyncGenerator[Reader, None]:
        """Connect a reader.

        Args:
            group: The consumer group of replays; None for the usual one.
        """
        options = {**self.settings.options, "isolation_level": "read_committed"}
        options.pop("group_instance_id", None)
        consumer = self._connect(self.settings.bootstrap, group or f"{self.settings.group}.replay", options)
        try:
            await ports.start(consumer)
            yield Reader(cast("_Reading", consumer), self._pattern)
        finally:
            await consumer.stop()


@final
class Reader:
    """Reads dead letters, and what a group has replayed of them."""

    def __init__(self, consumer: _Reading, pattern: re.Pattern[str]) -> None:
        self._consumer, self._pattern = consumer, pattern

    async def partitions(self) -> list[TopicPartition]:
        """The partitions of the dead-letter topics."""
        there = await ports.partitions(self._consumer)
        return sorted(each for each in there if self._pattern.fullmatch(each.topic))

    async def begin(self, partition: TopicPartition, begun: int = 0) -> tuple[ReplayState, int, int]:
        """The state of a replay, and the first offset and the end of the partition now."""
        place = theirs(partition)
        self._consumer.assign([place])
        start = (await self._consumer.beginning_offsets([place]))[place]
        end = max(start, await ports.end(self._consumer, partition))
        committed = (await ports.committed(self._consumer, [partition])).get(partition)
        return begin(committed, start, end, begun), start, end

    async def read(
        self, partition: TopicPartition, position: int, end: int, most: int = AT_ONCE
    ) -> AsyncIterator[list[Record]]:
        """The records of an assigned partition up to the end, some at a time.

        Raises:
            TidegateError: The broker does not answer.
        """
        place, before = theirs(partition), position
        received: Sequence[ports.Received] = ()
        self._consumer.seek(place, position)
        while position < end:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    while position == before:
                        received = await self._fetched(partition, position, most)
                        position = await self._consumer.position(place)
            except TimeoutError:
                raise TidegateError(f"{partition} cannot be read at @{position}: the broker does not answer") from None
            before = position
            if read := [record_of(each) for each in received if each.offset < end]:
                yield read

    async def _fetched(self, partition: TopicPartition, position: int, most: int) -> Sequence[ports.Received]:
        place = theirs(partition)
        try:
            found = await self._consumer.getmany(place, timeout_ms=200, max_records=most)
        except Exception as error:
            if not decoding.is_undecodable(error):
                raise
            self._consumer.seek(place, position)
            raw = await decoding.read(self._consumer, partition, position)
            if raw is None:
                return ()
            self._consumer.seek(place, raw.stop)
            return raw.records
        return [each for some in found.values() for each in some]

    async def commit(self, partition: TopicPartition, position: tuple[int, str]) -> None:
        """Commit for the group of replays."""
        await ports.commit(self._consumer, {partition: position}, None)


@final
class _Deliveries:
    """Delivers letters to sinks and topics, each of which is connected when a letter needs it."""

    def __init__(self, topics: LetterTopics) -> None:
        self._topics = topics
        settings, options = topics.settings, topics.settings.options
        self._sends = Outbox(KafkaSink(lambda: topics.produce(settings.bootstrap, options)), _OUTBOX)
        self._outboxes: dict[str, Outbox[Delivery]] = {}

    async def deliver(
        self, choices: Sequence[tuple[int, Choice]], *, stops: bool
    ) -> tuple[list[int], dict[int, BaseException]]:
        """The offsets of the letters that were delivered, and the errors of others.

        Args:
            choices: What is done with each letter. Records are sent one by one, in order.
            stops: Whether no record is sent after a failure.
        """
        errors: dict[int, BaseException | None] = {}
        by_sink: dict[str, list[tuple[int, Delivery]]] = {}
        for offset, choice in choices:
            if isinstance(choice, Redeliver):
                try:
                    delivery = Delivery(choice.output.key, output_of(choice.output.content or b""))
                except Misuse as error:
                    errors[offset] = error
                else:
                    by_sink.setdefault(choice.output.sink, []).append((offset, delivery))
        for sink, each in by_sink.items():
            found = await self._delivered(sink, [delivery for _, delivery in each])
            errors |= zip((offset for offset, _ in each), found, strict=True)
        for offset, choice in choices:
            if isinstance(choice, Requeue) and not (stops and any(errors.values())):
                (errors[offset],) = await self._sends.deliver_all([(choice.send,)])
        failed = {offset: error for offset, error in errors.items() if error is not None}
        return [offset for offset in errors if offset not in failed], failed

    async def _delivered(self, name: str, deliveries: Sequence[Delivery]) -> Sequence[BaseException | None]:
        outbox = self._outboxes.get(name)
        if outbox is None:
            sink = self._topics.sinks.get(name)
            if sink is None:
                there = ", ".join(self._topics.sinks) or "none; name the pipeline, not a worker"
                return (Misuse(f"there is no sink {name!r}", why=f"there are: {there}"),) * len(deliveries)
            await sink.start()
            outbox = self._outboxes[name] = Outbox(sink, _OUTBOX)
        return await outbox.deliver_all(deliveries)

    async def stop(self) -> None:
        await asyncio.gather(self._sends.stop(), *(each.stop() for each in self._outboxes.values()))


# --- commands -------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(app: Any, target: str) -> AsyncGenerator[LetterTopics, None]:
    """The dead-letter topics of a worker or a pipeline."""
    try:
        yield LetterTopics(app.settings, getattr(app, "sinks", {}))
    except Misuse as error:
        error.where = error.where or target
        raise


def _rules(
    given: Mapping[str, Any], *, target: str | None = None, limit: int | None = None, skip_failed: bool = False
) -> ReplayRules:
    now = Instant(round(time() * SECOND), WALL)
    since, until = (
        None if given.get(each) is None else Instant(time_of(given[each], now).at, WALL) for each in ("since", "until")
    )
    selection = Selection(
        topics=frozenset(given.get("topics", ())), partitions=frozenset(given.get("partitions", ())),
        offsets=tuple(map(_range, given.get("offsets", ()))), sinks=frozenset(given.get("sinks", ())),
        error=given.get("error") or "", since=since, until=until,
    )  # fmt: skip
    return ReplayRules(
        selection=selection, target=None if target is None else Target[target.upper()], limit=limit, skips_failed=skip_failed
    )  # fmt: skip


def _range(text: str) -> tuple[int, int]:
    match = _OFFSETS.fullmatch(text)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise Misuse(f"{text!r} is not a range of offsets", todo="write 7, or 7-12 from the first to the last")
    return int(match[1]), int(match[2] or match[1])


async def list_letters(topics: LetterTopics, /, *, group: str | None, limit: int, is_all: bool, **given: Any) -> Answer:
    """List the letters that are not replayed; with `is_all` all. Contents and texts of errors are not shown."""
    rules, found, unreadable = _rules(given), list[tuple[str, DeadLetter, bool]](), 0
    async with topics.reading(group) as reader:
        for partition in await reader.partitions():
            if len(found) > limit:
                break
            state, start, end = await reader.begin(partition)
            first = start if is_all else max(start, state.tracker.frontier)
            async for read in reader.read(partition, first, end):
                made = plan(rules, state, read)
                state = made.state
                for stored, (offset, choice) in zip(read, made.choices, strict=True):
                    letter, is_replayed = decode(stored), choice is Leave.REPLAYED
                    unreadable += isinstance(letter, Undecodable)
                    if isinstance(letter, DeadLetter) and rules.selection.has(letter) and (is_all or not is_replayed):
                        found.append((f"{partition}@{offset}", letter, is_replayed))
                if len(found) > limit:
                    break
    told = listing("letters", found[:limit], _letter_json, _cells, limit=limit, is_more=len(found) > limit)
    return told if not unreadable else evolve(told, notes=(*told.notes, _unreadable(unreadable)))


async def show(topics: LetterTopics, /, *, letter: str, is_payload: bool) -> Answer:
    """Show one letter; its contents only with `is_payload`."""
    match = _ADDRESS.fullmatch(letter)
    if match is None:
        raise Misuse(f"{letter!r} is not the place of a letter", todo="write orders.dead-0@17, as the list does")
    partition, offset = TopicPartition(match["topic"], int(match["partition"])), int(match["offset"])
    async with topics.reading(None) as reader:
        read: list[Record] = []
        if partition in await reader.partitions():
            _, start, end = await reader.begin(partition)
            if start <= offset < end:
                read = [each async for some in reader.read(partition, offset, offset + 1) for each in some]
    if not read:
        raise NothingSelectedError(
            f"there is no letter {letter}", todo="tidegate dead-letters list names those there are"
        )
    found = decode(read[0])
    if isinstance(found, Undecodable):
        raise NothingSelectedError(f"{letter} is not a dead letter", why=found.flaw.value)
    data = _letter_json((letter, found, False))
    del data["replayed"]
    data["message"] = found.message
    if found.output is not None:
        data |= {"key_of_output": found.output.key, "index": found.output.index}
    if is_payload:
        record = found.record
        data |= {"key": _text(record.key), "value": _text(record.value)}
        data["headers"] = [[name, _text(value)] for name, value in record.headers]
        if found.output is not None:
            data["output"] = _text(found.output.content)
    width = max(map(len, data))
    texts = {name: each if isinstance(each, str) else json.dumps(each) for name, each in data.items()}
    return Answer({"letter": data}, [one_line(f"{name:<{width}}  {text}") for name, text in texts.items()])


async def replay(
    topics: LetterTopics, /, *, group: str | None, to: str | None, limit: int | None, rate: float | None,
    skip_failed: bool, dry_run: bool, **given: Any,
) -> Answer:  # fmt: skip
    """Deliver letters again, or tell which would be."""
    rules = _rules(given, target=to, limit=limit, skip_failed=skip_failed)
    run = _Run(rules, rate, _Deliveries(topics), dry_run=dry_run)
    try:
        async with topics.reading(group) as reader:
            for partition in await reader.partitions():
                if run.stop is None:
                    await run.partition(reader, partition)
    finally:
        await run.deliveries.stop()
    return run.answer()


@final
class _Run:
    """A run of a replay: what it has done so far."""

    def __init__(self, rules: ReplayRules, rate: float | None, deliveries: _Deliveries, *, dry_run: bool) -> None:
        self._rules, self._rate, self.deliveries, self._dry_run = rules, rate, deliveries, dry_run
        self._begun, self._unreadable, self._no_output = 0, 0, 0
        self._replayed: list[str] = []
        self._failed: dict[str, str] = {}
        self.stop: Stop | None = None

    async def partition(self, reader: Reader, partition: TopicPartition) -> None:
        """Replay a partition, until all is read or the replay stops."""
        state, start, end = await reader.begin(partition, self._begun)
        most = AT_ONCE if self._rate is None else max(1, min(AT_ONCE, int(self._rate)))
        async for read in reader.read(partition, max(start, state.tracker.frontier), end, most):
            began = monotonic()
            made = plan(self._rules, state, read)
            chosen = [(offset, choice) for offset, choice in made.choices if not isinstance(choice, Leave)]
            self._unreadable += sum(choice is Leave.UNREADABLE for _, choice in made.choices)
            self._no_output += sum(choice is Leave.NO_OUTPUT for _, choice in made.choices)
            done, failed = [offset for offset, _ in chosen], dict[int, BaseException]()
            if not self._dry_run:
                done, failed = await self.deliveries.deliver(chosen, stops=not self._rules.skips_failed)
            settled = settle(self._rules, made.state, () if self._dry_run else done, len(failed))
            if settled.commit is not None:
                await reader.commit(partition, settled.commit)
            state, self.stop, self._begun = settled.state, settled.stop, settled.state.begun
            self._replayed += [f"{partition}@{offset}" for offset in done]
            self._failed |= {f"{partition}@{offset}": named(error) for offset, error in failed.items()}
            if self.stop is not None:
                return
            if self._rate is not None and chosen:
                await asyncio.sleep(len(chosen) / self._rate - (monotonic() - began))

    def answer(self) -> Answer:
        """What was done."""
        done = "would be replayed" if self._dry_run else "replayed"
        lines = [f"{each} would be replayed" for each in self._replayed] if self._dry_run else []
        notes = [f"{each} could not be delivered, and stays: {error}" for each, error in self._failed.items()]
        if self._unreadable:
            notes.append(_unreadable(self._unreadable))
        if self._no_output:
            notes.append(f"{self._no_output} letters have no output for a sink: --to topic re-queues their records")
        if self.stop is not None:
            notes.append(f"the replay has stopped: {self.stop.value}")
        return Answer(
            {
                "replayed": len(self._replayed), "failed": self._failed, "unreadable": self._unreadable,
                "without_output": self._no_output, "stopped": self.stop and self.stop.name.lower(),
                "dry_run": self._dry_run, **({"letters": self._replayed} if self._dry_run else {}),
            },
            (*lines, f"{len(self._replayed)} {done}, {len(self._failed)} failed"),
            notes,
            ExitCode.NOT_MET if self._failed or self.stop is Stop.FULL else ExitCode.OK,
        )  # fmt: skip


def _unreadable(count: int) -> str:
    return f"{count} records of the topics are not dead letters"


def _letter_json(row: tuple[str, DeadLetter, bool]) -> dict[str, object]:
    place, letter, is_replayed = row
    record, output = letter.record, letter.output
    return {
        "letter": place, "topic": record.topic, "partition": record.partition, "offset": record.offset,
        "sink": output and output.sink, "error": letter.error, "attempts": letter.attempts, "group": letter.group,
        "at": when(letter.at), "replayed": is_replayed,
    }  # fmt: skip


def _cells(row: tuple[str, DeadLetter, bool]) -> tuple[str, ...]:
    place, letter, is_replayed = row
    to = "record" if letter.output is None else f"output to {letter.output.sink}"
    tried = f"{letter.attempts} attempts"
    cells = (
        place,
        str(letter.record),
        to,
        letter.error or "-",
        tried,
        when(letter.at),
        "replayed" if is_replayed else "",
    )
    return tuple(map(one_line, cells))


def _text(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
