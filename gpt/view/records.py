"""Numbers, checks and measures for programs: what JSON and the page have in common."""

from __future__ import annotations

import math
from typing import Any

from gpt.checks import Check
from gpt.heads.measures import Measure


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


def measure_record(measure: Measure) -> dict[str, Any]:
    """A measure of every head: values and standard errors are (layers, heads)."""
    return {
        "name": measure.name,
        "explained": measure.explained,
        "uniform": rounded(measure.uniform),
        "windows": measure.windows,
        "values": rounded(measure.values.tolist()),
        "errors": rounded(measure.errors.tolist()),
    }
