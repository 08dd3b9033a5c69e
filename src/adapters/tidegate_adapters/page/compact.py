"""Source that people read, as one text without what only they need: comments, indentation, spaces around signs.

It knows no grammar. It goes line by line and leaves a line as it is wherever it could be wrong. What it relies on is what
the formatter leaves behind: a comment stands alone or behind a space and `//`, a template ends on its line, and nothing
stands between quotes that looks like the end of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["joined", "script", "style"]

_IMPORT: Final = re.compile(r'(?ms)^import \{[^}]*\} from "[^"]*";\n')
_EXPORT: Final = re.compile(r"(?m)^export ")
_STRING: Final = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\$]|\\.|\$(?!\{)|\$\{[^{}`]*\})*`)""")
"""A string, or a template in which nothing is nested."""
_AROUND: Final = re.compile(r" ?([=*<>?:,;&|{}()\[\]!]|(?<![-+] )[-+](?! [-+])) ?")
_NEEDLESS: Final = re.compile(r"(?<=[{};,(\[=&|?:>])\n|;?\n(?=\})|\n(?=[)\]?:.&|])")
"""Line ends at which no statement ends that has no semicolon or block, and the semicolon before the end of a block."""
_COMMENT: Final = re.compile(r"(?:^| )// .*$")


def joined(modules: tuple[str, ...]) -> str:
    """The modules as one strict script: each uses those before it, and no two of them have a name in common."""
    return '"use strict";\n' + "".join(_EXPORT.sub("", _IMPORT.sub("", text)) for text in modules)


def script(text: str) -> str:
    """The script, line by line."""
    lines = (_tightened(_COMMENT.sub("", line.strip())) for line in text.split("\n"))
    return _NEEDLESS.sub("", "\n".join(_merged(filter(None, lines))))


def _merged(lines: Iterable[str]) -> list[str]:
    """The lines with constants that follow each other in one statement."""
    found = [""]
    for line in lines:
        # A line that begins with `const` and ends with a semicolon is a whole statement, so another one may go on from it.
        if line.startswith("const ") and found[-1].startswith("const ") and found[-1].endswith(";"):
            found[-1] = f"{found[-1][:-1]},{line.removeprefix('const ')}"
        else:
            found.append(line)
    return found[1:]


def _tightened(line: str) -> str:
    """The line without spaces around signs, unless it has nested templates or what may be a pattern.

    A division has spaces around it.
    """
    parts = _STRING.split(line)
    if any("`" in part or "/" in part.replace(" / ", "") for part in parts[::2]):
        return line
    return "".join(part if number % 2 else _AROUND.sub(r"\1", part) for number, part in enumerate(parts))


def style(text: str) -> str:
    """The style, rule by rule."""
    bare = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", text))
    return re.sub(r": ", ":", re.sub(r" ?([{};,>]) ?", r"\1", bare)).replace(";}", "}").strip()
