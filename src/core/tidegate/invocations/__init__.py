"""Invocations of tasks: their statuses and owners, admission to run, and recovery of stuck ones.

Read in this order.

    status             a table of statuses, ownership and versions: decides a transition
    invocation         pynenc's table of an invocation, as data
    diagrams           a table as a Mermaid diagram
    record_documents   the record of an invocation, as a document
    jobs               the work of an invocation, and its queue
    transition         the program of one transition: read, decide, one compare-and-set
    settling           the program that moves many records at once, each from its known state
    ending             the program that writes the ends of runs
    waiting            the program that waits until invocations have ended
    invocation_queries filters for invocations, and their rows and pages
    asking             operator commands: cancel, kill, hold, release, repeat, list
    purging            the programs that delete old invocations and unreferenced uploads
    array_push_lock    the lock of pynenc-mongo, for interoperation
    admission          decides which calls exclude each other, and who has a place
    place_documents    the places of a set, as a document
    placing            the programs that reserve places for many at once, and wake waiters
    picker             the program that picks an invocation up, if it gets a place
    rates              decides how many of a set may begin now, and when the others return
    metering           the program that applies a rate
    registration       the program that registers a call, if it gets a place
    enqueueing         the program that creates invocations, also in the caller's transaction
    worker             adapts invocations to the worker (`tidegate.work`)
    heeding            the orders for a process's runs, and its lost and untracked ones
    taking             the program that claims due invocations in bulk
    recovery           decides what is stuck, and the step that frees it
    recoverer          the program that finds and frees it

Beside them: `laws`, `scenarios`, `specimens`, `strategies`.
"""
