"""What is kept of tidegate's in this process: its objects, and what stands in containers of theirs.

A leak of an object, or of a number in a table, is one more each time; nothing else is, where nothing is in work. What is
simulated keeps all that happened, and is not counted.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_OURS: Final = ("tidegate", "aiokafka")
_SIMULATED: Final = ("tidegate.sim.", "tidegate_adapters.testing.kafka")
_CONTAINERS: Final = (dict, list, set, deque)
_CACHED: Final = "Instant"
"""Of milliseconds, of which a cache has some hundred, sooner or later."""


@contextmanager
def no_others() -> Iterator[None]:
    """What is there already does not count."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def kept() -> Counter[str]:
    """How many objects of ours there are that somebody refers to, and how much is in containers that they refer to, by class."""
    gc.collect()
    ours = [each for each in gc.get_objects() if _is_ours(type(each).__module__)]
    found = Counter(type(each).__qualname__ for each in ours if type(each).__qualname__ != _CACHED)
    held = {id(of): (each, of) for each in ours for of in gc.get_referents(each) if isinstance(of, _CONTAINERS)}
    for each, of in held.values():
        found[f"in_{type(each).__qualname__}"] += len(of)
    return found


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.startswith(_OURS) and not module.startswith(_SIMULATED)
