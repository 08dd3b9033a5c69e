"""The specimens of `tidegate.triggers`: faulty variants, each of which breaks a law."""
