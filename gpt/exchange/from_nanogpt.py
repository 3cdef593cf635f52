"""Makes a run from a character-level model of nanoGPT, whose train.py writes ckpt.pt and whose
prepare.py writes meta.pkl.

gptx runs no code that these files contain. The new run has one checkpoint without an optimizer
state, so it cannot be resumed.
"""

from __future__ import annotations

import os
import pickle
import pickletools
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from gpt.config import ModelConfig, SampleConfig, TrainConfig
from gpt.corpus.corpus import read_corpus
from gpt.corpus.sources import Texts
from gpt.errors import ForeignModelError, TextError
from gpt.exchange.to_transformers import transformers_names
from gpt.model import GPT
from gpt.reading.decode import CachedDecoder
from gpt.reading.gpt import Reader
from gpt.reading.probe import check_tensors
from gpt.reading.sampler import Samples
from gpt.storage.checkpoint_files import EXCERPT_LENGTH, CorpusId, Manifest
from gpt.storage.files import check_regular_file
from gpt.storage.run import MODEL, Checkpoint, new_run
from gpt.training.trainer import model_bytes
from gpt.vocabulary import Vocabulary
from gpt.words import printable, short_repr

META_BYTES = 2**20  # the most bytes of a meta.pkl; it has about 20 bytes for every character
#: The pickle instructions that protocols 2 to 5 need for dicts, texts and whole numbers.
PLAIN = set(
    "PROTO FRAME MARK STOP EMPTY_DICT SETITEM SETITEMS BININT BININT1 BININT2 BINUNICODE "
    "SHORT_BINUNICODE BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET".split()
)


def import_nanogpt(
    path: Path,
    checkpoints: Path,
    *,
    meta: Path | None = None,
    corpus: Path | None = None,
    run: str | None = None,
    data: Path = Path("data"),
) -> Checkpoint:
    """Saves the model of a ckpt.pt as a new run.

    meta: the path of meta.pkl; None: in the folder of ckpt.pt, otherwise where nanoGPT puts it.
    corpus: the text that the model was trained on; None: not known. Its last tenth becomes the
    validation split, as in nanoGPT. data: the folder for the encoded text. Raises ForeignModelError
    if a file is missing or wrong, ConfigError if the run's name is taken, TextError, StorageError,
    and NumericsError if numpy and torch compute different logits.
    """
    checkpoint = read_checkpoint(path)
    settings = checkpoint.get("config")
    dataset = settings.get("dataset") if isinstance(settings, dict) else None
    if not isinstance(dataset, str):
        dataset = ""
    usual = path.resolve().parent.parent / "data" / dataset / "meta.pkl"
    beside = path.parent / "meta.pkl"
    ids = read_meta(meta or (beside if os.path.isfile(beside) else usual))
    vocabulary = Vocabulary("".join(sorted(ids)))
    with _refusals(path):
        rows = [ids[character] for character in vocabulary.characters]
        config, tensors = convert_checkpoint(checkpoint, rows, path.stat().st_size)
        step = checkpoint["iter_num"]
        train = TrainConfig(steps=step or 1)
    if corpus:
        text = read_corpus(Texts([str(corpus)]), data, train, vocabulary)
        if unknown := vocabulary.unknown(text.vocabulary.characters):
            reason = f"has characters that the model does not know: {unknown[:5]!r}"
            raise TextError(f"{corpus} {reason}")
        _, validation = text.split(train.val_fraction, config.block_size)
        excerpt, predicted = vocabulary.decode(validation[:EXCERPT_LENGTH]), len(validation) - 1
        identity = text.identity
    else:
        excerpt, predicted = generate_excerpt(config, tensors, vocabulary), 0
        identity = CorpusId(digest="", characters=0, sources=())
    model = GPT(config)
    model.load_parameters(tensors)
    contents = {MODEL: model_bytes(model, vocabulary, excerpt, step, check_tensors)}
    manifest = Manifest(
        step=step,
        model=config,
        train=train,
        preset="",
        vocabulary=vocabulary,
        corpus=identity,
        seconds=0.0,
        running=(0.0, 0),
        val_characters=predicted,
        imported=f"nanoGPT, {printable(path.name)}: iteration {step:,}",
    )
    saved = new_run(checkpoints, dataset or path.resolve().parent.name, run)
    with saved.lock():
        return saved.commit(manifest, contents)


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """Turns errors of the block, which reads the file `path`, into ForeignModelError."""
    try:
        yield
    except OSError as error:
        raise ForeignModelError(f"cannot read {path}: {error.strerror or error}") from error
    except (KeyError, ValueError) as error:
        reason = str(error).replace("`", "")
        raise ForeignModelError(f"not a nanoGPT checkpoint: {path} ({reason})") from error


def read_checkpoint(path: Path) -> dict[Any, Any]:
    """The dict that train.py saved: tensors, dicts, lists, texts and numbers.

    This function compares the archive's checksums, because torch.load does not. It hides torch's
    messages, because they advise the unsafe weights_only=False. Raises ForeignModelError.
    """
    with _refusals(path):
        check_regular_file(path)
        try:
            with zipfile.ZipFile(path) as archive:
                if any(entry.compress_type for entry in archive.infolist()) or archive.testzip():
                    raise ValueError("the archive is compressed, or has a wrong checksum")
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
            if not isinstance(checkpoint, dict):
                raise ValueError("its value is not a dict")
            return checkpoint
        except OSError:
            raise
        except Exception as error:  # damaged data can raise almost any exception
            raise ValueError(
                "torch.save has not written it, it is damaged, or it has more than a dict of "
                "tensors, texts and numbers"
            ) from error


def read_meta(path: Path) -> dict[str, int]:
    """The ids of the characters in meta.pkl: character -> id. Raises ForeignModelError."""
    with _refusals(path):
        if not os.path.isfile(path):
            raise OSError("it is missing; --meta gives the path of the model's characters")
        with open(path, "rb") as file:
            meta = unpickle_plain(file.read(META_BYTES + 1))
        ids, characters = require_dict(meta, "stoi"), require_dict(meta, "itos")
        for token in characters.values():
            if not isinstance(token, str) or len(token) != 1 or "\ud800" <= token <= "\udfff":
                reason = "is not a character; gptx is character-level"
                raise ValueError(f"its token {short_repr(token)} {reason}")
        numbered = {character: id for id, character in characters.items()}
        if ids != numbered or list(characters) != list(range(len(ids))):
            raise ValueError("'itos' and 'stoi' do not number the same characters 0, 1, 2 …")
        return ids


def unpickle_plain(data: bytes) -> Any:
    """The value of a pickle of dicts, texts and whole numbers. Raises ValueError for other pickles.

    Checks all instructions before the first one runs, because even a safe instruction may never
    end, for example one that hashes nested tuples.
    """
    if len(data) > META_BYTES:
        raise ValueError(f"it has more than {META_BYTES:,} bytes")
    try:
        for instruction, argument, _ in pickletools.genops(data):
            # With a large argument, LONG_BINPUT makes a memo table that fills the memory.
            large = instruction.name == "LONG_BINPUT" and int(argument or 0) > len(data)
            if large or instruction.name not in PLAIN:
                raise ValueError(f"it has the instruction {instruction.name}")
        return PlainUnpickler(BytesIO(data)).load()
    except Exception as error:  # damaged data can raise almost any exception
        raise ValueError("it is damaged, or not just dicts, texts and numbers") from error


class PlainUnpickler(pickle.Unpickler):
    """Raises UnpicklingError for every class and function in a pickle."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it would call {module}.{name}")


def require_dict(table: Any, name: str) -> dict[Any, Any]:
    """The dict `table[name]`. Raises ValueError if it is missing, empty or not a dict."""
    value = table.get(name) if isinstance(table, dict) else None
    if not isinstance(value, dict) or not value:
        raise ValueError(f"it has no dict '{name}'")
    return value


def convert_checkpoint(
    checkpoint: dict[Any, Any], rows: list[int], size: int
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Converts a checkpoint of nanoGPT into the config and the parameters of gptx.

    rows: nanoGPT's ids of the characters, in the order of gptx's ids. size: the file's bytes, which
    limit the memory for tensors. Raises KeyError or ValueError if an option is missing, or if a
    tensor is missing, unknown, or has another shape or numbers that are not finite.
    """
    arguments, state = require_dict(checkpoint, "model_args"), dict[str, Tensor]()
    for name, tensor in require_dict(checkpoint, "model").items():
        plain = isinstance(tensor, Tensor) and tensor.layout == torch.strided and tensor.is_cpu
        if not isinstance(name, str) or not plain or tensor.dtype != torch.float32:
            raise ValueError(f"{short_repr(name)} is not the name of a float32 tensor")
        if not name.endswith(".attn.bias"):  # the causal mask, saved without flash attention
            state[name.removeprefix("_orig_mod.")] = tensor
    if sum(tensor.nbytes for tensor in state.values()) > 2 * size:
        raise ValueError("its tensors claim more numbers than the file has")
    head = state.get("lm_head.weight")
    tied = head is None or torch.equal(head, state.get("transformer.wte.weight", head))
    if tied:
        state.pop("lm_head.weight", None)
    bias, dropout = "transformer.ln_f.bias" in state, arguments.get("dropout", 0.0)
    config = ModelConfig(
        vocab_size=len(rows),
        **{name: arguments[name] for name in ("n_layer", "n_head", "n_embd", "block_size")},
        dropout=dropout,
        attention_dropout=dropout,
        bias=bias,
        qkv_bias=bias,
        tied=tied,
        position="learned",
        activation="gelu_erf",
    )
    modules, tensors = transformers_names(config), {}
    for ours, shape in config.shapes().items():
        module, _, kind = ours.rpartition(".")
        theirs = f"{modules[module]}.{kind}"
        tensor = state.pop(theirs, torch.empty(0))
        if tensor.shape != shape or not tensor.isfinite().all():
            raise ValueError(f"it has no {theirs} of the shape {shape} with finite numbers")
        tensors[ours] = tensor[rows] if module in ("token_embedding", "lm_head") else tensor
    for name in state:
        raise ValueError(
            f"it has {short_repr(name)}, which a model with these options does not have"
        )
    return config, tensors


def generate_excerpt(
    config: ModelConfig, tensors: dict[str, Tensor], vocabulary: Vocabulary
) -> str:
    """A text that the model writes: the excerpt of a model without a validation split."""
    reader = Reader(config, {name: tensor.numpy() for name, tensor in tensors.items()})
    settings = SampleConfig(length=EXCERPT_LENGTH, seed=1)
    samples = Samples(nullcontext(CachedDecoder(reader)), vocabulary, "", settings)
    return "".join(piece for (piece,) in samples)
