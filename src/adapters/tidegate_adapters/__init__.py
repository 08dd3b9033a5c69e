"""Adapters to the outside world: drivers, files, terminals and clocks, each behind its own
extra.
"""
