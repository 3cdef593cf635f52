"""`sample -i`: turns, undo, settings, saving, errors."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from gpt.commands.interactive import COMMANDS, HELP, SETTINGS, Talk, talk
from gpt.config import SampleConfig
from gpt.config.sample import SHAPING
from gpt.errors import ConfigError, GptxError, TextError
from gpt.interface.trained import TrainedGPT
from gpt.storage.run import Checkpoint


@pytest.fixture
def trained(tiny: Checkpoint) -> TrainedGPT:
    return TrainedGPT(tiny.model())


@pytest.fixture
def turns(trained: TrainedGPT) -> Talk:
    return Talk(trained, SampleConfig(length=5, seed=7), text="the ")


def test_enter_continues_the_text(turns: Talk, trained: TrainedGPT) -> None:
    assert turns.take("cat")
    assert turns.text == trained.sample("the cat", length=5, seed=7)
    before = turns.text
    assert turns.take("")
    assert turns.text == trained.sample(before, length=5, seed=8)


def test_undo_removes_one_turn_and_a_retry_differs(turns: Talk) -> None:
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


def test_commands_change_settings_and_print_them(
    turns: Talk, capsys: pytest.CaptureFixture[str]
) -> None:
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
    capsys.readouterr()
    for line in ("/set", "/length", "/top-k", "/temperature", "/stop", "/seed"):
        turns.take(line)
    assert capsys.readouterr().err.splitlines() == [
        "length 2 · temperature 0.5 · top-p 0.9 · seed 9",
        "length 2",
        "top-k none",
        "temperature 0.5",
        "stop none",
        "seed 9",
    ]
    turns.take("")
    assert len(turns.text) == len("the ") + 2
    for name in SHAPING:
        spelled = f"/{name.replace('_', '-')}"
        assert spelled in HELP["/length 100"]
        turns.take(f"{spelled} 1")
    assert "min-p 1 · typical-p 1" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("/tempo 1", "/tempo: no such command"),
        ("/n 3", "/n: no such command"),
        ("/temperature hot", "/temperature: 'hot' is not a number"),
        ("/temperature none", "/temperature: 'none' is not a number"),
        ("/temperature -1", "/temperature: -1.0 is less than 0"),
        ("/top_p 2", "/top_p: 2.0 is not in (0, 1]"),
        ("/top-k 1.5", "/top-k: '1.5' is not a number"),
        ("/length 10000001", "/length: at most 10,000,000 characters a turn"),
        ("/length 99999999999999999999", "/length: at most 10,000,000 characters a turn"),
        ("/set temperature 1", "/set: takes nothing after it; /temperature 1 changes one"),
        ("/undo 2", "/undo: takes nothing after it"),
        ("/quit now", "/quit: takes nothing after it"),
        ("/save", "/save: name a file"),
        ("żółw", "U+017C"),
    ],
)
def test_invalid_command_changes_nothing(turns: Talk, line: str, problem: str) -> None:
    with pytest.raises(GptxError) as error:
        turns.take(line)
    assert str(error.value).startswith(problem) or problem == "U+017C"
    assert problem in str(error.value)
    assert (turns.text, turns.settings) == ("the ", SampleConfig(length=5, seed=7))
    with pytest.raises(ConfigError, match="nothing to take back"):
        turns.take("/undo")
    with pytest.raises(ConfigError, match="--length: at most 10,000,000 characters a turn"):
        Talk(turns.model, SampleConfig(length=10_000_001))


def test_save_replaces_only_its_own_file(turns: Talk, tmp_path: Path) -> None:
    kept, mine = tmp_path / "kept.txt", tmp_path / "mine.txt"
    mine.write_text("mine")
    with pytest.raises(ConfigError, match=r"mine.txt is there already; /save! .*mine.txt repl"):
        turns.take(f"/save {mine}")
    assert mine.read_text() == "mine"
    turns.take(f"/save {kept}")
    assert kept.read_text() == "the "
    turns.take("cat")
    turns.take(f"/save {kept}")  # the session's own file
    assert kept.read_text() == turns.text != "the "
    turns.take(f"/save! {mine}")
    assert mine.read_text() == turns.text
    turns.take("/new")
    for command in ("/save", "/save!"):
        with pytest.raises(ConfigError, match=f"^{command}: the text is empty"):
            turns.take(f"{command} {kept}")
    assert kept.read_text() == mine.read_text() != ""
    with pytest.raises(TextError, match="'/'"):  # a text that begins with it; not in the vocabulary
        turns.take("//")
    assert not turns.take("/quit")


def test_next_turn_continues_after_a_stop_text(
    trained: TrainedGPT, capsys: pytest.CaptureFixture[str]
) -> None:
    """Greedy sampling, so that the stop text certainly comes next."""
    free = trained.sample("the ", length=40, temperature=0)
    stop = free[6:8]
    turns = Talk(trained, SampleConfig(length=36, temperature=0), (stop,), text="the ")
    turns.take("")
    assert turns.text == free[: free.index(stop)]
    assert capsys.readouterr().err == f"stopped at '{stop.replace(' ', '␠')}'\n"
    turns.take("")
    first = len(free[: free.index(stop)]) + len(stop)
    again = free.find(stop, first)
    assert turns.text == (free[:again] if again > 0 else free[: first - len(stop) + 36])
    turns.take("/undo")
    turns.take("")  # only the next turn continues after the stop text
    assert turns.text == free[: free.index(stop)]


def test_command_changes_stop_texts(turns: Talk, capsys: pytest.CaptureFixture[str]) -> None:
    turns.take("/stop at ")
    assert turns.stops == ("at ",)
    turns.take("/stop \n")
    assert turns.stops == ("\n",)
    turns.take("/stop 漢")
    turns.take("/stop none")
    assert turns.stops == ()
    settings = "length 5 · temperature 0.8 · seed 7"
    assert capsys.readouterr().err.splitlines() == [
        f"{settings} · stop 'at␠'",
        f"{settings} · stop '⏎'",
        "note: /stop '漢' can never occur: the model does not know '漢'",
        f"{settings} · stop '漢'",
        settings,
    ]


@pytest.mark.parametrize("columns", [40, 80])
def test_help_breaks_between_words(
    turns: Talk,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    turns.take("/help")
    told = capsys.readouterr().err
    assert max(map(len, told.splitlines())) <= columns
    words = {word.strip(";,:") for word in told.split()}
    for name in (*COMMANDS, *SETTINGS):
        assert f"/{name.replace('_', '-')}" in words or name == "help"
    for what in HELP.values():
        assert {word.strip(";,:") for word in what.split()} <= words


def test_ctrl_c_ends_a_turn_and_keeps_its_text(
    turns: Talk, trained: TrainedGPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        stopped = (None,)

        def __iter__(self) -> Iterator[list[str]]:
            for n, piece in enumerate("abcdef"):
                if n == 2:
                    os.kill(os.getpid(), signal.SIGINT)
                yield [piece]

    monkeypatch.setattr(trained, "stream", lambda *_, **__: Interrupted())
    handler = signal.default_int_handler  # a shell's background job ignores the signal
    before = signal.signal(signal.SIGINT, handler)
    try:
        assert turns.take("")
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert turns.text == "the abc"


def test_session_reads_lines_until_end_of_file(
    turns: Talk, capfd: pytest.CaptureFixture[str]
) -> None:
    session(turns, "c\r/tempo\rdropped\x03/length 3\r\x1b\rat\r\x04")
    out, err = capfd.readouterr()
    assert err.startswith("a title · length 5 · temperature 0.8 · seed 7\n")
    assert "gptx: error: /tempo: no such command" in err
    assert out.startswith("the \n")
    assert turns.text.startswith("the c")
    assert turns.text[10:13] == "\nat"
    assert len(turns.text) == 4 + 1 + 5 + 3 + 3
    assert turns.settings.length == 3


def session(turns: Talk, typed: str) -> None:
    """Types these keys in a session, until its end."""
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text(typed)
        talk(turns, "a title")


@pytest.mark.parametrize("name", ["n" * 300, "~no-such-user/x", "no/folder/x", "\0"])
def test_save_to_an_invalid_name_fails_and_keeps_the_text(
    turns: Talk, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    session(turns, f"c\r/save {name}\r/save! {name}\r/length 3\r\x04")
    assert (turns.text[:5], turns.settings.length) == ("the c", 3)
    told = capfd.readouterr().err
    assert told.count("gptx: error: ") == 2
    assert "a bug in gptx" not in told


@pytest.mark.parametrize("error", [MemoryError(), GptxError("no room"), KeyError("unforeseen")])
def test_error_in_a_turn_does_not_end_the_session(
    turns: Talk,
    trained: TrainedGPT,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    error: Exception,
) -> None:
    def stream(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(trained, "stream", stream)
        session(turns, "c\r/length 3\r\x04")
    assert (turns.text, turns.settings.length) == ("the c", 3)
    assert "gptx: error: " in capfd.readouterr().err
