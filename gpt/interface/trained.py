"""A trained GPT with its vocabulary: what Python and the commands call on a model, and how to open
one. What computes is imported at its first use, so that a model opens fast.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, SupportsIndex

from msgspec import Meta

from gpt.config import (
    AttnConfig,
    EvalConfig,
    FilterOptions,
    HeadsConfig,
    SampleConfig,
    Stage,
    TrainConfig,
    Unknown,
    WhyConfig,
)
from gpt.config.fields import Options, keywords_from
from gpt.config.model import OnUnknown
from gpt.devices import check_device
from gpt.errors import CheckpointError, ConfigError, GptxError, TextError
from gpt.reading.gpt import Reader
from gpt.reading.probe import DeviceReader, difference, open_proven, reader_on_device
from gpt.show.result import Check
from gpt.storage import files
from gpt.storage.manifest import Manifest
from gpt.storage.model_file import StoredModel, read_model
from gpt.storage.run import MANIFEST, Checkpoint, Run, all_runs, find_run
from gpt.vocabulary import Ids, Reading, known_text, log_note
from gpt.words import layers_and_heads

if TYPE_CHECKING:
    from gpt.counting.mixture import Mixture
    from gpt.heads.activations import Activations, Patch, Texts, Weights
    from gpt.heads.attention_map import AttentionMap
    from gpt.heads.next_character import NextCharacter, Why
    from gpt.heads.survey import Survey
    from gpt.model import GPT
    from gpt.reading.gpt import Array
    from gpt.reading.probe import Device
    from gpt.reading.sampler import Decoders, Samples
    from gpt.reading.score import Evaluation
    from gpt.reading.writing import Novelty, Passages
    from gpt.storage.overview import Curve, Runs


@dataclass(frozen=True, kw_only=True)
class _Question(Options):
    """What every question about a text takes."""

    text: Annotated[str | None, Meta()] = field(default=None, kw_only=False)
    unknown: OnUnknown = "fold"


@dataclass(frozen=True, kw_only=True)
class SampleCall(SampleConfig):
    """The arguments of TrainedGPT.sample."""

    prompt: Annotated[str | Sequence[str], Meta()] = field(default="", kw_only=False)
    stop: Annotated[Sequence[str], Meta()] = ()
    new: Annotated[bool, Meta()] = False
    unknown: OnUnknown = "fold"
    data: str | Path = "data"


@dataclass(frozen=True, kw_only=True)
class AttnCall(AttnConfig, _Question):
    """The arguments of TrainedGPT.attn."""


@dataclass(frozen=True, kw_only=True)
class NextCall(FilterOptions, _Question):
    """The arguments of TrainedGPT.next."""


@dataclass(frozen=True, kw_only=True)
class WhyCall(WhyConfig, _Question):
    """The arguments of TrainedGPT.why."""


@dataclass(frozen=True, kw_only=True)
class HeadsCall(HeadsConfig):
    """The arguments of TrainedGPT.heads."""

    text: str | Ids | None = field(default=None, kw_only=False)
    name: Annotated[str, Meta()] = ""
    unknown: OnUnknown = "fold"
    done: Callable[[float], object] = lambda share: None


@dataclass(frozen=True, kw_only=True)
class EvalCall(EvalConfig, _Question):
    """The arguments of TrainedGPT.eval."""

    name: Annotated[str, Meta()] = "the text"
    data: str | Path = "data"


class TrainedGPT:
    """One checkpoint's model. When it first computes, its probe is checked: a model that does not
    compute the logits that torch computed when it was saved raises CheckpointError.

    checkpoint: None for a model file without its run. device: "cpu" uses numpy, others torch.
    """

    def __init__(
        self,
        stored: StoredModel,
        checkpoint: Checkpoint | None = None,
        device: str = "cpu",
    ) -> None:
        self.stored, self.checkpoint, self.device = stored, checkpoint, device
        self.name, self.config, self.vocabulary = stored.name, stored.config, stored.vocabulary
        self._passages: dict[tuple[Path, int], Passages] = {}

    def on(self, device: str) -> TrainedGPT:
        """The same model on another device; "auto" may become "cpu". Raises ConfigError."""
        return TrainedGPT(self.stored, self.checkpoint, check_device(device, try_torch))

    def prove(self) -> TrainedGPT:
        """Checks the probe, unless that was done. Raises CheckpointError."""
        _ = self.proof
        return self

    @cached_property
    def _proven(self) -> tuple[Reader, Check]:
        reader, proof = open_proven(self.stored)
        if self.device != "cpu":
            open_device = partial(open_on_device, self.stored, self.device)
            reader = reader_on_device(reader, self.stored.probe, open_device)
        return reader, proof

    @property
    def reader(self) -> Reader:
        """The forward pass, in numpy or on the device. Raises CheckpointError."""
        return self._proven[0]

    @property
    def proof(self) -> Check:
        """The largest difference, in float64, from torch's logits at saving."""
        return self._proven[1]

    @cached_property
    def rounding(self) -> Check:
        """The largest difference of this reader from the same logits, in float32."""
        return Check("logits in float32", difference(self.reader, self.stored.probe), detail=True)

    def __repr__(self) -> str:
        shape = layers_and_heads(self.config.n_layer, self.config.n_head)
        shape = f"{shape} × {self.config.head_size}, {len(self.vocabulary)} characters"
        return f"<TrainedGPT {self.stored.title}: {shape}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies share no decoder."""
        return TrainedGPT, (self.stored, self.checkpoint, self.device)

    @property
    def origin(self) -> dict[str, Any]:
        """The checkpoint of a result, and what computed it."""
        device = self.device if isinstance(self.reader, DeviceReader) else "cpu"
        return {**self.stored.origin, "device": device}

    @property
    def recorded(self) -> Manifest | None:
        """`manifest`; None for a model file without its run."""
        return self.checkpoint.manifest if self.checkpoint else None

    @property
    def separator(self) -> str:
        """What separates the items of the run's text; "" if it is no list or not known."""
        return self.recorded.train.item_separator if self.recorded else ""

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self._saved.path.parent

    @property
    def manifest(self) -> Manifest:
        """Everything that the checkpoint records beside its tensors: losses, corpus, versions."""
        return self._saved.manifest

    @property
    def training(self) -> TrainConfig:
        """The options of the training; `config` has those of the model."""
        return self.manifest.train

    @property
    def steps(self) -> list[int]:
        """The steps that are on the disk now, oldest first. `at` opens a step."""
        return Run(self.path).steps()

    @property
    def curve(self) -> Curve:
        """The losses at each evaluation so far, in nats per character."""
        from gpt.storage.overview import Overview

        run = Run(self.path)
        return Overview(run, run.last().manifest).curve

    @property
    def _saved(self) -> Checkpoint:
        if self.checkpoint is None:
            raise CheckpointError(
                f"{self.stored.source} is a model file without its run, so its other steps, its "
                "losses and the options of its training are unknown; open the run's folder instead"
            )
        return self.checkpoint

    @cached_property
    def mixture(self) -> Mixture | None:
        """The counting expert and its gate, if the model has them."""
        from gpt.counting.mixture import load_mixture

        return load_mixture(self.stored)

    @cached_property
    def decoders(self) -> Decoders:
        """Decoders with a KV cache."""
        from gpt.reading.decode import ParallelDecoder
        from gpt.reading.sampler import Decoders

        reader = self.reader
        first = reader if isinstance(reader, DeviceReader) else ParallelDecoder(reader)
        return Decoders(first)

    @keywords_from(SampleCall)
    def sample(self, call: SampleCall) -> Any:
        """Continues the prompt; returns the whole text, or for n > 1 a list of n texts, as `gptx
        sample -n` does; for a list of prompts, a list with one of these for each.

        A text has its `seed`; `new`, what follows the prompt; and `ended`: "length", "stop", or
        "copies" if only copies were left to write. It ends before the first of the texts in `stop`.
        new: of a run with `items`, a list of up to n whole items that are not in its text, no two
        equal. Raises TextError for an unknown character, ConfigError, OutOfMemory.
        """
        from gpt.reading.writing import Writing

        if call.new:
            from gpt.config.model import seed_of
            from gpt.reading.writing import new_items

            return [*new_items(self, replace(call, seed=seed_of(call)), Path(call.data))]
        prompts = [call.prompt] if isinstance(call.prompt, str) else call.prompt
        stream = partial(self.stream, stop=call.stop, unknown=call.unknown, data=Path(call.data))
        writing = Writing(partial(stream, config=call), prompts)
        for _ in writing.pieces():
            pass
        if writing.failures:
            raise writing.failures[0]
        samples: list[Any] = writing.samples
        if call.n > 1:
            samples = [samples[at : at + call.n] for at in range(0, len(samples), call.n)]
        return samples[0] if prompts is not call.prompt else samples

    def stream(
        self,
        prompt: str,
        config: SampleConfig,
        *,
        stop: Sequence[str] = (),
        unknown: Unknown = "fold",
        data: Path = Path("data"),
    ) -> Samples:
        """The new text of each of config.n samples, step by step; a list's begins at an item and
        ends with it. Raises TextError, OutOfMemory, ConfigError.
        """
        from gpt.reading.decode import require_memory
        from gpt.reading.sampler import Samples

        known, separator = self.known_text(prompt, unknown), self.separator
        if separator:
            stop = stop or (separator,)
        require_memory(self.config, config.n, len(prompt) + config.length)
        copies = self._copies(config.avoid_copies, data) if config.avoid_copies else None
        decoding = self.decoders.lend_decoder()
        return Samples(
            decoding,
            self.vocabulary,
            known,
            config,
            stops=stop,
            mixture=self.mixture,
            copies=copies,
            start="" if known.startswith(separator) else separator,
        )

    def _copies(self, most: int, data: Path) -> Passages:
        """The training text's passages of `most` + 1 characters. Raises TextError."""
        from gpt.corpus.corpus import splits_of_run
        from gpt.reading.writing import MOST, Passages

        if (data, most) not in self._passages:
            train, _ = splits_of_run(self.name, self.recorded, data, "`avoid_copies`")
            self._passages[data, most] = Passages(train[:MOST], most + 1)
        return self._passages[data, most]

    @keywords_from(AttnCall)
    def attn(self, call: AttnCall) -> AttentionMap:
        """Every stage of every head for the text; None: an example. Raises TextError for an empty
        or too long text and for unknown characters.
        """
        from gpt.heads.attention_map import inspect

        text = self.known_text(self.text_or_example(call.text), call.unknown, call.truncate)
        proofs = (replace(self.proof, detail=True), self.rounding)
        return inspect(self.reader, text, self.vocabulary.encode(text), proofs, model=self)

    @keywords_from(NextCall)
    def next(self, call: NextCall) -> NextCharacter:
        """The distribution of the next character, before and after temperature and filters. Raises
        TextError, ConfigError.
        """
        from gpt.heads.next_character import next_of_text

        text = self.known_text(self.text_or_example(call.text), call.unknown)
        return next_of_text(self.reader, self.vocabulary, text, call, self.mixture)

    @keywords_from(WhyCall)
    def why(self, call: WhyCall) -> Why:
        """What the embedding, each head, each feed-forward layer and each bias add to the GPT's
        logit of the next character, in float64; the sum is exact. Raises TextError, ConfigError.
        """
        from gpt.heads.next_character import why

        text = self.known_text(self.text_or_example(call.text), call.unknown, call.truncate)
        return why(self.reader, self.vocabulary, text, call)

    def known_text(
        self,
        text: str,
        unknown: Unknown = "fold",
        truncate: bool = False,
    ) -> str:
        """The text as the model reads it. truncate: only its end. Raises TextError."""
        reading = self.vocabulary.read(text, unknown)
        if truncate:
            reading = Reading(reading.text[-self.config.block_size :], reading.folded)
        return known_text(self.vocabulary, reading).text

    def text_or_example(self, text: str | None, name: str = "text") -> str:
        """The text, or else the example of the model file, which a note quotes."""
        if text is None:
            text = self.stored.example()
            log_note(f'no {name} given; from {self.excerpt_name}: "{text}"')
        return text

    @keywords_from(HeadsCall)
    def heads(self, call: HeadsCall) -> Survey:
        """Every head's measures on a text; without one, on `default_text`. name: of the text, for
        the result. done: gets the share of the work that is done. Raises TextError.
        """
        from gpt.heads.survey import survey

        ids, name = call.text, call.name
        if ids is None:
            ids, default_name = self.default_text()
            name = name or default_name
        elif isinstance(ids, str):
            ids = self.vocabulary.encode(self.known_text(ids, call.unknown))
        else:
            ids = self.vocabulary.row_of(ids, "text")
        name = name or f"a text of {len(ids):,} characters"
        return survey(self.reader, self.vocabulary, ids, call, text=name, done=call.done)

    def default_text(self, data: Path = Path("data")) -> tuple[Ids, str]:
        """The validation split, and its name; if the run or its corpus is missing, the excerpt in
        the model file, with a note.
        """
        from gpt.corpus.corpus import splits_of_run

        try:
            return splits_of_run(self.name, self.recorded, data)[1], "the validation split"
        except TextError as error:
            log_note(f"note: {error}; measuring on {self.excerpt_name}")
            return self.vocabulary.encode(self.stored.excerpt), self.excerpt_name

    @property
    def excerpt_name(self) -> str:
        """The name of the text that the model file contains."""
        size = f"{len(self.stored.excerpt):,}"
        if self.recorded and not self.recorded.corpus.digest:  # it was imported without its text
            return f"{size} characters that the model has written"
        return f"the validation split's first {size} characters"

    def activations(
        self,
        texts: Texts | None = None,
        names: Stage | Iterable[Stage] | None = None,
        layers: SupportsIndex | Iterable[SupportsIndex] | None = None,
        *,
        patch: Mapping[Any, Patch] | None = None,
        unknown: Unknown = "error",
    ) -> Activations:
        """The stages of N texts as named arrays: acts["weights"] is (N, L, H, T, T).

        texts: texts, or (N, T) ids, of 1 to block_size characters each; None: the `example`. names:
        of stages (docs/heads.md); None: all but head_output. layers: None: all. patch: replaces
        stages; what follows is computed from the new values. Its keys are those of acts[key],
        (stage, layer, head, position), where parts left out mean all, and a range means several
        positions. Its values are a number, an array that broadcasts to acts[key], or a function of
        one layer's array that returns such an array. Positions count from 0, also in the padding at
        the end of a shorter text. docs/python.md has examples.

        Raises TextError, ValueError for unknown names and other shapes, IndexError for a layer,
        head or position that does not exist, OutOfMemory.
        """
        from gpt.heads.activations import ActivationPlan, pad_texts

        if texts is None:
            texts = self.text_or_example(None)
        ids, lengths = pad_texts(texts, self.vocabulary, self.config, unknown)
        return ActivationPlan(self.reader, ids, names, layers, patch=patch, lengths=lengths).read()

    def logits(
        self,
        texts: Texts | None = None,
        *,
        patch: Mapping[Any, Patch] | None = None,
        unknown: Unknown = "error",
    ) -> Array:
        """(N, T, vocab_size) logits after each character, of the GPT alone; see `activations`. Zero
        ablation of a head: run.logits(texts, patch={("context", layer, head): 0}).
        """
        return self.activations(texts, "logits", patch=patch, unknown=unknown)["logits"]

    @cached_property
    def weights(self) -> Weights:
        """The weights by TransformerLens's names: weights["W_Q", layer, head]."""
        from gpt.heads.activations import Weights

        return Weights.of(self.reader)

    def torch(self) -> GPT:
        """A copy of the GPT as a torch module with trainable weights, for gradients: (B, T) int64
        ids -> (B, T, vocab_size) logits, without dropout. Imports torch.
        """
        from gpt.training.trainer import load_gpt

        return load_gpt(self.stored, "cpu").eval()

    @keywords_from(EvalCall)
    def eval(self, call: EvalCall) -> Evaluation:
        """How well the model predicts a text or, without one, the validation split of its run.
        name: of the text, for the result. Logs a warning if the model has learned some of it.
        Raises TextError, ConfigError.
        """
        from gpt.interface.evaluating import evaluate_split, evaluate_text

        if call.text is None:
            return evaluate_split(self, call)
        return evaluate_text(self, call.text, call)

    def novelty(
        self,
        texts: Sequence[str],
        *,
        data: str | Path = "data",
    ) -> list[Novelty]:
        """How much of each text the model copied from its training text; prompts do not count.
        Raises TextError if that text is missing.
        """
        from gpt.corpus.corpus import splits_of_run
        from gpt.reading.writing import MOST, Novelty, Sample, longest_copies

        if isinstance(texts, str):  # it is a sequence of texts, too
            raise TypeError(f"texts: a list of texts is needed, not one text; use [{texts!r:.40}]")
        train, _ = splits_of_run(self.name, self.recorded, Path(data), "`novelty`")
        if len(train) > MOST:
            log_note(f"note: searching for copies only in the first {MOST:,} characters")
        new = [text.new if isinstance(text, Sample) else text for text in texts]
        copies = longest_copies(new, train[:MOST], self.vocabulary)
        return [Novelty(len(text), copy) for text, copy in zip(new, copies, strict=True)]

    def at(self, step: str | SupportsIndex = "best") -> TrainedGPT:
        """The same run at "best", "last" or another of its `steps`. Raises CheckpointError,
        ConfigError.
        """
        checkpoint = Run(self.path).at(step)
        return TrainedGPT(checkpoint.model(), checkpoint, self.device).prove()

    def live(self, path: str | Path = "live.html", *, text: str | None = None) -> Path:
        """Writes the model into one HTML file: type in the page, and every head follows. Raises
        TextError, StorageError.
        """
        from gpt.page.live import live_page

        return files.save(Path(path), live_page(self, text).encode())


def load(
    path: str | Path = "checkpoints", *, step: str | SupportsIndex = "best", device: str = "cpu"
) -> TrainedGPT:
    """Opens a folder of runs (the pinned run, otherwise the newest), a run, a checkpoint's folder,
    or a model file; if no such path exists, the run of this name in checkpoints/.

    step: "best", "last" or a number. device: "cpu" uses numpy; "cuda" and "mps" compute with torch;
    if they do not reproduce the probe, the CPU computes. "auto" uses CUDA if there is any. Replaced
    activations are always computed on the CPU. Raises CheckpointError, ConfigError.
    """
    if not os.path.lexists(path) and os.path.dirname(path) == "":
        return find_model(Path("checkpoints"), str(path), step).on(device).prove()
    return read_checkpoint(path, step).on(device).prove()


def runs(checkpoints: str | Path = "checkpoints") -> Runs:
    """Lists the runs of a folder. For a damaged run, a note is logged. Raises CheckpointError if
    the folder has no run.
    """
    from gpt.storage.overview import read_runs

    table, problems = read_runs(Path(checkpoints))
    for problem in problems:
        log_note(f"note: {problem}")
    return table


def find_model(
    checkpoints: Path, run: str | None, step: str | SupportsIndex = "best"
) -> TrainedGPT:
    """The run named `run` in `checkpoints`, or at this path; None: the pinned one, otherwise the
    newest. Raises CheckpointError, ConfigError.
    """
    try:
        saved = find_run(checkpoints, run)
    except GptxError:
        if not run or not (os.path.dirname(run) or os.path.lexists(run)):
            raise
        return read_checkpoint(run, step)
    checkpoint = saved.at(step)
    return TrainedGPT(checkpoint.model(), checkpoint)


def read_checkpoint(place: str | Path, step: str | SupportsIndex = "best") -> TrainedGPT:
    """The checkpoint at a path. Raises CheckpointError, ConfigError."""
    path = Path(place).resolve()
    is_file, is_step = os.path.isfile(path), os.path.isfile(path / MANIFEST)
    if (is_file or is_step) and str(step) != "best":
        raise ConfigError("step", f"{place} has one step only; leave `step` out")
    if is_file:
        return TrainedGPT(read_model(path))
    if is_step:
        checkpoint = Checkpoint.open(path)
    elif not os.path.isdir(path) and all_runs(path.parent):
        checkpoint = find_run(path.parent, path.name).at(step)  # names the most similar run
    else:
        checkpoint = (Run(path) if Run(path).steps() else find_run(path)).at(step)
    return TrainedGPT(checkpoint.model(), checkpoint)


def try_torch(device: str) -> None:
    """Computes on a device with torch. May raise any exception."""
    import torch

    torch.ones(1, device=device).add(1).item()


def open_on_device(stored: StoredModel, device: str) -> Device:
    """The model on a device. May raise any exception."""
    from gpt.model.gpt import DeviceGPT
    from gpt.training.trainer import load_gpt

    return DeviceGPT(load_gpt(stored, device), device)
