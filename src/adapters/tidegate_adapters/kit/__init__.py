"""What other services embed: leases, the array-push lock, resilient writes, payloads."""
