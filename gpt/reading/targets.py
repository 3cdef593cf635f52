"""Writes targets for source texts, and measures how well a model predicts the targets of
pairs.

A text of pairs has lines "source TAB target". `pairs.py` computes with ids; this module adds the
vocabulary, the options, and errors that name a line. A decoder-only model that was trained on such
lines writes targets, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpt.checks import require_texts
from gpt.config import ModelConfig, SampleConfig, Unknown
from gpt.config.fields import check_size, require
from gpt.config.sample import DISTRIBUTION_OPTIONS
from gpt.corpus.pair_lines import Window, fitting_pairs, pair_lines, source_lines
from gpt.corpus.tables import pairs_of_table, source_of_columns
from gpt.errors import ConfigError, TextError
from gpt.reading.decode import require_memory
from gpt.reading.gpt import Reader
from gpt.reading.pairs import (
    PairScores,
    WrittenTarget,
    beam_search,
    pair_scores,
    sample_targets,
    surprisals_of_targets,
)
from gpt.vocabulary import FIRST, LAST, Ids, Vocabulary


def target_settings(config: ModelConfig, beam: int | None = None, **options: Any) -> SampleConfig:
    """How to write targets: greedily, unless a temperature above 0 or a beam is given.

    options: those of SampleConfig; with a beam, n is the number of best targets. Raises ConfigError
    for options out of range, and for options that have no effect together.
    """
    longest = config.block_size - 1  # characters of the longest target
    settings = SampleConfig(**{"temperature": 0.0, "length": longest, **options})
    require(settings.only is None, "only", "this model has no counting; leave the option out")
    most = f"{settings.length} is more than the longest target, {longest} characters"
    require(settings.length <= longest, "length", most)
    shaping = [name for name in DISTRIBUTION_OPTIONS if name != "temperature" and options.get(name)]
    if beam is not None:
        require(beam >= 1, "beam", f"{beam} is less than 1")
        check_size("beam", beam)
        given = [name for name in ("temperature", *shaping) if options.get(name)]
        if given:
            raise ConfigError("beam", f"a search draws nothing; leave `{given[0]}` out")
        reason = f"{settings.n} targets need a beam of {settings.n} or more"
        require(settings.n <= beam, "n", reason)
    elif not settings.temperature:
        advice = "at temperature 0, the likeliest character is taken; give `temperature`"
        require(not shaping, shaping[0] if shaping else "", f"it has no effect {advice}")
        reason = "at temperature 0, all targets are equal; give `temperature`, or `beam`"
        require(settings.n == 1, "n", reason)
    return settings


def write_targets(
    reader: Reader,
    vocabulary: Vocabulary,
    sources: Sequence[str],
    settings: SampleConfig,
    beam_width: int | None = None,
    start: int = 1,
    name: str = "source",
    bad: Callable[[TextError], object] | None = None,
    unknown: Unknown = "fold",
) -> list[list[WrittenTarget]]:
    """The targets of each source: settings.n drawn ones or, with a beam, the n best.

    settings: from `target_settings`. start: the number of the first source, and name: what it is,
    for errors. bad: receives the errors of sources, which then get no targets; None: raises the
    first error, a TextError, as `best_targets` does.
    """
    require_texts("sources", sources)
    config, (first, last) = reader.config, _marks(reader, vocabulary)
    sources = [source_of_columns(source) for source in sources]
    window = _window(config, vocabulary)
    every = source_lines(sources, vocabulary, window, start, name, bad, unknown)
    ids = [source for source in every if len(source)]
    never = [vocabulary.id_of(each) for each in vocabulary.unwritten]
    if beam_width is None:
        found = sample_targets(reader, ids, first, last, settings, never)
    else:
        require_memory(config, beam_width, settings.length, "--beam")
        found = beam_search(
            reader, ids, first, last, beam_width, settings.n, settings.length, never
        )
    targets = iter(found)
    return [next(targets) if len(source) else [] for source in every]


def best_targets(
    reader: Reader,
    vocabulary: Vocabulary,
    sources: Sequence[str],
    width: int = 1,
    unknown: Unknown = "fold",
) -> list[str]:
    """The likeliest target of each source: the best one of a beam search; a beam of 1 is
    greedy.

    Raises TextError with the number of a source that is empty, has a TAB or an unknown character or
    does not fit the context, ConfigError for a beam that is less than 1.
    """
    found = _best(reader, vocabulary, sources, width, unknown)
    return [vocabulary.decode(ids, "target") for ids in found]


def _best(
    reader: Reader,
    vocabulary: Vocabulary,
    sources: Sequence[str],
    width: int,
    unknown: Unknown = "fold",
) -> list[Ids]:
    settings = target_settings(reader.config, width)
    found = write_targets(reader, vocabulary, sources, settings, width, unknown=unknown)
    return [best.ids for best, *_ in found]


def example_targets(reader: Reader, vocabulary: Vocabulary, excerpt: str) -> str:
    """The targets that the model writes for an excerpt's first sources: at most three lines."""
    lines = excerpt.removesuffix(LAST).split(LAST)
    sources = list(dict.fromkeys(line.split(FIRST)[0] for line in lines))[:3]
    answers = zip(sources, best_targets(reader, vocabulary, sources), strict=True)
    return "\n".join(f"{source}{FIRST}{answer}" for source, answer in answers)


def split_pair(
    reader: Reader, vocabulary: Vocabulary, text: str, unknown: Unknown = "error"
) -> tuple[Ids, Ids]:
    """ "source TAB target" -> the ids of the source, and the ids that the decoder reads: TAB,
    target. Without a TAB, the model writes the target. The end of the line is ignored.

    Raises TextError for an empty source, several TABs or lines, characters that the model does not
    know, and sides that are longer than the context.
    """
    ids = vocabulary.encode(pairs_of_table(text.removesuffix(LAST)), unknown)
    if vocabulary.id_of(LAST) in ids:
        raise TextError("the text has several lines; give one pair: a source, a TAB, a target")
    source, *read = np.split(ids, np.flatnonzero(ids == vocabulary.id_of(FIRST)))
    if len(read) > 1:
        raise TextError("the text has several TABs; give one source, a TAB, one target")
    if not len(source):
        raise TextError("no source: there is nothing to read; give at least one character")
    window = _window(reader.config, vocabulary)
    if problem := window.problem(len(source), len(read[0]) - 1 if read else None):
        raise TextError(f"the text {problem}; shorten it")
    if not read:
        (target,) = _best(reader, vocabulary, [vocabulary.decode(source)], 1)
        read = [np.concatenate((vocabulary.encode(FIRST), target))]
    return source, read[0]


def first_pair(vocabulary: Vocabulary, text: str, block_size: int) -> str:
    """The first pair of a text that fits a context. Raises like `fitting_pairs`."""
    source, target = pair_ids(vocabulary, text, block_size)[0]
    return vocabulary.decode([*source, *target])


def pair_ids(vocabulary: Vocabulary, text: str | Ids, block_size: int) -> list[tuple[Ids, Ids]]:
    """For each pair of a text, the ids of the source, and what the decoder reads: TAB, target."""
    first = vocabulary.encode(FIRST)
    lines = text if isinstance(text, str) else vocabulary.decode(text)
    pairs = fitting_pairs(pairs_of_table(lines), vocabulary, block_size)
    return [(pair.source, np.concatenate((first, pair.target))) for pair in pairs]


def score_pairs(reader: Reader, vocabulary: Vocabulary, text: str, width: int = 1) -> PairScores:
    """Scores the model on lines `source TAB target`: nats per target character, and what it writes
    for each source (greedily or by beam search), compared with the listed targets.

    Raises TextError with the number of a line that is no pair, has an unknown character or does not
    fit the context, ConfigError for a beam that is less than 1.
    """
    target_settings(reader.config, width)
    marks = _marks(reader, vocabulary)
    lines = pair_lines(text, vocabulary, _window(reader.config, vocabulary))
    sources = [vocabulary.decode(line.source) for line in lines]
    targets = [vocabulary.written(line.target, "target") for line in lines]
    unique = list(dict.fromkeys(sources))
    best = (vocabulary.written(it, "target") for it in _best(reader, vocabulary, unique, width))
    written = dict(zip(unique, best, strict=True))
    nats = surprisals_of_targets(reader, [(line.source, line.target) for line in lines], *marks)
    return pair_scores([line.number for line in lines], sources, targets, written, nats)


def _marks(reader: Reader, vocabulary: Vocabulary) -> tuple[int, int]:
    """The ids of TAB, which stands before a target, and of NEWLINE, which ends it. Raises TextError
    if the model does not know them, ConfigError if it has counting.
    """
    if reader.config.counting:
        raise ConfigError(
            "targets need a model without counting; train one with `counting=0`, or with an encoder"
        )
    if vocabulary.unknown(FIRST + LAST):
        raise TextError(
            "this model was not trained on pairs: it does not know TAB and NEWLINE; train one on "
            "lines of SOURCE, TAB, TARGET"
        )
    first, last = vocabulary.encode(FIRST + LAST).tolist()
    return first, last


def _window(config: ModelConfig, vocabulary: Vocabulary) -> Window:
    return Window(config.block_size, not config.encoder_layers, vocabulary.spaced)
