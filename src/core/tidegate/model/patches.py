r"""The difference of two values as a JSON patch; and values and patches as plain JSON.

A patch is a tuple of operations of RFC 6902, each at a JSON pointer (RFC 6901). It is exact
(`documents.exactly`), unlike MongoDB's equality.

    difference({n: 1, tags: ["a"]}, {n: 2, tags: ["a", "b"]})   replace /n with 2, add "b" at
        /tags/1

Keys have an order, and `Added` appends. So if the remaining keys are not in the wanted order, all
from the first wrong one on are removed and added again. In an array the common beginning and end
stay, and the rest is compared position by position.

Values that plain JSON lacks become an object with a tag as its only key. A document that resembles
such an object is itself tagged, so the form is unambiguous.

    b"\x00"                   {"$bytes": "00"}
    Instant(1000, STORE)      {"$instant": [1000, "store"]}
    Foreign("minKey", b"")    {"$foreign": ["minKey", ""]}
    NaN, every bit of it      {"$float": "7ff8000000000000"}
    {$bytes: "00"}            {"$document": {"$bytes": "00"}}

Laws
    N1  difference(a, b) is empty exactly when `a` and `b` are the same value.
    N2  applied(difference(a, b), a) is exactly `b`, the order of its keys included.
    N8  from_json(to_json(v)) is exactly `v`, also through text; the same holds for patches.

Known not to work: pointers lead through values, not through their plain JSON, so a JSON patch
library can apply our patches to `to_json(value)` only if no document needs a tag. A change in an
array that also shifts elements is correct but long. `move`, `copy`, `test` and the index `-` are
neither written nor read.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from operator import eq
from types import NoneType
from typing import Final, TypeAlias, TypeVar, assert_never, cast, final

import attrs

from tidegate.model.documents import DEPTH_MAX, Document, Foreign, Value, checked, exactly, frozen, show
from tidegate.model.errors import NUMBER_MAX, Misuse, shown, typed
from tidegate.model.instants import ClockName, Instant
from tidegate.model.values import check_tuple, check_types

T = TypeVar("T")

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@final
@attrs.frozen
class Added:
    """A new key or element; at "" the whole value."""

    path: str
    value: Value = attrs.field(eq=exactly)

    def __str__(self) -> str:
        return f"add {show(self.path)}: {show(self.value)}"


@final
@attrs.frozen
class Removed:
    """A removed key or element; the path is not ""."""

    path: str

    def __str__(self) -> str:
        return f"remove {show(self.path)}"


@final
@attrs.frozen
class Replaced:
    """Another value in the same place."""

    path: str
    value: Value = attrs.field(eq=exactly)

    def __str__(self) -> str:
        return f"replace {show(self.path)}: {show(self.value)}"


PatchOperation: TypeAlias = Added | Removed | Replaced
Patch: TypeAlias = tuple[PatchOperation, ...]


# --- what comes from outside --------------------------------------------------------------------------------------------


def _check_patch(patch: object) -> None:
    check_tuple(patch, (Added, Removed, Replaced), "an operation of a patch")
    for operation in cast("Patch", patch):
        _check_pointer(operation.path)
        if not isinstance(operation, Removed):
            _check_value(operation.value)
        elif not operation.path:
            raise Misuse("a patch cannot remove the whole value", why="nothing would be left, and null is something")


def _check_pointer(path: object) -> None:
    if not isinstance(path, str) or path[:1] not in ("", "/") or "~" in path.replace("~0", "").replace("~1", ""):
        raise Misuse(
            f"{shown(path)} is not a JSON pointer",
            why='RFC 6901: it is "", or each step begins with "/", and "~" is followed by 0 or 1',
        )


def _check_value(value: object) -> None:
    # Level by level and not by recursion: a deeply nested value must not exhaust the interpreter's
    # stack.
    todo: list[object] = [value]
    depth = 0
    while todo:
        check_types(todo, _KINDS, "a value")
        if depth > DEPTH_MAX:
            raise Misuse(f"nested deeper than {DEPTH_MAX}")
        if any(isinstance(each, int) and abs(each) > NUMBER_MAX for each in todo):
            raise Misuse("a number of more digits than can be printed")
        tuples = (cast("tuple[object, ...]", each) for each in todo if isinstance(each, tuple))
        todo, depth = [item for each in tuples for item in each], depth + 1


_KINDS: Final = (bool, int, float, str, bytes, Instant, Foreign, tuple, Document, NoneType)


# --- difference ---------------------------------------------------------------------------------------------------------


def difference(before: Value, after: Value) -> Patch:
    """The operations that turn `before` into exactly `after`, in order."""
    _check_value(before)
    _check_value(after)
    return tuple(_difference("", before, after))


def _difference(path: str, before: Value, after: Value) -> Iterator[PatchOperation]:
    if exactly(before) == exactly(after):
        return
    if isinstance(before, Document) and isinstance(after, Document):
        yield from _between_documents(path, before, after)
    elif isinstance(before, tuple) and isinstance(after, tuple):
        yield from _between_arrays(path, before, after)
    else:
        yield Replaced(path, after)


def _between_documents(path: str, before: Document, after: Document) -> Iterator[PatchOperation]:
    # Kept keys keep their order, so only a common beginning of both orders can stay in place.
    old, new = dict(before.items), dict(after.items)
    kept = [key for key in old if key in new]
    in_place = set(kept[: _alike(kept, list(new))])
    for key in old:
        if key not in in_place:
            yield Removed(_step(path, key))
    for key, value in new.items():
        if key in in_place:
            yield from _difference(_step(path, key), old[key], value)
        else:
            yield Added(_step(path, key), value)


def _between_arrays(path: str, before: tuple[Value, ...], after: tuple[Value, ...]) -> Iterator[PatchOperation]:
    old, new = [exactly(item) for item in before], [exactly(item) for item in after]
    start = _alike(old, new)
    end = _alike(old[start:][::-1], new[start:][::-1])
    old_end, new_end = len(old) - end, len(new) - end
    both_end = min(old_end, new_end)
    for index in range(start, both_end):
        yield from _difference(f"{path}/{index}", before[index], after[index])
    for index in reversed(range(both_end, old_end)):  # from the last on, so that the indices before it stay valid
        yield Removed(f"{path}/{index}")
    for index in range(both_end, new_end):
        yield Added(f"{path}/{index}", after[index])


def _alike(left: Sequence[T], right: Sequence[T]) -> int:
    return sum(takewhile(bool, map(eq, left, right)))


def _step(path: str, key: str) -> str:
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')}"


# --- application --------------------------------------------------------------------------------------------------------

_Open: TypeAlias = "bool | int | float | str | bytes | Instant | Foreign | list[_Open] | dict[str, _Open] | None"


def applied(patch: Patch, value: Value) -> Value:
    """The value after all operations of the patch.

    Raises:
        Misuse: An operation does not fit: the patch was made from another value.
    """
    _check_patch(patch)
    _check_value(value)
    whole: dict[str, _Open] = {"": _opened(value)}  # every pointer begins with the step "", which leads here
    for operation in patch:
        _carry_out(operation, whole)
    return frozen(whole[""])


def _carry_out(operation: PatchOperation, whole: dict[str, _Open]) -> None:
    *way, last = (step.replace("~1", "/").replace("~0", "~") for step in operation.path.split("/"))
    place: _Open = whole
    for step in way:
        if isinstance(place, dict) and step in place:
            place = place[step]
        elif isinstance(place, list) and _is_index(step, len(place)):
            place = place[int(step)]
        else:
            raise _misfit(operation)
    may_be_new = isinstance(operation, Added)
    if isinstance(place, dict) and (last in place or may_be_new):
        if isinstance(operation, Removed):
            del place[last]
        else:
            place[last] = _opened(operation.value)
    elif isinstance(place, list) and _is_index(last, len(place) + may_be_new):
        match operation:
            case Added(_, value):
                place.insert(int(last), _opened(value))
            case Removed():
                del place[int(last)]
            case Replaced(_, value):
                place[int(last)] = _opened(value)
            case _:
                assert_never(operation)
    else:
        raise _misfit(operation)


def _is_index(step: str, end: int) -> bool:
    digits_max = len(str(end))
    return step.isascii() and step.isdigit() and len(step) <= digits_max and str(int(step)) == step and int(step) < end


def _misfit(operation: PatchOperation) -> Misuse:
    return Misuse(
        f"cannot {operation}",
        why="the path leads to no such place",
        todo="apply a patch to the value that it was made from",
    )


def _opened(value: Value) -> _Open:
    match value:
        case Document(items):
            return {key: _opened(item) for key, item in items}
        case tuple():
            return [_opened(item) for item in value]
        case _:
            return value


# --- plain JSON ---------------------------------------------------------------------------------------------------------

_DOUBLE: Final = struct.Struct(">d")


def to_json(value: Value) -> Json:
    """The value as plain JSON data; `from_json` is the inverse."""
    _check_value(value)
    return _to_json(value)


def _to_json(value: Value) -> Json:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"$float": _DOUBLE.pack(value).hex()}
        case bytes():
            return {"$bytes": value.hex()}
        case Instant(at, clock):
            return {"$instant": [at, clock]}
        case Foreign(kind, payload):
            return {"$foreign": [kind, payload.hex()]}
        case tuple():
            return [_to_json(item) for item in value]
        case Document(items):
            plain = {key: _to_json(item) for key, item in items}
            return {"$document": plain} if _is_tagged(plain) else plain
        case _:
            assert_never(value)


def from_json(json: object) -> Value:
    """The value that `to_json` wrote; Misuse for other data."""
    return _decoded(json, 0)


def patch_to_json(patch: Patch) -> list[Json]:
    """The patch as RFC 6902 data; `patch_from_json` is the inverse."""
    _check_patch(patch)
    return [_operation_to_json(operation) for operation in patch]


def patch_from_json(json: object) -> Patch:
    """The patch that `patch_to_json` wrote; Misuse for other data."""
    if not isinstance(json, list):
        raise Misuse("a patch is a list of operations")
    patch = tuple(map(_operation_from_json, cast("list[object]", json)))
    _check_patch(patch)
    return patch


def _operation_to_json(operation: PatchOperation) -> Json:
    match operation:
        case Added(path, value):
            return {"op": "add", "path": path, "value": _to_json(value)}
        case Removed(path):
            return {"op": "remove", "path": path}
        case Replaced(path, value):
            return {"op": "replace", "path": path, "value": _to_json(value)}
        case _:
            assert_never(operation)


def _operation_from_json(json: object) -> PatchOperation:
    # RFC 6902, section 4: members that the operation does not know MUST be ignored.
    match cast("dict[str, object]", json if isinstance(json, dict) else {}):
        case {"op": "add", "path": str() as path, "value": value}:
            return Added(path, from_json(value))
        case {"op": "remove", "path": str() as path}:
            return Removed(path)
        case {"op": "replace", "path": str() as path, "value": value}:
            return Replaced(path, from_json(value))
        case _:
            raise Misuse("no operation of a patch", why="an operation adds, removes or replaces, and says where")


def _decoded(json: object, depth: int) -> Value:
    if depth > DEPTH_MAX:
        raise Misuse(f"nested deeper than {DEPTH_MAX}")
    match json:
        case dict():
            members = cast("dict[str, object]", json)
            return _untagged(members, depth) if _is_tagged(members) else _document(members, depth)
        case list():
            return tuple(_decoded(item, depth + 1) for item in cast("list[object]", json))
        case None | bool() | int() | str():
            checked(json, "value")
            return json
        case float() if math.isfinite(json):
            return json
        case _:
            raise Misuse(f"{typed(json)} is not plain JSON, or not as it is written")


def _document(json: dict[str, object], depth: int) -> Document:
    return Document(tuple((key, _decoded(item, depth + 1)) for key, item in json.items()))


def _untagged(json: dict[str, object], depth: int) -> Value:
    match json:
        case {"$bytes": str() as digits}:
            value: Value = _unhexed(digits)
        case {"$instant": [int() as at, str() as clock]}:
            value = Instant(at, ClockName(clock))
        case {"$foreign": [str() as kind, str() as digits]}:
            value = Foreign(kind, _unhexed(digits))
        case {"$float": str() as digits} if len(_unhexed(digits)) == _DOUBLE.size:
            (value,) = _DOUBLE.unpack(_unhexed(digits))
        case {"$document": plain} if isinstance(plain, dict):
            value = _document(cast("dict[str, object]", plain), depth)
        case _:
            value = None
    if to_json(value) != json:
        raise Misuse(f"{show(next(iter(json)))} tags no value here", why="it is unknown, or not as it is written")
    return value


def _unhexed(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        return b""


def _is_tagged(keys: Collection[object]) -> bool:
    return len(keys) == 1 and all(isinstance(key, str) and key.startswith("$") for key in keys)
