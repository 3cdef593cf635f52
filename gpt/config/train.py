"""The options of a training and of its run, their presets, and their form in config.toml."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta

from gpt.config.fields import (
    LARGEST,
    Amount,
    Count,
    Options,
    Share,
    Whole,
    option,
    require,
)
from gpt.devices import Device
from gpt.errors import ConfigError

Schedule = Literal["cosine", "linear"]
Precision = Literal["float32", "bfloat16"]
WindowOrder = Literal["random", "epochs"]
Tracker = Literal["tensorboard"]
Preset = Literal["default", "best", "classic"]
#: A sentence for help texts that explains what `unescaped` does.
ESCAPES = r"\n is a line break, \t a tab, \\n and \\t are a backslash and a letter."

MOST_MINUTES = 10**8  # two centuries
MOST_STEPS = 10**12 - 1  # the name of a checkpoint's folder has at most 12 digits

#: Options that several commands and functions share.
Checkpoints = Annotated[Path, option("Folder of the runs.")]
Data = Annotated[Path, option("Folder of the corpora.")]
OnDevice = Annotated[Device, option("Where to compute.")]


@dataclass(frozen=True, kw_only=True)
class SessionOptions(Options):
    """The options of a new or resumed run that are not stored with it."""

    minutes: Annotated[
        Annotated[float, Meta(gt=0, le=MOST_MINUTES)] | None,
        option(
            "Time budget, evaluations and saves included; gptx fits the model's shape to it, and "
            "the learning rate falls with the time.",
            "2 for `preset=default` without `steps`",
        ),
    ] = None
    data: Data = Path("data")
    device: OnDevice = "auto"
    log: Annotated[
        Tracker | None, option("Also write the evaluations into the run's folder tensorboard.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class RunConfig(SessionOptions):
    """The options of a new run, without those of its model and of its training."""

    preset: Annotated[
        Preset | None, option("classic: nanoGPT's recipe; best: lowest loss, slow.", "default")
    ] = None
    run: Annotated[str | None, option("The run's name.", "the corpus's name and a number")] = None
    init_from: Annotated[
        str | None,
        option(
            "A run's name, or the path of a run or a model file. The new run takes the weights and "
            "layout of this model, and adds the new text's characters to the vocabulary."
        ),
    ] = None
    checkpoints: Checkpoints = Path("checkpoints")


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(Options):
    """The options that a resumed run may change, because its earlier steps do not need them."""

    steps: Annotated[int, Meta(ge=1, le=MOST_STEPS), option("Optimizer steps.")] = 2000
    micro_batch_size: Annotated[
        Whole, option("Most sequences that a rank computes at once; 0 = its whole share.")
    ] = 0
    eval_interval: Annotated[Whole, option("Steps between evaluations; 0 = use `evaluations`.")] = 0
    patience: Annotated[
        Whole, option("Stop after this many evaluations without a new best; 0 = never.")
    ] = 0
    keep_all: Annotated[
        bool, option("Keep every evaluation's checkpoint; attn and heads open it with --step.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class TrainConfig(ResumeOptions):
    """How a model learns. A run stores every field and uses it again when it is resumed."""

    batch_size: Annotated[Count, option("Sequences in a step, on all ranks together.")] = 32
    learning_rate: Annotated[
        float,
        Meta(gt=0, le=LARGEST),
        option("Peak learning rate, except where `embedding_lr` and `matrix_lr` apply."),
    ] = 2e-3
    embedding_lr: Annotated[
        Amount, option("Learning rate of embedding and output; 0 = `learning_rate`.")
    ] = 0.0
    matrix_lr: Annotated[
        Amount,
        option("Muon's learning rate for the matrices of blocks (Jordan et al. 2024); 0 = AdamW."),
    ] = 0.0
    min_lr: Annotated[Amount, option("Learning rate at the end.")] = 0.0
    warmup_steps: Annotated[Whole, option("Steps of linear warm-up.")] = 40
    schedule: Annotated[Schedule, option("How the learning rate falls to `min_lr`.")] = "linear"
    weight_decay: Annotated[
        Amount, option("Decay of matrices, times `learning_rate` (Loshchilov & Hutter 2019).")
    ] = 0.1
    beta1: Annotated[Share, option("Decay of the mean gradient.")] = 0.9
    beta2: Annotated[Share, option("AdamW's decay of the mean squared gradient.")] = 0.99
    grad_clip: Annotated[Amount, option("Largest gradient norm; 0 = no limit.")] = 1.0
    average: Annotated[Share, option("Decay of the saved average of the weights; 0 = none.")] = 0.0
    window_order: Annotated[
        WindowOrder, option("random: anywhere in the text; epochs: every window once an epoch.")
    ] = "random"
    precision: Annotated[Precision, option("Precision of matrix products in training.")] = "float32"
    compile: Annotated[bool, option("torch.compile: slow start, faster steps on a GPU.")] = False
    deterministic: Annotated[bool, option("On a GPU: runs repeat bit for bit; slower.")] = False
    separator: Annotated[
        str, option(f"Separates two texts, unless the first ends with it. {ESCAPES}")
    ] = "\\n"
    encoding: Annotated[
        str,
        option("Encoding of texts that are not UTF-8 and have no byte order mark, such as cp1252."),
    ] = "utf-8"
    column: Annotated[
        str, option("Learn only from this column of CSV, TSV or JSON lines; its values are items.")
    ] = ""
    items: Annotated[
        bool, option("The text is a list: windows and samples begin at items; see `separator`.")
    ] = False
    split: Annotated[
        str,
        option("Validation text: last, every:N (every Nth text, or block of one text), or a file."),
    ] = "last"
    val_fraction: Annotated[
        float, Meta(gt=0, lt=1), option("Share of the text held out by `split='last'`.")
    ] = 0.1
    evaluations: Annotated[Count, option("Evaluations in a run, evenly distributed.")] = 10
    eval_chars: Annotated[
        Whole,
        option(
            "Validation characters that an evaluation reads, always the same ones; 0 = all. At the "
            "end, an evaluation of the best step reads all or, with `minutes`, as many as 5% of "
            "the time allows."
        ),
    ] = 0
    seed: Annotated[Whole, option("Seed of initialisation, batches and dropout.")] = 1

    def _check(self) -> None:
        falls = self.min_lr <= self.learning_rate
        require(falls, "min_lr", f"{self.min_lr} is above `learning_rate={self.learning_rate}`")
        named = self.split not in ("", "-") and self.split.isprintable() and self.split_period != 1
        require(named, "split", f"{self.split!r} is not last, every:N with N above 1, or a file")
        held_out = self.split == "last" or self.val_fraction == TrainConfig.val_fraction
        require(held_out, "val_fraction", "has an effect only with `split='last'`")
        lone = next((sign for sign in self.separator if 0xD800 <= ord(sign) < 0xE000), "")
        require(not lone, "separator", f"{lone!r} is no character")
        check_encoding(self.encoding)

    @property
    def text_separator(self) -> str:
        """The separator of texts, with its escapes resolved."""
        return unescaped(self.separator)

    @property
    def item_separator(self) -> str:
        """The separator of items if the text is a list, otherwise ""."""
        return self.text_separator if self.items or self.column else ""

    @property
    def split_period(self) -> int:
        """N if `split` is "every:N", otherwise 0."""
        match = re.fullmatch(r"every[ :=]?([0-9]{1,9})", self.split)
        return max(1, int(match[1])) if match else 0

    @property
    def validation_file(self) -> str | None:
        """The file with the validation text; None if this text is a part of the corpus."""
        return None if self.split == "last" or self.split_period else self.split


def check_encoding(name: str) -> None:
    """Raises ConfigError unless Python has a text encoding with this name."""
    try:
        "a".encode(name)  # refuses encodings of bytes, such as hex
        is_known = codecs.lookup(name).name not in ("idna", "punycode")  # these encode domain names
    except (LookupError, ValueError):
        is_known = False
    require(is_known, "encoding", f"{name!r} is no text encoding of Python; an example is cp1252")


def unescaped(text: str) -> str:
    """Replaces a typed \\n by a line break, \\t by a tab, and \\\\n and \\\\t by a backslash and a
    letter. Every other backslash stays.
    """
    characters = {"n": "\n", "t": "\t"}
    return re.sub(r"\\(\\?[nt])", lambda match: characters.get(match[1], match[1]), text)


#: We chose the presets by measurements (benchmarks/LOG.md).
_DEFAULT: dict[str, Any] = {
    "window_order": "epochs",
    "block_size": 128,
    "batch_size": 16,
    "previous_heads": 4,
    "counting": 8,
    "matrix_lr": 1e-2,
    "embedding_lr": 5e-3,
    "warmup_steps": 20,
}
_CLASSIC: dict[str, Any] = {
    "position": "learned",
    "activation": "gelu",
    "tied": True,
    "learning_rate": 1e-3,
    "min_lr": 1e-4,
    "warmup_steps": 100,
    "schedule": "cosine",
    "eval_interval": 250,
}
_GPU_SHAPE: dict[str, Any] = {
    "n_layer": 6,
    "n_head": 6,
    "n_embd": 384,
    "block_size": 256,
    "batch_size": 64,
    "dropout": 0.2,
    "steps": 5000,
    "precision": "bfloat16",
}

#: For the lowest loss that a corpus allows, however long the training takes. Weight decay and
#: averaged weights keep the model from memorising the text.
_BEST: dict[str, Any] = {**_DEFAULT, "dropout": 0.15, "weight_decay": 0.5, "average": 0.998}
#: The largest shape that is useful.
_BEST_CPU_SHAPE: dict[str, Any] = {
    "n_layer": 6,
    "n_head": 8,
    "n_embd": 256,
    "block_size": 256,
    "steps": 12_500,
}
#: These values are not tuned, because we had no GPU.
_BEST_GPU: dict[str, Any] = {
    **_GPU_SHAPE,
    "dropout": 0.3,
    "learning_rate": 1e-3,
    "embedding_lr": 0.0,
    "warmup_steps": 100,
}

#: Preset -> kind of device -> the options whose values differ from the defaults of the classes.
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "default": {"cpu": _DEFAULT, "cuda": {**_DEFAULT, **_GPU_SHAPE}},
    "best": {"cpu": {**_BEST, **_BEST_CPU_SHAPE}, "cuda": {**_BEST, **_BEST_GPU}},
    "classic": {
        "cpu": {**_CLASSIC, "batch_size": 12},
        "cuda": {**_CLASSIC, **_GPU_SHAPE, "attention_dropout": 0.2},
    },
}
#: The presets that gpt/training/plan.py fits to the corpus and the time, and the options that it
#: fits. On a GPU it fits neither n_layer nor n_head nor n_embd. It fits micro_batch_size and
#: eval_chars in every preset.
FITTED_PRESETS = ("default", "best")
FITTED = (
    *("n_layer", "n_head", "n_embd", "block_size", "batch_size", "micro_batch_size"),
    *("precision", "steps", "warmup_steps", "dropout", "weight_decay", "eval_chars"),
)
#: Option of the model or the training -> the default that the help shows.
DEFAULTS = {**_DEFAULT, **dict.fromkeys(FITTED, "fitted")}
#: Preset -> minutes of a run without --minutes and --steps. Other presets set a number of steps.
MINUTES = {"default": 2.0}


def preset_values(
    name: str, device: str, options: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Returns field -> value of a preset for a device ("cpu", "cuda", "mps"), after the user's
    options have replaced some. Without rotary positions, the preset sets no previous_heads.
    """
    values = {**PRESETS[name]["cpu" if device == "cpu" else "cuda"], **options}
    if values.get("position", "rotary") != "rotary" and "previous_heads" not in options:
        values.pop("previous_heads", None)
    return values


def to_toml(values: Mapping[str, Any]) -> str:
    """Returns TOML without sections, with a line for every value that is not None."""
    lines = []
    for name, value in values.items():
        if value is not None:
            text = json.dumps(value, ensure_ascii=False)
            signs = (sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in text)
            lines.append(f"{name} = {''.join(signs)}\n")
    return "".join(lines)


def from_toml(text: str, source: str) -> dict[str, Any]:
    """Reads option -> value from TOML without sections. Raises ConfigError."""
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError
        raise ConfigError(f"config {source}", str(error)) from None
