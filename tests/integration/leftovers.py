"""Tidegate's live objects and the sizes of their containers: a leak adds one each time.

Simulated parts keep their history and do not count.
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


@contextmanager
def no_others() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def kept() -> Counter[str]:
    gc.collect()
    ours = [each for each in gc.get_objects() if _is_ours(type(each).__module__)]
    found = Counter(type(each).__qualname__ for each in ours if type(each).__qualname__ != _CACHED)
    held = {id(of): (each, of) for each in ours for of in gc.get_referents(each) if isinstance(of, _CONTAINERS)}
    for each, of in held.values():
        found[f"in_{type(each).__qualname__}"] += len(of)
    return found


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.startswith(_OURS) and not module.startswith(_SIMULATED)
