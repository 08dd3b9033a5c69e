"""The clocks of machines. The store's clock is another one: it moves by quanta (`tidegate.sim.scenario.Clock`).

A machine's clock shows the store's time, plus how far it is ahead, plus what it has drifted by then. How far it is ahead
is a duration, so it is the same whether instants are kept absolute or relative to now. Only who reads a clock can tell
(`Now`), and that makes time absolute. So skew and jumps need no steps of their own: they strike when the clock is read.

    skew             ahead or behind by `skew`, since before it was first read
    clock_forward    set forward by `jump` since it was last read
    clock_back       set back by `jump` since it was last read
    drift            it runs fast or slow: no fault, but how the machine is

A sleep is measured by the machine that sleeps, which sets do not change, and drift does.

A stall is a machine that stands while the store's time goes on. Where the clock of the scenario moves, that is free: time
may pass at any point while anybody stands. Where it stands still, or its moves are few, `stall` counts it as a fault.

Laws
    CL1  Without faults and drift a machine's clock shows the store's time.
    CL2  A machine sleeps for as long as it asked for by its own clock: on the store's, for as long if it does not drift.
    CL3  With a clock that is ahead by s all that its machine reads is later by s, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.instants import WALL, Duration, Instant, seconds
from tidegate.model.values import check_int
from tidegate.sim.faults import Fault, Faults, spent
from tidegate.sim.world import CLOCK, Cell, World

_MILLION: Final = 1_000_000
DRIFT_MAX: Final = 100_000
"""A tenth. Clocks of computers drift by less than 500 parts per million."""


@final
@attrs.frozen
class Host:
    """The machine that a process runs on, as far as its clock is concerned.

    Invariants: 0 <= skew, jump, stall; |drift| <= DRIFT_MAX. What is 0 does not strike.

    Attributes:
        name: Processes on hosts of one name share the clock, so all else of them is equal too; "" for a host of one's own.
        skew: How far it may be ahead or behind.
        jump: How far it may be set.
        drift: By how many parts per million it is fast.
        stall: How long it may stand.
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
        """How long a sleep of that duration takes by the store's clock."""
        return duration * _MILLION // (_MILLION + self.drift)

    def shows(self, at: int, ahead_by: Duration) -> Instant:
        """What its clock shows at that time of the store's, if it was set ahead by so much."""
        return Instant(at + ahead_by + at * self.drift // _MILLION, WALL)


HOST: Final = Host()


def check_hosts(hosts: Iterable[Host], where: str) -> None:
    """Raise Misuse if two hosts of one name differ: one machine has one clock, which is skewed and drifts in one way."""
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
    """By how much the clock that the process reads was set; None until it is first read.

    Args:
        process: Its name.
        host: The name of its machine; "" for a machine of its own, which may be called as a named one is.
    """
    return Cell(("ahead", "host", host) if host else ("ahead", process), None)


def _read_clock(host: Host, process: str, world: World, ahead_by: Duration) -> tuple[World, Instant]:
    """What the clock of the host shows that is so far ahead, apart from its drift."""
    cell = ahead(process, host.name)
    at, known = world.read(CLOCK).at, world.read(cell)
    if ahead_by != (known or 0) or (known is None and host.skew):  # by now it is known whether it is skewed
        world = world.write(cell, ahead_by)
    return world, host.shows(at, ahead_by)


def readings(host: Host, process: str, world: World) -> tuple[World, Instant]:
    """What the clock of the machine of the process shows."""
    return _read_clock(host, process, world, world.read(ahead(process, host.name)) or 0)


def troubled_readings(
    host: Host, process: str, world: World, faults: Faults
) -> Iterator[tuple[Fault, str, World, Instant]]:
    """What its clock may show if something has happened to it: which fault, in words, world after, reading."""
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
