"""Readers and model files with random weights, for any options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gpt.config import ModelConfig
from gpt.interface.trained import TrainedGPT, load
from gpt.model import GPT, initialise
from gpt.reading.gpt import Reader
from gpt.reading.probe import check_tensors
from gpt.training.trainer import model_bytes
from gpt.vocabulary import Vocabulary

#: Letters, line ends, a tab, combining and joining characters, emoji, NUL.
CHARACTERS = Vocabulary.from_text('abcdefgh .|`"\\\n\r\t\0\x85éű\u0301\u200d\ufe0f日👩🚀\u2028')
SHAPE: dict[str, Any] = dict(block_size=16, n_layer=2, n_head=2, n_embd=16)


def random_reader(dtype: npt.DTypeLike = np.float64, seed: int = 1, **options: Any) -> Reader:
    """A small reader with numbers far from 0."""
    shape: dict[str, Any] = dict(vocab_size=9, block_size=8, n_layer=2, n_head=2, n_embd=8)
    config, random = ModelConfig(**shape | options), np.random.default_rng(seed)
    shapes = config.shapes().items()
    return Reader(config, {name: random.normal(size=size).astype(dtype) for name, size in shapes})


def random_file(path: Path, vocabulary: Vocabulary = CHARACTERS, **options: Any) -> Path:
    """Writes a model file; its weights are larger than those that training starts from."""
    model = GPT(ModelConfig(vocab_size=len(vocabulary), **SHAPE | options))
    initialise(model, seed=1)
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    text = vocabulary.characters * 2
    path.write_bytes(model_bytes(model, vocabulary, text, 1, check_tensors))
    return path


def random_model(folder: Path, **options: Any) -> TrainedGPT:
    """The opened model of such a file in the folder."""
    return load(random_file(folder / "random.safetensors", **options))
