"""Where results find their renderer: `gpt` sets `renderer`, so a result imports no higher layer."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes as long as all the rest of `import gpt`
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: Imports and returns the module that shows results, saves them and makes DataFrames of them.
renderer: Callable[[], Any]
