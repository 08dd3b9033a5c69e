"""What a handler raises to be called again later: of a worker, of an orchestrator and of reactive tasks alike."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, final

from tidegate.model.instants import Duration, seconds
from tidegate_adapters.base.decorators import length_of


@final
class Later(Exception):  # noqa: N818  it is no error
    """Raised by a handler that is to be called again later: that is no failure, and no attempt.

    Args:
        delay: How long to wait until then.

    Attributes:
        delay: The same in microseconds.

    Raises:
        Misuse: It is no timedelta, or is negative.
    """

    def __init__(self, delay: timedelta) -> None:
        self.delay: Final[Duration] = length_of(delay, "delay", 0)
        super().__init__(delay)

    def __str__(self) -> str:
        return f"again in {seconds(self.delay)}"
