"""A pipeline without servers: records in memory, and sinks that keep what they are given."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, Protocol, final

import attrs

from tidegate.consumer.worker.worker import WorkerRules
from tidegate.model.effects import Failure
from tidegate.model.instants import SECOND
from tidegate.model.records import Record, Send, TopicPartition
from tidegate.retries.backoff import delay_after
from tidegate_adapters.kafka.client import Connect, Produce
from tidegate_adapters.kafka.embedded import EmbeddedLog, record_of
from tidegate_adapters.pipeline.settings import PipelineSettings
from tidegate_adapters.pipeline.values import PartitionStopped
from tidegate_adapters.sinks.outputs import Delivery, Output

_LOOKS_S: Final = 0.005
_MORE_S: Final = 1.0
"""How long nothing changes, beyond the longest delay, before nothing will."""


class Processing(Protocol):
    """A `Pipeline`, which needs this module itself."""

    @property
    def settings(self) -> PipelineSettings: ...

    @property
    def sinks(self) -> Mapping[str, Any]: ...

    @property
    def rules(self) -> WorkerRules: ...

    @property
    def is_busy(self) -> tuple[int, int]: ...

    def configured(self, settings: PipelineSettings, *, sinks: Mapping[str, Any] | None = None) -> Processing: ...

    async def run(self, connect: Connect, produce: Produce) -> None: ...

    def stop(self) -> None: ...


class Kept:
    """A sink in memory: it has each key once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outputs: dict[str, Output] = {}

    async def start(self) -> None:
        """Nothing to connect to."""

    async def deliver(self, payloads: Sequence[Delivery], /) -> Sequence[Failure | None]:
        """Keep them."""
        for each in payloads:
            self.outputs.setdefault(each.key, each.output)
        return (None,) * len(payloads)

    async def stop(self) -> None:
        """Nothing to let go."""


@final
@attrs.frozen
class Processed:
    """What became of the records of a log.

    Attributes:
        outputs: The outputs by sink, in the order of their deliveries.
        letters: The dead letters.
        positions: The committed positions, by partition.
        ends: One past the last offset, by partition.
        stopped: Why the run has ended; empty unless a partition has stopped.
    """

    outputs: Mapping[str, tuple[Output, ...]]
    letters: tuple[Send, ...]
    positions: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    stopped: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether all is committed."""
        return self.positions == self.ends


@final
class EmbeddedPipeline:
    """A run of a pipeline on a log in memory, until all is committed or nothing changes any more.

    Args:
        pipeline: The pipeline; its sinks are replaced.
        records: The records of the log.
        sinks: The sinks in their place; None for some that take everything.
    """

    def __init__(
        self, pipeline: Processing, records: Iterable[Record], sinks: Mapping[str, Kept] | None = None
    ) -> None:
        self._sinks = {name: Kept(name) for name in pipeline.sinks} if sinks is None else sinks
        self.pipeline = pipeline.configured(attrs.evolve(pipeline.settings, metrics_port=None), sinks=self._sinks)
        self._log = EmbeddedLog(records)

    async def run(self) -> Processed:
        """Run it."""
        log, run = self._log, asyncio.create_task(self.pipeline.run(self._log.connect, self._log.produce))
        moved, since, patience_s = self.pipeline.is_busy, monotonic(), self._patience_s
        while not run.done() and log.positions != log.ends and monotonic() < since + patience_s:
            await asyncio.wait([run], timeout=_LOOKS_S)
            begun, running = self.pipeline.is_busy
            if running or (begun, running) != moved:
                moved, since = (begun, running), monotonic()
        self.pipeline.stop()
        stopped = ""
        try:
            await run
        except PartitionStopped as error:
            stopped = str(error)
        outputs = {name: tuple(sink.outputs.values()) for name, sink in self._sinks.items()}
        return Processed(outputs, tuple(log.sent), dict(log.positions), log.ends, stopped)

    @property
    def _patience_s(self) -> float:
        rules = self.pipeline.rules.consumer.partition
        return delay_after(rules.backoff, rules.fanout.retries_max + 1) / SECOND + _MORE_S


async def process(pipeline: Processing, records: Iterable[Record | Mapping[str, object]]) -> Processed:
    """Process these records with the hooks of a pipeline, without servers."""
    given = [each if isinstance(each, Record) else record_of(dict(each)) for each in records]
    return await EmbeddedPipeline(pipeline, given).run()
