"""The options of a model, its training and a sample: frozen dataclasses that check their values,
and the names that options have for the stages and views of attention.

A field's `Annotated` text is its help on the command line, and its comment in a run's config.toml;
there is no second list of options. Uses no torch, no text and no files.
"""

from __future__ import annotations

from typing import Literal

from gpt.config.model import ModelConfig
from gpt.config.sample import SampleConfig
from gpt.config.train import TrainConfig

__all__ = [
    "AttentionKind",
    "Drawing",
    "ModelConfig",
    "SampleConfig",
    "Scale",
    "Stage",
    "TrainConfig",
    "View",
]

Stage = Literal["scores", "scaled", "masked", "weights", "context", "concat", "proj", "residual"]
Drawing = Literal["auto", "numbers", "heat", "top", "heads"]
View = Literal[Drawing, "rollout", "lens"]
Scale = Literal["fixed", "row"]
#: Kinds of attention; a model without an encoder has only the decoder's self-attention.
AttentionKind = Literal["encoder", "decoder", "cross"]
