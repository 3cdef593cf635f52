"""Replaces stages while a model computes, to measure their effect: ablation, activation patching.

The forward computes everything after a replaced stage from its new values (Vig et al. 2020, Meng et
al. 2022). The model handles ids, not text; activations.py keeps what it computes.
Tensor names: N texts, T time, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpt.checks import numbered
from gpt.config import ModelConfig
from gpt.reading.gpt import Hook, unchanged
from gpt.reading.layers import Array

#: What replaces a stage: an array or number that broadcasts to its shape, or a function that gets
#: the stage's array and returns one of the same shape.
Patch: TypeAlias = Callable[[Array], npt.ArrayLike] | npt.ArrayLike
#: (stage, layer), (stage, layer, head) for stages that have heads, "final_norm" or "logits".
#: Arguments have the type Mapping[Any, Patch]: for Mapping[Place, Patch], mypy would reject a dict
#: whose keys are all tuples.
Place: TypeAlias = str | tuple[str, int] | tuple[str, int, int]

#: Stages with an axis of heads.
OF_HEADS = ("q", "k", "v", "scores", "scaled", "masked", "weights", "context", "head_output")
#: Stages that come after the last layer.
FINAL = ("final_norm", "logits")


def shapes(config: ModelConfig, T: int) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every stage for one text of T characters, in the order of computation."""
    width = config.n_embd
    stream, head = (T, width), (config.n_head, T, config.head_size)
    matrices = dict.fromkeys(("scores", "scaled", "masked", "weights"), (config.n_head, T, T))
    return {
        **{"stream": stream, "q": head, "k": head, "v": head, **matrices, "context": head},
        **{"head_output": (config.n_head, T, width), "concat": stream, "proj": stream},
        **{"residual": stream, "hidden": (T, config.hidden), "feed_forward": stream},
        **{"output": stream, "final_norm": stream, "logits": (T, config.vocab_size)},
    }


@dataclass(frozen=True)
class _Change:
    """One replacement; value: a function, or an array with the stage's shape for all N texts."""

    place: Place
    head: int | None
    value: Any

    def apply(self, stage: Array, texts: slice) -> None:
        """Writes the new values into the (B, …) stage of these texts.

        Its strides stay as they are, so that equal values give equal logits to the last bit.
        """
        part = stage if self.head is None else stage[:, self.head]
        if not callable(self.value):
            part[...] = self.value[texts]
            return
        found = self.value(part)
        if found is None:
            raise ValueError(f"patch {self.place!r}: the function returned None, not an array")
        if found is not part:
            new = _numbers(self.place, found)
            if new.shape != part.shape:
                raise ValueError(
                    f"patch {self.place!r}: the function returned an array of shape {new.shape}; "
                    f"it must keep the shape {part.shape}"
                )
            part[...] = new


class Patches:
    """The replacements of a forward over N texts of T characters.

    A replacement of a whole stage comes before those of its single heads. Raises ValueError for an
    unknown place or an array that does not broadcast, IndexError for a layer or head outside the
    model, TypeError for values that are no numbers.
    """

    def __init__(self, config: ModelConfig, patch: Mapping[Any, Patch], N: int, T: int) -> None:
        #: Whether a function needs a stage of all texts at once.
        if not isinstance(patch, Mapping):
            raise TypeError(f"patch: expected a dictionary, not {type(patch).__name__}")
        self.has_functions = any(callable(value) for value in patch.values())
        self._changes: dict[tuple[str, int], list[_Change]] = {}
        for place, value in patch.items():
            name, layer, head = _parsed(config, place)
            if not callable(value):
                shape = N, *shapes(config, T)[name]
                shape = shape if head is None else (N, *shape[2:])
                value = _broadcast(place, _numbers(place, value), shape)
            self._changes.setdefault((name, layer), []).append(_Change(place, head, value))
        for changes in self._changes.values():
            changes.sort(key=lambda change: change.head is not None)

    def hook(self, texts: slice) -> Hook:
        """The hook for the forward of these texts."""
        if not self._changes:
            return unchanged

        def patched(name: str, layer: int, stage: Array) -> Array:
            for change in self._changes.get((name, layer), ()):
                change.apply(stage, texts)
            return stage

        return patched


def _parsed(config: ModelConfig, place: Place) -> tuple[str, int, int | None]:
    """A place's stage, layer (n_layer after the last one) and head."""
    name, *numbers = (place,) if isinstance(place, str) else place
    if name not in (known := shapes(config, 1)):
        places = ", ".join(each for each in known if each != "head_output")
        raise ValueError(f"patch {place!r}: {name!r} is not one of {places}")
    if name == "head_output":
        raise ValueError(
            f"patch {place!r}: head_output can only be read; "
            "patch ('context', layer, head), or the sum of all heads, ('proj', layer)"
        )
    if name in FINAL:
        if numbers:
            raise ValueError(f"patch {place!r}: {name} comes after all layers; use {name!r} alone")
        return name, config.n_layer, None
    if not numbers or len(numbers) > 1 + (name in OF_HEADS):
        forms = f"({name!r}, layer)" + f" or ({name!r}, layer, head)" * (name in OF_HEADS)
        raise ValueError(f"patch {place!r}: expected {forms}")
    layer = numbered("layer", numbers[0], config.n_layer)
    head = numbered("head", numbers[1], config.n_head) if len(numbers) == 2 else None
    return name, layer, head


def _numbers(place: Place, value: Any) -> Array:
    """The value as an array of real numbers."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"patch {place!r}: expected numbers, not {array.dtype}")
    return array


def _broadcast(place: Place, array: Array, shape: tuple[int, ...]) -> Array:
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"patch {place!r}: an array of shape {array.shape} does not broadcast to {shape}"
        ) from None
