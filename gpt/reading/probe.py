"""The probe proves that numpy computes here what torch computed when the model was saved.

The probe is a text with the logits that torch computed for it in float64, with other code. Whoever
opens the model computes them again in float64. So the two agree up to the rounding of the stored
float32 logits. float32 could not judge: in a healthy model with sharp attention, a rounding error
selects another key, and the logits differ by a hundredth of the largest one. Its difference is only
measured, and shows how exact the numbers of this model are.

A device, too, has to compute the probe before it is used (DeviceReader). If it does not open, or
computes other logits than numpy, one line says so, and numpy computes from the start; an error
later ends the command. numpy draws from the device's logits, so the text depends only on the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from gpt.config import ModelConfig
from gpt.devices import error_summary, log_cpu_fallback
from gpt.errors import CheckpointError, GptxError
from gpt.reading.gpt import Array, Hook, Reader, no_hook
from gpt.show.result import Check
from gpt.storage.model_file import Probe, StoredModel, Tensors
from gpt.vocabulary import Ids

PROBE = "logits = torch's at saving"
TOLERANCE = 1e-6  # of the largest logit
#: How far another program's float32 logits may be from those in float64, as a multiple of numpy's
#: float32 error; at least LEAST times the largest logit.
TIMES, LEAST = 10, 1e-4


def open_proven(stored: StoredModel) -> tuple[Reader, Check]:
    """The reader of a model file, and its proof. Raises CheckpointError if the probe fails."""
    reader = Reader(stored.config, stored.tensors)
    proof = prove(reader, stored.probe)
    if not proof.passed:
        raise CheckpointError(
            f"damaged: {stored.source} computes other logits than torch did at saving "
            f"(difference {proof.error:.1e}; rounding allows {proof.bound:.1e})"
        )
    return reader, proof


def prove_tensors(config: ModelConfig, tensors: Tensors, probe: Probe) -> Check:
    """Does what `prove` does, for a model that has no reader yet."""
    return prove(Reader(config, tensors), probe)


def prove(reader: Reader, probe: Probe) -> Check:
    """Checks that the reader's code, in float64, computes the logits of the probe."""
    bound = TOLERANCE * float(np.abs(probe.logits).max())
    return Check(PROBE, difference(reader.in_float64(), probe), bound)


def difference(reader: Reader, probe: Probe) -> float:
    """The largest difference between the reader's logits of the probe and those that it stores;
    NaN if a number overflows.
    """
    with np.errstate(all="ignore"):
        logits = probe.of(map(reader.logits, reader.forward(probe.ids)))
        return float(np.abs(logits - probe.logits).max())


def allowed_in_float32(error: float, largest: float) -> float:
    """How far another program's float32 logits may be from those in float64. error: numpy's in
    float32; largest: the largest logit.
    """
    return max(TIMES * error, LEAST * largest)


class Device(Protocol):
    """A model's forward pass and its decoder, as a sampler.Decoder (model.gpt.DeviceGPT)."""

    def start(self, ids: Ids) -> Array: ...
    def step(self, ids: Ids) -> Array: ...

    def make_twin(self) -> Device:
        """The same model with streams of its own."""

    def forward(self, ids: Ids) -> Array:
        """(B, T) ids -> (B, T, C), like Reader.forward."""

    def block(self, x: Array, layer: int) -> dict[str, Array]:
        """(B, T, C) -> the stages of one layer, like Reader.block."""


class DeviceReader(Reader):
    """A reader and sampler.Decoder on a device; numpy computes a pass with a hook, and float64.

    Raises GptxError if the device fails.
    """

    def __init__(self, reader: Reader, device: Device) -> None:
        vars(self).update(vars(reader))
        self._numpys, self._device = reader, device

    def make_twin(self) -> DeviceReader:
        return DeviceReader(self._numpys, self._device.make_twin())

    def in_float64(self) -> Reader:
        return self._numpys.in_float64()

    def forward(self, ids: Ids) -> Array:
        with _explained():
            return self._device.forward(ids)

    def block(self, x: Array, layer: int, hook: Hook = no_hook) -> dict[str, Array]:
        if hook is not no_hook:
            return super().block(x, layer, hook)
        with _explained():
            return self._device.block(x, layer)

    def start(self, ids: Ids) -> Array:
        with _explained():
            return self._device.start(ids)

    def step(self, ids: Ids) -> Array:
        with _explained():
            return self._device.step(ids)


@contextmanager
def _explained() -> Iterator[None]:
    """Makes any error of a device a GptxError."""
    try:
        yield
    except Exception as error:  # a driver, a kernel or torch may raise anything
        raise GptxError(f"the GPU failed ({error_summary(error)}); use `device='cpu'`") from error


def reader_on_device(reader: Reader, probe: Probe, open_device: Callable[[], Device]) -> Reader:
    """The reader on a device; the reader itself, with one line of output, if the device fails or
    computes other logits of the probe.
    """
    allowed = allowed_in_float32(difference(reader, probe), float(np.abs(probe.logits).max()))
    try:
        device = open_device()
        for logits in _logits_of(device, reader, probe.ids):
            error = float(np.abs(probe.of(logits) - probe.logits).max())
            if not error <= allowed:
                raise ArithmeticError(f"its logits differ from the checkpoint's by {error:.1e}")
    except Exception as error:  # a driver, a kernel or torch may raise anything
        log_cpu_fallback("the GPU", error)
        return reader
    return DeviceReader(reader, device)


def _logits_of(device: Device, reader: Reader, ids: Ids) -> Iterator[Array]:
    """(R, L) ids -> (R, L, vocab_size) logits in each way in which the device computes them: its
    forward pass, layer by layer, and its decoder for the last two positions.
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
