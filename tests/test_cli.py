"""The commands as a user types them: what they print where, and how they refuse."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from program import TINY, Gptx


def test_training_tells_everything_on_stderr_and_keeps_its_files(gptx: Gptx, home: Path) -> None:
    answer = gptx("train", "corpus.txt", *TINY, "--run", "told", "--checkpoints", "told")
    assert (answer.code, answer.out) == (0, "")
    for word in ("characters", "split", "parameters", "epochs", "ms/step", "to beat", "uniform"):
        assert word in answer.err
    assert "step 8 · train" in answer.err
    assert "nats" in answer.err
    assert "bits/char" in answer.err
    assert "\x1b" not in answer.err
    assert "gptx sample" in answer.err
    kept = {path.name for path in (home / "told/told").iterdir()}
    assert {"config.toml", "metrics.jsonl", "samples.jsonl", "step-00000008"} <= kept


def test_train_json_is_one_object(gptx: Gptx) -> None:
    answer = gptx("train", "corpus.txt", *TINY, "--json", "--checkpoints", "jsonruns")
    result = json.loads(answer.out)
    assert result["step"] == 8
    assert result["reason"] == "finished"
    assert 0 < result["val_nats"] < 4


def test_a_dry_run_leaves_no_run(gptx: Gptx, home: Path) -> None:
    answer = gptx("train", "corpus.txt", *TINY, "--dry-run", "--checkpoints", "none")
    assert answer.code == 0
    assert "to beat" in answer.err
    assert not (home / "none").exists()


def test_a_run_repeats_from_its_own_config(gptx: Gptx, home: Path) -> None:
    first = sorted((home / "checkpoints").iterdir())[0]
    again = gptx("train", "--config", str(first / "config.toml"), "--checkpoints", "again")
    assert again.code == 0, again.err
    copies = sorted((home / "again").glob("*/step-00000008/model.safetensors"))
    assert copies[0].read_bytes() == (first / "step-00000008/model.safetensors").read_bytes()


def test_resume_goes_on_to_more_steps_and_names_conflicts(gptx: Gptx) -> None:
    where = ("--checkpoints", "resumed")
    assert gptx("train", "corpus.txt", *TINY, *where).code == 0
    conflict = gptx("train", "--resume", "--n-embd", "32", *where)
    assert conflict.code == 2
    assert "--n-embd" in conflict.err
    further = gptx("train", "--resume", "--steps", "12", *where, "--json")
    assert further.code == 0, further.err
    assert json.loads(further.out)["step"] == 12
    assert "resuming" in further.err


def test_minutes_on_the_command_line_go_before_a_configs_steps(gptx: Gptx, home: Path) -> None:
    first = sorted((home / "checkpoints").iterdir())[0]
    again = ("train", "--config", str(first / "config.toml"), "--dry-run")
    assert re.search(r"\b8 steps", gptx(*again).err)
    longer = gptx(*again, "--minutes", "0.1")
    assert longer.code == 0, longer.err
    assert not re.search(r"\b8 steps", longer.err)  # six seconds are hundreds


def test_help_shows_what_the_default_preset_is(gptx: Gptx) -> None:
    text = " ".join(gptx("train", "--help").out.replace("│", "").split())
    assert re.search(r"--norm .*?default: \(layer", text)
    assert re.search(r"--n-layer .*?default: \(fitted", text)


def test_a_device_is_written_to_and_not_replaced(gptx: Gptx, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_bytes)
        assert gptx("attn", "the", "-o", str(pipe), "--format", "csv").code == 0
        assert read.result(timeout=60).startswith(b'"layer","head"')
    assert pipe.is_fifo()


def test_a_changed_corpus_needs_a_word_and_is_told(gptx: Gptx, home: Path) -> None:
    where = ("--checkpoints", "changed")
    (home / "mine.txt").write_text((home / "corpus.txt").read_text(), encoding="utf-8")
    assert gptx("train", "mine.txt", *TINY, *where).code == 0
    (home / "mine.txt").write_text((home / "corpus.txt").read_text()[100:], encoding="utf-8")
    refused = gptx("train", "mine.txt", "--resume", "--steps", "12", *where)
    assert (refused.code, refused.err.count("--changed-corpus")) == (3, 1)
    further = gptx("train", "mine.txt", "--resume", "--steps", "12", "--changed-corpus", *where)
    assert further.code == 0, further.err
    assert "the corpus has changed" in further.err
    assert gptx("eval", "mine.txt", *where).code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["train", "corpus.txt", "--changed-corpus"], 2, "only with --resume"),
        (["train", "corpus.txt", "--batch-size", "1000000000"], 8, "GB; try --batch-size"),
        (["train", "corpus.txt", "--n-embd", "1000000", "--n-head", "4"], 8, "a smaller model"),
        (["train", "corpus.txt", "--run", "../x", "--dry-run"], 2, "invalid run name"),
        (["train", "--config", "classic.toml", "--preset", "best"], 2, "but --config says classic"),
        (["train", "--resume", "--preset", "best"], 2, "--preset: this run has default"),
        (["train", "corpus.txt", "--min-lr", "1"], 2, "--min-lr: 1.0 is above --learning-rate"),
        (["sample", "-n", "0"], 2, "-n: 0 is less than 1"),
        (["attn", "the", "-o", "picture.gif"], 2, "--output: .gif is not one of .txt, .json"),
        (["train", "nowhere.txt"], 3, "cannot read corpus"),
        (["train", "empty.txt"], 3, "corpus is empty"),
        (["train", "short.txt"], 3, "--block-size"),
        (["train", "latin.txt"], 3, "invalid UTF-8 at byte 3"),
        (["train", "corpus.txt", "--n-embd", "10"], 2, "--n-embd"),
        (["train", "corpus.txt", "--dropout", "1.5"], 2, "--dropout"),
        (["train", "corpus.txt", "--position", "spiral"], 2, "--position"),
        (["train", "corpus.txt", "--minutes", "1", "--steps", "5"], 2, "--minutes"),
        (["train", "corpus.txt", "--run", "../x"], 2, "invalid run name"),
        (["train", "nowhere.txt", "--run", "corpus-1"], 2, "exists already"),
        (["train", "corpus.txt", "--checkpoints", "corpus.txt"], 6, "cannot make a run"),
        (["train", "--config", "missing.toml"], 2, "missing.toml"),
        (["train", "--config", "typo.toml"], 2, "n_layers"),
        (["train", "--config", "broken.toml"], 2, "broken.toml"),
        (["sample", "--temperature", "nan"], 2, "--temperature"),
        (["sample", "--temperature", "-1"], 2, "--temperature"),
        (["sample", "--top-k", "0"], 2, "--top-k"),
        (["sample", "--top-p", "2"], 2, "--top-p"),
        (["sample", "--prompt", "caté"], 3, "'é' (U+00E9"),
        (["sample", "the", "--prompt", "cat"], 2, "give the text once"),
        (["sample", "--run", "nobody"], 4, "no run 'nobody'"),
        (["sample", "--checkpoints", "empty"], 4, "train one with"),
        (["sample", "--step", "77"], 4, "no step 77"),
        (["attn", "ぁ"], 3, "U+3041"),
        (["attn", ""], 3, "at least one character"),
        (["attn", "the cat sat on the mat"], 3, "--window last"),
        (["attn", "the", "--layer", "9"], 2, "--layer"),
        (["attn", "the", "--query", "2:9"], 2, "--query"),
        (["eval", "missing.txt"], 3, "cannot read missing.txt"),
        (["runs", "nobody"], 4, "no run"),
        (["dance"], 2, "dance"),
        (["sample", "--wide"], 2, "--wide"),
    ],
)
def test_bad_input_is_one_line_and_an_exit_code(
    gptx: Gptx, home: Path, arguments: list[str], code: int, says: str
) -> None:
    (home / "empty.txt").write_bytes(b"")
    (home / "short.txt").write_bytes(b"abcdefghij")
    (home / "latin.txt").write_bytes(b"caf\xe9 au lait" * 100)
    (home / "typo.toml").write_text("n_layers = 3\n", encoding="utf-8")
    (home / "classic.toml").write_text('preset = "classic"\n', encoding="utf-8")
    (home / "broken.toml").write_text("n_layer = = 3\n", encoding="utf-8")
    before = sorted(home.rglob("step-*"))
    answer = gptx(*arguments)
    assert (answer.code, answer.out) == (code, "")
    last = answer.err.splitlines()[-1]
    assert last.startswith("gptx: error: ")
    assert says in last
    assert "Traceback" not in answer.err
    assert sorted(home.rglob("step-*")) == before


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


def test_bare_attn_shows_a_checked_matrix(gptx: Gptx) -> None:
    answer = gptx("attn")
    assert answer.code == 0
    assert "layer 0 head 0 · weights" in answer.out
    assert "✓" in answer.out.splitlines()[-1]
    assert "\x1b" not in answer.out
    assert "validation split" in answer.err


def test_attn_json_csv_and_npz_agree(gptx: Gptx, home: Path) -> None:
    text, head = "the cat", ("--layer", "1", "--head", "1")
    document = json.loads(gptx("attn", text, *head, "--format", "json").out)
    rows = list(csv.DictReader(io.StringIO(gptx("attn", text, *head, "--format", "csv").out)))
    assert gptx("attn", text, "-o", "map.npz").code == 0
    with np.load(home / "map.npz", allow_pickle=False) as arrays:
        weights = arrays["weights"][1, 1]
    assert np.array_equal(np.float32(document["values"][0]), weights)
    for row in rows:
        assert np.float32(row["weight"]) == weights[int(row["q_pos"]), int(row["k_pos"])]
    assert len(rows) == len(text) * (len(text) + 1) // 2


@pytest.mark.parametrize("stage", ["scores", "scaled", "masked", "weights", "context", "concat"])
@pytest.mark.parametrize("view", ["numbers", "heat", "top", "heads"])
@pytest.mark.parametrize("columns", ["40", "80"])
def test_every_view_of_every_stage_fits_the_terminal(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch, stage: str, view: str, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    answer = gptx("attn", "the cat", "--stage", stage, "--view", view)
    assert answer.code == 0, answer.err
    assert max(map(len, answer.out.splitlines())) <= int(columns)


def test_color_can_be_forced_and_forbidden(gptx: Gptx) -> None:
    assert "\x1b[" in gptx("attn", "the cat", "--view", "heat", "--color", "always").out
    assert "\x1b[" not in gptx("attn", "the cat", "--view", "heat", "--color", "never").out


def test_eval_repeats_the_validation_loss_of_training(gptx: Gptx) -> None:
    evaluated = json.loads(gptx("eval", "--json").out)
    trained = json.loads(gptx("runs", "--json").out.splitlines()[-1])
    assert evaluated["nats"] == pytest.approx(trained["val_nats"], abs=1e-6)
    assert evaluated["bits"] == pytest.approx(evaluated["nats"] / np.log(2))


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


def test_eval_colours_every_character_and_lists_the_worst(gptx: Gptx) -> None:
    text = Path("corpus.txt").read_text(encoding="utf-8")
    answer = gptx("eval", "corpus.txt", "--chars", "--worst", "3")
    assert answer.code == 0
    assert "\x1b" not in answer.out
    assert answer.out.split("\n")[0].startswith(text.split("\n")[0])
    assert answer.out.count(" bits · ") == 3
    assert "\x1b[" in gptx("eval", "corpus.txt", "--chars", "--color", "always").out
    record = json.loads(gptx("eval", "corpus.txt", "--chars", "--json").out)
    bits = [each["bits"] for each in record["per_character"]]
    assert len(bits) == len(text) - 1
    assert np.mean(bits) == pytest.approx(record["bits"], rel=1e-6)
    assert json.loads(gptx("eval", "--chars", "--json").out)["text"] == "validation split"


def test_eval_compares_two_models_on_the_same_text(gptx: Gptx) -> None:
    answer = gptx("eval", "corpus.txt", "--against", "corpus-1:4", "--run", "corpus-1")
    assert answer.code == 0
    assert re.search(r"corpus.txt: step 8 \d.*, step 4 \d.* nats a character · diff", answer.out)
    both = json.loads(gptx("eval", "--against", "corpus-1", "--run", "corpus-1", "--json").out)
    assert (both["difference"], both["error"], both["size"]) == (0, 0, 16)
    assert both["first"] == pytest.approx(json.loads(gptx("eval", "--json").out)["nats"], abs=1e-6)
    assert gptx("eval", "--against", "none").code == 4
    assert gptx("eval", "--against", "corpus-1", "--chars").code == 2


def test_eval_reads_files_and_pipes(gptx: Gptx) -> None:
    by_file = gptx("eval", "corpus.txt").out.split(": ")[1]
    by_pipe = gptx("eval", "-", stdin=Path("corpus.txt").read_bytes()).out.split(": ")[1]
    assert by_file == by_pipe


def test_runs_lists_and_tells_one_story(gptx: Gptx) -> None:
    table = gptx("runs").out
    assert table.splitlines()[0].split()[:2] == ["run", "step"]
    assert "corpus-1" in table
    story = gptx("runs", "corpus-1").out
    for word in ("n_layer", "loss", "step 0", "step 8", "Transformer blocks."):
        assert word in story


def test_runs_verify_reads_every_byte(gptx: Gptx, home: Path) -> None:
    where = ("--checkpoints", "verified")
    assert gptx("train", "corpus.txt", *TINY, *where).code == 0
    whole = gptx("runs", "--verify", *where)
    assert (whole.code, whole.out.splitlines()[-1]) == (0, "corpus-1  step 8  whole")
    state = next((home / "verified").glob("*/step-00000008/state.safetensors"))
    data = bytearray(state.read_bytes())
    data[-1] ^= 1
    state.write_bytes(data)
    damaged = gptx("runs", "corpus-1", "--verify", "--json", *where)
    assert damaged.code == 4
    assert "1 of 2 checkpoints damaged; gptx train --resume" in damaged.err
    records = [json.loads(line) for line in damaged.out.splitlines()]
    assert [(record["step"], record["whole"]) for record in records] == [(4, True), (8, False)]
    assert str(state.name) in records[1]["problem"]


def commands_of(document: Path) -> list[str]:
    """Every `gptx …` line in the shell blocks of a document, without its comment."""
    blocks = re.findall(r"```sh\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("gptx ")]


@pytest.mark.parametrize("command", commands_of(Path(__file__).parent.parent / "README.md"))
def test_every_command_of_the_readme_works(gptx: Gptx, command: str) -> None:
    arguments = shlex.split(command)[1:]
    if arguments[0] == "train":  # as it stands, but small, and only as far as the card
        small = [] if "--resume" in arguments else TINY
        if "--minutes" in arguments:
            small = [*TINY[: TINY.index("--steps")], *TINY[TINY.index("--steps") + 2 :]]
        arguments += [*small, *(["--dry-run"] if "--dry-run" not in arguments else [])]
    answer = gptx(*arguments)
    assert answer.code == 0, answer.err
    assert answer.out or arguments[0] == "train" or {"-o", "--open"} & {*arguments}


def test_version_and_help(gptx: Gptx) -> None:
    assert gptx("--version").out.startswith("gptx ")
    assert "attn" in gptx("--help").out
    assert "--block-size" in gptx("train", "--help").out
    bare = gptx()
    assert (bare.code, bare.err) == (0, "")
    assert "attn" in bare.out


def test_heads_are_ranked_on_the_validation_split_or_a_text(gptx: Gptx, home: Path) -> None:
    answer = gptx("heads", "--ablate", "mean")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.split("\n")
    assert re.fullmatch(r"heads · \d+ windows of 16 characters of the validation split", lines[0])
    heads = [line for line in lines if line.startswith("layer ")]
    assert len(heads) == 4
    assert next(line for line in lines if line.startswith("uniform"))
    piped = gptx("heads", "-", "--sort", "sink", "--json", stdin=b"the cat sat on the mat")
    record = json.loads(piped.out)
    assert (record["text"], record["windows"], record["characters"]) == ("standard input", 1, 16)
    sink = next(each["values"] for each in record["measures"] if each["name"] == "sink")
    ranking = [sink[layer][head] for layer, head in record["ranking"]]
    assert ranking == sorted(ranking, reverse=True)


def test_heads_without_the_corpus_use_what_the_model_carries(gptx: Gptx) -> None:
    (Path("corpus.txt")).rename("elsewhere.txt")
    try:
        answer = gptx("heads", "--data", "nowhere")
    finally:
        Path("elsewhere.txt").rename("corpus.txt")
    assert answer.code == 0
    assert "measuring on what of it the model carries" in answer.err
    assert "of the validation split's start" in answer.out


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["heads", "--sort", "size"], 2, "--sort: 'size' is not one of previous"),
        (["heads", "missing.txt"], 3, "cannot read missing.txt"),
        (["heads", "--windows", "0"], 2, "--windows"),
        (["next", "To be", "--top-k", "0"], 2, "--top-k: 0 is less than 1"),
        (["next", "Żółw"], 3, "U+017B"),
    ],
)
def test_heads_and_next_refuse_in_one_line(
    gptx: Gptx, arguments: list[str], code: int, problem: str
) -> None:
    answer = gptx(*arguments)
    assert (answer.code, answer.out) == (code, "")
    assert problem in answer.err
    assert answer.err.count("\n") == 1


def test_next_shows_what_may_come_and_what_filters_take(gptx: Gptx) -> None:
    answer = gptx("next", "the c", "--top-k", "2", "--show", "3")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.split("\n")
    assert lines[0] == "temperature 0.8 · top-k 2"
    assert lines[4].endswith("removed by top-k")
    record = json.loads(gptx("next", "the c", "--json").out)
    assert sum(each["expected"] for each in record["characters"]) == pytest.approx(1)
    assert gptx("next").err.startswith("no TEXT given; from the validation split")


def test_two_steps_of_a_run_are_compared(gptx: Gptx) -> None:
    answer = gptx("attn", "the cat", "--step", "4:8", "--run", "corpus-1")
    assert (answer.code, answer.err) == (0, "")
    assert "step 4" in answer.out
    assert "step 8" in answer.out
    assert "mean change" in answer.out
    compared = json.loads(
        gptx("attn", "the cat", "--step", "4:", "--run", "corpus-1", "--format", "json").out
    )["compared"]
    assert compared[0]["step"] == 4
    for same in (["--diff", "corpus-1"], ["--step", "best:8"]):
        answer = gptx("attn", "the cat", *same, "--run", "corpus-1")
        assert (answer.code, answer.out) == (2, "")
        assert f"{same[0]}: both are step 8 of the same run" in answer.err
    assert gptx("attn", "x", "--diff", "none").code == 4


def test_lens_and_rollout_are_views(gptx: Gptx) -> None:
    lens = gptx("attn", "the cat", "--view", "lens")
    assert (lens.code, lens.out.split(" · ")[0]) == (0, "logit lens")
    assert "lens" in json.loads(gptx("attn", "the cat", "--view", "lens", "--format", "json").out)
    rollout = gptx("attn", "the cat", "--view", "rollout")
    assert rollout.out.startswith("rollout through layer 1, a heuristic")
    assert gptx("attn", "the cat", "--head", "rollout").out == rollout.out
    answer = gptx("attn", "the cat", "--view", "rollout", "--stage", "q")
    assert answer.code == 2
    answer = gptx("attn", "the cat", "--head", "rollout", "--stage", "scores")
    assert (answer.code, answer.out) == (2, "")
    assert "--stage: rollout is of weights, not of scores" in answer.err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("--view rollout --head 1", "--view rollout: is of all heads together"),
        ("--stage proj --head 1", "--stage proj: is of all heads together"),
        ("--view lens -o lens.csv", "--view lens: goes into text, json and html, not into csv"),
        ("--view lens --layer 1", "--view lens: shows every layer, and no head"),
        ("--view lens --stage scores", "--view lens: shows every layer, and no head"),
        ("--query 3:1", "--query: '3:1' is empty"),
        ("--top x", "(see gptx attn --help)"),
    ],
)
def test_what_attn_would_have_to_ignore_is_refused(
    gptx: Gptx, home: Path, arguments: str, problem: str
) -> None:
    answer = gptx("attn", "the cat", *arguments.split())
    assert (answer.code, answer.out) == (2, "")
    assert problem in answer.err
    assert not (home / "lens.csv").exists()


def test_what_is_left_out_is_told(gptx: Gptx) -> None:
    for command in (["attn"], ["next"], ["sample", "--length", "3"]):
        answer = gptx(*command, "thé cät", "--unknown", "skip")
        assert answer.code == 0
        assert "left out 2 of 7 characters, which the model does not know: 'ä' 'é'" in answer.err
    long = "ä" * 30 + "the cat sat on t"
    assert gptx("attn", long, "--window", "last").code == 0
    assert gptx("attn", long[:-1], "--window", "last").code == 3


def test_a_dash_is_standard_output_and_a_link_stays_one(gptx: Gptx, home: Path) -> None:
    assert gptx("attn", "the cat", "-o", "-").out == gptx("attn", "the cat").out
    assert not (home / "-").exists()
    (home / "link.json").symlink_to(home / "real.json")
    assert gptx("attn", "the cat", "-o", "link.json").code == 0
    assert (home / "link.json").is_symlink()
    assert json.loads((home / "real.json").read_text(encoding="utf-8"))["text"] == "the cat"


def test_the_newest_run_is_named_where_there_are_several(gptx: Gptx, home: Path) -> None:
    from shutil import copytree

    copytree(home / "checkpoints/corpus-1", home / "several/a")
    copytree(home / "checkpoints/corpus-1", home / "several/b")
    newest = gptx("next", "the", "--checkpoints", "several").err
    assert re.fullmatch(r"run: [ab], the newest \(--run takes another\)\n", newest)
    assert gptx("next", "the", "--checkpoints", "several", "--run", "a").err == ""


def test_the_ending_of_a_file_names_the_form(gptx: Gptx, home: Path) -> None:
    beginnings = {
        "page.html": b"<!doctype html>",
        "figure.svg": b"<?xml",
        "figure.png": b"\x89PNG",
        "figure.pdf": b"%PDF",
        "values.json": b"{",
        "values.csv": b'"layer"',
        "values.npz": b"PK",
        "values.txt": b"layer 0 head 0",
    }
    for name, beginning in beginnings.items():
        answer = gptx("attn", "the cat", "-o", name)
        assert (answer.code, answer.out, answer.err) == (0, "", ""), name
        assert (home / name).read_bytes().lower().startswith(beginning.lower()), name


def test_a_page_of_heads_and_of_two_steps(gptx: Gptx, home: Path) -> None:
    assert gptx("heads", "-o", "heads.html").code == 0
    assert "induction" in (home / "heads.html").read_text(encoding="utf-8")
    assert gptx("attn", "the cat", "--step", "4:8", "--run", "corpus-1", "-o", "two.html").code == 0
    assert "step 4" in (home / "two.html").read_text(encoding="utf-8")
    answer = gptx("attn", "the cat", "--step", "4:8", "--run", "corpus-1", "-o", "two.svg")
    assert answer.code == 2
    assert "shows one checkpoint" in answer.err
    assert gptx("heads", "-o", "heads.csv").code == 2


def test_open_shows_the_page_in_the_browser(
    gptx: Gptx, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    page = home / "attention.html"
    page.unlink(missing_ok=True)
    answer = gptx("attn", "the cat", "--open")
    assert (answer.code, opened) == (0, [page.as_uri()])
    assert answer.err == "page: attention.html (no browser found to open it)\n"
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    assert gptx("attn", "the cat", "--open").err == "page: attention.html\n"
    page.write_text("mine")
    answer = gptx("attn", "the cat", "--open")
    assert (answer.code, page.read_text()) == (2, "mine")
    assert "attention.html is there and not from gptx" in answer.err
    page.unlink()
    monkeypatch.setattr("webbrowser.open", opened.append)
    answer = gptx("attn", "the cat", "--open", "-o", "figure.svg")
    assert (answer.code, len(opened)) == (2, 1)
    assert "--open: opens the HTML page, not svg" in answer.err
