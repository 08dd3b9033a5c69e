"""The specimens of `tidegate.invocations`: faulty variants, each of which breaks a law."""
