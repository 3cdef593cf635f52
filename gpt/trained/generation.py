"""A trained GPT writes: text drawn from the model with numpy or on a device.

`Generation` is a base class of TrainedGPT.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Literal, Unpack, overload

from gpt.config import SampleConfig
from gpt.config.fields import require
from gpt.config.keywords import SampleOptions, takes
from gpt.counting.mixture import Mixture, mixture_of
from gpt.errors import ConfigError
from gpt.reading.decode import require_memory
from gpt.reading.fallback import FallbackDecoder, FallbackReader
from gpt.reading.parallel import ParallelDecoder
from gpt.reading.sample import HeldTexts, Sample
from gpt.reading.sampler import Decoder, Samples
from gpt.trained.targets import Targets


class Generation(Targets):
    """Generates text with the model that TrainedGPT has opened."""

    _decoder_free: threading.Lock

    @cached_property
    def mixture(self) -> Mixture | None:
        """The counting expert and its gate, if the model has them. Raises CheckpointError."""
        return mixture_of(self.stored)

    @cached_property
    def decoder(self) -> Decoder:
        """numpy's decoder with a KV cache, or a device's with numpy's as fallback."""
        if not isinstance(self.reader, FallbackReader):
            return self._numpys
        return FallbackDecoder(self.reader.device, self._numpys.twin())

    @cached_property
    def _numpys(self) -> ParallelDecoder:
        return ParallelDecoder(self.reader)

    @contextmanager
    def _decoding(self) -> Iterator[Decoder]:
        """A decoder that no other stream uses: the first one, or a second one with numpy."""
        if self._decoder_free.acquire(blocking=False):
            try:
                yield self.decoder
            finally:
                self._decoder_free.release()
        else:
            yield self._numpys.twin()

    @overload
    def generate(
        self,
        prompt: str = "",
        *,
        n: Literal[1] = 1,
        stop: Sequence[str] = (),
        unknown: str = "error",
        **options: Unpack[SampleOptions],
    ) -> str: ...

    @overload
    def generate(
        self,
        prompt: str = "",
        *,
        n: int,
        stop: Sequence[str] = (),
        unknown: str = "error",
        **options: Unpack[SampleOptions],
    ) -> str | list[str]: ...

    @takes(SampleOptions.__annotations__, SampleConfig)
    def generate(
        self,
        prompt: str = "",
        *,
        n: int = 1,
        stop: Sequence[str] = (),
        unknown: str = "error",
        **options: Unpack[SampleOptions],
    ) -> str | list[str]:
        """The prompt with its continuation; for n > 1 a list of n such texts, as `gptx sample -n`.

        Of a model with an encoder: the target of a source, without it; temperature is 0 unless it
        is given, and length the context's.

        The text ends before the first of the texts in `stop`. unknown: "error", or "skip" for a
        prompt without the characters that the model does not know. Raises TextError for such a
        character, ConfigError for an option out of range, TypeError for an unknown option,
        OutOfMemory for texts that this machine has no room for.
        """
        if self.config.encoder_layers:
            require(not stop, "stop", "a target ends by itself; leave `stop` out")
            settings = self.target_settings(n=n, **options)
            known = self.vocabulary.decode(self.vocabulary.encode(prompt, unknown))
            (written,) = self.written([known], settings)
            targets = [self.vocabulary.decode(each.ids) for each in written]
            return targets if n > 1 else targets[0]
        steps = self.stream(prompt, SampleConfig(n=n, **options), stop, unknown=unknown)
        held = HeldTexts(n)
        for gained in steps:
            held.add(gained)
        texts: list[str] = [Sample(prompt, held.text(number)) for number in range(n)]
        return texts if n > 1 else texts[0]

    def stream(
        self,
        prompt: str,
        config: SampleConfig,
        stop: Sequence[str] = (),
        unknown: str = "error",
        past: str | None = None,
    ) -> Samples:
        """The new text of each of config.n samples, step by step; see sampler.Samples.

        Raises TextError, OutOfMemory for more samples than this machine has room for, ConfigError
        for a model with an encoder, and for `stop` TypeError if it is one text and ValueError if
        one of its texts is empty.
        """
        if self.config.encoder_layers:
            raise ConfigError(
                "a model with an encoder writes whole targets; use generate or answers"
            )
        if isinstance(stop, str):
            raise TypeError(f"stop: expected a list of texts, not one text; use [{stop!r}]")
        if wrong := [each for each in stop if not isinstance(each, str)]:
            raise TypeError(f"stop: expected texts, not {type(wrong[0]).__name__}")
        if not all(stop):
            raise ValueError("stop: an empty text would stop before anything is written")
        known = self.vocabulary.decode(self.vocabulary.encode(prompt, unknown))
        require_memory(self.config, config.n, len(prompt) + config.length)
        samples = (self._decoding(), self.vocabulary, known, config, stop, past)
        return Samples(*samples, self.mixture)
