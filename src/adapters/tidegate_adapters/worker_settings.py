"""What a Kafka worker is told that is not code: topics, broker, group, rules, and options of its client.

User code (handler, hooks, callbacks) stays with the `Worker`; these can be changed from outside of the program, by a file,
the environment or arguments (`tidegate_adapters.configuration`). No driver is needed to read or to show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

from tidegate.consumer.consumer import ConsumerRules
from tidegate.model.errors import Misuse
from tidegate.model.values import check_type

__all__ = ["WorkerSettings"]


@final
@attrs.frozen
class WorkerSettings:
    """What a worker is told.

    Invariants: topics, each with a name; a group.

    Attributes:
        topics: What to consume.
        bootstrap: `host:port`, several separated by commas.
        group: The consumer group.
        consumer: What may run at once, and how long a revocation may drain.
        options: More options of the client; never shown, for a password may be among them.
    """

    topics: tuple[str, ...]
    bootstrap: str
    group: str
    consumer: ConsumerRules = ConsumerRules()
    options: Mapping[str, object] = attrs.field(factory=dict, repr=False)

    def __attrs_post_init__(self) -> None:
        if not self.topics or not all(self.topics):
            raise Misuse(f"{self.topics!r} are not topics", todo="pass a list of names")
        if not self.group:
            raise Misuse("a worker needs a consumer group", why="its commits are the group's")
        check_type(self.consumer, ConsumerRules, "what a consumer does")
