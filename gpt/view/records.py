"""Numbers and checks for programs: what JSON and the page have in common."""

from __future__ import annotations

import math
from typing import Any

from gpt.checks import Check


def rounded(values: Any) -> Any:
    """A number, or nested lists of numbers: floats with the nine digits that float32 needs.

    None replaces what is not finite; whole numbers stay whole.
    """
    if isinstance(values, list):
        return [rounded(value) for value in values]
    if isinstance(values, int):
        return values
    return float(f"{values:.9g}") if math.isfinite(values) else None


def check_record(check: Check) -> dict[str, Any]:
    """One check; error is None where it is not finite."""
    error = rounded(check.error)
    return {"name": check.name, "error": error, "bound": check.bound, "passed": check.passed}
