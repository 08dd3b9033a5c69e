"""Short runs of the adapters on the simulated MongoDB, two or three tasks and a fault: how many a second on one core.

python -m benchmarks.mongo_runs
"""

from __future__ import annotations

import logging
import time

from benchmarks.smoke import sized
from tests.integration.mongo_runs import WORKLOADS, judged

RUNS = sized(200, 1)


def rate(workloads: tuple[str, ...], faults: tuple[str, ...] | None = None) -> float:
    """Runs a second of processor time."""
    began = time.process_time()
    for seed in range(RUNS):
        judged(seed, workloads, faults)
    return RUNS / (time.process_time() - began)


def main() -> None:
    logging.disable(logging.CRITICAL)
    print(f"without a fault  {rate(WORKLOADS, ('nothing',)):6.0f} runs a second")
    for workload in WORKLOADS:
        print(f"{workload}, with a fault  {rate((workload,)):6.0f} runs a second")


if __name__ == "__main__":
    main()
