"""Architectures of the library transformers that compute what a GPT of gptx computes.

Each takes some options of a model; layout.py turns the model's tensors into those that it expects.
"""

from __future__ import annotations

from typing import Any

from gpt.config import ModelConfig
from gpt.errors import ConfigError
from gpt.exchange.exporting.layout import ALWAYS, DOWN, LINEAR, PROJ, QKV, UP, Architecture
from gpt.reading.layers import EPSILON

ROTARY_BASE = 10_000.0
#: Activation -> its name in transformers. A gated activation has the name of its gate's function.
ACTIVATIONS = {
    "gelu": "gelu_pytorch_tanh",
    "gelu_erf": "gelu",
    "relu": "relu",
    "relu2": "relu2",
    "swiglu": "silu",
}
PLAIN = ("gelu", "gelu_erf", "relu", "relu2")


def architecture_of(config: ModelConfig) -> Architecture:
    """The architecture that computes what this model computes.

    Raises ConfigError that names the options in which the nearest one differs.
    """
    nearest = min(ARCHITECTURES, key=lambda each: len(each.differs(config)))
    if differs := nearest.differs(config):
        values = {name: getattr(config, name) for name in differs}
        named = [
            f"`{n}`" if value in (True, False) else f"`{n}={value}`" for n, value in values.items()
        ]
        raise ConfigError(
            "transformers has no architecture for this model: the nearest, "
            f"{nearest.name}, differs in {', '.join(named)}"
        )
    return nearest


def _added(config: ModelConfig) -> dict[str, Any]:
    """config.json of GPT and GPT-2."""
    return {
        "n_positions": config.block_size,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "layer_norm_epsilon": EPSILON,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
    }


def _rotary(config: ModelConfig, epsilon: str) -> dict[str, Any]:
    """config.json of all architectures with rotary positions. epsilon: its name."""
    return {
        "hidden_size": config.n_embd,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_head,
        "head_dim": config.head_size,
        "max_position_embeddings": config.block_size,
        "hidden_act": ACTIVATIONS[config.activation],
        epsilon: EPSILON,
        "attention_dropout": config.attention_dropout,
        # Releases before 5 read the first two, later ones the last.
        "rope_theta": ROTARY_BASE,
        "rope_scaling": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROTARY_BASE},
    }


def _whole_head(config: ModelConfig) -> dict[str, Any]:
    """config.json of architectures that can turn a part of each head: all of it is turned."""
    values = _rotary(config, "layer_norm_eps")
    values["rope_parameters"]["partial_rotary_factor"] = 1.0
    return values | {
        "hidden_dropout": config.dropout,
        "use_parallel_residual": False,
        "partial_rotary_factor": 1.0,
    }


def _root_mean_square(config: ModelConfig) -> dict[str, Any]:
    return _rotary(config, "rms_norm_eps")


_GPT_BLOCK = {
    "norm1": ("ln_1",),
    QKV: ("attn.c_attn",),
    PROJ: ("attn.c_proj",),
    "norm2": ("ln_2",),
    UP: ("mlp.c_fc",),
    DOWN: ("mlp.c_proj",),
}
_LLAMA_STEM = {
    "token_embedding": "model.embed_tokens",
    "norm": "model.norm",
    "lm_head": "lm_head",
}
_LLAMA_BLOCK = {
    "norm1": ("input_layernorm",),
    QKV: ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    PROJ: ("self_attn.o_proj",),
    "norm2": ("post_attention_layernorm",),
    UP: ("mlp.gate_proj", "mlp.up_proj"),
    DOWN: ("mlp.down_proj",),
}


def _options(
    position: tuple[str, ...], norm: str, activation: tuple[str, ...], **more: tuple[Any, ...]
) -> dict[str, tuple[Any, ...]]:
    plain = {"post_norm": (False,)}
    return {"position": position, "norm": (norm,), "activation": activation, **plain, **more}


#: All architectures; a model has the first one that takes its options.
ARCHITECTURES = (
    Architecture(
        "gpt2",
        "GPT2LMHeadModel",
        _options(("learned", "sinusoidal"), "layer", PLAIN),
        lambda config: (
            _added(config)
            | {"n_inner": config.hidden, "activation_function": ACTIVATIONS[config.activation]}
        ),
        {
            "token_embedding": "transformer.wte",
            "position": "transformer.wpe",
            "norm": "transformer.ln_f",
            "lm_head": "lm_head",
        },
        "transformer.h.{}.",
        _GPT_BLOCK,
        {ALWAYS: LINEAR},
        transposed=True,
    ),
    Architecture(  # its "gelu" is the tanh form, and its feed-forward layers are 4 n_embd wide
        "openai-gpt",
        "OpenAIGPTLMHeadModel",
        _options(("learned", "sinusoidal"), "layer", ("gelu", "relu"), post_norm=(True,)),
        lambda config: _added(config) | {"afn": config.activation},
        {
            "token_embedding": "transformer.tokens_embed",
            "position": "transformer.positions_embed",
            "lm_head": "lm_head",
        },
        "transformer.h.{}.",
        _GPT_BLOCK,
        {ALWAYS: LINEAR},
        transposed=True,
    ),
    Architecture(
        "gpt_neox",
        "GPTNeoXForCausalLM",
        _options(("rotary",), "layer", PLAIN),
        lambda config: (
            _whole_head(config)
            | {"rotary_pct": 1.0, "rotary_emb_base": ROTARY_BASE, "attention_bias": True}
        ),
        {
            "token_embedding": "gpt_neox.embed_in",
            "norm": "gpt_neox.final_layer_norm",
            "lm_head": "embed_out",
        },
        "gpt_neox.layers.{}.",
        {
            "norm1": ("input_layernorm",),
            QKV: ("attention.query_key_value",),
            PROJ: ("attention.dense",),
            "norm2": ("post_attention_layernorm",),
            UP: ("mlp.dense_h_to_4h",),
            DOWN: ("mlp.dense_4h_to_h",),
        },
        {ALWAYS: LINEAR},
        by_head=True,
    ),
    Architecture(
        "stablelm",
        "StableLmForCausalLM",
        _options(("rotary",), "layer", ("swiglu",), bias=(False,)),
        _whole_head,
        _LLAMA_STEM,
        "model.layers.{}.",
        _LLAMA_BLOCK,
        {"use_qkv_bias": (QKV,)},
    ),
    Architecture(
        "llama",
        "LlamaForCausalLM",
        _options(("rotary",), "rms", ("swiglu",)),
        _root_mean_square,
        _LLAMA_STEM,
        "model.layers.{}.",
        _LLAMA_BLOCK,
        {"attention_bias": (QKV, PROJ), "mlp_bias": (UP, DOWN)},
    ),
    Architecture(
        "arcee",
        "ArceeForCausalLM",
        _options(("rotary",), "rms", PLAIN),
        _root_mean_square,
        _LLAMA_STEM,
        "model.layers.{}.",
        {**_LLAMA_BLOCK, UP: ("mlp.up_proj",)},
        {"attention_bias": (QKV, PROJ), "mlp_bias": (UP, DOWN)},
    ),
)
