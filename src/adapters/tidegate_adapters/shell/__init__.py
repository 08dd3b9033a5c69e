"""The shell of every runtime: command line, settings, signals, health, metrics and page.

A new runtime adds a row to `runtimes`, a module with the functions of its commands, and their help
in `cli`. `tests/integration/test_shell.py` has the smallest one.
"""
