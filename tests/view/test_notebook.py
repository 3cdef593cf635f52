"""Results in a notebook: small, escaped, without network, and printed in one line."""

from __future__ import annotations

import ast
import copy
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import shown
from manifests import manifest
from pages import HOSTILE

import gpt
from gpt.blocks import Checks, Curves, Fold, Passage
from gpt.errors import ConfigError
from gpt.heads.attention_map import inspect
from gpt.heads.next_character import Experts
from gpt.interface.trained import TrainedGPT
from gpt.reading.paired import compare_paired
from gpt.reading.sampler import Sample
from gpt.reading.score import Score, Surprisals
from gpt.storage.comparison import Comparison, Group
from gpt.storage.curves import Curve, TrainingCurve
from gpt.storage.manifest import CorpusId
from gpt.storage.overview import Overview, RunTable
from gpt.storage.run import Checkpoint, Run
from gpt.view.html import LIMIT, html_card
from gpt.view.terminal.lines import Page

TEXT = "the cat sat"


class Markup(HTMLParser):
    """Tags and their attributes; fails for a tag that is closed wrongly."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.opened = "", list[str]()
        self.feed(html)
        self.close()
        assert self.opened == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self.opened.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def run(tiny: Checkpoint) -> TrainedGPT:
    return gpt.load(tiny.path)


def curve(count: int = 5, name: str = "tale-1") -> Curve:
    losses = np.linspace(3, 1, count)
    return Curve(np.arange(count) * 10, losses, losses + 0.1, losses * np.nan, name)


def training_curve(name: str = "tale-1") -> TrainingCurve:
    losses = np.linspace(3, 1, 5)
    return TrainingCurve(np.arange(5), losses, losses, losses, losses, name)


def every(run: TrainedGPT, text: str) -> list[Any]:
    """A result of each type for a text of two characters or more."""
    found = run.attn(text, unknown="skip", truncate=True)
    rows = ((Run(Path(f"runs/{text[:9]}")), manifest()),)
    return [
        run,
        found,
        run.heads(TEXT * 9),
        run.measures(found)[0],
        run.next(text, unknown="skip", top_k=2),
        run.eval(text, unknown="skip"),
        run.eval(text, unknown="skip").score,
        run.eval(text, unknown="skip", chars=True).surprisals,
        run.eval(TEXT * 9, against=run).paired,
        Sample(text, text),
        curve(name=text),
        RunTable(rows),
        training_curve(name=text),
        Overview(text, manifest(), curve(name=text), ({"step": 1, "text": text},)),
        Comparison(((Group((Overview(text, manifest(), curve(name=text)),), text),),), ()),
    ]


def test_every_result_shows_itself_and_prints_as_one_line(run: TrainedGPT) -> None:
    shown = every(run, TEXT)
    for each in shown:
        markup = Markup(html := each._repr_html_())
        assert len(html.encode()) <= LIMIT
        assert not any("id" in attributes for _, attributes in markup.tags)  # ids could collide
        tags = [tag for tag, _ in markup.tags]
        assert not {"script", "iframe", "link"} & {*tags}
        links = [each[name] for _, each in markup.tags for name in ("href", "src") if name in each]
        assert all(link.startswith("data:image/svg+xml;base64,") for link in links)
        assert not re.search(r"https?:|//|@import|url\(", html.split("srcdoc")[0])
        assert len(repr(each)) < 200
        assert "\n" not in repr(each)


def words_of(texts: Iterable[str]) -> list[str]:
    """The words of texts, without signs that separate or draw."""
    words = " ".join(texts).replace("␣", "␠").casefold().split()
    return sorted(word for word in words if not re.fullmatch("[·█▏▎▍▌▋▊▉✓]+|checks:", word))


def test_terminal_and_notebook_say_the_same_words_and_numbers_of_every_result(
    run: TrainedGPT,
) -> None:
    for each in every(run, TEXT):
        for block in each.blocks():
            if isinstance(block, Curves | Passage | Checks):
                continue  # drawn in their own way; tests/view/test_blocks.py has them
            inner = [block]
            if isinstance(block, Fold):
                inner = [it for it in block.blocks if not isinstance(it, Curves | Passage | Checks)]
            html = re.sub("<style>.*?</style>", "", html_card(inner), flags=re.S)
            page = Markup(html.replace("<", " <"))
            assert words_of(page.text.split()) == words_of(shown(inner, Page())), each


def test_arrays_of_heads_and_activations_have_their_names(run: TrainedGPT) -> None:
    heads = run.heads(TEXT * 9)
    assert list(heads.to_numpy()) == [each.name for each in heads.measures]
    assert heads.to_numpy()["entropy"].shape == (run.config.n_layer, run.config.n_head)
    assert list(run.activations([TEXT], ["q", "weights"]).to_numpy()) == ["q", "weights"]


def test_a_run_suggests_texts_that_its_model_can_read(run: TrainedGPT) -> None:
    (asked,) = re.findall(r"run\.attn\((.*?)\)", Markup(run._repr_html_() or "").text)
    assert run.attn(ast.literal_eval(asked)).text


def test_first_characters_have_the_numbers_of_the_whole_text(run: TrainedGPT) -> None:
    whole, short = run.attn(TEXT), run.attn(TEXT[:4])
    first = whole.first(4)
    assert (first.text, first.model) == (TEXT[:4], run)
    for name, values in first.to_numpy().items():
        np.testing.assert_allclose(values, short.to_numpy()[name], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="count: 12 is not in 1 … 11"):
        whole.first(12)


def test_map_without_its_model_lists_its_stages(run: TrainedGPT) -> None:
    ids = run.vocabulary.encode(TEXT)
    found = inspect(run.reader, TEXT, ids)
    assert "2 × 2 × 11 × 11" in found._repr_html_()
    with pytest.raises(ValueError, match=r"make one with run\.attn"):
        found.save("page.html")


def test_any_text_is_shown_as_text(run: TrainedGPT) -> None:
    hostile = f"</iframe></style>{HOSTILE}'\"שלום\x1b[31m"
    nats = np.linspace(0, 9, len(hostile) - 1)
    likeliest = np.arange(len(nats))
    corpus = CorpusId("0" * 64, 9, (hostile,))
    for each in (
        Surprisals(nats, likeliest, nats, hostile, hostile),
        Sample(hostile, hostile),
        curve(name=hostile),
        RunTable(((Run(Path(hostile.replace("\0", "")[:60])), manifest(corpus=corpus)),)),
        replace(run.next("the"), text=hostile, characters=hostile),
        compare_paired(nats, nats + 1, (hostile, hostile)),
    ):
        markup = Markup(each._repr_html_())
        assert not {"script", "img", "iframe"} & {tag for tag, _ in markup.tags}
        assert not re.search("[\0\x1b\u202e]", markup.text)
        assert not any("onerror" in attributes for _, attributes in markup.tags)


def test_next_character_shows_each_expert(run: TrainedGPT) -> None:
    found = run.next("the")
    even = np.full(len(found.expected), 1 / len(found.expected))
    experts = Experts(even, even, even, np.array([0.9, 0.25]), 3, 7, 2, False)
    both = replace(found, experts=experts)
    assert {"GPT", "counting"} <= set(re.findall(r">(\w+)</th>", both._repr_html_()))
    assert {"gpt", "counting"} <= set(both.to_pandas().columns)
    assert "GPT^.90 × counting^.25" in both._repr_html_()
    assert "the last 3 characters, seen 7 times" in both._repr_html_()


def test_large_results_stay_small() -> None:
    count = 200_000
    nats = np.random.default_rng(0).exponential(2, count - 1)
    likeliest = np.zeros(count - 1, np.int64)
    texts = Surprisals(nats, likeliest, nats, "<&ab " * (count // 5), "<&ab ")
    known = manifest()
    rows = tuple((Run(Path(f"runs/{number}")), known) for number in range(3_000))
    for each in (
        texts, RunTable(rows), curve(50_000),
        Sample("", "<" * 10**6), Score(1.5, 10**9, 1.6, 2.0),
    ):  # fmt: skip
        assert len(each._repr_html_().encode()) <= LIMIT


def test_results_are_data_frames(run: TrainedGPT) -> None:
    pandas = pytest.importorskip("pandas")
    found = run.attn(TEXT)
    frame = found.to_pandas()
    assert len(frame) == 2 * 2 * 11 * 12 // 2
    row = frame[(frame.layer == 1) & (frame["head"] == 0) & (frame.q_pos == 5) & (frame.k_pos == 3)]
    assert row["weight"].item() == pytest.approx(float(found.layers[1].weights[0, 5, 3]), abs=1e-8)
    assert list(found.to_pandas(layer=1, head="mean", stage="proj").columns)[2:] == [
        *("pos", "char", "dimension", "proj"),
    ]
    for each in every(run, TEXT):
        if hasattr(each, "to_pandas"):
            assert isinstance(each.to_pandas(), pandas.DataFrame), each
    surprisals = run.eval(TEXT, chars=True).to_pandas()
    assert "".join(surprisals.character) == TEXT[1:]


def test_without_pandas_the_error_says_what_to_install(
    run: TrainedGPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        run.eval(TEXT).to_pandas()


def test_attention_is_saved_in_every_format(run: TrainedGPT, tmp_path: Path) -> None:
    found = run.attn(TEXT)
    for name, start in (
        ("a.npz", b"PK"),
        ("a.csv", b'"layer","head"'),
        ("a.json", b'{"schema"'),
        ("a.txt", b"weights of every head"),
        ("a.html", b"<!doctype html>"),
        ("a.svg", b"<?xml"),
    ):
        assert found.save(tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(ConfigError, match=r"a\.doc does not end in one of \.txt, \.json"):
        found.save(tmp_path / "a.doc")
    one = found.save(tmp_path / "one.svg", layer=1, head=0, stage="scores")
    assert b"layer 1" in one.read_bytes()
    with pytest.raises(ConfigError, match="layer: 7 is not in 0 … 1"):
        found.save(tmp_path / "a.csv", layer=7)


def test_sample_is_a_text_that_knows_its_prompt(run: TrainedGPT) -> None:
    sample = run.sample("the", length=5)
    assert isinstance(sample, Sample)
    assert sample.prompt == 3
    for copied in (copy.copy(sample), copy.deepcopy(sample)):
        assert (copied, copied.prompt) == (sample, 3)


def test_opening_a_model_imports_no_view(tiny: Checkpoint) -> None:
    code = (
        "import sys, gpt\n"
        "assert not {'numpy', 'torch'} & set(sys.modules)\n"
        f"run = gpt.load({str(tiny.path)!r}); repr(run.attn('the cat'))\n"
        "assert not [name for name in sys.modules if name.startswith('gpt.view')]\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
