"""The progress of a search: a live line on a terminal, else a plain line now and then."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from os import get_terminal_size
from time import monotonic
from typing import Final, TypeAlias

from tidegate.sim.search.search import Progress
from tidegate.sim.search.sizing import rounded
from tidegate_adapters.base.redaction import one_line
from tidegate_adapters.shell.terminal import Terminal

Show: TypeAlias = Callable[[Progress], None]

_REFRESHES_PER_S: Final = 4
_PLAIN_INTERVAL_S: Final = 15.0
_COLUMNS: Final = 80
"""For a terminal without a known width."""
_ERASE_TO_END: Final = "\x1b[K"


@contextmanager
def shown(title: str, terminal: Terminal, *, quiet: bool) -> Generator[Show]:
    """Show progress on stderr until the block ends."""
    if quiet:
        yield lambda _: None
    elif terminal.err.isatty() and terminal.environ.get("TERM") != "dumb":
        with _live(title, terminal) as show:
            yield show
    else:
        yield sparse(title, terminal)


@contextmanager
def _live(title: str, terminal: Terminal) -> Generator[Show]:
    began, shows_at = monotonic(), 0.0

    def show(progress: Progress) -> None:
        nonlocal shows_at
        now = monotonic()
        if now >= shows_at:
            shows_at = now + 1 / _REFRESHES_PER_S
            write(f"{_line(title, progress)}  {now - began:.0f} s")

    def write(line: str) -> None:
        terminal.err.write(f"\r{line[: _columns(terminal) - 1]}{_ERASE_TO_END}")
        terminal.err.flush()

    write(one_line(title))
    try:
        yield show
    finally:
        write("")


def _columns(terminal: Terminal) -> int:
    said = terminal.environ.get("COLUMNS", "")
    with suppress(OSError):  # not a terminal
        return int(said) if said.isdecimal() else get_terminal_size(terminal.err.fileno()).columns or _COLUMNS
    return _COLUMNS


def foretelling(show: Show, title: str, terminal: Terminal, states_max: int) -> Show:
    """Warn as soon as the search is expected to exceed `states_max` or may be infinite."""
    is_said = False
    is_warned = False

    def tell(progress: Progress) -> None:
        nonlocal is_said, is_warned
        show(progress)
        if progress.growing and not is_warned:
            is_warned = True
            for each in progress.growing:
                terminal.tell(f"warning: {one_line(title)}: {one_line(each)}")
        if not is_said and progress.expected is not None and progress.expected > states_max:
            is_said = True
            terminal.tell(
                f"warning: {one_line(title)}: about {rounded(progress.expected)} states are expected, and the search ends"
                f" after {states_max:,}: raise --max-states, allow fewer --faults, or sample with --runs"
            )

    return tell


def sparse(title: str, terminal: Terminal, clock: Callable[[], float] = monotonic) -> Show:
    """A line for a log, every 15 s."""
    began = last = clock()

    def show(progress: Progress) -> None:
        nonlocal last
        now = clock()
        if now - last >= _PLAIN_INTERVAL_S:
            last = now
            terminal.tell(f"{_line(title, progress)}  {now - began:.0f} s")

    return show


def _line(title: str, progress: Progress) -> str:
    of = "" if progress.expected is None else f" of about {rounded(progress.expected)}"
    return (
        f"{one_line(title)}  {progress.states:,} states{of}  {progress.transitions:,} transitions"
        f"  depth {progress.depth}  {progress.waiting:,} waiting"
    )
