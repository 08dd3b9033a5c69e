"""The scenarios of `tidegate.consumer`: each is explored completely, and breaks no law."""
