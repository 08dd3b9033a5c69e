"""Settings of the properties: derandomised, so that a failure on one machine is a failure on all.

A property looks at thirty examples (200 in `make thorough`), or at as many as TIDEGATE_EXAMPLES says. A planted bug is searched for much longer,
and shown as it was found: with each change of a test or of a strategy, others are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings


@pytest.fixture(autouse=True)
def _patience(request: pytest.FixtureRequest) -> Iterator[None]:
    """Search for a planted bug until it is found."""
    is_planted = any(word in request.node.name for word in ("planted", "_notices"))
    settings.load_profile("planted" if is_planted else "tidegate")
    yield
    settings.load_profile("tidegate")
