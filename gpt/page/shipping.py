"""A trained GPT as data for a page that computes with it: its config, its tensors, the mean output
of each head, and a probe. assets/model/protocol.js describes the data.

The page computes the probe's logits, and shows no numbers if it gets others. These logits belong to
the weights as the file stores them, float32 or float16.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig
from gpt.heads.survey import mean_contexts, spread_windows
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.probe import allowed_in_float32
from gpt.storage.model_file import StoredModel, Tensors, pick_probe_logits
from gpt.vocabulary import Ids

Bits = Literal[16, 32]
LOGITS = 8  # logits stored for each position
LONGEST = 32  # characters of a random text that the page checks
FEWEST, MOST = 2, 8  # number of these texts; more than FEWEST if the model's probe lacks characters
WINDOWS = 32  # of a text, whose mean outputs replace those of heads


def config_record(config: ModelConfig) -> dict[str, Any]:
    """The model's options, and the sizes that follow from them."""
    derived = {name: getattr(config, name) for name in ("head_size", "ffn_hidden")}
    return asdict(config) | derived


def model_record(stored: StoredModel, ids: Ids, bits: Bits) -> dict[str, Any]:
    """A model as the page reads it. ids: the text that gives the mean outputs of heads."""
    tensors = rounded(stored.tensors, bits)
    reader = Reader(
        stored.config, {name: array.astype(np.float32) for name, array in tensors.items()}
    )
    windows = spread_windows(ids, stored.config.block_size, WINDOWS)
    means = mean_contexts(reader, windows)
    return {
        "config": config_record(stored.config),
        "manifest": [{"name": name, "shape": each.shape} for name, each in tensors.items()],
        "bits": bits,
        "tensors": compressed(tensors),
        "means": in_base64(means.astype("<f4")),
        "probe": probe_record(stored, reader),
    }


def smallest_bits(stored: StoredModel) -> Bits:
    """Bits of a number in the file: 16, unless one is too large for float16."""
    largest = max(float(np.abs(array).max()) for array in stored.tensors.values())
    return 16 if largest <= np.finfo(np.float16).max else 32


def rounded(tensors: Mapping[str, Array], bits: Bits) -> Tensors:
    """The tensors as the file stores them."""
    return {name: array.astype(f"<f{bits // 8}") for name, array in tensors.items()}


def compressed(tensors: Tensors) -> str:
    """All numbers, one tensor after the other, as a gzip stream, whose checksum reveals
    damage.

    All lowest bytes come first, then all second bytes, and so on. The highest bytes hold signs and
    exponents, which are similar; so the stream is 7 to 8 % smaller (benchmarks/LOG.md).
    """
    numbers = np.concatenate([array.ravel() for array in tensors.values()])
    planes = numbers.view(np.uint8).reshape(-1, numbers.itemsize).T
    return base64.b64encode(gzip.compress(planes.tobytes(), 6, mtime=0)).decode()


def probe_record(stored: StoredModel, reader: Reader) -> dict[str, Any]:
    """Texts as ids, with K logits for each position. tolerance: by how much the page's logits may
    differ from these. reader: of the weights in the file.

    Position p has the logits of K characters, those with the ids p·K, p·K + 1, … modulo vocab_size.
    The texts are the model's probe and random ones; together they have every character, unless the
    vocabulary is very large.
    """
    exact = reader.in_float64()
    kept = min(LOGITS, stored.config.vocab_size)
    texts, error, largest = list[dict[str, Any]](), 0.0, 0.0
    for ids in (stored.probe.ids, _random_texts(stored)):
        logits = exact.logits(exact.forward(ids))
        error = max(error, float(np.abs(reader.logits(reader.forward(ids)) - logits).max()))
        largest = max(largest, float(np.abs(logits).max()))
        for row, expected in zip(ids, logits, strict=True):
            numbers = pick_probe_logits(expected[None], kept).astype("<f4")
            texts.append({"ids": row.tolist(), "logits": in_base64(numbers)})
    return {"texts": texts, "kept": kept, "tolerance": allowed_in_float32(error, largest)}


def _random_texts(stored: StoredModel) -> npt.NDArray[np.int64]:
    """(R, T) ids: the characters that the probe lacks, in a random order, then random ones."""
    random, size = np.random.default_rng(6), stored.config.vocab_size
    length = min(stored.config.block_size, LONGEST)
    missing = random.permutation(np.setdiff1d(np.arange(size), stored.probe.ids))
    rows = min(max(-(-len(missing) // length), FEWEST), MOST)
    ids = np.concatenate((missing, random.integers(size, size=rows * length)))
    return ids[: rows * length].reshape(rows, length)


def in_base64(array: npt.NDArray[Any]) -> str:
    """The array's bytes, row by row."""
    return base64.b64encode(np.ascontiguousarray(array).data).decode()
