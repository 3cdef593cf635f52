"""A trained GPT with an encoder: texts "source TAB target".

`Pairs` is a base class of TrainedGPT.
"""

from __future__ import annotations

from typing import get_args

from gpt.config import ModelConfig
from gpt.config.fields import require
from gpt.config.show import AttentionKind
from gpt.errors import ConfigError, TextError
from gpt.reading.pairs.answers import FIRST, LAST
from gpt.trained.targets import Targets
from gpt.vocabulary import Ids

#: What only models without an encoder have -> what shows a model with an encoder instead.
DECODER_ONLY = {
    "activations and patches": "attention maps have the stages of its encoder, decoder and "
    "cross-attention: attn -o stages.npz, or attention(text, kind=…).to_numpy()",
    "logits of texts": "next shows the next character's probabilities, following(text) in Python",
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


class Pairs(Targets):
    """Sources and targets of the model that TrainedGPT has opened."""

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
