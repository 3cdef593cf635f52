"""The options of models, trainings, runs, samples and questions, as frozen dataclasses whose fields
are flags, keywords and keys in TOML (fields.py); and the names of stages and views of attention.

Uses no torch, no text and no files.
"""

from __future__ import annotations

from typing import Literal

from gpt.config.model import (
    Ablation,
    AttnConfig,
    DrawnStage,
    EvalConfig,
    HeadsConfig,
    ModelConfig,
    ModelOptions,
    SampleConfig,
    Shaping,
    Stage,
    Unknown,
    WhyConfig,
)
from gpt.config.train import RunConfig, TrainConfig

__all__ = [
    "Ablation",
    "AttnConfig",
    "DrawnStage",
    "EvalConfig",
    "HeadsConfig",
    "ModelConfig",
    "ModelOptions",
    "RunConfig",
    "SampleConfig",
    "Shaping",
    "Stage",
    "TrainConfig",
    "Unknown",
    "View",
    "WhyConfig",
]

View = Literal["auto", "numbers", "heat", "top", "heads"]
