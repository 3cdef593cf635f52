"""Runs the program in this process; returns exit code, stdout and stderr."""

from __future__ import annotations

import io
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import TEXT
from foreign import write_nanogpt

from gpt.commands import main

TINY = (
    "--n-layer 2 --n-head 2 --n-embd 16 --block-size 16 --batch-size 4 --steps 8 "
    "--warmup-steps 2 --eval-interval 4 --counting 0"
).split()


class Terminal(io.StringIO):
    """A stream that looks like a terminal."""

    def isatty(self) -> bool:
        return True


class Screen(io.TextIOWrapper):
    """The same, of bytes."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


#: gptx("sample", "--length", "5", stdin=b"")
Gptx = Callable[..., Answer]


@pytest.fixture(scope="session")
def trained_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and one tiny run, to be copied."""
    folder = tmp_path_factory.mktemp("trained")
    text = TEXT + "To be, or not To be. The cat.\n" * 4  # characters of the README's prompts
    text += "qwerty qwerty\n" * 4
    (folder / "corpus.txt").write_text(text, encoding="utf-8")
    (folder / "held-out.txt").write_text("To be, or not to be.\n" * 9, encoding="utf-8")
    (folder / "new.txt").write_text("Árvíztűrő tükörfúrógép 🙂\n" * 30, encoding="utf-8")
    for name in ("books", "corpus"):  # docs/corpus.md uses a folder of this name
        (folder / name).mkdir()
        for number in range(10):
            (folder / name / f"{number}.txt").write_text(TEXT[:400], encoding="utf-8")
    write_nanogpt(folder, sorted(set(text)))  # docs/errors.md imports it
    with pytest.MonkeyPatch.context() as patch:
        at_home(folder, patch)
        answer = answer_of(patch, ("train", "corpus.txt", *TINY))
    assert answer.code == 0, answer.err
    return folder


@pytest.fixture(scope="module")
def home(trained_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of `trained_home` for a file of tests."""
    return Path(shutil.copytree(trained_home, tmp_path_factory.mktemp("home") / "home"))


@pytest.fixture(scope="module")
def kept(home: Path) -> str:
    """The name of a run in `home` that keeps the steps 0, 4 and 8."""
    with pytest.MonkeyPatch.context() as patch:
        at_home(home, patch)
        answer = answer_of(patch, ("train", "corpus.txt", *TINY, "--keep-all", "--run", "kept"))
    assert answer.code == 0, answer.err
    return "kept"


@pytest.fixture
def gptx(home: Path, monkeypatch: pytest.MonkeyPatch) -> Gptx:
    """Runs the program in `home`, in this process."""

    def run(*arguments: str, stdin: bytes = b"") -> Answer:
        return answer_of(monkeypatch, arguments, stdin)

    at_home(home, monkeypatch)
    return run


def at_home(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Default settings, and no browser."""
    patch.chdir(folder)
    patch.setattr("webbrowser.open", lambda address: True)
    for variable in ("GPTX_CHECKPOINTS", "GPTX_DATA", "GPTX_DEBUG", "COLUMNS"):
        patch.delenv(variable, raising=False)


def answer_of(
    patch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    stdin: bytes = b"",
    terminal: bool = False,
) -> Answer:
    """What the program answers in the current folder; terminal: of both of its outputs."""
    out = Screen if terminal else io.TextIOWrapper
    streams = [io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")]
    streams += [out(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
        patch.setattr(sys, name, stream)
    patch.setattr(sys, "argv", ["gptx", *arguments])
    interrupt = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as left:
        main()
    signal.signal(signal.SIGINT, interrupt)  # the program leaves its own
    texts = []
    for stream in streams[1:]:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return Answer(int(left.value.code or 0), *texts)
