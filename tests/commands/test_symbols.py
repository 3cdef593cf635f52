"""Symbols of several characters in every command: read, written, scored and drawn whole."""

from __future__ import annotations

import csv
import io
import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from encoded import SPOKEN, SYMBOLS, encoded_file
from pages import payload_of
from program import Gptx, answer_of, at_home

import gpt
from gpt.interface.trained import TrainedGPT

TARGET = "t͡s bː ɒ"
PAIR = f"2ba\t{TARGET}"
CELLS = ["t͡s", "bː", "ɒ"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("symbols") / "p.safetensors"
    return str(encoded_file(path, SPOKEN, vocabulary=SYMBOLS))


@pytest.fixture
def run(model: str) -> TrainedGPT:
    return gpt.load(model)


def is_well_formed(target: str) -> bool:
    """Whether a text consists of symbols of the vocabulary, with a space between two of them."""
    return {*target.split(" ")} <= {*SYMBOLS.characters} - {"\t", "\n", *SYMBOLS.unwritten}


def test_samples_are_whole_symbols(gptx: Gptx, model: str) -> None:
    drawn = ("--temperature", "2", "--seed", "3")
    for options in ((), drawn, (*drawn, "-n", "9"), ("--beam", "3", "-n", "3")):
        lines = gptx("sample", "2ba", "--run", model, *options).out.splitlines()
        assert all(map(is_well_formed, lines))
    assert len({*gptx("sample", "2ba", "-n", "9", *drawn, "--run", model).out.split()}) > 6


def test_batches_have_symbols_and_name_lines_that_cannot_be_read(gptx: Gptx, model: str) -> None:
    answer = gptx("sample", "--prompt", "-", "--run", model, stdin="2ba\n1ɒ\n3b\n".encode())
    assert answer.code == 3
    assert "line 2: 'ɒ' (U+0252 LATIN SMALL LETTER TURNED ALPHA) at position 1 stands only" in (
        answer.err
    )
    rows = [line.split("\t") for line in answer.out.splitlines()]
    assert [row[0] for row in rows] == ["2ba", "3b"]
    assert all(is_well_formed(row[1]) for row in rows)
    skipped = gptx("sample", "1ɒ", "--unknown", "skip", "--run", model)
    assert skipped.out == gptx("sample", "1", "--run", model).out
    assert "left out 1 of 2 symbols" in skipped.err


def test_eval_counts_symbols(gptx: Gptx, model: str, run: TrainedGPT, tmp_path: Path) -> None:
    written = run.answers(["2ba", "4b"])
    symbols = written[0].split(" ")
    other = " ".join(["bː" if symbols[0] != "bː" else "t͡s", *symbols[1:]])
    (tmp_path / "dev.tsv").write_text(f"2ba\t{other}\n4b\t{written[1]}\n", "utf-8")
    shown = gptx("eval", str(tmp_path / "dev.tsv"), "--run", model).out
    found = json.loads(gptx("eval", str(tmp_path / "dev.tsv"), "--run", model, "--json").out)
    length = len(symbols) + len(written[1].split(" "))
    assert (found["symbols"], found["characters"]) == (length, length + 2)
    assert (found["substitutions"], found["exact"]) == (1, 0.5)
    assert found["error_rate"] == pytest.approx(1 / length)
    (confusion,) = found["confusions"]
    assert confusion == {"target": other.split(" ")[0], "written": symbols[0], "count": 1}
    assert f"{confusion['target']}→{confusion['written']}" in shown
    assert f"symbol error rate  {100 / length:.2f} %" in shown
    assert "nats a target symbol" in shown
    assert other in shown
    every = gptx("eval", str(tmp_path / "dev.tsv"), "--run", model, "--chars").out
    assert other in every
    every = gptx("eval", str(tmp_path / "dev.tsv"), "--run", model, "--chars", "--json").out
    rows = json.loads(every)["rows"]
    assert [row["target"] for row in rows] == [other, written[1]]
    assert [len(row["each"]) for row in rows] == [len(symbols) + 1, length - len(symbols) + 1]


def test_losses_of_symbols_and_of_characters_are_not_compared(
    gptx: Gptx, model: str, tmp_path: Path
) -> None:
    (tmp_path / "dev.tsv").write_text(f"{PAIR}\n", "utf-8")
    other = str(encoded_file(tmp_path / "o.safetensors", more="t͡sbːɒ"))
    answer = gptx("eval", str(tmp_path / "dev.tsv"), "--run", model, "--against", other)
    assert (answer.code, "one writes characters, the other symbols" in answer.err) == (2, True)
    same = gptx("eval", str(tmp_path / "dev.tsv"), "--run", model, "--against", model)
    assert (same.code, "nats a symbol" in same.out) == (0, True)


@pytest.mark.parametrize("kind", ["cross", "decoder"])
def test_attention_maps_have_a_row_for_each_symbol(gptx: Gptx, model: str, kind: str) -> None:
    place = ("--run", model, "--attention", kind)
    found = json.loads(gptx("attn", PAIR, "--json", *place).out)
    assert found["text"] == ["\t", *CELLS]
    assert found["columns"] == ("2ba" if kind == "cross" else ["\t", *CELLS])
    for view in ("numbers", "heat", "top"):
        shown = gptx("attn", PAIR, "--view", view, *place).out
        assert all(symbol in shown for symbol in CELLS)
    assert gptx("attn", PAIR, "--ascii", *place).out.isascii()
    table = gptx("attn", PAIR, "-o", "-", "--format", "csv", *place)
    rows = [*csv.DictReader(io.StringIO(table.out))]
    assert {row["q_char"] for row in rows} == {"\t", *CELLS}


def test_heat_is_as_wide_as_symbols_if_they_fit(
    gptx: Gptx, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ("--run", model, "--attention", "decoder", "--view", "heat")
    monkeypatch.setenv("COLUMNS", "24")
    lines = gptx("attn", PAIR, *place).out.splitlines()
    assert next(line for line in lines if line.split()[:1] == ["⇥"]).split() == ["⇥", *CELLS]
    assert "⇥??ɒ??ɒ??ɒ" in gptx("attn", f"{PAIR} {TARGET} {TARGET}", *place).out


def test_pieces_of_an_alignment_are_symbols(gptx: Gptx, model: str) -> None:
    found = json.loads(gptx("attn", PAIR, "--json", "--run", model).out)["alignment"]["pieces"]
    assert "".join(each["source"] for each in found) == "2ba"
    assert " ".join(each["target"] for each in found).split() == CELLS


def test_files_of_a_map_have_symbols(gptx: Gptx, model: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for form in ("svg", "npz", "html"):
        assert gptx("attn", PAIR, "-o", str(tmp_path / f"a.{form}"), "--run", model).code == 0
    with np.load(tmp_path / "a.npz") as read:
        assert read["text"].tolist() == ["\t", *CELLS]
        assert "".join(map(chr, read["codes"])) == "\t t͡s bː ɒ"
        assert read["column_codes"].tolist() == [*map(ord, "2ba")]
    document = payload_of((tmp_path / "a.html").read_text("utf-8"))
    assert document["characters"] == ["\t", *CELLS]
    assert document["labels"] == ["⇥", *CELLS]


def test_the_next_symbol_and_the_lens(gptx: Gptx, model: str) -> None:
    found = json.loads(gptx("next", "2ba\tt͡s bː", "--json", "--run", model).out)
    assert {each["character"] for each in found["rows"]} == {*SYMBOLS.characters}
    assert "after “⇥ t͡s bː”" in gptx("next", "2ba\tt͡s bː", "--run", model).out
    assert "t͡s" in gptx("attn", PAIR, "--view", "lens", "--run", model).out
    refused = gptx("next", "2ba\tt͡ʃ", "--run", model)
    assert (refused.code, "'t͡ʃ' at position 4 is no symbol" in refused.err) == (3, True)


def test_heads_and_live_read_symbols(gptx: Gptx, model: str, tmp_path: Path) -> None:
    found = json.loads(gptx("heads", "--run", model, "--json").out)
    assert found["windows"] == 32
    assert gptx("live", PAIR, "-o", str(tmp_path / "l.html"), "--run", model).code == 0
    page = payload_of((tmp_path / "l.html").read_text("utf-8"))
    assert page["text"] == PAIR
    assert page["vocabulary"] == [*SYMBOLS.characters]
    assert (page["spaced"], page["unread"]) == (["target"], ["c", "ɒ"])
    assert page["unwritten"] == ["a", "b"]


def test_python_writes_and_reads_symbols(run: TrainedGPT) -> None:
    assert is_well_formed(run.sample("2ba"))
    assert is_well_formed(run.answers(["2ba"])[0])
    found = run.attn(PAIR)
    assert (found.text, found.columns) == (("\t", *CELLS), "2ba")
    assert found.first(2).text == ("\t", "t͡s")
    assert found.to_pandas()["q_char"].unique().tolist() == ["\t", *CELLS]
    assert run.next("2ba\tt͡s").text == ("\t", "t͡s")
    scores = run.eval(f"{PAIR}\n").pairs
    assert scores is not None
    assert scores.targets == (tuple(CELLS),)
    assert len(scores.nats) == len(CELLS) + 1


def test_a_training_on_symbols_resumes_and_passes_them_on(
    gptx: Gptx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.tsv").write_text(SPOKEN.replace("bː", "tːt"), "utf-8")
    small = ("--n-embd", "8", "--n-head", "2", "--steps", "4", "--eval-interval", "2")
    first = gptx("train", "words.tsv", "--target-symbols", "space", *small, "--run", "a")
    assert first.code == 0, first.err
    run = gpt.load("checkpoints/a")
    assert run.vocabulary.spaced == ("target",)
    assert {"t͡s", "tːt", "ɒ"} <= {*run.vocabulary.characters}
    assert run.vocabulary.unread == ("tːt", "t͡s", "ɒ")
    assert run.training.target_symbols == "space"
    assert gptx("train", "--resume", "--run", "a", "--steps", "6").code == 0
    assert gptx("eval", "--run", "a").code == 0
    (tmp_path / "more.tsv").write_text(SPOKEN.replace("b", "ɒb"), "utf-8")
    more = gptx("train", "more.tsv", "--init-from", "a", "--steps", "2", "--run", "b")
    assert more.code == 0, more.err
    child = gpt.load("checkpoints/b")
    assert child.vocabulary.characters[: len(run.vocabulary)] == run.vocabulary.characters
    assert child.vocabulary.characters[len(run.vocabulary) :] == ("ɒbː",)
    assert child.vocabulary.unread == ("tːt", "t͡s", "ɒbː")
    other = ("--init-from", "a", "--target-symbols", "chars", "--steps", "2")
    refused = gptx("train", "more.tsv", *other)
    assert refused.code == 2
    assert "--target-symbols: a, whose weights this run starts with, has space" in refused.err
    refused = gptx("train", "words.tsv", "--encoder-layers", "0", "--target-symbols", "space")
    assert refused.code == 3
    assert "--target-symbols is for pairs" in refused.err


def test_the_docs_commands_train_on_phonemes_and_ask_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_home(tmp_path, monkeypatch)
    words = {"csütörtök": "t͡ʃ y t ø r t ø k", "cica": "t͡s i t͡s ɒ", "köt": "k ø t"}
    lines = "".join(f"{word}\t{spoken}\n" for word, spoken in words.items())
    (tmp_path / "phonemes.tsv").write_text(lines, "utf-8")
    page = (Path(__file__).parents[2] / "docs" / "pairs.md").read_text("utf-8")
    section = page.split("### Symbols of several characters")[1]
    small = "--steps 3 --n-layer 1 --encoder-layers 1 --n-head 2 --n-embd 16 --val-fraction 0.3"
    answers = []
    for line in section.split("```sh\n")[1].split("```")[0].splitlines():
        arguments = shlex.split(line, comments=True)[1:]
        arguments += shlex.split(small) if arguments[0] == "train" else []
        answers.append(answer_of(monkeypatch, arguments))
        assert answers[-1].code == 0, answers[-1].err
    _, sample, scored, attn = answers
    assert {*sample.out.split()} <= {*" ".join(words.values()).split(), *"csütörkia"}
    assert "symbol error rate" in scored.out
    assert "cross-attention · layer 0 head" in attn.out


def test_a_table_of_inflection_may_have_symbols(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The features are part of the source, also where a text is read before it is joined."""
    table = "".join(
        f"{a}{b}\t{a} t͡s {b}\tN;{tag}\n" for a in "abc" for b in "de" for tag in ("SG", "PL")
    )
    at_home(tmp_path, monkeypatch)
    (tmp_path / "t.tsv").write_text(table, "utf-8")
    small = "--steps 2 --n-layer 1 --encoder-layers 1 --n-head 2 --n-embd 16 --target-symbols space"
    assert answer_of(monkeypatch, ("train", "t.tsv", *small.split())).code == 0
    run = gpt.load()
    assert "t͡s" in run.vocabulary.characters
    joined, row = run.sample("ad N;SG"), "ad\ta t͡s d\tN;SG"
    assert run.sample("ad\tN;SG") == joined
    assert run.attn(row).text == ("\t", "a", "t͡s", "d")
    assert run.next(row).text == ("\t", "a", "t͡s", "d")
    for unknown in ("fold", "skip"):
        line = ("sample", "--prompt", "-", "--unknown", unknown)
        answer = answer_of(monkeypatch, line, b"ad\tN;SG\n")
        assert answer.out.split("\t")[-2] == joined
    (tmp_path / "m.tsv").write_text(table, "utf-8")
    measured = answer_of(monkeypatch, ("heads", "m.tsv", "--unknown", "skip", "--json"))
    assert json.loads(measured.out)["windows"] == 12
    assert "left out" not in measured.err


def test_models_with_other_source_symbols_are_compared(
    gptx: Gptx, model: str, tmp_path: Path
) -> None:
    (tmp_path / "dev.tsv").write_text("2\tt͡s bː\n", "utf-8")
    both = replace(SYMBOLS, spaced=("source", "target"))
    other = str(encoded_file(tmp_path / "o.safetensors", "2 b\tt͡s\n", vocabulary=both))
    answer = gptx("eval", str(tmp_path / "dev.tsv"), "--run", model, "--against", other)
    assert (answer.code, answer.err) == (0, "")
