"""tidegate: the coordination of services on Kafka and MongoDB as values that can be model-checked.

The rooms, lowest first; each says in its docstring what it answers and in which order to read it:

    model        values, documents, effects, programs and reducers: the vocabulary
    retries      back-off, what may be tried again, polling, schedules
    transactions  several documents changed together, once or not at all
    counters     a counter kept in two steps, and its sweep
    payloads     large payloads in chunks
    leases       leases with fencing tokens, leader election, a small lock
    services     membership of runners, atomic services, executions, retention
    invocations  statuses of invocations, transitions, admission, recovery
    triggers     conditions, and what they fire
    reactive     tasks on change streams: snapshots, debouncing, reconciliation
    consumer     a partition of a log and a consumer of a group
    sinks        delivery, circuit breakers, outbox, dead letters
    sim          the simulator

Every scenario and specimen that ships is in `tidegate.catalogue`. The laws are `tidegate.laws`, what helps in tests is
`tidegate.testing`, `tidegate.strategies` and `tidegate.conformance`, what the command answers to a script is
`tidegate.exit_codes`, and whatever touches the world is `tidegate_adapters`.
"""

from tidegate.exit_codes import ExitCode
from tidegate.model.errors import Misuse, TidegateError

__all__ = ["ExitCode", "Misuse", "TidegateError", "__version__"]

__version__ = "0.1.0"
