"""The shell of every runtime: command line, settings, signals, health, metrics and page.

    runtimes       the table of runtimes: a row for each
    options        options that commands share, and how help is laid out
    commands       the commands of a runtime: `run`, and those that an operator asks
    terminal       where a command writes
    application    loads an application, applies settings, runs it, and answers commands about it
    signals        the first signal drains, the second stops at once, the third kills the process
    settings       the settings of what is served, and of an app of tasks on MongoDB
    monitor        health, metrics and the page of an application
    app            the base class of apps of tasks on MongoDB

A new runtime adds a row to `runtimes`, a module with the functions of its commands, and the help of its commands in `cli`. The
smallest one is in `tests/integration/test_shell.py`.
"""
