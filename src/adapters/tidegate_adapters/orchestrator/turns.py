"""The settings for sharing service turns among processes.

Differences from pynenc: a cycle of a minute, not five, and a margin of a second, not a minute. One
clock judges, and rounds run every second, not once a cycle, so there is room for 18.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, final

import attrs

from tidegate.invocations.upkeep.recovery import Patience
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, PPM, duration
from tidegate.model.values import check_int, check_type
from tidegate.retries.schedule import Schedule
from tidegate.services.atomic_service import AtomicService, Claiming, NoWindows, ShortWindow, StartUp, check_start_up
from tidegate.services.retention import Retention
from tidegate_adapters.base.crons import check_cron
from tidegate_adapters.base.decorators import check_lengths, check_unit

_PERIOD: Final = Claiming()


@final
@attrs.frozen(kw_only=True)
class ServiceRules:
    """How the processes of an app share service turns.

    Invariants: those of `AtomicService` and `Claiming`; 1 <= processes; 1 ms <= check_every,
    round_every; each of `processes` has a window and checks within it.

    Attributes:
        processes: The number of processes to support.
        interval: The cycle in which each process has one turn.
        spread: The margin at the end of each turn.
        stabilisation: How long a new process is excluded.
        start_fraction_ppm: The part of a window that may pass before a turn begins.
        check_every: How often each process checks for the turn.
        margin: The part of a window that must remain when a turn begins.
        round_every: The interval of rounds within a turn.
        keep: The retention of past turns.
        recover: A cron.
        pending_max: How long an invocation of a live owner may wait for its slot.
        purge: A cron.
    """

    processes: int = 8
    interval: timedelta = timedelta(minutes=1)
    spread: timedelta = timedelta(seconds=1)
    stabilisation: timedelta = timedelta(0)
    start_fraction_ppm: int = PPM // 2
    check_every: timedelta = timedelta(seconds=1)
    margin: timedelta = timedelta(milliseconds=50)
    round_every: timedelta = timedelta(seconds=1)
    keep: Retention = attrs.field(factory=Retention)
    recover: str = "* * * * *"
    pending_max: timedelta = timedelta(minutes=1)
    purge: str = "17 * * * *"

    def __attrs_post_init__(self) -> None:
        check_int(self.processes, "processes", 1)
        check_lengths(
            self, interval=1, spread=0, stabilisation=0, check_every=MILLISECOND, margin=0, round_every=MILLISECOND,
            pending_max=1,
        )  # fmt: skip
        check_type(self.keep, Retention, "keep")
        check_unit(self.keep, "keep")
        for cron in (self.recover, self.purge):
            check_cron(Schedule(cron).expression)
        _ = self.patience
        found = self.start_up
        wrong = [each for each in found.concerns if not isinstance(each, ShortWindow)]
        if wrong:
            raise Misuse(
                f"{self.processes} processes cannot share these turns: {wrong[0]}",
                why=f"{found.runners_max} have windows, and {found.polled_max} are sure to ask in theirs",
                todo="make the interval longer, the spread shorter"
                + ("" if isinstance(wrong[0], NoWindows) else ", or ask more often"),
            )

    @property
    def patience(self) -> Patience:
        return Patience(pending_max=duration(self.pending_max))

    @property
    def service(self) -> AtomicService:
        return AtomicService(
            interval=self.interval, spread=self.spread, stabilisation=self.stabilisation, start_fraction_ppm=self.start_fraction_ppm
        )  # fmt: skip

    @property
    def start_up(self) -> StartUp:
        claiming = attrs.evolve(
            _PERIOD, check_interval=duration(self.check_every), run_margin_min=duration(self.margin)
        )
        return check_start_up(self.service, claiming, self.processes)
