r"""Consume jobs from a Kafka topic, and claim each in MongoDB, on your own servers.

    TIDEGATE_MONGODB_URI=mongodb://host:port/?replicaSet=rs TIDEGATE_KAFKA_BOOTSTRAP=host:port \
        python examples/jobs.py [DATABASE [TOPIC]]

Kafka delivers a record at least once, and two workers may hold the same one for a while. So each job has a record in
MongoDB, and a worker does a job only if it was granted the way to `running`: at most once, whatever else happens. The
topic must exist; this program also produces the twenty jobs that it consumes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from functools import partial

from aiokafka import AIOKafkaProducer

from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.transition import Granted, transition
from tidegate.model.errors import TidegateError
from tidegate.model.records import Record
from tidegate_adapters.driver import choosing, documents, local_async, run_async
from tidegate_adapters.kafka import Worker
from tidegate_adapters.mongo import AsyncMongo, connect_async

JOBS = [f"job-{number}" for number in range(20)]


async def main(mongodb: str, kafka: str, database: str, topic: str) -> None:
    """Produce the jobs, let two workers do them, and say how often each was done."""
    done: list[str] = []
    all_done = asyncio.Event()
    client = await connect_async(mongodb)
    handle = choosing(documents(AsyncMongo(client, database)), local_async())

    async def move(job: str, target: str, runner: str | None) -> bool:
        request = str(uuid.uuid4())  # one id a command: that is how a lost reply is recognised
        command = transition("jobs", INVOCATION, job, target, runner=runner, request=request)
        return isinstance(await run_async(command, handle), Granted)

    async def work(runner: str, record: Record) -> None:
        job = (record.value or b"").decode()
        await move(job, status.REGISTERED, None)  # whoever comes first registers it
        if await move(job, status.PENDING, runner) and await move(job, status.RUNNING, runner):
            done.append(job)
            await move(job, status.SUCCESS, runner)
            if len(done) == len(JOBS):
                all_done.set()

    workers = [Worker([topic], partial(work, name), bootstrap=kafka, group=f"{topic}-jobs") for name in ("ann", "bob")]
    runs = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        await produce(kafka, topic)
        async with asyncio.timeout(60):
            await all_done.wait()
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*runs)
        await client.close()
    print(f"{len(done)} jobs, each done {'once' if sorted(done) == sorted(JOBS) else 'more or less than once'}")


async def produce(kafka: str, topic: str) -> None:
    """Send each job twice, as an upstream that retries would."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    try:
        for job in JOBS + JOBS:
            await producer.send_and_wait(topic, job.encode())
    finally:
        await producer.stop()


if __name__ == "__main__":
    uri, bootstrap = os.environ.get("TIDEGATE_MONGODB_URI"), os.environ.get("TIDEGATE_KAFKA_BOOTSTRAP")
    if not uri or not bootstrap:
        print("set TIDEGATE_MONGODB_URI and TIDEGATE_KAFKA_BOOTSTRAP to your servers", file=sys.stderr)
        sys.exit(2)
    try:
        asyncio.run(main(uri, bootstrap, *(sys.argv[1:] + ["tidegate-jobs", "jobs"][len(sys.argv) - 1 :])))
    except TidegateError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
