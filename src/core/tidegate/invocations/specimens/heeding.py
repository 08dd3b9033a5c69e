"""Two ways to look after what is in the name of a runner wrongly. Each differs from `tidegate.invocations.heeding` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.dispatch import Heeded, Run, Stray
from tidegate.invocations.heeding import heed
from tidegate.invocations.scenarios.heeding import FOUND, KEPT, unheard
from tidegate.invocations.specimens.taking import planted

__all__ = ["SPECIMENS"]


async def looks_after_its_runs_alone(
    records: str, owner: str, runs: tuple[Run, ...], strays: tuple[Stray, ...]
) -> Heeded:
    """A beat asks for what the process runs, and for nothing else."""
    del strays
    return attrs.evolve(await heed(records, owner, runs), strays=())


async def whatever_is_in_its_name(records: str, owner: str, runs: tuple[Run, ...], strays: tuple[Stray, ...]) -> Heeded:
    """All that is in its name is given back, as where a process begins anew."""
    del runs
    return await heed(records, owner, (), strays)


SPECIMENS: Final = (
    planted(
        "taking.unheard.looks_after_its_runs_alone",
        looks_after_its_runs_alone,
        partial(unheard, looks_after_its_runs_alone),
        FOUND,
        "A run by seed: the store refused the look that followed a take, and what was taken stood for as long as its process.",
    ),
    planted(
        "taking.unheard.whatever_is_in_its_name",
        whatever_is_in_its_name,
        partial(unheard, whatever_is_in_its_name),
        KEPT,
        "Planted: workers that give back all that is theirs when they begin, under a name that they had before.",
    ),
)
