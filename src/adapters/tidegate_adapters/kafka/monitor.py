"""The health response of a Kafka worker (`tidegate_adapters.shell.monitor`).

/health     {"healthy": false, "silent_s": null, "stalled": [{"topic": "orders", "partition": 0,
            "position": 41, "for_s": 312.5, "causes": []}],
            "sinks": [{"sink": "kafka", "circuit": "open", "waiting": 12}]}
/metrics    see `tidegate_adapters.kafka.metrics`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidegate.consumer.worker.health import Health, Unhealthy
from tidegate.model.errors import TidegateError
from tidegate.model.instants import SECOND
from tidegate.sinks.circuit_breaker import Closed, HalfOpen, Open
from tidegate_adapters.observe.http import Answer
from tidegate_adapters.shell import monitor
from tidegate_adapters.sinks.port import SinkStatus

_CIRCUITS: Final = {Open: "open", HalfOpen: "half_open"}


def of_health(health: Health, sinks: Sequence[SinkStatus] = (), stopped: TidegateError | None = None) -> Answer:
    """A sink that does not answer is shown, but unhealthy only once partitions stall: a restart
    would not help. `stopped` says why a pipeline cannot go on.
    """
    stalls, silence = (health.stalls, health.silence) if isinstance(health, Unhealthy) else ((), None)
    told: dict[str, object] = {
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
    if stopped is not None:
        told["stopped"] = str(stopped)
    return monitor.of_health(told, is_healthy=not isinstance(health, Unhealthy) and stopped is None)
