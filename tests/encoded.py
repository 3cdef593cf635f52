"""Models with an encoder and random weights, whose file is a complete model file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpt.config import ModelConfig
from gpt.model import GPT, initialise
from gpt.reading.gpt import CROSS, Hook, Memory, Reader
from gpt.reading.layers import Array
from gpt.reading.proof import prove_tensors
from gpt.training.checkpoint import model_bytes
from gpt.vocabulary import Ids, Vocabulary

PAIRS = "".join(f"{n % 7}b{'a' * (n % 4)}\t{n % 5}c\n" for n in range(40))
CHARACTERS = "abcdef0123456789 -\t\n"
#: Sources of characters, targets of symbols; "ɒ" and "c" stand in targets only, "a" and "b" only in
#: sources.
CHARACTERS_OF_BOTH = ("\t", "\n", *"0123456ab", "bː", "c", "t͡s", "ɒ")
SYMBOLS = Vocabulary(CHARACTERS_OF_BOTH, ("target",), ("c", "ɒ"), ("a", "b"))
SPOKEN = "".join(f"{n % 7}b{'a' * (n % 4)}\t{n % 5} t͡s {'ɒ ' * (n % 3)}bː\n" for n in range(40))
SHAPE: dict[str, Any] = dict(block_size=16, n_layer=2, n_head=2, n_embd=16, encoder_layers=3)


def encoded_file(
    path: Path,
    excerpt: str = PAIRS,
    more: str = "",
    vocabulary: Vocabulary | None = None,
    **options: Any,
) -> Path:
    """Writes a model of these characters; weights are larger than those that training starts from.

    excerpt: pairs, the start of its validation split. more: characters. vocabulary: another one.
    """
    vocabulary = vocabulary or Vocabulary.from_text(CHARACTERS + more)
    model = GPT(ModelConfig(vocab_size=len(vocabulary), **SHAPE | options))
    initialise(model, seed=1)
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    path.write_bytes(model_bytes(model, vocabulary, excerpt, 1, prove_tensors))
    return path


def reader_of(model: GPT) -> Reader:
    """The numpy reader of a torch model's weights."""
    return Reader(model.config, {n: it.numpy() for n, it in model.stored_parameters().items()})


def hooked_logits(
    reader: Reader, source: Ids, read: Ids, hook: Callable[[str, str, int, Array], Array]
) -> Array:
    """(T, V) logits of what the decoder reads. hook: (kind of attention, stage, layer, array) ->
    what replaces the stage."""

    def own(kind: str) -> Hook:
        return lambda name, layer, array: hook(kind, name, layer, array)

    def both(name: str, layer: int, array: Array) -> Array:
        if name.startswith(CROSS):
            return hook("cross", name.removeprefix(CROSS), layer, array)
        return hook("decoder", name, layer, array)

    encoder = reader.encoder
    assert encoder is not None
    layers = range(encoder.config.n_layer)
    x = encoder.blocks(encoder.embed(source[None]), layers, own("encoder"))
    memory = Memory(encoder.final_norm(x))
    y = reader.blocks(reader.embed(read[None]), range(reader.config.n_layer), both, memory=memory)
    return reader.logits(reader.final_norm(y))[0]
