"""For tests: the event loop with virtual time, the pytest plug-in, the black pipe, simulated servers."""
