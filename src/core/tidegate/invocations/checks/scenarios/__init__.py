"""The scenarios of `tidegate.invocations`: each is explored completely, and breaks no law."""
