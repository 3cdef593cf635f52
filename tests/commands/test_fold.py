"""What is typed in another way than the text was written: quotation marks, dashes, accents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program import Gptx

NOVEL = "“It’s the King’s horse—an árvíztűrő one”, said he; the horse saw us.\n" * 80
TINY = "--n-layer 1 --n-head 2 --n-embd 16 --block-size 32 --counting 0 --steps 2".split()
MODEL = ("--checkpoints", "novel")


@pytest.fixture
def novel(gptx: Gptx, home: Path) -> Path:
    (home / "novel.txt").write_text(NOVEL)
    if not (home / "novel").exists():
        assert gptx("train", "novel.txt", *TINY, *MODEL).code == 0
    return home


def test_a_straight_apostrophe_is_read_as_the_novels(gptx: Gptx, novel: Path) -> None:
    note = "note: the model reads ’ for '"
    for command in ("sample --length 3 --prompt", "next", "attn", "attn --truncate"):
        answer = gptx(*command.split()[:1], *command.split()[1:], "King's", *MODEL)
        assert (answer.code, answer.err.splitlines().count(note)) == (0, 1), answer.err
        exact = gptx(*command.split(), "King's", "--unknown", "error", *MODEL)
        assert (exact.code, "(U+0027 APOSTROPHE) at position 4" in exact.err) == (3, True)
    assert gptx("sample", "--length", "3", "--prompt", "King's", *MODEL).out.startswith("King’s")
    stop = gptx("sample", "--length", "3", "--stop", "King's", *MODEL)
    assert note in stop.err


def test_decomposed_letters_are_not_left_out(gptx: Gptx, novel: Path) -> None:
    typed = "a\u0301rvi\u0301ztu\u030bro\u030b ☃"
    answer = gptx("sample", "--length", "1", "--unknown", "skip", "--prompt", typed, *MODEL)
    assert answer.out.startswith("árvíztűrő ")
    assert "left out 1 of 11 characters, which the model does not know: '☃'" in answer.err


def test_a_page_begins_with_the_text_that_the_model_reads(gptx: Gptx, novel: Path) -> None:
    answer = gptx("live", "King's", "-o", "page.html", *MODEL)
    assert (answer.code, "the model reads ’ for '" in answer.err) == (0, True), answer.err
    page = (novel / "page.html").read_text()
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert (data["text"], data["folds"]["'"]) == ("King’s", ["’", "’"])
