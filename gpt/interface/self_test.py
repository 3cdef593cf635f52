"""Compares small random models, in every form that can compute here, with torch in float64; writes
a checkpoint and opens it, which checks its probe. Reads no file of the user.

The page's JavaScript is not among the forms, because it runs only in a browser.
Tensor names: B texts, T time.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import numpy.typing as npt

from gpt.checks import Check
from gpt.config import ModelConfig, TrainConfig
from gpt.config.model import Activation, Attention, Norm, Position
from gpt.reading.decode import CachedDecoder
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.proof import allowed_difference, compute_logits, prove_tensors

if TYPE_CHECKING:
    from gpt.model import GPT

CHARACTERS = "abcdefghijk"
SHAPE: dict[str, Any] = {"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 12}
TEXTS, LENGTH = 3, 9
#: The positions that a cache gets at once: the first five, then one after the other.
PIECES = [slice(5), *(slice(at, at + 1) for at in range(5, LENGTH))]
CHECKPOINT = "checkpoint, written and opened"
#: A check, and the error that prevented it, if one did.
Tested = tuple[Check, Exception | None]


class RandomModel:
    """A model whose random weights are so large that every part changes the logits."""

    def __init__(self, config: ModelConfig) -> None:
        self.config, random = config, np.random.default_rng(7)
        self.tensors = {
            name: (0.6 * random.standard_normal(shape)).astype(np.float32)
            + np.float32("norm" in name and name.endswith(".weight"))
            for name, shape in config.shapes().items()
        }
        self.ids = random.integers(0, len(CHARACTERS), (TEXTS, LENGTH))  # (B, T)
        self.name = f"{config.position}, {config.norm}, {config.activation}"

    @cached_property
    def reader(self) -> Reader:
        return Reader(self.config, self.tensors)

    def torch(self, attention: Attention, device: str = "cpu") -> GPT:
        import torch

        from gpt.model import GPT

        model = GPT(replace(self.config, attention=attention))
        model.load_parameters({name: torch.tensor(each) for name, each in self.tensors.items()})
        return model.to(device).eval()


def models() -> Iterator[RandomModel]:
    """Models that together have every kind of part; the fourth is like the preset default."""
    positions, norms, activations = map(get_args, (Position, Norm, Activation))
    for n, activation in enumerate(activations):
        options: dict[str, Any] = {
            "position": positions[n % len(positions)],
            "norm": norms[n % len(norms)],
            "activation": activation,
            **dict.fromkeys(("bias", "qkv_bias"), n % 3 == 1),
            "tied": n % 4 == 2,
        }
        yield RandomModel(ModelConfig(vocab_size=len(CHARACTERS), **SHAPE, **options))


def forms(devices: tuple[str, ...]) -> dict[str, Callable[[RandomModel], Array]]:
    """Name -> computes (B, n, vocab_size) logits, of the last n ≤ T positions. devices: torch's."""
    found: dict[str, Callable[[RandomModel], Array]] = {}
    for device in devices:
        on = "" if device == "cpu" else f" on {device}"
        found[f"torch, readable heads{on}"] = partial(_torch, "heads", device)
        found[f"torch, fused{on}"] = partial(_torch, "fused", device)
        found[f"torch, fused, with cache{on}"] = partial(_cached, device)
    found |= {"numpy": _reader, "numpy, decoder": _decoder}
    return found | ({"numpy in float64": _reader_in_float64} if devices else {})


def _torch(attention: Attention, device: str, model: RandomModel) -> Array:
    import torch

    ids = torch.tensor(model.ids, device=device)
    with torch.inference_mode():
        logits: Array = model.torch(attention, device)(ids).cpu().numpy()
    return logits


def _cached(device: str, model: RandomModel) -> Array:
    import torch

    from gpt.model.gpt import Cache

    gpt, ids = model.torch("fused", device), torch.tensor(model.ids, device=device)
    cache, found = Cache(gpt.config, TEXTS, torch.device(device)), []
    with torch.inference_mode():
        for cache.at in PIECES:
            found.append(gpt.lm_head(gpt.stream(ids[:, cache.at], cache)).cpu().numpy())
    return np.concatenate(found, axis=1)


def _reader(model: RandomModel) -> Array:
    return np.stack([*compute_logits(model.reader, model.ids)])


def _reader_in_float64(model: RandomModel) -> Array:
    return np.stack([*compute_logits(model.reader.in_float64(), model.ids)])


def _decoder(model: RandomModel) -> Array:
    decoder = CachedDecoder(model.reader)
    found = [decoder.start(model.ids[:, PIECES[0]])]
    found += [decoder.step(model.ids[:, piece.start]) for piece in PIECES[1:]]
    return np.stack(found, axis=1)


def _exact(model: RandomModel, has_torch: bool) -> npt.NDArray[Any]:
    """(B, T, vocab_size) logits in float64: torch's, with readable heads; else the reader's."""
    if not has_torch:
        return _reader_in_float64(model)
    from gpt.training.checkpoint import exact_logits

    return np.stack([*exact_logits(model.torch("heads"), model.ids)])


def compared(devices: tuple[str, ...]) -> Iterator[Tested]:
    """Each form of each model: the check has the form's name, and the model's as its group.

    devices: of torch; none: it cannot be imported.
    """
    for model in models():
        expected = _exact(model, bool(devices))
        for name, compute in forms(devices).items():
            error, failure, reader = math.nan, None, model.reader
            try:
                found = compute(model)
                error = float(np.abs(found - expected[:, -found.shape[1] :]).max())
                reader = reader if found.dtype == np.float32 else reader.in_float64()
            except Exception as problem:  # a driver, a kernel or a library may raise anything
                failure = problem
            bound = allowed_difference(reader, model.ids, expected, error)
            yield Check(name, error, bound, model.name), failure


def save_and_open(devices: tuple[str, ...]) -> Iterator[Tested]:
    """Writes a step of a temporary run and opens it, which checks its probe. Needs torch."""
    if devices:
        try:
            with tempfile.TemporaryDirectory() as folder:
                yield _saved(Path(folder)), None
        except Exception as problem:  # a disk or a library may raise anything
            yield Check(CHECKPOINT, math.nan, math.nan), problem


def _saved(folder: Path) -> Check:
    from gpt.interface.trained import load
    from gpt.storage.manifest import CorpusId, Manifest
    from gpt.storage.run import MODEL
    from gpt.storage.runs import new_run
    from gpt.training.checkpoint import model_bytes
    from gpt.vocabulary import Vocabulary

    model, vocabulary = next(models()).torch("fused"), Vocabulary.from_text(CHARACTERS)
    manifest = Manifest(
        step=1,
        model=model.config,
        train=TrainConfig(steps=1),
        preset="",
        vocabulary=vocabulary,
        corpus=CorpusId("", len(CHARACTERS), ()),
        seconds=0.0,
        running=(0.0, 0),
    )
    run = new_run(folder, "doctor")
    run.commit(manifest, {MODEL: model_bytes(model, vocabulary, CHARACTERS, 1, prove_tensors)})
    return replace(load(run.path).proof, name=CHECKPOINT)
