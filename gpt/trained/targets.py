"""A trained GPT writes targets for sources, and is scored on pairs of both.

`Targets` is a base class of TrainedGPT, by way of Pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpt.config import ModelConfig, SampleConfig
from gpt.config.fields import check_size, require
from gpt.config.sample import SHAPING
from gpt.corpus.pair_lines import Window, pair_lines, source_lines
from gpt.errors import ConfigError, TextError
from gpt.reading.decode import require_memory
from gpt.reading.gpt import Reader
from gpt.reading.pairs.answers import FIRST, LAST, Written, beam, sampled
from gpt.storage.model_file import StoredModel
from gpt.vocabulary import Vocabulary

if TYPE_CHECKING:  # imported where it is used, so that a model opens fast
    from gpt.corpus.pair_lines import Line
    from gpt.reading.pairs.score import PairScores


class Targets:
    """Targets that the model writes, of the model that TrainedGPT has opened.

    A decoder-only model that was trained on lines `source TAB target` writes them, too.
    """

    stored: StoredModel
    config: ModelConfig
    vocabulary: Vocabulary
    reader: Reader

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
        from gpt.reading.pairs.score import pair_scores

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
        from gpt.reading.pairs.score import surprises_of_targets

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
        self._marks()
        return pair_lines(text, self.vocabulary, self._window)

    @property
    def _window(self) -> Window:
        return Window(self.config.block_size, joined=not self.config.encoder_layers)

    @property
    def _longest(self) -> int:
        """Characters of the longest target."""
        return self.config.block_size - 1
