"""A checkpoint's manifest: everything about it that is not a tensor, stored as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from gpt.config import ModelConfig, TrainConfig
from gpt.config.schedule import Budget, characters_read, step_characters
from gpt.config.train import MOST_STEPS
from gpt.errors import CheckpointError
from gpt.storage.json_values import (
    SCHEMA,
    UnknownNames,
    check_schema,
    is_sealed,
    parsed,
    read_json_object,
    sealed,
    unknown_to_this_release,
)
from gpt.vocabulary import Symbols, Vocabulary

LONGEST_NAME = 2**14  # characters of a text's name: a path of 4,096 bytes, written as \xff


@dataclass(frozen=True)
class CorpusId:
    """The text that a run was trained on, identified by its content, not by its path.

    digest: BLAKE3 of its UTF-8. boundary: the number of training characters, unless --val-fraction
    decides it. order: a hash of the order of its pieces, if validation pieces were moved to the
    end. folded: the rare characters that one character replaces, folded_count times in all.
    """

    digest: str
    characters: int
    sources: tuple[str, ...]
    boundary: int | None = None
    order: str = ""
    folded: Symbols = ""
    folded_count: int = 0


@dataclass(frozen=True)
class Baseline:
    """The losses of n-gram counting on a validation split (gpt/counting/baseline.py).

    losses: nats per character for the orders 1, 2, … counted: number of counted characters, the
    last ones of the training split; scored: number of predicted characters of the validation split.
    Raises ValueError if one of them is empty.
    """

    losses: tuple[float, ...]
    counted: int
    scored: int

    @property
    def nats(self) -> float:
        """The lowest loss; a little too low, as the scored split also chooses the order."""
        return min(self.losses)

    @property
    def order(self) -> int:
        """The order with the lowest loss."""
        return 1 + self.losses.index(self.nats)

    def __post_init__(self) -> None:
        if not self.losses or min(self.counted, self.scored) < 1:
            raise ValueError("baseline: empty")


@dataclass(frozen=True)
class TrainedText:
    """A text that a run was trained on. digest: as in CorpusId, "" if the text is unknown;
    characters, split and val_fraction: of the run.
    """

    run: str
    digest: str = ""
    characters: int = 0
    split: str = ""
    val_fraction: float = 0.0

    def exposure(self, digest: str, train: TrainConfig) -> str | None:
        """Why its run may have seen, in training, the validation split of the corpus with this
        digest, or None. train: the options of the split.
        """
        if not self.digest:
            return "was trained on an unknown text and may have seen this one"
        if self.digest != digest:
            return "was trained on another corpus and may have seen this text"
        if self.split != train.split:
            return f"was trained on another part of this corpus (--split {self.split})"
        if self.val_fraction < train.val_fraction:
            return f"was trained on more of this corpus (--val-fraction {self.val_fraction:g})"
        return None


@dataclass(frozen=True)
class Parent:
    """The model whose weights a run starts with.

    run: its name, or of a model file without its run, the file's. digest: of the model file. added:
    the characters that the run's text has and the parent did not know. texts: those that the
    parent, its parent and so on were trained on, oldest first.
    """

    run: str
    step: int
    digest: str
    added: Symbols = ""
    texts: tuple[TrainedText, ...] = ()

    @property
    def title(self) -> str:
        """Name and step."""
        return f"{self.run} step {self.step:,}"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything about a checkpoint that is not a tensor. Losses in nats per character.

    val_loss and best_loss are measured on the same part of the validation split, see `part`. They
    choose the best step (see Trainer._choose_best); its loss, as everything shows it, is
    shown_loss.
    whole_loss: loss of best_step's weights on all characters that --eval-chars allows, measured at
    the end of a run whose evaluations read a smaller part. gpt_loss: in a run with counting, the
    shown_loss of the GPT alone. seconds: time spent on steps. elapsed: time since training began,
    evaluations and saves included, interruptions of the run excluded. recording: the sums of losses
    and of gradient norms, and the number of steps, since the last record of the training.
    budget: only for a run with a time limit.
    imported: then `train` has nothing but the number of steps, and without the text that the model
    was trained on, corpus.digest is "".
    """

    step: int
    model: ModelConfig
    train: TrainConfig
    preset: str
    vocabulary: Vocabulary
    corpus: CorpusId
    seconds: float
    running: tuple[float, int]  # sum and count of losses since the last evaluation
    recording: tuple[float, float, int] = (0.0, 0.0, 0)
    val_loss: float | None = None
    best_step: int | None = None
    best_loss: float | None = None
    since_best: int = 0
    environment: dict[str, str | int] = field(default_factory=dict)
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    elapsed: float = 0.0
    budget: Budget | None = None
    val_characters: int = 0  # characters of the validation split to predict; 0: unknown
    whole_loss: float | None = None
    gpt_loss: float | None = None
    baseline: Baseline | None = None  # None: the model was imported
    mean_length: float = 0.0  # of pairs: target characters of a line; 0: windows of block_size
    imported: str = ""  # which model of another program this is, "" for one that gptx has trained
    parent: Parent | None = None  # None: the run started from random weights

    def check(self) -> None:
        """Raises ValueError for values of the right types that contradict one another."""
        if self.step > MOST_STEPS:
            raise ValueError(f"step: {self.step} is over {MOST_STEPS}")
        if any(len(name) > LONGEST_NAME for name in self.corpus.sources):
            raise ValueError("corpus: a name is longer than any path")
        if len(self.vocabulary) != self.model.vocab_size:
            raise ValueError("vocabulary and embedding differ in size")

    def texts(self, run: str) -> tuple[TrainedText, ...]:
        """Every text that the weights of this run, named `run`, were trained on, oldest first."""
        text, train = self.corpus, self.train
        own = TrainedText(run, text.digest, text.characters, train.split, train.val_fraction)
        return (*(self.parent.texts if self.parent else ()), own)

    @property
    def step_characters(self) -> int:
        """Characters that a step learns to predict; of pairs, their mean number."""
        return step_characters(self.model, self.train, self.mean_length)

    @property
    def part(self) -> tuple[int, int]:
        """(characters that val_loss and best_loss were measured on, characters in all)."""
        return self._read(self._most), self.val_characters

    @property
    def share_read(self) -> float:
        """Of the characters that the last evaluation predicts, the share that the others do."""
        return self._read(self._most) / self._read(self.train.eval_chars)

    @property
    def shown_loss(self) -> tuple[float | None, int, int]:
        """The loss of best_step's weights on the largest part measured: (nats, its characters, of
        how many).
        """
        if self.whole_loss is None:
            return self.best_loss, *self.part
        return self.whole_loss, self._read(self.train.eval_chars), self.val_characters

    @property
    def _most(self) -> int:
        return self.train.eval_part or self.train.eval_chars

    def _read(self, most: int) -> int:
        return characters_read(self.val_characters, self.model.block_size, most)

    def evaluated(self, val_loss: float, gpt_loss: float | None = None) -> Manifest:
        """The manifest after an evaluation of this step, with its loss and the best step so far."""
        now = replace(self, val_loss=val_loss, since_best=self.since_best + 1, running=(0.0, 0))
        if self.best_step is None or self.best_loss is None or val_loss < self.best_loss:
            now = replace(now, best_step=self.step, best_loss=val_loss, since_best=0)
            now = replace(now, whole_loss=None, gpt_loss=gpt_loss)
        return now

    def to_json(self) -> bytes:
        """JSON; the last line is a checksum of all other lines."""
        values = {**asdict(self), "schema": SCHEMA}
        body = json.dumps(values, ensure_ascii=False, indent=1, allow_nan=False).encode()
        return sealed(body)

    @classmethod
    def from_json(cls, data: bytes, source: Path) -> Manifest:
        """Raises CheckpointError for anything but a manifest of this schema, SchemaError for one of
        another schema or of a later release.
        """
        values = read_json_object(data, source)
        check_schema(values, source)
        if not is_sealed(data):
            raise CheckpointError(f"damaged: {source} has changed since it was written")
        del values["digest"], values["schema"]
        if "characters" in values:  # as written before symbols could have several characters
            values["vocabulary"] = {"characters": values.pop("characters")}
        try:
            manifest: Manifest = parsed(cls, values, "manifest")
            manifest.check()
        except UnknownNames as names:
            raise unknown_to_this_release(source, names) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"damaged: {source} ({error!s:.300})") from error
        return manifest


def exposure_to_split(name: str, manifest: Manifest | None, of: Manifest) -> str | None:
    """Why the model of a run with this name may have seen another run's validation split in
    training, or None. manifest: None for a model file without its run.
    """
    text = of.corpus.digest
    if manifest is None:
        why = "is a model file without its run, so it may have seen this text"
    elif not manifest.corpus.digest:
        why = "was imported without its text, so it may have seen this text"
    elif manifest.corpus.digest != text:
        sources = ", ".join(manifest.corpus.sources)
        why = f"was trained on another corpus ({sources}) and may have seen this text"
    else:
        *_, own = manifest.texts(name)
        why = own.exposure(text, of.train) or ""
        for each in manifest.parent.texts if manifest.parent and not why else ():
            if reason := each.exposure(text, of.train):
                why = f"started from {each.run}, which {reason}"
    return f"{name} {why}" if why else None
