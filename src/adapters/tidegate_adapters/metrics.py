"""What a worker shows to Prometheus: `tidegate_worker_...`, by topic and partition, never by what a record carries.

    lag_records                  from what is committed to the end of the log, as that was last seen; 0 once all records up to there are
                                 committed, though control markers or aborted records follow the last one
    in_flight_records            delivered and not settled, by where they are
    failed_records               whose failure stands
    oldest_record_age_seconds    since the oldest record that is not done was delivered
    held_partitions              from which nothing is fetched, by why (`tidegate.consumer.health.Cause`)
    handled_records_total        whose handler has returned
    handler_failures_total       calls of handlers that have raised
    retries_total                attempts that are made again after a failure
    dead_letters_total           records that have failed for good, and that were answered for: skipped, or written elsewhere
    commits_total                by outcome
    removed_offsets_total        that were removed from the log before the group read them
    observer_failures_total      calls of `observe` and `record` that have raised; no labels
    handler_seconds              how long handlers took, by topic, as a histogram
    sink_open                    whether the circuit of a sink is open or half open, for it does not answer; by sink
    sink_waiting_payloads        what is to be delivered to a sink and is not under way; by sink
    sink_attempts_total          to deliver to a sink, by sink and outcome: answered, unanswered

Gauges are made of the worker's state when somebody looks; counters are kept by the batch (`tidegate_adapters.tallies`).
Names, units and suffixes are those that Prometheus recommends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, final

from tidegate.consumer.consumer import ConsumerState
from tidegate.consumer.explanation import lag
from tidegate.consumer.health import Cause
from tidegate.model.errors import MissingExtra
from tidegate.model.records import TopicPartition
from tidegate.sinks.circuit_breaker import Closed
from tidegate_adapters.sinks import SinkStatus
from tidegate_adapters.tallies import BOUNDS_S, Glance, Handled, Tallies

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.metrics", "metrics", missing) from missing

__all__ = ["WorkerCollector"]

_PLACE: Final = ("topic", "partition")
_PREFIX: Final = "tidegate_worker_"


@final
class WorkerCollector(Collector):
    """Shows a worker in a registry, while it runs.

    Args:
        glance: What the worker is like now; it may be called from any thread.
        tallies: What has happened at it.
    """

    def __init__(self, glance: Callable[[], Glance], tallies: Tallies) -> None:
        self._glance, self._tallies = glance, tallies

    def describe(self) -> Iterator[Metric]:
        """The names of all, without a look at the worker."""
        return self._families(Glance(ConsumerState(), (), {}, {}), Tallies())

    def collect(self) -> Iterator[Metric]:
        """All, as they are now."""
        return self._families(self._glance(), self._tallies)

    def _families(self, now: Glance, tallies: Tallies) -> Iterator[Metric]:
        yield from _of_state(now)
        handled = dict(tallies.handled)
        done = {partition: each.done for partition, each in handled.items()}
        failed = {partition: each.failed for partition, each in handled.items()}
        yield _counted("handled_records", "Records whose handler has returned.", done)
        yield _counted("handler_failures", "Calls of handlers that have raised.", failed)
        yield _counted("retries", "Attempts that are made again after a failure.", tallies.retried)
        dead_letters = "Records that have failed for good, and that were answered for."
        yield _counted("dead_letters", dead_letters, tallies.dead_letters)
        yield _counted("removed_offsets", "Offsets removed from the log before the group read them.", tallies.removed)
        commits = CounterMetricFamily(f"{_PREFIX}commits", "Commits, by outcome.", labels=(*_PLACE, "outcome"))
        for (partition, outcome), count in list(tallies.commits.items()):
            commits.add_metric((*_place(partition), outcome), count)
        yield commits
        raised = CounterMetricFamily(
            f"{_PREFIX}observer_failures", "Calls of observers and recordings that have raised."
        )
        raised.add_metric((), now.observer_failures)
        yield raised
        yield _seconds(handled)
        yield from _of_sinks(now.sinks)


def _of_state(now: Glance) -> Iterator[Metric]:
    """The gauges."""
    behind = _gauge("lag_records", "From what is committed to the end of the log.")
    in_flight = _gauge("in_flight_records", "Records that are delivered and not settled, by where they are.", "stage")
    failed = _gauge("failed_records", "Records whose failure stands.")
    for part in now.state.partitions:
        place, load, end = _place(part.partition), part.load, now.ends.get(part.partition)
        read = now.read.get(part.partition, 0)
        if end is not None and (records := lag(part.tracker, end, read)) is not None:
            behind.add_metric(place, records)
        for stage in ("waiting", "arranging", "running", "in_hooks", "delivering"):
            in_flight.add_metric((*place, stage), getattr(load, stage))
        failed.add_metric(place, len(part.failed))
    oldest = _gauge("oldest_record_age_seconds", "Since the oldest record that is not done was delivered; 0 for none.")
    held = GaugeMetricFamily(
        f"{_PREFIX}held_partitions", "Partitions from which nothing is fetched, by why.", labels=("topic", "reason")
    )
    for each in now.seen:
        oldest.add_metric(_place(each.partition), now.ages_s.get(each.partition, 0.0))
    count = Counter((each.partition.topic, cause) for each in now.seen for cause in each.causes)
    for topic in sorted({each.partition.topic for each in now.seen}):
        for cause in Cause:
            held.add_metric((topic, cause.value), count[topic, cause])
    yield from (behind, in_flight, failed, oldest, held)


def _of_sinks(sinks: Sequence[SinkStatus]) -> Iterator[Metric]:
    is_open = GaugeMetricFamily(
        f"{_PREFIX}sink_open", "Whether a sink does not answer: its circuit is open.", labels=("sink",)
    )
    waiting = GaugeMetricFamily(
        f"{_PREFIX}sink_waiting_payloads", "What is to be delivered and not under way.", labels=("sink",)
    )
    attempts = CounterMetricFamily(
        f"{_PREFIX}sink_attempts", "Attempts to deliver, by outcome.", labels=("sink", "outcome")
    )
    for each in sinks:
        is_open.add_metric((each.name,), not isinstance(each.state.circuit, Closed))
        waiting.add_metric((each.name,), len(each.state.waiting))
        for outcome, count in each.attempts.items():
            attempts.add_metric((each.name, outcome), count)
    return iter((is_open, waiting, attempts))


def _seconds(handled: Mapping[TopicPartition, Handled]) -> Metric:
    """How long handlers took, by topic: a histogram of each partition would be a series for each of its buckets."""
    family = HistogramMetricFamily(f"{_PREFIX}handler_seconds", "How long handlers took.", labels=("topic",))
    for topic in sorted({partition.topic for partition in handled}):
        some = [each for partition, each in handled.items() if partition.topic == topic]
        counts = accumulate(map(sum, zip(*(each.counts for each in some), strict=True)))
        total_s = sum(each.total_s for each in some)
        family.add_metric((topic,), [*zip((*map(str, BOUNDS_S), "+Inf"), counts, strict=True)], total_s)
    return family


def _gauge(name: str, about: str, *more: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{_PREFIX}{name}", about, labels=(*_PLACE, *more))


def _counted(name: str, about: str, counts: Mapping[TopicPartition, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"{_PREFIX}{name}", about, labels=_PLACE)
    for partition, count in list(counts.items()):
        family.add_metric(_place(partition), count)
    return family


def _place(partition: TopicPartition) -> tuple[str, str]:
    return partition.topic, str(partition.partition)
