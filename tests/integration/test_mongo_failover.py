"""A set of three nodes under steady load, while its primary steps down, is killed, and stands still.

Each thread moves a record of its own to and fro, by what it knows of it and by a look in turn, so each answer can be checked:
a grant that is lost, or a request that is done twice, shows in the versions. Clients wait for a reply for `REPLY_MS`, and
elections take a second; then work goes on within three seconds more, or where the primary stands still, which nobody is
told, after those time-outs and the election.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, Final

import attrs
import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError
from tests.integration.servers import MongoServer
from tests.integration.servers.processes import wait_until
from tests.length import FAILOVERS

from tidegate.invocations.record_documents import VERSION, history
from tidegate.invocations.status import StatusDefinition, StatusRecord, StatusTable
from tidegate.invocations.transition import Granted, Transition
from tidegate.model.documents import ID, Document, Eq
from tidegate.model.instants import MILLISECOND
from tidegate.model.operations import find_one
from tidegate.retries.backoff import Exponential
from tidegate.retries.pauses import Pauses
from tidegate_adapters.driver import choosing, documents, local, run
from tidegate_adapters.mongo import Mongo, connect

THREADS: Final = 6
ELECTION_S: Final = 1.0
REPLY_MS: Final = 1_500
TABLE: Final = StatusTable(
    frozenset({"free"}),
    (
        StatusDefinition("free", frozenset({"held"})),
        StatusDefinition("held", frozenset({"free"}), acquires_owner=True, requires_owner=True),
    ),
)
OFTEN: Final = Pauses(Exponential(50 * MILLISECOND, cap=400 * MILLISECOND))


@attrs.define
class Mover:
    """Moves its record to and fro until it is asked to stop.

    Attributes:
        key: Of its record.
        at: What its last grant made of it.
        granted: When each grant was answered, in seconds.
        others: Answers that were no grant.
    """

    key: str
    at: StatusRecord | None = None
    granted: list[float] = attrs.field(factory=list)
    others: list[object] = attrs.field(factory=list)

    def move(self, uri: str, database: str, stops: threading.Event) -> None:
        with connect(uri) as client:
            handle = choosing(documents(Mongo(client, database)), local())
            number = 0
            while not stops.is_set():
                number += 1
                target = "held" if self.at is not None and self.at.status == "free" else "free"
                expected = self.at if number % 2 else None
                request = f"{self.key}.{number}"
                wanted = Transition(
                    "records", TABLE, self.key, target, "r", request, 40, expected=expected, pauses=OFTEN
                )
                answer = run(wanted.run(), handle)
                if isinstance(answer, Granted):
                    self.at = answer.record
                    self.granted.append(time.monotonic())
                else:
                    self.others.append(answer)
                time.sleep(0.002)

    def is_at_work(self, since: float) -> bool:
        """Whether it was granted something again and again since then."""
        return len(self.granted) > 20 and self.granted[-20] > since

    def gap(self, begin: float) -> float:
        """The longest time without a grant that ended since then."""
        return max(after - before for before, after in pairwise(self.granted) if after > begin)


def at_work(movers: list[Mover], since: float) -> bool:
    return all(mover.is_at_work(since) for mover in movers)


@pytest.fixture(scope="module")
def three() -> Iterator[MongoServer]:
    with MongoServer(nodes=3) as server:
        yield server


def stepped_down(server: MongoServer) -> None:
    primary = server.primary()
    assert primary is not None
    with server.client(primary) as client, suppress(PyMongoError):  # it closes the connection
        client.admin.command({"replSetStepDown": 5, "force": True})


def killed(server: MongoServer) -> None:
    primary = server.primary()
    assert primary is not None
    server.kill(primary)
    wait_until(lambda: server.primary() is not None, "another primary")
    time.sleep(1)
    server.restart(primary)


def stood_still(server: MongoServer) -> None:
    """Until another one leads; then it comes back, and believes for a moment that it still does."""
    primary = server.primary()
    assert primary is not None
    server.signal(primary, signal.SIGSTOP)
    others = [node for node in range(3) if node != primary]

    def another_leads() -> bool:
        for node in others:
            with server.client(node) as client:
                if client.admin.command("hello")["isWritablePrimary"]:
                    return True
        return False

    try:
        wait_until(another_leads, "another primary", 40)
        time.sleep(2)
    finally:
        server.signal(primary, signal.SIGCONT)


@pytest.mark.parametrize(
    ("strike", "most_s"),
    [(stepped_down, ELECTION_S + 3), (killed, ELECTION_S + 3), (stood_still, 40.0)],
    ids=["stepped down", "killed", "stood still"],
)
def test_no_grant_is_lost_and_none_is_doubled(
    three: MongoServer, request: pytest.FixtureRequest, strike: Any, most_s: float
) -> None:
    """Law TR4 through failovers: versions are the grants, one for one, and each stands in the history under its request."""
    database = f"failover-{request.node.callspec.id.replace(' ', '-')}"
    stops, movers = threading.Event(), [Mover(f"r{n}") for n in range(THREADS)]
    uri = f"{three.uri}&socketTimeoutMS={REPLY_MS}"
    threads = [threading.Thread(target=mover.move, args=(uri, database, stops), daemon=True) for mover in movers]
    for each in threads:
        each.start()
    gaps = []
    try:
        for _ in range(FAILOVERS):
            wait_until(partial(at_work, movers, 0.0), "work", 30)
            began = time.monotonic()
            strike(three)
            ended = time.monotonic()
            wait_until(partial(at_work, movers, ended), "work after that", 60)
            gaps.append(max(mover.gap(began) for mover in movers))
    finally:
        stops.set()
        for each in threads:
            each.join(60)
    assert not any(each.is_alive() for each in threads)
    wait_until(lambda: three.primary() is not None, "a primary")
    with MongoClient[dict[str, Any]](uri) as client:
        store = Mongo(client, database)
        for mover in movers:
            record = store(find_one("records", Eq(ID, mover.key)))
            assert isinstance(record, Document)
            assert mover.others == []
            assert record[VERSION] == len(mover.granted)
            assert [each.version for each in history(record)][-1] == record[VERSION]
    grants = sum(len(mover.granted) for mover in movers)
    print(
        f"{request.node.callspec.id}: {grants} grants, longest times without one {[round(each, 1) for each in gaps]} s"
    )
    assert max(gaps) < most_s
