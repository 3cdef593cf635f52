"""A GPT as a graph of ONNX operators: gpt/reading/gpt.py with a cache, in operators of opset 18.

Inputs: ids (B, T); past_keys and past_values (L, B, H, P, D), of the P characters before these,
P = 0 for the first ones. Outputs: logits (B, T, vocab_size); keys and values (L, B, H, P + T, D),
the next call's past. B, T and P can differ from call to call; P + T is at most block_size.
Tensor names: B batch, T time, P past, S = P + T, C n_embd, L layers, H heads, D head_size.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from gpt.config import ModelConfig
from gpt.reading.layers import EPSILON, Array
from gpt.reading.positions import POSITIONS

OPSET = 18
IR_VERSION = 8  # of onnx 1.13, the first with this opset
PAST = ("past_keys", "past_values")
PRESENT = ("keys", "values")

Name = str  # of a tensor in the graph


class Graph:
    """Operators and constants, in the order of the computation."""

    def __init__(self) -> None:
        self.onnx: Any = import_module("onnx")
        self.nodes: list[Any] = []
        self.constants: dict[Name, Any] = {}

    def op(self, kind: str, *inputs: Name, name: Name = "", **attributes: Any) -> Name:
        """Adds an operator with one output, whose name is returned."""
        output = name or f"{kind.lower()}_{len(self.nodes)}"
        node = self.onnx.helper.make_node(kind, [*inputs], [output], **attributes)
        self.nodes.append(node)
        return output

    def constant(self, values: Any, name: Name = "") -> Name:
        """A constant; numbers without a name are stored once."""
        array = np.asarray(values, order="C")
        name = name or f"{array.dtype.name}_{array.tolist()}".replace(" ", "")
        self.constants[name] = array
        return name


class GptGraph(Graph):
    """The graph of a model. tensors: of the model file."""

    def __init__(self, config: ModelConfig, tensors: Mapping[str, Array]) -> None:
        super().__init__()
        self.config, self.tensors = config, tensors
        self.dtype = tensors["token_embedding.weight"].dtype
        self._build()

    def number(self, value: float) -> Name:
        """A constant of the model's type."""
        return self.constant(self.dtype.type(value))

    def axes(self, *values: int) -> Name:
        """A constant (n,) of whole numbers: a shape or axes."""
        return self.constant(np.array(values, np.int64))

    def _build(self) -> None:
        config = self.config
        new, past = self._size("ids", 1), self._size("past_keys", 3)
        end, zero, one = self.op("Add", past, new), *map(self._whole, (0, 1))
        self.at = self.op("Range", past, end, one)  # (T,)
        self.seen = self.op("Range", zero, end, one)  # (S,)
        table = self.constant(self.tensors["token_embedding.weight"], "token_embedding")
        x = self.op("Gather", table, "ids")  # (B, T, C)
        if config.scaled_embedding:
            x = self.op("Mul", x, self.number(config.n_embd**0.5))
        x = self._embed(x)
        self.turns, self.mask = self._turns(), self._mask()
        kept: dict[Name, list[Name]] = {name: [] for name in PRESENT}
        for layer in range(config.n_layer):
            x, *cached = self._block(x, layer)
            for name, each in zip(PRESENT, cached, strict=True):
                kept[name].append(self.op("Unsqueeze", each, self.axes(0)))
        for name, layers in kept.items():
            self.op("Concat", *layers, axis=0, name=name)
        if not config.post_norm:
            x = self._norm(x, "norm")
        output = (
            self.op("Transpose", table, perm=[1, 0]) if config.tied else self._matrix("lm_head")
        )
        self.op("MatMul", x, output, name="logits")

    def _embed(self, x: Name) -> Name:
        """(B, T, C) -> (B, T, C), with positions added."""
        config = self.config
        if config.position not in ("learned", "sinusoidal"):
            return x
        position = POSITIONS[config.position](config, self.tensors, self.dtype)
        nothing = np.zeros((1, config.block_size, config.n_embd), self.dtype)
        rows = position.embed(nothing, slice(0, config.block_size))[0]
        return self.op("Add", x, self.op("Gather", self.constant(rows, "position"), self.at))

    def _turns(self) -> tuple[Name, Name] | None:
        """Two (T, D/2): cosines and sines of rotary positions."""
        config = self.config
        if config.position != "rotary":
            return None
        position = POSITIONS["rotary"](config, self.tensors, self.dtype)
        shape = (1, 1, config.block_size, config.head_size)
        one, zero = np.zeros((2, *shape), self.dtype)
        one[..., ::2] = 1  # the number 1 in each pair of coordinates, which is then turned
        turned = position.rotate(one, zero, slice(0, config.block_size))[0][0, 0]  # (S, D)
        cosines = self.constant(turned[:, ::2], "cosines")
        sines = self.constant(turned[:, 1::2], "sines")
        return self.op("Gather", cosines, self.at), self.op("Gather", sines, self.at)

    def _mask(self) -> Name:
        """(T, S) or (H, T, S), added to scores: −inf for later keys, and the position's bias."""
        config = self.config
        rows = self.op("Unsqueeze", self.at, self.axes(1))  # (T, 1)
        allowed = self.op("LessOrEqual", self.seen, rows)  # (T, S)
        if config.position != "alibi":
            added = self.number(0)
        else:
            position = POSITIONS["alibi"](config, self.tensors, self.dtype)
            bias = position.bias(slice(0, 2))  # (H, 2, 2)
            assert bias is not None
            slopes = self.constant(-bias[:, 1:, :1], "slopes")  # (H, 1, 1)
            away = self.op("Cast", self.op("Sub", self.seen, rows), to=self.element)  # (T, S) ≤ 0
            added = self.op("Mul", slopes, away)
        return self.op("Where", allowed, added, self.number(-np.inf))

    def _block(self, x: Name, layer: int) -> tuple[Name, Name, Name]:
        """(B, T, C) -> (B, T, C), and the layer's keys and values, (B, H, S, D)."""
        block = f"blocks.{layer}."
        mixed, keys, values = self._attend(self._before(x, block + "norm1"), layer)
        x = self._add(x, mixed, block + "norm1")
        hidden = self._linear(self._before(x, block + "norm2"), block + "feed_forward.up")
        down = self._linear(self._activated(hidden), block + "feed_forward.down")
        return self._add(x, down, block + "norm2"), keys, values

    def _attend(self, x: Name, layer: int) -> tuple[Name, Name, Name]:
        """(B, T, C) -> (B, T, C), and the layer's keys and values, (B, H, S, D)."""
        config, name = self.config, f"blocks.{layer}.attention."
        shape = self.axes(0, 0, 3, config.n_head, config.head_size)
        packed = self.op("Reshape", self._linear(x, name + "qkv"), shape)
        packed = self.op("Transpose", packed, perm=[2, 0, 3, 1, 4])  # (3, B, H, T, D)
        q, k, v = (self._part(packed, part) for part in range(3))
        if config.qk_norm:
            q, k = self._rms(q), self._rms(k)
        q, k = self._rotated(q), self._rotated(k)
        k, v = (
            self.op("Concat", self._part(past, layer), now, axis=2)  # (B, H, S, D)
            for past, now in zip(PAST, (k, v), strict=True)
        )
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scaled = self.op("Mul", scores, self.number(config.head_size**-0.5))
        weights = self.op("Softmax", self.op("Add", scaled, self.mask), axis=-1)
        context = self.op("Transpose", self.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        concat = self.op("Reshape", context, self.axes(0, 0, config.n_embd))
        return self._linear(concat, name + "proj"), k, v

    def _rotated(self, x: Name) -> Name:
        """(B, H, T, D) with coordinates 2d and 2d + 1 turned by each position's angles."""
        if self.turns is None:
            return x
        cosines, sines = self.turns
        pairs = self.op("Reshape", x, self.axes(0, 0, 0, self.config.head_size // 2, 2))
        even, odd = self._part(pairs, 0, axis=4), self._part(pairs, 1, axis=4)
        turned = (
            self.op("Sub", self.op("Mul", even, cosines), self.op("Mul", odd, sines)),
            self.op("Add", self.op("Mul", even, sines), self.op("Mul", odd, cosines)),
        )
        stacked = [self.op("Unsqueeze", each, self.axes(4)) for each in turned]
        both = self.op("Concat", *stacked, axis=4)
        return self.op("Reshape", both, self.axes(0, 0, 0, self.config.head_size))

    def _activated(self, x: Name) -> Name:
        """(B, T, widened) -> (B, T, hidden)"""
        return getattr(self, f"_{self.config.activation}")(x)  # type: ignore[no-any-return]

    def _relu(self, x: Name) -> Name:
        return self.op("Relu", x)

    def _relu2(self, x: Name) -> Name:
        positive = self.op("Relu", x)
        return self.op("Mul", positive, positive)

    def _gelu(self, x: Name) -> Name:
        """The tanh form."""
        cube = self.op("Mul", self.op("Mul", x, x), x)
        inner = self.op("Add", x, self.op("Mul", cube, self.number(0.044715)))
        curve = self.op("Tanh", self.op("Mul", inner, self.number((2 / np.pi) ** 0.5)))
        return self._halved(x, curve)

    def _gelu_erf(self, x: Name) -> Name:
        return self._halved(x, self.op("Erf", self.op("Mul", x, self.number(0.5**0.5))))

    def _halved(self, x: Name, curve: Name) -> Name:
        """x · (1 + curve) / 2"""
        larger = self.op("Add", curve, self.number(1))
        return self.op("Mul", x, self.op("Mul", larger, self.number(0.5)))

    def _swiglu(self, x: Name) -> Name:
        halves = [f"gate_{len(self.nodes)}", f"up_{len(self.nodes)}"]
        node = self.onnx.helper.make_node("Split", [x], halves, axis=-1, num_outputs=2)
        self.nodes.append(node)
        gate, up = halves
        return self.op("Mul", self.op("Mul", gate, self.op("Sigmoid", gate)), up)

    def _before(self, x: Name, norm: str) -> Name:
        return x if self.config.post_norm else self._norm(x, norm)

    def _add(self, x: Name, result: Name, norm: str) -> Name:
        both = self.op("Add", x, result)
        return self._norm(both, norm) if self.config.post_norm else both

    def _norm(self, x: Name, name: str) -> Name:
        if self.config.norm == "rms":
            return self._rms(x)
        given = [
            f"{name}.{kind}" for kind in ("weight", "bias") if f"{name}.{kind}" in self.tensors
        ]
        inputs = [self.constant(self.tensors[each], each) for each in given]
        return self.op("LayerNormalization", x, *inputs, axis=-1, epsilon=EPSILON)

    def _rms(self, x: Name) -> Name:
        mean = self.op("ReduceMean", self.op("Mul", x, x), self.axes(-1), keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.number(EPSILON)))
        return self.op("Div", x, root)

    def _linear(self, x: Name, name: str) -> Name:
        product = self.op("MatMul", x, self._matrix(name))
        bias = f"{name}.bias"
        if bias not in self.tensors:
            return product
        return self.op("Add", product, self.constant(self.tensors[bias], bias))

    def _matrix(self, name: str) -> Name:
        """(columns, rows) of a linear layer."""
        return self.constant(self.tensors[f"{name}.weight"].T, name)

    def _part(self, x: Name, number: int, axis: int = 0) -> Name:
        """One index of an axis, which is left out."""
        return self.op("Gather", x, self._whole(number), axis=axis)

    def _size(self, x: Name, axis: int) -> Name:
        """The size of an axis, a number."""
        return self.op("Gather", self.op("Shape", x), self._whole(axis))

    def _whole(self, value: int) -> Name:
        return self.constant(np.int64(value))

    @property
    def element(self) -> int:
        """ONNX's number for the model's type."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(self.dtype))
