"""The scenarios of `tidegate.leases`. Explored completely, each keeps its laws."""
