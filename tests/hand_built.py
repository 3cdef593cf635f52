"""A GPT with heads built by hand, each with a known job, to test measures."""

from __future__ import annotations

import numpy as np

from gpt.config import ModelConfig
from gpt.reading.gpt import Reader
from gpt.vocabulary import Vocabulary

SIZE = 16  # number of characters, number of positions, and head_size
LETTERS = Vocabulary("abcdefghijklmnop")
GAIN = 3.0
#: Columns of the stream.
TOKEN, POSITION, BEFORE, NEXT = (slice(n * SIZE, (n + 1) * SIZE) for n in range(4))
#: The job of each head; every other head has queries of zero and attends evenly.
PREVIOUS, FIRST, EVEN, DUPLICATE = ((0, head) for head in range(4))
INDUCTION = (1, 0)


def hand_built(back: int = 1, completed: int = SIZE) -> Reader:
    """Layer 0 attends to the previous, the first, all, equal characters; layer 1 head 0: induction.

    back: the distance of the first head. completed: layer 1 head 0 completes only the
    first so many characters of the vocabulary, and is uniform for the others.

    Characters and positions are unit vectors; the norm changes their length and subtracts the same
    small number everywhere, which is the same for all keys of a row. The previous head
    writes the preceding character into BEFORE; the induction head searches there for its own
    character, and writes the character at that place into NEXT, which the output reads.
    """
    config = ModelConfig(
        vocab_size=SIZE,
        block_size=SIZE,
        n_layer=2,
        n_head=4,
        n_embd=4 * SIZE,
        position="learned",
    )
    tensors = {name: np.zeros(shape, np.float32) for name, shape in config.shapes().items()}
    for name in tensors:
        if "norm" in name:
            tensors[name][:] = 1
    one = np.eye(SIZE, dtype=np.float32)
    tensors["token_embedding.weight"][:, TOKEN] = one
    tensors["position.weight"][:, POSITION] = one
    tensors["lm_head.weight"][:, NEXT] = GAIN * one

    def head(where: tuple[int, int], *rows: tuple[slice, np.ndarray]) -> None:  # type: ignore[type-arg]
        """(columns, matrix) of queries, keys and values."""
        layer, number = where
        packed = tensors[f"blocks.{layer}.attention.qkv.weight"].reshape(3, 4, SIZE, 4 * SIZE)
        for part, (columns, matrix) in enumerate(rows):
            packed[part, number][:, columns] = matrix

    def says(where: tuple[int, int], columns: slice) -> None:
        layer, number = where
        projection = tensors[f"blocks.{layer}.attention.proj.weight"]
        projection[columns, number * SIZE : (number + 1) * SIZE] = one

    shifted, first, ones = np.eye(SIZE, k=back), np.zeros((SIZE, SIZE)), np.zeros((SIZE, SIZE))
    first[0, 0], ones[0] = 1, 1
    some = np.diag(np.arange(SIZE) < completed)
    head(PREVIOUS, (POSITION, GAIN * shifted), (POSITION, GAIN * one), (TOKEN, one))
    head(FIRST, (POSITION, GAIN * ones), (POSITION, GAIN * first))
    head(DUPLICATE, (TOKEN, GAIN * one), (TOKEN, GAIN * one))
    head(INDUCTION, (TOKEN, GAIN * some), (BEFORE, GAIN * one), (TOKEN, one))
    says(PREVIOUS, BEFORE)
    says(INDUCTION, NEXT)
    return Reader(config, tensors)
