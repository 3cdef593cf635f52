"""A trained GPT as data for a page that computes with it: its config, its tensors, the mean output
of each head, and a proof for the page to check. assets/model/weights.js reads the tensors.

The page proves that it computes numpy's logits with the weights in its file. These logits belong to
the weights as the file stores them. If it stores float16, the record also says how far the logits
may be from those of the unrounded model.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig
from gpt.heads.survey import SHORTEST, mean_contexts, spread_windows
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.probe import allowed_in_float32
from gpt.reading.score import windows_at_once
from gpt.storage.model_file import StoredModel, Tensors, pick_probe_logits
from gpt.view.page.packing import Bits, in_base64, pack
from gpt.vocabulary import Ids

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT

LOGITS = 8  # logits stored for each position
LONGEST = 32  # characters of a random text that the page checks
FEWEST, MOST = 2, 8  # number of these texts; more than FEWEST if the probe lacks characters
SAMPLED = 64  # random texts, to see how rounding the weights changes logits
WINDOW = 256  # characters of such a text, at most
#: The stated bound, as a multiple of the largest difference on these texts.
SAFETY = 4


def config_record(config: ModelConfig) -> dict[str, Any]:
    """The model's options, and the sizes that follow from them."""
    derived = {name: getattr(config, name) for name in ("head_size", "ffn_hidden")}
    return asdict(config) | derived


def model_record(stored: StoredModel, bits: Bits) -> dict[str, Any]:
    """The config, the names and shapes of the tensors, and their numbers in float16 or
    float32.

    Uses float32 instead of 16 bits if a number is too large for float16; the record's bits say what
    the file has.
    """
    bits = storable_bits(stored.tensors, bits)
    shapes = [{"name": name, "shape": array.shape} for name, array in stored.tensors.items()]
    return {
        "config": config_record(stored.config),
        "manifest": shapes,
        "bits": bits,
        "base64": _compressed(stored.tensors, bits),
    }


def storable_bits(tensors: Mapping[str, Array], bits: Bits) -> Bits:
    """Bits of a number in the file: 32 if one is too large for float16, else `bits`."""
    largest = max(float(np.abs(array).max()) for array in tensors.values())
    return 32 if largest > float(np.finfo(np.float16).max) else bits


def rounded_tensors(tensors: Mapping[str, Array], bits: Bits) -> Tensors:
    """The tensors as float32, rounded to what `model_record` stores."""
    kind = f"f{storable_bits(tensors, bits) // 8}"
    return {name: array.astype(kind).astype(np.float32) for name, array in tensors.items()}


def means_record(
    model: TrainedGPT, ids: Ids | None = None, text: str = "", windows: int = 32
) -> dict[str, Any] | None:
    """The mean output of each head, (L, H, D), over windows of a text; None if it is too short.

    ids: the ids of the text named `text`; None: the part of the validation split that the model
    file contains.
    """
    if ids is None:
        ids, text = model.vocabulary.encode(model.stored.excerpt), model.excerpt_name
    if len(ids) < SHORTEST:
        return None
    chosen = spread_windows(ids, model.config.block_size, windows)
    return {"text": text, **pack(mean_contexts(model.reader, chosen), 32)}


def _compressed(tensors: Mapping[str, Array], bits: Bits) -> str:
    """All numbers, one tensor after the other, as a gzip stream, whose checksum reveals
    damage.

    All lowest bytes come first, then all second bytes, and so on. The highest bytes hold signs and
    exponents, which are similar; so the stream is 7 to 8 % smaller (benchmarks/LOG.md).
    """
    numbers = np.concatenate([array.ravel() for array in tensors.values()])
    planes = numbers.astype(f"<f{bits // 8}").view(np.uint8).reshape(-1, bits // 8).T
    return base64.b64encode(gzip.compress(planes.tobytes(), 6, mtime=0)).decode()


def proof_record(stored: StoredModel, bits: Bits) -> dict[str, Any]:
    """Texts as ids, with K logits for each position. tolerance: by how much the page's logits may
    differ from these; rounding: how far float16 moves the logits, None for float32.

    Position p has the logits of K characters, those with the ids p·K, p·K + 1, … modulo vocab_size.
    The texts are the model's probe and random ones; together they have every character, unless the
    vocabulary is very large.
    """
    bits = storable_bits(stored.tensors, bits)
    weights = rounded_tensors(stored.tensors, bits)
    reader = Reader(stored.config, weights)
    exact = reader.in_float64()
    kept = min(LOGITS, stored.config.vocab_size)
    texts, error, largest = list[dict[str, Any]](), 0.0, 0.0
    for ids in (stored.probe.ids, _random_texts(stored)):
        logits = _logits(exact, ids)
        error = max(error, float(np.abs(_logits(reader, ids) - logits).max()))
        largest = max(largest, float(np.abs(logits).max()))
        for row, expected in zip(ids, logits, strict=True):
            numbers = pick_probe_logits(expected[None], kept).astype("<f4")
            texts.append({"ids": row.tolist(), "logits": in_base64(numbers)})
    return {
        "texts": texts,
        "kept": kept,
        "tolerance": allowed_in_float32(error, largest),
        "rounding": rounding_bound(stored, reader) if bits == 16 else None,
    }


def rounding_bound(stored: StoredModel, reader: Reader) -> float:
    """SAFETY times the largest difference between logits of the stored weights and logits of a
    reader.

    Measured on the probe and SAMPLED random texts, each as long as the context or WINDOW.
    """
    exact, largest = Reader(stored.config, stored.tensors), 0.0
    length, random = min(stored.config.block_size, WINDOW), np.random.default_rng(7)
    sampled = random.integers(stored.config.vocab_size, size=(SAMPLED, length))
    size = windows_at_once(stored.config)
    batches: list[Ids] = [stored.probe.ids]
    batches += [sampled[first : first + size] for first in range(0, SAMPLED, size)]
    for ids in batches:
        moved = _logits(reader, ids) - _logits(exact, ids)
        largest = max(largest, float(np.abs(moved).max()))
    return SAFETY * largest


def _logits(reader: Reader, ids: Ids) -> Array:
    """(N, T) ids -> (N, T, vocab_size)"""
    return reader.logits(reader.forward(ids))


def _random_texts(stored: StoredModel) -> npt.NDArray[np.int64]:
    """(R, T) ids: the characters that the probe lacks, in a random order, then random ones."""
    random, size = np.random.default_rng(6), stored.config.vocab_size
    length = min(stored.config.block_size, LONGEST)
    missing = random.permutation(np.setdiff1d(np.arange(size), stored.probe.ids))
    rows = min(max(-(-len(missing) // length), FEWEST), MOST)
    ids = np.concatenate((missing, random.integers(size, size=rows * length)))
    return ids[: rows * length].reshape(rows, length)
