"""A training's state <-> bytes, exactly: weights with their probe, and the optimizer's moments.

What the bytes become on disk, and whether they may be believed, is run.py's business.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import safetensors.numpy
import torch

from gpt.migration import SCHEMA
from gpt.model import GPT
from gpt.run import Checkpoint
from gpt.stored import StoredModel, Tensors
from gpt.training.optim import Optimizer, moments
from gpt.training.ranks import placed, whole
from gpt.vocabulary import Ids, Vocabulary

PROBE_LENGTH = 64  # characters
PROBE_NUMBERS = 2**20  # logits, so that a large vocabulary does not swell every checkpoint


def model_bytes(model: GPT, vocabulary: Vocabulary, excerpt: str, step: int) -> bytes:
    """A model file that can be shared alone: weights, config, vocabulary, and a probe.

    The probe is the start of `excerpt` with the float32 logits that torch computes for it now.
    """
    length = min(model.config.block_size, PROBE_LENGTH, max(1, PROBE_NUMBERS // len(vocabulary)))
    ids = vocabulary.encode(excerpt[:length]).astype(np.int32)
    tensors: Tensors = {"probe.ids": ids, "probe.logits": probe_logits(model, ids)}
    tensors |= {name: _numpy(tensor) for name, tensor in model.stored_parameters().items()}
    about = {
        "schema": SCHEMA,
        "config": asdict(model.config),
        "characters": vocabulary.characters,
        "excerpt": excerpt,
        "step": step,
    }
    # One entry: safetensors writes several in no fixed order, and equal models get equal bytes.
    metadata = {"gptx": json.dumps(about, ensure_ascii=False)}
    return safetensors.numpy.save(tensors, metadata)


@torch.no_grad()
def probe_logits(model: GPT, ids: Ids) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """(P,) ids -> (P, vocab_size) logits, without dropout."""
    was_training = model.training
    model.eval()
    device = model.token_embedding.weight.device
    logits = model(torch.from_numpy(ids.astype(np.int64))[None].to(device))[0]
    model.train(was_training)
    return _numpy(logits.float())


def state_bytes(model: GPT, optimizer: Optimizer, averaged: bool = False) -> bytes:
    """The optimizers' moments and step counts, by parameter name.

    And the weights themselves, where the model file holds their average.
    """
    tensors: Tensors = {}
    for name, parameter in model.named_parameters():
        state = optimizer.state(parameter)
        steps = torch.as_tensor(state.get("step", 0.0), dtype=torch.float32)
        tensors[f"step.{name}"] = _numpy(steps.reshape(1))
        for moment in moments(name):
            value = state.get(moment)
            value = torch.zeros_like(parameter) if value is None else value
            tensors[f"{moment}.{name}"] = _numpy(value)
        if averaged:
            tensors[f"weight.{name}"] = _numpy(parameter)
    return safetensors.numpy.save(tensors)


@torch.no_grad()
def gathered(model: GPT) -> GPT:
    """A sharded model in one piece, on the CPU. All ranks must ask."""
    one = GPT(model.config)
    for mine, part in zip(one.parameters(), model.parameters(), strict=True):
        mine.copy_(whole(part))
    return one


def load_gpt(stored: StoredModel, device: str) -> GPT:
    """The torch model of a verified file."""
    model = GPT(stored.config)
    model.load_parameters({name: torch.from_numpy(a) for name, a in stored.tensors.items()})
    return model.to(device)


def restore_state(
    checkpoint: Checkpoint, model: GPT, optimizer: Optimizer, averaged: bool = False
) -> None:
    """Puts the moments back, bit for bit, and the weights too. Raises CheckpointError.

    Set directly: load_state_dict would cast them to the parameter's type.
    """
    parameters = dict(model.named_parameters())
    shapes: dict[str, tuple[int, ...]] = {}
    for name, parameter in parameters.items():
        shapes[f"step.{name}"] = (1,)
        shapes |= {f"{moment}.{name}": tuple(parameter.shape) for moment in moments(name)}
        if averaged:
            shapes[f"weight.{name}"] = tuple(parameter.shape)
    tensors = {name: torch.from_numpy(array) for name, array in checkpoint.state(shapes).items()}
    for name, parameter in parameters.items():
        if averaged:
            parameter.data.copy_(placed(tensors[f"weight.{name}"], parameter))
        state = optimizer.state(parameter)
        for moment in moments(name):
            state[moment] = placed(tensors[f"{moment}.{name}"], parameter)
        # AdamW's fused kernels keep the step beside the parameter, Adagrad always on the CPU.
        where = state["step"].device if "step" in state else parameter.device
        state["step"] = tensors[f"step.{name}"].reshape(()).to(where)


def _numpy(tensor: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return whole(tensor.detach()).cpu().contiguous().numpy()
