"""What was proven about numbers, and how tightly. Knows neither who computed them nor a screen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """A check: `error` must be at most `bound`. group: title of several checks, if any."""

    name: str
    error: float
    bound: float
    group: str = ""

    @property
    def passed(self) -> bool:
        return self.error <= self.bound  # False for NaN
