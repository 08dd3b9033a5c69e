"""Log lines that never raise: a line whose filter or handler raises is lost and counted.

The next written line has the number of lost ones, in its text and as the field `lines_lost`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import final


@final
class Lines:
    """A logger that never raises; `lost` counts lines not yet reported."""

    def __init__(self, log: logging.Logger) -> None:
        self._log, self.lost = log, 0

    def __call__(
        self,
        level: int,
        text: str,
        *about: object,
        error: BaseException | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """A line is lost if the log raises (RT4)."""
        try:
            if not self._log.isEnabledFor(level):
                return
            lost = self.lost
            if lost:
                text, about = f"{text} (%s lines before this one were lost: the log raised)", (*about, lost)
                extra = {**(extra or {}), "lines_lost": lost}
            self._log.log(level, text, *about, exc_info=error, extra=extra)
            self.lost -= lost
        except BaseException:  # noqa: BLE001  logging never raises
            self.lost += 1
