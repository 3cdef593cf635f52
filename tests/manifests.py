"""Manifests of runs that do not exist."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpt.config import ModelConfig, TrainConfig
from gpt.storage.checkpoint_files import Baseline, Clock, CorpusId, Manifest
from gpt.vocabulary import Vocabulary

NASTY = "\x1b[31m[red]\u202eáru[/].txt"
METRICS = [
    {"step": 6, "train_loss": 2.5, "val_loss": 2.75},
    {"step": 12, "train_loss": 2.0, "val_loss": 2.25},
    {"step": 1800, "train_loss": 1.5, "val_loss": 2.5},
]


def manifest(**changes: Any) -> Manifest:
    start = Manifest(
        step=1800,
        model=ModelConfig(vocab_size=65),
        train=TrainConfig(),
        preset="default",
        vocabulary=Vocabulary("".join(map(chr, range(33, 98)))),
        corpus=CorpusId("0" * 64, 1_115_394, ("shakespeare.txt",)),
        seconds=130.0,
        running=(0.0, 0),
        val_loss=2.5,
        best_step=12,
        best_loss=2.25,
        since_best=1,
        val_characters=111_539,
        baseline=Baseline((3.3, 2.5, 2.6), 1_003_854, 111_539),
    )
    return replace(start, **changes)


def in_part(**changes: Any) -> Manifest:
    """A run of two minutes whose evaluations have read a part of the split."""
    clock = Clock(seconds=120, progress=1.0)
    train = TrainConfig(eval_chars=20_000, steps=5000)
    start = manifest(train=train, clock=clock, seconds=110.0, elapsed=121.0)
    return replace(start, **changes)
