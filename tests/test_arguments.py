"""Every public function and method, called with a wrong value for each argument in turn."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gpt
from gpt.storage.run import Checkpoint

WRONG = [None, object(), 10**400, -(10**400), 2**63, -1, True, 1.5, float("nan")]
WRONG += ["x", b"x", [], {}, [None], [object()]]
#: Arguments that have no default.
RIGHT: dict[str, Any] = {
    **{"text": "the cat", "texts": ["the cat"], "prompt": "the"},
    **{"ids": [0, 1], "name": "weights", "layer": 0, "head": 0},
    **{"config": gpt.SampleConfig(length=2), "settings": gpt.SampleConfig(length=2)},
    **{"length": 2, "path": "file.html", "vocab_size": 15},
}


def public_calls(run: gpt.TrainedGPT, folder: Path) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Name and function of everything that Python's users call, except what trains."""
    for name in (
        "load",
        "runs",
        "export",
        "ModelConfig",
        "TrainConfig",
        "SampleConfig",
    ):
        yield name, getattr(gpt, name)
    runs = gpt.runs(folder)
    text = "the cat sat on the mat."
    objects = [run, run.attn(text[:7]), run.activations(text[:7]), run.next("the")]
    found = run.eval(text, chars=True)
    objects += [found, found.score, found.surprisals]
    objects += [run.heads(windows=1), run.curve, run.training_curve]
    objects += [run.eval(text, against=run).paired]
    objects += [runs, runs.compare(), run.sample("the", length=2), run.stored, run.vocabulary]
    objects += [run.measures("the cat")[0], run.weights]
    for each in objects:
        for name, _ in inspect.getmembers(type(each), inspect.isfunction):
            if not name.startswith("_") and name != "torch":
                yield f"{type(each).__name__}.{name}", getattr(each, name)
    yield "SavedRun.load", runs[0].load


def test_wrong_argument_is_answered_or_named(
    tiny: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny.path.parent.parent
    run = gpt.load(tiny.path.parent)
    right = {**RIGHT, "step": run.stored.step, "model": run, "other": run, "run": run}
    monkeypatch.chdir(tmp_path)
    found, calls = list[str](), 0
    for label, function in public_calls(run, folder):
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        parameters = inspect.signature(function).parameters.values()
        taken = [each for each in parameters if each.kind in named]
        given = {each.name: right[each.name] for each in taken if each.name in right}
        for name in (each.name for each in taken):
            for value in WRONG:
                calls += 1
                try:
                    answer = function(**{**given, name: value})
                    if isinstance(answer, Iterator):
                        next(answer, None)
                except gpt.GptxError:
                    continue
                except (TypeError, ValueError, IndexError, KeyError) as error:
                    says = str(error)
                    if not any(sign in says for sign in (name.rstrip("s"), repr(value))):
                        found.append(f"{label}({name}={value!r:.20}): {error!r:.90}")
                except Exception as error:
                    found.append(f"{label}({name}={value!r:.20}): {error!r:.90}")
    assert not found, "\n".join(found)
    assert calls > 1000


def test_training_names_a_wrong_argument(tiny: Checkpoint) -> None:
    with pytest.raises(TypeError, match="corpus: expected Corpus, not int"):
        gpt.train(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="progress: expected bool, not str"):
        gpt.train("x", progress="no")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="corpus: expected names of files, not NoneType"):
        gpt.train([None])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"run: expected TrainedGPT \| PathLike, not NoneType"):
        gpt.resume(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "nearest"),
    [
        (lambda run: run.attn("the", truncat=True), "truncate"),
        (lambda run: run.heads(ablat="mean"), "ablate"),
        (lambda run: run.next("the", topk=2), "top_k"),
        (lambda run: run.sample("the", lenght=2), "length"),
        (lambda run: run.eval("the cat", agianst=run), "against"),
        (lambda run: gpt.load(run.path, stepp="best"), "step"),
        (lambda run: gpt.runs(checkpoint=run.path), "checkpoints"),
    ],
)
def test_a_wrong_keyword_names_the_nearest_one(
    tiny: Checkpoint, call: Callable[[gpt.TrainedGPT], object], nearest: str
) -> None:
    with pytest.raises(TypeError, match=rf"has no keyword .*; did you mean '{nearest}'"):
        call(gpt.load(tiny.path))


def test_completion_shows_what_a_user_calls(tiny: Checkpoint) -> None:
    run = gpt.load(tiny.path)
    assert len(dir(run)) <= 32
    assert all(hasattr(type(run), name) or name in vars(run) for name in dir(run))
