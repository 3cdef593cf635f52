"""Adds the position of a character to the model's numbers (gpt/reading/layers.py does so in
numpy): `embed` may add to the embeddings, `rotate` may rotate queries and keys. at: the positions
of the argument.
Tensor names: B batch, T time, C n_embd, D head_size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gpt.config import ModelConfig

ROTARY_BASE = 10_000.0


class Position(nn.Module):
    """No positions: only the causal mask gives order an effect (Haviv et al. 2022)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        for name, table in self.tables(config).items():
            self.register_buffer(name, table.to(torch.get_default_dtype()), persistent=False)

    @staticmethod
    def tables(config: ModelConfig) -> dict[str, Tensor]:
        """Buffer name -> constants that this kind of positions needs, in float64."""
        return {}

    def embed(self, x: Tensor, at: slice) -> Tensor:
        """(B, T, C) -> (B, T, C)"""
        return x

    def rotate(self, queries: Tensor, keys: Tensor, at: slice) -> tuple[Tensor, Tensor]:
        """Two (..., T, D) -> two (..., T, D)"""
        return queries, keys


class Learned(Position):
    """A trained vector for each of the block_size positions, added (GPT-2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.weight = nn.Parameter(torch.zeros(config.block_size, config.n_embd))

    def embed(self, x: Tensor, at: slice) -> Tensor:
        return x + self.weight[at]


class Sinusoidal(Position):
    """Fixed sines and cosines, added (Vaswani et al. 2017): even columns sin(t / 10000^(c/C)), odd
    columns the cosine of the same angle.
    """

    table: Tensor

    @staticmethod
    def tables(config: ModelConfig) -> dict[str, Tensor]:
        pairs = torch.arange(0, config.n_embd, 2, dtype=torch.float64) / config.n_embd
        times = torch.arange(config.block_size, dtype=torch.float64)
        angles = torch.outer(times, 10_000.0**-pairs)  # (T, C/2)
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # (T, C)
        return {"table": table[:, : config.n_embd]}

    def embed(self, x: Tensor, at: slice) -> Tensor:
        return x + self.table[at]


class Rotary(Position):
    """Rotates queries and keys by an angle that grows with the position (Su et al. 2021).

    Coordinates 2d and 2d + 1 are a complex number, which is multiplied by e^(i·t·10000^(−2d/D)) in
    one pass over memory; so a score depends only on the distance.
    """

    turns: Tensor

    @staticmethod
    def speeds(config: ModelConfig) -> Tensor:
        """(D/2,) radians by which pairs of coordinates rotate from one position to the next."""
        half = config.head_size // 2
        return ROTARY_BASE ** (-torch.arange(half, dtype=torch.float64) / half)

    @staticmethod
    def tables(config: ModelConfig) -> dict[str, Tensor]:
        times = torch.arange(config.block_size, dtype=torch.float64)
        angles = torch.outer(times, Rotary.speeds(config))  # (T, D/2)
        return {"turns": torch.stack((angles.cos(), angles.sin()), dim=-1)}  # (T, D/2, 2)

    def rotate(self, queries: Tensor, keys: Tensor, at: slice) -> tuple[Tensor, Tensor]:
        turns = torch.view_as_complex(self.turns[at])  # (T, D/2)
        return self._turn(queries, turns), self._turn(keys, turns)

    def _turn(self, x: Tensor, turns: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.to(self.turns.dtype).view(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(-2).type_as(x)  # (..., T, D)


POSITIONS: dict[str, type[Position]] = {
    "none": Position,
    "learned": Learned,
    "sinusoidal": Sinusoidal,
    "rotary": Rotary,
}
