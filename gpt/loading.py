"""From a place on disk to a trained GPT: where readers, files and devices meet."""

from __future__ import annotations

from pathlib import Path

from gpt.devices import choose
from gpt.errors import CheckpointError
from gpt.reading.sampler import Decoder
from gpt.reading.trained import TrainedGPT
from gpt.run import MANIFEST, Checkpoint, Run, find_run
from gpt.stored import StoredModel, read_model


def load(
    path: str | Path = "checkpoints", *, step: str = "best", device: str = "cpu"
) -> TrainedGPT:
    """Opens a folder of runs (its newest), a run, a checkpoint's folder, or a model file alone.

    step: "best", "last" or a number, where a run is opened. device: "cpu" reads with numpy;
    "cuda" and "mps" write with torch. Raises CheckpointError, ConfigError.
    """
    return open_model(_stored(Path(path).resolve(), step), device)


def open_model(stored: StoredModel, device: str = "cpu") -> TrainedGPT:
    """A verified file as a model that writes on the device. Raises CheckpointError."""
    device = choose(device)
    return TrainedGPT(stored, None if device == "cpu" else _torch_decoder(stored, device))


def _stored(path: Path, step: str) -> StoredModel:
    if path.is_file():
        return read_model(path)
    if (path / MANIFEST).is_file():
        return Checkpoint.open(path).model()
    if not path.is_dir():
        raise CheckpointError(f"no checkpoint in {path}; train one with: gptx train")
    run = Run(path) if Run(path).step_paths() else find_run(path)
    return run.model(step)


def _torch_decoder(stored: StoredModel, device: str) -> Decoder:
    from gpt.model.decoder import TorchDecoder
    from gpt.training.checkpoint import load_gpt

    return TorchDecoder(load_gpt(stored, device), device)
