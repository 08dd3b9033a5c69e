"""The settings of a pipeline: what a file, the environment or arguments may change."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum, unique
from typing import Final, final

import attrs

from tidegate.consumer.fanout import Rules
from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.partition.partition import FailurePolicy, Ordering, PartitionRules
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND
from tidegate.model.values import check_int, check_type
from tidegate.pipeline.effects import Hook, OnFailure, PipelineRules
from tidegate.retries.backoff import Exponential
from tidegate_adapters.base.decorators import length_of
from tidegate_adapters.kafka.settings import GRACE, LEAVE, LOOPBACK, STALLED_AFTER, ClientOptions, WorkerSettings

CONCURRENCY: Final = 4
WINDOW: Final = 100
_DRAIN_CANCEL: Final = timedelta(seconds=3)


@final
@unique
class OnStop(StrEnum):
    """What follows when a partition has stopped: its records wait for people, and no other process may take them."""

    END = "end"
    """The process drains, leaves the group and ends with an error. Other processes take its partitions."""
    LEAVE = "leave"
    """The same, but the process stays, and is not healthy, until it is stopped."""


@final
@attrs.frozen(kw_only=True)
class PipelineSettings:
    """The settings of a pipeline.

    Invariants: those of `WorkerSettings`; 1 <= window; 0 <= retries, replacements, hook_retries,
    delivery_retries; a topic for dead letters where there are any.

    Attributes:
        topics: The topics to consume: names, and patterns that begin with `^`.
        bootstrap: `host:port` of a broker; several are separated by commas.
        group: The consumer group.
        window: The most records that are arranged at once.
        concurrency: How many tasks run at a time in this process.
        ordering: Which records wait for each other.
        retries: How often a failed task runs again.
        replacements: How many generations of tasks may replace a failed one.
        hook_retries: How often a hook is called again that raised, before its records have failed.
        delivery_retries: How often delivery_error may answer RETRY in a row.
        backoff: The first delay before these retries; it doubles, up to `backoff_max`.
        backoff_max: The longest delay.
        on_failure: What becomes of a record that has failed for good.
        undecodable: What becomes of a record that cannot be decoded.
        on_stop: What follows when a partition has stopped.
        dead_letter: The topic of dead letters; `{topic}` stands for that of the record. None for none.
        drain: How long tasks may go on when a partition is revoked or the pipeline stops.
        leave: How long the group may take to answer the request to leave.
        grace: How long after a stop request the process is killed, as in Kubernetes.
        stalled_after: How long a partition may make no progress before health says so.
        metrics_port: The port of `/metrics`, `/health` and `/ready`; 0 for any free one, None for none.
        metrics_host: The address to listen on there.
        options: More options of the Kafka client. They are never shown.
    """

    topics: tuple[str, ...]
    bootstrap: str
    group: str
    window: int = WINDOW
    concurrency: int = CONCURRENCY
    ordering: Ordering = Ordering.UNORDERED
    retries: int = 3
    replacements: int = 3
    hook_retries: int = 3
    delivery_retries: int = 3
    backoff: timedelta = timedelta(milliseconds=100)
    backoff_max: timedelta = timedelta(seconds=10)
    on_failure: OnFailure = OnFailure.DEAD_LETTER
    undecodable: OnFailure = OnFailure.DEAD_LETTER
    on_stop: OnStop = OnStop.END
    dead_letter: str | None = "{topic}.dead"
    drain: timedelta = timedelta(seconds=20)
    leave: timedelta = LEAVE
    grace: timedelta = GRACE
    stalled_after: timedelta = STALLED_AFTER
    metrics_port: int | None = None
    metrics_host: str = LOOPBACK
    options: ClientOptions = attrs.field(factory=ClientOptions, repr=False)

    def __attrs_post_init__(self) -> None:
        check_int(self.window, "window", 1)
        for name in ("retries", "replacements", "hook_retries", "delivery_retries"):
            check_int(getattr(self, name), name, 0)
        check_type(self.ordering, Ordering, "ordering")
        check_type(self.on_stop, OnStop, "on_stop")
        if length_of(self.backoff, "backoff", 1) > length_of(self.backoff_max, "backoff_max", 1):
            raise Misuse(
                f"backoff={self.backoff} is longer than backoff_max={self.backoff_max}", todo="raise backoff_max"
            )
        if self.dead_letter is None and OnFailure.DEAD_LETTER in (self.on_failure, self.undecodable):
            raise Misuse(
                "records are dead-lettered, and there is no topic for them",
                todo='pass dead_letter="{topic}.dead", or on_failure= and undecodable=OnFailure.STOP',
            )
        _ = self.worker(frozenset())

    def worker(self, hooks: frozenset[Hook]) -> WorkerSettings:
        """The settings of the member of the group.

        Args:
            hooks: The hooks that the user has.
        """
        fanout = Rules(
            self.retries,
            self.replacements,
            task_delivery=Hook.TASK_DONE in hooks,
            record_delivery=Hook.RECORD_DONE in hooks,
            window_delivery=Hook.WINDOW_DONE in hooks,
        )
        total = length_of(self.drain, "drain", 3)
        cancel = min(length_of(_DRAIN_CANCEL, "", 0), total // 4)
        partition = PartitionRules(
            window_max=self.window,
            hooks=True,
            fanout=fanout,
            ordering=self.ordering,
            failure_policy=FailurePolicy.SKIP,
            drain=Budget(total, cancel=cancel, commit=cancel),
            backoff=self._delays,
            jitter_ppm=500_000,
        )
        return WorkerSettings(
            topics=self.topics,
            bootstrap=self.bootstrap,
            group=self.group,
            consumer=ConsumerRules(partition=partition),
            options=self.options,
            concurrency=self.concurrency,
            dead_letter=self.dead_letter,
            stalled_after=self.stalled_after,
            metrics_port=self.metrics_port,
            metrics_host=self.metrics_host,
            leave=self.leave,
            grace=self.grace,
        )

    def rules(self, hooks: frozenset[Hook], *, decodes: bool) -> PipelineRules:
        """What follows failures.

        Args:
            hooks: The hooks that the user has.
            decodes: Whether records are decoded.
        """
        return PipelineRules(
            decodes=decodes,
            decides=hooks & {Hook.TASK_ERROR, Hook.DELIVERY_ERROR},
            undecodable=self.undecodable,
            on_failure=self.on_failure,
            hook_retries=self.hook_retries,
            delivery_retries=self.delivery_retries,
            backoff=self._delays,
        )

    @property
    def _delays(self) -> Exponential:
        return Exponential(
            length_of(self.backoff, "backoff", 1), cap=length_of(self.backoff_max, "backoff_max", SECOND // 1000)
        )
