"""A device that computes the probe is used; another one is not, and a later failure is an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import TEXT, On

from gpt.config import SampleConfig
from gpt.errors import GptxError
from gpt.interface.trained import TrainedGPT
from gpt.reading.decode import CachedDecoder
from gpt.reading.gpt import Array, Reader
from gpt.storage.checkpoint_files import pick_probe_logits
from gpt.storage.run import Checkpoint
from gpt.vocabulary import Ids

FAILURES = [
    RuntimeError("CUDA error: an illegal memory access was encountered\nmore lines"),
    AssertionError("Torch not compiled with CUDA enabled"),
    ImportError("libcudnn.so.9: cannot open shared object file"),
    NotImplementedError("The operator is not implemented for the MPS device"),
    MemoryError(),
]


@pytest.fixture(scope="module")
def trained(tiny: Checkpoint) -> TrainedGPT:
    """A model whose next character depends on its whole context."""
    stored, random = tiny.model(), np.random.default_rng(1)
    tensors = {
        name: random.normal(0, 0.5, array.shape).astype(np.float32) if array.ndim > 1 else array
        for name, array in sorted(stored.tensors.items())
    }
    exact = Reader(stored.config, tensors).in_float64()
    probe = stored.probe
    rows, kept = exact.logits(exact.forward(probe.ids)), probe.logits.shape[1]
    probe = replace(probe, logits=pick_probe_logits(rows, kept).astype(np.float32))
    return TrainedGPT(replace(stored, tensors=tensors, probe=probe))


class Device:
    """numpy in place of a device: counts calls, and may fail at one of them.

    Its method `where` returns numbers with an error `by`.
    """

    def __init__(
        self,
        trained: TrainedGPT,
        fails_at: int | None = None,
        error: Exception = FAILURES[0],
        where: str = "",
        by: float = 0.0,
    ) -> None:
        self.config = trained.config
        self.asked: list[str] = []
        self._decoder, self._reader = CachedDecoder(trained.reader), trained.reader
        self._fails_at, self._error = fails_at, error
        self._where, self._by = where, by

    def make_twin(self) -> Device:
        self.asked.append("make_twin")
        return self

    def _ask(self, what: str, result: Array) -> Array:
        if len(self.asked) == self._fails_at:
            raise self._error
        self.asked.append(what)
        if what == self._where:
            result[-1, ..., 3] += self._by
        return result

    def start(self, ids: Ids) -> Array:
        return self._ask("start", self._decoder.start(ids))

    def step(self, ids: Ids) -> Array:
        return self._ask("step", self._decoder.step(ids))

    def forward(self, ids: Ids) -> Array:
        return self._ask("forward", self._reader.forward(ids))

    def block(self, x: Array, layer: int) -> dict[str, Array]:
        found = self._reader.block(x, layer)
        self._ask("block", found["resid_post"])
        return found


#: What the device is asked for before it is used.
OPENING = ["forward", "block", "block", "start", "step"]


def text_of(model: TrainedGPT, n: int = 1) -> list[list[str]]:
    """The characters that each step adds."""
    return list(model.stream("the cat", SampleConfig(length=45, n=n, seed=1)))


TEXT_OF_THREE_WINDOWS = (TEXT * 9)[:40]
#: Result -> what computes it, and how it is asked for.
RESULTS: dict[str, tuple[set[str], Callable[[TrainedGPT], Any]]] = {
    "texts": ({"start", "step"}, lambda model: text_of(model, 3)),
    "attention": ({"block"}, lambda model: model.attn("the cat sat").layers[1].weights),
    "score": ({"forward"}, lambda model: model.eval(TEXT_OF_THREE_WINDOWS).nats),
    "ablation": (
        {"block"},
        lambda model: model.heads(TEXT_OF_THREE_WINDOWS, ablate="zero").measures[-1].values,
    ),
}


@pytest.mark.parametrize("result", RESULTS)
def test_a_device_that_computes_the_probe_computes_every_result(
    trained: TrainedGPT, on: On, caplog: pytest.LogCaptureFixture, result: str
) -> None:
    asks, compute = RESULTS[result]
    device = Device(trained)
    model = on(trained, lambda: device).check_probe()
    assert device.asked == OPENING
    device.asked.clear()
    assert np.array_equal(compute(model), compute(trained))
    assert set(device.asked) - {"forward"} == asks - {"forward"}
    assert ("forward" in device.asked) == (asks == {"forward"} or result == "attention")
    assert (model.origin["device"], caplog.messages) == ("cuda", [])


@pytest.mark.parametrize("result", ["texts", "attention", "score"])
def test_a_device_that_fails_later_is_an_error_of_one_line(
    trained: TrainedGPT, on: On, caplog: pytest.LogCaptureFixture, result: str
) -> None:
    _, compute = RESULTS[result]
    healthy = Device(trained)
    compute(on(trained, lambda: healthy))
    for number in {len(OPENING), len(healthy.asked) - 1}:
        error = FAILURES[number % len(FAILURES)]
        device = Device(trained, number, error)
        first = (str(error).splitlines() or ["no reason given"])[0]
        with pytest.raises(GptxError) as caught:
            compute(on(trained, lambda device=device: device))
        reason = f"{type(error).__name__}: {first}"
        assert str(caught.value) == f"the GPU failed ({reason}); use `device='cpu'`"
    assert caplog.messages == []


@pytest.mark.parametrize("number", range(len(OPENING)))
def test_a_device_that_fails_at_the_probe_is_not_used(
    trained: TrainedGPT, on: On, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    error = FAILURES[number]
    device = Device(trained, number, error)
    model = on(trained, lambda: device)
    for _, compute in RESULTS.values():
        assert np.array_equal(compute(model), compute(trained))
    assert len(device.asked) == number
    (line,) = caplog.messages
    first = (str(error).splitlines() or ["no reason given"])[0]
    assert line == (
        f"note: the GPU failed ({type(error).__name__}: {first}); the CPU computes instead"
    )
    assert model.origin["device"] == "cpu"


@pytest.mark.parametrize(
    ("where", "by"), [("forward", 4e-2), ("block", 4e-2), ("start", float("nan")), ("step", 4e-2)]
)
def test_a_device_with_other_logits_of_the_probe_is_not_used(
    trained: TrainedGPT, on: On, caplog: pytest.LogCaptureFixture, where: str, by: float
) -> None:
    device = Device(trained, where=where, by=by)
    model = on(trained, lambda: device)
    assert text_of(model) == text_of(trained)
    assert device.asked == OPENING[: len(device.asked)]
    (line,) = caplog.messages
    assert "its logits differ from the checkpoint's by" in line


def test_numpy_computes_float64_and_whatever_has_a_hook(trained: TrainedGPT, on: On) -> None:
    device, numpys = Device(trained), trained.reader
    reader, x = on(trained, lambda: device).reader, numpys.embed(np.arange(6)[None])
    device.asked.clear()

    def twice(name: str, layer: int, stage: Array) -> Array:
        return 2 * stage if name == "weights" else stage

    stages, expected = reader.block(x, 0, twice), numpys.block(x, 0, twice)
    assert all(np.array_equal(stages[name], stage) for name, stage in expected.items())
    assert not np.allclose(stages["resid_post"], numpys.block(x, 0)["resid_post"], atol=1e-3)
    ids = np.arange(6)[None]
    exact = reader.in_float64().forward(ids)
    assert np.array_equal(exact, numpys.in_float64().forward(ids))
    assert device.asked == []
