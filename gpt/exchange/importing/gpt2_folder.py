"""A folder of Hugging Face transformers with a GPT-2 whose tokens are characters.

config.json, model.safetensors or pytorch_model.bin, and tokenizer.json or vocab.json. No code of
the folder is run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpt.config import ModelConfig
from gpt.errors import CheckpointError, ConfigError, ForeignModelError
from gpt.exchange.importing.gpt2_tensors import OPTIONS, Foreign, fitted, is_tied, renamed
from gpt.exchange.importing.tokens import characters_of
from gpt.exchange.importing.torch_file import read_torch, refused
from gpt.reading.layers import EPSILON
from gpt.storage import files
from gpt.storage.json_values import read_json_object
from gpt.words import printable, shown

WHAT = "a GPT-2 of characters"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
LONGEST = 64 * 2**20  # bytes of a JSON file

#: `activation_function` of config.json -> activation here.
ACTIVATIONS = {
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu"),
    **{"gelu": "gelu_erf", "gelu_python": "gelu_erf", "relu": "relu", "relu2": "relu2"},
}
_SIZES = {
    **{"vocab_size": "vocab_size", "n_positions": "block_size", "n_embd": "n_embd"},
    **{"n_layer": "n_layer", "n_head": "n_head"},
}
#: Option of config.json -> the only value that gptx computes, which is also its default.
_FIXED = {
    "layer_norm_epsilon": EPSILON,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}


def read_gpt2(folder: Path) -> Foreign:
    """A folder's model as a model of gptx. Raises ForeignModelError that names what is wrong."""
    found = _json(folder / "config.json")
    try:
        characters, left_out = characters_of(_tokenizer(folder))
        rows = _size(found, "vocab_size")
        if characters and max(characters.values()) >= rows:
            raise ValueError(f"its tokenizer has more tokens than the model, {rows:,}")
        config = _config(found, len(characters))
        state, limit = _weights(folder)
        tensors = renamed(state, limit)
        if config.tied:
            if not is_tied(tensors):
                raise ValueError(
                    "its config.json says tie_word_embeddings, but its output weights (lm_head) "
                    "are not its embeddings; set tie_word_embeddings to what its training had"
                )
            tensors.pop("lm_head.weight", None)
        order = [characters[each] for each in sorted(characters)]
        tensors = fitted(tensors, config, order, rows, transposed=True)
    except (ValueError, ConfigError, CheckpointError) as error:
        raise refused(folder, WHAT, str(error).replace("`", "")) from error
    origin = f"Hugging Face transformers, {printable(folder.resolve().name)}: GPT-2"
    if left := rows - len(characters):
        named = f" ({', '.join(left_out)})" if left_out else ""
        origin += f"; left out {left:,} of its {rows:,} tokens, which are no characters{named}"
    return Foreign(config, tensors, "".join(sorted(characters)), origin, folder.resolve().name)


def _json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises ForeignModelError."""
    try:
        return read_json_object(files.read(path.resolve(), LONGEST), path)
    except CheckpointError as error:
        raise refused(path.parent, WHAT, str(error)) from error


def _tokenizer(folder: Path) -> dict[str, Any]:
    """tokenizer.json, or what vocab.json and merges.txt say. Raises ValueError."""
    if os.path.isfile(folder / "tokenizer.json"):
        return _json(folder / "tokenizer.json")
    if not os.path.isfile(folder / "vocab.json"):
        raise ValueError("it has neither tokenizer.json nor vocab.json")
    merges: list[str] = []
    if os.path.isfile(folder / "merges.txt"):
        data = files.read((folder / "merges.txt").resolve(), LONGEST)
        lines = data.decode("utf-8", "replace").splitlines()
        merges = [line for line in lines if line and not line.startswith("#")]
    vocab = _json(folder / "vocab.json")
    return {"model": {"type": "BPE", "vocab": vocab, "merges": merges}}


def _config(found: Mapping[str, Any], characters: int) -> ModelConfig:
    """config.json as options here. Raises ValueError, ConfigError."""
    if found.get("model_type") != "gpt2":
        kind = found.get("model_type")
        raise ValueError(f"its model_type is {shown(kind)}; gptx imports gpt2")
    sizes = {ours: _size(found, theirs) for theirs, ours in _SIZES.items()}
    for name, value in _FIXED.items():
        if found.get(name, value) != value:
            raise ValueError(f"its {name} is {shown(found[name])}, and gptx computes {value}")
    wide = found.get("n_inner")
    if wide not in (None, 4 * sizes["n_embd"]):
        raise ValueError(f"its n_inner is {shown(wide)}, and gptx computes 4 times n_embd")
    activation = found.get("activation_function", "gelu_new")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ValueError(f"its activation_function {shown(activation)} is not one of {known}")
    options: dict[str, Any] = {
        **sizes,
        **OPTIONS,
        "vocab_size": characters,
        "activation": ACTIVATIONS[activation],
        "dropout": found.get("resid_pdrop", 0.1),
        "attention_dropout": found.get("attn_pdrop", 0.1),
        "tied": found.get("tie_word_embeddings", True) is not False,
    }
    return ModelConfig(**options, bias=True, qkv_bias=True)


def _size(found: Mapping[str, Any], name: str) -> int:
    size = found.get(name)
    if type(size) is not int:
        raise ValueError(f"its config.json has no whole number {name}")
    return size


def _weights(folder: Path) -> tuple[object, int]:
    """The state dict, and how many bytes it may have. Raises ValueError, ForeignModelError."""
    import safetensors
    import safetensors.torch

    for name in WEIGHTS:
        path = folder / name
        if not os.path.isfile(path):
            continue
        size = path.stat().st_size
        if path.suffix == ".bin":
            return read_torch(path, WHAT), 2 * size
        try:
            return safetensors.torch.load_file(path), 2 * size
        except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
            raise ForeignModelError(f"not {WHAT}: {path} (it is damaged)") from error
    raise ValueError(f"it has neither {' nor '.join(WEIGHTS)}")
