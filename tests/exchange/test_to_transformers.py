"""Exports open with plain transformers and compute the same: logits, ids, texts."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from random_models import CHARACTERS, random_model
from tokenizers import Tokenizer

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: nothing is downloaded

import gpt
from gpt.errors import ConfigError
from gpt.exchange.to_transformers import (
    ACTIVATIONS,
    export,
    tokenizer_json,
)

KINDS: dict[str, dict[str, Any]] = {
    "gpt2": {"position": "learned"},
    "gpt_neox": {"position": "rotary"},
}


def variants() -> Iterator[Any]:
    """Each architecture with each pair of biases and tying, and with each activation."""
    activations = cycle(ACTIVATIONS)
    for kind, options in KINDS.items():
        for tied, bias in product((False, True), repeat=2):
            more = {"tied": tied, "bias": bias, "qkv_bias": tied != bias}
            more["activation"] = next(activations)
            name = f"{kind}-{'-'.join(map(str, more.values()))}"
            yield pytest.param({**options, **more}, id=name)


@pytest.fixture(scope="module")
def transformers() -> Any:
    """The package, without messages; only the worker that runs this file imports it."""
    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


@pytest.mark.parametrize("options", [*variants()])
def test_logits_in_transformers_equal_ours(
    transformers: Any, tmp_path: Path, options: Mapping[str, Any]
) -> None:
    model = random_model(tmp_path, **options)
    exported = export(model, tmp_path / "folder")
    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "folder", output_loading_info=True
    )
    assert not any(report.values()), report
    assert type(loaded).__name__ == exported.architecture
    ids = np.random.default_rng(1).integers(len(CHARACTERS), size=(3, 16))
    with torch.no_grad():
        theirs = loaded(torch.from_numpy(ids)).logits.numpy()
    ours = model.reader.logits(model.reader.forward(ids))
    assert np.abs(ours).max() > 0.5
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"position": "sinusoidal"}, "`position=sinusoidal` and `feed_forward=True`"),
        ({"feed_forward": False}, "`position=rotary` and `feed_forward=False`"),
    ],
)
def test_models_of_another_shape_are_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], named: str
) -> None:
    model = random_model(tmp_path, **KINDS["gpt_neox"] | options)
    with pytest.raises(ConfigError, match=f"learned or rotary .*; this one has {named}$"):
        export(model, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_greedy_text_in_transformers_equals_ours_with_its_cache(
    transformers: Any, tmp_path: Path
) -> None:
    model = random_model(tmp_path, **KINDS["gpt_neox"])
    export(model, tmp_path / "folder")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "folder")
    read = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    prompt = read("ab é\n", return_tensors="pt")
    written = loaded.generate(**prompt, do_sample=False, max_new_tokens=11)
    assert read.decode(written[0]) == model.sample("ab é\n", length=11, temperature=0)
    settings = transformers.GenerationConfig.from_pretrained(tmp_path / "folder")
    assert (settings.do_sample, settings.temperature) == (True, 0.8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported model."""
    place = tmp_path_factory.mktemp("exported")
    export(random_model(place, **KINDS["gpt2"]), place / "folder")
    return place / "folder"


@given(st.text(st.sampled_from(CHARACTERS.characters)))
def test_ids_of_any_text_equal_ours_and_give_the_text_back(text: str) -> None:
    read = Tokenizer.from_str(json.dumps(tokenizer_json(CHARACTERS)))
    ids = read.encode(text).ids
    assert ids == CHARACTERS.encode(text).tolist()
    assert read.decode(ids) == text


def test_tokenizer_of_transformers_changes_no_text(transformers: Any, folder: Path) -> None:
    read = transformers.AutoTokenizer.from_pretrained(folder)
    text = "ab\r\n\n  . é e\u0301 👩\u200d🚀\ufe0f|\0\x85\u2028 .  h "
    ids = read(text)["input_ids"]
    assert ids == CHARACTERS.encode(text).tolist()
    assert read.decode(ids) == text
    assert (len(read), read.model_max_length) == (len(CHARACTERS), 16)
    with pytest.raises(Exception, match="WordLevel error: Missing \\[UNK\\] token"):
        read("abX")


@pytest.mark.usefixtures("transformers")
def test_card_has_what_the_hub_reads_and_code_that_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 30
    _, front, body = text.split("---\n", 2)
    assert yaml.safe_load(front) == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["gptx", "character-level", "gpt2"],
    }
    assert f"gptx {gpt.__version__} exported it as `GPT2LMHeadModel`" in body
    assert f"- Characters: {len(CHARACTERS)}. " in body
    (code,) = re.findall(r"```python\n(.*?)```", body, re.DOTALL)
    prompt = eval(re.findall(r"tokenizer\((.*), return", code)[0])
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})
    assert out.getvalue().startswith(prompt)
    assert len(out.getvalue()) == 16 + 1  # the context, and the newline of print
