"""How a worker on Kafka is, for whoever looks (`tidegate_adapters.monitor`).

/health     {"healthy": false, "silent_s": null, "stalled": [{"topic": "orders", "partition": 0, "position": 41,
"for_s": 312.5, "causes": []}], "sinks": [{"sink": "kafka", "circuit": "open", "waiting": 12}]}
/metrics    see `tidegate_adapters.metrics`
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from tidegate.consumer.health import Health, Unhealthy
from tidegate.model.instants import SECOND
from tidegate.sinks.circuit_breaker import Closed, HalfOpen, Open
from tidegate_adapters import monitor
from tidegate_adapters.kafka_member import Member
from tidegate_adapters.monitor import Monitor
from tidegate_adapters.serving import Answer
from tidegate_adapters.sinks import SinkStatus
from tidegate_adapters.tallies import Tallies

if TYPE_CHECKING:
    from tidegate_adapters.metrics import WorkerCollector

__all__ = ["of_health", "showing"]

_CIRCUITS: Final = {Open: "open", HalfOpen: "half_open"}


def showing(member: Member, tallies: Tallies, on: Monitor) -> AbstractContextManager[None]:
    """Show a worker until the block ends.

    Args:
        member: The worker in its group.
        tallies: What has happened at it.
        on: Where.

    Raises:
        Misuse: The registry shows another worker, or nobody can listen at the port.
        MissingExtra: There is a registry, and not what brings it.
    """

    def collector() -> WorkerCollector:
        from tidegate_adapters.metrics import WorkerCollector  # noqa: PLC0415  an extra

        return WorkerCollector(member.glance, tallies)

    return on.showing(lambda: of_health(member.health(), member.sinks), collector)


def of_health(health: Health, sinks: Sequence[SinkStatus] = ()) -> Answer:
    """What is answered to whoever asks how the worker is. A sink that does not answer is shown, and by itself no reason to start
    the worker again: what waits for it stands in time.
    """
    stalls, silence = (health.stalls, health.silence) if isinstance(health, Unhealthy) else ((), None)
    told = {
        "silent_s": None if silence is None else silence / SECOND,
        "stalled": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "position": each.position,
                "for_s": each.time / SECOND,
                "causes": [cause.value for cause in each.causes],
            }
            for each in stalls
        ],
        "sinks": [
            {"sink": name, "circuit": _CIRCUITS[type(state.circuit)], "waiting": len(state.waiting)}
            for name, state, _ in sinks
            if not isinstance(state.circuit, Closed)
        ],
    }
    return monitor.of_health(told, is_healthy=not isinstance(health, Unhealthy))
