"""Prometheus metrics of a worker: `tidegate_worker_...`, by topic and partition, never by a
record's content.

    lag_records                  from the committed position to the last seen log end; 0 once all
                                 records are committed, even if control markers follow
    in_flight_records            delivered and unsettled, by stage
    failed_records               with a standing failure
    oldest_record_age_seconds    since the delivery of the oldest unfinished record
    held_partitions              without fetches, by reason (`tidegate.consumer.worker.health.Cause`)
    handled_records_total        records with a finished handler
    handler_failures_total       handler calls that raised
    retries_total                repeated attempts
    dead_letters_total           failed records, skipped or dead-lettered
    commits_total                by outcome
    removed_offsets_total        removed from the log before the group read them
    observer_failures_total      calls of `observe` and `record` that raised; no labels
    handler_seconds              duration of handlers, by topic, as a histogram
    sink_open                    whether a sink's circuit is open or half open; by sink
    sink_waiting_payloads        payloads that wait for a delivery; by sink
    sink_attempts_total          deliveries, by sink and outcome: answered, unanswered

A scrape computes gauges; counters are kept per batch (`tidegate_adapters.kafka.stats`). Names
follow Prometheus' recommendations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tidegate.consumer.offsets.explanation import lag
from tidegate.consumer.worker.consumer import ConsumerState
from tidegate.consumer.worker.health import Cause
from tidegate.model.records import TopicPartition
from tidegate.sinks.circuit_breaker import Closed
from tidegate_adapters.kafka.stats import Glance, Tallies
from tidegate_adapters.observe.handler_times import Handled
from tidegate_adapters.observe.prometheus import Metric, counter, gauge, handler_seconds
from tidegate_adapters.sinks.port import SinkStatus

_PLACE: Final = ("topic", "partition")
_NONE: Final = Tallies()
_PREFIX: Final = "tidegate_worker_"
_NOTHING: Final = Glance(ConsumerState(), (), {}, {})


def families(now: Glance = _NOTHING, tallies: Tallies = _NONE) -> Iterator[Metric]:
    """Without arguments, the metrics of a worker that does not run."""
    yield from _of_state(now)
    handled = dict(tallies.handled)
    for name, about, counts in (
        ("handled_records", "Records whose handler has returned.", {at: each.done for at, each in handled.items()}),
        ("handler_failures", "Calls of handlers that have raised.", {at: each.failed for at, each in handled.items()}),
        ("retries", "Attempts that are made again after a failure.", tallies.retried),
        ("dead_letters", "Records that have failed for good, and that were answered for.", tallies.dead_letters),
        ("removed_offsets", "Offsets removed from the log before the group read them.", tallies.removed),
    ):
        rows = ((*_place(partition), count) for partition, count in list(counts.items()))
        yield counter(f"{_PREFIX}{name}", about, _PLACE, rows)
    commits = ((*_place(partition), outcome, count) for (partition, outcome), count in list(tallies.commits.items()))
    yield counter(f"{_PREFIX}commits", "Commits, by outcome.", (*_PLACE, "outcome"), commits)
    raised = "Calls of observers and recordings that have raised."
    yield counter(f"{_PREFIX}observer_failures", raised, (), [(now.observer_failures,)])
    # By topic: a histogram for each partition would add a series for each of its buckets.
    by_topic = {topic: _sum(handled, topic) for topic in sorted({partition.topic for partition in handled})}
    yield handler_seconds(f"{_PREFIX}handler_seconds", by_topic, "topic")
    yield from _of_sinks(now.sinks)


def _of_state(now: Glance) -> Iterator[Metric]:
    parts = [(part, _place(part.partition)) for part in now.state.partitions]
    lags = (
        (*place, records)
        for part, place in parts
        if (end := now.ends.get(part.partition)) is not None
        and (records := lag(part.tracker, end, now.read.get(part.partition, 0))) is not None
    )
    yield gauge(f"{_PREFIX}lag_records", "From what is committed to the end of the log.", _PLACE, lags)
    stages = ("waiting", "arranging", "running", "in_hooks", "delivering")
    loads = ((*place, stage, getattr(part.load, stage)) for part, place in parts for stage in stages)
    about = "Records that are delivered and not settled, by where they are."
    yield gauge(f"{_PREFIX}in_flight_records", about, (*_PLACE, "stage"), loads)
    failed = ((*place, len(part.failed)) for part, place in parts)
    yield gauge(f"{_PREFIX}failed_records", "Records whose failure stands.", _PLACE, failed)
    ages = ((*_place(each.partition), now.ages_s.get(each.partition, 0.0)) for each in now.seen)
    about = "Since the oldest record that is not done was delivered; 0 for none."
    yield gauge(f"{_PREFIX}oldest_record_age_seconds", about, _PLACE, ages)
    count = Counter((each.partition.topic, cause) for each in now.seen for cause in each.causes)
    topics = sorted({each.partition.topic for each in now.seen})
    held = ((topic, cause.value, count[topic, cause]) for topic in topics for cause in Cause)
    about = "Partitions from which nothing is fetched, by why."
    yield gauge(f"{_PREFIX}held_partitions", about, ("topic", "reason"), held)


def _of_sinks(sinks: Sequence[SinkStatus]) -> Iterator[Metric]:
    is_open = ((each.name, int(not isinstance(each.state.circuit, Closed))) for each in sinks)
    yield gauge(f"{_PREFIX}sink_open", "Whether a sink does not answer: its circuit is open.", ("sink",), is_open)
    waiting = ((each.name, len(each.state.waiting)) for each in sinks)
    yield gauge(f"{_PREFIX}sink_waiting_payloads", "What is to be delivered and not under way.", ("sink",), waiting)
    attempts = ((each.name, *counted) for each in sinks for counted in each.attempts.items())
    yield counter(f"{_PREFIX}sink_attempts", "Attempts to deliver, by outcome.", ("sink", "outcome"), attempts)


def _sum(handled: Mapping[TopicPartition, Handled], topic: str) -> Handled:
    found = Handled()
    for each in (each for partition, each in handled.items() if partition.topic == topic):
        found.total_s += each.total_s
        found.counts = [*map(sum, zip(found.counts, each.counts, strict=True))]
    return found


def _place(partition: TopicPartition) -> tuple[str, str]:
    return partition.topic, str(partition.partition)
