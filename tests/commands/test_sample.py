"""`gptx sample`: prompts, texts, stops, novelty, devices."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from program import TINY, Gptx

import gpt
from gpt.reading.decode import CachedDecoder
from gpt.reading.gpt import Array
from gpt.vocabulary import Ids

SAMPLE = ("sample", "--seed", "1")


def test_sample_prints_prompt_plus_length_characters(gptx: Gptx) -> None:
    answer = gptx(*SAMPLE, "--prompt", "the cat", "--length", "30")
    assert answer.code == 0
    assert answer.out.startswith("the cat")
    assert len(answer.out.rstrip("\n")) >= len("the cat") + 28
    assert gptx(*SAMPLE, "--prompt", "the cat", "--length", "30").out == answer.out
    assert gptx(*SAMPLE, "--prompt", "the cat", "--length", "30", "--seed", "2").out != answer.out


def test_prompt_is_read_from_argument_option_file_or_pipe(gptx: Gptx, home: Path) -> None:
    (home / "prompt.txt").write_text("the rat", encoding="utf-8")
    short = ("--length", "10")
    texts = {
        gptx(*SAMPLE, "the rat", *short).out,
        gptx(*SAMPLE, "--prompt", "the rat", *short).out,
        gptx(*SAMPLE, "--file", "prompt.txt", *short).out,
        gptx(*SAMPLE, "-", *short, stdin=b"the rat").out,
        gptx(*SAMPLE, "--prompt", "-", *short, stdin=b"the rat").out,
    }
    assert len(texts) == 1


@pytest.mark.parametrize("stop", [(), ("--stop", " ")])
def test_several_samples_are_separated_and_equal_the_json(
    gptx: Gptx, stop: tuple[str, ...]
) -> None:
    """With a stop text they end at different steps."""
    many = (*SAMPLE, "--prompt", "the", "-n", "9", "--length", "50", *stop)
    plain, lines = gptx(*many).out, gptx(*many, "--json").out.splitlines()
    records = [json.loads(line) for line in lines]
    joined = "\n---\n".join(record["text"] for record in records)
    assert plain == joined.removesuffix("\n") + "\n"
    assert [record["sample"] for record in records] == [*range(9)]
    assert len({len(record["text"]) if stop else record["text"] for record in records}) > 1


def test_prompt_longer_than_the_context_is_printed_whole_with_a_note(gptx: Gptx) -> None:
    prompt = "the cat sat on the mat. " * 4
    answer = gptx(*SAMPLE, "--prompt", prompt, "--length", "5")
    assert answer.out.startswith(prompt)
    assert len(answer.err.splitlines()) == 1


def test_sample_novelty_shows_copied_text(gptx: Gptx) -> None:
    answer = gptx(*SAMPLE, "--length", "60", "--novelty", "--temperature", "0.1")
    assert answer.code == 0
    assert re.search(r"passage has \d+ of 60 characters: “.*”, at character [\d,]+ of", answer.err)
    new = ("--length", "30", "--novelty", "--json")
    lines = gptx(*SAMPLE, "--prompt", "the c", "-n", "2", *new).out.splitlines()
    corpus = Path("corpus.txt").read_text(encoding="utf-8")
    for record in map(json.loads, lines):
        found = record["novelty"]
        copied = record["text"][found["start"] : found["start"] + found["copied"]]
        assert found["start"] >= len("the c")  # copies in the prompt do not count
        assert copied == found["text"] == corpus[found["at"] : found["at"] + found["copied"]]
        assert found["times"] >= 1
    assert gptx(*SAMPLE, "--length", "0", "--novelty").err.startswith("none of the 0 characters")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("", "-i: needs a terminal; without one, give the text as --prompt"),
        ("-n 2", "-i: leave out "),
        ("--json", "-i: leave out "),
        ("--novelty", "-i: leave out "),
    ],
)
def test_interactive_sampling_needs_a_terminal(gptx: Gptx, arguments: str, problem: str) -> None:
    answer = gptx(*SAMPLE, "-i", *arguments.split())
    assert (answer.code, answer.out) == (2, "")
    assert problem in answer.err


def test_sample_json_has_settings_and_reason_of_the_end(gptx: Gptx) -> None:
    made = "sample the --json --length 9 --top-k 4 --min-p .01 --seed 3 -n 2".split()
    for record in map(json.loads, gptx(*made, "--stop", " ").out.splitlines()):
        told = [record[name] for name in ("temperature", "top_k", "top_p", "min_p")]
        assert told == [0.8, 4, None, 0.01]
        assert (record["schema"], record["length"], record["stop"]) == (1, 9, [" "])
        assert (record["seed"], record["prompt"]) == (3, "the")
        assert record["ended"] == ("length" if len(record["text"]) == 12 else "stop")
    (whole,) = gptx(*SAMPLE, "the", "--json", "--length", "9").out.splitlines()
    assert json.loads(whole)["ended"] == "length"
    greedy = gptx(*SAMPLE, "the", "--json", "--temperature", "0", "--stop", " ").out
    assert json.loads(greedy)["ended"] == "stop"


@pytest.mark.parametrize("form", [(), ("-n", "2"), ("--json",), ("-n", "2", "--novelty")])
def test_ctrl_c_keeps_the_text_written_so_far(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch, form: tuple[str, ...]
) -> None:
    whole = gptx(*SAMPLE, "the", "--length", "20", *form[:2]).out
    step, steps = CachedDecoder.step, iter(range(9))

    def interrupted(self: CachedDecoder, ids: Ids) -> Array:
        if next(steps) == 7:
            raise KeyboardInterrupt
        return step(self, ids)

    monkeypatch.setattr(CachedDecoder, "step", interrupted)
    answer = gptx(*SAMPLE, "the", "--length", "20", *form)
    assert (answer.code, answer.err) == (130, "")
    if "--json" in form:
        record = json.loads(answer.out)
        assert (record["ended"], len(record["text"])) == ("interrupted", len("the") + 8)
        return
    texts, wholes = (out.removesuffix("\n").split("\n---\n") for out in (answer.out, whole))
    for text, complete in zip(texts, wholes, strict=True):
        assert len(text) == len("the") + 8
        assert complete.startswith(text)


def test_samples_that_do_not_fit_in_memory_are_refused_at_once(gptx: Gptx) -> None:
    answer = gptx(*SAMPLE, "-n", "1000000000000", "--device", "cpu")
    assert (answer.code, answer.out) == (8, "")
    said = re.fullmatch(
        r"gptx: error: out of memory: 1,000,000,000,000 samples at once need ([\d,.]+) GB, "
        r"([\d,.]+) GB are free; try -n (\d+)\n",
        answer.err,
    )
    assert said
    needed, free, fits = (float(number.replace(",", "")) for number in said.groups())
    assert fits * needed / 10**12 == pytest.approx(free / 2, rel=0.05)


def test_stop_texts_that_cannot_occur_are_refused_or_reported(gptx: Gptx) -> None:
    empty = gptx(*SAMPLE, "--stop", "")
    assert (empty.code, empty.out) == (2, "")
    assert empty.err.startswith("gptx: error: --stop: an empty text")
    never = gptx(*SAMPLE, "--length", "3", "--stop", "a漢")
    assert (never.code, never.out) == (3, "")
    assert "U+6F22" in never.err


def test_sample_is_printed_before_it_fails_without_corpus(gptx: Gptx, home: Path) -> None:
    (home / "corpus.txt").rename(home / "gone.txt")
    options = ("--data", "nowhere", "--novelty", "--length", "9")
    try:
        answer = gptx(*SAMPLE, *options)
        record = json.loads(gptx(*SAMPLE, *options, "--json").out)
    finally:
        (home / "gone.txt").rename(home / "corpus.txt")
    assert (answer.code, answer.out) == (3, gptx(*SAMPLE, "--length", "9").out)
    assert answer.err.startswith("gptx: error: --novelty needs the corpus: cannot read corpus 'c")
    assert (
        "elsewhere: gptx train PATH --resume, or set --data to a folder with its encoded copy"
        in answer.err
    )
    assert record["text"] == answer.out.removesuffix("\n")
    assert "novelty" not in record


@pytest.mark.skipif(torch.cuda.is_available(), reason="this torch has CUDA")
@pytest.mark.parametrize("command", [(*SAMPLE, "the"), ("train", "corpus.txt", *TINY)])
def test_requested_device_that_torch_cannot_use_is_refused(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], home: Path
) -> None:
    before = sorted((home / "checkpoints").iterdir())
    for device, module in (("cuda", "cuda_device_count"), ("mps", "has_mps")):
        monkeypatch.setattr(f"gpt.devices.{module}", lambda: True)
        answer = gptx(*command, "--device", device)
        assert (answer.code, answer.out) == (2, "")
        error = answer.err.splitlines()[-1]
        assert error.startswith(f"gptx: error: --device: torch cannot compute on {device} (")
        assert error.endswith("; install a version of torch that can, or use --device cpu")
    assert sorted((home / "checkpoints").iterdir()) == before


def test_a_new_text_each_time_whose_seed_is_printed(gptx: Gptx) -> None:
    line = ("sample", "the", "--length", "60", "--temperature", "2")
    first, second = gptx(*line), gptx(*line)
    assert first.out != second.out
    seed = re.fullmatch(r"seed (\d+)\n", first.err)
    assert seed
    record = json.loads(gptx(*line, "--json", "--seed", seed[1]).out)
    assert record["seed"] == int(seed[1])
    assert record["text"].removesuffix("\n") + "\n" == first.out


def test_typed_escapes_mean_the_same_in_prompt_and_stop(gptx: Gptx) -> None:
    line = (*SAMPLE, "--length", "90", "--keep-stop")
    answer = gptx(*line, "--prompt", "the\\n", "--stop", r"\n")
    assert answer == gptx(*line, "--prompt", "the\n", "--stop", "\n")
    assert answer.out.startswith("the\n")


def test_prompts_of_a_file_are_continued_but_for_unreadable_lines(gptx: Gptx, home: Path) -> None:
    (home / "prompts.txt").write_text("the cat\n\nżółw\nno rat\n", encoding="utf-8")
    asked = (*SAMPLE, "--prompts", "prompts.txt", "--length", "9")
    answer = gptx(*asked)
    singles = [gptx(*SAMPLE, prompt, "--length", "9").out for prompt in ("the cat", "no rat")]
    assert (answer.code, answer.out) == (3, "---\n".join(singles))
    assert answer.err.startswith("gptx: error: prompts.txt: line 3: 'ż' (U+017C")
    new = gptx(*asked, "--no-prompt", "-n", "2", "-o", "out.txt")
    assert (new.code, new.out) == (3, "")
    lines = gptx(*asked, "-n", "2", "--json").out.splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    prompts = [json.loads(line)["prompt"] for line in lines]
    assert prompts == ["the cat"] * 2 + ["no rat"] * 2
    pairs = zip(texts, prompts, strict=True)
    joined = "\n---\n".join(text.removeprefix(prompt) for text, prompt in pairs)
    assert (home / "out.txt").read_text("utf-8") == joined.removesuffix("\n") + "\n"


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        ("--avoid-copies 0", 2, "--avoid-copies: 0: Expected int >= 1"),
        ("--ban ,.!QTabcdefhmnoqrstuwy\\n\\x20", 2, "--ban: "),
        ("--prompts wrong.txt", 3, "wrong.txt: line 2: 'ż' (U+017C"),
        ("--prompts empty.txt", 2, "--prompts: the file has no prompt"),
        ("-o nowhere/text.txt", 6, "cannot write nowhere/text.txt: its folder does not exist"),
        ("--prompts empty.txt --prompt a", 2, "give the text once"),
    ],
)
def test_wrong_options_of_a_sample_are_refused(
    gptx: Gptx, home: Path, options: str, code: int, problem: str
) -> None:
    (home / "empty.txt").write_text("\n")
    (home / "wrong.txt").write_text("\nżółw", encoding="utf-8")
    words = [word.replace("\\x20", " ") for word in options.split()]
    answer = gptx(*SAMPLE, *words)
    assert (answer.code, answer.out) == (code, "")
    assert problem in answer.err


def test_avoided_copies_are_not_in_the_corpus(
    gptx: Gptx, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = (*SAMPLE, "the ", "--length", "80", "--no-prompt", "--temperature", "0")
    answer = gptx(*line, "--avoid-copies", "6")
    corpus, text = (home / "corpus.txt").read_text("utf-8"), answer.out.removesuffix("\n")
    assert len(text) > 20
    assert not any(text[at : at + 7] in corpus for at in range(len(text) - 6))
    monkeypatch.setattr("gpt.reading.sampler.LEAST", 1.1)  # as if only copies were left
    ended = gptx(*SAMPLE, "the ", "--avoid-copies", "6")
    assert (ended.code, ended.out) == (0, "the \n")
    assert ended.err.startswith("the text ends here, because the model would only copy")


def test_python_finds_the_copies_that_the_command_finds(gptx: Gptx) -> None:
    asked = ("sample", "the c", "--length", "40", "--seed", "1", "--novelty", "--json")
    record = json.loads(gptx(*asked).out)
    run = gpt.load("checkpoints")
    (found,) = run.novelty([record["text"][5:]])
    sampled = run.sample("the c", length=40, seed=1)  # whose prompt does not count
    assert run.novelty([sampled]) == [found]
    assert run.novelty([]) == []
    assert found.record == record["novelty"] | {"start": record["novelty"]["start"] - 5}
    assert gptx(*asked[:-1]).err == f"{found}\n"
