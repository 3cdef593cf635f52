"""`gptx explain` from the command line: the list, the lessons, own words, own model."""

from __future__ import annotations

import json
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
from pages import payload_of
from program import Gptx
from rich.cells import cell_len

from gpt.commands.explain import offered_lessons
from gpt.lessons.catalogue import LESSONS

ROOT = Path(__file__).parent.parent
NUMBER = re.compile(r"−?\d+\.\d{4}")


def test_explain_lists_every_lesson(gptx: Gptx) -> None:
    answer = gptx("explain")
    assert (answer.code, answer.err) == (0, "next   gptx explain simple\n")
    assert [line.split()[0] for line in answer.out.splitlines()] == [*LESSONS, "mine"]
    records = [json.loads(line) for line in gptx("explain", "--json").out.splitlines()]
    assert [record["lesson"] for record in records] == [*LESSONS, "mine"]


@pytest.mark.parametrize("lesson", [*LESSONS, "mine"])
def test_lesson_fits_the_terminal(gptx: Gptx, monkeypatch: pytest.MonkeyPatch, lesson: str) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    answer = gptx("explain", lesson, *(["--text", "the cat"] if lesson == "mine" else []))
    assert (answer.code, answer.err) == (0, "")
    assert max(map(cell_len, answer.out.splitlines())) <= 40
    assert "✓" in answer.out
    assert "FAILED" not in answer.out


def test_explain_accepts_own_words_and_embeddings(gptx: Gptx, home: Path) -> None:
    (home / "rows.csv").write_text("# x y\nfény,1,0\ncica,0,2\n", encoding="utf-8")
    answer = gptx("explain", "simple", "--embeddings", "rows.csv")
    assert answer.code == 0
    assert re.search(r"scores \(2, 2\)\n +fény +cica\nfény +1\.0000 +0\.0000\n", answer.out)
    piped = gptx("explain", "simple", "--embeddings", "-", stdin=b"[[1, 0], [0, 2]]")
    assert NUMBER.findall(piped.out) == NUMBER.findall(answer.out)
    named = gptx(
        "explain", "simple", "--text", "fény cica", "--embeddings", "-", stdin=b"1 0\n0 2\n"
    )
    assert named.out == answer.out
    random = gptx("explain", "simple", "--text", "日本語", "--seed", "4").out
    assert "語" in random
    assert random != gptx("explain", "simple", "--text", "日本語", "--seed", "5").out
    piped = gptx("explain", "simple", "--text", "-", "--seed", "4", stdin="日本語".encode())
    assert random == piped.out


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        ("simpel", 2, "error: 'simpel' is not one of the lessons; did you mean simple?"),
        ("Simple", 2, "error: 'Simple' is not one of the lessons; did you mean simple?"),
        ("multi_head", 2, "did you mean multi-head?"),
        ("日本", 2, "'日本' is not one of the lessons; gptx explain lists them"),
        ("simple --text ,, --embeddings rows.csv", 2, "--text: rows.csv has words already"),
        ("simple --embeddings ragged.csv", 2, "row 2 has 1 numbers, row 1 has 2"),
        ("simple --text a --embeddings two.csv", 2, "--embeddings: 2 rows for 1 words"),
        ("simple --embeddings gone.csv", 3, "cannot read gone.csv"),
        ("mistakes --embeddings two.csv", 2, "mistakes generates its own; leave it out"),
        ("encoder-decoder --embeddings two.csv", 2, "encoder-decoder generates its own"),
        ("simple --text - --embeddings -", 2, "only one of them can read standard input"),
        ("simple --text", 2, "requires an argument"),
        ("simple --seed 3", 2, "--seed: simple uses random numbers only for --text"),
        ("induction --seed 3", 2, "--seed: the lesson induction uses no random numbers"),
        ("depth --embeddings two.csv", 2, "depth generates its own; leave it out"),
        ("trainable --seed 9223372036854775808", 2, "is not in [0, 2^63)"),
        ("trainable --run tiny", 2, "--run: only changes the lessons mine, positions, "),
        ("all --checkpoints x", 2, "--checkpoints: only changes the lessons mine, "),
        ("mine --seed 3", 2, "--seed: does not change the lesson mine"),
        ("mine --embeddings two.csv", 2, "--embeddings: does not change the lesson mine"),
        ("--text x", 2, "--text: name a lesson with it"),
        ("-o page.md", 2, "--output: a page needs a lesson"),
        ("simple -o simple.csv", 2, "--output: .csv is not one of .txt, .json, .md"),
        ("--open", 2, "--output: a page needs a lesson"),
        ("simple --open --json", 2, "--open: opens the HTML page, not json"),
        ("simple --open -o simple.md", 2, "--open: opens the HTML page, not md"),
        ("simple --answers", 2, "--answers: only for the HTML page; add --open or -o FILE.html"),
        ("simple --answers -o simple.json", 2, "--answers: only for the HTML page"),
        ("mine --layer 2", 2, "--layer: 2 is not in 0 … 1"),
        ("mine --head 9", 2, "--head: 9 is not in 0 … 1"),
        ("mine --text -", 3, "no text: there is nothing to explain"),
        (f"mine --text {'cat' * 6}", 3, "gptx attn … --truncate shows the last 16"),
        ("mine --text zebra", 3, "'z'"),
        ("mine --checkpoints none", 4, "train one with: gptx train"),
    ],
)
def test_bad_input_to_explain_prints_one_line(
    gptx: Gptx, home: Path, arguments: str, code: int, problem: str
) -> None:
    (home / "rows.csv").write_text("a 1 0\nb 0 2\n")
    (home / "two.csv").write_text("1 0\n0 2\n")
    (home / "ragged.csv").write_text("1 0\n0\n")
    answer = gptx("explain", *arguments.split())
    assert (answer.code, answer.out) == (code, "")
    assert problem in answer.err.splitlines()[-1]


def test_mine_refuses_bad_input_before_naming_the_run(gptx: Gptx, home: Path) -> None:
    first = next((home / "checkpoints").glob("corpus-*"))
    second = first.with_name("second-1")
    shutil.copytree(first, second)
    assert "the newest" in gptx("explain", "mine", "--text", "cat").err
    for wrong in ("--text=", "--layer=2", f"--text={'cat' * 6}"):
        assert len(gptx("explain", "mine", wrong).err.splitlines()) == 1
    shutil.rmtree(second)


def test_long_tables_are_cut_in_the_terminal_but_not_with_full_or_in_files(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = ("explain", "mine", "--text", "the cat sat on t")
    cut, full = gptx(*text).out.splitlines(), gptx(*text, "--full").out.splitlines()
    assert any(line == "rows 2–10 left out; --full shows all" for line in cut)
    assert len(cut) < 0.6 * len(full)
    some = re.compile(r"left out|first \d+ columns")
    assert not any(some.search(line) for line in full)
    assert max(map(cell_len, (*cut, *full))) <= 80
    record = json.loads(gptx(*text, "--json").out)
    weights = [t for s in record["steps"] for t in s["tables"] if t["name"] == "weights"]
    assert [len(row) for row in weights[0]["values"]] == [16] * 16
    assert gptx(*text, "--full", "-o", "mine.md").code == 0
    assert not some.search((home / "mine.md").read_text(encoding="utf-8"))
    refused = gptx("explain", "--full")
    assert (refused.code, refused.out) == (2, "")
    assert "--full: name a lesson with it" in refused.err


def test_mine_explains_the_newest_run_and_names_its_weights(gptx: Gptx) -> None:
    answer = gptx("explain", "mine", "--text", "the cat", "--layer", "1", "--head", "1")
    assert answer.code == 0
    assert "blocks.1.attention.qkv.weight, rows 8–15" in answer.out
    assert "Earlier layers" in answer.out
    record = json.loads(gptx("explain", "mine", "--text", "the cat", "--json").out)
    weights = next(
        table["values"]
        for step in record["steps"]
        for table in step["tables"]
        if table["name"] == "weights"
    )
    attention = json.loads(gptx("attn", "the cat", "--layer", "0", "--head", "0", "--json").out)
    assert weights == [[value or 0.0 for value in row] for row in attention["values"][0]]
    assert (record["text"], record["layer"], record["head"]) == ("the cat", 0, 0)
    assert record["run"] == attention["run"]
    assert "no TEXT given" in gptx("explain", "mine").err


def test_shell_completes_names_of_lessons() -> None:
    assert offered_lessons("") == [*LESSONS, "mine", "all"]
    assert offered_lessons("m") == ["multi-head", "mistakes", "mine"]


def test_failed_check_of_a_lesson_exits_with_7(gptx: Gptx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt.lessons.tutorials.simple.attend", lambda x: 1.001 * x)
    answer = gptx("explain", "simple")
    assert answer.code == 7
    assert answer.err.endswith(
        "a check failed: = attend(X) of the library; do not trust these numbers\n"
    )
    assert "✗ FAILED" in answer.out


def test_explain_all_prints_every_lesson_and_writes_one_page(gptx: Gptx, home: Path) -> None:
    records = [json.loads(line) for line in gptx("explain", "all", "--json").out.splitlines()]
    assert [record["lesson"] for record in records] == list(LESSONS)
    assert gptx("explain", "all", "-o", "page.md").code == 0
    chapters = re.findall(r"^## (.+)$", (home / "page.md").read_text(encoding="utf-8"), re.M)
    assert chapters == list(LESSONS)
    assert gptx("explain", "shiny", "-o", "shiny.txt").code == 0
    assert (home / "shiny.txt").read_text(encoding="utf-8") == gptx("explain", "shiny").out


def test_a_page_to_teach_from_is_written_and_opened(
    gptx: Gptx, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[str]()
    monkeypatch.setattr("webbrowser.open", lambda address: bool(opened.append(address)) or True)

    def page(*arguments: str, file: str) -> tuple[list[str], dict[str, Any]]:
        """Its lessons and its data."""
        assert gptx("explain", *arguments).code == 0
        html = (home / file).read_text(encoding="utf-8")
        assert " gptx lesson</title>" in html
        return re.findall('data-lesson="(.*?)"', html), payload_of(html)

    lessons, data = page("simple", "--open", file="simple.html")
    assert (lessons, opened) == (["simple"], [(home / "simple.html").as_uri()])
    assert (data["answers"], data["start"]) == (False, 1)
    again = page(
        "simple", "--open", "--answers", "--step", "3", "--digits", "2", file="simple.html"
    )
    assert (again[1]["answers"], again[1]["start"]) == (True, 3)
    assert {record["digits"] for record in again[1]["tables"].values()} == {2}
    assert page("all", "-o", "lessons.html", file="lessons.html")[0] == list(LESSONS)
    mine = ("mine", "--text", "the cat", "-o", "mine.HTML")
    assert page(*mine, file="mine.HTML")[0] == ["mine"]
    assert len(opened) == 2
    (home / "shiny.html").write_text("a page of mine", encoding="utf-8")
    refused = gptx("explain", "shiny", "--open")
    assert (refused.code, "shiny.html is not a page of gptx" in refused.err) == (2, True)
    assert (home / "shiny.html").read_text(encoding="utf-8") == "a page of mine"


def test_docs_attention_equals_the_lessons() -> None:
    """Numbers may differ by one in the last digit: another processor adds in another order."""
    pages = runpy.run_path(str(ROOT / "docs/lessons.py"))["pages"]()
    files = {path.name: path.read_text("utf-8") for path in (ROOT / "docs/attention").glob("*.md")}
    assert files.keys() == pages.keys()
    made, kept = ("\n".join(each[name] for name in sorted(each)) for each in (pages, files))
    assert NUMBER.sub("#", made) == NUMBER.sub("#", kept), "make lessons"
    for one, other in zip(NUMBER.findall(made), NUMBER.findall(kept), strict=True):
        assert abs(float(one.replace("−", "-")) - float(other.replace("−", "-"))) < 1.5e-4


def test_all_lessons_are_one_page_in_markdown(gptx: Gptx, home: Path) -> None:
    assert gptx("explain", "all", "-o", "all.md").code == 0
    page = (home / "all.md").read_text(encoding="utf-8")
    for name in LESSONS:
        assert f"- [{name}](#{name}): " in page
        assert f"\n## {name}\n" in page


def test_a_terminal_shows_a_step_and_the_next_after_a_key(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = gptx("explain", "simple").out
    steps = re.findall(r"^\d\. .*", whole, re.MULTILINE)
    monkeypatch.setattr("gpt.commands.explain.at_terminal", lambda: True)
    for keys, seen in (("  q", 3), ("q", 1), ("\x1b", 1), ("na", len(steps)), (" " * 9, 8)):
        typed = iter(keys)
        monkeypatch.setattr("gpt.commands.explain.getchar", lambda typed=typed: next(typed))
        answer = gptx("explain", "simple")
        assert (answer.code, re.findall(r"^\d\. .*", answer.out, re.MULTILINE)) == (0, steps[:seen])
        if seen == len(steps):
            assert answer.out == whole
        assert answer.err.startswith("step 1 of 8 · any key: the next one · a: all · q: end\n")
    gptx("explain", "simple", "-o", "simple.txt")  # asks for no key
    gptx("explain", "simple", "--json")


def test_one_step_is_shown_alone(gptx: Gptx) -> None:
    whole = gptx("explain", "causal").out
    begin, *steps = re.split(r"(?m)^(?=\d\. )", whole)
    for number, step in enumerate(steps, 1):
        assert (
            gptx("explain", "causal", "--step", str(number)).out == f"{begin}{step}".rstrip() + "\n"
        )
    for wrong in ("0", "7", "best", "-1"):
        answer = gptx("explain", "causal", "--step", wrong)
        assert answer.code == 2
        assert f"--step: causal has the steps 1 to 6, not '{wrong}'" in answer.err
    for name in ((), ("all",)):
        assert "--step: name one lesson with it" in gptx("explain", *name, "--step", "2").err
