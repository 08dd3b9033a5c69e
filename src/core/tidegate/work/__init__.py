"""A process that runs handlers: polling, slots, claims, results and shutdown.

    vocabulary  rules, runs, and commands
    events      replies to commands, and other events
    state       the state
    worker      the reducer, and its laws

Read `worker` first. Beside them: `laws`.
"""
