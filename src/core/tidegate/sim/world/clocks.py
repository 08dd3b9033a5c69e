"""The clocks of machines. The store's clock is `tidegate.sim.scenario.Clock`.

A machine's clock shows the store's time plus an offset plus its drift so far. Only a program that
reads it (`Now`) can observe the offset, and reading makes time absolute. So skew and jumps need no
steps: they strike at the reading.

    skew             ahead or behind by `skew` since before the first reading
    clock_forward    set forward by `jump` since the last reading
    clock_back       set back by `jump` since the last reading
    drift            fast or slow: a property of the machine, not a fault

The sleeping machine measures a sleep. Drift affects the length; setting the clock does not.

In a stall the machine pauses while the store's time passes. That is free if the scenario's clock
moves. If the clock is still or has few moves, `stall` counts it as a fault.

Laws
    CL1  Without faults and drift a machine's clock shows the store's time.
    CL2  A machine sleeps as long as requested by its own clock; without drift, also by the store's.
    CL3  If a clock is ahead by s, every reading of its machine is later by s, and nothing else
         changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.instants import WALL, Duration, Instant, seconds
from tidegate.model.values import check_int
from tidegate.sim.world.faults import Fault, Faults, spent
from tidegate.sim.world.world import CLOCK, Cell, World

_MILLION: Final = 1_000_000
DRIFT_MAX: Final = 100_000
"""A tenth. Computer clocks drift by less than 500 parts per million."""


@final
@attrs.frozen
class Host:
    """The machine of a process, as far as its clock matters.

    Invariants: 0 <= skew, jump, stall; |drift| <= DRIFT_MAX. A value of 0 never strikes.

    Attributes:
        name: Processes on hosts of one name share the clock and all settings; "" for an unshared
            host.
        skew: Maximum initial offset, ahead or behind.
        jump: How far the clock may be set.
        drift: Parts per million by which it is fast.
        stall: Length of a stall.
    """

    name: str = ""
    skew: Duration = 0
    jump: Duration = 0
    drift: int = 0
    stall: Duration = 0

    def __attrs_post_init__(self) -> None:
        for duration in (self.skew, self.jump, self.stall):
            check_int(duration, "a duration in microseconds", 0)
        check_int(self.drift, "a drift in parts per million", -DRIFT_MAX, DRIFT_MAX)

    def lasts(self, duration: Duration) -> Duration:
        return duration * _MILLION // (_MILLION + self.drift)

    def shows(self, at: int, ahead_by: Duration) -> Instant:
        return Instant(at + ahead_by + at * self.drift // _MILLION, WALL)


HOST: Final = Host()


def check_hosts(hosts: Iterable[Host], where: str) -> None:
    known: dict[str, Host] = {}
    for host in hosts:
        if host.name and known.setdefault(host.name, host) != host:
            raise Misuse(
                f"two hosts are called {host.name!r} and differ: {known[host.name]} and {host}",
                where=where,
                why="processes on hosts of one name share one clock",
                todo="give all of them the same `Host`, or hosts of other names",
            )


def ahead(process: str, host: str = "") -> Cell[Duration | None]:
    """The offset of the clock that the process reads; None before its first reading.

    Args:
        process: Its name.
        host: The name of its machine; "" for an unshared one, which may have the same name as a
            shared one.
    """
    return Cell(("ahead", "host", host) if host else ("ahead", process), None)


def _read_clock(host: Host, process: str, world: World, ahead_by: Duration) -> tuple[World, Instant]:
    cell = ahead(process, host.name)
    at, known = world.read(CLOCK).at, world.read(cell)
    if ahead_by != (known or 0) or (known is None and host.skew):  # from now on it is known whether the clock is skewed
        world = world.write(cell, ahead_by)
    return world, host.shows(at, ahead_by)


def readings(host: Host, process: str, world: World) -> tuple[World, Instant]:
    return _read_clock(host, process, world, world.read(ahead(process, host.name)) or 0)


def troubled_readings(
    host: Host, process: str, world: World, faults: Faults
) -> Iterator[tuple[Fault, str, World, Instant]]:
    """The faulty readings of the clock: the fault, its description, the next world, the reading."""
    known = world.read(ahead(process, host.name))
    for fault, by, happened in (
        (Fault.SKEW, host.skew, "is ahead by"),
        (Fault.SKEW, -host.skew, "is behind by"),
        (Fault.CLOCK_FORWARD, host.jump, "was set forward by"),
        (Fault.CLOCK_BACK, -host.jump, "was set back by"),
    ):
        if not by or not faults.allows(fault) or (fault is Fault.SKEW and known is not None):
            continue
        if after := spent(world, fault):
            yield (
                fault,
                f"the clock {happened} {seconds(abs(by))}",
                *_read_clock(host, process, after, (known or 0) + by),
            )
