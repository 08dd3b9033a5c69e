"""The orchestrator beside the same by hand, and beside others."""
