"""What tidegate's command line tells a script by its exit code; part of the public interface.

The report says which kind of violation it is; there are no more codes for that.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import final


@final
@unique
class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    """Every expectation is met; or a trace was reproduced as recorded."""
    NOT_MET = 1
    """A scenario that was expected to be clean was violated, or the other way round; or another law was broken; or a
    server does not answer."""
    USAGE = 2
    """The command line, the configuration or a target is wrong, or an extra is missing."""
    RAISED = 3
    """A scenario raised an error outside the model, tidegate itself did, or its worker processes died."""
    DIVERGED = 4
    """A replay took another way than was recorded, or a program is nondeterministic."""
    NOTHING_SELECTED = 5
    """There is nothing to run."""
    INCONCLUSIVE = 6
    """A bound was reached, the runs were sampled, or a goal was not reached."""
    INTERRUPTED = 130
    """SIGINT; what was found until then was reported, or a worker has left its group."""
    BROKEN_PIPE = 141
    """Whoever reads the answer has left."""
    TERMINATED = 143
    """SIGTERM; likewise."""
