"""A page that shows an application while it runs, and lets operators act: tables, a story, actions.

Whatever runs provides what is shown as values (`Shown`, `Story`) and does what is asked for (`Provider`); how that looks, who
may see it and how it stays up to date are the same for all of them. The page asks for what is shown every second or two, and
changes only what has changed.

    GET  /          the page: its own script and style, and nothing of what is shown
    POST /enter     takes the token, and answers with a cookie
    GET  /state     what is shown, by filters: {"schema": "tidegate/live@1", "title": ..., "tables": [...]}
    GET  /story     the story of a row: ?key=...
    POST /act       does something: {"action": "retry", "given": {"key": ...}}

What is shown is hostile: names, ids and errors come from users' data. It travels as JSON, and the script sets text and never
markup; if that failed, the policy lets nothing run and nothing load but the page's own script and style.

Laws, with `tests/integration/test_live_page.py`
    LP1  Where there is a token, nobody who does not know it is told anything, or does anything.
    LP2  Nothing is done for another site: what is sent says with a header of its own that it is the page's, and a browser
         that says where it is from says that it is from here.
    LP3  Without a token, nothing is answered under a name that is not this machine's own: another site cannot call itself so.
    LP4  The page listens on other addresses than this machine's own only with a token.
    LP5  The token is in no address, no log and no cookie; what the cookie holds is of no use where the token is changed.
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
"""The modules of the script, each behind those that it imports."""
_SHEETS: Final = ("base", "live")
TOKEN_MIN: Final = 16
"""A token has at least so many characters: nobody counts how often one is guessed."""

T = TypeVar("T")


# --- what is shown ------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Action:
    """What a button asks for.

    Attributes:
        name: Of the action.
        label: What the button says.
        given: What goes along.
        key: Presses it where its row is chosen; "" for none.
        asks: A question that comes first; "" for none.
    """

    name: str
    label: str
    given: Mapping[str, str] = attrs.field(factory=lambda: MappingProxyType(dict[str, str]()))
    key: str = ""
    asks: str = ""


@final
@attrs.frozen
class Cell:
    """What stands in a column.

    Attributes:
        text: What it says.
        tone: `good`, `bad`, `odd` or `soft`, besides what it says; "" for none.
        more: What is said of it beyond that.
    """

    text: str
    tone: str = ""
    more: str = ""


@final
@attrs.frozen
class Row:
    """A row.

    Attributes:
        key: It is the same row for as long as this is the same.
        cells: One a column.
        actions: What can be done with it.
        story: The key of the story of what it is about; "" where there is none.
    """

    key: str
    cells: tuple[Cell, ...]
    actions: tuple[Action, ...] = ()
    story: str = ""


@final
@attrs.frozen
class Span:
    """A time in which something went on.

    Attributes:
        begin: When it began, in milliseconds since 1970.
        end: When it ended, or now.
        text: What it was.
        tone: As of a cell.
        story: The key of its story; "" where there is none.
    """

    begin: int
    end: int
    text: str
    tone: str = ""
    story: str = ""


@final
@attrs.frozen
class Lane:
    """What went on in one place, or of one thing.

    Attributes:
        key: It is the same lane for as long as this is the same.
        label: What stands before it.
        spans: What went on.
        depth: How far it is indented: below the last one above that is less.
        more: What stands behind the label.
        tone: As of a cell, of what stands behind.
        story: The key of its story; "" where there is none.
        is_here: It is the lane of the story that is shown.
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
    """Lanes beside each other, of one time.

    Attributes:
        label: What they show.
        begin: Where they begin, in milliseconds since 1970.
        end: Where they end.
        ends: What stands at both ends.
        lanes: The lanes, from above.
    """

    label: str
    begin: int
    end: int
    ends: tuple[str, str]
    lanes: tuple[Lane, ...]


def packed(spans: Sequence[Span], most: int) -> tuple[tuple[Span, ...], ...]:
    """The same in as few rows as they can be in without one covering another; the fullest ones where those are too many.

    Args:
        spans: In any order.
        most: How many rows there may be.
    """
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
    """A table.

    Attributes:
        name: Of it.
        title: What stands above.
        columns: What stands above the columns.
        rows: The rows.
        empty: What it says where there are none.
        actions: What can be done with all that it is a part of.
        note: What it says besides, such as how many are left out.
        lanes: What went on, above the rows; None for nothing.
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
    """One of those that a filter has."""

    value: str
    label: str


@final
@attrs.frozen
class Filter:
    """What narrows a table down: one of some choices, or a text where there are none."""

    name: str
    label: str
    choices: tuple[Choice, ...] = ()


@final
@attrs.frozen
class Shown:
    """All that is shown.

    Attributes:
        title: Of the page.
        verdict: How it is, in a line.
        is_well: Whether that is well.
        facts: What is known besides, by name.
        filters: What narrows the tables down.
        tables: The tables.
    """

    title: str
    verdict: str
    is_well: bool
    facts: tuple[tuple[str, str], ...]
    filters: tuple[Filter, ...]
    tables: tuple[Table, ...]


@final
@attrs.frozen
class Moment:
    """A moment of a story: when, what, and what is said of it."""

    at: str
    what: str
    more: str = ""
    tone: str = ""


@final
@attrs.frozen
class Story:
    """What is known of a row, from the beginning.

    Attributes:
        title: What it is about.
        facts: What is known of it now, by name.
        moments: What happened, and what is to come.
        actions: What can be done with it.
        lanes: What went on beside it, such as what it called; None for nothing.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    moments: tuple[Moment, ...]
    actions: tuple[Action, ...] = ()
    lanes: Lanes | None = None


class Provider(Protocol):
    """Provides what a page shows; it is asked within the event loop of the application."""

    async def shown(self, filters: Mapping[str, str]) -> Shown:
        """All that is shown, narrowed down.

        Raises:
            TidegateError: A filter says what cannot be, or a server does not answer.
        """
        ...

    async def story(self, key: str) -> Story:
        """The story of that key.

        Raises:
            TidegateError: There is none, or a server does not answer.
        """
        ...

    async def act(self, action: str, given: Mapping[str, str]) -> str:
        """Do something, and tell what was done.

        Raises:
            TidegateError: There is no such action, or a server does not answer.
        """
        ...


Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine in the loop of the application, and waits for it in the thread that asks."""


def run_in(loop: asyncio.AbstractEventLoop) -> Run:
    """Runs coroutines in this loop, which another thread runs; one that takes too long is cancelled."""

    def run(asked: Coroutine[Any, Any, Any]) -> Any:
        try:
            done = asyncio.run_coroutine_threadsafe(asked, loop)
        except RuntimeError:  # it is closed
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
"""How long whoever looks waits for the loop."""


# --- where, and for whom ------------------------------------------------------------------------------------------------


def check_filters(filters: Mapping[str, str], names: Collection[str]) -> None:
    """Refuse what is no filter: it would narrow nothing down, and what is done be done to more than was meant.

    Args:
        filters: What was asked for, by name.
        names: Of the filters that there are.

    Raises:
        Misuse: There is no such filter.
    """
    for name in filters:
        if name not in names:
            raise Misuse(f"there is no filter {shown(name)}", todo=f"there are: {', '.join(names)}")


def check_place(host: str, token: str | None) -> None:
    """The page may listen there.

    Raises:
        Misuse: Others could reach it, and there is no token; or the token is too short.
    """
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
    """Who may see the page, and act.

    Args:
        token: What they know; None where they are on this machine, and that is enough.
    """

    def __init__(self, token: str | None) -> None:
        self.token = None if token is None else token.encode()
        # What the browser keeps is made of the token, and does not tell it; two pages of one machine have two cookies.
        self.passed = "" if token is None else self.made("pass")
        self.name = "" if token is None else f"tidegate-{self.made('name')[:12]}"

    def made(self, what: str) -> str:
        """What is made of the token, and tells nothing of it."""
        assert self.token is not None, "asked for with a token alone"
        return hmac.new(self.token, f"tidegate page {what}".encode(), "sha256").hexdigest()

    def is_here(self, asked: Asked) -> bool:
        """Is it asked for under this machine's own name? With a token any name will do, for others do not know that."""
        return self.token is not None or is_own_name(asked.headers.get("Host", ""))

    def is_known(self, asked: Asked) -> bool:
        """Does whoever asks know the token?"""
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
        """Is it the token?"""
        return self.token is not None and _same(given, self.token.decode())

    @property
    def cookie(self) -> str:
        """What the browser keeps of whoever has entered: no script reads it, and no other site has it sent."""
        return f"{self.name}={self.passed}; Path=/; HttpOnly; SameSite=Strict"

    @staticmethod
    def is_from_here(asked: Asked) -> bool:
        """Is it no other site that has a browser send this?"""
        origin, site = asked.headers.get("Origin"), asked.headers.get("Sec-Fetch-Site")
        own = {f"{scheme}://{asked.headers.get('Host', '')}" for scheme in ("http", "https")}
        return site in {None, "same-origin"} and (origin is None or origin in own)


def _same(one: str, other: str) -> bool:
    """Are they the same? How long it takes does not tell where they differ."""
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), other.encode())


# --- the page -----------------------------------------------------------------------------------------------------------


def live_page() -> str:
    """The page, without what it shows."""
    return frame("live").substitute(style=style_of(_SHEETS), script=script_of(MODULES))


def _pages(provider: Provider, run: Run, guard: _Guard) -> tuple[Mapping[str, Page], Mapping[str, Page]]:
    """What is got, and what is sent to."""

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
    """The action, and what goes along.

    Raises:
        Misuse: It is no action.
    """
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
        host: Where.
        port: The port there; 0 for any that is free.
        token: What whoever looks must know; None only on this machine's own addresses.
        provider: Provides what is shown.
        run: Runs what the provider does.

    Returns:
        The port.

    Raises:
        Misuse: Others could reach it, and there is no token; or nobody can listen there.
    """
    check_place(host, token)
    return served(host, port, *_pages(provider, run, _Guard(token)), settings="page")
