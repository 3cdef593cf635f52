"""Who shows results: `gpt` sets `renderer`, so that a result does not import what is above it."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own; its import takes as long as all the rest of `import gpt`
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: Imports and returns the module that shows and saves results and makes them DataFrames.
renderer: Callable[[], Any]
