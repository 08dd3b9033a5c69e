"""The laws of `tidegate.payloads` as predicates, one module a subject."""

from tidegate.payloads.laws import chunking, payload_records

__all__ = ["chunking", "payload_records"]
