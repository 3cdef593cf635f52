"""A trained GPT with its vocabulary: its methods for Python users and commands, and the functions
that open it. The methods import the modules that compute, so that a model opens fast.
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
    ExplanationOptions,
    FilterOptions,
    SampleConfig,
    Stage,
    SurveyOptions,
    TrainConfig,
    Unknown,
)
from gpt.config.fields import Options, keywords_from
from gpt.config.model import ByCharacter, OnUnknown, Truncate, seed_of
from gpt.devices import check_device
from gpt.errors import CheckpointError, ConfigError, GptxError, TextError
from gpt.reading.gpt import Reader
from gpt.reading.probe import DeviceReader, open_checked_reader, probe_error, reader_on_device
from gpt.show.result import Check
from gpt.storage import files
from gpt.storage.checkpoint_files import Manifest, StoredModel, read_model
from gpt.storage.run import MANIFEST, Checkpoint, Run, all_runs, find_run
from gpt.vocabulary import AdaptedText, Ids, check_adapted_text, log_note
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
    from gpt.reading.sampler import DecoderPool, Samples
    from gpt.reading.score import Evaluation
    from gpt.reading.writing import Novelty, Passages
    from gpt.storage.overview import Curve, Runs


@dataclass(frozen=True, kw_only=True)
class _TextCall(Options):
    """The arguments of every method that reads one text."""

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
class AttnCall(_TextCall):
    """The arguments of TrainedGPT.attn."""

    truncate: Truncate = False


@dataclass(frozen=True, kw_only=True)
class NextCall(FilterOptions, _TextCall):
    """The arguments of TrainedGPT.next."""


@dataclass(frozen=True, kw_only=True)
class WhyCall(ExplanationOptions, _TextCall):
    """The arguments of TrainedGPT.why."""


@dataclass(frozen=True, kw_only=True)
class HeadsCall(SurveyOptions):
    """The arguments of TrainedGPT.heads."""

    text: str | Ids | None = field(default=None, kw_only=False)
    name: Annotated[str, Meta()] = ""
    unknown: OnUnknown = "fold"
    done: Callable[[float], object] = lambda share: None


@dataclass(frozen=True, kw_only=True)
class EvalCall(_TextCall):
    """The arguments of TrainedGPT.eval."""

    chars: ByCharacter = False

    name: Annotated[str, Meta()] = "the text"
    data: str | Path = "data"


class TrainedGPT:
    """The model of one checkpoint. Its file contains a probe: a text, and the logits that torch
    computed for this text at saving. Before its first computation, the model computes the logits
    again. It raises CheckpointError if they differ.

    checkpoint: None for a model file without its run. device: "cpu" uses numpy, others use torch.
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

    def check_probe(self) -> TrainedGPT:
        """Checks the probe, if it is not checked yet. Raises CheckpointError."""
        _ = self.probe_check
        return self

    @cached_property
    def _proven(self) -> tuple[Reader, Check]:
        reader, proof = open_checked_reader(self.stored)
        if self.device != "cpu":
            open_device = partial(open_on_device, self.stored, self.device)
            reader = reader_on_device(reader, self.stored.probe, open_device)
        return reader, proof

    @property
    def reader(self) -> Reader:
        """The forward pass, in numpy or on the device. Raises CheckpointError."""
        return self._proven[0]

    @property
    def probe_check(self) -> Check:
        """The largest difference between the probe's logits and this model's, in float64."""
        return self._proven[1]

    @cached_property
    def float32_check(self) -> Check:
        """The largest difference between the probe's logits and this model's, in float32."""
        return Check("logits in float32", probe_error(self.reader, self.stored.probe), detail=True)

    def __repr__(self) -> str:
        shape = layers_and_heads(self.config.n_layer, self.config.n_head)
        shape = f"{shape} × {self.config.head_size}, {len(self.vocabulary)} characters"
        return f"<TrainedGPT {self.stored.title}: {shape}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes a copy, which opens decoders of its own."""
        return TrainedGPT, (self.stored, self.checkpoint, self.device)

    @property
    def origin(self) -> dict[str, Any]:
        """What a result records about its model: the checkpoint, and the device that computed."""
        device = self.device if isinstance(self.reader, DeviceReader) else "cpu"
        return {**self.stored.origin, "device": device}

    @property
    def manifest_or_none(self) -> Manifest | None:
        """`manifest`, or None for a model file without its run."""
        return self.checkpoint.manifest if self.checkpoint else None

    @property
    def item_separator(self) -> str:
        """The text between the items of the run's text; "" if this text is no list or unknown."""
        return self.manifest_or_none.train.item_separator if self.manifest_or_none else ""

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self._saved.path.parent

    @property
    def manifest(self) -> Manifest:
        """What the checkpoint records beside its tensors: losses, corpus, options, versions."""
        return self._saved.manifest

    @property
    def training(self) -> TrainConfig:
        """The options of the training; `config` has the options of the model."""
        return self.manifest.train

    @property
    def steps(self) -> list[int]:
        """The steps that are on the disk now, in order. `at` opens one of them."""
        return Run(self.path).steps()

    @property
    def curve(self) -> Curve:
        """The losses at all evaluations so far, in nats per character."""
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
        """The counts of letter sequences and the gate that mixes them in; None without counting."""
        from gpt.counting.mixture import load_mixture

        return load_mixture(self.stored)

    @cached_property
    def decoders(self) -> DecoderPool:
        """The decoders that generate text, with KV caches."""
        from gpt.reading.decode import ParallelDecoder
        from gpt.reading.sampler import DecoderPool

        reader = self.reader
        first = reader if isinstance(reader, DeviceReader) else ParallelDecoder(reader)
        return DecoderPool(first)

    @keywords_from(SampleCall)
    def sample(self, call: SampleCall) -> Any:
        """Continues the prompt and returns the whole text; for n > 1, a list of n texts. For a list
        of prompts, returns a list with one such result per prompt.

        A returned text has the attributes `seed`; `new`, the text after the prompt; and `ended`,
        the reason why it ends: "length", "stop", or "copies" if only copies of the training text
        were left to write. stop: texts; the model stops before the first of them. new: returns a
        list of up to n whole items, all different, that the text of a run with `items` lacks.
        Raises TextError for an unknown character, ConfigError, OutOfMemory.
        """
        from gpt.reading.writing import SampleWriter, new_items

        if call.new:
            return [*new_items(self, replace(call, seed=seed_of(call)), Path(call.data))]
        prompts = [call.prompt] if isinstance(call.prompt, str) else call.prompt
        data = Path(call.data)
        stream = partial(self.stream, config=call, stop=call.stop, unknown=call.unknown, data=data)
        writing = SampleWriter(stream, prompts)
        for _ in writing.text_pieces():
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
        """Generates config.n samples step by step, without the prompt. For a run with `items`, a
        sample is one item. Raises TextError, OutOfMemory, ConfigError.
        """
        from gpt.reading.decode import require_memory
        from gpt.reading.sampler import Samples

        known, separator = self.known_text(prompt, unknown), self.item_separator
        if separator:
            stop = stop or (separator,)
        require_memory(self.config, config.n, len(prompt) + config.length)
        copies = self._copies(config.avoid_copies, data) if config.avoid_copies else None
        return Samples(
            self.decoders.lend_decoder(),
            self.vocabulary,
            known,
            config,
            stops=stop,
            mixture=self.mixture,
            copies=copies,
            start="" if known.startswith(separator) else separator,
        )

    def _copies(self, most: int, data: Path) -> Passages:
        """All passages of `most` + 1 characters in the training text. Raises TextError."""
        from gpt.corpus.corpus import splits_of_run
        from gpt.reading.writing import MOST, Passages

        if (data, most) not in self._passages:
            train, _ = splits_of_run(self.name, self.manifest_or_none, data, "`avoid_copies`")
            self._passages[data, most] = Passages(train[:MOST], most + 1)
        return self._passages[data, most]

    @keywords_from(AttnCall)
    def attn(self, call: AttnCall) -> AttentionMap:
        """Computes every stage of every head for a text; without a text, for an example. Raises
        TextError for an empty or too long text and for unknown characters.
        """
        from gpt.heads.attention_map import compute_attention_map

        text = self.known_text(self.text_or_example(call.text), call.unknown, call.truncate)
        checks = (replace(self.probe_check, detail=True), self.float32_check)
        return compute_attention_map(
            self.reader, text, self.vocabulary.encode(text), checks, model=self
        )

    @keywords_from(NextCall)
    def next(self, call: NextCall) -> NextCharacter:
        """Computes the distribution of the next character, before and after temperature and
        filters. Raises TextError, ConfigError.
        """
        from gpt.heads.next_character import predict_next

        text = self.known_text(self.text_or_example(call.text), call.unknown)
        return predict_next(self.reader, self.vocabulary, text, call, self.mixture)

    @keywords_from(WhyCall)
    def why(self, call: WhyCall) -> Why:
        """Computes what the embedding, each head, each feed-forward layer and each bias add to the
        logit of the next character, exactly in float64. Raises TextError, ConfigError.
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
        """The text in characters that the model knows: `unknown` says what happens to others.
        truncate: keeps only the last block_size characters. Raises TextError.
        """
        adapted = self.vocabulary.adapt(text, unknown)
        if truncate:
            adapted = AdaptedText(adapted.text[-self.config.block_size :], adapted.folded)
        return check_adapted_text(self.vocabulary, adapted).text

    def text_or_example(self, text: str | None, name: str = "text") -> str:
        """The text or, without one, the example in the model file, which a note quotes."""
        if text is None:
            text = self.stored.example_text()
            log_note(f'no {name} given; this one is from {self.excerpt_name}: "{text}"')
        return text

    @keywords_from(HeadsCall)
    def heads(self, call: HeadsCall) -> Survey:
        """Measures every head on a text; without one, on `default_text`. name: the name of the text
        in the result. done: is called with the share of the work that is done. Raises TextError.
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
        """The validation split and its name. If the split is missing, logs a note and returns the
        excerpt in the model file.
        """
        from gpt.corpus.corpus import splits_of_run

        try:
            return splits_of_run(self.name, self.manifest_or_none, data)[1], "the validation split"
        except TextError as error:
            log_note(f"note: {error}; measuring on {self.excerpt_name}")
            return self.vocabulary.encode(self.stored.excerpt), self.excerpt_name

    @property
    def excerpt_name(self) -> str:
        """The name of the excerpt that the model file contains."""
        size = f"{len(self.stored.excerpt):,}"
        manifest = self.manifest_or_none
        if manifest and not manifest.corpus.digest:  # an imported run without its text
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
        """Computes the stages of N texts as named arrays: acts["weights"] is (N, L, H, T, T).

        texts: texts, or (N, T) ids, of 1 to block_size characters; None: an example. names:
        the names of stages (docs/heads.md); None: all but head_output. layers: None: all layers.
        Positions count from 0, also in the padding at the end of a shorter text.

        patch: replaces values of stages; the model computes all later stages from the new values.
        A key is that of acts[key]: (stage, layer, head, position). A key may end earlier: (stage,
        layer) means all heads and positions. A range means several positions. A value is a number,
        an array that can be broadcast to acts[key], or a function of one layer's array that returns
        such an array.

        Raises TextError, ValueError for unknown names and wrong shapes, IndexError for a layer,
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
        """Computes the logits of the GPT alone after every character: (N, T, vocab_size). The
        arguments are those of `activations`. For example, this call sets the output of a head to
        zero (zero ablation): run.logits(texts, patch={("context", layer, head): 0}).
        """
        return self.activations(texts, "logits", patch=patch, unknown=unknown)["logits"]

    @cached_property
    def weights(self) -> Weights:
        """The weights under TransformerLens's names: weights["W_Q", layer, head]."""
        from gpt.heads.activations import Weights

        return Weights.of_reader(self.reader)

    def torch(self) -> GPT:
        """A copy of the GPT as a torch module with trainable weights, without dropout. It maps
        (B, T) int64 ids to (B, T, vocab_size) logits. Imports torch.
        """
        from gpt.training.trainer import load_gpt

        return load_gpt(self.stored, "cpu").eval()

    @keywords_from(EvalCall)
    def eval(self, call: EvalCall) -> Evaluation:
        """Measures how well the model predicts a text or, without one, the validation split. name:
        the name of the text in the result. Logs a warning if the model was trained on some of the
        text. Raises TextError, ConfigError.
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
        """Measures how much of every text is copied from the training text. The prompt of a sample
        does not count. Raises TextError if the training text is missing.
        """
        from gpt.corpus.corpus import splits_of_run
        from gpt.reading.writing import MOST, Novelty, Sample, longest_copies

        if isinstance(texts, str):  # a str is a sequence of texts, too
            raise TypeError(f"texts: a list of texts is needed, not one text; use [{texts!r:.40}]")
        train, _ = splits_of_run(self.name, self.manifest_or_none, Path(data), "`novelty`")
        if len(train) > MOST:
            text = f"the first {MOST:,} characters of the training text"
            log_note(f"note: searching for copies only in {text}")
        new = [text.new if isinstance(text, Sample) else text for text in texts]
        copies = longest_copies(new, train[:MOST], self.vocabulary)
        return [Novelty(len(text), copy) for text, copy in zip(new, copies, strict=True)]

    def at(self, step: str | SupportsIndex = "best") -> TrainedGPT:
        """Opens the same run at "best", "last" or another of its `steps`. Raises CheckpointError,
        ConfigError.
        """
        checkpoint = Run(self.path).at(step)
        return TrainedGPT(checkpoint.model(), checkpoint, self.device).check_probe()

    def live(self, path: str | Path = "live.html", *, text: str | None = None) -> Path:
        """Writes the model into an HTML page that shows what every head does as one types. Raises
        TextError, StorageError.
        """
        from gpt.page.live import live_page

        return files.save(Path(path), live_page(self, text).encode())


def load(
    path: str | Path = "checkpoints", *, step: str | SupportsIndex = "best", device: str = "cpu"
) -> TrainedGPT:
    """Opens a run, a step's folder, a model file, or the pinned, otherwise the newest run in a
    folder of runs. If the path does not exist, opens the run of this name in checkpoints/.

    step: "best", "last" or a number. device: "cpu" uses numpy, "cuda" and "mps" use torch, and
    "auto" uses CUDA if there is any. If a GPU does not reproduce the logits of the probe, the CPU
    computes instead. Patched activations always use the CPU. Raises CheckpointError, ConfigError.
    """
    if not os.path.lexists(path) and os.path.dirname(path) == "":
        return find_model(Path("checkpoints"), str(path), step).on(device).check_probe()
    return read_checkpoint(path, step).on(device).check_probe()


def runs(checkpoints: str | Path = "checkpoints") -> Runs:
    """Lists the runs of a folder. Logs a note for every damaged run. Raises CheckpointError if the
    folder has no run.
    """
    from gpt.storage.overview import read_runs

    table, problems = read_runs(Path(checkpoints))
    for problem in problems:
        log_note(f"note: {problem}")
    return table


def find_model(
    checkpoints: Path, run: str | None, step: str | SupportsIndex = "best"
) -> TrainedGPT:
    """Opens the run of this name in `checkpoints`, or at this path; for None, the pinned run,
    otherwise the newest. Raises CheckpointError, ConfigError.
    """
    try:
        saved = find_run(checkpoints, run)
    except GptxError:
        if not run or not (os.path.dirname(run) or os.path.lexists(run)):
            raise
        return read_checkpoint(run, step)
    checkpoint = saved.at(step)
    return TrainedGPT(checkpoint.model(), checkpoint)


def read_checkpoint(location: str | Path, step: str | SupportsIndex = "best") -> TrainedGPT:
    """Opens the checkpoint at a path. Raises CheckpointError, ConfigError."""
    path = Path(location).resolve()
    is_file, is_step = os.path.isfile(path), os.path.isfile(path / MANIFEST)
    if (is_file or is_step) and str(step) != "best":
        raise ConfigError("step", f"{location} has only one step; leave `step` out")
    if is_file:
        return TrainedGPT(read_model(path))
    if is_step:
        checkpoint = Checkpoint.open(path)
    elif not os.path.isdir(path) and all_runs(path.parent):
        checkpoint = find_run(path.parent, path.name).at(step)  # the error names a similar run
    else:
        checkpoint = (Run(path) if Run(path).steps() else find_run(path)).at(step)
    return TrainedGPT(checkpoint.model(), checkpoint)


def try_torch(device: str) -> None:
    """Computes a sum on a device with torch. May raise any exception."""
    import torch

    torch.ones(1, device=device).add(1).item()


def open_on_device(stored: StoredModel, device: str) -> Device:
    """Copies the model to a device. May raise any exception."""
    from gpt.model.gpt import DeviceGPT
    from gpt.training.trainer import load_gpt

    return DeviceGPT(load_gpt(stored, device), device)
