"""What pages are put together of: modules of a script, sheets of a style, a frame, and the policy that names both."""

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
    """One strict script of these modules: each uses those before it, and no two of them have a name in common."""
    texts = (_asset(f"{name}.js") for name in modules)
    return '\n"use strict";\n' + "".join(_EXPORT.sub("", _IMPORT.sub("", text)) for text in texts)


@cache
def style_of(sheets: tuple[str, ...]) -> str:
    """One style of these sheets."""
    return "".join(_asset(f"{name}.css") for name in sheets)


@cache
def frame(name: str) -> Template:
    """What a page is filled into."""
    return Template(_asset(f"{name}.html"))


def policy(style: str, script: str, *more: str) -> str:
    """What a browser may do with a page: run its own script, apply its own style, load nothing; and what else is said."""
    rules = ("default-src 'none'", f"style-src {_digest(style)}", f"script-src {_digest(script)}", "base-uri 'none'")
    return "; ".join((*rules, *more))


def _asset(name: str) -> str:
    return (files("tidegate_adapters.page") / "assets" / name).read_text("utf-8")


def _digest(text: str) -> str:
    """How a policy names a script or a style."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
