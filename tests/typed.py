"""Right and wrong uses of the public interface, for mypy: it fails if it accepts a wrong one.

mypy reports an ignored error that does not occur. Nothing here is run.
"""

from __future__ import annotations

from typing import Any, assert_type

import gpt
from gpt.reading.score import Evaluation
from gpt.storage.overview import Overview, Runs


def generate(run: gpt.TrainedGPT) -> None:
    assert_type(run.sample("a", length=3, temperature=0.5, top_k=None, seed=2), Any)
    assert_type(run.sample("a", n=3, stop=["."]), Any)
    run.next("a", temperature=1.0, min_p=0.1)
    run.sample("a", lenght=3)  # type: ignore[call-arg]
    run.sample("a", length="3")  # type: ignore[arg-type]
    run.sample("a", only="gtp")  # type: ignore[arg-type]
    run.next("a", length=3)  # type: ignore[call-arg]
    assert_type(run.eval("a text", chars=True), Evaluation)
    run.eval(chars=True)
    run.eval("a text", cahrs=True)  # type: ignore[call-arg]


def train() -> None:
    assert_type(gpt.train("a.txt", minutes=2, preset="best", activation="gelu"), gpt.TrainedGPT)
    gpt.train(["a.txt", "b.txt"], steps=20, progress=False)
    run = gpt.train(text="a text")
    gpt.resume(run, steps=40, device="cpu")
    gpt.train("b.txt", init_from=run, tied=True)
    gpt.train("b.txt", init_from="a-1")
    gpt.train("b.txt", init_from=3)  # type: ignore[arg-type]
    gpt.train("a.txt", minuts=2)  # type: ignore[call-arg]
    gpt.train("a.txt", preset="fast")  # type: ignore[arg-type]
    gpt.train("a.txt", n_layer="2")  # type: ignore[arg-type]
    gpt.resume(run, n_layer=2)  # type: ignore[call-arg]


def load() -> None:
    run = gpt.load("checkpoints", step="best", device="cpu")
    assert_type(run.steps, list[int])
    assert_type(run.at(run.steps[0]), gpt.TrainedGPT)
    assert_type(run.training, gpt.TrainConfig)
    assert_type(gpt.runs(), Runs)
    assert_type(gpt.runs()["name"], Overview)
    assert_type(gpt.load(gpt.runs()[-1].path, step=20), gpt.TrainedGPT)
    gpt.load("checkpoints", steps=3)  # type: ignore[call-arg]


def point(run: gpt.TrainedGPT) -> None:
    seen, acts = run.attn("a b"), run.activations("a b", ["q", "resid_mid"])
    assert_type(seen["weights", 0, 1, -1].ndim, int)
    assert_type(acts["resid_mid", 0, None, 2].ndim, int)
    run.logits("a b", patch={("context", 0, 1): 0} | {("q", 0): acts["q", 0]})
    seen["weight", 0]  # type: ignore[index]
    assert_type(acts["q", 0, 1, 2].ndim, int)
    assert_type(run.weights["W_Q", 0, 1].ndim, int)
    acts["residual"]  # type: ignore[index]
    run.activations("a b", ["q", "residual"])  # type: ignore[list-item]
    seen.save("a.csv", stage="resid_post")  # type: ignore[arg-type]
