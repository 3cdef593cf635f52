"""Exports a model as a folder that the library transformers opens: `gptx export`, `gpt.export`.

gptx writes the files without transformers and without torch. A model of gptx becomes a GPT-2 or, if
it has rotary positions, a GPT-NeoX. The exported parameters equal those of the model, but some rows
have another order, and missing biases are zeros.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt import __version__
from gpt.config import ModelConfig, SampleConfig
from gpt.errors import ConfigError
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import EPSILON, Array
from gpt.storage import files
from gpt.storage.run import MODEL
from gpt.vocabulary import Vocabulary

CARD = "README.md"
TAG = "\n- gptx\n"  # the line of an export's README.md that names gptx
COUNTS = "the export has only the GPT, not the counts of n-grams; `gptx eval` shows the GPT's loss"
ROTARY_BASE = 10_000.0
#: No token begins, ends or pads a text. Without these entries, transformers would assume such ids.
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
#: The activation functions' names in gptx -> in transformers.
ACTIVATIONS = {"gelu": "gelu_pytorch_tanh", "gelu_erf": "gelu", "relu": "relu", "relu2": "relu2"}
#: The name of a module outside the layers in gptx -> its names in GPT-2 and in GPT-NeoX.
OUTSIDE = {
    "token_embedding": ("transformer.wte", "gpt_neox.embed_in"),
    "position": ("transformer.wpe", ""),  # GPT-NeoX has rotary positions
    "norm": ("transformer.ln_f", "gpt_neox.final_layer_norm"),
    "lm_head": ("lm_head", "embed_out"),
}
IN_LAYER = {
    "norm1": ("ln_1", "input_layernorm"),
    "attention.qkv": ("attn.c_attn", "attention.query_key_value"),
    "attention.proj": ("attn.c_proj", "attention.dense"),
    "norm2": ("ln_2", "post_attention_layernorm"),
    "feed_forward.up": ("mlp.c_fc", "mlp.dense_h_to_4h"),
    "feed_forward.down": ("mlp.c_proj", "mlp.dense_4h_to_h"),
}
LAYER = ("transformer.h.{}", "gpt_neox.layers.{}")
WITHOUT_BIAS = ("token_embedding", "position", "lm_head")


def transformers_names(config: ModelConfig) -> dict[str, str]:
    """The modules' names in gptx -> in transformers, for every module that this model may have."""
    column = 0 if config.position == "learned" else 1
    modules = {ours: theirs[column] for ours, theirs in OUTSIDE.items()}
    for layer in range(config.n_layer):
        for ours, theirs in IN_LAYER.items():
            modules[f"blocks.{layer}.{ours}"] = f"{LAYER[column].format(layer)}.{theirs[column]}"
    return modules


def exported_tensors(config: ModelConfig, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Converts the model's tensors into those of transformers: name -> array."""
    exported = {}
    for ours, theirs in transformers_names(config).items():
        weight = tensors.get(f"{ours}.weight")
        if weight is None:  # tied output weights are the token embedding
            continue
        bias = tensors.get(f"{ours}.bias", np.zeros(len(weight), weight.dtype))
        if config.position == "rotary" and ours.endswith(".qkv"):
            rows = _rotary_rows(config)
            weight, bias = weight[rows], bias[rows]
        if config.position == "learned" and ours.startswith("blocks."):
            weight = np.ascontiguousarray(weight.T)  # linear layers of GPT-2 store (in, out)
        exported[f"{theirs}.weight"] = weight
        if ours not in WITHOUT_BIAS:
            exported[f"{theirs}.bias"] = bias
    return exported


def _rotary_rows(config: ModelConfig) -> npt.NDArray[np.intp]:
    """(3·n_embd,) the rows of qkv in the order of GPT-NeoX: query, key and value head by head.

    gptx rotates coordinates 2d and 2d + 1 of a head together; transformers rotates d and
    d + head_size / 2.
    """
    heads, size = config.n_head, config.head_size
    rows = np.arange(3 * config.n_embd).reshape(3, heads, size)
    rows[:2] = rows[:2][..., [*range(0, size, 2), *range(1, size, 2)]]
    return rows.swapaxes(0, 1).reshape(-1)


def config_json(config: ModelConfig) -> dict[str, Any]:
    """The content of config.json. Raises ConfigError if transformers cannot compute this model."""
    if config.position not in ("learned", "rotary") or not config.feed_forward:
        raise ConfigError(
            "export: transformers opens models with learned or rotary positions and feed-forward "
            f"layers; this one has `position={config.position}` and "
            f"`feed_forward={config.feed_forward}`"
        )
    shared = {
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": config.tied,
        "dtype": "float32",
        **NO_TOKENS,
    }
    if config.position == "learned":
        return shared | {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
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
    return shared | {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "hidden_size": config.n_embd,
        "intermediate_size": config.ffn_hidden,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "max_position_embeddings": config.block_size,
        "hidden_act": ACTIVATIONS[config.activation],
        "layer_norm_eps": EPSILON,
        "attention_dropout": config.attention_dropout,
        "hidden_dropout": config.dropout,
        "use_parallel_residual": False,
        # transformers before release 5 reads the first two entries, later releases the third.
        "rotary_pct": 1.0,
        "rotary_emb_base": ROTARY_BASE,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": ROTARY_BASE,
            "partial_rotary_factor": 1.0,
        },
    }


def tokenizer_json(vocabulary: Vocabulary) -> dict[str, Any]:
    """The content of tokenizer.json. Every character is a token, with its id in gptx."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,  # text is never changed
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": r"[\s\S]"},  # "." does not match a newline
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": None,
        "decoder": {"type": "Fuse"},  # nothing between characters
        "model": {
            "type": "WordLevel",
            "vocab": {character: number for number, character in enumerate(vocabulary.characters)},
            # No token has this text, so a character that the model does not know is an error, as in
            # gptx. Without this entry, transformers would leave out such characters.
            "unk_token": "<unknown>",
        },
    }


def model_card(model: TrainedGPT, settings: Mapping[str, Any]) -> str:
    """The text of README.md, which the Hugging Face Hub reads. settings: config.json's content."""
    template = Path(__file__).with_name("card.md").read_text("utf-8")
    config, prompt = model.config, model.stored.example_text()
    return template.format(
        kind=settings["model_type"],
        architecture=settings["architectures"][0],
        parameters=config.parameters(),
        version=__version__,
        vocabulary=config.vocab_size,
        context=config.block_size,
        prompt=prompt,
        new=max(1, config.block_size - len(prompt)),
    )


@dataclass(frozen=True)
class ExportedFolder:
    """The folder that an export wrote.

    architecture: the name of the class in transformers. files: file name -> size in bytes. note:
    what the export left out of a model that counts n-grams; "" for other models.
    """

    path: Path
    architecture: str
    files: Mapping[str, int]
    note: str


def export(model: TrainedGPT, path: str | Path, *, force: bool = False) -> ExportedFolder:
    """Writes the model into a folder that `transformers` opens.

    force: replace the files of an earlier export; other files in the folder stay.

    Raises ConfigError if transformers cannot compute the model, or if the folder has files, unless
    `force` is true and they are an earlier export. Raises StorageError.
    """
    import safetensors.numpy

    path, config = Path(path), model.config
    about = config_json(config)
    generation = {
        "do_sample": True,
        "temperature": SampleConfig().temperature,
        **NO_TOKENS,
    }
    tokens = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.block_size,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }
    tensors = exported_tensors(config, model.stored.tensors)
    contents = {
        MODEL: safetensors.numpy.save(tensors, metadata={"format": "pt"}),
        "config.json": _json(about),
        "generation_config.json": _json(generation),
        "tokenizer.json": _json(tokenizer_json(model.vocabulary)),
        "tokenizer_config.json": _json(tokens),
        CARD: model_card(model, about).encode(),
    }
    with files.storage_errors(f"write {path}"):
        _check_place(path, sorted(contents), force)
        if path.is_dir():
            for name, data in contents.items():
                files.replace(path / name, data)
        else:
            files.commit_folder(path, contents)
    sizes = {name: len(data) for name, data in contents.items()}
    return ExportedFolder(path, about["architectures"][0], sizes, COUNTS if config.counting else "")


def _json(values: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(values, ensure_ascii=False, indent=2, allow_nan=False)}\n".encode()


def _check_place(path: Path, names: list[str], force: bool) -> None:
    """Raises ConfigError if `path` is a folder with files, unless `force` is true and it has an
    earlier export. names: the files of an export. Raises OSError.
    """
    if not path.is_dir() or not any(path.iterdir()):
        return
    whole = all((path / name).is_file() for name in names)
    if not force or not whole or TAG not in (path / CARD).read_text("utf-8", "replace"):
        raise ConfigError(
            f"export: {path} exists already and has files; name another folder (`force` replaces "
            "an earlier export, no other files)"
        )
