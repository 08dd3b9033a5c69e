"""The settings of an orchestrator; a file, the environment and arguments may override them
(`tidegate_adapters.shell.configuration`). Reading them needs no driver.

How they relate to those of pynenc and pynenc-mongo, with reasons for other defaults:

    pynenc                                here
    atomic_service_*                      services: see `tidegate_adapters.orchestrator.turns`
    recover_pending_invocations_cron      services.recover: each minute, not */5, to act sooner
    recover_running_invocations_cron      services.recover: not */15; one indexed pass reads both
    max_pending_seconds                   services.pending_max: 1 min, not 5 s; a live owner may
                                          wait for an election
    runner_considered_dead_after_minutes  dead_after: 1 min, not 10; after that its runs move
    runner_loop_sleep_time                polling: 0.1 s; up to 2 s when idle (streams wake it)
    invocation_wait_results_sleep_time    result_every: 0.1 s
    min_parallel_slots                    concurrency: 10, not 1; a slot is an asyncio task
    auto_final_invocation_purge_hours     keep_finished: 24 h, the same; keep_failed: 7 days
    event retention of triggers           7 days, the same
    max_retries, retry_* of MongoDB       8 attempts, 0.1 s doubling to 10 s, full jitter: outlasts
                                          an election (`tidegate.retries.attempt_delays`)
    mongo_url, pool, timeouts             uri, with maxPoolSize, connectTimeoutMS, socketTimeoutMS
    mongo_db                              database: no default; a write needs an explicit one
    chunk_threshold                       inline_bytes: 64 KiB, not 15 MiB; each claim reads it
    min_size_to_cache (data store)        inline_bytes: not 1024 characters; an upload is two writes
    warn of large values (data store)     warn_bytes: 10 MiB
    cron window, min interval, strict     late, missed of `on_cron`: the schedule defines the
                                          instants, so no window loses one
    claim of a run of a trigger           60 s, the same; then another pass starts it under the
                                          run's id, so it stays one invocation
                                          (`tidegate.triggers.firing`)
    caps of events and runs of triggers   0 for unlimited, the same
    enable_scheduler                      always on: recovery and purge need crons
    blocking control                      always on: a handler that waits releases its slot
    reroute_on_concurrency_control        `MaxRunning.waits`: True, not False; enqueued work runs
    parallel_batch_size                   1,000 in a request (`enqueue_many`), not 100
    stale_lock_threshold, lock_*          no locks: compare-and-set on a version
    status cache of final ones            none: waiting callers share requests

Of a task: `retry_for` is Exception (pynenc: RetryError), since handlers raise what their libraries
raise. `retries` 0, `queue` "default", `priority` 0, `max_running` and `unique` off, and
`must_agree` False are the same.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, final

import attrs

from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import MILLISECOND, SECOND, Duration, duration
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.retries.polling import PollingBounds
from tidegate_adapters.base.decorators import check_lengths
from tidegate_adapters.orchestrator.turns import ServiceRules
from tidegate_adapters.shell.settings import AppSettings, placed

_POLLING: Final = PollingBounds(least=100 * MILLISECOND, most=2 * SECOND, jitter=100 * MILLISECOND)
_KIB: Final = 1024
_HOUR: Final = timedelta(hours=1)
_BEATS_MISSED: Final = 6
_PREFIX: Final = re.compile(r"[A-Za-z0-9_]*")
_PLACES: Final = placed(
    prefix="uri", queues="prefix", name="queues", polling="leave", beat_every="polling", dead_after="beat_every",
    result_every="paused_every", keep_finished="result_every", keep_failed="keep_finished", inline_bytes="keep_failed",
    warn_bytes="inline_bytes",
)  # fmt: skip


@final
@attrs.frozen(kw_only=True, field_transformer=_PLACES)
class OrchestratorSettings(AppSettings):
    """The settings of an orchestrator, besides those of `AppSettings`.

    Invariants: the prefix has letters, digits and underscores; queues are nonempty and distinct; 1
    <= deaths_max; 1 ms <= result_every; 1 ms <= beat_every < dead_after; 0 <= keep_finished,
    keep_failed; 1 KiB <= inline_bytes <= 15 MiB; 1 <= warn_bytes.

    Attributes:
        prefix: Of its collections.
        queues: The queues that this process fetches from.
        name: The stable name of this process, such as that of a pod in a stateful set.
        beat_every: The heartbeat interval; the same in all processes.
        dead_after: The silence that presumes a process dead; the same in all processes.
        result_every: The poll interval for awaited results.
        keep_finished: How long successful invocations are kept; None forever.
        keep_failed: The same for failed, cancelled or refused ones.
        inline_bytes: Larger values are stored outside the record.
        warn_bytes: Larger values are logged as warnings.
        deaths_max: The owner deaths after which an invocation fails.
    """

    prefix: str = "orchestrator_"
    queues: tuple[str, ...] = ("default",)
    name: str | None = None
    polling: PollingBounds = _POLLING
    beat_every: timedelta = timedelta(seconds=5)
    dead_after: timedelta = timedelta(minutes=1)
    result_every: timedelta = timedelta(milliseconds=100)
    keep_finished: timedelta | None = timedelta(days=1)
    keep_failed: timedelta | None = timedelta(days=7)
    inline_bytes: int = 64 * _KIB
    warn_bytes: int = 10 * _KIB * _KIB
    services: ServiceRules = attrs.field(factory=ServiceRules)
    deaths_max: int = 5

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_type(self.prefix, str, "prefix")
        if not _PREFIX.fullmatch(self.prefix):
            raise Misuse(
                f"{shown(self.prefix)} cannot begin the name of a collection", todo="use letters, digits and _"
            )
        check_tuple(self.queues, str, "the name of a queue")
        for queue in self.queues:
            check_name(queue, "a queue")
        if not self.queues or len({*self.queues}) < len(self.queues):
            raise Misuse(f"the queues {shown(self.queues)}", why="there is one at least, and each is named once")
        if self.name is not None:
            check_name(self.name, "a process")
        check_lengths(self, beat_every=MILLISECOND, result_every=MILLISECOND, dead_after=0)
        if self.dead_after <= self.beat_every:
            raise Misuse(
                f"dead_after={self.dead_after} is too short", todo=f"make it longer than beat_every={self.beat_every}"
            )
        check_lengths(self, **{what: 0 for what in ("keep_finished", "keep_failed") if getattr(self, what) is not None})
        check_int(self.inline_bytes, "inline_bytes", _KIB, 15 * _KIB * _KIB)
        check_int(self.warn_bytes, "warn_bytes", 1)
        check_type(self.services, ServiceRules, "services")
        check_int(self.deaths_max, "deaths_max", 1)

    @property
    def absent_after(self) -> Duration:
        """The silence after which a process loses its turn, in microseconds: some missed beats.

        Its runs stay, because a rerun costs more than a repeated check. A late turn has an old
        token.
        """
        return duration(min(self.dead_after, _BEATS_MISSED * self.beat_every))

    @property
    def silences(self) -> tuple[Duration, Duration]:
        return self.absent_after, duration(self.dead_after)

    @property
    def forget_after(self) -> Duration:
        """The silence after which a process record is removed, in microseconds.

        No decision needs older membership, and operators see dead processes for an hour.
        """
        return duration(self.dead_after + self.services.interval + _HOUR)
