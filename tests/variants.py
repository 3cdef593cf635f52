"""Models of every kind: small configurations that have each pair of values of any two options.

A fault in a form of the model shows for one value of an option, or where two values meet. So these
find what all combinations would. With ALL_VARIANTS=1 in the environment, VARIANTS are all of them
(make all-variants).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain, combinations, product
from typing import Any, get_args

import torch

from gpt.config import ModelConfig
from gpt.config.fields import only_fields
from gpt.config.model import Activation, Attention, Position
from gpt.config.train import PRESETS
from gpt.model import GPT
from gpt.reading.gpt import Reader

#: Option -> the values that change what a model computes.
SWITCHES: dict[str, tuple[Any, ...]] = {
    "activation": get_args(Activation),
    "position": get_args(Position),
    "feed_forward": (True, False),
    "bias": (False, True),
    "qkv_bias": (False, True),
    "tied": (False, True),
    "n_head": (2, 1),
}
SHAPE: dict[str, Any] = {"vocab_size": 11, "block_size": 12, "n_layer": 2, "n_embd": 8}

Row = dict[str, Any]

ALL = bool(os.environ.get("ALL_VARIANTS"))


def pairs_of(row: Row) -> set[tuple[Any, ...]]:
    """Every two (option, value) of a row; the options in the order of SWITCHES."""
    values = [(name, row[name]) for name in SWITCHES if name in row]
    return {*combinations(values, 2)}


def all_rows() -> Iterator[Row]:
    """Every combination of values."""
    for values in product(*SWITCHES.values()):
        yield dict(zip(SWITCHES, values, strict=True))


def covering_rows() -> Iterator[Row]:
    """Rows that together have every pair of values of two options.

    Each starts with a pair that is missing and takes, option by option, the value that adds most
    of the missing pairs (after Cohen et al. 1997).
    """
    named = [[(name, value) for value in values] for name, values in SWITCHES.items()]
    missing = {pair: None for two in combinations(named, 2) for pair in product(*two)}
    while missing:
        row = dict(next(iter(missing)))
        for name, values in SWITCHES.items():
            if name not in row:
                added = [len(pairs_of({**row, name: it}) & missing.keys()) for it in values]
                row[name] = values[added.index(max(added))]
        missing = {pair: None for pair in missing if pair not in pairs_of(row)}
        yield row


def preset_rows() -> Iterator[Row]:
    """The values of the models that presets train."""
    for devices in PRESETS.values():
        config = ModelConfig(vocab_size=2, **only_fields(ModelConfig, devices["cpu"]))
        yield {**{name: getattr(config, name) for name in SWITCHES}, "n_head": 2}


def config_of(row: Row) -> ModelConfig:
    """A small model with a row's values."""
    return ModelConfig(**SHAPE, **row)


def variants() -> list[ModelConfig]:
    """Every model to test, each once."""
    rows = all_rows() if ALL else chain(covering_rows(), preset_rows())
    return [*dict.fromkeys(config_of(row) for row in rows)]


VARIANTS = variants()


def name_of(config: ModelConfig) -> str:
    """A variant's values, in the order of SWITCHES."""
    return "-".join(f"{getattr(config, name)}" for name in SWITCHES)


def random_weights(config: ModelConfig) -> dict[str, torch.Tensor]:
    """Parameters by name, so large that every part changes the logits; gains are around 1."""
    random = torch.Generator().manual_seed(7)
    found = {}
    for name, shape in config.shapes().items():
        found[name] = 0.6 * torch.randn(shape, generator=random, dtype=torch.float32)
        found[name] += "norm" in name and name.endswith(".weight")
    return found


def torch_model(config: ModelConfig, weights: dict[str, torch.Tensor], kind: Attention) -> GPT:
    """The torch model with this form of attention, in torch's default type."""
    model = GPT(ModelConfig(**vars(config) | {"attention": kind}))
    model.load_parameters(weights)
    return model.eval()


def reader_of(config: ModelConfig, weights: dict[str, torch.Tensor]) -> Reader:
    """The numpy reader of these weights."""
    return Reader(config, {name: each.numpy() for name, each in weights.items()})
