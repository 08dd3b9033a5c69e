"""The specimens of `tidegate.consumer`: faulty variants, each of which breaks a law."""
