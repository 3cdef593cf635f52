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


def test_the_study_of_induction_measures_and_patches_as_the_library_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import induction  # type: ignore[import-not-found]

    few = {"steps": 2, "evaluations": 2, "keep_all": True, "progress": False}
    run = gpt.train("repeats", run="small", checkpoints=tmp_path, **few)
    induction.main([str(tmp_path / "small")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("layer 1 copies; these look back: L0H")
    assert [line.split(":")[0] for line in lines[2:]] == ["step    0", "step    1", "step    2"]

    ids = induction.repeated_letters(run)[:3]
    period = induction.PERIOD
    previous, copied, loss = induction.measure(run, ids)
    weights = run.activations(ids, "weights", 1)["weights", 1, 2].astype(float)
    rows = range(1, 2 * period)
    assert previous[1, 2] == pytest.approx(np.mean([weights[:, n, n - 1] for n in rows]))
    rows = range(period, 2 * period)
    assert copied[1, 2] == pytest.approx(np.mean([weights[:, n, n - period + 1] for n in rows]))
    texts = [run.vocabulary.decode(each) for each in ids]
    nats = [run.eval(text, chars=True).surprisals.nats[-(period - 1) :] for text in texts]
    assert loss == pytest.approx(np.mean(nats), abs=1e-5)
    assert induction.measure(run, ids, {("context", 1): 0})[2] != loss


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
