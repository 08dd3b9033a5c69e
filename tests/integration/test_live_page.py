from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, final
from urllib.parse import urlencode

import pytest
from tests.integration.browser import Browser, Tab

from tidegate.model.effects import NotApplied
from tidegate.model.errors import Misuse
from tidegate_adapters.observe.http import Asked
from tidegate_adapters.page import live
from tidegate_adapters.page.live import (
    MODULES,
    Action,
    Cell,
    Choice,
    Filter,
    Moment,
    Row,
    Shown,
    Story,
    Table,
    _Guard,
    check_place,
    live_page,
    run_in,
    served_live,
)
from tidegate_adapters.page.parts import script_of
from tidegate_adapters.reactive.settings import ReactiveSettings
from tidegate_adapters.shell.configuration import configured, from_environment

TOKEN: Final = "correct-horse-battery"  # noqa: S105  of these tests
HOSTILE: Final = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u202e"


@final
class Shop:
    def __init__(self, *names: str) -> None:
        self.orders = dict.fromkeys(names, "open")
        self.paid: list[str] = []
        self.answers = True

    async def shown(self, filters: Mapping[str, str]) -> Shown:
        if filters.get("state") == "broken" or not self.answers:
            raise NotApplied("no server answers at mongodb://user:secret@nowhere")
        meant = {name: at for name, at in self.orders.items() if filters.get("state", at) == at}
        rows = tuple(
            Row(
                name,
                (Cell(name, more="an order"), Cell(at, "good" if at == "paid" else "odd")),
                () if at == "paid" else (Action("pay", "Pay", {"key": name}, key="p"),),
                story=name,
            )
            for name, at in meant.items()
            if filters.get("name", "") in name
        )
        everything = Action("pay all", "Pay all", {}, asks=f"Pay all {len(rows)}?")
        table = Table(
            "orders", "Orders", ("order", "state"), rows, "there are none", (everything,), f"{len(rows)} of them"
        )
        choices = (Choice("open", "open"), Choice("paid", "paid"))
        return Shown(
            "Shop", f"{len(self.paid)} paid", True, (("Place", "here"),), (Filter("state", "any state", choices), Filter("name", "name")),
            (table,),
        )  # fmt: skip

    async def story(self, key: str) -> Story:
        if key not in self.orders:
            raise Misuse(f"there is no order {key}")
        return Story(key, (("State", self.orders[key]),), (Moment("08:00", "seen", f"as {key}\nand so on"),))

    async def act(self, action: str, given: Mapping[str, str]) -> str:
        if action not in {"pay", "pay all"}:
            raise Misuse(f"there is no action {action}")
        names = [given["key"]] if action == "pay" else list(self.orders)
        for name in names:
            self.orders[name] = "paid"
        self.paid += names
        return f"{', '.join(names)}: paid"


@contextmanager
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    try:
        yield made
    finally:
        made.call_soon_threadsafe(made.stop)
        thread.join()
        made.close()


@contextmanager
def shown(provider: Shop, token: str | None = None) -> Iterator[int]:
    with loop() as one, served_live("127.0.0.1", 0, token, provider, run_in(one)) as port:
        yield port


class Got(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def told(self) -> dict[str, object]:
        found = json.loads(self.text)
        assert isinstance(found, dict)
        return found


def ask(port: int, method: str, path: str, content: str = "", **headers: str) -> Got:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, content or None, named)
        answer = connection.getresponse()
        return Got(answer.status, answer.headers, answer.read().decode())
    finally:
        connection.close()


def pay(port: int, key: str = "a", **headers: str) -> Got:
    sent = json.dumps({"action": "pay", "given": {"key": key}})
    return ask(port, "POST", "/act", sent, **{"X_Tidegate": "page", **headers})


# --- access -------------------------------------------------------------------------------------------------------------


def test_whoever_does_not_know_the_token_is_told_nothing_and_does_nothing() -> None:
    """Law LP1."""
    shop = Shop("a")
    with shown(shop, TOKEN) as port:
        cookie = entered(port).headers["Set-Cookie"].partition(";")[0]
        name, _, held = cookie.partition("=")
        wrong: tuple[dict[str, str], ...] = (
            {},
            {"Authorization": f"Bearer {TOKEN}x"},
            {"Authorization": "Bearer "},
            {"Authorization": f"Basic {TOKEN}"},
            {"Cookie": f"{name}={held[:-1]}"},
            {"Cookie": f"{name}={TOKEN}"},
            {"Cookie": f"{name}="},
            {"Cookie": f"other={held}"},
            {"Cookie": '\x01"'},
        )
        for headers in wrong:
            for path in ("/", "/state", "/story?key=a"):
                got = ask(port, "GET", path, **headers)
                assert got.status == 401, (path, headers)
                assert "order" not in got.text.replace("border", "")
            assert pay(port, **headers).status == 401
        assert ask(port, "GET", f"/state?token={TOKEN}").status == 401
        assert shop.paid == []

        for headers in ({"Authorization": f"Bearer {TOKEN}"}, {"Cookie": cookie}):
            assert ask(port, "GET", "/", **headers).status == 200
            assert ask(port, "GET", "/state", **headers).told["title"] == "Shop"
            assert pay(port, **headers).told["done"] == "a: paid"


def entered(port: int, token: str = TOKEN, **headers: str) -> Got:
    return ask(port, "POST", "/enter", urlencode({"token": token}), **headers)


def test_the_token_is_taken_once_and_the_cookie_does_not_tell_it() -> None:
    """Law LP5: no script reads the cookie, and no other site can send it."""
    with shown(Shop("a"), TOKEN) as port, shown(Shop("a"), TOKEN + "2") as other:
        got = entered(port)
        cookie, *attributes = got.headers["Set-Cookie"].split("; ")

        assert (got.status, got.headers["Location"]) == (303, "./")
        assert set(attributes) == {"Path=/", "HttpOnly", "SameSite=Strict"}
        assert TOKEN not in cookie
        assert ask(other, "GET", "/state", Cookie=cookie).status == 401
        refused = entered(port, "guess")
        assert (refused.status, refused.headers["Set-Cookie"]) == (403, None)
        assert "That is not the token" in refused.text


def test_nothing_is_done_for_another_site() -> None:
    """Law LP2: neither for a form, which has no headers of its own, nor for a foreign script."""
    shop = Shop("a")
    with shown(shop) as port:
        sent = json.dumps({"action": "pay", "given": {"key": "a"}})
        assert ask(port, "POST", "/act", sent).status == 403
        assert pay(port, Origin="https://evil.example").status == 403
        assert pay(port, Origin="null").status == 403
        assert pay(port, Sec_Fetch_Site="cross-site").status == 403
        assert pay(port, Sec_Fetch_Site="same-site").status == 403
        assert shop.paid == []
        assert pay(port, Origin=f"http://127.0.0.1:{port}", Sec_Fetch_Site="same-origin").status == 200
        assert ask(port, "GET", "/act").status == 404
    with shown(shop, TOKEN) as port:
        assert entered(port, Origin="https://evil.example").status == 403


def test_without_a_token_nothing_is_answered_under_another_name() -> None:
    """Law LP3: against DNS rebinding."""
    shop = Shop("a")
    with shown(shop) as port:
        for name in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "10.0.0.1"):
            assert ask(port, "GET", "/state", Host=name).status == 421, name
            assert pay(port, Host=name).status == 421
        for name in ("localhost", f"localhost:{port}", "[::1]:80", "127.0.0.2"):
            assert ask(port, "GET", "/state", Host=name).status == 200, name
    assert shop.paid == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "shop.example", ""])  # noqa: S104  it is refused
def test_others_reach_it_with_a_token_only(host: str) -> None:
    """Law LP4."""
    with pytest.raises(Misuse, match="without a token"):
        check_place(host, None)
    check_place(host, TOKEN)
    for own in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        check_place(own, None)


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "\n" * 20, "\u00e9" * 20])
def test_a_token_that_is_easily_guessed_is_refused(token: str) -> None:
    with pytest.raises(Misuse, match="at least 16 characters") as caught:
        check_place("127.0.0.1", token)
    assert not token.strip() or token not in str(caught.value)


def test_the_answers_cannot_be_framed_kept_or_taken_for_anything_else() -> None:
    """The policy pins script and style by hash; the page may contact only its own server."""
    with shown(Shop("a"), TOKEN) as port:
        key = {"Authorization": f"Bearer {TOKEN}"}
        for path in ("/", "/state"):
            headers = ask(port, "GET", path, **key).headers
            assert headers["Cache-Control"] == "no-store"
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["X-Frame-Options"] == "DENY"
            assert headers["Referrer-Policy"] == "same-origin"
        rules = dict(
            each.split(" ", 1) for each in ask(port, "GET", "/", **key).headers["Content-Security-Policy"].split("; ")
        )
        door = ask(port, "GET", "/").headers["Content-Security-Policy"]
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == rules["form-action"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == "'none'"
    assert "unsafe" not in str(rules)
    assert "connect-src" not in door


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"action": "pay"}',
        '{"action": 7, "given": {}}',
        '{"action": "pay", "given": {"key": 7}}',
        "[" * 9_999,
    ],
)
def test_what_is_no_action_is_refused(content: str) -> None:
    with shown(Shop("a")) as port:
        got = ask(port, "POST", "/act", content or " ", X_Tidegate="page")
    assert got.status == 400
    assert "what was sent is no" in str(got.told["error"])


def test_more_than_anybody_has_to_say_is_not_read() -> None:
    with shown(Shop("a")) as port:
        assert ask(port, "POST", "/act", "x", Content_Length="99999999").status == 413
        assert ask(port, "POST", "/act", "x", Content_Length="x").status == 400


def test_what_goes_wrong_is_told_and_no_secret() -> None:
    with shown(Shop("a")) as port:
        missing = ask(port, "GET", "/story?key=b")
        assert (missing.status, missing.told["error"]) == (400, "there is no order b")
        broken = ask(port, "GET", "/state?state=broken")
        assert broken.status == 503
        assert "no server answers" in str(broken.told["error"])
        assert "secret" not in broken.text


def test_a_loop_that_is_held_up_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page answers from its own thread; code that blocks the loop delays only queries."""
    monkeypatch.setattr(live, "_PATIENCE_S", 0.1)
    held = threading.Event()
    with loop() as one, served_live("127.0.0.1", 0, None, Shop("a"), run_in(one)) as port:
        one.call_soon_threadsafe(held.wait)
        got = ask(port, "GET", "/state")
        told = ask(port, "POST", "/act", '{"action": "pay", "given": {"key": "a"}}', X_Tidegate="page")
        held.set()
    assert "may be done in part: look, and tell it again" in str(told.told["error"])
    assert (got.status, got.told["error"]) == (
        503,
        "the application does not answer within 0.1 s",
    )


def test_a_secret_that_may_be_left_out_is_not_shown_either() -> None:
    """Law CF4, for a secret that may be None."""
    base = ReactiveSettings(database="shop")
    found = configured(base, from_environment({"TIDEGATE_REACTIVE__PAGE_TOKEN": TOKEN}, "reactive"))

    assert found.settings.page_token == TOKEN
    shown_so = [
        next(each.value for each in rows if each.path == "page_token") for rows in (found.rows, configured(base).rows)
    ]
    assert shown_so == ["***", "none"]


def test_the_page_says_nothing_of_what_it_shows_and_loads_nothing() -> None:
    text = live_page()
    assert "http" not in text.replace("http-equiv", "")
    assert all(each not in text for each in ("innerHTML", "insertAdjacent", "document.write", "localStorage", "eval("))
    assert len(text) < 40_000
    assert len(MODULES) == len(set(MODULES))


# --- planted bugs -------------------------------------------------------------------------------------------------------


def known_by_the_name_of_the_cookie(guard: _Guard, asked: Asked) -> bool:
    """Planted bug: any cookie of that name is accepted."""
    return guard.name in asked.headers.get("Cookie", "") or guard.opens(asked.headers.get("Authorization", "")[7:])


def known_by_the_address(guard: _Guard, asked: Asked) -> bool:
    """Planted bug: the token is accepted in the address."""
    return guard.opens(asked.query.partition("token=")[2]) or IS_KNOWN(guard, asked)


IS_KNOWN: Final = _Guard.is_known
PLANTED: Final = {
    "LP1 a part of the token is enough": ("_same", lambda one, other: other.startswith(one)),
    "LP1 a cookie is not looked into": ("_Guard.is_known", known_by_the_name_of_the_cookie),
    "LP1 the token may stand in the address": ("_Guard.is_known", known_by_the_address),
    "LP2 nobody is asked where he is from": ("_Guard.is_from_here", staticmethod(lambda _: True)),
    "LP2 no header of its own is asked for": ("_MARK", "Host"),
    "LP3 any name will do": ("_Guard.is_here", lambda *_: True),
    "LP4 every address is this machine's own": ("is_own", lambda _: True),
    "LP5 the cookie is the token": ("_Guard.made", lambda guard, _: guard.token.decode()),
    "LP5 the cookie is of no token": ("_Guard.made", lambda *_: "letmein"),
}
LAWS: Final[Mapping[str, Callable[[], None]]] = {
    "LP1": test_whoever_does_not_know_the_token_is_told_nothing_and_does_nothing,
    "LP2": test_nothing_is_done_for_another_site,
    "LP3": test_without_a_token_nothing_is_answered_under_another_name,
    "LP4": partial(test_others_reach_it_with_a_token_only, "10.0.0.1"),
    "LP5": test_the_token_is_taken_once_and_the_cookie_does_not_tell_it,
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_breaks_its_law(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    place, wrong = PLANTED[bug]
    monkeypatch.setattr(f"tidegate_adapters.page.live.{place}", wrong)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        LAWS[bug.partition(" ")[0]]()


# --- in a browser -------------------------------------------------------------------------------------------------------

in_browser = pytest.mark.xdist_group("browser")
Open = Callable[..., Tab]


def until(tab: Tab, expression: str) -> None:
    limit = time.monotonic() + 30
    while not tab.run(expression):
        assert time.monotonic() < limit, f"{expression}\n{tab.visible()}"
        time.sleep(0.02)


@pytest.fixture
def _asks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    script, pause = script_of(MODULES), "PAUSE_MS = 1500"
    assert script.count(pause) == 1
    monkeypatch.setattr(live, "script_of", lambda _: script.replace(pause, "PAUSE_MS=100"))


def says(which: str, text: str) -> str:
    return f"document.querySelector({json.dumps(which)})?.textContent.includes({json.dumps(text)})"


@in_browser
def test_it_shows_what_there_is_and_what_comes(open_page: Open) -> None:
    shop = Shop("a", "b")
    with shown(shop) as port:
        tab = open_page(port)
        until(tab, says("tbody", "a"))
        assert tab.texts("h1") == ["Shop"]
        assert tab.texts("thead th") == ["order", "state", ""]
        tab.run("rows()[1].focus(), window.kept = rows()[1]")
        shop.orders = {"new": "open", "b": "paid"}
        until(tab, says("tbody", "new"))

        assert tab.run("rows().map(row => row.dataset.key)") == ["new", "b"]
        assert tab.run("rows()[1] === kept && document.activeElement === kept") is True
        assert tab.run("kept.querySelectorAll('button').length") == 1


@in_browser
def test_it_is_used_by_the_keyboard_alone(open_page: Open) -> None:
    shop = Shop("a", "b", "c")
    with shown(shop) as port:
        tab = open_page(port)
        until(tab, says("tbody", "c"))
        tab.press("j", "j", "j", "k", "Enter")
        until(tab, says("#told", "as b"))
        assert tab.texts("tr[aria-current=true] td:first-child") == ["b"]
        assert tab.run("location.hash") == "#story=b"

        tab.press("p")
        until(tab, says("#message", "b: paid"))
        assert shop.paid == ["b"]
        until(tab, says("#told", "paid"))

        tab.press("Escape")
        until(tab, says("#heading", "No row is chosen"))
        tab.press("?")
        assert tab.run("document.getElementById('help').open") is True
        tab.press("Enter", "/")
        assert tab.run("document.activeElement.ariaLabel") == "any state"
        tab.press("Escape", "End")
        assert tab.run("document.activeElement.dataset.key") == "c"


@in_browser
def test_filters_stand_in_the_address(open_page: Open) -> None:
    shop = Shop("apple", "pear")
    shop.orders["pear"] = "paid"
    with shown(shop) as port:
        tab = open_page(port, hash="#state=paid")
        until(tab, says("tbody", "pear"))
        assert tab.run("rows().length") == 1
        assert tab.run("document.querySelector('#filters select').value") == "paid"
        tab.run(
            "document.querySelector('#filters select').value = '', document.querySelector('#filters select').dispatchEvent(new Event('input'))"
        )
        until(tab, "rows().length === 2")
        tab.run("document.querySelector('#filters input').focus()")
        tab.press("a", "p", "p")
        until(tab, "rows().length === 1")
        assert tab.run("location.hash") == "#name=app"


@in_browser
def test_what_is_done_to_many_is_asked_first(open_page: Open) -> None:
    shop = Shop("a", "b")
    with shown(shop) as port:
        tab = open_page(port)
        until(tab, says("section h2", "Pay all"))
        tab.click("section h2 button")
        until(tab, says("#question", "Pay all 2?"))
        tab.click("#sure button[value='']")
        assert tab.run("document.getElementById('sure').open") is False
        tab.click("section h2 button")
        tab.click("#sure button[value=yes]")
        until(tab, says("#message", "a, b: paid"))
    assert shop.paid == ["a", "b"]


@in_browser
def test_what_is_shown_stays_text(open_page: Open) -> None:
    shop = Shop(HOSTILE)
    with shown(shop) as port:
        tab = open_page(port)
        until(tab, says("tbody", "onerror"))
        tab.press("j", "Enter")
        until(tab, says("#told", "onerror"))
        tab.press("p")
        until(tab, says("#message", "onerror"))

        assert tab.run("document.querySelectorAll('img, script').length") == 1
        assert "\u202e" not in tab.visible()
        assert "\\u202e" in tab.visible()


@in_browser
def test_nothing_can_be_loaded_or_run_that_is_not_the_pages_own(browser: Browser) -> None:
    """The second defence: markup planted in the page neither runs scripts nor loads pictures."""
    with shown(Shop("a")) as port:
        tab = browser.open(f"http://127.0.0.1:{port}/")
        tab.run(f"document.body.insertAdjacentHTML('beforeend', {json.dumps(HOSTILE)})")
        tab.run(
            "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hit = 1'}))"
        )
        wrong = " ".join(tab.wrong())
        assert tab.run("window.hit ?? 0") == 0
        tab.close()
    assert "img-src" in wrong
    assert "script-src" in wrong


@in_browser
@pytest.mark.parametrize("dark", [False, True])
def test_it_is_read_in_the_light_and_in_the_dark(open_page: Open, dark: bool) -> None:
    """Contrast of 4.5 to 1 (WCAG 2.2, 1.4.3)."""
    with shown(Shop("a", "b")) as port:
        tab = open_page(port, dark=dark, hash="#story=a")
        until(tab, says("#told", "as a"))
        found = tab.run(CONTRASTS)
        tab.picture(PICTURES / f"live-{'dark' if dark else 'light'}.png")
    assert isinstance(found, list)
    assert len(found) > 20
    assert [each for each in found if each[1] < 4.5] == []


PICTURES: Final = Path(__file__).parents[2] / ".tidegate" / "artifacts"
CONTRASTS: Final = """
(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  function rgb(...layers) {
    canvas.clearRect(0, 0, 1, 1);
    for (const layer of layers) { canvas.fillStyle = layer; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  }
  const light = parts => parts.map(each => each / 255).map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(each => each.nodeType === 3 && each.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest("option, script, style")) continue;
    const behind = [];
    for (let each = element; each; each = each.parentElement) behind.unshift(getComputedStyle(each).backgroundColor);
    const [ink, paper] = [rgb(...behind, getComputedStyle(element).color), rgb(...behind)].map(light);
    found.push([element.textContent.slice(0, 40), (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05)]);
  }
  return found;
})()
"""


@in_browser
def test_who_knows_the_token_enters_once(browser: Browser) -> None:
    with shown(Shop("a"), TOKEN) as port:
        tab = browser.open(f"http://127.0.0.1:{port}/")
        assert "The token of this page" in tab.visible()
        for token, what in (("guess" * 4, says("[role=alert]", "not the token")), (TOKEN, says("tbody", "a"))):
            tab.run(f"document.getElementById('token').value = {json.dumps(token)}")
            tab.run("document.querySelector('form.enter button').click()")
            until(tab, what)
        assert tab.run("location.href") == f"http://127.0.0.1:{port}/"
        assert tab.run("document.cookie") == ""
        assert not [each for each in tab.wrong() if TOKEN in each]
        tab.close()


@in_browser
@pytest.mark.usefixtures("_asks_soon")
def test_a_server_that_has_gone_is_told(browser: Browser) -> None:
    with shown(Shop("a")) as port:
        tab = browser.open(f"http://127.0.0.1:{port}/")
        until(tab, says("tbody", "a"))
    until(tab, says("#verdict", "The application does not answer."))
    assert tab.run("document.body.classList.contains('stale') && rows().length === 1") is True
    tab.close()


@in_browser
@pytest.mark.usefixtures("_asks_soon")
def test_an_answer_that_is_an_error_is_told_and_the_page_asks_on(browser: Browser) -> None:
    shop = Shop("a")
    shop.answers = False
    with shown(shop) as port:
        tab = browser.open(f"http://127.0.0.1:{port}/")
        until(tab, says("#verdict", "no server answers"))
        shop.answers = True
        until(tab, says("tbody", "a"))
        shop.answers = False
        until(tab, says("#verdict", "no server answers"))
        assert tab.run("document.body.classList.contains('stale') && rows().length === 1") is True
        shop.answers = True
        until(tab, says("#verdict", "0 paid"))
        assert tab.run("document.body.classList.contains('stale')") is False
        tab.close()
