"""Arguments and results as JSON text, by the annotations of the function.

cattrs writes attrs classes, dataclasses, typed dictionaries, enums, times, sets, bytes, UUIDs and
decimals; pydantic writes its models; a value without annotation is plain JSON. Equal values have
equal texts, which `unique` compares, except for dict order, times in different zones, and decimals
with different digits.

The codec reads each text back at once and compares type, order and instant. A caller whose value
would change gets an error, not the process that runs it. So a subclass loses no field, a tuple does
not become a list, and a time keeps its zone, written as in RFC 9557:
2026-10-25T02:30:00+01:00[Europe/Berlin]. Allowed changes: an int for a float becomes a float, and
pydantic keeps a time's offset without its zone name. Messages show no values.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain, starmap
from types import GenericAlias
from typing import Any, Final, final, get_args, get_origin
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs

from tidegate.model.errors import MissingExtra, Misuse, check_failure, with_article

try:
    from cattrs.preconf.json import make_converter
except ImportError as missing:
    raise MissingExtra("typed values", "orchestrator", missing, "pipeline") from missing

UNTYPED: Final = object()


@final
@attrs.frozen
class TextCodec:
    """The codec of one type.

    Attributes:
        dumped: Converts a value to its JSON form.
        meant: Coerces a value that the type accepts, as pydantic accepts a dict for a model.
        keeps_zones: A time keeps the name of its zone; otherwise its offset.
    """

    kind: str
    dumped: Callable[[Any], object] = attrs.field(repr=False)
    loaded: Callable[[Any], object] = attrs.field(repr=False)
    meant: Callable[[Any], object] = attrs.field(default=lambda value: value, repr=False)
    keeps_zones: bool = True

    def text(self, value: object, what: str) -> str:
        """Encode a value; `what` names it in messages. Misuse if it does not fit."""
        try:
            value = self.meant(value)
            text = json.dumps(self.dumped(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            _ = text.encode()
            _check_same(value, self.loaded(json.loads(text)), keeps_zones=self.keeps_zones)
        except BaseException as error:  # noqa: BLE001  of the user's types
            check_failure(error)
            raise self._wrong(f"{what} must be {with_article(self.kind)}, got {type(value).__name__}", error) from None
        return text

    def value(self, text: str, what: str) -> Any:
        try:
            return self.loaded(json.loads(text))
        except BaseException as error:  # noqa: BLE001  of the user's types
            check_failure(error)
            raise self._wrong(f"{what} cannot be read as {with_article(self.kind)}", error) from None

    def _wrong(self, what: str, error: BaseException) -> Misuse:
        why = ""
        if isinstance(error, _ChangedError):
            why = f"as JSON it would come back as something else: {error}"
        elif not isinstance(error, _WrongTypeError):
            why = f"to write it as JSON, and to read it, raises {type(error).__name__}"
        return Misuse(what, why=why, todo="pass what the annotation says, or annotate the parameter with what you pass")


def codec_of(annotation: Any) -> TextCodec:
    if annotation is UNTYPED or annotation is Any or annotation is object:
        return TextCodec("value of JSON", _same, _same)
    if annotation is None or annotation is type(None):
        return TextCodec("None", _none, _none)
    kind = getattr(annotation, "__name__", None) or str(annotation)
    if _is_of_pydantic(annotation):
        adapter = sys.modules["pydantic"].TypeAdapter(annotation)
        return TextCodec(
            kind,
            lambda value: adapter.dump_python(value, mode="json"),
            adapter.validate_python,
            adapter.validate_python,
            keeps_zones=False,
        )
    try:
        loaded = _CONVERTER.get_structure_hook(annotation)
        dumped = _CONVERTER.get_unstructure_hook(annotation)
    except Exception as error:  # noqa: BLE001  of the type's
        raise Misuse(
            f"{kind} is no type that can be written as JSON",
            why=f"cattrs raises {type(error).__name__}",
            todo="use attrs classes, dataclasses, typed dictionaries, or models of pydantic",
        ) from None
    return TextCodec(kind, dumped, lambda raw: loaded(raw, annotation))


def _check_same(given: object, read: object, *, keeps_zones: bool) -> None:
    if change := _change(given, read, keeps_zones=keeps_zones):
        raise _ChangedError(change)


def _change(given: Any, read: Any, *, keeps_zones: bool) -> str:
    """How a value differs after a round trip, without showing it; "" if it does not."""
    again = partial(_change, keeps_zones=keeps_zones)
    if given is read or (type(given) is int and type(read) is float and given == read):
        return ""
    if type(given) is not type(read):
        return f"{type(given).__name__} becomes {type(read).__name__}"
    if isinstance(given, (datetime, time)):
        return _change_of_time(given, read, keeps_zones=keeps_zones)
    if isinstance(given, Mapping):
        items = zip(chain.from_iterable(given.items()), chain.from_iterable(read.items()), strict=False)
        return next(filter(None, starmap(again, items)), "" if len(given) == len(read) else "keys are lost")
    if isinstance(given, AbstractSet):
        found = {each: each for each in read}
        changes = (again(each, found.get(each)) for each in given)
        return next(filter(None, changes), "" if len(given) == len(read) else "elements are lost")
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        return next(filter(None, map(again, given, read)), "" if len(given) == len(read) else "elements are lost")
    names = _fields(type(given))
    if names is not None:
        return next(filter(None, (again(getattr(given, name), getattr(read, name)) for name in names)), "")
    is_no_number = given != given and read != read  # noqa: PLR0124
    return "" if given == read or is_no_number else f"{type(given).__name__} becomes another one"


def _change_of_time(given: Any, read: Any, *, keeps_zones: bool) -> str:
    shown = given.replace(tzinfo=None) == read.replace(
        tzinfo=None
    )  # equal times in two zones never are in a fold (PEP 495)
    if not shown or given.utcoffset() != read.utcoffset() or (given.tzinfo is None and given.fold != read.fold):
        return f"{type(given).__name__} becomes another one"
    zone, other = given.tzinfo, read.tzinfo
    if (
        not keeps_zones
        or zone == other
        or (isinstance(zone, ZoneInfo) and zone.key and zone.key == getattr(other, "key", ""))
    ):
        return ""
    return f"the zone, a {type(zone).__module__}.{type(zone).__name__}, is lost: use zoneinfo.ZoneInfo or datetime.timezone"


def _time_text(when: datetime) -> str:
    """ISO 8601, with the zone name in brackets, if it has one."""
    key = when.tzinfo.key if isinstance(when.tzinfo, ZoneInfo) else None
    return f"{when.isoformat()}[{key}]" if key else when.isoformat()


def _time_of(text: str, _: object) -> datetime:
    at, _, name = text.partition("[")
    when = datetime.fromisoformat(at)
    if not name:
        return when
    zone = ZoneInfo(name.removesuffix("]"))
    shown = (when.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    # If the rules of the zone have changed since, the instant counts, not the local time.
    return next((each for each in shown if each.utcoffset() == when.utcoffset()), when.astimezone(zone))


def _fields(kind: Any) -> tuple[str, ...] | None:
    """The fields that equality uses; None if the type has no fields."""
    if attrs.has(kind):
        return tuple(each.name for each in attrs.fields(kind) if each.eq)
    if is_dataclass(kind):
        return tuple(each.name for each in fields(kind) if each.compare)
    found = getattr(kind, "__pydantic_fields__", None)
    return None if found is None else tuple(found)


def _same(value: object) -> object:
    return value


def _none(value: object) -> None:
    if value is not None:
        raise _WrongTypeError


def _is_of_pydantic(annotation: Any) -> bool:
    """Does the annotation contain a pydantic model? Without an import of pydantic there is none."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None:
        return False
    if any(_is_of_pydantic(each) for each in get_args(annotation)):
        return True
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and (issubclass(kind, pydantic.BaseModel) or hasattr(kind, "__pydantic_fields__"))


class _WrongTypeError(TypeError):
    pass


class _ChangedError(ValueError):
    pass


def _converter() -> Any:
    made = make_converter(unstruct_collection_overrides={AbstractSet: lambda each: sorted(each, key=json.dumps)})
    for kind, allowed in ((int, (int,)), (float, (float, int)), (str, (str,)), (bool, (bool,))):
        made.register_structure_hook(kind, _exactly(kind, allowed))
    made.register_structure_hook_factory(_has_numbers_for_keys, partial(_by_numbers, made))
    made.register_unstructure_hook(float, float)  # a whole number keeps its point
    made.register_unstructure_hook(datetime, _time_text)
    made.register_structure_hook(datetime, _time_of)
    made.register_unstructure_hook(time, time.isoformat)
    made.register_structure_hook(time, lambda raw, _: time.fromisoformat(raw))
    made.register_structure_hook_factory(_is_of_sequences, partial(_listed, made))
    made.register_unstructure_hook(UUID, str)
    made.register_structure_hook(UUID, lambda raw, _: UUID(raw))
    made.register_unstructure_hook(Decimal, str)
    made.register_structure_hook(Decimal, lambda raw, _: Decimal(raw))
    made.register_unstructure_hook(timedelta, lambda value: value // timedelta(microseconds=1))
    made.register_structure_hook(timedelta, lambda raw, _: timedelta(microseconds=raw))
    return made


def _is_of_sequences(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is Sequence


def _listed(converter: Any, kind: Any) -> Callable[[Any, Any], object]:
    """Read a JSON array for a Sequence as a list."""
    listed: Any = GenericAlias(list, get_args(kind))
    hook = converter.get_structure_hook(listed)
    return lambda raw, _: hook(raw, listed)


def _has_numbers_for_keys(kind: Any) -> bool:
    """Does the type have number keys, which JSON turns into text?"""
    return get_origin(kind) in (dict, Mapping) and get_args(kind)[0] in (int, float, bool)


def _by_numbers(converter: Any, kind: Any) -> Callable[[Any, Any], object]:
    key, value = get_args(kind)
    keys, values = map(converter.get_structure_hook, (key, value))
    return lambda raw, _: {keys(json.loads(each), key): values(of, value) for each, of in raw.items()}


def _exactly(kind: type, allowed: tuple[type, ...]) -> Callable[[Any, Any], object]:
    """Accept exactly these types; a subtype, such as an IntEnum, is built from the value."""

    def checked(raw: Any, wanted: Any) -> object:
        if type(raw) not in allowed:
            raise _WrongTypeError
        return (wanted if isinstance(wanted, type) else kind)(raw)

    return checked


_CONVERTER: Final = _converter()
