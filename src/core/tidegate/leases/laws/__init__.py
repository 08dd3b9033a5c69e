"""The laws of `tidegate.leases` as predicates, one module a subject."""

from tidegate.leases.laws import election, lease

__all__ = ["election", "leader", "lease"]
