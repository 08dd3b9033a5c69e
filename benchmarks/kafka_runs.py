"""Short runs of two workers on the simulated Kafka, 40 records, a rebalance and a fault: how many a second on one core.

python -m benchmarks.kafka_runs
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable

from benchmarks.smoke import sized
from tests.integration.kafka_runs import KINDS, judged

RUNS = sized(200, 2)


def rate(kinds: Callable[[int], tuple[str, ...]]) -> float:
    """Runs a second of processor time."""
    began = time.process_time()
    for seed in range(RUNS):
        judged(seed, kinds(seed))
    return RUNS / (time.process_time() - began)


def main() -> None:
    logging.disable(logging.CRITICAL)
    gc.freeze()  # or what is there already is looked at again and again
    print(f"without a fault  {rate(lambda _: ('nothing',)):6.0f} runs a second")
    print(f"with a request that fails  {rate(lambda _: ('request',)):6.0f} runs a second")
    print(f"with each kind of fault in turn  {rate(lambda seed: (KINDS[seed % len(KINDS)],)):6.0f} runs a second")


if __name__ == "__main__":
    main()
