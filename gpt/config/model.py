"""The options that set the shape of a GPT, the names of the stages that a GPT computes, and the
options of the commands that use a trained model. docs/heads.md explains the stages.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from msgspec import Meta

from gpt.config.fields import Amount, Count, Options, Share, Whole, fields_of, option, require

Attention = Literal["fused", "heads"]
Position = Literal["none", "learned", "sinusoidal", "rotary"]
Activation = Literal["gelu", "gelu_erf", "relu", "relu2"]

#: Stages of a head that have a row for every query and a column for every key.
SquareStage = Literal["scores", "scaled", "masked", "weights"]
#: Stages whose arrays have an axis of heads.
HeadStage = Literal["q", "k", "v", SquareStage, "context", "head_output"]
#: Stages after the last layer. All others belong to a layer.
FinalStage = Literal["final_norm", "logits"]
_Later = Literal["concat", "proj", "resid_mid", "ffn_hidden", "ffn_out", "resid_post"]
#: Every stage, in the order of computation.
Stage = Literal["resid_pre", HeadStage, _Later, FinalStage]
#: Stages that `gptx attn` draws in terminals, figures and pages.
DrawnStage = Literal[SquareStage, "context", "concat", "proj", "resid_mid"]

SQUARE, HEAD_STAGES, FINAL_STAGES, STAGES = map(
    get_args, (SquareStage, HeadStage, FinalStage, Stage)
)

#: Options in which a model may differ from the model whose weights it starts with.
MAY_DIFFER_FROM_PARENT = ("dropout", "attention_dropout", "attention", "counting")
LONGEST_CONTEXT = 2**20  # characters
MOST_LAYERS = 500


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """The options that set the shape of a GPT. Names follow nanoGPT where it has one."""

    block_size: Annotated[int, Meta(ge=1, le=LONGEST_CONTEXT), option("Context (characters).")] = 64
    n_layer: Annotated[int, Meta(ge=1, le=MOST_LAYERS), option("Transformer blocks.")] = 4
    n_head: Annotated[Count, option("Attention heads in a block; head_size = n_embd / n_head.")] = 4
    n_embd: Annotated[Count, option("Width of the residual stream.")] = 128
    dropout: Annotated[Share, option("Share of activations dropped while training.")] = 0.0
    attention_dropout: Annotated[Share, option("Dropout of attention weights in training.")] = 0.0
    bias: Annotated[bool, option("Biases in projections and norms, but not in q, k, v.")] = False
    qkv_bias: Annotated[bool, option("Biases in queries, keys and values, as in GPT-2.")] = False
    tied: Annotated[bool, option("Output weights = token embedding (Press & Wolf 2017).")] = False
    position: Annotated[Position, option("How positions are encoded; none: not at all.")] = "rotary"
    activation: Annotated[Activation, option("Activation of the feed-forward layers.")] = "relu2"
    feed_forward: Annotated[
        bool, option("Feed-forward layers; without them, attention only (Elhage et al. 2021).")
    ] = True
    attention: Annotated[
        Attention, option("fused: one fast kernel; heads: a module for every head.")
    ] = "fused"
    previous_heads: Annotated[
        Whole,
        option("Heads in layer 0 that initially attend 1, 2 … characters back; 0 = none."),
    ] = 0
    counting: Annotated[
        int,
        Meta(ge=0, le=16),
        option("Length of the longest n-grams whose counts help the GPT predict; 0 = GPT alone."),
    ] = 0


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ModelOptions):
    """The shape of a GPT for a vocabulary."""

    vocab_size: Annotated[Count, Meta()]

    def _check(self) -> None:
        fits = self.n_embd % self.n_head == 0
        require(fits, "n_embd", f"{self.n_embd} does not divide into `n_head={self.n_head}` heads")
        turns = self.position == "rotary" or not self.previous_heads
        require(turns, "previous_heads", f"needs rotary positions, not {self.position}")
        halves = self.position != "rotary" or self.head_size % 2 == 0
        require(halves, "position", f"rotary needs an even head size, not {self.head_size}")

    @property
    def head_size(self) -> int:
        return self.n_embd // self.n_head

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that the model computes, in order."""
        return tuple(n for n in STAGES if self.feed_forward or n not in ("ffn_hidden", "ffn_out"))

    @property
    def ffn_hidden(self) -> int:
        """Width of a feed-forward layer: 4·n_embd, or 0 without these layers."""
        return 4 * self.n_embd if self.feed_forward else 0

    @property
    def widest_layer(self) -> int:
        """The width of the widest layer: the logits, the feed-forward layers, or q, k and v."""
        return max(self.vocab_size, self.ffn_hidden, 3 * self.n_embd)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns name -> shape of every parameter, in the order in which a checkpoint stores them.

        With `attention="fused"` and with "heads", one `qkv` matrix has the queries, keys and values
        of all heads. Tied output weights are stored once, as the embedding.
        """
        shapes: dict[str, tuple[int, ...]] = {
            "token_embedding.weight": (self.vocab_size, self.n_embd)
        }
        if self.position == "learned":
            shapes["position.weight"] = (self.block_size, self.n_embd)
        for layer in range(self.n_layer):
            shapes |= self._block_shapes(f"blocks.{layer}.")
        shapes |= _with_bias(self.bias, "norm", self.n_embd)
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocab_size, self.n_embd)
        return shapes

    def _block_shapes(self, block: str) -> dict[str, tuple[int, ...]]:
        embd = self.n_embd
        shapes = _with_bias(self.bias, block + "norm1", embd)
        shapes |= _with_bias(self.qkv_bias, block + "attention.qkv", 3 * embd, embd)
        shapes |= _with_bias(self.bias, block + "attention.proj", embd, embd)
        if not self.feed_forward:
            return shapes
        shapes |= _with_bias(self.bias, block + "norm2", embd)
        shapes |= _with_bias(self.bias, block + "feed_forward.up", self.ffn_hidden, embd)
        return shapes | _with_bias(self.bias, block + "feed_forward.down", embd, self.ffn_hidden)

    @property
    def training_flops(self) -> int:
        """Floating-point operations of a training step for one character.

        Counts six operations for every matrix entry (Kaplan et al. 2020), and the two products of
        causal attention. Counts no lookups, no norms and no optimizer.
        """
        layer = 4 * self.n_embd + 2 * self.ffn_hidden
        rows = self.n_layer * layer + self.vocab_size
        return 6 * rows * self.n_embd + 6 * self.n_layer * self.n_embd * self.block_size

    def parameters(self) -> int:
        """The number of parameters."""
        return sum(map(math.prod, self.shapes().values()))


def _with_bias(bias: bool, name: str, *shape: int) -> dict[str, tuple[int, ...]]:
    """Returns the shape of a weight and, if it has a bias, the shape of the bias."""
    weight: dict[str, tuple[int, ...]] = {f"{name}.weight": shape}
    return weight | {f"{name}.bias": shape[:1]} if bias else weight


Only = Literal["gpt", "counting"]
LONGEST_SAMPLE = 10**12  # characters


@dataclass(frozen=True, kw_only=True)
class FilterOptions(Options):
    """The filters that change the model's distribution of the next character before a character is
    drawn. They apply in the order of the fields.

    A new filter needs a field here and a function of the same name in FILTERS of
    gpt/reading/sampler.py and of gpt/page/assets/model/sampler.js. A filter that depends on the
    text so far is a field of SampleConfig, and the page does not have it.
    """

    temperature: Annotated[Amount, option("Divides the logits; 1 = as learned, 0 = greedy.")] = 0.8
    top_k: Annotated[
        Count | None, option("Keep only the k likeliest characters (Fan et al. 2018).")
    ] = None
    top_p: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        option("Keep the fewest characters whose probabilities sum to p (Holtzman et al. 2020)."),
    ] = None
    min_p: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        option("Keep characters with at least p x the largest probability (Nguyen et al. 2024)."),
    ] = None
    only: Annotated[Only | None, option("Use only the GPT's or only counting's prediction.")] = None


@dataclass(frozen=True, kw_only=True)
class SampleConfig(FilterOptions):
    """How characters are drawn from the model's distribution."""

    length: Annotated[
        int, Meta(ge=0, le=LONGEST_SAMPLE), option("Characters to generate after the prompt.")
    ] = 500
    n: Annotated[Count, option("Number of samples.")] = 1
    seed: Annotated[
        Whole | None,
        option("The same seed gives the same text. Without it, gptx prints a new seed on stderr."),
    ] = None
    keep_stop: Annotated[bool, option("Keep the text of `stop` at the end.")] = False
    ban: Annotated[str | None, option("Never write one of these characters.")] = None
    repetition: Annotated[
        Amount | None,
        option(
            "If a character would repeat a passage of the last 1,000 characters, lower its logit "
            "by this number for every repeated character from the 6th on."
        ),
    ] = None
    avoid_copies: Annotated[
        Count | None,
        option("Copy no passage of more than this many characters from the training text."),
    ] = None


def seed_of(config: SampleConfig) -> int:
    """Returns the seed of samples or, if the options have none, a new one of at most 8 digits."""
    return int.from_bytes(os.urandom(3), "big") if config.seed is None else config.seed


#: The options that change the model's distribution, in the order in which they apply.
DISTRIBUTION_OPTIONS = tuple(name for name in fields_of(FilterOptions) if name != "only")


Ablation = Literal["mean", "zero", "resample"]
Unknown = Literal["fold", "skip", "error"]
OnUnknown = Annotated[
    Unknown,
    option(
        "What to do with characters that the model does not know. fold: replace them by known "
        "characters that mean the same, such as ’ by '; skip: fold, then leave out the others; "
        "error: refuse the text."
    ),
]
Truncate = Annotated[bool, option("If the text is longer than the context, use only its end.")]
ByCharacter = Annotated[
    bool, option("Colour every character by its surprisal, with half a window or more before it.")
]


@dataclass(frozen=True, kw_only=True)
class SurveyOptions(Options):
    """How heads are measured."""

    windows: Annotated[Count, option("Measure on at most this many windows of the text.")] = 32
    ablate: Annotated[
        Ablation | None,
        option(
            "What replaces a head's output to measure the loss without it: its mean, zero, or its "
            "output in another window."
        ),
    ] = "mean"


@dataclass(frozen=True, kw_only=True)
class ExplanationOptions(Options):
    """Which logit to explain."""

    char: Annotated[str | None, option("The next character to explain.", "the likeliest")] = None
    against: Annotated[
        str | None, option("Explain the difference from this character's logit.", "none")
    ] = None
    truncate: Truncate = False
