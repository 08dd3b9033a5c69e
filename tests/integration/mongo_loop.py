from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def in_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs it, and ignores the unclosed socket of a connection that the driver opened during close
    (PYTHON-5867).

    The socket is collected here, without scanning older objects: after thousands of tests that
    takes 1 s.
    """
    gc.freeze()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            return asyncio.run(coroutine)
        finally:
            gc.collect()
            gc.unfreeze()
