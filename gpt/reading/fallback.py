"""Tests a device before it is used, and continues with numpy if it fails.

The device is opened when it is first used, and must reproduce numpy's logits of the checkpoint's
probe: as a decoder once for every number of streams, as a reader once for its whole forward pass
and once layer by layer. If it raises anything or fails this test, one line of output says so, and
numpy computes from then on. Whichever computes the logits, numpy draws from them, so the text
depends only on the seed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from gpt.devices import report_failure
from gpt.reading.gpt import Hook, Reader, no_hook
from gpt.reading.layers import Array
from gpt.reading.sampler import Decoder
from gpt.vocabulary import Ids

Result = TypeVar("Result")


class Device(Decoder, Protocol):
    """A model's decoder and forward pass (model.device.DeviceGPT)."""

    def forward(self, ids: Ids) -> Array:
        """(B, T) ids -> (B, T, C), like Reader.forward."""

    def block(self, x: Array, layer: int) -> dict[str, Array]:
        """(B, T, C) -> the stages of one layer, like Reader.block."""


class DeviceWithFallback:
    """A device that computes until it fails; threads use it one after another.

    It must compute, for the (P,) ids, the (P, vocab_size) logits that numpy computes and that the
    checkpoint's probe has proved. allowed: how far the device's logits may differ.
    """

    def __init__(
        self,
        open_device: Callable[[], Device],
        ids: Ids,
        logits: Array,
        allowed: Callable[[float], float],
    ) -> None:
        self.ids, self._logits, self._allowed = ids, logits, allowed
        self._open: Callable[[], Device] | None = open_device  # None: the device failed
        self._device: Device | None = None
        self._free = threading.Lock()

    @property
    def failed(self) -> bool:
        """Whether the device has failed, so that numpy computes."""
        return self._open is None

    def compute(self, work: Callable[[Device], Result], instead: Callable[[], Result]) -> Result:
        """The device's result; once it has failed, the result of `instead`."""
        with self._free:
            if self._open is not None:
                try:
                    self._device = self._device or self._open()
                    return work(self._device)
                except Exception as error:  # a driver, a kernel or torch may raise anything
                    self._open = self._device = None
                    report_failure("the GPU", error, "numpy computes the same instead")
        return instead()

    def require(self, logits: Array, end: int | slice = slice(None)) -> None:
        """Raises ArithmeticError unless these are the logits at `end`, of one text or of many."""
        error = float(np.abs(logits - self._logits[end]).max())
        if not error <= self._allowed(error):
            raise ArithmeticError(f"the GPU's logits differ from the checkpoint's by {error:.1e}")


class FallbackReader(Reader):
    """A reader whose forward pass a device computes until it fails; then numpy does, and always if
    there is a hook.
    """

    def __init__(self, numpys: Reader, device: DeviceWithFallback) -> None:
        vars(self).update(vars(numpys))
        self.device, self._numpys = device, numpys
        self._proven = set[str]()

    def in_float64(self) -> Reader:
        return self._numpys.in_float64()

    def forward(self, ids: Ids) -> Array:
        def work(device: Device) -> Array:
            self._prove("forward", device.forward)
            return device.forward(ids)

        return self.device.compute(work, lambda: self._numpys.forward(ids))

    def block(self, x: Array, layer: int, hook: Hook = no_hook) -> dict[str, Array]:
        if hook is not no_hook:
            return self._numpys.block(x, layer, hook)

        def work(device: Device) -> dict[str, Array]:
            def forward(ids: Ids) -> Array:
                x = self.embed(ids)
                for number in range(self.config.n_layer):
                    x = device.block(x, number)["resid_post"]
                return self.final_norm(x)

            self._prove("block", forward)
            return device.block(x, layer)

        return self.device.compute(work, lambda: self._numpys.block(x, layer))

    def _prove(self, name: str, forward: Callable[[Ids], Array]) -> None:
        """Raises ArithmeticError unless this forward of the device gives numpy's logits."""
        if name not in self._proven:
            self.device.require(self.logits(forward(self.device.ids[None])))
            self._proven.add(name)


class FallbackDecoder:
    """Decodes B streams on a device until it fails, then with numpy. `start` sets B."""

    def __init__(self, device: DeviceWithFallback, numpys: Decoder) -> None:
        self.config = numpys.config
        self._device, self._numpys = device, numpys
        self._proven_streams = 0
        self._text: list[Ids] = []  # the (B, n) pieces that were decoded so far
        self._caught_up = False  # whether numpy has read these pieces

    def start(self, ids: Ids) -> Array:
        """Starts a new text: (B, n) ids -> (B, vocab_size) logits of the next character."""
        self._text = []

        def work(device: Device) -> Array:
            if self._proven_streams != len(ids):
                self._prove(device, len(ids))
            return device.start(ids)

        logits = self._compute(work, lambda: self._numpys.start(ids))
        self._text.append(ids.copy())
        return logits

    def step(self, ids: Ids) -> Array:
        """Adds one id to each stream: (B,) ids -> (B, vocab_size) logits of the next character."""
        logits = self._compute(lambda device: device.step(ids), lambda: self._numpys.step(ids))
        self._text.append(ids[:, None].copy())
        return logits

    def _compute(self, work: Callable[[Device], Array], step: Callable[[], Array]) -> Array:
        """The device's logits; once it has failed, numpy's, which reads the text so far first."""

        def instead() -> Array:
            if self._text and not self._caught_up:
                self._numpys.start(np.hstack(self._text))
            self._caught_up = True
            return step()

        return self._device.compute(work, instead)

    def _prove(self, device: Device, streams: int) -> None:
        """Raises ArithmeticError unless `start` and `step` give every stream numpy's logits."""
        ids = np.tile(self._device.ids, (streams, 1))  # (B, P)
        length, half = ids.shape[1], max(1, ids.shape[1] // 2)
        for end in range(half, length + 1):
            logits = device.start(ids[:, :end]) if end == half else device.step(ids[:, end - 1])
            self._device.require(logits, end - 1)
        self._proven_streams = streams
