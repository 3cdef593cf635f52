"""The page of a model: what is in the file, and what the command says."""

from __future__ import annotations

import json
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import train_tiny
from pages import Document, payload_of, unpack
from program import Gptx

import gpt
from gpt.interface.trained import TrainedGPT
from gpt.view.page import live
from gpt.view.page.live import LivePage, build_live


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    """With counting."""
    folder = tmp_path_factory.mktemp("live")
    return gpt.load(train_tiny(folder, counting=4).path.parent)


def built(run: TrainedGPT) -> LivePage:
    return build_live(run, run.heads(windows=4))


def test_a_page_names_the_file_of_its_text_but_no_folder(run: TrainedGPT) -> None:
    assert run.checkpoint
    corpus = replace(run.manifest.corpus, sources=("/home/me/novel.txt",))
    saved = replace(run.checkpoint, manifest=replace(run.manifest, corpus=corpus))
    page = built(TrainedGPT(run.stored, checkpoint=saved))
    assert "was trained on novel.txt." in page.html
    assert "/home/me" not in page.html


def test_a_page_contains_the_model_once_its_options_and_no_address(run: TrainedGPT) -> None:
    page = built(run)
    document = Document(page.html)
    (policy,) = (a["content"] for t, a in document.tags if "content" in a and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "; worker-src blob:;" in policy
    addresses = [a for _, a in document.tags if {"src", "href", "action"} & set(a)]
    assert addresses == [{"rel": "icon", "href": "data:,"}]
    data = payload_of(page.html)
    assert (page.bits, data["model"]["bits"]) == (32, 32)
    assert set(data["model"]) == {"config", "manifest", "bits", "base64", "proof"}  # no counts
    assert data["counts"]
    assert data["origin"] == {name: str(each) for name, each in run.stored.origin.items()}
    assert "".join(data["vocabulary"]) == run.vocabulary.characters
    means = unpack(data["means"])
    assert means.shape == (2 * 2 * 8,)
    assert abs(means).max() > 0
    options = {each["name"]: each for each in data["options"]}
    assert options["temperature"]["default"] == 0.8
    assert options["top_k"]["default"] is None
    assert list(options)[-1] == "seed"
    assert "only" not in options
    assert all(each["help"] for each in options.values())


def test_the_demo_is_small_and_has_the_program_of_today() -> None:
    folder = Path(__file__).parents[3] / "docs"
    html = (folder / "demo.html").read_text("utf-8")
    demo = runpy.run_path(str(folder / "demo.py"))
    assert demo["renewed"](html) == html, "python docs/demo.py renews it"
    assert len(html.encode()) <= 3_000_000
    assert payload_of(html)["counts"] is False


def test_a_large_model_has_its_weights_in_float16_and_the_page_says_so(
    run: TrainedGPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = built(run)
    size = len(whole.html.encode())
    assert "float32, as trained" in payload_of(whole.html)["stored"]
    for limit, bits in ((size, 32), (size - 1, 16)):
        monkeypatch.setattr(live, "LIMIT", limit)
        assert built(run).bits == bits
    assert "rounded to float16: logits are within" in payload_of(built(run).html)["stored"]


def model_of(*sources: str) -> Any:
    return SimpleNamespace(manifest=SimpleNamespace(corpus=SimpleNamespace(sources=sources)))


@pytest.mark.parametrize(
    ("model", "begin"),
    [
        (model_of("repeats"), "# Which head copies?\n"),
        (model_of("other.txt"), ""),
        (model_of("repeats", "other.txt"), ""),
        (SimpleNamespace(), ""),
    ],
)
def test_a_run_of_repeats_has_the_tour_of_its_corpus(model: Any, begin: str) -> None:
    text = live._tour(model)
    assert text[: text.find("\n") + 1] == begin


def test_the_built_in_tour_has_questions_and_contains_no_measured_number() -> None:
    text = live._tour(model_of("repeats"))
    assert text.count("\n## ") == 8
    assert text.count("\n? ") == text.count("\n! ") == text.count("\n## ")
    captions = [line for line in text.splitlines() if not line.startswith(("see:", "#"))]
    assert not [line for line in captions if "0." in line or "%" in line or "H1" in line]


def test_the_command_writes_the_page_and_says_what_it_did(
    gptx: Gptx, run: TrainedGPT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = ("--checkpoints", str(run.path.parent))
    done = gptx("live", "the cat", *place)
    assert done.code == 0
    assert "page: live.html, 0." in done.err
    assert "float32" in done.err
    data = payload_of((tmp_path / "live.html").read_text("utf-8"))
    assert data["text"] == "the cat"
    empty = tmp_path / "empty.txt"
    empty.touch()
    for nothing in ([""], ["--file", str(empty)]):
        assert "note: the text is empty" in gptx("live", *nothing, *place).err
    record = json.loads(gptx("live", "--json", "-o", "other.html", *place).out)
    assert (record["file"], record["bits"]) == ("other.html", 32)
    assert record["step"] == run.stored.step
    assert record["bytes"] == (tmp_path / "other.html").stat().st_size
    written = gptx("live", "-o", "-", *place)
    assert written.out.startswith("<!doctype html>")


def test_the_command_refuses_in_one_line(
    gptx: Gptx, run: TrainedGPT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = ("--checkpoints", str(run.path.parent))
    Path("live.html").write_text("mine")
    for arguments, code, reason in (
        ((), 2, "live.html is not a page of gptx"),
        (("--json", "-o", "-"), 2, "--json: needs a file"),
        (("-o", "-", "--open"), 2, "--open: needs a file"),
        (("é", "-o", "a.html"), 3, "'é' (U+00E9"),
        (("--step", "5", "-o", "a.html"), 4, "5"),
    ):
        done = gptx("live", *arguments, *place)
        assert done.code == code, arguments
        assert reason in done.err
        assert not Path("a.html").exists()
    assert Path("live.html").read_text() == "mine"
