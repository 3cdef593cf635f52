"""The exercise `attention`: right code passes, slips are named, hostile files harm nothing."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from solved import CODE, UNFILLED, changed, filled

import gpt
from gpt.config import ModelConfig, SampleConfig
from gpt.lessons.exercises import child
from gpt.lessons.exercises.checking import Trial, function_of, load_file, stages
from gpt.lessons.exercises.report import STAGES, Stage, check, read_stages
from gpt.model.gpt import GPT
from gpt.reading import sampler

TABLE = Path(gpt.__file__).parent / "lessons/exercises/attention.toml"
GAPS = {each["place"]: each for each in tomllib.loads(TABLE.read_text("utf-8"))["gap"]}
TEXT = "Árvíztűrő tükörfúrógép, mondta a nyúl.\n" * 40


def judged(place: str, source: str) -> Stage:
    return Trial(load_file(source), GAPS[place], list(GAPS.values())).stage()


def test_right_code_passes_all_stages() -> None:
    found = list(stages(load_file(filled())))
    assert [(each.name, each.status) for each in found] == [(name, "passed") for name in STAGES]
    names = {check.name for each in found for check in each.checks}
    assert len(names) == 5  # values, values in training, change, gradient of a later one, gradients
    assert all(check.passed for each in found for check in each.checks)


def test_unfilled_file_has_only_gaps_that_are_not_yet_written() -> None:
    found = list(stages(load_file(UNFILLED)))
    assert [each.name for each in found] == list(STAGES)
    assert {each.status for each in found} == {"missing"}
    assert found[0].message == "not yet written: Head.scores"
    assert len(UNFILLED.splitlines()) <= 135


@pytest.mark.parametrize("gap", ["...", "return None", "return ...", "raise NotImplementedError"])
def test_any_form_of_a_gap_is_not_yet_written(gap: str) -> None:
    found = judged("Head.forward", filled(**{"Head.forward": f"        {gap}"}))
    assert (found.status, found.message) == ("missing", "not yet written: Head.forward")


def test_right_file_is_the_model_of_gptx() -> None:
    torch.manual_seed(3)
    file = load_file(filled())
    own = file.GPT(11, 8, 2, 3, 12, 0.0)
    config = ModelConfig(
        vocab_size=11,
        block_size=8,
        n_layer=2,
        n_head=3,
        n_embd=12,
        bias=True,
        position="learned",
        norm="layer",
        activation="relu",
        attention="heads",
    )
    model, state = GPT(config), own.state_dict()
    state["position.weight"] = state.pop("position_embedding.weight")
    model.load_state_dict({n: each for n, each in state.items() if not n.endswith("tril")})
    ids = torch.randint(11, (2, 8))
    torch.testing.assert_close(own(ids), model(ids))


@pytest.mark.parametrize(("temperature", "top_k"), [(0.5, None), (0.9, 3), (2, 11)])
def test_right_probabilities_are_those_of_the_sampler(temperature: float, top_k: int) -> None:
    gap, logits = GAPS["probabilities"], torch.randn(3, 11).double()
    found = function_of(gap, gap["right"], None)(logits, temperature, top_k)
    config = SampleConfig(temperature=temperature, top_k=top_k)
    expected = sampler.probabilities(logits.numpy(), config)
    torch.testing.assert_close(found, torch.from_numpy(expected))


SLIPS = [
    ("Head.scores", " * queries.shape[-1] ** -0.5", "", "forgot /√D"),
    ("Head.scores", "queries.shape[-1] **", "x.size(2) **", "√C, not √D"),
    ("Head.scores", "** -0.5", "** -1", "D, not √D"),
    ("Head.scores", "** -0.5", "** 0.5", "√D multiplies"),
    ("Head.scores", ".transpose(-2, -1)", "", "forgot the transpose"),
    (
        "Head.scores",
        "self.query(x), self.key(x)",
        "self.key(x), self.query(x)",
        "queries and keys exchanged",
    ),
    (
        "Head.weights",
        "F.softmax(hidden, dim=-1)",
        "F.softmax(hidden, dim=1)",
        "softmax over the wrong axis",
    ),
    ("Head.weights", "F.softmax(hidden, dim=-1)", "F.softmax(scores, dim=-1)", "no mask"),
    (
        "Head.weights",
        "F.softmax(hidden, dim=-1)",
        "scores.softmax(-1).masked_fill(hidden.isinf(), 0)",
        "masked after softmax",
    ),
    ("Head.weights", 'float("-inf")', "0.0", "masked with 0, not −∞"),
    ("Head.weights", "== 0", "== 1", "the mask hides the past and shows the future"),
    (
        "Head.weights",
        "self.tril[:T, :T]",
        "self.tril[:T, :T].tril(-1)",
        "the mask hides the diagonal",
    ),
    (
        "Head.weights",
        "self.tril[:T, :T]",
        "torch.ones(T, T).tril(1)",
        "the mask shows the next key",
    ),
    (
        "Head.forward",
        "self.dropout(self.weights(self.scores(x)))",
        "self.weights(self.scores(x))",
        "no dropout on the weights",
    ),
    ("Head.forward", "weights @ self.value(x)", "weights @ x", "weights of x, not of the values"),
    (
        "Head.forward",
        "self.dropout(self",
        "nn.Dropout(self.dropout.p)(self",
        "dropout active in eval",
    ),
    ("Head.forward", "self.scores(x)", "self.dropout(self.scores(x))", ""),
    ("MultiHeadAttention.forward", "        out = self.proj(out)\n", "", "no projection"),
    (
        "MultiHeadAttention.forward",
        "torch.cat([head(x) for head in self.heads], dim=-1)",
        "torch.stack([head(x) for head in self.heads], 1).view(x.shape)",
        "heads mixed by a view of (B, H, T, D)",
    ),
    (
        "MultiHeadAttention.forward",
        "torch.cat([head(x) for head in self.heads], dim=-1)",
        "torch.stack([head(x) for head in self.heads], 0).view(x.shape)",
        "heads mixed by a view of (H, B, T, D)",
    ),
    (
        "MultiHeadAttention.forward",
        "self.dropout(out)",
        "F.dropout(out, self.dropout.p)",
        "dropout active in eval",
    ),
    ("MultiHeadAttention.forward", "self.proj(out)", "self.proj(self.dropout(out))", ""),
    ("FeedForward.forward", "F.relu(self.up(x))", "self.up(x)", "no ReLU"),
    ("FeedForward.forward", "self.dropout(self.down(wide))", "self.down(wide)", "no dropout"),
    (
        "Block.forward",
        "x = x + self.attention",
        "x = self.attention",
        "no residual around attention",
    ),
    (
        "Block.forward",
        "x = x + self.feed_forward",
        "x = self.feed_forward",
        "no residual around feed-forward",
    ),
    ("Block.forward", "self.norm2(x)", "self.norm1(x)", "one norm for both"),
    ("GPT.embed", "tokens + positions", "tokens", "positions not added"),
    ("GPT.embed", "tokens + positions", "tokens * positions", "positions multiply"),
    (
        "GPT.embed",
        "torch.arange(ids.shape[1])",
        "torch.arange(ids.shape[1]) + 1",
        "positions counted from 1",
    ),
    ("loss", "logits[:, :-1], ids[:, 1:]", "logits, ids", "targets not shifted"),
    ("loss", "logits[:, :-1], ids[:, 1:]", "logits[:, 1:], ids[:, :-1]", "shifted the wrong way"),
    ("loss", "before.reshape", "before.transpose(1, 2).reshape", "flattened wrongly"),
    ("loss", "after.reshape(-1))", "after.reshape(-1), reduction='sum')", "a sum, not a mean"),
    ("probabilities", "logits / temperature", "logits * temperature", "temperature multiplies"),
    ("probabilities", "logits < least", "logits >= least", "top_k removes the largest"),
    ("probabilities", "logits.topk(top_k).values", "logits.sort().values[:, :top_k]", ""),
    (
        "probabilities",
        "logits.topk(top_k).values",
        "logits.topk(top_k - 1).values",
        "top_k keeps one too few",
    ),
    ("probabilities", "logits < least", "logits <= least", "top_k keeps one too few"),
    (
        "probabilities",
        "logits < least",
        "logits > least",
        "top_k removes what is larger than the k-th",
    ),
    (
        "draw",
        "torch.multinomial(chances, 1)",
        "chances.max(-1, keepdim=True).indices",
        "argmax, not a draw",
    ),
]


@pytest.mark.parametrize(("place", "old", "new", "slip"), SLIPS)
def test_slip_is_named(place: str, old: str, new: str, slip: str) -> None:
    found = judged(place, changed(place, old, new))
    assert (found.status, found.slip) == ("failed", slip)
    assert found.message.startswith(f"{place}: ")
    assert not all(check.passed for check in found.checks)


IMPORTS = """
from math import inf
from gpt.lessons.ladder import causal
"""


@pytest.mark.parametrize("place", sorted(GAPS.keys() & CODE.keys()))
def test_every_slip_of_the_table_is_told_from_the_others(place: str) -> None:
    indent = " " * (8 if "." in place else 4)
    for slip, advice, code in [*GAPS[place]["slips"], ["", "", GAPS[place]["right"]]]:
        found = judged(place, filled(**{place: f"{indent}return {code}"}) + IMPORTS)
        assert (found.slip, found.message) == (slip, f"{place}: {advice}" if slip else "")


@pytest.mark.parametrize(
    ("place", "old", "new"),
    [
        ("Head.weights", 'float("-inf")', "-1e9"),
        ("Head.forward", "self.dropout(self", "(lambda w: F.dropout(w, 0.25, self.training))(self"),
        (
            "draw",
            "torch.multinomial(chances, 1)",
            "(chances.cumsum(-1) < torch.rand(len(chances), 1)).sum(-1, keepdim=True)",
        ),
        (
            "draw",
            "torch.multinomial(chances, 1)",
            "torch.distributions.Categorical(chances).sample()[:, None]",
        ),
        (
            "loss",
            "F.cross_entropy(before.reshape(-1, V), after.reshape(-1))",
            "-before.log_softmax(-1).gather(2, after[..., None]).mean()",
        ),
    ],
)
def test_right_code_of_another_form_passes(place: str, old: str, new: str) -> None:
    assert judged(place, changed(place, old, new)).status == "passed"


@pytest.mark.parametrize(
    ("place", "old", "new", "message"),
    [
        (
            "Block.forward",
            "return x",
            "return x[:, :2]",
            "expected the shape (2, 4, 12), found torch.Size([2, 2, 12])",
        ),
        ("draw", "return ", "return [0] or ", "expected the shape (20000, 1), found list"),
        ("draw", "chances, 1", "chances ** 2, 1", "the ids are not drawn with their probabilities"),
        (
            "FeedForward.forward",
            "self.up(x)",
            "self.up(x.detach())",
            "right values, wrong gradients",
        ),
        (
            "GPT.embed",
            "self.dropout(tokens + positions)",
            "self.dropout(tokens) + positions",
            "first difference at [0, 0, 0] in training",
        ),
        ("loss", "logits.shape[-1]", "logits.shape[9]", "line 121: IndexError: "),
    ],
)
def test_other_errors_are_shown_where_they_are(
    place: str, old: str, new: str, message: str
) -> None:
    found = judged(place, changed(place, old, new))
    assert (found.status, found.slip) == ("failed", "")
    assert found.message.startswith(f"{place}: {message}")


def test_code_without_gradients_is_wrong() -> None:
    source = changed("Block.forward", "x = x + self.attention(", "x += self.attention(")
    (found,) = (each for each in stages(load_file(source)) if each.name == "block")
    assert found.status == "failed"
    assert "modified by an inplace operation" in found.message


def test_first_difference_has_both_numbers() -> None:
    code = "        return self.query(x) @ self.key(x).mT / 2 + torch.eye(x.shape[1])[::1].flip(0)"
    found = judged("Head.scores", filled(**{"Head.scores": code}))
    place, numbers = found.message.split(": ")[1:]
    assert place == "first difference at [0, 0, 3]"
    wrong, right = map(float, numbers.split(", expected "))
    assert wrong - right == pytest.approx(1, abs=2e-4)


def test_a_mask_that_shows_the_future_leaks() -> None:
    found = judged("Head.weights", changed("Head.weights", "hidden, dim", "scores, dim"))
    leaks = [each.name for each in found.checks if "later" in each.name and not each.passed]
    assert leaks == ["change by a later character", "gradient of a later character"]


def test_a_slip_is_found_in_its_stage_alone() -> None:
    source = changed("Head.weights", "== 0", "== 1").replace("* queries.shape[-1] ** -0.5", "")
    found = {each.name: (each.status, each.slip) for each in stages(load_file(source))}
    assert found["head"] == ("failed", "forgot /√D")
    assert found["mask"] == ("failed", "the mask hides the past and shows the future")
    assert {found[name] for name in STAGES[2:]} == {("passed", "")}


def lines_of(found: list[Stage]) -> bytes:
    return b"".join(json.dumps(asdict(each)).encode() + b"\n" for each in found)


def test_training_learns_writes_and_shows_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "STEPS", 30)
    found = list(child.run_job(filled(), TEXT, 1))
    assert [each.name for each in found] == [*STAGES, "training"]
    assert lines_of(read_stages(lines_of(found), [*STAGES, "training"], "")) == lines_of(found)
    made = found[-1].trained
    assert made is not None
    assert made.losses[1] < made.losses[0] - 0.5
    assert made.validation[1] < made.validation[0] - 0.5
    assert made.validation[0] == pytest.approx(torch.tensor(len(set(TEXT))).log().item(), abs=1)
    assert len(made.sample) == child.WRITTEN + 1
    assert set(made.sample) <= set(TEXT)
    assert made.line in TEXT
    weights = torch.tensor(made.weights)
    assert weights.shape == (2, 4, len(made.line), len(made.line))
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
    assert float(weights.triu(1).max()) == 0
    assert child.train_file(load_file(filled()), TEXT, 1) == found[-1]
    assert child.train_file(load_file(filled()), TEXT, 2) != found[-1]


def test_only_a_right_file_trains() -> None:
    found = list(child.run_job(changed("draw", "chances, 1", "chances ** 2, 1"), TEXT, 1))
    assert [each.status for each in found[-2:]] == ["failed", "missing"]
    assert found[-1].message == "trains once all are right"


def test_a_loss_that_does_not_fall_is_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "STEPS", 20)
    monkeypatch.setattr(child, "RATE", 0.0)
    (found,) = (each for each in child.run_job(filled(), TEXT, 1) if each.name == "training")
    assert (found.status, found.trained) == ("failed", None)
    assert "does not fall" in found.message


def test_the_last_tenth_of_the_text_is_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "STEPS", 20)
    found = child.train_file(load_file(filled()), "ab" * 450 + "cd" * 50, 1)
    assert found.status == "failed"
    assert "the loss does not fall" in found.message


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("x = 1 / 0", "line 2: ZeroDivisionError: division by zero"),
        ("raise SystemExit(0)", "line 2: SystemExit: 0"),
        ("def f(:", "line 2: SyntaxError: "),
        ("raise KeyboardInterrupt", "line 2: KeyboardInterrupt: "),
        ("raise ValueError('a\\nb')", "line 2: ValueError: a"),
    ],
)
def test_an_error_at_the_import_is_one_line(code: str, problem: str) -> None:
    first, *others = child.run_job(f"import os\n{code}\n", None, 1)
    assert (first.name, first.status) == ("head", "failed")
    assert first.message.startswith(problem)
    assert "\n" not in first.message
    assert {(each.status, each.message) for each in others} == {("missing", "not checked")}
    assert [each.name for each in (first, *others)] == list(STAGES)


def test_a_file_without_classes_fails_in_every_stage() -> None:
    found = list(child.run_job("loss = 3", None, 1))
    assert {each.status for each in found} == {"failed"}
    assert "has no attribute 'GPT'" in found[0].message


GOOD = Stage("head", "passed", "", "")


@pytest.mark.parametrize(
    "lines",
    [
        b"\xff\xfe",
        b"{}",
        b"[" * 100_000,
        b"[]\n",
        b'{"name": "head", "status": "right"}',
        b'{"name": "mask", "status": "passed"}',
        b'{"name": "head", "status": "passed", "checks": [{"name": "", "error": NaN, "bound": 1}]}',
        b'{"name": "head", "status": "passed", "more": 1}',
        b'{"name": "head", "status": "passed", "message": 1}',
        lines_of([GOOD]) * 2,
        lines_of([GOOD]) + b'{"name": "ma',
        lines_of([Stage(name, "passed") for name in (*STAGES, "training")]),
    ],
)
def test_forged_results_fail(lines: bytes) -> None:
    found = read_stages(lines, list(STAGES), "the end")
    assert [each.name for each in found] == list(STAGES)
    assert found[0].message == "the file has written into the results of its check"
    assert [each.status for each in found] == ["failed", *["missing"] * 6]


@pytest.mark.parametrize(
    "weights", ["[]", "[[[[1]]]]", "[[[[1, 0], [1]]]]", "[[[[1, 0], [0, 1]], []]]"]
)
def test_forged_weights_of_other_shapes_fail(weights: str) -> None:
    numbers = '"losses": [1, 1], "validation": [1, 1], "sample": "", "line": "ab"'
    line = f'{{"name": "head", "status": "passed", "trained": {{{numbers}, "weights": {weights}}}}}'
    assert read_stages(line.encode(), list(STAGES), "the end")[0].status == "failed"
    whole = line.replace(weights, "[[[[1, 0], [0, 1]]]]")
    assert read_stages(whole.encode(), list(STAGES), "the end")[0].status == "passed"


def test_a_process_that_ends_early_fails_in_the_stage_it_was_in() -> None:
    found = read_stages(lines_of([GOOD]), list(STAGES), "the end")
    assert found[:2] == [GOOD, Stage("mask", "failed", "", "the end")]
    assert [each.status for each in found[2:]] == ["missing"] * 5


def test_a_file_is_checked_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "torch.py").write_text("raise ImportError('not the real one')", encoding="utf-8")
    forged = "print({'name': 'head', 'status': 'failed'}, flush=True)"
    source = (
        filled() + f"import sys\nfor _ in range(1000): {forged}; sys.stderr.write('x' * 1000)\n"
    )
    found = check(source, 120)
    assert [each.status for each in found] == ["passed"] * 7
    assert capfd.readouterr() == ("", "")


def in_loss(code: str) -> str:
    return filled(loss=f"    {code}")


@pytest.mark.parametrize(
    ("source", "seconds", "stage", "problem"),
    [
        (
            "while True: pass",
            1,
            "head",
            "no end after 1 s: an endless loop? --time-limit gives more",
        ),
        (
            in_loss("import os; os._exit(0)"),
            120,
            "loss",
            "the file ended the process, with the code 0",
        ),
        (in_loss("x = torch.ones(10**11)"), 120, "loss", "loss: line 121: RuntimeError: "),
    ],
)
def test_a_hostile_file_is_reported_in_one_line(
    source: str, seconds: int, stage: str, problem: str
) -> None:
    found = check(source, seconds)
    assert [each.name for each in found] == list(STAGES)
    (failed,) = (each for each in found if each.status == "failed")
    assert failed.name == stage
    assert failed.message.startswith(problem)
    assert "\n" not in failed.message
