"""What each contender counts its handled records with, and how it says the rate. It runs in environments without tidegate."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Handle = Callable[..., Awaitable[None]]


class Tally:
    """Counts records, by handlers that are as light as can be.

    Args:
        count: How many records there are.
        seconds: How long to count at most, from the first on.
    """

    def __init__(self, count: int, seconds: float) -> None:
        self.count, self.seconds, self.done = count, seconds, 0
        self.latencies_ns: list[int] = []

    def handler(self, workload: str) -> Handle:
        """An async function of one record, whatever the contender calls a record: `empty`, `sleep:0.01`, or `latency`."""
        match workload.split(":"):
            case ["empty"]:

                async def empty(_: object) -> None:
                    self.done += 1

                return empty
            case ["sleep", seconds]:
                duration = float(seconds)

                async def sleep(_: object) -> None:
                    await asyncio.sleep(duration)
                    self.done += 1

                return sleep
            case ["latency"]:

                async def latency(record: Any) -> None:
                    self.latencies_ns.append(time.time_ns() - int(record.value[:20]))
                    self.done += 1

                return latency
            case _:
                raise SystemExit(f"unknown workload {workload!r}")

    async def told(self) -> dict[str, float]:
        """Waits until all is handled, or time is over: records a second between the first look that saw some and the last, and
        what one takes of the processor's time, in microseconds.

        A thread looks, for some contenders do not let the event loop have a turn while there are records.
        """
        rate, processor_us = await asyncio.to_thread(self._watched)
        said = {"rate": rate, "processor_us": processor_us, "records": self.done, "peak_mb": peak_mb()}
        if self.latencies_ns:
            kept = sorted(self.latencies_ns[len(self.latencies_ns) // 5 :])  # the first ones waited for the start
            said |= {f"p{per}_ms": kept[len(kept) * per // 100] / 1e6 for per in (50, 99)}
        return said

    def _watched(self) -> tuple[float, float]:
        started = time.perf_counter()
        while not self.done:
            time.sleep(0.002)
            if time.perf_counter() - started > 20:
                raise SystemExit("no record came within 20 seconds")
        first, began, taken = self.done, time.perf_counter(), time.process_time()
        while self.done < self.count and time.perf_counter() - began < self.seconds:
            time.sleep(0.002)
        done = self.done - first
        return done / (time.perf_counter() - began), (time.process_time() - taken) / max(done, 1) * 1e6


def peak_mb() -> float:
    """The most memory that this process had at any time; on Linux, where `getrusage` tells that of its parent, too."""
    status = Path("/proc/self/status")
    said = status.read_text().split("VmHWM:") if status.exists() else ["", "nan"]
    return float(said[1].split()[0]) / 1024


def arguments() -> argparse.Namespace:
    """What every contender is told on its command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("variant")
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("group")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--workload", default="empty")
    parser.add_argument("--seconds", type=float, default=10.0)
    return parser.parse_args()


def say(said: dict[str, float]) -> None:
    """The last line of its output."""
    print(json.dumps(said), flush=True)
