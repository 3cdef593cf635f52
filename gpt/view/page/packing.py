"""Packs arrays for the page's data: base64 of float32 or float16, within a limit of bytes."""

from __future__ import annotations

import base64
import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpt.heads.attention_map import AttentionMap
from gpt.reading.layers import Array

#: Arrays of a layer besides its weights. All other stages up to resid_mid follow from these arrays
#: to the last bit: scores from q and k, context and concat from weights and v, and resid_mid =
#: resid_pre + proj.
DETAILS = ("q", "k", "v", "resid_pre", "proj")

Bits = Literal[16, 32]
_KEYS = 64  # characters that an array takes in JSON besides its numbers, at most


def fit_details(attention: AttentionMap, first: int, room: int) -> tuple[Bits, set[int]]:
    """How many bits a number may have, and which layers can have DETAILS, to fit into `room`
    bytes.

    first: the layer that always keeps its details.
    """
    layers, allowed = attention.layers, len(attention.ids) * (len(attention.ids) + 1) // 2

    def weights(bits: Bits) -> int:
        return sum(_size(len(layer.q) * allowed, bits) for layer in layers)

    def details(n: int, bits: Bits) -> int:
        return sum(_size(getattr(layers[n], name).size, bits) for name in DETAILS)

    everything = set(range(len(layers)))
    if weights(32) + sum(details(n, 32) for n in everything) <= room:
        return 32, everything
    detailed, room = {first}, room - weights(16) - details(first, 16)
    for n in sorted(everything - detailed):
        room -= details(n, 16)
        if room < 0:
            break
        detailed.add(n)
    return 16, detailed


def pack(values: Array, bits: Bits) -> dict[str, Any]:
    """Packs values as little-endian numbers; float32 if a number is too large for float16."""
    if bits == 16 and np.abs(values).max() > np.finfo(np.float16).max:
        bits = 32
    return {"bits": bits, "base64": in_base64(values.astype(f"<f{bits // 8}"))}


def select_allowed(weights: Array, allowed: npt.NDArray[np.bool_]) -> Array:
    """(H, T, T) -> (H, N): the numbers at the N places that the (T, T) mask allows, row by row."""
    found: Array = weights.reshape(len(weights), -1).take(np.flatnonzero(allowed), axis=1)
    return found


def in_base64(array: npt.NDArray[Any]) -> str:
    """The array's bytes, row by row."""
    return base64.b64encode(np.ascontiguousarray(array).data).decode()


def _size(count: int, bits: Bits) -> int:
    """How many characters `count` numbers take in the document."""
    return 4 * math.ceil(count * bits / 24) + _KEYS
