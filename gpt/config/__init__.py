"""The options of a model, its training and a sample: frozen dataclasses that check their values.

A field's `Annotated` text is its help on the command line, and its comment in a run's config.toml;
there is no second list of options. Uses no torch, no text and no files.
"""

from gpt.config.model import ModelConfig
from gpt.config.sample import SampleConfig
from gpt.config.train import TrainConfig

__all__ = ["ModelConfig", "SampleConfig", "TrainConfig"]
