"""The options of questions to a trained model: what its heads do, how well it predicts a text, what
its page contains.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from gpt.config.fields import Checked, Range, require

Ablation = Literal["mean", "zero", "resample"]
#: What to do with characters that a model does not know. fold: replace those that mean the same as
#: known ones (vocabulary.fold), fail for others; skip: as fold, but leave the others out; error:
#: fail for all.
Unknown = Literal["fold", "skip", "error"]
WeightPrecision = Literal["auto", "float32", "float16"]


@dataclass(frozen=True, kw_only=True)
class AttnConfig(Checked):
    """Which part of a text the attention is shown of."""

    truncate: Annotated[bool, "If the text is longer than the context, use its end."] = False


@dataclass(frozen=True, kw_only=True)
class HeadsConfig(Checked):
    """How heads are measured."""

    windows: Annotated[int, "Most windows of text to measure on.", Range(1)] = 32
    ablate: Annotated[
        Ablation | None,
        "How much the loss rises if a head's output becomes its mean, 0, or another window's.",
    ] = None
    paths: Annotated[
        bool, "With `ablate`: also how much it rises along each path from a head to a later one."
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.ablate) or not self.paths, "paths", "needs `ablate`, as in `ablate=mean`")


@dataclass(frozen=True, kw_only=True)
class WhyConfig(Checked):
    """Which logit to explain, and whether to show the paths through the heads, too."""

    char: Annotated[str | None, "The next character to explain.", "the likeliest"] = None
    against: Annotated[
        str | None, "Explain the difference from this character's logit.", "none"
    ] = None
    truncate: Annotated[bool, "If the text is longer than the context, use its end."] = False
    paths: Annotated[
        bool, "Also show the effect of each head along each path, to a later head or to the logit."
    ] = False
    ablate: Annotated[
        Literal["mean", "zero"],
        "What replaces a head's output on a path: its mean over the validation split, or 0.",
    ] = "mean"


@dataclass(frozen=True, kw_only=True)
class NeuronsConfig(Checked):
    """How the units of feed-forward layers are measured."""

    windows: Annotated[int, "Most windows of text to measure on.", Range(1)] = 32
    ablate: Annotated[
        Ablation | None,
        "How much the loss rises if a shown unit's value becomes its mean, 0, or that of another "
        "window.",
    ] = None
    sort: Annotated[
        str | None,
        "Sort by a measure, named as in --json: quotes, line, ablation …",
        "the strongest unit of each name first",
    ] = None
    top: Annotated[int, "How many units to show.", Range(1)] = 12
    unit: Annotated[
        str | None,
        "One unit, as L1N37: layer 1, unit 37; its strongest passages, the logits that it changes.",
    ] = None
    on: Annotated[str | None, "A text, at most as long as the context, to colour by `unit`."] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.unit is not None or self.on is None, "on", "give the unit that colours it: `unit`"
        )


@dataclass(frozen=True, kw_only=True)
class EvalConfig(Checked):
    """What to compute for a text beside its loss."""

    chars: Annotated[
        bool, "Colour each character by its surprisal, with half a window of context or more."
    ] = False
    baseline: Annotated[bool, "Also compare a text with n-gram counts of the training text."] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class LiveConfig(Checked):
    """What the page that contains the model shows."""

    precision: Annotated[
        WeightPrecision, "Weights in the file; auto: float32 if all fits, else float16."
    ] = "auto"
    limit: Annotated[float, "Largest file, in MB.", Range(0.1, 2000)] = 8.0
    tour: Annotated[
        Path | None,
        "A file with the captioned stops of a guided tour of the page; none: no tour.",
        "built-in for repeats",
    ] = None
