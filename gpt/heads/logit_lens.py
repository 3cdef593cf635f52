"""What the model would say next if it stopped at a layer: the logit lens (nostalgebraist 2020).

A heuristic: only the last depth is what the model really computes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpt.checks import Result
from gpt.heads.attention_map import AttentionMap
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array, softmax


@dataclass(frozen=True)
class Lens(Result):
    """The K likeliest next characters at each of S = n_layer + 1 depths and T positions.

    Depth 0 is the embedding alone, the last is the model's own prediction. ids, probabilities:
    (S, T, K), likeliest first.
    """

    ids: npt.NDArray[np.int64]
    probabilities: Array


def look(reader: Reader, attention: AttentionMap, most: int = 8) -> Lens:
    """unembed(norm(stream)) at every depth, the `most` likeliest characters of each."""
    layers = attention.layers
    streams = np.stack([layers[0].stream, *(layer.output for layer in layers)])  # (S, T, C)
    chances = softmax(reader.logits(reader.final_norm(streams)))  # (S, T, vocab_size)
    ids = np.argsort(-chances, axis=-1, kind="stable")[..., :most]
    return Lens(ids, np.take_along_axis(chances, ids, axis=-1))
