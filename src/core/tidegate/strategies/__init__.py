"""Hypothesis strategies for the values of the core, for tests here and in projects that use tidegate.

They aim at what breaks comparisons and ledgers: numbers that are equal in one type and not in another, keys in another
order, null beside missing, gaps in offsets, offsets that come again. `pairs` and `document_pairs` draw two values that
are the same but for a step or two of that kind, for two independent draws are practically never nearly equal.

Strategies for what whole projects share stand here; those for the values of one decision in the module of its name, as in
`strategies.lease.terms()`.

This package needs `pip install 'tidegate[hypothesis]'`; no other module of the core imports it.
"""

from tidegate.errors import MissingExtra

try:
    import hypothesis  # noqa: F401  asked for here, so that what is missing is told once
except ImportError as missing:
    raise MissingExtra("tidegate.strategies", "hypothesis", missing) from missing

from tidegate.strategies import (
    admission,
    atomic_service,
    backpressure,
    change_stream,
    chunking,
    circuit,
    commit_metadata,
    conditions,
    counter,
    dead_letters,
    debounce,
    delivery,
    drain,
    election,
    evolution,
    executions,
    fanout,
    firing,
    lease,
    membership,
    orphans,
    partition,
    polling,
    reactive,
    reconciliation,
    recovery,
    retention,
    retry,
    schedule,
    snapshot,
    status,
    trigger,
    watermark,
)
from tidegate.strategies.documents import (
    document_pairs,
    documents,
    field_names,
    instants,
    keys,
    pairs,
    projections,
    scalars,
    values,
)
from tidegate.strategies.offsets import OFFSETS, batches, deliveries, offsets, records
from tidegate.strategies.operations import filters, operations, updates
from tidegate.strategies.wishes import events

__all__ = [
    "OFFSETS",
    "admission",
    "atomic_service",
    "backpressure",
    "batches",
    "change_stream",
    "chunking",
    "circuit",
    "commit_metadata",
    "conditions",
    "counter",
    "dead_letters",
    "debounce",
    "deliveries",
    "delivery",
    "document_pairs",
    "documents",
    "drain",
    "election",
    "events",
    "evolution",
    "executions",
    "fanout",
    "field_names",
    "filters",
    "firing",
    "instants",
    "keys",
    "lease",
    "membership",
    "offsets",
    "operations",
    "orphans",
    "pairs",
    "partition",
    "polling",
    "projections",
    "reactive",
    "reconciliation",
    "records",
    "recovery",
    "retention",
    "retry",
    "scalars",
    "schedule",
    "snapshot",
    "status",
    "trigger",
    "updates",
    "values",
    "watermark",
]
