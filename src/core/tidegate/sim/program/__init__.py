"""A suspended program as a value."""
