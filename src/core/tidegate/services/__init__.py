"""Services that run on one of several runners at a time: who is alive, whose turn is it, and what became of each run?

Read in this order.

    membership        who is alive, in which order
    atomic_service    whose turn it is: slots of a cycle, from the list of the living
    retention         which rows of a history may go
    executions        the gate behind the slots, the history beside it, and the margin of a run
    members           membership on a document store: how a process joins, beats and leaves
    service_runner    the program of a runner, made of all of these

Beside them: `laws`, `scenarios`, `specimens`, `strategies`.
"""
