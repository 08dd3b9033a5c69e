"""A few searches are cut short in `make test`, so that it ends in minutes; `make thorough` makes them at full length."""

from __future__ import annotations

import os
from typing import Final

AT_LENGTH: Final = bool(os.environ.get("TIDEGATE_AT_LENGTH"))
