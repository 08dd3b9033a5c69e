"""Building blocks for other services: leases, the array-push lock, resilient writes, payloads."""
