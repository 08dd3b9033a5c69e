"""Delivery of payloads, which user code makes of records, to sinks; and dead letters.

In reading order:
    delivery         the result of a failed delivery, and when an offset is done
    circuit_breaker  whether a sink that does not answer is tried
    outbox           which waiting payloads of one sink are tried now
    dead_letters     the stored form of a record that could not be handled, or delivered
    letter_writing   the result of an attempt to write that
    replay           which dead letters are delivered again, and up to where that is done

`tidegate_adapters.sinks.port` runs an outbox.
"""

from typing import TYPE_CHECKING

from tidegate._lazy import lazy

if TYPE_CHECKING:
    from tidegate.sinks.circuit_breaker import CircuitBreaker, Closed, HalfOpen, Open
    from tidegate.sinks.dead_letters import DeadLetter, RefusedOutput, decode, encode
    from tidegate.sinks.delivery import Action, DeliveryRules
    from tidegate.sinks.outbox import OutboxRules, OutboxState
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "Action", "CircuitBreaker", "Closed", "DeadLetter", "DeliveryRules", "HalfOpen", "Open", "OutboxRules",
    "OutboxState", "RefusedOutput", "decode", "encode",
]  # fmt: skip
