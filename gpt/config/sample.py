"""How characters are drawn: one field for each option, in the order in which they apply.

A new filter is a field here and a function of the same name in FILTERS of gpt/reading/sampler.py
and gpt/view/page/assets/model/sampler.js.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal

from gpt.config.fields import Checked, Range

Only = Literal["gpt", "counting"]
LONGEST_SAMPLE = 10**12  # characters


@dataclass(frozen=True, kw_only=True)
class SampleConfig(Checked):
    """How characters are drawn from the model's distribution."""

    length: Annotated[int, "Characters to generate after the prompt.", Range(0, LONGEST_SAMPLE)] = (
        500
    )
    n: Annotated[int, "Number of samples.", Range(1)] = 1
    temperature: Annotated[
        float, "Divides the logits; 1 = as learned, 0 = the likeliest.", Range(0)
    ] = 0.8
    top_k: Annotated[
        int | None, "Keep only the k likeliest characters (Fan et al. 2018).", Range(1)
    ] = None
    top_p: Annotated[
        float | None,
        "Keep the likeliest characters that sum to p (Holtzman et al. 2020).",
        Range(above=0, most=1),
    ] = None
    min_p: Annotated[
        float | None,
        "Keep characters with at least p x the largest probability (Nguyen et al. 2024).",
        Range(0, 1),
    ] = None
    seed: Annotated[int, "Same seed, same text.", Range(0, below=2**63)] = 1
    only: Annotated[Only | None, "In a model with counting: predict with this part alone."] = None


#: Temperature and the filters: the options that change the model's distribution, in this order.
DISTRIBUTION_OPTIONS = tuple(
    field.name
    for field in fields(SampleConfig)
    if field.name not in ("length", "n", "seed", "only")
)
