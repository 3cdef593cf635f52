"""A folder of transformers with a GPT-2 of characters: the same logits, or one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from foreign import CHARACTERS, logits_of, tokenizer_of, write_gpt2

import gpt
from gpt.errors import ForeignModelError
from gpt.exchange.importing.gpt2_folder import read_gpt2
from gpt.exchange.importing.run import save
from gpt.exchange.importing.tokens import characters_of
from gpt.trained import TrainedGPT


def imported(folder: Path, tmp_path: Path) -> TrainedGPT:
    return gpt.load(save(read_gpt2(folder), tmp_path / "checkpoints", None, None).path.parent)


def refusal(folder: Path) -> str:
    with pytest.raises(ForeignModelError) as raised:
        read_gpt2(folder)
    message = str(raised.value)
    assert message.startswith("not a GPT-2 of characters: ")
    assert "\n" not in message
    return message


def rewritten(path: Path, **changes: Any) -> None:
    """Changes values of a JSON file; None removes one."""
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: each for name, each in values.items() if each is not None}))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("activation", "approximate", "ours"),
    [
        ("gelu_new", "tanh", "gelu"),
        ("gelu_pytorch_tanh", "tanh", "gelu"),
        ("gelu", "none", "gelu_erf"),
    ],
)
def test_imported_model_computes_gpt2s_logits(
    tmp_path: Path, activation: str, approximate: str, ours: str, tied: bool
) -> None:
    options = {"activation_function": activation, "tie_word_embeddings": tied}
    state = write_gpt2(tmp_path / "letters", **options)
    model = imported(tmp_path / "letters", tmp_path)
    ids = torch.randint(len(CHARACTERS), (3, 12), generator=torch.Generator().manual_seed(1))
    found = model.reader.logits(model.reader.forward(ids.numpy()))
    expected = logits_of(state, ids, approximate=approximate).numpy()
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    assert (model.config.activation, model.config.tied) == (ours, tied)
    assert model.manifest.imported == "Hugging Face transformers, letters: GPT-2"
    assert model.path.name == "letters-1"


def test_weights_of_torch_and_names_without_a_prefix_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    state = write_gpt2(folder, activation_function="gelu")
    stored = safetensors.torch.load_file(folder / "model.safetensors")
    os.remove(folder / "model.safetensors")
    plain = {name.removeprefix("transformer."): each for name, each in stored.items()}
    plain["h.0.attn.bias"] = torch.ones(1, 1, 12, 12)
    torch.save(plain, folder / "pytorch_model.bin")
    model, ids = imported(folder, tmp_path), torch.arange(8)[None]
    found = model.reader.logits(model.reader.forward(ids.numpy()))
    np.testing.assert_allclose(found, logits_of(state, ids).numpy(), rtol=0, atol=2e-5)


def test_rows_of_special_tokens_are_left_out_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    characters = ["<pad>", *CHARACTERS, "<eos>"]
    state = write_gpt2(folder, characters, vocab_size=len(characters) + 3)
    added = [{"id": 0, "content": "<pad>", "special": True}, {"content": "<eos>", "special": True}]
    rewritten(folder / "tokenizer.json", added_tokens=added)
    model = imported(folder, tmp_path)
    assert model.vocabulary.characters == "".join(CHARACTERS)
    assert "left out 5 of its 21 tokens, which are no characters (<eos>, <pad>)" in (
        model.manifest.imported
    )
    ids = torch.arange(8)[None]
    expected = logits_of(state, ids + 1, approximate="tanh")[..., 1 : len(CHARACTERS) + 1]
    found = model.reader.logits(model.reader.forward(ids.numpy()))
    np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": "llama"}, "its model_type is 'llama'; gptx imports gpt2"),
        ({"activation_function": "silu"}, "its activation_function 'silu' is not one of gelu_new"),
        ({"activation_function": ["gelu"]}, "its activation_function"),
        ({"n_inner": 33}, "its n_inner is 33, and gptx computes 4 times n_embd"),
        ({"layer_norm_epsilon": 1e-6}, "its layer_norm_epsilon is 1e-06, and gptx computes 1e-05"),
        ({"scale_attn_weights": False}, "its scale_attn_weights is False, and gptx computes True"),
        ({"scale_attn_by_inverse_layer_idx": True}, "its scale_attn_by_inverse_layer_idx is True"),
        ({"add_cross_attention": True}, "its add_cross_attention is True"),
        ({"n_positions": None}, "has no whole number n_positions"),
        ({"vocab_size": True}, "has no whole number vocab_size"),
        ({"vocab_size": 5}, "its tokenizer has more tokens than the model, 5"),
        ({"vocab_size": 99}, "has the shape (16, 8), not (99, 8)"),
        ({"n_layer": 3}, "lacks blocks.2.norm1.weight"),
        ({"n_layer": 1}, "it has blocks.1."),
        ({"n_head": 3}, "n_embd: 8 does not divide"),
        ({"resid_pdrop": 2}, "dropout"),
        ({"tie_word_embeddings": False}, "it lacks lm_head.weight"),
    ],
    ids=str,
)
def test_options_that_gptx_does_not_compute_are_named(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    write_gpt2(tmp_path / "letters")
    rewritten(tmp_path / "letters" / "config.json", **changes)
    assert says in refusal(tmp_path / "letters")


def test_output_weights_that_contradict_the_configuration_are_refused(tmp_path: Path) -> None:
    write_gpt2(tmp_path / "letters", tie_word_embeddings=False)
    rewritten(tmp_path / "letters" / "config.json", tie_word_embeddings=True)
    assert "its output weights (lm_head) are not its embeddings" in refusal(tmp_path / "letters")


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    write_gpt2(folder)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-9])
    assert "model.safetensors (it is damaged)" in refusal(folder)
    os.remove(folder / "model.safetensors")
    assert "neither model.safetensors nor pytorch_model.bin" in refusal(folder)
    (folder / "tokenizer.json").write_text("{")
    assert "damaged" in refusal(folder)
    os.remove(folder / "tokenizer.json")
    assert "it has neither tokenizer.json nor vocab.json" in refusal(folder)
    os.remove(folder / "config.json")
    assert "cannot read" in refusal(folder)


def test_vocabulary_file_of_characters_is_read_and_one_of_bpe_refused(tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    write_gpt2(folder)
    os.remove(folder / "tokenizer.json")
    vocab = {character: id for id, character in enumerate(CHARACTERS)}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    assert read_gpt2(folder).characters == "".join(CHARACTERS)
    (folder / "merges.txt").write_text("#version: 0.2\n")
    assert read_gpt2(folder).characters == "".join(CHARACTERS)
    (folder / "merges.txt").write_text("#version: 0.2\nt h\n")
    assert "its tokens are parts of words (BPE); gptx is character-level" in refusal(folder)
    os.remove(folder / "merges.txt")
    (folder / "vocab.json").write_text(
        json.dumps({"Ġ" if c == " " else c: n for c, n in vocab.items()})
    )
    assert "its tokens are bytes; gptx is character-level" in refusal(folder)


IDS = {character: id for id, character in enumerate(CHARACTERS)}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
TEMPLATE = {"type": "TemplateProcessing", "single": [TEXT], "special_tokens": {}}
END = {"SpecialToken": {"id": "<eos>", "type_id": 0}}
BPE = {"type": "BPE", "vocab": IDS, "merges": []}


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"model": BPE, "pre_tokenizer": None},
        {"model": {"vocab": IDS, "merges": []}, "pre_tokenizer": None},
        {"model": BPE},
        {"post_processor": TEMPLATE},
        {
            "model": {"type": "Unigram", "vocab": [[each, -1.0] for each in CHARACTERS]},
            "pre_tokenizer": None,
        },
    ],
)
def test_tokenizers_of_characters_are_accepted(parts: dict[str, Any]) -> None:
    assert characters_of(tokenizer_of(CHARACTERS, **parts)) == (IDS, [])


def split(**changes: Any) -> dict[str, Any]:
    whole = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated"}
    return {"pre_tokenizer": {**whole, **changes}}


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"model": {**BPE, "merges": ["t h"]}}, "parts of words"),
        ({"model": {**BPE, "byte_fallback": True}}, "parts of words"),
        ({"model": {**BPE, "end_of_word_suffix": "</w>"}}, "parts of words"),
        ({"model": {**BPE, "vocab": {**IDS, "the": 99}}}, "'the' is not a character"),
        ({"model": {**BPE, "vocab": {"a": 0, "b": 0}}}, "two with one id"),
        ({"model": {**BPE, "vocab": {"a": "0"}}}, "ids that are no whole numbers"),
        ({"model": {**BPE, "vocab": {"a": -1}}}, "ids that are no whole numbers"),
        ({"model": {**BPE, "vocab": {}}}, "no characters"),
        ({"model": {"type": "WordPiece", "vocab": IDS}}, "'WordPiece' is not WordLevel, BPE or"),
        ({"model": None}, "is not WordLevel"),
        ({"model": {"type": "Unigram", "vocab": 5}}, "its tokenizer Unigram has no vocabulary"),
        ({"model": {"type": "Unigram", "vocab": [[[], 0], [{}], 5, []]}}, "has no characters"),
        ({"normalizer": {"type": "NFC"}}, "has a normalizer, which changes texts"),
        ({"post_processor": {"type": "TemplateProcessing"}}, "has a post_processor"),
        ({"post_processor": {**TEMPLATE, "single": [TEXT, END]}}, "has a post_processor"),
        ({"post_processor": {**TEMPLATE, "single": [TEXT, TEXT]}}, "has a post_processor"),
        ({"post_processor": 5}, "has a post_processor"),
        ({"added_tokens": [{"content": "the", "special": False}]}, "added tokens"),
        ({"added_tokens": ["the"]}, "added tokens"),
        ({"added_tokens": 5}, "added tokens"),
        ({"pre_tokenizer": {"type": "ByteLevel"}, "model": BPE}, "does not split texts into"),
        ({"pre_tokenizer": {"type": "Metaspace"}, "model": BPE}, "does not split texts into"),
        ({"pre_tokenizer": None}, "does not split texts into characters"),
        (split(behavior="Removed"), "does not split texts into characters"),
        (split(pattern={"Regex": "."}), "does not split texts into characters"),
        (split(pattern=5), "does not split texts into characters"),
    ],
)
def test_tokenizers_of_other_tokens_are_refused(parts: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        characters_of(tokenizer_of(CHARACTERS, **parts))


@pytest.mark.parametrize("content", [[], "text", {}, {"model": {"type": []}}])
def test_any_json_is_answered_with_one_line(tmp_path: Path, content: Any) -> None:
    for name in ("config.json", "tokenizer.json"):
        folder = tmp_path / name
        write_gpt2(folder)
        (folder / name).write_text(json.dumps(content))
        refusal(folder)


def test_code_in_weights_of_torch_never_runs(tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    write_gpt2(folder)
    os.remove(folder / "model.safetensors")

    class Payload:
        def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    torch.save({"transformer.wte.weight": Payload()}, folder / "pytorch_model.bin")
    assert "would call" in refusal(folder)
    assert not (tmp_path / "ran").exists()
