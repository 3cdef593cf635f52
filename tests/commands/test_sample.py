"""`gptx sample`: prompts in, texts out, where they end, what they copied."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from program import Gptx


def test_a_sample_is_the_prompt_and_its_length(gptx: Gptx) -> None:
    answer = gptx("sample", "--prompt", "the cat", "--length", "30", "--stop", "")
    assert answer.code == 0
    assert answer.out.startswith("the cat")
    assert len(answer.out.rstrip("\n")) >= len("the cat") + 28
    assert gptx("sample", "--prompt", "the cat", "--length", "30").out == answer.out
    assert gptx("sample", "--prompt", "the cat", "--length", "30", "--seed", "2").out != answer.out


def test_prompts_come_from_argument_option_file_and_pipe(gptx: Gptx, home: Path) -> None:
    (home / "prompt.txt").write_text("the rat", encoding="utf-8")
    short = ("--length", "10")
    texts = {
        gptx("sample", "the rat", *short).out,
        gptx("sample", "--prompt", "the rat", *short).out,
        gptx("sample", "--prompt-file", "prompt.txt", *short).out,
        gptx("sample", "-", *short, stdin=b"the rat").out,
        gptx("sample", "--prompt", "-", *short, stdin=b"the rat").out,
    }
    assert len(texts) == 1


def test_several_samples_are_separated_and_equal_their_json(gptx: Gptx) -> None:
    many = ("sample", "--prompt", "the ", "-n", "3", "--length", "12")
    plain, lines = gptx(*many).out, gptx(*many, "--json").out.splitlines()
    records = [json.loads(line) for line in lines]
    joined = "\n---\n".join(record["text"] for record in records)
    assert plain == joined.removesuffix("\n") + "\n"
    assert [record["sample"] for record in records] == [0, 1, 2]
    assert len({record["text"] for record in records}) > 1


def test_stop_strings_end_the_text_before_them(gptx: Gptx) -> None:
    free = gptx("sample", "--prompt", "the", "--length", "60", "--temperature", "0").out
    stopped = gptx(
        "sample", "--prompt", "the", "--length", "60", "--temperature", "0", "--stop", " "
    )
    assert stopped.out == free[: free.index(" ", 3)] + "\n"


def test_unknown_characters_can_be_skipped(gptx: Gptx) -> None:
    skipped = gptx("sample", "--prompt", "th☃e", "--unknown", "skip", "--length", "5")
    assert skipped.out == gptx("sample", "--prompt", "the", "--length", "5").out


def test_a_long_prompt_is_echoed_whole_with_one_note(gptx: Gptx) -> None:
    prompt = "the cat sat on the mat. " * 4
    answer = gptx("sample", "--prompt", prompt, "--length", "5")
    assert answer.out.startswith(prompt)
    assert len(answer.err.splitlines()) == 1


def test_sample_tells_what_it_copied(gptx: Gptx) -> None:
    answer = gptx("sample", "--length", "60", "--novelty", "--temperature", "0.1")
    assert answer.code == 0
    assert re.search(r"novelty: \d+ of 60 characters .* at most\n", answer.err)
    lines = gptx("sample", "-n", "2", "--length", "30", "--novelty", "--json").out.splitlines()
    corpus = Path("corpus.txt").read_text(encoding="utf-8")
    for record in map(json.loads, lines):
        found = record["novelty"]
        copied = record["text"][found["start"] : found["start"] + found["copied"]]
        assert copied == found["text"] == corpus[found["at"] : found["at"] + found["copied"]]
        assert found["times"] >= 1
        assert found["validation"]["median"] <= found["validation"]["largest"] <= 30
    assert gptx("sample", "--length", "0", "--novelty").err.startswith("novelty: 0 of 0")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("", "-i: needs a terminal; without one, give the text as --prompt"),
        ("-n 2", "-i: goes without -n"),
        ("--json", "-i: goes without --json"),
        ("--novelty", "-i: goes without --novelty"),
    ],
)
def test_writing_in_turns_needs_a_person(gptx: Gptx, arguments: str, problem: str) -> None:
    answer = gptx("sample", "-i", *arguments.split())
    assert (answer.code, answer.out) == (2, "")
    assert problem in answer.err
