"""The program in this process, with streams and a folder of its own, for tests of commands."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import TEXT

import cli

TINY = (
    "--n-layer 2 --n-head 2 --n-embd 16 --block-size 16 --batch-size 4 --steps 8 "
    "--warmup-steps 2 --eval-interval 4"
).split()


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


Gptx = Callable[..., Answer]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and one tiny run, as a user would have it."""
    folder = tmp_path_factory.mktemp("home")
    text = TEXT + "To be, or not To be. The cat.\n" * 4  # what the README's prompts need
    text += "qwerty qwerty\n" * 4
    (folder / "corpus.txt").write_text(text, encoding="utf-8")
    (folder / "repeats.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def gptx(home: Path, monkeypatch: pytest.MonkeyPatch) -> Gptx:
    """Runs the program in `home`, in this process; trains its tiny run when first asked."""
    monkeypatch.chdir(home)
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    for variable in ("GPTX_CHECKPOINTS", "GPTX_DATA", "GPTX_DEBUG", "COLUMNS"):
        monkeypatch.delenv(variable, raising=False)

    def run(*arguments: str, stdin: bytes = b"") -> Answer:
        streams = [
            io.TextIOWrapper(io.BytesIO(data), encoding="utf-8") for data in (stdin, b"", b"")
        ]
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            monkeypatch.setattr(sys, name, stream)
        monkeypatch.setattr(sys, "argv", ["gptx", *arguments])
        with pytest.raises(SystemExit) as left:
            cli.main()
        texts = []
        for stream in streams[1:]:
            stream.flush()
            texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
        return Answer(int(left.value.code or 0), *texts)

    if not (home / "checkpoints").exists():
        trained = run("train", "corpus.txt", *TINY)
        assert trained.code == 0, trained.err
    return run
