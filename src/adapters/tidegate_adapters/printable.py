"""Text that a terminal, a log or a file can be given.

Names, payloads and messages of exceptions are hostile input: whatever could move a cursor, forge a line or change a colour
becomes an escape, and what looks like a secret in a message is left out.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

__all__ = ["Secret", "clean", "is_secret_name", "may_be_redacted", "one_line", "redacted"]

Secret: TypeAlias = Annotated[str, "secret"]
"""Text that is never shown."""

_ADDRESS: Final = re.compile(r"://\S*")
"""Whatever follows belongs to it, so that each character is looked at once, however many addresses stand in one word."""
_NAMED: Final = re.compile(
    r"(?i)\b(\w*(?:passw(?:or)?d|passphrase|pwd|secret|token|(?:api|private)[_-]?key|authori[sz]ation|cookie)['\"]?\s*[=:]\s*)"
    r"(?:(?:basic|bearer|digest)\s+)?(?:'[^'\n]*'|\"[^\"\n]*\"|[^\s,;&}]+)"
)
"""A name, and its value: up to the quote that ends it, or what separates it; a header's scheme belongs to it."""


_SECRET_NAME: Final = re.compile(
    r"(?i)passw|passphrase|pwd|secret|api_?key|private_?key|credential|authori[sz]ation|cookie"
)


def clean(text: str) -> str:
    """The text without anything that a terminal would obey; line ends stay."""
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def one_line(text: str) -> str:
    """The text, cleaned, on one line."""
    return clean(text).replace("\n", "\\n")


def may_be_redacted(text: str) -> bool:
    """Whether anything may look like a secret in it; where not, nothing does."""
    return "=" in text or ":" in text


def redacted(text: str) -> str:
    """The message without what looks like a secret: the user part of a URI, and the value of whatever is named like one."""
    if not may_be_redacted(text):  # as most keys of records
        return text
    return _NAMED.sub(r"\1***", _ADDRESS.sub(_without_user, text))


def _without_user(address: re.Match[str]) -> str:
    _, at, host = address[0].rpartition("@")
    return f"://***@{host}" if at else address[0]


def is_secret_name(name: str) -> bool:
    """Whether what stands under such a name is not shown or written, whatever it is."""
    return _SECRET_NAME.search(name) is not None
