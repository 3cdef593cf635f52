"""What a run is and how it went, in words and tables that fit any width and escape any name."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType

from gpt.config import ModelConfig, TrainConfig
from gpt.config.budget import Budget
from gpt.reading.score import Score
from gpt.storage.manifest import Baseline, CorpusId, Manifest
from gpt.storage.run import Run
from gpt.view.terminal import reports

NASTY = "\x1b[31m[red]\u202eáru[/].txt"
METRICS = [
    {"step": 6, "train_loss": 2.5, "val_loss": 2.75},
    {"step": 12, "train_loss": 2.0, "val_loss": 2.25},
    {"step": 1800, "train_loss": 1.5, "val_loss": 2.5},
]


def manifest(**changes: Any) -> Manifest:
    start = Manifest(
        step=1800,
        model=ModelConfig(vocab_size=65),
        train=TrainConfig(),
        preset="default",
        characters="".join(map(chr, range(33, 98))),
        corpus=CorpusId("0" * 64, 1_115_394, ("shakespeare.txt",)),
        seconds=130.0,
        running=(0.0, 0),
        val_loss=2.5,
        best_step=12,
        best_loss=2.25,
        since_best=1,
        baseline=Baseline((3.3, 2.5, 2.6), 1_003_854, 111_539),
    )
    return replace(start, **changes)


def in_part(**changes: Any) -> Manifest:
    """A run of two minutes whose evaluations have read a part of the split."""
    budget = Budget(seconds=120, per_step=0.1, evaluating=0.5, saving=0.5)
    train = TrainConfig(eval_part=20_000, steps=1800)
    start = manifest(
        val_characters=111_539, train=train, budget=budget, seconds=110.0, elapsed=121.0
    )
    return replace(start, **changes)


def shown(renderable: RenderableType, width: int = 100) -> str:
    file = io.StringIO()
    Console(file=file, width=width, force_terminal=False).print(renderable)
    return file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.4, "0 s"),
        (8, "8 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (130, "2 min 10 s"),
        (3599.6, "1 h 0 min"),
        (11_100, "3 h 5 min"),
        (90_000, "25 h 0 min"),
    ],
)
def test_durations(seconds: float, expected: str) -> None:
    assert reports.duration(seconds) == expected


def test_counts_and_losses() -> None:
    counts = [reports.millions(count) for count in (812, 9_999, 10_000, 804_096, 10_646_784)]
    assert counts == ["812", "9,999", "0.01 M", "0.80 M", "10.65 M"]
    assert reports.losses(1.6693) == "1.6693 nats (2.408 bits/char)"
    assert reports.losses(None) == "–"


@pytest.mark.parametrize(
    ("best_step", "since_best", "verdict"),
    [
        (400, 0, "best so far"),
        (200, 1, "best was step 200"),
        (1000, 3, "no better since step 1,000"),
    ],
)
def test_an_evaluation_is_one_line_with_its_verdict(
    best_step: int, since_best: int, verdict: str
) -> None:
    line = reports.evaluation_line(4000, 1.95, 2.0, best_step, since_best, 100, 100)
    assert line == f"step 4,000 · train 1.9500 · val 2.0000 nats, 2.885 bits/char · {verdict}"
    line = reports.evaluation_line(4000, 1.95, 2.0, best_step, since_best, 20_000, 111_539)
    assert line.endswith(f" nats, 2.885 bits/char (on 20,000 of 111,539) · {verdict}")


def test_the_last_evaluation_says_what_it_read() -> None:
    assert reports.whole_line(400, 2.0, 111_539, 111_539, 3.4) == (
        "step 400 · val 2.0000 nats, 2.885 bits/char on all 111,539 validation characters, in 3 s"
    )
    assert "on 20,000 of 111,539 validation" in reports.whole_line(400, 2.0, 20_000, 111_539, 1.0)


def test_the_facts_of_the_card() -> None:
    config = ModelConfig(vocab_size=65, bias=True, dropout=0.2)
    assert reports.model_facts(config) == (
        "0.81 M parameters: 4 layers × 4 heads × 32, context 64; rotary positions, rms norm, "
        "relu2, QK-norm, biases, dropout 0.2, fused attention"
    )
    assert reports.training_facts(TrainConfig(), 2048, 1_003_854) == (
        "2,000 steps × 2,048 characters = 4.1 epochs, learning rate 0.002 → 0 (linear)"
    )
    about = "about 2,000 steps × 2,048 characters = 4.1 epochs"
    assert reports.training_facts(TrainConfig(), 2048, 1_003_854, timed=True).startswith(about)
    speed = "62.0 ms/step, 33,032 characters/s: "
    total = "about 2 min 10 s with evaluations and saves"
    assert reports.time_facts(0.062, 2048, 130) == speed + total
    assert reports.time_facts(0.062, 2048, 120, 0.0, timed=True) == (
        f"{speed}2 min 0 s with evaluations and saves; the number of steps adapts to the speed"
    )
    assert reports.time_facts(0.062, 2048, 130, 300.0) == (
        f"{speed}{total}; then about 5 min 0 s to evaluate the whole split (--eval-chars N: less)"
    )
    assert reports.baseline_facts(math.log(65), Baseline((3.3, 2.5, 2.6), 900, 100)) == (
        "2.5000 nats/char by counting 2-grams · orders 1 to 3: 3.300 2.500 2.600 · uniform 4.174"
    )
    assert reports.device_facts("cpu", {"threads": 2, "torch": "2.13.0"}, 410 * 2**20) == (
        "cpu (2 threads, torch 2.13.0), 410 MB used"
    )
    assert reports.device_facts("cpu", {"threads": 1, "torch": "2.13.0", "ranks": 3}, 0) == (
        "cpu (3 ranks of 1 thread, torch 2.13.0)"
    )
    assert reports.device_facts("cuda", {"device": "H200", "torch": "2.13.0", "ranks": 1}, 0) == (
        "cuda (H200, torch 2.13.0)"
    )


def test_a_model_with_ngrams_says_what_they_take_and_whom_it_is_not_for() -> None:
    config = ModelConfig(vocab_size=65, n_layer=1, ngram=3)
    facts = reports.model_facts(config)
    assert facts.startswith("2.87 M parameters (2.65 M in n-gram embeddings): 1 layer × 4 heads")
    assert "n-grams up to 3, " in facts
    assert "n-grams up to 3 (45% dropped), " in reports.model_facts(
        replace(config, ngram_dropout=0.45)
    )
    assert "gptx train repeats" in reports.heads_facts(config)
    assert "--ngram 1" in reports.heads_facts(config)
    assert reports.heads_facts(ModelConfig(vocab_size=65)) == ""


def test_corpus_facts_name_three_sources_and_a_vocabulary_that_costs_too_much() -> None:
    small = ModelConfig(vocab_size=65)
    assert reports.corpus_facts(["a", "b", "c"], 1_115_394, small) == (
        "a, b, c: 1,115,394 characters, 65 distinct"
    )
    assert reports.corpus_facts([*"abcde"], 9, small).startswith("a, b, c and 2 more: 9 characters")
    large = ModelConfig(vocab_size=20_000)
    assert reports.corpus_facts(["a"], 9, large).endswith("(they take 87% of the parameters)")


def test_characters_are_named_visibly_and_not_all_of_many() -> None:
    assert reports.character_facts("", "") == ""
    assert reports.character_facts("\n\x1b", "é") == "rare: '⏎' '␛' · only in validation: 'é'"
    assert reports.character_facts("abcde", "", most=3) == "rare: 'a' 'b' 'c' and 2 more"


def test_what_was_folded_is_told_in_full_numbers() -> None:
    corpus = CorpusId("0" * 64, 1_000_000, ("a",), folded="\x1béñ", folded_count=14)
    assert reports.folded_facts(corpus, "\ufffd", most=2) == (
        "'␛' 'é' and 1 more became '\ufffd': 3 rare characters, 14 of 1,000,000 in the text "
        "(0.0014%)"
    )
    assert reports.folded_facts(replace(corpus, folded="", folded_count=0), "x") == ""
    result = reports.result("tale-1", manifest(corpus=corpus), "finished")
    assert result["folded"] == {
        "characters": "\x1béñ",
        "kinds": 3,
        "count": 14,
        "share": 1.4e-05,
        "replacement": "\ufffd",
    }
    assert "1 more" not in shown(reports.story(Run(Path("x")), manifest(corpus=corpus), [], []))
    assert "became" in shown(reports.story(Run(Path("x")), manifest(corpus=corpus), [], []))


def test_a_split_says_what_validates_and_how_much_of_it_is_read() -> None:
    def facts(split: str, block: int = 0, read: int = 99, last: int = 99) -> str:
        return reports.split_facts(900, 100, TrainConfig(split=split), block, read, last)

    plain = "900 to train on, 100 to validate"
    assert facts("last") == plain
    assert facts("every:3") == f"{plain}: every 3rd text"
    assert facts("every:10", 65536) == f"{plain}: every 10th block of 65,536 characters"
    read = f"{plain}: b.txt; evaluations read 50 of them, evenly distributed"
    assert facts("b.txt", 0, 50, 50) == f"{read} (--eval-chars)"
    assert facts("b.txt", 0, 50) == f"{read}; the last one reads all"
    assert facts("b.txt", 0, 50, 80) == f"{read}; the last one reads 80"
    assert reports.baseline_facts(1.0, Baseline((0.5,), 400, 10), counts_all=False).endswith(
        "uniform 1.000 (counted in the last 400 characters of the training split, "
        "scored on the first 10 of the validation split)"
    )
    numbers = (2, 11, 12, 13, 21, 22, 103, 111, 1001)
    names = "2nd 11th 12th 13th 21st 22nd 103rd 111th 1,001st"
    assert " ".join(map(reports.ordinal, numbers)) == names


@settings(deadline=None, max_examples=60)
@given(text=st.text("ab \n\t\r\x1bé東👍\u202e", max_size=40), width=st.integers(8, 60))
def test_a_short_sample_is_one_harmless_line_that_fits(text: str, width: int) -> None:
    line = reports.sample_line(text, width)
    assert cell_len(line) <= width
    assert line.isprintable()
    assert line.startswith("  │ ")


@pytest.mark.parametrize("reason", ["finished", "patience", "interrupted"])
def test_a_farewell_says_how_it_ended_and_how_to_go_on(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPTX_CHECKPOINTS", raising=False)
    facts = reports.farewell(Run(Path("checkpoints/tale-1")), manifest(), reason)
    assert facts["best"] == "2.2500 nats (3.246 bits/char) at step 12"
    assert facts["to beat"] == "counting 2-grams: 2.5000 nats; this model is 0.2500 better"
    assert facts["ended"].endswith("2 min 10 s of training")
    assert "gptx runs tale-1" in facts["next"]
    assert "--checkpoints" not in facts["next"]
    goes_on = "gptx train --resume --run tale-1" if reason == "interrupted" else ""
    assert facts["go on"] == goes_on
    shared = replace(manifest(), environment={"ranks": 2})
    for shard, option in ((False, ""), (True, " --shard")):
        facts = reports.farewell(Run(Path("checkpoints/tale-1")), shared, reason, shard)
        expected = goes_on.replace("gptx", "torchrun … -m -- gpt")
        assert facts["go on"] == expected + option * bool(expected)
    elsewhere = reports.farewell(Run(Path("my runs/tale-1")), manifest(), reason)
    assert elsewhere["next"].count("--checkpoints 'my runs'") == 3


def test_a_loss_is_compared_with_counting_in_the_same_words_everywhere() -> None:
    baseline = Baseline((2.0, 1.4, 1.121), 418_543, 46_504)
    counted = "counting 3-grams: 1.1210 nats"
    advice = ": train longer, or on more text"
    assert reports.comparison(1.1247, 46_504, baseline) == (
        f"{counted}; this model is 0.0037 worse{advice}"
    )
    assert reports.comparison(1.071, 46_504, baseline) == f"{counted}; this model is 0.0500 better"
    assert reports.comparison(1.2, 1_000_000, baseline) == (
        f"{counted}; this model is 0.0790 worse (counting is scored on 46,504 characters, the "
        f"model on 1,000,000){advice}"
    )
    assert reports.comparison(None, 0, baseline) == counted
    assert reports.comparison(1.2, 46_504, None) == "–"
    assert reports.comparison_record(1.2, 46_504, None) is None
    assert reports.comparison_record(1.0, 46_504, baseline) == {
        "order": 3,
        "nats": 1.121,
        "losses": [2.0, 1.4, 1.121],
        "counted": 418_543,
        "scored": 46_504,
        "difference": pytest.approx(-0.121),
        "same_characters": True,
    }
    part = reports.comparison_record(None, 9, baseline)
    assert part is not None
    assert (part["difference"], part["same_characters"]) == (None, False)


def test_a_run_beside_counting_in_the_table_and_the_story_also_where_nothing_was_counted() -> None:
    run = Run(Path("runs/tale-1"))
    for changes, cell, fact in (
        ({}, "0.2500 better", "counting 2-grams: 2.5000 nats; this model is 0.2500 better"),
        (
            {"best_loss": 2.6, "best_step": 1800},
            "0.1000 worse",
            "0.1000 worse: train longer, or on more text",
        ),
        (
            {"best_loss": 2.6},
            "0.1000 worse",
            "0.1000 worse: train on more text; more steps than 12 made it worse",
        ),
        ({"baseline": None}, "–", "–"),
        ({"best_loss": None}, "–", "counting 2-grams: 2.5000 nats"),
    ):
        table = shown(reports.runs_table([(run, manifest(**changes))]), 80)
        header, row = table.splitlines()[:2]
        assert "than counting" in header
        assert cell in row
        assert "shakespeare.txt" in row  # no name is broken in 80 columns
        story = " ".join(shown(reports.story(run, manifest(**changes), [], [])).split())
        assert f"{fact} options" in story[story.index(" to beat ") :]


def test_how_many_characters_an_evaluation_predicts() -> None:
    whole = manifest()
    assert reports.evaluated_characters(whole) == 1_115_394 - 1_003_854 - 1
    some = replace(whole, train=TrainConfig(eval_chars=1000))
    assert reports.evaluated_characters(some) == 1000
    apart = replace(whole, corpus=replace(whole.corpus, boundary=1_115_000))
    assert reports.evaluated_characters(apart) == 393


@pytest.mark.parametrize("width", [40, 80])
def test_what_is_to_beat_reads_well_in_a_narrow_card(width: int) -> None:
    baseline = Baseline((3.238, 2.317, 1.694, 1.344, 1.205, 1.159, 1.14, 1.1213), 9, 9)
    facts = reports.baseline_facts(4.635, baseline)
    lines = shown(reports.card({"to beat": facts}), width).splitlines()
    assert len(lines) <= {40: 5, 80: 2}[width]
    words = " ".join(" ".join(lines).split())
    assert words == f"to beat {facts}"  # no number is broken


def test_every_loss_on_a_part_says_so() -> None:
    run = Run(Path("checkpoints/tale-1"))
    facts = reports.farewell(run, in_part(), "SIGINT")
    assert facts["ended"] == (
        "SIGINT after step 1,800 of 1,800, 2 min 1 s of the 2 min 0 s asked for, with evaluations "
        "and saves"
    )
    assert facts["best"].endswith(" at step 12 (on 19,968 of 111,539)")
    facts = reports.farewell(run, in_part(whole_loss=2.375), "finished")
    assert facts["best"] == "2.3750 nats (3.426 bits/char) at step 12"
    for found, cell in (
        (in_part(), "2.2500 (18%)"),
        (in_part(whole_loss=2.375), "2.3750  "),
        (manifest(), "2.2500  "),
    ):
        assert f" {cell}" in shown(reports.runs_table([(run, found)])).splitlines()[1]
    records = [*METRICS, {"step": 1800, "best_step": 12, "whole_loss": 2.375}]
    story = shown(reports.story(run, in_part(), records, []))
    assert "loss (on 19,968 of 111,539)" in story
    assert "at step 12 (on 19,968 of 111,539)" in story
    assert "loss (on" not in shown(reports.story(run, manifest(), METRICS, []))


def test_results_and_scores_are_numbers_for_programs() -> None:
    result = json.loads(json.dumps(reports.result("tale-1", manifest(), "finished")))
    assert result == {
        "run": "tale-1",
        "step": 1800,
        "reason": "finished",
        "best_step": 12,
        "val_nats": 2.25,
        "val_bits": pytest.approx(2.25 / math.log(2)),
        "val_characters": None,
        "val_split": None,
        "seconds": 130.0,
        "elapsed": 0.0,
        "minutes": None,
        "counting": {
            "order": 2,
            "nats": 2.5,
            "losses": [3.3, 2.5, 2.6],
            "counted": 1_003_854,
            "scored": 111_539,
            "difference": -0.25,
            "same_characters": True,
        },
    }
    part = reports.result("tale-1", in_part(), "stopped")
    assert (part["val_nats"], part["val_characters"], part["val_split"]) == (2.25, 19_968, 111_539)
    assert (part["elapsed"], part["minutes"]) == (121.0, 2.0)
    whole = reports.result("tale-1", in_part(whole_loss=2.375), "finished")
    assert (whole["val_nats"], whole["val_characters"]) == (2.375, 111_539)
    unevaluated = reports.result("tale-1", manifest(best_loss=None, best_step=None), "stopped")
    assert unevaluated["val_nats"] is unevaluated["val_bits"] is None
    assert reports.result("tale-1", manifest(baseline=None), "stopped")["counting"] is None
    score = Score(math.log(4), 1000)
    record = {"nats": math.log(4), "bits": 2.0, "perplexity": 4.0, "characters": 1000}
    assert reports.score_record(score) == pytest.approx(record)
    assert reports.score_line(score) == (
        "1.3863 nats, 2.000 bits a character · perplexity 4.000 · 1,000 characters predicted"
    )


@pytest.mark.parametrize("width", [40, 80])
def test_the_loss_curve_says_where_its_axis_begins_and_ends(width: int) -> None:
    heading, table = reports.loss_curve(METRICS)
    assert heading.plain == (
        "loss, nats per character; ● is the validation loss, from 2.2500 to 2.7500"
    )
    ends, *lines = shown(table, width).splitlines()
    assert ends.split() == ["step", "train", "val", "2.25", "2.75"]
    assert [line.split() for line in lines] == [
        ["6", "2.5000", "2.7500", "●"],
        ["12", "2.0000", "2.2500", "●"],
        ["1,800", "1.5000", "2.5000", "●"],
    ]
    high, low, middle = (line.index("●") for line in lines)
    assert (low, high) == (ends.index("2.25"), ends.index("2.75") + 3)
    assert abs(middle - (low + high) / 2) <= 0.5


def test_one_evaluation_has_no_axis() -> None:
    heading, table = reports.loss_curve(METRICS[:1])
    assert heading.plain.endswith("validation loss, at 2.7500")
    ends, line = shown(table).splitlines()
    assert ends.index("2.75") == line.index("●")


def test_a_story_shows_the_losses_on_each_text_apart() -> None:
    changed = manifest(earlier_corpora=((12, "sha256:" + "1" * 64),))
    text = shown(reports.story(Run(Path("x")), changed, METRICS, []))
    first, second = text.split("after step 12, where the corpus was changed: loss")
    assert [
        line.split()[0] for line in first.splitlines() if "●" in line and "loss" not in line
    ] == ["6", "12"]
    assert [
        line.split()[0] for line in second.splitlines() if "●" in line and "loss" not in line
    ] == ["1,800"]
    assert "was changed" not in shown(reports.story(Run(Path("x")), manifest(), METRICS, []))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_tables_fit_and_show_names_as_they_are_but_harmless(width: int) -> None:
    run, named = Run(Path("runs/tale-1")), manifest(corpus=CorpusId("0" * 64, 9, (NASTY,)))
    samples = [{"step": 12, "text": f"\n{NASTY}\n"}]
    for renderable in (
        reports.card({"corpus": NASTY, "empty": ""}),
        reports.runs_table([(run, named), (run, manifest(best_loss=None))]),
        reports.story(run, named, METRICS, samples),
        reports.story(run, manifest(best_loss=None, best_step=None), [], []),
    ):
        text = shown(renderable, width)
        assert all(cell_len(line) <= width for line in text.splitlines())
        assert not set(text) & set("\x1b\u202e")
        assert "empty" not in text
    story = shown(reports.story(run, named, METRICS, samples), 200)
    assert story.count("\\x1b[31m[red]\\u202eáru[/].txt") == 2
    assert all(name in story for name in (*vars(named.model), *vars(named.train)))


def test_a_damaged_run_is_told_beside_the_readable_ones(fresh_run: Run, tmp_path: Path) -> None:
    torn = Run(tmp_path / "checkpoints" / "torn")
    (torn.path / "step-00000001").mkdir(parents=True)
    (torn.path / "step-00000001" / "manifest.json").write_text("{")
    rows, problems = reports.readable([fresh_run, torn])
    assert [(run.name, found.step) for run, found in rows] == [("tiny", 12)]
    assert len(problems) == 1
    assert "torn" in problems[0]


def test_the_remedy_for_a_loss_above_the_baseline_follows_from_the_run() -> None:
    longer = "train longer, or on more text"
    assert reports.remedy(2.0, None) == reports.remedy(2.0, manifest(best_step=1800)) == longer
    limits = {"seconds": 60.0, "per_step": 0.1, "evaluating": 0.1, "saving": 0.1}
    for most, remedy in (
        (0, longer),
        (manifest().train.steps + 1, longer),
        (manifest().train.steps, "train on more text; more epochs would learn this one by heart"),
    ):
        timed = manifest(best_step=1800, budget=Budget(**limits, most_steps=most))
        assert reports.remedy(2.0, timed) == remedy
    guessing = reports.remedy(9.0, manifest())
    assert guessing.startswith("even uniform guessing reaches 4.1744; train on more text")
    assert reports.best_facts(manifest(best_loss=None, best_step=None)) == "not evaluated yet"
    assert reports.comparison(9.0, 99, Baseline((2.0,), 9, 99)).endswith(
        "; 99 characters are too few to compare the model"
    )


def test_the_epochs_on_a_changed_corpus_are_those_of_the_steps_on_it() -> None:
    facts = reports.training_facts(TrainConfig(steps=340), 1024, 21_600, since=263)
    assert facts.startswith("77 steps after step 263 × 1,024 characters = 3.7 epochs, ")


@pytest.mark.parametrize(
    ("width", "columns"),
    [(40, "run best nats than counting"), (60, "run step of best nats than counting corpus")],
)
def test_a_narrow_table_of_runs_has_fewer_columns_and_breaks_no_number(
    width: int, columns: str
) -> None:
    run = Run(Path("runs/a-rather-long-name-of-a-run-1"))
    table = shown(reports.runs_table([(run, in_part())], width), width).splitlines()
    assert max(map(len, table)) <= width
    assert table[0].split() == columns.split()
    assert "2.2500 (18%)  0.2500 better" in table[1]
