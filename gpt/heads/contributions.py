"""What each part of a GPT adds to a logit (direct logit attribution, Elhage et al. 2021).

The residual stream is a sum of parts: the embedding, and what heads, biases and feed-forward layers
add. A logit is linear in the stream as long as the mean and the scale of each norm are held
("frozen"). So we pass the logit's row of the output weights backwards through the norms; its
product with a part, at the part's place, is what the part adds. The number of a part leaves out how
it changes later parts. A head's output is a sum over the characters that it attends to, a
feed-forward layer's over its units, so their parts are sums, too.
Tensor names: T time, K ids of a position, P parts, S keys, U units, C n_embd, D head_size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gpt.checks import Arrays, Check
from gpt.reading.gpt import Reader, Stages
from gpt.reading.layers import EPSILON, Array, centred

Numbers = npt.NDArray[np.integer[Any]]
#: Bytes of a number of the stages -> how far a sum may be off, as a part of the largest summand.
TOLERANCE = {4: 1e-4, 8: 1e-9}


class Part(NamedTuple):
    """embedding: of the token and its position; head: its output, including the biases of its
    values, through its columns of the projection; bias: the projection's or, without a layer, the
    shifts of norms; ffn: the feed-forward layer; ffn_bias: the bias of its output.
    """

    kind: Literal["embedding", "head", "bias", "ffn", "ffn_bias"]
    layer: int | None = None
    head: int | None = None


@dataclass(frozen=True, repr=False)
class Contributions(Arrays):
    """values: (T, K, P), what each of the P parts, in the order of computation, adds to the (T, K)
    logits. check: whether they sum to the logits. sources: what each part of the kinds "head" and
    "ffn" consists of at the last position: (K, S) what each character that the head attends to
    adds, or (K, U) what each unit adds. scale: the number by which the last norm divides the last
    position.
    """

    parts: tuple[Part, ...]
    values: Array
    logits: Array
    check: Check
    sources: tuple[Array, ...]
    scale: float


def contributions(reader: Reader, layers: Sequence[Stages], ids: Numbers) -> Contributions:
    """What the parts add to the logits of (T, K) ids, in float64. layers: the stages of each."""
    back, last = _BackwardPass(reader.in_float64(), ids), layers[-1].resid_post
    scale = back.through("norm", last.astype(np.float64))
    for layer in reversed(range(len(layers))):
        back.layer(layer, layers[layer])
    back.add(Part("embedding"), layers[0].resid_pre)
    found = back.found[::-1]
    if "blocks.0.norm1.bias" in reader.tensors:
        found.append((Part("bias"), back.shifts))
    parts, columns = zip(*found, strict=True)
    values = np.stack(columns, axis=-1)
    logits = np.take_along_axis(reader.logits(reader.final_norm(last)), ids, axis=-1)
    apart = float(np.abs(logits - sum(columns)).max())
    bound = TOLERANCE[logits.itemsize] * float(np.abs(values).max())
    check = Check("parts sum to the logits", apart, bound)
    sources = tuple(back.sources[part] for part in parts if part in back.sources)
    return Contributions(parts, values, logits, check, sources, scale)


def heads_add(reader: Reader, layers: Sequence[Stages]) -> tuple[int, npt.NDArray[np.float64]]:
    """The id that is likeliest after the text of these stages, and the (L, H) that each head adds
    to its logit.
    """
    last = layers[-1].resid_post
    likeliest = int(reader.logits(reader.final_norm(last[-1:]))[0].argmax())
    found = contributions(reader, layers, np.full((len(last), 1), likeliest))
    added = np.zeros((len(layers), len(layers[0].q)))
    for part, value in zip(found.parts, found.values[-1, 0].tolist(), strict=True):
        if part.kind == "head":
            added[part.layer, part.head] = value
    return likeliest, added


class _BackwardPass:
    """Goes from the logits back to the embedding. vectors: (T, K, C), which multiply a part."""

    def __init__(self, exact: Reader, ids: Numbers) -> None:
        self.exact, self.vectors = exact, exact.tensors[f"{exact.output}.weight"][ids]
        self.found = list[tuple[Part, Array]]()  # from the last part to the first
        self.shifts = np.zeros(ids.shape)
        self.sources = dict[Part, Array]()

    def add(self, part: Part, x: Array) -> None:
        """Adds what a part contributes. x: (T, C) or (1, C), its output."""
        self.found.append((part, np.einsum("...c,...kc->...k", x, self.vectors)))

    def through(self, norm: str, x: Array) -> float:
        """Passes the vectors through the frozen norm of x, (T, C). Returns the number by which the
        norm divides the last position.
        """
        if (shift := self.exact.tensors.get(f"{norm}.bias")) is not None:
            self.shifts += self.vectors @ shift
        scale = 1 / np.sqrt((centred(x) ** 2).mean(axis=-1) + EPSILON)  # (T,)
        scaled = self.vectors * scale[:, None, None]
        self.vectors = centred(scaled * self.exact.tensors[f"{norm}.weight"])
        return float(1 / scale[-1])

    def layer(self, layer: int, stages: Stages) -> None:
        """Adds the parts of a layer."""
        exact, block = self.exact, f"blocks.{layer}."
        if exact.config.feed_forward:
            resid_mid = stages.resid_mid.astype(np.float64)
            _, hidden, out = exact.feed_forward(resid_mid, layer)
            down, bias = exact.linear(f"{block}feed_forward.down")
            if bias is not None:
                self.add(Part("ffn_bias", layer), bias[None])
            self.add(Part("ffn", layer), out if bias is None else out - bias)
            self.sources[Part("ffn", layer)] = hidden[-1] * (self.vectors[-1] @ down)
        weight, bias = exact.linear(f"{block}attention.proj")
        if bias is not None:
            self.add(Part("bias", layer), bias[None])
        columns = np.split(weight, len(stages.context), axis=1)  # (C, D) of each head
        for head in reversed(range(len(columns))):
            part = Part("head", layer, head)
            self.add(part, stages.context[head] @ columns[head].T)
            written = self.vectors[-1] @ columns[head] @ stages.v[head].T  # (K, T)
            self.sources[part] = stages.weights[head, -1] * written
