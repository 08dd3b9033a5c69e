"""The vocabulary that everybody shares: values, time, documents, effects, and what a reducer is.

In reading order:
    errors      what is raised when tidegate is used wrongly
    values      checks of arguments
    immutable   what is known to be immutable all the way down
    sealed      values that only type checkers keep from being changed
    instants    points in time, on clocks that have names
    effects     programs, what they may ask of the world, and how it fails
    documents   documents, filters and updates (a package)
    operations  the commands of a document store, as effects
    transactions  operations that are seen together or not at all, as effects
    programs    what programs do again and again: insert unless it is there, find all there is
    history     what a record remembers of its versions, and so what became of a request
    bytecode    what the compiled code of a program says of its awaits and calls
    unawaited   effects that a program makes and never awaits
    reducer     long-lived machines: a step from state and event to state and commands
    records     records of a topic
    record_counts  how many records of which task have which status? asked of a store
    reading     how a program reads fields that it needs
    patches     the difference of two values, and values as plain JSON

A name without an underscore is public. For tests: `laws` and `strategies`.
"""
