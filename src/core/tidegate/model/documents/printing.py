"""The printed form of any value. No text in it can forge a line or a colour."""

from __future__ import annotations

from typing import Final

from tidegate.model.errors import shown
from tidegate.model.values import check_type, field_names, is_run

_SHORT: Final = 16
"""Consecutive whole numbers are printed in full up to this count."""


def show(value: object) -> str:
    """The one-line form of any value, the same in every run."""
    try:
        return _show(value)
    except (RecursionError, ValueError):  # infinite nesting, or an int of thousands of digits
        return shown(value)


def _show(value: object) -> str:
    match value:
        case str():
            return '"' + one_line(value.replace("\\", "\\\\").replace('"', '\\"')) + '"'
        case tuple() if len(value) > _SHORT and is_run(value):
            return f"[{value[0]}, {value[1]}, ..., {value[-1]}]"
        case tuple():
            return "[" + ", ".join(map(_show, value)) + "]"
        case frozenset():
            return "{" + ", ".join(sorted(map(_show, value))) + "}"
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _:
            kind = type(value)
            names = field_names(kind)
            if names is None or kind.__str__ is not object.__str__:
                return one_line(str(value))
            # A value without its own text prints by field: its repr may contain a set, in any
            # order.
            fields = ", ".join([f"{name}={_show(getattr(value, name))}" for name in names])
            return f"{kind.__name__}({fields})"


def one_line(text: str) -> str:
    """The text with each character escaped that could forge a line or a colour."""
    check_type(text, str, "a text")
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() else _escaped(char) for char in text])


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if char <= "\uffff" else f"\\U{ord(char):08x}"
