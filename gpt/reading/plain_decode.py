"""Decodes one more character for each of B streams, with the reader's own functions and a cache.

For models that decode.py cannot fold: those with an encoder, and those that normalise after each
sublayer. The encoder's output, and the keys and values that cross-attention takes from it, are
computed once for each source. Tests compare it with the reader.
Tensor names: B streams, T new characters, C n_embd, H heads, D head_size, S keys.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpt.reading.gpt import Reader
from gpt.reading.layers import ACTIVATIONS, Array, softmax
from gpt.reading.stages import Memory
from gpt.vocabulary import Ids

#: A layer's keys and values, (B, H, S, D) each.
Cached = tuple[Array, Array]


class PlainDecoder:
    """Decodes B streams at once, one character a step. `start` fixes B."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self.config = reader, reader.config
        self._length = 0  # characters so far
        self._own: list[Cached] = []  # each layer's, of these characters
        self._memory: list[Cached] = []  # each layer's, of the source
        self._allowed: npt.NDArray[np.bool_] | None = None  # (B, 1, 1, S), of the source

    def twin(self) -> PlainDecoder:
        """Another decoder of the same weights."""
        return PlainDecoder(self._reader)

    def start(self, ids: Ids, memory: Memory | None = None) -> Array:
        """Starts new texts: (B, n) ids -> (B, vocab_size) logits of the next character.

        memory: the encoder's output for each text's source, in a model with an encoder.
        """
        config, D = self.config, self.config.head_size
        empty = np.empty((len(ids), config.n_head, 0, D), self._reader.dtype)
        self._own, self._memory, self._allowed = [(empty, empty)] * config.n_layer, [], None
        self._length = 0
        if memory is not None:
            for layer in range(config.n_layer):
                keys, values = self._reader.heads(memory.states, layer, "cross", "kv")
                self._memory.append((keys, values))
            self._allowed = None if memory.allowed is None else memory.allowed[:, None]
        return self._read(ids)

    def step(self, ids: Ids) -> Array:
        """(B,) ids, one more for each stream -> (B, vocab_size) logits of the next character."""
        return self._read(ids[:, None])

    def keep(self, streams: npt.NDArray[np.intp]) -> None:
        """Goes on with these of the B streams; a stream may go on several times."""
        self._own = [(keys[streams], values[streams]) for keys, values in self._own]
        self._memory = [(keys[streams], values[streams]) for keys, values in self._memory]
        self._allowed = None if self._allowed is None else self._allowed[streams]

    def _read(self, ids: Ids) -> Array:
        """(B, T) next ids -> (B, vocab_size) logits of what follows the last of them."""
        reader = self._reader
        x = reader.embed(ids, self._length)  # (B, T, C)
        self._length += ids.shape[1]
        for layer in range(self.config.n_layer):
            block = f"blocks.{layer}."
            context = self._attend(reader.before(x, block + "norm1"), layer)
            x = reader.add(x, reader.apply(context, block + "attention.proj"), block + "norm1")
            if self._memory:
                context = self._cross(reader.before(x, block + "cross_norm"), layer)
                added = reader.apply(context, block + "cross.proj")
                x = reader.add(x, added, block + "cross_norm")
            up = reader.apply(reader.before(x, block + "norm2"), block + "feed_forward.up")
            active = ACTIVATIONS[self.config.activation](up, None)
            down = reader.apply(active, block + "feed_forward.down")
            x = reader.add(x, down, block + "norm2")
        return reader.logits(reader.final_norm(x[:, -1]))

    def _attend(self, x: Array, layer: int) -> Array:
        """(B, T, C), the new characters -> (B, T, C), the heads' contexts side by side."""
        position, S = self._reader.position, self._length
        at = slice(S - x.shape[1], S)
        queries, keys, values = self._reader.heads(x, layer, "attention")
        queries, keys = position.rotate(queries, keys, at)
        before = self._own[layer]
        keys = np.concatenate((before[0], keys), axis=2)
        values = np.concatenate((before[1], values), axis=2)
        self._own[layer] = keys, values
        past = np.arange(S) <= np.arange(S)[at, None]  # (T, S)
        return self._context(queries, keys, values, position.bias(at), past)

    def _cross(self, x: Array, layer: int) -> Array:
        """(B, T, C), the new characters -> (B, T, C), the heads' contexts side by side."""
        (queries,) = self._reader.heads(x, layer, "cross", "q")
        return self._context(queries, *self._memory[layer], None, self._allowed)

    def _context(
        self,
        queries: Array,
        keys: Array,
        values: Array,
        bias: Array | None,
        allowed: npt.NDArray[np.bool_] | None,
    ) -> Array:
        """(B, H, T, D) queries, (B, H, S, D) keys and values -> (B, T, C)."""
        scores = queries @ keys.swapaxes(-2, -1)  # (B, H, T, S)
        scores *= scores.dtype.type(self.config.head_size**-0.5)
        scores = scores if bias is None else scores + bias
        if allowed is not None:
            scores = np.where(allowed, scores, scores.dtype.type(-np.inf))
        context: Array = (softmax(scores) @ values).swapaxes(1, 2)  # (B, T, H, D)
        return context.reshape(*context.shape[:2], -1)
