"""Triggers that start tasks by themselves: does a condition hold, what fires, and who makes it happen, once?

Read in this order.

    contexts             what happened
    conditions           whether a condition holds of what happened
    trigger              what starts a task, with which arguments, and what is registered
    firing               what fires of what was seen, who may make it happen, and what may be forgotten
    trigger_documents    occurrences, cells of crons and runs as documents, and back
    definitions          which triggers are there, whoever knows them
    noticing             what becomes of invocations is heard of: the outbox in their records
    evaluator            the programs: notice, evaluate, purge
    turn                 what a process does while it has its turn

Beside them: `laws`, `scenarios`, `specimens`, `strategies`.
"""
