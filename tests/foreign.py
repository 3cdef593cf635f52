"""Checkpoints as nanoGPT writes them, with random weights, and their logits.

GPT-2's forward is written here in plain functions of torch, so that it shares no code with gptx.
"""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CHARACTERS = sorted(set("the cat sat on the mat.\nTo be, or not"))
SIZES = {"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 12}

State = dict[str, Tensor]


def state_of(tokens: int, bias: bool = True, tied: bool = True, **sizes: int) -> State:
    """GPT-2's parameters, random and far from 0, with matrices as (rows, columns)."""
    shape = SIZES | sizes
    C, random = shape["n_embd"], torch.Generator().manual_seed(7)
    state = {
        "transformer.wte.weight": torch.randn(tokens, C, generator=random),
        "transformer.wpe.weight": torch.randn(shape["block_size"], C, generator=random),
    }

    def add(name: str, *size: int) -> None:
        scale = size[-1] ** -0.5 if len(size) > 1 else 0.3
        state[f"{name}.weight"] = torch.randn(size, generator=random) * scale + (len(size) == 1)
        if bias:
            state[f"{name}.bias"] = torch.randn(size[0], generator=random) * 0.3

    for layer in range(shape["n_layer"]):
        block = f"transformer.h.{layer}"
        add(f"{block}.ln_1", C)
        add(f"{block}.attn.c_attn", 3 * C, C)
        add(f"{block}.attn.c_proj", C, C)
        add(f"{block}.ln_2", C)
        add(f"{block}.mlp.c_fc", 4 * C, C)
        add(f"{block}.mlp.c_proj", C, 4 * C)
    add("transformer.ln_f", C)
    head = state["transformer.wte.weight"]
    state["lm_head.weight"] = head if tied else torch.randn(tokens, C, generator=random)
    return state


def logits_of(state: State, ids: Tensor) -> Tensor:
    """(B, T) ids -> (B, T, tokens), in float64."""
    weights = {name: tensor.double() for name, tensor in state.items()}

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(x: Tensor, name: str) -> Tensor:
        weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
        return F.layer_norm(x, weight.shape, weight, bias, 1e-5)

    (B, T), C = ids.shape, weights["transformer.wte.weight"].shape[1]
    x = weights["transformer.wte.weight"][ids] + weights["transformer.wpe.weight"][:T]
    layer = 0
    while (block := f"transformer.h.{layer}") + ".ln_1.weight" in weights:
        packed = linear(norm(x, f"{block}.ln_1"), f"{block}.attn.c_attn")
        q, k, v = (
            part.view(B, T, SIZES["n_head"], -1).transpose(1, 2) for part in packed.split(C, -1)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(C / SIZES["n_head"])
        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
        context = (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C)
        x = x + linear(context, f"{block}.attn.c_proj")
        hidden = linear(norm(x, f"{block}.ln_2"), f"{block}.mlp.c_fc")
        x = x + linear(F.gelu(hidden), f"{block}.mlp.c_proj")
        layer += 1
    return linear(norm(x, "transformer.ln_f"), "lm_head")


def meta_of(characters: list[str]) -> dict[str, Any]:
    """The content of nanoGPT's meta.pkl."""
    return {
        "vocab_size": len(characters),
        "itos": dict(enumerate(characters)),
        "stoi": {character: id for id, character in enumerate(characters)},
    }


def checkpoint_of(state: State, tokens: int, bias: bool = True, **sizes: int) -> dict[str, Any]:
    """What nanoGPT's train.py saves."""
    arguments = {**SIZES, **sizes, "bias": bias, "vocab_size": tokens, "dropout": 0.2}
    return {
        "model": state,
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1}]},
        "model_args": arguments,
        "iter_num": 300,
        "best_val_loss": torch.tensor(1.25),
        "config": {"dataset": "letters", "batch_size": 4, "device": "cpu", "compile": True},
    }


def write_nanogpt(folder: Path, characters: list[str] = CHARACTERS, **options: Any) -> Path:
    """folder/out/ckpt.pt and folder/data/letters/meta.pkl; returns the path of the first."""
    data = folder / "data" / "letters"
    data.mkdir(parents=True)
    (folder / "out").mkdir()
    (data / "meta.pkl").write_bytes(pickle.dumps(meta_of(characters)))
    state, path = state_of(len(characters), **options), folder / "out" / "ckpt.pt"
    options.pop("tied", None)
    torch.save(checkpoint_of(state, len(characters), **options), path)
    return path


def saved(folder: Path, content: Any) -> Path:
    """A file of torch.save beside a valid meta.pkl."""
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta_of(CHARACTERS)))
    torch.save(content, folder / "ckpt.pt")
    return folder / "ckpt.pt"
