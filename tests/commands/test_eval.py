"""`gptx eval`: the loss of training, every character's surprisal, two models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from program import TINY, Gptx


def test_eval_computes_the_same_validation_loss_as_training(gptx: Gptx) -> None:
    evaluated = json.loads(gptx("eval", "--json").out)
    trained = json.loads(gptx("runs", "--json").out.splitlines()[-1])
    assert evaluated["nats"] == pytest.approx(trained["val_nats"], abs=1e-6)
    assert evaluated["bits"] == pytest.approx(evaluated["nats"] / np.log(2))


def test_eval_says_the_loss_in_six_lines(gptx: Gptx) -> None:
    lines = gptx("eval").out.splitlines()
    record = json.loads(gptx("eval", "--json").out)
    told = json.loads(gptx("runs", "--json").out.splitlines()[-1])["counting"]
    worse = f"{record['nats'] - told['nats']:.4f}"
    assert lines[:3] == [
        f"validation split of corpus-1 · {record['characters']:,} characters",
        f"loss     {record['nats']:.4f} nats a character ({record['bits']:.3f} bits)",
        f"that is  as uncertain as among {record['perplexity']:.1f} equal characters",
    ]
    assert len(lines) == 4
    assert worse in lines[3]  # after eight steps the model is worse than counting
    (Path.cwd() / "new.txt").write_text("no mat, no cat")
    assert "compared" not in gptx("eval", "new.txt").out


def test_eval_colours_every_character_and_lists_the_worst(gptx: Gptx) -> None:
    text = Path("corpus.txt").read_text(encoding="utf-8")
    answer = gptx("eval", "corpus.txt", "--chars")
    assert answer.code == 0
    assert "\x1b" not in answer.out
    assert f"\n{text.splitlines()[0]}" in answer.out
    assert len(re.findall(r"^ *\d*\.\d\d +[\d,]+  \S", answer.out, re.MULTILINE)) == 10
    assert "\x1b[" in gptx("eval", "corpus.txt", "--chars", "--color", "always").out
    record = json.loads(gptx("eval", "corpus.txt", "--chars", "--json").out)
    bits = [row["bits"] for row in record["rows"]]
    assert len(bits) == len(text) - 1
    assert np.mean(bits) == pytest.approx(record["in_context"]["bits"], rel=1e-6)
    whole = json.loads(gptx("eval", "corpus.txt", "--json").out)
    assert [record[name] for name in whole] == list(whole.values())
    assert record["bits"] != record["in_context"]["bits"]
    assert f"\nin context  {record['in_context']['nats']:.4f} nats" in answer.out


def test_eval_of_one_window_shows_one_loss(gptx: Gptx) -> None:
    answer = gptx("eval", "-", "--chars", stdin=b"the cat sat on t")
    assert answer.out.startswith("standard input · 15 characters\n")
    assert "in context" not in answer.out
    assert gptx("eval", "-", stdin=b"th").out.startswith("standard input · 1 character\n")


def test_scored_text_has_one_label(gptx: Gptx, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gptx("eval", "--chars").out.startswith("validation split of corpus-1 · ")
    monkeypatch.setattr("gpt.interface.evaluating.MOST_SHOWN", 100)
    assert gptx("eval").out.startswith("validation split of corpus-1 · ")
    label = "the first 100 characters of the validation split of corpus-1"
    assert gptx("eval", "--chars").out.startswith(f"{label} · ")
    record = json.loads(gptx("eval", "--chars", "--json").out)
    assert (record["scored"], record["file"], record["split"]) == (label, None, "validation")
    assert record["schema"] == 1
    assert record["characters"] == len(record["rows"]) == 99
    record = json.loads(gptx("eval", "corpus.txt", "--chars", "--json").out)
    assert [record[name] for name in ("scored", "file", "split")] == ["corpus.txt"] * 2 + [None]
    assert record["characters"] > 99


def test_eval_scores_files_in_order(gptx: Gptx, home: Path) -> None:
    (home / "a.txt").write_text("the cat sat on the mat")
    (home / "empty.txt").write_bytes(b"")
    (home / "odd.txt").write_text("thé cat")
    (home / "folder/in").mkdir(parents=True)
    (home / "folder/b.txt").write_text("no rat")
    (home / "folder/in/c.md").write_text("no cat")
    (home / "folder/table.csv").write_text("1,2")
    (home / "void").mkdir()
    answer = gptx(
        "eval", "a.txt", "folder", "empty.txt", "odd.txt", "void", "none.txt", "", "a.txt"
    )
    labels = [part.split(" · ")[0] for part in re.findall("^.* characters$", answer.out, re.M)]
    labels = [label for label in labels if not label.startswith("that is")]
    assert labels == ["a.txt", "folder/b.txt", "folder/in/c.md", "a.txt"]
    assert answer.code == 3
    assert [line.split(": ")[:3] for line in answer.err.splitlines()] == [
        ["gptx", "error", "empty.txt"],
        ["gptx", "error", "odd.txt"],
        ["gptx", "error", "cannot read corpus void"],
        ["gptx", "error", "cannot read none.txt"],
        ["gptx", "error", "cannot read "],
    ]


def test_positions_count_from_the_start_of_the_file_with_skipped_characters(
    gptx: Gptx, home: Path
) -> None:
    text = "é☃the cat, ☃the ☃☃rat"
    (home / "odd.txt").write_text(text, encoding="utf-8")
    odd = ("eval", "odd.txt", "--unknown", "skip", "--chars")
    record = json.loads(gptx(*odd, "--json").out)
    for each in record["rows"]:
        assert text[each["position"]] == each["character"]
    assert len(record["rows"]) == len("the cat, the rat") - 1
    assert record["left_out"] == {"characters": 5, "which": "é☃"}
    answer = gptx(*odd)
    listed = re.findall(r"^ *\d*\.\d\d +(\d+)  (\S) ", answer.out, re.MULTILINE)
    assert len(listed) == 10
    for position, character in listed:
        assert text[int(position)] == character.replace("␠", " ")
    assert "note: odd.txt: left out 5 of 21 characters" in answer.err


def test_eval_refuses_chars_of_two_models(gptx: Gptx) -> None:
    answer = gptx("eval", "--chars", "--against", "corpus-1")
    problem = "--chars and --against: give one of them"
    assert (answer.code, answer.out, answer.err) == (2, "", f"gptx: error: {problem}\n")


def test_eval_says_which_run_was_trained_on_more_of_the_text(gptx: Gptx, home: Path) -> None:
    """more was trained on half of what validates same."""
    (home / "more.txt").write_text("".join(f"{n}: To be {n * n}, or not\n" for n in range(200)))
    for run, share in (("same", ".2"), ("more", ".1")):
        trained = ("train", "more.txt", *TINY, "--run", run, "--val-fraction", share)
        assert gptx(*trained, "--checkpoints", "both").code == 0
    for mine, other in (("same", "more"), ("same", "same:4"), ("more", "same")):
        where = ("eval", "--checkpoints", "both", "--run", mine)
        answer = gptx(*where, "--against", other)
        assert answer.code == 0
        label = f"validation split of {mine}"
        assert answer.out.startswith(f"{label} · ")
        unfair = other == "more"
        assert ("so this comparison favours it" in answer.err) == unfair
        assert bool(answer.err) == unfair
        record = json.loads(gptx(*where, "--against", other, "--json").out)
        assert (record["scored"], record["may_have_seen"]) == (label, other if unfair else None)
    both = gptx(*where, "more.txt", "--against", "same").err
    assert both.startswith("warning: more.txt is in the text that this run was trained on")
    assert both.count("\n") == 1


def test_eval_without_its_corpus_says_what_to_do(gptx: Gptx, home: Path) -> None:
    corpus = home / "corpus.txt"
    whole = corpus.read_bytes()
    try:
        corpus.write_bytes(whole[:-9])
        changed = gptx("eval", "--data", "nowhere")
        assert gptx("eval", "corpus.txt", "--data", "nowhere").code == 0
        corpus.rename("gone.txt")
        gone = gptx("eval", "--data", "nowhere")
    finally:
        corpus.write_bytes(whole)
    for answer, problem in (
        (changed, "corpus changed: corpus.txt is not the text that run "),
        (gone, "cannot read corpus 'corpus.txt': no such file or folder"),
    ):
        assert (answer.code, answer.out, answer.err.count("\n")) == (3, "", 1)
        assert problem in answer.err
        assert "--changed-corpus" not in answer.err
        assert answer.err.endswith("; or give a text\n")
        assert re.search(r"run \S+ was trained on .*\(\d[\d,]* characters\)", answer.err)
        assert "the validation split needs the corpus: " in answer.err


def test_eval_compares_two_models_on_the_same_text(gptx: Gptx) -> None:
    answer = gptx("eval", "corpus.txt", "--against", "corpus-1:4", "--run", "corpus-1")
    assert answer.code == 0
    assert answer.out.startswith("corpus.txt · ")
    for step in (8, 4):
        assert re.search(rf"^corpus-1 step {step}  \d\.\d{{4}} nats a character ", answer.out, re.M)
    assert len(answer.out.splitlines()) == 6
    both = json.loads(gptx("eval", "--against", "corpus-1", "--run", "corpus-1", "--json").out)
    assert (both["difference"], both["error"], both["interval"]) == (0, 0, [0, 0])
    assert (both["schema"], both["sure"]) == (1, False)
    assert both["first"] == pytest.approx(json.loads(gptx("eval", "--json").out)["nats"], abs=1e-6)
    assert gptx("eval", "--against", "none").code == 4


def test_a_comparison_names_the_run_that_does_not_know_a_character_or_learned_the_text(
    gptx: Gptx, home: Path
) -> None:
    (home / "odd.txt").write_text("no cat, " * 90 + "Ő" * 90, encoding="utf-8")
    assert gptx("train", "odd.txt", *TINY, "--run", "odd", "--checkpoints", "two").code == 0
    copytree(home / "checkpoints/corpus-1", home / "two/plain")
    answer = gptx("eval", "--checkpoints", "two", "--run", "odd", "--against", "plain")
    assert (answer.code, answer.out) == (3, "")
    assert "validation split of odd for plain: " in answer.err
    assert "'Ő' (U+0150" in answer.err
    assert "is not in this model's vocabulary" in answer.err
    compared = ("--checkpoints", "two", "--run", "odd", "--against", "plain")
    learned = gptx("eval", "corpus.txt", *compared, "--unknown", "skip")
    assert (
        "warning: corpus.txt is in the text that plain was trained on, so this comparison favours "
        "it\n"
    ) in learned.err


def test_eval_scores_part_of_a_long_validation_split_and_says_so(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = json.loads(gptx("eval", "--json").out)
    monkeypatch.setattr("gpt.interface.evaluating.MOST_SCORED", 50)
    answer = gptx("eval", "--json")
    assert json.loads(answer.out)["characters"] == 50 < whole["characters"]
    assert f"scoring only the first 50 of {whole['characters'] + 1:,} characters" in answer.err


def test_eval_compares_with_the_baseline_of_the_run(gptx: Gptx, home: Path) -> None:
    record = json.loads(gptx("eval", "--json").out)
    told = json.loads(gptx("runs", "--json").out.splitlines()[-1])["counting"]
    assert record["counting"] == {**told, "difference": pytest.approx(told["difference"])}
    assert told["same_characters"]
    assert told["difference"] == pytest.approx(record["nats"] - told["nats"], abs=1e-6)
    (home / "new.txt").write_text("no mat, no cat")
    assert json.loads(gptx("eval", "new.txt", "--json").out)["counting"] is None


def test_the_first_characters_of_a_split_are_not_compared_with_counting_of_all(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt.interface.evaluating.MOST_SHOWN", 200)
    assert "was measured on other characters\n" in gptx("eval", "--chars").out
    counting = json.loads(gptx("eval", "--chars", "--json").out)["counting"]
    assert (counting["same_characters"], counting["difference"]) == (False, None)


def test_an_excerpt_of_the_training_text_is_named_and_measured(gptx: Gptx, home: Path) -> None:
    draws = np.random.default_rng(3).integers(0, 26, (3, 9000)) + ord("a")
    text, new, first = (bytes(each.tolist()).decode() for each in draws)
    (home / "letters.txt").write_text(text)
    (home / "first.txt").write_text(first)
    assert gptx("train", "first.txt", *TINY, "--run", "first").code == 0
    child = gptx("train", "letters.txt", "--init-from", "first", "--steps", "2", "--run", "let")
    assert child.code == 0
    assert gptx("train", "letters.txt", *TINY, "--run", "alone").code == 0
    is_in = "is in the text that this run was trained on, so its loss is of text that the model has"
    for start, run in ((0, "alone"), (777, "alone"), (8000, "let"), (4001, "let")):
        answer = gptx("eval", "-", "--run", run, "--json", stdin=text[start : start + 100].encode())
        assert f"warning: standard input {is_in} learned" in answer.err
        assert json.loads(answer.out)["learned"] == 1.0
    of_parent = gptx("eval", "-", "--run", "let", stdin=first[500:700].encode())
    assert f"warning: standard input {is_in}" in of_parent.err
    for unseen in (new[:500], text[8200:], text[:99], text[:99] + new[:400]):
        answer = gptx("eval", "-", "--run", "alone", "--json", stdin=unseen.encode())
        assert "warning" not in answer.err
        assert json.loads(answer.out)["learned"] == 0.0
    mixed = (new[:600] + text[300:700]).encode()
    part = gptx("eval", "-", "--run", "alone", "--json", stdin=mixed)
    assert f"warning: 40 % of standard input {is_in}" in part.err
    record = json.loads(part.out)
    assert (record["learned"], record["trained_on"]) == (pytest.approx(0.4, abs=0.002), False)
    favours = gptx("eval", "-", "--run", "first", "--against", "alone", stdin=mixed).err
    assert "40 % of standard input is in the text that alone was trained on" in favours
