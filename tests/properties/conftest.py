"""Settings of the properties: derandomised, so that a failure on one machine is a failure on all."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "tidegate", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tidegate")
