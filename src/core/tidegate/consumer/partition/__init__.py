"""The reducer of one partition."""
