"""Checks that numpy computes the logits that torch computed when a model was saved.

A checkpoint's probe is a text with the logits that the torch model computed for it in float64.
When a checkpoint is opened, the numpy reader computes the logits again, in float64. The two must
agree up to the rounding of the stored float32 logits. A comparison in float32 would reject healthy
models. With sharp attention, a rounding error can move the attention to another key, and then the
logits differ by a hundredth of the largest logit. So gptx only reports the difference in float32,
which shows how exact the model's numbers are.

A device (a GPU) must compute the probe, too, before it is used (DeviceReader). If the device does
not open, or computes other logits than numpy, gptx prints one line and uses numpy instead. A later
error of the device ends the command. numpy draws the characters from the device's logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from gpt.config import ModelConfig
from gpt.devices import error_summary, log_cpu_fallback
from gpt.errors import CheckpointError, GptxError
from gpt.reading.gpt import Array, Decoder, Hook, Reader, no_hook
from gpt.show.result import Check
from gpt.storage.checkpoint_files import Probe, StoredModel, Tensors
from gpt.vocabulary import Ids

PROBE = "logits = torch's at saving"
TOLERANCE = 1e-6  # relative to the largest logit
#: The float32 logits of a GPU or a browser may differ from numpy's float64 logits by TIMES the
#: error of numpy's float32 logits, or by LEAST times the largest logit if that is more.
TIMES, LEAST = 10, 1e-4


def open_checked_reader(stored: StoredModel) -> tuple[Reader, Check]:
    """Returns a model file's reader and its passed check. Raises CheckpointError if it fails."""
    reader = Reader(stored.config, stored.tensors)
    proof = check_probe(reader, stored.probe)
    if not proof.passed:
        raise CheckpointError(
            f"damaged: {stored.source} computes other logits than torch did at saving "
            f"(difference {proof.error:.1e}; rounding allows {proof.bound:.1e})"
        )
    return reader, proof


def check_tensors(config: ModelConfig, tensors: Tensors, probe: Probe) -> Check:
    """Checks the probe with the tensors of a model that has no reader yet. See `check_probe`."""
    return check_probe(Reader(config, tensors), probe)


def check_probe(reader: Reader, probe: Probe) -> Check:
    """Checks that the reader, in float64, computes the logits of the probe."""
    bound = TOLERANCE * float(np.abs(probe.logits).max())
    return Check(PROBE, probe_error(reader.in_float64(), probe), bound)


def probe_error(reader: Reader, probe: Probe) -> float:
    """Returns the largest difference between the reader's logits and those in the probe. The
    difference is NaN if a number overflows.
    """
    with np.errstate(all="ignore"):
        return probe.largest_error(map(reader.logits, reader.forward(probe.ids)))


def float32_tolerance(error: float, largest: float) -> float:
    """Returns how far the float32 logits of a GPU or a browser may be from numpy's float64 logits.
    error: the error of numpy's float32 logits. largest: the largest logit.
    """
    return max(TIMES * error, LEAST * largest)


class Device(Decoder, Protocol):
    """A model on a GPU, as a decoder and as a forward pass (see model.gpt.DeviceGPT)."""

    def make_twin(self) -> Device:
        """Returns the same model with streams of its own."""

    def forward(self, ids: Ids) -> Array:
        """(B, T) ids -> (B, T, C), like Reader.forward."""

    def block(self, x: Array, layer: int) -> dict[str, Array]:
        """(B, T, C) -> the stages of one layer, like Reader.block."""


@contextmanager
def _explained() -> Iterator[None]:
    """Turns any error of a device into a GptxError."""
    try:
        yield
    except Exception as error:  # a driver, a kernel or torch may raise anything
        raise GptxError(f"the GPU failed ({error_summary(error)}); use `device='cpu'`") from error


class DeviceReader(Reader):
    """A reader and Decoder that computes on a device. numpy computes passes with a hook, and
    all passes in float64. Methods raise GptxError if the device fails.
    """

    def __init__(self, reader: Reader, device: Device) -> None:
        vars(self).update(vars(reader))
        self._on_numpy, self._device = reader, device

    def make_twin(self) -> DeviceReader:
        return DeviceReader(self._on_numpy, self._device.make_twin())

    def in_float64(self) -> Reader:
        return self._on_numpy.in_float64()

    @_explained()
    def forward(self, ids: Ids) -> Array:
        return self._device.forward(ids)

    def block(self, x: Array, layer: int, hook: Hook = no_hook) -> dict[str, Array]:
        if hook is not no_hook:
            return super().block(x, layer, hook)
        with _explained():
            return self._device.block(x, layer)

    @_explained()
    def start(self, ids: Ids) -> Array:
        return self._device.start(ids)

    @_explained()
    def step(self, ids: Ids) -> Array:
        return self._device.step(ids)


def reader_on_device(reader: Reader, probe: Probe, open_device: Callable[[], Device]) -> Reader:
    """Returns a reader that computes on the device, if the device computes the probe's logits.
    Otherwise prints one line and returns the same reader.
    """
    allowed = float32_tolerance(probe_error(reader, probe), float(np.abs(probe.logits).max()))
    try:
        device = open_device()
        for logits in _logits_of(device, reader, probe.ids):
            error = probe.largest_error(logits)
            if not error <= allowed:
                raise ArithmeticError(f"its logits differ from the checkpoint's by {error:.1e}")
    except Exception as error:  # a driver, a kernel or torch may raise anything
        log_cpu_fallback("the GPU", error)
        return reader
    return DeviceReader(reader, device)


def _logits_of(device: Device, reader: Reader, ids: Ids) -> Iterator[Array]:
    """(R, L) ids -> yields (R, L, vocab_size) logits three times: by the device's forward pass, by
    its layers one after the other, and by its decoder, which computes the last two positions.
    """
    logits = reader.logits(device.forward(ids))
    yield logits
    x = reader.embed(ids)
    for layer in range(reader.config.n_layer):
        x = device.block(x, layer)["resid_post"]
    yield reader.logits(reader.final_norm(x))
    if ids.shape[1] > 1:
        logits[:, -2] = device.start(ids[:, :-1])
        logits[:, -1] = device.step(ids[:, -1])
        yield logits
