"""Settings of the properties: derandomised, so that a failure on one machine is a failure on all.

A property looks at fifty examples, or at as many as TIDEGATE_EXAMPLES says. A planted bug is searched for much longer,
and shown as it was found: which examples are drawn also depends on the constants of the modules that are loaded, and so on
which tests run together.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings


@pytest.fixture(autouse=True)
def _patience(request: pytest.FixtureRequest) -> Iterator[None]:
    """Search for a planted bug until it is found."""
    settings.load_profile("planted" if "planted" in request.node.name else "tidegate")
    yield
    settings.load_profile("tidegate")
