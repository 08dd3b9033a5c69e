"""What is committed, when, and what the answers of the broker mean."""
