"""A member of a group with all of its partitions, and its shutdown."""
