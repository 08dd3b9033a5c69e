"""The algorithms themselves: sequences of calls around the decisions, one file each."""
