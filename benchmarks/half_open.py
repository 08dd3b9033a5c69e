"""What a thousand half-open connections to a worker's status port do to its rate, and to whoever asks for its health.

    python -m benchmarks.half_open [--records N] [--turns N]

A worker handles N records (1,500,000, for ten seconds at most) with an empty handler, and serves its metrics and its health, in turn with nobody else, with
1,000 connections that are made once, and with 1,000 of which each is made again when it was let go of. Each sends a byte each 4 s.
Meanwhile /health is asked ten times a second. Rates are medians of the turns, and ratios those of each
turn; by the processor is the rate that the worker would make with a core of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection
from itertools import cycle
from statistics import median
from typing import Final

from benchmarks.smoke import kafka, sized
from benchmarks.worker.__main__ import PARTITIONS, TOPIC, Contender, fill, run
from tests.integration.servers.processes import free_ports, is_open, wait_until

CONNECTIONS: Final = sized(1_000, 50)
EVERY_S: Final = 4.0
WORKER: Final = Contender("tidegate", "ours", "health")
WAYS: Final = ("nobody", "once", "again")


def attack(port: int, way: str, ends: threading.Event) -> None:
    """Keep connections half open until the end."""
    held: list[socket.socket | None] = [None] * (0 if way == "nobody" else CONNECTIONS)
    for turn, at in enumerate(cycle(range(len(held)))):
        each = held[at]
        if ends.wait(EVERY_S / len(held)):
            break
        try:
            if each is None and (turn < len(held) or way == "again"):
                each = held[at] = socket.create_connection(("127.0.0.1", port), timeout=1)
            if each is not None:
                each.sendall(b"G")
        except OSError:
            held[at] = None
    for each in held:
        if each is not None:
            each.close()


def ask(port: int, ends: threading.Event, took_ms: list[float]) -> None:
    """How long each answer takes, until the end."""
    while not ends.wait(0.1):
        began = time.perf_counter()
        with suppress(OSError):
            asks = HTTPConnection("127.0.0.1", port, timeout=10)
            asks.request("GET", "/health")
            asks.getresponse().read()
            asks.close()
        took_ms.append((time.perf_counter() - began) * 1e3)


def measured(bootstrap: str, way: str, records: int, turn: int) -> tuple[float, float, list[float]]:
    """Records a second, microseconds of the processor a record, and how long answers took."""
    (port,), ends, took_ms = free_ports(1), threading.Event(), list[float]()
    os.environ["STATUS_PORT"] = str(port)

    def meanwhile() -> None:
        wait_until(lambda: is_open(port) or ends.is_set(), "the status port")
        asking = threading.Thread(target=ask, args=(port, ends, took_ms))
        asking.start()
        attack(port, way, ends)
        asking.join()

    attacking = threading.Thread(target=meanwhile)
    attacking.start()
    try:
        said = run(WORKER, bootstrap, TOPIC, f"half-open-{way}-{turn}", f"--count={records}")
    finally:
        ends.set()
        attacking.join()
    return said["rate"], said["processor_us"], took_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=sized(1_500_000, 500))
    parser.add_argument("--turns", type=int, default=sized(9, 1))
    told = parser.parse_args()
    with kafka() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        asyncio.run(fill(broker.bootstrap, TOPIC, told.records))
        turns = [
            {way: measured(broker.bootstrap, way, told.records, turn) for way in WAYS} for turn in range(told.turns)
        ]
    for way in WAYS:
        rates, costs, _ = zip(*(turn[way] for turn in turns), strict=True)
        asked = sorted(each for turn in turns for each in turn[way][2])
        alone = [turn["nobody"] for turn in turns]
        ratio = median(rate / other[0] for rate, other in zip(rates, alone, strict=True))
        by_processor = median(other[1] / cost for cost, other in zip(costs, alone, strict=True))
        print(
            f"{way:8} {median(rates):10,.0f} records a second, {ratio:5.2f} x nobody, {by_processor:5.2f} x by the processor"
        )
        if asked:
            print(f"{'':8} /health p50 {median(asked):6.1f} ms, most {asked[-1]:6.1f} ms of {len(asked)}")


if __name__ == "__main__":
    main()
