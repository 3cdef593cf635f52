"""The page's model computes what numpy's does: attention, contributions, scores and lens, also with
heads that are off, and the distribution after temperature and filters.

tests/test_parity.py compares the logits of every variant.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from javascript import JavaScript, JavaScriptError

from gpt.config import ModelConfig, SampleConfig
from gpt.heads.contributions import Part, contributions
from gpt.page.live import config_record
from gpt.reading.gpt import Array, Reader, softmax
from gpt.reading.sampler import FILTERS, draw, probabilities, start_character, window_start
from gpt.reading.score import surprisals
from gpt.vocabulary import Vocabulary

T = 21  # more than the page computes at once
ROW = 17
OPTIONS: list[dict[str, Any]] = [{}, {"bias": True, "qkv_bias": True}, {"feed_forward": False}]


def reader_of(**options: Any) -> Reader:
    """A model of random weights, whose heads differ."""
    shape: dict[str, Any] = {"vocab_size": 11, "n_layer": 3, "n_head": 3, "n_embd": 18}
    config = ModelConfig(**{**shape, "block_size": 32, **options})
    random = np.random.default_rng(3)
    tensors = {
        name: random.normal(0, 1.5 / shape[-1] ** 0.5, shape).astype(np.float32)
        for name, shape in config.shapes().items()
    }
    for name in tensors:
        tensors[name] += "norm" in name and name.endswith(".weight")
    return Reader(config, tensors)


def means_of(reader: Reader) -> Array:
    """(L, H, D), the numbers that heads which are off write."""
    config = reader.config
    shape = config.n_layer, config.n_head, config.head_size
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


def opened(script: JavaScript, reader: Reader) -> int:
    record, tensors = config_record(reader.config), dict(reader.tensors)
    number: int = script("open", record, tensors, means_of(reader))
    return number


def ids_of(reader: Reader, length: int = T) -> Any:
    return np.random.default_rng(4).integers(reader.config.vocab_size, size=length)


def asked(script: JavaScript, model: int, ids: Any, **asked: Any) -> Any:
    """The answer to a question, with everything that is asked for."""
    ask = {"ids": ids.tolist(), "off": [], "row": ROW, "id": None, "look": None, "key": None}
    return script("answer", model, {**ask, "scores": True, "lens": True, **asked})


def close(found: Any, expected: Any, share: float = 1e-4) -> bool:
    """Whether numbers differ by at most a share of the largest one."""
    found, expected = np.asarray(found), np.asarray(expected)
    apart = np.abs(found.reshape(expected.shape) - expected).max()
    return bool(apart <= share * np.abs(expected).max())


def test_a_text_that_changes_gives_the_logits_of_the_whole(script: JavaScript) -> None:
    reader = reader_of()
    ids = ids_of(reader).tolist()
    model = opened(script, reader)
    whole = script("logits", model, [ids])
    for before in ([ids[:5]], [ids[:n] for n in range(1, T)], [ids[::-1]], [[*ids[:9], 0, 1]]):
        assert np.array_equal(script("logits", model, [*before, ids]), whole)


@pytest.mark.parametrize("options", OPTIONS)
def test_answers_are_numpys(script: JavaScript, options: dict[str, Any]) -> None:
    reader = reader_of(**options)
    config, ids = reader.config, ids_of(reader)
    layers = reader.stages(ids)
    logits = reader.logits(reader.final_norm(layers[-1].resid_post))
    found = asked(script, opened(script, reader), ids, look={"layer": 1, "head": 2}, key=9)
    seen, lower = found["now"], np.tri(T, dtype=bool)
    assert found["before"] is None
    for shown, stages in zip(seen["weights"], layers, strict=True):
        for triangle, weights in zip(shown, stages.weights, strict=True):
            assert np.abs(triangle - weights[lower]).max() < 1e-5
    assert close(seen["logits"], logits[ROW])
    assert close(seen["surprisals"], surprisals(logits[:-1], ids[1:]))
    assert close(found["scores"], layers[1].scores[2])
    assert close(found["products"], layers[1].q[2, ROW] * layers[1].k[2, 9])
    streams = np.stack([layers[0].resid_pre, *(each.resid_post for each in layers)])
    chances = softmax(reader.logits(reader.final_norm(streams)))
    assert np.array_equal(found["lens"]["ids"], chances.argmax(axis=-1).ravel())
    assert close(found["lens"]["chances"], chances.max(axis=-1))

    parts, likeliest = seen["parts"], int(logits[ROW].argmax())
    expected = contributions(reader, layers, np.full((T, 1), likeliest))
    values = dict(zip(expected.parts, expected.values[ROW, 0].tolist(), strict=True))
    kinds = range(config.n_layer), range(config.n_head)
    assert parts["id"] == likeliest
    assert close(parts["logit"], logits[ROW, likeliest])
    assert close(parts["embedding"], values[Part("embedding")])
    heads = [[values[Part("head", layer, head)] for head in kinds[1]] for layer in kinds[0]]
    assert close(parts["heads"], heads)
    widths = [values[Part("ffn", layer)] for layer in kinds[0] if config.feed_forward]
    assert close(parts["layers"], widths) if widths else parts["layers"] == []
    biases = sum(value for part, value in values.items() if "bias" in part.kind)
    assert abs(parts["biases"] - biases) < 1e-5
    total = parts["embedding"] + np.sum(parts["heads"]) + sum(parts["layers"]) + parts["biases"]
    assert abs(total - parts["logit"]) < 1e-4


def test_heads_that_are_off_write_their_mean(script: JavaScript) -> None:
    reader = reader_of()
    ids, means = ids_of(reader), means_of(reader)
    off = [(0, 0), (1, 2)]

    def hook(name: str, layer: int, array: Array) -> Array:
        for head in [head for at, head in off if at == layer and name == "context"]:
            array[:, head] = means[layer, head]
        return array

    stream = reader.blocks(reader.embed(ids[None]), range(reader.config.n_layer), hook)
    expected = reader.logits(reader.final_norm(stream))[0, ROW]
    model = opened(script, reader)
    heads = [{"layer": layer, "head": head} for layer, head in off]
    trained = asked(script, model, ids)
    for text in (ids[:3], ids):  # what was read before is kept
        found = asked(script, model, text, off=heads, row=len(text) - 1)
    found = asked(script, model, ids, off=heads)
    assert close(found["now"]["logits"], expected)
    assert np.array_equal(found["before"]["logits"], trained["now"]["logits"])
    assert not close(found["now"]["logits"], trained["now"]["logits"], 1e-2)
    assert found["now"]["parts"]["id"] == trained["now"]["parts"]["id"]


def test_what_the_model_cannot_read_or_compute_is_refused(script: JavaScript) -> None:
    reader = reader_of()
    model = opened(script, reader)
    for ids in ([0] * 33, [11], [-1]):
        with pytest.raises(JavaScriptError, match=r"at most 32 characters|does not know"):
            script("logits", model, [ids])
    record, tensors = config_record(reader.config), dict(reader.tensors)
    with pytest.raises(JavaScriptError, match='activation function "toString"'):
        script("open", record | {"activation": "toString"}, tensors, means_of(reader))
    del tensors["blocks.1.attention.qkv.weight"]
    with pytest.raises(JavaScriptError, match=r"lacks the tensor blocks.1.attention.qkv.weight"):
        script("open", record, tensors, means_of(reader))


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0, "top_k": 3},
        {"temperature": 1e-4},
        {"temperature": 1.0, "top_k": 4},
        {"temperature": 1.3, "top_p": 0.7},
        {"temperature": 1.0, "min_p": 1.0},
        {"temperature": 1.5, "top_k": 12, "top_p": 0.9, "min_p": 0.05},
    ],
)
def test_filters_keep_what_python_keeps(script: JavaScript, options: dict[str, Any]) -> None:
    config, random = SampleConfig(**options), np.random.default_rng(6)
    for size in (1, 2, 9, 65, 300):
        ties = random.integers(6, size=size) / 2  # many characters are equally likely
        for scores in (ties, random.normal(size=size) * 4, np.zeros(size)):
            found = script("probabilities", scores, asdict(config))
            expected = probabilities(scores[None], config)[0]
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)


def test_draws_windows_and_empty_texts_are_those_of_python(script: JavaScript) -> None:
    assert script("variants")[2] == list(FILTERS)
    chances = np.array([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    for uniform in (0.0, 0.2, 0.25, 0.5, 0.75, 1 - 2**-53, 1.0):
        number = min(uniform, 1 - 2**-53)
        assert script("draw", chances, uniform) == draw(chances[None], np.array([number]))[0]
    cases = [(length, size) for length in range(70) for size in (1, 2, 5, 16)]
    assert script("windowStarts", cases) == [window_start(*case) for case in cases]
    for characters in ("\n ab", "ab", "\t\nc"):
        expected = characters.index(start_character(Vocabulary(characters)))
        assert script("beforeAll", list(characters)) == expected
