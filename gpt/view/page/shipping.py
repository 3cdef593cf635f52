"""A trained GPT as data of a page that computes with it: its config, its tensors, and the mean
output of each head. assets/model/weights.js reads the tensors.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args

import numpy as np

from gpt.config import AttentionKind, ModelConfig
from gpt.heads.ablation import Texts, mean_contexts
from gpt.heads.pair_measures import spread_pairs
from gpt.heads.survey import SHORTEST, spread
from gpt.reading.layers import Array
from gpt.storage.model_file import StoredModel, Tensors
from gpt.trained import TrainedGPT
from gpt.view.page.packing import Bits, pack
from gpt.vocabulary import Ids


def config_record(config: ModelConfig) -> dict[str, Any]:
    """The model's options, and the sizes that follow from them."""
    derived = {name: getattr(config, name) for name in ("head_size", "hidden", "widened")}
    return asdict(config) | derived


def model_record(stored: StoredModel, bits: Bits) -> dict[str, Any]:
    """The config, the names and shapes of the tensors, and their numbers, in float16 or float32.

    float32 also where 16 bits are asked for, if a number is too large for float16; the record's
    bits are those of the file. Raises ConfigError as `config_record`.
    """
    bits = fitting(stored.tensors, bits)
    shapes = [{"name": name, "shape": array.shape} for name, array in stored.tensors.items()]
    return {
        "config": config_record(stored.config),
        "manifest": shapes,
        "bits": bits,
        "base64": _compressed(stored.tensors, bits),
    }


def fitting(tensors: Mapping[str, Array], bits: Bits) -> Bits:
    """The bits of a number in the file: 32 if one is too large for float16, else `bits`."""
    largest = max(float(np.abs(array).max()) for array in tensors.values())
    return 32 if largest > float(np.finfo(np.float16).max) else bits


def rounded(tensors: Mapping[str, Array], bits: Bits) -> Tensors:
    """The tensors as float32, with the numbers that `model_record` stores."""
    kind = f"f{fitting(tensors, bits) // 8}"
    return {name: array.astype(kind).astype(np.float32) for name, array in tensors.items()}


def means_record(
    model: TrainedGPT, ids: Ids | None = None, text: str = "", windows: int = 32
) -> dict[str, Any] | None:
    """The mean output of each head, (L, H, D), over windows of a text; None if it is too short.

    With an encoder: those of each kind of attention, over pairs.

    ids: of the text, whose name is `text`; None: the part of the validation split that the model
    file contains, which is also taken with an encoder.
    """
    if model.has_encoder:
        pairs = spread_pairs(model.pair_ids(model.excerpt_lines), windows)
        texts, kinds = Texts.of_pairs(pairs, 0), get_args(AttentionKind)
        return {kind: pack(mean_contexts(model.reader, texts, kind), 32) for kind in kinds}
    if ids is None:
        ids, text = model.vocabulary.encode(model.stored.excerpt), model.excerpt_name
    if len(ids) < SHORTEST:
        return None
    chosen = spread(ids, model.config.block_size, windows)
    return {"text": text, **pack(mean_contexts(model.reader, Texts.of_windows(chosen)), 32)}


def _compressed(tensors: Mapping[str, Array], bits: Bits) -> str:
    """All numbers, one tensor after the other, as a gzip stream, whose checksum shows damage.

    First the lowest byte of every number, then the next one, …: the highest ones hold signs and
    exponents, which are alike. That makes the stream 7 to 8 % smaller (benchmarks/LOG.md).
    """
    numbers = np.concatenate([array.ravel() for array in tensors.values()])
    planes = numbers.astype(f"<f{bits // 8}").view(np.uint8).reshape(-1, bits // 8).T
    return base64.b64encode(gzip.compress(planes.tobytes(), 6, mtime=0)).decode()
