"""The study in docs/studies, in small: it runs, and its numbers are those of other code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpt

STUDIES = Path(__file__).parents[1] / "docs" / "studies"


def test_the_study_of_induction_measures_and_patches_as_the_library_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(STUDIES))
    monkeypatch.chdir(tmp_path)  # the encoded corpus is kept here
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
