"""The vocabulary of all packages: values, time, documents, effects, programs and reducers.

In reading order:
    errors, values          errors of misuse, and checks of arguments
    immutable, sealed       immutable values, and how they are made
    instants                points in time, on named clocks
    effects                 programs, the effects they await, and how effects fail
    documents               documents, filters and updates (a package)
    operations              the commands of a document store, as effects
    transactions            operations that take effect together or not at all
    programs, reading       common programs: insert unless present, find all; needed fields
    history                 the versions that a record remembers, and the outcome of a request
    reducer                 long-lived machines: state and event to state and commands
    records, record_counts  records of a topic; counts of stored records
    patches                 the difference of two values, and values as plain JSON
    bytecode, unawaited     the awaits of a program, and effects that are never awaited
"""

from typing import TYPE_CHECKING

from tidegate._lazy import lazy

if TYPE_CHECKING:
    from tidegate.model.documents import ID, AllOf, AnyOf, Document, Eq, Field, Lt, Put
    from tidegate.model.effects import Ambiguous, Call, Effect, Failure, NotApplied, Note, Now, Program, Refused, Sleep
    from tidegate.model.errors import Misuse, TidegateError
    from tidegate.model.instants import SECOND, Instant, instant
    from tidegate.model.operations import find_one, find_one_and_update, insert_one, update_one
    from tidegate.model.records import Record, Send, TopicPartition
    from tidegate.model.reducer import Reducer, Step
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "ID", "SECOND", "AllOf", "Ambiguous", "AnyOf", "Call", "Document", "Effect", "Eq", "Failure", "Field",
    "Instant", "Lt", "Misuse", "NotApplied", "Note", "Now", "Program", "Put", "Record", "Reducer", "Refused",
    "Send", "Sleep", "Step", "TidegateError", "TopicPartition", "find_one", "find_one_and_update", "insert_one",
    "instant", "update_one",
]  # fmt: skip
