"""What each part of a GPT adds to a logit (direct logit attribution, Elhage et al. 2021), and the
head that adds most.

The residual stream is a sum of parts: the embedding, and what heads, biases and feed-forward layers
add. A logit is linear in the stream as long as the mean and the scale of each norm are held. So we
pass the logit's row of the output weights backwards through the norms; its product with a part is
what the part adds. A head's part is a sum over the characters that it attends to, a feed-forward
layer's over its units.
Tensor names: T time, K ids of a position, P parts, S keys, U units, C n_embd, D head_size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gpt.heads.attention_map import AttentionMap
from gpt.heads.measures import job, measure_heads, name_heads
from gpt.reading.gpt import EPSILON, Array, Reader, Stages, centred
from gpt.show.result import Arrays, Check, signed_number
from gpt.words import quoted_label

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


@dataclass(frozen=True)
class Glance:
    """A head of a map. looks_at: what it looks at in this text, in words. character: the likeliest
    next one, to whose logit the head adds `adds`, in nats. most: whether no other head of the model
    adds more. other: (layer, head) of the head that adds most beside it, if there is another.
    """

    layer: int
    head: int
    looks_at: str
    character: str
    adds: float
    most: bool
    other: tuple[int, int] | None

    @property
    def title(self) -> str:
        adds = "adds most to" if self.most else "adds to"
        return (
            f"layer {self.layer} head {self.head}: looks {self.looks_at} · {adds} "
            f"{quoted_label(self.character)} ({signed_number(self.adds)})"
        )

    @property
    def hint(self) -> str:
        if self.other is None:
            return "others: --view heads"
        return f"others: --view heads · --layer {self.other[0]} --head {self.other[1]}"


def contributions(reader: Reader, layers: Sequence[Stages], ids: Numbers) -> Contributions:
    """What the parts add to the logits of (T, K) ids, in float64. layers: the stages of each."""
    back, last = _BackwardPass(reader.in_float64(), ids), layers[-1].resid_post
    scale = back.through("norm", last.astype(np.float64))
    for layer in reversed(range(len(layers))):
        back.layer(layer, layers[layer])
    back.add(Part("embedding"), layers[0].resid_pre)
    parts, columns = [*reversed(back.values)], [*reversed(back.values.values())]
    if "blocks.0.norm1.bias" in reader.tensors:
        parts.append(Part("bias"))
        columns.append(back.shifts)
    values = np.stack(columns, axis=-1)
    logits = np.take_along_axis(reader.logits(reader.final_norm(last)), ids, axis=-1)
    apart = float(np.abs(logits - sum(columns)).max())
    bound = TOLERANCE[logits.itemsize] * float(np.abs(values).max())
    check = Check("parts sum to the logits", apart, bound)
    sources = tuple(back.sources[part] for part in parts if part in back.sources)
    return Contributions(tuple(parts), values, logits, check, sources, scale)


def glance_at(attention: AttentionMap, layer: int | None = None, head: int | None = None) -> Glance:
    """The head that adds most to the logit of what is likeliest next: of all heads, or of those in
    this layer or with this number.
    """
    reader, layers = attention.model.reader, attention.layers
    last = layers[-1].resid_post
    likeliest = int(reader.logits(reader.final_norm(last[-1:]))[0].argmax())
    parts = contributions(reader, layers, np.full((len(last), 1), likeliest))
    adds = {
        (part.layer or 0, part.head or 0): value
        for part, value in zip(parts.parts, parts.values[-1, 0].tolist(), strict=True)
        if part.kind == "head"
    }
    ranking = sorted(adds, key=lambda place: -adds[place])
    place = next(p for p in ranking if layer in (None, p[0]) and head in (None, p[1]))
    names = name_heads(measure_heads([(attention.ids, [stages.weights for stages in layers])]))
    name = names[place[0]][place[1]] if names else ""
    return Glance(
        layer=place[0],
        head=place[1],
        looks_at=f"at {job(name)}" if name else job(name),
        character=attention.model.vocabulary.characters[likeliest],
        adds=adds[place],
        most=place == ranking[0],
        other=next((other for other in ranking if other != place), None),
    )


class _BackwardPass:
    """Goes from the logits back to the embedding. vectors: (T, K, C), which multiply a part."""

    def __init__(self, exact: Reader, ids: Numbers) -> None:
        self.exact, self.vectors = exact, exact.tensors[f"{exact.output}.weight"][ids]
        self.values = dict[Part, Array]()  # from the last part to the first
        self.shifts = np.zeros(ids.shape)
        self.sources = dict[Part, Array]()

    def add(self, part: Part, x: Array) -> None:
        """Adds what a part contributes. x: (T, C) or (1, C), its output."""
        self.values[part] = np.einsum("...c,...kc->...k", x, self.vectors)

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
        exact, block = self.exact, f"blocks.{layer}."
        if exact.config.feed_forward:
            resid_mid = stages.resid_mid.astype(np.float64)
            _, hidden, out = exact.feed_forward(resid_mid, layer)
            down, bias = exact.linear(f"{block}feed_forward.down")
            if bias is not None:
                self.add(Part("ffn_bias", layer), bias[None])
            self.add(Part("ffn", layer), out if bias is None else out - bias)
            self.sources[Part("ffn", layer)] = (self.vectors[-1] @ down) * hidden[-1]
        weight, bias = exact.linear(f"{block}attention.proj")
        if bias is not None:
            self.add(Part("bias", layer), bias[None])
        columns = np.split(weight, len(stages.context), axis=1)  # (C, D) of each head
        for head in reversed(range(len(columns))):
            part = Part("head", layer, head)
            self.add(part, stages.context[head] @ columns[head].T)
            written = self.vectors[-1] @ columns[head] @ stages.v[head].T  # (K, T)
            self.sources[part] = stages.weights[head, -1] * written
