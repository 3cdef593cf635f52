"""Exports open with plain transformers and compute the same: logits, ids, texts."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_models import CHARACTERS, random_model
from tokenizers import Tokenizer

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: nothing is downloaded

from gpt.config import ModelConfig
from gpt.config.fields import field_help
from gpt.config.presets import PRESETS, preset
from gpt.errors import ConfigError
from gpt.exchange.exporting.architectures import ACTIVATIONS, architecture_of
from gpt.exchange.exporting.export import export, tokenizer

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
            yield pytest.param(
                {**options, **more}, id=f"{kind}-{'-'.join(map(str, more.values()))}"
            )


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
    found = export(model, tmp_path / "folder")
    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(
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


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", PRESETS)
def test_models_of_all_presets_are_exported(name: str, device: str) -> None:
    fields = field_help(ModelConfig)
    options = {name: it for name, it in preset(name, device).items() if name in fields}
    kind = "gpt2" if name == "classic" else "gpt_neox"
    assert architecture_of(ModelConfig(vocab_size=3, **options)).kind == kind


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"position": "sinusoidal"}, "`position=sinusoidal`"),
        ({"feed_forward": False}, "`feed_forward=False`"),
        ({"position": "none", "feed_forward": False}, "`position=none`, `feed_forward=False`"),
    ],
)
def test_models_of_another_shape_are_refused_with_what_can_be_exported(
    options: dict[str, Any], named: str
) -> None:
    config = ModelConfig(vocab_size=3, **KINDS["gpt_neox"] | options)
    with pytest.raises(ConfigError) as caught:
        architecture_of(config)
    assert str(caught.value).startswith("export: transformers opens models with learned or rotary")
    assert str(caught.value).endswith(f"; this one has {named}")


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
def test_the_code_of_the_model_card_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    text = (folder / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    prompt = eval(re.findall(r"tokenizer\((.*), return", code)[0])
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})
    assert out.getvalue().startswith(prompt)
    assert len(out.getvalue()) == 16 + 1  # the context, and the newline of print


@pytest.mark.parametrize("options", KINDS.values())
def test_the_numbers_of_an_export_are_the_models(
    options: Mapping[str, Any], tmp_path: Path
) -> None:
    model = random_model(tmp_path, **options)
    tensors = model.stored.tensors
    exported = dict(architecture_of(model.config).tensors(model.config, tensors))

    def numbers(arrays: Iterable[Any]) -> list[bytes]:
        return sorted(np.sort(each, axis=None).tobytes() for each in arrays if each.any())

    assert numbers(exported.values()) == numbers(tensors.values())
