"""Converts files of older releases to the current schema: one function per change of the schema.

Schema 1 (gptx 0.1): `dropout` applied to attention weights, too, which now have a separate rate;
and rotary positions paired coordinate d with d + D/2, now 2d with 2d + 1, so the rows of queries
and keys are reordered. A migrated model computes what it did before; its probe checks this. Schema
2 (gptx 0.2 before its release): a manifest had no checksum.
Schema 3 (gptx 0.2): a text's digest was its SHA-256, without the algorithm's name.
Schema 4 (gptx 0.3 before its release): a model file had no digest, and its probe was one row of
characters with all their logits, in float32.
Before the release of schema 5, runs had options for training n-gram embeddings, and `window_order`
was called `windows`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig

SCHEMA = 5
SEALED_SINCE = 3  # first schema whose manifests have a checksum
DIGEST_SINCE = 5  # first schema whose model files have a digest


def migrate(
    tensors: dict[str, npt.NDArray[Any]], config: ModelConfig, schema: int
) -> dict[str, npt.NDArray[Any]]:
    """Tensors of an older schema, weights or their moments -> tensors of this schema."""
    if schema >= 2 or config.position != "rotary":
        return tensors
    return {
        name: _pair_neighbours(tensor, config) if _is_packed(name, tensor) else tensor
        for name, tensor in tensors.items()
    }


def migrate_model(values: dict[str, Any], schema: int) -> dict[str, Any]:
    """The fields of a ModelConfig of an older schema -> fields of this schema."""
    kept = {name: value for name, value in values.items() if not name.startswith("ngram")}
    return kept if schema >= 2 else {"attention_dropout": values["dropout"], **kept}


def migrate_train(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a TrainConfig of any schema -> fields of this schema."""
    former = {"windows": "window_order"}
    return {former.get(name, name): value for name, value in values.items() if name != "ngram_lr"}


def migrate_corpus(values: dict[str, Any], schema: int) -> dict[str, Any]:
    """The fields of a CorpusId of an older schema -> fields of this schema."""
    if schema >= 4:
        return values
    others = {name: value for name, value in values.items() if name != "sha256"}
    return {"digest": f"sha256:{values['sha256']}", **others}


def _is_packed(name: str, tensor: npt.NDArray[Any]) -> bool:
    """Whether this is the matrix of all queries, keys and values, or a moment of it."""
    return name.endswith("attention.qkv.weight") and tensor.ndim == 2


def _pair_neighbours(qkv: npt.NDArray[Any], config: ModelConfig) -> npt.NDArray[Any]:
    """(3C, C) with the halves of each head's queries and keys interleaved: 0, D/2, 1, D/2 + 1, …"""
    heads = qkv.reshape(3, config.n_head, 2, config.head_size // 2, config.n_embd)
    turned = heads[:2].swapaxes(2, 3).reshape(2, -1, config.n_embd)
    return np.concatenate((*turned, qkv[2 * config.n_embd :]))
