"""What a partition asks its runtime to do, and what the runtime reports."""
