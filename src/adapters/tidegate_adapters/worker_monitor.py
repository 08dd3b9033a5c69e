"""How a worker on Kafka is, for whoever looks (`tidegate_adapters.monitor`).

/health     {"healthy": false, "silent_s": null, "stalled": [{"topic": "orders", "partition": 0, "position": 41,
"for_s": 312.5, "causes": []}]}
/metrics    see `tidegate_adapters.metrics`
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from tidegate.consumer.health import Health, Unhealthy
from tidegate.model.instants import SECOND
from tidegate_adapters import monitor
from tidegate_adapters.member_status import MemberStatus
from tidegate_adapters.monitor import Monitor
from tidegate_adapters.serving import Answer
from tidegate_adapters.tallies import Tallies

if TYPE_CHECKING:
    from tidegate_adapters.metrics import WorkerCollector

__all__ = ["of_health", "showing"]


def showing(status: MemberStatus, tallies: Tallies, on: Monitor) -> AbstractContextManager[None]:
    """Show a worker until the block ends.

    Args:
        status: How the worker is in its group.
        tallies: What has happened at it.
        on: Where.

    Raises:
        Misuse: The registry shows another worker, or nobody can listen at the port.
        MissingExtra: There is a registry, and not what brings it.
    """

    def collector() -> WorkerCollector:
        from tidegate_adapters.metrics import WorkerCollector  # noqa: PLC0415  an extra

        return WorkerCollector(status.glance, tallies)

    return on.showing(lambda: of_health(status.health()), collector)


def of_health(health: Health) -> Answer:
    """What is answered to whoever asks how the worker is."""
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
    }
    return monitor.of_health(told, is_healthy=not isinstance(health, Unhealthy))
