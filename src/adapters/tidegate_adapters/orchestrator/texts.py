"""Arguments and results as text: JSON, of the type that the function says.

A value is written by its annotation: attrs classes and dataclasses, typed dictionaries, enums, times, sets, bytes, UUIDs and decimals by
cattrs, models of pydantic by pydantic, and what has no annotation as JSON itself. Equal values have equal texts, which calls
are compared by.

What is written is read once more at once: who calls with something else hears of it, and not the process that would run it.
No message shows a value.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final, final, get_args, get_origin
from uuid import UUID

import attrs

from tidegate.model.errors import MissingExtra, Misuse

try:
    from cattrs.preconf.json import make_converter
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.orchestrator", "orchestrator", missing) from missing

__all__ = ["UNTYPED", "TextCodec", "codec_of"]

UNTYPED: Final = object()
"""The annotation of what has none."""


@final
@attrs.frozen
class TextCodec:
    """Values of one type as text.

    Attributes:
        kind: What the type is called.
        dumped: What of a value becomes JSON.
        loaded: The value, from that.
    """

    kind: str
    dumped: Callable[[Any], object] = attrs.field(repr=False)
    loaded: Callable[[Any], object] = attrs.field(repr=False)

    def text(self, value: object, what: str) -> str:
        """A value as text.

        Args:
            value: The value.
            what: What it is called in a message.

        Raises:
            Misuse: It is not of the type, or cannot be written as JSON.
        """
        try:
            text = json.dumps(
                self.dumped(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
            )
            _ = text.encode()
            _ = self.loaded(json.loads(text))
        except Exception as error:  # noqa: BLE001  of the user's types
            raise self._wrong(f"{what} is a {type(value).__name__}", error) from None
        return text

    def value(self, text: str, what: str) -> Any:
        """The value of a text.

        Raises:
            Misuse: The text is not of the type.
        """
        try:
            return self.loaded(json.loads(text))
        except Exception as error:  # noqa: BLE001  of the user's types
            raise self._wrong(f"{what} cannot be read", error) from None

    def _wrong(self, what: str, error: Exception) -> Misuse:
        return Misuse(
            f"{what}, and is to be a {self.kind}",
            why=f"to write it as JSON, and to read it, raises {type(error).__name__}",
            todo="pass what the annotation of the function says, or annotate what you pass",
        )


def codec_of(annotation: Any) -> TextCodec:
    """How values of this type are written.

    Args:
        annotation: The type; `UNTYPED` where there is none.

    Raises:
        Misuse: Nobody knows how values of such a type are written.
    """
    if annotation is UNTYPED or annotation is Any or annotation is object:
        return TextCodec("value of JSON", _same, _same)
    if annotation is None or annotation is type(None):
        return TextCodec("None", _none, _none)
    kind = getattr(annotation, "__name__", None) or str(annotation)
    if _is_of_pydantic(annotation):
        adapter = sys.modules["pydantic"].TypeAdapter(annotation)
        return TextCodec(
            kind,
            lambda value: adapter.dump_python(adapter.validate_python(value), mode="json"),
            adapter.validate_python,
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


def _same(value: object) -> object:
    return value


def _none(value: object) -> None:
    if value is not None:
        raise _WrongTypeError


def _is_of_pydantic(annotation: Any) -> bool:
    """Whether a model of pydantic is somewhere in it. Who has one has imported pydantic."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None:
        return False
    if any(_is_of_pydantic(each) for each in get_args(annotation)):
        return True
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and (issubclass(kind, pydantic.BaseModel) or hasattr(kind, "__pydantic_fields__"))


class _WrongTypeError(TypeError):
    """It is of another type than it is to be."""


def _converter() -> Any:
    made = make_converter(unstruct_collection_overrides={AbstractSet: lambda each: sorted(each, key=json.dumps)})
    for kind, allowed in ((int, (int,)), (float, (float, int)), (str, (str,)), (bool, (bool,))):
        made.register_structure_hook(kind, _exactly(kind, allowed))
    made.register_structure_hook_factory(_has_numbers_for_keys, partial(_by_numbers, made))
    made.register_unstructure_hook(UUID, str)
    made.register_structure_hook(UUID, lambda raw, _: UUID(raw))
    made.register_unstructure_hook(Decimal, str)
    made.register_structure_hook(Decimal, lambda raw, _: Decimal(raw))
    made.register_unstructure_hook(timedelta, lambda value: value // timedelta(microseconds=1))
    made.register_structure_hook(timedelta, lambda raw, _: timedelta(microseconds=raw))
    return made


def _has_numbers_for_keys(kind: Any) -> bool:
    """Whether its keys are of a type that is no text in Python, and is one as a key in JSON."""
    return get_origin(kind) in (dict, Mapping) and get_args(kind)[0] in (int, float, bool)


def _by_numbers(converter: Any, kind: Any) -> Callable[[Any, Any], object]:
    key, value = get_args(kind)
    keys, values = map(converter.get_structure_hook, (key, value))
    return lambda raw, _: {keys(json.loads(each), key): values(of, value) for each, of in raw.items()}


def _exactly(kind: type, allowed: tuple[type, ...]) -> Callable[[Any, Any], object]:
    """Reads what is of this type and no other; a type below it, such as an IntEnum, is made of that."""

    def checked(raw: Any, wanted: Any) -> object:
        if type(raw) not in allowed:
            raise _WrongTypeError
        return (wanted if isinstance(wanted, type) else kind)(raw)

    return checked


_CONVERTER: Final = _converter()
