"""Source that people read, without what only they need: comments, indentation, spaces around signs.

It knows no grammar. It goes line by line and leaves a line as it is wherever it could be wrong, so the sources keep three
habits: a comment stands alone or behind two spaces and `//`, a template ends on its line, and nothing stands
between quotes that looks like the end of a line.
"""

from __future__ import annotations

import re
from typing import Final

STRING: Final = re.compile(r'("(?:[^"\\]|\\.)*"|`(?:[^`\\$]|\\.|\$(?!\{)|\$\{[^{}`]*\})*`)')
"""A string, or a template in which nothing is nested."""
AROUND: Final = re.compile(r" ?([=*<>?:,;&|{}()\[\]!]|(?<![-+] )[-+](?! [-+])) ?")
COMMENT: Final = re.compile(r"(?:^|  )// .*$")


def script(text: str) -> str:
    """The script, line by line."""
    lines = (COMMENT.sub("", line.strip()) for line in text.split("\n"))
    return re.sub(r"(?<=[{;,(\[])\n|\n(?=[})\]])", "", "\n".join(tightened(line) for line in lines if line))


def tightened(line: str) -> str:
    """The line without spaces around signs, unless it has nested templates or what may be a pattern.

    A division has spaces around it.
    """
    parts = STRING.split(line)
    if any("`" in part or "/" in part.replace(" / ", "") for part in parts[::2]):
        return line
    return "".join(part if number % 2 else AROUND.sub(r"\1", part) for number, part in enumerate(parts))


def style(text: str) -> str:
    """The style, rule by rule."""
    bare = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", text))
    return re.sub(r": ", ":", re.sub(r" ?([{};,]) ?", r"\1", bare)).replace(";}", "}").strip()
