"""A reader and decoder whose forward passes a device computes, once it has computed the probe.

A device that does not open, or that computes other logits of the probe than numpy, is not used: one
line says so, and numpy computes from the start. An error later ends the command. numpy draws from
the device's logits, so the text depends only on the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from gpt.devices import reason_of, report_failure
from gpt.errors import GptxError
from gpt.reading.gpt import Hook, Reader, no_hook
from gpt.reading.layers import Array
from gpt.reading.probe import allowed_in_float32, difference
from gpt.reading.sampler import Decoder
from gpt.storage.model_file import Probe
from gpt.vocabulary import Ids


class Device(Decoder, Protocol):
    """A model's decoder and forward pass (model.device.DeviceGPT)."""

    def make_twin(self) -> Device:
        """The same model with streams of its own."""

    def forward(self, ids: Ids) -> Array:
        """(B, T) ids -> (B, T, C), like Reader.forward."""

    def block(self, x: Array, layer: int) -> dict[str, Array]:
        """(B, T, C) -> the stages of one layer, like Reader.block."""


class DeviceReader(Reader):
    """A reader and decoder on a device; numpy computes a pass with a hook, and float64.

    Raises GptxError if the device fails.
    """

    def __init__(self, reader: Reader, device: Device) -> None:
        vars(self).update(vars(reader))
        self._numpys, self._device = reader, device

    def make_twin(self) -> DeviceReader:
        """The same model with streams of its own."""
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
        """Starts new texts: (B, n) ids -> (B, vocab_size) logits of the next character."""
        with _explained():
            return self._device.start(ids)

    def step(self, ids: Ids) -> Array:
        """Adds one id to each stream: (B,) ids -> (B, vocab_size) logits of the next character."""
        with _explained():
            return self._device.step(ids)


@contextmanager
def _explained() -> Iterator[None]:
    """Makes any error of a device a GptxError."""
    try:
        yield
    except Exception as error:  # a driver, a kernel or torch may raise anything
        raise GptxError(f"the GPU failed ({reason_of(error)}); use `device='cpu'`") from error


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
        report_failure("the GPU", error, "the CPU computes instead")
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
