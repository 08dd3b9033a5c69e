"""The stored form of a handler's error, with secrets redacted."""

from __future__ import annotations

import traceback

from tidegate.invocations.queue.completion import Failed, RunError
from tidegate.retries.backoff import Policy
from tidegate_adapters.base.redaction import redacted


def told(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001  the user's own __str__
        text = ""
    return redacted(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def failed(error: BaseException, retry_for: tuple[type[Exception], ...], policy: Policy | None) -> Failed:
    """The failure to store; `policy` applies if the error is in `retry_for`."""
    kind, _, message = told(error).partition(": ")
    where = redacted("".join(traceback.format_tb(error.__traceback__)))
    above = tuple(each.__name__ for each in type(error).__mro__[1:-1])
    return Failed(RunError(kind, message, where, above), policy if isinstance(error, retry_for) else None)
