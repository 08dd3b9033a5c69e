"""A process that runs handlers: which runs are under way, and what does it ask for next?

    vocabulary  rules, runs, and commands
    events      what became of commands, and what else happens
    state       the state
    worker      the reducer, and its laws

Read `worker` first. Beside them: `laws`.
"""
