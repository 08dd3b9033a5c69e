"""The shared vocabulary: values, time, documents, effects and reducers.

In reading order:
    errors      the errors that tidegate raises when it is misused
    values      checks of arguments
    immutable   which values are known to be immutable all the way down
    sealed      values that only type checkers keep from being changed
    instants    points in time, on named clocks
    effects     programs, the effects they may await, and how effects fail
    documents   documents, filters and updates (a package)
    operations  the commands of a document store, as effects
    transactions  operations that take effect together or not at all
    programs    common programs: insert unless present, find all
    history     the versions that a record remembers, and the outcome of a request
    bytecode    the awaits and calls in the compiled code of a program
    unawaited   effects that a program creates and never awaits
    reducer     long-lived machines: state and event -> state and commands
    records     records of a topic
    record_counts  a query that counts records by task and status
    reading     how a program reads fields that it needs
    patches     the difference of two values, and values as plain JSON

A name without an underscore is public. For tests: `laws` and `strategies`.
"""
