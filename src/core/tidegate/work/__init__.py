"""A process that runs handlers: polling, slots, claims, results and shutdown.

In reading order:
    worker      the reducer, and its laws
    vocabulary  rules, runs, and commands
    events      replies to commands, and other events
    state       the state
"""
