"""Invocations of tasks: which status comes next, who owns it, may it run now, and what frees it when it is stuck?

Read in this order.

    status             a table of statuses, ownership and versions: what a transition makes of a record
    invocation         pynenc's table of an invocation, as data
    diagrams           a table as a Mermaid diagram
    record_documents   the record of an invocation, as a document
    jobs               what an invocation is to do, and where it waits
    transition         the program of one transition: read, decide, one compare-and-set
    settling           the program that moves many records at once, each as its caller knows it
    ending             how runs have ended, written down with all that belongs to it
    waiting            the program that waits until invocations have ended
    invocation_queries which invocations somebody means, and how they are shown
    asking             what operators and callers ask: cancel, kill, hold, release, repeat, list
    purging            the programs that remove what ended long ago, and uploads that nothing refers to
    array_push_lock    the lock of pynenc-mongo, for those who must interoperate with it
    admission          which calls exclude each other, and who has a place
    place_documents    the places of those who exclude each other, as a document
    placing            the programs of places for many at once, and of those who wait for one
    picker             the program that picks an invocation up, if it gets a place
    rates              how many of a set may begin now, and when the others are to come
    metering           the program that asks that
    registration       the program that makes a call an invocation, if it gets a place
    enqueueing         the program that makes invocations, in the caller's transaction, too
    worker             what runs of invocations are to a worker (`tidegate.work`), and what they have come to
    heeding            what was asked of those, and which are its own no more
    taking             the program that takes what is due, many in a request
    recovery           what is stuck, and the one step that frees it
    recoverer          the program that finds it and frees it

Beside them: `laws`, `scenarios`, `specimens`, `strategies`.
"""
