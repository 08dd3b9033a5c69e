"""A page that shows a running application and lets operators act: tables, timelines, actions.

The application provides values (`Shown`, `Story`) and executes actions (`Provider`). The page polls
every second or two, and changes only what differs.

    GET  /          the page: its own script and style, without data
    POST /enter     takes the token, and sets a cookie
    GET  /state     the data, by filters:
                    {"schema": "tidegate/live@1", "title": ..., "tables": [...]}
    GET  /story     the timeline of a row: ?key=...
    POST /act       runs an action: {"action": "retry", "given": {"key": ...}}

The data is hostile: names, ids and errors come from users. It travels as JSON, and the script sets
only text. As a second defence the policy allows only the page's own script and style.

Laws, with `tests/integration/test_live_page.py`
    LP1  With a token, a client that does not know it reads no data and runs no action.
    LP2  No action runs for another site: a request carries a header of the page's own. A browser
         that sends its origin names this one.
    LP3  Without a token, the server answers only under this machine's own names: another site
         cannot use one.
    LP4  The page listens on other addresses than this machine's own only with a token.
    LP5  The token is in no address, no log and no cookie; a cookie is useless after the token
         changes.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, TypeVar, final
from urllib.parse import parse_qs, parse_qsl

import attrs

from tidegate.model.effects import Failure
from tidegate.model.errors import Misuse, TidegateError, shown
from tidegate_adapters.base.redaction import redacted
from tidegate_adapters.observe.http import MISDIRECTED, Answer, Asked, Page, is_own, is_own_name, served
from tidegate_adapters.page.parts import frame, policy, script_of, style_of

log: Final = logging.getLogger(__name__)

MODULES: Final = ("values", "dom", "asking", "spans", "tables", "story", "acting", "live")
"""The script modules, in the order of their imports."""
_SHEETS: Final = ("base", "live")
TOKEN_MIN: Final = 16
"""The length makes up for the lack of a limit on guesses."""

T = TypeVar("T")


# --- data -----------------------------------------------------------------------------------------


@final
@attrs.frozen
class Action:
    """A button.

    Attributes:
        key: A keyboard shortcut in a chosen row; "" for none.
        asks: A confirmation; "" for none.
    """

    name: str
    label: str
    given: Mapping[str, str] = attrs.field(factory=lambda: MappingProxyType(dict[str, str]()))
    key: str = ""
    asks: str = ""


@final
@attrs.frozen
class Cell:
    """A cell of a table.

    Attributes:
        tone: `good`, `bad`, `odd` or `soft`; "" for none.
        more: A longer text.
    """

    text: str
    tone: str = ""
    more: str = ""


@final
@attrs.frozen
class Row:
    """A row of a table.

    Attributes:
        key: Identifies the row across updates.
        story: The key of its timeline; "" for none.
    """

    key: str
    cells: tuple[Cell, ...]
    actions: tuple[Action, ...] = ()
    story: str = ""


@final
@attrs.frozen
class Span:
    """An interval in a lane.

    Attributes:
        begin: Milliseconds since 1970.
        end: The end, or now.
        story: The key of its timeline; "" for none.
    """

    begin: int
    end: int
    text: str
    tone: str = ""
    story: str = ""


@final
@attrs.frozen
class Lane:
    """A row of a timeline chart.

    Attributes:
        key: Identifies the lane across updates.
        depth: Its indentation below the last lane with less.
        more: The text behind the label, in this tone.
    """

    key: str
    label: str
    spans: tuple[Span, ...] = ()
    depth: int = 0
    more: str = ""
    tone: str = ""
    story: str = ""
    is_here: bool = False


@final
@attrs.frozen
class Lanes:
    """A timeline chart; times are milliseconds since 1970, and `ends` labels both ends."""

    label: str
    begin: int
    end: int
    ends: tuple[str, str]
    lanes: tuple[Lane, ...]


def packed(spans: Sequence[Span], most: int) -> tuple[tuple[Span, ...], ...]:
    """As few rows as possible without overlap; at most `most`, the fullest ones."""
    rows: list[list[Span]] = []
    for span in sorted(spans, key=lambda each: (each.begin, each.end)):
        row = next((each for each in rows if each[-1].end <= span.begin), None)
        if row is None:
            rows.append([span])
        else:
            row.append(span)
    return tuple(tuple(each) for each in rows[:most])


@final
@attrs.frozen
class Table:
    """A table, with `actions` on all matching data and a `note`, such as the number of omitted
    rows.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    empty: str
    actions: tuple[Action, ...] = ()
    note: str = ""
    lanes: Lanes | None = None


@final
@attrs.frozen
class Choice:
    """An option of a filter."""

    value: str
    label: str


@final
@attrs.frozen
class Filter:
    """Narrows tables: by one of the choices, or by a text if there are none."""

    name: str
    label: str
    choices: tuple[Choice, ...] = ()


@final
@attrs.frozen
class Shown:
    """All data of the page; `verdict` is the health in a line."""

    title: str
    verdict: str
    is_well: bool
    facts: tuple[tuple[str, str], ...]
    filters: tuple[Filter, ...]
    tables: tuple[Table, ...]


@final
@attrs.frozen
class Moment:
    """An entry of a timeline."""

    at: str
    what: str
    more: str = ""
    tone: str = ""


@final
@attrs.frozen
class Story:
    """The timeline of a row: current facts, past and future events, and a chart of related work."""

    title: str
    facts: tuple[tuple[str, str], ...]
    moments: tuple[Moment, ...]
    actions: tuple[Action, ...] = ()
    lanes: Lanes | None = None


class Provider(Protocol):
    """Provides the data of a page; called in the event loop of the application."""

    async def shown(self, filters: Mapping[str, str]) -> Shown:
        """The data that match the filters; raises if one is invalid, or a server does not
        answer.
        """
        ...

    async def story(self, key: str) -> Story:
        """The timeline of a key; raises if it does not exist, or a server does not answer."""
        ...

    async def act(self, action: str, given: Mapping[str, str]) -> str:
        """Run an action, and describe the result; raises as `story`."""
        ...


Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine in the application's loop, and blocks the calling thread."""


def run_in(loop: asyncio.AbstractEventLoop) -> Run:
    """Runs coroutines in a loop of another thread; cancels slow ones."""

    def run(asked: Coroutine[Any, Any, Any]) -> Any:
        try:
            done = asyncio.run_coroutine_threadsafe(asked, loop)
        except RuntimeError:  # closed
            asked.close()
            raise TimeoutError from None
        try:
            return done.result(_PATIENCE_S)
        except TimeoutError:
            done.cancel()
            raise
        except CancelledError:
            raise TimeoutError from None

    return run


_PATIENCE_S: Final = 20.0

# --- access ---------------------------------------------------------------------------------------


def check_filters(filters: Mapping[str, str], names: Collection[str]) -> None:
    """Refuse an unknown filter: an action would affect more than was meant."""
    for name in filters:
        if name not in names:
            raise Misuse(f"there is no filter {shown(name)}", todo=f"there are: {', '.join(names)}")


def check_place(host: str, token: str | None) -> None:
    """Require a long token for a public address."""
    if token is not None and (len(token) < TOKEN_MIN or not (token.isascii() and token.isprintable())):
        raise Misuse(
            f"a token of the page has at least {TOKEN_MIN} characters of ASCII that can be printed",
            why="whoever knows it may act",
            todo="python -c 'import secrets; print(secrets.token_urlsafe())' makes one",
        )
    if token is None and not is_own(host):
        raise Misuse(
            f"the page at {host} without a token",
            why="whoever reaches this address could retry and pause",
            todo="set page_token, or let page_host be 127.0.0.1",
        )


@final
class _Guard:
    def __init__(self, token: str | None) -> None:
        self.token = None if token is None else token.encode()
        # The cookie is derived from the token and does not reveal it; two pages of one machine have
        # two cookies.
        self.passed = "" if token is None else self.made("pass")
        self.name = "" if token is None else f"tidegate-{self.made('name')[:12]}"

    def made(self, what: str) -> str:
        """Derived from the token, without revealing it."""
        assert self.token is not None, "asked for with a token alone"
        return hmac.new(self.token, f"tidegate page {what}".encode(), "sha256").hexdigest()

    def is_here(self, asked: Asked) -> bool:
        """Whether the request uses this machine's own name; with a token any name will do, because
        other sites do not know it.
        """
        return self.token is not None or is_own_name(asked.headers.get("Host", ""))

    def is_known(self, asked: Asked) -> bool:
        if self.token is None:
            return True
        kind, _, given = asked.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.opens(given.strip())
        try:
            held = SimpleCookie(asked.headers.get("Cookie", "")).get(self.name)
        except CookieError:
            return False
        return held is not None and _same(held.value, self.passed)

    def opens(self, given: str) -> bool:
        return self.token is not None and _same(given, self.token.decode())

    @property
    def cookie(self) -> str:
        """The session cookie: hidden from scripts and not sent by other sites."""
        return f"{self.name}={self.passed}; Path=/; HttpOnly; SameSite=Strict"

    @staticmethod
    def is_from_here(asked: Asked) -> bool:
        """Whether this page, not another site, sent the request."""
        origin, site = asked.headers.get("Origin"), asked.headers.get("Sec-Fetch-Site")
        own = {f"{scheme}://{asked.headers.get('Host', '')}" for scheme in ("http", "https")}
        return site in {None, "same-origin"} and (origin is None or origin in own)


def _same(one: str, other: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), other.encode())


# --- the page -------------------------------------------------------------------------------------


def live_page() -> str:
    return frame("live").substitute(style=style_of(_SHEETS), script=script_of(MODULES))


def _pages(provider: Provider, run: Run, guard: _Guard) -> tuple[Mapping[str, Page], Mapping[str, Page]]:
    def at_the_door(answer: Page, *, door: Answer) -> Page:
        def guarded(asked: Asked) -> Answer:
            if not guard.is_here(asked):
                return MISDIRECTED
            return answer(asked) if guard.is_known(asked) else door

        return guarded

    def told(make: Callable[[Asked], Coroutine[Any, Any, Mapping[str, object]]]) -> Page:
        def answer(asked: Asked) -> Answer:
            try:
                return _json(HTTPStatus.OK, {"schema": _SCHEMA, **run(make(asked))})
            except Misuse as error:
                return _refused(HTTPStatus.BAD_REQUEST, _said(error))
            except (TidegateError, Failure) as error:
                return _refused(HTTPStatus.SERVICE_UNAVAILABLE, _said(error))
            except TimeoutError:
                why = f"the application does not answer within {_PATIENCE_S:g} s"
                more = "; what it was told to do may be done in part: look, and tell it again" if asked.content else ""
                return _refused(HTTPStatus.SERVICE_UNAVAILABLE, why + more)

        return at_the_door(answer, door=_refused(HTTPStatus.UNAUTHORIZED, "needs the token"))

    async def shown(asked: Asked) -> Mapping[str, object]:
        return attrs.asdict(await provider.shown(dict(parse_qsl(asked.query))))

    async def story(asked: Asked) -> Mapping[str, object]:
        return attrs.asdict(await provider.story(parse_qs(asked.query).get("key", [""])[0]))

    async def act(asked: Asked) -> Mapping[str, object]:
        action, given = _asked_for(asked.content)
        return {"done": await provider.act(action, given)}

    def from_here(answer: Page, *, marked: bool) -> Page:
        def checked(asked: Asked) -> Answer:
            if not guard.is_from_here(asked) or (marked and asked.headers.get(_MARK) is None):
                return _refused(
                    HTTPStatus.FORBIDDEN, f"what is sent comes from the page itself, with the header {_MARK}"
                )
            return answer(asked)

        return checked

    def enter(asked: Asked) -> Answer:
        given = parse_qs(asked.content.decode("utf-8", "replace")).get("token", [""])[0]
        if guard.opens(given):
            return Answer(HTTPStatus.SEE_OTHER, _TEXT, b"", {**_HEADERS, "Location": "./", "Set-Cookie": guard.cookie})
        return _door("That is not the token.", HTTPStatus.FORBIDDEN)

    page = _html(live_page(), policy(style_of(_SHEETS), script_of(MODULES), "connect-src 'self'", *_ALONE))
    pages = {
        "/": at_the_door(lambda _: page, door=_door("", HTTPStatus.UNAUTHORIZED)),
        "/state": told(shown),
        "/story": told(story),
    }
    return pages, {"/act": from_here(told(act), marked=True), "/enter": from_here(enter, marked=False)}


_SCHEMA: Final = "tidegate/live@1"
_MARK: Final = "X-Tidegate"
_TEXT: Final = "text/plain; charset=utf-8"
_ALONE: Final = ("form-action 'self'", "frame-ancestors 'none'")
_HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Cache-Control": "no-store",
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
)


def _asked_for(content: bytes) -> tuple[str, Mapping[str, str]]:
    try:
        found: object = json.loads(content)
    except (ValueError, RecursionError):
        raise Misuse("what was sent is no JSON") from None
    match found:
        case {"action": str(action), "given": dict(given)} if all(isinstance(each, str) for each in given.values()):
            return action, given
        case _:
            raise Misuse("what was sent is no action", todo='send {"action": ..., "given": {...}}, with texts')


def _said(error: TidegateError | Failure) -> str:
    parts = (str(error),) if isinstance(error, Failure) else (error.what, error.why, error.todo)
    return redacted(". ".join(filter(None, parts)))


def _refused(status: HTTPStatus, why: str) -> Answer:
    return _json(status, {"schema": _SCHEMA, "error": why})


def _json(status: HTTPStatus, told: Mapping[str, object]) -> Answer:
    content = json.dumps(told, ensure_ascii=True, allow_nan=False).encode()
    return Answer(status, "application/json", content, _HEADERS)


def _door(said: str, status: HTTPStatus) -> Answer:
    style = style_of(_SHEETS)
    html = frame("enter").substitute(style=style, said=said)
    return _html(html, policy(style, "", *_ALONE), status)


def _html(text: str, rules: str, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    headers = {**_HEADERS, "Content-Security-Policy": rules}
    return Answer(status, "text/html; charset=utf-8", text.encode(), headers)


def served_live(host: str, port: int, token: str | None, provider: Provider, run: Run) -> AbstractContextManager[int]:
    """Serve the page, until the block ends.

    Args:
        host: The address.
        port: The port; 0 for any free one.
        token: The secret of the page; None only on this machine's own addresses.
        provider: Provides data and actions.
        run: Runs the provider's coroutines.

    Returns:
        The port.

    Raises:
        Misuse: A public address has no token, or the address is unavailable.
    """
    check_place(host, token)
    return served(host, port, *_pages(provider, run, _Guard(token)), settings="page")
