"""`gptx heads` with a model that has an encoder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from encoded import encoded_file
from pages import payload_of
from program import Gptx

from gpt.heads.kinds import RULE_OF_ALL


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(encoded_file(tmp_path_factory.mktemp("pairs") / "p.safetensors"))


def test_heads_shows_cross_attention_beside_a_uniform_head(gptx: Gptx, model: str) -> None:
    answer = gptx("heads", "--run", model)
    assert (answer.code, answer.err) == (0, "")
    title, _, names, *rows = answer.out.splitlines()
    assert title.startswith("heads of cross-attention · 32 pairs of the validation split's first ")
    assert names.split() == ["copy", "monotone", "sharp", "coverage", "entropy"]
    assert rows[4].startswith("uniform")
    assert RULE_OF_ALL in answer.out
    assert "induction" not in answer.out
    assert "--ablate" in answer.out


def test_ablation_ranks_the_heads_of_cross_attention(gptx: Gptx, model: str) -> None:
    answer = gptx("heads", "--run", model, "--ablate", "zero", "--windows", "4", "--json")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    (ablation,) = (each for each in found["measures"] if each["name"] == "ablation")
    rises = [ablation["values"][layer][head] for layer, head in found["ranking"]]
    assert rises == sorted(rises, reverse=True)


@pytest.mark.parametrize(
    ("kind", "names"),
    [("encoder", "left itself right"), ("decoder", "n back duplicate induction in text")],
)
def test_attention_chooses_whose_heads(gptx: Gptx, model: str, kind: str, names: str) -> None:
    out = gptx("heads", "--run", model, "--attention", kind).out
    assert out.startswith(f"heads of {kind} self-attention · ")
    assert " ".join(out.splitlines()[2].split()).startswith(names)


def test_json_and_files_of_pairs(gptx: Gptx, model: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.tsv"
    path.write_text("24 abc\t2-1\n11b\t3c\n", encoding="utf-8")
    found = json.loads(gptx("heads", str(path), "--run", model, "--json").out)
    assert (found["attention"], found["windows"], found["text"]) == ("cross", 2, str(path))
    assert [each["name"] for each in found["measures"]][:2] == ["copy", "monotone"]
    sharp = gptx("heads", str(path), "--run", model, "--sort", "sharp", "--top", "1")
    assert sharp.out.splitlines()[3].startswith("layer ")


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
    assert "".join(map(chr, document["codes"])) == first


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("--ablate resample", "ablation of pairs: mean or zero; resample needs texts of one"),
        ("--sort back", "--sort: 'back' is not one of copy, monotone"),
    ],
)
def test_what_a_model_with_an_encoder_lacks_is_refused(
    gptx: Gptx, model: str, arguments: str, problem: str
) -> None:
    answer = gptx("heads", "--run", model, *arguments.split())
    assert (answer.code, answer.out) == (2, "")
    assert problem in answer.err
    assert len(answer.err.splitlines()) == 1


def test_a_model_without_an_encoder_has_no_cross_attention(gptx: Gptx) -> None:
    answer = gptx("heads", "--attention", "cross")
    assert (answer.code, answer.out) == (2, "")
    assert "--attention: this model has no encoder: 'cross' is not one of decoder" in answer.err
