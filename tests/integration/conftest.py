"""Fixtures with real servers; each is started when the first test asks for it.

With `TIDEGATE_MONGODB_URI` or `TIDEGATE_KAFKA_BOOTSTRAP` set, `mongodb` and `kafka` are those servers instead.
Tests that fault, proxy or kill a server ask for `mongod` or `disposable_mongod`, which are always our own.

Under pytest-xdist every worker that runs such a test has servers of its own.
`--dist loadgroup` puts all tests of Kafka on one worker, so that only one broker is started.
"""

from __future__ import annotations

import gc
import logging
import os
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pytest
from pymongo import MongoClient, common
from tests.integration.browser import Browser, Tab, running
from tests.integration.servers import KafkaServer, MongoServer, create_topic

from tidegate_adapters.testing.black_pipe import BlackPipe, MakePipe

_MONGO: Final = {"mongodb", "mongod", "disposable_mongod"}
_REAL: Final = _MONGO | {"kafka", "browser"}
_OWN: Final = {"MongoServer", "KafkaServer"}
"""What tests that start servers of their own import."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what needs a server, so that `-m "not kafka"` leaves it out.

    What needs a server or a browser waits in real time on a machine that may be busy: one that fails is run once more, and what it said
    stands at the end. What is simulated says the same each time, and is not run again.
    """
    for item in items:
        fixtures: list[str] = getattr(item, "fixturenames", [])
        starts = isinstance(item, pytest.Function) and not _OWN.isdisjoint(vars(item.module))
        if starts or not _REAL.isdisjoint(fixtures):
            item.add_marker(pytest.mark.flaky(reruns=1))
        if not _MONGO.isdisjoint(fixtures):
            item.add_marker("mongo")
        if "kafka" in fixtures:
            item.add_marker("kafka")
            if config.pluginmanager.hasplugin("xdist"):
                item.add_marker(pytest.mark.xdist_group("kafka"))


@pytest.fixture(scope="session")
def mongod() -> Iterator[MongoServer]:
    """A replica set of one node, shared by all tests; who faults it heals it."""
    with MongoServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _looks_again_soon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may look for its real server each 20 ms, and not each half a second: after a loss it waits as long (`make_proxy`)."""
    if not (_MONGO | {"striking"}).isdisjoint(request.fixturenames):
        monkeypatch.setattr(common, "MIN_HEARTBEAT_INTERVAL", 0.02)


@pytest.fixture
def disposable_mongod() -> Iterator[MongoServer]:
    """A replica set of one node for this test alone, to be killed."""
    with MongoServer() as server:
        yield server


@pytest.fixture(scope="session")
def mongodb(request: pytest.FixtureRequest) -> str:
    """The URI of a replica set that is only used, never faulted."""
    given = os.environ.get("TIDEGATE_MONGODB_URI")
    if given:
        return given
    server: MongoServer = request.getfixturevalue("mongod")
    return server.uri


@pytest.fixture
def database(mongodb: str) -> Iterator[str]:
    """The name of a database that is new for this test, and dropped after it unless the server is our own and ends soon."""
    name = f"tidegate-{uuid.uuid4().hex}"
    yield name
    if "TIDEGATE_MONGODB_URI" in os.environ:
        with MongoClient[dict[str, object]](mongodb) as client:
            client.drop_database(name)


@pytest.fixture
def make_proxy(mongod: MongoServer, black_pipe: MakePipe) -> Callable[..., BlackPipe]:
    """Makes pipes in front of `mongod`: `make_proxy(Rule("update", Action.CUT_REPLY, times=1), seed=7)`."""
    return partial(black_pipe, mongod.uri.replace("heartbeatFrequencyMS=500", "heartbeatFrequencyMS=30"))


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """The bootstrap address of a broker."""
    given = os.environ.get("TIDEGATE_KAFKA_BOOTSTRAP")
    if given:
        yield given
        return
    with KafkaServer() as server:
        yield server.bootstrap


@pytest.fixture
def make_topic(kafka: str) -> Callable[[int], str]:
    """Makes topics with as many partitions as given, under new names. Not for a running event loop."""

    def make(partitions: int) -> str:
        name = f"tidegate-{uuid.uuid4().hex}"
        create_topic(kafka, name, partitions)
        return name

    return make


@pytest.fixture
def collected() -> Iterator[None]:
    """What a run by seed leaves behind is collected with it, and not in another test; what was there before, not again and
    again. What fails in it on purpose is not logged.
    """
    logging.disable(logging.CRITICAL)
    gc.freeze()
    yield
    gc.collect()
    gc.unfreeze()
    logging.disable(logging.NOTSET)


@pytest.fixture
def set_aside() -> Iterator[None]:
    """Pytest has all garbage collected, twice, when it ends: within this process, which holds all tests, that took seconds."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of a file."""
    with running(tmp_path_factory.mktemp("browser") / "profile") as found:
        yield found


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Tab]]:
    """Opens what is served at a port; at the end no page has had an error, a message in its console, or a request elsewhere."""
    tabs: list[Tab] = []

    def opened(port: int, **how: object) -> Tab:
        tabs.append(browser.open(f"http://127.0.0.1:{port}/", **how))
        return tabs[-1]

    yield opened
    wrong = [tab.wrong() for tab in tabs]
    for tab in tabs:
        tab.close()
    assert wrong == [[]] * len(tabs)
