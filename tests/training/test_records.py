"""TensorBoard gets the records of a run's evaluations, too."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from program import TINY, Gptx

from gpt.storage.run import Run
from gpt.training import progress as module


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands in for tensorboardX.SummaryWriter."""
    package = MagicMock(__spec__=sys.__spec__)
    monkeypatch.setitem(sys.modules, "tensorboardX", package)
    return package.SummaryWriter


def test_tensorboard_gets_every_record_and_a_resumed_run_purges_repeated_steps(
    gptx: Gptx, home: Path, writer: Any
) -> None:
    options = ("--log", "tensorboard", "--run", "board")
    assert gptx("train", "corpus.txt", *TINY, *options).code == 0
    values = [call.args for call in writer().add_scalar.call_args_list]
    for name in ("train_loss", "val_loss"):
        records = Run(home / "checkpoints/board").records("metrics")
        assert [value for curve, value, _ in values if curve == name] == [
            record[name] for record in records
        ]
    writer().close.assert_called()
    assert gptx("train", "--resume", *options, "--steps", "12").code == 0
    assert writer.call_args.kwargs["purge_step"] == 9


def test_a_missing_package_is_named_before_the_training(
    gptx: Gptx, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda package: None)
    answer = gptx("train", "corpus.txt", *TINY, "--log", "tensorboard", "--run", "none")
    assert (answer.code, "--log tensorboard: needs tensorboardX" in answer.err) == (2, True)
    assert not (home / "checkpoints/none").exists()
