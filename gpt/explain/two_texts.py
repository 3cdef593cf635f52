"""The small model of the lesson "encoder-decoder", and the size of the one in the tutorial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gpt.config import ModelConfig
from gpt.explain.lesson import Material
from gpt.explain.tables import second_text, seeded
from gpt.model import GPT

SEED, WIDTH, LAYERS = 123, 8, 2

#: The kinds of layers in "Attention Is All You Need" (Vaswani et al. 2017).
PAPER: dict[str, Any] = {
    "position": "sinusoidal",
    "norm": "layer",
    "activation": "relu",
    "bias": True,
    "post_norm": True,
    "scaled_embedding": True,
    "tied": True,
    "shared_embedding": True,
    "attention": "heads",
}
#: The size of the tutorial's model.
LARGE: dict[str, Any] = PAPER | {
    "vocab_size": 1024,
    "block_size": 2048,
    "n_layer": 8,
    "encoder_layers": 8,
    "n_head": 8,
    "n_embd": 512,
    "attention": "fused",
}


@dataclass(frozen=True)
class Texts:
    """A pair of texts and a small model of them, in float64.

    source: (1, S) ids of `words`; ids: (1, T) ids of `reads`, what the decoder reads.
    """

    model: GPT
    vocabulary: tuple[str, ...]
    words: tuple[str, ...]
    reads: tuple[str, ...]
    source: Tensor
    ids: Tensor
    seed: int

    @classmethod
    def of(cls, material: Material) -> Texts:
        """The material's words as the source, a second text as the target, random weights."""
        words, reads = material.words, ("start", *second_text(material))
        seed = SEED if material.seed is None else material.seed
        vocabulary = tuple(dict.fromkeys(("start", "end", *words, *reads)))
        config = ModelConfig(
            vocab_size=len(vocabulary),
            block_size=len(words) + len(reads),
            n_layer=LAYERS,
            encoder_layers=LAYERS,
            n_head=2,
            n_embd=WIDTH,
            **PAPER,
        )
        with seeded(seed):
            model = xavier(GPT(config)).double().requires_grad_(False)
        source, ids = (torch.tensor([[vocabulary.index(it) for it in on]]) for on in (words, reads))
        return cls(model, vocabulary, words, reads, source, ids, seed)

    @property
    def encoder_blocks(self) -> list[Any]:
        """The blocks of the encoder."""
        assert self.model.encoder is not None
        return list(self.model.encoder.blocks)

    def inputs(self) -> Tensor:
        """(1, S, C): the input of the encoder's first block."""
        found: list[Tensor] = []
        hook = self.encoder_blocks[0].register_forward_pre_hook(
            lambda _, arguments: found.append(arguments[0])
        )
        self.model.encode(self.source)
        hook.remove()
        return found[0]


def xavier(model: GPT) -> GPT:
    """Draws every matrix within ±√(6 / (rows + columns)) (Glorot & Bengio 2010)."""
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.xavier_uniform_(parameter)
    return model


def unturned(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Returns its arguments: sinusoidal positions do not change queries and keys."""
    return queries, keys


def count(module: nn.Module) -> int:
    """The number of parameters."""
    return sum(each.numel() for each in module.parameters())
