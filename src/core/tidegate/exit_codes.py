"""The exit codes of the command line; part of the public interface.

The report names the kind of violation; there are no more codes for that.
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
    """A scenario expected to be clean was violated, or vice versa; or another law was broken; or a
    server does not answer.
    """
    USAGE = 2
    """The command line, the configuration or a target is wrong, or an extra is missing."""
    RAISED = 3
    """A scenario raised an error outside the model, tidegate itself failed, or its worker processes
    died.
    """
    DIVERGED = 4
    """A replay diverged from the recording, or a program is nondeterministic."""
    NOTHING_SELECTED = 5
    """There is nothing to run."""
    INCONCLUSIVE = 6
    """A bound was reached, the runs were sampled, or a goal was not reached."""
    INTERRUPTED = 130
    """SIGINT; results so far were reported, or a worker has left its group."""
    BROKEN_PIPE = 141
    """The reader of the output has closed it."""
    TERMINATED = 143
    """SIGTERM; as for SIGINT."""
