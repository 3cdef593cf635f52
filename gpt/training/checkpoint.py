"""Converts a training's state to bytes and back, exactly: weights with their probe, and the
optimizer's moments.

gpt/storage writes and verifies these bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch.func import functional_call

from gpt.config import ModelConfig
from gpt.counting.mixture import Mixture
from gpt.counting.tables import release_memory
from gpt.errors import NumericsError
from gpt.model import GPT
from gpt.show.result import Check
from gpt.storage.model_file import Probe, StoredModel, Tensors, pack, pick_probe_logits
from gpt.storage.run import Checkpoint
from gpt.training.optim import Optimizer
from gpt.vocabulary import Ids, Vocabulary

PROBE_POSITIONS = 512  # limits the time to open a model, which computes them
PROBE_LOGITS = 2**25  # computed in float64; limits the time for a very large vocabulary
PROBE_AT_ONCE = 2**20  # logits computed together, unless a row has more; limits the memory
PROBE_NUMBERS = 2**14  # stored logits; limits the size of a checkpoint with a large vocabulary
#: Type of the check that numpy computes a probe's logits from these tensors (gpt/reading/probe.py).
Prove = Callable[[ModelConfig, Tensors, Probe], Check]


def model_bytes(
    model: GPT,
    vocabulary: Vocabulary,
    excerpt: str,
    step: int,
    prove: Prove | None = None,
    mixture: Mixture | None = None,
) -> bytes:
    """A model file that can be shared by itself: weights, config, vocabulary, a probe, a digest,
    and the tables and gate of counting. Raises NumericsError if `prove` computes other logits.
    """
    probe = probe_of(model, vocabulary.encode(excerpt))
    release_memory()  # frees the float64 weights
    tensors: Tensors = {name: _numpy(tensor) for name, tensor in model.stored_parameters().items()}
    check = prove(model.config, tensors, probe) if prove else None
    if check and not check.passed:
        raise NumericsError(
            f"numpy computes other logits than torch at step {step:,} (difference "
            f"{check.error:.1e}; rounding allows {check.bound:.1e}), so this step was not saved. "
            "Try another version of numpy or torch"
        )
    tensors |= {"probe.ids": probe.ids, "probe.logits": probe.logits}
    if mixture:
        tensors |= {f"counting.{name}": array for name, array in mixture.packed().items()}
    about = {"config": model.config, "vocabulary": vocabulary, "excerpt": excerpt, "step": step}
    return pack(tensors, about)


def probe_of(model: GPT, text: Ids) -> Probe:
    """The start of a text, then every character of the vocabulary (of a larger one, evenly spread
    ones), in rows as long as the context.
    """
    config = model.config
    positions = max(1, min(PROBE_POSITIONS, PROBE_LOGITS // config.vocab_size))
    length = min(config.block_size, positions)
    rows = min(-(-config.vocab_size // length), positions // length)
    count = min(config.vocab_size, rows * length)
    every = np.linspace(0, config.vocab_size - 1, count).astype(np.int32)
    start = np.resize(text.astype(np.int32), rows * length - count)
    ids = np.concatenate((start, every)).reshape(rows, length)
    kept = min(config.vocab_size, max(1, PROBE_NUMBERS // ids.size))
    probe = Probe(ids, np.zeros((ids.size, kept), np.float32))
    logits = exact_logits(model, ids)
    return replace(probe, logits=pick_probe_logits(logits, kept).astype(np.float32))


@torch.no_grad()
def exact_logits(
    model: GPT, ids: Ids
) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """(R, L) ids -> R rows of (L, vocab_size) logits in float64, on the CPU and without dropout."""
    state: dict[str, torch.Tensor] = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        moved = tensor.detach().cpu()
        state[name] = moved.double() if moved.is_floating_point() else moved
    for name, table in model.position.tables(model.config).items():
        state[f"position.{name}"] = table
    rows = max(1, PROBE_AT_ONCE // (ids.shape[1] * model.config.vocab_size))
    was_training = model.training
    model.eval()
    for first in range(0, len(ids), rows):
        some = torch.from_numpy(ids[first : first + rows].astype(np.int64))
        yield from functional_call(model, state, (some,)).numpy()
    model.train(was_training)


def state_bytes(model: GPT, optimizer: Optimizer, averaged: bool = False) -> bytes:
    """The optimizer's moments and step counts, by parameter name, as bytes. averaged: the weights,
    too, because the model file has their average.
    """
    tensors: Tensors = {}
    for name, parameter in model.named_parameters():
        state = optimizer.state(parameter)
        steps = torch.as_tensor(state.get("step", 0.0), dtype=torch.float32)
        tensors[f"step.{name}"] = _numpy(steps.reshape(1))
        for moment in optimizer.moments(parameter):
            value = state.get(moment)
            value = torch.zeros_like(parameter) if value is None else value
            tensors[f"{moment}.{name}"] = _numpy(value)
        if averaged:
            tensors[f"weight.{name}"] = _numpy(parameter.detach())
    return pack(tensors, {})


def load_gpt(stored: StoredModel, device: str) -> GPT:
    """The torch model of a verified file."""
    model = GPT(stored.config)
    model.load_parameters({name: torch.tensor(a) for name, a in stored.tensors.items()})
    return model.to(device)


def restore_state(
    checkpoint: Checkpoint, model: GPT, optimizer: Optimizer, averaged: bool = False
) -> None:
    """Restores the moments bit for bit (load_state_dict would convert them to the parameter's type)
    and, if `averaged`, the weights. Raises CheckpointError.
    """
    parameters = dict(model.named_parameters())
    shapes: dict[str, tuple[int, ...]] = {}
    for name, parameter in parameters.items():
        shapes[f"step.{name}"] = (1,)
        shapes |= {
            f"{moment}.{name}": tuple(parameter.shape) for moment in optimizer.moments(parameter)
        }
        if averaged:
            shapes[f"weight.{name}"] = tuple(parameter.shape)
    tensors = {name: torch.tensor(array) for name, array in checkpoint.state(shapes).items()}
    for name, parameter in parameters.items():
        if averaged:
            parameter.data.copy_(tensors[f"weight.{name}"])
        state = optimizer.state(parameter)
        for moment in optimizer.moments(parameter):
            state[moment] = tensors[f"{moment}.{name}"].to(parameter.device)
        state["step"] = tensors[f"step.{name}"].reshape(()).to(parameter.device)


def _numpy(tensor: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return tensor.cpu().contiguous().numpy()
