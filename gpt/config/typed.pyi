"""The types of keywords of Python's functions. `make typed` writes this file from the
configurations; a test compares both."""

from os import PathLike
from typing import Literal, TypedDict

from gpt import TrainedGPT

class SampleOptions(TypedDict, total=False):
    length: int
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int
    only: Literal["gpt", "counting"] | None

class ShapingOptions(TypedDict, total=False):
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    only: Literal["gpt", "counting"] | None

class AttnOptions(TypedDict, total=False):
    truncate: bool

class HeadsOptions(TypedDict, total=False):
    windows: int
    ablate: Literal["mean", "zero", "resample"] | None

class WhyOptions(TypedDict, total=False):
    char: str | None
    against: str | None
    truncate: bool

class EvalOptions(TypedDict, total=False):
    chars: bool

class TrainOptions(TypedDict, total=False):
    preset: Literal["default", "best", "classic"] | None
    minutes: float | None
    run: str | None
    init_from: TrainedGPT | str | PathLike[str] | None
    checkpoints: str | PathLike[str]
    data: str | PathLike[str]
    device: Literal["auto", "cpu", "cuda", "mps"]
    log: Literal["tensorboard"] | None
    block_size: int
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float
    attention_dropout: float
    bias: bool
    qkv_bias: bool
    tied: bool
    position: Literal["none", "learned", "sinusoidal", "rotary"]
    activation: Literal["gelu", "gelu_erf", "relu", "relu2"]
    feed_forward: bool
    attention: Literal["fused", "heads"]
    previous_heads: int
    counting: int
    steps: int
    step_plan: str
    batch_size: int
    micro_batch_size: int
    learning_rate: float
    embedding_lr: float
    matrix_lr: float
    min_lr: float
    warmup_steps: int
    schedule: Literal["cosine", "linear"]
    weight_decay: float
    beta1: float
    beta2: float
    grad_clip: float
    average: float
    window_order: Literal["random", "epochs"]
    precision: Literal["float32", "bfloat16"]
    compile: bool
    deterministic: bool
    separator: str
    encoding: str
    split: str
    val_fraction: float
    eval_interval: int
    evaluations: int
    eval_chars: int
    eval_part: int
    patience: int
    keep_all: bool
    seed: int

class ResumeOptions(TypedDict, total=False):
    minutes: float | None
    data: str | PathLike[str]
    device: Literal["auto", "cpu", "cuda", "mps"]
    log: Literal["tensorboard"] | None
    steps: int
    micro_batch_size: int
    eval_interval: int
    patience: int
    keep_all: bool
