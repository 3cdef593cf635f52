"""The lesson `mine`: from a text to its next character in a trained model, stage by stage.

Each stage is computed again in float64 from the stage before it and the named weights, and compared
with what the reader computed.
Tensor names: T time, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.config.fields import require
from gpt.errors import TextError
from gpt.explain.lesson import MOST_ROWS, Lesson, Step, Table
from gpt.explain.own_layer import LayerSteps, by_character, gains
from gpt.heads.attention_map import AttentionMap
from gpt.heads.proof import held, logits_reach, stream_reach, summands
from gpt.reading.gpt import Reader
from gpt.reading.layers import softmax
from gpt.vocabulary import Vocabulary

LIKELIEST = 8  # next characters that are shown


def walk(
    reader: Reader, attention: AttentionMap, vocabulary: Vocabulary, layer: int, head: int
) -> Lesson:
    """The computation through one head of one layer, counted from 0; other layers are summarised.

    Raises ConfigError for a layer or head that the model does not have, TextError for a text that
    is empty or too long.
    """
    config, exact = reader.config, reader.in_float64()
    must_be_there(config, layer, head)
    must_fit(config, len(attention.ids))
    shown = attention.text.replace("\n", "⏎").replace("\t", "⇥")
    about = f"From “{shown}” to the next character, through layer {layer}, head {head}."
    steps = chain(
        [_embedding(exact, attention)],
        [_earlier_layers(attention, layer)] if layer else [],
        LayerSteps(exact, attention, layer, head).steps(),
        [_other_layers(attention)] if config.n_layer > 1 else [],
        [_next_character(reader, exact, attention, vocabulary)],
    )
    return Lesson("mine", about, tuple(steps))


def must_be_there(config: ModelConfig, layer: int, head: int) -> None:
    """Raises ConfigError for a layer or head that the model does not have."""
    for name, number, count in (("layer", layer, config.n_layer), ("head", head, config.n_head)):
        require(0 <= number < count, name, f"{number} is not in 0 … {count - 1}")


def must_fit(config: ModelConfig, characters: int) -> None:
    """Raises TextError for a text that is empty, too long to show, or longer than the context."""
    if not characters:
        raise TextError("no text: there is nothing to explain; give at least one character")
    if characters <= min(MOST_ROWS, config.block_size):
        return
    reason = f"{characters:,} characters: every number is shown, so give at most {MOST_ROWS}"
    if config.block_size < MOST_ROWS:
        reason = (
            f"{characters:,} characters, and the model’s context has {config.block_size}: give at "
            f"most {config.block_size}"
        )
    other = "gptx attn … shows longer texts"
    if characters > config.block_size:
        other = f"gptx attn … --truncate shows the last {config.block_size}"
    raise TextError(f"{reason}; {other}")


def _embedding(exact: Reader, attention: AttentionMap) -> Step:
    config, ids, text = exact.config, attention.ids, attention.text
    (tokens, positions), stream = summands(exact, ids), attention.layers[0].stream
    prose = "Each character has an id, its place in the vocabulary, and its own row."
    rows = "token_embedding.weight, the rows of the ids"
    if config.scaled_embedding:
        prose += f" The row is multiplied by √{config.n_embd}, the root of its length."
        rows += f", times √{config.n_embd}"
    tables = [Table("ids", ids, (), tuple(text), numbered=True, digits=0)]
    formula = "stream = token"
    if config.position != "rotary":
        source = "sines and cosines of the position"
        if config.position == "learned":
            source = f"position.weight, rows 0–{len(ids) - 1}"
        tables.append(by_character(text, "token embeddings", tokens, rows))
        tables.append(by_character(text, "positions", positions, source))
        tables.append(by_character(text, "stream", stream))
        prose += " Each position has a row, too."
        prose += " Their sum is the stream, which goes through all layers."
        formula += " + position"
    else:
        tables.append(by_character(text, "stream", stream, rows))
        prose += (
            " These rows are the stream, which goes through all layers. Positions enter later, "
            "where queries and keys are rotated."
        )
    return Step(
        "Characters become rows",
        prose,
        formula,
        tuple(tables),
        checks=(Check("stream", *held(stream, tokens + positions, stream_reach(exact, ids))),),
    )


def _earlier_layers(attention: AttentionMap, layer: int) -> Step:
    earlier = "layer 0 has" if layer == 1 else f"layers 0–{layer - 1} have"
    stream = attention.layers[layer].stream
    return Step(
        "Earlier layers",
        f"Before layer {layer}, {earlier} added their results to the stream. --layer 0 shows how.",
        tables=(by_character(attention.text, f"stream into layer {layer}", stream),),
    )


def _other_layers(attention: AttentionMap) -> Step:
    layers = attention.layers
    depths = np.stack([layers[0].stream[-1], *(each.output[-1] for each in layers)])
    names = ("embedded", *(f"layer {layer}" for layer in range(len(layers))))
    return Step(
        "The other layers",
        f"All {len(layers)} layers compute this, one after the other, each with its own weights. "
        "Here is the row of the last character after each layer.",
        tables=(Table("stream of the last character", depths, names),),
        notice="gptx attn --view lens shows which character each depth would predict next.",
    )


def _next_character(
    reader: Reader, exact: Reader, attention: AttentionMap, vocabulary: Vocabulary
) -> Step:
    output = attention.layers[-1].output
    matrix = "token_embedding.weight" if exact.config.tied else "lm_head.weight"
    last = output.astype(np.float64)
    normed, reach = exact.final_norm(last), logits_reach(exact, last)
    expected = exact.logits(normed)  # (T, vocab_size)
    found = reader.logits(reader.final_norm(output[None]))[0]
    logits, chances = expected[-1], softmax(expected[-1])
    order = np.argsort(-logits, kind="stable")[:LIKELIEST]
    likeliest = tuple(vocabulary.characters[each] for each in order.tolist())
    row, again, name = f"stream[{len(output) - 1}]", "", "last row"
    if not exact.config.post_norm:
        row, again, name = f"norm({row})", ", normalised once more,", "last row, normed"
    return Step(
        "Logits, and the next character",
        f"The last row{again} is multiplied by a row for every character of the "
        "vocabulary. The products are the logits; softmax converts them to probabilities. The "
        "likeliest are:",
        f"logits = {row} · Wᵀ    chances = softmax(logits)",
        (
            Table(name, normed[-1], source="" if exact.config.post_norm else gains(exact, "norm")),
            Table(f"rows of {matrix}", order, (), likeliest, digits=0),
            Table("logits", logits[order], (), likeliest),
            Table("chances", chances[order], (), likeliest),
        ),
        f"Greedy sampling takes the first; its probability is {chances[order[0]]:.4f}. gptx next "
        "shows how temperature and filters change it.",
        (Check("logits", *held(found, expected, reach)), *attention.checks),
    )
