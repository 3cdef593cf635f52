"""The corpus of a command or of a run: found, read, encoded. Knows no torch: readers need it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from gpt.config import TrainConfig
from gpt.corpus.corpus import Corpus, encode, reopen
from gpt.corpus.sources import Source, discard_spooled, find_sources
from gpt.corpus.text import TODAY, Progress, algorithm_of, no_progress
from gpt.errors import TextError
from gpt.storage.manifest import Manifest
from gpt.vocabulary import Vocabulary


def read_corpus(
    names: Sequence[str],
    data: Path,
    stdin: BinaryIO,
    known: Vocabulary | None = None,
    config: TrainConfig | None = None,
    progress: Progress = no_progress,
    algorithm: str = TODAY,
) -> Corpus:
    """Finds and encodes the texts, and the one that validates if `config` names it.

    `progress` is told the share that is done; `algorithm` says what the text is named by. Raises
    TextError, StorageError.
    """
    sources = find_sources(names, data, stdin)
    try:
        validation = _validation(config, data, stdin) if config else []
        try:
            corpus = encode(sources, data, known, config, validation, progress, algorithm)
        finally:
            discard_spooled(validation)
        return replace(corpus, notes=(*corpus.notes, *_twice(sources, validation)))
    finally:
        discard_spooled(sources)


def _twice(sources: Sequence[Source], validation: Sequence[Source]) -> Iterator[str]:
    """What is worth telling of files that come more than once."""
    seen: set[Path] = set()
    for source in sources:
        if (place := source.path.resolve()) in seen:
            yield f"{source.name} is read twice"
        seen.add(place)
    for source in validation:
        if source.path.resolve() in seen:
            yield f"{source.name} trains and validates: its loss says nothing of new texts"


def _validation(config: TrainConfig, data: Path, stdin: BinaryIO) -> list[Source]:
    if config.validation is None:
        return []
    try:
        return find_sources([config.validation], data, stdin)
    except TextError as error:
        raise TextError(f"--split takes last, every:N or a file; {error}") from None


def find_corpus(
    manifest: Manifest,
    names: Sequence[str],
    data: Path,
    stdin: BinaryIO,
    changed: bool = False,
    progress: Progress = no_progress,
    remedy: str = "; restore it, train a new run, or go on with it: --changed-corpus",
) -> Corpus:
    """The text that a run was trained on: encoded in `data`, or read again from its sources.

    Raises TextError when it has changed or can no longer be found. A `changed` one is taken if the
    run's vocabulary has all of its characters. `remedy`: what to do if it has changed.
    """
    identity, known, config = manifest.corpus, Vocabulary(manifest.characters), manifest.train
    if not names and not changed:
        corpus = reopen(identity, data, config)
        if corpus is not None and corpus.vocabulary == known:
            return corpus
        if "-" in identity.sources:
            raise TextError(f"the corpus came through a pipe and is no longer in {data}")
    algorithm = algorithm_of(identity.digest)
    names = names or identity.sources
    corpus = read_corpus(names, data, stdin, known, config, progress, algorithm)
    if corpus.identity.digest != identity.digest and not changed:
        raise TextError(
            f"corpus changed: {', '.join(corpus.identity.sources)} is not the text that this run "
            f"was trained on{remedy}"
        )
    if unknown := known.unknown(corpus.vocabulary.characters):
        raise TextError(
            f"{unknown[0]!a} (U+{ord(unknown[0]):04X}) is not in this run's vocabulary, which "
            "cannot grow; leave it out of the text, or train a new run"
        )
    return corpus
