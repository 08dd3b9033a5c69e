"""The collections of an orchestrator: each part has one of its own, and all begin with one prefix."""

from __future__ import annotations

from typing import final

import attrs


@final
@attrs.frozen
class Collections:
    """What they are called.

    Attributes:
        prefix: What all of them begin with.
    """

    prefix: str

    @property
    def invocations(self) -> str:
        """The records of invocations."""
        return f"{self.prefix}invocations"

    @property
    def places(self) -> str:
        """Who may run, of those that exclude each other."""
        return f"{self.prefix}places"

    @property
    def meters(self) -> str:
        """How many begin in a time."""
        return f"{self.prefix}meters"

    @property
    def calls(self) -> str:
        """The calls of those of which one at a time is registered."""
        return f"{self.prefix}calls"

    @property
    def members(self) -> str:
        """The processes that run them."""
        return f"{self.prefix}members"

    @property
    def payloads(self) -> str:
        """Large arguments and results."""
        return f"{self.prefix}payloads"

    @property
    def chunks(self) -> str:
        """Their parts."""
        return f"{self.prefix}payload_chunks"

    @property
    def control(self) -> str:
        """What operators have paused."""
        return f"{self.prefix}control"

    @property
    def gates(self) -> str:
        """Who has its turn, of the processes."""
        return f"{self.prefix}gates"

    @property
    def executions(self) -> str:
        """What became of past turns."""
        return f"{self.prefix}executions"

    @property
    def occurrences(self) -> str:
        """What triggers wait for, and has happened."""
        return f"{self.prefix}occurrences"

    @property
    def crons(self) -> str:
        """How far each cron was looked at."""
        return f"{self.prefix}crons"

    @property
    def runs(self) -> str:
        """What triggers have started."""
        return f"{self.prefix}runs"

    @property
    def triggers(self) -> str:
        """The definitions of triggers."""
        return f"{self.prefix}triggers"
