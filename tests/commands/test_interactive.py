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

import gpt
from gpt.commands.interactive import WritingSession
from gpt.config import SampleConfig
from gpt.config.model import DISTRIBUTION_OPTIONS
from gpt.errors import ConfigError, GptxError, TextError
from gpt.interface.trained import TrainedGPT
from gpt.storage.run import Checkpoint
from gpt.vocabulary import Vocabulary
from gpt.words import needs_space_between


@pytest.fixture
def trained(tiny: Checkpoint) -> TrainedGPT:
    return TrainedGPT(tiny.model())


@pytest.fixture
def turns(trained: TrainedGPT) -> WritingSession:
    return WritingSession(trained, SampleConfig(length=5, seed=7), text="the ")


def test_undo_removes_one_turn_and_a_retry_differs(turns: WritingSession) -> None:
    texts = ["the "]
    for line in ("", "c", ""):
        turns.handle_line(line)
        texts.append(turns.text)
    for text in texts[2::-1]:
        turns.handle_line("/undo")
        assert turns.text == text
    with pytest.raises(ConfigError, match="nothing to take back"):
        turns.handle_line("/undo")
    attempts = set()
    for _ in range(6):
        turns.handle_line("")
        attempts.add(turns.text)
        turns.handle_line("/undo")
    assert len(attempts) > 3
    turns.handle_line("/new")
    assert turns.text == ""
    turns.handle_line("/undo")
    assert turns.text == "the "


def test_commands_change_settings_and_print_them(
    turns: WritingSession, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in (
        "/temperature 0.5",
        "/top-k 3",
        "/top_p .9",
        "/length 2",
        "/seed 9",
        "/top-k none",
    ):
        assert turns.handle_line(line)
    assert turns.settings == SampleConfig(length=2, seed=9, temperature=0.5, top_p=0.9)
    capsys.readouterr()
    for line in ("/length", "/top-k", "/stop"):
        turns.handle_line(line)
    shown = "temperature 0.5 · top-p 0.9 · length 2 · seed 9"
    assert capsys.readouterr().err.splitlines() == [shown] * 3
    turns.handle_line("")
    assert len(turns.text) == len("the ") + 2
    for name in DISTRIBUTION_OPTIONS:
        turns.handle_line(f"/{name} 1")
    assert "min-p 1" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("/tempo 1", "/tempo: no such command"),
        ("/n 3", "/n: no such command"),
        ("/temperature hot", "/temperature: 'hot': Expected float, got str"),
        ("/temperature -1", "/temperature: -1: Expected float >= 0.0"),
        ("/length [1]", "/length: [1]: Expected int, got array"),
        ("/undo 2", "/undo: takes no value"),
        ("żółw", "U+017C"),
    ],
)
def test_invalid_command_changes_nothing(turns: WritingSession, line: str, problem: str) -> None:
    with pytest.raises(GptxError) as error:
        turns.handle_line(line)
    assert str(error.value).startswith(problem) or problem == "U+017C"
    assert problem in str(error.value)
    assert (turns.text, turns.settings) == ("the ", SampleConfig(length=5, seed=7))
    with pytest.raises(ConfigError, match="nothing to take back"):
        turns.handle_line("/undo")


def test_save_adds_to_a_file(turns: WritingSession, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    turns.handle_line(f"/save {mine}")
    assert mine.read_text() == "mine\n---\nthe "
    turns.handle_line("/new")
    with pytest.raises(ConfigError, match=r"^/save: the text is empty"):
        turns.handle_line("/save")
    turns.handle_line("cat")
    turns.handle_line("/save")  # the same file
    assert mine.read_text() == f"mine\n---\nthe \n---\n{turns.text}"
    with pytest.raises(TextError, match="'/'"):  # a text that begins with it; not in the vocabulary
        turns.handle_line("//")
    assert not turns.handle_line("/quit")


def test_next_turn_continues_after_a_stop_text(
    trained: TrainedGPT, capsys: pytest.CaptureFixture[str]
) -> None:
    """Greedy sampling, so that the stop text certainly comes next."""
    free = trained.sample("the ", length=40, temperature=0)
    stop = free[6:8]
    turns = WritingSession(trained, SampleConfig(length=36, temperature=0), (stop,), text="the ")
    turns.handle_line("")
    assert turns.text == free[: free.index(stop)]
    assert capsys.readouterr().err == f"stopped at {stop!r}\n"
    turns.handle_line("")
    assert turns.text.startswith(free[: free.index(stop) + len(stop)])
    turns.handle_line("/undo")
    turns.handle_line("")  # only the next turn continues after the stop text
    assert turns.text == free[: free.index(stop)]


def test_ctrl_c_ends_a_turn_and_keeps_its_text(
    turns: WritingSession, trained: TrainedGPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        stopped, ended = (None,), ["interrupted"]

        def __iter__(self) -> Iterator[list[str]]:
            for n, piece in enumerate("abcdef"):
                if n == 2:
                    os.kill(os.getpid(), signal.SIGINT)
                yield [piece]

    monkeypatch.setattr(trained, "stream", lambda *_, **__: Interrupted())
    handler = signal.default_int_handler  # a shell's background job ignores the signal
    before = signal.signal(signal.SIGINT, handler)
    try:
        assert turns.handle_line("")
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert turns.text == "the abc"


@pytest.mark.parametrize(
    ("typed", "begins"),
    [("sat", "the cat sat"), ("+s", "the cats"), (" on", "the cat on"), (".", "the cat.")],
)
def test_turns_whose_words_meet_get_a_space(trained: TrainedGPT, typed: str, begins: str) -> None:
    turns = WritingSession(trained, SampleConfig(length=0), text="the cat")
    turns.handle_line(typed)
    assert turns.text == begins


@pytest.mark.parametrize(
    ("before", "after", "meet"),
    [
        *(("th", "and", True), ("3", "rd", True), ("wept.", "She", True), ("3.", "14", False)),
        *(("th ", "and", False), ("th", ", and", False), ("", "and", False)),
        *(("漢字", "文", False), ("は", "る", False), ("봄", "이", True), ("слово", "и", True)),
    ],
)
def test_words_meet_in_scripts_with_spaces(before: str, after: str, meet: bool) -> None:
    assert needs_space_between(before, after) == meet


def test_again_writes_another_version_and_says_its_seed(
    turns: WritingSession, trained: TrainedGPT, capsys: pytest.CaptureFixture[str]
) -> None:
    turns.handle_line("cat")
    first = turns.text
    turns.handle_line("/again")
    assert turns.text == trained.sample("the cat", length=5, seed=8) != first
    assert capsys.readouterr().err == "seed 8\n"
    turns.handle_line("/seed 7")
    turns.handle_line("/again")
    assert turns.text == first
    turns.handle_line("/undo")
    assert turns.text == "the "


def test_save_adds_nothing_to_a_file_with_the_name_of_the_learned_text(fresh: Checkpoint) -> None:
    model = gpt.load(fresh.path.parent)
    (name,) = model.manifest.corpus.names
    with pytest.raises(ConfigError, match=f"the model learned a text named {name}"):
        WritingSession(model, SampleConfig(), text="the ").handle_line(f"/save {name}")


def test_novelty_is_the_longest_copy_that_the_model_wrote_in_any_turn(
    fresh: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = gpt.load(fresh.path.parent), fresh.path.parents[2] / "data"
    turns = WritingSession(model, SampleConfig(length=12), text="the ", data=data)
    with pytest.raises(ConfigError, match="/novelty: the model has written nothing yet"):
        turns.handle_line("/novelty")
    written = []
    for line in ("", "rat sat", "", "cat"):
        turns.handle_line(line)
        written.append(turns.text[-12:])
    capsys.readouterr()
    turns.handle_line("/novelty")
    longest = max(model.novelty(written, data=data), key=lambda novelty: len(novelty.longest))
    assert capsys.readouterr().err == f"{longest}\n"


def test_session_reads_lines_until_end_of_file(
    turns: WritingSession, capfd: pytest.CaptureFixture[str]
) -> None:
    session(turns, "c\r/tempo\rdropped\x03/length 3\r\\nat\r\x04")
    out, err = capfd.readouterr()
    assert err.startswith(f"{turns.model.stored.title} · temperature 0.8 · length 5 · seed 7\n")
    assert "gptx: error: /tempo: no such command" in err
    assert out.startswith("the \n")
    assert turns.text.startswith("the c")
    assert "\nat" in turns.text[9:14]
    assert turns.settings.length == 3


def session(turns: WritingSession, typed: str) -> None:
    """Types these keys in a session, until its end."""
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text(typed)
        turns.run()


@pytest.mark.parametrize("error", [GptxError("no room"), KeyError("unforeseen")])
def test_error_in_a_turn_does_not_end_the_session(
    turns: WritingSession,
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


def test_a_line_of_dialogue_begins_a_new_line(trained: TrainedGPT) -> None:
    vocabulary = Vocabulary(trained.vocabulary.characters + "—“")
    for typed, begins in (("— no", "the cat\n— no"), ("+— no", "the cat— no")):
        turns = WritingSession(trained, SampleConfig(length=0), text="the cat")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trained, "vocabulary", vocabulary)
            patch.setattr(trained, "stream", lambda *_, **__: Nothing())
            turns.handle_line(typed)
        assert turns.text == begins


class Nothing:
    stopped, ended = (None,), ["length"]

    def __iter__(self) -> Iterator[list[str]]:
        return iter(())


def test_writing_options_hold_in_turns(
    turns: WritingSession, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in ("/ban t\\n", "/keep-stop true", "/stop a", "/length 60", "/repetition 1"):
        turns.handle_line(line)
    assert turns.settings.ban == "t\n"
    turns.handle_line("")
    assert turns.text.endswith("a")
    assert not {"t", "\n"} & set(turns.text[4:])
    before = turns.text
    turns.handle_line("")  # the kept stop is not written again
    assert turns.text[len(before)] != "a" or turns.text == before + "a"
    turns.handle_line("/seed none")
    assert turns.settings.seed is not None
    assert "keep-stop True · ban t" in capsys.readouterr().err
