"""A checkpoint opens only if its probe passes; its texts, maps and scores are repeatable."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from conftest import TEXT

from gpt.config import SampleConfig
from gpt.errors import CheckpointError, ConfigError, TextError
from gpt.interface.trained import TrainedGPT
from gpt.storage.checkpoint_files import StoredModel
from gpt.storage.run import Checkpoint


@pytest.fixture(scope="module")
def stored(tiny: Checkpoint) -> StoredModel:
    return tiny.model()


@pytest.fixture(scope="module")
def trained(stored: StoredModel) -> TrainedGPT:
    return TrainedGPT(stored)


@pytest.mark.parametrize("value", [1.0, float("nan")])
@pytest.mark.parametrize(
    "name",
    ["token_embedding.weight", "blocks.1.attention.qkv.weight", "blocks.0.feed_forward.up.weight"],
)
def test_model_with_other_logits_does_not_open(
    stored: StoredModel, name: str, value: float
) -> None:
    tensors = {**stored.tensors, name: stored.tensors[name].copy()}
    tensors[name][stored.probe.ids[0, 0] % len(tensors[name]), 0] += value
    with pytest.raises(
        CheckpointError, match=r"damaged: .*model\.safetensors computes other logits"
    ):
        TrainedGPT(replace(stored, tensors=tensors)).check_probe()


def test_generate_equals_the_joined_stream(trained: TrainedGPT) -> None:
    config = SampleConfig(length=20, n=3, seed=5)
    steps = list(trained.stream("no ", config))
    samples = ["".join(gained) for gained in zip(*steps, strict=True)]
    assert [len(sample) for sample in samples] == [20] * 3
    several = trained.sample("no ", length=20, n=3, seed=5)
    assert several == ["no " + sample for sample in samples]
    assert len(set(several)) == 3
    assert trained.sample("no ", length=20, n=1, seed=5) == several[0]
    with pytest.raises(ConfigError, match=r"^n: "):
        trained.sample("no ", n=0)


def test_unknown_characters_are_named_in_an_error_or_skipped(trained: TrainedGPT) -> None:
    for method in (trained.sample, trained.heads):
        with pytest.raises(TextError, match=r"'é' \(U\+00E9 .*position 4.*pass `unknown='skip'`"):
            method("the é cat sat")
    trained.heads("the cat é sat on", unknown="skip")
    continued = trained.sample("the é", unknown="skip", length=30, seed=1)
    assert continued[-30:] == trained.sample("the ", length=30, seed=1)[-30:]


@pytest.mark.parametrize(
    ("excerpt", "example"),
    [
        ("a line cut here.\nthe rat sat on the cat.\nno", "the rat sat"),
        ("x\nno rat\nthe cat is here\nx", "the cat is"),
        ("short", "short"),
        ("\n\n\n", "\n\n\n"),
    ],
)
def test_example_text_is_the_first_suitable_line_cut_between_words(
    stored: StoredModel, excerpt: str, example: str
) -> None:
    assert replace(stored, excerpt=excerpt).example_text() == example


def test_threads_that_share_a_model_write_the_same_as_one(trained: TrainedGPT) -> None:
    def answers(number: int) -> tuple[Any, ...]:
        text = TEXT[number : number + 12]
        weights = trained.attn(text)["weights", 1, 0]
        score = trained.eval(TEXT)
        return trained.sample(text, length=40, seed=number), weights.tolist(), score

    expected = [answers(number) for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(answers, range(12))) == expected


def arrays_of(result: object) -> Iterator[np.ndarray]:  # type: ignore[type-arg]
    """Every array in a result, in nested results, and in their collections."""
    if isinstance(result, np.ndarray):
        yield result
    elif isinstance(result, Mapping):
        yield from (array for value in result.values() for array in arrays_of(value))
    elif isinstance(result, tuple | list):
        yield from (array for value in result for array in arrays_of(value))
    elif is_dataclass(result):
        yield from arrays_of(vars(result))


def test_result_arrays_are_read_only(trained: TrainedGPT, stored: StoredModel) -> None:
    seen = trained.attn("the cat sat")
    results = {
        "attention": seen,
        "stage": [seen["weights", 0, 1], seen["scores", 1]],
        "following": trained.next("the"),
        "surprisals": trained.eval("the cat sat on the mat", chars=True).surprisals,
        "heads": trained.heads(windows=1),
        "activations": trained.activations("the cat"),
        "logits": trained.logits("the cat"),
        "reader": trained.reader.tensors,
        "stored": [stored.tensors, stored.probe],
    }
    for name, result in results.items():
        arrays = list(arrays_of(result))
        assert arrays, name
        assert not any(array.flags.writeable for array in arrays), name


def test_a_model_and_its_results_can_be_copied_and_pickled(trained: TrainedGPT) -> None:
    next(trained.stream("the", SampleConfig(length=9, seed=1)))
    results = [trained.attn("the cat sat"), trained.activations("the cat")]
    for way in (copy.deepcopy, lambda result: pickle.loads(pickle.dumps(result))):
        other = way(trained)
        text = trained.sample("the cat", length=20, seed=1)
        assert other.sample("the cat", length=20, seed=1) == text
        assert other.stored.digest == trained.stored.digest
        for result in results:
            assert not any(array.flags.writeable for array in arrays_of(way(result)))


WRONG_IDS: list[tuple[Any, type[Exception]]] = [
    (np.array([-1, 0, 1]), ValueError),
    (np.array([0, 1, 2**64 - 1], np.uint64), ValueError),
    (np.array([0.0, 1.5, 2.0]), TypeError),
    (np.array(["a", "b", "c"]), TypeError),
]


@pytest.mark.parametrize(("ids", "error"), WRONG_IDS)
@pytest.mark.parametrize("method", ["heads", "decode", "logits"])
def test_ids_that_the_vocabulary_lacks_are_refused(
    trained: TrainedGPT, ids: Any, error: type[Exception], method: str
) -> None:
    call = trained.vocabulary.decode if method == "decode" else getattr(trained, method)
    with pytest.raises(error, match=r"^(text|texts|ids):"):
        call(ids)


def test_methods_accept_ids_and_compare_models(trained: TrainedGPT) -> None:
    text = "the cat sat on the mat. the cat"
    ids = trained.vocabulary.encode(text)
    assert trained.heads(ids, name="it").measured_text == "1 window of 16 characters of it"
    assert trained.heads(text).text == f"a text of {len(text)} characters"
    assert "back" in trained.heads(text).to_numpy()
