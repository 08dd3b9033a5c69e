"""The specimens of `tidegate.counters`: faulty variants, each of which breaks a law."""
