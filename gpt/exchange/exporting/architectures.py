"""The two architectures of the library transformers that compute what a GPT of gptx computes.

An export holds the model's own numbers: some rows are reordered, and missing biases become zeros.
Nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig
from gpt.errors import ConfigError
from gpt.reading.layers import EPSILON, Array

Tensors = Mapping[str, Array]

ROTARY_BASE = 10_000.0
#: No character begins, ends or pads a text; the architecture's defaults would be other ids.
NO_TOKENS = {f"{role}_token_id": None for role in ("bos", "eos", "pad")}
#: Activation -> its name in transformers.
ACTIVATIONS = {
    "gelu": "gelu_pytorch_tanh",
    "gelu_erf": "gelu",
    "relu": "relu",
    "relu2": "relu2",
}
#: Option -> the values that can be exported.
EXPORTED: dict[str, tuple[Any, ...]] = {
    "position": ("learned", "rotary"),
    "activation": tuple(ACTIVATIONS),
    "feed_forward": (True,),
}


@dataclass(frozen=True)
class Architecture:
    """One architecture. kind: the `model_type` of config.json; name: the class.

    settings: values for config.json. outside: a module outside the blocks -> its name in the
    export. block: how a block's names begin; inside: a module of a block -> its name. transposed:
    whether linear layers store (in, out).
    """

    kind: str
    name: str
    settings: Callable[[ModelConfig], dict[str, Any]]
    outside: Mapping[str, str]
    block: str
    inside: Mapping[str, str]
    transposed: bool

    def config(self, config: ModelConfig, tensors: Tensors) -> dict[str, Any]:
        """The content of config.json. tensors: the model's."""
        return {
            "architectures": [self.name],
            "model_type": self.kind,
            "vocab_size": config.vocab_size,
            **self.settings(config),
            "tie_word_embeddings": config.tied,
            "dtype": str(tensors["token_embedding.weight"].dtype),
            **NO_TOKENS,
        }

    def tensors(self, config: ModelConfig, tensors: Tensors) -> Iterator[tuple[str, Array]]:
        """Name -> numbers of each tensor of the export. tensors: the model's."""
        for module in ("token_embedding", "position", "lm_head"):
            if f"{module}.weight" in tensors:
                yield f"{self.outside[module]}.weight", tensors[f"{module}.weight"]
        modules = {"norm": self.outside["norm"]} | {
            f"blocks.{layer}.{ours}": self.block.format(layer) + theirs
            for layer in range(config.n_layer)
            for ours, theirs in self.inside.items()
        }
        for ours, theirs in modules.items():
            weight = tensors[f"{ours}.weight"]
            bias = tensors.get(f"{ours}.bias", np.zeros(len(weight), weight.dtype))
            if config.position == "rotary" and ours.endswith(".qkv"):
                rows = _rotary_rows(config)
                weight, bias = weight[rows], bias[rows]
            yield f"{theirs}.weight", np.ascontiguousarray(weight.T if self.transposed else weight)
            yield f"{theirs}.bias", bias


def architecture_of(config: ModelConfig) -> Architecture:
    """The architecture that computes what this model computes.

    Raises ConfigError, which says what can be exported and which options of the model cannot.
    """
    values = {name: getattr(config, name) for name in EXPORTED}
    differs = {name: value for name, value in values.items() if value not in EXPORTED[name]}
    if differs:
        named = [f"`{name}={value}`" for name, value in differs.items()]
        raise ConfigError(
            "export: transformers opens models with learned or rotary positions and "
            f"feed-forward layers with {', '.join(ACTIVATIONS)}; this one has {', '.join(named)}"
        )
    return GPT2 if config.position == "learned" else GPT_NEOX


def _rotary_rows(config: ModelConfig) -> npt.NDArray[np.intp]:
    """(3C,) the rows of qkv in the order of GPT-NeoX: query, key and value alternate between heads.

    gptx rotates coordinates 2d and 2d + 1 of a head together, transformers d and d + D/2.
    """
    heads, size = config.n_head, config.head_size
    rows = np.arange(3 * config.n_embd).reshape(3, heads, size)
    rows[:2] = rows[:2][..., [*range(0, size, 2), *range(1, size, 2)]]
    return rows.swapaxes(0, 1).reshape(-1)


def _gpt2(config: ModelConfig) -> dict[str, Any]:
    return {
        "n_positions": config.block_size,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_inner": config.ffn_hidden,
        "activation_function": ACTIVATIONS[config.activation],
        "layer_norm_epsilon": EPSILON,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
    }


def _gpt_neox(config: ModelConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.n_embd,
        "intermediate_size": config.ffn_hidden,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "max_position_embeddings": config.block_size,
        "hidden_act": ACTIVATIONS[config.activation],
        "layer_norm_eps": EPSILON,
        "attention_dropout": config.attention_dropout,
        "hidden_dropout": config.dropout,
        "attention_bias": True,
        "use_parallel_residual": False,
        # Releases before 5 read the first two of these, later ones the last.
        "rotary_pct": 1.0,
        "rotary_emb_base": ROTARY_BASE,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": ROTARY_BASE,
            "partial_rotary_factor": 1.0,
        },
    }


GPT2 = Architecture(
    "gpt2",
    "GPT2LMHeadModel",
    _gpt2,
    {
        "token_embedding": "transformer.wte",
        "position": "transformer.wpe",
        "norm": "transformer.ln_f",
        "lm_head": "lm_head",
    },
    "transformer.h.{}.",
    {
        "norm1": "ln_1",
        "attention.qkv": "attn.c_attn",
        "attention.proj": "attn.c_proj",
        "norm2": "ln_2",
        "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
    },
    transposed=True,
)
GPT_NEOX = Architecture(
    "gpt_neox",
    "GPTNeoXForCausalLM",
    _gpt_neox,
    {
        "token_embedding": "gpt_neox.embed_in",
        "norm": "gpt_neox.final_layer_norm",
        "lm_head": "embed_out",
    },
    "gpt_neox.layers.{}.",
    {
        "norm1": "input_layernorm",
        "attention.qkv": "attention.query_key_value",
        "attention.proj": "attention.dense",
        "norm2": "post_attention_layernorm",
        "feed_forward.up": "mlp.dense_h_to_4h",
        "feed_forward.down": "mlp.dense_4h_to_h",
    },
    transposed=False,
)
