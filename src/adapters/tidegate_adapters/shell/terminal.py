"""The output of a command: one stream for results, one for the rest, with optional colour.

All text is made printable first (`tidegate_adapters.base.redaction`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from traceback import format_exception
from typing import NamedTuple, TextIO, TypeAlias, final

import click

from tidegate.model.errors import TidegateError
from tidegate_adapters.base.redaction import clean, redacted


@final
class UnwritableError(TidegateError):
    """Output is impossible, as on a full disk."""


class Styled(NamedTuple):
    """Bold text in a colour of click."""

    text: str
    colour: str


Span: TypeAlias = str | Styled


@final
class Terminal:
    """The two streams.

    Args:
        out: For results.
        err: For progress, warnings and errors.
        environ: Holds NO_COLOR, FORCE_COLOR and TERM.

    The options `--color` and `--debug` set `colour` and `is_debugging`.
    """

    def __init__(self, out: TextIO, err: TextIO, environ: Mapping[str, str]) -> None:
        self.out, self.err, self.environ = out, err, environ
        self.colour, self.is_debugging = "auto", False

    def say(self, *spans: Span) -> None:
        self.write(self.out, spans)

    def table(self, rows: Sequence[tuple[str, ...]]) -> None:
        """Print rows with aligned cells."""
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            self.say("  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip())

    def tell(self, *spans: Span) -> None:
        self.write(self.err, spans)

    def write(self, stream: TextIO, spans: tuple[Span, ...]) -> None:
        parts = (
            clean(span) if isinstance(span, str) else click.style(clean(span.text), fg=span.colour, bold=True)
            for span in spans
        )
        self.put(stream, "".join(parts))

    def put(self, stream: TextIO, text: str) -> None:
        try:
            click.echo(text, file=stream, color=self.is_coloured(stream))
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UnwritableError("cannot write the answer", why=error.strerror or str(error)) from error

    def is_coloured(self, stream: TextIO) -> bool:
        """The option wins, then NO_COLOR, then FORCE_COLOR, then the kind of stream."""
        if self.colour != "auto":
            return self.colour == "always"
        if self.environ.get("NO_COLOR"):
            return False
        return bool(self.environ.get("FORCE_COLOR")) or (stream.isatty() and self.environ.get("TERM") != "dumb")

    def answer(self, answer: Mapping[str, object]) -> None:
        self.put(self.out, json.dumps(answer, indent=1, allow_nan=False))

    def complain(self, error: TidegateError) -> None:
        """Print an error with place, reason and fix; with `--debug` also its traceback."""
        if self.is_debugging:
            self.tell(redacted("".join(format_exception(error)).rstrip("\n")))
        self.tell(Styled("error:", "red"), f" {redacted(error.what)}")
        for name, text in (("where", error.where), ("why", error.why), ("help", error.todo)):
            if text:
                self.tell(f"  {name}: {redacted(text)}")


def error_json(error: TidegateError) -> dict[str, str]:
    fields = {"what": error.what, "where": error.where, "why": error.why, "help": error.todo}
    return {name: redacted(text) for name, text in fields.items()}
