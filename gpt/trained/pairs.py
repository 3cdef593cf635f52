"""A trained GPT with an encoder: texts "source TAB target", and targets that it writes.

`Pairs` is a base class of TrainedGPT.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpt.config import ModelConfig
from gpt.errors import TextError
from gpt.reading.answers import FIRST, LAST, greedy
from gpt.reading.gpt import Reader
from gpt.storage.model_file import StoredModel
from gpt.vocabulary import Ids, Vocabulary


class Pairs:
    """Sources and targets of the model that TrainedGPT has opened."""

    stored: StoredModel
    config: ModelConfig
    vocabulary: Vocabulary
    reader: Reader

    @property
    def has_encoder(self) -> bool:
        """Whether the model reads a source and writes a target."""
        return self.config.encoder_layers > 0

    def sides(self, text: str, unknown: str = "error") -> tuple[str, str]:
        """ "source TAB target" -> both sides; without a TAB, the model writes the target.

        Raises TextError for an empty source, several TABs, characters that the model does not know,
        and sides that are longer than the context.
        """
        source, *targets = text.split(FIRST)
        if len(targets) > 1:
            raise TextError("the text has several TABs; give one source, a TAB, one target")
        source = self._known(source, unknown)
        self._require_fits("source", source, self.config.block_size)
        target = self._known(targets[0], unknown) if targets else self.answers([source])[0]
        self._require_fits("target", target, self.config.block_size - 1)
        return source, target

    def answers(self, sources: Sequence[str]) -> list[str]:
        """The likeliest target of each source, greedy. Raises TextError, see `sides`."""
        ids = [self._source_ids(source) for source in sources]
        first, last = self.vocabulary.encode(FIRST + LAST).tolist()
        return [self.vocabulary.decode(each) for each in greedy(self.reader, ids, first, last)]

    def some_answers(self, most: int = 3) -> str:
        """The targets that the model writes for the validation split's first sources: at most
        `most` lines, source TAB target.
        """
        lines = self.stored.excerpt.splitlines()
        sources = list(dict.fromkeys(line.split(FIRST)[0] for line in lines))[:most]
        answers = zip(sources, self.answers(sources), strict=True)
        return "\n".join(f"{source}{FIRST}{answer}" for source, answer in answers)

    def _source_ids(self, source: str) -> Ids:
        self._require_fits("source", source, self.config.block_size)
        return self.vocabulary.encode(source)

    def _known(self, text: str, unknown: str) -> str:
        return self.vocabulary.decode(self.vocabulary.encode(text, unknown))

    def _require_fits(self, side: str, text: str, most: int) -> None:
        if side == "source" and not text:
            raise TextError("no source: there is nothing to read; give at least one character")
        if len(text) > most:
            raise TextError(
                f"the {side} has {len(text)} characters, the model takes {most}; shorten it"
            )
