"""A headless Chromium for tests, controlled over two pipes with its own protocol.

It needs only the standard library and opens no port. It keeps console errors, exceptions and
requests, so that a test can assert that there were none.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fcntl import F_DUPFD_CLOEXEC, fcntl
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast
from urllib.parse import urlsplit

NAMES: Final = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "chrome-headless-shell",
)
HOW_TO: Final = "no Chromium was found: run make browser, or set CHROMIUM to the path of one"
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "about:blank",
)
PATIENCE_S: Final = 60.0
NONE: Final[Mapping[str, object]] = MappingProxyType({})

Message = dict[str, object]

CODES: Final = {
    "Enter": 13,
    "Escape": 27,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}


def chromium() -> str | None:
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class BrowserError(Exception):
    pass


class Browser:
    def __init__(self, to: int, replies: int) -> None:
        self.to, self.replies = to, replies
        self.rest = b""
        self.count = 0
        self.events: list[Message] = []

    def ask(self, method: str, session: str | None = None, /, **given: object) -> Message:
        self.count += 1
        message: Message = {"id": self.count, "method": method, "params": given}
        if session is not None:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.next(deadline - time.monotonic())
            if answer.get("id") != self.count:
                self.events.append(answer)
            elif "error" in answer:
                raise BrowserError(f"{method}: {answer['error']}")
            else:
                return cast("Message", answer["result"])

    def next(self, patience: float) -> Message:
        while b"\0" not in self.rest:
            if patience <= 0 or not select.select([self.replies], [], [], patience)[0]:
                raise BrowserError(f"no answer within {PATIENCE_S} s")
            more = os.read(self.replies, 1 << 20)
            if not more:
                raise BrowserError("the browser is gone")
            self.rest += more
        first, _, self.rest = self.rest.partition(b"\0")
        return cast("Message", json.loads(first))

    def open(self, file: Path | str, **how: object) -> Tab:
        return Tab(self, file, **how)  # type: ignore[arg-type]


@contextmanager
def running(profile: Path) -> Iterator[Browser]:
    browser = chromium()
    if browser is None:
        raise BrowserError(HOW_TO)
    its_in, to = os.pipe()
    replies, its_out = os.pipe()
    high = [fcntl(each, F_DUPFD_CLOEXEC, 10) for each in (its_in, its_out)]  # keep clear of 3 and 4
    quiet = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    places = [*((quiet, fd) for fd in (0, 1, 2)), *zip(high, (3, 4), strict=True)]  # the protocol uses 3 and 4
    process = os.posix_spawn(
        browser,
        [browser, *FLAGS[:-1], f"--user-data-dir={profile}", FLAGS[-1]],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, source, target) for source, target in places],
        setpgroup=0,
    )
    for fd in (its_in, its_out, *high, quiet):
        os.close(fd)
    found = Browser(to, replies)
    try:
        yield found
    finally:
        with suppress(BrowserError, OSError):
            found.ask("Browser.close")
        os.close(to)
        os.close(replies)
        ended(process)
        shutil.rmtree(profile, ignore_errors=True)


def ended(process: int) -> None:
    deadline = time.monotonic() + 10
    while os.waitpid(process, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.killpg(process, signal.SIGKILL)
        time.sleep(0.02)


class Tab:
    def __init__(
        self,
        browser: Browser,
        file: Path | str,
        *,
        width: int = 1440,
        height: int = 900,
        dark: bool = False,
        hash: str = "",  # noqa: A002  the protocol's name
    ) -> None:
        self.browser = browser
        target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self.target = str(target)
        self.session = str(browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.size(width, height)
        self.ask(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.address = (file if isinstance(file, str) else file.absolute().as_uri()) + hash
        self.start = len(browser.events)
        self.ask("Page.navigate", url=self.address)
        self.until("Page.loadEventFired")
        self.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")

    def ask(self, method: str, /, **given: object) -> Message:
        return self.browser.ask(method, self.session, **given)

    def until(self, method: str) -> Message:
        deadline = time.monotonic() + PATIENCE_S
        seen = self.start
        while True:
            for event in self.browser.events[seen:]:
                if event.get("method") == method and event.get("sessionId") == self.session:
                    return event
            seen = len(self.browser.events)
            self.browser.events.append(self.browser.next(deadline - time.monotonic()))

    def size(self, width: int, height: int) -> None:
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def run(self, expression: str) -> object:
        done = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in done:
            raise BrowserError(json.dumps(done["exceptionDetails"])[:2_000])
        return cast("Message", done["result"]).get("value")

    def press(self, *keys: str) -> None:
        """Press keys; `Shift+j` holds Shift."""
        for key in keys:
            name = key.removeprefix("Shift+")
            text = " " if name == "Space" else name if len(name) == 1 else "\r" if name == "Enter" else ""
            given = {"key": " " if name == "Space" else name, "modifiers": 8 if key != name else 0}
            given["windowsVirtualKeyCode"] = CODES.get(name, 0)
            self.ask("Input.dispatchKeyEvent", type="keyDown", **given, **({"text": text} if text else {}))
            self.ask("Input.dispatchKeyEvent", type="keyUp", **given)

    def reload(self) -> None:
        self.start = len(self.browser.events)
        self.ask("Page.reload")
        self.until("Page.loadEventFired")

    def visible(self) -> str:
        """The rendered text, read without a script."""
        seen = self.ask("DOMSnapshot.captureSnapshot", computedStyles=[])
        documents, strings = (
            cast("list[dict[str, dict[str, list[int]]]]", seen["documents"]),
            cast("list[str]", seen["strings"]),
        )
        return "\n".join(strings[number] for number in documents[0]["layout"]["text"] if number >= 0)

    def middle(self, which: str) -> tuple[float, float]:
        found = self.run(
            f"(box => [box.x + box.width / 2, box.y + box.height / 2])(document.querySelector({json.dumps(which)}).getBoundingClientRect())"
        )
        x, y = cast("list[float]", found)
        return x, y

    def drag(self, which: str, by: float) -> None:
        x, y = self.middle(which)
        for kind, at in (
            ("mousePressed", x),
            ("mouseMoved", x + by / 2),
            ("mouseMoved", x + by),
            ("mouseReleased", x + by),
        ):
            self.ask("Input.dispatchMouseEvent", type=kind, x=at, y=y, button="left", buttons=1, clickCount=1)

    def click(self, which: str) -> None:
        self.drag(which, 0)

    def texts(self, which: str) -> list[str]:
        found = self.run(f"[...document.querySelectorAll({json.dumps(which)})].map(each => each.textContent)")
        return cast("list[str]", found)

    def picture(self, file: Path) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b64decode(str(self.ask("Page.captureScreenshot", format="png")["data"])))
        return file

    def paper(self, file: Path) -> bytes:
        file.parent.mkdir(parents=True, exist_ok=True)
        data = b64decode(
            str(self.ask("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)["data"])
        )
        file.write_bytes(data)
        return data

    def wrong(self) -> list[str]:
        """Console messages, policy violations, exceptions, and requests to other servers."""
        found = []
        for event in self.browser.events[self.start :]:
            given = cast("Message", event.get("params", NONE))
            if event.get("sessionId") != self.session:
                continue
            match event.get("method"):
                case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded":
                    found.append(json.dumps(given)[:500])
                case "Network.requestWillBeSent":
                    url = str(cast("Message", given["request"])["url"])
                    if not self.is_own(url):
                        found.append(f"requested {url}")
                case _:
                    pass
        return found

    def is_own(self, url: str) -> bool:
        if self.address.startswith("http:"):
            return urlsplit(url)[:2] == urlsplit(self.address)[:2]
        return url.partition("#")[0] == self.address.partition("#")[0] or url.startswith("blob:")

    def close(self) -> None:
        self.browser.ask("Target.closeTarget", targetId=self.target)


if __name__ == "__main__":
    if chromium() is None and os.getuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "--yes", "--quiet=2", "chromium"], check=True)  # noqa: S607
    print(chromium() or "run as root: apt-get install chromium; or set CHROMIUM to the path of a Chromium")
    sys.exit(chromium() is None)
