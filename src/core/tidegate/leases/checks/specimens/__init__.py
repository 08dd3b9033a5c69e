"""The specimens of `tidegate.leases`: faulty variants, each of which breaks a law."""
