"""Computes what each part of a GPT adds to a logit, and which head adds most.

This is direct logit attribution (Elhage et al. 2021). The last residual stream is the sum of the
outputs of parts: of the embedding, heads, biases and feed-forward layers. If the mean and scale of
the last norm are held constant, a logit is a linear function of this stream. So we take the logit's
row of the output weights, and pass it backwards through the norm. The product of the result with a
part's output is what the part adds to the logit. What a head adds is a sum over the characters that
it attends to. What a feed-forward layer adds is a sum over its units.
Tensor names: T time, K ids of a position, P parts, S keys, U units, C n_embd, D head_size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gpt.heads.attention_map import AttentionMap
from gpt.heads.measures import describe_attention, measure_heads, name_heads
from gpt.reading.gpt import EPSILON, Array, Reader, Stages, centred
from gpt.show.result import Check, ReadOnlyArrays, signed_number
from gpt.words import quoted_label

Numbers = npt.NDArray[np.integer[Any]]
#: Bytes of a number -> largest allowed error of a sum, relative to the largest summand.
TOLERANCE = {4: 1e-4, 8: 1e-9}


class Part(NamedTuple):
    """A part of the model, of one of these kinds.

    embedding: the embeddings of the character and its position. head: a head's output, multiplied
    by its columns of the projection. bias: the bias of the projection, or, if `layer` is None, the
    bias of the last norm. ffn: the feed-forward layer without the bias of its output. ffn_bias: the
    bias of its output.
    """

    kind: Literal["embedding", "head", "bias", "ffn", "ffn_bias"]
    layer: int | None = None
    head: int | None = None


@dataclass(frozen=True, repr=False)
class Contributions(ReadOnlyArrays):
    """What the parts add to the (T, K) logits.

    parts: the P parts, in the order of computation. values: (T, K, P) what they add. check: whether
    they sum to the logits. sources: an array for every part of the kinds "head" and "ffn", at the
    last position: (K, S) what a head adds by attending to a character, or (K, U) what a unit adds.
    scale: the number by which the last norm divides the last position.
    """

    parts: tuple[Part, ...]
    values: Array
    logits: Array
    check: Check
    sources: tuple[Array, ...]
    scale: float


@dataclass(frozen=True)
class HeadSummary:
    """What one head does in a text.

    looks_at: what it looks at, in words. character: the likeliest next character. adds: the nats
    that the head adds to this character's logit. most: whether no other head adds more. other:
    (layer, head) of the head that adds most among the other heads, if there are any.
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
        """The options of `gptx attn` that show all heads, and the next one to look at."""
        if self.other is None:
            return "others: --view heads"
        return f"others: --view heads · --layer {self.other[0]} --head {self.other[1]}"


def contributions(reader: Reader, layers: Sequence[Stages], ids: Numbers) -> Contributions:
    """Computes what the parts add to the logits of (T, K) ids, in float64, from all stages."""
    last = layers[-1].resid_post
    collected = _PartValues(reader.in_float64(), ids, last.astype(np.float64))
    for layer in reversed(range(len(layers))):
        collected.add_layer(layer, layers[layer])
    collected.add(Part("embedding"), layers[0].resid_pre)
    parts, columns = [*reversed(collected.values)], [*reversed(collected.values.values())]
    if collected.norm_bias is not None:
        parts.append(Part("bias"))
        columns.append(collected.norm_bias)
    values = np.stack(columns, axis=-1)
    logits = np.take_along_axis(reader.logits(reader.final_norm(last)), ids, axis=-1)
    apart = float(np.abs(logits - sum(columns)).max())
    bound = TOLERANCE[logits.itemsize] * float(np.abs(values).max())
    check = Check("parts sum to the logits", apart, bound)
    sources = tuple(collected.sources[part] for part in parts if part in collected.sources)
    return Contributions(tuple(parts), values, logits, check, sources, collected.scale)


def head_that_adds_most(
    attention: AttentionMap, layer: int | None = None, head: int | None = None
) -> HeadSummary:
    """Finds the head that adds most to the logit of the likeliest next character. layer, head:
    restrict the search to the heads of this layer, or with this number.
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
    return HeadSummary(
        layer=place[0],
        head=place[1],
        looks_at=f"at {describe_attention(name)}" if name else describe_attention(name),
        character=attention.model.vocabulary.characters[likeliest],
        adds=adds[place],
        most=place == ranking[0],
        other=next((other for other in ranking if other != place), None),
    )


class _PartValues:
    """Collects what the parts add, from the last part to the first.

    vectors: (T, K, C). The product of a part's output with them is what the part adds. norm_bias:
    (T, K) what the bias of the last norm adds, if there is one. scale: see Contributions.
    """

    def __init__(self, exact: Reader, ids: Numbers, last: Array) -> None:
        """last: (T, C), the input of the last norm."""
        self.exact, rows = exact, exact.tensors[f"{exact.output}.weight"][ids]
        weight, bias = exact.weight_and_bias("norm")
        self.norm_bias = None if bias is None else rows @ bias
        scale = 1 / np.sqrt((centred(last) ** 2).mean(axis=-1) + EPSILON)  # (T,)
        self.scale = float(1 / scale[-1])
        self.vectors = centred(rows * scale[:, None, None] * weight)
        self.values = dict[Part, Array]()
        self.sources = dict[Part, Array]()

    def add(self, part: Part, x: Array) -> None:
        """Stores what a part adds. x: (T, C) or (1, C), its output."""
        self.values[part] = np.einsum("...c,...kc->...k", x, self.vectors)

    def add_layer(self, layer: int, stages: Stages) -> None:
        exact, block = self.exact, f"blocks.{layer}."
        if exact.config.feed_forward:
            resid_mid = stages.resid_mid.astype(np.float64)
            _, hidden, out = exact.feed_forward(resid_mid, layer)
            down, bias = exact.weight_and_bias(f"{block}feed_forward.down")
            if bias is not None:
                self.add(Part("ffn_bias", layer), bias[None])
            self.add(Part("ffn", layer), out if bias is None else out - bias)
            self.sources[Part("ffn", layer)] = (self.vectors[-1] @ down) * hidden[-1]
        weight, bias = exact.weight_and_bias(f"{block}attention.proj")
        if bias is not None:
            self.add(Part("bias", layer), bias[None])
        columns = np.split(weight, len(stages.context), axis=1)  # (C, D) of each head
        for head in reversed(range(len(columns))):
            part = Part("head", layer, head)
            self.add(part, stages.context[head] @ columns[head].T)
            by_value = self.vectors[-1] @ columns[head] @ stages.v[head].T  # (K, T)
            self.sources[part] = stages.weights[head, -1] * by_value
