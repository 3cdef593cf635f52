"""The studies in docs/studies, in small: they run, and their numbers are those of other code."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import gpt

pytest.importorskip("matplotlib")
STUDIES = Path(__file__).parents[1] / "docs" / "studies"


@pytest.fixture(autouse=True)
def studies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(STUDIES))
    monkeypatch.chdir(tmp_path)  # the encoded corpora are kept here
    for name in ("induction", "probe"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_the_birth_of_induction_is_measured_at_each_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import induction  # type: ignore[import-not-found]

    induction.main([str(tmp_path), "--seeds", "1", "--steps", "2"])
    assert "seed 0: half-way at step: previous " in capsys.readouterr().out
    assert (tmp_path / "induction.svg").read_text().count("<path") > 3
    found = induction.of_training(tmp_path / "again", 0, 2)
    run = gpt.load(tmp_path / "seed-0", step=2)
    assert found["steps"].tolist() == run.curve.steps.tolist() == [1, 2]
    alone = run.heads(windows=8).to_numpy()
    assert found["induction"][-1] == alone["induction_synthetic"].max()
    assert found["previous"][-1] == alone["previous"].max()
    assert found["loss"].tolist() == run.curve.val.tolist()
    assert induction.half_way(np.arange(4.0), np.array([1.0, 0.9, 0.3, 0.2])) == 2


def test_a_probe_of_the_embedding_names_what_usually_precedes_a_character(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import probe  # type: ignore[import-not-found]

    probe.main([str(tmp_path), "--steps", "2", "--windows", "30"])
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "trained",
        "untrained",
    ]
    assert (tmp_path / "probe.svg").exists()
    run = gpt.load(tmp_path / "probed")
    T, pairs = run.config.block_size, {}
    for split in ("train", "val"):
        text = run.text(split)
        starts = np.linspace(0, len(text) - T, 30).astype(int).tolist()
        pairs[split] = [text[n + i : n + i + 2] for n in starts for i in range(T - 1)]
    before: dict[str, list[str]] = {}
    for first, then in pairs["train"]:
        before.setdefault(then, []).append(first)
    usual = {then: max(set(each), key=each.count) for then, each in before.items()}
    right = np.mean([usual.get(then) == first for first, then in pairs["val"]])
    found = probe.accuracy(run, 30)["embedding"]
    assert found[0] == pytest.approx(right, abs=0.02)
    assert 0 < found[1] < 0.05
