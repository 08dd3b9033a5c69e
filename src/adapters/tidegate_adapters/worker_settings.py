"""What a Kafka worker is told that is not code: topics, broker, group, rules, and options of its client.

User code (handler, hooks, callbacks) stays with the `Worker`; these can be changed from outside of the program, by a file,
the environment or arguments (`tidegate_adapters.configuration`). No driver is needed to read or to show them.
"""

from __future__ import annotations

from typing import Literal, TypedDict, final

import attrs

from tidegate.consumer.consumer import ConsumerRules
from tidegate.model.errors import Misuse
from tidegate.model.values import check_type
from tidegate_adapters.printable import Secret

__all__ = ["ClientOptions", "WorkerSettings"]


class ClientOptions(TypedDict, total=False):
    """Options of aiokafka's consumer, by its names, as far as they can be written down; times are milliseconds.

    `ssl_cafile`, `ssl_certfile`, `ssl_keyfile` and `ssl_password` make an `ssl_context`; without them, and with a
    `security_protocol` that has TLS, the authorities of the system are trusted.
    """

    client_id: str
    client_rack: str
    group_instance_id: str
    auto_offset_reset: Literal["earliest", "latest", "none"]
    isolation_level: Literal["read_uncommitted", "read_committed"]
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    ssl_cafile: str
    ssl_certfile: str
    ssl_keyfile: str
    ssl_password: Secret
    sasl_mechanism: Literal["PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    sasl_plain_username: str
    sasl_plain_password: Secret
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    request_timeout_ms: int
    retry_backoff_ms: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    fetch_min_bytes: int
    max_partition_fetch_bytes: int
    consumer_timeout_ms: int
    check_crcs: bool
    exclude_internal_topics: bool


@final
@attrs.frozen
class WorkerSettings:
    """What a worker is told.

    Invariants: topics, each with a name; an address without a user; a group.

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
    options: ClientOptions = attrs.field(factory=ClientOptions, repr=False)

    def __attrs_post_init__(self) -> None:
        if not self.topics or not all(self.topics):
            raise Misuse(f"{self.topics!r} are not topics", todo="pass a list of names")
        if "@" in self.bootstrap:
            raise Misuse(
                "the address of a broker with a user in it",
                why="it is host:port, and is shown in logs and errors",
                todo="set the options sasl_plain_username and sasl_plain_password",
            )
        if not self.group:
            raise Misuse("a worker needs a consumer group", why="its commits are the group's")
        check_type(self.consumer, ConsumerRules, "what a consumer does")
