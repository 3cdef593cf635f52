"""nanoGPT's character models: ckpt.pt of its train.py and meta.pkl of its prepare.py.

Neither file is executed: pickles.py reads both.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpt.config import ModelConfig
from gpt.errors import ConfigError, ForeignModelError
from gpt.exchange.importing.gpt2_tensors import OPTIONS, Foreign, fitted, is_tied, renamed
from gpt.exchange.importing.pickles import LONGEST, plain_value
from gpt.exchange.importing.tokens import check_characters
from gpt.exchange.importing.torch_file import StoredTensor, read_torch, refused
from gpt.words import printable

WHAT = "a nanoGPT checkpoint"
_SIZES = ("vocab_size", "block_size", "n_layer", "n_head", "n_embd")
_LARGEST_STEP = 10**12


def read_nanogpt(path: Path, meta: Path | None = None) -> tuple[Foreign, Path]:
    """A checkpoint as a model of gptx, and the path of its meta.pkl.

    meta: None searches for it. Raises ForeignModelError that names what is missing or wrong.
    """
    checkpoint = read_torch(path, WHAT)
    try:
        state, sizes, about = _parts(checkpoint)
        if not meta:
            meta = _find_meta(path, about)
        characters = read_meta(meta)
        tensors = renamed(state, limit=2 * path.stat().st_size)
        if sizes["vocab_size"] != len(characters):
            raise ValueError(
                f"it has {sizes['vocab_size']:,} tokens, and {meta} has {len(characters):,} "
                "characters"
            )
        dropped = checkpoint["model_args"].get("dropout", 0.0)  # of activations and weights
        options: dict[str, Any] = {
            **sizes,
            **OPTIONS,
            **dict.fromkeys(("dropout", "attention_dropout"), dropped),
            **dict.fromkeys(("bias", "qkv_bias"), "norm.bias" in tensors),
        }
        config = ModelConfig(**options, tied=is_tied(tensors), activation="gelu_erf")
        order = sorted(range(len(characters)), key=lambda id: characters[id])
        tensors = fitted(tensors, config, order, len(characters))
    except (ValueError, ConfigError) as error:
        raise refused(path, WHAT, str(error).replace("`", "")) from error
    step, loss = about["iter_num"], about["best_val_loss"]
    origin = f"nanoGPT, {printable(path.name)}: iteration {step:,}"
    origin += "" if loss is None else f", lowest validation loss there {loss:.4f}"
    stem = about["dataset"] or path.resolve().parent.name
    return Foreign(config, tensors, "".join(sorted(characters)), origin, stem, step), meta


def _parts(checkpoint: Any) -> tuple[Any, dict[str, int], dict[str, Any]]:
    """The state dict, the sizes of the model, and what is known of the training.

    Raises ValueError for anything but a dict as train.py saves it.
    """
    if not isinstance(checkpoint, dict):
        raise ValueError("it has no dict")
    arguments = checkpoint.get("model_args")
    if "model" not in checkpoint or not isinstance(arguments, dict):
        alone = any(str(name).endswith("wte.weight") for name in checkpoint)
        what = "a state dict alone" if alone else "something else"
        raise ValueError(f"it is {what}; train.py saves a dict with 'model' and 'model_args'")
    sizes = {name: arguments.get(name) for name in _SIZES}
    for name, size in sizes.items():
        if type(size) is not int or not 0 <= size < 2**31:
            raise ValueError(f"its model_args have no whole number {name}")
    step, config = checkpoint.get("iter_num"), checkpoint.get("config")
    dataset = config.get("dataset") if isinstance(config, dict) else None
    known = isinstance(dataset, str) and re.fullmatch(r"\w[\w.-]{0,59}", dataset)
    about = {
        "iter_num": step if type(step) is int and 0 <= step < _LARGEST_STEP else 0,
        "best_val_loss": _loss(checkpoint.get("best_val_loss")),
        "dataset": dataset if known else "",
    }
    return checkpoint["model"], sizes, about  # type: ignore[return-value]


def _loss(value: Any) -> float | None:
    """nanoGPT stores a tensor of one number; before the first evaluation, a very large number."""
    if isinstance(value, StoredTensor) and not value.shape:
        value = value.read().item()
    loss = value if type(value) is float else math.inf
    return loss if math.isfinite(loss) and loss < 1e6 else None


def _find_meta(path: Path, about: dict[str, Any]) -> Path:
    """meta.pkl beside the checkpoint or in the folder of its data set. Raises ValueError."""
    searched = [*_places(path, about["dataset"])]
    for place in searched:
        if os.path.isfile(place):
            return place
    raise ValueError(
        "gptx is character-level and found no meta.pkl, the characters of the model; it looked "
        f"for {' and '.join(map(str, searched))}. Give the path with --meta; a checkpoint without "
        "this file has GPT-2's tokens, which are not characters"
    )


def _places(path: Path, dataset: str) -> Iterator[Path]:
    yield path.parent / "meta.pkl"
    if dataset:
        folders = (path.resolve().parent.parent / "data", Path("data"))
        yield from (folder / dataset / "meta.pkl" for folder in folders)


def read_meta(path: Path) -> list[str]:
    """The characters of meta.pkl by their ids. Raises ForeignModelError."""
    try:
        if not os.path.isfile(path):
            raise ForeignModelError(f"cannot read {path}: it is missing, or not a file")
        with open(path, "rb") as file:
            meta = plain_value(file.read(LONGEST + 1))
        return _characters(meta)
    except OSError as error:
        raise ForeignModelError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise refused(path, WHAT, str(error)) from error


def _characters(meta: Any) -> list[str]:
    """The characters in the order of their ids. Raises ValueError."""
    table = meta.get("itos") if isinstance(meta, dict) else None
    if not isinstance(table, dict) or not table:
        raise ValueError("it has no dict 'itos'")
    if {*map(type, table)} != {int} or {*table} != {*range(len(table))}:
        raise ValueError("the ids in 'itos' are not 0, 1, 2 …")
    characters = [table[id] for id in range(len(table))]
    check_characters(characters)
    if meta.get("stoi") != {character: id for id, character in enumerate(characters)}:
        raise ValueError("'stoi' and 'itos' differ")
    return characters
