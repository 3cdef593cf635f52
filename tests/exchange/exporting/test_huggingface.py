"""Exports open with plain transformers and compute the same: logits, ids, texts."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_models import CHARACTERS, random_model
from tokenizers import Tokenizer

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: nothing is downloaded

from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging

from gpt.config import ModelConfig
from gpt.config.fields import field_help
from gpt.config.model import Activation, Norm, Position
from gpt.errors import ConfigError, NumericsError
from gpt.exchange.exporting import huggingface
from gpt.exchange.exporting.architectures import ACTIVATIONS, ARCHITECTURES, PLAIN, architecture_of
from gpt.exchange.exporting.export import export
from gpt.exchange.exporting.tokenizer import tokenizer

BIASES = [name for name in ("bias", "qkv_bias") if name in field_help(ModelConfig)]
OF_GPT2 = {"norm": "layer"}
ROTARY = {"position": "rotary"}
KINDS: dict[str, dict[str, Any]] = {
    "gpt2": {"position": "learned", **OF_GPT2},
    "openai-gpt": {"position": "learned", **OF_GPT2, "post_norm": True, "activation": "gelu"},
    "gpt_neox": {**ROTARY, "norm": "layer"},
    "stablelm": {**ROTARY, "norm": "layer", "activation": "swiglu"},
    "llama": {**ROTARY, "norm": "rms", "activation": "swiglu"},
    "arcee": {**ROTARY, "norm": "rms"},
}


def variants() -> Iterator[Any]:
    """Each architecture with each bias, tied or not, and each activation that it takes."""
    yield pytest.param({**KINDS["gpt2"], "position": "sinusoidal"}, id="sinusoidal")
    scaled = {**KINDS["gpt2"], "position": "sinusoidal", "scaled_embedding": True}
    for tied in (True, False):
        yield pytest.param({**scaled, "tied": tied}, id=f"scaled-{tied}")
    for kind, options in KINDS.items():
        for tied, *biases in product((False, True), repeat=1 + len(BIASES)):
            more = {"tied": tied, **dict(zip(BIASES, biases, strict=True))}
            if more["bias"] and kind == "stablelm":
                continue
            yield pytest.param(
                {**options, **more}, id=f"{kind}-{'-'.join(map(str, more.values()))}"
            )
        if "activation" not in options:
            for activation in sorted({*get_args(Activation)} & {*PLAIN}):
                yield pytest.param({**options, "activation": activation}, id=f"{kind}-{activation}")


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()


@pytest.mark.parametrize("options", [*variants()])
def test_logits_in_transformers_equal_ours(tmp_path: Path, options: Mapping[str, Any]) -> None:
    model = random_model(tmp_path, **options)
    found = export(model, tmp_path / "folder")
    loaded, report = AutoModelForCausalLM.from_pretrained(
        tmp_path / "folder", output_loading_info=True
    )
    assert not any(report.values()), report
    assert type(loaded).__name__ == found.architecture
    assert loaded.num_parameters() == sum(each.numel() for each in loaded.parameters())
    ids = np.random.default_rng(1).integers(len(CHARACTERS), size=(3, 16))
    with torch.no_grad():
        theirs = loaded(torch.from_numpy(ids)).logits.numpy()
    ours = model.reader.logits(model.reader.forward(ids))
    assert np.abs(ours).max() > 0.5
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-5)


def test_each_architecture_is_that_of_its_kind_of_models() -> None:
    assert [each.kind for each in ARCHITECTURES] == [*KINDS]
    for kind, options in KINDS.items():
        assert architecture_of(ModelConfig(vocab_size=3, **options)).kind == kind
    assert {*get_args(Activation)} <= {*ACTIVATIONS}


def test_models_without_an_architecture_are_refused_with_the_options_that_differ() -> None:
    switches = product((False, True), repeat=2)
    refused = 0
    for position, norm, activation, (bias, post_norm) in product(
        get_args(Position), get_args(Norm), get_args(Activation), [*switches]
    ):
        options = {"position": position, "norm": norm, "activation": activation}
        options |= {"bias": bias, "post_norm": post_norm}
        config = ModelConfig(vocab_size=3, **options)
        if any(not each.differs(config) for each in ARCHITECTURES):
            assert architecture_of(config)
            continue
        with pytest.raises(ConfigError, match="transformers has no architecture") as caught:
            architecture_of(config)
        named = re.findall(r"`(\w+)(?:=(\w+))?`", caught.value.reason)
        assert named
        assert all(str(options[name]) == (value or str(options[name])) for name, value in named)
        refused += 1
    assert refused > 70
    with pytest.raises(ConfigError, match=r"GPT2LMHeadModel, differs in `norm=rms`"):
        architecture_of(ModelConfig(vocab_size=3, position="learned"))


def test_greedy_text_in_transformers_equals_ours_with_its_cache(tmp_path: Path) -> None:
    model = random_model(tmp_path, **KINDS["gpt_neox"])
    export(model, tmp_path / "folder")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "folder")
    read = AutoTokenizer.from_pretrained(tmp_path / "folder")
    prompt = read("ab é\n", return_tensors="pt")
    written = loaded.generate(**prompt, do_sample=False, max_new_tokens=11)
    assert read.decode(written[0]) == model.generate("ab é\n", length=11, temperature=0)
    settings = GenerationConfig.from_pretrained(tmp_path / "folder")
    assert (settings.temperature, settings.max_new_tokens) == (0.8, 8)
    longer = loaded.generate(**prompt)
    assert longer.shape == (1, 13)  # no character ends a text before max_new_tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported model."""
    place = tmp_path_factory.mktemp("exported")
    export(random_model(place, **KINDS["gpt2"]), place / "folder")
    return place / "folder"


TEXTS = st.text(st.sampled_from(CHARACTERS.characters))


@given(TEXTS)
def test_ids_of_any_text_equal_ours_and_give_the_text_back(text: str) -> None:
    read = Tokenizer.from_str(json.dumps(tokenizer(CHARACTERS)))
    ids = read.encode(text).ids
    assert ids == CHARACTERS.encode(text).tolist()
    assert read.decode(ids) == text


def test_tokenizer_of_transformers_changes_no_text(folder: Path) -> None:
    read = AutoTokenizer.from_pretrained(folder)
    text = "ab\r\n\n  . é e\u0301 👩\u200d🚀\ufe0f|\0\x85\u2028 .  h "
    ids = read(text)["input_ids"]
    assert ids == CHARACTERS.encode(text).tolist()
    assert read.decode(ids) == text
    assert (len(read), read.model_max_length) == (len(CHARACTERS), 16)
    with pytest.raises(Exception, match="WordLevel error: Missing \\[UNK\\] token"):
        read("abX")


def test_the_code_of_the_model_card_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    text = (folder / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    prompt = eval(re.findall(r"tokenizer\((.*), return", code)[0])
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})
    assert out.getvalue().startswith(prompt)
    assert len(out.getvalue()) == 16 + 1  # the context, and the newline of print


def test_an_export_that_is_not_the_model_is_refused(tmp_path: Path) -> None:
    model = random_model(tmp_path, **KINDS["llama"])
    tensors = huggingface.plain(model.stored)
    parts = list(architecture_of(model.config).parts(model.config, tensors))
    dtype = np.dtype(np.float32)
    whole = {part.name: part.of(tensors, dtype) for part in parts}
    huggingface.check(parts, whole, tensors)
    for name in ("model.layers.1.self_attn.k_proj.weight", "model.norm.weight", "lm_head.weight"):
        changed = whole[name].copy()
        changed.view(np.uint32).flat[3] ^= 1
        with pytest.raises(NumericsError, match="the export is wrong"):
            huggingface.check(parts, {**whole, name: changed}, tensors)
    left_out = [part for part in parts if part.name != "model.layers.0.mlp.up_proj.weight"]
    with pytest.raises(NumericsError, match=r"blocks\.0\.feed_forward\.up\.weight unchanged"):
        huggingface.check(left_out, whole, tensors)
