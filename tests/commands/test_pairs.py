"""`gptx sample` and `gptx eval` for pairs: lines in, lines out, and every option."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from encoded import PAIRS, encoded_file
from program import Answer, Gptx, answer_of, at_home

import gpt
from gpt.commands import console, sample
from gpt.commands.interactive import TargetSession
from gpt.errors import ConfigError, TextError
from gpt.interface import evaluating
from gpt.interface.trained import TrainedGPT
from gpt.reading.targets import score_pairs, target_settings

MODEL, OTHER = ("--run", "model.safetensors"), ("--run", "lines.safetensors")
SOURCES = ["1b", "4ba", "6baaa", "2b", "cab", "ff"]
TEXT = "1b\t1c\n4ba\t4c\n\n1b\t0\nff\t07\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with an encoder, a decoder-only one, and pairs."""
    found = tmp_path_factory.mktemp("pairs")
    encoded_file(found / "model.safetensors")
    encoded_file(found / "lines.safetensors", encoder_layers=0)
    (found / "dev.tsv").write_text(TEXT)
    return found


@pytest.fixture
def gptx(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Gptx:
    def run(*arguments: str, stdin: bytes = b"") -> Answer:
        return answer_of(monkeypatch, arguments, stdin)

    at_home(folder, monkeypatch)
    return run


@pytest.fixture
def trained(folder: Path) -> TrainedGPT:
    return gpt.load(folder / "model.safetensors")


def test_auto_says_why_a_gpu_does_not_compute_a_model_with_an_encoder(
    gptx: Gptx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0000:65:00.0").mkdir()
    monkeypatch.setattr("gpt.devices.GPUS", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    answer = gptx("eval", "dev.tsv", "--json", *MODEL)
    assert (answer.code, json.loads(answer.out)["device"]) == (0, "cpu")
    assert answer.err == "device: cpu (numpy computes models with an encoder)\n"


def test_sample_writes_the_target_of_a_source(gptx: Gptx, trained: TrainedGPT) -> None:
    expected = [trained.sample(source) for source in SOURCES]
    for source, target in zip(SOURCES, expected, strict=True):
        assert gptx("sample", "--prompt", source, *MODEL).out == f"{target}\n"
    lines = "\n".join(SOURCES)
    assert gptx("sample", lines, *MODEL).out.split("\n") == [*expected, ""]
    assert gptx("sample", "-", *MODEL).out == ""


def rows_of(out: str) -> list[tuple[str, str, float]]:
    """Source, target and log-probability of each line; a target may have a TAB."""
    lines = [line.split("\t") for line in out.split("\n")[:-1]]
    return [(source, "\t".join(target), float(log)) for source, *target, log in lines]


def test_a_batch_has_a_line_of_source_target_and_log_probability(
    gptx: Gptx, trained: TrainedGPT
) -> None:
    expected = [trained.sample(source) for source in SOURCES]
    lines = "\n".join(SOURCES)
    for text in (lines, f"{lines}\n", lines.replace("\n", "\r\n")):
        answer = gptx("sample", "-", *MODEL, stdin=text.encode())
        assert (answer.code, answer.err) == (0, "")
        rows = rows_of(answer.out)
        assert [row[:2] for row in rows] == [*zip(SOURCES, expected, strict=True)]
    for source, target, log in rows:
        if target and "\t" not in target and len(target) < 15:
            scored = score_pairs(trained.reader, trained.vocabulary, f"{source}\t{target}")
            assert log == pytest.approx(-scored.nats.sum(), abs=6e-5)  # natural logarithm
    Path("sources.txt").write_text(lines)
    assert gptx("sample", "--file", "sources.txt", *MODEL).out == answer.out


def test_a_batch_has_the_best_targets_of_each_source_best_first(
    gptx: Gptx, trained: TrainedGPT
) -> None:
    text = "\n".join(SOURCES).encode()
    rows = rows_of(gptx("sample", "-", "--beam", "5", "-n", "5", *MODEL, stdin=text).out)
    assert [source for source, *_ in rows] == [source for source in SOURCES for _ in range(5)]
    assert [target for _, target, _ in rows[::5]] == trained.answers(SOURCES, beam=5)
    for first in range(0, len(rows), 5):
        logs = [log for *_, log in rows[first : first + 5]]
        assert logs == sorted(logs, reverse=True)
        assert len({target for _, target, _ in rows[first : first + 5]}) == 5


@pytest.mark.parametrize("at_once", [2, 1000])
def test_bad_lines_of_a_batch_are_reported_and_skipped(
    gptx: Gptx, trained: TrainedGPT, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(sample, "AT_ONCE", at_once)
    monkeypatch.setattr(console, "CHUNK", 5)
    given = ["1b", "x", "", "4ba", "a" * 17, "1b\t1c", "ff"]
    found = gptx("sample", "-", *MODEL, stdin="\n".join(given).encode())
    assert found.code == 3
    good = ["1b", "4ba", "ff"]
    expected = [*zip(good, map(trained.sample, good), strict=True)]
    assert [row[:2] for row in rows_of(found.out)] == expected
    for problem, line in zip(
        (
            r"line 2: 'x' \(U\+0078 .*--unknown skip",
            "line 3 is empty; give at least one character",
            "line 5 has a source of 17 characters, the model takes 16; shorten it",
            "line 6 has a TAB; give the source alone, without its target",
        ),
        found.err.splitlines(),
        strict=True,
    ):
        assert re.fullmatch(f"gptx: error: {problem}", line)
    only = gptx("sample", "-", "--json", *MODEL, stdin=b"x\n")
    assert (only.code, only.out) == (3, "")


def test_a_source_in_another_form_of_unicode_is_known(tmp_path: Path, gptx: Gptx) -> None:
    path = encoded_file(tmp_path / "accents.safetensors", more="éű")
    model = ("--run", str(path))
    composed, apart = "aé0ű", "ae\u03010u\u030b"
    found = gptx("sample", composed, *model)
    assert gptx("sample", apart, *model).out == found.out
    (row,) = rows_of(gptx("sample", "-", *model, stdin=f"{apart}\n".encode()).out)
    assert row[:2] == (apart, found.out.removesuffix("\n"))
    skipped = gptx("sample", "-", "--unknown", "skip", *model, stdin=f"{apart}x\r\n".encode())
    assert rows_of(skipped.out)[0][:2] == (f"{apart}x", found.out.removesuffix("\n"))
    shown = json.loads(gptx("attn", apart, "--json", *model).out)
    assert shown["columns"] == composed


def test_sample_draws_or_searches_if_asked(gptx: Gptx, trained: TrainedGPT) -> None:
    drawn = gptx("sample", "4ba", "-n", "3", "--temperature", "1", "--seed", "5", *MODEL)
    assert drawn.out.split("\n")[:-1] == trained.sample("4ba", n=3, temperature=1.0, seed=5)
    best = gptx("sample", "\n".join(SOURCES), "--beam", "4", *MODEL)
    assert best.out.split("\n")[:-1] == trained.answers(SOURCES, beam=4)
    several = gptx("sample", "4ba", "--beam", "4", "-n", "3", *MODEL).out.split("\n")
    assert (len(several), several[0]) == (4, trained.answers(["4ba"], beam=4)[0])


def test_sample_gives_records_for_programs(gptx: Gptx, trained: TrainedGPT) -> None:
    answer = gptx("sample", "4ba\n1b", "--beam", "3", "-n", "2", "--json", *MODEL)
    records = [json.loads(line) for line in answer.out.splitlines()]
    named = [(each["source"], each["sample"], each["beam"]) for each in records]
    assert named == [("4ba", 0, 3), ("4ba", 1, 3), ("1b", 0, 3), ("1b", 1, 3)]
    for record in records:
        assert (record["ended"], record["step"]) == ("end", 1)
        if record["target"] and "\t" not in record["target"]:
            pair = f"{record['source']}\t{record['target']}"
            nats = score_pairs(trained.reader, trained.vocabulary, pair).nats.sum()
            assert record["nats"] == pytest.approx(nats, abs=1e-4)
        assert record["log_probability"] == pytest.approx(-record["nats"], abs=1e-9)
    cut = json.loads(gptx("sample", "4ba", "--length", "0", "--json", *MODEL).out)
    assert (cut["target"], cut["length"]) == ("", 0)


@pytest.mark.parametrize(
    ("options", "problem", "code"),
    [
        (["1b", "--novelty"], "--novelty: not for a model with an encoder", 2),
        (["1b", "--sources"], "--sources: not for a model with an encoder", 2),
        (["1b", "--stop", "c"], "--stop: a target ends by itself; leave the option out", 2),
        (["1b", "-n", "2"], "-n: at temperature 0, all targets are equal; give --temperature", 2),
        (["1b", "--top-p", ".5"], "--top-p: it has no effect at temperature 0", 2),
        (["1b", "--device", "cuda"], "--device: a model with an encoder is computed on the CPU", 2),
        ([], "no source: give one, or - to read one from each line", 2),
        (["1b", "--prompt", "1b"], "TEXT and --prompt: give the text once", 2),
        (["1b\t1c"], "line 1 has a TAB; give the source alone, without its target", 3),
        (["1b\n\n2b"], "line 2 is empty; give at least one character", 3),
        (["a" * 17], "line 1 has a source of 17 characters, the model takes 16; shorten it", 3),
    ],
)
def test_wrong_options_and_sources_are_refused(
    gptx: Gptx, options: list[str], problem: str, code: int
) -> None:
    answer = gptx("sample", *options, *MODEL)
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith("gptx: error: ")
    assert problem in answer.err
    assert answer.err.count("\n") == 1


def test_circuits_and_sources_need_a_model_without_an_encoder(
    gptx: Gptx, trained: TrainedGPT
) -> None:
    answer = gptx("circuits", *MODEL)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("gptx: error: circuits: not for a model with an encoder; attn")
    with pytest.raises(ConfigError, match="sources: not for a model with an encoder"):
        trained.sources(["1b"])


def test_unknown_characters_can_be_left_out(gptx: Gptx, trained: TrainedGPT) -> None:
    answer = gptx("sample", "-", "--unknown", "skip", *MODEL, stdin=b"1xb\n4ba\n")
    assert [target for _, target, _ in rows_of(answer.out)] == trained.answers(["1b", "4ba"])
    assert answer.err == (
        "note: line 1: left out 1 of 3 characters, which the model does not know: 'x'\n"
    )


def test_beam_needs_pairs(gptx: Gptx) -> None:
    assert "--beam: only for a model with an encoder" in gptx("sample", "--beam", "2", *OTHER).err
    assert "--beam: only for pairs" in gptx("eval", "dev.tsv", "--beam", "2", *OTHER).err


def test_eval_scores_pairs(gptx: Gptx, trained: TrainedGPT) -> None:
    found = trained.eval(TEXT, pairs=True).pairs
    answer = gptx("eval", "dev.tsv", *MODEL)
    title, worst, confused, facts = (part.splitlines() for part in answer.out.split("\n\n"))
    score = found.score
    loss = f"{score.nats:.4f} nats, {score.bits:.3f} bits a target character"
    assert title == [f"dev.tsv · {loss} · 4 pairs"]
    assert facts == [
        f"exact                 {100 * found.exact:.2f} % of 3 sources",
        f"word error rate       {100 * found.word_error_rate:.2f} %",
        facts[2],
        facts[3],
        "predicted             11 characters, ends of targets included",
    ]
    low, high = (100 * end for end in found.intervals["error_rate"])
    assert facts[2] == (
        f"character error rate  {100 * found.error_rate:.2f} %, 95 % interval {low:.2f} to "
        f"{high:.2f} %, n = 3"
    )
    assert re.match(r"errors +\d+ substitutions? \(\d+\.\d\d %\), \d+ insert", facts[3])
    assert confused[:2] == ["commonest confusions", "target   written  count  of all errors"]
    assert worst[0] == "worst pairs · nats a target character"
    assert worst[1].split() == ["nats", "line", "source", "target", "written", "edits", "changes"]
    means = [float(each.split()[0]) for each in worst[2:]]
    assert means == sorted(means, reverse=True)
    assert {each.split()[1] for each in worst[2:]} == {"1", "2", "4", "5"}
    one = gptx("eval", "dev.tsv", "--worst", "1", *MODEL).out.split("\n\n")
    assert one[1].splitlines() == worst[:3]
    assert "worst" not in gptx("eval", "dev.tsv", "--worst", "0", *MODEL).out
    Path("twice.tsv").write_text(TEXT * 2)
    twice = gptx("eval", "twice.tsv", *MODEL).out.split("\n\n")[1].splitlines()
    assert [line.split()[2:] for line in twice] == [line.split()[2:] for line in worst]
    windows = gptx("eval", "-", *MODEL, stdin=TEXT.replace("\n", "\r\n").encode()).out
    assert windows == answer.out.replace("dev.tsv", "standard input")


def test_eval_of_pairs_for_programs(gptx: Gptx, trained: TrainedGPT) -> None:
    found = trained.eval(TEXT, beam=3, pairs=True).pairs
    record = json.loads(gptx("eval", "dev.tsv", "--beam", "3", "--json", *MODEL).out)
    assert record["nats"] == pytest.approx(found.score.nats)
    assert (record["exact"], record["pairs"], record["sources"]) == (found.exact, 4, 3)
    assert record["error_rate"] == pytest.approx(found.error_rate)
    assert (record["beam"], record["split"], record["trained_on"]) == (3, None, False)
    worst = [each["nats"] for each in record["rows"]]
    assert worst == sorted(worst, reverse=True)
    whole = json.loads(gptx("eval", "dev.tsv", "--chars", "--json", *MODEL).out)
    assert [each["line"] for each in whole["rows"]] == [1, 2, 4, 5]
    each = [nats for pair in whole["rows"] for nats in pair["each"]]
    assert each == pytest.approx(found.nats.tolist(), rel=1e-6)
    for pair in whole["rows"]:
        assert pair["nats"] == pytest.approx(sum(pair["each"]) / len(pair["each"]))
        assert pair["exact"] == (pair["distance"] == 0)


def test_eval_colours_target_characters(gptx: Gptx, trained: TrainedGPT) -> None:
    plain = gptx("eval", "dev.tsv", "--chars", *MODEL).out.splitlines()[2:]
    assert plain[:2:2] == ["1b⇥1c⏎"]
    bits = trained.eval(TEXT, pairs=True).pairs.nats[:3] / 0.6931471805599453
    assert plain[1] == "   " + "".join(str(min(9, round(each))) for each in bits)
    assert "\x1b[" in gptx("eval", "dev.tsv", "--chars", "--color", "always", *MODEL).out


def test_eval_names_the_line_of_a_bad_pair(gptx: Gptx) -> None:
    for text, problem in (
        ("1b\t1c\n4ba 4c\n", "line 2 has no TAB: '4ba 4c'; each line is SOURCE, one TAB, TARGET"),
        ("1b\t1\tc\n", "line 1 has several TABs"),
        ("1b\t1c\n\n\t4c\n", "line 3 has an empty source"),
        ("1b\tx\n", "line 1: 'x' (U+0078"),
        (f"1b\t{'c' * 16}\n", "line 1 has a target of 16 characters, the model takes 15"),
        ("", "there are only blank lines"),
    ):
        Path("bad.tsv").write_text(text)
        answer = gptx("eval", "bad.tsv", "dev.tsv", *MODEL)
        assert answer.code == 3
        assert answer.err.startswith(f"gptx: error: bad.tsv: {problem}")
        assert answer.out.startswith("dev.tsv · ")
    skipped = gptx("eval", "-", "--unknown", "skip", *MODEL, stdin=b"1xb\t1c\n")
    assert skipped.code == 0
    assert "note: standard input: left out 1 of 7 characters" in skipped.err


def test_eval_compares_two_models_on_pairs(gptx: Gptx, trained: TrainedGPT) -> None:
    other = gpt.load("lines.safetensors")
    answer = gptx("eval", "dev.tsv", "--against", "lines.safetensors", "--json", *MODEL)
    record = json.loads(answer.out)
    assert record["first"] == pytest.approx(trained.eval(TEXT).nats)
    assert record["second"] == pytest.approx(other.eval(TEXT, pairs=True).pairs.score.nats)
    assert record["against"]["exact"] == other.eval(TEXT, pairs=True).pairs.exact
    line = gptx("eval", "dev.tsv", "--against", "lines.safetensors", *MODEL).out
    title, table, difference, _ = line.split("\n\n")
    assert title.startswith("dev.tsv · ")
    for row, name in zip(table.splitlines()[1:], ("model", "lines"), strict=True):
        assert re.match(rf"{name}\.safetensors step 1  .*  0\.00 %  +\d+\.\d\d %$", row)
    assert re.match(r"difference  [+−]\d\.\d{4} nats a character", difference)


def test_eval_refuses_models_that_cannot_read_the_same_text(gptx: Gptx) -> None:
    Path("plain.txt").write_text("11aabb" * 5)
    mixed = gptx("eval", "plain.txt", *OTHER, "--against", "model.safetensors")
    assert (mixed.code, mixed.out) == (2, "")
    assert "--against: model.safetensors has an encoder and reads pairs" in mixed.err
    assert "compare them on pairs, with --pairs" in mixed.err
    answer = gptx("eval", "dev.tsv", "--pairs", *OTHER, "--against", "model.safetensors")
    assert answer.code == 0, answer.err


def test_a_decoder_only_model_is_scored_on_pairs_if_asked(gptx: Gptx) -> None:
    other = gpt.load("lines.safetensors")
    found = other.eval(TEXT, pairs=True).pairs
    record = json.loads(gptx("eval", "dev.tsv", "--pairs", "--json", *OTHER).out)
    assert record["nats"] == pytest.approx(found.score.nats)
    assert record["error_rate"] == pytest.approx(found.error_rate)
    plain = json.loads(gptx("eval", "dev.tsv", "--json", *OTHER).out)
    assert plain["nats"] == pytest.approx(other.eval(TEXT).nats)
    assert "exact" not in plain
    assert "--pairs: give a FILE of pairs" in gptx("eval", "--pairs", *OTHER).err
    assert "--baseline: not for pairs" in gptx("eval", "dev.tsv", "--baseline", *MODEL).err
    assert "--worst: only with --chars" in gptx("eval", "dev.tsv", "--worst", "3", *OTHER).err


@pytest.fixture
def asking(trained: TrainedGPT) -> TargetSession:
    return TargetSession(trained, target_settings(trained.config))


def test_interactively_a_source_gets_its_target(
    asking: TargetSession, trained: TrainedGPT, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    one, two = trained.answers(["4ba", "1b"])
    assert asking.take("4ba")
    assert asking.take("1b")
    assert capfd.readouterr().out == f"{one}\n{two}\n"
    assert asking.text == f"4ba\t{one}\n1b\t{two}\n"
    asking.take(f"/save {tmp_path / 'pairs.tsv'}")
    assert (tmp_path / "pairs.tsv").read_text() == asking.text
    asking.take("/undo")
    assert asking.text == f"4ba\t{one}\n"
    asking.take("/temperature 1.5")
    asking.take("/seed 9")
    for _ in range(3):
        asking.take("")
    drawn = [line.split("\t", 1) for line in asking.text.splitlines()[1:]]
    assert {source for source, _ in drawn} == {"4ba"}
    assert len({target for _, target in drawn}) > 1
    assert asking.take("/help")
    assert not asking.take("/quit")


def test_interactive_errors_change_nothing(asking: TargetSession) -> None:
    for line, kind, problem in (
        ("", ConfigError, "type a source"),
        ("x", TextError, "'x'"),
        ("a" * 17, TextError, "17 characters"),
        ("/top-k 3", ConfigError, "has no effect at temperature 0"),
        ("/stop c", ConfigError, "no such command"),
        ("/length 16", ConfigError, "16 is more than the longest target"),
    ):
        with pytest.raises(kind, match=problem):
            asking.take(line)
    assert (asking.text, asking.turns) == ("", [])
    assert asking.settings.top_k is None


def test_the_validation_split_has_the_pairs_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_home(tmp_path, monkeypatch)
    Path("pairs.tsv").write_text(PAIRS)
    shape = "--n-layer 1 --n-head 2 --n-embd 16 --encoder-layers 1 --batch-size 4 --steps 4"
    shape += " --val-fraction 0.3"
    trained = answer_of(monkeypatch, ("train", "pairs.tsv", *shape.split()))
    assert trained.code == 0, trained.err
    record = json.loads(answer_of(monkeypatch, ("eval", "--json")).out)
    stored = json.loads(answer_of(monkeypatch, ("runs", "--json")).out.splitlines()[-1])
    assert record["split"] == "validation"
    assert record["nats"] == pytest.approx(stored["val_nats"], abs=1e-5)
    seen = answer_of(monkeypatch, ("eval", "pairs.tsv"))
    assert "warning: pairs.tsv is in the text that this run was trained on" in seen.err
    monkeypatch.setattr(evaluating, "MOST_PAIRS", 2)
    some = answer_of(monkeypatch, ("eval", "--worst", "0"))
    assert some.out.startswith("the first 2 pairs of the validation split · ")
    assert {each["line"] for each in record["rows"]} >= {1, 2, 3}
    worst = answer_of(monkeypatch, ("eval", "--worst", "1")).out.splitlines()[4]
    assert worst.split()[1] in ("1", "2")
    assert "note: scoring only the first 2 of " in some.err


def test_a_model_that_may_have_seen_the_validation_pairs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_home(tmp_path, monkeypatch)
    Path("pairs.tsv").write_text(PAIRS)
    shape = "--n-layer 1 --n-head 2 --n-embd 16 --batch-size 4 --steps 2 --val-fraction 0.3"
    for more in ("--encoder-layers 1", "--encoder-layers 0 --counting 0 --block-size 16"):
        trained = answer_of(monkeypatch, ("train", "pairs.tsv", *shape.split(), *more.split()))
        assert trained.code == 0, trained.err
    found = answer_of(monkeypatch, ("eval", "--run", "pairs-1", "--against", "pairs-2", "--json"))
    record = json.loads(found.out)
    assert (record["split"], record["may_have_seen"]) == ("validation", "pairs-2")
    assert found.err == (
        "warning: pairs-2 was trained on another part of this corpus (--split last)\n"
    )


LEMMAS = ["alma", "kutya", "haz", "look up", "to", "fa", "ing", "szoba", "ut", "lo", "ko", "kez"]
FORMS = {"N;NOM;SG": "", "N;ACC;SG": "t", "N;IN+ESS;SG": "ban"}
TABLE = "".join(
    f"{lemma}\t{lemma}{end}\t{tags}\n" for lemma in ["ház", *LEMMAS] for tags, end in FORMS.items()
)


def test_the_docs_commands_train_on_a_table_and_ask_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_home(tmp_path, monkeypatch)
    (tmp_path / "inflection.tsv").write_text(TABLE)
    page = (Path(__file__).parents[2] / "docs" / "pairs.md").read_text(encoding="utf-8")
    section = page.split("### Tables of inflection")[1]
    lines = section.split("```sh\n")[1].split("```")[0].splitlines()
    small = "--steps 3 --n-layer 1 --encoder-layers 1 --n-head 2 --n-embd 16 --val-fraction 0.3"
    cells = [line.split("\t") for line in TABLE.splitlines()]
    sources = [f"{lemma}\t{tags}" for lemma, _, tags in cells]
    answers = []
    for line in lines:
        piped = "\n".join(sources).encode() if line.startswith("cut -f1,3 ") else b""
        command = line.replace("--minutes 5", small).rpartition("gptx ")[2]
        answers.append(answer_of(monkeypatch, shlex.split(command, comments=True), piped))
        assert answers[-1].code == 0, answers[-1].err
    train, one, many, scored, attn = answers
    assert "note: inflection.tsv is a table of lemma, form and features" in train.err
    assert "other lemmas" not in train.err
    plan = answer_of(monkeypatch, ("train", "inflection.tsv", "--dry-run"))
    assert "to validate on other lemmas: --split group:1" in plan.err
    assert "by a hash of the lemma" in train.err
    assert one.out.count("\n") == 1
    assert [line.rsplit("\t", 2)[0] for line in many.out.splitlines()] == sources
    assert scored.out.startswith("inflection.tsv · ")
    assert f"of {len(cells)} sources" in scored.out
    assert "inflection.tsv is in the text that this run was trained on" in scored.err
    assert attn.out.startswith("cross-attention · ")
    joined = "".join(f"{lemma} {tags}\t{form}\n" for lemma, form, tags in cells)
    assert (
        answer_of(monkeypatch, ("eval", "-"), joined.encode()).out.replace(
            "standard input", "inflection.tsv"
        )
        == scored.out
    )
