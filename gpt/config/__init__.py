"""The options of models, trainings, runs, samples and questions, as frozen dataclasses that check
their values; and the names that options have for stages and views of attention.

A field is an option: the field's name is the flag, the keyword and the key in TOML, its `Annotated`
text is the help, its type is the keyword's type in typed.pyi. There is no second list of options.
Uses no torch, no text and no files.
"""

from __future__ import annotations

from typing import Literal

from gpt.config.model import DrawnStage, ModelConfig, Stage
from gpt.config.questions import (
    Ablation,
    AttnConfig,
    EvalConfig,
    HeadsConfig,
    Unknown,
    WhyConfig,
)
from gpt.config.sample import SampleConfig
from gpt.config.train import RunConfig, TrainConfig

__all__ = [
    "Ablation",
    "AttnConfig",
    "DrawnStage",
    "EvalConfig",
    "HeadsConfig",
    "ModelConfig",
    "RunConfig",
    "SampleConfig",
    "Stage",
    "TrainConfig",
    "Unknown",
    "View",
    "WhyConfig",
]

View = Literal["auto", "numbers", "heat", "top", "heads"]
