"""The scenarios of `tidegate.counters`: each is explored completely, and breaks no law."""
