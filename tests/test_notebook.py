"""Training from Python: the same weights as from the command line, interrupts, events, errors."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from program import TINY, Gptx, Terminal

import gpt
from gpt.errors import ConfigError, TextError
from gpt.interface import training as notebook
from gpt.training.progress import Event, Stepped

SMALL: dict[str, Any] = {
    "n_layer": 2,
    "n_head": 2,
    "n_embd": 16,
    "block_size": 16,
    "batch_size": 4,
    "steps": 8,
    "warmup_steps": 2,
    "eval_interval": 4,
    "counting": 0,
}

pytestmark = pytest.mark.usefixtures("gptx")  # in a folder with corpus.txt


def test_python_and_command_train_the_same_weights(gptx: Gptx, home: Path) -> None:
    assert gptx("train", "corpus.txt", *TINY, "--run", "command", "--seed", "3").code == 0
    run = gpt.train("corpus.txt", run="python", seed=3, **SMALL)
    command = gpt.load(home / "checkpoints/command")
    assert run.path == home / "checkpoints/python"
    assert run.steps == command.steps
    for step in run.steps:
        assert run.at(step).stored.digest == command.at(step).stored.digest
    for name in ("config.toml", "samples.jsonl"):
        assert (run.path / name).read_text() == (command.path / name).read_text()
    assert run.curve.val.tolist() == command.curve.val.tolist()


def test_interrupted_training_is_saved_and_returned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    followed = notebook.train_with_bar

    def interrupted(*parts: Any) -> Iterator[Event]:
        for event in followed(*parts):
            if isinstance(event, Stepped) and event.step == 3:
                signal.raise_signal(signal.SIGINT)
            yield event

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    try:
        with monkeypatch.context() as patch:
            patch.setattr(notebook, "train_with_bar", interrupted)
            run = gpt.train("corpus.txt", run="stopped", **SMALL)
        assert run.steps == [0, 3]
        assert "stopped after step 3; gpt.resume continues the run" in caplog.text
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert gpt.resume(run.path).steps[-1] == 8
    gpt.resume(run.path)
    assert "the run ended at step 8; to go on, set `minutes` or `steps`" in caplog.text


def test_text_itself_can_be_trained_on() -> None:
    run = gpt.train(text="the cat sat. " * 40, **SMALL)
    assert run.path.name == "text-1"
    assert "".join(run.vocabulary.characters) == " .acehst"


@pytest.mark.parametrize(
    ("arguments", "options", "error", "problem"),
    [
        (["no.txt"], {}, TextError, "'no.txt': no such file or folder"),
        ([[]], {}, ConfigError, "^corpus: the list is empty; name a file"),
        ([], {"text": "a\ud800b"}, ValueError, "surrogates not allowed"),
        (["corpus.txt"], {"text": "a"}, ConfigError, "^text: give either `corpus` or `text`"),
        (["corpus.txt"], {"minuts": 2}, TypeError, "no keyword 'minuts'; did you mean minutes"),
        (["corpus.txt"], {"minutes": 1, "steps": 9}, ConfigError, "^minutes: .* with `steps`"),
        (["corpus.txt"], {"run": "corpus-1"}, ConfigError, "^run: 'corpus-1' exists already"),
    ],
)
def test_error_of_train_names_the_keyword(
    arguments: list[str], options: dict[str, Any], error: type[Exception], problem: str
) -> None:
    before = sorted(os.listdir("checkpoints"))
    with pytest.raises(error, match=problem) as caught:
        gpt.train(*arguments, **options)
    assert "--" not in str(caught.value)
    assert isinstance(caught.value, ValueError | TypeError)
    assert sorted(os.listdir("checkpoints")) == before


def test_bar_shows_losses_and_ends_as_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    gpt.train("corpus.txt", progress=False, **SMALL)
    assert terminal.getvalue() == ""
    gpt.train("corpus.txt", **SMALL)
    line = r"step 8 loss \d\.\d{3} validation \d\.\d{3} in 00:\d\d *\n"
    assert re.fullmatch(line, terminal.getvalue().rpartition("\r")[2])
