"""Hypothesis strategies for the values of the core, for tests here and in projects that use tidegate.

They aim at what breaks comparisons and ledgers: numbers that are equal in one type and not in another, keys in another
order, null beside missing, gaps in offsets, offsets that come again. `pairs` and `document_pairs` draw two values that
are the same but for a step or two of that kind, for two independent draws are practically never nearly equal.

This package needs `pip install 'tidegate[hypothesis]'`; no other module of the core imports it.
"""

from tidegate.errors import MissingExtra

try:
    import hypothesis  # noqa: F401  asked for here, so that what is missing is told once
except ImportError as missing:
    raise MissingExtra("tidegate.strategies", "hypothesis", missing) from missing

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
from tidegate.strategies.offsets import OFFSETS, batches, deliveries, events, offsets, records
from tidegate.strategies.operations import filters, operations, updates

__all__ = [
    "OFFSETS",
    "batches",
    "deliveries",
    "document_pairs",
    "documents",
    "events",
    "field_names",
    "filters",
    "instants",
    "keys",
    "offsets",
    "operations",
    "pairs",
    "projections",
    "records",
    "scalars",
    "updates",
    "values",
]
