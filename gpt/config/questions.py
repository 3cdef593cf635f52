"""The options of questions to a trained model: what its heads do, and how well it predicts a
text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from gpt.config.fields import Count, Options, option

Ablation = Literal["mean", "zero", "resample"]
#: What to do with characters that a model does not know. fold: replace those that mean the same as
#: known ones (vocabulary.fold), fail for others; skip: as fold, but leave the others out; error:
#: fail for all.
Unknown = Literal["fold", "skip", "error"]
OnUnknown = Annotated[
    Unknown,
    option(
        "Characters that the model does not know: fold reads them as known ones with the "
        "same meaning, skip also leaves out the others, error does neither."
    ),
]


@dataclass(frozen=True, kw_only=True)
class AttnConfig(Options):
    """Which part of a text the attention is shown of."""

    truncate: Annotated[bool, option("If the text is longer than the context, use its end.")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class HeadsConfig(Options):
    """How heads are measured."""

    windows: Annotated[Count, option("Most windows of text to measure on.")] = 32
    ablate: Annotated[
        Ablation | None,
        option(
            "The loss without a head: with its output replaced by its mean, 0, or another window's."
        ),
    ] = "mean"


@dataclass(frozen=True, kw_only=True)
class WhyConfig(Options):
    """Which logit to explain."""

    char: Annotated[str | None, option("The next character to explain.", "the likeliest")] = None
    against: Annotated[
        str | None, option("Explain the difference from this character's logit.", "none")
    ] = None
    truncate: Annotated[bool, option("If the text is longer than the context, use its end.")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class EvalConfig(Options):
    """What to compute for a text beside its loss."""

    chars: Annotated[
        bool,
        option("Colour each character by its surprisal, with half a window of context or more."),
    ] = False
