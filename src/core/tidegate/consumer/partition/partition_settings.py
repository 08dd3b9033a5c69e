"""The settings of one partition: how much runs at once, in which order, and the failure policy.

`tidegate.consumer.partition.partition.PartitionRules` adds the step; the stages use only the settings.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import Final, final

import attrs

from tidegate.consumer.committing.commit_metadata import LIMIT
from tidegate.consumer.fanout import Rules
from tidegate.consumer.flow.backpressure import PartitionLimits
from tidegate.consumer.flow.drain import Budget
from tidegate.model.errors import Misuse
from tidegate.model.instants import PPM, SECOND
from tidegate.model.values import check_int, check_type
from tidegate.retries.backoff import Exponential, Fixed, Linear, Series


@final
@unique
class Ordering(Enum):
    """Which records wait for each other."""

    UNORDERED = "none"
    BY_KEY = "those of a key"
    BY_OFFSET = "all of the partition; with hooks, all windows"


@final
@unique
class FailurePolicy(Enum):
    """The effect of a record that has failed for good."""

    STOP = "the partition takes nothing new"
    BLOCK_KEY = "the rest of the key is held back"
    SKIP = "user code answers for it, and work goes on"
    DIVERT_KEY = "user code answers for it and for the rest of the key, in order"


PLAIN: Final = Rules(0, 0, task_delivery=False, record_delivery=False, window_delivery=False)
"""No delivery and no retry."""

RUNNING_MAX: Final = 4
"""The default number of running tasks of a partition; in a consumer, the executors limit it
instead.
"""
_REPLAY_MAX: Final = 100
_BACKOFF: Final = Exponential(SECOND // 10, cap=SECOND)
"""As in Kafka's clients (`retry.backoff.ms` and its maximum)."""
_BATCH_MAX: Final = 1_000
DRAIN: Final = Budget(20 * SECOND, cancel=3 * SECOND, commit=3 * SECOND)
"""Container platforms give 30 s; of a safe 25 s this is the part before the 5 s to leave the group.
"""


@attrs.frozen
class PartitionSettings:
    """The limits and rules of one partition.

    Invariants: 0 <= running_max; 1 <= window_max, batch_max, replay_max; 0 <= metadata_max;
    policies about the rest of a key need an order.

    Attributes:
        running_max: How many handlers or tasks may run.
        window_max: The most records of a window; one by default, because all records of a window
            wait for its arrangement.
        hooks: Whether user code arranges windows into tasks and judges failures. If not, each
            record is one task. Hooks do not receive the records of a task; `fanout.in_flight` of
            the windows has them.
        fanout: What user code delivers, and how often it may retry. The default is no delivery and
            no retry (`PLAIN`), with hooks too: pass, for example, `Rules()` to allow them.
        failure_policy: The effect of a record that has failed for good.
        limits: When the partition is held.
        metadata_max: The UTF-16 units of metadata that the broker accepts; 0 for none.
        replay_max: How many completed offsets without a commit cause one, even if the position
            stays.
        drain: The budget of a revocation.
        backoff: The delay before a retry of tasks, their replacements, and commits without an
            answer.
        jitter_ppm: The largest part of the delay left out at random, so that simultaneous failures
            are not retried together.
        batch_max: The most records of one command to handle.
    """

    running_max: int = RUNNING_MAX
    window_max: int = 1
    hooks: bool = False
    fanout: Rules = PLAIN
    ordering: Ordering = Ordering.UNORDERED
    failure_policy: FailurePolicy = FailurePolicy.STOP
    limits: PartitionLimits = PartitionLimits()
    metadata_max: int = LIMIT
    replay_max: int = _REPLAY_MAX
    drain: Budget = DRAIN
    backoff: Exponential | Fixed | Linear | Series = _BACKOFF
    jitter_ppm: int = attrs.field(default=0, kw_only=True)
    batch_max: int = attrs.field(default=_BATCH_MAX, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_int(self.running_max, "a number of tasks", 0)
        check_int(self.window_max, "a number of records", 1)
        check_type(self.hooks, bool, "hooks")
        check_type(self.fanout, Rules, "rules of fan-out")
        check_type(self.ordering, Ordering, "an ordering")
        check_type(self.failure_policy, FailurePolicy, "what follows a failure")
        check_type(self.limits, PartitionLimits, "the limits of a partition")
        check_int(self.metadata_max, "a number of UTF-16 units", 0)
        check_int(self.replay_max, "a number of offsets", 1)
        check_int(self.batch_max, "a number of records", 1)
        check_type(self.drain, Budget, "a budget of time")
        check_int(self.jitter_ppm, "a jitter in parts per million", 0, PPM)
        check_type(self.backoff, (Exponential, Fixed, Linear, Series), "a back-off with delays of its own")
        if self.ordering is Ordering.UNORDERED and self.failure_policy in (
            FailurePolicy.BLOCK_KEY,
            FailurePolicy.DIVERT_KEY,
        ):
            raise Misuse(
                f"{self.failure_policy.name} without an order",
                why="records of the same key may be in work, or done, when one fails",
                todo="set ordering=Ordering.BY_KEY or BY_OFFSET",
            )

    @property
    def is_plain(self) -> bool:
        """Whether each record has only a handler."""
        delivers = self.fanout.task_delivery or self.fanout.record_delivery or self.fanout.window_delivery
        return not self.hooks and not delivers

    @property
    def needs_hooks(self) -> bool:
        """Whether user code does more than handle records."""
        return not self.is_plain or self.failure_policy in (FailurePolicy.SKIP, FailurePolicy.DIVERT_KEY)
