"""The actors and the simulated servers."""
