"""Effects and coroutines that a program creates and never awaits: true and false positives."""

from __future__ import annotations

import functools
import gc
import textwrap
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Protocol, cast

import attrs
import pytest

from tidegate.model import bytecode, effects, operations
from tidegate.model.documents import ID, Document, Eq, Field, Put
from tidegate.model.effects import Call, Effect, Failure, NotApplied, Note, Program, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.operations import FindOne, UpdateOne, bulk_update, find_one, insert_one, update_one
from tidegate.model.transactions import InTransaction, Transaction
from tidegate.model.unawaited import forgotten
from tidegate.sim.program.automaton import ProgramAutomaton
from tidegate.sim.runs.report import explore
from tidegate.sim.scenario import Scenario
from tidegate.sim.servers.actors import Process
from tidegate.sim.world.world import Plain

N = Field[int]("n")
ROW = Eq(ID, "x")
PUT = Put(N, 1)
DOC = Document.of({"_id": "y"})
TRANSACTION = Transaction("s", 1)
CONSTANT = update_one("c", ROW, PUT)


async def nested() -> None:
    await Note("nested", 1)


def annotated() -> UpdateOne:
    return update_one("c", ROW, PUT)


def of_two(*, one: bool) -> UpdateOne | FindOne:
    if one:
        return update_one("c", ROW, PUT)
    return find_one("c", ROW)


def started() -> Program[None]:
    return nested()


def perhaps() -> UpdateOne | None:
    return None


async def all_of(*effects: Effect[object]) -> None:
    for effect in effects:
        await effect


@attrs.frozen
class Store:
    name: str

    def put(self) -> UpdateOne:
        return update_one(self.name, ROW, PUT)

    @staticmethod
    async def saves() -> None:
        await nested()

    @staticmethod
    def of(other) -> UpdateOne:  # type: ignore[no-untyped-def]  # noqa: ANN001  nothing is known of it
        other.put()
        return update_one(str(other), ROW, PUT)

    @classmethod
    def made(cls) -> UpdateOne:
        return cls("a").put()

    @property
    def other(self) -> Store:
        return Store("other")

    async def forgets(self) -> None:
        self.put()  # type: ignore[unused-awaitable]  # the mistake


MODULE: dict[str, object] = {
    **{each.__name__: each for each in (Sleep, Call, Note, insert_one, find_one, update_one, bulk_update, InTransaction, Store, UpdateOne, FindOne)},
    **{each.__name__: each for each in (nested, annotated, of_two, started, perhaps, all_of)},
    **{each.__name__: each for each in (Effect, Failure, NotApplied, Misuse, Protocol, ABC, abstractmethod, partial, Program)},
    "effects": effects, "attrs": attrs, "functools": functools, "Document": Document,
    "operations": operations, "TRANSACTION": TRANSACTION, "CONSTANT": CONSTANT, "ROW": ROW, "PUT": PUT, "DOC": DOC, "N": N,
}  # fmt: skip
HELPERS = """
def no_annotation(): return update_one("c", ROW, PUT)
def through_another(): return no_annotation()
def plain(): return 1
def either(): pass
either.__annotations__["return"] = UpdateOne
async def with_store(store: Store): store.put()
def calls_itself(): return calls_itself()
def raises(): raise RuntimeError
def puts():
    insert_one("c", DOC)
def puts_right(): return insert_one("c", DOC)
made = lambda: update_one("c", ROW, PUT)
async def forgets_deep_down():
    def inner():
        puts()
    return [inner for _ in range(1)]
def quoted() -> "Effect[Document | None]": return find_one("c", ROW)
def by_way_of_a_local():
    found = find_one("c", ROW)
    return found
def repository(): return Repo()
def wraps(function):
    @functools.wraps(function)
    async def wrapped(*arguments): return await function(*arguments)
    return wrapped
def passes_on(function): return function
class Repo:
    shared = None
    async def save(self, n): await nested()
    def put(self, n): return update_one("c", ROW, PUT)
    def put_through(self, n): return self.put(n)
    def plain(self, n): self.n = n
    @wraps
    async def save_wrapped(self): await nested()
    @passes_on
    async def save_passed_on(self): await nested()
    @property
    def unread(self): raise RuntimeError
class Derived(Repo): pass
class Synchronous(Repo):
    def save(self, n): return None
    def put(self, n): return None
class Made:
    def __new__(cls): return plain
    async def save(self, n): await nested()
class Service:
    def __init__(self, repo: Repo): self.repo = repo
    async def forgets(self): self.repo.save(1)
    async def keeps(self): await self.repo.save(1)
class Replacing(Service):
    async def replaces(self):
        self.repo = Synchronous()
        self.repo.save(1)
class OfItsOwn:
    __slots__ = ("repo",)
    def __init__(self): self.repo = Repo()
    async def forgets(self): self.repo.put(1)
class OfAnother:
    def __init__(self): self.repo = Repo()
    def set(self, repo): self.repo = repo
    async def forgets(self): self.repo.put(1)
@attrs.frozen
class Declared:
    repo: Repo
    async def forgets(self): self.repo.save(1)
@attrs.frozen
class Charge(Effect[object]):
    amount: int
    def validate(self): pass
    def validated(self): return self
def charge() -> Charge: return Charge(1)
def checked(effect: Effect[object]) -> Effect[object]: return effect
def checked_by_name(effect):
    same = effect
    return same
def remembers(effects: list[object]) -> UpdateOne:
    effect = update_one("c", ROW, PUT)
    effects.append(effect)
    return effect
class Outbox(Protocol):
    def add(self, key) -> UpdateOne: ...
class Base(ABC):
    @abstractmethod
    def add(self, key) -> UpdateOne: raise NotImplementedError
class Box(Base):
    def __init__(self): self.effects = []
    def add(self, key):
        effect = update_one("c", ROW, PUT)
        self.effects.append(effect)
        return effect
    def keep(self, effect):
        self.effects.append(effect)
        return effect
    def add_kept(self, key) -> UpdateOne: return self.keep(update_one("c", ROW, PUT))
async def drains(box: Outbox):
    box.add("r")
    for each in box.effects: await each
async def drains_base(box: Base): box.add("r")
class Memo:
    def __init__(self): self.effects = {}
    def ensure(self, key) -> FindOne: return self.effects.setdefault(key, find_one("c", ROW))
def later(function):
    made = []
    def inner(*arguments):
        made.append(function(*arguments))
        return made
    return inner
@later
async def registered(): await nested()
def traced(function):
    @functools.wraps(function)
    def inner(*arguments): return function(*arguments)
    return inner
@traced
async def traced_nested(): await nested()
@attrs.frozen
class Plan:
    effects: tuple = ()
    def add(self, effect: Effect) -> "Plan": return attrs.evolve(self, effects=(*self.effects, effect))
class Pipeline(Effect):
    def __init__(self): self.steps = []
    def add(self, step) -> "Pipeline":
        self.steps.append(step)
        return self
def evolved(effect: Effect) -> Effect: return attrs.evolve(effect)
class Queue:
    def __init__(self): self.items = []
    def put(self, item):
        self.items.append(item)
        return item
QUEUE = Queue()
def started_by_a_queue() -> Program[None]: return QUEUE.put(nested())
async def saves_to(repo: Repo): repo.save(1)
class Replaced(Repo):
    def __init__(self): self.save = plain
class LooksUp(Repo):
    def __getattribute__(self, name): return plain
def plugs_in():
    global REPO
    REPO = Synchronous()
def constant() -> UpdateOne: return CONSTANT
def any_effect() -> Effect[object]: return Charge(1)
REPO, SERVICE, FAKE, OWN, OTHER, LOOKS = Repo(), Service(Repo()), Service(Synchronous()), OfItsOwn(), OfAnother(), LooksUp()
UNSET = OfItsOwn.__new__(OfItsOwn)
"""


def program(body: str, arguments: Mapping[str, object] | None = None, **more: object) -> Program[object]:
    text = f"{HELPERS}\nasync def program(argument=None, typed: 'Store | None' = None):\n"
    names = {**MODULE, **more, "__name__": "mine"}
    exec(compile(text + textwrap.indent(body, "    "), "/home/me/mine.py", "exec"), names)  # noqa: S102  written below
    made = cast("Callable[..., Program[object]]", names["program"])
    return made(**arguments or {})


def calls(body: str, arguments: Mapping[str, object] | None = None, **more: object) -> list[str]:
    begun = program(body, arguments, **more)
    found = [each.call for each in forgotten(begun)]
    begun.close()
    return found


FORGOTTEN = {
    "update_one('c', ROW, PUT)": "update_one",
    "operations.insert_one('c', DOC)": "operations.insert_one",
    "Sleep(1)": "Sleep",
    "Note('a', 1)": "Note",
    "Call('a', (1,))": "Call",
    "update_one('c', ROW, *[PUT])": "update_one",
    "insert_one('c', DOC if argument else await find_one('c', ROW))": "insert_one",
    "if argument: update_one('c', ROW, PUT)\nelse: await update_one('c', ROW, PUT)": "update_one",
    "if argument:\n  return 1\ntry:\n  update_one('c', ROW, PUT)\nexcept Failure: pass": "update_one",
    "try: update_one('c', ROW, PUT)\nexcept (effects.Failure, effects.NotApplied): pass\nexcept NotApplied: pass": "update_one",
    "try: update_one('c', ROW, PUT)\nfinally: plain()": "update_one",
    "async with argument: update_one('c', ROW, PUT)": "update_one",
    "try:\n  if find_one('c', ROW) is None: return 1\nexcept Misuse: pass": "find_one",
    "try: nested()\nexcept Misuse: pass": "nested",
    "update_one('c', ROW, PUT),": "update_one",
    "x = Sleep(1)\n[x, 1]": "Sleep",
    "traced_nested()": "traced_nested",
    "for _ in range(2): Note('a', 1)": "Note",
    "_ = update_one('c', ROW, PUT)": "update_one",
    "x = find_one('c', ROW)\nreturn x[N]": "find_one",
    "x = find_one('c', ROW)\nif x is None: return 1\nreturn 2": "find_one",
    "x = find_one('c', ROW)\nreturn 1 if not x else 2": "find_one",
    "x = find_one('c', ROW)\nfor each in x: await each": "find_one",
    "x = find_one('c', ROW)\na, b = x": "find_one",
    "x = find_one('c', ROW)\nreturn x.n": "find_one",
    "x = find_one('c', ROW)\nx = await find_one('c', ROW)\nreturn x": "find_one",
    "if (x := find_one('c', ROW)) is None: return 1": "find_one",
    "while find_one('c', ROW) is None: pass": "find_one",
    "if 'n' in find_one('c', ROW): return 1": "find_one",
    "return find_one('c', ROW).held(N)": "find_one",
    "nested()": "nested",
    "x = nested()\nif x: return 1": "nested",
    "annotated()": "annotated",
    "of_two(one=True)": "of_two",
    "started()": "started",
    "no_annotation()": "no_annotation",
    "through_another()": "through_another",
    "made()": "made",
    "(lambda: update_one('c', ROW, PUT))()\ninner = lambda: update_one('c', ROW, PUT)\ninner()": "inner",
    "puts()": "insert_one",
    "await all_of(puts)": "insert_one",
    "await forgets_deep_down()": "insert_one",
    "async def inner(): await nested()\ninner()": "inner",
    "async def inner(): update_one('c', ROW, PUT)\nawait inner()": "update_one",
    "async def one():\n  await other()\nasync def other():\n  one()\nawait one()": "one",
    "Store('a').put()": "Store(...).put",
    "Store.saves()": "Store.saves",
    "await Store('a').forgets()": "self.put",
    "Store('a').of(1)": "Store(...).of",
    "Store.of(1)": "Store.of",
    "Store.made()": "Store.made",
    "r = Repo()\nr.save(1)": "r.save",
    "r = Derived()\nr.put(1)": "r.put",
    "r = Repo()\nr.put_through(1)": "r.put_through",
    "r = Repo()\nasync def inner(): r.save(1)\nawait inner()": "r.save",
    "r = Repo()\nx = r.save(1)": "r.save",
    "save = Repo().save\nsave(1)": "save",
    "f = find_one\nf('c', ROW)": "f",
    "r = repository()\nr.save(1)": "r.save",
    "REPO.save(1)": "REPO.save",
    "REPO.save_wrapped()": "REPO.save_wrapped",
    "SERVICE.repo.put(1)": "SERVICE.repo.put",
    "s = OWN\ns.repo.save(1)": "s.repo.save",
    "await SERVICE.forgets()": "self.repo.save",
    "await OWN.forgets()": "self.repo.put",
    "quoted()": "quoted",
    "by_way_of_a_local()": "by_way_of_a_local",
    "if any_effect() is None: return 1": "any_effect",
    "charge()": "charge",
}


@pytest.mark.parametrize("body", FORGOTTEN)
def test_an_effect_that_is_never_awaited_is_found(body: str) -> None:
    assert FORGOTTEN[body] in calls(body)


KEPT = (
    "await update_one('c', ROW, PUT)",
    "x = update_one('c', ROW, PUT)\nawait x",
    "x = find_one('c', ROW)\nif argument: return await x",
    "x = None\nif argument: x = find_one('c', ROW)\nif x is not None: await x",
    "for each in (update_one('c', ROW, PUT), Sleep(1)): await each",
    "await InTransaction(TRANSACTION, update_one('c', ROW, PUT))",
    "await bulk_update(update_one('c', ROW, PUT))",
    "await all_of(update_one('c', ROW, PUT), *[Sleep(1) for _ in range(2)])",
    "await CONSTANT",
    "return update_one('c', ROW, PUT)",
    "effects = []\neffects.append(Sleep(1))\nreturn await effects[0]",
    "x = Sleep(1)\nreturn x == argument",
    "if Sleep(1) == argument: return 1",
    "x = Sleep(1)\nreturn x.duration",
    "x = Sleep(1)\nlocals()",
    "x = Sleep(1)\nasync def inner(): await x\nawait inner()",
    "x = Sleep(1)\nreturn isinstance(x, Sleep)",
    "x = Sleep(1)\nmatch x:\n  case Sleep(): return 1",
    "(await nested(), plain(), perhaps())",
    "perhaps()",
    "if (x := find_one('c', ROW)) is not None: await x",
    "plain()\nunknown()\nprint()\nargument()\nargument.method()\ntyped.put()",
    "calls_itself()",
    "if argument: raises()",
    "x = nested()\nx.close()",
    "x = nested()\nx.send(None)",
    "await puts_right()",
    "def inner(): return 1\ninner()",
    "def inner(): yield Sleep(1)\ninner()",
    "async def inner(): pass\ninner = plain\ninner()",
    "async def inner(): pass\ninner = inner if argument else plain\nargument(inner)",
    "Store('a')\nStore.unknown()\nStore('a').unknown()\noperations.unknown()",
    "return Store('a').of(1), Store.other, Store.name",
    "either()\nStore('a').other.put()\nawait with_store(Store('a'))\nawait Declared(REPO).forgets()",
    "x = [Sleep(1)]\ny = Sleep(1), 1\nreturn x, y",
    "try: UpdateOne('', ROW, PUT)\nexcept Misuse: return 'invalid'",
    "try: UpdateOne('', ROW, PUT)\nexcept Failure: return 'failed'\nexcept Exception: return 'invalid'",
    "try: UpdateOne('', ROW, PUT)\nexcept (Failure, ValueError): return 'invalid'",
    "try: x = UpdateOne('', ROW, PUT)\nexcept argument: return 'invalid'",
    "try: UpdateOne('', ROW, PUT)\nexcept: return 'invalid'",
    "try: UpdateOne('', ROW, PUT)\nexcept* Misuse: pass",
    "try:\n  try: UpdateOne('', ROW, PUT)\n  finally: plain()\nexcept Misuse: return 'invalid'",
    "with argument: UpdateOne('', ROW, PUT)",
    "box = Box()\nawait drains(box)\nawait drains_base(box)",
    "box = Box()\nbox.add_kept('r')\nfor each in box.effects: await each",
    "memo = Memo()\nmemo.ensure('r')\nmemo.ensure('r')\nfor each in memo.effects.values(): await each",
    "x = nested()\nx.close()\nreturn await nested()",
    "x = find_one('c', ROW)\nif not x: return\na = b = x\nawait b",
    "for each in registered(): await each",
    "plan = Plan()\nplan.add(Sleep(1))",
    "p = Pipeline()\np.add(1).add(2)",
    "x = Sleep(1)\nevolved(x)\nawait x",
    "started_by_a_queue()\nfor each in QUEUE.items: await each",
    "x = partial(nested)()\nreturn await x",
    "x = Sleep(1)\ndef run(): return x\nreturn await run()",
    "x = Sleep(1)\ntry:\n  if argument: raise ValueError\nexcept ValueError: return await x\nfinally: pass",
    "last = None\nfor _ in range(3):\n  now = Sleep(1)\n  if last is not None: await last\n  last = now",
    "for each in (Sleep(1) for _ in range(2)): await each\nreturn [await each for each in map(lambda _: Sleep(1), range(2))]",
    "_ = Sleep(1)\nreturn await _",
    "await saves_to(Synchronous())",
    "Replaced().save(1)\nLooksUp().save(1)\nOTHER.repo.put(1)\nLOOKS.save(1)",
    "plugs_in()\nREPO.save(1)",
    "UNSET.repo.save(1)",
    "request = any_effect()\nreturn request",
    "request = any_effect()\nif request is None: return\nawait request",
    "request = charge()\nrequest.validated()\nchecked(request)\nchecked_by_name(request)\nawait request",
    "effects = []\nremembers(effects)\nfor each in effects: await each",
    "constant()",
    "request = any_effect()\nplain(request)",
    "request = any_effect()\nrequest.validate()",
    "charge().validate()\ncharge().amount\nCharge(1).amount",
    "request = any_effect()\nreturn request.amount, request[0]",
    "for each in any_effect(): pass",
    "if any_effect(): return 1",
    "one, other = any_effect(), any_effect()\nreturn one is other",
    "x = Sleep(1)\nreturn x is CONSTANT",
    "r = Repo()\nr.save = plain\nr.save(1)",
    "r = Repo()\nr = Synchronous()\nr.save(1)",
    "r = Repo() if argument else Synchronous()\nr.save(1)",
    "for r in (Synchronous(),): r.save(1)",
    "r = Repo()\ndef inner():\n  nonlocal r\n  r = Synchronous()\ninner()\nr.save(1)",
    "r = Repo()\nr.plain(1)\nr.unread\nr.save_passed_on",
    "argument = Synchronous()\nargument.save(1)",
    "Synchronous().save(1)\nMade().save(1)",
    "await SERVICE.keeps()\nawait Replacing(REPO).replaces()",
    "await FAKE.forgets()",
    "await OfAnother().forgets()",
    "@unknown['x']\nasync def inner(): pass",
    "@passes_on\nasync def inner(): pass\ninner()",
    "def inner(r): r.save(1)\nr = Repo()\ninner(Synchronous())",
    "r = Repo()\nr.effects = [r.put(1)]\nawait r.effects[0]",
)


@pytest.mark.parametrize("body", KEPT)
def test_an_effect_that_is_kept_or_passed_on_is_not_found(body: str) -> None:
    assert calls(body) == []


@pytest.mark.parametrize(
    ("body", "call", "arguments"),
    [
        ("argument.put()", "argument.put", {"argument": Store("a")}),
        ("argument()", "argument", {"argument": Store("a").put}),
        ("argument()", "argument", {"argument": partial(update_one, "c", ROW)}),
        ("argument.insert_one('c', DOC)", "argument.insert_one", {"argument": operations}),
        ("argument.put()", "argument.put", {"argument": SimpleNamespace(put=annotated)}),
        ("argument = 1\nargument.put()", "", {"argument": Store("a")}),
        ("argument()", "", {"argument": Store}),
    ],
)
def test_arguments_of_a_program_are_known(body: str, call: str, arguments: dict[str, object]) -> None:
    assert calls(body, arguments=arguments) == [call] * bool(call)


def test_what_a_function_closes_over_is_known() -> None:
    def made(effect: object) -> object:
        async def inner() -> None:
            effect()  # type: ignore[operator]
            if later:
                await nested()

        if not effect:
            later = True
        return inner

    assert calls("await argument()", arguments={"argument": made(annotated)}) == ["effect"]
    assert calls("await argument()", arguments={"argument": made(len)}) == []


def test_exploring_a_program_that_forgets_an_await_is_misuse() -> None:
    """The message names each file, line and function, and the fix; Python adds no warning."""
    two = 'await Note("a", 1)\nif argument:\n    update_one("c", ROW, PUT)\nx = find_one("c", ROW)\nreturn x is None'
    process = Process("p", lambda _: program(two))
    with pytest.raises(Misuse) as raised:
        explore(Scenario("s", "", Plain(), (process,)))
    line = HELPERS.count("\n") + 5
    assert str(raised.value) == (
        "update_one(...) makes an effect that is never awaited: its result is dropped\n"
        f"  where: mine.py:{line} program; and so at mine.py:{line + 1} program\n"
        "  why: an effect that is not awaited never happens, and the program goes on as if it had\n"
        "  help: write `await update_one(...)`"
    )
    begun = program("Sleep(1)")
    assert [str(each) for each in forgotten(begun)] == [
        f"Sleep(...) at mine.py:{line - 2} program makes an effect that is never awaited: its result is dropped"
    ]
    begun.close()


def test_the_program_of_each_life_is_read() -> None:
    """A later life may have another one."""
    automaton = ProgramAutomaton(lambda life: program("nested()\nawait nested()" if life else "await nested()"))
    automaton.start(0)
    with pytest.raises(Misuse, match="never awaited"):
        automaton.start(1)


def test_a_program_that_returns_an_effect_has_forgotten_an_await() -> None:
    """Storing it on the way there would hide it."""
    process = Process("p", lambda _: program("x = [update_one('c', ROW, PUT)]\nawait nested()\nreturn x[0]"))
    with pytest.raises(Misuse, match="returns an effect that is never awaited: update c") as raised:
        explore(Scenario("s", "", Plain(), (process,)))
    assert "return await" in str(raised.value)
    assert "program" in raised.value.where


def test_nothing_is_said_of_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    over = program("update_one('c', ROW, PUT)")
    over.close()
    assert forgotten(over) == forgotten(cast("Program[object]", iter(()))) == ()
    monkeypatch.setattr(bytecode, "_KNOWN_PYTHONS", ())
    assert calls("update_one('c', ROW, PUT)") == []


def test_a_plain_function_of_a_module_without_tidegate_is_not_read() -> None:
    """The standard library would be read whole. A coroutine function is read in any module."""
    text = "def elsewhere(): made()\nasync def awaits(): made()\n"
    found: list[list[str]] = []
    for imported in ({}, {"Sleep": Sleep}, {"operations": operations}):
        names: dict[str, object] = {"made": lambda: Sleep(1), "__name__": "other", **imported}
        exec(text, names)  # noqa: S102  it stands above
        found += [
            calls(f"{body}", elsewhere=names["elsewhere"], awaits=names["awaits"])
            for body in ("elsewhere()", "await awaits()")
        ]
    assert found == [[], ["made"], *[["made"]] * 4]


def test_what_stands_for_another_object_is_not_run() -> None:
    """A proxy may raise on any access."""

    class Proxy:
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            raise RuntimeError

    assert calls("argument()\nother()", arguments={"argument": Proxy()}, other=Proxy()) == []


def test_nothing_of_a_program_is_kept() -> None:
    """Functions made in tests hold their fixtures."""

    def made(held: Store) -> Callable[[], UpdateOne]:
        def put() -> UpdateOne:
            return update_one(held.name, ROW, PUT)

        return put

    function = made(Store("a"))
    gone = weakref.ref(function)
    assert calls("argument()", arguments={"argument": function}) == ["argument"]
    del function
    gc.collect()
    assert gone() is None


def test_the_wrapper_of_a_function_is_not_taken_for_it() -> None:
    """It may return anything, whatever its annotations say."""
    wrapper = lambda: 1  # noqa: E731  it has no annotation of its own
    wrapper.__wrapped__ = annotated  # type: ignore[attr-defined]
    wrapper.__annotations__ = annotated.__annotations__
    assert calls("wrapper()", wrapper=wrapper) == []
