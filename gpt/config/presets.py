"""Presets: the options that differ from the classes' defaults, for each kind of device.

We chose them by measurements (benchmarks/LOG.md). gpt/training/fit.py adapts some of them to the
corpus and the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DEFAULT: dict[str, Any] = {
    "window_order": "epochs",
    "block_size": 128,
    "batch_size": 16,
    "previous_heads": 4,
    "counting": 8,
    "matrix_lr": 1e-2,
    "embedding_lr": 5e-3,
    "warmup_steps": 20,
}
_CLASSIC_MODEL: dict[str, Any] = {
    "position": "learned",
    "activation": "gelu",
    "tied": True,
}
_CLASSIC_TRAINING: dict[str, Any] = {
    "learning_rate": 1e-3,
    "min_lr": 1e-4,
    "warmup_steps": 100,
    "schedule": "cosine",
    "eval_interval": 250,
}
_GPU_SHAPE: dict[str, Any] = {
    "n_layer": 6,
    "n_head": 6,
    "n_embd": 384,
    "block_size": 256,
    "batch_size": 64,
    "dropout": 0.2,
    "steps": 5000,
    "precision": "bfloat16",
}

#: For the lowest loss that a corpus allows, however long it takes: the largest useful shape, with
#: weight decay and averaged weights against memorising.
_BEST: dict[str, Any] = {**_DEFAULT, "dropout": 0.15, "weight_decay": 0.5, "average": 0.998}
_BEST_CPU_SHAPE: dict[str, Any] = {
    "n_layer": 6,
    "n_head": 8,
    "n_embd": 256,
    "block_size": 256,
    "steps": 12_500,
}
#: Not tuned: we had no such machine.
_BEST_GPU: dict[str, Any] = {
    **_GPU_SHAPE,
    "dropout": 0.3,
    "learning_rate": 1e-3,
    "embedding_lr": 0.0,
    "warmup_steps": 100,
}

#: Preset -> kind of device -> options that differ from the classes' defaults.
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "default": {"cpu": _DEFAULT, "cuda": {**_DEFAULT, **_GPU_SHAPE}},
    "best": {"cpu": {**_BEST, **_BEST_CPU_SHAPE}, "cuda": {**_BEST, **_BEST_GPU}},
    "classic": {
        "cpu": {**_CLASSIC_MODEL, **_CLASSIC_TRAINING, "batch_size": 12},
        "cuda": {**_CLASSIC_MODEL, **_CLASSIC_TRAINING, **_GPU_SHAPE, "attention_dropout": 0.2},
    },
}
#: Presets and their options that gpt/training/fit.py adapts to the corpus and the time; on a GPU it
#: keeps layers, heads and width. It adapts the micro-batch of every preset.
FITTED_PRESETS = ("default", "best")
FITTED = (
    *("n_layer", "n_head", "n_embd", "block_size", "batch_size", "micro_batch_size"),
    *("precision", "steps", "warmup_steps", "dropout", "weight_decay", "eval_chars"),
)
#: The defaults of model and training options that the help shows.
SHOWN = {**_DEFAULT, **dict.fromkeys(FITTED, "fitted")}
#: Minutes of a run without --minutes and --steps; presets that are not here set steps instead.
MINUTES = {"default": 2.0}


def preset(name: str, device: str) -> dict[str, Any]:
    """Field -> value in a preset for a device ("cpu", "cuda", "mps")."""
    return dict(PRESETS[name]["cpu" if device == "cpu" else "cuda"])


def override(values: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """A preset's values, updated by the given ones; only rotary positions keep previous_heads."""
    combined = {**values, **asked}
    if combined.get("position", "rotary") != "rotary" and "previous_heads" not in asked:
        combined.pop("previous_heads", None)
    return combined
