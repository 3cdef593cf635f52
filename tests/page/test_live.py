"""The page of a model: what the file has, that it proves its numbers, and what the command says."""

from __future__ import annotations

import base64
import re
import runpy
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import train_tiny
from javascript import JavaScript, JavaScriptError
from pages import HOSTILE, Document, payload_of
from program import Gptx
from random_models import random_file

import gpt
from gpt.errors import ConfigError
from gpt.heads.survey import mean_contexts
from gpt.interface.trained import TrainedGPT
from gpt.page import live
from gpt.page.live import MOST, Bits, join_scripts, live_page, model_record, round_tensors
from gpt.reading.gpt import Reader
from gpt.vocabulary import Vocabulary

#: Models with random weights.
KINDS: dict[str, dict[str, Any]] = {
    "classic": {"position": "learned", "activation": "gelu", "bias": True, "tied": True},
    "wide": {"activation": "relu2", "n_embd": 64, "n_head": 4},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    """With counting."""
    folder = tmp_path_factory.mktemp("live")
    return gpt.load(train_tiny(folder, counting=4).path.parent)


def record_of(model: TrainedGPT, bits: Bits = 32) -> dict[str, Any]:
    return model_record(model.stored, model.vocabulary.encode(model.stored.excerpt), bits)


def test_a_page_has_the_model_no_folder_and_no_address(run: TrainedGPT) -> None:
    assert run.checkpoint
    corpus = replace(run.manifest.corpus, sources=("/home/me/novel.txt",))
    saved = replace(run.checkpoint, manifest=replace(run.manifest, corpus=corpus))
    html = live_page(TrainedGPT(run.stored, checkpoint=saved), "the cat", 1, 0)
    document = Document(html)
    (policy,) = (a["content"] for t, a in document.tags if "content" in a and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "; worker-src blob:;" in policy
    addresses = [a for _, a in document.tags if {"src", "href", "action"} & set(a)]
    assert addresses == [{"rel": "icon", "href": "data:,"}]
    assert "/home/me" not in html
    data = payload_of(html)
    assert data["about"].endswith("was trained on novel.txt.")
    assert (data["text"], data["start"]) == ("the cat", {"layer": 1, "head": 0})
    assert data["counts"]
    assert "".join(data["vocabulary"]) == run.vocabulary.characters
    assert np.array(data["kinds"]).shape == (2, 2)
    assert {"entropy", "back"} <= {measure["name"] for measure in data["measures"]}
    assert payload_of(live_page(run))["start"] is None


def test_nothing_that_a_page_contains_can_become_markup(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_text(HOSTILE)
    model = gpt.load(random_file(tmp_path / "<!--<script>.safetensors", vocabulary, block_size=256))
    html = live_page(model, HOSTILE)
    usual = live_page(model, "a")
    assert payload_of(html)["text"] == HOSTILE
    names = [[tag for tag, _ in Document(page).tags] for page in (html, usual)]
    assert names[0] == names[1]
    assert html == live_page(model, HOSTILE)


def test_a_large_model_is_rounded_and_a_larger_one_refused(
    run: TrainedGPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(live_page(run))
    assert "float32, as trained" in payload_of(live_page(run))["stored"]
    monkeypatch.setattr(live, "EXACT", size)
    assert payload_of(live_page(run))["model"]["bits"] == 32
    monkeypatch.setattr(live, "EXACT", size - 1)
    small = live_page(run)
    assert payload_of(small)["model"]["bits"] == 16
    assert "rounded to float16" in payload_of(small)["stored"]
    monkeypatch.setattr(live, "LIMIT", 2 * run.config.parameters() - 1)
    with pytest.raises(ConfigError, match=r"too large for a page.*SVG, PNG or NPZ"):
        live_page(run)


@pytest.mark.parametrize("script", ["page.js", "model/worker.js"])
def test_joined_modules_have_no_name_twice(script: str) -> None:
    """They share one scope, where a later function would silently replace an earlier one."""
    pattern = r"^(?:async )?(?:function|const|let|class) (\w+)"
    names = Counter(re.findall(pattern, join_scripts(script), re.M))
    assert len(names) > 40
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("kind", KINDS)
def test_the_page_proves_the_logits_of_the_weights_in_the_file(
    script: JavaScript, tmp_path: Path, kind: str, bits: Bits
) -> None:
    model = gpt.load(random_file(tmp_path / "a.safetensors", **KINDS[kind]))
    record = record_of(model, bits)
    number, error = script("prove", record)
    bound = record["probe"]["tolerance"]
    assert error <= bound
    tensors = round_tensors(model.stored.tensors, bits)
    for name, found in script("tensors", record).items():
        assert np.array_equal(found, tensors[name].ravel()), name
    exact = Reader(model.config, {name: each.astype(np.float64) for name, each in tensors.items()})
    ids = np.random.default_rng(3).integers(model.config.vocab_size, size=16)
    expected = exact.logits(exact.forward(ids[None]))[0]
    found = script("logits", number, [ids.tolist()]).reshape(expected.shape)
    assert np.abs(found - expected).max() <= bound
    assert 1e-4 * np.abs(expected).max() <= 2 * bound
    proven = [id for text in record["probe"]["texts"] for id in text["ids"]]
    assert {*proven} == {*range(model.config.vocab_size)}
    assert len(record["probe"]["texts"]) <= len(model.stored.probe.ids) + MOST


def test_damage_is_refused(script: JavaScript, run: TrainedGPT) -> None:
    record, random = record_of(run), np.random.default_rng(2)
    data = base64.b64decode(record["tensors"])
    for place in [12, len(data) - 1, *random.integers(10, len(data), 4)]:
        changed = bytearray(data)
        changed[place] ^= 1 << int(random.integers(8))
        damaged = record | {"tensors": base64.b64encode(changed).decode()}
        with pytest.raises(JavaScriptError, match="damaged: its bytes do not match their checksum"):
            script("prove", damaged)
    probe = record["probe"]
    weight = run.stored.tensors["blocks.0.attention.qkv.weight"].copy()
    weight.flat[np.abs(weight).argmax()] *= 1.5
    other = replace(
        run.stored, tensors={**run.stored.tensors, "blocks.0.attention.qkv.weight": weight}
    )
    changed = model_record(other, run.vocabulary.encode(run.stored.excerpt), 32)
    assert script("prove", changed | {"probe": probe})[1] > probe["tolerance"]
    silent = [text | {"logits": ""} for text in probe["texts"]]
    for texts in ([], silent):
        assert script("prove", record | {"probe": probe | {"texts": texts}})[1] is None  # NaN


def test_heads_that_are_off_write_the_mean_of_the_text_in_the_file(run: TrainedGPT) -> None:
    ids = run.vocabulary.encode(run.stored.excerpt)
    count = min(32, (len(ids) - 1) // 16)
    starts = np.linspace(0, len(ids) - 17, count).astype(int)
    windows = np.stack([ids[start : start + 17] for start in starts])
    expected = mean_contexts(run.reader, windows)
    found = np.frombuffer(base64.b64decode(record_of(run)["means"]), "<f4")
    np.testing.assert_allclose(found, expected.ravel(), atol=1e-6)


def test_the_demo_is_small_and_has_the_program_of_today() -> None:
    folder = Path(__file__).parents[2] / "docs"
    html = (folder / "demo.html").read_text("utf-8")
    demo = runpy.run_path(str(folder / "demo.py"))
    assert demo["renewed"](html) == html, "python docs/demo.py renews it"
    assert len(html.encode()) <= 1_500_000
    assert payload_of(html)["counts"] is False


def test_the_command_writes_the_page_or_refuses_in_one_line(
    gptx: Gptx, run: TrainedGPT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = ("--checkpoints", str(run.path.parent))
    assert ": live.html, 0." in gptx("live", "the cat", *place).err
    assert payload_of(Path("live.html").read_text("utf-8"))["text"] == "the cat"
    assert gptx("live", "-o", "-", *place).out.startswith("<!doctype html>")
    Path("live.html").write_text("mine")
    for arguments, code, reason in (
        ((), 2, "live.html is not a page of gptx"),
        (("é", "-o", "a.html"), 3, "'é' (U+00E9"),
        (("--step", "5", "-o", "a.html"), 4, "5"),
    ):
        done = gptx("live", *arguments, *place)
        assert done.code == code, arguments
        assert reason in done.err
        assert not Path("a.html").exists()
    assert Path("live.html").read_text() == "mine"
