"""Persistent maps with bytes as keys: two levels of tuples, so a change copies one short page and
the list of pages.

A page has the entries whose keys share a hash number, in order of keys. Pages are in order of
numbers, and none is empty, so equal entries give equal tables. Changing one entry costs its page
and eight bytes for each page, of which there are at most 1,021. Changing many costs their pages,
and a pass over all pages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar
from zlib import crc32

V = TypeVar("V")
_Page: TypeAlias = "tuple[tuple[bytes, V], ...]"
Table: TypeAlias = "tuple[tuple[int, _Page[V]], ...]"
"""Pages, each with its number."""

_KEY: Final = itemgetter(0)
_ENTRIES: Final = itemgetter(1)
_PAGES: Final = 1021
_FEW: Final = 8
"""Up to this many changes are made one by one."""


def found(table: Table[V], key: bytes) -> V | None:
    number = crc32(key) % _PAGES
    at = bisect_left(table, (number,))
    if at < len(table) and table[at][0] == number:
        for each, value in table[at][1]:
            if each == key:
                return value
    return None


def finder(table: Table[V], many: int) -> Callable[[bytes], V | None]:
    """As `found`, for this many keys."""
    return dict(entries(table)).get if many * _FEW > len(table) else partial(found, table)


def changed(table: Table[V], changes: Mapping[bytes, V | None]) -> Table[V]:
    """The table with these entries; None removes one."""
    if len(changes) <= _FEW:
        for key, value in changes.items():
            table = _with(table, key, value)
        return table
    pages = dict(table)
    for key, value in changes.items():
        number = crc32(key) % _PAGES
        if page := _page_with(pages.get(number, ()), key, value):
            pages[number] = page
        else:
            pages.pop(number, None)
    return tuple(sorted(pages.items()))


def entries(table: Table[V]) -> Iterator[tuple[bytes, V]]:
    return chain.from_iterable(map(_ENTRIES, table))


def _with(table: Table[V], key: bytes, value: V | None) -> Table[V]:
    number = crc32(key) % _PAGES
    at = bisect_left(table, (number,))
    is_there = at < len(table) and table[at][0] == number
    page = _page_with(table[at][1] if is_there else (), key, value)
    return (*table[:at], *(((number, page),) if page else ()), *table[at + is_there :])


def _page_with(page: _Page[V], key: bytes, value: V | None) -> _Page[V]:
    new = () if value is None else ((key, value),)
    rest = [each for each in page if each[0] != key] if page else ()
    return tuple(sorted([*rest, *new], key=_KEY)) if rest else new
