"""What a layer computes, by name: the stages of attention, hooks that see them, and what
cross-attention reads.

Tensor names: B batch, T time, C n_embd, H heads, D head_size, S keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpt.checks import Result
from gpt.reading.layers import Array

#: Receives each stage as soon as it is computed: its name, its layer, its (B, …) array, into which
#: it may write. The forward goes on with the result. The names are the fields of `Stages`, and:
#: hidden (B, T, config.hidden), the result of the activation function; feed_forward (B, T, C), what
#: is added to residual; after the last layer, with n_layer as the layer, final_norm (B, T, C) and
#: logits (B, T, vocab_size).
Hook = Callable[[str, int, Array], Array]


def unchanged(name: str, layer: int, array: Array) -> Array:
    """The hook that changes nothing."""
    return array


#: Begins the names of a decoder layer's stages of cross-attention, for hooks.
CROSS = "cross_"


@dataclass(frozen=True)
class Memory:
    """What cross-attention reads: the encoder's output (B, S, C), and (B, 1, S), False for padding;
    None: nothing is padding.
    """

    states: Array
    allowed: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True, repr=False)
class Stages(Result):
    """What one layer computed for (T,) characters; arrays of heads have H as their first axis.

    stream: (T, C), what enters the layer. q, k, v: (H, T, D), after rotary positions, if the
    model has them; scores = q·kᵀ, scaled = scores/√D, masked = scaled, and −inf
    above the diagonal, weights = softmax: (H, T, T); context = weights·v: (H, T, D); concat and
    proj: (T, C); residual = stream + proj, output = residual + feed-forward: (T, C); with
    post_norm, both sums are normalised.

    In an encoder, no score is −inf. A decoder with an encoder has Stages of self-attention, whose
    output is their residual, and Stages of cross-attention, which the feed-forward follows: stream
    is the first one's output, k and v are (H, S, D), from the encoder's S characters, and scores …
    weights (H, T, S).
    """

    stream: Array
    q: Array
    k: Array
    v: Array
    scores: Array
    scaled: Array
    masked: Array
    weights: Array
    context: Array
    concat: Array
    proj: Array
    residual: Array
    output: Array

    def __repr__(self) -> str:
        heads, length, size = self.q.shape
        return f"<Stages of one layer: {length} characters, {heads} heads × {size}>"
