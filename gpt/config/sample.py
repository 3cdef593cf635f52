"""How characters are drawn: one field for each option, and their order.

A new filter is a field here and a function of the same name in FILTERS of gpt/reading/sampler.py
and gpt/view/page/assets/model/sampler.js.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal

from gpt.config.fields import check_fields, require

Only = Literal["gpt", "counting"]
LONGEST_SAMPLE = 10**12  # characters


@dataclass(frozen=True, kw_only=True)
class SampleConfig:
    """How characters are drawn from the model's distribution."""

    length: Annotated[int, "Characters to generate after the prompt."] = 500
    n: Annotated[int, "Number of samples."] = 1
    temperature: Annotated[float, "Divides the logits; 1 = as learned, 0 = the likeliest."] = 0.8
    top_k: Annotated[int | None, "Only the k likeliest characters (Fan et al. 2018)."] = None
    top_p: Annotated[float | None, "The likeliest that sum to p (Holtzman et al. 2020)."] = None
    min_p: Annotated[float | None, "Only at least p x the largest (Nguyen et al. 2024)."] = None
    typical_p: Annotated[float | None, "Typical characters of mass p (Meister et al. 2023)."] = None
    seed: Annotated[int, "Same seed, same text."] = 1
    only: Annotated[Only | None, "Of a model with counting: what predicts alone."] = None

    def __post_init__(self) -> None:
        check_fields(self)
        require(self.length >= 0, "length", f"{self.length} is less than 0")
        require(self.length <= LONGEST_SAMPLE, "length", f"over {LONGEST_SAMPLE:,} characters")
        require(self.n >= 1, "n", f"{self.n} is less than 1")
        require(self.temperature >= 0, "temperature", f"{self.temperature} is less than 0")
        if self.top_k is not None:
            require(self.top_k >= 1, "top_k", f"{self.top_k} is less than 1")
        if self.top_p is not None:
            require(0 < self.top_p <= 1, "top_p", f"{self.top_p} is not in (0, 1]")
        if self.min_p is not None:
            require(0 <= self.min_p <= 1, "min_p", f"{self.min_p} is not in [0, 1]")
        if self.typical_p is not None:
            require(0 < self.typical_p <= 1, "typical_p", f"{self.typical_p} is not in (0, 1]")
        require(0 <= self.seed < 2**63, "seed", f"{self.seed} is not in [0, 2^63)")


#: Temperature and the filters: what changes the model's distribution, in the order of application.
SHAPING = tuple(
    field.name
    for field in fields(SampleConfig)
    if field.name not in ("length", "n", "seed", "only")
)
