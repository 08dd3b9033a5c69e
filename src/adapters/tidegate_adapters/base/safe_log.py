"""Lines of a log that keep nobody from going on: where a filter or a handler of the log raises, the line is lost, and counted.

The next line that is written says how many are missing before it, in its text and as the field `lines_lost`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import final


@final
class Lines:
    """What is said by one logger: to be called.

    Args:
        log: The logger.

    Attributes:
        lost: How many lines are lost that no line has told of.
    """

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
        """Log a line; whatever the log raises (RT4), the line is one that is lost.

        Args:
            level: Of `logging`.
            text: With a place for each of the next.
            about: What stands there.
            error: Whose traceback follows, if any.
            extra: The fields.
        """
        try:
            if not self._log.isEnabledFor(level):
                return
            lost = self.lost
            if lost:
                text, about = f"{text} (%s lines before this one were lost: the log raised)", (*about, lost)
                extra = {**(extra or {}), "lines_lost": lost}
            self._log.log(level, text, *about, exc_info=error, extra=extra)
            self.lost -= lost
        except BaseException:  # noqa: BLE001  it is a line, and no more
            self.lost += 1
