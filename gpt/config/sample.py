"""How characters are drawn: one field for each option, in the order in which they apply.

A new filter is a field here and a function of the same name in FILTERS of gpt/reading/sampler.py
and gpt/page/assets/model/sampler.js.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from gpt.config.fields import Amount, Count, Options, Whole, fields_of, option

Only = Literal["gpt", "counting"]
LONGEST_SAMPLE = 10**12  # characters


@dataclass(frozen=True, kw_only=True)
class Shaping(Options):
    """How the model's distribution of the next character changes before one is drawn."""

    temperature: Annotated[
        Amount, option("Divides the logits; 1 = as learned, 0 = the likeliest.")
    ] = 0.8
    top_k: Annotated[
        Count | None, option("Keep only the k likeliest characters (Fan et al. 2018).")
    ] = None
    top_p: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        option("Keep the likeliest characters that sum to p (Holtzman et al. 2020)."),
    ] = None
    min_p: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        option("Keep characters with at least p x the largest probability (Nguyen et al. 2024)."),
    ] = None
    only: Annotated[
        Only | None, option("In a model with counting: predict with this part alone.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SampleConfig(Shaping):
    """How characters are drawn from the model's distribution."""

    length: Annotated[
        int, Meta(ge=0, le=LONGEST_SAMPLE), option("Characters to generate after the prompt.")
    ] = 500
    n: Annotated[Count, option("Number of samples.")] = 1
    seed: Annotated[Whole, option("Same seed, same text.")] = 1


#: Temperature and the filters: the options that change the model's distribution, in this order.
DISTRIBUTION_OPTIONS = tuple(name for name in fields_of(Shaping) if name != "only")
