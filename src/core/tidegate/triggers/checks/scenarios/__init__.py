"""The scenarios of `tidegate.triggers`. Explored completely, each keeps its laws."""
