"""The training half and the validation half of a corpus: ids of a text, or lines of pairs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeAlias

import numpy as np

from gpt.config import TrainConfig
from gpt.corpus.batches import batch
from gpt.corpus.corpus import Corpus, find_corpus
from gpt.corpus.pair_batches import Batch, PairLines, batch_lines, pad_pairs, split_pairs
from gpt.errors import TextError
from gpt.storage.manifest import Manifest
from gpt.vocabulary import Ids

Half: TypeAlias = "Ids | PairLines"

EXCERPT_LENGTH = 1000  # characters of the validation split that the model file contains


def split_corpus(
    corpus: Corpus, config: TrainConfig, pairs: bool, block_size: int = 0
) -> tuple[Half, Half]:
    """The halves to train and to validate on. pairs: the model has an encoder. Raises TextError,
    also if a half, or a line of pairs, does not fit a context of block_size (0: any size).
    """
    if pairs:
        return split_pairs(corpus, config, block_size)
    return corpus.split(config.val_fraction, block_size or 1)


def halves_of_run(
    name: str,
    manifest: Manifest | None,
    data: Path,
    purpose: str = "",
    restore: str = "; restore it",
    no_run: str = "",
) -> tuple[Half, Half]:
    """The halves that this run was trained and validated on. manifest: None for a model file
    without its run.

    Raises TextError if there is no run, or its text is missing or has changed. If a purpose is
    given, the error begins with it and ends with advice: `no_run` if there is no run or no text.
    """
    advice = no_run
    try:
        if manifest is None:
            raise TextError(f"{name} is a model file without its run, so its corpus is unknown")
        if not manifest.corpus.digest:
            raise TextError(f"{name} was imported without its text (gptx import … --corpus FILE)")
        advice, pairs = restore, manifest.model.encoder_layers > 0
        corpus = find_corpus(manifest, (), data, sys.stdin.buffer, pairs=pairs)
        return split_corpus(corpus, manifest.train, pairs, manifest.model.block_size)
    except TextError as error:
        if not purpose:
            raise
        raise TextError(f"{purpose} needs the corpus: {error}{advice}") from None


def splits_of_run(
    name: str, manifest: Manifest | None, data: Path, *advice: str, **more: str
) -> tuple[Ids, Ids]:
    """What `halves_of_run` returns for these arguments, as ids; pairs as lines of text."""
    train, val = halves_of_run(name, manifest, data, *advice, **more)
    return all_ids(train), all_ids(val)


def training_batch(half: Half, config: TrainConfig, step: int, block_size: int) -> Ids | Batch:
    """What is read after `step` steps: (B, T + 1) ids, inputs and last target; or padded pairs."""
    if isinstance(half, PairLines):
        return pad_pairs(half.pairs, batch_lines(half, config.seed, step, config.batch_size))
    order = config.seed, step, config.batch_size, block_size, config.window_order
    inputs, targets = batch(half, *order)
    return np.concatenate((inputs, targets[:, -1:]), axis=1)


def training_characters(half: Half) -> int:
    """Characters to train on; for pairs, the characters of their targets."""
    return half.characters if isinstance(half, PairLines) else len(half)


def predicted_characters(half: Half) -> int:
    """Characters that an evaluation can predict; for pairs, the characters of their targets."""
    return half.characters if isinstance(half, PairLines) else len(half) - 1


def counted_ids(half: Half) -> Ids:
    """The ids whose n-grams the baseline counts; for pairs, those of their targets."""
    return half.targets() if isinstance(half, PairLines) else half


def scored_ids(half: Half) -> Ids:
    """The ids that the baseline predicts; the first one is context only."""
    if not isinstance(half, PairLines):
        return half
    targets = half.targets()
    return np.concatenate((np.full(1, half.pairs.last, targets.dtype), targets))


def all_ids(half: Half) -> Ids:
    """All ids; for pairs, those of both sides."""
    return half.text() if isinstance(half, PairLines) else half


def excerpt_ids(half: Half) -> Ids:
    """The first EXCERPT_LENGTH ids; for pairs, those of the first lines that fit, at least one."""
    if not isinstance(half, PairLines):
        return half[:EXCERPT_LENGTH]
    lengths = half.pairs.ends[half.lines] - half.pairs.starts[half.lines] + 1
    return half.text(max(1, int((lengths.cumsum() <= EXCERPT_LENGTH).sum())))
