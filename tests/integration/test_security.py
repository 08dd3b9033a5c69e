"""The page on a broker with authentication and TLS, typed along; no secret shows anywhere."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from aiokafka import AIOKafkaProducer
from tests.integration.command_lines import said_here
from tests.integration.interruptible import INTERRUPTIBLE
from tests.integration.servers import KafkaServer
from tests.integration.servers.kafka import PASSWORD

from tidegate.exit_codes import ExitCode

PAGE: Final = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
SETTINGS: Final = re.findall(r"<!-- file: worker.toml -->\n```toml\n(.*?)```", PAGE, re.DOTALL)
APP: Final = """
from tidegate_adapters.kafka.worker import Worker


async def handle(record):
    print("handled", record, flush=True)


worker = Worker(["orders"], handle, bootstrap="b:1", group="shop")
"""


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaServer]:
    with KafkaServer(secured=True) as server:
        server.create_topic("orders", 1)
        asyncio.run(_fill(server.bootstrap))
        yield server


async def _fill(bootstrap: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("orders", b"x")


class Started:
    def __init__(self, folder: Path, settings: str, password: str, *more: str) -> None:
        self.log = folder / "log"
        (folder / "app.py").write_text(APP)
        (folder / "worker.toml").write_text(settings)
        told = [each for setting in more for each in ("--set", setting)]
        command = [
            *INTERRUPTIBLE,
            "worker",
            "run",
            "app.py:worker",
            "--config",
            "worker.toml",
            "--log-level",
            "debug",
            *told,
        ]
        env = {**os.environ, "TIDEGATE_WORKER__OPTIONS__SASL_PLAIN_PASSWORD": password}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)

    def until(self, words: str) -> None:
        limit = time.monotonic() + 60
        while words not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < limit, self.log.read_text()
            time.sleep(0.05)


@contextmanager
def started(folder: Path, settings: str, password: str, *more: str) -> Iterator[Started]:
    found = Started(folder, settings, password, *more)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()


def without_tls(settings: str) -> str:
    return settings.replace('"SASL_SSL"', '"SASL_PLAINTEXT"').replace('ssl_cafile = "authority.pem"\n', "")


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
@pytest.mark.parametrize("is_tls", [True, False])
def test_the_page_leads_to_a_worker_that_is_let_in(secured: KafkaServer, tmp_path: Path, is_tls: bool) -> None:
    (tmp_path / "authority.pem").write_bytes(secured.authority.read_bytes())
    settings = SETTINGS[0] if is_tls else without_tls(SETTINGS[0])
    address = secured.tls if is_tls else secured.sasl
    with started(tmp_path, settings, PASSWORD, f"bootstrap={address}", f"group={is_tls}") as worker:
        worker.until("handled orders-0 @0")
        worker.process.send_signal(signal.SIGTERM)

        assert worker.process.wait(timeout=30) == ExitCode.TERMINATED
        assert PASSWORD not in worker.log.read_text()


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
@pytest.mark.parametrize(
    ("password", "is_trusted", "said"),
    [("hunter3", True, "Invalid username or password"), (PASSWORD, False, "CERTIFICATE_VERIFY_FAILED")],
)
def test_who_is_not_let_in_or_does_not_trust_the_broker_is_told_so(
    secured: KafkaServer, tmp_path: Path, password: str, is_trusted: bool, said: str
) -> None:
    settings = SETTINGS[0] if is_trusted else SETTINGS[0].replace('ssl_cafile = "authority.pem"\n', "")
    (tmp_path / "authority.pem").write_bytes(secured.authority.read_bytes())
    with started(tmp_path, settings, password, f"bootstrap={secured.tls}") as worker:
        assert worker.process.wait(timeout=60) == ExitCode.NOT_MET
        lines = worker.log.read_text()

    assert f'aiokafka: Unable connect to "{secured.tls}"' in lines
    assert said in lines
    assert f"error: no Kafka broker answers at {secured.tls}" in lines
    assert password not in lines


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (without_tls(SETTINGS[0]) + 'ssl_cafile = "authority.pem"', "files for TLS, and nothing to use them"),
        (SETTINGS[0], "the files for TLS cannot be used"),
        (without_tls(SETTINGS[0]).replace("sasl_plain_username", "client_id"), "the client does not take its options"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, settings: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "worker.toml").write_text(settings)
    arguments = ("worker", "run", "app.py:worker", "--config", "worker.toml", "--log-level", "debug")
    done = said_here(arguments, tmp_path, capsys, TIDEGATE_WORKER__OPTIONS__SASL_PLAIN_PASSWORD=PASSWORD)

    assert done.code == ExitCode.USAGE
    assert f"error: {said}" in done.err
    assert PASSWORD not in done.out + done.err


def test_the_page_has_settings() -> None:
    assert len(SETTINGS) == 1
