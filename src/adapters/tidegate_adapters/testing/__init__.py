"""Test tools: a virtual-time event loop, the pytest plug-in, the black pipe, simulated servers."""
