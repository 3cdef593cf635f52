"""Writing in turns: what is typed stands, what is drawn follows, every turn can be taken back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from gpt.commands.talk import Talk, talk
from gpt.config import SampleConfig
from gpt.errors import ConfigError, GptxError, TextError
from gpt.reading.trained import TrainedGPT
from gpt.run import Checkpoint


@pytest.fixture
def trained(tiny: Checkpoint) -> TrainedGPT:
    return TrainedGPT(tiny.model())


@pytest.fixture
def turns(trained: TrainedGPT) -> Talk:
    return Talk(trained, SampleConfig(length=5, seed=7), begin="the ")


def test_the_model_goes_on_from_the_text(turns: Talk, trained: TrainedGPT) -> None:
    assert turns.take("cat")
    assert turns.text == trained.generate("the cat", length=5, seed=7)
    before = turns.text
    assert turns.take("")
    assert turns.text == trained.generate(before, length=5, seed=8)


def test_undo_takes_back_turn_by_turn_and_another_try_is_another(turns: Talk) -> None:
    texts = ["the "]
    for line in ("", "c", ""):
        turns.take(line)
        texts.append(turns.text)
    for text in texts[2::-1]:
        turns.take("/undo")
        assert turns.text == text
    with pytest.raises(ConfigError, match="nothing to take back"):
        turns.take("/undo")
    attempts = set()
    for _ in range(6):
        turns.take("")
        attempts.add(turns.text)
        turns.take("/undo")
    assert len(attempts) > 3
    turns.take("/new")
    assert turns.text == ""
    turns.take("/undo")
    assert turns.text == "the "


def test_settings_change_in_place(turns: Talk, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        "/temperature 0.5",
        "/top-k 3",
        "/top_p .9",
        "/length 2",
        "/seed 9",
        "/top-k none",
    ):
        assert turns.take(line)
    assert turns.settings == SampleConfig(length=2, seed=9, temperature=0.5, top_p=0.9)
    turns.take("/set")
    told = capsys.readouterr().err.splitlines()[-1]
    assert told == "length 2 · temperature 0.5 · top-p 0.9 · seed 9"
    turns.take("")
    assert len(turns.text) == len("the ") + 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("/tempo 1", "/tempo: no such command"),
        ("/n 3", "/n: no such command"),
        ("/temperature hot", "/temperature: 'hot' is not a number"),
        ("/temperature none", "/temperature: 'none' is not a number"),
        ("/temperature -1", "--temperature: -1.0 is less than 0"),
        ("/top-k 1.5", "/top-k: '1.5' is not a number"),
        ("/length", "/length: '' is not a number"),
        ("/save", "/save: name a file"),
        ("żółw", "U+017C"),
    ],
)
def test_a_wrong_line_changes_nothing(turns: Talk, line: str, problem: str) -> None:
    with pytest.raises(GptxError) as error:
        turns.take(line)
    assert problem in str(error.value)
    assert (turns.text, turns.settings) == ("the ", SampleConfig(length=5, seed=7))
    with pytest.raises(ConfigError, match="nothing to take back"):
        turns.take("/undo")


def test_a_text_can_begin_with_a_slash_and_be_saved(turns: Talk, tmp_path: Path) -> None:
    with pytest.raises(TextError, match="'/'"):  # this model does not know it
        turns.take("//")
    turns.take(f"/save {tmp_path / 'kept.txt'}")
    assert (tmp_path / "kept.txt").read_text() == "the "
    assert not turns.take("/quit")


def test_ctrl_c_ends_the_models_turn_and_keeps_what_came(
    turns: Talk, trained: TrainedGPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stream(text: str, config: SampleConfig, stops: object) -> Iterator[list[str]]:
        for n, piece in enumerate("abcdef"):
            if n == 2:
                os.kill(os.getpid(), signal.SIGINT)
            yield [piece]

    monkeypatch.setattr(trained, "stream", stream)
    handler = signal.getsignal(signal.SIGINT)
    assert turns.take("")
    assert turns.text == "the abc"
    assert signal.getsignal(signal.SIGINT) is handler


def test_lines_come_from_the_terminal_until_it_ends(
    turns: Talk, capfd: pytest.CaptureFixture[str]
) -> None:
    with create_pipe_input() as typed, create_app_session(input=typed, output=DummyOutput()):
        typed.send_text("c\r/tempo\rdropped\x03/length 3\r\x1b\rat\r\x04")
        talk(turns, "a title")
    out, err = capfd.readouterr()
    assert err.startswith("a title · length 5 · temperature 0.8 · seed 7\n")
    assert "gptx: error: /tempo: no such command" in err
    assert out.startswith("the \n")
    assert turns.text.startswith("the c")
    assert turns.text[10:13] == "\nat"
    assert len(turns.text) == 4 + 1 + 5 + 3 + 3
    assert turns.settings.length == 3
