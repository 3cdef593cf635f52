"""From a text to its next character in a trained model, stage by stage, as a lesson.

Each stage is computed again in float64 from the stage before it and the named weights, and held to
what the reader computed. Knows no screen.
Tensor names: T time, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.errors import ConfigError, TextError
from gpt.explain.lesson import MOST_ROWS, Lesson, Step, Table
from gpt.explain.own_layer import LayerWalk, by_character
from gpt.explain.own_ngrams import gram_step
from gpt.heads.attention_map import AttentionMap
from gpt.heads.exact import Exact
from gpt.heads.rounding import held
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array, softmax
from gpt.vocabulary import Vocabulary

LIKELIEST = 8  # next characters that are shown


def walk(
    reader: Reader, attention: AttentionMap, vocabulary: Vocabulary, layer: int, head: int
) -> Lesson:
    """Through one head of one layer, counted from 0; the other layers are summed up.

    Raises ConfigError for a layer or head that there is not, TextError for too long a text.
    """
    must_be_there(reader.config, layer, head)
    must_fit(reader.config, len(attention.ids))
    path = _Path(reader, attention, vocabulary, layer, head)
    shown = attention.text.replace("\n", "⏎").replace("\t", "⇥")
    about = f"From “{shown}” to the next character, through layer {layer}, head {head}."
    return Lesson("mine", about, tuple(path.steps()))


def must_be_there(config: ModelConfig, layer: int, head: int) -> None:
    """Raises ConfigError for a layer or head that the model has not."""
    for name, number, count in (("layer", layer, config.n_layer), ("head", head, config.n_head)):
        if not 0 <= number < count:
            raise ConfigError(name, f"{number} is not in 0 … {count - 1}")


def must_fit(config: ModelConfig, characters: int) -> None:
    """Raises TextError for a text of nothing, and for one too long to show or for the context."""
    if not characters:
        raise TextError("no text: there is nothing to explain; give at least one character")
    if characters <= min(MOST_ROWS, config.block_size):
        return
    reason = f"{characters:,} characters: this shows every number, so give at most {MOST_ROWS}"
    if config.block_size < MOST_ROWS:
        reason = (
            f"{characters:,} characters, and the model’s context has {config.block_size}: give at "
            f"most {config.block_size}"
        )
    other = "gptx attn … shows longer texts"
    if characters > config.block_size:
        other = f"gptx attn … --truncate shows the last {config.block_size}"
    raise TextError(f"{reason}; {other}")


@dataclass
class _Path:
    """The way through one head."""

    reader: Reader
    attention: AttentionMap
    vocabulary: Vocabulary
    layer: int
    head: int

    def steps(self) -> Iterator[Step]:
        yield self._embedding()
        if self.reader.config.ngram > 1:
            yield gram_step(self.reader.config, self.attention.ids)
        if self.layer:
            yield self._before()
        stages = self.attention.layers[self.layer]
        layer = LayerWalk(self.reader, stages, self.attention.text, self.layer, self.head)
        yield from layer.steps()
        yield from self._after()

    @property
    def _last(self) -> int:
        return len(self.attention.ids) - 1

    def _rows(self, name: str, values: Array, source: str = "") -> Table:
        return by_character(self.attention.text, name, values, source)

    @cached_property
    def _exact(self) -> Exact:
        return Exact(self.reader)

    def _embedding(self) -> Step:
        config, ids = self.reader.config, self.attention.ids
        made = self._exact.embed(ids)
        characters = tuple(self.attention.text)
        tables = [
            Table("ids", ids, (), characters, numbered=True, digits=0),
            self._rows(
                "token embeddings", made.tokens, "token_embedding.weight, the rows of the ids"
            ),
        ]
        told = "Each character has an id, its place in the vocabulary, and a row of its own."
        if made.rows is not None and made.grams is not None:
            orders = tuple(f"last {order}" for order in range(2, config.ngram + 1))
            tables += [
                Table("rows of n-grams", made.rows, characters, orders, numbered=True, digits=0),
                self._rows("n-gram embeddings", made.grams, "ngram_embedding.weight, rows summed"),
            ]
            told += " So have its last characters together: their rows are added."
        if made.positions is not None:
            source = "sines and cosines of the position"
            if config.position == "learned":
                source = f"position.weight, rows 0–{self._last}"
            tables.append(self._rows("positions", made.positions, source))
            told += " So has each position."
        elif config.position == "rotary":
            told += " Positions enter later, where queries and keys are turned."
        else:
            told += " Positions enter later, where scores fall with the distance."
        stream = self.attention.layers[0].stream
        parts = ("token", *(["n-gram"] if config.ngram > 1 else []))
        parts += ("position",) if made.positions is not None else ()
        return Step(
            "Characters become rows",
            f"{told} What comes out is the stream that runs through all layers.",
            f"stream = {' + '.join(parts)}",
            (*tables, self._rows("stream", stream)),
            checks=(Check("stream", *held(stream, made.stream, made.reach)),),
        )

    def _before(self) -> Step:
        stream = self.attention.layers[self.layer].stream
        earlier = "layer 0 has" if self.layer == 1 else f"layers 0–{self.layer - 1} have"
        return Step(
            "Earlier layers",
            f"Before layer {self.layer}, {earlier} added to the stream what they found. "
            "--layer 0 shows how.",
            tables=(self._rows(f"stream into layer {self.layer}", stream),),
        )

    def _after(self) -> Iterator[Step]:
        config, layers = self.reader.config, self.attention.layers
        depths = np.stack([layers[0].stream[-1], *(each.output[-1] for each in layers)])
        names = ("embedded", *(f"layer {layer}" for layer in range(config.n_layer)))
        if config.n_layer > 1:
            yield Step(
                "The other layers",
                f"All {config.n_layer} layers do this, one after the other, with weights of their "
                "own. Here is the row of the last character after each.",
                tables=(Table("stream of the last character", depths, names),),
                notice="gptx attn --view lens tells what each depth would say next.",
            )
        output = "token_embedding.weight" if config.tied else "lm_head.weight"
        normed, every, reach = self._exact.last(layers[-1].output)  # (T, C), (T, vocab_size)
        found = self.reader.logits(self.reader.final_norm(layers[-1].output[None]))[0]
        logits = every[-1]
        chances = softmax(logits)
        order = np.argsort(-logits, kind="stable")[:LIKELIEST]
        likeliest = tuple(self.vocabulary.characters[each] for each in order.tolist())
        yield Step(
            "Logits, and the next character",
            "The last row, normalised once more, is multiplied with a row for every character of "
            "the vocabulary: the logits. Softmax makes chances of them. The likeliest:",
            f"logits = norm(stream[{self._last}]) · Wᵀ    chances = softmax(logits)",
            (
                Table("last row, normed", normed[-1], source=self._exact.gains("norm")),
                Table(f"rows of {output}", order, (), likeliest, digits=0),
                Table("logits", logits[order], (), likeliest),
                Table("chances", chances[order], (), likeliest),
            ),
            f"Greedy sampling writes the first; its chance is {chances[order[0]]:.4f}. gptx next "
            "shows what temperature and filters make of it.",
            (Check("logits", *held(found, every, reach)), *self.attention.checks),
        )
