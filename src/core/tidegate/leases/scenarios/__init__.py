"""The scenarios of `tidegate.leases`: each is explored completely, and breaks no law."""
