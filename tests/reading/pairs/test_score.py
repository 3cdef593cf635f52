"""Scores of pairs: torch's loss, padding, what is exact, and edit distances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from encoded import reader_of

from gpt.config import ModelConfig
from gpt.model import GPT, initialise
from gpt.reading import pairs
from gpt.reading.gpt import Reader
from gpt.reading.pairs import PairScores, pair_scores, surprisals_of_targets
from gpt.view.terminal.blocks import lines_of
from gpt.view.terminal.lines import Page

FIRST, LAST = 1, 2
SHAPE: dict[str, Any] = dict(vocab_size=9, block_size=24, n_layer=2, n_head=2, n_embd=8)
PAIRS = [
    (np.array(source), np.array(target, np.int64))
    for source, target in (
        ([3, 4, 5], [4, 4]),
        ([6], [3]),
        ([8, 7, 6, 5, 4, 3], [3, 4, 5, 6, 7, 8]),
        ([6], [5, 5, 5]),
        ([3, 3], []),
    )
]


def model_of(**options: Any) -> GPT:
    model = GPT(ModelConfig(**SHAPE | options))
    initialise(model, seed=1)
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


@pytest.mark.parametrize("options", [{"encoder_layers": 2}, {"encoder_layers": 0}])
@pytest.mark.parametrize("at_once", [1, 2, 1000])
def test_surprisals_are_torchs_loss_of_each_pair_alone(
    options: dict[str, Any], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "windows_at_once", lambda config: at_once)
    model, expected = model_of(**options), []
    for source, target in PAIRS:
        read: Any = {"source": torch.tensor(source[None])} if model.encoder else {}
        before = [FIRST] if model.encoder else [LAST, *source, FIRST]
        after = torch.tensor([*target, LAST])
        with torch.no_grad():
            logits = model(torch.tensor([[*before, *target]]), **read)[0, len(before) - 1 :]
        expected += F.cross_entropy(logits, after, reduction="none").tolist()
    found = surprisals_of_targets(reader_of(model), PAIRS, FIRST, LAST)
    assert found.tolist() == pytest.approx(expected, abs=1e-5)


def test_padding_changes_no_surprisal() -> None:
    config = model_of(encoder_layers=1).config
    random = np.random.default_rng(1)
    reader = Reader(config, {n: random.normal(size=size) for n, size in config.shapes().items()})
    together = surprisals_of_targets(reader, PAIRS, FIRST, LAST)
    alone = [surprisals_of_targets(reader, [pair], FIRST, LAST) for pair in PAIRS]
    np.testing.assert_allclose(together, np.concatenate(alone), rtol=0, atol=1e-9)


def scores_of(*rows: tuple[str, str, str]) -> PairScores:
    """From (source, target, written)."""
    sources, targets, written = zip(*rows, strict=True)
    characters = sum(len(target) + 1 for target in targets)
    nats, lines = np.arange(characters, dtype=np.float64), range(1, len(rows) + 1)
    return pair_scores(lines, sources, targets, dict(zip(sources, written, strict=True)), nats)


def test_a_source_with_several_targets_counts_once() -> None:
    found = scores_of(("a", "xyq", "y"), ("b", "u", "u"), ("a", "xy", "y"), ("c", "www", ""))
    assert found.firsts == [0, 1, 3]
    assert found.distances.tolist() == [1, 0, 1, 3]
    assert found.nearest == ("xy", "u", "xy", "www")
    assert found.exact == pytest.approx(1 / 3)
    assert found.word_error_rate == pytest.approx(2 / 3)
    assert found.error_rate == pytest.approx(4 / 6)
    assert (found.score.characters, found.score.nats) == (13, 6)
    assert found.means.tolist() == [1.5, 4.5, 7, 10.5]
    assert repr(found) == (
        "<PairScores of 4 pairs: 6.0000 nats a target character, 33.33 % of 3 sources exact, "
        "character error rate 66.67 %>"
    )


def test_errors_are_counted_by_kind_and_by_symbol() -> None:
    found = scores_of(
        ("a", "hɛd", "hed"), ("b", "bɛd", "be"), ("c", "a b", "ab"), ("d", "ja", "jax")
    )
    numbers = found.numbers
    assert [numbers[name] for name in ("substitutions", "insertions", "deletions")] == [2, 1, 2]
    assert numbers["symbols"] == 3 + 3 + 3 + 2
    assert sum(numbers["rates"].values()) == pytest.approx(numbers["error_rate"]) == 5 / 11
    assert numbers["confusions"] == [
        {"target": "ɛ", "written": "e", "count": 2},
        {"target": "d", "written": None, "count": 1},
        {"target": " ", "written": None, "count": 1},
        {"target": None, "written": "x", "count": 1},
    ]
    assert numbers["intervals"]["words"] == 4
    low, high = numbers["intervals"]["error_rate"]
    assert low < numbers["error_rate"] < high
    assert numbers["intervals"]["word_error_rate"] is None  # all four are wrong
    row = found.records().columns
    assert (row["substitutions"], row["deletions"]) == ([1, 1, 0, 0], [0, 1, 1, 0])
    lines = [line.plain for line in lines_of(found.blocks(), Page(40, ascii_only=True))]
    assert [line.split()[:3] for line in lines[lines.index("commonest confusions") + 2 :][:4]] == [
        ["\\u025b", "e", "2"],
        ["d", "nothing", "1"],
        ["\\s", "nothing", "1"],
        ["nothing", "x", "1"],
    ]
    assert all(len(line) <= 40 and line.isascii() for line in lines)


def test_without_errors_there_are_no_confusions() -> None:
    found = scores_of(("a", "x", "x"), ("b", "y", "y"))
    assert found.numbers["confusions"] == []
    assert found.intervals == {"word_error_rate": None, "error_rate": None}
    text = "\n".join(line.plain for line in lines_of(found.blocks(), Page()))
    assert "confusions" not in text
    assert "interval" not in text
