"""The laws of `tidegate.leases` as predicates, one module per subject."""

from tidegate.leases.checks.laws import claim_lock, election, lease

__all__ = ["claim_lock", "election", "lease"]
