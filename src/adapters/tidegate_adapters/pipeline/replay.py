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

import attrs

from tidegate.exit_codes import ExitCode
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import SECOND, WALL, Instant
from tidegate.model.records import Record, Send, TopicPartition
from tidegate.retries.backoff import Exponential, Policy
from tidegate.sinks.circuit_breaker import CircuitBreaker
from tidegate.sinks.dead_letters import DeadLetter, RefusedOutput, Undecodable, decode
from tidegate.sinks.delivery import Action, DeliveryRules
from tidegate.sinks.outbox import OutboxRules
from tidegate.sinks.replay import Choice, Leave, ReplayRules, ReplayState, Selection, Stop, begin, plan, settle
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
_PLACE: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)@(?P<offset>[0-9]+)")
_OFFSETS: Final = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_TRIES: Final = Policy(backoff=Exponential(SECOND // 10, cap=2 * SECOND), attempts_max=5)
_OUTBOX: Final = OutboxRules(
    breaker=CircuitBreaker(cooldown=SECOND),
    delivery=DeliveryRules(sending=_TRIES, refused=Action.HOLD, lasting=Action.HOLD, dead_lettering=None),
)
"""A delivery that is not answered is tried five times, then the letter stays."""


class _Reading(Client, Protocol):
    """A client that reads what it is told to, in no group."""

    def assign(self, partitions: Sequence[object]) -> None: ...
    async def position(self, partition: object) -> int: ...


class _Starting(Sink[Delivery], Protocol):
    async def start(self) -> None: ...


@final
@attrs.frozen
class LetterTopics:
    """The dead-letter topics of an application with these settings and sinks."""

    settings: WorkerSettings | PipelineSettings
    sinks: Mapping[str, _Starting]
    connect: Connect = client
    produce: Produce = producer

    def __attrs_post_init__(self) -> None:
        if self.settings.dead_letter is None:
            raise Misuse("the application has no dead letters", todo="set dead_letter to the topic that has them")

    @asynccontextmanager
    async def reading(self, group: str | None) -> AsyncGenerator[Reader, None]:
        """Connect a reader for the consumer group of replays; None for the usual one."""
        names = pattern_of(self.settings.topics).removeprefix("^").removesuffix("$")
        pattern = re.compile(letters_of(self.settings.dead_letter or "", f"(?:{names})"))
        options = {**self.settings.options, "isolation_level": "read_committed"}
        options.pop("group_instance_id", None)
        consumer = self.connect(self.settings.bootstrap, group or f"{self.settings.group}.replay", options)
        try:
            await ports.start(consumer)
            yield Reader(cast("_Reading", consumer), pattern)
        finally:
            await consumer.stop()


@final
@attrs.frozen
class Reader:
    """Reads dead letters, and what a group has replayed of them."""

    _consumer: _Reading
    _pattern: re.Pattern[str]

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
                    while position == before:  # control markers move it, too
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
    """Delivers letters to topics and sinks; a sink starts when a letter needs it."""

    def __init__(self, topics: LetterTopics) -> None:
        at, self._sinks = topics.settings, topics.sinks
        self._sends = Outbox(KafkaSink(lambda: topics.produce(at.bootstrap, at.options)), _OUTBOX)
        self._outboxes: dict[str, Outbox[Delivery]] = {}

    async def deliver(self, chosen: Mapping[int, Choice], *, stops: bool) -> dict[int, BaseException | None]:
        """Deliver letters, by offset: outputs in bulk, then records in order, up to a failure if that `stops`.

        Returns:
            The error of each that was tried.
        """
        errors: dict[int, BaseException | None] = {}
        by_sink: dict[str, dict[int, Delivery]] = {}
        for offset, choice in chosen.items():
            if isinstance(choice, RefusedOutput):
                try:
                    delivery = Delivery(choice.key, output_of(choice.content or b""))
                except Misuse as error:
                    errors[offset] = error
                else:
                    by_sink.setdefault(choice.sink, {})[offset] = delivery
        for sink, each in by_sink.items():
            errors |= zip(each, await self._delivered(sink, [*each.values()]), strict=True)
        for offset, choice in chosen.items():
            if isinstance(choice, Send) and not (stops and any(errors.values())):
                (errors[offset],) = await self._sends.deliver_all([(choice,)])
        return errors

    async def _delivered(self, name: str, deliveries: Sequence[Delivery]) -> Sequence[BaseException | None]:
        if name not in self._sinks:
            there = ", ".join(self._sinks) or "none; name the pipeline, not a worker"
            return (Misuse(f"there is no sink {name!r}", why=f"there are: {there}"),) * len(deliveries)
        if name not in self._outboxes:
            await self._sinks[name].start()
            self._outboxes[name] = Outbox(self._sinks[name], _OUTBOX)
        return await self._outboxes[name].deliver_all(deliveries)

    async def stop(self) -> None:
        await asyncio.gather(self._sends.stop(), *(each.stop() for each in self._outboxes.values()))


# --- commands -------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(app: Any, target: str) -> AsyncGenerator[LetterTopics, None]:  # noqa: ARG001  as for other apps
    """The dead-letter topics of a worker or a pipeline."""
    yield LetterTopics(app.settings, getattr(app, "sinks", {}))


def _selection(given: Mapping[str, Any]) -> Selection:
    now = Instant(round(time() * SECOND), WALL)
    since, until = (
        None if given[name] is None else Instant(time_of(given[name], now).at, WALL) for name in ("since", "until")
    )
    sets = {name: frozenset(given[name]) for name in ("topics", "partitions", "sinks")}
    offsets = tuple(map(_range, given["offsets"]))
    return Selection(**sets, offsets=offsets, error=given["error"] or "", since=since, until=until)


def _range(text: str) -> tuple[int, int]:
    match = _OFFSETS.fullmatch(text)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise Misuse(f"{text!r} is not a range of offsets", todo="write 7, or 7-12 from the first to the last")
    return int(match[1]), int(match[2] or match[1])


async def list_letters(topics: LetterTopics, /, *, group: str | None, limit: int, is_all: bool, **given: Any) -> Answer:
    """List the letters that are not replayed; with `is_all` all. Contents and texts of errors are not shown."""
    rules, found, unreadable = ReplayRules(selection=_selection(given)), list[tuple[str, DeadLetter, bool]](), 0
    async with topics.reading(group) as reader:
        for partition in await reader.partitions():
            state, start, end = await reader.begin(partition)
            first = start if is_all else max(start, state.tracker.frontier)
            async for read in reader.read(partition, first, end if len(found) <= limit else 0):
                state, choices = plan(rules, state, read)
                for stored, (offset, choice) in zip(read, choices, strict=True):
                    letter, is_replayed = decode(stored), choice is Leave.REPLAYED
                    unreadable += isinstance(letter, Undecodable)
                    if isinstance(letter, DeadLetter) and rules.selection.has(letter) and (is_all or not is_replayed):
                        found.append((f"{partition}@{offset}", letter, is_replayed))
                if len(found) > limit:
                    break
    told = listing("letters", found[:limit], _letter_json, _cells, limit=limit, is_more=len(found) > limit)
    return attrs.evolve(told, notes=(*told.notes, *_unreadable(unreadable)))


async def show(topics: LetterTopics, /, *, letter: str, is_payload: bool) -> Answer:
    """Show one letter; its contents only with `is_payload`."""
    match = _PLACE.fullmatch(letter)
    if match is None:
        raise Misuse(f"{letter!r} is not the place of a letter", todo="write orders.dead-0@17, as the list does")
    partition, offset = TopicPartition(match["topic"], int(match["partition"])), int(match["offset"])
    found: DeadLetter | Undecodable | None = None
    async with topics.reading(None) as reader:
        if partition in await reader.partitions():
            _, start, end = await reader.begin(partition)
            async for read in reader.read(partition, offset, min(end, offset + 1) if offset >= start else 0):
                found = decode(read[0])
    if not isinstance(found, DeadLetter):
        todo = "tidegate dead-letters list names those there are"
        raise NothingSelectedError(f"there is no dead letter at {letter}", why=f"{found or ''}", todo=todo)
    record, output = found.record, found.output
    data = {**_letter_json((letter, found, False)), "message": found.message, "index": output and output.index}
    data["output_key"] = output and output.key
    if is_payload:
        data |= {"key": _text(record.key), "value": _text(record.value), "output": _text(output and output.content)}
        data["headers"] = [[name, _text(value)] for name, value in record.headers]
    del data["replayed"]
    lines = (f"{name:<10}  {each if isinstance(each, str) else json.dumps(each)}" for name, each in data.items())
    return Answer({"letter": data}, map(one_line, lines))


async def replay(
    topics: LetterTopics, /, *, group: str | None, requeues: bool, limit: int | None, rate: float | None,
    skip_failed: bool, dry_run: bool, **given: Any,
) -> Answer:  # fmt: skip
    """Deliver letters again, or tell which would be."""
    rules = ReplayRules(selection=_selection(given), requeues=requeues, limit=limit, skips_failed=skip_failed)
    most = AT_ONCE if rate is None else max(1, min(AT_ONCE, int(rate)))
    replayed, failed, unreadable = list[str](), dict[str, str](), 0
    begun, stop = 0, None
    deliveries = _Deliveries(topics)
    try:
        async with topics.reading(group) as reader:
            for partition in await reader.partitions():
                state, start, end = await reader.begin(partition, begun)
                async for read in reader.read(partition, max(start, state.tracker.frontier), 0 if stop else end, most):
                    began_s = monotonic()
                    state, choices = plan(rules, state, read)
                    chosen = {offset: choice for offset, choice in choices if not isinstance(choice, Leave)}
                    errors: dict[int, BaseException | None] = dict.fromkeys(chosen)
                    if not dry_run:
                        errors = await deliveries.deliver(chosen, stops=not skip_failed)
                    done = [offset for offset, error in errors.items() if error is None]
                    after = settle(rules, state, () if dry_run else done, len(errors) - len(done))
                    if after.commit is not None:
                        await reader.commit(partition, after.commit)
                    state, stop, begun = after.state, after.stop, after.state.begun
                    unreadable += sum(choice is Leave.UNREADABLE for _, choice in choices)
                    replayed += [f"{partition}@{offset}" for offset in done]
                    failed |= {f"{partition}@{at}": named(error) for at, error in errors.items() if error is not None}
                    if stop is not None:
                        break
                    if rate is not None and chosen:
                        await asyncio.sleep(len(chosen) / rate - (monotonic() - began_s))
    finally:
        await deliveries.stop()
    data = {"replayed": len(replayed), "failed": failed, "unreadable": unreadable, "dry_run": dry_run}
    return Answer(
        {**data, "stopped": stop and stop.name.lower(), **({"letters": replayed} if dry_run else {})},
        (
            *(f"{each} would be replayed" for each in replayed if dry_run),
            f"{len(replayed)} {'would be ' * dry_run}replayed, {len(failed)} failed",
        ),
        (
            *(f"{each} could not be delivered, and stays: {error}" for each, error in failed.items()),
            *_unreadable(unreadable),
            *(() if stop is None else (f"the replay has stopped: {stop.value}",)),
        ),
        ExitCode.NOT_MET if failed or stop is Stop.FULL else ExitCode.OK,
    )


def _unreadable(count: int) -> Sequence[str]:
    return (f"{count} records of the topics are not dead letters",) if count else ()


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
    cells = (place, f"{letter.record}", to, letter.error or "-", f"{letter.attempts} attempts", when(letter.at))
    return tuple(map(one_line, (*cells, "replayed" if is_replayed else "")))


def _text(data: bytes | None) -> object:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data or b"").decode()}
