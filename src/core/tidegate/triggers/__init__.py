"""Triggers start tasks when their conditions hold. The modules decide what fires and fire it once.

In reading order:
    contexts             what happened
    conditions           whether a condition holds of what happened
    trigger              which task starts, with which arguments, and what is registered
    firing               what fires, which pass may fire it, and what may be deleted
    trigger_documents    occurrences, cron cells and runs as documents, and back
    definitions          which triggers exist in any version of the application
    noticing             the relay of the outbox in invocation records
    evaluator            the programs: notice, evaluate, purge
    turn                 what a process does during its service window
"""
