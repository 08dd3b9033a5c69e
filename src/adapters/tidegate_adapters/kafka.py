"""A worker on Kafka: it carries out what `tidegate.consumer.worker` says, and decides nothing.

Records go to the user's async function with bounded concurrency, complete out of order, and are committed in the
background, along with what is done beyond the position; polling never waits for a commit. A revocation waits until what
is in work has ended and is committed, or until the time to drain is over, and only then lets go. At least once is what it
promises: user code must bear repetition.

Here is what a worker is told, and its life from without; what it does in its group, `tidegate_adapters.kafka_member` has.

User code may raise whatever it likes. CancelledError and other exceptions that are no `Exception` count as failures of their
record; after SystemExit and KeyboardInterrupt the worker drains, commits, leaves its group, and raises them. Observers and
recordings that raise are logged, and lose nothing.

Times that fit one another: a revocation drains for as long as the rules say (`PartitionRules.drain`), and the group waits for
`rebalance_timeout_ms`, which is set so that it does. A stop takes as long, and up to 5 s more to leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast, final

from tidegate.consumer.consumer import ConsumerRules, ConsumerState
from tidegate.consumer.drain import Budget
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND, seconds
from tidegate_adapters.kafka_member import Code, Estimate, Handler, Hooks, Member, Observer, Recording
from tidegate_adapters.kafka_ports import Connect, check_options, client
from tidegate_adapters.worker_settings import ClientOptions, WorkerSettings

__all__ = ["Estimate", "Handler", "Hooks", "Observer", "Recording", "Worker"]

_ON_THE_WAY: Final = SECOND
"""How much less than the group's patience a drain takes at least: the answers are on their way for as long."""


@final
class Worker:
    """Consumes topics as a member of a group.

    Args:
        topics: What to consume.
        handle: The user's code, called with each record at least once. What follows when it raises, the consumer's rules
            say (`FailurePolicy`); by default the record's partition stops.
        bootstrap: `host:port`, several separated by commas.
        group: The consumer group.
        consumer: What may run at once, and how long a revocation may drain.
        hooks: The user's code for whatever else the rules ask for: to answer for a failed record, to deliver, to arrange
            windows, run their tasks and judge failures. It is called with the work and the records that it is about, and
            answers as `tidegate.consumer.commands.event_for` says.
        expected: How long user code takes with a record, in microseconds, or None where that is not known; a revocation
            does not wait in vain for what takes longer than there is time.
        observe: Called with every event of a partition and the state after it, for logs and metrics.
        record: Called with every event and the commands that follow: `tidegate_adapters.recorder.Recorder.stepped`.
        options: More options of aiokafka's consumer, for example `session_timeout_ms`.

    Attributes:
        settings: What it was told that is not code.
        handle: The user's code.
        hooks: The user's code for whatever else is asked for.

    Raises:
        Misuse: no topic, no group, a handler that is not an async function, an option that the client does not have, rules
            that need hooks, and none, or a drain that takes longer than the group waits.
    """

    def __init__(
        self,
        topics: Sequence[str],
        handle: Handler,
        *,
        bootstrap: str,
        group: str,
        consumer: ConsumerRules = ConsumerRules(),
        hooks: Hooks | None = None,
        expected: Estimate | None = None,
        observe: Observer | None = None,
        record: Recording | None = None,
        **options: object,
    ) -> None:
        if isinstance(topics, str):
            raise Misuse(f"{topics!r} are not topics", todo="pass a list of names")
        self.settings: Final = WorkerSettings(tuple(topics), bootstrap, group, consumer, cast("ClientOptions", options))
        check_options(options)
        _check_times(consumer.partition.drain, options.get("rebalance_timeout_ms"))
        if not callable(handle):
            raise Misuse(f"{handle!r} cannot handle records", todo="pass an async function of one record")
        if hooks is None and consumer.partition.needs_hooks:
            raise Misuse("these rules ask for more than to handle records", todo="pass hooks=")
        self._code = Code(handle, hooks, expected, observe, record)
        self._member: Member | None = None
        self._stop_calls = 0
        """How often it was asked to stop before it ran."""

    @property
    def handle(self) -> Handler:
        """The user's code."""
        return self._code.handle

    @property
    def hooks(self) -> Hooks | None:
        """The user's code for whatever else is asked for."""
        return self._code.hooks

    def __repr__(self) -> str:
        return f"<Worker on {', '.join(self.settings.topics)} in group {self.settings.group}>"

    def configured(self, settings: WorkerSettings, handle: Handler | None = None, hooks: Hooks | None = None) -> Worker:
        """A worker with the same code that is told something else.

        Args:
            settings: What it is told.
            handle: What takes the place of the handler, if anything.
            hooks: What takes the place of the hooks, if anything.

        Raises:
            Misuse: As for a new one.
        """
        return Worker(
            settings.topics, handle or self.handle, bootstrap=settings.bootstrap, group=settings.group,
            consumer=settings.consumer, hooks=hooks or self.hooks, expected=self._code.expected, observe=self._code.observe,
            record=self._code.record, **settings.options,
        )  # fmt: skip

    @property
    def state(self) -> ConsumerState:
        """Its partitions."""
        return ConsumerState() if self._member is None else self._member.state

    async def run(self, connect: Connect = client) -> None:
        """Consume until `stop` is called, or the task is cancelled; then drain, commit and leave the group.

        Args:
            connect: Makes the client.

        Raises:
            Misuse: an option has a value that the client does not take, or it is called twice.
            TidegateError: the broker cannot be reached at the start, or the client has failed for good.
            CancelledError, SystemExit, KeyboardInterrupt: as the task was cancelled or user code raised it, after the rest.
        """
        if self._member is not None:
            raise Misuse(f"{self!r} runs already, or has run", todo="make another one with configured(worker.settings)")
        told = self.settings
        patience = {"rebalance_timeout_ms": (told.consumer.partition.drain.total + 2 * _ON_THE_WAY) // MILLISECOND}
        self._member = Member(connect(told.bootstrap, told.group, patience | told.options), told, self._code)
        for _ in range(self._stop_calls):
            self._member.stop()
        await self._member.run()

    def stop(self) -> None:
        """Let `run` drain, commit, leave the group and return; called once more, it waits for nothing."""
        if self._member is None:
            self._stop_calls += 1
        else:
            self._member.stop()


def _check_times(drain: Budget, patience_ms: object) -> None:
    """Raise Misuse unless the group waits until a revocation has drained."""
    needed = drain.total + _ON_THE_WAY
    if isinstance(patience_ms, int) and patience_ms * MILLISECOND < needed:
        raise Misuse(
            f"rebalance_timeout_ms={patience_ms} is less than a revocation may take",
            why=f"it drains for {seconds(drain.total)}; whoever is late loses its partitions, and two work on one record",
            todo=f"set it to {needed // MILLISECOND} or more, leave it out, or shorten PartitionRules.drain",
        )
