"""A device may fail anywhere: one line reports it, and numpy computes the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import TEXT

from gpt.config import SampleConfig
from gpt.counting.mixture import FEATURES
from gpt.counting.tables import count
from gpt.interface.trained import TrainedGPT
from gpt.reading.decode import CachedDecoder
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.storage.run import Checkpoint
from gpt.vocabulary import Ids

FAILURES = [
    RuntimeError("CUDA error: an illegal memory access was encountered\nmore lines"),
    AssertionError("Torch not compiled with CUDA enabled"),
    ImportError("libcudnn.so.9: cannot open shared object file"),
    NotImplementedError("The operator is not implemented for the MPS device"),
    MemoryError(),
]


@pytest.fixture(scope="module", params=["gpt", "counting"])
def trained(tiny: Checkpoint, request: pytest.FixtureRequest) -> TrainedGPT:
    """A model whose next character depends on its whole context; with counting and without."""
    stored, random = tiny.model(), np.random.default_rng(1)
    tensors = {
        name: random.normal(0, 0.5, array.shape).astype(np.float32) if array.ndim > 1 else array
        for name, array in sorted(stored.tensors.items())
    }
    reader = Reader(stored.config, tensors)
    probe = stored.probe
    probe = replace(probe, logits=probe.of(reader.logits(reader.forward(probe.ids))))
    config, counting = stored.config, None
    if request.param == "counting":
        config = replace(config, counting=5)
        trie = count(stored.vocabulary.encode(TEXT), len(stored.vocabulary), 5)
        counting = {**trie.packed(), "gate": 0.5 * np.eye(2, len(FEATURES)) + 0.05}
    return TrainedGPT(
        replace(stored, config=config, tensors=tensors, probe=probe, counting=counting)
    )


class Device:
    """numpy in place of a device: counts calls, and may fail at one of them."""

    def __init__(
        self,
        trained: TrainedGPT,
        fails_at: int | None = None,
        error: Exception = FAILURES[0],
    ) -> None:
        self.config = trained.config
        self.asked: list[str] = []
        self._decoder, self._reader = CachedDecoder(trained.reader), trained.reader
        self._fails_at, self._error = fails_at, error

    def _ask(self, what: str) -> None:
        if len(self.asked) == self._fails_at:
            raise self._error
        self.asked.append(what)

    def start(self, ids: Ids) -> Array:
        self._ask(f"start {len(ids)}")
        return self._decoder.start(ids)

    def step(self, ids: Ids) -> Array:
        self._ask("step")
        return self._decoder.step(ids)

    def forward(self, ids: Ids) -> Array:
        self._ask("forward")
        return self._reader.forward(ids)

    def block(self, x: Array, layer: int) -> dict[str, Array]:
        self._ask("block")
        return self._reader.block(x, layer)


def pieces(model: TrainedGPT, n: int = 1, **options: Any) -> list[list[str]]:
    """The characters that each step adds."""
    return list(model.stream("the cat", SampleConfig(length=45, n=n, **options)))


def on(trained: TrainedGPT, open_device: Callable[[], Any]) -> TrainedGPT:
    return TrainedGPT(trained.stored, lambda stored: open_device())


@pytest.mark.parametrize("n", [1, 3])
def test_device_failure_at_any_character_keeps_the_text(
    trained: TrainedGPT, caplog: pytest.LogCaptureFixture, n: int
) -> None:
    expected = pieces(trained, n)
    healthy = Device(trained)
    assert pieces(on(trained, lambda: healthy), n) == expected
    assert caplog.messages == []
    assert healthy.asked.count("step") > 40
    for number in {*range(0, len(healthy.asked), 7), len(healthy.asked) - 1}:
        error = FAILURES[number % len(FAILURES)]
        device = Device(trained, number, error)
        caplog.clear()
        assert pieces(on(trained, lambda device=device: device), n) == expected
        assert len(device.asked) == number  # the device is not used again
        (line,) = caplog.messages
        first = (str(error).splitlines() or ["no reason given"])[0]
        assert line == (
            f"note: the GPU failed ({type(error).__name__}: {first}); "
            "numpy computes the same instead"
        )


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_device_that_fails_to_open_is_not_tried_again(
    trained: TrainedGPT, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    tries = []

    def fail() -> Any:
        tries.append(1)
        raise error

    model = on(trained, fail)
    for _ in range(2):
        assert model.sample("the", length=20) == trained.sample("the", length=20)
    assert (len(tries), len(caplog.messages)) == (1, 1)


def test_numpy_computes_if_there_is_a_hook(trained: TrainedGPT) -> None:
    device, numpys = Device(trained), trained.reader
    reader, x = on(trained, lambda: device).reader, numpys.embed(np.arange(6)[None])

    def twice(name: str, layer: int, stage: Array) -> Array:
        return 2 * stage if name == "weights" else stage

    found, expected = reader.block(x, 0, twice), numpys.block(x, 0, twice)
    assert all(np.array_equal(found[name], stage) for name, stage in expected.items())
    assert not np.allclose(found["resid_post"], numpys.block(x, 0)["resid_post"], atol=1e-3)
    assert device.asked == []


class Wrong(Device):
    """A device whose method `where` returns numbers with an error `by` in one stream."""

    where, by = "", 0.0

    def _changed(self, what: str, logits: Array) -> Array:
        if what == self.where:
            logits[-1, ..., 3] += self.by
        return logits

    def start(self, ids: Ids) -> Array:
        return self._changed("start", super().start(ids))

    def step(self, ids: Ids) -> Array:
        return self._changed("step", super().step(ids))

    def forward(self, ids: Ids) -> Array:
        return self._changed("forward", super().forward(ids))

    def block(self, x: Array, layer: int) -> dict[str, Array]:
        found = super().block(x, layer)
        self._changed("block", found["resid_post"])
        return found


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("by", [4e-3, float("nan")])
@pytest.mark.parametrize("where", ["start", "step"])
def test_device_that_fails_the_probe_is_not_used(
    trained: TrainedGPT, caplog: pytest.LogCaptureFixture, where: str, by: float, n: int
) -> None:
    device = Wrong(trained)
    device.where, device.by = where, by
    assert pieces(on(trained, lambda: device), n) == pieces(trained, n)
    assert device.asked.count(f"start {n}") == 1  # of the probe
    assert len(caplog.messages) == 1
    assert "the GPU's logits differ from the checkpoint's by" in caplog.text


def test_a_device_with_rounding_errors_is_used(
    trained: TrainedGPT, caplog: pytest.LogCaptureFixture
) -> None:
    for where in ("start", "step"):
        device = Wrong(trained)
        device.where, device.by = where, 2e-6
        pieces(on(trained, lambda device=device: device))
        assert device.asked.count("start 1") > 1
    assert caplog.messages == []


def test_each_number_of_streams_is_tested_once(trained: TrainedGPT) -> None:
    device = Device(trained)
    decoder = on(trained, lambda: device).decoders.first
    length = len(trained.stored.probe.ids[0])
    proof = [*(length - length // 2) * ["step"]]
    for streams, proven in ((2, True), (2, False), (3, True), (2, True)):
        device.asked.clear()
        decoder.start(np.zeros((streams, 4), np.int64))
        assert device.asked == [f"start {streams}", *proof] * proven + [f"start {streams}"]


TEXT_OF_THREE_WINDOWS = (TEXT * 9)[:40]
RESULTS: dict[str, tuple[str, Callable[[TrainedGPT], Any]]] = {
    "attention": ("block", lambda model: model.attn("the cat sat").layers[1].weights),
    "checks": ("block", lambda model: [it.passed for it in model.attn("the cat").checks]),
    "score": ("forward", lambda model: model.eval(TEXT_OF_THREE_WINDOWS).nats),
    "surprisals": (
        "forward",
        lambda model: model.eval(TEXT_OF_THREE_WINDOWS, chars=True).surprisals.nats,
    ),
    "next": ("forward", lambda model: model.next("the cat").expected),
    "heads": ("block", lambda model: model.heads(TEXT_OF_THREE_WINDOWS).measures[0].values),
    "ablation": (
        "block",
        lambda model: model.heads(TEXT_OF_THREE_WINDOWS, ablate="zero").measures[-1].values,
    ),
}


@pytest.mark.parametrize("result", RESULTS)
def test_a_device_that_fails_at_any_call_changes_no_result(
    trained: TrainedGPT, caplog: pytest.LogCaptureFixture, result: str
) -> None:
    asks, compute = RESULTS[result]
    expected, healthy = compute(trained), Device(trained)
    assert np.array_equal(compute(on(trained, lambda: healthy)), expected)
    assert (set(healthy.asked), caplog.messages) == ({asks}, [])
    for number in {0, 1, len(healthy.asked) - 1}:
        device = Device(trained, number, FAILURES[number % len(FAILURES)])
        caplog.clear()
        assert np.array_equal(compute(on(trained, lambda device=device: device)), expected)
        assert len(device.asked) == number  # the device is not used again
        (line,) = caplog.messages
        assert line.startswith("note: the GPU failed (")
        assert line.endswith("; numpy computes the same instead")


@pytest.mark.parametrize("by", [3e-2, float("nan")])
@pytest.mark.parametrize("result", RESULTS)
def test_results_come_from_no_device_with_wrong_logits(
    trained: TrainedGPT, caplog: pytest.LogCaptureFixture, result: str, by: float
) -> None:
    asks, compute = RESULTS[result]
    device = Wrong(trained)
    device.where, device.by = asks, by
    assert np.array_equal(compute(on(trained, lambda: device)), compute(trained))
    (line,) = caplog.messages
    assert "the GPU's logits differ from the checkpoint's by" in line
    assert len(device.asked) == (1 if asks == "forward" else trained.config.n_layer)


def test_a_model_fails_on_its_device_once_for_all_results(
    trained: TrainedGPT, caplog: pytest.LogCaptureFixture
) -> None:
    device = Device(trained, 0)
    model = on(trained, lambda: device)
    assert model.sample("the", length=9) == trained.sample("the", length=9)
    for _, compute in RESULTS.values():
        assert np.array_equal(compute(model), compute(trained))
    assert len(caplog.messages) == 1


def test_text_goes_on_after_the_device_has_failed_for_another_result(
    trained: TrainedGPT, caplog: pytest.LogCaptureFixture
) -> None:
    model = on(trained, lambda: Device(trained, 20))
    samples = model.stream("the cat", SampleConfig(length=40))
    first = [next(samples) for _ in range(5)]
    for _ in range(20):
        model.eval("the cat")
    assert len(caplog.messages) == 1
    assert [*first, *samples] == list(trained.stream("the cat", SampleConfig(length=40)))
