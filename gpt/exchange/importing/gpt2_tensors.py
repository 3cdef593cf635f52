"""GPT-2's parameters under their names here; nanoGPT and Hugging Face name them as GPT-2 does.

Tensor names: C n_embd.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpt.config import ModelConfig
from gpt.exchange.importing.torch_file import FLOATS, StoredTensor
from gpt.words import shown

_OUTSIDE = {"wte": "token_embedding", "wpe": "position", "ln_f": "norm", "lm_head": "lm_head"}
_IN_BLOCK = {
    "ln_1": "norm1",
    "attn.c_attn": "attention.qkv",
    "attn.c_proj": "attention.proj",
    "ln_2": "norm2",
    "mlp.c_fc": "feed_forward.up",
    "mlp.c_proj": "feed_forward.down",
}
_BLOCK = re.compile(r"h\.(0|[1-9][0-9]{0,2})\.(.+)")
#: Constants of some releases: the causal mask, and what it puts into scores.
_MASKS = (".attn.bias", ".attn.masked_bias")

#: Options that all of these models share.
OPTIONS: dict[str, Any] = {"position": "learned", "norm": "layer", "qk_norm": False}


@dataclass(frozen=True)
class Foreign:
    """A model of another program, as a model of gptx: ready to be saved.

    tensors: as ModelConfig.shapes() lists them, float32. characters: of all ids, in code point
    order. origin: where it comes from, for people. stem: for the name of its run.
    """

    config: ModelConfig
    tensors: dict[str, Tensor]
    characters: str
    origin: str
    stem: str
    step: int = 0


def renamed(state: object, limit: int) -> dict[str, Tensor]:
    """The parameters of a state dict, without masks. limit: bytes that they may have in all.

    Raises ValueError for what is no parameter of GPT-2, for two that have one name here, and for a
    tensor that is not stored as a whole: one number can stand for as many as a file claims.
    """
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise ValueError("its weights are not a dict of tensors")
    found: dict[str, Tensor | StoredTensor] = {}
    for name, tensor in state.items():
        if name.endswith(_MASKS):
            continue
        ours = _renamed(name.removeprefix("_orig_mod."))
        if ours is None:
            raise ValueError(f"it has {shown(name)}, which is no parameter of GPT-2")
        if ours in found:
            raise ValueError(f"it has {ours} twice, also as {shown(name)}")
        if not isinstance(tensor, StoredTensor) and getattr(tensor, "dtype", None) not in FLOATS:
            raise ValueError(f"{shown(name)} is not a tensor of real numbers, stored as a whole")
        found[ours] = tensor
    if sum(tensor.nbytes for tensor in found.values()) > limit:
        raise ValueError("its tensors claim more numbers than the file has")
    return {
        name: tensor.read() if isinstance(tensor, StoredTensor) else tensor
        for name, tensor in found.items()
    }


def _renamed(name: str) -> str | None:
    """ "transformer.h.0.ln_1.weight" -> "blocks.0.norm1.weight"; None for an unknown name."""
    module, _, kind = name.removeprefix("transformer.").rpartition(".")
    if kind not in ("weight", "bias"):
        return None
    if module in _OUTSIDE:
        return f"{_OUTSIDE[module]}.{kind}"
    block = _BLOCK.fullmatch(module)
    if block is None or block[2] not in _IN_BLOCK:
        return None
    return f"blocks.{block[1]}.{_IN_BLOCK[block[2]]}.{kind}"


def is_tied(tensors: Mapping[str, Tensor]) -> bool:
    """Whether the output weights are missing, or equal the token embedding."""
    if "lm_head.weight" not in tensors or "token_embedding.weight" not in tensors:
        return True
    return torch.equal(tensors["lm_head.weight"], tensors["token_embedding.weight"])


def fitted(
    tensors: Mapping[str, Tensor],
    config: ModelConfig,
    order: Iterable[int],
    tokens: int,
    transposed: bool = False,
) -> dict[str, Tensor]:
    """The parameters that the config needs, float32, in its order.

    order: the ids of the characters in code point order; tokens: how many ids the model has, of
    which others are left out. transposed: whether the matrices of linear layers are stored as
    (columns, rows). Raises ValueError for a missing, unknown or misshapen tensor, and for numbers
    that are not finite.
    """
    shapes, rows = config.shapes(), torch.tensor([*order])
    tied = {"lm_head.weight"} if config.tied else set[str]()
    if unknown := sorted(tensors.keys() - shapes.keys() - tied):
        raise ValueError(f"it has {unknown[0]}, which a model of its options does not have")
    found = {}
    for name, shape in shapes.items():
        if name not in tensors:
            raise ValueError(f"it lacks {name}")
        tensor = tensors[name]
        if transposed and name.startswith("blocks.") and tensor.ndim == 2:
            tensor = tensor.T
        by_token = name in ("token_embedding.weight", "lm_head.weight")
        stored = (tokens, *shape[1:]) if by_token else shape
        if tuple(tensor.shape) != stored:
            raise ValueError(f"{name} has the shape {tuple(tensor.shape)}, not {stored}")
        if by_token:
            tensor = tensor[rows]
        tensor = tensor.to(torch.float32).contiguous()
        if not tensor.isfinite().all():
            raise ValueError(f"{name} has numbers that are not finite")
        found[name] = tensor
    return found
