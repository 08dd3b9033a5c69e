"""The building blocks of pages: scripts, styles, frames and the security policy."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Final

_IMPORT: Final = re.compile(r'(?ms)^import \{[^}]*\} from "[^"]*";\n')
_EXPORT: Final = re.compile(r"(?m)^export ")


@cache
def script_of(modules: tuple[str, ...]) -> str:
    """Modules use only those before them, and their names are distinct."""
    texts = (_asset(f"{name}.js") for name in modules)
    return '\n"use strict";\n' + "".join(_EXPORT.sub("", _IMPORT.sub("", text)) for text in texts)


@cache
def style_of(sheets: tuple[str, ...]) -> str:
    return "".join(_asset(f"{name}.css") for name in sheets)


@cache
def frame(name: str) -> Template:
    return Template(_asset(f"{name}.html"))


def policy(style: str, script: str, *more: str) -> str:
    """The content security policy: own script and style by hash, no loading, and `more`."""
    rules = ("default-src 'none'", f"style-src {_digest(style)}", f"script-src {_digest(script)}", "base-uri 'none'")
    return "; ".join((*rules, *more))


def _asset(name: str) -> str:
    return (files("tidegate_adapters.page") / "assets" / name).read_text("utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
