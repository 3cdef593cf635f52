"""How an architecture of the library transformers names and orders the tensors of a GPT.

The numbers of an export are the model's own: rows in another order, and constants for what the
model does not have, such as biases of 0. No number is computed, so an export can be compared with
its model bit for bit (huggingface.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig
from gpt.reading.layers import Array

QKV, PROJ, UP, DOWN = "attention.qkv", "attention.proj", "feed_forward.up", "feed_forward.down"
LINEAR = (QKV, PROJ, UP, DOWN)
ALWAYS = "always"  # biases that no option of the architecture turns off

Tensors = Mapping[str, Array]


@dataclass(frozen=True)
class Part:
    """A tensor of the export: rows of a tensor of the model, or a constant.

    name: in the export. source: the model's tensor, "" for a constant. rows: those of the source,
    in the export's order; None: all. transposed: whether the export has the columns as rows.
    value: of a constant, and shape: its shape.
    """

    name: str
    source: str = ""
    rows: npt.NDArray[np.intp] | None = None
    transposed: bool = False
    value: float = 0.0
    shape: tuple[int, ...] = ()

    def of(self, tensors: Tensors, dtype: np.dtype[Any]) -> Array:
        """The exported tensor."""
        if not self.source:
            return np.full(self.shape, self.value, dtype)
        rows = tensors[self.source] if self.rows is None else tensors[self.source][self.rows]
        return np.ascontiguousarray(rows.T if self.transposed else rows)


@dataclass(frozen=True)
class Architecture:
    """One architecture. options: option of ModelConfig -> the values that it takes.

    kind: the `model_type` of config.json; name: the class. own: its values of config.json.
    stem: module outside the blocks -> its name in the export. block: the beginning of a block's
    names; inside: module of a block -> its names, between which the module's rows are divided.
    biases: what turns on biases -> the modules that then have them. by_head: whether the rows of
    queries, keys and values alternate between heads. transposed: whether linear layers store (in,
    out).
    """

    kind: str
    name: str
    options: Mapping[str, tuple[Any, ...]]
    own: Callable[[ModelConfig], dict[str, Any]]
    stem: Mapping[str, str]
    block: str
    inside: Mapping[str, tuple[str, ...]]
    biases: Mapping[str, tuple[str, ...]]
    by_head: bool = False
    transposed: bool = False

    def differs(self, config: ModelConfig) -> list[str]:
        """The options in which the model differs from all models of this architecture."""
        return [
            name for name, values in self.options.items() if getattr(config, name) not in values
        ]

    def config(self, config: ModelConfig, tensors: Tensors) -> dict[str, Any]:
        """The content of config.json. tensors: of the model, as `parts` gets them."""
        flags = {flag: self._has(tensors, modules) for flag, modules in self.biases.items()}
        flags.pop(ALWAYS, None)
        return {
            "architectures": [self.name],
            "model_type": self.kind,
            "vocab_size": config.vocab_size,
            **self.own(config),
            **flags,
            "tie_word_embeddings": "lm_head.weight" not in tensors,
            "dtype": str(tensors["token_embedding.weight"].dtype),
            # No character begins, ends or pads a text; the architecture's defaults are other ids.
            **{f"{role}_token_id": None for role in ("bos", "eos", "pad")},
        }

    def parts(self, config: ModelConfig, tensors: Tensors) -> Iterator[Part]:
        """All tensors of the export. tensors: of the model, see `huggingface.plain`."""
        for module in ("token_embedding", "position", "lm_head"):
            if f"{module}.weight" in tensors:
                yield Part(f"{self.stem[module]}.weight", f"{module}.weight")
        if "norm" in self.stem:
            yield from self._norm(config, tensors, "norm", self.stem["norm"])
        for layer in range(config.n_layer):
            ours, theirs = f"blocks.{layer}.", self.block.format(layer)
            for module in ("norm1", "norm2"):
                yield from self._norm(
                    config, tensors, ours + module, theirs + self.inside[module][0]
                )
            for module in LINEAR:
                yield from self._linear(config, tensors, module, ours, theirs)

    def _norm(
        self, config: ModelConfig, tensors: Tensors, ours: str, theirs: str
    ) -> Iterator[Part]:
        shape = (config.n_embd,)
        kinds = {"weight": 1.0, "bias": 0.0} if config.norm == "layer" else {"weight": 1.0}
        for kind, value in kinds.items():
            stored = f"{ours}.{kind}" in tensors
            source = f"{ours}.{kind}" if stored else ""
            yield Part(f"{theirs}.{kind}", source, value=value, shape=shape)

    def _linear(
        self, config: ModelConfig, tensors: Tensors, module: str, ours: str, theirs: str
    ) -> Iterator[Part]:
        weight, bias = f"{ours}{module}.weight", f"{ours}{module}.bias"
        names, rows = self.inside[module], np.arange(len(tensors[weight]))
        if module == QKV:
            rows = self._order(config)
        has_bias = any(
            module in modules and (flag == ALWAYS or self._has(tensors, modules))
            for flag, modules in self.biases.items()
        )
        for name, own in zip(names, np.split(rows, len(names)), strict=True):
            yield Part(f"{theirs}{name}.weight", weight, own, self.transposed)
            if has_bias:
                source = bias if bias in tensors else ""
                yield Part(f"{theirs}{name}.bias", source, own, shape=(len(own),))

    def _order(self, config: ModelConfig) -> npt.NDArray[np.intp]:
        """(3C,) the rows of qkv in the export's order.

        gptx turns coordinates 2d and 2d + 1 of a head together, the rotary ones of transformers
        coordinates d and d + D/2.
        """
        heads, size = config.n_head, config.head_size
        rows = np.arange(3 * config.n_embd).reshape(3, heads, size)
        if config.position == "rotary":
            halves = np.concatenate((np.arange(0, size, 2), np.arange(1, size, 2)))
            rows[:2] = rows[:2][..., halves]
        return (rows.swapaxes(0, 1) if self.by_head else rows).reshape(-1)

    @staticmethod
    def _has(tensors: Tensors, modules: tuple[str, ...]) -> bool:
        """Whether the model has a bias in one of these modules."""
        return any(f"blocks.0.{module}.bias" in tensors for module in modules)
