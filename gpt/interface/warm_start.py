"""A training that starts from another model's weights: finds that model, its parent, and
checks it.

The parent is only read. The new model takes its layout, the options that set the shapes and the
function of a model. The vocabulary grows (gpt/corpus/corpus.py), and new characters get new weights
(gpt/model/initial.py). Everything else is as in any new run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import options_of, require
from gpt.config.model import MAY_DIFFER_FROM_PARENT
from gpt.corpus.corpus import Corpus
from gpt.errors import CheckpointError, ConfigError, TextError
from gpt.interface.trained import TrainedGPT, find_model, read_checkpoint
from gpt.storage.manifest import Parent, TrainedText
from gpt.storage.model_file import StoredModel
from gpt.training.ranks import share_result


@dataclass(frozen=True)
class WarmStart:
    """The model that a training starts from."""

    saved: TrainedGPT

    @property
    def stored(self) -> StoredModel:
        return self.saved.stored

    @property
    def name(self) -> str:
        """The name of the model's run or, without a run, the file's name."""
        return self.stored.name

    @property
    def place(self) -> str:
        """The path of its step's folder, or of the model file."""
        source = self.stored.source
        return str(source.parent if self.saved.checkpoint else source)

    @cached_property
    def layout(self) -> dict[str, Any]:
        """The options that the new model takes from its parent."""
        options = options_of(ModelConfig).keys() - {*MAY_DIFFER_FROM_PARENT}
        return {name: value for name, value in vars(self.stored.config).items() if name in options}

    def options(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The given options and the layout. Raises ConfigError for an option that conflicts with
        the layout.
        """
        for name, value in asked.items():
            its = self.layout.get(name, value)
            has = f"{self.name}, whose weights this run starts with, has {its}"
            require(its == value, name, f"{has}, not {value}; leave the option out")
        return {**asked, **self.layout}

    def parent(self, corpus: Corpus) -> Parent:
        """What a run on this corpus records about its parent."""
        stored, manifest = self.stored, self.saved.recorded
        texts = manifest.texts(self.name) if manifest else (TrainedText(self.name),)
        added = corpus.vocabulary.characters[len(stored.vocabulary) :]
        return Parent(self.name, stored.step, stored.digest, added, texts)

    def check_context(self, corpus: Corpus, train: TrainConfig) -> None:
        """Raises TextError if the corpus is too short for the parent's context."""
        block_size = self.stored.config.block_size
        if corpus.longest_context(train.val_fraction) < block_size:
            shorter = min(map(len, corpus.parts(train.val_fraction)))
            raise TextError(
                f"the text is too short: {self.name}, whose weights this run starts with, reads "
                f"{block_size} characters at once, and the smaller split has {shorter}; use more "
                "text, or another `val_fraction`"
            )

    def warnings(self, parent: Parent, corpus: Corpus, train: TrainConfig) -> Iterator[str]:
        """What the user should know about training on this corpus."""
        for text in parent.texts:
            why = text.exposure(corpus.identity.digest, train)
            if why and text.digest == corpus.identity.digest:
                yield (
                    f"{text.run} {why}, so it has seen some of the validation split: validation "
                    "losses will be too low"
                )


def open_parent(place: str, checkpoints: Path) -> WarmStart:
    """The model at a place that `gpt.interface.trained.find_model` accepts; all ranks get the same
    model.

    Raises CheckpointError if there is no model, if it is damaged, or if it cannot be trained.
    """

    def follow(message: tuple[str, str]) -> TrainedGPT:
        path, digest = message
        saved = read_checkpoint(path)
        if saved.stored.digest != digest:
            raise CheckpointError(f"{path} is not the model that the first rank has read")
        return saved

    def describe(saved: TrainedGPT) -> tuple[str, str]:
        return WarmStart(saved).place, saved.stored.digest

    return WarmStart(share_result(lambda: _found(place, checkpoints), describe, follow))


def _found(place: str, checkpoints: Path) -> TrainedGPT:
    try:
        return find_model(checkpoints, place)
    except ConfigError:
        if os.path.lexists(place):
            raise
        raise CheckpointError(
            f"there is no run, folder or file {place!r}; give a run in {checkpoints}, or the path "
            "of a run or of a model file"
        ) from None
