"""The files of a checkpoint: the manifest, which has everything except tensors, and the model file
(safetensors). Reading a file checks it completely.

The names, shapes and types of a model's tensors must be those that its config needs, and all
numbers must be finite. A sealed file contains a digest of its own bytes, so that it can be checked
without its run. Model files, state files (the optimizer's tensors) and manifests (JSON) are sealed.

The digest (BLAKE3: O'Connor, Aumasson, Neves and Wilcox-O'Hearn, 2020) stands in the file's JSON.
gptx computes it from the file with BLANK in the digest's place.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import safetensors.numpy
from blake3 import blake3
from safetensors import SafetensorError

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import options_of
from gpt.errors import CheckpointError
from gpt.show.result import ReadOnlyArrays
from gpt.storage import files
from gpt.vocabulary import Vocabulary
from gpt.words import printable, short_repr, text_name

SCHEMA = 1  # the version of manifests, model files, state files and records of encoded texts
BLANK = "0" * 64  # what a file has in place of its digest while the digest is computed
_DIGEST = re.compile(rb"digest\W+([0-9a-f]{64})")
Kind = TypeVar("Kind")
EXCERPT_LENGTH = 1000  # characters of the validation split that a model file contains
ENTRY = "gptx"  # the entry of a safetensors file's metadata that has gptx's JSON
#: The arrays of counted n-grams (gpt/counting/tables.py), and of the gate that mixes them in.
COUNTING = ("symbols", "counts", "children", "gate")

Tensors = dict[str, npt.NDArray[Any]]
Shapes = Mapping[str, tuple[int, ...]]


class _Schema(msgspec.Struct):
    schema: int


def json_to_seal(values: Any, indent: int | None = None) -> str:
    """Returns JSON for `seal`: BLANK, the schema, and the values of a dataclass or dict. Raises
    ValueError for NaN and infinity.
    """
    sealed = {"digest": BLANK, "schema": SCHEMA, **msgspec.to_builtins(values)}
    return json.dumps(sealed, ensure_ascii=False, indent=indent, allow_nan=False)


def seal(data: bytes) -> bytes:
    """Replaces the first BLANK in a file's bytes by the digest of these bytes."""
    return data.replace(BLANK.encode(), blake3(data).hexdigest().encode(), 1)


def find_digest(data: bytes, source: Path) -> str:
    """The digest in a sealed file, unchecked. Raises CheckpointError if the file has none."""
    match = _DIGEST.search(data)
    if match is None:
        raise CheckpointError(f"damaged, or not a gptx checkpoint: {source}")
    return match[1].decode()


def check_seal(data: bytes, source: Path) -> str:
    """Returns the digest of a sealed file. Raises CheckpointError if a byte has changed."""
    digest, view = find_digest(data, source), memoryview(data)
    start = data.index(digest.encode())
    hashed = blake3(view[:start])
    hashed.update(BLANK.encode())
    hashed.update(view[start + len(BLANK) :])
    if hashed.hexdigest() != digest:
        raise CheckpointError(f"damaged: {source} has changed since it was written")
    return digest


def decode_json(text: bytes, kind: type[Kind], source: Path) -> Kind:
    """Decodes the JSON of a sealed file into the class `kind`. Raises CheckpointError for another
    schema or for values of other types.
    """
    try:
        schema = msgspec.json.decode(text, type=_Schema).schema
        if schema == SCHEMA:
            return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"damaged: {source} ({error!s:.300})") from error
    raise CheckpointError(f"{source} has the unknown schema {schema}; this gptx reads {SCHEMA}")


def seal_json(values: Any) -> bytes:
    """Returns the bytes of a sealed JSON file with the values of a dataclass."""
    return seal(json_to_seal(values, indent=1).encode())


def open_json(data: bytes, kind: type[Kind], source: Path) -> Kind:
    """Checks a sealed JSON file, and decodes it into the class `kind`. Raises CheckpointError."""
    check_seal(data, source)
    return decode_json(data, kind, source)


class _About(msgspec.Struct):
    """The JSON in a model file; see StoredModel."""

    config: ModelConfig
    vocabulary: Vocabulary
    excerpt: str
    step: int


@dataclass(frozen=True)
class Probe(ReadOnlyArrays):
    """Texts, and the logits that torch computed for them in float64 when the model was saved.

    A program that computes the same logits reads the model correctly. ids: (R, L), R texts of L
    characters. logits: (P, K) for the P = R·L positions, rounded to float32. Position p has the
    logits of only K characters, whose ids are p·K, p·K + 1, … modulo vocab_size.
    """

    ids: npt.NDArray[np.int32]
    logits: npt.NDArray[np.float32]

    def largest_error(self, rows: Iterable[npt.NDArray[Any]]) -> float:
        """The largest difference of R arrays of (L, vocab_size) logits from the stored ones."""
        logits = pick_probe_logits(rows, self.logits.shape[1])
        return float(np.abs(logits - self.logits).max())


def pick_probe_logits(rows: Iterable[npt.NDArray[Any]], count: int) -> npt.NDArray[Any]:
    """Picks the (P, count) logits that a probe stores from R arrays of (L, vocab_size) logits."""
    picked, first = list[npt.NDArray[Any]](), 0
    for logits in rows:
        columns = np.arange(first, first + len(logits) * count) % logits.shape[1]
        picked.append(np.take_along_axis(logits, columns.reshape(-1, count), axis=1))
        first += columns.size
    return np.concatenate(picked)


@dataclass(frozen=True, repr=False)
class StoredModel(ReadOnlyArrays):
    """The content of a model file: enough to run the model, and to check that it runs correctly.

    excerpt: the start of the validation split. counting: the arrays named in COUNTING; None if the
    model does not count n-grams. source: the file's path.
    """

    config: ModelConfig
    vocabulary: Vocabulary
    tensors: Tensors
    probe: Probe
    excerpt: str
    step: int
    digest: str
    source: Path
    counting: Tensors | None = None

    @property
    def name(self) -> str:
        """The name of the run, or of the file if the file is in no run's folder."""
        folder = self.source.parent
        is_step = folder.name == f"step-{self.step:08d}"
        return printable(folder.parent.name if is_step else self.source.name)

    @property
    def title(self) -> str:
        """The name and the step."""
        return f"{self.name} step {self.step:,}"

    @property
    def origin(self) -> dict[str, Any]:
        """Names the model in the JSON of a result: its run, step and digest."""
        return {"run": self.name, "step": self.step, "checkpoint": self.digest}

    def example_text(self, length: int = 12) -> str:
        """The excerpt's first line with at least `length` characters, cut to `length` or fewer at
        the end of a word.
        """
        lines = self.excerpt.split("\n")
        whole = lines[1:-1] or lines  # the first and last lines may be incomplete
        long = [line.strip() for line in whole if len(line.strip()) >= length]
        line = long[0] if long else max(map(str.strip, lines), key=len) or self.excerpt
        longest = min(length, self.config.block_size)
        cut = line[:longest]
        if len(line) > longest and " " in cut and line[longest] != " ":
            cut = cut[: cut.rindex(" ")]
        return cut.rstrip() or line[:longest]


def pack(tensors: Tensors, about: Mapping[str, Any]) -> bytes:
    """The bytes of a sealed safetensors file, equal for equal content. about: the JSON's values."""
    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    # The library writes several metadata entries in a random order, so there is only one.
    return seal(safetensors.numpy.save(whole, {ENTRY: json_to_seal(about)}))


def read_sealed(path: Path, recorded: str | None = None) -> tuple[Tensors, bytes, str]:
    """Reads the tensors, the JSON and the digest of a file that `pack` made.

    recorded: the digest in the manifest; None: not known. Raises CheckpointError if the file is
    missing, damaged, not written by gptx, or has another digest.
    """
    data = files.read(path)
    digest = check_seal(data, path)
    if recorded not in (None, digest):
        raise CheckpointError(f"damaged: {path} is not the file that its manifest records")
    header = data[8 : 8 + int.from_bytes(data[:8], "little")]
    try:
        text: str = json.loads(header)["__metadata__"][ENTRY]
        return safetensors.numpy.load(data), text.encode(), digest
    except (ValueError, KeyError, SafetensorError):  # another sealed file, such as a manifest
        raise CheckpointError(f"not a gptx checkpoint: {path}") from None


def check_tensors(tensors: Tensors, shapes: Shapes, source: Path) -> None:
    """Raises CheckpointError unless the tensors have exactly these names and shapes, in float32."""
    for name in sorted(shapes.keys() ^ tensors.keys()):
        what = "lacks" if name in shapes else "has an unknown tensor"
        raise CheckpointError(f"damaged: {source} {what} {short_repr(name)}")
    for name, shape in shapes.items():
        if tensors[name].shape != shape or tensors[name].dtype != np.float32:
            raise CheckpointError(f"damaged: {source} {name} is not float32 of the shape {shape}")


def read_model(path: Path, recorded: str | None = None) -> StoredModel:
    """Reads and checks a model file. recorded: the digest in the manifest; None: not known. Raises
    CheckpointError if the file is missing, damaged or not a model of gptx.
    """
    tensors, text, digest = read_sealed(path, recorded)
    about = decode_json(text, _About, path)
    config = about.config
    if len(about.vocabulary) != config.vocab_size:
        raise CheckpointError(f"damaged: {path} (vocabulary and embedding differ in size)")
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise CheckpointError(
                f"damaged: {path} {short_repr(name)} holds numbers that are not finite"
            )
    counting = None
    try:
        probe = Probe(tensors.pop("probe.ids"), tensors.pop("probe.logits"))
        if config.counting:
            counting = {name: tensors.pop(f"counting.{name}") for name in COUNTING}
    except KeyError as missing:
        raise CheckpointError(f"damaged: {path} lacks {missing}") from None
    check_tensors(tensors, config.shapes(), path)
    return StoredModel(
        config=config,
        vocabulary=about.vocabulary,
        tensors=tensors,
        probe=probe,
        excerpt=about.excerpt,
        step=about.step,
        digest=digest,
        source=path,
        counting=counting,
    )


@dataclass(frozen=True)
class CorpusId:
    """Identifies the text that a run was trained on by the text's content, not by its path.

    digest: the BLAKE3 hash of the text in UTF-8. sources: the names of its files. boundary: the
    number of characters in the training split; None: --val-fraction sets it. order: a hash of the
    order of the text's pieces, if validation pieces were moved to the end; otherwise "".
    """

    digest: str
    characters: int
    sources: tuple[str, ...]
    boundary: int | None = None
    order: str = ""

    @property
    def names(self) -> list[str]:
        """The names of the text's files, without folders, for people."""
        return [os.path.basename(text_name(source)) for source in self.sources]


@dataclass(frozen=True)
class Baseline:
    """The losses of n-gram counting on a validation split (gpt/counting/baseline.py).

    losses: nats per character, for the orders 1, 2, and so on. counted: the number of characters
    that were counted, at the end of the training split. scored: the number of characters of the
    validation split that counting predicted.
    """

    losses: tuple[float, ...]
    counted: int
    scored: int

    @property
    def nats(self) -> float:
        """The lowest loss. It is a little too low, because its order is chosen on the same text."""
        return min(self.losses)

    @property
    def order(self) -> int:
        """The order with the lowest loss."""
        return 1 + self.losses.index(self.nats)


@dataclass(frozen=True)
class Doubts:
    """Reasons why a loss on the validation split may mislead (gpt/corpus/doubts.py); 0: no reason.

    copied: the share of the validation text that also stands in the training text. unlike: by how
    many nats the loss of counting is higher than on any other tenth of the text.
    """

    copied: float = 0.0
    unlike: float = 0.0

    @property
    def sentences(self) -> list[str]:
        """A sentence for every reason: what is wrong, and what the user can do."""
        texts = []
        if self.copied:
            texts.append(
                f"{self.copied:.0%} of the validation text stands in the training text, too, so "
                "its loss says little about new texts; remove passages that the text has twice"
            )
        if self.unlike:
            texts.append(
                "the end of the text is for validation, but it is unlike the rest: the loss of "
                f"counting is {self.unlike:.2f} nats higher there than on any other tenth (a "
                "licence, another author or language?), so gptx takes the last step as the best; "
                "remove this end, or validate on pieces of the whole text: `split='every:20'`"
            )
        return texts


@dataclass(frozen=True)
class TrainedText:
    """A text that a run was trained on. digest: that of CorpusId; "" if the text is unknown."""

    run: str
    digest: str = ""
    val_fraction: float = 0.0


@dataclass(frozen=True)
class Parent:
    """The model whose weights a run starts with.

    run: the name of the parent's run, or of its model file if the file is in no run. digest: that
    of the model file. added: the characters of the new run's text that the parent's vocabulary
    lacked. texts: the texts that the parent and its own parents were trained on, oldest first.
    """

    run: str
    step: int
    digest: str
    added: str = ""
    texts: tuple[TrainedText, ...] = ()

    @property
    def title(self) -> str:
        """The name and the step."""
        return f"{self.run} step {self.step:,}"


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The time budget of a training, for the steps after `start_step`.

    seconds: the budget, with evaluations and saves. start_elapsed: the run's `elapsed` at
    `start_step`. peak: the highest learning rate, as a share of the option `learning_rate`.
    progress: the share of the learning-rate schedule that is done; it never falls, and training
    ends at 1.
    """

    seconds: float
    start_step: int = 0
    start_elapsed: float = 0.0
    peak: float = 1.0
    progress: float = 0.0

    @property
    def end_elapsed(self) -> float:
        """The run's `elapsed` at which training ends."""
        return self.start_elapsed + self.seconds

    def after_step(self, now: Manifest, reserve: float) -> Clock:
        """The clock after a step. reserve: seconds for the last evaluation and save. Training ends
        earlier if the run has done train.steps, the most steps that the text allows.
        """
        by_time = (now.elapsed - self.start_elapsed) / max(self.seconds - reserve, 1e-9)
        by_text = (now.step - self.start_step) / (now.train.steps - self.start_step)
        return replace(self, progress=min(1.0, max(self.progress, by_time, by_text)))


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything about a checkpoint except tensors. Losses are nats per character.

    best_step: the step with the lowest val_loss or, if the validation split is unlike the rest of
    the text (`doubts`), the last evaluated step, as such a split prefers a model that has learned
    little. val_loss and best_loss are measured on the same number of evaluated_characters.
    final_loss: the loss of best_step on final_characters characters, measured at the end of a run
    if earlier evaluations read fewer. gpt_loss: in a run with counting, the shown_loss of the GPT
    alone. seconds: time spent on steps. elapsed: time since training began, without interruptions.
    clock: only in a run with a time budget; train.steps is then the most steps that the text
    allows. imported: the program that trained the model; `train` then has only the number of steps,
    and corpus.digest is "" if the training text is unknown.
    """

    step: int
    model: ModelConfig
    train: TrainConfig
    preset: str
    vocabulary: Vocabulary
    corpus: CorpusId
    seconds: float
    running: tuple[float, int]  # sum and count of losses since the last evaluation
    val_loss: float | None = None
    best_step: int | None = None
    best_loss: float | None = None
    since_best: int = 0
    environment: dict[str, str | int] = field(default_factory=dict)
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    elapsed: float = 0.0
    clock: Clock | None = None
    val_characters: int = 0  # characters of the validation split to predict; 0: unknown
    final_loss: float | None = None
    final_characters: int = 0
    gpt_loss: float | None = None
    baseline: Baseline | None = None  # None: the model was imported
    imported: str = ""  # "": gptx trained the model
    parent: Parent | None = None  # None: the run started from random weights
    doubts: Doubts = Doubts()

    def trained_texts(self, run: str) -> tuple[TrainedText, ...]:
        """Every text that these weights were trained on, oldest first. run: this run's name."""
        own = TrainedText(run, self.corpus.digest, self.train.val_fraction)
        return (*(self.parent.texts if self.parent else ()), own)

    def settings(self) -> dict[str, Any]:
        """The options that train the same run again: name -> value."""
        values = {**vars(self.model), **vars(self.train)}
        names = [*options_of(ModelConfig), *options_of(TrainConfig)]
        settings = {"preset": self.preset, **{name: values[name] for name in names}}
        if self.clock is not None:  # time ends such a run, not a number of steps
            del settings["steps"]
            settings["minutes"] = self.clock.end_elapsed / 60
        return settings

    @property
    def step_characters(self) -> int:
        """The number of characters that the model predicts in a training step."""
        return self.train.batch_size * self.model.block_size

    @property
    def progress(self) -> float:
        """The share of the training that is done, of its steps or, with a clock, of its time."""
        return min(1.0, self.step / self.train.steps) if self.clock is None else self.clock.progress

    @property
    def evaluated_characters(self) -> tuple[int, int]:
        """The validation characters that an evaluation predicts, and all validation characters."""
        block_size, most = self.model.block_size, self.train.eval_chars
        return characters_to_evaluate(self.val_characters, block_size, most), self.val_characters

    @property
    def shown_loss(self) -> tuple[float | None, int, int]:
        """final_loss, otherwise best_loss: (nats, characters predicted, validation characters)."""
        if self.final_loss is None:
            return self.best_loss, *self.evaluated_characters
        return self.final_loss, self.final_characters, self.val_characters

    def with_losses(self, val_loss: float, gpt_loss: float | None = None) -> Manifest:
        """The manifest with the losses of a new evaluation, and with the best step so far."""
        now = replace(self, val_loss=val_loss, since_best=self.since_best + 1, running=(0.0, 0))
        is_best = self.best_loss is None or val_loss < self.best_loss  # NaN is no best loss
        if not is_best and not self.doubts.unlike:
            return now
        return replace(
            now,
            best_step=self.step,
            best_loss=val_loss,
            since_best=0,
            final_loss=None,
            final_characters=0,
            gpt_loss=gpt_loss,
        )


def characters_to_evaluate(total: int, block: int, most: int) -> int:
    """The number of `total` characters that an evaluation predicts. most: the option eval_chars; 0:
    all. The number is rounded down to whole windows of `block` characters, unless it is less than
    one window.
    """
    if not 0 < most < total:
        return total
    return most // block * block or most
