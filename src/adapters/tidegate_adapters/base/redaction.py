"""Text that is safe for a terminal, a log or a file.

Names, payloads and exception messages are hostile input. Characters that could move a cursor, forge
a line or change a colour are escaped, and apparent secrets in messages removed.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

Secret: TypeAlias = Annotated[str, "secret"]
"""Text that is never shown."""

SHOWN_MAX: Final = 32_768
"""Approximate length limit of a shown message."""
_BEYOND: Final = 4_096
"""Further characters to scan: a token cut off at its end may go unnoticed."""
_ADDRESS: Final = re.compile(r"://\S*")
"""Takes all that follows, so each character is scanned once, however many addresses a word has."""
_HINTS: Final = re.compile(
    "://|pass|pwd|secret|token|key|cred|auth|cookie|jwt|dsn|signature|session|eyj|akia|gh[pousr]_|xox[abprs]-|sk_live_"
)
"""Lower-case text without any of these has no apparent secret: a tenfold speed-up per log line."""
_VALUE: Final = (
    r"(?:(?P<quote>\\*['\"])(?:\\.|(?!(?P=quote)).)*?(?:(?P=quote)|\Z)"  # to the closing quote, over lines
    r"|(?P<open>[(\[{])[^)\]}]*[)\]}]"
    r"|(?P<scheme>(?:[A-Za-z][\w-]{1,20}\ +)?)[^\s,;&})\]'\"]+)"
)
_NAMED: Final = re.compile(
    rf"""(?xs)
    (?P<before> (?<![\w-]) -{{0,2}} (?P<name> [A-Za-z_][\w.-]{{0,80}}) (?:\\*['"])? (?:\s*[=:]\s* | \s*,\s*(?=\\*['"]) | \ +))
    {_VALUE}
    """
)
"""A name, its separator and its value."""
_KNOWN: Final = re.compile(
    r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_\w{20,}|\bxox[abprs]-[\w-]{10,}|\bsk_live_\w{10,}"
)
"""Secrets with a recognisable form: PEM keys, JSON Web Tokens, tokens of AWS, GitHub, Slack and
Stripe.
"""
_HEADERS: Final = frozenset({"authorization", "authorisation", "cookie"})
"""Last words of header names; their values may have a scheme, or parts up to the line's end."""
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORDS: Final = _HEADERS | {
    "password", "passwd", "passphrase", "passcode", "pwd", "pass", "secret", "secrets", "token", "jwt", "credential", "credentials",
    "auth", "cookies", "dsn", "signature", "session", "sessionid", "apikey", "accesskey", "privatekey", "secretkey", "accountkey",
    "authtoken", "accesstoken",
}  # fmt: skip
_ENDS: Final = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "secretkey",
    "cookie",
)
"""Endings of words written together."""
_OF_KEYS: Final = frozenset(
    [
        "secret",
        "access",
        "api",
        "private",
        "account",
        "encryption",
        "signing",
        "shared",
        "master",
        "auth",
        "client",
        "storage",
        "service",
    ]
)
"""Words that make a key secret."""
_OF_TOKENS: Final = frozenset(["access", "api", "auth", "bearer", "csrf", "id", "refresh", "session"])
_AFTER: Final = frozenset(["id", "value", "hash", "text", "string", "old", "new", "base64", "b64", "plain"])
"""Words that may follow a secret word."""
_ANYWHERE: Final = re.compile(
    r"(?i)passw|passphrase|pwd|secret|api_?key|private_?key|credential|authori[sz]ation|cookie"
)


def clean(text: str) -> str:
    """The text with control characters escaped, except line ends."""
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def one_line(text: str) -> str:
    return clean(text).replace("\n", "\\n")


def may_be_redacted(text: str) -> bool:
    return _HINTS.search(text.lower()) is not None


def redacted(text: str) -> str:
    """The message without apparent secrets: users in URIs, and values with secret names.

    A long message is cut: scanning a megabyte takes half a second.
    """
    if len(text) > SHOWN_MAX + _BEYOND:
        return f"{redacted(text[: SHOWN_MAX + _BEYOND])[:SHOWN_MAX]}... ({len(text):,} characters in all)"
    if not may_be_redacted(text):  # most record keys
        return text
    return _KNOWN.sub("***", _without_named(_ADDRESS.sub(_without_user, text)))


def _without_named(text: str) -> str:
    parts, at = list[str](), 0
    while (found := _NAMED.search(text, at)) is not None:
        name, before = found["name"], found["before"]
        is_flag, quote = before.startswith("--"), found["quote"] or ""
        is_separated = quote or not before[-1].isspace() or before.rstrip()[-1:] in {"=", ":", ","}
        if not (is_flag or is_separated) or not _is_named_secret(name):
            parts.append(text[at : found.end("name")])
            at = found.end("name")
            continue
        end, last = found.end(), _words(name)[-1]
        scheme = (found["scheme"] or "").strip().lower()
        if not quote and ":" in before and (last == "cookie" or (last in _HEADERS and scheme == "digest")):
            end = len(text) if (line := text.find("\n", end)) < 0 else line
        elif scheme and last not in _HEADERS | {"auth"}:  # the first word is the whole value
            end = found.start("scheme") + len(scheme)
        parts += [text[at : found.end("before")], "***"]
        at = end
    return "".join([*parts, text[at:]])


def _words(name: str) -> list[str]:
    return [each.lower() for each in _WORDS.findall(name)] or [name.lower()]


def _stem(name: str) -> list[str]:
    words = _words(name)
    while len(words) > 1 and (words[-1] in _AFTER or words[-1].isdecimal()):
        words.pop()
    return words


def _is_named_secret(name: str) -> bool:
    words = _stem(name)
    is_key = words[-1] == "key" and len(words) > 1 and words[-2] in _OF_KEYS
    return is_key or words[-1] in _SECRET_WORDS or words[-1].endswith(_ENDS)


def _without_user(address: re.Match[str]) -> str:
    _, at, host = address[0].rpartition("@")
    return f"://***@{host}" if at else address[0]


def is_secret_name(name: str) -> bool:
    words = _stem(name)
    is_of_ours = words[-1] == "token" and not _OF_TOKENS.intersection(words[:-1])  # a lease's fencing token
    return _ANYWHERE.search(name) is not None or (_is_named_secret(name) and not is_of_ours)
