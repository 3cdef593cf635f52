"""What a model, its training and a sample are made of: frozen dataclasses that check themselves.

A field's `Annotated` text is its help on the command line, and its comment in a run's config.toml;
there is no second list of options. Knows no torch, no text and no files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from gpt.errors import ConfigError

Attention = Literal["fused", "heads"]
Position = Literal["learned", "sinusoidal", "rotary"]
Norm = Literal["layer", "rms"]
Activation = Literal["gelu", "relu", "relu2"]
Schedule = Literal["cosine", "linear"]
Precision = Literal["float32", "tf32", "bfloat16"]
Windows = Literal["random", "epochs"]
Stage = Literal["scores", "scaled", "masked", "weights", "context", "concat", "proj", "residual"]
Drawing = Literal["auto", "numbers", "heat", "top", "heads"]
View = Literal[Drawing, "rollout", "lens"]
Scale = Literal["fixed", "row"]


LARGEST = 1e300  # of any number: beyond it, a float overflows
LONGEST_CONTEXT = 2**20  # characters
MOST_LAYERS = 500
MOST_STEPS = 10**12 - 1  # as many digits as a checkpoint's folder has
LONGEST_SAMPLE = 10**12  # characters: thirty years of writing


def require(condition: bool, option: str, problem: str) -> None:
    """Raises ConfigError "--option: problem" unless the condition holds."""
    if not condition:
        raise ConfigError(f"{flag_of(option)}: {problem}")


def flag_of(option: str) -> str:
    """A field's name on the command line: "--n-layer", "-n"."""
    return f"-{option}" if len(option) == 1 else f"--{option.replace('_', '-')}"


def check_fields(config: object) -> None:
    """Types and choices of every field; numbers must be finite. Raises ConfigError."""
    of: type = type(config)
    for name, kind in field_types(of).items():
        value = getattr(config, name)
        if type(None) in get_args(kind):
            if value is None:
                continue
            kind = get_args(kind)[0]
        if get_origin(kind) is Literal:
            choices = get_args(kind)
            require(value in choices, name, f"{value!r} is not one of {', '.join(choices)}")
        elif kind is int:
            require(type(value) is int, name, f"{value!r} is not a whole number")
        elif kind is float:
            require(type(value) in (int, float), name, f"{value!r} is not a number")
            require(abs(value) < math.inf, name, f"{value!r} is not a finite number")
            require(abs(value) < LARGEST, name, "this number is too large")
        elif kind is bool:
            require(type(value) is bool, name, f"{value!r} is not true or false")
        elif kind is str:
            require(type(value) is str, name, f"{value!r} is not a text")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a GPT. Names follow nanoGPT where it has one."""

    vocab_size: int
    block_size: Annotated[int, "Characters of context."] = 64
    n_layer: Annotated[int, "Transformer blocks."] = 4
    n_head: Annotated[int, "Attention heads in a block; head_size = n_embd / n_head."] = 4
    n_embd: Annotated[int, "Width of the residual stream."] = 128
    dropout: Annotated[float, "Share of activations dropped while training."] = 0.0
    attention_dropout: Annotated[float, "Share of attention weights dropped while training."] = 0.0
    bias: Annotated[bool, "Biases in projections and norms (never in q, k, v)."] = False
    tied: Annotated[bool, "Output weights = token embedding (Press & Wolf 2017)."] = False
    qk_norm: Annotated[bool, "RMS-normalise queries and keys (Henry et al. 2020)."] = True
    position: Annotated[Position, "How a character's position enters."] = "rotary"
    norm: Annotated[Norm, "Normalisation before each sublayer."] = "rms"
    activation: Annotated[Activation, "Of the feed-forward layers."] = "relu2"
    attention: Annotated[Attention, "One fast kernel, or one readable module a head."] = "fused"
    ngram: Annotated[int, "Embeds each character's last 2 … N together, too; 1 = not."] = 1
    ngram_rows: Annotated[int, "Most rows of each n-gram's table, beyond which they share."] = 16384
    ngram_dropout: Annotated[float, "Share of n-gram embeddings dropped while training."] = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_embd", "ngram_rows"):
            require(getattr(self, name) >= 1, name, f"{getattr(self, name)} is less than 1")
        require(self.block_size <= LONGEST_CONTEXT, "block_size", f"over {LONGEST_CONTEXT:,}")
        require(self.n_layer <= MOST_LAYERS, "n_layer", f"over {MOST_LAYERS}")
        for name in ("dropout", "attention_dropout", "ngram_dropout"):
            require(0 <= getattr(self, name) < 1, name, f"{getattr(self, name)} is not in [0, 1)")
        fits = self.n_embd % self.n_head == 0
        require(fits, "n_embd", f"{self.n_embd} does not divide into --n-head {self.n_head} heads")
        require(1 <= self.ngram <= 8, "ngram", f"{self.ngram} is not in [1, 8]")
        require(self.ngram_rows <= 2**24, "ngram_rows", f"over {2**24:,}")
        halves = self.position != "rotary" or self.head_size % 2 == 0
        require(halves, "position", f"rotary needs an even head size, not {self.head_size}")

    @property
    def head_size(self) -> int:
        return self.n_embd // self.n_head

    @property
    def drops(self) -> bool:
        """Whether training draws random numbers beyond those of the batch."""
        return max(self.dropout, self.attention_dropout, self.ngram_dropout) > 0

    @property
    def ngram_tables(self) -> tuple[int, ...]:
        """Rows of the tables for the orders 2 … ngram: every n-gram its own, or as many as allowed.

        One row more than characters in each place: an n-gram may begin before the text.
        """
        kinds = self.vocab_size + 1
        return tuple(min(kinds**order, self.ngram_rows) for order in range(2, self.ngram + 1))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every stored parameter: the checkpoint's layout, in its order.

        Queries, keys and values of all heads are packed in one `qkv` matrix whichever attention
        trains; tied output weights are stored once, as the embedding.
        """
        embd, hidden = self.n_embd, 4 * self.n_embd
        shapes: dict[str, tuple[int, ...]] = {"token_embedding.weight": (self.vocab_size, embd)}
        if self.ngram > 1:
            shapes["ngram_embedding.weight"] = (sum(self.ngram_tables), embd)
        if self.position == "learned":
            shapes["position.weight"] = (self.block_size, embd)
        for layer in range(self.n_layer):
            block = f"blocks.{layer}."
            shapes |= self._norm_shapes(block + "norm1")
            shapes[block + "attention.qkv.weight"] = (3 * embd, embd)
            shapes |= self._linear_shapes(block + "attention.proj", embd, embd)
            shapes |= self._norm_shapes(block + "norm2")
            shapes |= self._linear_shapes(block + "feed_forward.up", hidden, embd)
            shapes |= self._linear_shapes(block + "feed_forward.down", embd, hidden)
        shapes |= self._norm_shapes("norm")
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocab_size, embd)
        return shapes

    def _norm_shapes(self, name: str) -> dict[str, tuple[int, ...]]:
        if self.norm == "rms":
            return {}
        shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": (self.n_embd,)}
        return shapes | {f"{name}.bias": (self.n_embd,)} if self.bias else shapes

    def _linear_shapes(self, name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": (rows, columns)}
        return shapes | {f"{name}.bias": (rows,)} if self.bias else shapes

    @property
    def training_flops(self) -> int:
        """Floating-point operations that a training step spends on a character.

        Six for each number of a matrix (Kaplan et al. 2020), and causal attention's two products;
        lookups, norms and the optimizer are not counted.
        """
        matrices = self.n_layer * 12 * self.n_embd**2 + self.vocab_size * self.n_embd
        return 6 * matrices + 6 * self.n_layer * self.n_embd * self.block_size

    def parameters(self, positions: bool = True) -> int:
        """How many numbers are trained; `positions=False` counts as nanoGPT does."""
        return sum(
            math.prod(shape)
            for name, shape in self.shapes().items()
            if positions or name != "position.weight"
        )


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model learns. Everything here is stored with the run and repeated at resume."""

    steps: Annotated[int, "Optimizer steps."] = 2000
    step_plan: Annotated[
        str, "Step counts that --minutes planned: FROM:STEPS, each from step FROM on."
    ] = ""
    batch_size: Annotated[int, "Sequences in a step, of all ranks together."] = 32
    micro_batch_size: Annotated[int, "Most sequences computed at once; 0 = a rank's share."] = 0
    learning_rate: Annotated[float, "Peak learning rate."] = 2e-3
    embedding_lr: Annotated[float, "The token embedding's and the output's; 0 = the same."] = 0.0
    ngram_lr: Annotated[float, "Adagrad's, of n-gram embeddings (Duchi et al. 2011)."] = 0.05
    min_lr: Annotated[float, "Learning rate at the end."] = 0.0
    warmup_steps: Annotated[int, "Steps of linear warm-up."] = 40
    schedule: Annotated[Schedule, "From the peak down to --min-lr."] = "linear"
    weight_decay: Annotated[float, "AdamW's, on matrices (Loshchilov & Hutter 2019)."] = 0.1
    beta1: Annotated[float, "AdamW's first decay."] = 0.9
    beta2: Annotated[float, "AdamW's second decay."] = 0.99
    grad_clip: Annotated[float, "Largest gradient norm; 0 = no limit."] = 1.0
    average: Annotated[float, "Decay of the weights' running average, which is kept; 0 = none."] = (
        0.0
    )
    windows: Annotated[Windows, "Drawn at random, or each once an epoch."] = "random"
    precision: Annotated[Precision, "Of the matrix products while training."] = "float32"
    compile: Annotated[bool, "torch.compile: a minute first, then faster steps on a GPU."] = False
    deterministic: Annotated[bool, "On a GPU the same bits each time, at a price."] = False
    separator: Annotated[
        str, "Between two texts, unless the first ends with it; \\n, \\t, \\uXXXX."
    ] = "\\n"
    split: Annotated[
        str, "What validates: last, every:N (texts, or blocks of a single one), or a file."
    ] = "last"
    val_fraction: Annotated[float, "Share of the text, at its end, held out by --split last."] = 0.1
    min_count: Annotated[int, "Characters that come less often become one; 0 = none do."] = 0
    replacement: Annotated[str, "The character that stands for them."] = "\ufffd"
    eval_interval: Annotated[int, "Steps between evaluations; 0 = use --evaluations."] = 0
    evaluations: Annotated[int, "Evaluations in a run, evenly distributed."] = 10
    eval_chars: Annotated[
        int, "Most validation characters an evaluation reads, evenly distributed; 0 = all."
    ] = 0
    eval_part: Annotated[
        int, "Most validation characters for all evaluations but the last; 0 = as --eval-chars."
    ] = 0
    patience: Annotated[int, "Stop after so many evaluations without a new best; 0 = never."] = 0
    keep_all: Annotated[bool, "Keep every evaluation's checkpoint, for attn --step A:B."] = False
    seed: Annotated[int, "Of initialisation, batches and dropout."] = 1

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("steps", "batch_size", "evaluations"):
            require(getattr(self, name) >= 1, name, f"{getattr(self, name)} is less than 1")
        for name in ("embedding_lr", "min_lr", "warmup_steps", "weight_decay", "grad_clip"):
            require(getattr(self, name) >= 0, name, f"{getattr(self, name)} is less than 0")
        for name in ("micro_batch_size", "eval_interval", "eval_chars", "eval_part", "patience"):
            require(getattr(self, name) >= 0, name, f"{getattr(self, name)} is less than 0")
        require(self.steps <= MOST_STEPS, "steps", f"over {MOST_STEPS:,}")
        ends = self.horizons[-1][1] == self.steps
        require(ends, "step_plan", f"its last number is not --steps {self.steps}")
        require(self.learning_rate > 0, "learning_rate", f"{self.learning_rate} is not above 0")
        falls = self.min_lr <= self.learning_rate
        require(falls, "min_lr", f"{self.min_lr} is above --learning-rate {self.learning_rate}")
        require(self.ngram_lr > 0, "ngram_lr", f"{self.ngram_lr} is not above 0")
        for name in ("beta1", "beta2", "average"):
            require(0 <= getattr(self, name) < 1, name, f"{getattr(self, name)} is not in [0, 1)")
        require(0 < self.val_fraction < 1, "val_fraction", f"{self.val_fraction} is not in (0, 1)")
        require(self.min_count >= 0, "min_count", f"{self.min_count} is less than 0")
        visible = len(self.replacement) == 1 and self.replacement.isprintable()
        visible = visible and not self.replacement.isspace()
        require(visible, "replacement", f"{self.replacement!a} is not one visible character")
        require(bool(self.split), "split", "the name is empty; give last, every:N or a file")
        require(
            self.split.isprintable(), "split", f"{self.split!a} cannot be stored; rename the file"
        )
        require(self.split != "-", "split", "standard input cannot validate; give a file")
        require(self.every != 1, "split", f"{self.split!a} needs N of 2 or more")
        unescaped(self.separator, "separator")
        require(0 <= self.seed < 2**63, "seed", f"{self.seed} is not in [0, 2^63)")

    @property
    def between(self) -> str:
        """What stands between two texts: the separator, its escapes resolved."""
        return unescaped(self.separator, "separator")

    @property
    def every(self) -> int:
        """N of the split "every:N"; 0 of the others."""
        found = re.fullmatch(r"every[ :=]?([0-9]{1,9})", self.split)
        return max(1, int(found[1])) if found else 0

    @property
    def validation(self) -> str | None:
        """The file whose text validates, if one does."""
        return None if self.split == "last" or self.every else self.split

    @property
    def horizons(self) -> tuple[tuple[int, int], ...]:
        """(from_step, steps) …: from_step on, the plan was to make this number of steps."""
        return parse_step_plan(self.step_plan) or ((0, self.steps),)


@dataclass(frozen=True, kw_only=True)
class SampleConfig:
    """How characters are drawn from the model's distribution."""

    length: Annotated[int, "Characters to write after the prompt."] = 500
    n: Annotated[int, "Samples."] = 1
    temperature: Annotated[float, "0 = always the likeliest; 1 = as learned."] = 0.8
    top_k: Annotated[int | None, "Only the k likeliest characters (Fan et al. 2018)."] = None
    top_p: Annotated[float | None, "The nucleus of mass p (Holtzman et al. 2020)."] = None
    min_p: Annotated[float | None, "At least p x the likeliest (Nguyen et al. 2024)."] = None
    seed: Annotated[int, "Same seed, same text."] = 1

    def __post_init__(self) -> None:
        check_fields(self)
        require(self.length >= 0, "length", f"{self.length} is less than 0")
        require(self.length <= LONGEST_SAMPLE, "length", f"over {LONGEST_SAMPLE:,} characters")
        require(self.n >= 1, "n", f"{self.n} is less than 1")
        require(self.temperature >= 0, "temperature", f"{self.temperature} is less than 0")
        if self.top_k is not None:
            require(self.top_k >= 1, "top_k", f"{self.top_k} is less than 1")
        if self.top_p is not None:
            require(0 < self.top_p <= 1, "top_p", f"{self.top_p} is not in (0, 1]")
        if self.min_p is not None:
            require(0 <= self.min_p <= 1, "min_p", f"{self.min_p} is not in [0, 1]")
        require(0 <= self.seed < 2**63, "seed", f"{self.seed} is not in [0, 2^63)")


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.|$)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0", "\\": "\\"}


def unescaped(text: str, option: str) -> str:
    """The text that \\n, \\t, \\u2028 … stand for. Raises ConfigError."""

    def resolved(match: re.Match[str]) -> str:
        name = match[1]
        if name in _ESCAPED:
            return _ESCAPED[name]
        point = int(name[1:], 16) if len(name) > 1 else 0xD800
        good = point <= 0x10FFFF and not 0xD800 <= point < 0xE000
        require(good, option, f"{match[0]!a} stands for no character; write \\\\ for a backslash")
        return chr(point)

    result = _ESCAPE.sub(resolved, text)
    lone = next((each for each in result if 0xD800 <= ord(each) < 0xE000), "")
    require(not lone, option, f"{lone!a} is no character")
    return result


@cache  # called at every step, for the learning rate
def parse_step_plan(text: str) -> tuple[tuple[int, int], ...]:
    """ "0:900 120:800" -> ((0, 900), (120, 800)). Raises ConfigError."""
    pairs = [re.fullmatch(r"([0-9]{1,12}):([0-9]{1,12})", word) for word in text.split()]
    plan = tuple((int(pair[1]), int(pair[2])) for pair in pairs if pair)
    starts = [start for start, _ in plan]
    good = len(plan) == len(pairs) and (starts == sorted(set(starts))) and starts[:1] in ([], [0])
    good = good and all(start < steps <= MOST_STEPS for start, steps in plan)
    require(good, "step_plan", f"{text!a} is not FROM:STEPS FROM:STEPS …, the first FROM 0")
    return plan


@cache  # a configuration is checked wherever one is made, and hints are text to be evaluated
def field_types(config: type) -> Mapping[str, Any]:
    """Field -> type without its help text, `X | None` kept."""
    hints = get_type_hints(config)
    return MappingProxyType({field.name: hints[field.name] for field in fields(config)})


def field_help(config: type) -> dict[str, str]:
    """Field -> help text, for the fields that are options."""
    hints = get_type_hints(config, include_extras=True)
    return {
        field.name: hints[field.name].__metadata__[0]
        for field in fields(config)
        if get_origin(hints[field.name]) is Annotated
    }


def only_fields(config: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The part of `values` that belongs to one dataclass."""
    names = {field.name for field in fields(config)}
    return {name: value for name, value in values.items() if name in names}
