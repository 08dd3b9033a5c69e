"""The collections of an orchestrator, which share a prefix."""

from __future__ import annotations

from typing import final

import attrs


@final
@attrs.frozen
class Collections:
    """The names of the collections."""

    prefix: str

    @property
    def invocations(self) -> str:
        return f"{self.prefix}invocations"

    @property
    def places(self) -> str:
        """The slots of concurrency limits."""
        return f"{self.prefix}places"

    @property
    def meters(self) -> str:
        """The state of rate limits."""
        return f"{self.prefix}meters"

    @property
    def calls(self) -> str:
        """The waiting calls of `unique` tasks."""
        return f"{self.prefix}calls"

    @property
    def members(self) -> str:
        return f"{self.prefix}members"

    @property
    def payloads(self) -> str:
        return f"{self.prefix}payloads"

    @property
    def chunks(self) -> str:
        return f"{self.prefix}payload_chunks"

    @property
    def control(self) -> str:
        """Pauses."""
        return f"{self.prefix}control"

    @property
    def gates(self) -> str:
        """The current service turn."""
        return f"{self.prefix}gates"

    @property
    def executions(self) -> str:
        return f"{self.prefix}executions"

    @property
    def occurrences(self) -> str:
        """Occurrences that triggers wait for."""
        return f"{self.prefix}occurrences"

    @property
    def crons(self) -> str:
        """The progress of each cron."""
        return f"{self.prefix}crons"

    @property
    def runs(self) -> str:
        return f"{self.prefix}runs"

    @property
    def triggers(self) -> str:
        return f"{self.prefix}triggers"
