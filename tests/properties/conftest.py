"""Settings of the property tests. Derandomised: one machine's failure is every machine's.

A property runs 30 examples (200 in `make thorough`), or TIDEGATE_EXAMPLES. The search for a planted
bug runs much longer and does not shrink; a change to a test or strategy draws other examples.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings


@pytest.fixture(autouse=True)
def _patience(request: pytest.FixtureRequest) -> Iterator[None]:
    is_planted = any(word in request.node.name for word in ("planted", "_notices"))
    settings.load_profile("planted" if is_planted else "tidegate")
    yield
    settings.load_profile("tidegate")
