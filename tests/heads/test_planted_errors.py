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
from gpt.heads.attention_map import inspect
from gpt.reading import gpt as reader_module
from gpt.reading import layers
from gpt.reading.gpt import Reader, no_hook
from gpt.reading.layers import Array
from gpt.reading.probe import PROBE, prove
from gpt.storage.model_file import StoredModel, read_model

SLIGHTLY = 1 + 2**-10
#: A module or class, the name of a function in it, and what makes a wrong function of the right.
Error = tuple[Any, str, Callable[[Any], Any]]


def at(name: str, change: Callable[[Array], Array]) -> Error:
    """Changes a stage of every layer, by its name in a Hook."""

    def wrong(right: Any) -> Any:
        def block(self: Reader, x: Array, layer: int, hook: Any = no_hook) -> Any:
            def changed(stage: str, layer: int, array: Array) -> Any:
                return hook(stage, layer, change(array) if stage == name else array)

            return right(self, x, layer, changed)

        return block

    return Reader, "block", wrong


def without(norm: str) -> Error:
    return (
        Reader,
        "norm",
        lambda right: (
            lambda self, x, name: x if name.split(".")[-1] == norm else right(self, x, name)
        ),
    )


def of_another_layer(part: str) -> Error:
    """Layer 1 uses the weights of layer 0."""
    return (
        Reader,
        "linear",
        lambda right: lambda self, name: right(self, name.replace(f"1.{part}", f"0.{part}")),
    )


def read_ahead(masked: Array) -> Array:
    next_one = np.eye(*masked.shape[-2:], k=1, dtype=np.bool_)
    return np.where(next_one, masked.dtype.type(0), masked)


def hide_own(masked: Array) -> Array:
    own = np.eye(*masked.shape[-2:], dtype=np.bool_)
    own[0] = False  # the first row has nothing else to read
    return np.where(own, masked.dtype.type(-np.inf), masked)


def swap_heads(stage: Array) -> Array:
    return stage[:, ::-1]


def times(factor: float, only: Callable[[Array], Any] = lambda x: True) -> Callable[[Array], Array]:
    return lambda x: np.where(only(x), x * x.dtype.type(factor), x)


def last_position(x: Array) -> Any:
    return np.arange(x.shape[-2])[:, None] == 15


def seventh(x: Array) -> Any:
    return np.arange(x.shape[-1]) == 7


ERRORS: dict[str, Error] = {
    "scores are scaled by another root": at("scaled", times(2**-0.5)),
    "scores are scaled 0.1 % too much": at("scaled", times(SLIGHTLY)),
    "the mask lets the next character through": at("masked", read_ahead),
    "the mask hides the own character": at("masked", hide_own),
    "attention has no norm": without("norm1"),
    "the feed-forward has no norm": without("norm2"),
    "the logits have no norm": without("norm"),
    "heads are swapped": at("context", swap_heads),
    "queries are of another head": at("q", swap_heads),
    "softmax sums to more than 1": (
        reader_module,
        "softmax",
        lambda right: lambda x: times(SLIGHTLY)(right(x)),
    ),
    "the stream loses attention": at("proj", np.zeros_like),
    "queries are of another layer": of_another_layer("attention.qkv"),
    "projections are of another layer": of_another_layer("attention.proj"),
    "the feed-forward is of another layer": of_another_layer("feed_forward.up"),
    "hidden numbers are 0.1 % too large": at("ffn_hidden", times(SLIGHTLY)),
    "the last position is 0.1 % off": at("resid_post", times(SLIGHTLY, last_position)),
    "one character has another's row": (
        Reader,
        "embed",
        lambda right: lambda self, ids, *new: right(self, np.where(ids == 7, 8, ids), *new),
    ),
    "one character's logit is 0.1 % off": (
        Reader,
        "logits",
        lambda right: lambda *arguments: times(SLIGHTLY, seventh)(right(*arguments)),
    ),
}
WITH_POSITIONS: dict[str, dict[str, Error]] = {
    "rotary": {
        "queries and keys turn the other way": (
            layers,
            "_turn",
            lambda right: lambda x, cosines, sines: right(x, cosines, -sines),
        ),
    },
    "learned": {
        "positions begin one row later": (
            layers.Learned,
            "embed",
            lambda right: lambda self, x, at: right(self, x, np.arange(1, at.stop + 1) % 16),
        )
    },
}
OF_FEED_FORWARD = (
    *("the feed-forward has no norm", "the feed-forward is of another layer"),
    "hidden numbers are 0.1 % too large",
)
KINDS: dict[str, tuple[dict[str, Any], dict[str, Error]]] = {
    "rotary": ({}, ERRORS | WITH_POSITIONS["rotary"]),
    "learned": (
        {"position": "learned", "bias": True, "activation": "gelu"},
        ERRORS | WITH_POSITIONS["learned"],
    ),
    "attention only": (
        {"feed_forward": False, "position": "none"},
        {name: error for name, error in ERRORS.items() if name not in OF_FEED_FORWARD}
        | {"the last position is 0.1 % off": at("resid_mid", times(SLIGHTLY, last_position))},
    ),
}
#: Errors that break a rule of the weights, too.
BROKEN = {
    "the mask lets the next character through": {"above the diagonal exactly 0"},
    "softmax sums to more than 1": {"rows sum to 1"},
}
CASES = [(kind, error) for kind, (_, errors) in KINDS.items() for error in errors]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model file of each kind."""
    folder = tmp_path_factory.mktemp("models")
    return {kind: random_file(folder / kind, **options) for kind, (options, _) in KINDS.items()}


@pytest.mark.parametrize(("kind", "error"), CASES)
def test_a_model_does_not_open_in_a_wrong_reader(
    paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch, kind: str, error: str
) -> None:
    stored = read_model(paths[kind])
    assert failures(stored) == set()
    plant(monkeypatch, KINDS[kind][1][error])
    with pytest.raises(CheckpointError, match="computes other logits than torch did at saving"):
        gpt.load(paths[kind])
    assert failures(stored) == {PROBE} | BROKEN.get(error, set())


def plant(monkeypatch: pytest.MonkeyPatch, error: Error) -> None:
    owner, name, wrong = error
    monkeypatch.setattr(owner, name, wrong(getattr(owner, name)))


def failures(stored: StoredModel) -> set[str]:
    """The checks of an attention map that fail."""
    reader = Reader(stored.config, stored.tensors)
    ids = np.arange(16) % stored.config.vocab_size
    text = "".join(stored.vocabulary.characters[each] for each in ids)
    found = inspect(reader, text, ids, (prove(reader, stored.probe),))
    return {check.name for check in found.checks_of() if not check.passed}
