"""`gptx export`: what it prints, JSON, and bad input."""

from __future__ import annotations

import json
import os
from pathlib import Path

from program import TINY, Gptx
from random_models import random_file

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: nothing is downloaded

COUNTED = [*TINY[: TINY.index("--counting")], "--counting", "6", "--run", "counts"]


def test_export_writes_a_folder_and_says_how_to_open_it(gptx: Gptx, home: Path) -> None:
    answer = gptx("export", "folder")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err.startswith("exported: corpus-1 step 8 to folder, 0.03 MB: GPTNeoXForCausalLM")
    assert "the folder's README.md says how to open it" in answer.err
    again = gptx("export", "folder")
    assert (again.code, again.out) == (2, "")
    assert "folder exists already and has files; name another folder (--force" in again.err
    forced = gptx("export", "folder", "--force", "--json", "--step", "8")
    record = json.loads(forced.out)
    assert (record["architecture"], record["path"]) == ("GPTNeoXForCausalLM", "folder")
    assert record["files"] == {
        path.name: path.stat().st_size for path in (home / "folder").iterdir()
    }
    assert (record["run"], record["step"], record["note"]) == ("corpus-1", 8, "")


def test_export_of_a_model_that_counts_says_that_it_is_the_gpt_alone(gptx: Gptx) -> None:
    assert gptx("train", "corpus.txt", *COUNTED).code == 0
    answer = gptx("export", "counted", "--run", "counts", "--json")
    note = json.loads(answer.out)["note"]
    assert note.startswith("the export has only the GPT, not the counts of n-grams; ")
    assert f"note: {note.replace('`', '')}" in answer.err.replace("`", "")


def test_export_refuses_what_it_cannot_write_with_one_line(gptx: Gptx, home: Path) -> None:
    random_file(home / "none.safetensors", position="none")
    (home / "file").write_text("mine", encoding="utf-8")
    for arguments, code, problem in (
        (["export"], 2, "Missing argument 'path'"),
        (["export", "a", "--run", "nobody"], 4, "no run 'nobody'"),
        (["export", "a", "--run", "none.safetensors"], 2, "this one has --position none"),
        (["export", "file"], 6, "cannot write file: Not a directory"),
        (["export", "no/a"], 6, "cannot write no/a: its folder does not exist; make it first"),
    ):
        answer = gptx(*arguments)
        assert (answer.code, answer.out) == (code, ""), answer.err
        assert problem in answer.err
        assert "Traceback" not in answer.err
    assert not (home / "a").exists()
    assert (home / "file").read_text(encoding="utf-8") == "mine"
