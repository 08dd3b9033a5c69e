"""How a worker on Kafka is, for whoever looks (`tidegate_adapters.shell.monitor`).

/health     {"healthy": false, "silent_s": null, "stalled": [{"topic": "orders", "partition": 0, "position": 41,
"for_s": 312.5, "causes": []}]}
/metrics    see `tidegate_adapters.metrics`
"""

from __future__ import annotations

from tidegate.consumer.health import Health, Unhealthy
from tidegate.model.instants import SECOND
from tidegate_adapters.serving import Answer
from tidegate_adapters.shell import monitor

__all__ = ["of_health"]


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
