"""The scenarios of `tidegate.reactive`: each is explored completely, and breaks no law."""
