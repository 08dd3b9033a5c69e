"""Fixtures with real servers, each started when the first test needs it.

`TIDEGATE_MONGODB_URI` and `TIDEGATE_KAFKA_BOOTSTRAP` replace the servers of `mongodb` and `kafka`.
`mongod` and `disposable_mongod` are always local: tests inject faults into them, proxy or kill
them.

Each worker of pytest-xdist has its own servers. `--dist loadgroup` keeps the tests of Kafka on one.
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks tests that need a server, so that `-m "not kafka"` leaves them out.

    Tests with a server or a browser wait in real time, perhaps on a busy machine: they are rerun
    once, and the first failure is reported. Simulated tests are deterministic and not rerun.
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
    """One node, shared by all tests. A test that injects a fault removes it."""
    with MongoServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _looks_again_soon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients may check for their server every 20 ms, not 0.5 s: `make_proxy` causes losses."""
    if not (_MONGO | {"striking"}).isdisjoint(request.fixturenames):
        monkeypatch.setattr(common, "MIN_HEARTBEAT_INTERVAL", 0.02)


@pytest.fixture
def disposable_mongod() -> Iterator[MongoServer]:
    """One node for this test alone, which may kill it."""
    with MongoServer() as server:
        yield server


@pytest.fixture(scope="session")
def mongodb(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("TIDEGATE_MONGODB_URI")
    if given:
        return given
    server: MongoServer = request.getfixturevalue("mongod")
    return server.uri


@pytest.fixture
def database(mongodb: str) -> Iterator[str]:
    """A new database, dropped after the test on a server that outlives the run."""
    name = f"tidegate-{uuid.uuid4().hex}"
    yield name
    if "TIDEGATE_MONGODB_URI" in os.environ:
        with MongoClient[dict[str, object]](mongodb) as client:
            client.drop_database(name)


@pytest.fixture
def make_proxy(mongod: MongoServer, black_pipe: MakePipe) -> Callable[..., BlackPipe]:
    """Proxies to `mongod`: `make_proxy(Rule("update", Action.CUT_REPLY, times=1), seed=7)`."""
    return partial(black_pipe, mongod.uri.replace("heartbeatFrequencyMS=500", "heartbeatFrequencyMS=30"))


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    given = os.environ.get("TIDEGATE_KAFKA_BOOTSTRAP")
    if given:
        yield given
        return
    with KafkaServer() as server:
        yield server.bootstrap


@pytest.fixture
def make_topic(kafka: str) -> Callable[[int], str]:
    """Topics under new names. Not for a running event loop."""

    def make(partitions: int) -> str:
        name = f"tidegate-{uuid.uuid4().hex}"
        create_topic(kafka, name, partitions)
        return name

    return make


@pytest.fixture
def collected() -> Iterator[None]:
    """Collects the garbage of a simulated run with it; expected failures are not logged."""
    logging.disable(logging.CRITICAL)
    gc.freeze()
    yield
    gc.collect()
    gc.unfreeze()
    logging.disable(logging.NOTSET)


@pytest.fixture
def set_aside() -> Iterator[None]:
    """At its end pytest collects all garbage twice, which took seconds with all tests loaded."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running(tmp_path_factory.mktemp("browser") / "profile") as found:
        yield found


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Tab]]:
    tabs: list[Tab] = []

    def opened(port: int, **how: object) -> Tab:
        tabs.append(browser.open(f"http://127.0.0.1:{port}/", **how))
        return tabs[-1]

    yield opened
    wrong = [tab.wrong() for tab in tabs]
    for tab in tabs:
        tab.close()
    assert wrong == [[]] * len(tabs)
