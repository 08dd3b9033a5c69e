"""The specimens of `tidegate.reactive`: faulty variants, each of which breaks a law."""
