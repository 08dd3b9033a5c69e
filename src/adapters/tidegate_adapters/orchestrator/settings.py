"""What an orchestrator is told that is not code; a file, the environment and arguments can say otherwise
(`tidegate_adapters.shell.configuration`).

No driver is needed to read or to show it.

The settings of pynenc and pynenc-mongo, and what they are here; where a default is another one, why:

    pynenc                                here               default; why it is not pynenc's
    atomic_service_*                      services           `tidegate_adapters.orchestrator.turns` says it
    recover_pending_invocations_cron      services.recover   each minute, not */5: who is killed is missed sooner
    recover_running_invocations_cron      services.recover   the same, not */15: one pass reads both by their indexes
    max_pending_seconds                   services.pending_max   a minute, not 5 s: an owner that is alive may wait for the server
                                                             while it elects a primary, and that of a dead one is freed anyway
    runner_considered_dead_after_minutes  dead_after         1 min, not 10: whoever stands still longer is fenced, and has its runs taken over
    runner_loop_sleep_time                polling            0.1 s; up to 2 s while nothing comes, for a stream tells of what does
    invocation_wait_results_sleep_time    result_every       0.1 s
    min_parallel_slots                    concurrency        10, not 1: a slot is a task of the event loop, and not a process
    auto_final_invocation_purge_hours     keep_finished      24 h of a success, as there; 7 days of a failure, to look into it
    event retention of triggers           -                  7 days, as there
    max_retries, retry_* of MongoDB       -                  8 attempts, 0.1 s doubled up to 10 s, with full jitter: those of the
                                                             drivers (`tidegate.retries.pauses`), longer than an election takes
    mongo_url, pool, timeouts             uri                in the URI: maxPoolSize, connectTimeoutMS, socketTimeoutMS
    mongo_db                              database           has none: nothing is written where nobody said so
    chunk_threshold                       inline_bytes       64 KiB, not 15 MiB: what a record holds is read with each claim
    min_size_to_cache (data store)        inline_bytes       the same, and not 1024 characters: an upload takes two writes more
    warn of large values (data store)     warn_bytes         10 MiB
    cron window, min interval, strict     late, missed       of `on_cron`: instants are the schedule's, and not those of who looks, so
                                                             none is missed between two windows, and none is late unless it says so
    claim of a run of a trigger           -                  60 s, too, and then another pass makes it happen: its invocation has the
                                                             id of the run (`tidegate.triggers.firing`), so that made twice it is one
    caps of events and runs of triggers   -                  0 there, for any number, and so here
    enable_scheduler                      -                  always: without crons nothing is recovered, and nothing goes. Leave a
                                                             trigger out at its task, or pause the task
    blocking control                      -                  always: who waits for others gives its slot away
    reroute_on_concurrency_control        waits              of `MaxRunning`: True, not False, since what is enqueued is to be run
    parallel_batch_size                   -                  1,000 in a request (`enqueue_many`), not 100: what a bulk may hold
    stale_lock_threshold, lock_*          -                  there is no lock: a version that is compared and set
    status cache of final ones            -                  there is none: those who wait ask for all of them at once

Of a task: `retry_for` is any Exception (pynenc: RetryError), since a handler raises what its libraries raise; `retries` 0, `queue`
"default", `priority` 0, `max_running` and `unique` off, `must_agree` False, as there.
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
    """What an orchestrator is told, besides the settings of `AppSettings`.

    Invariants: the prefix is of letters, digits and underscores; there are queues, and each is named once; 1 <= deaths_max; 1 ms <=
    result_every; 1 ms <= beat_every < dead_after; 0 <= keep_finished, keep_failed; 1 KiB <= inline_bytes <= 15 MiB; 1 <= warn_bytes.

    Attributes:
        prefix: What the names of its collections begin with.
        queues: Which queues this process takes from.
        name: The lasting name of this process, such as that of a pod of a stateful set; None if it has none.
        beat_every: How often a process says that it is alive, and hears what was asked of what it runs; the same in
            all processes.
        dead_after: After how much silence a process is presumed dead; the same in all processes.
        result_every: How often it is looked for results that are waited for.
        keep_finished: How long an invocation that has succeeded is kept with its result; None for ever.
        keep_failed: Likewise one that has failed, was cancelled, or was refused by what limits it.
        inline_bytes: Arguments and results that are larger are kept beside their record.
        warn_bytes: Of arguments and results that are larger a line of the log warns.
        services: How processes share what runs on one of them at a time.
        deaths_max: After how many deaths of those who ran it an invocation is run no more, and has failed.
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
        """After how much silence a process has its turn no more, in microseconds: some beats are missing. What it runs is its own
        for longer, since to run that again costs more than to look again what is due: whoever is late with a turn writes under a
        token that has passed.
        """
        return duration(min(self.dead_after, _BEATS_MISSED * self.beat_every))

    @property
    def silences(self) -> tuple[Duration, Duration]:
        """After how much silence a process has missed some beats, and after how much it is presumed dead, in microseconds."""
        return self.absent_after, duration(self.dead_after)

    @property
    def forget_after(self) -> Duration:
        """After how much silence the record of a process is removed, in microseconds: nobody asks of that time any more who was
        alive, and whoever looks sees for an hour which processes are gone.
        """
        return duration(self.dead_after + self.services.interval + _HOUR)
