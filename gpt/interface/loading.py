"""Opens a trained GPT from a path on the disk, for a device."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

from gpt.checks import checks_arguments
from gpt.devices import usable
from gpt.errors import CheckpointError, ConfigError, GptxError, TextError
from gpt.interface.trained import TrainedGPT
from gpt.storage.checkpoint import MANIFEST, Checkpoint
from gpt.storage.manifest import Manifest
from gpt.storage.model_file import StoredModel, read_model
from gpt.storage.run import Run
from gpt.storage.runs import find_run
from gpt.vocabulary import Ids
from gpt.words import printable

if TYPE_CHECKING:
    from gpt.reading.fallback import Device


@dataclass(frozen=True)
class Saved:
    """One checkpoint, read as a whole: later saves of a training do not change it.

    name: the run's name. For a model file without its run, name is its path and checkpoint is None.
    device: where `model` computes; None if the command has no choice: on the CPU.
    """

    name: str
    stored: StoredModel
    checkpoint: Checkpoint | None
    device: str | None = None

    @classmethod
    def of(cls, model: TrainedGPT) -> Saved:
        """The checkpoint of an opened model, which stays on its device."""
        saved = cls(model.stored.name, model.stored, model._checkpoint)
        vars(saved)["model"] = model
        return saved

    @property
    def manifest(self) -> Manifest | None:
        """The checkpoint's; None for a model file without its run."""
        return self.checkpoint.manifest if self.checkpoint else None

    @cached_property
    def model(self) -> TrainedGPT:
        """The model, opened and checked with its probe when first used. Raises as `open_model`."""
        return open_model(self.stored, self.device or "cpu", self.checkpoint)

    @property
    def title(self) -> str:
        """Name and step."""
        return f"{self.name} step {self.stored.step:,}"

    @property
    def origin(self) -> dict[str, Any]:
        """The checkpoint that a result came from, for programs (see StoredModel.origin), and the
        device that has computed so far: "cpu" also if another one has failed.
        """
        origin = self.stored.origin | {"run": self.name}
        if self.device is None:
            return origin
        if self.device == "cpu":
            return origin | {"device": "cpu"}
        from gpt.reading.fallback import FallbackReader

        reader = self.model.reader
        failed = isinstance(reader, FallbackReader) and reader.device.failed
        return origin | {"device": "cpu" if failed else self.device}

    def splits(
        self, data: Path, purpose: str = "", restore: str = "; restore it", no_run: str = ""
    ) -> tuple[Ids, Ids]:
        """The ids that the run was trained and validated on; of pairs, the lines as a text.

        Raises TextError if there is no run, or if its corpus has changed or cannot be found. If a
        purpose is given, the error begins with it and ends with advice: `no_run` if there is no
        run.
        """
        from gpt.corpus.halves import halves_of_run

        try:
            if self.manifest is None:
                raise TextError(
                    f"{self.name} is a model file without its run, so its corpus is unknown"
                )
            if not self.manifest.corpus.digest:
                raise TextError(
                    f"{self.name} was imported without its text (gptx import … --corpus FILE)"
                )
            return halves_of_run(self.manifest, data)
        except TextError as error:
            if not purpose:
                raise
            advice = restore if self.manifest and self.manifest.corpus.digest else no_run
            raise TextError(f"{purpose} needs the corpus: {error}{advice}") from None

    def is_corpus(self, text: str) -> bool:
        """Whether this is a whole text that the run was trained and validated on, or the run whose
        weights it started with.
        """
        from blake3 import blake3

        texts = self.manifest.texts(self.name) if self.manifest else ()
        digests = {each.digest for each in texts if each.characters == len(text)}
        return (
            bool(digests) and blake3(text.encode("utf-8", "surrogatepass")).hexdigest() in digests
        )

    def share_learned(self, text: str, data: Path) -> float:
        """The share of a text's known characters that are in the text that the run was trained on,
        or the run whose weights it started with, as far as `data` has these (overlap.share_of).
        """
        from gpt.corpus import cache
        from gpt.corpus.corpus import reopen
        from gpt.corpus.halves import all_of, halves
        from gpt.corpus.overlap import share_of
        from gpt.vocabulary import Vocabulary

        if self.manifest is None:
            return 0.0
        *before, _ = self.manifest.texts(self.name)
        learned = []
        for each in before:
            for ids, record in cache.of_digest(data, each.digest):
                shared = int(len(ids) * (1 - each.val_fraction))
                known = Vocabulary(record.characters)
                learned.append((known, ids[: record.identity.boundary or shared]))
        vocabulary, train = self.stored.vocabulary, self.manifest.train
        corpus = reopen(self.manifest.corpus, data, vocabulary)
        if corpus is not None:
            pairs = self.manifest.model.encoder_layers > 0
            learned.append((vocabulary, all_of(halves(corpus, train, pairs)[0])))
        shares = (share_of(known.encode(text, "skip"), ids) for known, ids in learned)
        return max(shares, default=0.0)

    def exposure_to_split(self, of: Saved) -> str | None:
        """Why this model may have seen another's validation split in training, or None."""
        if of.manifest is None:
            return None
        its, text = self.manifest, of.manifest.corpus.digest
        if its is None:
            why = "is a model file without its run, so it may have seen this text"
        elif not its.corpus.digest:
            why = "was imported without its text, so it may have seen this text"
        elif its.corpus.digest != text:
            sources = ", ".join(its.corpus.sources)
            why = f"was trained on another corpus ({sources}) and may have seen this text"
        else:
            *_, own = its.texts(self.name)
            why = own.exposure(text, of.manifest.train) or ""
            for each in its.parent.texts if its.parent and not why else ():
                if reason := each.exposure(text, of.manifest.train):
                    why = f"started from {each.run}, which {reason}"
        return f"{self.name} {why}" if why else None


@checks_arguments
def load(
    path: str | Path = "checkpoints", *, step: str | SupportsIndex = "best", device: str = "cpu"
) -> TrainedGPT:
    """Opens a folder of runs (its newest), a run, a checkpoint's folder, or a model file alone.

    step: "best", "last" or a number, where a run is opened. device: "cpu" uses numpy; "cuda" and
    "mps" compute logits and stages with torch if it reproduces the probe; "auto" uses CUDA if there
    is any. Replaced activations and models with an encoder are computed on the CPU.
    Raises CheckpointError, ConfigError.
    """
    return replace(read(path, step), device=device).model


def open_model(
    stored: StoredModel, device: str = "cpu", checkpoint: Checkpoint | None = None
) -> TrainedGPT:
    """The model of a verified file; it computes on the device, or with numpy if that fails.
    checkpoint: the model file's checkpoint; None for a file outside a run.

    Raises CheckpointError, and ConfigError for an unusable device; "auto" becomes "cpu" instead.
    """
    device = usable(device, try_torch)
    open_device = None if device == "cpu" else partial(_on_device, device=device)
    return TrainedGPT(stored, open_device, checkpoint)


def find(checkpoints: Path, run: str | None, step: str | SupportsIndex = "best") -> Saved:
    """The run named `run` in `checkpoints`, or the newest if it is None. If no run has that name,
    `run` may be the path of a run, of a checkpoint's folder or of a model file.

    Raises CheckpointError, ConfigError.
    """
    try:
        found = find_run(checkpoints, run)
    except GptxError:
        if not run or not _is_model(run):
            raise
        return read(run, step)
    return _read_run(found, step)


def read(place: str | Path, step: str | SupportsIndex = "best") -> Saved:
    """The checkpoint at a path that `load` accepts. Raises CheckpointError, ConfigError."""
    path = Path(place).resolve()
    is_file, is_step = os.path.isfile(path), os.path.isfile(path / MANIFEST)
    if (is_file or is_step) and str(step) != "best":
        raise ConfigError("step", f"{place} has one step only; leave `step` out")
    if is_file:
        return Saved(printable(place), read_model(path), None)
    if is_step:
        checkpoint = Checkpoint.open(path)
        return Saved(printable(path.parent.name), checkpoint.model(), checkpoint)
    if not os.path.isdir(path):
        raise CheckpointError(f"no checkpoint in {path}; train one with: gptx train")
    return _read_run(Run(path) if Run(path).step_paths() else find_run(path), step)


def _read_run(run: Run, step: str | SupportsIndex) -> Saved:
    checkpoint, stored = run.read(step)
    return Saved(printable(run.name), stored, checkpoint)


def _is_model(place: str) -> bool:
    """Whether the path is a file, a checkpoint's folder or a run's folder."""
    path = Path(place)
    return os.path.isfile(place) or os.path.isfile(path / MANIFEST) or bool(Run(path).step_paths())


def try_torch(device: str) -> None:
    """Computes on a device with torch. Raises anything."""
    import torch

    torch.ones(1, device=device).add(1).item()


def _on_device(stored: StoredModel, device: str) -> Device:
    from gpt.model.device import DeviceGPT
    from gpt.training.checkpoint import load_gpt

    return DeviceGPT(load_gpt(stored, device), device)
