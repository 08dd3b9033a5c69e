"""A counter that counts each increment exactly once, with any network faults.

In reading order:
    counter     the two steps of an increment and the sweep, as decisions on one record
    increments  the programs that send them: `increment` and `sweep`
"""

from typing import TYPE_CHECKING

from tidegate._lazy import lazy

if TYPE_CHECKING:
    from tidegate.counters.counter import Counter, decide_increment, decide_sweep, new_counter
    from tidegate.counters.increments import increment, sweep, sweep_all
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "Counter", "decide_increment", "decide_sweep", "increment", "new_counter", "sweep", "sweep_all",
]  # fmt: skip
