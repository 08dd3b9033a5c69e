"""The wording of operator commands and their results, for the page and the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from tidegate.invocations.admin.commands import Asked, Command
from tidegate.invocations.record.invocation import FAILED, INVOCATION, RETRY
from tidegate_adapters.base.redaction import redacted
from tidegate_adapters.mongo.ids import exact

MEANT: Final[Mapping[Command, frozenset[str]]] = {
    Command.CANCEL: frozenset(each.status for each in INVOCATION.definitions if not each.final),
    Command.KILL: frozenset(each.status for each in INVOCATION.definitions if each.requires_owner),
    Command.HOLD: frozenset(each.status for each in INVOCATION.definitions if each.available),
    Command.RELEASE: frozenset(each.status for each in INVOCATION.definitions if each.available),
    Command.REPEAT: frozenset({FAILED, RETRY}),
}
"""The default statuses of each command."""
_DONE: Final[Mapping[Command, str]] = {
    Command.CANCEL: "cancelled",
    Command.KILL: "killed",
    Command.HOLD: "held",
    Command.RELEASE: "released",
    Command.REPEAT: "to run again",
}


def asked_words(command: Command, found: Asked, absent: int = 0) -> str:
    others = (
        (found.told, "that run are asked to end: the process hears of it with its next beat"),
        (found.left, "for which it cannot be done as they are"),
        (found.unknown, "of which nobody knows: ask again"),
        (found.unreadable, "that cannot be read"),
        (absent, "that are not there"),
    )
    parts = [f"{found.done:,} {_DONE[command]}", *(f"{number:,} {what}" for number, what in others if number)]
    return ", ".join(parts) + ("" if found.is_complete else "; nobody answers any more, so there may be others")


def as_json(text: object) -> Any:
    """Embed stored JSON in other JSON, with secrets redacted."""
    safe = redacted(text if isinstance(text, str) else exact(cast("Any", text)))
    try:
        return json.loads(safe)
    except ValueError:
        return safe
