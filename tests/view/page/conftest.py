"""The page's scripts in deno."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from javascript import JavaScript


@pytest.fixture(scope="module")
def script(request: pytest.FixtureRequest) -> Iterator[JavaScript]:
    """The functions of the JavaScript module beside the test's module."""
    with JavaScript(request.path.with_suffix(".js")) as running:
        yield running
