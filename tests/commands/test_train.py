"""`gptx train`: output, files, resuming."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from program import TINY, Gptx

from gpt.config.train import from_toml
from gpt.storage.run import Run


def test_train_prints_to_stderr_and_writes_its_files(gptx: Gptx, home: Path) -> None:
    answer = gptx("train", "corpus.txt", *TINY, "--run", "output", "--checkpoints", "output")
    assert (answer.code, answer.out) == (0, "")
    for word in ("text ", "model ", "time ", "goal ", "--all", "the model writes", "saved "):
        assert word in answer.err
    assert re.search(r"\n +8 +\d\.\d{3}   \S", answer.err)  # an evaluation: step, loss, sample
    assert "\x1b" not in answer.err
    assert "gptx sample" in answer.err
    everything = gptx("train", "corpus.txt", *TINY, "--dry-run", "--all").err
    for word in ("split", "parameters", "epochs", "torch", "guessing"):
        assert word in everything
    kept = {path.name for path in (home / "output/output").iterdir()}
    assert {"config.toml", "metrics.jsonl", "samples.jsonl", "step-00000008"} <= kept


def test_train_json_is_one_object(gptx: Gptx) -> None:
    answer = gptx("train", "corpus.txt", *TINY, "--json", "--checkpoints", "jsonruns")
    result = json.loads(answer.out)
    assert result["step"] == 8
    assert result["reason"] == "finished"
    spent = result["spent"]
    assert 0 < spent["steps"] < sum(spent.values())
    assert {"start", "evaluations", "saves"} <= {*spent}
    assert 0 < result["val_nats"] < 4
    output = result["counting"]
    assert (len(output["losses"]), output["same_characters"]) == (8, True)
    assert output["difference"] == result["val_nats"] - output["nats"] > 0
    assert f"goal   a loss below that of counting alone, {output['nats']:.3f}" in answer.err
    assert f"loss {result['val_nats']:.3f}, not better than counting ({output['nats']:.3f})" in (
        " ".join(answer.err.split())
    )


def test_config_of_a_run_repeats_it(gptx: Gptx, home: Path) -> None:
    first = sorted((home / "checkpoints").iterdir())[0]
    again = gptx("train", "--config", str(first / "config.toml"), "--checkpoints", "again")
    assert again.code == 0, again.err
    copies = sorted((home / "again").glob("*/step-00000008/model.safetensors"))
    assert copies[0].read_bytes() == (first / "step-00000008/model.safetensors").read_bytes()


def test_resume_continues_to_more_steps_and_names_conflicting_options(
    gptx: Gptx, home: Path
) -> None:
    where = ("--checkpoints", "resumed")
    assert gptx("train", "corpus.txt", *TINY, *where).code == 0
    conflict = gptx("train", "--resume", "--n-embd", "32", *where)
    assert conflict.code == 2
    assert "--n-embd" in conflict.err
    further = gptx("train", "--resume", "--steps", "12", "--patience", "5", *where, "--json")
    assert further.code == 0, further.err
    after = json.loads(further.out)
    assert after["step"] == 12
    assert "resuming" in further.err
    config = (home / "resumed/corpus-1/config.toml").read_text(encoding="utf-8")
    values = from_toml(config, "config.toml")
    assert (values["steps"], values["patience"], values["corpus"]) == (12, 5, ["corpus.txt"])


def test_split_file_validates(gptx: Gptx, home: Path) -> None:
    (home / "val.txt").write_text("the cat sat on the mat.\n" * 9 + "ő", encoding="utf-8")
    where = ("--split", "val.txt", "--checkpoints", "split")
    refused = gptx("train", "corpus.txt", *TINY, *where)
    assert refused.code == 3
    assert "(U+0151) is only in the validation text" in refused.err
    (home / "val.txt").write_text("the cat sat on the mat.\n" * 9, encoding="utf-8")
    answer = gptx("train", "corpus.txt", *TINY, "--json", "--all", *where)
    assert answer.code == 0, answer.err
    assert "to train on, 216 to validate: val.txt" in answer.err
    result, where = json.loads(answer.out), ("--checkpoints", "split")
    scored = json.loads(gptx("eval", "--json", *where).out)
    assert scored["characters"] == 215
    assert scored["nats"] == pytest.approx(result["val_nats"], abs=1e-5)


UNTIMED = "--n-layer 2 --n-head 2 --n-embd 16 --block-size 16 --batch-size 4".split()


def test_timed_run_ends_in_time_and_goes_on(gptx: Gptx, home: Path) -> None:
    where = ("--checkpoints", "timed")
    options = ("--eval-chars", "100", "--minutes", "0.02", "--run", "first", "--json", "--all")
    first = gptx("train", "corpus.txt", *UNTIMED, *options, *where)
    assert first.code == 0, first.err
    assert re.search(r"\ntime +(about )?[01] s\n", first.err)
    assert "evaluations read 96 of them, evenly distributed; the last one, after" in first.err
    result = json.loads(first.out)
    assert result["reason"] == "finished"
    assert result["minutes"] == 0.02
    config = from_toml((home / "timed/first/config.toml").read_text(encoding="utf-8"), "")
    assert (config["minutes"], "steps" in config) == (0.02, False)
    again = gptx(
        *("train", "--config", "timed/first/config.toml", "--run", "again", "--json", *where)
    )
    assert again.code == 0, again.err
    assert json.loads(again.out)["minutes"] == 0.02
    by_steps = ("train", "--config", "timed/first/config.toml", "--steps", "3", "--dry-run")
    assert json.loads(gptx(*by_steps, "--json").out)["steps"] == 3
    done = gptx("train", "--resume", "--run", "first", *where)
    assert "this run is finished; train it longer with --minutes M" in done.err
    longer = gptx("train", "--resume", "--run", "first", "--minutes", "0.01", "--json", *where)
    assert longer.code == 0, longer.err
    after = json.loads(longer.out)
    assert after["step"] > result["step"]
    assert after["minutes"] > result["minutes"] > 0
    refused = gptx("train", "--resume", "--minutes", "1", "--steps", "900", *where)
    assert (refused.code, "--minutes: cannot be combined with --steps" in refused.err) == (2, True)


def test_resume_refuses_a_changed_text_and_advises_a_run_from_its_weights(
    gptx: Gptx, home: Path
) -> None:
    where = ("--checkpoints", "changed")
    (home / "mine.txt").write_text((home / "corpus.txt").read_text(), encoding="utf-8")
    assert gptx("train", "mine.txt", *TINY, *where).code == 0
    (home / "mine.txt").write_text((home / "corpus.txt").read_text()[100:], encoding="utf-8")
    refused = gptx("train", "mine.txt", "--resume", "--steps", "12", *where)
    assert refused.code == 3
    assert re.search(
        r"run mine-1 was trained on \([\d,]+ characters\); restore that text", refused.err
    )
    assert "train a new run on the present text from this run's weights: --init" in refused.err


def test_only_the_first_rank_prints_results_and_errors(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, speaks in (("0", True), ("1", False)):
        monkeypatch.setenv("RANK", rank)
        assert bool(gptx("sample", "--length", "3").out) == speaks
        wrong = gptx("train", "--bogus", "3")
        assert (wrong.code, "No such option" in wrong.err) == (2, speaks)


def test_run_killed_before_its_first_checkpoint_can_be_trained_again(
    gptx: Gptx, home: Path
) -> None:
    left = home / "checkpoints" / "killed"
    left.mkdir()
    (left / "config.toml").write_text("steps = 8\n")
    (left / ".lock").touch()
    resumed = gptx("train", "--resume", "--run", "killed")
    assert resumed.code == 4
    with Run(left).lock():  # another process is preparing this run
        assert gptx("train", "corpus.txt", *TINY, "--run", "killed").code == 5
    assert (left / "config.toml").is_file()
    assert gptx("train", "corpus.txt", *TINY, "--run", "killed").code == 0
    assert Run(left).step_paths()
    shutil.rmtree(left)


def test_dry_run_shows_the_plan_and_creates_no_run(gptx: Gptx, home: Path) -> None:
    answer = gptx("train", "corpus.txt", *TINY, "--dry-run", "--json", "--checkpoints", "none")
    record = json.loads(answer.out)
    assert (record["dry_run"], record["n_layer"], record["steps"]) == (True, 2, 8)
    assert not (home / "none").exists()
    assert gptx("train", "corpus.txt", *TINY, "--dry-run").out == ""


def test_doubts_are_said_at_the_start_at_the_end_and_by_runs(gptx: Gptx) -> None:
    """TEXT repeats itself, so a part of the validation text stands in the training text."""
    doubt = "of the validation text stands in the training text, too"
    answer = gptx("train", "corpus.txt", *TINY, "--json", "--checkpoints", "doubtful")
    assert " ".join(answer.err.split()).count(doubt) == 2
    assert 0.1 < json.loads(answer.out)["doubts"]["copied"] < 1
    place = ("--checkpoints", "doubtful")
    assert doubt in " ".join(gptx("runs", "corpus-1", *place).out.split())
    assert "corpus-1 (loss in doubt)" in gptx("runs", *place).out
