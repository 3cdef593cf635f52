"""An error of the reader's code: no model opens, as torch computed the logits of the probe.

The same reader in float64 runs the same code: only the probe shows such an error.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_models import random_file

import gpt
from gpt.errors import CheckpointError
from gpt.reading.gpt import Array, Reader, no_hook

SLIGHTLY = 1 + 2**-10
#: The name of a method of Reader, and what makes a wrong one of the right one.
Error = tuple[str, Callable[[Any], Any]]


def at(name: str, change: Callable[[Array], Array]) -> Error:
    """Changes a stage of every layer, by its name in a Hook."""

    def wrong(right: Any) -> Any:
        def block(self: Reader, x: Array, layer: int, hook: Any = no_hook) -> Any:
            def changed(stage: str, layer: int, array: Array) -> Any:
                return hook(stage, layer, change(array) if stage == name else array)

            return right(self, x, layer, changed)

        return block

    return "block", wrong


def without(norm: str) -> Error:
    def wrong(right: Any) -> Any:
        return lambda self, x, name: x if name.split(".")[-1] == norm else right(self, x, name)

    return "apply_norm", wrong


def of_another_layer(part: str) -> Error:
    """Layer 1 uses the weights of layer 0."""

    def wrong(right: Any) -> Any:
        return lambda self, name: right(self, name.replace(f"1.{part}", f"0.{part}"))

    return "weight_and_bias", wrong


def read_ahead(masked: Array) -> Array:
    next_one = np.eye(*masked.shape[-2:], k=1, dtype=np.bool_)
    return np.where(next_one, masked.dtype.type(0), masked)


def hide_own(masked: Array) -> Array:
    own = np.eye(*masked.shape[-2:], dtype=np.bool_)
    own[0] = False  # the first row has nothing else to read
    return np.where(own, masked.dtype.type(-np.inf), masked)


def swap_heads(stage: Array) -> Array:
    return stage[:, ::-1]


ERRORS: dict[str, Error] = {
    "scores are scaled by another root": at("scaled", lambda x: x * x.dtype.type(2**-0.5)),
    "scores are scaled 0.1 % too much": at("scaled", lambda x: x * x.dtype.type(SLIGHTLY)),
    "the mask lets the next character through": at("masked", read_ahead),
    "the mask hides the own character": at("masked", hide_own),
    "attention has no norm": without("norm1"),
    "the feed-forward has no norm": without("norm2"),
    "the logits have no norm": without("norm"),
    "heads are swapped": at("context", swap_heads),
    "the stream loses attention": at("proj", np.zeros_like),
    "queries are of another layer": of_another_layer("attention.qkv"),
}
KINDS: dict[str, dict[str, Any]] = {
    "rotary": {},
    "learned": {"position": "learned", "bias": True, "activation": "gelu"},
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model file of each kind."""
    folder = tmp_path_factory.mktemp("models")
    return {kind: random_file(folder / kind, **options) for kind, options in KINDS.items()}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_does_not_open_in_a_wrong_reader(
    paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch, kind: str, error: str
) -> None:
    gpt.load(paths[kind])
    name, wrong = ERRORS[error]
    monkeypatch.setattr(Reader, name, wrong(getattr(Reader, name)))
    with pytest.raises(CheckpointError, match="computes other logits than torch did at saving"):
        gpt.load(paths[kind])
