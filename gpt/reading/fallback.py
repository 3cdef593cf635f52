"""A decoder on a device that is tested before it is used, and replaced by numpy if it fails.

The device is opened when the first text starts. It must reproduce the checkpoint's probe before it
is used, once for every number of streams. If it raises anything or fails this test, one line of
output says so: numpy reads the text so far and continues. The sampler draws with numpy from the
logits of both, so the text depends only on the seed, not on which device computed which part.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpt.devices import report_failure
from gpt.reading.layers import Array
from gpt.reading.sampler import Decoder
from gpt.vocabulary import Ids


class FallbackDecoder:
    """Decodes B streams on a device until that fails, then with numpy. `start` fixes B.

    ids, logits: (P,) ids and the (P, vocab_size) logits that numpy computes for them, checked by
    the checkpoint's probe. allowed: the difference that a device may have from these logits.
    """

    def __init__(
        self,
        open_device: Callable[[], Decoder],
        numpys: Decoder,
        ids: Ids,
        logits: Array,
        allowed: Callable[[float], float],
    ) -> None:
        self.config = numpys.config
        self._open: Callable[[], Decoder] | None = open_device  # None: the device failed
        self._device: Decoder | None = None
        self._numpys = numpys
        self._ids, self._logits, self._allowed = ids, logits, allowed
        self._proven_streams = 0
        self._text: list[Ids] = []  # (B, n) pieces that the decoder was given

    def start(self, ids: Ids) -> Array:
        """Starts a new text: (B, n) ids -> (B, vocab_size) logits of the next character."""
        self._text = []

        def work(device: Decoder) -> Array:
            if self._proven_streams != len(ids):
                self._prove(device, len(ids))
            return device.start(ids)

        logits = self._on_device(work, lambda: self._numpys.start(ids))
        self._text.append(ids.copy())
        return logits

    def step(self, ids: Ids) -> Array:
        """(B,) ids, one more for each stream -> (B, vocab_size) logits of the next character."""
        logits = self._on_device(lambda device: device.step(ids), lambda: self._numpys.step(ids))
        self._text.append(ids[:, None].copy())
        return logits

    def _on_device(self, work: Callable[[Decoder], Array], instead: Callable[[], Array]) -> Array:
        """The device's result; if it fails, numpy reads the text so far and `instead` is used."""
        if self._open is None:
            return instead()
        try:
            if self._device is None:
                self._device = self._open()
            return work(self._device)
        except Exception as error:  # a driver, a kernel or torch may raise anything
            self._open = self._device = None
            report_failure("the GPU", error, "numpy writes the same text instead")
        if self._text:
            self._numpys.start(np.hstack(self._text))
        return instead()

    def _prove(self, device: Decoder, streams: int) -> None:
        """Raises ArithmeticError unless `start` and `step` give every stream numpy's logits."""
        length, half = len(self._ids), max(1, len(self._ids) // 2)
        ids = np.tile(self._ids, (streams, 1))  # (B, P)
        for end in range(half, length + 1):
            logits = device.start(ids[:, :end]) if end == half else device.step(ids[:, end - 1])
            error = float(np.abs(logits - self._logits[end - 1]).max())
            if not error <= self._allowed(error):
                raise ArithmeticError(
                    f"the GPU's logits differ from the checkpoint's by {error:.1e}"
                )
        self._proven_streams = streams
