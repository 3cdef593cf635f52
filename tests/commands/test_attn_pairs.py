"""`gptx attn`, `heads`, `next` and others with a model that has an encoder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from encoded import encoded_file
from pages import payload_of
from program import Gptx

from gpt import load
from gpt.heads.alignment import alignments
from gpt.heads.measures import RULE_OF_ALL


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(encoded_file(tmp_path_factory.mktemp("pairs") / "p.safetensors"))


def test_cross_attention_is_the_default(gptx: Gptx, model: str) -> None:
    found = json.loads(gptx("attn", "24 abc", "--run", model, "--json").out)
    assert (found["attention"], found["columns"]) == ("cross", "24 abc")
    assert found["text"] == "\t" + load(model).answers(["24 abc"])[0]


def test_attn_prints_the_pieces_that_the_best_head_aligns(gptx: Gptx, model: str) -> None:
    pair = "24 abc\t2-1"
    answer = gptx("attn", pair, "--run", model)
    pieces, where = answer.out.splitlines()[-2:]
    found = json.loads(gptx("attn", pair, "--run", model, "--json").out)["alignment"]
    texts = [[each[side] for each in found["pieces"]] for side in ("source", "target")]
    assert ["".join(each) for each in texts] == pair.split("\t")
    shown = "  ".join("–".join(each) for each in zip(*texts, strict=True))
    assert pieces == shown.replace(" ", "␠").replace("␠␠", "  ")
    assert where.startswith(
        f"source–target by layer {found['layer']} head {found['head']}, which aligns"
    )
    cross = load(model).attn(pair)
    values = {
        (layer, head): alignments(cross["weights", layer, head][None, :-1])[0]
        for layer in range(2)
        for head in range(2)
    }
    assert (found["layer"], found["head"]) == max(values, key=lambda place: values[place])
    assert found["aligned"] == pytest.approx(max(values.values()))
    assert found["uniform"] == pytest.approx(1 / 6)
    plain = gptx("attn", pair, "--run", model, "--ascii").out
    assert plain.isascii()
    assert shown.replace("–", "-").replace("  ", "|").replace(" ", "\\s").split("|") == (
        plain.splitlines()[-2].split("  ")
    )
    encoder = gptx("attn", pair, "--run", model, "--attention", "encoder")
    assert "source–target" not in encoder.out
    nothing = gptx("attn", "24", "--target", "", "--run", model, "--json")
    assert json.loads(nothing.out)["alignment"] is None


def test_the_first_pair_or_a_line_of_a_file_is_shown(gptx: Gptx, model: str) -> None:
    answer = gptx("attn", "--run", model, "--json")
    found = json.loads(answer.out)
    assert (found["columns"], found["text"]) == ("0b", "\t0c")
    assert answer.err == 'no TEXT given; from the validation split: "0b\t0c"\n'
    found = json.loads(gptx("attn", "--run", model, "--json", "--target", "11").out)
    assert (found["columns"], found["text"]) == ("0b", "\t11")
    answer = gptx("attn", "-", "--run", model, "--json", stdin=b"24\t2\n")
    assert json.loads(answer.out)["text"] == "\t2"
    answer = gptx("attn", "-", "--run", model, stdin=b"24\t2\n25\t3\n")
    assert (answer.code, answer.out) == (3, "")
    assert "the text has several lines; give one pair" in answer.err


def test_two_models_read_the_same_pair(gptx: Gptx, model: str, tmp_path: Path) -> None:
    other = encoded_file(tmp_path / "other.safetensors", n_head=4)
    answer = gptx("attn", "24", "--run", model, "--diff", str(other), "--json")
    first, second = json.loads(answer.out)["compared"]
    assert first["text"] == second["text"]
    assert "mean change" in gptx("attn", "24", "--run", model, "--diff", str(other)).out


def test_rollout_is_the_encoders_and_the_lens_has_a_row_for_each_character_of_the_target(
    gptx: Gptx, model: str
) -> None:
    answer = gptx("attn", "24", "--run", model, "--attention", "encoder", "--view", "rollout")
    assert answer.out.startswith("encoder self-attention · rollout through layer 2, a heuristic")
    answer = gptx("attn", "24\t2-1", "--run", model, "--view", "lens")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("logit lens · 4 positions · rows = position")
    record = json.loads(gptx("attn", "24\t2-1", "--run", model, "--view", "lens", "--json").out)
    places = {(each["depth"], each["position"]) for each in record["lens"]}
    assert places == {(depth, position) for depth in range(3) for position in range(4)}


def test_heads_shows_cross_attention_beside_a_uniform_head(gptx: Gptx, model: str) -> None:
    answer = gptx("heads", "--run", model)
    assert (answer.code, answer.err) == (0, "")
    title, _, names, *rows = answer.out.splitlines()
    assert title.startswith("heads of cross-attention · 32 pairs of the validation split's first ")
    measures = ["copy", "monotone", "aligned", "sharp", "coverage", "entropy"]
    assert names.split() == ["head", "kind", *measures]
    assert rows[4].startswith("uniform")
    assert RULE_OF_ALL in answer.out
    assert "induction" not in answer.out
    assert "--ablate" in answer.out
    ablated = gptx("heads", "--run", model, "--ablate", "zero", "--windows", "4", "--json")
    assert (ablated.code, ablated.err) == (0, "")
    rises = [each["ablation"] for each in json.loads(ablated.out)["rows"]]
    assert rises == sorted(rises, reverse=True)


@pytest.mark.parametrize(
    ("kind", "text", "names"),
    [
        ("encoder", "24", "left itself right"),
        ("decoder", "\t2-1", "n back duplicate induction in text"),
    ],
)
def test_attention_chooses_the_kind(
    gptx: Gptx, model: str, kind: str, text: str, names: str
) -> None:
    answer = gptx("attn", "24", "--target", "2-1", "--run", model, "--attention", kind)
    assert re.match(rf"{kind} self-attention · layer \d head \d · weights", answer.out)
    answer = gptx("attn", "24\t2-1", "--run", model, "--attention", kind, "--json")
    assert json.loads(answer.out)["text"] == text
    out = gptx("heads", "--run", model, "--attention", kind).out
    assert out.startswith(f"heads of {kind} self-attention · ")
    assert " ".join(out.splitlines()[2].split()).startswith(f"head kind {names}")


def test_json_and_files_of_pairs(gptx: Gptx, model: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.tsv"
    path.write_bytes(b"24 abc\t2-1\r\n11b\t3c\r\n")
    found = json.loads(gptx("heads", str(path), "--run", model, "--json").out)
    assert (found["attention"], found["windows"], found["text"]) == ("cross", 2, str(path))
    assert [*found["measures"]][:2] == ["copy", "monotone"]
    sharp = gptx("heads", str(path), "--run", model, "--sort", "sharp", "--top", "1")
    assert re.match(r"L\dH\d ", sharp.out.splitlines()[3])


@pytest.mark.parametrize(("kind", "layers"), [("cross", 2), ("encoder", 3), ("decoder", 2)])
def test_the_page_shows_the_first_pair(
    gptx: Gptx, model: str, tmp_path: Path, kind: str, layers: int
) -> None:
    path = tmp_path / "heads.html"
    answer = gptx("heads", "--run", model, "--attention", kind, "-o", str(path))
    assert (answer.code, answer.err) == (0, "")
    document = payload_of(path.read_text(encoding="utf-8"))
    (subject,) = document["subjects"]
    assert (subject["layers"], subject["lens"]) == (layers, None)
    first = "0b" if kind == "encoder" else "\t0c"
    assert "".join(document["characters"]) == first


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("attn 24 --truncate", "--truncate: a source is read as a whole; shorten the text"),
        ("attn 24 --view rollout", "--head: rollout exists for self-attention only"),
        ("attn 24 --view lens --attention encoder", "--view lens: shows what the decoder predicts"),
        ("attn 24 --attention sideways", "'sideways' is not one of 'encoder', 'decoder', 'cross'"),
        ("attn 24 --diff corpus-1", "--diff: only one of the models has an encoder"),
        ("attn 24\t1 --target 2", "--target: the text has a TAB and a target; give one of them"),
        ("heads --ablate resample", "ablation of pairs: mean or zero; resample needs texts of one"),
        ("heads --sort back", "--sort: 'back' is not one of copy, monotone"),
    ],
)
def test_what_a_model_with_an_encoder_lacks_is_refused(
    gptx: Gptx, model: str, line: str, problem: str
) -> None:
    answer = gptx(*line.split(" "), "--run", model)
    assert (answer.code, answer.out) == (2, "")
    assert problem in answer.err
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "attn cat --attention cross",
            "--attention: this model has no encoder: 'cross' is",
        ),
        ("attn cat --target ab", "--target: this model has no encoder"),
        ("heads --attention cross", "--attention: this model has no encoder: 'cross' is"),
    ],
)
def test_a_model_without_an_encoder_has_only_the_decoders_attention(
    gptx: Gptx, line: str, problem: str
) -> None:
    answer = gptx(*line.split())
    assert (answer.code, answer.out) == (2, "")
    assert problem in answer.err
    assert gptx("attn", "cat", "--attention", "decoder").out == gptx("attn", "cat").out


def test_heads_names_a_line_that_is_no_pair_or_has_an_unknown_character(
    gptx: Gptx, model: str, tmp_path: Path
) -> None:
    file = tmp_path / "some.tsv"
    for line, problem in (
        ("24 abc", "line 2 has no TAB: '24 abc'; each line is SOURCE, one TAB, TARGET"),
        ("é\t1", "line 2: 'é' (U+00E9 LATIN SMALL LETTER E WITH ACUTE) at position 0 is not in"),
    ):
        file.write_text(f"2\t1\n{line}\n", "utf-8")
        answer = gptx("heads", str(file), "--run", model)
        assert (answer.code, problem in answer.err) == (3, True), answer.err
    file.write_bytes(b"2 ab\t1-2\r\n\r\n24\t21\r\n" + b"2" * 99 + b"\t1\r\n")
    found = json.loads(gptx("heads", str(file), "--run", model, "--json").out)
    assert found["windows"] == 2  # the third is too long
    assert gptx("heads", str(file), "--run", model, "-o", str(tmp_path / "h.html")).code == 0


def test_next_continues_the_target(gptx: Gptx, model: str) -> None:
    opened = load(model)
    start, later = opened.next("24"), opened.next("24\t2")
    answers = opened.answers(["24"])[0]
    assert opened.vocabulary.characters[int(start.expected.argmax())] == answers[0]
    assert not (start.expected == later.expected).all()
    found = json.loads(gptx("next", "24\t2", "--run", model, "--json").out)
    assert found["text"] == "24\t2"
