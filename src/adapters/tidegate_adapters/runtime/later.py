"""A handler's request for a later call, in workers, orchestrators and reactive tasks."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, final

from tidegate.model.instants import Duration, seconds
from tidegate_adapters.base.decorators import length_of


@final
class Later(Exception):  # noqa: N818  it is no error
    """Raised by a handler to be called again later; neither a failure nor an attempt.

    The attribute `delay` is in microseconds.
    """

    def __init__(self, delay: timedelta) -> None:
        self.delay: Final[Duration] = length_of(delay, "delay", 0)
        super().__init__(delay)

    def __str__(self) -> str:
        return f"again in {seconds(self.delay)}"
