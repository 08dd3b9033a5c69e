"""What every runtime gets around its own work: a command line, settings, signals, health, metrics and a page.

    runtimes       the table of runtimes: a row for each
    options        options that commands share, and how help is laid out
    commands       the commands of a runtime: `run`, and those that an operator asks
    terminal       where a command writes
    application    loads an application, lays settings over it, runs it, or asks it
    signals        the first signal drains, the second waits for nothing, the third ends the process

A new runtime needs a row in `runtimes`, a module with what its commands do, and its commands with their help in `cli`.
`tests/integration/test_shell.py` has the smallest one.
"""
