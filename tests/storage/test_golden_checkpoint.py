"""Schema 1 is frozen: what 1.0 wrote opens, computes the same and continues in every 1.x.

golden/1.0 has the runs, and is never written again. If a test fails after a change of the format,
keep the files and the tests, and change the format so that both pass:

- a new field of a manifest, a model or a training: its default means what 1.0 did without it;
- a new tensor: only models whose config asks for it have it;
- another name or meaning: the reader translates the old one;
- where none of this is possible: SCHEMA becomes 2, and gptx 2.0. Until then the change has to wait.

A release that adds to the format adds runs that have what is new, in golden/1.N:

    PYTHONPATH=tests:. python tests/storage/test_golden_checkpoint.py 1.N
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from conftest import TEXT
from program import Gptx, answer_of, at_home

from gpt.config.schedule import Budget
from gpt.interface.trained import TrainedGPT
from gpt.storage.manifest import Parent, TrainedText
from gpt.storage.model_file import read_header
from gpt.storage.run import MANIFEST, MODEL, STATE, Checkpoint, Run, step_folder

GOLDEN = Path(__file__).parent / "golden"
OF_1_0 = GOLDEN / "1.0"
STEP = step_folder(6)
DIGEST = (
    "0443e71d0d8ab4ce76e99d4eb8eef9b3b3814d868f93168e8952a9e979533021"  # of all files of OF_1_0
)
HELP = f"a frozen format has changed: {Path(__file__).name} begins with what to do"

#: How the run "cats" was trained: Muon, averaged weights, counting, a folded character.
TRAINED = (
    "cats.txt --block-size 16 --counting 3 --average 0.5 --min-count 60 "
    "--n-layer 1 --n-head 2 --n-embd 8 --batch-size 4 --steps 12 --warmup-steps 2 "
    "--eval-interval 6 --keep-all --precision float32 --device cpu"
).split()
#: A run with a time budget that started from another's weights: its last manifest is stored.
CHILD = "cats.txt --init-from cats --minutes 0.03 --evaluations 2 --device cpu".split()

#: What the model writes with counting, and the GPT alone.
WRITTEN = ["no rat on the cat, no mat on the ", "no taec oan\nrsh"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with the stored run, stopped after step 6, and its text."""
    return Path(shutil.copytree(OF_1_0, tmp_path / "home"))


def evaluations(run: Run) -> dict[int, tuple[float, float | None]]:
    """Step -> validation loss, and that of the GPT alone."""
    records = run.records("metrics")
    return {each["step"]: (each["val_loss"], each.get("gpt_loss")) for each in records}


def names(value: object, place: str = "") -> set[str]:
    """The names of all values in a JSON object: {"train", "train.steps", …}."""
    if not isinstance(value, dict):
        return set()
    inner = (names(each, f"{place}{key}.") for key, each in value.items())
    return {f"{place}{key}" for key in value}.union(*inner)


def layout(step: Path) -> tuple[set[str], dict[str, Any]]:
    """The names of everything in the three files of a step; the types and shapes of tensors."""
    found, tensors = names(json.loads((step / MANIFEST).read_bytes())), dict[str, Any]()
    for name in (MODEL, STATE):
        header = read_header((step / name).read_bytes(), step)
        found |= names(json.loads(header.pop("__metadata__")["gptx"]), f"{name}: ")
        tensors |= {f"{name}: {key}": (it["dtype"], it["shape"]) for key, it in header.items()}
    return found, tensors


def test_the_stored_runs_are_those_that_1_0_wrote() -> None:
    whole = blake3()
    for path in sorted(OF_1_0.rglob("*.*")):
        if path.is_file():
            whole.update(path.relative_to(OF_1_0).as_posix().encode() + path.read_bytes())
    assert whole.hexdigest() == DIGEST, HELP


def test_a_run_of_1_0_opens_computes_the_same_and_writes_the_same(home: Path, gptx: Gptx) -> None:
    verified = gptx("runs", "cats", "--verify")
    assert verified.code == 0, verified.err + HELP
    run = Run(home / "checkpoints" / "cats")
    write = partial(TrainedGPT(run.model()).sample, "no ", seed=7)
    assert [write(length=30), write(length=12, only="gpt")] == WRITTEN, HELP
    answer = gptx("eval", "--run", "cats", "--json")
    assert answer.code == 0, answer.err + HELP
    found = json.loads(answer.out)
    losses = (found["nats"], found.get("gpt_nats"))
    assert losses == pytest.approx(evaluations(run)[6], abs=1e-5), HELP


def test_a_run_of_1_0_continues_as_in_1_0(home: Path, gptx: Gptx) -> None:
    run = Run(home / "checkpoints" / "cats")
    before = evaluations(run)
    assert (run.steps(), [*before]) == ([6], [6, 12])
    answer = gptx("train", "--resume", "--run", "cats", "--device", "cpu")
    assert answer.code == 0, answer.err + HELP
    assert run.steps() == [6, 12]
    for step, losses in evaluations(run).items():
        assert losses == pytest.approx(before[step], abs=1e-3), HELP


def test_the_config_of_a_run_of_1_0_repeats_it(home: Path, gptx: Gptx) -> None:
    config = str(home / "checkpoints" / "cats" / "config.toml")
    answer = gptx("train", "--config", config, "--run", "again", "--steps", "6")
    assert answer.code == 0, answer.err + HELP
    (again, first) = (Run(home / "checkpoints" / each).at(6) for each in ("again", "cats"))
    assert again.manifest.model == first.manifest.model, HELP


def test_a_manifest_of_1_0_names_its_parent_and_its_time_budget() -> None:
    (path,) = (OF_1_0 / "checkpoints" / "child").glob("step-*")
    manifest = Checkpoint.open(path).manifest
    text = TrainedText("cats", manifest.corpus.digest, 2880, "last", 0.1)
    parent = Parent("cats", 6, Run(OF_1_0 / "checkpoints" / "cats").model().digest, "!", (text,))
    assert manifest.parent == parent, HELP
    assert isinstance(manifest.budget, Budget)
    assert manifest.budget.seconds == pytest.approx(1.8)
    assert manifest.baseline is not None
    assert manifest.baseline.order == 8


def test_a_new_run_has_every_name_and_tensor_of_the_stored_one(home: Path, gptx: Gptx) -> None:
    answer = gptx("train", *TRAINED, "--run", "new")
    assert answer.code == 0, answer.err
    stored, stored_tensors = layout(home / "checkpoints" / "cats" / STEP)
    new, tensors = layout(home / "checkpoints" / "new" / STEP)
    assert not stored - new, HELP
    assert tensors == stored_tensors, HELP


def write(name: str) -> None:
    """Trains the runs and stores them in golden/NAME."""
    target = GOLDEN / name
    if target.exists():
        sys.exit(f"{target} exists; it is never written again")
    with tempfile.TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patch:
        folder = Path(made)
        (folder / "cats.txt").write_text(TEXT, encoding="utf-8")
        at_home(folder, patch)
        for run, options in (("cats", TRAINED), ("child", CHILD)):
            answer = answer_of(patch, ("train", *options, "--run", run))
            assert answer.code == 0, answer.err
        runs = folder / "checkpoints"
        for path in [*runs.glob("cats/step-*")]:
            if path.name != STEP:
                shutil.rmtree(path)
        child = Run(runs / "child").last().path
        manifest = (child / MANIFEST).read_bytes()
        shutil.rmtree(child.parent)
        child.mkdir(parents=True)
        (child / MANIFEST).write_bytes(manifest)
        shutil.copytree(folder, target, ignore=shutil.ignore_patterns("data", ".lock"))


if __name__ == "__main__":
    write(*sys.argv[1:])
