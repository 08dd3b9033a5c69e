"""Services that run on one of several runners at a time: membership, slots, and the history of
runs.

In reading order:
    membership        which members are alive, and in which order
    atomic_service    which runner may start: slots of a cycle, from the list of living runners
    retention         which rows of a history to delete
    executions        the gate behind the slots, the history beside it, and the margin of a run
    members           membership on a document store: how a process joins, beats and leaves
    service_runner    the program of a runner, made of all of these
"""
