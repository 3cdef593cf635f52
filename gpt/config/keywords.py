"""Options as keywords of Python functions: typed, shown by help() and completed by editors.

A function takes `**options: Unpack[SampleOptions]`, which type checkers read, and `takes` gives it
a signature with every keyword and its default, from the dataclass. The types below repeat the
dataclasses' names and types, as type checkers cannot derive them; a test compares both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from functools import wraps
from typing import Any, TypedDict, TypeVar

from gpt.checks import checks_arguments, unexpected_keyword
from gpt.config.fields import field_help, field_types
from gpt.config.model import Activation, Attention, Norm, Position
from gpt.config.sample import Only
from gpt.config.train import Precision, Schedule, WindowOrder

Function = TypeVar("Function", bound=Callable[..., Any])
KEYWORD, KEYWORDS = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD


class ShapingOptions(TypedDict, total=False):
    """Options of SampleConfig that change the distribution of the next character."""

    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    only: Only | None


class SampleOptions(ShapingOptions, total=False):
    """Options of SampleConfig but n."""

    length: int
    seed: int


class ResumeOptions(TypedDict, total=False):
    """Options of TrainConfig that may change when a run is resumed."""

    steps: int
    eval_interval: int
    patience: int
    keep_all: bool
    micro_batch_size: int


class TrainOptions(ResumeOptions, total=False):
    """Options of ModelConfig and TrainConfig."""

    block_size: int
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float
    attention_dropout: float
    bias: bool
    qkv_bias: bool
    tied: bool
    position: Position
    norm: Norm
    activation: Activation
    attention: Attention
    previous_heads: int
    counting: int
    encoder_layers: int
    shared_embedding: bool
    scaled_embedding: bool
    post_norm: bool
    step_plan: str
    batch_size: int
    learning_rate: float
    embedding_lr: float
    min_lr: float
    warmup_steps: int
    schedule: Schedule
    weight_decay: float
    beta1: float
    beta2: float
    grad_clip: float
    average: float
    window_order: WindowOrder
    precision: Precision
    compile: bool
    deterministic: bool
    separator: str
    split: str
    val_fraction: float
    min_count: int
    evaluations: int
    eval_chars: int
    eval_part: int
    seed: int
    freeze: str


def takes(
    names: Collection[str], *configs: type, defaults: Mapping[str, Any] | None = None
) -> Callable[[Function], Function]:
    """Decorates a function that takes fields of dataclasses as `**options`.

    Its signature and docstring then name them, in the order of the dataclasses. defaults:
    name -> default to show in place of the dataclass's. The function raises TypeError for any other
    keyword and names those that it takes.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind != KEYWORDS]
        options = list(_parameters(names, configs, defaults or {}))
        shown = [each.replace(annotation=Unquoted(each.annotation)) for each in (*own, *options)]
        known = [each.name for each in shown if each.name != "self"]

        call = checks_arguments(function)

        @wraps(call)
        def checked(*args: Any, **keywords: Any) -> Any:
            for name in keywords:
                if name not in known:
                    raise TypeError(unexpected_keyword(function.__name__, name, known))
            return call(*args, **keywords)

        result = Unquoted(signature.return_annotation)
        checked.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=shown, return_annotation=result
        )
        helps = {
            name: text
            for config in configs
            for name, text in field_help(config, flags=False).items()
        }
        lines = (f"    {each.name}: {helps[each.name]}" for each in options)
        checked.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", *lines])
        return checked  # type: ignore[return-value]

    return decorate


class Unquoted(str):
    """A text that help() shows without quotes."""

    __repr__ = str.__str__


def _parameters(
    names: Collection[str], configs: tuple[type, ...], defaults: Mapping[str, Any]
) -> Iterator[inspect.Parameter]:
    for config in configs:
        kinds = field_types(config)
        for field in fields(config):
            if field.name in names:
                kind = inspect.formatannotation(kinds[field.name]).replace("typing.", "")
                default = defaults.get(field.name, field.default)
                yield inspect.Parameter(field.name, KEYWORD, default=default, annotation=kind)
