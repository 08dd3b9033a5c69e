"""The laws of `tidegate.payloads` as predicates, one module a subject."""

from tidegate.payloads.checks.laws import upload_records

__all__ = ["upload_records"]
