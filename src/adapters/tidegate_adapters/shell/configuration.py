"""Settings from a file, the environment and arguments, over those of the code, with their sources.

    arguments       --set concurrency=8
    environment     TIDEGATE_WORKER__CONCURRENCY=8
    file            [worker] concurrency = 8, in TOML or YAML; in pyproject.toml
                    [tool.tidegate.worker]
    code            Worker(..., concurrency=8)
    default

An upper layer overrides those below, value by value. Settings are an attrs value with its own
checks. Field annotations determine how text is read:

    a length of time    20 s, 500 ms, 5 min; a bare number is an error, since its unit is unknown
    a point in time     2026-11-23T08:00:00Z
    a choice            by its name, such as by_key
    one of several      `kind` selects one and resets its fields: kind = "fixed", interval = "1 s"
    an optional value   none for no value
    a list              comma-separated in arguments and the environment
    a number, a yes     text only in arguments and the environment: 8, true

A field whose default depends on others (thresholds on the concurrency) follows them until a layer
sets it. Only code can set values without a text form, such as functions.

Precedence and spelling follow pip, uvicorn and twelve-factor applications. cattrs inspects the
types. The rest is our own: typed-settings repeats raw values, secrets included, in its errors, and
reads a number without unit as seconds.

Laws
    CF1  A value that no layer sets stays as in the code; without layers, all of them do.
    CF2  The shown settings, applied over the defaults, give the same settings: each value is read
         as it is shown.
    CF3  The uppermost layer that sets a value determines it, and is its origin.
    CF4  An error names the source of the rejected value. No message and no output shows a secret.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from enum import Enum
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    NoReturn,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    final,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import attrs

from tidegate.model.errors import MissingExtra, Misuse, TidegateError, shown, typed
from tidegate.model.instants import MILLISECOND, MINUTE, SECOND, Duration, duration, seconds
from tidegate_adapters.base.redaction import Secret, is_secret_name, redacted
from tidegate_adapters.shell.runtimes import RUNTIMES

try:
    from cattrs import (
        AttributeValidationNote,
        ClassValidationError,
        Converter,
        ForbiddenExtraKeysError,
        IterableValidationError,
    )
except ImportError as missing:
    raise MissingExtra(
        "tidegate_adapters.shell.configuration", "worker", missing, "reactive", "orchestrator"
    ) from missing

T = TypeVar("T")
Names: TypeAlias = tuple[str, ...]
KIND: Final = "kind"
HIDDEN: Final = "***"
_UNITS: Final[Mapping[str, int]] = {
    "us": 1, "ms": MILLISECOND, "s": SECOND, "m": MINUTE, "min": MINUTE, "h": 60 * MINUTE, "d": 1440 * MINUTE,
}  # fmt: skip
_VALUES_MAX: Final = 1_000
"""The most values of a file: YAML aliases can expand a few lines beyond memory."""
_LENGTH: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) ?([a-z]+)")


@final
class _Word(str):
    """Text from an argument or the environment."""

    __slots__ = ()


# --- layers ---------------------------------------------------------------------------------------


@final
@attrs.frozen
class Setting:
    """A value that a layer sets: its path, outermost name first, and its source for messages."""

    path: Names
    value: object = attrs.field(repr=False)
    origin: str


def layers(
    section: str, file: Path | None, arguments: Iterable[str], environ: Mapping[str, str]
) -> tuple[tuple[Setting, ...], ...]:
    """All layers, lowest first. The default file is TIDEGATE_CONFIG, or `pyproject.toml` here."""
    here, named = Path("pyproject.toml"), environ.get("TIDEGATE_CONFIG")
    found = file or (Path(named) if named else here if here.is_file() else None)
    of_file = () if found is None else from_file(found, section)
    return of_file, from_environment(environ, section), from_arguments(arguments)


def from_arguments(texts: Iterable[str]) -> tuple[Setting, ...]:
    return tuple(map(_from_argument, texts))


def _from_argument(text: str) -> Setting:
    name, is_there, value = text.partition("=")
    if not is_there or not all(name.split(".")):
        raise Misuse(f"{shown(name)} sets nothing", where="an argument", todo="write NAME=VALUE, as in concurrency=8")
    return Setting(tuple(name.split(".")), _Word(value), f"argument {name}")


def from_environment(environ: Mapping[str, str], section: str) -> tuple[Setting, ...]:
    """The layer of variables such as `TIDEGATE_WORKER__...` for the section `worker`.

    A nested `TIDEGATE_` variable of an unknown section raises Misuse.
    """
    prefix = f"TIDEGATE_{section.upper()}__"
    for name in sorted(environ):
        own, nests, _ = name.removeprefix("TIDEGATE_").partition("__")
        if name.startswith("TIDEGATE_") and nests:
            _check_known(own.lower(), RUNTIMES, f"environment {name}")
    return tuple(
        Setting(tuple(name.removeprefix(prefix).lower().split("__")), _Word(environ[name]), f"environment {name}")
        for name in sorted(environ)
        if name.startswith(prefix)
    )


def from_file(file: Path, section: str) -> tuple[Setting, ...]:
    """The layer of a file: its table `section`; in `pyproject.toml`, `tool.tidegate.section`.

    Misuse if it is unreadable or has unknown content.
    """
    tables = _read(file)
    if file.name == "pyproject.toml":
        tables = _table(_table(tables, "tool", file), "tidegate", file)
    else:
        for name in tables:
            _check_known(name, RUNTIMES, str(file))
    try:
        found = tuple(islice(_leaves(_table(tables, section, file), (), f"file {file}"), _VALUES_MAX + 1))
    except RecursionError:
        raise Misuse(f"cannot read {file}", why="it is nested too deeply") from None
    if len(found) > _VALUES_MAX:
        raise Misuse(f"{file} has more than {_VALUES_MAX} values of {section}", why="there are not so many settings")
    return found


def _read(file: Path) -> Mapping[str, object]:
    try:
        text = file.read_text("utf-8")
        found = _yaml(text) if file.suffix in {".yaml", ".yml"} else tomllib.loads(text)
    except MissingExtra:
        raise
    except OSError as error:
        raise Misuse(f"cannot read {file}", why=error.strerror or "") from None
    except ValueError as error:  # of TOML, YAML or UTF-8; the line may hold a secret
        raise Misuse(f"{file} is no {'YAML' if file.suffix in {'.yaml', '.yml'} else 'TOML'}", why=str(error)) from None
    except RecursionError:
        raise Misuse(f"cannot read {file}", why="it is nested too deeply") from None
    if not isinstance(found, dict):
        raise Misuse(f"{file} holds no table, but {typed(found)}")
    return cast("dict[str, object]", found)


class _Yaml(Protocol):
    YAMLError: type[Exception]

    def safe_load(self, text: str) -> object: ...


def _yaml(text: str) -> object:
    try:
        yaml = cast("_Yaml", import_module("yaml"))
    except ImportError as missing:
        raise MissingExtra("a file in YAML", "yaml", missing) from missing
    try:
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"line {mark.line + 1}" if mark is not None else "") from None


def _table(tables: Mapping[str, object], name: str, file: Path) -> Mapping[str, object]:
    found = tables.get(name, {})
    if not isinstance(found, dict):
        raise Misuse(f"{name} is no table, but {typed(found)}", where=str(file))
    return cast("dict[str, object]", found)


def _leaves(table: Mapping[str, object], path: Names, origin: str) -> Iterator[Setting]:
    for name, value in table.items():
        below = (*path, str(name))
        if isinstance(value, dict):
            yield from _leaves(cast("dict[str, object]", value), below, origin)
        else:
            yield Setting(below, value, origin)


# --- settings of layers ---------------------------------------------------------------------------


@final
@attrs.frozen
class Row:
    """A shown value with its dotted path; empty for a secret."""

    path: str
    value: str
    origin: str


@final
@attrs.frozen
class Configured(Generic[T]):
    """Settings, and the source of each value."""

    settings: T
    rows: tuple[Row, ...]


def configured(base: T, *over: Sequence[Setting]) -> Configured[T]:
    """Apply layers, lowest first, to the settings of the code. Unknown values raise Misuse."""
    tree: dict[str, Any] = {}
    origins: dict[Names, str] = {}
    for layer in over:
        for setting in sorted(layer, key=lambda each: each.path[-1] != KIND):
            _put(tree, origins, setting)
    settings = cast("T", _over(base, type(base), tree, (), origins))
    return Configured(settings, tuple(_rows(settings, type(base), attrs.NOTHING, (), origins)))


def _put(tree: dict[str, Any], origins: dict[Names, str], setting: Setting) -> None:
    """Set a value; a new `kind`, or a change between table and value, discards what was below."""
    *above, last = setting.path
    place = setting.path[:-1] if last == KIND else setting.path
    for name in above:
        below = tree.get(name)
        tree[name] = tree = below if isinstance(below, dict) else {}
    if last == KIND:
        tree.clear()
    for each in [each for each in origins if each[: len(place)] == place]:
        del origins[each]
    tree[last] = setting.value
    origins[setting.path] = setting.origin


def _over(base: Any, kind: Any, tree: object, path: Names, origins: Mapping[Names, str]) -> object:
    if isinstance(tree, dict) and attrs.has(type(base)) and not (KIND in tree and _kinds(kind)):
        return _evolved(base, tree, path, origins)
    try:
        if not isinstance(tree, dict) and (attrs.has(kind) or is_typeddict(kind)):
            told = (
                f"a {'str' if isinstance(tree, _Word) else type(tree).__name__}" if is_typeddict(kind) else _told(tree)
            )
            raise _WrongError(f"{told} is no table")  # noqa: TRY301  handled like converter errors
        found = _CONVERTER.structure(tree, kind)
    except Exception as error:  # noqa: BLE001  of the converter, or of a check of ours
        _refuse(error, path, origins)
    return {**cast("dict[str, object]", base), **cast("dict[str, object]", found)} if is_typeddict(kind) else found


def _evolved(base: Any, tree: Mapping[str, object], path: Names, origins: Mapping[Names, str]) -> object:
    kind: Any = type(base)
    types = _types(kind)
    for name in tree:
        _check_known(name, types, _origin(origins, (*path, name)), path)
    given = {
        name: _over(getattr(base, name), types[name], value, (*path, name), origins) for name, value in tree.items()
    }
    said = {
        each.name: getattr(base, each.name) for each in attrs.fields(kind) if each.init and not _follows(base, each)
    }
    try:
        return kind(**{**said, **given})
    except TidegateError as error:
        _refuse(error, path, origins)


def _follows(base: Any, field: attrs.Attribute[Any]) -> bool:
    return getattr(field.default, "takes_self", False) and bool(getattr(base, field.name) == _default(base, field))


def _default(base: Any, field: attrs.Attribute[Any]) -> object:
    default: Any = field.default
    match getattr(default, "takes_self", None):
        case None:
            return default
        case takes_self:
            return default.factory(base) if takes_self else default.factory()


# --- errors ---------------------------------------------------------------------------------------


def _check_known(name: str, known: Iterable[str], origin: str, path: Names = ()) -> None:
    there = tuple(known)
    if name not in there:
        near = "".join(f"did you mean {each}?" for each in get_close_matches(name, there, n=1))
        todo = near or f"there are: {', '.join(there)}"
        raise Misuse(f"there is no setting {'.'.join((*path, name))}", where=origin, todo=todo)


def _refuse(error: Exception, path: Names, origins: Mapping[Names, str]) -> NoReturn:
    while isinstance(error, ClassValidationError | IterableValidationError):
        noted, others = error.group_exceptions()
        inner, note = noted[0] if noted else (others[0], None)
        path = (*path, note.name) if isinstance(note, AttributeValidationNote) else path
        error = inner
    where, name = _origin(origins, path), ".".join(path)
    match error:
        case ForbiddenExtraKeysError():
            first = min(error.extra_fields)
            _check_known(first, _types(error.cl), _origin(origins, (*path, first)), path)
            raise AssertionError("it is not known")
        case KeyError():
            raise Misuse(
                f"{name} is missing", where=where, why="nothing is said of it, and it has no default"
            ) from None
        case TidegateError():
            raise Misuse(
                redacted(error.what),
                where=f"{name}: {where}" if name else where,
                why=redacted(error.why),
                todo=error.todo,
            ) from None
        case _:
            raise Misuse(f"{name}: {error}", where=where) from None


def _origin(origins: Mapping[Names, str], path: Names) -> str:
    """The sources of values at or below the path, or else of the nearest above."""
    below = sorted({origin for place, origin in origins.items() if place[: len(path)] == path})
    return ", ".join(below) or (_origin(origins, path[:-1]) if path else "")


# --- text and values ------------------------------------------------------------------------------


class _WrongError(ValueError):
    """An invalid value; the message hides secrets."""


def _converter() -> Converter:
    made = Converter(forbid_extra_keys=True)
    made.register_structure_hook(int, lambda raw, _: _int(raw))
    made.register_structure_hook(bool, lambda raw, _: _bool(raw))
    made.register_structure_hook(str, lambda raw, _: _str(raw))
    made.register_structure_hook(datetime, lambda raw, _: _time(raw))
    made.register_structure_hook(timedelta, lambda raw, _: _timedelta(raw))
    made.register_structure_hook_func(lambda kind: kind == Duration, lambda raw, _: _duration(raw))
    made.register_structure_hook_func(lambda kind: kind == Secret, lambda raw, _: _secret(raw))
    made.register_structure_hook(Enum, lambda raw, kind: _choice(raw, {each.name.lower(): each for each in kind}))
    made.register_structure_hook_func(
        _is_literal,
        lambda raw, kind: _choice(raw, {str(each).lower(): each for each in get_args(kind)}),
    )
    made.register_structure_hook_func(_is_union, _one_of)
    made.register_structure_hook_func(_is_tuple, lambda raw, kind: _tuple(raw, get_args(kind)[0]))
    return made


def _int(raw: object) -> int:
    if isinstance(raw, _Word) and re.fullmatch(r"[+-]?[0-9_]{1,40}", raw):
        return int(raw)
    if type(raw) is not int:
        raise _WrongError(f"{_told(raw)} is no whole number")
    return raw


def _bool(raw: object) -> bool:
    if isinstance(raw, _Word) and raw.lower() in {"true", "false"}:
        return raw.lower() == "true"
    if type(raw) is not bool:
        raise _WrongError(f"{_told(raw)} is neither true nor false")
    return raw


def _str(raw: object) -> str:
    if not isinstance(raw, str):
        raise _WrongError(f"{_told(raw)} is no text")
    return str(raw)


def _time(raw: object) -> datetime:
    try:
        found = raw if isinstance(raw, datetime) else datetime.fromisoformat(_str(raw))  # TOML and YAML have times
    except ValueError:
        raise _WrongError(f"{_told(raw)} is no point in time; write it as 2026-11-23T08:00:00Z") from None
    if found.tzinfo is None:
        raise _WrongError(f"{_told(raw)} has no time zone; write it as 2026-11-23T08:00:00Z")
    return found.astimezone(UTC)


def _secret(raw: object) -> str:
    if not isinstance(raw, str):
        raise _WrongError(f"{typed(raw)} is no text")
    return str(raw)


def _duration(raw: object) -> Duration:
    match = _LENGTH.fullmatch(raw) if isinstance(raw, str) else None
    if match is None or match[2] not in _UNITS:
        raise _WrongError(f"{_told(raw)} is no length of time; write it with its unit: 20 s, 500 ms, 5 min")
    length = Decimal(match[1]) * _UNITS[match[2]]
    if length != int(length):
        raise _WrongError(f"{_told(raw)} is no whole number of microseconds")
    return int(length)


def _timedelta(raw: object) -> timedelta:
    try:
        return timedelta(microseconds=_duration(raw))
    except OverflowError:
        raise _WrongError(f"{_told(raw)} is too long") from None


def _choice(raw: object, there: Mapping[str, object]) -> object:
    name = raw.lower().replace("-", "_") if isinstance(raw, str) else ""
    for each in (name, name.replace("_", "-")):  # as SCRAM-SHA-256 has them
        if each in there:
            return there[each]
    near = "".join(f"; did you mean {each}?" for each in get_close_matches(name, there, n=1))
    raise _WrongError(f"{_told(raw)} is none of {', '.join(there)}{near}")


def _one_of(raw: object, kind: Any) -> object:
    if NoneType in get_args(kind) and (raw is None or (isinstance(raw, str) and raw.lower() == "none")):
        return None
    kinds = _kinds(kind)
    if not kinds:
        return _CONVERTER.structure(raw, next(each for each in get_args(kind) if each is not NoneType))
    if not isinstance(raw, dict):
        raise _WrongError(f"{_told(raw)} is no table")
    chosen: Any = _choice(raw.get(KIND, ""), {_kind(each): each for each in kinds})
    return _CONVERTER.structure({name: value for name, value in raw.items() if name != KIND}, chosen)


def _tuple(raw: object, kind: Any) -> tuple[object, ...]:
    if isinstance(raw, _Word):
        raw = [_Word(each.strip()) for each in raw.split(",")]
    if not isinstance(raw, list):
        raise _WrongError(f"{_told(raw)} is no list")
    return tuple(_CONVERTER.structure(each, kind) for each in raw)


def _told(raw: object) -> str:
    return redacted(shown(str(raw) if isinstance(raw, _Word) else raw))


def _kinds(kind: Any) -> list[Any]:
    """The alternatives of a type; none if there is no choice."""
    found = [each for each in get_args(kind) if each is not NoneType] if _is_union(kind) else []
    return found if len(found) > 1 else []


def _kind(kind: type) -> str:
    return kind.__name__.lower()


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in {Union, UnionType}


@cache
def _types(kind: Any) -> Mapping[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    names = hints if is_typeddict(kind) else [each.name for each in attrs.fields(kind) if _is_told(each)]
    return {name: hints[name] for name in names if _is_written(hints[name])}


def _is_told(field: attrs.Attribute[Any]) -> bool:
    """Is it set by layers, and not derived from another setting?"""
    return field.init and "told_by" not in field.metadata


def _is_written(kind: Any) -> bool:
    if kind in {Duration, Secret, int, bool, str, datetime, timedelta, NoneType} or _is_enum(kind) or _is_literal(kind):
        return True
    if _is_union(kind) or _is_tuple(kind):
        return all(_is_written(each) for each in get_args(kind) if each is not ...)
    if not isinstance(kind, type):
        return False
    required = [each.name for each in attrs.fields(kind) if each.default is attrs.NOTHING] if attrs.has(kind) else []
    return is_typeddict(kind) or (attrs.has(kind) and all(name in _types(kind) for name in required))


# --- output ---------------------------------------------------------------------------------------


def _rows(value: Any, kind: Any, default: object, path: Names, origins: Mapping[Names, str]) -> Iterator[Row]:
    """A row per value; `default` is the value without any setting."""
    if attrs.has(type(value)):
        yield from _rows_of(value, kind, default, path, origins)
    elif is_typeddict(kind):
        types = _types(kind)
        for name, each in sorted(value.items()):
            yield from _rows(each, types.get(name), attrs.NOTHING, (*path, name), origins)
    else:
        origin = origins.get(path) or ("default" if value == default else "code")
        yield Row(".".join(path), _written(value, kind, path[-1]), origin)


def _rows_of(value: Any, kind: Any, default: object, path: Names, origins: Mapping[Names, str]) -> Iterator[Row]:
    is_same = type(default) is type(value)
    if _kinds(kind):
        origin = origins.get((*path, KIND)) or ("default" if is_same else "code")
        yield Row(".".join((*path, KIND)), _kind(type(value)), origin)
    of: Any = type(value)
    types = _types(of)
    for field in attrs.fields(of):
        if field.name in types:
            unsaid = _default(value, field) if not is_same or _follows(value, field) else getattr(default, field.name)
            yield from _rows(getattr(value, field.name), types[field.name], unsaid, (*path, field.name), origins)


def _written(value: object, kind: Any, name: str) -> str:
    """The readable form; hidden for a secret, only the type if only code can set it (kind None)."""
    if value is None:
        return "none"
    if Secret in {kind, *get_args(kind)} or is_secret_name(name):
        return HIDDEN
    match value:
        case bool():
            return str(value).lower()
        case Enum():
            return value.name.lower()
        case int() if Duration in {kind, *get_args(kind)}:
            return seconds(value)
        case timedelta():
            return seconds(duration(value))
        case datetime():
            return value.isoformat()
        case int() | str() if kind is not None:
            return redacted(str(value))
        case tuple():
            return ",".join(_written(each, get_args(kind)[0], name) for each in value)
        case _:
            return f"<{type(value).__name__}>"


_CONVERTER: Final = _converter()
