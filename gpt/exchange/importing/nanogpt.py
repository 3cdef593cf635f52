"""Makes runs that every command opens from nanoGPT's character models: ckpt.pt of its train.py and
meta.pkl of its prepare.py.

Neither file is executed: pickles.py reads both. The run has one checkpoint without an optimizer
state, so it cannot be resumed. If the text that the model was trained on is known, commands find
its validation split as in any run.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpt.config import ModelConfig, SampleConfig, TrainConfig
from gpt.config.train import MOST_STEPS
from gpt.corpus.corpus import Corpus, read_corpus
from gpt.errors import ConfigError, TextError
from gpt.exchange.exporting.architectures import GPT2
from gpt.exchange.importing.pickles import LONGEST, plain_value
from gpt.exchange.importing.torch_file import StoredTensor, read_torch, reading, wrong_file_error
from gpt.model import GPT
from gpt.reading.decode import CachedDecoder
from gpt.reading.gpt import Reader
from gpt.reading.proof import prove_tensors
from gpt.reading.sampler import Samples
from gpt.storage.manifest import CorpusId, Manifest
from gpt.storage.model_file import EXCERPT_LENGTH
from gpt.storage.run import MODEL, Checkpoint
from gpt.storage.runs import discard_if_empty, new_run
from gpt.training.checkpoint import model_bytes
from gpt.vocabulary import Vocabulary
from gpt.words import printable, short_repr

WHAT = "a nanoGPT checkpoint"
_SIZES = ("vocab_size", "block_size", "n_layer", "n_head", "n_embd")
#: Names in nanoGPT, which are GPT-2's -> names in gptx.
_OUTSIDE = {name.removeprefix("transformer."): ours for ours, name in GPT2.outside.items()}
_IN_BLOCK = {name: ours for ours, name in GPT2.inside.items()}
_BLOCK = re.compile(r"h\.(0|[1-9][0-9]{0,2})\.(.+)")
#: The causal mask, a constant that releases of torch without a fast attention kernel store.
_MASK = ".attn.bias"


@dataclass(frozen=True)
class ImportedModel:
    """A model of another program in gptx's form, ready to be saved.

    tensors: as ModelConfig.shapes() lists them, float32. characters: of all ids, in code point
    order. origin: where the model comes from, for people. stem: the start of its run's name.
    """

    config: ModelConfig
    tensors: dict[str, Tensor]
    characters: str
    origin: str
    stem: str
    step: int = 0


def read_nanogpt(path: Path, meta: Path | None = None) -> tuple[ImportedModel, Path]:
    """A checkpoint in gptx's form, and the path of its meta.pkl.

    meta: the path; None searches for it. Raises ForeignModelError, which names what is missing or
    wrong.
    """
    checkpoint = read_torch(path, WHAT)
    try:
        state, sizes, about = _parts(checkpoint)
        if not meta:
            meta = _find_meta(path, about["dataset"])
        characters = read_meta(meta)
        tensors = _rename(state, limit=2 * path.stat().st_size)
        if sizes["vocab_size"] != len(characters):
            raise ValueError(
                f"it has {sizes['vocab_size']:,} tokens, and {meta} has {len(characters):,} "
                "characters"
            )
        dropped = checkpoint["model_args"].get("dropout", 0.0)  # of activations and weights
        options: dict[str, Any] = {
            **sizes,
            "position": "learned",
            **dict.fromkeys(("dropout", "attention_dropout"), dropped),
            **dict.fromkeys(("bias", "qkv_bias"), "norm.bias" in tensors),
        }
        config = ModelConfig(**options, tied=_is_tied(tensors), activation="gelu_erf")
        order = sorted(range(len(characters)), key=lambda id: characters[id])
        tensors = _fit(tensors, config, order)
    except (ValueError, ConfigError) as error:
        raise wrong_file_error(path, WHAT, str(error).replace("`", "")) from error
    step, loss = about["iter_num"], about["best_val_loss"]
    origin = f"nanoGPT, {printable(path.name)}: iteration {step:,}"
    origin += "" if loss is None else f", lowest validation loss there {loss:.4f}"
    stem = about["dataset"] or path.resolve().parent.name
    return ImportedModel(config, tensors, "".join(sorted(characters)), origin, stem, step), meta


def _parts(checkpoint: Any) -> tuple[Any, dict[str, int], dict[str, Any]]:
    """The state dict, the sizes of the model, and what the file says about the training.

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
        "iter_num": step if type(step) is int and 0 <= step <= MOST_STEPS else 0,
        "best_val_loss": _loss(checkpoint.get("best_val_loss")),
        "dataset": dataset if known else "",
    }
    return checkpoint["model"], sizes, about  # type: ignore[return-value]


def _loss(value: Any) -> float | None:
    """A loss, which nanoGPT stores as a tensor; a very large one stands for no evaluation."""
    if isinstance(value, StoredTensor) and not value.shape:
        value = value.read().item()
    loss = value if type(value) is float else math.inf
    return loss if math.isfinite(loss) and loss < 1e6 else None


def _find_meta(path: Path, dataset: str) -> Path:
    """meta.pkl beside the checkpoint or in the folder of its data set. Raises ValueError."""
    searched = [path.parent / "meta.pkl"]
    if dataset:
        folders = (path.resolve().parent.parent / "data", Path("data"))
        searched += (folder / dataset / "meta.pkl" for folder in folders)
    for place in searched:
        if os.path.isfile(place):
            return place
    raise ValueError(
        "gptx is character-level and found no meta.pkl, the characters of the model; it looked "
        f"for {' and '.join(map(str, searched))}. Give the path with --meta; a checkpoint without "
        "this file has GPT-2's tokens, which are not characters"
    )


def read_meta(path: Path) -> list[str]:
    """The characters of meta.pkl by their ids. Raises ForeignModelError."""
    with reading(path, WHAT), open(path, "rb") as file:
        return _characters(plain_value(file.read(LONGEST + 1)))


def _characters(meta: Any) -> list[str]:
    """The characters in the order of their ids. Raises ValueError."""
    table = meta.get("itos") if isinstance(meta, dict) else None
    if not isinstance(table, dict) or not table:
        raise ValueError("it has no dict 'itos'")
    if {*map(type, table)} != {int} or {*table} != {*range(len(table))}:
        raise ValueError("the ids in 'itos' are not 0, 1, 2 …")
    characters = [table[id] for id in range(len(table))]
    for each in characters:
        if not isinstance(each, str) or len(each) != 1 or 0xD800 <= ord(each) < 0xE000:
            raise ValueError(
                f"its token {short_repr(each)} is not a character; gptx is character-level"
            )
    if len({*characters}) != len(characters):
        raise ValueError("two ids have the same character")
    if meta.get("stoi") != {character: id for id, character in enumerate(characters)}:
        raise ValueError("'stoi' and 'itos' differ")
    return characters


def _rename(state: object, limit: int) -> dict[str, Tensor]:
    """The parameters of a state dict, without masks. limit: their bytes in all.

    Raises ValueError for what is no parameter of GPT-2, for two that get the same name, and for a
    tensor that is not stored whole: one stored number could stand for any number of them.
    """
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise ValueError("its weights are not a dict of tensors")
    found: dict[str, StoredTensor] = {}
    for name, tensor in state.items():
        if name.endswith(_MASK):
            continue
        ours = _new_name(name.removeprefix("_orig_mod."))
        if ours is None:
            raise ValueError(f"it has {short_repr(name)}, which is no parameter of GPT-2")
        if ours in found:
            raise ValueError(f"it has {ours} twice, also as {short_repr(name)}")
        if not isinstance(tensor, StoredTensor):
            raise ValueError(f"{short_repr(name)} is not a float32 tensor, stored as a whole")
        found[ours] = tensor
    if sum(tensor.nbytes for tensor in found.values()) > limit:
        raise ValueError("its tensors claim more numbers than the file has")
    return {name: tensor.read() for name, tensor in found.items()}


def _new_name(name: str) -> str | None:
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


def _is_tied(tensors: Mapping[str, Tensor]) -> bool:
    """Whether the output weights are missing, or equal the token embedding."""
    if "lm_head.weight" not in tensors or "token_embedding.weight" not in tensors:
        return True
    return torch.equal(tensors["lm_head.weight"], tensors["token_embedding.weight"])


def _fit(
    tensors: Mapping[str, Tensor], config: ModelConfig, order: Sequence[int]
) -> dict[str, Tensor]:
    """The parameters that the config needs, as float32, in its order.

    order: the ids of the characters in code point order. Raises ValueError for a missing, unknown
    or misshapen tensor, and for numbers that are not finite.
    """
    shapes, rows = config.shapes(), torch.tensor(order)
    tied = {"lm_head.weight"} if config.tied else set[str]()
    if unknown := sorted(tensors.keys() - shapes.keys() - tied):
        raise ValueError(f"it has {unknown[0]}, which a model of its options does not have")
    found = {}
    for name, shape in shapes.items():
        if name not in tensors:
            raise ValueError(f"it lacks {name}")
        tensor = tensors[name]
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} has the shape {tuple(tensor.shape)}, not {shape}")
        if name in ("token_embedding.weight", "lm_head.weight"):
            tensor = tensor[rows]
        if not tensor.isfinite().all():
            raise ValueError(f"{name} has numbers that are not finite")
        found[name] = tensor
    return found


def find_training_text(model: ImportedModel, name: str, data: Path, guessed: bool) -> Corpus:
    """The text that the model was trained on, encoded in `data`.

    nanoGPT, too, validates on the last tenth. guessed: the file may be another text, so it must
    have all characters of the model. Raises TextError, StorageError.
    """
    vocabulary = Vocabulary(model.characters)
    corpus = read_corpus([name], data, BytesIO(), vocabulary, TrainConfig())
    if unknown := vocabulary.unknown(corpus.vocabulary.characters):
        raise TextError(f"{name} has characters that the model does not know: {unknown[:5]!r}")
    if guessed and not corpus.counts.all():
        raise TextError(f"{name} lacks characters that the model knows")
    corpus.split(TrainConfig().val_fraction, model.config.block_size)
    return corpus


def save_run(
    model: ImportedModel, checkpoints: Path, name: str | None, corpus: Corpus | None
) -> Checkpoint:
    """Saves the model as a new run. corpus: its text from `find_training_text`, if known.

    Raises ConfigError if the name is taken, NumericsError if numpy and torch compute different
    logits, StorageError.
    """
    vocabulary, train = Vocabulary(model.characters), TrainConfig(steps=max(1, model.step))
    if corpus is None:
        excerpt, predicted = _written(model, vocabulary), 0
    else:
        validation = corpus.parts(train.val_fraction)[1]
        excerpt, predicted = vocabulary.decode(validation[:EXCERPT_LENGTH]), len(validation) - 1
    torch_model = GPT(model.config)
    torch_model.load_parameters(model.tensors)
    data = model_bytes(torch_model, vocabulary, excerpt, model.step, prove_tensors)
    manifest = Manifest(
        step=model.step,
        model=model.config,
        train=train,
        preset="",
        vocabulary=vocabulary,
        corpus=corpus.identity if corpus else CorpusId(digest="", characters=0, sources=()),
        seconds=0.0,
        running=(0.0, 0),
        val_characters=predicted,
        imported=model.origin,
    )
    run = new_run(checkpoints, model.stem, name)
    with run.lock():
        try:
            return run.commit(manifest, {MODEL: data})
        except BaseException:
            discard_if_empty(run)
            raise


def _written(model: ImportedModel, vocabulary: Vocabulary) -> str:
    """A text that the model writes; it stands in for an unknown validation split."""
    tensors = {name: tensor.numpy() for name, tensor in model.tensors.items()}
    decoder = CachedDecoder(Reader(model.config, tensors))
    config = SampleConfig(length=EXCERPT_LENGTH)
    samples = Samples(nullcontext(decoder), vocabulary, "", config)
    return "".join(gained for (gained,) in samples)
