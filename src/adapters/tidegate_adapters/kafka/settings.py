"""The settings of a Kafka worker: topics, brokers, group, rules and client options.

User code (handlers and callbacks) stays with the `Worker`. A file, the environment or arguments can
change settings (`tidegate_adapters.shell.configuration`). Reading them needs no driver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, Literal, TypedDict, final

import attrs

from tidegate.consumer.flow.backpressure import for_executors
from tidegate.consumer.worker import worker
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.consumer.worker.worker import WorkerRules
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import MILLISECOND, SECOND, duration, seconds
from tidegate.model.records import TopicPartition
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.backoff import Exponential, Policy
from tidegate.sinks.circuit_breaker import CircuitBreaker
from tidegate.sinks.delivery import Action, DeliveryRules
from tidegate.sinks.outbox import OutboxRules
from tidegate_adapters.base.decorators import length_of
from tidegate_adapters.base.redaction import Secret
from tidegate_adapters.runtime.handlers import TOPIC, Undecodable, is_pattern, letters_of, pattern_of

LOOPBACK: Final = "127.0.0.1"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


def letter_topic(pattern: str, topic: str) -> str:
    return pattern.replace(TOPIC, topic)


class ClientOptions(TypedDict, total=False):
    """Options of aiokafka's consumer that a file can hold; times are milliseconds.

    The `ssl_` options make an `ssl_context`; without them the system's authorities are trusted.
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


CONCURRENCY: Final = ConsumerRules().executors
LEAVE: Final = timedelta(microseconds=worker.LEAVE)
STALLED_AFTER: Final = timedelta(minutes=5)
"""The default of Kafka's `max.poll.interval.ms`."""
GRACE: Final = timedelta(seconds=30)
"""The default of Kubernetes (`terminationGracePeriodSeconds`)."""


def _with_executors(rules: ConsumerRules, executors: int) -> ConsumerRules:
    """Thresholds derived from the old concurrency follow it."""
    if rules.executors == executors:
        return rules
    follows = rules.thresholds == for_executors(rules.executors)
    return attrs.evolve(
        rules, executors=executors, thresholds=for_executors(executors) if follows else rules.thresholds
    )


_OUTBOX: Final = OutboxRules(
    breaker=CircuitBreaker(cooldown=5 * SECOND),
    delivery=DeliveryRules(
        sending=Policy(backoff=Exponential(SECOND // 10, cap=5 * SECOND), attempts_max=None),
        refused=Action.HOLD,
        lasting=Action.HOLD,
        dead_lettering=None,
    ),
)
"""An unanswered send is retried without end, because the position waits for it; a refused one fails
its record.
"""
_NOWHERE: Final[Mapping[TopicPartition, int]] = MappingProxyType({})


_TOPIC_MAX: Final = 249
_PORT_MAX: Final = 65_535


def _check_topic(topic: str) -> None:
    is_legal = re.fullmatch(r"[a-zA-Z0-9._-]+", topic) is not None and len(topic) <= _TOPIC_MAX
    if not is_pattern(topic) and (not is_legal or topic in {".", ".."}):
        raise Misuse(
            f"{shown(topic)} cannot name a topic",
            why=f"Kafka takes letters, digits, '.', '_' and '-', {_TOPIC_MAX} of them at most",
            todo="correct the name, or write a pattern that begins with ^",
        )


_ADDRESS: Final = re.compile(
    r"(?:\[[^]]+\]|[^:\s]+)(?::(?P<port>[0-9]{1,5}))?|[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*"
)
"""An IPv6 address has a port only behind brackets."""


def _check_addresses(bootstrap: str) -> None:
    for address in map(str.strip, bootstrap.split(",")):
        found = _ADDRESS.fullmatch(address)
        if found is None or not 1 <= int(found["port"] or 1) <= _PORT_MAX:
            raise Misuse(
                f"{shown(address)} is not the address of a broker", todo=f"write host:port, 1 <= port <= {_PORT_MAX}"
            )


@final
@attrs.frozen
class WorkerSettings:
    """The settings of a worker, each of which is also an argument of `Worker`.

    Invariants: topics are not empty and each has a name; the address has no user; 1 ms <= timeout;
    0 < stalled_after, grace; 0 <= leave; 1 <= concurrency, observer_failures_max; start_time has a
      time zone and is not
    before 1970; start_offsets are not negative; 0 <= metrics_port < 65536; metrics_host is not
    empty; the worker does not consume its dead-letter topic.

    Attributes:
        topics: Names of topics, and patterns that begin with `^`.
        bootstrap: `host:port`, several separated by commas.
        group: The consumer group.
        consumer: The rules of the consumer; `concurrency` sets its executors.
        options: More options of the client; never shown, because they may include a password.
        concurrency: How many handlers run at a time in this process.
        timeout: An async handler that takes longer is cancelled and fails; None for no limit.
        undecodable: The policy for a record that `decode` rejects, or with a header name that is
            not UTF-8.
        start_time: A partition without a committed position starts at the first record that is not
            older. Without it the option `auto_offset_reset` decides: "earliest" (here the default),
            "latest" or "none", an error. A group with a committed position resumes at the first
            remaining record from there on.
        start_offsets: The same, at an offset, for some partitions.
        dead_letter: The dead-letter topic, in which `{topic}` stands for the record's; None for
            none. See `tidegate.sinks.dead_records` for the content.
        stalled_after: A partition with unfinished work and no progress for so long makes the worker
            unhealthy.
        metrics_port: The port of `/metrics` and `/health`; 0 for any free port, None for no server.
        metrics_host: The address to listen on, loopback by default; there is no authentication.
        leave: How long leaving the group may take after the drain.
        grace: Time from the stop until the process is killed; a drain and leaving must take less.
        exactly_once: Handlers' replies and dead letters go into one Kafka transaction with the
            position that covers their record: a `read_committed` reader sees the replies of each
            record once. All members of the group must set it (`tidegate.consumer.worker.transactions`).
        observer_failures_max: An observer or recording with so many consecutive failures is not
            called again; None for never.
    """

    topics: tuple[str, ...]
    bootstrap: str
    group: str
    consumer: ConsumerRules = ConsumerRules()
    options: ClientOptions = attrs.field(factory=ClientOptions, repr=False)
    concurrency: int = CONCURRENCY
    timeout: timedelta | None = None
    undecodable: Undecodable = Undecodable.FAIL
    start_time: datetime | None = None
    start_offsets: Mapping[TopicPartition, int] = _NOWHERE
    dead_letter: str | None = None
    stalled_after: timedelta = STALLED_AFTER
    metrics_port: int | None = None
    leave: timedelta = LEAVE
    grace: timedelta = GRACE
    metrics_host: str = LOOPBACK
    exactly_once: bool = False
    observer_failures_max: int | None = None

    def __attrs_post_init__(self) -> None:
        if not self.topics or not all(self.topics):
            raise Misuse(f"topics must be a list of names, got {self.topics!r}")
        for text, what in (
            *((each, "a topic") for each in self.topics),
            (self.bootstrap, "an address"),
            (self.group, "a group"),
        ):
            check_type(text, str, what)
        if self.dead_letter is not None:
            check_type(self.dead_letter, str, "dead_letter")
        letters = letter_topic(self.dead_letter or "", "topic")
        for topic in (*self.topics, *filter(None, [letters])):
            _check_topic(topic)
        _ = self.pattern
        if "@" in self.bootstrap:
            raise Misuse(
                "the address of a broker with a user in it",
                why="it is host:port, and is shown in logs and errors",
                todo="set the options sasl_plain_username and sasl_plain_password",
            )
        _check_addresses(self.bootstrap)
        if not self.group:
            raise Misuse("a worker needs a consumer group", why="its commits are the group's")
        check_type(self.consumer, ConsumerRules, "consumer")
        check_type(self.undecodable, Undecodable, "undecodable")
        check_int(self.concurrency, "concurrency", 1)
        object.__setattr__(self, "consumer", _with_executors(self.consumer, self.concurrency))
        if self.timeout is not None:
            _ = length_of(self.timeout, "timeout", MILLISECOND)
        _ = length_of(self.stalled_after, "stalled_after", 1)
        self._check_times()
        check_type(self.exactly_once, bool, "exactly_once")
        if self.observer_failures_max is not None:
            check_int(self.observer_failures_max, "observer_failures_max", 1)
        if self.metrics_port is not None:
            check_int(self.metrics_port, "metrics_port", 0, 65_535)
        check_name(self.metrics_host, "an address to listen on")
        if self.start_time is not None:
            check_type(self.start_time, datetime, "start_time", "write datetime(..., tzinfo=UTC)")
            if self.start_time.tzinfo is None:
                raise Misuse(f"start_time={self.start_time} has no time zone", todo="write datetime(..., tzinfo=UTC)")
            if self.start_time.timestamp() < 0:
                raise Misuse(
                    f"{self.start_time} is before 1970",
                    why="no record is, for Kafka counts time from there on",
                    todo="leave start_time out to start at the beginning",
                )
        check_type(self.start_offsets, Mapping, "start_offsets")
        for partition, offset in self.start_offsets.items():
            check_type(partition, TopicPartition, "a partition to start in")
            check_int(offset, "an offset to start at", 0)
        if self.dead_letter is not None:
            self._check_dead_letter(self.dead_letter)

    @property
    def pattern(self) -> str:
        """A regular expression for the consumed topics, without the worker's own dead letters."""
        return pattern_of(self.topics, self.dead_letter)

    @property
    def rules(self) -> WorkerRules:
        return WorkerRules(self.consumer, duration(self.leave))

    @property
    def outbox(self) -> OutboxRules:
        return attrs.evolve(_OUTBOX, most=self.concurrency)

    def _check_times(self) -> None:
        grace, leave = length_of(self.grace, "grace", 1), length_of(self.leave, "leave", 0)
        drain, rules = self.consumer.partition.drain, self.rules
        if rules.total >= grace:
            raise Misuse(
                f"{seconds(drain.total)} to drain and {seconds(leave)} to leave do not fit into {seconds(grace)}",
                why="whoever stops the worker kills it then; what it has finished and not committed is done again",
                todo=f"shorten consumer.partition.drain or leave, or set grace to more than {seconds(rules.total)} where it is",
            )

    def _check_dead_letter(self, pattern: str) -> None:
        for topic in self.topics:
            letters = letter_topic(pattern, "topic" if is_pattern(topic) else topic)
            if not _TOPIC.fullmatch(letters):
                raise Misuse(f"{letters!r} cannot name a topic", todo="write a name, or one with {topic} in it")
        consumed = pattern_of(self.topics)
        named = [topic for topic in self.topics if not is_pattern(topic)]
        of_these = letters_of(pattern, f"(?:{consumed.removeprefix('^').removesuffix('$')})")
        both = [pattern] if pattern == TOPIC else [topic for topic in named if re.fullmatch(of_these, topic)]
        if both:
            raise Misuse(f"dead letters go to {both[0]!r}, which the worker consumes", todo="name another topic")
