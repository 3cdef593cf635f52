"""The last steps of lessons, in a trained model: numbers are computed again by other code."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import train_tiny
from program import Gptx

import gpt
from gpt.config import SampleConfig
from gpt.errors import ConfigError, TextError
from gpt.interface.trained import TrainedGPT
from gpt.lessons.catalogue import IN_OWN_MODEL, make_lesson
from gpt.lessons.lesson import Lesson, Table
from gpt.reading import sampler
from gpt.reading.gpt import Reader

TEXT = "the cat the cat"
KINDS: dict[str, dict[str, Any]] = {
    "rotary": {"norm": "layer", "bias": True},
    "learned": {"position": "learned", "tied": True, "attention": "heads", "n_layer": 3},
    "sinusoidal": {"position": "sinusoidal", "post_norm": True, "scaled_embedding": True},
    "none": {"position": "none", "feed_forward": False, "norm": "layer", "bias": True},
    "one layer": {"n_layer": 1, "norm": "rms", "qkv_bias": True},
}


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    folder = tmp_path_factory.mktemp("kind")
    return gpt.load(train_tiny(folder, {"steps": 6}, **KINDS[request.param]).path.parent)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    """A run that has kept all of its evaluations' steps."""
    train = {"keep_all": True, "steps": 12, "eval_interval": 3}
    return gpt.load(train_tiny(tmp_path_factory.mktemp("grown"), train).path.parent)


def own(name: str, run: TrainedGPT, text: str | None = TEXT, **more: Any) -> list[Any]:
    """The steps in the user's own model."""
    told = gpt.explain(name, text, run=run, **more)
    assert told.failed == []
    steps = [each for each in told.steps if each.title.startswith("In your own model: ")]
    assert steps == list(told.steps[-len(steps) :])
    return steps


def table(steps: list[Any], name: str) -> Table:
    tables = [each for step in steps for each in step.tables]
    (found,) = (each for each in tables if each.name == f"{name}, your model")
    return found


def close(found: Any, expected: Any, bound: float = 1e-5) -> None:
    np.testing.assert_allclose(found, expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("name", IN_OWN_MODEL)
def test_checks_pass_for_every_kind_of_model(name: str, model: TrainedGPT) -> None:
    own(name, model)
    own(name, model, None)
    short = own(name, model, "c")
    if name == "learning":
        assert "nothing follows to learn from" in short[0].text
    if name == "induction" and model.config.n_layer == 1:
        assert "has one layer" in short[0].text


def test_another_order_changes_the_contexts_as_the_model_computes_them(model: TrainedGPT) -> None:
    moved = TEXT[:-1][::-1] + TEXT[-1]
    one, other = (
        model.activations(each, "context")["context"][0, :, :, -1] for each in (TEXT, moved)
    )
    expected = [
        np.sqrt(((a - b) ** 2).sum() / (a**2).sum()) for a, b in zip(one, other, strict=True)
    ]
    shown = table(own("positions", model), "change of contexts")
    if model.config.position == "none":
        assert shown.columns == ("without",)
        close(shown.values[:, 0], expected, 1e-4)
        assert shown.values[0, 0] < 1e-12 < shown.values[1, 0]
        return
    close(shown.values[:, 0], expected, 1e-4)
    assert shown.values[0, 1] < 1e-12 < shown.values[0, 0]


def test_positions_show_what_is_added_or_turned(model: TrainedGPT) -> None:
    steps = own("positions", model, head=1)
    config, tensors = model.config, model.reader.tensors
    if config.position == "none":
        assert len(steps) == 1
        assert "in your model, which has no positions" in steps[0].text
        return
    assert config.position in steps[-1].title
    if config.position == "rotary":
        shown = table(steps, "last query of layer 0, head 1").values
        q = model.activations(TEXT, "q")["q", 0, 1, -1][0]
        close(shown[:, 3:].ravel(), q)
        for pair, (angle, x, y, turned_x, turned_y) in enumerate(shown):
            assert angle == pytest.approx(
                (len(TEXT) - 1) * 10_000 ** (-2 * pair / config.head_size)
            )
            matrix = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
            close((turned_x, turned_y), matrix @ np.array([x, y]))
        return
    rows, lengths = (table(steps, name).values for name in ("position rows", "lengths of rows"))
    if config.position == "learned":
        close(rows, tensors["position.weight"][: len(TEXT)])
    else:
        for t, row in enumerate(rows):
            for column, value in enumerate(row):
                angle = t / 10_000 ** ((column - column % 2) / config.n_embd)
                assert value == pytest.approx(np.cos(angle) if column % 2 else np.sin(angle))
    factor = config.n_embd**0.5 if config.scaled_embedding else 1
    words = tensors["token_embedding.weight"][model.vocabulary.encode(TEXT)] * factor
    close(
        lengths, np.sqrt([[(a**2).sum(), (b**2).sum()] for a, b in zip(words, rows, strict=True)])
    )


def loss_of(model: TrainedGPT, tensors: dict[str, Any]) -> float:
    """The mean −ln p of TEXT, in float64 and numpy, with other weights."""
    ids = model.vocabulary.encode(TEXT)
    reader = Reader(model.config, {n: each.astype(np.float64) for n, each in tensors.items()})
    logits = reader.logits(reader.forward(ids[None, :-1]))[0]
    chosen = logits[np.arange(len(ids) - 1), ids[1:]]
    return float((np.log(np.exp(logits).sum(axis=1)) - chosen).mean())


def test_gradients_and_updates_are_those_of_differences_and_torchs_optimizers(
    model: TrainedGPT,
) -> None:
    first, second = own("learning", model)
    tensors = {name: each.copy().astype(np.float64) for name, each in model.reader.tensors.items()}
    assert f"−ln p: {loss_of(model, tensors):.4f}" in first.text
    whole = model.torch().double()
    optimizer = torch.optim.AdamW(
        whole.parameters(),
        lr=model.training.learning_rate,
        betas=(model.training.beta1, model.training.beta2),
        weight_decay=model.training.weight_decay,
    )
    ids = torch.tensor(model.vocabulary.encode(TEXT).astype(int))
    F.cross_entropy(whole(ids[None, :-1])[0], ids[1:]).backward()
    square = sum(float(each.grad.square().sum()) for each in whole.parameters())
    optimizer.step()
    after = {name: each.numpy() for name, each in whole.stored_parameters().items()}
    assert len(first.tables) == 5
    tried = 0
    for each in first.tables:
        name, place = each.name.removesuffix("], your model").split("[")
        if name not in tensors:  # a head's own matrix, which is packed in the stored ones
            continue
        at = tuple(map(int, place.split(",")))
        losses = []
        for h in (1e-5, -1e-5):
            moved = {n: tensor.copy() for n, tensor in tensors.items()}
            moved[name][at] += h
            losses.append(loss_of(model, moved))
        before, gradient, by_sgd, by_adamw = each.values
        assert before == tensors[name][at]
        assert gradient == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=1e-3, abs=1e-6)
        assert by_sgd == pytest.approx(before - model.training.learning_rate * gradient)
        assert by_adamw == pytest.approx(after[name][at], abs=1e-9)
        tried += 1
    assert tried
    assert f"the loss is {loss_of(model, after):.4f}" in first.notice
    assert f"is {square:.4f}." in second.text


def test_the_run_does_not_change(grown: TrainedGPT) -> None:
    def digests() -> dict[Path, str]:
        files = sorted(each for each in grown.path.rglob("*") if each.is_file())
        return {each: hashlib.sha256(each.read_bytes()).hexdigest() for each in files}

    files, weights = digests(), {n: each.copy() for n, each in grown.reader.tensors.items()}
    for name in IN_OWN_MODEL:
        own(name, grown)
    assert digests() == files
    for name, each in grown.reader.tensors.items():
        np.testing.assert_array_equal(each, weights[name])


def test_sampling_shows_the_samplers_numbers(model: TrainedGPT) -> None:
    steps = own("sampling", model, seed=5)
    logits = model.logits(TEXT)[:, -1].astype(np.float64)
    shown = table(steps, "likeliest")
    ids = [model.vocabulary.id_of(each) for each in shown.rows]
    assert ids == np.argsort(-logits[0], kind="stable")[:10].tolist()
    p = sampler.probabilities(logits, SampleConfig(temperature=1))[0, ids]
    close(shown.values, np.stack((logits[0, ids], p), axis=1))
    assert f"have {1 - p.sum():.4f} together" in steps[0].text
    for name, option in (("Top-k", "top_k"), ("Top-p", "top_p"), ("Min-p", "min_p")):
        value = {"top_k": 3, "top_p": 0.9, "min_p": 0.1}[option]
        config = SampleConfig(**{"temperature": 1, "top_k": 10, option: value})
        found = table(steps, name)
        after = found.values[:, found.columns.index("after")]
        close(after, sampler.probabilities(logits, config)[0, ids])
    draws = sampler.uniforms(5, 0)
    close(table(steps, "first u and their words").values[:, 0], [next(draws) for _ in range(5)])


def test_shares_and_lens_are_the_models(model: TrainedGPT) -> None:
    steps = own("depth", model)
    shown, lens = model.lens(TEXT), table(steps, "lens")
    logits, shares = model.logits(TEXT)[0, -1], table(steps, "shares")
    ids = [model.vocabulary.id_of(each) for each in shares.columns]
    assert ids == np.argsort(-logits, kind="stable")[:5].tolist()
    close(shares.values[-1], logits[ids], 1e-4)
    close(shares.values[:-1].sum(axis=0), logits[ids], 1e-4)
    for depth in range(model.config.n_layer + 1):  # the lens of gptx knows whole layers
        known = dict(
            zip(shown.ids[depth, -1].tolist(), shown.probabilities[depth, -1], strict=True)
        )
        for column, each in enumerate(ids):
            if each in known:
                row = (1 + model.config.feed_forward) * depth
                assert lens.values[row, column] == pytest.approx(known[each], rel=1e-4)
    added = ["proj", "ffn_out"][: 1 + model.config.feed_forward]
    stages, last = model.activations(TEXT, [*added, "resid_post"]), table(steps, "lengths")
    lengths, each = last.values, len(added)
    assert last.rows[1 : 1 + each] == ("0 attn", "0 ffn")[:each]
    close(lengths[each::each, 1], np.linalg.norm(stages["resid_post"][0, :, -1], axis=-1), 1e-4)
    if not model.config.post_norm:
        for first, stage in enumerate(added, 1):
            close(lengths[first::each, 0], np.linalg.norm(stages[stage][0, :, -1], axis=-1), 1e-4)


def test_induction_measures_and_replaces_heads_of_the_run(grown: TrainedGPT) -> None:
    steps = own("induction", grown, layer=1, head=1)
    survey = grown.heads(grown.stored.excerpt)
    values = {each.name: each.values for each in survey.measures}
    for name in ("previous", "induction_synthetic"):
        close(table(steps, name).values, values[name])
    assert "L1H1" in steps[0].notice
    before = int(values["previous"][0].argmax())
    assert f"without L0H{before}." in steps[0].notice, "an untrained head has no name"
    assert "no head gets the name induction" in steps[0].notice
    shown = table(steps, "copies")
    with_it = grown.activations(TEXT, ["weights", "logits"])
    patch = {("context", 0, before): 0}
    without = grown.activations(TEXT, ["weights", "logits"], patch=patch)
    ids, columns = grown.vocabulary.encode(TEXT), shown.values
    rows = [n for n in range(1, len(TEXT) - 1) if TEXT[n : n + 2] in TEXT[: n + 1]]
    assert shown.rows == tuple(f"{n} {TEXT[n]}" for n in rows)
    for row, n in zip(columns, rows, strict=True):
        keys = [m + 1 for m in range(n) if TEXT[m : m + 2] == TEXT[n : n + 2]]
        for first, found in ((0, with_it), (2, without)):
            logits = found["logits"][0, n].astype(np.float64)
            p = np.exp(logits[ids[n + 1]]) / np.exp(logits).sum()
            close(row[first : first + 2], (found["weights", 1, 1][0, n, keys].sum(), p))
    means = columns.mean(axis=0)
    assert f"from {means[1]:.4f} to {means[3]:.4f}." in steps[1].notice


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_k_composition_is_the_norm_of_whole_matrices(norm: str, tmp_path: Path) -> None:
    run = gpt.load(train_tiny(tmp_path, {"steps": 4}, n_layer=3, norm=norm).path.parent)
    (found,) = (
        each.values
        for step in own("induction", run, layer=2, head=0)
        for each in step.tables
        if each.name.startswith("K-composition with L2H0")
    )
    C, D, tensors = 16, 8, run.reader.in_float64().tensors

    def matrix(layer: int, part: int, head: int) -> Any:
        first = part * C + head * D
        gain = tensors.get(f"blocks.{layer}.norm1.weight", np.ones(C))
        return tensors[f"blocks.{layer}.attention.qkv.weight"][first : first + D] @ np.diag(gain)

    qk = matrix(2, 0, 0).T @ matrix(2, 1, 0)
    assert found.shape == (2, 2)
    for layer, head in np.ndindex(2, 2):
        proj = tensors[f"blocks.{layer}.attention.proj.weight"][:, head * D : head * D + D]
        ov = proj @ matrix(layer, 2, head)
        sizes = [np.sqrt(np.trace(each.T @ each)) for each in (qk @ ov, qk, ov)]
        assert found[layer, head] == pytest.approx(sizes[0] / sizes[1] / sizes[2])


def test_birth_shows_every_kept_step(grown: TrainedGPT, model: TrainedGPT) -> None:
    steps = own("induction", grown, layer=1, head=0)
    shown = table(steps, "measures by step")
    assert shown.columns == tuple(map(str, grown.steps)) == ("0", "3", "6", "9", "12")
    for column, step in enumerate(grown.steps):
        survey = grown.at(step).heads(grown.stored.excerpt)
        values = {each.name: each.values for each in survey.measures}
        before = int(shown.rows[0].removeprefix("L0H"))
        close(shown.values[0, column], values["previous"][0, before])
        close(shown.values[1, column], values["induction_synthetic"][1, 0])
    alone = gpt.load(next(grown.path.rglob("model.safetensors")))
    assert "gptx train repeats --keep-all" in own("induction", alone)[-1].text


def test_texts_that_repeat_nothing_say_so(grown: TrainedGPT) -> None:
    assert "no two characters come again" in own("induction", grown, "cat")[1].text
    assert gpt.explain("induction", run=grown).failed == []
    example = grown.example()
    assert f"“{example[:8] * 2}”" in own("induction", grown, None)[1].text
    line = own("depth", grown, "t\nc")[0].text
    assert "“t⏎c”" in line


def test_what_a_lesson_cannot_show_of_a_run_is_refused(grown: TrainedGPT) -> None:
    for name, problem, more in (
        ("simple", "^run: does not change the lesson simple", {}),
        ("depth", "^layer: does not change the lesson depth", {"layer": 1}),
        ("positions", "^head: 2 is not in 0 … 1", {"head": 2}),
        ("induction", "^layer: an induction head needs an earlier layer", {"layer": 0}),
    ):
        with pytest.raises(ConfigError, match=problem):
            gpt.explain(name, run=grown, **more)
    with pytest.raises(ConfigError, match=r"^run: expected a model that gpt\.load has opened"):
        gpt.explain("depth", run=grown.path)
    with pytest.raises(ConfigError, match=r"^layer: does not change the lesson positions"):
        gpt.explain("positions", layer=0)
    for text, problem in (("zebra", "'z'"), ("cat" * 6, "give at most 16")):
        with pytest.raises(TextError, match=problem):
            gpt.explain("depth", text, run=grown)


def test_without_a_run_a_line_at_the_end_says_how(gptx: Gptx) -> None:
    for name in ("simple", *IN_OWN_MODEL):
        last = gptx("explain", name).out.splitlines()[-1]
        line = f"in your own model: gptx explain {name} --run NAME"
        assert (last == line) == (name in IN_OWN_MODEL)
        told: Lesson = make_lesson(name)
        assert not any("your own model" in step.title for step in told.steps)


@pytest.mark.parametrize("name", IN_OWN_MODEL)
def test_the_command_continues_in_a_run(gptx: Gptx, home: Path, name: str) -> None:
    run = next((home / "checkpoints").glob("corpus-*")).name
    given = ("explain", name, "--run", run, "--text", TEXT)
    answer = gptx(*given)
    assert (answer.code, answer.err) == (0, "")
    assert "In your own model: " in answer.out
    assert "--run NAME" not in answer.out
    record = json.loads(gptx(*given, "--json").out)
    told = gpt.explain(name, TEXT, run=gpt.load(home / "checkpoints" / run))
    assert [step["title"] for step in record["steps"]] == [step.title for step in told.steps]
    assert (record["text"], record["run"]) == (TEXT, run)
    last = len(record["steps"])
    one = gptx(*given, "--step", str(last)).out
    assert record["steps"][-1]["title"] in one
    assert record["steps"][0]["title"] not in one
    assert gptx(*given, "-o", "own.md").code == 0
    assert "### 1. " in (home / "own.md").read_text(encoding="utf-8")
    piped = gptx("explain", name, "--run", run, "--text", "-", stdin=TEXT.encode())
    assert piped.out == answer.out
    assert "no TEXT given" not in gptx("explain", name, "--run", run).err


def test_options_of_a_run_without_effect_are_refused(gptx: Gptx) -> None:
    for given, problem in (
        ("positions --layer 0", "--layer: has an effect only with your own model: add --run NAME"),
        ("depth --checkpoints x", "--checkpoints: has an effect only with your own model"),
        ("sampling --run corpus-1 --head 0", "--head: does not change the lesson sampling"),
        ("positions --run corpus-1 --layer 2", "--layer: 2 is not in 0 … 1"),
        ("depth --run nothing", "nothing"),
    ):
        answer = gptx("explain", *given.split())
        assert answer.code in (2, 4)
        assert answer.out == ""
        assert problem in answer.err


def test_a_terminal_shows_the_end_after_the_last_step(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = gptx("explain", "depth").out
    monkeypatch.setattr("gpt.commands.explain.at_terminal", lambda: True)
    for keys, shown in ((" " * 9, whole), ("a", whole)):
        typed = iter(keys)
        monkeypatch.setattr("gpt.commands.explain.getchar", lambda typed=typed: next(typed))
        assert gptx("explain", "depth").out == shown
