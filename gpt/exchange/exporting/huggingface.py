"""A model as a folder that the library transformers opens: weights, configuration, tokenizer, card.

gptx writes the files itself, without that library, and reads the weights back to compare them with
the model bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from gpt.config import SampleConfig
from gpt.errors import NumericsError
from gpt.exchange.exporting.architectures import Architecture, Part, Tensors
from gpt.exchange.exporting.card import card
from gpt.exchange.exporting.losses import Losses
from gpt.exchange.exporting.tokenizer import tokenizer, tokenizer_config
from gpt.trained import TrainedGPT

WEIGHTS = "model.safetensors"


def files_of(
    model: TrainedGPT, architecture: Architecture, losses: Losses | None
) -> dict[str, bytes]:
    """Name -> content of every file of the folder, README.md last. Raises NumericsError if the
    weights would not be the model's.
    """
    config, vocabulary = model.config, model.vocabulary
    tensors = model.stored.tensors
    parts = list(architecture.parts(config, tensors))
    settings = {
        "config.json": architecture.config(config, tensors),
        "generation_config.json": _generation(config.block_size),
        "tokenizer.json": tokenizer(vocabulary),
        "tokenizer_config.json": tokenizer_config(config.block_size),
    }
    return {
        WEIGHTS: _weights(parts, tensors),
        **{name: _json(values) for name, values in settings.items()},
        "README.md": card(model, architecture, losses).encode(),
    }


def _weights(parts: Iterable[Part], tensors: Tensors) -> bytes:
    """The exported tensors as a safetensors file, read back and compared with the model's."""
    import safetensors.numpy

    parts, dtype = list(parts), tensors["token_embedding.weight"].dtype
    exported = {part.name: part.of(tensors, dtype) for part in parts}
    data: bytes = safetensors.numpy.save(exported, metadata={"format": "pt"})
    check(parts, safetensors.numpy.load(data), tensors)
    return data


def check(parts: Iterable[Part], exported: Tensors, tensors: Tensors) -> None:
    """Raises NumericsError unless the exported tensors, put back into the model's order, are the
    model's bit for bit, and all others zero.
    """
    again = {name: np.full_like(tensor, np.nan) for name, tensor in tensors.items()}
    for part in parts:
        found = exported[part.name]
        if part.source:
            again[part.source][... if part.rows is None else part.rows] = (
                found.T if part.transposed else found
            )
        elif found.shape != part.shape or found.any():
            raise NumericsError(f"the export is wrong: {part.name} is not zero")
    for name, tensor in tensors.items():
        if again[name].tobytes() != tensor.tobytes():
            raise NumericsError(f"the export is wrong: it does not contain {name} unchanged")


def _generation(longest: int) -> dict[str, Any]:
    """generation_config.json: gptx's temperature, and half a context of new characters."""
    no_tokens = {f"{role}_token_id": None for role in ("bos", "eos", "pad")}
    return {
        "do_sample": True,
        "temperature": SampleConfig().temperature,
        "max_new_tokens": max(1, longest // 2),
        **no_tokens,
    }


def _json(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, ensure_ascii=False, indent=2, allow_nan=False) + "\n").encode()
