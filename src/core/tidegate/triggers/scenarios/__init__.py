"""The scenarios of `tidegate.triggers`: each is explored completely, and breaks no law."""
