from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def in_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs it, and collects the socket that the driver leaves open on close (PYTHON-5867)."""
    gc.freeze()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            return asyncio.run(coroutine)
        finally:
            gc.collect()
            gc.unfreeze()
