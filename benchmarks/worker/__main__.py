"""The worker beside bare aiokafka, FastStream and others, on a real broker, all in one run, as ratios.

    python -m benchmarks.worker [--records 900000] [--turns 3] [--only WORD ...] [--json FILE]

A topic of 8 partitions is filled with records of 100 bytes. Then each contender consumes it in turn, in a process of its
own and as a group of its own, its broker otherwise idle: all contenders once, then all again. Rates are records a second
between the first record that was handled and the last, at most ten seconds; what is reported is the median of the turns.
Where others use the machine, rates say as much of them as of a contender: then what a record takes of the processor tells which
rate it would make with a core of its own. The loop that awaits each commit waits for the broker, and makes no more.
Contenders that tidegate does not depend on are installed into `.tidegate/contenders`, once; what cannot be installed, or
needs another Python, is left out, and named.

Behind the stuck head of one partition an eighth of all records is done, more than 100,000; its row tells commits, too.

Latency is from just before a record is sent until its handler has it, at half of the rate at which ours handled an empty
one, for all contenders of that row alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from aiokafka import AIOKafkaProducer
from benchmarks.environments import Environment
from benchmarks.smoke import kafka, sized
from tests.integration.servers import KafkaServer

TOPIC: Final = f"filled-{os.getpid()}"
PARTITIONS: Final = 8
BYTES: Final = 100
CONTENDERS: Final = Path(__file__).parent / "contenders"


class Contender(NamedTuple):
    """A way to consume a topic.

    Attributes:
        name: What it is called in the table.
        script: Which of the scripts beside this one.
        variant: What the script is told.
        packages: What it needs besides what tidegate has.
        python: Which Python runs it.
    """

    name: str
    script: str
    variant: str
    packages: tuple[str, ...] = ()
    python: str = ""

    @property
    def environment(self) -> Environment:
        return Environment(self.script, self.packages, self.python)


BACKGROUND: Final = Contender("bare loop, commits in the background", "bare", "background")
AWAITED: Final = Contender("bare loop, each commit awaited", "bare", "awaited")
SEMAPHORE: Final = Contender("tasks and a semaphore, by hand", "bare", "semaphore")
OURS: Final = Contender("tidegate", "ours", "default")
OURS_SEEN: Final = Contender("tidegate, metrics on", "ours", "metrics")
OURS_1000: Final = Contender("tidegate, 1,000 at once", "ours", "thousand")
OURS_BY_KEY: Final = Contender("tidegate, order by key", "ours", "by_key")
OTHERS_OF_OURS: Final = tuple(
    Contender(f"tidegate, {name}", "ours", variant)
    for name, variant in (
        ("windows of 100", "windows"),
        ("1 % fail once", "retries"),
        ("a stuck head", "stuck"),
        ("recorded", "recorded"),
        ("a Send of each", "sends"),
    )
)
_FASTSTREAM: Final = ("faststream[kafka]==0.7.8", "faststream-concurrent-aiokafka==0.7.2")
FASTSTREAM: Final = Contender("FastStream as it comes", "faststream_", "as_it_comes", _FASTSTREAM)
SILENCED: Final = Contender("FastStream silenced", "faststream_", "silenced", _FASTSTREAM)
CONCURRENT: Final = Contender("faststream-concurrent-aiokafka", "faststream_", "concurrent", _FASTSTREAM)
PYRALLEL: Final = Contender("pyrallel-consumer", "pyrallel", "", ("pyrallel-consumer==1.0.0",), "python3.12")

TABLE: Final[dict[str, tuple[str, tuple[Contender, ...]]]] = {
    "empty handler": (
        "empty",
        (
            *(OURS, OURS_SEEN, OURS_BY_KEY, *OTHERS_OF_OURS, BACKGROUND, AWAITED, SEMAPHORE),
            *(FASTSTREAM, SILENCED, CONCURRENT, PYRALLEL),
        ),
    ),
    "handler sleeps 1 ms": ("sleep:0.001", (OURS_1000, SEMAPHORE, SILENCED, CONCURRENT, PYRALLEL)),
    "handler sleeps 10 ms": ("sleep:0.01", (OURS_1000, SEMAPHORE, SILENCED, CONCURRENT, PYRALLEL)),
}
"""What handlers do, and who is asked to; ratios are to the first."""
LATENCY: Final = (OURS, BACKGROUND, AWAITED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=sized(900_000, 500))
    parser.add_argument("--turns", type=int, default=sized(3, 1))
    parser.add_argument(
        "--only",
        nargs="*",
        default=sized([], ["empty handler tidegate, metrics"]),
        help="rows and contenders with one of these words in their name",
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: dict[str, dict[str, dict[str, float]]] = {}
    with kafka() as broker:
        for topic in (TOPIC, f"{TOPIC}-answers"):
            broker.create_topic(topic, PARTITIONS)
        asyncio.run(fill(broker.bootstrap, TOPIC, given.records))
        for row, (workload, contenders) in TABLE.items():
            some = [each for each in contenders if chosen(given.only, row, each) and is_there(each)]
            found[row] = rates(broker.bootstrap, workload, some, given.records, given.turns)
            show(row, found[row])
        if chosen(given.only, "latency", OURS) and OURS.name in found["empty handler"]:
            rate = found["empty handler"][OURS.name]["rate"] / 2
            row = f"latency at {rate:,.0f} records a second"
            turns = [{each.name: latency(broker, each, rate, turn) for each in LATENCY} for turn in range(given.turns)]
            found[row] = {name: medians([turn[name] for turn in turns]) for name in turns[0]}
            show(row, found[row])
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1))


def chosen(words: Sequence[str], row: str, contender: Contender) -> bool:
    return not words or any(word in f"{row} {contender.name}" for word in words)


# --- a turn -------------------------------------------------------------------------------------------------------------


def rates(
    bootstrap: str, workload: str, contenders: Sequence[Contender], records: int, turns: int
) -> dict[str, dict[str, float]]:
    """What each says, as medians of the turns."""
    said: dict[str, list[dict[str, float]]] = {each.name: [] for each in contenders}
    for turn in range(turns):
        for each in contenders:
            group = f"{each.name}, {workload}, {turn}".replace(" ", "-").replace(",", "").replace(":", "-")
            said[each.name].append(run(each, bootstrap, TOPIC, group, f"--count={records}", f"--workload={workload}"))
    return {name: medians(some) for name, some in said.items()}


def medians(said: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(turn[key] for turn in said) for key in said[0]}


def run(contender: Contender, *told: str) -> dict[str, float]:
    done = subprocess.run(
        [*command(contender), *told],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    try:
        said: dict[str, float] = json.loads(
            next(line for line in reversed(done.stdout.splitlines()) if line.startswith("{"))
        )
    except StopIteration:
        raise SystemExit(f"{contender.name} failed:\n{done.stderr[-3000:]}") from None
    return said


def command(contender: Contender) -> list[str]:
    return [str(contender.environment.interpreter), str(CONTENDERS / f"{contender.script}.py"), contender.variant]


def latency(broker: KafkaServer, contender: Contender, rate: float, turn: int) -> dict[str, float]:
    """Percentiles, in ms, of records that are sent at that rate for ten seconds."""
    topic = f"latency-{contender.variant}-{turn}"
    broker.create_topic(topic, PARTITIONS)
    count = round(rate * 10)
    arguments = [broker.bootstrap, topic, topic, f"--count={count}", "--workload=latency", "--seconds=20"]
    with subprocess.Popen([*command(contender), *arguments], stdout=subprocess.PIPE, text=True) as running:
        time.sleep(3)  # until it has joined
        asyncio.run(fill(broker.bootstrap, topic, count, rate))
        out, _ = running.communicate(timeout=60)
    said: dict[str, float] = json.loads(out.splitlines()[-1])
    return said


async def fill(bootstrap: str, topic: str, records: int, rate: float | None = None) -> None:
    """Send records whose value begins with when they are sent, in ns; at the rate, or as fast as may be."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=1 if rate else 20, max_batch_size=1 << 17)
    await producer.start()
    began, sent = time.perf_counter(), 0
    while sent < records:
        due = records if rate is None else min(records, int((time.perf_counter() - began) * rate))
        for each in range(sent, min(due, sent + 10_000)):
            value = f"{time.time_ns():020}".encode().ljust(BYTES, b".")
            await producer.send(topic, value, key=str(each % 1_000).encode(), partition=each % PARTITIONS)
        sent = min(due, sent + 10_000)
        await asyncio.sleep(0.001)
    await producer.stop()


def is_there(contender: Contender) -> bool:
    """Whether it can be run; it is installed if it can be."""
    if (why := contender.environment.made()) is not None:
        print(f"  {contender.name} is left out: {why}")
    return why is None


def show(row: str, said: dict[str, dict[str, float]]) -> None:
    print(f"\n{row}")
    ours = next((each["rate"] for name, each in said.items() if name.startswith(OURS.name)), None)
    for name, each in said.items():
        if "p50_ms" in each:
            print(f"  {name:40} p50 {each['p50_ms']:8.2f} ms   p99 {each['p99_ms']:8.2f} ms   {each['rate']:10,.0f}/s")
        else:
            ratio = f"tidegate is {ours / each['rate']:7.2f} x" if ours else ""
            print(
                f"  {name:40} {each['rate']:12,.0f}/s   {ratio:22} {each['processor_us']:6.2f} us of the processor a record"
                f"   {each['peak_mb']:6.0f} MB at its peak"
                + (f"   {each['commits'] / PARTITIONS:4.1f} commits a second a partition" if "commits" in each else "")
            )


if __name__ == "__main__":
    main()
