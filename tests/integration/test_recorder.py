"""Recording and replay of real runs: changed programs are caught, and no secret reaches a file."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any, Final

import pytest
from pymongo import AsyncMongoClient, MongoClient
from tests.integration.mongo_loop import in_loop

from tidegate.__main__ import main
from tidegate.consumer.protocol.commands import Fetched
from tidegate.counters.counter import new_counter
from tidegate.exit_codes import ExitCode
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import Granted, transition
from tidegate.model.documents import ID, Document, Eq, Field, Put, show
from tidegate.model.effects import Ambiguous, Call, Effect, Note, Program
from tidegate.model.errors import Misuse
from tidegate.model.operations import UpdateOne, find_one, find_one_and_update, insert_one
from tidegate.model.records import TopicPartition
from tidegate.sim.program.recording import Other, Same, executed, read
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.mongo import AsyncMongo, Mongo
from tidegate_adapters.observe.recorder import Recorder
from tidegate_adapters.runtime.driver import Handle, choosing, documents, local, local_async, run, run_async

MINE: Final = """
from functools import partial
from tidegate.model.documents import ID, Document, Eq, Field, Put, show
from tidegate.model.effects import Ambiguous
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.model.operations import find_one, find_one_and_update, insert_one
from tidegate.invocations.record.transition import transition
from tidegate.counters.increments import increment
from tidegate.invocations.limits.admission import Call, Control, Rule
from tidegate.invocations.limits.registration import Registrar
from tidegate.services.members import join

count = partial(increment, "counters", "visits", "token-1")
register = Registrar(key="job-2", call=Call("report", ()), rule=Rule(Control.TASK), request="two").run
enter = partial(join, "members", "a-1", 1_000_000, name="a")
move = partial(transition, "jobs", INVOCATION, "job-1", "pending", runner="r1", request="one")
other = partial(transition, "jobs", INVOCATION, "job-1", "pending", runner="r2", request="one")
no_program = 7
"""

GRANTED: Final = Granted(StatusRecord("pending", "r1", 2))


def job() -> Document:
    made = Document.of({"version": 1, "request": "made", "status": "registered"})
    return Document.of({"_id": "job-1", "status": "registered", "owner": None, "version": 1, "history": (made,)})


def move() -> Program[object]:
    return transition("jobs", INVOCATION, "job-1", "pending", runner="r1", request="one")


def losing(handle: Handle) -> Handle:
    lost: list[Effect[object]] = []

    def carried_out(effect: Effect[object]) -> object:
        reply = handle(effect)
        if isinstance(effect, UpdateOne) and not lost:
            lost.append(effect)
            raise Ambiguous("no reply")
        return reply

    return carried_out


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    found = capsys.readouterr()
    return code, found.out, found.err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return tmp_path


# --- runs ---------------------------------------------------------------------------------------------------------------


def test_a_recording_is_for_its_owner(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Recorder(str(tmp_path / "run.jsonl"), "transition") as recorder:
            assert recorder.path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def test_a_run_on_the_embedded_store_is_reproduced_by_the_command_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law RD1: also after a lost reply; a changed program diverges at the right step."""
    with Recorder(here / "run.jsonl", "transition", ("job-1", "pending")) as recorder:
        store = choosing(documents(Embedded({"jobs": (job(),)})), local())
        assert run(move(), recorder.recorded(losing(store))) == GRANTED
    code, out, _ = called(capsys, "replay", "run.jsonl", "mine.py:move")
    assert (code, out) == (ExitCode.OK, "reproduced 4 steps of transition; then: finished: granted: version 2\n")
    code, out, err = called(capsys, "replay", "run.jsonl", "mine.py:other", "--json")
    found = json.loads(out)
    assert (code, found["verdict"], found["step"]) == (ExitCode.DIVERGED, "diverged", 2)
    assert 'owner := "r1"' in found["recorded"]
    assert 'owner := "r2"' in found["now"]
    assert found["src"].startswith("tidegate/invocations/record/transition.py:")
    assert "another decision at step 2" in err


@pytest.mark.parametrize("is_async", [False, True])
def test_a_run_on_a_real_mongodb_is_reproduced(mongodb: str, database: str, tmp_path: Path, is_async: bool) -> None:
    """Law RD1: dates, arrays and lost replies, sync and async."""
    recorder = Recorder(tmp_path / "run.jsonl", "transition")
    with MongoClient[dict[str, Any]](mongodb) as client:
        run(insert(job()), choosing(documents(Mongo(client, database)), local()))
        if not is_async:
            with recorder:
                handle = losing(choosing(documents(Mongo(client, database)), local()))
                assert run(again(), recorder.recorded(handle)) == (GRANTED, "pending")

    async def in_a_loop() -> object:
        async with AsyncMongoClient[dict[str, Any]](mongodb) as loop_client:
            handle = choosing(documents(AsyncMongo(loop_client, database)), local_async())
            with recorder:
                return await run_async(again(), recorder.recorded_async(handle))

    if is_async:
        assert in_loop(in_a_loop()) == (GRANTED, "pending")
    found = read(recorder.path.read_text())
    outcome = executed(found, again(), {})
    assert isinstance(outcome, Same)
    assert found.is_whole
    assert outcome.then.startswith("finished: [granted: version 2")


@pytest.mark.parametrize("program", ["move", "count", "register", "enter"])
def test_runs_on_a_real_mongodb_are_reproduced_by_the_command_line(
    mongodb: str, database: str, here: Path, capsys: pytest.CaptureFixture[str], program: str
) -> None:
    make = run_path("mine.py")[program]
    with MongoClient[dict[str, Any]](mongodb) as client:
        handle = choosing(documents(Mongo(client, database)), local())
        for collection, doc in (("jobs", job()), ("counters", new_counter("visits"))):
            run(waits(insert_one(collection, doc)), handle)
        with Recorder(here / "run.jsonl", program) as recorder:
            result = run(make(), recorder.recorded(losing(handle)))
    code, out, err = called(capsys, "replay", "run.jsonl", f"mine.py:{program}")
    assert (code, err) == (ExitCode.OK, "")
    assert f"of {program}; then: finished: {show(result)}" in out
    wrong = "count" if program != "count" else "move"
    assert called(capsys, "replay", "run.jsonl", f"mine.py:{wrong}")[0] == ExitCode.DIVERGED


async def waits(effect: Effect[None]) -> None:
    await effect


async def insert(doc: Document) -> None:
    await insert_one("jobs", doc)


async def again() -> tuple[object, str]:
    answer = await move()
    found = await find_one("jobs", Eq(ID, "job-1"))
    assert found is not None
    return answer, found[Field[str]("status")]


def test_a_cancelled_run_says_what_was_under_way(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl", "sleeps")

    async def sleeps() -> None:
        await Call("hang")

    async def hang() -> None:
        await asyncio.sleep(60)

    async def cancelled() -> None:
        with recorder:
            task = asyncio.create_task(
                run_async(sleeps(), recorder.recorded_async(choosing(local_async({"hang": hang}))))
            )
            await asyncio.sleep(0.05)
            task.cancel()
            await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    found = read(recorder.path.read_text())
    assert (found.entries[0].ended, found.is_whole) == ("CancelledError", False)
    assert executed(found, sleeps(), {}) == Same(1, "the run was ended: CancelledError")


def test_an_error_of_user_code_is_raised_and_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl", "calls")

    async def calls() -> None:
        await Call("fail")

    def fail() -> None:
        raise ValueError(CANARY)

    with pytest.raises(ValueError, match=CANARY), recorder:
        run(calls(), recorder.recorded(choosing(local({"fail": fail}))))
    text = recorder.path.read_text()
    assert (read(text).entries[0].ended, CANARY in text) == ("ValueError", False)


KILLED: Final = """
import sys
from pathlib import Path
from tidegate.model.effects import Call
from tidegate_adapters.runtime.driver import choosing, local, run
from tidegate_adapters.observe.recorder import Recorder

async def endless():
    turn = 0
    while True:
        await Call("step", (turn,))
        turn += 1

recorder = Recorder(Path(sys.argv[1]), "endless")
run(endless(), recorder.recorded(choosing(local({"step": lambda turn: turn}))))
"""


async def endless() -> None:
    turn = 0
    while True:
        await Call("step", (turn,))
        turn += 1


def test_a_kill_loses_at_most_the_last_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)]) as process:
        limit = time.monotonic() + 60
        while not path.exists() or path.stat().st_size < 50_000:
            assert time.monotonic() < limit
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    text = path.read_text()
    found = read(text)
    assert len(found.entries) == text.count("\n") - 1 > 200
    assert not found.is_whole
    outcome = executed(found, endless(), {})
    assert isinstance(outcome, Same)
    assert outcome.steps == len(found.entries)


def test_a_damaged_last_line_is_reported_and_is_not_fatal(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Recorder(here / "run.jsonl", "transition") as recorder:
        run(move(), recorder.recorded(choosing(documents(Embedded({"jobs": (job(),)})), local())))
    whole = recorder.path.read_text()
    (here / "cut.jsonl").write_text(whole[:-20])
    code, out, err = called(capsys, "replay", "cut.jsonl", "mine.py:move")
    assert code == ExitCode.OK
    assert out.startswith("reproduced 1 step of transition; then: the recording ends")
    assert "warning: cut.jsonl: line 3 is not whole" in err
    (here / "bad.jsonl").write_text(whole.replace("\n", "\nx\n", 1))
    code, _, err = called(capsys, "replay", "bad.jsonl", "mine.py:move")
    assert (code, "line 2 of a recording is damaged" in err) == (ExitCode.USAGE, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "which program is to be executed?"),
        (("mine.py:no_program",), "makes no run of a program: int"),
        (("mine.py:transition",), "name a function without arguments that returns program(...)"),
        (("mine.py:nobody",), "there is no 'nobody'"),
        (("transition",), "names nothing in a module"),
        (("mine.py:move", "--until", "1"), "are for traces"),
    ],
)
def test_a_recording_needs_a_program(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    with Recorder(here / "run.jsonl", "transition") as recorder:
        run(move(), recorder.recorded(choosing(documents(Embedded({"jobs": (job(),)})), local())))
    code, _, err = called(capsys, "replay", "run.jsonl", *arguments)
    assert (code, said in err) == (ExitCode.USAGE, True)


# --- secrets ------------------------------------------------------------------------------------------------------------

CANARY: Final = "c4nary-7f3a"
PASSWORD: Final = Field[str]("password")


async def secretive(password: str) -> bool:
    user = await find_one("users", Eq(PASSWORD, password))
    await find_one_and_update("users", Eq(ID, "u"), Put(PASSWORD, password), Put(Field("api_key"), password.encode()))
    await Note("token", password)
    found = await Call("login", (f"mongodb://user:{password}@host/db",))
    await insert_one("users", Document.of({"_id": "v", "secret": Document.of({"deep": (password, 1234567)})}))
    await insert_one("users", Document.of({"_id": "w", "note": f"password={password}", "pin": f"own {password}"}))
    return user is not None and found == password


def test_no_secret_reaches_the_file(tmp_path: Path) -> None:
    """By name, by content, and by the caller's choice; labels lead to the same decisions."""
    account = Document.of({"_id": "u", "password": CANARY, "token": CANARY, "epoch_token": 41})
    store = Embedded({"users": (account,)})

    def is_pin(way: tuple[str, ...], value: object) -> bool:
        return "pin" in way or value == CANARY

    recorder = Recorder(tmp_path / "run.jsonl", "secretive", (CANARY,), is_secret=is_pin)
    with recorder:
        handle = choosing(documents(store), local({"login": lambda _: CANARY}))
        assert run(secretive(CANARY), recorder.recorded(handle))
    text = recorder.path.read_text()
    for shape in (CANARY, CANARY.encode().hex(), "1234567", "mongodb://user"):
        assert shape not in text
    assert '"epoch_token":41' in text  # a number is not a secret for being called a token
    found = read(text)
    assert found.entries[0].what.startswith('find users where password = "***')
    outcome = executed(found, secretive("whatever it was"), {})
    assert isinstance(outcome, Same)
    assert outcome.steps == 6


async def signs_in(password: str) -> object:
    token = await Call("sign_in", ("ann", password, password.encode(), 7))
    return await Call("fetch_token", (token,))


def test_no_secret_that_is_given_by_position_reaches_the_file(tmp_path: Path) -> None:
    """Positional arguments have no names; results are stored under the name of the call."""
    with Recorder(tmp_path / "run.jsonl", "signs_in", (CANARY,)) as recorder:
        handle = choosing(local({"sign_in": lambda *_: 1, "fetch_token": lambda _: CANARY}))
        assert run(signs_in(CANARY), recorder.recorded(handle)) == CANARY
    text = recorder.path.read_text()
    for shape in (CANARY, CANARY.encode().hex(), '"ann"'):
        assert shape not in text
    assert isinstance(executed(read(text), signs_in("whatever it was"), {}), Same)
    assert isinstance(executed(read(text), again(), {}), Other)


def test_labels_of_two_recordings_have_nothing_in_common(tmp_path: Path) -> None:
    """Its key is never written, so a label does not reveal a guessed secret."""
    texts = []
    for name in ("one", "two"):
        with Recorder(tmp_path / name, "notes", (CANARY,), is_secret=lambda _, value: value == CANARY) as recorder:
            run(note(), recorder.recorded(choosing(local())))
        texts.append(recorder.path.read_text())
    labels = [json.loads(text.splitlines()[1])["effect"]["$value"][1]["value"] for text in texts]
    assert labels[0] != labels[1]
    assert texts[0].splitlines()[0] == texts[1].splitlines()[0]  # the digest of the arguments does not reveal it


async def note() -> None:
    await Note("password", CANARY)


KEYS: Final[dict[str, tuple[bytes, bool]]] = {
    "nothing of a secret": (b"k", False),
    "a password by what it says": (f"password={CANARY}".encode(), True),
    "a password in a URI": (f"kafka://user:{CANARY}@host".encode(), True),
    "the caller's word": (CANARY.encode(), True),
}


@pytest.mark.parametrize(("key", "is_hidden"), KEYS.values(), ids=list(KEYS))
def test_no_secret_among_many_keys_reaches_the_file(tmp_path: Path, key: bytes, is_hidden: bool) -> None:
    partition = TopicPartition("orders", 0)
    keys = (*(str(each).encode() for each in range(50)), key, None)
    fetched = Fetched(partition, 1, tuple(range(52)), keys)

    def is_pin(_: tuple[str, ...], value: object) -> bool:
        return value in (CANARY.encode(), 7)

    with Recorder(tmp_path / "run.jsonl", "orders", kind="reducer", is_secret=is_pin) as recorder:
        recorder.stepped(fetched, ())
    text = recorder.path.read_text()
    assert (CANARY.encode().hex() in text, key.hex() in text) == (False, not is_hidden)
    event = json.loads(text.splitlines()[1])["event"]["$value"][1]
    hidden = [at for at, each in enumerate(event["offsets"]) if not isinstance(each, int)]
    assert hidden == [7]
    if is_hidden:
        assert [at for at, each in enumerate(event["keys"]) if each is not None and "$hidden" in each] == [50]
    else:
        assert event["keys"] == {"$byte_strings": [each and each.hex() for each in keys]}


def test_of_many_offsets_little_is_written(tmp_path: Path) -> None:
    """A line holds ranges, so that recording may stay on."""
    partition = TopicPartition("orders", 0)
    with Recorder(tmp_path / "run.jsonl", "orders", kind="reducer") as recorder:
        recorder.stepped(Fetched(partition, 1, tuple(range(1000, 9000))), ())
    line = json.loads(recorder.path.read_text().splitlines()[1])
    assert line["event"]["$value"][1]["offsets"] == {"$run": [1000, 9000]}
    assert line["what"] == "fetched orders-0 [1000, 1001, ..., 8999] (generation 1)"


# --- errors -------------------------------------------------------------------------------------------------------------


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    """It may be the only trace of a failure."""
    (tmp_path / "run.jsonl").write_text("precious")
    with pytest.raises(Misuse, match="cannot record into"):
        Recorder(tmp_path / "run.jsonl", "x")
    assert (tmp_path / "run.jsonl").read_text() == "precious"


def test_a_recorder_never_fails_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def calls() -> int:
        for turn in range(3):
            await Call("step", (turn,))
        return 3

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with caplog.at_level(logging.WARNING), Recorder(tmp_path / "run.jsonl", "calls") as recorder:
            resource.setrlimit(resource.RLIMIT_FSIZE, (recorder.path.stat().st_size + 10, before[1]))
            assert run(calls(), recorder.recorded(choosing(local({"step": lambda turn: turn})))) == 3
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [record.message for record in caplog.records] == ["recording stops: [Errno 27] File too large"]
    assert read(recorder.path.read_text()).damage == "line 2 is not whole"


async def three_calls() -> int:
    for turn in range(3):
        await Call("step", (turn,))
    return 3


def unsure(path: tuple[str, ...], value: object) -> bool:
    raise KeyError(path, value)


def unsure_later(path: tuple[str, ...], value: object) -> bool:
    return path[:1] == ("step",) and unsure(path, value)


@pytest.mark.parametrize("is_secret", [unsure, unsure_later])
def test_whatever_the_caller_raises_a_recorder_never_fails_a_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_secret: Callable[[tuple[str, ...], object], bool]
) -> None:
    """Its log line omits the message, which may hold the secret."""
    with (
        caplog.at_level(logging.WARNING),
        Recorder(tmp_path / "run.jsonl", "calls", (CANARY,), is_secret=is_secret) as recorder,
    ):
        assert run(three_calls(), recorder.recorded(choosing(local({"step": lambda turn: turn})))) == 3
    assert [record.message for record in caplog.records] == ["recording stops: KeyError"]
