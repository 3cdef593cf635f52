"""How characters are drawn: one field for each option, in the order in which they apply.

A new filter of one distribution is a field of Shaping and a function of the same name in FILTERS of
gpt/reading/sampler.py and gpt/page/assets/model/sampler.js. What depends on the text so far is a
field of SampleConfig; the page does not have it.
"""

from __future__ import annotations

import os
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
    seed: Annotated[
        Whole | None, option("Same seed, same text; without it a new one, printed on stderr.")
    ] = None
    keep_stop: Annotated[bool, option("Keep the text of `stop` at the end.")] = False
    ban: Annotated[str | None, option("Never write one of these characters.")] = None
    repetition: Annotated[
        Amount | None,
        option(
            "Lower the logit of what would repeat a passage of the last 1,000 characters, by this "
            "for each character of it from the 6th on."
        ),
    ] = None
    avoid_copies: Annotated[
        Count | None,
        option("Write no passage of more than N characters that stands in the training text."),
    ] = None


def seed_of(config: SampleConfig) -> int:
    """The seed of samples; a new one of at most 8 digits if the options have none."""
    return int.from_bytes(os.urandom(3), "big") if config.seed is None else config.seed


#: Temperature and the filters: the options that change the model's distribution, in this order.
DISTRIBUTION_OPTIONS = tuple(name for name in fields_of(Shaping) if name != "only")
