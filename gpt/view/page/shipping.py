"""A trained GPT as data of a page that computes with it: its config and its tensors."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gpt.config import ModelConfig
from gpt.errors import ConfigError


def config_record(config: ModelConfig) -> dict[str, Any]:
    """The model's options, and the sizes that follow from them.

    Raises ConfigError for n-gram embeddings of earlier releases, which only numpy computes.
    """
    if config.ngram > 1:
        raise ConfigError(
            "this model has n-gram embeddings of an earlier release, which a page cannot compute; "
            "train it again with this release"
        )
    derived = {name: getattr(config, name) for name in ("head_size", "hidden", "widened")}
    return asdict(config) | derived
