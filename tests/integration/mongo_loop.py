"""An event loop for tests with AsyncMongoClient."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def in_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs it, and forgives the driver the socket of a connection that it was making when it was closed (PYTHON-5867).

    The socket is collected here. What was there before is not looked through: after some thousand tests it takes a second.
    """
    gc.freeze()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            return asyncio.run(coroutine)
        finally:
            gc.collect()
            gc.unfreeze()
