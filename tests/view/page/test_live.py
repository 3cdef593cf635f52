"""The page of a model: what is in the file, what does not fit, and what the command says."""

from __future__ import annotations

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import train_tiny
from pages import Document, payload_of, unpack
from program import Gptx

import gpt
from gpt.errors import ConfigError
from gpt.heads.survey import evenly_spaced
from gpt.interface.trained import TrainedGPT
from gpt.view.page.live import LivePage, _fitting, build_live


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    """Of four steps, with counting."""
    folder = tmp_path_factory.mktemp("live")
    settings = {"keep_all": True, "eval_interval": 3}
    return gpt.load(train_tiny(folder, settings, counting=4).path.parent, step="last")


def built(run: TrainedGPT, steps: Any = None, **options: Any) -> LivePage:
    models = [run] if steps is None else [run.at(step) for step in steps]
    return build_live(models, run.heads(windows=4), **options)


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
    (model,) = data["model"]["models"]
    assert (page.bits, model["bits"], page.steps, page.left_out) == (32, 32, (12,), ())
    assert data["models"][0]["step"] == 12
    assert data["models"][0]["loss"] == run.manifest.val_loss
    assert data["counts"]
    assert data["model"]["counting"]["base64"]
    assert "".join(data["vocabulary"]) == run.vocabulary.characters
    means = unpack(data["models"][0]["means"])
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
    assert len(html.encode()) <= 1_500_000
    assert payload_of(html)["counts"] is False


SIZES: dict[Any, int] = {32: 400, 16: 200}


@pytest.mark.parametrize(
    ("sizes", "models", "counting", "room", "expected"),
    [
        (SIZES, 1, 100, 500, (32, True, 1)),
        (SIZES, 1, 100, 499, (16, True, 1)),
        (SIZES, 1, 100, 299, (16, False, 1)),
        (SIZES, 1, 100, 199, None),
        (SIZES, 5, 100, 1100, (16, True, 5)),
        (SIZES, 5, 100, 1099, (16, True, 4)),
        (SIZES, 5, 900, 1099, (16, False, 5)),
        (SIZES, 5, 0, 2000, (32, True, 5)),
        ({32: 400}, 2, 100, 899, (32, True, 1)),
        ({16: 200}, 1, 0, 5000, (16, True, 1)),
    ],
)
def test_what_fits_into_a_file(
    sizes: dict[Any, int], models: int, counting: int, room: int, expected: Any
) -> None:
    assert _fitting(sizes, models, counting, room) == expected


def test_the_steps_that_stay_are_evenly_spread_and_have_the_last() -> None:
    assert evenly_spaced(5, 1) == [4]
    assert evenly_spaced(5, 2) == [0, 4]
    assert evenly_spaced(9, 5) == [0, 2, 4, 6, 8]
    for count in range(1, 20):
        for number in range(1, count + 1):
            found = evenly_spaced(count, number)
            assert (len(found), found[-1]) == (number, count - 1)


def test_a_small_limit_leaves_out_what_does_not_fit_and_says_so(run: TrainedGPT) -> None:
    whole, steps = built(run), (3, 6, 9, 12)
    several = built(run, steps)
    each = (len(several.html) - len(whole.html)) / 3
    fewer = built(run, steps, precision="float32", limit=len(several.html) - int(each))
    assert len(fewer.html) <= len(several.html) - each
    assert fewer.steps[-1] == 12
    assert 1 < len(fewer.steps) < 4
    (said,) = payload_of(fewer.html)["left_out"]
    assert said == fewer.left_out[0]
    assert re.fullmatch(r"[12] of 4 steps do not fit into \d+\.\d MB\.", said)
    half = built(run, limit=len(whole.html) - 1)
    assert (half.bits, half.left_out) == (16, ())
    assert "rounded to float16: logits are within" in payload_of(half.html)["stored"]
    with pytest.raises(ConfigError, match=r"the model alone needs \d\.\d MB; allow"):
        built(run, limit=100_000)


def test_counting_is_left_out_before_the_only_model(run: TrainedGPT) -> None:
    whole = len(built(run).html)
    limits = range(whole + 2000, 0, -50)
    pages = (built(run, precision="float32", limit=limit) for limit in limits)
    page = next(page for page in pages if page.left_out)
    data = payload_of(page.html)
    assert (page.bits, data["counts"], data["model"]["counting"]) == (32, False, None)
    assert page.left_out[0].startswith("Counting does not fit into")


def test_the_command_writes_the_page_and_says_what_it_did(
    gptx: Gptx, run: TrainedGPT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = ("--checkpoints", str(run.path.parent))
    done = gptx("live", "the cat", "--step", "3:12", *place)
    assert done.code == 0
    assert "page: live.html, 0." in done.err
    assert "float32" in done.err
    data = payload_of((tmp_path / "live.html").read_text("utf-8"))
    assert (data["text"], [each["step"] for each in data["models"]]) == ("the cat", [3, 12])
    empty = tmp_path / "empty.txt"
    empty.touch()
    for nothing in ([""], ["--file", str(empty)]):
        assert "note: the text is empty" in gptx("live", *nothing, *place).err
    best = run.at("best").manifest.step
    record = json.loads(gptx("live", "--json", "-o", "other.html", *place).out)
    assert (record["file"], record["bits"], record["steps"]) == ("other.html", 32, [best])
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
        (("--limit", "0.1", "-o", "a.html"), 2, "--limit: the model alone needs"),
        (("--step", "5", "-o", "a.html"), 4, "5"),
        (("--precision", "float8", "-o", "a.html"), 2, "float8"),
    ):
        done = gptx("live", *arguments, *place)
        assert done.code == code, arguments
        assert reason in done.err
        assert not Path("a.html").exists()
    assert Path("live.html").read_text() == "mine"
