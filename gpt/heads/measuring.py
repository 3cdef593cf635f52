"""Measures all heads or units on a text: at one step, or at several steps of a training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from gpt.config import HeadsConfig
from gpt.errors import TextError
from gpt.heads.ablation import Done, Texts, share_between
from gpt.heads.activations import pad_texts
from gpt.heads.attention_map import require_decoder_only, require_kind
from gpt.heads.pair_measures import spread_pairs, survey_pairs
from gpt.heads.survey import Development, Survey, development, loss_paths, spread_windows, survey
from gpt.reading.gpt import Reader
from gpt.reading.proof import OpenDevice, open_proven
from gpt.reading.targets import pair_ids
from gpt.storage.model_file import StoredModel
from gpt.storage.runs import Steps, run_of, step_numbers
from gpt.vocabulary import LAST, Ids, Vocabulary


def make_surveyor(
    reader: Reader,
    vocabulary: Vocabulary,
    text: str | Ids,
    asked: HeadsConfig,
    name: str,
) -> Callable[[Reader, Done], Survey]:
    """Returns a function that measures the heads of a reader on a text; see TrainedGPT.heads.

    reader: the first one to measure. Raises ConfigError and TextError.
    """
    windows, ablate = asked.windows, asked.ablate
    require_kind(reader.config, asked.attention)
    if reader.encoder:
        if asked.paths:
            require_decoder_only(reader.config, "paths")
        pairs = pair_ids(vocabulary, text, reader.config.block_size)
        chosen = asked.attention or "cross", windows, ablate, vocabulary.id_of(LAST)
        return lambda reader, done: survey_pairs(reader, pairs, *chosen, done, name)
    ids = vocabulary.encode(text) if isinstance(text, str) else text
    letters = np.array([n for n, each in enumerate(vocabulary.characters) if each.isalnum()], int)

    def measured(reader: Reader, done: Done) -> Survey:
        paths = asked.paths and ablate  # paths are then the second half of the work
        first = share_between(done, 0, 0.5) if paths else done
        found = survey(reader, ids, windows, ablate, first, name, letters)
        if not paths:
            return found
        of_paths = loss_paths(reader, ids, windows, paths, share_between(done, 0.5))
        return replace(found, paths=of_paths)

    return measured


def texts_of(reader: Reader, vocabulary: Vocabulary, text: str | Ids, most: int) -> Texts:
    """At most `most` windows of a text; with an encoder, pairs of its lines. Raises TextError."""
    if reader.encoder:
        pairs = spread_pairs(pair_ids(vocabulary, text, reader.config.block_size), most)
        return Texts.of_pairs(pairs, vocabulary.id_of(LAST))
    ids = vocabulary.encode(text) if isinstance(text, str) else text
    return Texts.of_windows(spread_windows(ids, reader.config.block_size, most))


def one_text(reader: Reader, vocabulary: Vocabulary, text: str) -> Texts:
    """The text of `on`, of at most block_size characters, or its first pair. Raises TextError."""
    if reader.encoder:
        return texts_of(reader, vocabulary, text, 1).part(slice(1))
    length, most = len(text), reader.config.block_size
    if not 1 <= length <= most:
        raise TextError(f"`on` has {length:,} characters; the model reads 1 to {most:,} at once")
    ids, _ = pad_texts(text, vocabulary, reader.config)
    return Texts(ids, ids, np.ones(ids.shape, np.bool_))


def survey_steps(
    stored: StoredModel,
    open_device: OpenDevice | None,
    steps: Steps,
    measured: Callable[[Reader, Done], Survey],
    done: Done,
) -> Development:
    """Measures steps of a run, one model at a time. Raises CheckpointError, ConfigError."""
    run = run_of(stored)
    numbers = step_numbers(run, steps)

    def surveys() -> Iterator[Survey]:
        for n, number in enumerate(numbers):
            reader, _ = open_proven(run.model(number), open_device)
            yield measured(reader, share_between(done, n / len(numbers), (n + 1) / len(numbers)))

    return development(numbers, surveys())
