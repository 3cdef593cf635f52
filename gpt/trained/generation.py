"""The part of TrainedGPT that writes: text drawn from the model with numpy or on a device, and
targets for sources of pairs, "source TAB target", which it also scores.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args, overload

from gpt.config import AttentionKind, ModelConfig, SampleConfig
from gpt.config.fields import check_size, require
from gpt.config.keywords import SampleOptions, takes
from gpt.config.sample import SHAPING
from gpt.errors import ConfigError, TextError
from gpt.reading.decode import ParallelDecoder, require_memory
from gpt.reading.gpt import Reader
from gpt.reading.sampler import Decoder, HeldTexts, Sample, Samples
from gpt.storage.model_file import StoredModel
from gpt.vocabulary import FIRST, LAST, Ids, Vocabulary

if TYPE_CHECKING:  # imported where they are used, so that a model opens fast
    from gpt.corpus.pair_lines import Line, Window
    from gpt.counting.mixture import Mixture
    from gpt.heads.proof import OpenDevice
    from gpt.reading.pairs import PairScores, Written

#: What only models without an encoder have -> what shows a model with an encoder instead.
DECODER_ONLY = {
    "activations and patches": "attention maps have the stages of its encoder, decoder and "
    "cross-attention: attn -o stages.npz, or attn(text, attention=…).to_numpy()",
    "logits of texts": "next shows the next character's probabilities, next(text) in Python",
    "the lesson mine": "attn shows every stage of its encoder, decoder and cross-attention",
    "export": "its file model.safetensors opens with gptx alone: --run FILE, gpt.load(FILE)",
}


def require_decoder_only(config: ModelConfig, what: str) -> None:
    """Raises ConfigError if a model has an encoder. what: a key of DECODER_ONLY."""
    if config.encoder_layers:
        raise ConfigError(f"{what}: not for a model with an encoder; {DECODER_ONLY[what]}")


def require_kind(config: ModelConfig, kind: AttentionKind | None) -> None:
    """Raises ConfigError for a kind of attention that a model does not have. None: the default."""
    known = get_args(AttentionKind) if config.encoder_layers else ("decoder",)
    has = "this model has no encoder: " if kind in get_args(AttentionKind) else ""
    require(kind in (None, *known), "attention", f"{has}{kind!r} is not one of {', '.join(known)}")


class Generation:
    """Text and targets, with the model that TrainedGPT has opened.

    A decoder-only model that was trained on lines `source TAB target` writes targets, too.
    """

    stored: StoredModel
    config: ModelConfig
    vocabulary: Vocabulary
    reader: Reader
    _open_device: OpenDevice | None
    _decoder_free: threading.Lock

    @cached_property
    def mixture(self) -> Mixture | None:
        """The counting expert and its gate, if the model has them. Raises CheckpointError."""
        from gpt.counting.mixture import mixture_of

        return mixture_of(self.stored)

    @cached_property
    def decoder(self) -> Decoder:
        """numpy's decoder with a KV cache, or a device's with numpy's as fallback."""
        if self._open_device is not None:
            from gpt.reading.fallback import FallbackDecoder, FallbackReader

            if isinstance(self.reader, FallbackReader):
                return FallbackDecoder(self.reader.device, self._numpys.twin())
        return self._numpys

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
    def sample(
        self,
        prompt: str = "",
        *,
        n: Literal[1] = 1,
        stop: Sequence[str] = (),
        unknown: str = "error",
        **options: Unpack[SampleOptions],
    ) -> str: ...

    @overload
    def sample(
        self,
        prompt: str = "",
        *,
        n: int,
        stop: Sequence[str] = (),
        unknown: str = "error",
        **options: Unpack[SampleOptions],
    ) -> str | list[str]: ...

    @takes(SampleOptions.__annotations__, SampleConfig)
    def sample(
        self,
        prompt: str = "",
        *,
        n: int = 1,
        stop: Sequence[str] = (),
        unknown: str = "error",
        **options: Unpack[SampleOptions],
    ) -> str | list[str]:
        """The prompt with its continuation; for n > 1 a list of n such texts, as `gptx sample -n`.

        For a model with an encoder: the target of a source, without it; temperature is 0 unless it
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
            raise ConfigError("a model with an encoder writes whole targets; use sample or answers")
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

    @property
    def has_encoder(self) -> bool:
        """Whether the model reads a source and writes a target."""
        return self.config.encoder_layers > 0

    def sides(self, text: str, unknown: str = "error") -> tuple[str, str]:
        """ "source TAB target" -> both sides; without a TAB, the model writes the target. A line's
        end is not part of it.

        Raises TextError for an empty source, several TABs or lines, characters that the model does
        not know, and sides that are longer than the context.
        """
        text = text.removesuffix(LAST)
        if LAST in text:
            raise TextError("the text has several lines; give one pair: a source, a TAB, a target")
        source, *targets = text.split(FIRST)
        if len(targets) > 1:
            raise TextError("the text has several TABs; give one source, a TAB, one target")
        source = self._known(source, unknown)
        self._require_fits("source", source, self.config.block_size)
        target = self._known(targets[0], unknown) if targets else self.answers([source])[0]
        self._require_fits("target", target, self.config.block_size - 1)
        return source, target

    def pairs(self, most: int | None = None) -> list[tuple[str, str]]:
        """(source, target) of the validation split's first pairs, which the model file contains.

        At most `most`; without pairs that are longer than the context. Raises TextError if there
        are none.
        """
        return self.pairs_in(self.excerpt_lines)[:most]

    @property
    def excerpt_lines(self) -> str:
        """The complete lines of the start of the validation split, which the model file contains;
        the last one is cut.
        """
        return self.stored.excerpt.rpartition(LAST)[0]

    def pair_ids(self, text: str) -> list[tuple[Ids, Ids]]:
        """The ids of each source of a text's pairs, and of what the decoder reads: TAB, target."""
        encode = self.vocabulary.encode
        pairs = self.pairs_in(text)
        return [(encode(source), encode(FIRST + target)) for source, target in pairs]

    def pairs_in(self, text: str) -> list[tuple[str, str]]:
        """The pairs in lines of a text that fit the context. Raises TextError if there are none."""
        lines = [line.removesuffix("\r").split(FIRST) for line in text.split(LAST)]
        size = self.config.block_size
        fitting = [
            (line[0], line[1])
            for line in lines
            if len(line) == 2 and 0 < len(line[0]) <= size and len(line[1]) < size
        ]
        if not fitting:
            raise TextError(
                "the text has no pair that fits the model's context: lines of a source, one TAB, a "
                "target"
            )
        return fitting

    def some_answers(self, most: int = 3) -> str:
        """The targets that the model writes for the validation split's first sources: at most
        `most` lines, source TAB target.
        """
        lines = self.stored.excerpt.removesuffix(LAST).split(LAST)
        sources = list(dict.fromkeys(line.split(FIRST)[0] for line in lines))[:most]
        answers = zip(sources, self.answers(sources), strict=True)
        return "\n".join(f"{source}{FIRST}{answer}" for source, answer in answers)

    def _known(self, text: str, unknown: str) -> str:
        return self.vocabulary.decode(self.vocabulary.encode(text, unknown))

    def _require_fits(self, side: str, text: str, most: int) -> None:
        if side == "source" and not text:
            raise TextError("no source: there is nothing to read; give at least one character")
        if len(text) > most:
            raise TextError(
                f"the {side} has {len(text)} characters, the model takes {most}; shorten it"
            )

    def answers(self, sources: Sequence[str], *, beam: int = 1) -> list[str]:
        """The likeliest target of each source: the best of a beam search, greedy with a beam of 1.

        Raises TextError with the number of a source that is empty, has a TAB or an unknown
        character or does not fit the context, ConfigError for a beam that is less than 1.
        """
        settings = self.target_settings(beam=beam)
        found = self.written(sources, settings, beam)
        return [self.vocabulary.decode(best.ids) for best, *_ in found]

    def target_settings(self, beam: int | None = None, **options: Any) -> SampleConfig:
        """How to write targets: greedy, unless a temperature above 0 or a beam is given.

        options: of SampleConfig; with a beam, n is the number of best targets. Raises ConfigError
        for options out of range, and for those that have no effect together.
        """
        settings = SampleConfig(**{"temperature": 0.0, "length": self._longest, **options})
        require(settings.only is None, "only", "this model has no counting; leave the option out")
        most = f"{settings.length} is more than the longest target, {self._longest} characters"
        require(settings.length <= self._longest, "length", most)
        shaping = [name for name in SHAPING if name != "temperature" and options.get(name)]
        if beam is not None:
            require(beam >= 1, "beam", f"{beam} is less than 1")
            check_size("beam", beam)
            given = [name for name in ("temperature", *shaping) if options.get(name)]
            if given:
                raise ConfigError("beam", f"a search draws nothing; leave `{given[0]}` out")
            reason = f"{settings.n} targets need a beam of {settings.n} or more"
            require(settings.n <= beam, "n", reason)
        elif not settings.temperature:
            advice = "at temperature 0, the likeliest character is taken; give `temperature`"
            require(not shaping, shaping[0] if shaping else "", f"it has no effect {advice}")
            reason = "at temperature 0, all targets are equal; give `temperature`, or `beam`"
            require(settings.n == 1, "n", reason)
        return settings

    def written(
        self,
        sources: Sequence[str],
        settings: SampleConfig,
        beam_width: int | None = None,
        start: int = 1,
        name: str = "source",
    ) -> list[list[Written]]:
        """The targets of each source: settings.n drawn ones, or with a beam the n best.

        settings: from `target_settings`. start: the number of the first source, and name: what it
        is, for errors. Raises TextError, as `answers`.
        """
        from gpt.corpus.pair_lines import source_lines
        from gpt.reading.pairs import beam, sampled

        if isinstance(sources, str):
            raise TypeError(f"sources: expected a list of texts, not one text; use [{sources!r}]")
        wrong = [each for each in sources if not isinstance(each, str)]
        if wrong:
            raise TypeError(f"sources: expected texts, not {type(wrong[0]).__name__}")
        first, last = self._marks()
        ids = source_lines(sources, self.vocabulary, self._window, start, name)
        if beam_width is None:
            return sampled(self.reader, ids, first, last, settings)
        require_memory(self.config, beam_width, settings.length, "--beam")
        return beam(self.reader, ids, first, last, beam_width, settings.n, settings.length)

    def score_pairs(self, text: str, *, beam: int = 1) -> PairScores:
        """Scores the model on lines `source TAB target`: nats per target character, and what it
        writes for each source, with a beam search or greedy, beside the listed targets.

        Raises TextError with the number of a line that is no pair, has an unknown character or does
        not fit the context, ConfigError for a beam that is less than 1.
        """
        from gpt.reading.pairs import pair_scores

        self.target_settings(beam=beam)
        lines, decode = self._pair_lines(text), self.vocabulary.decode
        sources = [decode(line.source) for line in lines]
        targets = [decode(line.target) for line in lines]
        unique = list(dict.fromkeys(sources))
        written = dict(zip(unique, self.answers(unique, beam=beam), strict=True))
        numbers = [line.number for line in lines]
        return pair_scores(numbers, sources, targets, written, self._nats(lines))

    def nats_of(self, text: str) -> Any:
        """(M,) −ln p of each target character of a text of pairs, pair after pair, the end of each
        included. Raises TextError, as `score_pairs`.
        """
        return self._nats(self._pair_lines(text))

    def _nats(self, lines: Sequence[Line]) -> Any:
        from gpt.reading.pairs import surprises_of_targets

        pairs = [(line.source, line.target) for line in lines]
        return surprises_of_targets(self.reader, pairs, *self._marks())

    def _marks(self) -> tuple[int, int]:
        """The ids of TAB, before a target, and of NEWLINE, after it. Raises TextError if the model
        does not know them, ConfigError if it has counting.
        """
        if self.config.counting:
            raise ConfigError(
                "targets need a model without counting; train one with `counting=0`, or with an "
                "encoder"
            )
        if self.vocabulary.unknown(FIRST + LAST):
            raise TextError(
                "this model was not trained on pairs: it does not know TAB and NEWLINE; train one "
                "on lines of SOURCE, TAB, TARGET"
            )
        first, last = self.vocabulary.encode(FIRST + LAST).tolist()
        return first, last

    def _pair_lines(self, text: str) -> list[Line]:
        from gpt.corpus.pair_lines import pair_lines

        self._marks()
        return pair_lines(text, self.vocabulary, self._window)

    @property
    def _window(self) -> Window:
        from gpt.corpus.pair_lines import Window

        return Window(self.config.block_size, joined=not self.config.encoder_layers)

    @property
    def _longest(self) -> int:
        """Characters of the longest target."""
        return self.config.block_size - 1
