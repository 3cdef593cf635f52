"""From a place on disk to a trained GPT: where readers, files and devices meet."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gpt.devices import usable
from gpt.errors import CheckpointError
from gpt.reading.sampler import DrawingDecoder
from gpt.reading.trained import TrainedGPT
from gpt.run import MANIFEST, Checkpoint, Run, find_run
from gpt.stored import StoredModel, read_model


def load(
    path: str | Path = "checkpoints", *, step: str = "best", device: str = "cpu"
) -> TrainedGPT:
    """Opens a folder of runs (its newest), a run, a checkpoint's folder, or a model file alone.

    step: "best", "last" or a number, where a run is opened. device: "cpu" reads with numpy;
    "cuda" and "mps" write with torch, once that has proven itself; "auto" does so if there is CUDA.
    Raises CheckpointError, ConfigError.
    """
    return open_model(_stored(Path(path).resolve(), step), device)


def open_model(stored: StoredModel, device: str = "cpu") -> TrainedGPT:
    """A verified file as a model that writes on the device, and with numpy where that fails.

    Raises CheckpointError, and ConfigError for a device that cannot be used; "auto" is then "cpu".
    """
    device = usable(device, _try_torch)
    return TrainedGPT(stored, None if device == "cpu" else partial(_torch_decoder, stored, device))


def _stored(path: Path, step: str) -> StoredModel:
    if path.is_file():
        return read_model(path)
    if (path / MANIFEST).is_file():
        return Checkpoint.open(path).model()
    if not path.is_dir():
        raise CheckpointError(f"no checkpoint in {path}; train one with: gptx train")
    run = Run(path) if Run(path).step_paths() else find_run(path)
    return run.model(step)


def _try_torch(device: str) -> None:
    import torch

    torch.ones(1, device=device).add(1).item()


def _torch_decoder(stored: StoredModel, device: str) -> DrawingDecoder:
    from gpt.model.decoder import TorchDecoder
    from gpt.training.checkpoint import load_gpt

    return TorchDecoder(load_gpt(stored, device), device)
