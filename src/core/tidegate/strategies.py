"""Hypothesis strategies for the values of the core, for tests here and in projects that use
tidegate.

They aim at values that break comparisons and trackers: numbers equal across types, other key
orders, null beside missing, gaps in offsets, repeated offsets. `pairs` and `document_pairs` draw
two values that differ in a step or two of that kind, because two independent draws are practically
never nearly equal.

Strategies for one decision are in the module of its name, as `strategies.lease.terms()`. Install
`tidegate[hypothesis]`; nothing else in the core imports Hypothesis.
"""

from tidegate.model.errors import MissingExtra

try:
    import hypothesis  # noqa: F401  asked for here, so that what is missing is reported once
except ImportError as missing:
    raise MissingExtra("tidegate.strategies", "hypothesis", missing) from missing

from tidegate.consumer.checks.strategies import (
    backpressure,
    commit_metadata,
    drain,
    explanation,
    fanout,
    partition,
    watermark,
)
from tidegate.consumer.checks.strategies.commands import events
from tidegate.consumer.checks.strategies.offsets import OFFSETS, batches, deliveries, offsets
from tidegate.counters.checks import strategies as counter
from tidegate.invocations.checks.strategies import admission, recovery, status
from tidegate.leases.checks.strategies import claim_lock, election, lease
from tidegate.model.checks.strategies import bson, history
from tidegate.model.checks.strategies.documents import (
    document_pairs,
    documents,
    field_names,
    instants,
    keys,
    pairs,
    scalars,
    values,
)
from tidegate.model.checks.strategies.operations import filters, operations, updates
from tidegate.model.checks.strategies.records import records
from tidegate.payloads.checks.strategies import upload_records
from tidegate.reactive.checks.strategies import (
    change_stream,
    debounce,
    evolution,
    orphans,
    reconciliation,
    snapshot,
    tasks,
)
from tidegate.reactive.checks.strategies.snapshot import projections
from tidegate.retries.checks.strategies import backoff, failures, pauses, polling, schedule
from tidegate.services.checks.strategies import atomic_service, executions, membership, retention
from tidegate.sinks.checks.strategies import circuit_breaker, dead_letters, delivery
from tidegate.triggers.checks.strategies import conditions, firing, trigger

__all__ = [
    "OFFSETS", "admission", "atomic_service", "backoff", "backpressure", "batches", "bson", "change_stream",
    "circuit_breaker", "claim_lock", "commit_metadata", "conditions", "counter", "dead_letters", "debounce",
    "deliveries", "delivery", "document_pairs", "documents", "drain", "election", "events", "evolution", "executions",
    "explanation", "failures", "fanout", "field_names", "filters", "firing", "history", "instants", "keys", "lease",
    "membership", "offsets", "operations", "orphans", "pairs", "partition", "pauses", "polling", "projections",
    "reconciliation", "records", "recovery", "retention", "scalars", "schedule", "snapshot", "status", "tasks",
    "trigger", "updates", "upload_records", "values", "watermark",
]  # fmt: skip
