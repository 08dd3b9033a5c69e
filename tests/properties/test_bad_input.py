"""Public code of the core answers any input with a value or with one of tidegate's own errors.

The tests call every public class and function of the core by its signature. They replace one valid
argument at a time by a wrong one, and let Hypothesis draw calls with several wrong arguments. Each
call must return a value, or raise an error of `tidegate.model.errors` or `tidegate.model.effects`,
within a second. An accepted value must be printable and hashable: else the caller who logs it, or
keeps it in a set, fails later.
"""

from __future__ import annotations

import inspect
import math
import random  # noqa: TID251  to try which arguments are valid
import resource
import signal
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from importlib import import_module
from itertools import islice, zip_longest
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, Final, Union, get_args, get_origin

import attrs
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import tidegate
from tidegate.consumer import fanout
from tidegate.consumer.offsets.watermark import OffsetTracker
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.model import documents
from tidegate.model.documents import ID, Add, Document, Eq, Field, Foreign
from tidegate.model.documents import value as values_module
from tidegate.model.effects import Ambiguous, Effect, Failure
from tidegate.model.errors import TidegateError
from tidegate.model.instants import WALL, Instant
from tidegate.model.operations import bulk_update, update_one
from tidegate.reactive.task.worker import TaskResults
from tidegate.triggers.conditions import Composite, Logic, OnEvent
from tidegate.work.vocabulary import ResultRules

pytestmark = pytest.mark.xdist_group("bad input")  # its values are made once, in one process

OUTSIDE: Final = frozenset(
    {"sim", "catalogue", "scenarios", "specimens", "strategies", "laws", "__main__"}
    | {
        "pending_requests",
        "leaked_handlers",
        "kept",
        "ready_queue",
        "in_flight_records",
        "in_flight_windows",
        "commits",
        "partition_pause",
        "partition_state",
        "sealed",
    }
)
"""Not covered: the simulator, test helpers, partition stages (internal) and `__main__`."""

CORE: Final = Path(tidegate.__file__).parent
ROOMS: Final = (
    *(
        "model",
        "retries",
        "transactions",
        "counters",
        "payloads",
        "leases",
        "work",
        "services",
        "invocations",
        "triggers",
        "reactive",
    ),
    *("consumer", "sinks"),
)
OWN: Final = (TidegateError, Failure)
METHODS: Final = (types.FunctionType, classmethod, staticmethod)
OPERATORS: Final = frozenset({"__add__", "__sub__", "__getitem__", "__lt__"})
CARRYING: Final[Mapping[str, str]] = {
    "model.effects.Call": "its arguments are the user's; whether they can be compared is asked where they become part of a state",
    "model.effects.Note": "its value is the user's, as above",
    "retries.polling.Ask": "its source is the user's",
    "consumer.flow.backpressure.Plan": "the names of the partitions are the user's",
}
"""Values that may be neither printable nor hashable, because of their contents."""

AS_PYTHON: Final[Mapping[object, type[Exception]]] = {Document.__getitem__: KeyError}
WRITTEN: Final[Mapping[str, str]] = {
    "model.errors.MissingExtra": "module extra why",
    "model.values.check_callable": "what todo",
    "model.values.check_int": "what least most",
    "model.values.check_name": "what",
    "model.values.check_tuple": "kinds what",
    "model.values.check_type": "kinds what todo",
    "model.values.check_types": "kinds what",
    "retries.backoff.check_delay": "what least",
}
"""Parameters that are not input: the calling code writes the checks' texts and limits."""


# --- public names -------------------------------------------------------------------------------------------------------


def modules() -> Iterator[types.ModuleType]:
    names = [found.name.split(".")[1:] for found in walk_packages(tidegate.__path__, "tidegate.")]
    for parts in sorted(names, key=lambda parts: (ROOMS.index(parts[0]) if parts[0] in ROOMS else len(ROOMS), parts)):
        if OUTSIDE.isdisjoint(parts) and not parts[-1].startswith("_"):
            yield import_module(".".join(["tidegate", *parts]))


def is_asked(member: object) -> bool:
    if not isinstance(member, type):
        return inspect.isfunction(member)
    is_form = getattr(member, "_is_protocol", False) or typing.is_typeddict(member) or hasattr(member, "_fields")
    return not is_form and not issubclass(member, Enum) and not inspect.isabstract(member)


def public() -> dict[str, Callable[..., object]]:
    return {
        f"{module.__name__.removeprefix('tidegate.')}.{name}": member
        for module in modules()
        for name, member in vars(module).items()
        if name[0] != "_" and getattr(member, "__module__", "") == module.__name__ and is_asked(member)
    }


def methods(classes: Mapping[str, Callable[..., object]]) -> dict[str, Callable[..., object]]:
    return {
        f"{name}.{each}": method if inspect.isfunction(method) else getattr(owner, each)
        for name, owner in classes.items()
        for each, method in vars(owner).items()
        if isinstance(owner, type)
        and isinstance(method, METHODS)
        and (each[0] != "_" or (each in OPERATORS and is_checked(owner)))
    }


def is_checked(kind: object) -> bool:
    """Values that only tidegate makes and events are not checked; of a tracker only its start."""
    if kind is OffsetTracker:
        return False
    return not attrs.has(kind) or not attrs.fields(kind) or hasattr(kind, "__attrs_post_init__")  # type: ignore[arg-type]


PUBLIC: Final = {**public(), **methods(public())}
ASKED: Final = {name: each for name, each in PUBLIC.items() if is_checked(each)}


def module_of(name: str) -> str:
    return ASKED[name].__module__.removeprefix("tidegate.")


def classes_named(hint: Any) -> Iterator[type]:
    if isinstance(hint, type):
        yield hint
    for arg in get_args(hint):
        yield from classes_named(arg)


def events() -> frozenset[object]:
    steps = (each for name, each in PUBLIC.items() if name.rpartition(".")[2] == "step")
    return frozenset(kind for step in steps for kind in classes_named(typing.get_type_hints(step).get("event")))


EVENTS: Final = events()

AT_THE_GATE: Final[Mapping[type, tuple[str, ...]]] = {
    **{
        kind: tuple(field.name for field in attrs.fields(kind))
        for kind in EVENTS
        if isinstance(kind, type) and attrs.has(kind) and not is_checked(kind)
    },
}

# --- valid arguments ----------------------------------------------------------------------------------------------------


def nest(depth: int) -> tuple[object, ...]:
    nested: tuple[object, ...] = ()
    for _ in range(depth):
        nested = (nested,)
    return nested


class Anything:
    def __init__(self, *_: object, **__: object) -> None:
        pass


POISONS: Final[Mapping[str, object]] = {
    "None": None,
    "True": True,
    "False": False,
    "0": 0,
    "-1": -1,
    "2**31": 2**31,
    "2**63": 2**63,
    "-2**63-1": -(2**63) - 1,
    "10**30": 10**30,
    "10**5000": 10**5_000,
    "-10**5000": -(10**5_000),
    "0.0": 0.0,
    "1.5": 1.5,
    "nan": math.nan,
    "inf": math.inf,
    "''": "",
    "'a'": "a",
    "surrogate": "\ud800",
    "NUL": "\0",
    "'$a'": "$a",
    "'a..b'": "a..b",
    "long": "a" * 100_000,
    "b''": b"",
    "bytes": b"\xff\xfe",
    "()": (),
    "(None,)": (None,),
    "((),)": ((),),
    "([],)": ([],),
    "('a', 'a')": ("a", "a"),
    "(0, 10**5000)": (0, 10**5_000),
    "('surrogate',)": ("\ud800",),
    "(nan,)": (math.nan,),
    "nest": nest(3_000),
    "[]": [],
    "[0]": [0],
    "{}": {},
    "{'$ne': None}": {"$ne": None},
    "{0: []}": {0: []},
    "set": {1},
    "frozenset": frozenset({"a"}),
    "object": object(),
    "type": Anything,
    "error": ValueError("no"),
    "lambda": lambda *_, **__: None,
    "Decimal": Decimal("NaN"),
    "naive": datetime(2020, 1, 1),  # noqa: DTZ001  on purpose
    "timedelta": timedelta.max,
    "Instant": Instant(0),
    "Instant of another clock": Instant(5, WALL),
    "huge Instant": Instant(10**30),
    "endless Instant": Instant(10**59),
    "Failure": Ambiguous("no reply"),
}


class Sample:
    def __init__(self, label: str, value: object) -> None:
        self.label, self.value = label, value

    def __repr__(self) -> str:
        return self.label


WRONG: Final = tuple(Sample(label, value) for label, value in POISONS.items())

PLAIN: Final[Mapping[object, tuple[object, ...]]] = {
    int: (1, 0, 2, 5, 10, 60_000_000, 1_000),
    bool: (True, False),
    str: ("a", "0" * 64, "/a", "0 3 * * *", "b", "x.y"),
    bytes: (b"", b"a"),
    float: (1.5, 0.0),
    type(None): (None,),
    object: (1, "a", None, Instant(1), (1, "a")),
    datetime: (datetime(2020, 1, 1, tzinfo=UTC),),
    timedelta: (timedelta(seconds=1),),
    BaseException: (ValueError("no"),),
    ResultRules: (TaskResults(),),
}


ENOUGH: Final = 6
MISSING: Final = object()


class Pool:
    def __init__(self) -> None:
        self.found: dict[type, list[object]] = {each: [] for each in PUBLIC.values() if isinstance(each, type)}
        chance = random.Random(6)
        self._keep(Foreign("objectId", bytes(12)))
        self._keep(bulk_update(update_one("c", Eq(ID, "x"), Add(Field("n"), 1))))
        self._keep(ConsumerRules())
        state = fanout.Fanout()
        for event in (fanout.WindowOpened((1, 2)), fanout.WindowArranged(0, fanout.Tasks(((1,), (1, 2))))):
            self._keep(state := fanout.step(state, event, fanout.Rules()).state)
        self._keep(Composite(Logic.ANY, (OnEvent("a"), OnEvent("b"))))
        for constant in (each for module in modules() for each in vars(module).values() if attrs.has(type(each))):
            self._keep(constant)
        for _ in range(6):
            for each in (each for each in PUBLIC.values() if is_checked(each) or each in EVENTS):
                self._try(each, chance)
        for each in [*self.found] * 3:  # some are built from others
            if not self.found[each]:  # tidegate's own values that no call above has produced
                self._try(each, chance)

    def _lacks(self, each: Any) -> bool:
        return len(self.found.get(each, ())) < ENOUGH

    def _try(self, each: Callable[..., object], chance: random.Random) -> None:
        args = {name: self.typed(hint) for name, hint in parameters(each).items()}
        if not all(args.values()) or inspect.iscoroutinefunction(each) or not self._lacks(each):
            return
        for _ in range(60 if isinstance(each, type) and not self.found[each] else 5):
            with suppress(Exception):  # the test finds it, not this code
                self._keep(each(**{name: chance.choice(choices) for name, choices in args.items()}))

    def _keep(self, value: object, depth: int = 3) -> None:
        if inspect.iscoroutine(value):
            value.close()
        parts: Iterable[object] = value if isinstance(value, tuple) else ()
        kind: Any = type(value)
        if kind in self.found and self._lacks(kind) and not any(value == other for other in self.found[kind]):
            self.found[kind].append(value)
        if attrs.has(kind):
            parts = (getattr(value, each.name) for each in attrs.fields(kind))
        if depth:
            for part in islice(parts, 20):
                self._keep(part, depth - 1)

    def typed(self, hint: Any, depth: int = 0) -> Sequence[Any]:
        if hint is Any or isinstance(hint, (typing.TypeVar, typing.ForwardRef)):
            return PLAIN[object]
        if hint in PLAIN:
            return PLAIN[hint]
        if isinstance(hint, typing.NewType):
            return self.typed(hint.__supertype__, depth)
        origin, args = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            choices = [self.typed(arg, depth)[:6] for arg in args]
            return [value for values in choices for value in values]
        if origin is typing.Literal:
            return args
        if origin is Callable or hint is Callable:
            result = self.typed(args[1], depth)[:1] if args else [None]
            return [partial(harmless, result[0] if result else None)]
        if origin is type:
            return [arg for arg in args if isinstance(arg, type)]
        base = origin if isinstance(origin, type) else hint
        if isinstance(base, type):
            return self._of_class(base, args, depth)
        return []

    def _of_class(self, base: type, args: tuple[Any, ...], depth: int) -> Sequence[Any]:
        if getattr(base, "_is_protocol", False):
            return [lambda *_, **__: None] if "__call__" in vars(base) else []
        if issubclass(base, Enum):
            return list(base)
        if issubclass(base, tuple) and not hasattr(base, "_fields"):
            return self._tuples(args, depth)
        if base.__module__ in ("builtins", "collections.abc") and issubclass(base, Iterable) and depth < 3:
            return self._collections(base, args, depth)
        return varied([value for each, values in self.found.items() if issubclass(each, base) for value in values])

    def _tuples(self, args: tuple[Any, ...], depth: int) -> Sequence[Any]:
        if not args:
            return [()]
        if args[-1] is ...:
            items = self.typed(args[0], depth + 1)[:4]
            return [(), *((item,) for item in items), tuple(items)]
        columns = [self.typed(arg, depth + 1) for arg in args]
        if not all(columns):
            return []
        return [tuple(column[row % len(column)] for column in columns) for row in range(4)]

    def _collections(self, base: type, args: tuple[Any, ...], depth: int) -> Sequence[Any]:
        if issubclass(base, Mapping):
            keys, values = (self.typed(arg, depth + 1)[:3] for arg in (args or (str, int)))
            return [{}, *({key: value} for key in keys for value in values if hashable(key))]
        items = self.typed(args[0] if args else object, depth + 1)[:4]
        if issubclass(base, AbstractSet):
            kind = set if base is set else frozenset
            return [kind(), *(kind([item]) for item in items if hashable(item))]
        make = list if base is list else tuple
        return [make(()), *(make([item]) for item in items), make(items)]


def varied(values: Iterable[Any]) -> list[Any]:
    by_class: dict[type, list[Any]] = {}
    for value in values:
        by_class.setdefault(type(value), []).append(value)
    rounds = (value for row in zip_longest(*by_class.values(), fillvalue=MISSING) for value in row)
    return list(islice((value for value in rounds if value is not MISSING), max(12, len(by_class))))


def harmless(value: object, *_: object, **__: object) -> object:
    return value


def hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


ALIASES: Final = {**vars(values_module), **vars(documents)}


@cache
def parameters(function: Callable[..., object]) -> Mapping[str, Any]:
    callee: Any = function
    if isinstance(function, type) and not attrs.has(function):
        callee = callee.__init__
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = inspect.signature(function).parameters.values()
    hints = {each.name: hint_of(callee, each.name) for each in found if each.kind not in kinds}
    owner = getattr(import_module(function.__module__), function.__qualname__.partition(".")[0])
    return {**hints, "self": owner} if "self" in hints else hints


def hint_of(callee: Callable[..., object], name: str) -> Any:
    for each in callee.__mro__ if isinstance(callee, type) else (callee,):
        for written in (name, f"_{name}"):
            hint = vars(each).get("__annotations__", each.__annotations__).get(written)
            if hint is not None:
                one = types.SimpleNamespace(__annotations__={"it": hint})
                try:
                    return typing.get_type_hints(one, {**ALIASES, **vars(import_module(each.__module__))})["it"]
                except (NameError, TypeError):  # imported for type checkers only, or an alias of itself
                    return object
    return object


@cache
def pool() -> Pool:
    return Pool()


def choices_of(function: Callable[..., object]) -> dict[str, list[Sample]]:
    found = {name: varied(pool().typed(hint)) or [None] for name, hint in parameters(function).items()}
    return {
        name: [Sample(f"valid {place}", value) for place, value in enumerate(values)] for name, values in found.items()
    }


def classes_in(hint: Any) -> Iterator[type]:
    named = get_origin(hint) or hint
    if isinstance(named, type) and named is not object:
        yield from (each for each in pool().found if named in each.__mro__)
    for arg in get_args(hint):
        for one in arg if isinstance(arg, list) else (arg,):
            yield from classes_in(one)


def is_used(member: object) -> bool:
    if not isinstance(member, type):
        return True
    return issubclass(member, Effect) or any(
        inspect.isfunction(method) and (name[0] != "_" or name == "__call__") for name, method in vars(member).items()
    )


@cache
def taken() -> frozenset[object]:
    waiting = [each for each in ASKED.values() if is_used(each)]
    found = set(waiting)
    while waiting:
        for hint in parameters(waiting.pop()).values():
            more = {*classes_in(hint)} - found
            waiting += more
            found |= more
    return frozenset(found)


# --- answers ------------------------------------------------------------------------------------------------------------


class TooLongError(BaseException):
    """The call ran for more than a second. It is no Exception, so no code catches it."""


def _alarm(*_: object) -> None:
    raise TooLongError


@contextmanager
def limits() -> Iterator[None]:
    """Limit memory to 2 GiB more, so a huge list raises an error and the machine survives."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**31, before[1]))
    handler = signal.signal(signal.SIGVTALRM, _alarm)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def answer(function: Callable[..., object], args: Mapping[str, Sample]) -> object:
    value = function(**{each: sample.value for each, sample in args.items()})
    if inspect.iscoroutine(value):
        value.close()
    return tuple(islice(value, 100)) if isinstance(value, Iterator) else value


def flaw(function: Callable[..., object], args: Mapping[str, Sample]) -> str | None:
    signal.setitimer(signal.ITIMER_VIRTUAL, 1)
    try:
        value = answer(function, args)
    except OWN as own:
        return unshown(own)
    except BaseException as foreign:  # noqa: BLE001  whatever it is
        if type(foreign) is AS_PYTHON.get(function):
            return None
        return f"{type(foreign).__name__} in {place_of(foreign)}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return unusable(function, value)


def unshown(error: BaseException) -> str | None:
    try:
        str(error)
    except BaseException as foreign:  # noqa: BLE001
        return f"{type(foreign).__name__} in the text of its own error"
    return None


def unusable(function: Callable[..., object], value: object) -> str | None:
    """The fault of an accepted value; values that are only returned are checked elsewhere."""
    if not attrs.has(type(value)) or (function is type(value) and function not in taken()):
        return None
    if f"{type(value).__module__}.{type(value).__name__}".removeprefix("tidegate.") in CARRYING:
        return None
    for use in (repr, hash):
        try:
            use(value)
        except BaseException as foreign:  # noqa: BLE001
            return f"{type(foreign).__name__} in {use.__name__} of {type(value).__name__}"
    return None


def place_of(error: BaseException) -> str:
    trace, place = error.__traceback__, "nowhere"
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if Path(file).is_relative_to(CORE):
            place = f"{Path(file).relative_to(CORE).as_posix()}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def valid_call(name: str, choices: Mapping[str, Sequence[Sample]]) -> Mapping[str, Sample]:
    chance = random.Random(6)
    args = {each: samples[0] for each, samples in choices.items()}
    for _ in range(60):
        try:
            answer(ASKED[name], args)
        except Exception:  # noqa: BLE001  it is tried again, with others
            args = {each: chance.choice(samples) for each, samples in choices.items()}
        else:
            return args
    return args


def ungated(value: Any) -> Iterator[Sample]:
    for name in AT_THE_GATE.get(type(value), ()):
        for wrong in WRONG:
            yield Sample(f"{type(value).__name__}({name}={wrong})", attrs.evolve(value, **{name: wrong.value}))


def infected(samples: Iterable[Sample]) -> Iterator[Sample]:
    for sample in samples:
        yield from ungated(sample.value)
        if type(sample.value) is tuple and sample.value:
            yield from (Sample(f"({each}, ...)", (each.value, *sample.value[1:])) for each in ungated(sample.value[0]))
            for wrong in WRONG:
                yield Sample(f"({wrong}, ...)", (wrong.value, *sample.value[1:]))
                yield Sample(f"(..., {wrong})", (*sample.value[:-1], wrong.value))
        if isinstance(sample.value, dict) and sample.value:
            key, value = next(iter(sample.value.items()))
            for wrong in WRONG:
                yield Sample(f"{{...: {wrong}}}", {**sample.value, key: wrong.value})
                if hashable(wrong.value):
                    yield Sample(f"{{{wrong}: ...}}", {wrong.value: value})


def swept(name: str) -> dict[str, str]:
    choices = choices_of(ASKED[name])
    base = valid_call(name, choices)
    found: dict[str, str] = {}
    for each in choices:
        fixed = each == "self" or each in WRITTEN.get(name, "").split()
        for sample in choices[each] if fixed else (*choices[each], *WRONG, *infected(choices[each])):
            complaint = flaw(ASKED[name], {**base, each: sample})
            if complaint:
                found.setdefault(complaint, f"{each}={sample}")
    return found


# --- the tests ----------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _limits() -> Iterator[None]:
    with limits():
        yield


@pytest.mark.parametrize("name", ASKED)
def test_one_wrong_argument_is_answered(name: str) -> None:
    assert swept(name) == {}


ANY: Final = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
    lambda inner: st.one_of(st.tuples(inner), st.tuples(inner, inner), st.dictionaries(st.text(), inner, max_size=2)),
    max_leaves=4,
).map(lambda value: Sample(ascii(value), value))


@cache
def drawn(name: str) -> st.SearchStrategy[dict[str, Sample]]:
    written = ("self", *WRITTEN.get(name, "").split())
    return st.fixed_dictionaries(
        {
            each: st.sampled_from(samples)
            if each in written
            else st.one_of(*[st.sampled_from(samples)] * 4, st.sampled_from(WRONG), ANY)
            for each, samples in choices_of(ASKED[name]).items()
        }
    )


@pytest.mark.parametrize("module", sorted({module_of(name) for name in ASKED}))
def test_several_wrong_arguments_are_answered(module: str) -> None:
    names = [name for name in ASKED if module_of(name) == module]

    @settings(max_examples=min(30, 3 * len(names)), phases=(Phase.explicit, Phase.generate))
    @given(st.sampled_from(names).flatmap(lambda name: st.tuples(st.just(name), drawn(name))))
    def they_are_answered(call: tuple[str, dict[str, Sample]]) -> None:
        name, args = call
        assert flaw(ASKED[name], args) is None

    they_are_answered()


def test_everything_public_is_asked() -> None:
    assert {
        "model.instants.Instant",
        "consumer.offsets.watermark.committable",
        "invocations.record.transition.transition",
    } <= ASKED.keys()
    assert "consumer.partition.partition.PartitionRules.step" in ASKED
    assert WRITTEN.keys() <= ASKED.keys()


def test_every_class_has_valid_values() -> None:
    without = {each for each, values in pool().found.items() if not values and (is_checked(each) or each in taken())}

    assert {each.__name__ for each in without} <= {"MissingExtra"}


@attrs.frozen
class Careless:
    it: Any

    def __repr__(self) -> str:
        return f"Careless({self.it[0]})"


def endless() -> None:
    while True:
        pass


def too_large() -> list[None]:
    return [None] * 2**33


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (len, {}, "TypeError in nowhere"),
        (endless, {}, "TooLongError in nowhere"),
        (too_large, {}, "MemoryError in nowhere"),
        (partial(Careless, None), {}, "TypeError in repr of Careless"),
        (partial(Careless, [0]), {}, "TypeError in hash of Careless"),
        (partial(Careless, (0,)), {}, None),
    ],
)
def test_what_is_not_an_answer_is_noticed(
    function: Callable[..., object], args: Mapping[str, Sample], expected: str | None
) -> None:
    assert flaw(function, args) == expected
