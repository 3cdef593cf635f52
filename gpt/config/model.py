"""The shape of a GPT, which also sets the layout of its checkpoint; and the names of the stages
that it computes (docs/heads.md explains each).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal, get_args

from gpt.config.fields import Checked, Range, require

Attention = Literal["fused", "heads"]
Position = Literal["none", "learned", "sinusoidal", "rotary"]
Norm = Literal["layer", "rms"]
Activation = Literal["gelu", "gelu_erf", "relu", "relu2", "swiglu"]

#: Stages of a head with a row for each query and a column for each key.
SquareStage = Literal["scores", "scaled", "masked", "weights"]
#: Stages with an axis of heads.
HeadStage = Literal["q", "k", "v", SquareStage, "context", "head_output"]
#: Stages after the last layer; the others belong to a layer.
FinalStage = Literal["final_norm", "logits"]
_Later = Literal["concat", "proj", "resid_mid", "ffn_hidden", "ffn_out", "resid_post"]
#: Every stage, in the order of computation.
Stage = Literal["resid_pre", HeadStage, _Later, FinalStage]
#: Stages of a decoder's cross-attention; stages of an encoder, whose final_norm it reads.
CrossStage = Literal[
    "cross_q", "cross_k", "cross_v", "cross_scores", "cross_scaled", "cross_masked",
    "cross_weights", "cross_context", "cross_head_output", "cross_concat", "cross_proj",
    "cross_resid_mid",
]  # fmt: skip
EncoderStage = Literal[
    "encoder_resid_pre", "encoder_q", "encoder_k", "encoder_v", "encoder_scores",
    "encoder_scaled", "encoder_masked", "encoder_weights", "encoder_context",
    "encoder_head_output", "encoder_concat", "encoder_proj", "encoder_resid_mid",
    "encoder_ffn_hidden", "encoder_ffn_out", "encoder_resid_post", "encoder_final_norm",
]  # fmt: skip
AnyStage = Stage | CrossStage | EncoderStage
#: Stages that `gptx attn`, its page and figures draw.
DrawnStage = Literal[SquareStage, "context", "concat", "proj", "resid_mid"]
#: The circuits of a head, each a table of characters.
CircuitName = Literal["qk", "ov"]

SQUARE, HEAD_STAGES, FINAL_STAGES, STAGES = map(
    get_args, (SquareStage, HeadStage, FinalStage, Stage)
)

NO_FEED_FORWARD = "this model has no feed-forward layers"

#: Activations that multiply the two halves of their input: 2n numbers become n.
GATED = ("swiglu",)

#: Options that may differ between a model and the model whose weights it starts with.
MAY_DIFFER_FROM_PARENT = ("dropout", "attention_dropout", "attention", "counting")
LONGEST_CONTEXT = 2**20  # characters
MOST_LAYERS = 500


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Checked):
    """The shape of a GPT. Names follow nanoGPT where it has one."""

    vocab_size: Annotated[int, Range(1)]
    block_size: Annotated[int, "Characters of context.", Range(1, LONGEST_CONTEXT)] = 64
    n_layer: Annotated[int, "Transformer blocks.", Range(1, MOST_LAYERS)] = 4
    n_head: Annotated[int, "Attention heads in a block; head_size = n_embd / n_head.", Range(1)] = 4
    n_embd: Annotated[int, "Width of the residual stream.", Range(1)] = 128
    dropout: Annotated[float, "Share of activations dropped while training.", Range(0, below=1)] = (
        0.0
    )
    attention_dropout: Annotated[
        float, "Share of attention weights dropped while training.", Range(0, below=1)
    ] = 0.0
    bias: Annotated[bool, "Biases in projections and norms; for q, k, v see `qkv_bias`."] = False
    qkv_bias: Annotated[bool, "Biases in queries, keys and values, as in GPT-2."] = False
    tied: Annotated[bool, "Output weights = token embedding (Press & Wolf 2017)."] = False
    position: Annotated[
        Position, "How the model uses positions; none: only through the causal mask."
    ] = "rotary"
    norm: Annotated[Norm, "Normalisation before each sublayer."] = "rms"
    activation: Annotated[Activation, "Activation function of the feed-forward layers."] = "relu2"
    feed_forward: Annotated[
        bool, "Feed-forward layers; without them, attention only (Elhage et al. 2021)."
    ] = True
    attention: Annotated[Attention, "One fast kernel, or one readable module per head."] = "fused"
    previous_heads: Annotated[
        int,
        "Heads of layer 0 whose initial weights attend 1, 2 … characters back; 0 = none.",
        Range(0),
    ] = 0
    counting: Annotated[
        int,
        "Length of the longest n-grams whose counts help the GPT predict; 0 = GPT alone.",
        Range(0, 16),
    ] = 0
    encoder_layers: Annotated[
        int,
        "Encoder blocks, for pairs of a source and a target; 0 = a decoder-only GPT.",
        Range(0, MOST_LAYERS),
    ] = 0
    shared_embedding: Annotated[bool, "Encoder and decoder use one token embedding."] = False
    scaled_embedding: Annotated[
        bool, "Multiply token embeddings by √n_embd (Vaswani et al. 2017)."
    ] = False
    post_norm: Annotated[
        bool, "Normalise after each sublayer, not before it (Vaswani et al. 2017)."
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.n_embd % self.n_head == 0
        require(fits, "n_embd", f"{self.n_embd} does not divide into `n_head={self.n_head}` heads")
        turns = self.position == "rotary" or not self.previous_heads
        require(turns, "previous_heads", f"needs rotary positions, not {self.position}")
        encodes = self.encoder_layers > 0
        require(not (encodes and self.counting), "counting", "does not work with `encoder_layers`")
        shares = encodes or not self.shared_embedding
        require(shares, "shared_embedding", "needs an encoder: `encoder_layers`")
        halves = self.position != "rotary" or self.head_size % 2 == 0
        require(halves, "position", f"rotary needs an even head size, not {self.head_size}")

    @property
    def encoder(self) -> ModelConfig | None:
        """The encoder as a model of its own, without output weights; None if there is none."""
        if not self.encoder_layers:
            return None
        return replace(
            self,
            n_layer=self.encoder_layers,
            encoder_layers=0,
            tied=True,
            shared_embedding=False,
            previous_heads=0,
        )

    @property
    def head_size(self) -> int:
        return self.n_embd // self.n_head

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that the model computes, in order."""
        return tuple(n for n in STAGES if self.feed_forward or n not in ("ffn_hidden", "ffn_out"))

    @property
    def ffn_hidden(self) -> int:
        """Outputs of a feed-forward layer's activation: 4·n_embd; 0 without these layers.

        In gated layers 8/3·n_embd, rounded up to a multiple of 8, so that their three matrices have
        about as many parameters as two matrices of width 4·n_embd (Shazeer 2020).
        """
        if not self.feed_forward:
            return 0
        return 8 * -(-self.n_embd // 3) if self.activation in GATED else 4 * self.n_embd

    @property
    def ffn_up(self) -> int:
        """Inputs of the activation, the rows of feed_forward.up: ffn_hidden, or twice that if
        gated.

        The first half of a gated activation's inputs is the gate.
        """
        return 2 * self.ffn_hidden if self.activation in GATED else self.ffn_hidden

    @property
    def widest_layer(self) -> int:
        """The most values that a layer computes for one character: logits, ffn_up, or qkv."""
        return max(self.vocab_size, self.ffn_up, 3 * self.n_embd)

    @property
    def uses_dropout(self) -> bool:
        """Whether training draws random numbers beyond those of the batch."""
        return max(self.dropout, self.attention_dropout) > 0

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every stored parameter: the checkpoint's layout, in its order.

        Queries, keys and values of all heads are packed in one `qkv` matrix for both forms of
        attention; tied output weights are stored once, as the embedding. The encoder's names begin
        with "encoder."; a decoder block that has an encoder has `cross` attention to its output.
        """
        shapes: dict[str, tuple[int, ...]] = {}
        if encoder := self.encoder:
            own = {f"encoder.{name}": shape for name, shape in encoder.shapes().items()}
            if self.shared_embedding:
                del own["encoder.token_embedding.weight"]
            shapes |= own
        shapes["token_embedding.weight"] = (self.vocab_size, self.n_embd)
        if self.position == "learned":
            shapes["position.weight"] = (self.block_size, self.n_embd)
        for layer in range(self.n_layer):
            shapes |= self._block_shapes(f"blocks.{layer}.")
        if not self.post_norm:
            shapes |= self._norm_shapes("norm")
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocab_size, self.n_embd)
        return shapes

    def _block_shapes(self, block: str) -> dict[str, tuple[int, ...]]:
        embd = self.n_embd
        shapes = self._norm_shapes(block + "norm1")
        shapes |= self._attention_shapes(block + "attention.")
        if self.encoder_layers:
            shapes |= self._norm_shapes(block + "cross_norm")
            shapes |= self._attention_shapes(block + "cross.")
        if not self.feed_forward:
            return shapes
        shapes |= self._norm_shapes(block + "norm2")
        up, down = block + "feed_forward.up", block + "feed_forward.down"
        shapes |= _with_bias(self.bias, up, self.ffn_up, embd)
        return shapes | _with_bias(self.bias, down, embd, self.ffn_hidden)

    def _attention_shapes(self, name: str) -> dict[str, tuple[int, ...]]:
        shapes = _with_bias(self.qkv_bias, name + "qkv", 3 * self.n_embd, self.n_embd)
        return shapes | _with_bias(self.bias, name + "proj", self.n_embd, self.n_embd)

    def _norm_shapes(self, name: str) -> dict[str, tuple[int, ...]]:
        return {} if self.norm == "rms" else _with_bias(self.bias, name, self.n_embd)

    @property
    def training_flops(self) -> int:
        """Floating-point operations of a training step for one character.

        Counts six for each number of a matrix (Kaplan et al. 2020), and the two products of causal
        attention; not lookups, norms and the optimizer. With an encoder: for one character of the
        target and one of the source.
        """
        sublayers = 4 * self.n_embd * (1 + (self.encoder_layers > 0))
        rows = self.n_layer * (sublayers + self.ffn_up + self.ffn_hidden) + self.vocab_size
        rows += self.encoder_layers * (4 * self.n_embd + self.ffn_up + self.ffn_hidden)
        layers = self.n_layer + self.encoder_layers
        return 6 * rows * self.n_embd + 6 * layers * self.n_embd * self.block_size

    def parameters(self, positions: bool = True) -> int:
        """Number of parameters; `positions=False`: without position embeddings, as in nanoGPT."""
        return sum(
            math.prod(shape)
            for name, shape in self.shapes().items()
            if positions or not name.endswith("position.weight")
        )


def _with_bias(bias: bool, name: str, *shape: int) -> dict[str, tuple[int, ...]]:
    """The shapes of a weight and, if it has one, its bias."""
    weight: dict[str, tuple[int, ...]] = {f"{name}.weight": shape}
    return weight | {f"{name}.bias": shape[:1]} if bias else weight
