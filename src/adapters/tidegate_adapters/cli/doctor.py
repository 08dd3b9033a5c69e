"""`tidegate doctor`: installed and missing extras, and whether the servers answer.

It shows no secret: nothing of a server's address, and only the kind of an error.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import webbrowser
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Final, cast, final

import attrs

import tidegate
from tidegate.exit_codes import ExitCode
from tidegate_adapters.shell.terminal import Styled, Terminal

_ANSWERS_S: Final = 5.0
_OF_AN_EXTRA: Final = re.compile(r"(?P<package>[\w.-]+).*extra == ['\"](?P<extra>[\w-]+)['\"]")


@final
@attrs.frozen
class _Finding:
    """A check, its result, and a fix; `ok` is None for an optional one."""

    what: str
    found: str
    ok: bool | None = True
    todo: str = ""


def check(terminal: Terminal, environ: Mapping[str, str] = os.environ, *, is_json: bool) -> ExitCode:
    findings = (
        _Finding("tidegate", tidegate.__version__),
        _Finding("python", f"{platform.python_version()} on {platform.system()}"),
        *_extras(),
        _server("mongodb", environ.get("TIDEGATE_MONGODB_URI"), "TIDEGATE_MONGODB_URI", _mongodb),
        _server("kafka", environ.get("TIDEGATE_KAFKA_BOOTSTRAP"), "TIDEGATE_KAFKA_BOOTSTRAP", _kafka),
        _browser(),
    )
    ok = all(each.ok is not False for each in findings)
    if is_json:
        checks = [attrs.asdict(each) for each in findings]
        terminal.answer({"schema": "tidegate/doctor@1", "checks": checks, "ok": ok})
    else:
        marks = {
            True: Styled("ok       ", "green"),
            None: Styled("-        ", "yellow"),
            False: Styled("NOT OK   ", "red"),
        }
        for each in findings:
            terminal.say(marks[each.ok], f"{each.what:<20}  {each.found}{f'; {each.todo}' if each.todo else ''}")
    return ExitCode.OK if ok else ExitCode.NOT_MET


def _extras() -> tuple[_Finding, ...]:
    try:
        needed = requires("tidegate") or []
    except PackageNotFoundError:
        return (_Finding("extras", "unknown: tidegate is not installed as a package", None),)
    return tuple(_extra(match["package"], match["extra"]) for match in map(_OF_AN_EXTRA.match, needed) if match)


def _extra(package: str, extra: str) -> _Finding:
    try:
        return _Finding(f"{extra}: {package}", version(package))
    except PackageNotFoundError:
        return _Finding(f"{extra}: {package}", "missing", None, f"pip install 'tidegate[{extra}]'")


def _server(what: str, address: str | None, variable: str, ask: Callable[[str], str]) -> _Finding:
    if not address:
        return _Finding(what, f"not asked: {variable} is not set", None)
    try:
        return _Finding(what, ask(address))
    except Exception as error:  # noqa: BLE001  any driver error; its message may hold the address
        return _Finding(
            what, f"no answer: {type(error).__name__}", ok=False, todo=f"is {variable} right, and the server up?"
        )


def _mongodb(uri: str) -> str:
    from pymongo import MongoClient  # noqa: PLC0415  optional driver

    with MongoClient[dict[str, object]](uri, serverSelectionTimeoutMS=int(_ANSWERS_S * 1000)) as client:
        hello = client.admin.command("hello")
        sets = (
            "replica set"
            if "setName" in hello or hello.get("msg") == "isdbgrid"
            else ("no replica set, and so no change streams and no majority")
        )
        return f"MongoDB {client.server_info()['version']}, {sets}"


def _kafka(bootstrap: str) -> str:
    from tidegate_adapters.kafka.client import brokers  # noqa: PLC0415  optional driver

    count = asyncio.run(asyncio.wait_for(brokers(bootstrap), _ANSWERS_S))
    return f"{count} broker{'' if count == 1 else 's'}"


def _browser() -> _Finding:
    try:
        name = cast("str", getattr(webbrowser.get(), "name", "")) or "there is one"
    except webbrowser.Error:
        return _Finding(
            "browser", "none found here; the page of a counterexample is one file, to be opened anywhere", None
        )
    return _Finding("browser", name)
